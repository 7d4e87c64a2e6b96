// Package clientgo_test runs client-go over the fake, in virtual time. docs/build/fake.md shows the two lines that this
// needs. It is apart from the package above because it compiles in a quarter of the time.
package clientgo_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"podcount/lab/fakekube"
)

// client-go itself repeats a request that was refused with a Retry-After.
func TestClientGoWaitsForAnHourOfVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fake := fakekube.New()
		network := fakekube.NewNetwork(&http.Server{Handler: fake})
		defer network.Close()
		transport := &http.Transport{DialContext: network.Dial}
		defer transport.CloseIdleConnections()
		config := &rest.Config{Host: "http://fake", Transport: transport}
		client := dynamic.NewForConfigOrDie(config)

		fake.AddNode("a")
		fake.Script(t, "patch nodes a: refuse 503 retry-after 1h")
		start := time.Now()
		nodes := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
		patch := []byte(`{"metadata":{"labels":{"checked":"yes"}}}`)
		if _, err := nodes.Patch(t.Context(), "a", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		if waited := time.Since(start); waited < time.Hour {
			t.Errorf("it has waited for %v, want an hour", waited)
		}
		node := fake.Get("nodes", fakekube.Key{Name: "a"})
		if fakekube.TextIn(node, "metadata", "labels", "checked") != "yes" {
			t.Error("node a is not checked")
		}
	})
}
