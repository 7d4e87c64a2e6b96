package suite

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Survival shows that labels become right again after an outage of the API server or of podcount.
var Survival = Topic{
	{"a restore that one kind notices is known to all", restoreIsTold},
	{"a half-dead server is asked no more often than a dead one", halfDead},
	{"the Lease shows first that the server is back", leaseEndsOutage},
	{"a kind that gets no answer mutes no other fault", sickKind},
	{"the log of an outage tells how old the labels are", ageOfLabels},
	{"a write that found no server is repeated when there is one", writeIsRepeated},
	{"a server that is back is asked again when it says, or soon", backWithRefusals},
}

// pause waits for d of virtual time. Unlike testkit.Pass, it may be called while another goroutine calls testkit.Pass.
func pause(d time.Duration) { <-time.After(d) }

// restoreIsTold lets the watch of nodes notice a restore. When the watch of pods is back, other objects have used the
// versions that it knows, so that it could not notice anything.
func restoreIsTold(t *testing.T, podcount Program) {
	for _, row := range []struct{ name, pods string }{
		{"the other kind has no watch yet", "watch pods, 2 times: refuse 503"},
		{"the other kind's watch is open", "list pods: refuse 503"}, // it could not ask for the newest version
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 3)
			p := podcount.Start(t, f)
			testkit.Pass(5 * time.Second)
			restore := f.Snapshot()
			fixture.AddPods(f, 5)
			testkit.Pass(15 * time.Second)
			p.Net.Kill()
			testkit.Pass(5 * time.Second)
			restore()
			f.Script(t, row.pods)
			answered := make(chan struct{})
			f.Inject(t, fakekube.Fault{
				On: fakekube.Requests{Verb: "list", Resource: "nodes"}, // the question for the newest version
				Do: fakekube.Record{Begin: func(fakekube.Request) func(fakekube.Recording) {
					return func(fakekube.Recording) { close(answered) }
				}},
			})
			p.Net.Restore()
			<-answered
			for range 50 {
				fixture.SetLabel(f, "cp", "other", time.Now().String())
			}
			WantPeace(t, f)
		})
	}
}

// leaseEndsOutage shows that all kinds are back with the first answer about the Lease, which is asked for every few
// seconds.
func leaseEndsOutage(t *testing.T, podcount Program) {
	for range 10 { // because of the jitter
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			podcount.StartReplica(t, f, "a")
			testkit.Pass(10 * time.Second)
			second := podcount.StartReplica(t, f, "b") // it stands by, so it survives the outage
			testkit.Pass(10 * time.Second)
			second.Net.Kill()
			testkit.Pass(2 * time.Minute)
			second.Net.Restore()
			restored := time.Now()
			testkit.Pass(2*5*time.Second + time.Second)
			watches := fixture.Requests(f, func(r fakekube.Request) bool {
				return r.Verb == "watch" && r.At.After(restored) && strings.HasPrefix(r.Host, "b")
			})
			testkit.WantBetween(t, "watches soon after the outage", len(watches), 2, 3)
			for _, w := range watches {
				testkit.WantBetween(t, "the time of a watch", w.At.Sub(restored), 0, 6*time.Second)
			}
		})
	}
}

func ageOfLabels(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		p := podcount.Start(t, f, "-v", "0")
		testkit.Pass(100 * time.Second)
		p.Net.Kill()
		testkit.Pass(130 * time.Second)
		testkit.WantText(t, p.Log.String(),
			`level=WARN msg="the API server cannot be reached" labels_age=0s err="watch `,
			`level=WARN msg="the API server cannot be reached" for=1m0s failed_tries=`, ` labels_age=1m0s err="`,
			` labels_age=2m0s err="`)
		p.Net.Restore()
		testkit.Pass(62 * time.Second) // the longest backoff, and a moment
		end := regexp.MustCompile(`level=INFO msg="API server: reached again after [23]m`)
		testkit.WantNumber(t, "reports of its end", len(end.FindAllString(p.Log.String(), -1)), 1)
		testkit.WantBetween(t, "reports", p.Logged("cannot be reached"), 3, 4)

		// A connection that falls silent is noticed late. The labels are as old as the last word.
		testkit.Pass(30 * time.Second)
		p.Net.GoSilent()
		p.Net.Refuse()
		testkit.Pass(4*time.Minute + 30*time.Second)
		report := regexp.MustCompile(`cannot be reached" for=(\S+) .*labels_age=(\S+)`)
		reports := report.FindAllStringSubmatch(p.Log.String(), -1)
		newest := reports[len(reports)-1]
		outage, _ := time.ParseDuration(newest[1])
		age, _ := time.ParseDuration(newest[2])
		testkit.WantBetween(t, "how much older than the outage the labels are", age-outage, 50*time.Second, 150*time.Second)
	})
}

