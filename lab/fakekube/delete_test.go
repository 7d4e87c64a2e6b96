package fakekube

import (
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// describeHistory lists the events of a resource since a version.
func describeHistory(f *Server, resource string, since int) string {
	var reported []string
	for _, c := range f.Changes() {
		if c.Resource != resource || c.Version <= since {
			continue
		}
		event := "changed"
		if c.Old == nil {
			event = "made"
		}
		if c.New == nil {
			event = "gone"
		}
		reported = append(reported, c.Key().Name+" "+event)
	}
	return strings.Join(reported, ", ")
}

func TestDeletionsAreFinished(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	for _, c := range []struct {
		name, body, want string
		noControllers    bool
	}{
		{"a pod on a node ends", ``, "p changed, p changed, p gone", false},
		{"a pod that is killed goes", `{"gracePeriodSeconds":0}`, "p changed, p gone", false},
		{"dependents are looked after", `{"propagationPolicy":"Foreground"}`, "p changed, p changed, p gone", false},
		{"a pod without a kubelet stays", ``, "p changed", true},
		{"a pod that is killed goes without a kubelet", `{"gracePeriodSeconds":0}`, "p changed, p gone", true},
		{"a finalizer stays without a collector", `{"propagationPolicy":"Orphan"}`, "p changed", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := New()
			f.NoControllers = c.noControllers
			f.AddPod("default", "p", "n")
			before := f.Latest()
			wantAnswer(t, f, "DELETE "+pods+"/p", c.body, 200, "deletionTimestamp")
			if got := describeHistory(f, "pods", before); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestNamespaceIsRemovedWithItsObjectsAfterTheirFinalizers(t *testing.T) {
	f := New()
	f.Put("namespaces", Object{"metadata": Object{"name": "n", "finalizers": []any{"a.b/c"}}})
	f.AddPod("n", "p", "node")
	f.PutJSON("leases", `{"metadata":{"namespace":"n","name":"l","finalizers":["a.b/c"]}}`)
	f.AddPod("default", "p", "node")
	wantAnswer(t, f, "DELETE /api/v1/namespaces/n", "", 200, `"phase":"Terminating"`)
	testkit.WantNumber(t, "pods", len(f.All("pods")), 1)
	wantAnswer(t, f, "POST /api/v1/namespaces/n/configmaps", `{"metadata":{"name":"c"}}`, 403, "being terminated")
	const noFinalizers = `{"metadata":{"finalizers":null}}`
	wantAnswer(t, f, "PATCH /api/v1/namespaces/n", noFinalizers, 200, "")
	if f.Get("namespaces", Key{Name: "n"}) == nil {
		t.Error("it has not waited for what is in it")
	}
	wantAnswer(t, f, "PATCH /apis/coordination.k8s.io/v1/namespaces/n/leases/l", noFinalizers, 200, "")
	if f.Get("namespaces", Key{Name: "n"}) != nil {
		t.Error("it is still there")
	}
}

func TestGeneratedNamesUseTheServersAlphabet(t *testing.T) {
	f := New()
	long := strings.Repeat("a", 90)
	for _, prefix := range []string{"web-", long} {
		body := `{"metadata":{"generateName":"` + prefix + `"}}`
		wantAnswer(t, f, "POST /api/v1/namespaces/default/configmaps", body, 201, "")
	}
	for _, o := range f.All("configmaps") {
		name := TextIn(MetaOf(o), "name")
		suffix := name[len(name)-generatedLength:]
		isOdd := func(char rune) bool { return !strings.ContainsRune(generatedAlphabet, char) }
		if slices.ContainsFunc([]rune(suffix), isOdd) || len(name) > labelLength {
			t.Errorf("name %q", name)
		}
	}
	testkit.WantNumber(t, "ConfigMaps", len(f.All("configmaps")), 2)
}
