package fakekube_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
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