// halfDead shows that answers that are of no use do not make podcount hurry.
func halfDead(t *testing.T, podcount Program) {
	lists := fakekube.Requests{Verb: "list", Resource: "pods"}
	secondPages := lists
	secondPages.If = func(r fakekube.Request) bool { return r.Query.Has("continue") }
	ofPods := fakekube.Requests{Verb: "watch", Resource: "pods"}
	ofNodes := fakekube.Requests{Verb: "watch", Resource: "nodes"}
	writes := fakekube.Requests{Verb: "patch", Resource: "nodes"}
	patience := fakekube.Refuse{Code: 429, RetryAfter: time.Second}
	proxyPage := fakekube.Reply{
		Code:   504,
		Header: map[string]string{"Content-Type": "text/html"},
		Body:   "<html>Sorry</html>",
	}
	loginPage := proxyPage
	loginPage.Code = 200
	frame := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":504}}` + "\n"
	for _, row := range []struct {
		name   string
		faults func(t *testing.T, f *fakekube.Server, p *Process)
		asks   fakekube.Requests
		most   int // requests in ten minutes
	}{
		{"a proxy answers for each second page", func(t *testing.T, f *fakekube.Server, _ *Process) {
			always(f, secondPages, proxyPage)
			f.Script(t, "list pods, 2 times: cut after 3000 bytes") // so that lists come in pages
			expire(f)
		}, lists, 60},
		{"each watch ends with an error of a proxy", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, fakekube.Reply{Code: 200, Body: frame})
			f.BreakWatches()
		}, ofPods, 30},
		{"it is back, but a page of another server answers for one kind", func(_ *testing.T, f *fakekube.Server, p *Process) {
			p.Net.Kill()
			testkit.Pass(2 * time.Minute)
			always(f, ofPods, loginPage)
			p.Net.Restore()
		}, ofPods, 40},
		{"each list brings it down for five seconds", func(_ *testing.T, f *fakekube.Server, p *Process) {
			f.InjectUnchecked(fakekube.Fault{
				On:    lists,
				Times: fakekube.Always,
				Do:    fakekube.DropRequest{},
				Met: func(fakekube.Request) {
					p.Net.Kill()
					time.AfterFunc(5*time.Second, p.Net.Restore)
				},
			})
			expire(f)
		}, lists, 25},
		{"one kind gets no answer, and another one comes and goes", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, fakekube.DropRequest{})
			comeAndGo(f, ofNodes)
		}, ofPods, 30},
		{"no write works, a kind comes and goes", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, fakekube.Requests{Verb: "patch"}, fakekube.DropRequest{})
			f.AddPod("default", "more", "")
			comeAndGo(f, ofNodes)
		}, writes, 50},
		{"it asks for patience for ever", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, patience)
			f.BreakWatches()
		}, ofPods, 25},
		{"it asks writes for patience for ever", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, writes, patience)
			f.AddPod("default", "more", "")
		}, writes, 25},
		{"it asks for patience, and a proxy says that it is away", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			inTurn(f, ofPods, patience, proxyPage)
			f.BreakWatches()
		}, ofPods, 25},
		{"it asks writes for patience, and a proxy says that it is away", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			inTurn(f, writes, patience, proxyPage)
			f.AddPod("default", "more", "")
		}, writes, 25},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 4500)
			p := podcount.Start(t, f, "-v", "0", "-wire", "json")
			testkit.Pass(time.Minute)
			row.faults(t, f, p)
			testkit.Pass(5 * time.Minute)
			before := len(f.Received(row.asks))
			asked := 0
			for minute := 0; minute < 10 && asked <= row.most; minute++ {
				testkit.Pass(time.Minute)
				asked = len(f.Received(row.asks)) - before
			}
			testkit.WantBetween(t, "requests in ten minutes", asked, 5, row.most)
		})
	}
}

func sickKind(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		p := podcount.Start(t, f, "-v", "0", "-leader-elect")
		testkit.Pass(time.Minute)
		f.Script(t, "watch counts, always: drop request")
		f.BreakWatches()
		testkit.Pass(time.Minute)
		f.Script(t, "patch nodes, always: drop request")
		fixture.AddPods(f, 3)
		testkit.Pass(30 * time.Minute)
		testkit.WantBetween(t, "reports of the kind", p.Logged(`level=WARN msg="cannot watch" kind=Count`), 29, 33)
		testkit.WantBetween(t, "reports of the write", p.Logged(`level=WARN msg="cannot reconcile"`), 29, 33)
		testkit.WantBetween(t, "reports of a server that is away", p.Logged("cannot be reached"), 0, 2)
	})
}

