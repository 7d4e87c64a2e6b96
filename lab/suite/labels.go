package suite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Labels shows what podcount writes to the labels of nodes, and when.
var Labels = Topic{
	{"changes are written at once, then once an interval", changesAreWrittenOnceAnInterval},
	{"the first change after a quiet start is written at once", changeAfterAQuietStart},
	{"a total that came and went delays no later change", totalThatCameAndWent},
	{"a node whose role changes gets or loses the label", nodesThatChangeRole},
	{"the answer to a write updates the cache at once", answerUpdatesTheCache},
	{"-node-label counts the pods of each node", nodeLabel},
	{"a changed total does not wait for -node-label", changedTotalComesFirst},
	{"the total leaves -node-label a share of -qps", totalLeavesAShare},
	{"the API server applies the selectors and the namespace", selectorsGoToTheServer},
	{"-total-nodes selects nodes by their labels", totalNodes},
	{"podcount reports once that no node gets the total", noNodeForTheTotal},
	{"two podcounts without an election agree and do not fight", twoWithoutAnElection},
}

func changesAreWrittenOnceAnInterval(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		podcount.Start(t, f)
		testkit.Pass(35 * time.Second)
		begin := time.Now()
		before := len(WritesTo(f))

		f.AddPod("default", "first", "")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")
		testkit.WantEqual(t, "time until the first write", time.Since(begin), 0)

		for i := range 250 { // 25 s of changes
			f.AddPod("default", fmt.Sprintf("more-%d", i), "")
			testkit.Pass(100 * time.Millisecond)
		}
		testkit.Pass(10 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "251")
		writes := WritesTo(f)[before:]
		testkit.WantNumber(t, "writes", len(writes), 4) // after 0, 10, 20 and 30 s
		for i := 1; i < len(writes); i++ {
			gap := writes[i].At.Sub(writes[i-1].At)
			testkit.WantBetween(t, "time between two writes", gap, 10*time.Second, 11*time.Second)
		}

		before = len(WritesTo(f))
		testkit.Pass(5 * time.Minute)
		testkit.WantNumber(t, "writes while nothing changes", len(WritesTo(f))-before, 0)
	})
}

func changeAfterAQuietStart(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane, TotalLabel+"=0")
		podcount.Start(t, f)
		testkit.Pass(2 * time.Second) // The label is right, so nothing is written, and no interval begins.
		fixture.AddPods(f, 1)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")
	})
}

// totalThatCameAndWent shows that a total that waits for its interval is forgotten when the old one is right again.
func totalThatCameAndWent(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPod("default", "a", "")
		podcount.Start(t, f, "-interval", "60s", "-node-label", OwnPodsLabel)
		testkit.Pass(200 * time.Second)
		f.AddPod("default", "a", "cp") // binds the pod
		testkit.Pass(5 * time.Second)
		WantLabel(t, f, "cp", OwnPodsLabel, "1") // The write of this label starts an interval from 200 s to 260 s.

		f.AddPod("default", "b", "") // The total waits for 260 s.
		testkit.Pass(5 * time.Second)
		f.Remove("pods", At("default", "b"))
		testkit.Pass(52 * time.Second)
		f.AddPod("default", "c", "") // after 262 s
		testkit.Pass(time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
	})
}

func nodesThatChangeRole(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", ControlPlane)
		f.AddNode("b")
		f.AddNode("left", TotalLabel+"=7") // has the label of an earlier podcount
		fixture.AddPods(f, 2)
		podcount.Start(t, f)
		synctest.Wait()
		WantLabel(t, f, "a", TotalLabel, "2")
		WantLabel(t, f, "left", TotalLabel, "-")
		testkit.Pass(10 * time.Second)
		fixture.SetLabel(f, "a", ControlPlane, nil)
		fixture.SetLabel(f, "b", ControlPlane, "")
		testkit.Pass(time.Second)
		WantLabel(t, f, "a", TotalLabel, "-")
		WantLabel(t, f, "b", TotalLabel, "2")
	})
}

func answerUpdatesTheCache(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.LoseEvents(1) // the watch never reports podcount's write
		podcount.Start(t, f)
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
	})
}

func nodeLabel(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddNode("w1")
		f.AddNode("w2")
		f.AddPod("a", "x", "w1")
		f.AddPod("a", "y", "w1")
		f.AddPod("a", "unbound", "")
		podcount.Start(t, f, "-node-label", OwnPodsLabel)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "3")
		WantLabel(t, f, "cp", OwnPodsLabel, "0")
		WantLabel(t, f, "w1", OwnPodsLabel, "2")
		WantLabel(t, f, "w2", OwnPodsLabel, "0")
		WantLabel(t, f, "w1", TotalLabel, "-")

		testkit.Pass(10 * time.Second)
		f.AddPod("a", "unbound", "w2") // binds the pod
		f.Remove("pods", At("a", "x"))
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "2")
		WantLabel(t, f, "w1", OwnPodsLabel, "1")
		WantLabel(t, f, "w2", OwnPodsLabel, "1")

		accept := fixture.Requests(f, IsList("pods"))[0].Header.Get("Accept")
		if strings.Contains(accept, "PartialObjectMetadata") {
			t.Errorf("podcount asked for metadata only (%s), which has no spec.nodeName", accept)
		}
	})
}

