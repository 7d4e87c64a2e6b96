package main

// main_test.go runs the tests of the whole program. Most of them are in lab/suite, topic by topic. Here are those
// that need the internals of package main, the simulation, the behaviours on a real cluster, and the benchmarks. What
// one of the other files at the top does is shown beside that file.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/object"
	"podcount/internal/control"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/page"
	"podcount/internal/view/trace"
	"podcount/internal/watch/position"
	"podcount/internal/watch/presence"
	"podcount/lab/behaviours"
	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/films"
	"podcount/lab/fixture"
	"podcount/lab/replay"
	"podcount/lab/sim"
	"podcount/lab/suite"
	"podcount/lab/testkit"
	"podcount/lab/trial"
)

func TestMain(m *testing.M) {
	registered = slices.DeleteFunc(registered, isNotBuiltIn)
	switch {
	case os.Getenv(execplugin.Dir) != "":
		os.Exit(execplugin.Run(os.Getenv(execplugin.Dir)))
	case os.Getenv("PODCOUNT_TEST_MAIN") != "":
		main() // the program itself, for tests of signals and exit codes
		os.Exit(0)
	}
	testkit.AllowRandomInVirtualTime()
	os.Exit(testkit.RunTests(m))
}

// isNotBuiltIn finds the controllers that somebody has added in a file of their own. The tests here are about the
// requests and the output of the others.
func isNotBuiltIn(c Registration) bool {
	return !slices.Contains([]string{"pod-count", "count", "pod-printer"}, c.Name)
}

// The topics of the suite. Each is a table of sentences about podcount, with the tests that show them.

func TestLabels(t *testing.T)        { suite.Labels.Run(t, run) }
func TestFormats(t *testing.T)       { suite.Formats.Run(t, run) }
func TestEvents(t *testing.T)        { suite.Events.Run(t, run) }
func TestWrites(t *testing.T)        { suite.Writes.Run(t, run) }
func TestDroppedLabels(t *testing.T) { suite.DroppedLabels.Run(t, run) }
func TestOutages(t *testing.T)       { suite.Outages.Run(t, run) }
func TestSurvival(t *testing.T)      { suite.Survival.Run(t, run) }
func TestScale(t *testing.T)         { suite.Scale.Run(t, run) }
func TestStop(t *testing.T)          { suite.Stop.Run(t, run) }
func TestOutput(t *testing.T)        { suite.Output.Run(t, run) }
func TestUsage(t *testing.T)         { suite.Usage.Run(t, run) }
func TestProcesses(t *testing.T)     { suite.Processes.Run(t, run) }
func TestControllers(t *testing.T)   { suite.Controllers.Run(t, run) }
func TestCounts(t *testing.T)        { suite.Counts.Run(t, run) }
func TestOddCounts(t *testing.T)     { suite.OddCounts.Run(t, run) }
func TestOnce(t *testing.T)          { suite.Once.Run(t, run) }
func TestDryRun(t *testing.T)        { suite.DryRun.Run(t, run) }
func TestListen(t *testing.T)        { suite.Listen.Run(t, run) }
func TestPage(t *testing.T)          { suite.Page.Run(t, run) }
func TestManifests(t *testing.T)     { suite.Manifests.Run(t, run) }
func TestRights(t *testing.T)        { suite.Rights.Run(t, run) }
func TestSources(t *testing.T)       { suite.Sources.Run(t, run) }
func TestElection(t *testing.T)      { suite.Election.Run(t, run) }
func TestCredentials(t *testing.T)   { suite.Credentials.Run(t, run) }
func TestAccess(t *testing.T)        { suite.Access.Run(t, run) }

// podcount is the program that the suite runs.
var podcount suite.Program = run

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

func newLog(w io.Writer, level slog.Level) *slog.Logger {
	return slog.New(logging.NewHandler(w, logging.Style{}, level))
}

func quietLog() *slog.Logger { return newLog(io.Discard, slog.LevelInfo) }

// withController adds a controller for the time of a test.
func withController(t *testing.T, c Registration) {
	before := registered
	registered = append(slices.Clip(registered), c)
	t.Cleanup(func() { registered = before })
}

// ---------------------------------------------------------------------------------------------------------------------
// Stops and exits

func TestHangingControllerDoesNotKeepTheLease(t *testing.T) {
	for where, goroutine := range map[string]string{"reconcile": "worker of hangs", "tick": "controller hangs"} {
		t.Run(where, func(t *testing.T) {
			hang := make(chan struct{})
			waitIn := func(place string) { // whatever a context says
				if place == where {
					<-hang
				}
			}
			withController(t, Registration{Name: "hangs", Setup: func(m *program, c *Controller) {
				WatchOwn(c, m.nodes)
				c.Resync = func() []Key {
					waitIn("tick")
					return nil
				}
				c.Reconcile = func(context.Context, Key) (Result, error) {
					waitIn("reconcile")
					return Result{}, nil
				}
			}})
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				hang = make(chan struct{})
				defer close(hang)
				f.AddNode("cp", suite.ControlPlane)
				p := podcount.StartReplica(t, f, "a")
				testkit.Pass(10 * time.Second)
				suite.WantLabel(t, f, "cp", suite.TotalLabel, "0")
				stopped := time.Now()
				if err := p.Stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > control.DrainTimeout+control.HangTimeout {
					t.Errorf("it took %v to stop", took)
				}
				testkit.WantText(t, p.Log.String(), "something hangs: podcount stops without waiting for it")
				testkit.WantText(t, p.Log.String(), goroutine)
				if fakekube.TextIn(suite.LeaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", suite.LeaseNow(f))
				}
			})
		})
	}
}

