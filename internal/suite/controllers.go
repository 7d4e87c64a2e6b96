package suite

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Controllers shows how controllers share caches, and what each waits for.
var Controllers = Topic{
	{"controllers share caches and start a little apart", sharedCaches},
	{"podcount lists only the kinds that its controllers need", onlyWhatIsNeeded},
	{"a controller whose rights are missing delays no other", missingRights},
	{"a controller waits for its CRD and stops without it", comingAndGoingCRD},
	{"the Retry-After of discovery is honoured", retryAfterOfDiscovery},
	{"a 404 or a 429 for a moment stops no controller", shortAbsence},
}

func sharedCaches(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.AddPods(3)
		p := podcount.Start(t, f, "-controllers", "*,pod-printer")
		testkit.Pass(time.Second)
		WantLabel(t, f, "cp", TotalLabel, "3")
		for _, resource := range []string{"pods", "nodes", "counts"} {
			testkit.WantNumber(t, "lists of "+resource, len(f.Requests(IsList(resource))), 1)
			testkit.WantNumber(t, "watches of "+resource, len(f.Requests(fakekube.IsWatch(resource))), 1)
		}
		begins := regexp.MustCompile(`time=(\S+) .*work begins" controller=(\S+)`).
			FindAllStringSubmatch(p.Log.String(), -1)
		if len(begins) != 3 || begins[0][1] == begins[1][1] || begins[1][1] == begins[2][1] ||
			begins[0][2] != "pod-count" {
			t.Errorf("controllers began as %q", begins)
		}
	})
}

func onlyWhatIsNeeded(t *testing.T, podcount Program) {
	for flags, want := range map[string]string{
		"-controllers=pod-count":   "nodes pods",
		"-controllers=pod-printer": "pods",
		"-controllers=count":       "counts pods",
		"":                         "counts nodes pods",
	} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			podcount.Start(t, f, strings.Fields(flags)...)
			testkit.Pass(time.Minute)
			var asked []string
			for _, resource := range []string{"counts", "nodes", "pods"} {
				if len(f.Requests(IsList(resource))) > 0 {
					asked = append(asked, resource)
				}
			}
			if got := strings.Join(asked, " "); got != want {
				t.Errorf("%s asked for %s, want %s", flags, got, want)
			}
			discovered := len(
				f.Requests(func(s fakekube.Request) bool { return s.Path == "/apis/demo.mark8s.io/v1" })) > 0
			if discovered != strings.Contains(want, "counts") {
				t.Errorf("%s: discovery was asked: %v", flags, discovered)
			}
		})
	}
}

func missingRights(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", ControlPlane)
		f.Forbid("list counts", true)
		f.AddCount("web", `{"name":"web","count":1}`)
		p := podcount.Start(t, f)
		f.AddPods(2)
		testkit.Pass(20 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
		testkit.WantText(t, p.Log.String(),
			`the RBAC rule that allows it: apiGroups [\"demo.mark8s.io\"], resources [\"counts\"], verbs [\"list\"]`)
		f.Forbid("list counts", false)
		testkit.Pass(time.Minute)
		testkit.WantText(t, f.CountStatus("web"), "false 2 1")
		f.Inject(t, fakekube.Fault{
			On: fakekube.Requests{Verb: "list", Resource: "counts"},
			Do: fakekube.Reply{
				Code: 400,
				Body: `{"kind":"Status","reason":"BadRequest","message":"no","code":400}`,
			},
		})
		f.Compact()
		f.EndWatches(false)
		testkit.Pass(time.Minute)
		f.AddPods(3)
		testkit.Pass(20 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "3")
		testkit.WantText(t, f.CountStatus("web"), "false 3 1")
	})
}

