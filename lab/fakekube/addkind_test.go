package fakekube

import (
	"bytes"
	"net/http/httptest"
	"strings"
	"testing"
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

func TestAddedKindHasItsRealPaths(t *testing.T) {
	f := newWithAddedKinds()
	for _, c := range []struct {
		request, body string
		code          int
		text          string
	}{
		{"POST /api/v1/namespaces/default/services", `{"metadata":{"name":"web"},"spec":{"ports":[{"port":80}]}}`, 201,
			`"kind":"Service","metadata":{"creationTimestamp":`},
		{"GET /api/v1/namespaces/default/services/web", "", 200, `"apiVersion":"v1"`},
		{"GET /api/v1/services", "", 200, `"kind":"ServiceList","apiVersion":"v1"`},
		{"GET /api/v1/services/web", "", 404, "could not find the requested resource"},
		{"POST /api/v1/services", "{}", 405, ""},
		{"POST /apis/apps/v1/namespaces/default/deployments", `{"apiVersion":"v1","metadata":{"name":"web"}}`, 400,
			`no kind \"Deployment\" is registered for version \"v1\"`},
		{"POST /apis/apps/v1/namespaces/default/deployments", `{"kind":"Service","apiVersion":"v1"}`, 400,
			"converting (v1.Service) to (apps.Deployment): unknown conversion"},
		{"POST /apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"web"}}`, 201, `"generation":1`},
		{"POST /apis/apps/v1/namespaces/default/deployments", `{"metadata":{"name":"web"}}`, 409,
			`deployments.apps \"web\" already exists`},
		{"POST /apis/apps/v1/namespaces/none/deployments", `{"metadata":{"name":"web"}}`, 404,
			`namespaces \"none\" not found`},
		{"GET /apis/apps/v1/replicasets", "", 404, "could not find the requested resource"},
		{"POST /apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"fast"},"status":{"a":1}}`, 201,
			`"status":{"a":1}`},
		{"GET /apis/storage.k8s.io/v1/storageclasses/fast/status", "", 404, ""},
		{"DELETE /apis/storage.k8s.io/v1/storageclasses/fast", "", 200, `"status":"Success"`},
		{"PUT /apis/storage.k8s.io/v1/storageclasses/fast", `{"metadata":{"name":"fast"}}`, 404, "not found"},
	} {
		wantAnswer(t, f, c.request, c.body, c.code, c.text)
	}
	if got := f.Get("deployments", Key{"default", "web"}); got == nil {
		t.Error("Get does not find the Deployment")
	}
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

func TestStatusOfAnAddedKindIsASubresource(t *testing.T) {
	f := newWithAddedKinds()
	const web = "/apis/apps/v1/namespaces/default/deployments/web"
	wantAnswer(t, f, "POST /apis/apps/v1/namespaces/default/deployments",
		`{"metadata":{"name":"web"},"spec":{"replicas":1},"status":{"replicas":9}}`,
		201, `"spec":{"replicas":1},"status":{}}`)
	wantAnswer(t, f, "PUT "+web+"/status",
		`{"metadata":{"name":"web"},"spec":{"replicas":5},"status":{"replicas":1}}`, 200, `"status":{"replicas":1}`)
	wantAnswer(t, f, "PUT "+web, `{"metadata":{"name":"web"},"spec":{"replicas":2}}`, 200, `"status":{"replicas":1}`)
	o := f.Get("deployments", Key{"default", "web"})
	wantNumber(t, "replicas", numberIn(objectIn(o, "spec"), "replicas"), 2)
	wantNumber(t, "the generation, after one change of the spec", numberIn(MetaOf(o), "generation"), 2)
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
		wantText(t, answer, want)
	}
	wantNumber(t, "services", len(f.All("services")), 0)
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
		"null removes":       {`"spec":{"a":1,"b":2}`, `"spec":{"a":null}`, `"spec":{"b":2}`},
		"a list replaces":    {`"spec":{"p":[{"n":1}]}`, `"spec":{"p":[{"n":2}]}`, `"spec":{"p":[{"n":2}]}`},
		"conditions are merged by type": {
			`"spec":{"conditions":[{"type":"A","s":1},{"type":"B","s":1}]}`,
			`"spec":{"conditions":[{"type":"A","s":2}]}`,
			`"spec":{"conditions":[{"s":2,"type":"A"},{"s":1,"type":"B"}]}`,
		},
		"the order names the merge key": {
			`"spec":{"ports":[{"port":80,"name":"a"},{"port":81,"name":"b"}]}`,
			`"spec":{"$setElementOrder/ports":[{"port":82},{"port":80}],` +
				`"ports":[{"port":82,"name":"c"},{"$patch":"delete","port":81}]}`,
			`"spec":{"ports":[{"name":"c","port":82},{"name":"a","port":80}]}`,
		},
		"the order shows a set": {
			`"spec":{"ips":["a","b"]}`, `"spec":{"$setElementOrder/ips":["c","a","b"],"ips":["c"]}`,
			`"spec":{"ips":["c","a","b"]}`,
		},
		"finalizers are a set": {
			`"spec":{}`, `"metadata":{"finalizers":["example.com/b"]}`,
			`"finalizers":["example.com/b","example.com/a"]`,
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
			wantText(t, w.Body.String(), c.want)
		})
	}
}

