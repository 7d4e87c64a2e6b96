package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Counts shows what the controller count writes to the status of Counts.
var Counts = Topic{
	{"the status shows whether the spec has its pods", countOfPods},
	{"each new spec gets a status and an Event", newSpecs},
	{"a patch of a Count carries the uid and no resourceVersion", patchesOfCounts},
	{"a deleted Count is reported, and a recreated one counted", deletedCount},
	{"a Count that is recreated at once is reported anew", countRecreatedAtOnce},
	{"a status that reaches another Count of the name is none", statusOfAnotherCount},
	{"a status is written at once, then once a second", statusOnceASecond},
	{"a write to a missing object is not retried with each pod", writesToMissingObjects},
	{"a change of a pod concerns only its Counts", onlyCountsOfThePod},
	{"a restart repeats no Event and no write", restart},
}

// wantStatus fails the test unless a Count has this status. It is given as in "false 2 1", which means: not healthy, 2
// pods, for the first generation of the spec.
func wantStatus(t *testing.T, f *fakekube.Server, count, want string) {
	t.Helper()
	testkit.WantEqual(t, "the status of "+count, fixture.CountStatus(f, count), want)
}

func countOfPods(t *testing.T, podcount Program) {
	nginx := fakekube.Object{"app": "nginx"}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddPodWithLabels(f, "a", nginx)
		// A pod that has several of the labels counts once.
		f.AddPod("default", "b", "", "run=nginx", "app=nginx", "app.kubernetes.io/name=nginx")
		fixture.AddPodWithLabels(f, "c", fakekube.Object{"app": "other"})
		elsewhere := fakekube.Object{"namespace": "kube-system", "name": "d", "labels": nginx}
		f.Put("pods", fakekube.PodOn(elsewhere, ""))
		fixture.AddCount(f, "web", `{"name":"nginx","count":3}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "false 2 1")
		testkit.WantText(t, countEvents(f),
			"Normal Synced Count synced successfully (1); Warning CountMismatch want 3 pods of nginx, have 2 (1)")

		fixture.AddPodWithLabels(f, "e", fakekube.Object{"app.kubernetes.io/name": "nginx"})
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "true 3 1")
		testkit.WantText(t, countEvents(f),
			"Normal CountMatched want 3 pods of nginx, have 3 (1); Normal Synced Count synced successfully (1);")

		// Finished and terminating pods count, too.
		finished := fakekube.Clone(f.Get("pods", At("default", "e")))
		finished["status"] = fakekube.Object{"phase": "Succeeded"}
		fakekube.MetaOf(finished)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.Put("pods", finished)
		testkit.Pass(time.Minute)
		wantStatus(t, f, "web", "true 3 1")
		f.Remove("pods", At("default", "e"))
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "false 2 1")

		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "other"})
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "false 1 1")
	})
}

func newSpecs(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		podcount.Start(t, f, "-pod-events", "off")
		for i, row := range []struct{ spec, status string }{
			{`{"name":"nginx","count":3}`, "false 1 1"},
			{`{"name":"nginx","count":1}`, "true 1 2"},
			{`{"name":"nginx","count":1,"note":"for podcount, this spec is the same"}`, "true 1 3"},
			{`{"name":"other","count":1}`, "false 0 4"},
		} {
			testkit.Pass(time.Minute) // until the Count does not cool down from an earlier write
			fixture.AddCount(f, "web", row.spec)
			testkit.Pass(time.Second)
			wantStatus(t, f, "web", row.status)
			testkit.WantText(t, countEvents(f), fmt.Sprintf("Synced Count synced successfully (%d)", i+1))
		}
	})
}

func patchesOfCounts(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		count := fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Hour)
		uid := fakekube.TextIn(fakekube.MetaOf(count), "uid")
		const patch = `web/status {"metadata":{"uid":%q},"status":{"healthy":%v,"count":%d,"observedGeneration":1}}`
		testkit.WantEqual(t, "the patches", countWrites(f), []string{
			fmt.Sprintf(patch, uid, false, 0),
			fmt.Sprintf(patch, uid, true, 1),
		})
	})
}

func deletedCount(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"nginx","count":0}`)
		p := podcount.Start(t, f)
		testkit.Pass(time.Minute)
		f.Remove("counts", At("default", "web"))
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "reports of the deletion", p.Logged(`msg="a Count is gone" count=default/web`), 1)
		fixture.AddCount(f, "web", `{"name":"other","count":0}`)
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "true 0 1")
	})
}

// countRecreatedAtOnce keeps the only worker busy, so that it does not look at the Count while that is gone.
func countRecreatedAtOnce(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		podcount.Start(t, f, "-pod-events", "off", "-workers", "1")
		testkit.Pass(time.Minute)
		f.Script(t, "patch counts/status busy: delay 5s")
		fixture.AddCount(f, "busy", `{"name":"busy","count":1}`)
		testkit.Pass(time.Second)
		f.Remove("counts", At("default", "web"))
		fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		testkit.Pass(time.Minute)
		wantStatus(t, f, "web", "false 0 1")
		testkit.WantNumber(t, "Events about a new spec", len(EventsOf(f, "Synced")), 3)
	})
}

