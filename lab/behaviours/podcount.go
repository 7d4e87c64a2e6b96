package behaviours

import (
	"context"
	"io"
	"os"
	"slices"

	"podcount/lab/testkit"
)

// podcountArgs returns the flags with which podcount looks only at the pods and nodes of a group. access are the flags
// that lead to the server.
func (w *world) podcountArgs(access []string, group string, more ...string) []string {
	own := []string{
		"-namespace", w.namespace,
		"-pod-selector", "group=" + group,
		"-total-nodes", runLabel + "=" + w.namespace + ",group=" + group,
		"-total-label", w.label,
	}
	return slices.Concat(access, own, more)
}

// start runs podcount on the pods and nodes of a group until the test ends. The parameters are as in podcountArgs.
func (w *world) start(access []string, group string, args ...string) *testkit.Buffer {
	log := &testkit.Buffer{Wrote: w.changed}
	more := append([]string{"-interval", "100ms", "-pod-events", "off"}, args...)
	all := w.podcountArgs(access, group, more...)
	ctx, cancel := context.WithCancel(w.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.options.Program(ctx, all, os.Getenv, io.Discard, log, nil) }()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("podcount ended with %v", err)
		}
		if w.Failed() {
			w.Log(log.String())
		}
	})
	return log
}

// finish runs podcount until it ends by itself, and returns its log.
func (w *world) finish(args []string) string {
	w.Helper()
	log := &testkit.Buffer{Wrote: w.changed}
	err := w.options.Program(w.Context(), args, os.Getenv, io.Discard, log, nil)
	if err != nil {
		w.Fatalf("podcount ended with %v\n%s", err, log)
	}
	return log.String()
}
