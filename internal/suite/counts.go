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

// Counts shows what the controller count writes to the status of Counts.
var Counts = Topic{
	{"the status shows whether the spec has its pods", countOfPods},
	{"a status is written at once, then once a second", statusOnceASecond},
	{"a write to a missing object is not retried with each pod", writesToMissingObjects},
	{"a lost deletion costs one write an interval", lostDeletion},
	{"a change of a pod concerns only its Counts", onlyCountsOfThePod},
	{"a restart repeats no Event and no write", restart},
	{"a status that failed or was changed is written again", statusIsWrittenAgain},
	{"a first write that hangs delays no other Count", hangingWrite},
}

func countOfPods(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		f.AddPodWithLabels("b",
			fakekube.Object{"run": "nginx", "app": "nginx", "app.kubernetes.io/name": "nginx"}) // once
		f.AddPodWithLabels("c", fakekube.Object{"app": "other"})
		f.Put("pods", fakekube.PodOn(
			fakekube.Object{"namespace": "kube-system", "name": "d", "labels": fakekube.Object{"app": "nginx"}},
			"")) // elsewhere
		count := f.AddCount("web", `{"name":"nginx","count":3}`)
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 2 1")
		testkit.WantText(t, countEvents(f),
			"Normal Synced Count synced successfully (1); Warning CountMismatch want 3 pods of nginx, have 2 (1)")
		f.AddPodWithLabels("e", fakekube.Object{"app.kubernetes.io/name": "nginx"})
		testkit.Pass(time.Second) // the first change at once, then one a second
		testkit.WantText(t, f.CountStatus("web"), "true 3 1")
		testkit.WantText(t, countEvents(f),
			"Normal CountMatched want 3 pods of nginx, have 3 (1); Normal Synced Count synced successfully (1);")

		finished := fakekube.Clone(f.Get("pods", At("default", "e"))) // finished and dying pods count
		finished["status"] = fakekube.Object{"phase": "Succeeded"}
		fakekube.MetaOf(finished)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.Put("pods", finished)
		testkit.Pass(time.Minute)
		testkit.WantText(t, f.CountStatus("web"), "true 3 1")
		f.Remove("pods", At("default", "e"))
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 2 1")
		f.AddPodWithLabels("a", fakekube.Object{"app": "other"}) // a pod that changes sides
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 1 1")

		f.AddCount("web", `{"name":"nginx","count":1}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 1 2")
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.AddCount("web", `{"name":"nginx","count":1,"note":"another spec, that means the same"}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 1 3")
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.AddCount("web", `{"name":"other","count":1}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 2 4")
		writes := len(countWrites(f))
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
		uid := fakekube.TextIn(fakekube.MetaOf(count), "uid")
		for i, body := range countWrites(f) {
			if !strings.HasPrefix(body, "web/status {") || !strings.Contains(body, `"uid":"`+uid+`"`) ||
				strings.Contains(body, "resourceVersion") {
				t.Errorf("write %d: %s", i, body)
			}
		}
		f.Remove("counts", At("default", "web"))
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "words on the deletion", p.Logged(`msg="a Count is gone" count=default/web`), 1)
		f.AddCount("web", `{"name":"other","count":2}`)
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 2 1")
	})
}

func statusOnceASecond(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"nginx","count":50}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		writes := len(countWrites(f))
		for i := range 50 { // in five seconds
			f.AddPodWithLabels(fmt.Sprint("p", i), fakekube.Object{"app": "nginx"})
			if synctest.Wait(); i == 0 {
				testkit.WantText(t, f.CountStatus("web"), "false 1 1")
			}
			testkit.Pass(100 * time.Millisecond)
		}
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 50 1")
		testkit.WantNumber(t, "writes", len(countWrites(f))-writes, 6)
	})
}

// writesToMissingObjects: the watch lags, so podcount does not know yet that an object was recreated or is gone.
func writesToMissingObjects(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddCount("web", `{"name":"web","count":1}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		catchUp := f.Lag(
			fakekube.Requests{If: func(s fakekube.Request) bool { return !strings.HasSuffix(s.Path, "/pods") }},
			0)
		testkit.Pass(time.Second)
		f.Remove("nodes", fakekube.Key{Name: "cp"})
		f.AddNode("cp", ControlPlane)
		f.Remove("counts", At("default", "web"))
		before := len(WritesTo(f))
		for i := range 100 { // ten seconds
			f.AddPod("default", fmt.Sprint("p", i), "")
			testkit.Pass(100 * time.Millisecond)
		}
		if n := len(WritesTo(f)) - before; n < 2 || n > 4 {
			t.Errorf("%d writes, of one an interval to the node and to the Count", n)
		}
		catchUp()
		WantPeace(t, f)
	})
}

// lostDeletion: only the hourly list shows that the Count is gone.
func lostDeletion(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":1}`)
		podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Minute)
		f.LoseEvents(1)
		f.Remove("counts", At("default", "web"))
		f.AddPod("default", "a", "")
		before := len(WritesTo(f))
		testkit.Pass(10 * time.Minute)
		if n := len(WritesTo(f)) - before; n < 1 || n > 61 {
			t.Errorf("%d writes in ten minutes", n)
		}
		testkit.Pass(time.Hour)
		before = len(WritesTo(f))
		testkit.Pass(10 * time.Minute)
		testkit.WantNumber(t, "writes then", len(WritesTo(f))-before, 0)
	})
}

