package fakekube

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// The kinds of these tests, which the fake does not know by itself.
var (
	services    = Kind{Resource: "services", Kind: "Service", ShortNames: []string{"svc"}, Categories: []string{"all"}}
	deployments = Kind{Group: "apps", Resource: "deployments", Kind: "Deployment"}
	classes     = Kind{
		Group: "storage.k8s.io", Resource: "storageclasses", Kind: "StorageClass",
		ClusterScoped: true, WithoutStatus: true,
	}
)

func newWithAddedKinds() *Server {
	f := New()
	f.Serve(services, deployments, classes)
	return f
}

func TestAddedKindIsDiscovered(t *testing.T) {
	f := newWithAddedKinds()
	wantAnswer(t, f, "GET /api/v1", "", 200,
		`"kind":"Service","name":"services","namespaced":true,"shortNames":["svc"],"singularName":"service"`)
	wantAnswer(t, f, "GET /api/v1", "", 200, `"name":"services/status"`)
	wantAnswer(t, f, "GET /apis", "", 200, `"groupVersion":"apps/v1"`)
	wantAnswer(t, f, "GET /apis/storage.k8s.io/v1", "", 200, `"name":"storageclasses","namespaced":false`)
	_, answer := ask(t, f, "GET", "/apis/storage.k8s.io/v1", "")
	if strings.Contains(answer, "/status") {
		t.Errorf("a kind without status has one: %s", answer)
	}
	schemas := objectIn(document(t, f, "apis/apps/v1"), "components", "schemas")
	if schemas["io.k8s.api.apps.v1.Deployment"] == nil || schemas[schemaNameOf("ObjectMeta")] == nil {
		t.Errorf("the schemas are %v", schemas)
	}
}

func TestMetadataOfAnAddedKindIsChecked(t *testing.T) {
	f := newWithAddedKinds()
	for body, want := range map[string]string{
		`{"metadata":{"name":"UPPER"}}`:                     "a lowercase RFC 1123 subdomain must consist of",
		`{"metadata":{"name":"a","labels":{"b":"c d"}}}`:    "a valid label must be an empty string",
		`{"metadata":{"name":"a","labels":{"b":1}}}`:        "field ObjectMeta.metadata.labels of type string",
		`{"metadata":{"name":"a","wrong":1}}`:               `unknown field \"metadata.wrong\"`,
		`{"metadata":{"name":"a"},"spec":{"a":1,"a":2}}`:    `duplicate field \"spec.a\"`,
		`{"metadata":{"name":"a"},"spec":{"x":1},"kind":3}`: "cannot unmarshal number",
	} {
		_, answer := ask(t, f, "POST", "/api/v1/namespaces/default/services?fieldValidation=Strict", body)
		testkit.WantText(t, answer, want)
	}
	testkit.WantNumber(t, "services", len(f.All("services")), 0)
}

func TestObjectsOfAnAddedKindAreStoredAsSentWithoutNulls(t *testing.T) {
	f := newWithAddedKinds()
	wantAnswer(t, f, "POST /api/v1/namespaces/default/services",
		`{"metadata":{"name":"web","creationTimestamp":null},"spec":{"a":null,"b":{},"c":[],"d":"","e":[{"f":null}]}}`,
		201, `"spec":{"b":{},"c":[],"d":"","e":[{}]}`)
}

