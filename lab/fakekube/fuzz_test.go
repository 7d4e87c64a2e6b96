package fakekube

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// FuzzSelectors looks for selectors that cause a panic or an unexpected status code.
func FuzzSelectors(f *testing.F) {
	seeds := []string{"app=web,!x", "a in (b,c), d notin ()", "a>1", "!", "a in (", `metadata.name!=a\,b`, `a=\`}
	for _, seed := range seeds {
		f.Add(seed, seed)
	}
	fake := New()
	addPods(fake, 2)
	f.Fuzz(func(t *testing.T, label, field string) {
		query := url.Values{"labelSelector": {label}, "fieldSelector": {field}}
		w := httptest.NewRecorder()
		fake.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/pods?"+query.Encode(), nil))
		if w.Code != http.StatusOK && w.Code != http.StatusBadRequest {
			t.Errorf("%q and %q: %d %s", label, field, w.Code, w.Body)
		}
	})
}

// mediaOf returns a media type for a body. A patch with directives is a strategic merge patch.
func mediaOf(method, body string) string {
	switch {
	case method != http.MethodPatch:
		return mediaJSON
	case strings.HasPrefix(body, "["):
		return mediaJSONPatch
	case strings.Contains(body, "$"):
		return mediaStrategicPatch
	}
	return mediaMergePatch
}

// FuzzWrites looks for writes that cause a panic, either at once or when the written objects are read.
func FuzzWrites(f *testing.F) {
	f.Add("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":null}}}`)
	f.Add("PATCH", "/api/v1/nodes/n", `{"metadata":null}`)
	f.Add("PATCH", "/apis/example.com/v1/namespaces/default/widgets/c", `{"metadata":{"generation":"x"},"status":1}`)
	f.Add("PUT", "/apis/coordination.k8s.io/v1/namespaces/default/leases/l", `{"metadata":{"name":"l"},"spec":[]}`)
	f.Add("POST", "/api/v1/namespaces/default/pods", `{"metadata":{"name":"p"},"spec":{"containers":[1]}}`)
	f.Add("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
		`{"metadata":{"name":"c"},"spec":{"versions":[0]}}`)
	f.Add("POST", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
		`{"metadata":{"name":"b"}}`)
	f.Add("DELETE", "/api/v1/namespaces/default/pods/web-0/status", "")
	f.Add("PATCH", "/api/v1/namespaces/default/pods/web-0", `[{"op":"add","path":"/spec/containers/-","value":{}}]`)
	f.Add("PATCH", "/api/v1/namespaces/default/pods/web-0",
		`{"metadata":{"finalizers":[{}],"$setElementOrder/finalizers":[{}]},`+
			`"spec":{"containers":[{"name":{},"$patch":1}]}}`)
	f.Add("DELETE", "/api/v1/namespaces/default/pods", `{"propagationPolicy":"Orphan"}`)
	f.Add("PUT", "/api/v1/namespaces/default/finalize", `{"metadata":{"name":"default"},"spec":{"finalizers":[1]}}`)
	f.Add("POST", "/api/v1/namespaces/default/pods/web-0/eviction", `{"metadata":{"name":"web-0"},"deleteOptions":1}`)
	f.Add("OPTIONS", "//", "null")
	f.Fuzz(func(t *testing.T, method, path, body string) {
		target, err := url.Parse(path)
		if err != nil || !strings.HasPrefix(path, "/") {
			return
		}
		query := target.Query()
		query.Set("timeoutSeconds", "1")
		query.Del("watch") // a watch would take a second
		target.RawQuery = query.Encode()
		fake := New()
		fake.AddNode("n")
		addPods(fake, 1)
		defineWidgets(fake, []string{onlyV1, withStatus}[len(body)%2])
		fake.PutJSON("widgets", `{"metadata":{"namespace":"default","name":"c"},"spec":{}}`)
		for range 2 {
			r := &http.Request{
				Method: method,
				URL:    target,
				Header: http.Header{},
				Body:   io.NopCloser(strings.NewReader(body)),
			}
			r.Header.Set("Content-Type", mediaOf(method, body))
			fake.ServeHTTP(httptest.NewRecorder(), r)
		}
		for _, collection := range []string{"pods", "nodes"} {
			r := httptest.NewRequest("GET", "/api/v1/"+collection, nil)
			r.Header.Set("Accept", mediaProtobuf)
			if w := serve(fake, r); w.Code != http.StatusOK {
				t.Errorf("%s: %d %s", collection, w.Code, w.Body)
			}
		}
	})
}

// FuzzReads looks for reads that cause a panic or an answer that is not JSON.
func FuzzReads(f *testing.F) {
	const tables = "application/json;as=Table;v=v1;g=meta.k8s.io"
	f.Add("pods", "limit=1&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6LTEsInN0YXJ0IjoicCJ9",
		"application/json;q=2,*/*")
	f.Add("pods", "resourceVersion=203&resourceVersionMatch=Exact&limit=-1", tables)
	f.Add("nodes", "resourceVersion=18446744073709551615&limit=9223372036854775807", tables)
	f.Add("namespaces", "watch=1&timeoutSeconds=-9223372036854775808&resourceVersion=0", "application/json;as=;;=,")
	f.Add("events", "includeObject=None&pretty&timeoutSeconds=1", tables)
	f.Add("pods/web-0", "resourceVersion=x", tables)
	f.Fuzz(func(t *testing.T, resource, query, accept string) {
		values, err := url.ParseQuery(query)
		if err != nil || strings.ContainsAny(resource, "?#%") {
			return
		}
		if isWatching(values) {
			values.Set("timeoutSeconds", "-1") // ends a watch at once
		}
		fake := New()
		fake.AddNode("n")
		addPods(fake, 3)
		target := &url.URL{Path: "/api/v1/" + resource, RawQuery: values.Encode()}
		r := &http.Request{Method: "GET", URL: target, Header: http.Header{"Accept": {accept}}, Body: http.NoBody}
		w := serve(fake, r)
		isJSON := w.Header().Get("Content-Type") == mediaJSON
		decoder := json.NewDecoder(w.Body)
		for isJSON && decoder.More() {
			var v any
			if err := decoder.Decode(&v); err != nil {
				t.Fatalf("%s?%s: %v in %s", resource, query, err, w.Body)
			}
		}
	})
}
