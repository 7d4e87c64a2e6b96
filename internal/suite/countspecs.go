package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// OddCounts shows Counts that are invalid, and definitions that treat the status otherwise.
var OddCounts = Topic{
	{"an invalid Count gets a warning and disturbs no other", invalidCounts},
	{"without a status subresource the object itself is patched", noStatusSubresource},
	{"a schema that drops the status is found in the first answer", droppedStatus},
	{"a change that comes with the answer to a write is not lost", changeInAnAnswer},
	{"a lost answer loses no Event", lostAnswer},
}

func invalidCounts(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		for spec, want := range map[string]string{
			`{"count":3}`:                           "spec.name is missing, and must be the name of an app",
			`{"name":"","count":3}`:                 `spec.name is "", and must be`,
			`{"name":5,"count":3}`:                  "spec.name is 5, and must be",
			`{"name":["x"],"count":3}`:              `spec.name is ["x"], and must be`,
			`{"name":"x"}`:                          "spec.count is missing, and must be a whole number, 0 or more",
			`{"name":"x","count":null}`:             "spec.count is missing",
			`{"name":"x","count":-1}`:               "spec.count is -1, and must be",
			`{"name":"x","count":"3"}`:              `spec.count is "3", and must be`,
			`{"name":"x","count":1.5}`:              "spec.count is 1.5, and must be",
			`{"name":"x","count":1e300}`:            "spec.count is 1e+300, and must be",
			`{"name":"x","count":{"a":1}}`:          `spec.count is {"a":1}, and must be`,
			`"hello"`:                               "spec.name is missing",
			`null`:                                  "spec.name is missing",
			`[1]`:                                   "spec.name is missing",
			`{"name":"x","count":99999999999999e9}`: "spec.count is 9.9999999999999e+22, and must be",
		} {
			f.AddCount("bad", spec)
			testkit.Pass(time.Second)
			if events := countEvents(f); !strings.Contains(events, "Warning InvalidCount "+want) {
				t.Errorf("%s: no %q in %s", spec, want, events)
			}
			f.Remove("counts", At("default", "bad"))
			testkit.Pass(10 * time.Second)
			for _, e := range f.All("events") {
				f.Remove("events", fakekube.KeyOf(e))
			}
		}
		testkit.WantNumber(t, "writes", len(countWrites(f)), 0)
		f.PutJSON("counts", `{
			"metadata": {"namespace": "default", "name": "odd"},
			"spec": {"name": "nginx", "count": 1, "nodeName": 5},
			"status": "hello"
		}`)
		f.AddCount("good", `{"name":"nginx","count":1}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("good"), "true 1 1")
		testkit.WantText(t, f.CountStatus("odd"), "true 1 1")
		f.PutJSON("counts",
			`{"metadata":{"namespace":"default","name":"good"},"spec":{"name":"nginx","count":"1"},`+
				`"status":{"healthy":true,"count":1,"observedGeneration":1}}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("good"), "false 1 1") // this status is for the spec before
		f.AddCount("good", `{"name":"nginx","count":2}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("good"), "false 1 3")
		f.EndWatches(false)
		f.Compact() // what is invalid stands in lists, too
		f.AddCount("bad", `"hello"`)
		f.Compact()
		testkit.Pass(time.Minute)
		f.AddPodWithLabels("b", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("good"), "true 2 3")
		testkit.WantText(t, f.CountStatus("odd"), "false 2 1")
		testkit.WantNumber(t, "complaints", p.Logged("undecodable"), 0)
	})
}

func noStatusSubresource(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		f.AddCount("web", `{"name":"nginx","count":2}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Hour)
		uid := fakekube.TextIn(fakekube.MetaOf(f.Get("counts", At("default", "web"))), "uid")
		write := func(healthy bool, n int) string {
			return fmt.Sprintf(`web {"metadata":{"uid":"%s"},"status":{"healthy":%v,"count":%d}}`, uid, healthy, n)
		}
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1)}) {
			t.Errorf("writes: %q", got)
		}
		testkit.WantText(t, countEvents(f),
			"Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of nginx, have 1 (1)")
		f.AddPodWithLabels("b", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Hour)
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1), write(true, 2)}) {
			t.Errorf("writes: %q", got)
		}
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.PutJSON("counts",
			`{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":3},`+
				`"status":{"healthy":true,"count":2}}`)
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "writes", len(countWrites(f)), 3)
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.PutJSON("counts",
			`{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":5},`+
				`"status":{"healthy":false,"count":2}}`)
		testkit.Pass(time.Hour) // not a write, but news
		testkit.WantNumber(t, "writes", len(countWrites(f)), 3)
		testkit.WantText(t, countEvents(f), "want 5 pods of nginx, have 2 (1)")
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.InstallCRD(&fakekube.CRD{HasStatus: true}) // somebody adds the subresource
		testkit.Pass(time.Minute)
		testkit.WantText(t, f.CountStatus("web"), "false 2 6")
		if got := countWrites(f); len(got) != 4 || !strings.HasPrefix(got[3], "web/status ") {
			t.Errorf("writes: %q", got)
		}
		f.InstallCRD(&fakekube.CRD{}) // and removes it
		testkit.Pass(time.Minute)
		f.Remove("pods", At("default", "b"))
		testkit.Pass(time.Minute)
		if got := countWrites(f); len(got) != 5 || got[4] != write(false, 1) {
			t.Errorf("writes: %q", got)
		}
	})
}

