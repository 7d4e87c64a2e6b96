package testkit

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// RunTests runs the tests of a package and returns the exit code for TestMain. It returns 1 if a goroutine, an open
// file or an idle connection is left over 5 s after the last test. It finds open files through /proc, so only on
// Linux.
func RunTests(m interface{ Run() int }) (code int) {
	before := heldResources()
	code = m.Run()
	var left map[string]string
	for range 100 { // goroutines that are about to end may take a moment
		left = heldResources()
		maps.DeleteFunc(left, func(name, _ string) bool { return before[name] != "" })
		if len(left) == 0 {
			return code
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		fmt.Printf("left behind by a test: %s: %s\n\n", name, left[name])
	}
	return 1
}

// heldResources returns the goroutines and open files of this process by name, without those that the Go runtime
// creates once and keeps. An idle connection appears as both.
func heldResources() map[string]string {
	all := map[string]string{}
	buffer := make([]byte, 16<<20)
	stacks := string(buffer[:runtime.Stack(buffer, true)])
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		name, where, _ := strings.Cut(stack, " [")
		if !strings.Contains(where, "os/signal.loop") {
			all[name] = where
		}
	}
	files, _ := os.ReadDir("/proc/self/fd") // exists only on Linux
	for _, file := range files {
		what, err := os.Readlink("/proc/self/fd/" + file.Name())
		if err == nil && what != "anon_inode:[eventpoll]" && what != "anon_inode:[eventfd]" {
			all["file "+file.Name()+" "+what] = what
		}
	}
	return all
}
