package fakekube_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	"podcount/lab/fakekube"
)

// The fake does not know Services by itself. Told that they exist, it serves them under their real paths.
func ExampleServer_Serve() {
	fake := fakekube.New()
	fake.Serve(
		fakekube.Kind{Resource: "services", Kind: "Service", ShortNames: []string{"svc"}},
		fakekube.Kind{Group: "apps", Resource: "deployments", Kind: "Deployment", ShortNames: []string{"deploy"}},
	)
	server := httptest.NewServer(fake)
	defer server.Close()

	service := strings.NewReader(`{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`)
	answer, err := http.Post(server.URL+"/api/v1/namespaces/default/services", "application/json", service)
	if err != nil {
		fmt.Println(err)
		return
	}
	answer.Body.Close()

	fmt.Println(answer.Status)
	fmt.Println(fake.Get("services", fakekube.Key{Namespace: "default", Name: "web"})["spec"])
	// Output:
	// 201 Created
	// map[ports:[map[port:80]]]
}

// A definition that a test puts is established at once, so the next line can put an object of its kind.
func ExampleServer_PutJSON_customResource() {
	fake := fakekube.New()
	fake.PutJSON("customresourcedefinitions", `{
		"metadata": {"name": "crontabs.example.com"},
		"spec": {
			"group": "example.com",
			"scope": "Namespaced",
			"names": {"plural": "crontabs", "kind": "CronTab"},
			"versions": [{
				"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
				"schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
			}]
		}
	}`)
	fake.PutJSON("crontabs", `{"metadata":{"namespace":"default","name":"nightly"},"spec":{"hour":3}}`)
	server := httptest.NewServer(fake)
	defer server.Close()

	answer, err := http.Get(server.URL + "/apis/example.com/v1/namespaces/default/crontabs/nightly/status")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	fmt.Println(answer.Status, strings.Contains(string(body), `"kind":"CronTab"`), err)
	// Output:
	// 200 OK true <nil>
}

// A client can create a definition as well, as kubectl apply and many controllers do.
func ExampleServer_customResource() {
	fake := fakekube.New()
	server := httptest.NewServer(fake)
	defer server.Close()
	post := func(path, body string) {
		answer, err := http.Post(server.URL+path, "application/json", strings.NewReader(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		answer.Body.Close()
		fmt.Println(answer.Status)
	}

	post("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{
		"metadata": {"name": "crontabs.example.com"},
		"spec": {
			"group": "example.com",
			"scope": "Namespaced",
			"names": {"plural": "crontabs", "singular": "crontab", "kind": "CronTab", "listKind": "CronTabList"},
			"versions": [{
				"name": "v1", "served": true, "storage": true,
				"schema": {"openAPIV3Schema": {
					"type": "object",
					"properties": {"spec": {"type": "object", "properties": {
						"hour": {"type": "integer", "maximum": 23}
					}}}
				}}
			}]
		}
	}`)
	const crontabs = "/apis/example.com/v1/namespaces/default/crontabs"
	post(crontabs, `{"apiVersion":"example.com/v1","kind":"CronTab","metadata":{"name":"nightly"},"spec":{"hour":3}}`)
	post(crontabs, `{"apiVersion":"example.com/v1","kind":"CronTab","metadata":{"name":"never"},"spec":{"hour":24}}`)

	fmt.Println(len(fake.All("crontabs")), "object")
	// Output:
	// 201 Created
	// 201 Created
	// 422 Unprocessable Entity
	// 1 object
}
