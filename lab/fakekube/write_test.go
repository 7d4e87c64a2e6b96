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
