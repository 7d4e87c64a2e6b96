package suite

import (
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// DroppedLabels shows what podcount does when the API server accepts a label and then drops it.
var DroppedLabels = Topic{
	{"a dropped label is reported once and retried rarely", droppedIsReportedOnce},
	{"a dropped label is retried every ten minutes", droppedIsRetried},
	{"a label that is kept is written beside one that is dropped", labelBesideADroppedOne},
	{"-once reports the label that is kept, and fails", onceBesideADroppedLabel},
	{"a label that is not wanted for a while is not retried earlier", unwantedForAWhile},
	{"a recreated node starts afresh", recreatedNodeStartsAfresh},
}

// droppedIsReportedOnce lets a mutating webhook drop the label. Each retry then costs the server a write, and every
// client that watches nodes an event.
func droppedIsReportedOnce(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		fixture.AddPods(f, 2)
		removeWebhook := fixture.Strip(f, TotalLabel)
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(time.Hour)
		writes := fixture.Requests(f, IsWriteOf("nodes"))
		testkit.WantBetween(t, "writes to two nodes, once in ten minutes each", len(writes), 8, 14)
		testkit.WantNumber(t, "reports of the dropped label", p.Logged(`level=WARN msg="the server drops labels`), 1)
		testkit.WantNumber(t, "reports of written labels", p.Logged("label written"), 0)
		testkit.WantNumber(t, "Events", len(EventsOf(f, "PodCountChanged")), 0)

		err := podcount.Start(t, f, "-once", "-v", "0").Finish()
		testkit.WantError(t, "the end of -once", err, "could not correct 2 objects")

		removeWebhook()
		testkit.Pass(11 * time.Minute)
		WantLabel(t, f, "cp-1", TotalLabel, "2")
		WantLabel(t, f, "cp-2", TotalLabel, "2")
		const itsEnd = `level=INFO msg="the server no longer drops the labels`
		testkit.WantNumber(t, "reports of its end", p.Logged(itsEnd), 1)
	})
}

func droppedIsRetried(t *testing.T, podcount Program) {
	for _, interval := range []string{"10s", "6m"} {
		SimulateCase(t, "with an interval of "+interval, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.Strip(f, TotalLabel)
			podcount.Start(t, f, "-interval", interval)
			testkit.Pass(time.Hour + time.Minute)
			testkit.WantNumber(t, "tries in an hour", len(fixture.Requests(f, IsWriteOf("nodes"))), 7)
		})
	}
}

func labelBesideADroppedOne(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.Strip(f, TotalLabel)
		p := podcount.Start(t, f, "-v", "0", "-node-label", OwnPodsLabel)
		testkit.Pass(time.Minute)
		f.AddPod("default", "a", "cp")
		testkit.Pass(11 * time.Second)
		WantLabel(t, f, "cp", OwnPodsLabel, "1")
		testkit.Pass(time.Hour)
		testkit.WantNumber(t, "reports of the dropped label", p.Logged("the server drops labels"), 1)
		testkit.WantNumber(t, "reports of written labels", p.Logged("label written"), 2)

		f.Remove("nodes", At("", "cp"))
		testkit.Pass(11 * time.Minute)
		testkit.WantNumber(t, "reports of its end", p.Logged("the server no longer drops the labels"), 0)

		f.AddNode("another-cp", ControlPlane)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "reports of the dropped label", p.Logged("the server drops labels"), 2)
	})
}

func onceBesideADroppedLabel(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.Strip(f, TotalLabel)
		p := podcount.Start(t, f, "-once", "-v", "0", "-node-label", OwnPodsLabel)
		testkit.WantError(t, "-once", p.Finish(), "could not correct 1 object (cp)")
		WantLabel(t, f, "cp", OwnPodsLabel, "0")
		testkit.WantNumber(t, "reports of written labels", p.Logged("label written"), 1)
		testkit.WantNumber(t, "Events", len(EventsOf(f, "PodCountChanged")), 1)
	})
}

// unwantedForAWhile makes the absence of a dropped label right, and then wrong again.
func unwantedForAWhile(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.Strip(f, TotalLabel)
		podcount.Start(t, f)
		for range 8 {
			testkit.Pass(time.Minute)
			fixture.SetLabel(f, "cp", ControlPlane, nil)
			testkit.Pass(time.Minute / 4)
			fixture.SetLabel(f, "cp", ControlPlane, "")
		}
		testkit.WantNumber(t, "tries in ten minutes", len(fixture.Requests(f, IsWriteOf("nodes"))), 1)
	})
}

func recreatedNodeStartsAfresh(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		removeWebhook := fixture.Strip(f, TotalLabel)
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(time.Minute)
		removeWebhook()
		f.Remove("nodes", At("", "cp"))
		f.AddNode("cp", ControlPlane)
		testkit.Pass(12 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantNumber(t, "reports of its end", p.Logged("the server no longer drops the labels"), 0)
	})
}
