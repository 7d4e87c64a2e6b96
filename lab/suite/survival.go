package suite

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Survival shows that labels become right again after an outage of the API server or of podcount.
var Survival = Topic{
	{"labels become right whatever happens to the server", disasters},
	{"a restore that one kind notices is known to all", restoreIsTold},
	{"a server that is down is asked once per backoff step", longOutages},
	{"a half-dead server is asked no more often than a dead one", halfDead},
	{"all kinds are back with the first, also after another outage", backTogether},
	{"the Lease shows first that the server is back", leaseEndsOutage},
	{"a kind that gets no answer mutes no other fault", sickKind},
	{"the log of an outage tells how old the labels are", ageOfLabels},
	{"a write that found no server is repeated when there is one", writeIsRepeated},
	{"a server that is back is asked again when it says, or soon", backWithRefusals},
	{"the next process finishes what a killed one left half done", nextProcess},
}

// disasters shows what no row of the trial (TestTrial) does: long outages, what a restore or a cache hides, and that
// the status of Counts and the labels of all nodes become right, too.
func disasters(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name    string
		happens disaster
	}{
		{"killed for ten minutes", killed},
		{"restored while podcount cannot reach it", restoredWhileAway},
		{"restored, and only the next audit shows it", restoredUnseen},
		{"restored with higher versions", restoredAsDocumented},
		{"its cache loses changes, so that lists are wrong, too", cacheLosesChanges},
		{"one of two servers lags for ten minutes", lagging},
		{"one of two servers lags, and then is killed", laggingAndKilled},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				podcount.Survive(t, f, func(p *Process) { row.happens(t, f, p) })
			})
		})
	}
}

// A disaster happens to the API server of a running podcount. It runs in its own goroutine, so it must wait with pause.
type disaster func(t *testing.T, f *fakekube.Server, p *Process)

// pause waits for d of virtual time. Unlike testkit.Pass, it may be called while another goroutine calls testkit.Pass.
func pause(d time.Duration) { <-time.After(d) }

func killed(_ *testing.T, _ *fakekube.Server, p *Process) {
	p.Net.Kill()
	pause(10 * time.Minute)
	p.Net.Restore()
}

// restoredWhileAway restores the server during an outage. Soon after that, other objects have the versions that
// podcount knows, so it must notice the restore by the server's first answer.
func restoredWhileAway(t *testing.T, f *fakekube.Server, p *Process) {
	restore := f.Snapshot()
	pause(time.Minute)
	p.Net.Kill()
	pause(3 * time.Second)
	restore()
	p.Net.Restore()
	pause(2 * time.Minute)
}

// restoredUnseen brings the server back when other objects have the versions that podcount knows. Only the next audit
// shows the difference.
func restoredUnseen(t *testing.T, f *fakekube.Server, p *Process) {
	restore := f.Snapshot()
	pause(3 * time.Second)
	p.Net.Kill()
	restore()
	pause(15 * time.Second)
	p.Net.Restore()
	pause(auditInterval * 11 / 10)
}

// cacheLosesChanges makes the server's cache lose changes (https://github.com/kubernetes/kubernetes/issues/123072).
// Only an audit finds them.
func cacheLosesChanges(t *testing.T, f *fakekube.Server, p *Process) {
	f.Script(t, "list|watch pods there in default: lie about 2 changes")
	f.Remove("pods", At("default", "there")) // two changes
	pause(auditInterval * 11 / 10)
	testkit.WantText(t, p.Log.String(), "the cache differed from the API server")
}

// restoredAsDocumented raises the versions after the restore, as the manual of etcd recommends.
func restoredAsDocumented(t *testing.T, f *fakekube.Server, p *Process) {
	restore := f.Snapshot()
	pause(3 * time.Second)
	p.Net.Kill()
	restore()
	f.SetVersion(f.Latest() + 1000000)
	f.Compact()
	p.Net.Restore()
}

// lagging makes podcount watch the one of two servers that lags behind what the other has shown.
func lagging(_ *testing.T, f *fakekube.Server, _ *Process) {
	catchUp := f.Lag(fakekube.Requests{}, 20)
	pause(10 * time.Minute)
	catchUp()
}

