package suite

import (
	"encoding/json"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Events shows which Events podcount posts, and what happens if the API server does not take them.
var Events = Topic{
	{"a new pod and a changed label each get an Event", eventsOnPodsAndNodes},
	{"-pod-events off leaves out the Events on pods", podEventsOff},
	{"labels never wait for Events, and no Event is lost unseen", labelsDoNotWaitForEvents},
	{"pods that a relist finds get an Event, too", podsOfARelist},
	{"a refused Event is reported once and is no outage", refusedEvent},
}

func eventsOnPodsAndNodes(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		cp := f.AddNode("cp", ControlPlane)
		f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "shop"}})
		f.AddPods(41) // these are no news
		podcount.Start(t, f)
		testkit.Pass(20 * time.Second)
		pod := f.AddPod("shop", "new", "")
		testkit.Pass(time.Second)
		if got, want := EventsOf(f, "PodCounted"), []string{"Pod/new in shop: pod count is 42 x1"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		want := []string{"Node/cp in default: pod count changed from 41 to 42 x1", "Node/cp in default: pod count changed from none to 41 x1"}
		if got := EventsOf(f, "PodCountChanged"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		uids := map[string]string{"Pod": fakekube.TextIn(fakekube.MetaOf(pod), "uid"), "Node": fakekube.TextIn(fakekube.MetaOf(cp), "uid")}
		for _, e := range f.All("events") {
			about := e["involvedObject"].(fakekube.Object)
			if fakekube.TextIn(about, "uid") != uids[fakekube.TextIn(about, "kind")] || fakekube.TextIn(e, "reportingComponent") != "podcount" || fakekube.TextIn(e["source"].(fakekube.Object), "component") != "podcount" {
				t.Errorf("event %v", e)
			}
			if !regexp.MustCompile(`^(new|cp)\.[0-9a-f]+$`).MatchString(fakekube.TextIn(fakekube.MetaOf(e), "name")) {
				t.Errorf("an event named %s", fakekube.TextIn(fakekube.MetaOf(e), "name"))
			}
		}
	})
}

func podEventsOff(t *testing.T, podcount Program) {
	for setting, want := range map[string]int{"on": 1, "off": 0} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			podcount.Start(t, f, "-pod-events", setting)
			testkit.Pass(20 * time.Second)
			f.AddPods(1)
			testkit.Pass(20 * time.Second)
			testkit.WantNumber(t, "events on pods with "+setting, len(EventsOf(f, "PodCounted")), want)
			testkit.WantNumber(t, "events on nodes with "+setting, len(EventsOf(f, "PodCountChanged")), 2)
		})
	}
}

func labelsDoNotWaitForEvents(t *testing.T, podcount Program) {
	isEvent := func(s fakekube.Request) bool { return strings.Contains(s.Path, "/events") }
	refused := func(code int, reason string, details any, header ...string) fakekube.Fault {
		return StatusFault(fakekube.Requests{}, 0, code, reason, details, header...)
	}
	for name, ft := range map[string]fakekube.Fault{
		"their namespace is being deleted": refused(403, "Forbidden", fakekube.Object{"causes": []any{fakekube.Object{"reason": "NamespaceTerminating", "field": "metadata.namespace"}}}),
		"their namespace is gone":          refused(404, "NotFound", nil),
		"a quota":                          refused(403, "Forbidden", nil),
		"a limit, with Retry-After":        refused(429, "TooManyRequests", nil, "Retry-After", "1"),
		"a limit, in plain text":           {Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": "text/plain"}, Body: "slow down"}},
		"a server that refuses all":        refused(500, "InternalError", nil),
		"a server that breaks":             {Do: fakekube.DropRequest{}},
		"a server that does not answer":    {Do: fakekube.Stall{}},
		"a webhook that takes 20 s":        {Delay: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddNode("other", ControlPlane)
				f.AddNode("worker")
				p := podcount.Start(t, f, "-node-label", OwnPodsLabel, "-v", "2")
				synctest.Wait()
				goroutines := runtime.NumGoroutine()
				ft.On = fakekube.Requests{If: isEvent}
				ft.Times = fakekube.Always
				lift := f.Inject(t, ft).Lift
				f.AddPods(1500)
				synctest.Wait()
				if n := runtime.NumGoroutine() - goroutines; n > 10 {
					t.Errorf("%d goroutines more with 1,500 events to post", n)
				}
				Churn(f, 60)
				for path, writes := range map[string]int{"/api/v1/nodes/cp": 7, "/api/v1/nodes/other": 7, "/api/v1/nodes/worker": 7} {
					testkit.WantNumber(t, "writes to "+path+" in a minute", len(f.Requests(func(s fakekube.Request) bool { return fakekube.IsWrite(s) && s.Path == path })), writes)
				}
				lift()
				WantPeace(t, f, "-node-label", OwnPodsLabel)
				testkit.Pass(2 * time.Minute)
				p.Stop()

				begun := 1500 + 60 // on pods, and on labels:
				for _, s := range f.Requests(IsWriteOf("nodes")) {
					var patch struct {
						Metadata struct{ Labels map[string]any }
					}
					json.Unmarshal([]byte(s.Body), &patch)
					begun += len(patch.Metadata.Labels)
				}
				posted, dropped := 0, 0
				for _, e := range f.All("events") {
					posted += int(e["count"].(float64))
				}
				fmt.Sscan(regexp.MustCompile(`events_dropped=(\d+)`).FindStringSubmatch(p.Log.String())[1], &dropped)
				testkit.WantNumber(t, fmt.Sprintf("events posted (%d) or dropped (%d)", posted, dropped), posted+dropped, begun)
				if posted < 400 || dropped < 400 {
					t.Errorf("%d events were posted, %d dropped: those that waited were to be posted, those for whom there was no room dropped", posted, dropped)
				}
			})
		})
	}
}

func podsOfARelist(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		p := podcount.Start(t, f)
		testkit.Pass(time.Second)
		f.LoseEvents(1)
		f.AddPod("default", "unseen", "")
		testkit.Pass(time.Second)
		testkit.WantNumber(t, "events before the relist", len(EventsOf(f, "PodCounted")), 0)
		p.Net.Refuse()
		f.EndWatches(true)
		f.AddPod("default", "later", "")
		f.Compact()
		p.Net.Restore()
		testkit.Pass(2 * time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "4")
		testkit.WantNumber(t, "events after the relist", len(EventsOf(f, "PodCounted")), 2)
	})
}

func refusedEvent(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		isEvent := func(s fakekube.Request) bool { return strings.HasSuffix(s.Path, "/events") }
		f.Inject(t, StatusFault(fakekube.Requests{If: isEvent}, 1, 422, "Invalid", nil))
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(3 * time.Hour)
		testkit.WantNumber(t, "lines on it", p.Logged("cannot post an event"), 1)
		testkit.WantNumber(t, "lines on Events", p.Logged("Events: "), 0)
	})
}