// statusOfAnotherCount replaces a Count while its status is on the way. The server does not compare the uid for a
// subresource, so the status reaches the new Count.
func statusOfAnotherCount(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		f.Script(t, "patch counts/status: delay 5s")
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Second)
		f.Remove("counts", At("default", "web"))
		fixture.AddCount(f, "web", `{"name":"other","count":0}`)
		testkit.Pass(time.Minute)
		wantStatus(t, f, "web", "true 0 1")
		testkit.WantNumber(t, "writes", len(countWrites(f)), 3)
		testkit.WantNumber(t, "statuses written", p.Logged("status written"), 2)
	})
}

func statusOnceASecond(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"nginx","count":50}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		before := len(countWrites(f))
		for i := range 50 { // in five seconds
			fixture.AddPodWithLabels(f, fmt.Sprint("p", i), fakekube.Object{"app": "nginx"})
			synctest.Wait()
			if i == 0 {
				wantStatus(t, f, "web", "false 1 1")
			}
			testkit.Pass(100 * time.Millisecond)
		}
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "true 50 1")
		testkit.WantNumber(t, "writes", len(countWrites(f))-before, 6)
	})
}

// writesToMissingObjects lets the watches lag, so that podcount does not know yet that an object was recreated or
// deleted.
func writesToMissingObjects(t *testing.T, podcount Program) {
	isNotOfPods := func(r fakekube.Request) bool { return !strings.HasSuffix(r.Path, "/pods") }
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		fixture.AddCount(f, "web", `{"name":"web","count":1}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		catchUp := f.Lag(fakekube.Requests{If: isNotOfPods}, 0)
		testkit.Pass(time.Second)
		f.Remove("nodes", At("", "cp"))
		f.AddNode("cp", ControlPlane)
		f.Remove("counts", At("default", "web"))
		before := len(WritesTo(f))
		for i := range 100 { // in ten seconds
			f.AddPod("default", fmt.Sprint("p", i), "")
			testkit.Pass(100 * time.Millisecond)
		}
		// One interval has passed: one or two writes each to the node and to the Count.
		testkit.WantBetween(t, "writes", len(WritesTo(f))-before, 2, 4)
		catchUp()
		WantPeace(t, f)
	})
}

func onlyCountsOfThePod(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		for i := range 300 { // two for each app
			fixture.AddCount(f, fmt.Sprintf("c%d", i), fmt.Sprintf(`{"name":"n%d","count":1}`, i/2))
		}
		p := podcount.Start(t, f, "-v", "4", "-qps", "1000")
		reconciled := func() int { return p.Logged(`"queue: get" controller=count`) }
		testkit.Pass(time.Minute)
		before := reconciled()
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "n7"})
		synctest.Wait()
		wantStatus(t, f, "c14", "true 1 1")
		wantStatus(t, f, "c15", "true 1 1")
		// podcount sees its own writes to the two Counts, too.
		testkit.WantBetween(t, "keys after a new pod of two Counts", reconciled()-before, 2, 4)

		before = reconciled()
		labels := fakekube.Object{"app": "n7", "x": "y"}
		meta := fakekube.Object{"namespace": "default", "name": "a", "labels": labels}
		f.Put("pods", fakekube.PodOn(meta, "n1"))
		synctest.Wait()
		testkit.WantNumber(t, "keys after a change that concerns no Count", reconciled()-before, 0)
	})
}

func restart(t *testing.T, podcount Program) {
	withAndWithoutSubresource(t, func(t *testing.T, f *fakekube.Server, hasStatus bool) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: hasStatus})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		fixture.AddCount(f, "good", `{"name":"nginx","count":1}`)
		fixture.AddCount(f, "bad", `{"name":"nginx","count":2}`)
		podcount.Start(t, f, "-pod-events", "off").Stop()
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		events := countEvents(f)
		writes := countWrites(f)

		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "the Events after a restart", countEvents(f), events)
		testkit.WantEqual(t, "the writes after a restart", countWrites(f), writes)
	})
}

// withAndWithoutSubresource runs a test twice: for a CRD whose status is a subresource, and for one whose status is a
// field like any other.
func withAndWithoutSubresource(t *testing.T, test func(t *testing.T, f *fakekube.Server, hasStatus bool)) {
	for _, row := range []struct {
		name      string
		hasStatus bool
	}{
		{"with a status subresource", true},
		{"without a status subresource", false},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) { test(t, f, row.hasStatus) })
		})
	}
}

// countWrites returns the patches of Counts in the namespace default, as in "web/status {...}": the end of the path,
// and the body.
func countWrites(f *fakekube.Server) (writes []string) {
	const counts = "/apis/demo.mark8s.io/v1/namespaces/default/counts/"
	for _, r := range fixture.Requests(f, fixture.IsWrite) {
		target, isCount := strings.CutPrefix(r.Path, counts)
		if isCount {
			writes = append(writes, target+" "+r.Body)
		}
	}
	return writes
}

// countEvents returns the Events on Counts in one sorted text. Each shows as in "Normal Synced Count synced
// successfully (2)": type, reason, message, and how often it was posted.
func countEvents(f *fakekube.Server) string {
	var events []string
	for _, e := range f.All("events") {
		involved := e["involvedObject"].(fakekube.Object)
		if fakekube.TextIn(involved, "kind") != "Count" {
			continue
		}
		events = append(events, fmt.Sprintf("%s %s %s (%v)",
			fakekube.TextIn(e, "type"),
			fakekube.TextIn(e, "reason"),
			fakekube.TextIn(e, "message"),
			e["count"],
		))
	}
	slices.Sort(events)
	return strings.Join(events, "; ")
}