// comeAndGo lets the watches end every five seconds for 14 minutes, and drops every second one of these.
func comeAndGo(f *fakekube.Server, watches fakekube.Requests) {
	f.InjectUnchecked(fakekube.Fault{On: watches, Every: 2, Times: fakekube.Always, Do: fakekube.DropRequest{}})
	go func() {
		for range 14 * 60 / 5 {
			pause(5 * time.Second)
			f.BreakWatches()
		}
	}()
}

// expire makes podcount list again, because the server no longer knows the versions of its watches. None of them gets
// the event of the new pod: one that had got it would resume after it.
func expire(f *fakekube.Server) {
	f.LoseEvents(1)
	f.AddPod("default", "more", "")
	f.Compact()
	f.BreakWatches()
}

// always lets a server that is half dead fail for ever.
func always(f *fakekube.Server, on fakekube.Requests, do fakekube.Effect) {
	f.InjectUnchecked(fakekube.Fault{On: on, Times: fakekube.Always, Do: do})
}

// inTurn lets a server that is half dead fail in two ways in turn, for ever.
func inTurn(f *fakekube.Server, on fakekube.Requests, first, second fakekube.Effect) {
	f.InjectUnchecked(fakekube.Fault{On: on, Every: 2, Times: fakekube.Always, Do: second})
	always(f, on, first)
}

// loseServerDuringAWrite lets the server go when a write has failed.
func (podcount Program) loseServerDuringAWrite(t *testing.T, f *fakekube.Server) *Process {
	f.AddNode("cp", ControlPlane)
	fixture.AddPods(f, 1)
	p := podcount.Start(t, f)
	testkit.Pass(time.Minute)
	f.Script(t, "patch nodes: drop request") // so that the key fails when the server goes
	fixture.AddPods(f, 2)
	testkit.Pass(time.Millisecond)
	p.Net.Kill()
	return p
}

// writeIsRepeated shows that a label does not wait for the backoff of its key when the server is back.
func writeIsRepeated(t *testing.T, podcount Program) {
	for range 40 { // because of the jitter
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			p := podcount.loseServerDuringAWrite(t, f)
			testkit.Pass(50 * time.Second) // the backoff of the key is half a minute or more now
			p.Net.Restore()
			restored := time.Now()
			isWatch := func(r fakekube.Request) bool { return r.Verb == "watch" && r.At.After(restored) }
			for len(fixture.Requests(f, isWatch)) == 0 {
				testkit.Pass(100 * time.Millisecond)
			}
			testkit.Pass(time.Second)
			WantLabel(t, f, "cp", TotalLabel, "2")
		})
	}
}

// backWithRefusals shows that after an outage, podcount waits as long as the server asks, and no longer. If the server
// does not say how long, the waits are those after its first failures. In both cases, the outage does not count.
func backWithRefusals(t *testing.T, podcount Program) {
	watches := fakekube.Requests{Verb: "watch", Resource: "pods"}
	lists := fakekube.Requests{If: IsList("pods")}
	writes := fakekube.Requests{Verb: "patch", Resource: "nodes"}
	tooMany := func(on fakekube.Requests) fakekube.Fault {
		return StatusFault(on, 3, 429, "TooManyRequests", nil, "Retry-After", "1")
	}
	fails := func(on fakekube.Requests) fakekube.Fault { return StatusFault(on, 3, 500, "InternalError", nil) }
	const asked = 3 * time.Second // The jitter is at most as long again.
	const backoffs = (1 + 2 + 4) * reflectorBackoff
	for _, row := range []struct {
		name              string
		fault             fakekube.Fault
		shortest, longest time.Duration // from the first refusal to the request after the third
	}{
		{"a watch, 429 with Retry-After", tooMany(watches), asked, 2 * asked},
		{"a list, 429 with Retry-After", tooMany(lists), asked, 2 * asked},
		{"a write, 429 with Retry-After", tooMany(writes), asked, 2 * asked},
		{"a watch, 500", fails(watches), backoffs, 2 * backoffs},
		{"a list, 500", fails(lists), backoffs, 2 * backoffs},
		{"a write, 500", fails(writes), 0, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			for range 10 { // because of the jitter
				Simulate(t, func(t *testing.T, f *fakekube.Server) {
					p := podcount.loseServerDuringAWrite(t, f)
					testkit.Pass(15 * time.Second)
					fixture.AddPods(f, 3)
					f.Compact() // so that podcount must list
					before := len(f.Received(row.fault.On))
					f.Inject(t, row.fault)
					p.Net.Restore()
					testkit.Pass(10 * time.Minute)
					WantLabel(t, f, "cp", TotalLabel, "3")
					sent := f.Received(row.fault.On)[before:]
					took := sent[3].At.Sub(sent[0].At)
					testkit.WantBetween(t, "the time that the refusals cost", took, row.shortest, row.longest)
				})
			}
		})
	}
}
