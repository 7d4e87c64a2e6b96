package deploy

import (
	"fmt"
	"regexp"
)

// The grammar of an image reference, which is [HOST[:PORT]/]PATH[:TAG][@DIGEST].
// https://github.com/distribution/reference/blob/main/reference.go
const (
	hostLabel = `[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?`
	host      = `(` + hostLabel + `(\.` + hostLabel + `)*|\[[a-fA-F0-9:]+\])(:[0-9]+)?`
	pathPart  = `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`
	path      = pathPart + `(/` + pathPart + `)*`
	tag       = `[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}`
	digest    = `(sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})`
	reference = `^(` + host + `/)?(?P<path>` + path + `)(:` + tag + `)?(@` + digest + `)?$`
)

// checkImage checks the syntax of the image. Without this check, a mistake would show only when the kubelet starts the
// pod.
func (s Settings) checkImage() error {
	grammar := regexp.MustCompile(reference)
	match := grammar.FindStringSubmatch(s.Image)
	if match == nil {
		return fmt.Errorf("-image %q: use [HOST[:PORT]/]PATH[:TAG][@DIGEST], where PATH has lower-case letters and digits, "+
			"joined by '/', '.', '_', '__' or '-'", s.Image)
	}
	if len(match[grammar.SubexpIndex("path")]) > 255 {
		return fmt.Errorf("-image %q: its path has more than 255 characters", s.Image)
	}
	return nil
}