func laggingAndKilled(t *testing.T, f *fakekube.Server, p *Process) {
	catchUp := f.Lag(fakekube.Requests{}, 20)
	pause(30 * time.Second)
	if fixture.Label(f, "cp", TotalLabel) == strconv.Itoa(len(f.All("pods"))) {
		t.Error("podcount shows the newest total, so the server does not lag")
	}
	p.Net.Kill()
	catchUp()
	p.Net.Restore()
}

// Survive starts podcount, and lets pods come and go for half a minute. After the first ten seconds, it calls fault in
// another goroutine, where fault must wait with pause. When both have ended, the labels of the nodes and the status of
// a Count must become right.
func (podcount Program) Survive(t *testing.T, f *fakekube.Server, fault func(p *Process)) {
	t.Helper()
	start := func(args ...string) *Process { return podcount.Start(t, f, args...) }
	SurviveFrom(t, f, start, fault)
}

// SurviveFrom is Survive for a podcount that is started by start.
func SurviveFrom(t *testing.T, f *fakekube.Server, start func(args ...string) *Process, fault func(p *Process)) {
	t.Helper()
	args := []string{"-node-label", OwnPodsLabel}
	fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	f.AddNode("other", ControlPlane)
	f.AddNode("worker")
	f.AddPod("default", "there", "worker")
	fixture.AddCount(f, "web", `{"name":"web","count":18}`)
	p := start(args...)
	Churn(f, 10)
	ended := make(chan struct{})
	go func() {
		fault(p)
		close(ended)
	}()
	Churn(f, 20)
	fixture.AddPods(f, 2) // This total is new, so podcount must write it.
	<-ended
	WantPeaceAndCount(t, f, args...)
}

// restoreIsTold lets the watch of nodes notice a restore. When the watch of pods is back, other objects have used the
// versions that it knows, so that it could not notice anything.
func restoreIsTold(t *testing.T, podcount Program) {
	for _, row := range []struct{ name, pods string }{
		{"the other kind has no watch yet", "watch pods, 2 times: refuse 503"},
		{"the other kind's watch is open", "list pods: refuse 503"}, // it could not ask for the newest version
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
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
		})
	}
}

func longOutages(t *testing.T, podcount Program) {
	for _, row := range []outage{
		{"it refuses connections", 0, 10 * time.Minute, false},
		{"it breaks each request", 0, 10 * time.Minute, true},
		{"it is up for 2 s, each 20 s", 2 * time.Second, 18 * time.Second, false},
		{"it is up for 200 ms, each 5 s", 200 * time.Millisecond, 5 * time.Second, false},
		{"it breaks requests except for 2 s, each 20 s", 2 * time.Second, 18 * time.Second, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				fixture.AddPods(f, 2)
				p := podcount.Start(t, f)
				testkit.Pass(5 * time.Minute) // The backoffs are reset.
				dialed := p.Net.Dialed()
				asked := len(f.Received(fakekube.Requests{}))
				crashes := row.run(f, p)

				// Each resource may be asked once per step of its backoff, and once more after each crash. If watches work
				// in between, each crash begins an outage of its own.
				tries := backoffSteps(outageTime) + crashes
				if row.up > watchWorksAfter {
					tries = crashes * (backoffSteps(row.down) + 1)
				}
				discoveries := int(outageTime/(discoveryInterval*4/5)) + 1
				sent := f.Received(fakekube.Requests{})[asked:]
				testkit.WantBetween(t, "connections", p.Net.Dialed()-dialed, 0, 3*tries+discoveries)
				testkit.WantBetween(t, "requests", len(sent), 0, 3*tries+discoveries)
				for _, resource := range []string{"pods", "nodes", "counts"} {
					testkit.WantBetween(t, "requests for "+resource, countRequests(sent, resource), 0, tries)
				}
				testkit.Pass(reflectorMaxBackoff * 2)
				wantFewLists(t, p)
				WantPeace(t, f)
			})
		})
	}
}

// outageTime is how long the server is down, or mostly down.
const outageTime = 10 * time.Minute

// outage is a way in which the server is down for outageTime.
type outage struct {
	name           string
	up, down       time.Duration // how long the server is up and down in turn
	breaksRequests bool          // whether the server accepts connections, but breaks each request
}

// run lets the outage happen, and returns how often the server went down.
func (o outage) run(f *fakekube.Server, p *Process) (crashes int) {
	start := time.Now()
	for time.Since(start) < outageTime {
		crashes++
		bringUp := o.takeDown(f, p)
		testkit.Pass(o.down)
		bringUp()
		testkit.Pass(o.up)
	}
	return crashes
}

