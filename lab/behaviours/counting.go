package behaviours

import (
	"path"
	"strings"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func labelIsRemoved(w *world) {
	node := w.addNode("unlabel", "unlabel")
	w.start(w.admin(), "unlabel")
	w.awaitLabel(node, "0")
	w.send("PATCH", node, labels("group", "other"))
	w.awaitLabel(node, "")
}

func eventsAreCounted(w *world) {
	node := w.addNode("events", "events")
	w.addPod("a", "events")
	w.start(w.admin(), "events", "-pod-events", "on")
	w.awaitLabel(node, "1")
	for range 2 {
		b := w.addPod("b", "events")
		w.awaitLabel(node, "2")
		w.delete(b)
		w.awaitLabel(node, "1")
	}
	w.await("two events on the pod and on the node", func() bool {
		onPod := w.timesReported(w.namespace, "b", "PodCounted", "pod count is 2")
		onNode := w.timesReported("default", path.Base(node), "PodCountChanged", "pod count changed from 1 to 2")
		return onPod == 2 && onNode == 2
	})
}

func countsFollowPods(w *world) {
	ours := w.addCount()
	awaitStatus := func(what string, healthy bool, count float64) {
		w.Helper()
		w.await(what, func() bool {
			o, _ := w.try("GET", ours, nil)
			status, _ := o["status"].(object)
			isCurrent := status["observedGeneration"] == fakekube.MetaOf(o)["generation"]
			return isCurrent && status["healthy"] == healthy && status["count"] == count
		})
	}

	log := w.start(w.as("token: "+w.addPodcountAccount("counts")), "counts", "-controllers", "count")
	awaitStatus("the status", false, 0)
	pod := w.create(w.pods(), w.pod("a", "group", "counts", "app", "web"))
	awaitStatus("the status with a pod", true, 1)
	w.send("PATCH", ours, object{"spec": object{"count": 2}})
	awaitStatus("the status for another spec", false, 1)
	w.delete(pod)
	awaitStatus("the status without a pod", false, 0)

	for _, event := range []struct{ reason, message string }{
		{"CountMismatch", "want 1 pods of web, have 0"},
		{"CountMatched", "want 1 pods of web, have 1"},
		{"Synced", "Count synced successfully"},
	} {
		w.await("the event "+event.reason, func() bool {
			return w.timesReported(w.namespace, "ours", event.reason, event.message) > 0
		})
	}
	w.wantNoWarnings(log)
}

// addCount installs the CRD of Counts, creates a Count for one pod of the app web, and returns its path. It skips the
// behaviour on a cluster that has the CRD already.
func (w *world) addCount() (path string) {
	w.Helper()
	const definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	const definition = definitions + "/counts.demo.mark8s.io"
	if _, err := w.try("GET", definition, nil); err == nil {
		w.cannotShow("the cluster has Counts of its own")
	}
	w.send("POST", definitions, parseYAML(w, testkit.ReadFile(w, "deploy/count-crd.yaml")).(object))
	w.deleteAtEnd(definition)

	counts := "/apis/demo.mark8s.io/v1/namespaces/" + w.namespace + "/counts"
	w.await("the new resource", func() bool {
		count := named("ours")
		count["apiVersion"] = "demo.mark8s.io/v1"
		count["kind"] = "Count"
		count["spec"] = object{"name": "web", "count": 1}
		_, err := w.try("POST", counts, count)
		return err == nil || isStatus(err, 409, "AlreadyExists")
	})
	return counts + "/ours"
}

// wantNoWarnings fails the test if podcount has logged a warning.
func (w *world) wantNoWarnings(log *testkit.Buffer) {
	w.Helper()
	if strings.Contains(log.String(), "level=WARN") {
		w.Errorf("podcount warned:\n%s", log)
	}
}

func onceAndPrune(w *world) {
	w.runAlongside("once")
	node := w.addNode("once", "once")
	w.addPod("once-a", "once")
	finish := func(flags ...string) string {
		w.Helper()
		return w.finish(w.podcountArgs(w.admin(), "once", flags...))
	}
	wouldWrite := `msg="would write node ` + path.Base(node) + `: ` + w.label

	testkit.WantText(w, finish("-once", "-dry-run"), wouldWrite+` none → 1"`)
	w.awaitLabel(node, "")
	finish("-once")
	w.awaitLabel(node, "1")
	testkit.WantText(w, finish("-prune", "-dry-run"), wouldWrite+` 1 → none"`)
	w.awaitLabel(node, "1")
	finish("-prune")
	w.awaitLabel(node, "")
}