func droppedStatus(t *testing.T, podcount Program) {
	for _, status := range []bool{true, false} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status, DropsStatus: true})
			for i := range 20 {
				f.AddCount(fmt.Sprintf("c%d", i), `{"name":"nginx","count":1}`)
			}
			p := podcount.Start(t, f, "-pod-events", "off")
			testkit.Pass(time.Minute)
			writes := len(countWrites(f))
			if writes < 1 || writes > 4 { // -workers, that had begun when the first answer came
				t.Errorf("%d writes", writes)
			}
			f.AddCount("c0", `{"name":"nginx","count":2}`)
			synctest.Wait()
			f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
			testkit.Pass(time.Hour)
			if more := len(countWrites(f)) - writes; more < 5 || more > 6*4 {
				t.Errorf("%d more writes in an hour, want one or, by the workers, a few in ten minutes", more)
			}
			testkit.WantNumber(t, "words on it", p.Logged("the server drops statuses"), 1)
			for want, n := range map[string]int{"Synced": 20, "CountMatched": 19} { // Events still show it
				reasons := 0
				for _, e := range f.All("events") {
					if fakekube.TextIn(e, "reason") == want {
						reasons++
					}
				}
				testkit.WantNumber(t, want, reasons, n)
			}
			testkit.WantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
			f.InstallCRD(nil)
			testkit.Pass(time.Minute)
			f.InstallCRD(&fakekube.CRD{HasStatus: status}) // mended
			f.AddCount("web", `{"name":"nginx","count":1}`)
			testkit.Pass(time.Minute)
			testkit.WantText(t, f.CountStatus("web"), "true 1 ")
		})
	}
}

// changeInAnAnswer: the answer to a write contains what others have written before it.
func changeInAnAnswer(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":2}`)
		podcount.Start(t, f)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 0 1")
		f.Script(t, "watch counts: delay 5s")
		f.EndWatches(false)
		testkit.Pass(time.Second)
		f.AddCount("web", `{"name":"web","count":1}`) // no watch has reported it yet
		f.AddPodWithLabels("a", fakekube.Object{"app": "web"})
		testkit.Pass(time.Hour)
		testkit.WantText(t, f.CountStatus("web"), "true 1 2")
		testkit.WantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
	})
}

func lostAnswer(t *testing.T, podcount Program) {
	for _, status := range []bool{true, false} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status})
			f.AddCount("web", `{"name":"web","count":2}`)
			f.Script(t, "patch counts*: drop answer")
			podcount.Start(t, f)
			testkit.Pass(time.Minute)
			testkit.WantText(t, f.CountStatus("web"), "false 0 ")
			testkit.WantText(t, countEvents(f),
				"Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of web, have 0 (1)")
		})
	}
}