func onlyCountsOfThePod(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		for i := range 300 {
			f.AddCount(fmt.Sprintf("c%d", i), fmt.Sprintf(`{"name":"n%d","count":1}`, i/2))
		}
		p := podcount.Start(t, f, "-v", "4", "-qps", "1000")
		testkit.Pass(time.Minute)
		before := p.Logged(`"queue: get" controller=count`)
		f.AddPodWithLabels("a", fakekube.Object{"app": "n7"})
		synctest.Wait()
		testkit.WantText(t, f.CountStatus("c14"), "true 1 1")
		testkit.WantText(t, f.CountStatus("c15"), "true 1 1")
		after := p.Logged(`"queue: get" controller=count`)
		if n := after - before; n < 2 || n > 4 {
			t.Errorf("a pod and two writes made %d keys", n)
		}
		f.Put("pods", fakekube.PodOn(
			fakekube.Object{
				"namespace": "default",
				"name":      "a",
				"labels":    fakekube.Object{"app": "n7", "x": "y"},
			},
			"n1",
		))
		synctest.Wait()
		testkit.WantNumber(t, "keys after a change that concerns no Count",
			p.Logged(`"queue: get" controller=count`)-after, 0)
	})
}

func restart(t *testing.T, podcount Program) {
	for _, status := range []bool{true, false} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status})
			f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
			f.AddCount("good", `{"name":"nginx","count":1}`)
			f.AddCount("bad", `{"name":"nginx","count":2}`)
			podcount.Start(t, f, "-pod-events", "off").Stop()
			podcount.Start(t, f, "-pod-events", "off")
			testkit.Pass(time.Minute)
			before, writes := countEvents(f), len(countWrites(f))
			podcount.Start(t, f, "-pod-events", "off")
			testkit.Pass(time.Minute)
			if after := countEvents(f); after != before || len(countWrites(f)) != writes {
				t.Errorf("events before %s, after %s; %d writes, then %d", before, after, writes,
					len(countWrites(f)))
			}
		})
	}
}

func statusIsWrittenAgain(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.Inject(t, StatusFault(fakekube.Requests{Resource: "counts/status"}, 3, 500, "InternalError", nil))
		f.AddCount("web", `{"name":"nginx","count":0}`)
		f.AddCount("other", `{"name":"other","count":0}`)
		p := podcount.Start(t, f)
		testkit.Pass(time.Minute)
		testkit.WantText(t, f.CountStatus("web"), "true 0 1")
		testkit.WantText(t, f.CountStatus("other"), "true 0 1")
		testkit.WantText(t, p.Log.String(), `msg="cannot reconcile" controller=count key=default/`)
		f.PutJSON("counts",
			`{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":0},`+
				`"status":{"healthy":false,"count":7}}`)
		testkit.Pass(10 * time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 0 1")
		testkit.WantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.Script(t, "patch counts/status: drop request") // did not arrive
		f.Script(t, "patch counts/status: drop answer")  // did, but the answer was lost
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		testkit.Pass(time.Minute)
		testkit.WantText(t, f.CountStatus("web"), "false 1 1")
		writes := len(countWrites(f))
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
	})
}

func hangingWrite(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		for i := range 10 {
			f.AddCount(fmt.Sprintf("c%d", i), `{"name":"web","count":0}`)
		}
		f.Script(t, "patch counts*: stall")
		p := podcount.Start(t, f)
		testkit.Pass(3 * time.Second)
		right := 0
		for i := range 10 {
			if strings.HasPrefix(f.CountStatus(fmt.Sprintf("c%d", i)), "true 0 ") {
				right++
			}
		}
		testkit.WantNumber(t, "Counts with a status beside the one that hangs", right, 9)
		stopped := time.Now()
		p.Stop()
		if took := time.Since(stopped); took > drainTimeout+eventsTimeout {
			t.Errorf("it stopped after %v", took)
		}
	})
}

// countWrites returns the patches of Counts: the end of the path, and the body.
func countWrites(f *fakekube.Server) (bodies []string) {
	isPatch := func(r fakekube.Request) bool { return r.Method == "PATCH" && strings.Contains(r.Path, "/counts/") }
	for _, s := range f.Requests(isPatch) {
		bodies = append(bodies,
			strings.TrimPrefix(s.Path, "/apis/demo.mark8s.io/v1/namespaces/default/counts/")+" "+s.Body)
	}
	return bodies
}

// countEvents returns the Events on Counts: type, reason, message, and how often each was posted.
func countEvents(f *fakekube.Server) string {
	var all []string
	for _, e := range f.All("events") {
		if about := e["involvedObject"].(fakekube.Object); fakekube.TextIn(about, "kind") == "Count" {
			all = append(all, fmt.Sprintf("%s %s %s (%v)", fakekube.TextIn(e, "type"),
				fakekube.TextIn(e, "reason"), fakekube.TextIn(e, "message"), e["count"]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}