func TestStrategicPatchOfAnAddedKind(t *testing.T) {
	f := newWithAddedKinds()
	const path = "/api/v1/namespaces/default/services"
	for name, c := range map[string]struct{ before, patch, want string }{
		"objects are merged": {`"spec":{"a":{"b":1}}`, `"spec":{"a":{"c":2}}`, `"spec":{"a":{"b":1,"c":2}}`},
		"a list replaces":    {`"spec":{"p":[{"n":1}]}`, `"spec":{"p":[{"n":2}]}`, `"spec":{"p":[{"n":2}]}`},
		"the order shows a set": {
			`"spec":{"ips":["a","b"]}`, `"spec":{"$setElementOrder/ips":["c","a","b"],"ips":["c"]}`,
			`"spec":{"ips":["c","a","b"]}`,
		},
		"replace": {`"spec":{"a":1}`, `"spec":{"$patch":"replace","b":2}`, `"spec":{"b":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			f.Remove("services", Key{"default", "web"})
			object := `{"metadata":{"name":"web","finalizers":["example.com/a"]},` + c.before + `}`
			wantAnswer(t, f, "POST "+path, object, 201, "")
			r := httptest.NewRequest("PATCH", path+"/web", strings.NewReader("{"+c.patch+"}"))
			r.Header.Set("Content-Type", mediaStrategicPatch)
			w := serve(f, r)
			if w.Code != 200 {
				t.Errorf("%d", w.Code)
			}
			testkit.WantText(t, w.Body.String(), c.want)
		})
	}
}

func TestProtobufOfAnAddedKindIsRefused(t *testing.T) {
	f := newWithAddedKinds()
	f.PutJSON("services", `{"metadata":{"namespace":"default","name":"a"}}`)
	r := httptest.NewRequest("POST", "/api/v1/namespaces/default/services", strings.NewReader("k8s\x00"))
	r.Header.Set("Content-Type", mediaProtobuf)
	w := serve(f, r)
	if w.Code != 415 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	testkit.WantText(t, w.Body.String(), `in client-go's rest.Config, set ContentType to \"application/json\"`)
	r = newRequest("GET", "/api/v1/services", "")
	r.Header.Set("Accept", mediaProtobuf+", "+mediaJSON)
	if got := serve(f, r).Header().Get("Content-Type"); got != mediaJSON {
		t.Error(got)
	}

	options := Protobuf([]byte(`{"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0}`))
	r = httptest.NewRequest("DELETE", "/api/v1/namespaces/default/services/a", bytes.NewReader(options))
	r.Header.Set("Content-Type", mediaProtobuf)
	if w := serve(f, r); w.Code != 200 {
		t.Errorf("options in protobuf: %d %s", w.Code, w.Body)
	}
}

func TestAddedKindGoesWithItsNamespace(t *testing.T) {
	f := newWithAddedKinds()
	wantAnswer(t, f, "POST /api/v1/namespaces", `{"metadata":{"name":"ns"}}`, 201, "")
	f.PutJSON("services", `{"metadata":{"namespace":"ns","name":"a"}}`)
	wantAnswer(t, f, "DELETE /api/v1/namespaces/ns", "", 200, "")
	testkit.WantNumber(t, "services", len(f.All("services")), 0)
}

func TestDefinitionCannotReplaceAnAddedKind(t *testing.T) {
	f := New()
	f.Serve(Kind{Group: "a.io", Resource: "widgets", Kind: "Widget"})
	wantAnswer(t, f, "POST "+crdPath, definition("a.io", "widgets", "Widget", onlyV1), 201, "")
	wantAnswer(t, f, "POST /apis/a.io/v1/namespaces/default/widgets", `{"metadata":{"name":"w"}}`, 201, "")
	f.Remove(definitions, Key{Name: "widgets.a.io"})
	wantAnswer(t, f, "GET /apis/a.io/v1/namespaces/default/widgets/w", "", 200, `"kind":"Widget"`)
}

func TestKindThatCannotBeServedIsNamed(t *testing.T) {
	f := New()
	f.PutJSON(definitions, definition("a.io", "widgets", "Widget", onlyV1))
	for _, c := range []struct {
		kind Kind
		want string
	}{
		{Kind{Kind: "Service"}, `Resource is missing: the plural, such as "services"`},
		{Kind{Resource: "services"}, `Kind is missing: the name in objects, such as "Service"`},
		{Kind{Resource: "Services", Kind: "Service"}, `"Services": a DNS-1035 label must`},
		{Kind{Resource: "services", Kind: "service"}, `Kind "service" must be a word that begins with a capital`},
		{Kind{Group: "apps", Version: "1", Resource: "scales", Kind: "Scale"}, `Version "1" must be like "v1"`},
		{Kind{Version: "v2", Resource: "services", Kind: "Service"}, `Version "v2": the core group has only v1`},
		{Kind{Group: "-", Resource: "services", Kind: "Service"}, `Group "-": a lowercase RFC 1123 subdomain must`},
		{Kind{Resource: "services", Kind: "Service", ShortNames: []string{""}}, `"": a DNS-1035 label must`},
		{Kind{Resource: "pods", Kind: "Pod"}, "it serves the pods Pod of v1 already"},
		{Kind{Resource: "pods2", Kind: "Pod"}, "it serves the pods Pod of v1 already"},
		{Kind{Group: "a.io", Version: "v2", Resource: "widgets", Kind: "Widget"}, "it serves the widgets Widget of"},
	} {
		wantPanic(t, c.want, func() { f.Serve(c.kind) })
	}
	f.Serve(services)
	wantPanic(t, "it serves the services Service of v1 already", func() { f.Serve(services) })
}

func TestPutRefusesWhatNoClientCouldFind(t *testing.T) {
	const names = `"names":{"plural":"widgets","kind":"Widget"}`
	definition := func(spec string) string { return `{"metadata":{"name":"widgets.a.io"},"spec":{` + spec + `}}` }
	for _, c := range []struct{ resource, object, want string }{
		{"pods", `{"metadata":{"name":"a"}}`, `pods "a" needs a namespace`},
		{
			"nodes", `{"metadata":{"namespace":"default","name":"a"}}`,
			`nodes "a" has the namespace "default", but nodes are in none`,
		},
		{"pods", "a: b", "PutJSON of pods: this is no object in JSON"},
		{definitions, definition(names), "spec.group, spec.names.plural or spec.names.kind is missing"},
		{definitions, definition(`"group":"a.io",` + names), "spec.scope is missing: Namespaced or Cluster"},
		{definitions, definition(`"group":"a.io","scope":"Cluster",` + names), "spec.versions has none with storage: true"},
		{
			definitions, definition(`"group":"b.io","scope":"Cluster","versions":[{"name":"v1","storage":true}],` + names),
			"the fake serves widgets.b.io already",
		},
	} {
		f := New()
		f.Serve(Kind{Group: "b.io", Resource: "widgets", Kind: "Widget"})
		wantPanic(t, c.want, func() { f.PutJSON(c.resource, c.object) })
	}
}