// The page must not tell for how long podcount has been running in place of how long the server has been away.
func TestSilenceCountsFromTheLostWatch(t *testing.T) {
	var m *program
	withController(t, Registration{Name: "none", Setup: func(of *program, c *Controller) {
		m = of
		WatchOwn(c, m.nodes)
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		p := podcount.Start(t, f)
		testkit.Pass(72 * time.Hour)
		testkit.WantEqual(t, "silence while the server answers", m.overview.State().Silence == nil, true)
		p.Net.Kill()
		killed := time.Now()
		testkit.Pass(40 * time.Second)
		silence := m.overview.State().Silence
		testkit.WantBetween(t, "the silence", silence.Seconds, 39, 41)

		dialed := p.Net.Dialed()
		testkit.Pass(time.Duration(silence.SecondsUntilTry*float64(time.Second)) - time.Millisecond)
		testkit.WantNumber(t, "tries before the next one", p.Net.Dialed()-dialed, 0)
		testkit.Pass(2 * time.Millisecond)
		testkit.WantBetween(t, "tries then", p.Net.Dialed()-dialed, 1, 3)

		p.Net.Restore()
		for range 1000 {
			testkit.Pass(100 * time.Millisecond)
			if silence := m.overview.State().Silence; silence != nil {
				testkit.WantBetween(t, "the silence while the server is back", silence.Seconds, 40, time.Since(killed).Seconds()+1)
			}
		}
		testkit.WantEqual(t, "silence at the end", m.overview.State().Silence == nil, true)
	})
}

func TestLivezNamesWhatHangs(t *testing.T) {
	for _, row := range []struct{ where, want string }{
		{"reconcile", "hangs: a worker has been processing cp for 2m3"},
		{"tick", "hangs: has looked for work for 2m3"},
		{"change", "Node: a change has not been taken for 2m3"},
	} {
		t.Run(row.where, func(t *testing.T) { testLivez(t, row.where, row.want) })
	}
}

// testLivez lets a part of a controller hang, and checks with which words the answer of /livez begins then.
func testLivez(t *testing.T, where, want string) {
	var m *program
	var hang chan struct{}
	var shouldHang atomic.Bool
	hangIn := func(place string) {
		if place == where && shouldHang.Load() {
			<-hang
		}
	}
	withController(t, Registration{Name: "hangs", Setup: func(of *program, c *Controller) {
		m = of
		Watch(c, m.nodes, func(d Delta[*Node]) {
			hangIn("change")
			c.Add(d.Key())
		})
		c.Resync = func() []Key {
			hangIn("tick")
			return nil
		}
		c.Reconcile = func(context.Context, Key) (Result, error) {
			hangIn("reconcile")
			return Result{}, nil
		}
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		hang = make(chan struct{})
		podcount.Start(t, f, "-controllers", "hangs", "-qps", "0.1", "-workers", "2", "-interval", "1s")
		testkit.Pass(500 * time.Millisecond)
		live := func() (code int, text string) {
			answer := httptest.NewRecorder()
			m.overview.Pages().ServeHTTP(answer, httptest.NewRequest("GET", "/livez", nil))
			return answer.Code, answer.Body.String()
		}
		shouldHang.Store(true)
		f.AddNode("cp")
		testkit.Pass(500 * time.Millisecond)
		limit := 2*kube.RequestTimeout + 20*time.Second // two workers may have to wait for a token of -qps each
		testkit.Pass(limit - time.Second)
		if code, text := live(); code != 200 {
			t.Errorf("before the limit: %d %s", code, text)
		}
		testkit.Pass(2 * time.Second)
		if code, text := live(); code != 503 || !strings.HasPrefix(text, "stuck: "+want) {
			t.Errorf("after the limit: %d %q", code, text)
		}
		close(hang)
		testkit.Pass(time.Second)
		if code, text := live(); code != 200 || text != "ok\n" {
			t.Errorf("when it is over: %d %q", code, text)
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Controllers that panic

func TestPanickingControllerIsTriedAgain(t *testing.T) {
	var reconciled atomic.Int32
	withController(t, Registration{Name: "broken", Setup: func(m *program, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) {
			if d.Old == nil {
				panic("keys of a new pod")
			}
			c.Add(d.Key())
		})
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			var nothing *Pod
			return Result{}, errors.New(nothing.NodeName)
		}
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		fixture.AddPods(f, 2)
		p := podcount.Start(t, f)
		testkit.Pass(20 * time.Second)
		f.AddPod("default", "more", "")
		testkit.Pass(20 * time.Second)
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "3")
		if n := reconciled.Load(); n < 10 || n > 40 { // two keys, each with a backoff from 5 ms on
			t.Errorf("tried %d times", n)
		}
		testkit.WantNumber(t, "stacks", p.Logged("a controller panics"), 1)
		testkit.WantText(t, p.Log.String(), "level=ERROR msg=\"a controller panics\" controller=broken")
		testkit.WantText(t, p.Log.String(), "main_test.go")
		testkit.WantText(t, p.Log.String(), `msg="cannot reconcile" controller=broken`)
		suite.WantPeace(t, f)
	})
}

func TestChangeWhileAControllerBeginsIsNotLost(t *testing.T) {
	var hasBegun atomic.Bool
	reconciled := map[string]int{}
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		withController(t, Registration{Name: "late", Setup: func(m *program, c *Controller) {
			Watch(c, m.pods, func(change Delta[*Pod]) {
				if !hasBegun.Swap(true) {
					f.AddPod("default", "late", "")
					testkit.Pass(time.Second) // until the cache has the pod
				}
				c.Add(change.Key())
			})
			c.Reconcile = func(_ context.Context, key Key) (Result, error) {
				reconciled[key.Name]++
				return Result{}, nil
			}
		}})
		f.AddPod("default", "early", "")
		podcount.Start(t, f, "-controllers", "late", "-workers", "1")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "pods reconciled", reconciled, map[string]int{"early": 1, "late": 1})
	})
}

