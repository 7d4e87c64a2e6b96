package suite

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/retry"
	"podcount/internal/testkit"
)

// Survival shows that labels equal the truth again, whatever becomes of the API server.
var Survival = Topic{
	{"labels equal the truth whatever becomes of the server", whateverBecomesOfTheServer},
	{"a server that is down is asked once a backoff step", askedOnceABackoffStep},
	{"the next process finishes what a killed one left half done", nextProcess},
}

// A disaster is something that happens to the API server. It may wait only by calling pause.
type disaster func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration))

func killedFor(d time.Duration) disaster {
	return func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
		p.Net.Kill()
		pause(d)
		p.Net.Restore()
	}
}

func killedAndCompacted(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	p.Net.Kill()
	pause(30 * time.Second)
	f.Compact()
	p.Net.Restore()
}

func crashLoop(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	for range 20 {
		p.Net.Kill()
		pause(5 * time.Second)
		f.Compact()
		p.Net.Restore()
		pause(time.Second)
	}
}

// withoutEtcd: first requests fail, then watches end and the server answers that its storage is (re)initializing.
func withoutEtcd(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	isNoWatch := func(r fakekube.Request) bool { return !r.Query.Has("watch") }
	f.Inject(t, StatusFault(fakekube.Requests{If: isNoWatch}, 12, 500, "", nil))
	pause(15 * time.Second)
	f.EndWatches(true)
	f.Inject(t, StatusFault(fakekube.Requests{}, 12, 429, "TooManyRequests", nil, "Retry-After", "1"))
	pause(time.Minute)
}

// restored: after the restore, podcount watches from a version that does not exist yet, and the server stays silent.
func restored(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	restore := f.Snapshot()
	pause(22 * time.Second)
	p.Net.Kill()
	restore()
	p.Net.Restore()
	pause(2 * kube.Silence)
}

// restoredWhileAway: the versions that podcount knows come again soon after the restore. It must learn of the restore
// from the first answer.
func restoredWhileAway(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	restore := f.Snapshot()
	pause(time.Minute)
	p.Net.Kill()
	<-time.After(3 * time.Second)
	restore()
	p.Net.Restore()
	pause(2 * time.Minute)
}

// restoredUnseen: when the server is back, other objects have the versions that podcount knows. Only a list shows it.
func restoredUnseen(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	restore := f.Snapshot()
	pause(3 * time.Second)
	p.Net.Kill()
	restore()
	pause(15 * time.Second)
	p.Net.Restore()
	pause(relistInterval * 11 / 10)
}

// restoredAsDocumented: the manual of etcd says to raise the versions when one restores a snapshot.
func restoredAsDocumented(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	restore := f.Snapshot()
	pause(3 * time.Second)
	p.Net.Kill()
	restore()
	f.SetVersion(f.Latest() + 1000000)
	f.Compact()
	p.Net.Restore()
}

// lagging makes one of two servers lag behind the other by a number of versions.
func lagging(versions int, d time.Duration) disaster {
	return func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
		catchUp := f.Lag(fakekube.Requests{}, versions)
		pause(d)
		catchUp()
	}
}

func laggingSeen(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	catchUp := f.Lag(fakekube.Requests{}, 20)
	pause(25 * time.Second)
	if f.Label("cp", TotalLabel) == strconv.Itoa(len(f.All("pods"))) {
		t.Error("podcount shows the newest total, so the server does not lag")
	}
	catchUp()
}

func laggingAndKilled(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
	catchUp := f.Lag(fakekube.Requests{}, 20)
	pause(30 * time.Second)
	p.Net.Kill()
	catchUp()
	p.Net.Restore()
}

func whateverBecomesOfTheServer(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name    string
		happens disaster
	}{
		{"killed for 30 s", killedFor(30 * time.Second)},
		{"killed for 30 s, and its history is compacted", killedAndCompacted},
		{"killed for ten minutes", killedFor(10 * time.Minute)},
		{"in a crash loop that loses its history", crashLoop},
		{"without its etcd", withoutEtcd},
		{"restored from a snapshot", restored},
		{"restored while it was away", restoredWhileAway},
		{"restored, and its versions come again unseen", restoredUnseen},
		{"restored with higher versions", restoredAsDocumented},
		{"one of two lags", lagging(0, 30*time.Second)},
		{"one of two lags behind what the other has shown", laggingSeen},
		{"one of two lags for ten minutes", lagging(20, 10*time.Minute)},
		{"one of two lags, and then is killed", laggingAndKilled},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				pause := func(d time.Duration) { retry.Sleep(t.Context(), d) }
				podcount.Survive(t, f, func(p *Process) { row.happens(t, f, p, pause) })
			})
		})
	}
}

