package suite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Labels shows what podcount writes to the labels of nodes, and when.
var Labels = Topic{
	{"the total goes to control-plane nodes and to no other", totalGoesToControlPlaneNodes},
	{"a wrong label is written once, and a right one never", onlyWrongLabelsAreWritten},
	{"changes are written at once, then once an interval", changesAreWrittenOnceAnInterval},
	{"the first change after a quiet start is written at once", changeAfterAQuietStart},
	{"a total that came and went delays no later change", totalThatCameAndWent},
	{"a node whose role changes gets or loses the label", nodesThatChangeRole},
	{"the answer to a write updates the cache at once", answerUpdatesTheCache},
	{"a label that another writer changes is corrected", otherWritersAreCorrected},
	{"a recreated node gets the label", recreatedNodes},
	{"-node-label counts the pods of each node", nodeLabel},
	{"the first total does not wait for the nodes' own labels", totalComesFirst},
	{"a changed total does not wait for the nodes' own labels", changedTotalComesFirst},
	{"the total leaves the nodes' own labels a share of -qps", totalLeavesAShare},
	{"selectors and the namespace are applied by the API server", selectorsGoToTheServer},
	{"-total-nodes chooses nodes by their labels", totalNodes},
	{"podcount reports once that no node gets the total", noNodeForTheTotal},
	{"no pods are the number 0, and no nodes are no problem", emptyClusters},
	{"two podcounts without an election agree and do not fight", twoWithoutAnElection},
}

func totalGoesToControlPlaneNodes(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("new", ControlPlane)
		f.AddNode("old", oldControlPlane+"=true")
		f.AddNode("worker")
		f.AddPods(3)
		podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "new", TotalLabel, "3")
		WantLabel(t, f, "old", TotalLabel, "3")
		WantLabel(t, f, "worker", TotalLabel, "-")
	})
}

func onlyWrongLabelsAreWritten(t *testing.T, podcount Program) {
	for _, c := range []struct {
		has    string
		writes int
	}{{"4", 1}, {"3", 0}} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane, TotalLabel+"="+c.has)
			f.AddNode("worker")
			f.AddPods(3)
			podcount.Start(t, f)
			testkit.Pass(time.Minute)
			WantLabel(t, f, "cp", TotalLabel, "3")
			testkit.WantNumber(t, "writes with the label at "+c.has, len(f.Requests(fakekube.IsWrite)), c.writes)
		})
	}
}

func changesAreWrittenOnceAnInterval(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		podcount.Start(t, f)
		testkit.Pass(35 * time.Second)
		begin := time.Now()
		before := len(f.Requests(fakekube.IsWrite))
		f.AddPod("default", "first", "")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")
		if time.Since(begin) != 0 {
			t.Errorf("it took %v", time.Since(begin))
		}
		for i := range 250 { // 25 s of changes
			f.AddPod("default", fmt.Sprintf("more-%d", i), "")
			testkit.Pass(100 * time.Millisecond)
		}
		testkit.Pass(10 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "251")
		writes := f.Requests(fakekube.IsWrite)[before:]
		testkit.WantNumber(t, "writes", len(writes), 4) // at 0, 10, 20 and 30 s
		for i := 1; i < len(writes); i++ {
			if gap := writes[i].At.Sub(writes[i-1].At); gap < 10*time.Second || gap > 11*time.Second {
				t.Errorf("%v between two writes", gap)
			}
		}
		before = len(f.Requests(fakekube.IsWrite))
		testkit.Pass(5 * time.Minute)
		testkit.WantNumber(t, "writes in the quiet", len(f.Requests(fakekube.IsWrite))-before, 0)
	})
}

func changeAfterAQuietStart(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane, TotalLabel+"=0")
		podcount.Start(t, f)
		testkit.Pass(2 * time.Second) // nothing was written so far, so nothing rests
		f.AddPods(1)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")
	})
}

func totalThatCameAndWent(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		const own = "example.com/pods"
		f.AddNode("cp", ControlPlane)
		pod := f.AddPod("default", "a", "")
		podcount.Start(t, f, "-interval", "60s", "-node-label", own)
		testkit.Pass(200 * time.Second)
		pod = fakekube.Clone(pod)
		pod["spec"].(fakekube.Object)["nodeName"] = "cp"
		f.Put("pods", pod)
		testkit.Pass(5 * time.Second)
		WantLabel(t, f, "cp", own, "1") // and rests until 260 s
		f.AddPod("default", "b", "")
		testkit.Pass(5 * time.Second)
		f.Remove("pods", At("default", "b"))
		testkit.Pass(52 * time.Second)
		f.AddPod("default", "c", "")
		testkit.Pass(time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
	})
}