func TestPanickingResyncEndsNothingElse(t *testing.T) {
	withController(t, Registration{Name: "odd", Setup: func(m *program, c *Controller) {
		Watch(c, m.nodes, func(Delta[*Node]) {})
		c.Summary = func() Summary { panic("numbers") }
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		fixture.AddPods(f, 2)
		if err := podcount.Start(t, f, "-once", "-controllers", "pod-count,odd").Finish(); err == nil ||
			!strings.Contains(err.Error(), "-once: odd cannot find out which objects need work: panic: tick") {
			t.Errorf("-once ended with %v", err)
		}
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "2")
		fixture.AddPods(f, 3)
		p := podcount.Start(t, f, "-controllers", "pod-count,odd")
		testkit.Pass(time.Minute)
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "3")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestPanickingIsUrgentMakesNoKeyUrgent(t *testing.T) {
	reconciled := 0
	withController(t, Registration{Name: "odd", Setup: func(m *program, c *Controller) {
		WatchOwn(c, m.nodes)
		c.IsUrgent = func(Key) bool { panic("urgent") }
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled++
			return Result{}, nil
		}
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp")
		p := podcount.Start(t, f, "-controllers", "odd")
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "reconciles", reconciled, 1)
		testkit.WantText(t, p.Log.String(), `msg="a controller panics" controller=odd err="panic: urgent"`)
	})
}

// panicky adds a controller whose onChange panics while isBroken returns true. keys are the keys that it has
// reconciled, and tries counts the calls of onChange.
func panicky(t *testing.T, isBroken func(Delta[*Pod]) bool) (keys *[]string, tries *atomic.Int64) {
	keys = new([]string)
	tries = new(atomic.Int64)
	withController(t, Registration{Name: "panicky", Setup: func(m *program, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) {
			tries.Add(1)
			if isBroken(d) {
				panic("no keys of " + d.Key().Name)
			}
			c.Add(d.Key())
		})
		c.Reconcile = func(_ context.Context, key Key) (Result, error) {
			*keys = append(*keys, key.Name)
			return Result{}, nil
		}
	}})
	return keys, tries
}

func TestKeysOfAPanicAreNotLost(t *testing.T) {
	var isBroken atomic.Bool
	keys, _ := panicky(t, func(d Delta[*Pod]) bool { return isBroken.Load() && d.Key().Name != "good" })
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		podcount.Start(t, f, "-workers", "1")
		testkit.Pass(time.Second)
		isBroken.Store(true)
		f.AddPod("default", "bad", "")
		f.AddPod("default", "good", "")
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "keys while it panics", slices.Compact(*keys), []string{"good"})
		isBroken.Store(false)
		testkit.Pass(11 * time.Second) // until the next tick
		testkit.WantEqual(t, "a key of the others is known", slices.Contains(*keys, "bad"), true)
		before := len(*keys)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "keys once all are known", len(*keys)-before, 0)
	})
}