func (o outage) takeDown(f *fakekube.Server, p *Process) (bringUp func()) {
	if !o.breaksRequests {
		p.Net.Kill()
		return p.Net.Restore
	}
	const server = "127.0.0.1:1" // as in Start
	return f.CutOff(server)
}

// countRequests returns how many of the requests are for all objects of a resource.
func countRequests(requests []fakekube.Request, resource string) (n int) {
	for _, r := range requests {
		if strings.HasSuffix(r.Path, "/"+resource) {
			n++
		}
	}
	return n
}

// backoffSteps returns the largest number of tries that the backoff allows within d: the first at once, and the others
// as if no wait had jitter.
func backoffSteps(d time.Duration) (steps int) {
	steps = 1
	wait := reflectorBackoff
	passed := time.Duration(0)
	for passed < d {
		passed += wait
		wait = min(2*wait, reflectorMaxBackoff)
		steps++
	}
	return steps
}

// wantFewLists fails the test if a kind was relisted more often than once per three watches, because only three watches
// in a row that end at once lead to a relist.
func wantFewLists(t *testing.T, p *Process) {
	t.Helper()
	for _, kind := range []string{"Pod", "Node", "Count"} {
		lists := p.Logged("msg=listed kind=" + kind + " ")
		watches := p.Logged("msg=watching kind=" + kind + " ")
		testkit.WantBetween(t, fmt.Sprintf("lists of kind %s with %d watches", kind, watches), lists, 0, 1+watches/3)
	}
}

func nextProcess(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name   string
		fault  string // what the first process meets when it is killed
		writes int    // how many writes it leaves to the next process
	}{
		{"before its patch arrived", "write nodes at a:1: drop request", 1},
		{"between its patch and the answer", "write nodes at a:1: drop answer", 0},
		{"between its patch and the Event", "create events at a:1: drop request", 0},
		{"between the Event's arrival and its answer", "create events at a:1: drop answer", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				fixture.AddPods(f, 2)
				fault, err := fakekube.ParseFault(row.fault)
				if err != nil {
					t.Fatal(err)
				}
				met := make(chan struct{})
				fault.Met = func(fakekube.Request) { met <- struct{}{} }
				f.Inject(t, fault)
				killed := podcount.Start(t, f, "-master", "http://a:1")
				<-met
				f.CutOff("a:1")
				killed.Stop()

				podcount.Start(t, f, "-master", "http://b:1")
				WantPeace(t, f)
				writes := f.Received(fakekube.Requests{Host: "b:1", If: IsWriteOf("nodes")})
				testkit.WantNumber(t, "writes of the next process", len(writes), row.writes)
			})
		})
	}
}

