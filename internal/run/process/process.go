// Package process deals with the process as a whole: what it was built from, its resources, its signals, its shutdown
// and its exit. Its goroutines can have names (Group), an end to wait for (Go, IsClosed), and a time after which they
// hang (Stopwatch).
package process

import (
	"context"
	"fmt"
	stdlog "log"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"podcount/internal/view/logging"
)

const (
	// shutdownLimit is how long a shutdown may take before the process exits. It is more than all steps of a shutdown
	// may take together. docs/run/failures.md shows the same number.
	shutdownLimit = 26 * time.Second

	// signalCopyWindow is the time after the first signal within which a further one counts as a copy of it. GNU timeout,
	// for example, signals its child, and then the child's process group.
	signalCopyWindow = time.Second

	// lastLineTimeout is how long Exit waits for its line to be written.
	lastLineTimeout = 200 * time.Millisecond
)

// Prepare sets up the process. main must call it first.
func Prepare() {
	limitResources()
	prepareSystem()
	redirectPackageLog()
}

// limitResources tunes the garbage collector and the scheduler, unless the environment does. Most of the heap is a
// cache that stays, so room for garbage of a quarter of the heap is enough. One processor is enough for all the work.
func limitResources() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// redirectPackageLog makes package log write to stderr without blocking. net/http logs through package log while it
// holds locks that every request needs.
func redirectPackageLog() {
	dropSilently := func(int) []byte { return nil }
	stdlog.SetOutput(logging.NewOutput(os.Stderr, logging.OutputLimit, dropSilently))
}

// StopOnSignal returns a context that ends on the first SIGINT or SIGTERM. A second signal exits at once, and so does a
// shutdown that hangs.
func StopOnSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	notifyOfStops(signals)
	go handleSignals(signals, stop, func(why string) { Exit(1, why) })
	return ctx
}

// handleSignals calls stop on the first signal. It calls exit on the second one, or when the shutdown takes too long.
func handleSignals(signals <-chan os.Signal, stop func(), exit func(why string)) {
	<-signals
	first := time.Now()
	deadline := time.AfterFunc(shutdownLimit, func() {
		exit("the shutdown hangs: it has not ended in " + shutdownLimit.String())
	})
	defer deadline.Stop()
	stop()
	for range signals {
		isCopy := time.Since(first) < signalCopyWindow
		if !isCopy {
			exit("cut short by a second signal")
			return
		}
	}
}

// Exit writes why to stderr as one line, and ends the process. It does not wait long for the write, because stderr may
// be a full pipe.
func Exit(code int, why string) {
	line := logging.Printable(strings.ReplaceAll(why, "\n", "; "))
	written := Go(func() { fmt.Fprintln(os.Stderr, "podcount:", line) })
	select {
	case <-written:
	case <-time.After(lastLineTimeout):
	}
	os.Exit(code)
}
