//go:build !js

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyOfStops lets a channel get the signals that ask the process to stop.
func notifyOfStops(signals chan<- os.Signal) { signal.Notify(signals, os.Interrupt, syscall.SIGTERM) }

// prepareSystem makes a write to stdout or stderr return an error if the reader has closed the pipe, as in
// `podcount | head`. By default, such a write ends the process. SIGPIPE is not ignored, because the exec programs of a
// kubeconfig would inherit that.
func prepareSystem() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
}