// downTime is an outage of ten minutes, in which the server may come up for moments.
type downTime struct {
	name     string
	up, down time.Duration
	cutsOff  bool // it accepts connections, and breaks the requests
}

func askedOnceABackoffStep(t *testing.T, podcount Program) {
	const outage = 10 * time.Minute
	for _, row := range []downTime{
		{"it refuses connections", 0, outage, false},
		{"it breaks each request", 0, outage, true},
		{"it is up for 2 s, each 20 s", 2 * time.Second, 18 * time.Second, false},
		{"it is up for 200 ms, each 5 s", 200 * time.Millisecond, 5 * time.Second, false},
		{"it breaks requests except for 2 s, each 20 s", 2 * time.Second, 18 * time.Second, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				p := podcount.Start(t, f)
				testkit.Pass(5 * time.Minute) // of health
				dialed := p.Net.Dialed()
				asked := len(f.Requests(All))
				crashes := row.goDown(f, p, outage)

				// Each resource may ask once a step of its backoff, and once more after each crash.
				steps := backoffSteps(outage) + crashes
				sent := f.Requests(All)[asked:]
				discoveries := int(outage/(discoveryInterval*4/5)) + 1
				testkit.WantBetween(t, "connections", p.Net.Dialed()-dialed, 0, 3*steps+discoveries)
				testkit.WantBetween(t, "requests", len(sent), 0, 3*steps+discoveries)
				for _, resource := range []string{"pods", "nodes", "counts"} {
					tries := 0
					for _, r := range sent {
						if strings.HasSuffix(r.Path, "/"+resource) {
							tries++
						}
					}
					testkit.WantBetween(t, "requests for "+resource, tries, 0, steps)
				}
				testkit.Pass(reflectorMaxBackoff * 2)
				wantFewLists(t, p)
				WantPeace(t, f)
			})
		})
	}
}

// goDown lets the server go down and up again until the outage is over. It returns how often the server went down.
func (d downTime) goDown(f *fakekube.Server, p *Process, outage time.Duration) (crashes int) {
	begin := time.Now()
	for time.Since(begin) < outage {
		crashes++
		if d.cutsOff {
			f.CutOff("127.0.0.1:1", true)
		} else {
			p.Net.Kill()
		}
		testkit.Pass(d.down)
		f.CutOff("127.0.0.1:1", false)
		p.Net.Restore()
		testkit.Pass(d.up)
	}
	return crashes
}

// backoffSteps is how many tries a backoff allows at most: one at once, and the others if jitter adds nothing.
func backoffSteps(outage time.Duration) (steps int) {
	steps = 1
	wait := reflectorBackoff
	passed := time.Duration(0)
	for passed < outage {
		passed += wait
		wait = min(2*wait, reflectorMaxBackoff)
		steps++
	}
	return steps
}

// wantFewLists fails the test if a kind was listed more than once for each three watches: only three watches in a row
// that end at once lead to a relist.
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
		fault  string // podcount is killed when it meets this fault
		writes int    // that are left to the next process
	}{
		{"before its patch arrived", "write nodes at a:1: drop request", 1},
		{"between its patch and the answer", "write nodes at a:1: drop answer", 0},
		{"between its patch and the Event", "create events at a:1: drop request", 0},
		{"between the Event's arrival and its answer", "create events at a:1: drop answer", 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				fault, err := fakekube.ParseFault(row.fault)
				if err != nil {
					t.Fatal(err)
				}
				met := make(chan struct{})
				fault.Met = func(fakekube.Request) { met <- struct{}{} }
				f.Inject(t, fault)
				a := podcount.Start(t, f, "-master", "http://a:1")
				<-met
				f.CutOff("a:1", true)
				a.Stop()

				podcount.Start(t, f, "-master", "http://b:1")
				WantPeace(t, f)
				writes := f.Requests(func(r fakekube.Request) bool { return r.Host == "b:1" && IsWriteOf("nodes")(r) })
				testkit.WantNumber(t, "writes of the next process", len(writes), row.writes)
			})
		})
	}
}
