package fakekube

import (
	"strings"
	"testing"
)

func wantPanic(t *testing.T, want string, do func()) {
	t.Helper()
	defer func() {
		got, _ := recover().(string)
		if !strings.Contains(got, want) {
			t.Errorf("the panic says %q, want %q", got, want)
		}
	}()
	do()
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%d %s, want %d", got, what, want)
	}
}

func TestAllWritesPassWebhookAndPolicies(t *testing.T) {
	f := New()
	stop := f.Mutate("nodes", func(o Object) { delete(objectIn(o, "metadata", "labels"), "a") })
	node := `{"metadata":{"name":"n","labels":{"a":"1","b":"2"}}}`
	wantAnswer(t, f, "POST /api/v1/nodes", node, 201, "")
	wantLabel(t, f, "n", "a", "-")
	version := TextIn(MetaOf(f.Get("nodes", Key{"", "n"})), "resourceVersion")
	put := strings.Replace(node, `"name"`, `"resourceVersion":"`+version+`","name"`, 1)
	wantAnswer(t, f, "PUT /api/v1/nodes/n", put, 200, "")
	wantLabel(t, f, "n", "a", "-")
	wantAnswer(t, f, "PATCH /api/v1/nodes/n", node, 200, "")
	wantLabel(t, f, "n", "a", "-")
	wantLabel(t, f, "n", "b", "2")

	f.PutJSON("validatingadmissionpolicies", `{"metadata":{"name":"p"},"spec":{`+
		`"matchConditions":[{"expression":"object.metadata.name == 'n'"}],`+
		`"validations":[{"expression":"!('b' in object.metadata.labels)","message":"not b"}]}}`)
	f.PutJSON("validatingadmissionpolicybindings", `{"metadata":{"name":"p"},"spec":{"policyName":"p"}}`)
	wantAnswer(t, f, "PUT /api/v1/nodes/n", put, 422, "not b")
	wantAnswer(t, f, "PATCH /api/v1/nodes/n", node, 422, "not b")
	f.Remove("nodes", Key{"", "n"})
	wantAnswer(t, f, "POST /api/v1/nodes", node, 422, "not b")

	stop()
	wantAnswer(t, f, "POST /api/v1/nodes", `{"metadata":{"name":"n","labels":{"a":"1"}}}`, 201, "")
	wantLabel(t, f, "n", "a", "1")
}

func TestStatusSubresourceSeparatesWrites(t *testing.T) {
	const widgets = "/apis/example.com/v1/namespaces/default/widgets"
	widget := func(f *Server, spec, status string) string {
		version := TextIn(MetaOf(f.Get("widgets", Key{"default", "w"})), "resourceVersion")
		return `{"apiVersion":"example.com/v1","kind":"Widget",` +
			`"metadata":{"name":"w","resourceVersion":"` + version + `"},` +
			`"spec":{"size":` + spec + `},"status":{"size":` + status + `}}`
	}
	sizes := func(f *Server) string {
		o := f.Get("widgets", Key{"default", "w"})
		spec, _ := o["spec"].(Object)
		status, _ := o["status"].(Object)
		return TextIn(spec, "size") + " " + TextIn(status, "size")
	}
	for _, c := range []struct {
		crd                          crd
		created, updated, statusIsIn string
		statusCode                   int
	}{
		{crd{hasStatus: true}, "1 ", "3 ", "3 6", 200},
		{crd{}, "1 2", "3 4", "3 4", 404},
		{crd{dropsStatus: true}, "1 ", "3 ", "3 ", 404},
	} {
		f := New()
		defineWidgets(f, c.crd)
		wantAnswer(t, f, "POST "+widgets, widget(f, `"1"`, `"2"`), 201, "")
		if got := sizes(f); got != c.created {
			t.Errorf("%+v: POST made %q, want %q", c.crd, got, c.created)
		}
		wantAnswer(t, f, "PUT "+widgets+"/w", widget(f, `"3"`, `"4"`), 200, "")
		if got := sizes(f); got != c.updated {
			t.Errorf("%+v: PUT made %q, want %q", c.crd, got, c.updated)
		}
		wantAnswer(t, f, "PUT "+widgets+"/w/status", widget(f, `"5"`, `"6"`), c.statusCode, "")
		if got := sizes(f); got != c.statusIsIn {
			t.Errorf("%+v: PUT of the status made %q, want %q", c.crd, got, c.statusIsIn)
		}
		wantAnswer(t, f, "GET "+widgets+"/w/status", "", c.statusCode, "")
		wantAnswer(t, f, "DELETE "+widgets+"/w", "", 200, "")
	}
}

func TestObjectNameMustMatchThePath(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	f := New()
	wantAnswer(t, f, "PUT "+leases+"/l", `{"metadata":{"name":"l"}}`, 201, `"namespace":"default"`)
	if f.Get("leases", Key{"default", "l"}) == nil {
		t.Error("the lease is not in the namespace of its path")
	}
	wantAnswer(t, f, "PUT "+leases+"/l", `{"metadata":{"name":"m"}}`, 400,
		"the name of the object (m) does not match the name on the URL (l)")
	wantAnswer(t, f, "PUT "+leases+"/l", `{"metadata":{"name":"l","namespace":"other"}}`, 400,
		"the namespace of the provided object does not match the namespace sent on the request")
	wantAnswer(t, f, "PUT "+leases+"/l", `{"metadata":{}}`, 400, "name must be provided")
	wantAnswer(t, f, "PATCH "+leases+"/l", `{"metadata":null}`, 400, "name must be provided")
	wantAnswer(t, f, "PATCH "+leases+"/l", `{"metadata":{"name":"m"}}`, 400, "does not match")
	wantNumber(t, "leases", len(f.All("leases")), 1)
}

func TestPodWithoutASpecCanBeBound(t *testing.T) {
	f := New()
	f.PutJSON("pods", `{"metadata":{"namespace":"default","name":"p"}}`)
	binding := `{"metadata":{"name":"p"},"target":{"name":"n"}}`
	wantAnswer(t, f, "POST /api/v1/namespaces/default/pods/p/binding", binding, 201, "")
	if node := TextIn(objectIn(f.Get("pods", Key{"default", "p"}), "spec"), "nodeName"); node != "n" {
		t.Errorf("the pod is on node %q", node)
	}
}

func TestPanicsNameTheMistake(t *testing.T) {
	wantPanic(t, "no widgets.example.com: Serve its kind, or Put its CustomResourceDefinition, first",
		func() { New().Put("widgets.example.com", Object{}) })
	wantPanic(t, "has no things", func() { New().Put("things", Object{}) })
	wantPanic(t, "no nodes a to edit", func() { New().Edit("nodes", Key{Name: "a"}, func(Object) {}) })
	wantPanic(t, "no things, so nobody can write one", func() { New().Mutate("things", func(Object) {}) })
	wantPanic(t, "pods needs metadata", func() { New().Put("pods", Object{}) })
}
