package fakekube

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

const crdPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

// definition returns a CustomResourceDefinition in JSON with these versions.
func definition(group, plural, kind, versions string) string {
	return fmt.Sprintf(`{"metadata":{"name":"%[2]s.%[1]s"},"spec":{"group":%[1]q,"scope":"Namespaced",`+
		`"names":{"plural":%[2]q,"kind":%[3]q},"versions":[%[4]s]}}`, group, plural, kind, versions)
}

const (
	open   = `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
	onlyV1 = `{"name":"v1","served":true,"storage":true,` + open + `}`

	withStatus = `{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},` + open + `}`
)

func TestRefusedCRDIsNotServed(t *testing.T) {
	f := New()
	wantAnswer(t, f, "POST "+crdPath, `{"metadata":{"name":"UPPER"},"spec":{"versions":[{}]}}`, 422, "Invalid")
	wantAnswer(t, f, "POST "+crdPath, `{"metadata":{"name":"a.b"}}`, 422, "spec.versions")
	testkit.WantNumber(t, "definitions", len(f.All(definitions)), 0)
	testkit.WantNumber(t, "kinds beyond the built-in ones", len(f.kindsLocked())-len(builtIn), 0)
}

func TestGroupsMayShareAPlural(t *testing.T) {
	f := New()
	f.PutJSON(definitions, definition("a.io", "widgets", "Widget", onlyV1))
	f.PutJSON(definitions, definition("b.io", "widgets", "Widget", onlyV1))
	f.PutJSON("widgets.b.io", `{"metadata":{"name":"w","namespace":"default"}}`)
	testkit.WantNumber(t, "widgets of a.io", len(f.All("widgets.a.io")), 0)
	testkit.WantNumber(t, "widgets of b.io", len(f.All("widgets.b.io")), 1)
	wantAnswer(t, f, "GET /apis/a.io/v1/namespaces/default/widgets/w", "", 404, `widgets.a.io \"w\" not found`)
	wantAnswer(t, f, "GET /apis/b.io/v1/namespaces/default/widgets/w", "", 200, "")
	wantAnswer(t, f, "GET /apis/a.io/v1/widgets?watch=1&resourceVersion=200&timeoutSeconds=1", "", 200, "")
	_, reported := ask(t, f, "GET", "/apis/a.io/v1/widgets?watch=1&resourceVersion=200&timeoutSeconds=1", "")
	if strings.Contains(reported, "ADDED") {
		t.Errorf("the watch of one group tells of the other: %s", reported)
	}
}

func TestOnlyDefinitionChangesEndWatches(t *testing.T) {
	f := New()
	f.PutJSON(definitions, definition("a.io", "widgets", "Widget", onlyV1))
	f.PutJSON(definitions, definition("a.io", "gadgets", "Gadget", onlyV1))
	before := f.servedKinds()
	label := `{"metadata":{"labels":{"a":"b"}}}`
	wantAnswer(t, f, "PATCH "+crdPath+"/widgets.a.io", label, 200, "")
	if !slices.EqualFunc(before, f.servedKinds(), func(a, b kind) bool { return a.installation == b.installation }) {
		t.Error("a label defines the kind again")
	}
	wantAnswer(t, f, "PATCH "+crdPath+"/widgets.a.io", `{"spec":{"versions":[`+withStatus+`]}}`, 200, "")
	for _, k := range f.servedKinds() {
		isAgain := k.isCustom() && k.installationIn(before) != k.installation
		if isAgain != (k.resource == "widgets") {
			t.Errorf("%s: defined again: %v", k.resource, isAgain)
		}
	}
}

func TestVersionPriority(t *testing.T) {
	want := []string{"v10", "v2", "v1", "v11beta2", "v10beta3", "v3beta1", "v12alpha1", "v11alpha2", "foo1", "foo10"}
	got := slices.Sorted(slices.Values(want))
	slices.SortFunc(got, compareVersions)
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestDefinitionCannotReplaceABuiltInKind(t *testing.T) {
	f := New()
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	approved := strings.Replace(definition("coordination.k8s.io", "leases", "Lease", onlyV1), `"metadata":{`,
		`"metadata":{"annotations":{"api-approved.kubernetes.io":"unapproved, for a test"},`, 1)
	wantAnswer(t, f, "POST "+crdPath, approved, 201, "")
	wantAnswer(t, f, "POST "+leases, `{"metadata":{"name":"l"}}`, 201, `"kind":"Lease"`)
	wantAnswer(t, f, "DELETE "+crdPath+"/leases.coordination.k8s.io", "", 200, "")
	wantAnswer(t, f, "GET "+leases+"/l", "", 200, `"kind":"Lease"`)
}
