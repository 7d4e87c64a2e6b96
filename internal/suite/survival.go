package suite

import (
	"slices"
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

func whateverBecomesOfTheServer(t *testing.T, podcount Program) {
	isNoWatch := func(s fakekube.Request) bool { return !s.Query.Has("watch") }
	for name, happens := range map[string]func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)){
		"killed for 30 s": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			p.Net.Kill()
			pause(30 * time.Second)
			p.Net.Restore()
		},
		"killed for 30 s, and its history is compacted": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			p.Net.Kill()
			pause(30 * time.Second)
			f.Compact()
			p.Net.Restore()
		},
		"killed for ten minutes": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			p.Net.Kill()
			pause(10 * time.Minute)
			p.Net.Restore()
		},
		"in a crash loop, its history gone each time": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			for range 20 {
				p.Net.Kill()
				pause(5 * time.Second)
				f.Compact()
				p.Net.Restore()
				pause(time.Second)
			}
		},
		"without its etcd": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			f.Inject(t, StatusFault(fakekube.Requests{If: isNoWatch}, 12, 500, "", nil))
			pause(15 * time.Second)
			f.EndWatches(true)
			f.Inject(t, StatusFault(fakekube.Requests{}, 12, 429, "TooManyRequests", nil, "Retry-After", "1")) // "storage is (re)initializing"
			pause(time.Minute)
		},
		"its etcd restored from an older snapshot": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(22 * time.Second)
			p.Net.Kill()
			restore()
			p.Net.Restore()
			pause(2 * kube.Silence) // of a version that is not there yet, the server says nothing at all
		},
		"its etcd restored from an older snapshot while it was away, whose versions come again soon": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(time.Minute)
			p.Net.Kill()
			<-time.After(3 * time.Second)
			restore()
			p.Net.Restore()
			pause(2 * time.Minute) // with the first answer it is known
		},
		"its etcd restored from an older snapshot, whose versions come again before it is back": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(3 * time.Second)
			p.Net.Kill()
			restore()
			pause(15 * time.Second)
			p.Net.Restore()
			pause(relistEvery * 11 / 10) // other changes under the versions that were seen: only a list can tell
		},
		"its etcd restored from an older snapshot, as is told to do: with higher versions": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(3 * time.Second)
			p.Net.Kill()
			restore()
			f.SetVersion(f.Latest() + 1000000)
			f.Compact()
			p.Net.Restore()
		},
		"one of two behind": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 0)
			pause(30 * time.Second)
			catchUp()
		},
		"one of two behind what was seen of the other": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(25 * time.Second)
			if f.Label("cp", TotalLabel) == strconv.Itoa(len(f.All("pods"))) {
				t.Error("it was not behind")
			}
			catchUp()
		},
		"one of two behind for ten minutes": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(10 * time.Minute)
			catchUp()
		},
		"one of two behind, and then killed": func(t *testing.T, f *fakekube.Server, p *Process, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(30 * time.Second)
			p.Net.Kill()
			catchUp()
			p.Net.Restore()
		},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				podcount.Survive(t, f, func(p *Process) { happens(t, f, p, func(d time.Duration) { retry.Sleep(t.Context(), d) }) })
			})
		})
	}
}

func askedOnceABackoffStep(t *testing.T, podcount Program) {
	const outage = 10 * time.Minute
	steps := 1 // at most, in so long: one at once, the others with no jitter at all
	for at, step := time.Duration(0), reflectorBackoff; at < outage; step = min(2*step, reflectorLimit) {
		at += step
		steps++
	}
	discoveries := int(outage/(discoverEvery*4/5)) + 1
	for name, c := range map[string]struct {
		up, down time.Duration
		cutOff   bool // it lets connections through and breaks the requests
	}{
		"it refuses connections":           {0, outage, false},
		"it breaks each request":           {0, outage, true},
		"it is up for 2 s, each 20 s":      {2 * time.Second, 18 * time.Second, false},
		"it is up for 200 ms, each 5 s":    {200 * time.Millisecond, 5 * time.Second, false},
		"it breaks, but for 2 s each 20 s": {2 * time.Second, 18 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				p := podcount.Start(t, f)
				testkit.Pass(5 * time.Minute) // of health
				dials, asked := p.Net.Dialed(), len(f.Requests(All))
				crashes, begin := 0, time.Now()
				for time.Since(begin) < outage {
					if crashes++; c.cutOff {
						f.CutOff("127.0.0.1:1", true)
					} else {
						p.Net.Kill()
					}
					testkit.Pass(c.down)
					f.CutOff("127.0.0.1:1", false)
					p.Net.Restore()
					testkit.Pass(c.up)
				}
				dials, sent := p.Net.Dialed()-dials, f.Requests(All)[asked:]
				if most := 3*(steps+crashes) + discoveries; dials > most || len(sent) > most {
					t.Errorf("%d dials and %d requests, in %d steps and %d crashes: want %d at most", dials, len(sent), steps, crashes, most)
				}
				for _, resource := range []string{"pods", "nodes", "counts"} {
					tries := slices.DeleteFunc(slices.Clone(sent), func(s fakekube.Request) bool { return !strings.HasSuffix(s.Path, "/"+resource) })
					if len(tries) > steps+crashes {
						t.Errorf("%d requests for %s, in %d steps and %d crashes", len(tries), resource, steps, crashes)
					}
				}
				testkit.Pass(reflectorLimit * 2)
				for _, kind := range []string{"Pod", "Node", "Count"} {
					// Three watches that end at once lead to a list. The tries that the outage broke are counted above.
					lists := p.Logged("msg=listed kind=" + kind + " ")
					watches := p.Logged("msg=watching kind=" + kind + " ")
					if lists > 1+watches/3 {
						t.Errorf("%d lists and %d watches of kind %s", lists, watches, kind)
					}
				}
				WantPeace(t, f)
			})
		})
	}
}

func nextProcess(t *testing.T, podcount Program) {
	for name, c := range map[string]struct {
		fault  string // in it the process is killed
		writes int    // that are left to the next
	}{
		"before its patch arrived":                   {"write nodes at a:1: drop request", 1},
		"between its patch and the answer":           {"write nodes at a:1: drop answer", 0},
		"between its patch and the event":            {"create events at a:1: drop request", 0},
		"between the event's arrival and its answer": {"create events at a:1: drop answer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddPods(2)
				met := make(chan struct{})
				fault, err := fakekube.ParseFault(c.fault)
				if err != nil {
					t.Fatal(err)
				}
				fault.Met = func(fakekube.Request) { met <- struct{}{} }
				f.Inject(t, fault)
				a := podcount.Start(t, f, "-master", "http://a:1")
				<-met
				f.CutOff("a:1", true)
				a.Stop()
				podcount.Start(t, f, "-master", "http://b:1")
				WantPeace(t, f)
				testkit.WantNumber(t, "writes by the next", len(f.Requests(func(s fakekube.Request) bool { return s.Host == "b:1" && IsWriteOf("nodes")(s) })), c.writes)
			})
		})
	}
}