func TestEndlessPanicsAreReportedOnceAMinute(t *testing.T) {
	_, tries := panicky(t, func(d Delta[*Pod]) bool { return true })
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		fixture.AddPods(f, 1)
		p := podcount.Start(t, f, "-pod-events", "off")
		testkit.Pass(time.Second)
		for i := range 1000 { // one object that changes, again and again
			fixture.AddPodWithLabels(f, "changing", fakekube.Object{"n": strconv.Itoa(i)})
		}
		testkit.Pass(10 * time.Minute)
		log := p.Log.String()
		testkit.WantNumber(t, "stacks", strings.Count(log, "main_test.go"), 1)
		if n := strings.Count(log, "a controller panics again"); n < 5 || n > 10 {
			t.Errorf("%d more lines in 10 minutes", n)
		}
		testkit.WantText(t, log, `msg="a controller panics again" controller=panicky err="panic: no keys of `, ` times=`)
		before := tries.Load()
		testkit.Pass(time.Hour)
		testkit.WantBetween(t, "tries in an hour, of two pods at each tick", tries.Load()-before, 718, 722)
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "2")
	})
}

func TestOnceFailsIfKeysAreUnknown(t *testing.T) {
	panicky(t, func(d Delta[*Pod]) bool { return true })
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		fixture.AddPods(f, 2)
		err := podcount.Start(t, f, "-once").Finish()
		testkit.WantError(t, "-once", err, "-once: panicky cannot find out which objects need work: panic: no keys of ")
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "2")
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Stops of -once

