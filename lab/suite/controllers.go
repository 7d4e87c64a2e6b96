package suite

import (
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Controllers shows how controllers share caches, and what each waits for.
var Controllers = Topic{
	{"controllers share caches", sharedCaches},
	{"podcount lists only the kinds that its controllers need", onlyWhatIsNeeded},
	{"a controller whose rights are missing delays no other", missingRights},
	{"a controller waits for its CRD and stops without it", comingAndGoingCRD},
	{"the Counts of a removed CRD are forgotten unseen", unseenEndOfCounts},
	{"a resource is found soon although discovery fails at first", discoveryFailsAtFirst},
	{"for a known resource, discovery that fails does not hurry", discoveryFailsLater},
	{"a short 404 or 429 stops no controller", shortAbsence},
}

func sharedCaches(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 3)
		podcount.Start(t, f, "-controllers", "*,pod-printer")
		testkit.Pass(time.Second)
		WantLabel(t, f, "cp", TotalLabel, "3")
		for _, resource := range []string{"pods", "nodes", "counts"} {
			testkit.WantNumber(t, "lists of "+resource, len(fixture.Requests(f, IsList(resource))), 1)
			testkit.WantNumber(t, "watches of "+resource, len(fixture.Requests(f, fixture.IsWatch(resource))), 1)
		}
	})
}

func onlyWhatIsNeeded(t *testing.T, podcount Program) {
	for _, row := range []struct{ flags, resources string }{
		{"-controllers=pod-count", "nodes pods"},
		{"-controllers=pod-printer", "pods"},
		{"-controllers=count", "counts pods"},
		{"", "counts nodes pods"},
	} {
		SimulateCase(t, row.flags, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			podcount.Start(t, f, strings.Fields(row.flags)...)
			testkit.Pass(time.Minute)
			var listed []string
			for _, resource := range []string{"counts", "nodes", "pods"} {
				if len(fixture.Requests(f, IsList(resource))) > 0 {
					listed = append(listed, resource)
				}
			}
			testkit.WantEqual(t, "the listed resources", strings.Join(listed, " "), row.resources)
			needsDiscovery := strings.Contains(row.resources, "counts")
			testkit.WantEqual(t, "discovery was requested", discoveries(f) > 0, needsDiscovery)
		})
	}
}

func missingRights(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		permit := f.Forbid("list counts")
		fixture.AddCount(f, "web", `{"name":"web","count":1}`)
		p := podcount.Start(t, f)
		fixture.AddPods(f, 2)
		testkit.Pass(20 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
		testkit.WantText(t, p.Log.String(),
			`the RBAC rule that allows it: apiGroups [\"demo.mark8s.io\"], resources [\"counts\"], verbs [\"list\"]`)

		permit()
		testkit.Pass(time.Minute)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "false 2 1")

		f.Inject(t, StatusFault(fakekube.Requests{Verb: "list", Resource: "counts"}, 1, 400, "BadRequest", nil))
		f.Compact()
		f.EndWatches()
		testkit.Pass(time.Minute)
		fixture.AddPods(f, 3)
		testkit.Pass(20 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "3")
		testkit.WantText(t, fixture.CountStatus(f, "web"), "false 3 1")
	})
}

func comingAndGoingCRD(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.AddPods(f, 2)
		p := podcount.Start(t, f)
		testkit.Pass(10 * time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "2")
		testkit.WantNumber(t, "reports that the CRD is missing", p.Logged("is its CRD installed?"), 1)
		testkit.WantNumber(t, "warnings", p.Logged("level=WARN"), 0)
		testkit.WantNumber(t, "lists of Counts", len(fixture.Requests(f, IsList("counts"))), 0)
		// One comes every 8 to 12 s.
		testkit.WantBetween(t, "discoveries in 10 minutes", discoveries(f), 50, 76)

		for range 2 {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			fixture.AddCount(f, "web", `{"name":"web","count":2}`)
			testkit.Pass(13 * time.Second)
			testkit.WantText(t, fixture.CountStatus(f, "web"), "true 2 1")

			fixture.InstallCRD(f, nil)
			testkit.Pass(time.Second)
			lists := len(fixture.Requests(f, IsList("counts")))
			testkit.Pass(time.Minute)
			more := len(fixture.Requests(f, IsList("counts"))) - lists
			testkit.WantBetween(t, "lists of the removed resource", more, 0, 6)

			requests := listsAndWatches(f, "counts")
			testkit.Pass(time.Minute)
			testkit.WantNumber(t, "requests for Counts after the controller has stopped",
				listsAndWatches(f, "counts")-requests, 0)
		}
		testkit.WantNumber(t, "reports that the controller stops", p.Logged("the resource was removed"), 2)
		testkit.WantNumber(t, "reports of the deleted Count", p.Logged("a Count is gone"), 2)
		fixture.AddPods(f, 4)
		testkit.Pass(11 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "4")
	})
}

