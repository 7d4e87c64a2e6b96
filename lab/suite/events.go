package suite

import (
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Events shows which Events podcount posts, and what happens if the API server does not take them.
var Events = Topic{
	{"a new pod and a changed label each get an Event", eventsOnPodsAndNodes},
	{"-pod-events off leaves out the Events on pods", podEventsOff},
	{"labels never wait for Events, and lost Events are counted", labelsDoNotWaitForEvents},
	{"new pods that only a relist shows get an Event, too", podsOfARelist},
	{"a refused Event is reported once and is no outage", refusedEvent},
}

func eventsOnPodsAndNodes(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		node := f.AddNode("cp", ControlPlane)
		f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "shop"}})
		fixture.AddPods(f, 41) // pods of the first list are not new
		podcount.Start(t, f)
		testkit.Pass(20 * time.Second)
		pod := f.AddPod("shop", "new", "")
		testkit.Pass(time.Second)
		testkit.WantEqual(t, "Events on pods", EventsOf(f, "PodCounted"), []string{
			"Pod/new in shop: pod count is 42 x1",
		})
		testkit.WantEqual(t, "Events on nodes", EventsOf(f, "PodCountChanged"), []string{
			"Node/cp in default: pod count changed from 41 to 42 x1",
			"Node/cp in default: pod count changed from none to 41 x1",
		})
		for _, event := range f.All("events") {
			about := pod
			if fakekube.TextIn(event["involvedObject"].(fakekube.Object), "kind") == "Node" {
				about = node
			}
			wantOrigin(t, event, about)
		}
	})
}

// wantOrigin fails the test unless an Event is one of podcount's, about this object.
func wantOrigin(t *testing.T, event, about fakekube.Object) {
	t.Helper()
	name := fakekube.KeyOf(event).Name
	isName := regexp.MustCompile("^" + fakekube.KeyOf(about).Name + `\.[0-9a-f]+$`)
	if !isName.MatchString(name) {
		t.Errorf("an Event is named %s, want <object>.<hex digits>", name)
	}
	involved := event["involvedObject"].(fakekube.Object)
	source := event["source"].(fakekube.Object)
	uid := fakekube.TextIn(fakekube.MetaOf(about), "uid")
	testkit.WantEqual(t, name+": uid", fakekube.TextIn(involved, "uid"), uid)
	testkit.WantEqual(t, name+": component", fakekube.TextIn(source, "component"), "podcount")
	testkit.WantEqual(t, name+": reportingComponent", fakekube.TextIn(event, "reportingComponent"), "podcount")
}

func podEventsOff(t *testing.T, podcount Program) {
	for _, row := range []struct {
		setting     string
		eventsOnPod int
	}{
		{"on", 1},
		{"off", 0},
	} {
		SimulateCase(t, row.setting, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			podcount.Start(t, f, "-pod-events", row.setting)
			testkit.Pass(20 * time.Second)
			fixture.AddPods(f, 1)
			testkit.Pass(20 * time.Second)
			testkit.WantNumber(t, "Events on pods", len(EventsOf(f, "PodCounted")), row.eventsOnPod)
			testkit.WantNumber(t, "Events on nodes", len(EventsOf(f, "PodCountChanged")), 2)
		})
	}
}

// isEvent matches the requests for Events.
func isEvent(r fakekube.Request) bool { return strings.Contains(r.Path, "/events") }

func labelsDoNotWaitForEvents(t *testing.T, podcount Program) {
	refused := func(code int, reason string, details any, header ...string) fakekube.Fault {
		return StatusFault(fakekube.Requests{}, 0, code, reason, details, header...)
	}
	terminating := fakekube.Object{"causes": []any{
		fakekube.Object{"reason": "NamespaceTerminating", "field": "metadata.namespace"},
	}}
	plainText := fakekube.Reply{
		Code:   429,
		Header: map[string]string{"Content-Type": "text/plain"},
		Body:   "slow down",
	}
	for _, row := range []struct {
		name  string
		fault fakekube.Fault // of every request for Events
	}{
		{"their namespace is being deleted", refused(403, "Forbidden", terminating)},
		{"their namespace is gone", refused(404, "NotFound", nil)},
		{"a quota refuses them", refused(403, "Forbidden", nil)},
		{"a limit with Retry-After", refused(429, "TooManyRequests", nil, "Retry-After", "1")},
		{"a limit in plain text", fakekube.Fault{Do: plainText}},
		{"a server that refuses all", refused(500, "InternalError", nil)},
		{"a server that breaks connections", fakekube.Fault{Do: fakekube.DropRequest{}}},
		{"a server that does not answer", fakekube.Fault{Do: fakekube.Stall{}}},
		{"a webhook that takes 20 s", fakekube.Fault{Delay: 20 * time.Second}},
	} {
		t.Run(row.name, func(t *testing.T) {
			row.fault.On = fakekube.Requests{If: isEvent}
			row.fault.Times = fakekube.Always
			Simulate(t, func(t *testing.T, f *fakekube.Server) { podcount.writeLabelsDuring(t, f, row.fault) })
		})
	}
}