func nodesThatChangeRole(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b")
		f.AddNode("left", TotalLabel+"=7") // from a time before the start
		f.AddPods(2)
		podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "a", TotalLabel, "2")
		WantLabel(t, f, "left", TotalLabel, "-")
		testkit.Pass(10 * time.Second)
		f.SetLabel("a", ControlPlane, nil)
		f.SetLabel("b", ControlPlane, "")
		testkit.Pass(time.Second)
		WantLabel(t, f, "a", TotalLabel, "-")
		WantLabel(t, f, "b", TotalLabel, "2")
	})
}

func answerUpdatesTheCache(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.LoseEvents(1)
		podcount.Start(t, f)
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 1)
	})
}

func otherWritersAreCorrected(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		podcount.Start(t, f)
		for _, v := range []any{"99", nil} {
			testkit.Pass(15 * time.Second)
			f.SetLabel("cp", TotalLabel, v)
			testkit.Pass(time.Second)
			WantLabel(t, f, "cp", TotalLabel, "2")
		}
	})
}

func recreatedNodes(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		podcount.Start(t, f)
		testkit.Pass(30 * time.Second)
		for range 3 { // also right behind a write to its predecessor
			f.Remove("nodes", At("", "cp"))
			f.AddNode("cp", ControlPlane)
			synctest.Wait()
			WantLabel(t, f, "cp", TotalLabel, "2")
		}
	})
}

func nodeLabel(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		const own = "example.com/pods"
		f.AddNode("cp", ControlPlane)
		f.AddNode("w1")
		f.AddNode("w2")
		f.AddPod("a", "x", "w1")
		f.AddPod("a", "y", "w1")
		f.AddPod("a", "unbound", "")
		podcount.Start(t, f, "-node-label", own)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "3")
		WantLabel(t, f, "cp", own, "0")
		WantLabel(t, f, "w1", own, "2")
		WantLabel(t, f, "w2", own, "0")
		WantLabel(t, f, "w1", TotalLabel, "-")
		testkit.Pass(10 * time.Second)
		bound := fakekube.Clone(f.Get("pods", At("a", "unbound")))
		bound["spec"].(fakekube.Object)["nodeName"] = "w2"
		f.Put("pods", bound)
		f.Remove("pods", At("a", "x"))
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "2")
		WantLabel(t, f, "w1", own, "1")
		WantLabel(t, f, "w2", own, "1")
		accept := f.Requests(IsList("pods"))[0].Header.Get("Accept")
		if strings.Contains(accept, "PartialObjectMetadata") {
			t.Errorf("asked for metadata alone (%s), which has no spec.nodeName", accept)
		}
	})
}

func totalComesFirst(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 300 { // which take 13 s
			f.AddNode("n" + strconv.Itoa(i))
		}
		f.AddNode("cp", ControlPlane)
		f.AddPods(3)
		podcount.Start(t, f, "-node-label", "example.com/n")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "3")
	})
}

// At 20 writes a second the labels of 1,000 nodes take 50 s.
func changedTotalComesFirst(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 1000 {
			f.AddNode("n" + strconv.Itoa(i))
		}
		f.AddNode("cp", ControlPlane)
		f.AddPods(3)
		podcount.Start(t, f, "-node-label", "example.com/n")
		testkit.Pass(15 * time.Second) // the total's own node has rested since its first label
		before := len(WritesTo(f))
		for total := 4; total < 7; total++ {
			f.AddPod("default", "more-"+strconv.Itoa(total), "n999")
			testkit.Pass(1500 * time.Millisecond) // the total is looked at once a second
			WantLabel(t, f, "cp", TotalLabel, strconv.Itoa(total))
			testkit.Pass(10 * time.Second)
		}
		if n := len(WritesTo(f)) - before; n < 500 || n > 1000 {
			t.Errorf("%d writes in 34 s, which should have been busy ones", n)
		}
		WantPeace(t, f, "-node-label", "example.com/n")
	})
}

