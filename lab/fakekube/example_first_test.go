package fakekube_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// runChecker is a complete controller that keeps the label checked=yes on each node, and knows nothing of the fake.
// After every change, error or end of a watch, it waits for a second and then checks all nodes again.
func runChecker(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		if err := checkNodes(ctx, client); err != nil {
			log.Println(err)
		}
		select {
		case <-ctx.Done(): // in virtual time, all goroutines must end with the test
		case <-time.After(time.Second):
		}
	}
}

// checkNodes labels the nodes that lack the label. Then it watches for such nodes until the first event.
func checkNodes(ctx context.Context, client *http.Client) error {
	const unchecked = "?labelSelector=checked!%3Dyes"
	var nodes struct {
		Metadata struct{ ResourceVersion string }
		Items    []struct{ Metadata struct{ Name string } }
	}
	if err := call(ctx, client, "GET", unchecked, "", &nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		patch := `{"metadata":{"labels":{"checked":"yes"}}}`
		if err := call(ctx, client, "PATCH", "/"+node.Metadata.Name, patch, new(any)); err != nil {
			return err
		}
	}
	watch := unchecked + "&watch=true&resourceVersion=" + nodes.Metadata.ResourceVersion
	return call(ctx, client, "GET", watch, "", new(any))
}

// call sends a request and decodes the first JSON value of the answer.
func call(ctx context.Context, client *http.Client, method, what, body string, answer any) error {
	request, err := http.NewRequestWithContext(ctx, method, "http://fake/api/v1/nodes"+what, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, request.URL, response.Status)
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func TestNodesAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // virtual time: an hour takes no time
		fake := fakekube.New()
		network := fakekube.NewNetwork(&http.Server{Handler: fake})
		defer network.Close()
		transport := &http.Transport{DialContext: network.Dial}
		defer transport.CloseIdleConnections()
		fake.AddNode("a")
		fake.Script(t, `
			list nodes, 3 times: refuse 503
			patch nodes a: drop answer
		`)

		go runChecker(t.Context(), &http.Client{Transport: transport})
		<-time.After(time.Minute)
		node := fake.Get("nodes", fakekube.Key{Name: "a"})
		if fakekube.TextIn(node, "metadata", "labels", "checked") != "yes" {
			t.Error("node a is not checked")
		}
		writes := fakekube.Requests{Verb: "write"}
		before := len(fake.Received(writes))
		<-time.After(time.Hour)
		if more := len(fake.Received(writes)) - before; more > 0 {
			t.Errorf("%d needless writes", more)
		}
	})
}
