package fakekube_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// A controller under test would get the server's URL. This example sends a single request instead.
func ExampleServer() {
	fake := fakekube.New()
	fake.AddNode("worker")
	server := httptest.NewServer(fake)
	defer server.Close()

	patch := strings.NewReader(`{"metadata":{"labels":{"checked":"yes"}}}`)
	request, err := http.NewRequest(http.MethodPatch, server.URL+"/api/v1/nodes/worker", patch)
	if err != nil {
		fmt.Println(err)
		return
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	var node struct{ Kind string }
	if err := json.NewDecoder(answer.Body).Decode(&node); err != nil {
		fmt.Println(err)
		return
	}

	fmt.Println(answer.StatusCode, node.Kind)
	stored := fake.Get("nodes", fakekube.Key{Name: "worker"})
	fmt.Println("checked:", fakekube.TextIn(stored, "metadata", "labels", "checked"))
	for _, write := range fake.Received(fakekube.Requests{Verb: "write"}) {
		fmt.Println(write.Verb, write.Resource, write.Name)
	}
	// Output:
	// 200 Node
	// checked: yes
	// patch nodes worker
}

// A watch ends, and the next one is refused. A controller has to cope with both.
func ExampleServer_EndWatches() {
	fake := fakekube.New()
	fake.AddPod("default", "web-0", "")
	server := httptest.NewServer(fake)
	defer server.Close()
	watch := server.URL + "/api/v1/pods?watch=true&resourceVersion=" + strconv.Itoa(fake.Latest())

	answer, err := http.Get(watch)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	fake.AddPod("default", "web-1", "")
	for lines.Scan() {
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Type, event.Object.Metadata.Name)
		fake.EndWatches()
	}
	fmt.Println("the watch has ended:", lines.Err())

	fake.InjectUnchecked(fakekube.Fault{
		On: fakekube.Requests{Verb: "watch", Resource: "pods"},
		Do: fakekube.Refuse{Code: http.StatusServiceUnavailable},
	})
	again, err := http.Get(watch)
	if err != nil {
		fmt.Println(err)
		return
	}
	again.Body.Close()
	fmt.Println("the next one:", again.StatusCode)
	fmt.Println("watches asked for:", len(fake.Received(fakekube.Requests{Verb: "watch", Resource: "pods"})))
	// Output:
	// ADDED web-1
	// the watch has ended: <nil>
	// the next one: 503
	// watches asked for: 2
}

// A controller lists, and then watches from the version of the list. The first attempt to list breaks off.
func ExampleServer_InjectUnchecked() {
	fake := fakekube.New()
	fake.AddPod("default", "web-0", "")
	server := httptest.NewServer(fake)
	defer server.Close()
	list := func() (version string, err error) {
		answer, err := http.Get(server.URL + "/api/v1/pods")
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		var pods struct {
			Metadata struct{ ResourceVersion string }
			Items    []any
		}
		err = json.NewDecoder(answer.Body).Decode(&pods)
		fmt.Println(len(pods.Items), "pods:", err)
		return pods.Metadata.ResourceVersion, err
	}

	fake.InjectUnchecked(fakekube.Fault{
		On: fakekube.Requests{Verb: "list", Resource: "pods"},
		Do: fakekube.Cut{After: 20},
	})
	version, err := list()
	for err != nil {
		version, err = list()
	}
	fake.Remove("pods", fakekube.Key{Namespace: "default", Name: "web-0"})

	watch, err := http.Get(server.URL + "/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion=" + version)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer watch.Body.Close()
	lines := bufio.NewScanner(watch.Body)
	for lines.Scan() {
		var event struct{ Type string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(event.Type)
	}
	// Output:
	// 0 pods: unexpected EOF
	// 1 pods: <nil>
	// MODIFIED
	// DELETED
}

// In a bubble of testing/synctest, an outage of an hour takes no time. All goroutines of the bubble must end before it
// does, including those of idle connections.
func ExampleNetwork() {
	var t *testing.T // comes from the test function

	synctest.Test(t, func(t *testing.T) {
		fake := fakekube.New()
		network := fakekube.NewNetwork(&http.Server{Handler: fake})
		defer network.Close()
		transport := &http.Transport{DialContext: network.Dial}
		defer transport.CloseIdleConnections()
		client := &http.Client{Transport: transport}

		// The test fails if no request meets this fault.
		fake.Script(t, "list nodes: refuse 503")
		network.Kill()
		time.AfterFunc(time.Hour, network.Restore)
		start := time.Now()
		for {
			answer, err := client.Get("http://fake/api/v1/nodes")
			if err == nil {
				answer.Body.Close()
				if answer.StatusCode == http.StatusOK {
					break
				}
			}
			<-time.After(time.Minute)
		}
		synctest.Wait() // until all goroutines in the bubble are blocked
		if outage := time.Since(start); outage < time.Hour {
			t.Errorf("the outage was over after %v", outage)
		}
		if asked := len(fake.Received(fakekube.Requests{Verb: "list", Resource: "nodes"})); asked != 2 {
			t.Errorf("%d requests came through", asked)
		}
	})
}