// writeLabelsDuring adds 1,560 pods while the requests for Events meet a fault, and checks the labels and the Events.
func (podcount Program) writeLabelsDuring(t *testing.T, f *fakekube.Server, eventFault fakekube.Fault) {
	f.AddNode("cp", ControlPlane)
	f.AddNode("other", ControlPlane)
	f.AddNode("worker")
	p := podcount.Start(t, f, "-node-label", OwnPodsLabel, "-v", "2")
	synctest.Wait()
	goroutines := runtime.NumGoroutine()

	fault := f.Inject(t, eventFault)
	fixture.AddPods(f, 1500)
	synctest.Wait()
	more := runtime.NumGoroutine() - goroutines
	testkit.WantBetween(t, "more goroutines for 1,500 waiting Events", more, math.MinInt, 10)
	Churn(f, 60)
	for _, node := range []string{"cp", "other", "worker"} {
		writes := fixture.Requests(f, func(r fakekube.Request) bool {
			return fixture.IsWrite(r) && r.Path == "/api/v1/nodes/"+node
		})
		testkit.WantNumber(t, "writes to "+node+" in a minute", len(writes), 7)
	}
	fault.Lift()
	WantPeace(t, f, "-node-label", OwnPodsLabel)
	testkit.Pass(2 * time.Minute)
	p.Stop()
	wantEachEventPostedOrDropped(t, f, p, 1500+60)
}

// wantEachEventPostedOrDropped compares the Events that podcount has posted or dropped with those that there must be:
// one for each new pod, and one for each label that it wrote.
func wantEachEventPostedOrDropped(t *testing.T, f *fakekube.Server, p *Process, newPods int) {
	t.Helper()
	want := newPods
	for _, r := range fixture.Requests(f, IsWriteOf("nodes")) {
		var patch struct {
			Metadata struct{ Labels map[string]any }
		}
		json.Unmarshal([]byte(r.Body), &patch)
		want += len(patch.Metadata.Labels)
	}
	posted := 0
	for _, e := range f.All("events") {
		posted += int(e["count"].(float64))
	}
	reported := regexp.MustCompile(`events_dropped=(\d+)`).FindStringSubmatch(p.Log.String())
	if reported == nil {
		t.Fatal("podcount has not logged how many Events it dropped")
	}
	dropped, _ := strconv.Atoi(reported[1])

	testkit.WantNumber(t, fmt.Sprintf("%d Events posted and %d dropped", posted, dropped), posted+dropped, want)
	testkit.WantBetween(t, "posted Events, those in the queue among them", posted, 400, want)
	testkit.WantBetween(t, "dropped Events, for which the queue had no room", dropped, 400, want)
}

func podsOfARelist(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 2)
		p := podcount.Start(t, f)
		testkit.Pass(time.Second)
		f.LoseEvents(1)
		f.AddPod("default", "unseen", "")
		testkit.Pass(time.Second)
		testkit.WantNumber(t, "Events before the relist", len(EventsOf(f, "PodCounted")), 0)

		p.Net.Kill()
		f.BreakWatches()
		f.AddPod("default", "later", "")
		f.Compact()
		p.Net.Restore()
		testkit.Pass(2 * time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "4")
		testkit.WantNumber(t, "Events after the relist", len(EventsOf(f, "PodCounted")), 2)
	})
}

func refusedEvent(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, StatusFault(fakekube.Requests{If: isEvent}, 1, 422, "Invalid", nil))
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(3 * time.Hour)
		testkit.WantNumber(t, "reports of the refusal", p.Logged("the server refused an Event"), 1)
		testkit.WantNumber(t, "reports of an outage", p.Logged("Events: "), 0)
	})
}
