package fakekube_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// startChecker runs the controller against a fake, in virtual time, until the test ends.
func startChecker(t *testing.T, fake *fakekube.Server) {
	network := fakekube.NewNetwork(&http.Server{Handler: fake})
	transport := &http.Transport{DialContext: network.Dial}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		runChecker(ctx, &http.Client{Transport: transport})
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		transport.CloseIdleConnections()
		network.Close()
	})
}

// isChecked reports whether a node has the label.
func isChecked(fake *fakekube.Server, name string) bool {
	node := fake.Get("nodes", fakekube.Key{Name: name})
	return fakekube.TextIn(node, "metadata", "labels", "checked") == "yes"
}

// wantChecked fails the test unless these nodes have the label after a minute, and nothing is written in the hour after
// that.
func wantChecked(t *testing.T, fake *fakekube.Server, names ...string) {
	t.Helper()
	<-time.After(time.Minute)
	for _, name := range names {
		if !isChecked(fake, name) {
			t.Errorf("node %s is not checked", name)
		}
	}
	writes := len(fake.Received(fakekube.Requests{Verb: "write"}))
	<-time.After(time.Hour)
	if more := len(fake.Received(fakekube.Requests{Verb: "write"})) - writes; more > 0 {
		t.Errorf("%d unnecessary writes", more)
	}
}

// A test fails if its fault is not met, and the failure lists the requests that came instead.
func TestNodesAreCheckedDespiteFaults(t *testing.T) {
	for name, script := range map[string]string{
		"all is well":                 "",
		"the server starts":           "list nodes, 3 times: refuse 503 retry-after 1s",
		"lists break":                 "list nodes, 2 times: cut after 100 bytes",
		"a write is lost":             "patch nodes a: drop request",
		"an answer is lost":           "patch nodes a: drop answer",
		"another writer is faster":    "patch nodes, 2 times: refuse 409",
		"the server is slow":          "write nodes, always: delay 5s",
		"watches are refused":         "watch nodes, 5 times: refuse 429",
		"the version is too old":      "watch nodes: refuse 410",
		"every third request fails":   "* nodes, every 3rd, 4 times: refuse 500",
		"a proxy answers with a page": `list nodes: reply 502 header Content-Type text/html body "<html>"`,
		"some requests are lost":      "* nodes, at rate 0.3, seed 7, 2 times: drop request",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				fake := fakekube.New()
				fake.AddNode("a")
				fake.AddNode("b")
				fake.Script(t, script)
				startChecker(t, fake)
				wantChecked(t, fake, "a", "b")

				fake.BreakWatches()
				fake.Edit("nodes", fakekube.Key{Name: "a"}, func(node fakekube.Object) {
					delete(fakekube.MetaOf(node)["labels"].(fakekube.Object), "checked")
				})
				fake.AddNode("c")
				wantChecked(t, fake, "a", "b", "c")
			})
		})
	}
}

// The fake's watch cache loses a change, as real ones have done. This controller cannot notice it, because its lists
// come from the same cache.
func TestLostChangeGoesUnnoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakekube.New()
		startChecker(t, fake)
		synctest.Wait()
		lie := fake.Script(t, "list|watch nodes: lie about 1 change")[0]
		fake.AddNode("a")
		fake.BreakWatches()
		<-time.After(time.Minute)
		if isChecked(fake, "a") {
			t.Error("the node is checked")
		}
		lie.Lift()
		fake.BreakWatches()
		wantChecked(t, fake, "a")
	})
}
