package events

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kubeconfig"
)

// simulate runs a test in virtual time, with a fake of its own.
func simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

// pass lets virtual time pass, and then everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// eventsOf returns the Events of this reason that the fake has, one line each.
func eventsOf(f *fakekube.Server, reason string) (found []string) {
	for _, e := range f.All("events") {
		if fakekube.TextIn(e, "reason") == reason {
			about := e["involvedObject"].(fakekube.Object)
			kind, name := fakekube.TextIn(about, "kind"), fakekube.TextIn(about, "name")
			namespace := fakekube.TextIn(fakekube.MetaOf(e), "namespace")
			message := fakekube.TextIn(e, "message")
			found = append(found, fmt.Sprintf("%s/%s in %s: %s x%v", kind, name, namespace, message, e["count"]))
		}
	}
	slices.Sort(found)
	return found
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}
