package fakekube

import (
	"slices"
	"strings"
	"testing"
)

// changeSpy counts the changes that a Spy sees.
type changeSpy struct{ changes int }

func (l *changeSpy) Asked(Request)               {}
func (l *changeSpy) Told(Answer, string, Object) {}
func (l *changeSpy) Answered(Answer)             {}
func (l *changeSpy) Changed(Change)              { l.changes++ }

func TestDryRunChangesNothing(t *testing.T) {
	const pods = "/api/v1/namespaces/default/pods"
	f := New()
	f.AddPod("default", "p", "n")
	f.AddPod("default", "q", "")
	spy := &changeSpy{}
	f.Spy = spy
	version := f.Latest()
	const all = `{"dryRun":["All"]}`
	for _, c := range []struct {
		request, body string
		code          int
	}{
		{"POST " + pods + "?dryRun=All",
			`{"metadata":{"name":"r"},"spec":{"containers":[{"name":"c","image":"i"}]}}`, 201},
		{"PATCH " + pods + "/p?dryRun=All", `{"metadata":{"labels":{"a":"b"}}}`, 200},
		{"PATCH " + pods + "/p/status?dryRun=All", `{"status":{"phase":"Failed"}}`, 200},
		{"PUT /apis/coordination.k8s.io/v1/namespaces/default/leases/l?dryRun=All", `{"metadata":{"name":"l"}}`, 201},
		{"DELETE " + pods + "/p", all, 200},
		{"DELETE " + pods + "/q", all, 200},
		{"DELETE " + pods + "/q?dryRun=All", "", 200},
		{"DELETE " + pods, all, 200},
		{"DELETE /api/v1/namespaces/other", all, 404},
	} {
		wantAnswer(t, f, c.request, c.body, c.code, "")
	}
	f.Spy = nil
	if f.Latest() != version || spy.changes != 0 || len(f.All("pods")) != 2 || len(f.All("leases")) != 0 {
		t.Errorf("version %d became %d, with %d changes", version, f.Latest(), spy.changes)
	}
}

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

func TestNamespaceIsRemovedWithItsObjects(t *testing.T) {
	f := New()
	f.Put("namespaces", Object{"metadata": Object{"name": "n"}})
	f.AddPod("n", "p", "node")
	f.PutJSON("leases", `{"metadata":{"namespace":"n","name":"l","finalizers":["a.b/c"]}}`)
	f.AddPod("default", "p", "node")
	wantAnswer(t, f, "DELETE /api/v1/namespaces/n", "", 200, `"phase":"Terminating"`)
	wantNumber(t, "pods", len(f.All("pods")), 1)
	if f.Get("namespaces", Key{Name: "n"}) == nil {
		t.Error("it has not waited for the finalizer")
	}
	wantAnswer(t, f, "POST /api/v1/namespaces/n/configmaps", `{"metadata":{"name":"c"}}`, 403, "being terminated")
	const lease = "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
	wantAnswer(t, f, "PATCH "+lease, `{"metadata":{"finalizers":null}}`, 200, "")
	if f.Get("namespaces", Key{Name: "n"}) != nil {
		t.Error("it is still there")
	}
}

func TestNamespaceWaitsForFinalizers(t *testing.T) {
	f := New()
	f.Put("namespaces", Object{"metadata": Object{"name": "n", "finalizers": []any{"a.b/c"}}})
	f.PutJSON("leases", `{"metadata":{"namespace":"n","name":"l","finalizers":["a.b/c"]}}`)
	wantAnswer(t, f, "DELETE /api/v1/namespaces/n", "", 200, "")
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

func TestRemovingTheLastFinalizerRemovesTheObject(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	f := New()
	f.PutJSON("leases", `{"metadata":{"namespace":"default","name":"l","finalizers":["a.b/c"]}}`)
	before := f.Latest()
	wantAnswer(t, f, "DELETE "+leases+"/l", "", 200, `"finalizers":["a.b/c"]`)
	wantAnswer(t, f, "PATCH "+leases+"/l", `{"metadata":{"finalizers":["a.b/c","d.e/f"]}}`, 422, "no new finalizers")
	wantAnswer(t, f, "PATCH "+leases+"/l", `{"metadata":{"finalizers":null}}`, 200, "")
	if got := describeHistory(f, "leases", before); got != "l changed, l gone" {
		t.Error(got)
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
	wantNumber(t, "ConfigMaps", len(f.All("configmaps")), 2)
}