func comingAndGoingCRD(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.AddPods(2)
		p := podcount.Start(t, f)
		testkit.Pass(10 * time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "2")
		testkit.WantNumber(t, "lines about the wait", p.Logged("is its CRD installed?"), 1)
		testkit.WantNumber(t, "warnings", p.Logged("level=WARN"), 0)
		testkit.WantNumber(t, "lists of Counts", len(f.Requests(IsList("counts"))), 0)
		if n := discoveries(f); n < 50 || n > 76 {
			t.Errorf("%d discoveries in 10 minutes, want one each 8 to 12 s", n)
		}
		for range 2 {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			f.AddCount("web", `{"name":"web","count":2}`)
			testkit.Pass(13 * time.Second)
			testkit.WantText(t, f.CountStatus("web"), "true 2 1")
			f.InstallCRD(nil)
			testkit.Pass(time.Second)
			lists := len(f.Requests(IsList("counts")))
			testkit.Pass(time.Minute)
			if n := len(f.Requests(IsList("counts"))) - lists; n > 6 {
				t.Errorf("%d lists of what is gone", n)
			}
			lists = len(f.Requests(IsList("counts"))) + len(f.Requests(fakekube.IsWatch("counts")))
			testkit.Pass(time.Minute)
			testkit.WantNumber(t, "requests for Counts after the stand-down",
				len(f.Requests(IsList("counts")))+len(f.Requests(fakekube.IsWatch("counts")))-lists, 0)
		}
		testkit.WantNumber(t, "stand-downs", p.Logged("the resource is gone"), 2)
		testkit.WantNumber(t, "words on the deleted Count", p.Logged("a Count is gone"), 2)
		f.AddPods(4)
		testkit.Pass(11 * time.Second)
		WantLabel(t, f, "cp", TotalLabel, "4")
	})
}

// retryAfterOfDiscovery: discovery may answer 429 for a moment after a CRD was installed.
func retryAfterOfDiscovery(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		podcount.Start(t, f)
		testkit.Pass(time.Second)
		f.Inject(t, StatusFault(fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}, 1, 429, "TooManyRequests",
			nil, "Retry-After", "60"))
		MeetFaults(t, f)
		asked := discoveries(f)
		testkit.Pass(59 * time.Second)
		testkit.WantNumber(t, "questions while the server wants none", discoveries(f)-asked, 0)
		testkit.Pass(13 * time.Second) // jitter adds up to a fifth
		if discoveries(f) == asked {
			t.Error("it is not asked again")
		}
	})
}

func shortAbsence(t *testing.T, podcount Program) {
	discovery := fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}
	counts := fakekube.Requests{Resource: "counts"}
	text := map[string]string{"Content-Type": "text/plain; charset=utf-8"}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":1}`)
		f.Inject(t, fakekube.Fault{
			On:    counts,
			Times: 2,
			Do:    fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"},
		})
		f.Inject(t, fakekube.Fault{
			On:    counts,
			Times: 2,
			Do: fakekube.Reply{
				Code:   429,
				Header: map[string]string{"Retry-After": "1"},
				Body: `{"kind":"Status","code":429,"reason":"TooManyRequests",` +
					`"message":"storage is (re)initializing"}`,
			},
		})
		p := podcount.Start(t, f)
		testkit.Pass(45 * time.Second)
		testkit.WantText(t, f.CountStatus("web"), "false 0 1")
		f.Inject(t, fakekube.Fault{
			On: discovery,
			Do: fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"},
		})
		testkit.Pass(30 * time.Second)
		for _, code := range []int{500, 503, 429, 403} { // no answers
			f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Code: code, Body: "{}"}})
		}
		f.Inject(t, fakekube.Fault{
			On: discovery,
			Do: fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"},
		})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `{"kind":"Other"}`}})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `garbage`}})
		testkit.Pass(2 * time.Minute)
		f.AddPod("default", "a", "")
		testkit.Pass(time.Second)
		testkit.WantText(t, f.CountStatus("web"), "true 1 1")
		testkit.WantNumber(t, "stand-downs", p.Logged("the resource is gone"), 0)
		testkit.WantNumber(t, "lists of Counts", len(f.Requests(IsList("counts"))), 5)
	})
}

func discoveries(f *fakekube.Server) int {
	return len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/apis/demo.mark8s.io/v1" }))
}
