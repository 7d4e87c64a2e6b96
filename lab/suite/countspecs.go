package suite

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// OddCounts shows Counts that are invalid, CRDs that treat the status in other ways, and answers that are late or lost.
var OddCounts = Topic{
	{"an invalid Count gets a warning and no status", invalidCounts},
	{"an invalid Count disturbs no other", invalidBesideValid},
	{"a Count that becomes invalid is no longer healthy", countBecomesInvalid},
	{"without a status subresource the object itself is patched", noStatusSubresource},
	{"a subresource that is added or removed is used or left", changingSubresource},
	{"a schema that drops the status is found in the first answer", droppedStatus},
	{"a status that was dropped is written when the subresource has changed", pauseEndsWithTheInstallation},
	{"a status that is paused does not wait for -qps", pausedStatusWaitsForNoTurn},
	{"a change that comes with the answer to a write is not lost", changeInAnAnswer},
	{"a lost answer loses no Event", lostAnswer},
}

func invalidCounts(t *testing.T, podcount Program) {
	for _, row := range []struct{ spec, warning string }{
		{`{"count":3}`, "spec.name is missing, and must be the name of an app"},
		{`{"name":"","count":3}`, `spec.name is "", and must be`},
		{`{"name":5,"count":3}`, "spec.name is 5, and must be"},
		{`{"name":["x"],"count":3}`, `spec.name is ["x"], and must be`},
		{`{"name":"x"}`, "spec.count is missing, and must be a whole number, 0 or more"},
		{`{"name":"x","count":null}`, "spec.count is missing"},
		{`{"name":"x","count":-1}`, "spec.count is -1, and must be"},
		{`{"name":"x","count":"3"}`, `spec.count is "3", and must be`},
		{`{"name":"x","count":1.5}`, "spec.count is 1.5, and must be"},
		{`{"name":"x","count":1e300}`, "spec.count is 1e+300, and must be"},
		{`{"name":"x","count":{"a":1}}`, `spec.count is {"a":1}, and must be`},
		{`{"name":"x","count":99999999999999e9}`, "spec.count is 9.9999999999999e+22, and must be"},
		{`"hello"`, "spec.name is missing"},
		{`null`, "spec.name is missing"},
		{`[1]`, "spec.name is missing"},
	} {
		SimulateCase(t, row.spec, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			podcount.Start(t, f, "-pod-events", "off")
			testkit.Pass(time.Second)
			fixture.AddCount(f, "bad", row.spec)
			testkit.Pass(time.Second)
			testkit.WantText(t, countEvents(f), "Warning InvalidCount "+row.warning)
			testkit.WantNumber(t, "writes", len(countWrites(f)), 0)
		})
	}
}

func invalidBesideValid(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		f.PutJSON("counts", `{
			"metadata": {"namespace": "default", "name": "odd"},
			"spec": {"name": "nginx", "count": 1, "nodeName": 5},
			"status": "hello"
		}`)
		fixture.AddCount(f, "good", `{"name":"nginx","count":2}`)
		testkit.Pass(time.Second)
		wantStatus(t, f, "odd", "true 1 1")
		wantStatus(t, f, "good", "false 1 1")

		// A list has the invalid Count, too.
		f.LoseEvents(1)
		fixture.AddCount(f, "bad", `"hello"`)
		f.Compact()
		f.EndWatches()
		testkit.Pass(time.Minute)
		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Second)
		wantStatus(t, f, "odd", "false 2 1")
		wantStatus(t, f, "good", "true 2 1")
		testkit.WantNumber(t, "reports of garbage", p.Logged("cannot decode"), 0)
	})
}

func countBecomesInvalid(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "true 1 1")

		f.PutJSON("counts", `{
			"metadata": {"namespace": "default", "name": "web"},
			"spec": {"name": "nginx", "count": "1"},
			"status": {"healthy": true, "count": 1, "observedGeneration": 1}
		}`)
		testkit.Pass(time.Second)
		// The rest of the status stays until the spec is valid again.
		wantStatus(t, f, "web", "false 1 1")

		fixture.AddCount(f, "web", `{"name":"nginx","count":2}`)
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "false 1 3")
	})
}