// unseenEndOfCounts removes the CRD, and with it all Counts, while no watch works.
func unseenEndOfCounts(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"web","count":2}`)
		p := podcount.Start(t, f)
		testkit.Pass(time.Minute)
		f.Script(t, "watch counts, always: refuse 503")
		f.EndWatches()
		fixture.InstallCRD(f, nil)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "reports of the deleted Count", p.Logged("a Count is gone"), 1)
	})
}

// discovery selects the requests that find out whether the CRD of Counts is installed.
var discovery = fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}

// discoveries counts the requests that discovery selects.
func discoveries(f *fakekube.Server) int {
	return len(fixture.Requests(f, func(r fakekube.Request) bool { return r.Path == discovery.Resource }))
}

// listsAndWatches counts the lists and watches of a resource.
func listsAndWatches(f *fakekube.Server, resource string) int {
	return len(fixture.Requests(f, IsList(resource))) + len(fixture.Requests(f, fixture.IsWatch(resource)))
}

// discoveryFailsAtFirst shows that nobody waits a whole interval for a resource that podcount does not know yet.
func discoveryFailsAtFirst(t *testing.T, podcount Program) {
	const asked = 3 * time.Second // The jitter is at most as long again.
	const backoffs = (1 + 2 + 4) * reflectorBackoff
	for _, row := range []struct {
		name     string
		fault    fakekube.Fault
		shortest time.Duration // half of the longest, until the first list
	}{
		{"429 with Retry-After", StatusFault(discovery, 3, 429, "TooManyRequests", nil, "Retry-After", "1"), asked},
		{"500", StatusFault(discovery, 3, 500, "InternalError", nil), backoffs},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			f.Inject(t, row.fault)
			start := time.Now()
			podcount.Start(t, f)
			testkit.Pass(time.Minute)
			first := fixture.Requests(f, IsList("counts"))[0]
			testkit.WantBetween(t, "time until the first list", first.At.Sub(start), row.shortest, 2*row.shortest)
		})
	}
}

// discoveryFailsLater shows that a resource that is watched is asked about no more often because the answers fail.
func discoveryFailsLater(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		podcount.Start(t, f)
		testkit.Pass(time.Second)
		f.Inject(t, StatusFault(discovery, 3, 429, "TooManyRequests", nil, "Retry-After", "1"))
		testkit.Pass(time.Minute)
		sent := f.Received(discovery)
		testkit.WantBetween(t, "discoveries in a minute", len(sent), 5, 8)
		for i, r := range sent[1:] {
			pause := r.At.Sub(sent[i].At)
			testkit.WantBetween(t, "the time between two", pause, discoveryInterval*4/5, discoveryInterval*6/5)
		}
	})
}

func shortAbsence(t *testing.T, podcount Program) {
	counts := fakekube.Requests{Resource: "counts"}
	notFound := fakekube.Reply{
		Code:   404,
		Header: map[string]string{"Content-Type": "text/plain; charset=utf-8"},
		Body:   "404 page not found\n",
	}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		fixture.AddCount(f, "web", `{"name":"web","count":1}`)
		f.Inject(t, fakekube.Fault{On: counts, Times: 2, Do: notFound})
		f.Inject(t, StatusFault(counts, 2, 429, "TooManyRequests", nil, "Retry-After", "1"))
		p := podcount.Start(t, f)
		testkit.Pass(45 * time.Second)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "false 0 1")

		f.Inject(t, fakekube.Fault{On: discovery, Do: notFound})
		testkit.Pass(30 * time.Second)
		// These answers do not show whether the CRD is installed.
		for _, code := range []int{500, 503, 429, 403} {
			f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Code: code, Body: "{}"}})
		}
		f.Inject(t, fakekube.Fault{On: discovery, Do: notFound})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `{"kind":"Other"}`}})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `garbage`}})
		testkit.Pass(2 * time.Minute)
		f.AddPod("default", "a", "")
		testkit.Pass(time.Second)
		testkit.WantText(t, fixture.CountStatus(f, "web"), "true 1 1")
		testkit.WantNumber(t, "reports that the controller stops", p.Logged("the resource was removed"), 0)
		testkit.WantNumber(t, "lists of Counts", len(fixture.Requests(f, IsList("counts"))), 5)
	})
}