func TestListsOfAnAddedKind(t *testing.T) {
	f := newWithAddedKinds()
	f.PutJSON("services", `{"metadata":{"namespace":"default","name":"a"},"spec":{"type":"NodePort"}}`)
	f.PutJSON("services", `{"metadata":{"namespace":"kube-system","name":"b"}}`)
	_, answer := ask(t, f, "GET", "/api/v1/services?fieldSelector=metadata.name%3Db", "")
	if strings.Contains(answer, `"name":"a"`) || !strings.Contains(answer, `"name":"b"`) {
		t.Error(answer)
	}
	const byType = "GET /api/v1/services?fieldSelector=spec.type%3DNodePort"
	wantAnswer(t, f, byType, "", 400, "is not a known field selector")
	_, answer = ask(t, f, "GET", "/api/v1/services?watch=1&resourceVersion=202&timeoutSeconds=1", "")
	wantNumber(t, "events", strings.Count(answer, `"type":"ADDED"`), 2)
	r := newRequest("GET", "/api/v1/services", "")
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
	table := serve(f, r).Body.String()
	wantText(t, table, `"name":"Age"`)
	wantText(t, table, `"cells":["a",`)
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
	wantText(t, w.Body.String(), `in client-go's rest.Config, set ContentType to \"application/json\"`)
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

func TestRightsToAnAddedKindComeFromRoles(t *testing.T) {
	f := newWithAddedKinds()
	f.Allow("admin")
	f.AddUser("t", "alice")
	refused := serve(f, newRequest("GET", "/apis/apps/v1/deployments", "t"))
	wantNumber(t, "status", refused.Code, 403)
	wantText(t, refused.Body.String(), `cannot list resource \"deployments\" in API group \"apps\" at the cluster`)
	f.PutJSON("clusterroles", `{"metadata":{"name":"r"},`+
		`"rules":[{"apiGroups":["apps"],"resources":["deployments"],"verbs":["list"]}]}`)
	f.PutJSON("clusterrolebindings", `{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},`+
		`"subjects":[{"kind":"User","name":"alice"}]}`)
	wantNumber(t, "status", serve(f, newRequest("GET", "/apis/apps/v1/deployments", "t")).Code, 200)
}

func TestAddedKindGoesWithItsNamespace(t *testing.T) {
	f := newWithAddedKinds()
	wantAnswer(t, f, "POST /api/v1/namespaces", `{"metadata":{"name":"ns"}}`, 201, "")
	f.PutJSON("services", `{"metadata":{"namespace":"ns","name":"a"}}`)
	wantAnswer(t, f, "DELETE /api/v1/namespaces/ns", "", 200, "")
	wantNumber(t, "services", len(f.All("services")), 0)
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