func TestOnceThatStopsWhileAControllerLooksForWorkFails(t *testing.T) {
	looking := make(chan struct{})
	withController(t, Registration{Name: "slow", Setup: func(m *program, c *Controller) {
		Watch(c, m.nodes, func(Delta[*Node]) {})
		c.Resync = func() []Key {
			<-looking
			return nil
		}
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		looking = make(chan struct{})
		p := podcount.Start(t, f, "-once", "-controllers", "slow")
		testkit.Pass(time.Second)
		time.AfterFunc(time.Second, func() { close(looking) })
		testkit.WantError(t, "-once", p.Stop(), "-once: stopped before all was done")
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// What podcount shows of itself

func TestVersionIsPrinted(t *testing.T) {
	out := &testkit.Buffer{}
	if err := run(t.Context(), []string{"-version"}, suite.NoEnv, out, io.Discard, nil); err != nil {
		t.Error(err)
	}
	testkit.WantText(t, out.String(), "podcount "+process.Version+"\n", "commit: "+process.Commit+"\n", "Go: go1.")
}

func TestControllersHelp(t *testing.T) {
	out := &testkit.Buffer{}
	if err := run(t.Context(), []string{"-controllers", "help"}, os.Getenv, out, out, nil); err != nil {
		t.Error(err)
	}
	testkit.WantNumber(t, "lines of help", strings.Count(out.String(), "\n"), len(registered))
	testkit.WantText(t, out.String(), "pod-printer  off  prints the pods")
	testkit.WantText(t, out.String(), "pod-count    on   writes the numbers")
}

// What could not be asked is not absent. A later outage changes nothing about what is known.
func TestResourceIsNotAbsentBeforeDiscoveryHasAnswered(t *testing.T) {
	var m *program
	withController(t, Registration{Name: "looks", Setup: func(of *program, c *Controller) {
		m = of
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	discovery := fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}
	unknown := "Count (it is not known whether the cluster has it)"
	for _, code := range []int{401, 403, 429, 500, 0} {
		t.Run(strconv.Itoa(code), func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				refusal := fakekube.Fault{On: discovery, Times: fakekube.Always, Do: fakekube.Reply{Code: code, Body: "{}"}}
				if code == 0 {
					refusal.Do = fakekube.DropRequest{}
				}
				wantState := func(when string, unready []string, isAbsent, isUnknown bool) {
					t.Helper()
					state := m.overview.State()
					count := state.Kinds[slices.IndexFunc(state.Kinds, func(k page.Kind) bool { return k.Name == "Count" })]
					testkit.WantEqual(t, when+": what is not ready", state.Waiting, unready)
					testkit.WantEqual(t, when+": it is absent", count.IsAbsent, isAbsent)
					testkit.WantEqual(t, when+": it is unknown", count.IsUnknown, isUnknown)
					testkit.WantEqual(t, when+": something was heard", count.SecondsSinceHeard != nil, false)
				}
				refused := f.Inject(t, refusal)
				podcount.Start(t, f, "-controllers", "*,looks")
				testkit.Pass(4 * time.Minute)
				wantState("before an answer", []string{unknown}, false, true)
				controllers := m.overview.State().Controllers
				count := slices.IndexFunc(controllers, func(c page.Controller) bool { return c.Name == "count" })
				testkit.WantEqual(t, "what the controller waits for", controllers[count].Waits,
					"an answer to whether the cluster has Count")

				refused.Lift()
				testkit.Pass(2 * time.Minute)
				wantState("after an answer", []string{}, true, false)
				f.Inject(t, refusal)
				testkit.Pass(4 * time.Minute)
				wantState("in a later outage", []string{}, true, false)
			})
		})
	}
}

// withMetrics adds the controller looks, which does nothing. The function returns what /metrics shows of the podcount
// that runs it.
func withMetrics(t *testing.T) (metrics func() string) {
	var m *program
	withController(t, Registration{Name: "looks", Setup: func(of *program, c *Controller) {
		m = of
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	return func() string {
		answer := httptest.NewRecorder()
		m.overview.Pages().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
		return answer.Body.String()
	}
}

// Prometheus sees no increase in a counter that begins with 1.
func TestCountersOfAlertsBeginAtZero(t *testing.T) {
	metrics := withMetrics(t)
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		podcount.Start(t, f, "-controllers", "*,looks")
		synctest.Wait()
		for _, series := range []string{
			`podcount_label_patches_total{result="failed"}`,
			`podcount_label_patches_total{result="stripped"}`,
			`podcount_status_patches_total{result="failed"}`,
			`podcount_status_patches_total{result="stripped"}`,
			`podcount_cache_drift_total{kind="Pod"}`,
			`podcount_cache_drift_total{kind="Node"}`,
			`podcount_cache_drift_total{kind="Count"}`,
			`podcount_lines_dropped_total{stream="stderr"}`,
			`podcount_lines_dropped_total{stream="stdout"}`,
		} {
			testkit.WantText(t, metrics(), "\n"+series+" 0\n")
		}
	})
}

func TestMetricsOfAlertsTellWhatHappens(t *testing.T) {
	leaseOfAnother := func(_ *testing.T, f *fakekube.Server) {
		f.PutJSON("leases", `{
			"metadata": {"namespace": "kube-system", "name": "podcount"},
			"spec": {"holderIdentity": "other", "leaseDurationSeconds": 15}
		}`)
	}
	script := func(fault string) func(*testing.T, *fakekube.Server) {
		return func(t *testing.T, f *fakekube.Server) { f.Script(t, fault) }
	}
	patches := func(result string, n int) string {
		return fmt.Sprintf("podcount_label_patches_total{result=%q} %d", result, n)
	}
	isLeader := func(n int) string { return fmt.Sprintf(`leader_election_master_status{name="podcount"} %d`, n) }
	for _, row := range []struct {
		name   string
		args   []string
		before func(t *testing.T, f *fakekube.Server)
		after  func(t *testing.T, f *fakekube.Server) // five seconds after the start
		want   []string                               // five seconds after that
	}{
		{
			name: "a label is written",
			want: []string{patches("written", 1), patches("failed", 0), patches("stripped", 0)},
		},
		{
			name:   "a write fails",
			before: script("patch nodes: refuse 500"),
			want:   []string{patches("failed", 1), patches("written", 1)},
		},
		{
			name:   "a webhook removes the label",
			before: func(_ *testing.T, f *fakekube.Server) { fixture.Strip(f, suite.TotalLabel) },
			want:   []string{patches("stripped", 1), patches("failed", 0)},
		},
		{
			name:   "the node is gone",
			before: script("patch nodes: refuse 404 reason NotFound"),
			want:   []string{patches("gone", 1), patches("failed", 0)},
		},
		{
			name: "this replica leads",
			args: []string{"-leader-elect"},
			want: []string{isLeader(1)},
		},
		{
			name:   "another replica leads",
			args:   []string{"-leader-elect"},
			before: leaseOfAnother,
			want:   []string{isLeader(0)},
		},
		{
			name:  "this replica has lost the lease",
			args:  []string{"-leader-elect"},
			after: leaseOfAnother,
			want:  []string{isLeader(0)},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			metrics := withMetrics(t)
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", suite.ControlPlane)
				if row.before != nil {
					row.before(t, f)
				}
				podcount.Start(t, f, append(row.args, "-controllers", "*,looks")...)
				testkit.Pass(5 * time.Second)
				if row.after != nil {
					row.after(t, f)
				}
				testkit.Pass(5 * time.Second)
				for _, series := range row.want {
					testkit.WantText(t, metrics(), "\n"+series+"\n")
				}
			})
		})
	}
}

// brokenPipe is a pipe whose reader is gone.
type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestLostLinesAreCountedByTheirStream(t *testing.T) {
	metrics := withMetrics(t)
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		wrapped := 0
		breakStderr := func(w io.Writer) io.Writer {
			wrapped++ // stdout is first
			if wrapped == 2 {
				return brokenPipe{}
			}
			return w
		}
		podcount.StartWith(t, fixture.Network(t, f), suite.Wiring{Pipe: breakStderr},
			"-master", "http://127.0.0.1:1", "-controllers", "*,looks")
		testkit.Pass(time.Second)
		testkit.WantText(t, metrics(), `podcount_lines_dropped_total{stream="stdout"} 0`+"\n")
		if strings.Contains(metrics(), `podcount_lines_dropped_total{stream="stderr"} 0`+"\n") {
			t.Error("no line for stderr is counted")
		}
	})
}

