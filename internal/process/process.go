// Package process contains what depends on the operating system: signals, closed pipes, memory limits and exit codes.
// Its Lifetime has the contexts that end one after the other in a shutdown.
package process

import (
	"context"
	"fmt"
	stdlog "log"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"podcount/internal/background"
	"podcount/internal/logging"
)

const (
	// shutdownLimit ends a shutdown that hangs. It is more than all steps of a shutdown may take together. README.md
	// shows the same number.
	shutdownLimit = 26 * time.Second

	// signalCopyWindow is how long after a signal a second one counts as a copy of it. GNU timeout, for one, signals
	// its child, and then the process group that the child is in.
	signalCopyWindow = time.Second

	// lastLineTimeout limits the write of the last line to stderr.
	lastLineTimeout = 200 * time.Millisecond
)

// Prepare sets up the process. Call it first.
func Prepare() {
	limitResources()
	surviveClosedPipes()
	redirectPackageLog()
}

// limitResources sets the garbage collector and the scheduler to what suits podcount, unless the environment says
// otherwise. Most of the heap is a cache that stays, so a quarter of it is enough room for garbage. And there is never
// enough work for a second processor.
func limitResources() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(25)
	}
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
}

// surviveClosedPipes makes a write to stdout or stderr return an error if its reader has gone away (`podcount | head`).
// By default such a write ends the process. Ignoring SIGPIPE would help too, but exec programs would inherit that.
func surviveClosedPipes() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}

// redirectPackageLog makes package log write to stderr without ever blocking: net/http logs through it while it holds
// locks that every request needs.
func redirectPackageLog() {
	dropSilently := func(int) []byte { return nil }
	stdlog.SetOutput(logging.NewOutput(os.Stderr, logging.OutputLimit, dropSilently))
}

// StopOnSignal returns a context that ends on the first SIGINT or SIGTERM. A second signal exits at once, and so does a
// shutdown that hangs.
func StopOnSignal() context.Context {
	ctx, stop := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go obeySignals(signals, stop, func(why string) { Exit(1, why) })
	return ctx
}

// obeySignals calls stop on the first signal. It calls exit on the second one, or when the shutdown takes too long.
func obeySignals(signals <-chan os.Signal, stop func(), exit func(why string)) {
	<-signals
	first := time.Now()
	late := time.AfterFunc(shutdownLimit, func() {
		exit("the shutdown hangs: it has not ended in " + shutdownLimit.String())
	})
	defer late.Stop()
	stop()
	for range signals {
		isCopy := time.Since(first) < signalCopyWindow
		if !isCopy {
			exit("cut short by a second signal")
			return
		}
	}
}

// Exit writes why to stderr, as one line, and ends the process. It waits no longer than lastLineTimeout for the write,
// because stderr may be a full pipe.
func Exit(code int, why string) {
	line := logging.Printable(strings.ReplaceAll(why, "\n", "; "))
	written := background.Go(func() { fmt.Fprintln(os.Stderr, "podcount:", line) })
	select {
	case <-written:
	case <-time.After(lastLineTimeout):
	}
	os.Exit(code)
}
