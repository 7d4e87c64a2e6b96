package behaviours

import (
	"io"
	"net/url"
	"slices"
	"strings"

	"podcount/internal/api/kube"
	"podcount/lab/testkit"
)

// awaitPods waits until a reflector's cache has exactly the pods with these names.
func (w *world) awaitPods(what string, r *runningReflector, names ...string) {
	w.Helper()
	w.await(what, func() bool { return slices.Equal(r.Names(), names) })
}

// wantLists fails the test unless podcount has completed this number of lists.
func (w *world) wantLists(log *testkit.Buffer, want int) {
	w.Helper()
	testkit.WantNumber(w, "lists", strings.Count(log.String(), "msg=listed"), want)
}

func listAndWatch(w *world) {
	a := w.addPod("a", "watch")
	r := w.reflect("watch")
	w.awaitPods("the list", r, "a")
	w.addPod("b", "watch")
	w.addPod("elsewhere", "other")
	w.awaitPods("the new pod", r, "a", "b")
	r.cut()
	w.addPod("c", "watch")
	w.delete(a)
	w.awaitPods("the changes without a watch", r, "b", "c")
	w.wantLists(r.log, 1)
}

func changedLabel(w *world) {
	a := w.addPod("a", "leave")
	b := w.addPod("b", "enter")
	r := w.reflect("leave")
	w.awaitPods("the list", r, "a")
	w.send("PATCH", a, labels("group", "left"))
	w.send("PATCH", b, labels("group", "leave"))
	w.awaitPods("both changes", r, "b")
}

func fieldSelector(w *world) {
	w.addPod("a", "fields")
	w.addPod("b", "fields")
	r := w.reflectWith(ReflectorOptions{
		Config:        w.config,
		LabelSelector: "group=fields",
		FieldSelector: "metadata.name!=a",
	})
	w.awaitPods("the list", r, "b")
}

func expiredVersion(w *world) {
	w.addPod("a", "gone")
	if !w.isExpired("1") {
		w.cannotShow("a new server still has every version")
	}
	r := w.reflectWith(ReflectorOptions{Config: w.config, LabelSelector: "group=gone", Version: "1"})
	w.awaitPods("the list", r, "a")
	testkit.WantText(w, r.log.String(), "listing again", "410 Expired")
}

// isExpired reports whether the server refuses to watch pods from a version because the version is too old. If the
// request fails in any other way, isExpired also returns true, so that the behaviour runs and shows why.
func (w *world) isExpired(version string) bool {
	body, err := w.client.Stream(w.Context(), kube.Request{
		Method: "GET",
		Path:   w.pods(),
		Query:  url.Values{"watch": {"1"}, "resourceVersion": {version}, "timeoutSeconds": {"1"}},
	})
	if err != nil {
		return true
	}
	defer body.Close()
	events, _ := io.ReadAll(body)
	return strings.Contains(string(events), `"code":410`)
}
