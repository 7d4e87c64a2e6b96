package fakekube_test

import (
	"context"
	"encoding/json"
	"log"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// keepChecked is the controller. Every ten seconds, it labels the nodes that lack the label checked=yes.
func keepChecked(ctx context.Context, client *http.Client) {
	for ctx.Err() == nil {
		if err := checkAll(client); err != nil {
			log.Println(err)
		}
		select {
		case <-ctx.Done(): // in virtual time, all goroutines must end with the test
		case <-time.After(10 * time.Second):
		}
	}
}

const nodesURL = "http://fake/api/v1/nodes"

// checkAll ignores the codes of answers, because the next call finds what is left to do.
func checkAll(client *http.Client) error {
	answer, err := client.Get(nodesURL + "?labelSelector=checked!%3Dyes")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var nodes struct {
		Items []struct{ Metadata struct{ Name string } }
	}
	if err := json.NewDecoder(answer.Body).Decode(&nodes); err != nil {
		return err
	}
	for _, node := range nodes.Items {
		patch := strings.NewReader(`{"metadata":{"labels":{"checked":"yes"}}}`)
		request, err := http.NewRequest("PATCH", nodesURL+"/"+node.Metadata.Name, patch)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/merge-patch+json")
		answer, err := client.Do(request)
		if err != nil {
			return err
		}
		answer.Body.Close()
	}
	return nil
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

		go keepChecked(t.Context(), &http.Client{Transport: transport})
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
