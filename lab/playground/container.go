package main

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// container is what a kubelet reads from a pod's spec, about its first container.
type container struct {
	name          string
	image         string
	command       string // with its arguments; "" means the image's own command
	restartPolicy string // of the pod
}

// containerOf reads a pod's spec.
func containerOf(pod object) container {
	spec, _ := pod["spec"].(object)
	c := container{restartPolicy: fakekube.TextIn(spec, "restartPolicy")}
	containers, _ := spec["containers"].([]any)
	if len(containers) == 0 {
		return c
	}
	first, _ := containers[0].(object)
	c.name = fakekube.TextIn(first, "name")
	c.image = fakekube.TextIn(first, "image")
	var words []string
	for _, field := range []string{"command", "args"} {
		list, _ := first[field].([]any)
		for _, word := range list {
			text, _ := word.(string)
			words = append(words, text)
		}
	}
	c.command = strings.Join(words, " ")
	return c
}

// These are the commands that the playground's nodes understand. All others run until they are stopped.
var (
	sleeps = regexp.MustCompile(`\bsleep (\d+)\b`)
	exits  = regexp.MustCompile(`\bexit (\d+)\b`)
	ends   = regexp.MustCompile(`\b(sleep \d+|exit \d+|true|false|date|echo)\b`)
	fails  = regexp.MustCompile(`\bfalse\b`)
)

// lifetime returns how long a container runs: as long as its command sleeps, or no time at all. isFinite is false if it
// never ends by itself.
func (c container) lifetime() (d time.Duration, isFinite bool) {
	if !ends.MatchString(c.command) {
		return 0, false
	}
	found := sleeps.FindStringSubmatch(c.command)
	if found == nil {
		return 0, true
	}
	seconds, err := strconv.Atoi(found[1])
	return time.Duration(seconds) * time.Second, err == nil
}

// exitCode returns the exit code of a container that ends by itself.
func (c container) exitCode() int {
	if found := exits.FindStringSubmatch(c.command); found != nil {
		code, _ := strconv.Atoi(found[1])
		return code & 0xff
	}
	if fails.MatchString(c.command) {
		return 1
	}
	return 0
}

// imageSize invents the size of an image, in bytes.
func imageSize(image string) int { return 20_000_000 + len(image)*1_234_567 }
