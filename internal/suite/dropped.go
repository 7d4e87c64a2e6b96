package suite

import (
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// DroppedLabels shows what podcount does when the API server accepts a label and then drops it.
var DroppedLabels = Topic{
	{"a dropped label is reported once and retried rarely", droppedIsReportedOnce},
	{"a dropped label is retried every ten minutes", droppedIsRetried},
	{"a label that stays is written beside one that does not", labelBesideADroppedOne},
	{"a recreated node starts afresh", recreatedNodeStartsAfresh},
}

// A mutating webhook that takes our label away costs the server a write each time, and everyone that watches nodes an
// event.
func droppedIsReportedOnce(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		f.AddPods(2)
		f.Strip(TotalLabel)
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(time.Hour)
		writes := len(f.Requests(IsWriteOf("nodes")))
		if writes < 8 || writes > 14 {
			t.Errorf("%d writes to two nodes in an hour, want one in ten minutes for each", writes)
		}
		testkit.WantNumber(t, "lines on it", p.Logged(`level=WARN msg="labels do not stay`), 1)
		testkit.WantNumber(t, "labels that are said to be written", p.Logged("label written"), 0)
		testkit.WantNumber(t, "events", len(EventsOf(f, "PodCountChanged")), 0)
		err := podcount.Start(t, f, "-once", "-v", "0").Finish()
		if err == nil || !strings.Contains(err.Error(), "could not make 2 objects right") {
			t.Errorf("-once ended with %v", err)
		}
		f.Strip("")
		testkit.Pass(11 * time.Minute)
		WantLabel(t, f, "cp-1", TotalLabel, "2")
		WantLabel(t, f, "cp-2", TotalLabel, "2")
		testkit.WantNumber(t, "lines on the end of it", p.Logged(`level=INFO msg="labels stay again"`), 1)
	})
}

func droppedIsRetried(t *testing.T, podcount Program) {
	for _, interval := range []string{"10s", "6m"} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			f.Strip(TotalLabel)
			podcount.Start(t, f, "-interval", interval)
			testkit.Pass(time.Hour + time.Minute)
			testkit.WantNumber(t, "tries in an hour with -interval "+interval, len(f.Requests(IsWriteOf("nodes"))), 7)
		})
	}
}

func labelBesideADroppedOne(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Strip(TotalLabel)
		p := podcount.Start(t, f, "-v", "0", "-node-label", OwnPodsLabel)
		testkit.Pass(time.Minute)
		f.AddPod("default", "a", "cp")
		testkit.Pass(11 * time.Second)
		WantLabel(t, f, "cp", OwnPodsLabel, "1")
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "lines on it", p.Logged("labels do not stay"), 1)
		testkit.WantNumber(t, "labels written", p.Logged("label written"), 2)
		f.Remove("nodes", At("", "cp"))
		testkit.Pass(11 * time.Minute)
		testkit.WantNumber(t, "lines that they stay", p.Logged("labels stay again"), 0)
	})
}

func recreatedNodeStartsAfresh(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Strip(TotalLabel)
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(time.Minute)
		f.Strip("")
		f.Remove("nodes", At("", "cp"))
		f.AddNode("cp", ControlPlane)
		testkit.Pass(12 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "lines that they stay", p.Logged("labels stay again"), 0)
	})
}