// A gauge must not show 0 before podcount has counted, nor an object that has been removed.
func TestGaugesOfMissingThingsAreAbsent(t *testing.T) {
	metrics := withMetrics(t)
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		wantGauges := func(when string, present bool, names ...string) {
			t.Helper()
			text := metrics()
			for _, name := range names {
				if strings.Contains(text, "\n"+name+" ") != present {
					t.Errorf("%s: is there a %s? want %v", when, name, present)
				}
			}
		}
		ofCounts := []string{
			`podcount_cache_objects{kind="Count"}`, `podcount_watch_age_seconds{kind="Count"}`,
			`podcount_cache_synced{kind="Count"}`,
		}
		ofQueue := func(name string) []string {
			return []string{
				`workqueue_depth{name="` + name + `"}`,
				`workqueue_unfinished_work_seconds{name="` + name + `"}`,
				`workqueue_longest_running_processor_seconds{name="` + name + `"}`,
			}
		}
		f.AddNode("cp", suite.ControlPlane)
		f.Inject(t, fakekube.Fault{
			On: fakekube.Requests{Resource: "/api/v1/pods"},
			Do: fakekube.Reply{Code: 503, Body: "{}"},
		})
		podcount.Start(t, f, "-controllers", "*,looks")
		synctest.Wait()
		wantGauges("before the lists", false, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("before the lists", false, ofQueue("pod-count")...)
		wantGauges("before anything was heard", false, `podcount_watch_age_seconds{kind="Pod"}`)
		testkit.WantText(t, metrics(),
			`podcount_cache_synced{kind="Pod"} 0`+"\n", `podcount_cache_synced{kind="Node"} 1`+"\n")
		testkit.Pass(time.Minute)
		wantGauges("at work", true, "podcount_pods", `podcount_cache_objects{kind="Pod"}`,
			`podcount_watch_age_seconds{kind="Pod"}`)
		wantGauges("at work", true, ofQueue("pod-count")...)
		testkit.WantText(t, metrics(), `podcount_cache_synced{kind="Pod"} 1`+"\n")
		wantGauges("without a CRD", false, ofCounts...)
		wantGauges("without a CRD", false, ofQueue("count")...)
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		testkit.Pass(time.Minute)
		wantGauges("with the CRD", true, ofCounts...)
		wantGauges("with the CRD", true, ofQueue("count")...)
		fixture.InstallCRD(f, nil)
		testkit.Pass(time.Minute)
		wantGauges("when the CRD is gone", false, ofCounts...)
	})
}