// backTogether shows that the wait after an outage depends on the length of that outage alone, and that no kind waits
// longer than another.
func backTogether(t *testing.T, podcount Program) {
	for range 10 { // because of the jitter
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
			f.AddNode("cp", ControlPlane)
			fixture.AddCount(f, "web", `{"name":"nginx","count":1}`)
			p := podcount.Start(t, f, "-v", "2")
			testkit.Pass(10 * time.Second)
			for _, away := range []time.Duration{time.Minute, 10 * time.Second, 5 * time.Second, 10 * time.Second} {
				p.Net.Kill()
				testkit.Pass(away)
				p.Net.Restore()
				restored := time.Now()
				testkit.Pass(away + 2*time.Minute)

				var watches []time.Duration // since the server was restored
				for _, r := range f.Received(fakekube.Requests{Verb: "watch"}) {
					if r.At.After(restored) {
						watches = append(watches, r.At.Sub(restored))
					}
				}
				slices.Sort(watches)
				testkit.WantBetween(t, fmt.Sprint("watches after ", away), len(watches), 3, 9)
				if len(watches) < 3 {
					return
				}
				// The next try comes after at most twice the time that all waits until then have taken.
				testkit.WantBetween(t, fmt.Sprint("the first watch after ", away), watches[0], 0, 2*away+3*time.Second)
				testkit.WantBetween(t, "the other kinds after that", watches[2]-watches[0], 0, time.Second)
			}
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
	isList := func(r fakekube.Request) bool { return r.Verb == "list" && r.Resource == "pods" }
	watchesPods := func(r fakekube.Request) bool { return r.Verb == "watch" && r.Resource == "pods" }
	writesNodes := func(r fakekube.Request) bool { return r.Verb == "patch" && r.Resource == "nodes" }
	isSecondPage := func(r fakekube.Request) bool { return isList(r) && r.Query.Has("continue") }
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
		asks   func(fakekube.Request) bool
		most   int // requests in ten minutes
	}{
		{"a proxy answers for each second page", func(t *testing.T, f *fakekube.Server, _ *Process) {
			always(f, fakekube.Requests{If: isSecondPage}, proxyPage)
			f.Script(t, "list pods, 2 times: cut after 3000 bytes") // so that lists come in pages
			expire(f)
		}, isList, 60},
		{"each watch ends with an error of a proxy", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, fakekube.Reply{Code: 200, Body: frame})
			f.BreakWatches()
		}, watchesPods, 30},
		{"it is back, but a page of another server answers for one kind", func(_ *testing.T, f *fakekube.Server, p *Process) {
			p.Net.Kill()
			testkit.Pass(2 * time.Minute)
			always(f, ofPods, loginPage)
			p.Net.Restore()
		}, watchesPods, 40},
		{"each list brings it down for five seconds", func(_ *testing.T, f *fakekube.Server, p *Process) {
			f.InjectUnchecked(fakekube.Fault{
				On:    fakekube.Requests{If: isList},
				Times: fakekube.Always,
				Do:    fakekube.DropRequest{},
				Met: func(fakekube.Request) {
					p.Net.Kill()
					time.AfterFunc(5*time.Second, p.Net.Restore)
				},
			})
			expire(f)
		}, isList, 25},
		{"one kind gets no answer, and another one comes and goes", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, fakekube.DropRequest{})
			comeAndGo(f, ofNodes)
		}, watchesPods, 30},
		{"no write works, a kind comes and goes", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, fakekube.Requests{Verb: "patch"}, fakekube.DropRequest{})
			f.AddPod("default", "more", "")
			comeAndGo(f, ofNodes)
		}, writesNodes, 50},
		{"it asks for patience for ever", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, ofPods, patience)
			f.BreakWatches()
		}, watchesPods, 25},
		{"it asks writes for patience for ever", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			always(f, writes, patience)
			f.AddPod("default", "more", "")
		}, writesNodes, 25},
		{"it asks for patience, and a proxy says that it is away", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			inTurn(f, ofPods, patience, proxyPage)
			f.BreakWatches()
		}, watchesPods, 25},
		{"it asks writes for patience, and a proxy says that it is away", func(_ *testing.T, f *fakekube.Server, _ *Process) {
			inTurn(f, writes, patience, proxyPage)
			f.AddPod("default", "more", "")
		}, writesNodes, 25},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				fixture.AddPods(f, 4500)
				p := podcount.Start(t, f, "-v", "0", "-wire", "json")
				testkit.Pass(time.Minute)
				row.faults(t, f, p)
				testkit.Pass(5 * time.Minute)
				before := len(fixture.Requests(f, row.asks))
				asked := 0
				for minute := 0; minute < 10 && asked <= row.most; minute++ {
					testkit.Pass(time.Minute)
					asked = len(fixture.Requests(f, row.asks)) - before
				}
				testkit.WantBetween(t, "requests in ten minutes", asked, 5, row.most)
			})
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

// expire makes podcount list again, because the server no longer knows the versions of its watches.
func expire(f *fakekube.Server) {
	f.Compact()
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

// writeIsRepeated shows that a label does not wait for the backoff of its key when the server is back.
func writeIsRepeated(t *testing.T, podcount Program) {
	for range 40 { // because of the jitter
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane)
			fixture.AddPods(f, 1)
			p := podcount.Start(t, f)
			testkit.Pass(time.Minute)
			f.Script(t, "patch nodes: drop request") // so that the key fails when the server goes
			fixture.AddPods(f, 2)
			testkit.Pass(time.Millisecond)
			p.Net.Kill()
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
					f.AddNode("cp", ControlPlane)
					fixture.AddPods(f, 1)
					p := podcount.Start(t, f)
					testkit.Pass(time.Minute)
					f.Script(t, "patch nodes: drop request") // so that the key fails when the server goes
					fixture.AddPods(f, 2)
					testkit.Pass(time.Millisecond)
					p.Net.Kill()
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