func noStatusSubresource(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		count := fixture.AddCount(f, "web", `{"name":"nginx","count":2}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Hour)
		first := objectPatch(count, false, 1)
		testkit.WantEqual(t, "the patches", countWrites(f), []string{first})
		testkit.WantText(t, countEvents(f),
			"Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of nginx, have 1 (1)")

		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Hour)
		second := objectPatch(count, true, 2)
		testkit.WantEqual(t, "the patches", countWrites(f), []string{first, second})
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (1)")

		f.PutJSON("counts", `{
			"metadata": {"namespace": "default", "name": "web"},
			"spec": {"name": "nginx", "count": 3},
			"status": {"healthy": true, "count": 2}
		}`)
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "patches", len(countWrites(f)), 3)
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (2)")

		// The status is right for this spec already. Only the Events are new.
		f.PutJSON("counts", `{
			"metadata": {"namespace": "default", "name": "web"},
			"spec": {"name": "nginx", "count": 5},
			"status": {"healthy": false, "count": 2}
		}`)
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "patches", len(countWrites(f)), 3)
		testkit.WantText(t, countEvents(f),
			"want 5 pods of nginx, have 2 (1)",
			"Synced Count synced successfully (3)")
	})
}

// objectPatch returns what countWrites shows for a patch of a Count itself, by a uid and without observedGeneration.
func objectPatch(count fakekube.Object, healthy bool, pods int) string {
	meta := fakekube.MetaOf(count)
	return fmt.Sprintf(`%s {"metadata":{"uid":%q},"status":{"healthy":%v,"count":%d}}`,
		fakekube.TextIn(meta, "name"), fakekube.TextIn(meta, "uid"), healthy, pods)
}

func changingSubresource(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{})
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "nginx"})
		count := fixture.AddCount(f, "web", `{"name":"nginx","count":5}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "the patches", countWrites(f), []string{objectPatch(count, false, 2)})

		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		testkit.Pass(time.Minute)
		writes := countWrites(f)
		testkit.WantNumber(t, "patches", len(writes), 2)
		testkit.WantText(t, writes[len(writes)-1], `web/status {`, `"observedGeneration":`)

		fixture.InstallCRD(f, &fixture.CRD{})
		testkit.Pass(time.Minute)
		f.Remove("pods", At("default", "b"))
		testkit.Pass(time.Minute)
		writes = countWrites(f)
		testkit.WantNumber(t, "patches", len(writes), 3)
		testkit.WantEqual(t, "the last patch", writes[len(writes)-1], objectPatch(count, false, 1))
	})
}

func droppedStatus(t *testing.T, podcount Program) {
	withAndWithoutSubresource(t, func(t *testing.T, f *fakekube.Server, hasStatus bool) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: hasStatus, DropsStatus: true})
		for i := range 20 {
			fixture.AddCount(f, fmt.Sprintf("c%d", i), `{"name":"nginx","count":1}`)
		}
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		before := len(countWrites(f))
		testkit.WantNumber(t, "writes", before, 20)

		fixture.AddCount(f, "c0", `{"name":"nginx","count":2}`)
		synctest.Wait()
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "more writes in an hour, once in ten minutes for each", len(countWrites(f))-before, 20*6)
		testkit.WantNumber(t, "reports of it", p.Logged("the server drops statuses"), 1)

		// The Events still show what the statuses would.
		testkit.WantNumber(t, "Counts with the Event Synced", len(EventsOf(f, "Synced")), 20)
		testkit.WantNumber(t, "Counts with the Event CountMatched", len(EventsOf(f, "CountMatched")), 19)
		testkit.WantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")

		fixture.InstallCRD(f, nil)
		testkit.Pass(time.Minute)
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: hasStatus})
		fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
		testkit.Pass(time.Minute)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "true 1 ")
	})
}

func pauseEndsWithTheInstallation(t *testing.T, podcount Program) {
	withAndWithoutSubresource(t, func(t *testing.T, f *fakekube.Server, hasStatus bool) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: hasStatus, DropsStatus: true})
		fixture.AddCount(f, "web", `{"name":"nginx","count":0}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "the status", fixture.CountStatus(f, "web"), "<nil> <nil> <nil>")

		fixture.InstallCRD(f, &fixture.CRD{HasStatus: !hasStatus})
		testkit.Pass(time.Minute)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "true 0 ")
	})
}

func pausedStatusWaitsForNoTurn(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true, DropsStatus: true})
		for i := range 20 {
			fixture.AddCount(f, fmt.Sprintf("c%d", i), `{"name":"nginx","count":1}`)
		}
		podcount.Start(t, f, "-pod-events", "off", "-qps", "0.1", "-burst", "1")
		testkit.Pass(5 * time.Minute) // By then all statuses are paused, because the server has dropped the first ones.
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Second)
		testkit.WantNumber(t, "Counts with the Event CountMatched", len(EventsOf(f, "CountMatched")), 20)
	})
}

// changeInAnAnswer shows that podcount notices a new spec that it gets with the answer to its own patch, before the
// watch reports it.
func changeInAnAnswer(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"web","count":2}`)
		podcount.Start(t, f)
		testkit.Pass(time.Second)
		wantStatus(t, f, "web", "false 0 1")

		f.Script(t, "watch counts: delay 5s")
		f.EndWatches()
		testkit.Pass(time.Second)
		fixture.AddCount(f, "web", `{"name":"web","count":1}`)
		fixture.AddPodWithLabels(f, "a", fakekube.Object{"app": "web"})
		testkit.Pass(time.Hour)
		wantStatus(t, f, "web", "true 1 2")
		testkit.WantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
	})
}

func lostAnswer(t *testing.T, podcount Program) {
	withAndWithoutSubresource(t, func(t *testing.T, f *fakekube.Server, hasStatus bool) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: hasStatus})
		fixture.AddCount(f, "web", `{"name":"web","count":2}`)
		f.Script(t, "patch counts*: drop answer")
		podcount.Start(t, f)
		testkit.Pass(time.Minute)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "false 0 ")
		testkit.WantText(t, countEvents(f),
			"Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of web, have 0 (1)")
	})
}
