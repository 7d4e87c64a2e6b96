package fakekube_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	"podcount/internal/fakekube"
)

// A controller under test gets the server's URL. Here, its one request is made by hand.
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
	fmt.Println("checked:", fake.Label("worker", "checked"))
	for _, write := range fake.Requests(fakekube.IsWrite) {
		fmt.Println(write.Verb, write.Resource, write.Name)
	}
	// Output:
	// 200 Node
	// checked: yes
	// patch nodes worker
}

// The stream of a watch ends, and the one after it is refused: what a controller has to live with.
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
		fake.EndWatches(false)
	}
	fmt.Println("the watch has ended:", lines.Err())

	fake.Disturb(fakekube.Fault{Match: fakekube.Matching(fakekube.IsWatch("pods")), Status: 503})
	again, err := http.Get(watch)
	if err != nil {
		fmt.Println(err)
		return
	}
	again.Body.Close()
	fmt.Println("the next one:", again.StatusCode)
	fmt.Println("watches asked for:", len(fake.Requests(fakekube.IsWatch("pods"))))
	// Output:
	// ADDED web-1
	// the watch has ended: <nil>
	// the next one: 503
	// watches asked for: 2
}
