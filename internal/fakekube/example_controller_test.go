package fakekube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// A small controller that knows nothing of the fake: it keeps the label checked=yes on each node, by net/http and
// encoding/json alone. After any error it waits for a second, and lists again.

type node struct {
	Metadata struct {
		Name   string
		Labels map[string]string
	}
}

type checker struct {
	server string // its URL
	client *http.Client
}

func (c *checker) run(ctx context.Context) {
	for ctx.Err() == nil {
		c.listAndWatch(ctx)
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// listAndWatch works until something goes wrong.
func (c *checker) listAndWatch(ctx context.Context) error {
	var nodes struct {
		Metadata struct{ ResourceVersion string }
		Items    []node
	}
	answer, err := c.send(ctx, "GET", "/api/v1/nodes", "")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if err := json.NewDecoder(answer.Body).Decode(&nodes); err != nil {
		return err
	}
	for _, n := range nodes.Items {
		if err := c.check(ctx, n); err != nil {
			return err
		}
	}
	stream, err := c.send(ctx, "GET", "/api/v1/nodes?watch=true&resourceVersion="+nodes.Metadata.ResourceVersion, "")
	if err != nil {
		return err
	}
	defer stream.Body.Close()
	for events := json.NewDecoder(stream.Body); ; {
		var event struct {
			Type   string
			Object node
		}
		if err := events.Decode(&event); err != nil || event.Type == "ERROR" {
			return fmt.Errorf("the watch has ended: %v", err)
		}
		if event.Type == "DELETED" {
			continue
		}
		if err := c.check(ctx, event.Object); err != nil {
			return err
		}
	}
}

// check labels a node that lacks the label.
func (c *checker) check(ctx context.Context, n node) error {
	if n.Metadata.Labels["checked"] == "yes" {
		return nil
	}
	patch := `{"metadata":{"labels":{"checked":"yes"}}}`
	answer, err := c.send(ctx, "PATCH", "/api/v1/nodes/"+n.Metadata.Name, patch)
	if err == nil {
		answer.Body.Close()
	}
	return err
}

func (c *checker) send(ctx context.Context, method, path, body string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, c.server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := c.client.Do(request)
	if err == nil && answer.StatusCode >= 300 {
		answer.Body.Close()
		return nil, fmt.Errorf("%s %s: %s", method, path, answer.Status)
	}
	return answer, err
}

// The tests run in virtual time: a minute takes no time, and a test ends as soon as nothing happens any more.

// startChecker runs a checker against a fake until the test ends.
func startChecker(t *testing.T, fake *fakekube.Server) {
	transport := &http.Transport{DialContext: fake.ServeIn(t).Dial}
	ctx, stop := context.WithCancel(t.Context())
	c := &checker{server: "http://fake", client: &http.Client{Transport: transport}}
	ended := make(chan struct{})
	go func() {
		c.run(ctx)
		close(ended)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		transport.CloseIdleConnections()
	})
}

// wantChecked fails the test unless all is right within a minute, and nothing is written in the hour after that.
func wantChecked(t *testing.T, fake *fakekube.Server, names ...string) {
	t.Helper()
	<-time.After(time.Minute)
	for _, name := range names {
		if fake.Label(name, "checked") != "yes" {
			t.Errorf("node %s is not checked", name)
		}
	}
	writes := len(fake.Requests(fakekube.IsWrite))
	<-time.After(time.Hour)
	if more := len(fake.Requests(fakekube.IsWrite)) - writes; more > 0 {
		t.Errorf("%d writes of what is right", more)
	}
}

// Each of these faults must be met: a test whose fault never happened fails, and says what was asked for instead.
func TestNodesAreCheckedWhateverTheServerDoes(t *testing.T) {
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

				fake.EndWatches(true)
				fake.SetLabel("a", "checked", nil)
				fake.AddNode("c")
				wantChecked(t, fake, "a", "b", "c")
			})
		})
	}
}

// The fake's watch cache loses a change, as real ones have done. This controller cannot notice: its lists come from the
// same cache, and it asks for no exact version.
func TestLostChangeIsNotNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakekube.New()
		startChecker(t, fake)
		synctest.Wait()
		lie := fake.Script(t, "list|watch nodes: lie about 1 change")[0]
		fake.AddNode("a")
		fake.EndWatches(true)
		<-time.After(time.Minute)
		if fake.Label("a", "checked") != "-" {
			t.Error("the node is checked")
		}
		lie.Lift()
		fake.EndWatches(true)
		wantChecked(t, fake, "a")
	})
}
