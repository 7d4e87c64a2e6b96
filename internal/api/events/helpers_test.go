package events

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/run/process"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// simulate runs a test in virtual time, with its own fake API server.
func simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

// newRecorder makes a Recorder that writes its log to log.
func newRecorder(send func(context.Context, kube.Request, func(io.Reader) error) error, log io.Writer) *Recorder {
	return NewRecorder(Options{
		Send:      send,
		Component: "podcount",
		Instance:  "test",
		Log:       slog.New(slog.NewTextHandler(log, nil)),
	})
}

// startRecorder runs a Recorder that posts to f. end stops the Recorder, and waits until it has posted all that waited.
// The end of the test does the same.
func startRecorder(t *testing.T, f *fakekube.Server) (r *Recorder, end func()) {
	server, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	cfg := &kubeconfig.Config{Server: server, Credential: noCredential}
	client := kube.NewClient(cfg, kube.Options{Dial: fixture.Network(t, f).Dial})
	r = newRecorder(client.Send, io.Discard)
	ctx, cancel := context.WithCancel(t.Context())
	stop, stopNow := context.WithCancel(t.Context())
	done := process.Go(func() { r.Run(ctx, stop) })
	end = sync.OnceFunc(func() {
		stopNow()
		<-done
		cancel()
		client.Close()
	})
	t.Cleanup(end)
	return r, end
}

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// somePod returns a reference to the pod with this number.
func somePod(n int) Reference {
	return Reference{
		APIVersion: "v1",
		Kind:       "Pod",
		Namespace:  "default",
		Name:       fmt.Sprintf("web-%d", n),
		UID:        fmt.Sprintf("uid-%d", n),
	}
}

// eventsOf returns one line for each Event with this reason at f, sorted.
func eventsOf(f *fakekube.Server, reason string) (lines []string) {
	for _, ev := range f.All("events") {
		if fakekube.TextIn(ev, "reason") != reason {
			continue
		}
		about := ev["involvedObject"].(fakekube.Object)
		kind := fakekube.TextIn(about, "kind")
		name := fakekube.TextIn(about, "name")
		namespace := fakekube.TextIn(fakekube.MetaOf(ev), "namespace")
		message := fakekube.TextIn(ev, "message")
		lines = append(lines, fmt.Sprintf("%s/%s in %s: %s x%v", kind, name, namespace, message, ev["count"]))
	}
	slices.Sort(lines)
	return lines
}
