package fakekube

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"
)

// RunTests runs the tests of a package, and returns the exit code for TestMain. A test that leaves a goroutine, an open
// file or an idle connection behind fails all of them. Open files are seen on Linux alone, as it looks for them in
// /proc.
func RunTests(m interface{ Run() int }) (code int) {
	before := held()
	code = m.Run()
	var left map[string]string
	for range 100 { // what ends by itself may take a moment
		left = held()
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

// held are the goroutines and open files of this process, idle connections among them, but not what Go itself makes
// once and keeps.
func held() map[string]string {
	all, stacks := map[string]string{}, make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if name, where, _ := strings.Cut(stack, " ["); !strings.Contains(where, "os/signal.loop") {
			all[name] = where
		}
	}
	files, _ := os.ReadDir("/proc/self/fd") // on Linux
	for _, file := range files {
		what, err := os.Readlink("/proc/self/fd/" + file.Name())
		if err == nil && what != "anon_inode:[eventpoll]" && what != "anon_inode:[eventfd]" {
			all["file "+file.Name()+" "+what] = what
		}
	}
	return all
}
