package behaviours

import (
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/lab/testkit"
)

// awaitPods waits until a reflector's cache has exactly the pods with these names.
func (w *world) awaitPods(what string, r *runningReflector, names ...string) {
	w.Helper()
	w.await(what, func() bool { return slices.Equal(r.Names(), names) })
}

// awaitWatch waits until a reflector has begun to watch.
func (w *world) awaitWatch(r *runningReflector) {
	w.Helper()
	w.await("the watch", func() bool { return strings.Contains(r.log.String(), "msg=watching") })
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
	w.delete(a)
	w.awaitPods("the deletion", r, "b")
	w.wantLists(r.log, 1)
}

func brokenWatch(w *world) {
	w.addPod("a", "resume")
	r := w.reflect("resume")
	w.awaitWatch(r)
	r.cut()
	w.addPod("b", "resume")
	w.awaitPods("the pod that was added meanwhile", r, "a", "b")
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

func halfOpenHTTP2(w *world) {
	w.runLong("http2")
	w.showHalfOpen("http2", w.config, 50*time.Second)
}

func halfOpenHTTP1(w *world) {
	w.runLong("http1")
	p := w.startProxy("http1")
	config, err := kubeconfig.Load(w.Context(), kubeconfig.Options{
		Kubeconfig: p.kubeconfig,
		Master:     p.url,
		Getenv:     os.Getenv,
	})
	if err != nil {
		w.Fatal(err)
	}
	w.showHalfOpen("http1", config, 155*time.Second)
}

// showHalfOpen shows that a reflector whose connection has become half-open watches again in time, without a relist.
func (w *world) showHalfOpen(group string, config *kubeconfig.Config, within time.Duration) {
	w.Helper()
	a, b, c := group+"-a", group+"-b", group+"-c"
	w.addPod(a, group)
	r := w.reflectWith(ReflectorOptions{Config: config, LabelSelector: "group=" + group})
	w.awaitWatch(r)
	w.addPod(b, group)
	w.awaitPods("the new pod", r, a, b)
	r.mute()
	muted := time.Now()
	w.addPod(c, group)
	w.awaitPods("the pod that was added while the connection was mute", r, a, b, c)
	took := time.Since(muted)
	w.Logf("it took %v", took.Round(time.Second/10))
	if took > within {
		w.Errorf("it took %v, want at most %v", took, within)
	}
	w.wantLists(r.log, 1)
}