// changedTotalComesFirst gives podcount 1,000 nodes. At 20 writes a second, their labels take 50 s.
func changedTotalComesFirst(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		addNodes(f, 1000)
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 3)
		podcount.Start(t, f, "-node-label", OwnPodsLabel)
		testkit.Pass(15 * time.Second) // more than an interval since the first write of the total
		before := len(WritesTo(f))
		for total := 4; total < 7; total++ {
			f.AddPod("default", "more-"+strconv.Itoa(total), "n999")
			testkit.Pass(1500 * time.Millisecond) // podcount checks the total once a second
			WantLabel(t, f, "cp", TotalLabel, strconv.Itoa(total))
			testkit.Pass(10 * time.Second)
		}
		testkit.WantBetween(t, "writes in 34 s, without a break", len(WritesTo(f))-before, 500, 1000)
		WantPeace(t, f, "-node-label", OwnPodsLabel)
	})
}

// totalLeavesAShare changes the total on 60 nodes every second. These writes alone could use up -qps.
func totalLeavesAShare(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 60 {
			f.AddNode(fmt.Sprint("t", i), "show=1")
		}
		f.AddNode("plain")
		args := []string{"-total-nodes", "show", "-node-label", OwnPodsLabel, "-qps", "5", "-burst", "5"}
		podcount.Start(t, f, append(args, "-pod-events", "off")...)
		testkit.Pass(time.Minute)
		for second := range 120 {
			f.AddPod("default", fmt.Sprint("p", second), "t1")
			if second == 60 { // By now, the total needs more writes than -qps allows.
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
		otherLabel := fakekube.Object{"namespace": "a", "name": "other-label", "labels": fakekube.Object{"app": "db"}}
		f.Put("pods", fakekube.PodOn(otherLabel, "n1"))
		podcount.Start(t, f,
			"-namespace", "a", "-pod-selector", "app in (web,api)", "-field-selector", "spec.nodeName=n1")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "1")

		testkit.Pass(20 * time.Second)
		unselected := fakekube.Object{"namespace": "a", "name": "in", "labels": fakekube.Object{"app": "gone"}}
		f.Put("pods", fakekube.PodOn(unselected, "n1")) // The watch reports it as DELETED.
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

func totalNodes(t *testing.T, podcount Program) {
	for _, row := range []struct{ selector, a, b, c string }{
		{"", "1", "1", "1"},
		{"zone", "1", "1", "-"},
		{"!zone", "-", "-", "1"},
		{"zone=a", "1", "-", "-"},
		{"zone!=a", "-", "1", "1"},
		{"zone in (a, b)", "1", "1", "-"},
		{"zone notin (a),zone", "-", "1", "-"},
	} {
		SimulateCase(t, strconv.Quote(row.selector), func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", "zone=a")
			f.AddNode("b", "zone=b")
			f.AddNode("c")
			fixture.AddPods(f, 1)
			podcount.Start(t, f, "-total-nodes", row.selector)
			synctest.Wait()
			WantLabel(t, f, "a", TotalLabel, row.a)
			WantLabel(t, f, "b", TotalLabel, row.b)
			WantLabel(t, f, "c", TotalLabel, row.c)
		})
	}
}

func noNodeForTheTotal(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("worker")
		fixture.AddPods(f, 1)
		p := podcount.Start(t, f)
		testkit.Pass(5 * time.Minute)
		testkit.WantNumber(t, "reports that no node gets it", p.Logged("no node gets the total"), 1)
		testkit.WantText(t, p.Log.String(), "-total-nodes ''")
	})
}

// twoWithoutAnElection runs two podcounts that see the same changes, and then two of which one sees fewer pods.
func twoWithoutAnElection(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		fixture.AddCount(f, "web", `{"name":"web","count":18}`)
		podcount.Start(t, f, "-master", "http://a:1")
		podcount.Start(t, f, "-master", "http://b:1")
		changes := 1 // the first label and the first status
		for range 16 {
			testkit.Pass(20 * time.Second) // enough for both podcounts to see each change
			f.AddPod("default", fmt.Sprint("p", changes), "")
			changes++
		}
		testkit.Pass(10 * time.Second)
		wantFewWrites(t, f, "while both see the same", changes)

		catchUp := f.Lag(fakekube.Requests{Resource: "pods", Host: "b:1"}, 0)
		f.AddPod("default", "one", "")
		f.AddPod("default", "two", "")
		testkit.Pass(30 * time.Second)
		catchUp()
		WantPeaceAndCount(t, f)
		changes++
		const corrections = 5 // one an interval
		wantFewWrites(t, f, "while one does not see the newest pods", changes+corrections)
	})
}

// wantFewWrites fails the test if either podcount has written to nodes or to Counts more than limit times.
func wantFewWrites(t *testing.T, f *fakekube.Server, when string, limit int) {
	t.Helper()
	for _, host := range []string{"a:1", "b:1"} {
		for _, resource := range []string{"nodes", "counts"} {
			writes := f.Received(fakekube.Requests{Host: host, If: IsWriteOf(resource)})
			testkit.WantBetween(t, when+": writes of "+host+" to "+resource, len(writes), 0, limit)
		}
	}
}