// The tour shows the bytes of a recording.
func TestTourShowsRealBytes(t *testing.T) {
	tour, err := os.ReadFile("docs/learn/tour.md")
	if err != nil {
		t.Fatal(err)
	}
	frame, err := os.ReadFile("testdata/transcripts/watch-added.pb")
	if err != nil {
		t.Fatal(err)
	}
	dumpLine := regexp.MustCompile(`(?m)^ *(00[0-9a-f]0)  ((?:[0-9a-f]{2} +)+)`)
	lines := dumpLine.FindAllStringSubmatch(string(tour), -1)
	for _, m := range lines {
		offset, err := strconv.ParseInt(m[1], 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		line, err := hex.DecodeString(strings.ReplaceAll(m[2], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(frame[offset:], line) {
			t.Errorf("% x is shown; the recording has % x", line, frame[offset:][:len(line)])
		}
	}
	testkit.WantBetween(t, "lines of bytes", len(lines), 3, 100)
	testkit.WantText(t, string(tour), fmt.Sprintf("%d bytes", len(frame)))
	events := 0
	err = object.NewDecoder(podKind("app")).Events(bytes.NewReader(frame), true, func(ev object.WatchEvent[*Pod]) error {
		events++
		p := ev.Object
		if ev.Type != "ADDED" || p.Key().String() != "default/web-0" ||
			p.UID() != "cc0c67d4-f651-49fc-b1ea-6eb2223f16f7" ||
			p.ResourceVersion() != "432" ||
			appOf(p) != "web" {
			t.Errorf("%+v", ev)
		}
		return nil
	})
	if err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Simulated time: a seed chooses the life of a cluster and its faults

// podcountSimulated returns what the simulation must know about podcount.
func podcountSimulated(seed uint64) sim.Options {
	return sim.Options{
		Program: func(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
			dial func(ctx context.Context, network, addr string) (net.Conn, error)) error {
			return run(ctx, args, getenv, stdout, stderr, dial)
		},
		Name: "podcount",
		Rerun: func(seed uint64, only sim.Steps) string {
			command := fmt.Sprintf("make sim SEEDS=%d-%d", seed, seed)
			if only != nil {
				command += " ONLY=" + only.String()
			}
			return command + " runs the same life and faults; STORY=all shows the whole story"
		},
		Seed:                 seed,
		WholeStory:           os.Getenv("STORY") == "all",
		TotalLabel:           suite.TotalLabel,
		OwnPodsLabel:         "hopegi/here",
		ControlPlaneLabel:    suite.ControlPlane,
		LeaseNamespace:       suite.LeaseKey.Namespace,
		LeaseName:            suite.LeaseKey.Name,
		LeaseLost:            "the lease is lost",
		LongestBackoff:       time.Minute,
		LongestDiscovery:     presence.Interval * 6 / 5,
		Silence:              kube.Silence,
		LongestUnlisted:      75 * time.Minute,
		HTTP2Silence:         45 * time.Second,
		LongestOldCredential: time.Minute,
		MinStatusInterval:    time.Second,
		LongestQuestion:      position.QuestionTimeout,
	}
}

// TestSimulation runs as many seeds as it can in 15 s, or four under the race detector. These variables change that:
//   - SEEDS=N runs the seeds from 1 to N, and SEEDS=A-B those from A to B.
//   - ONLY=3,8,20-24 leaves out all other steps of each seed.
//   - SHRINK=5m is how long it looks for the shortest story of a seed that fails; 0 means not at all.
//   - TRACE=FILE writes a page that replays the seed. It needs SEEDS with only one seed.
func TestSimulation(t *testing.T) {
	seeds := sim.Seeds{First: 1, Last: math.MaxInt64, Limit: 15 * time.Second}
	if testkit.IsRaced() {
		seeds = sim.Seeds{First: 21, Last: 24}
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		seeds, err = sim.ParseSeeds(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	seeds.Shrink = time.Minute
	if text := os.Getenv("SHRINK"); text != "" {
		var err error
		seeds.Shrink, err = time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	simulated := podcountSimulated(0)
	if text := os.Getenv("ONLY"); text != "" {
		var err error
		simulated.Only, err = sim.ParseSteps(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	file := os.Getenv("TRACE")
	hasSeeds := os.Getenv("SEEDS") != ""
	if file != "" && hasSeeds {
		simulated.Recording = recording()
		simulated.Recording.Keep = func(history sim.History) error { return writeHistory(file, history) }
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(800)) // less time for garbage collection, more for seeds
	}
	sim.RunSeeds(t, simulated, seeds)
}

// recording returns a recording of podcount's trace, which keeps nothing.
func recording() *sim.Recording {
	return &sim.Recording{Attach: func(ctx context.Context, emit func(json.RawMessage)) context.Context {
		steps := new(trace.Trace)
		steps.Listen(func(s trace.Step) { emit(encodeStep(s)) })
		return trace.NewContext(ctx, steps)
	}}
}

// encodeStep returns a step as JSON.
func encodeStep(s trace.Step) json.RawMessage {
	text, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return text
}

// writeHistory writes a page with the history of a seed to a file.
func writeHistory(file string, history sim.History) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	err = errors.Join(replay.Write(f, page.HTML, history), f.Close())
	if err == nil {
		fmt.Printf("%s replays the %d steps of %s\n", file, len(history.Steps), history.Title)
	}
	return err
}

// TestFilms records the films of the page's gallery, and checks what they show. FILMS=DIR keeps them in a directory.
func TestFilms(t *testing.T) {
	skipUnderTheRaceDetector(t)
	simulated := podcountSimulated(0)
	simulated.Recording = recording()
	films.Check(t, simulated, cmp.Or(os.Getenv("FILMS"), t.TempDir()))
}

// TestSweep runs a sample of the sweep. CASE=all runs all cases, and CASE=TEXT those whose name contains the text.
func TestSweep(t *testing.T) {
	sweep := sim.Sweep{
		Options:   podcountSimulated(0),
		Every:     53,
		RerunCase: func(name string) string { return fmt.Sprintf("make sweep CASE='%s' runs this case again", name) },
	}
	if testkit.IsRaced() {
		sweep.Every = 997
	}
	text := os.Getenv("CASE")
	if text != "" {
		sweep.Every = 1
	}
	if text != "all" {
		sweep.Only = text
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(800)) // less time for garbage collection, more for cases
	}
	sim.RunSweep(t, sweep)
}

// skipUnderTheRaceDetector skips a test of the simulation itself. TestSimulation runs the same code of podcount.
func skipUnderTheRaceDetector(t *testing.T) {
	if testkit.IsRaced() {
		t.Skip("it takes too long under the race detector")
	}
}

func TestSimulationReadsTheLog(t *testing.T) {
	skipUnderTheRaceDetector(t)
	sim.CheckWording(t, podcountSimulated(5))
}

func TestMemoryIsBackAtEachCalm(t *testing.T) {
	skipUnderTheRaceDetector(t) // which also needs memory of its own
	const allowance = 60_000    // bytes for each process: 1.6 times the most that grew in the runs that set it
	for _, seed := range []uint64{13, 23} {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { sim.CheckMemory(t, podcountSimulated(seed), allowance) })
	}
}

func TestSeedsAreRepeatable(t *testing.T) {
	skipUnderTheRaceDetector(t)
	sim.CheckSeeds(t, podcountSimulated(0))
}

// TestRates shows that podcount survives faults that last for minutes, and let some requests through all that time.
func TestRates(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800)) // as in TestSimulation
	sim.CheckRates(t, podcountSimulated(0))
}

// TestCrowdRecovers runs 50 podcounts that share one API server, or as many as CROWD says. 1,000 of them need 63 s of
// CPU time and 1.5 GB.
//
// Each of the 200 pods stands for 500: a list of 100,000 pods costs a real server 1.5 to 1.9 s of CPU time, and a small
// request 1 to 3 ms. As that is CPU time, the seats are processors: 16 for 1,000 podcounts, and fewer for fewer.
func TestCrowdRecovers(t *testing.T) {
	processes := 50
	if text := os.Getenv("CROWD"); text != "" {
		var err error
		processes, err = strconv.Atoi(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	sim.CheckCrowd(t, podcountSimulated(0), sim.Crowd{
		Processes: processes,
		Capacity: fakekube.Capacity{
			Seats:      max(1, processes*16/1000),
			Queue:      processes * 300 / 1000,
			MaxWait:    15 * time.Second,
			PerRequest: 2 * time.Millisecond,
			PerObject:  1700 * time.Millisecond / sim.CrowdPods,
		},
		MaxMeanLists: 20,
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Behaviours: what holds on the fake holds on a real cluster

func TestBehavioursOnTheFake(t *testing.T) {
	f := fakekube.New()
	server, ca := fixture.Listen(t, f)
	f.Allow("admin")
	f.Compact()
	file := filepath.Join(t.TempDir(), "config")
	config := fakekube.Kubeconfig(server, ca, "token: admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	behaviours.Show(t, behaviours.Options{Fake: f, Kubeconfig: file, Program: run})
}

// TestBehavioursOnARealCluster is what `make e2e KUBECONFIG=FILE` runs.
func TestBehavioursOnARealCluster(t *testing.T) {
	if os.Getenv("PODCOUNT_E2E") == "" {
		t.Skip("needs a cluster: make e2e KUBECONFIG=FILE")
	}
	behaviours.Show(t, behaviours.Options{
		Kubeconfig: os.Getenv("KUBECONFIG"),
		Context:    os.Getenv("CONTEXT"),
		Program:    run,
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The trial: what happens to controllers in real clusters

// onTrial is podcount as the trial starts it. Its usual -interval of 10 s would only make the trial longer.
var onTrial = trial.Program{
	UsesKubeconfig: true,
	Elects:         true,
	Run: func(ctx context.Context, c trial.Cluster) error {
		args := []string{"-kubeconfig", c.Kubeconfig, "-total-label", c.Label, "-interval", "1s"}
		if namespace, name, elects := strings.Cut(c.Lease, "/"); elects {
			args = append(args, "-leader-elect",
				"-leader-elect-resource-namespace", namespace, "-leader-elect-resource-name", name)
		}
		return run(ctx, args, suite.NoEnv, io.Discard, io.Discard, c.Dial)
	},
}

func TestTrial(t *testing.T) { trial.Run(t, onTrial) }

// TestTrialOnARealCluster is what `make e2e KUBECONFIG=FILE` runs, too.
func TestTrialOnARealCluster(t *testing.T) {
	if os.Getenv("PODCOUNT_E2E") == "" {
		t.Skip("needs a cluster: make e2e KUBECONFIG=FILE")
	}
	trial.RunAll(t, onTrial, trial.Options{Kubeconfig: os.Getenv("KUBECONFIG"), Context: os.Getenv("CONTEXT")})
}

// ---------------------------------------------------------------------------------------------------------------------
// Benchmarks

func BenchmarkStartToLabel(b *testing.B) {
	for _, pods := range []int{10000, 100000} {
		for _, wire := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", wire, pods), func(b *testing.B) {
				c := &suite.Crowd{Pods: pods, Nodes: 1000}
				args := append(c.Serve(b), "-wire", wire)
				b.ReportAllocs()
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					done := make(chan error)
					go func() { done <- run(ctx, args, suite.NoEnv, io.Discard, io.Discard, nil) }()
					if total := <-c.Patched; total != strconv.Itoa(pods) {
						b.Fatal(total)
					}
					cancel()
					<-done
				}
			})
		}
	}
}

// The most memory that the program has had, with 400,000 pods.
func BenchmarkPeakMemory(b *testing.B) {
	program := filepath.Join(b.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				big := &suite.Crowd{Pods: 400000, Nodes: 1000, Labels: c.labels}
				cmd := exec.Command(program, big.Serve(b)...)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				if total := <-big.Patched; total != "400000" {
					b.Fatal(total)
				}
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				cmd.Process.Kill()
				cmd.Wait()
				peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
				if peak == nil {
					b.Skip("memory is read from /proc")
				}
				kB, _ := strconv.Atoi(string(peak[1]))
				b.ReportMetric(float64(kB)/1000, "MB")
			}
		})
	}
}