// The total comes first. But where the nodes that show it can use up -qps, the others have to have a share.
func totalLeavesAShare(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 60 {
			f.AddNode(fmt.Sprint("t", i), "show=1")
		}
		f.AddNode("plain")
		podcount.Start(t, f, "-total-nodes", "show", "-node-label", OwnPodsLabel, "-qps", "5", "-burst", "5", "-pod-events", "off")
		testkit.Pass(time.Minute)
		for second := range 120 {
			f.AddPod("default", fmt.Sprint("p", second), "t1")
			if second == 60 { // all the writes that -qps allows are the total's by now
				f.AddPod("default", "mine", "plain")
			}
			testkit.Pass(time.Second)
		}
		WantLabel(t, f, "plain", OwnPodsLabel, "1")
	})
}

func selectorsGoToTheServer(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPod("a", "in", "n1")
		f.AddPod("a", "elsewhere", "n2")
		f.AddPod("b", "other-namespace", "n1")
		f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": "a", "name": "other-label", "labels": fakekube.Object{"app": "db"}}, "n1"))
		podcount.Start(t, f, "-namespace", "a", "-pod-selector", "app in (web,api)", "-field-selector", "spec.nodeName=n1")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")
		testkit.Pass(20 * time.Second)
		left := fakekube.Clone(f.Get("pods", At("a", "in"))) // leaves the selector: a DELETED to us
		fakekube.MetaOf(left)["labels"] = fakekube.Object{"app": "gone"}
		f.Put("pods", left)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

func totalNodes(t *testing.T, podcount Program) {
	for selector, want := range map[string]string{
		"": "1 1 1", "zone": "1 1 -", "!zone": "- - 1", "zone=a": "1 - -", "zone!=a": "- 1 1", "zone in (a, b)": "1 1 -", "zone notin (a),zone": "- 1 -",
	} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", "zone=a")
			f.AddNode("b", "zone=b")
			f.AddNode("c")
			f.AddPods(1)
			podcount.Start(t, f, "-total-nodes", selector)
			synctest.Wait()
			if got := f.Label("a", TotalLabel) + " " + f.Label("b", TotalLabel) + " " + f.Label("c", TotalLabel); got != want {
				t.Errorf("%q chose %s, want %s", selector, got, want)
			}
		})
	}
}

func noNodeForTheTotal(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("worker")
		f.AddPods(1)
		p := podcount.Start(t, f)
		testkit.Pass(5 * time.Minute)
		testkit.WantNumber(t, "lines about it", strings.Count(p.Log.String(), "no node gets the total"), 1)
		testkit.WantText(t, p.Log.String(), "-total-nodes ''")
	})
}

func emptyClusters(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := podcount.Start(t, f, "-v", "0") // neither pods nor nodes
		WantPeace(t, f)
		testkit.WantNumber(t, "warnings", strings.Count(p.Log.String(), "level=WARN"), 1)
		f.AddNode("worker")
		f.AddPods(2)
		WantPeace(t, f)
		testkit.WantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 0)
		f.AddNode("cp", ControlPlane)
		WantPeace(t, f)
		for i := range 2 {
			f.Remove("pods", At("default", fmt.Sprint("web-", i)))
		}
		WantPeace(t, f)
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "lines of trouble", strings.Count(p.Log.String(), "level=WARN"), 1)
	})
}

// Each hears of its own pods' watch and of the other's write, in whatever order.
func twoWithoutAnElection(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddCount("web", `{"name":"web","count":18}`)
		podcount.Start(t, f, "-master", "http://a:1")
		podcount.Start(t, f, "-master", "http://b:1")
		changes, more := 1, 0 // the label is news at the start, as is the status
		wantFew := func(when string) {
			t.Helper()
			for _, host := range []string{"a:1", "b:1"} {
				for _, what := range []string{"nodes", "counts"} {
					if n := len(f.Requests(func(s fakekube.Request) bool { return s.Host == host && IsWriteOf(what)(s) })); n > changes+more {
						t.Errorf("%s: %s wrote to %s %d times, of %d changes", when, host, what, n, changes)
					}
				}
			}
		}
		for range 16 { // slowly enough that each change is told
			testkit.Pass(20 * time.Second)
			f.AddPod("default", fmt.Sprint("p", changes), "")
			changes++
		}
		testkit.Pass(10 * time.Second)
		wantFew("as both see the same")
		catchUp := f.Lag(fakekube.Requests{Resource: "pods", Host: "b:1"}, 0)
		f.AddPod("default", "one", "")
		f.AddPod("default", "two", "")
		testkit.Pass(30 * time.Second)
		catchUp()
		WantPeaceAndCount(t, f)
		changes, more = changes+1, 5 // one an interval
		wantFew("as one does not hear of pods for a while")
	})
}
