package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
	"podcount/internal/run/options"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
	"podcount/internal/view/trace"
	"podcount/internal/watch/audit"
	"podcount/internal/watch/ending"
	"podcount/internal/watch/pages"
	"podcount/internal/watch/position"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/protobuf"
	"podcount/lab/suite"
	"podcount/lab/testkit"
)

// listOfPods and watchOfPods select the requests that a fault meets.
var (
	listOfPods  = fakekube.Requests{Verb: "list", Resource: "pods"}
	watchOfPods = fakekube.Requests{Verb: "watch", Resource: "pods"}
)

// podLists returns the requests for lists of pods so far.
func podLists(f *fakekube.Server) []fakekube.Request {
	return fixture.Requests(f, suite.IsList("pods"))
}

// podWatches returns the requests for watches of pods so far.
func podWatches(f *fakekube.Server) []fakekube.Request {
	return fixture.Requests(f, fixture.IsWatch("pods"))
}

// watchVersions returns the resourceVersions at which the watches of pods have started so far.
func watchVersions(f *fakekube.Server) (versions []string) {
	for _, request := range podWatches(f) {
		versions = append(versions, request.Query.Get("resourceVersion"))
	}
	return versions
}

// testReflector is a running reflector of pods that records what it does.
type testReflector struct {
	*Reflector[*Pod]
	perNode *NumberIndex[*Pod]
	net     *fakekube.Network
	log     *testkit.Buffer

	// deltas has an entry for each change: "+NAME" for an added pod, "~NAME" for an updated one, "-NAME" for a
	// removed one.
	deltas []string
}

// pod returns a pod of the namespace default from the store, or nil.
func (r *testReflector) pod(name string) *Pod { return r.Get(Key{Namespace: "default", Name: name}) }

// newServerBackoff makes the backoff of a reflector that alone asks its server.
func newServerBackoff() *retry.Shared {
	return retry.NewShared(retry.SharedOptions{
		Base:      ending.InitialBackoff,
		Limit:     ending.MaxBackoff,
		OnFailure: func(error) {},
		OnOver:    func() {},
	})
}

// newPodCache makes a reflector of pods with a store of its own.
func newPodCache(client *kube.Client, log *slog.Logger, kind object.Kind[*Pod]) *Reflector[*Pod] {
	return NewReflector(ReflectorOptions[*Pod]{
		Sinks:         observe.Sinks{Log: log, Metrics: metrics.NewRegistry(), Trace: new(trace.Trace)},
		Client:        client,
		Kind:          kind,
		Store:         NewStore[*Pod](),
		ServerBackoff: newServerBackoff(),
		Restores:      &position.Restores{},
		ServerOutage:  logging.NewServerOutage(log, kube.IsUnanswered, nil),
	})
}

// reflectPods starts a reflector of the fake's pods, which runs until the test ends. It calls prepare before that.
func reflectPods(t *testing.T, f *fakekube.Server, prepare ...func(*testReflector)) *testReflector {
	kind := *podKind()
	kind.Protobuf = true
	return startReflector(t, f, kind, prepare...)
}

// reflectCounts is reflectPods for Counts, whose CRD may come and go. As pods, they have only metadata.
func reflectCounts(t *testing.T, f *fakekube.Server, prepare ...func(*testReflector)) *testReflector {
	return startReflector(t, f, object.Kind[*Pod]{
		Name:     "Count",
		API:      "/apis/demo.mark8s.io/v1",
		Resource: "counts",
		New:      func() *Pod { return new(Pod) },
	}, prepare...)
}

func startReflector(
	t *testing.T, f *fakekube.Server, kind object.Kind[*Pod], prepare ...func(*testReflector),
) *testReflector {
	r := &testReflector{net: fixture.Network(t, f), log: &testkit.Buffer{}}
	log := newLog(r.log, slog.Level(-6))
	client := newAnonymousClient(r.net.Dial, log)
	r.Reflector = newPodCache(client, log, kind)
	r.perNode = NumberBy(r.store, nodeKeyOf)
	r.Subscribe(r.recordDelta)
	for _, change := range prepare {
		change(r)
	}

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	synctest.Wait()
	return r
}

// newAnonymousClient returns a client without a credential. The caller must close it.
func newAnonymousClient(dial kube.Dialer, log *slog.Logger) *kube.Client {
	server := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	config := &kubeconfig.Config{Server: server, Credential: noCredential}
	return newClient(&options.Options{}, config, dial, observe.NewSinks(log, nil))
}

func (r *testReflector) recordDelta(d Delta[*Pod]) {
	switch {
	case d.Old == nil:
		r.deltas = append(r.deltas, "+"+d.New.Key().Name)
	case d.New == nil:
		r.deltas = append(r.deltas, "-"+d.Old.Key().Name)
	default:
		r.deltas = append(r.deltas, "~"+d.New.Key().Name)
	}
}

// dropsNothing says that the server has kept all of a patch.
func dropsNothing(*Pod) []string { return nil }

// wantInSync fails the test unless the store holds the same pods as the fake.
func (r *testReflector) wantInSync(t *testing.T, f *fakekube.Server) {
	t.Helper()
	var got, want []string
	for _, pod := range r.All() {
		got = append(got, fmt.Sprintf("%s %s on %q", pod.Key(), pod.UID(), pod.NodeName))
	}
	for _, pod := range f.All("pods") {
		uid := fakekube.TextIn(fakekube.MetaOf(pod), "uid")
		node := fakekube.TextIn(pod["spec"].(fakekube.Object), "nodeName")
		want = append(want, fmt.Sprintf("%s %s on %q", fakekube.KeyOf(pod), uid, node))
	}
	slices.Sort(got)
	slices.Sort(want)
	testkit.WantEqual(t, "pods in the store", got, want)
}

func TestWatchFollowsTheListAndAppliesEvents(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		r := reflectPods(t, f)
		r.wantInSync(t, f)
		f.AddPod("default", "new", "")
		synctest.Wait()
		f.AddPod("default", "new", "n1") // binds the pod to a node
		f.Remove("pods", suite.At("default", "web-0"))
		synctest.Wait()
		r.wantInSync(t, f)
		testkit.WantEqual(t, "deltas", r.deltas, []string{"+new", "~new", "-web-0"})
		testkit.WantNumber(t, "count of n1", r.perNode.Number(Key{Name: "n1"}), 1)

		watch := podWatches(f)[0].Query
		seconds, _ := strconv.Atoi(watch.Get("timeoutSeconds"))
		testkit.WantBetween(t, "timeoutSeconds of the watch", seconds, 300, 599)
		testkit.WantEqual(t, "allowWatchBookmarks of the watch", watch.Get("allowWatchBookmarks"), "true")
		if watch.Get("resourceVersion") == "" {
			t.Errorf("the watch has no resourceVersion: %v", watch)
		}
		testkit.WantNumber(t, "parameters of the list", len(podLists(f)[0].Query), 0)
	})
}

func TestEndedWatchIsResumedWithoutARelist(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1)
		r := reflectPods(t, f)
		testkit.Pass(10 * time.Second)
		last := fakekube.TextIn(fakekube.MetaOf(f.AddPod("default", "a", "")), "resourceVersion")
		testkit.Pass(10 * time.Second)
		f.AddNode("another-kind-raises-the-version")
		f.EndWatches()
		synctest.Wait() // the watch resumes before any time passes
		versions := watchVersions(f)
		if len(versions) != 2 || versions[1] != last {
			t.Errorf("watches start at %q, want the second at %s", versions, last)
		}
		f.Remove("pods", suite.At("default", "a"))
		testkit.Pass(11 * time.Minute) // longer than the timeout of any watch
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		watches := podWatches(f)
		if len(watches) < 3 {
			t.Fatalf("watches start at %q, want at least three", watchVersions(f))
		}
		timeout, _ := strconv.Atoi(watches[1].Query.Get("timeoutSeconds"))
		lasted := watches[2].At.Sub(watches[1].At)
		testkit.WantEqual(t, "time until the watch is resumed", lasted, time.Duration(timeout)*time.Second)
		r.wantInSync(t, f)
	})
}

// The watches of many replicas begin together when the server restarts. They must not end together.
func TestWatchesAskForDifferentTimes(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		reflectPods(t, f)
		testkit.Pass(2 * time.Hour)
		times := map[string]bool{}
		for _, watch := range podWatches(f) {
			times[watch.Query.Get("timeoutSeconds")] = true
		}
		// There are 12 watches or more, and 300 times to choose from.
		testkit.WantBetween(t, "different times", len(times), 6, len(podWatches(f)))
	})
}

func TestBookmarkMovesTheResumePointAndNothingElse(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1)
		r := reflectPods(t, f)
		f.AddNode("n") // only a bookmark sends this version to the watch of pods
		latest := strconv.Itoa(f.Latest())
		testkit.Pass(11 * time.Minute)
		versions := watchVersions(f)
		if len(versions) < 2 || versions[1] != latest {
			t.Errorf("watches start at %q, want the second at %s", versions, latest)
		}
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		testkit.WantNumber(t, "deltas", len(r.deltas), 0)
		r.wantInSync(t, f)
	})
}

func TestBrokenConnectionIsResumedWithoutARelist(t *testing.T) {
	for _, mediaType := range []string{wire.Protobuf, wire.JSON} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.OnlyMediaType = mediaType
			f.Script(t, "watch pods: cut after 100 bytes")
			r := reflectPods(t, f)
			testkit.Pass(2 * time.Second)
			f.AddPod("default", "half-an-object", "") // the connection breaks in the middle of this event
			testkit.Pass(5 * time.Second)
			r.wantInSync(t, f)
			testkit.WantNumber(t, "lists", len(podLists(f)), 1)
			testkit.WantNumber(t, "watches", len(podWatches(f)), 2)
		})
	}
}

func TestExpiredVersionIsAnsweredByARelist(t *testing.T) {
	expired, _ := json.Marshal(fakekube.Status(410, "Expired", "too old resource version: 1 (2)", nil))
	gone, _ := json.Marshal(fakekube.Status(410, "Gone", "too old resource version", nil))
	for _, row := range []struct {
		name string
		do   fakekube.Effect // nil: the fake itself ends the watch with a 410 in the stream
	}{
		{"in the stream, by the server itself", nil},
		{"in the stream, reason Gone", fakekube.Reply{Body: jsonEvent("ERROR", string(gone))}},
		{"as the HTTP status", fakekube.Reply{Code: 410, Body: string(expired)}},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.AddPods(f, 3)
				if row.do != nil {
					f.Inject(t, fakekube.Fault{On: watchOfPods, Do: row.do})
				}
				r := reflectPods(t, f)
				if row.do == nil {
					r.net.Refuse()
					f.BreakWatches()
				}
				f.Remove("pods", suite.At("default", "web-0"))
				f.AddPod("default", "new", "")
				f.Compact()
				r.net.Restore()
				testkit.Pass(30 * time.Second)

				r.wantInSync(t, f)
				testkit.WantNumber(t, "lists", len(podLists(f)), 2)
				slices.Sort(r.deltas)
				testkit.WantEqual(t, "deltas", r.deltas, []string{"+new", "-web-0"})
			})
		})
	}
}

// jsonEvent returns a watch event about an object in JSON.
func jsonEvent(eventType, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, eventType, object)
}

func TestRelistHasABackoffOfItsOwn(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		r.net.Refuse()
		f.BreakWatches()
		testkit.Pass(5 * time.Minute)
		fixture.AddPods(f, 1)
		f.Compact() // like a restart of the server
		r.net.Restore()
		before := len(podWatches(f))
		for len(podWatches(f)) == before {
			testkit.Pass(time.Second)
		}
		testkit.Pass(2 * ending.InitialBackoff)
		r.wantInSync(t, f)
	})
}

func TestTraceShowsFramesWithTheirBytesAndThenTheChanges(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		var steps []string
		r.report.Trace.Listen(func(s trace.Step) {
			if s.Point == trace.LogLine {
				return
			}
			testkit.WantNumber(t, "bytes before somebody has masked them", len(s.Bytes), 0)
			hasName := bytes.Contains(s.Masked().Bytes, []byte("seen"))
			step := fmt.Sprintf("%s %s %s %s", s.Point, s.Kind, s.Type, s.Key)
			steps = append(steps, fmt.Sprintf("%s, bytes with its name: %v", step, hasName))
		})
		f.AddPod("default", "seen", "n1")
		synctest.Wait()
		testkit.WantEqual(t, "the steps", steps, []string{
			"frame Pod ADDED default/seen, bytes with its name: true",
			"change Pod added default/seen, bytes with its name: false",
		})
	})
}

func TestStateTellsHowTheLastWatchHasEndedAndWhatFails(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(time.Minute) // Otherwise the watch would count as short.
		if state := r.State(); state.LastWatch != nil || state.Problem != nil {
			t.Errorf("before anything has failed: %+v", state)
		}
		f.Inject(t, suite.StatusFault(watchOfPods, 1, 503, "ServiceUnavailable", nil))
		f.EndWatches()
		testkit.Pass(100 * time.Millisecond)
		state := r.State()
		testkit.WantEqual(t, "the outcome", state.LastWatch.Outcome, "unavailable")
		testkit.WantText(t, state.Problem.Text, "cannot watch: ", "503")
		testkit.Pass(time.Minute)
		if problem := r.State().Problem; problem != nil {
			t.Errorf("after the outage: %+v", problem)
		}
	})
}

func TestExpiredVersionIsNotRetriedInAHotLoop(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, suite.StatusFault(watchOfPods, 20, 410, "Expired", nil))
		reflectPods(t, f)
		testkit.Pass(2 * time.Minute)
		testkit.WantBetween(t, "lists in two minutes of 410s", len(podLists(f)), 4, 12)
		testkit.Pass(20 * time.Minute)
	})
}

func TestRefusedWatchBacksOffAndKeepsItsVersion(t *testing.T) {
	tooMany := fakekube.Reply{
		Code:   429,
		Header: map[string]string{"Content-Type": "text/plain", "Retry-After": "1"},
		Body:   "Too many requests",
	}
	tooManyInStream := fakekube.Reply{
		Body: jsonEvent("ERROR", `{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429}`),
	}
	page := fakekube.Reply{Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}
	const first = ending.InitialBackoff
	backoffs := []time.Duration{first, 2 * first, 4 * first, 8 * first}
	asked := []time.Duration{time.Second, time.Second, time.Second, time.Second} // the first backoff is no longer
	for _, row := range []struct {
		name     string
		do       fakekube.Effect
		shortest []time.Duration // the delays, without their jitter of up to as much again
	}{
		{"429 with Retry-After, plain text", tooMany, asked},
		{"429 in the stream", tooManyInStream, backoffs},
		{"500", fakekube.Reply{Code: 500, Body: "{}"}, backoffs},
		{"a page that is no JSON", page, backoffs},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.Inject(t, fakekube.Fault{On: watchOfPods, Times: 4, Do: row.do})
				r := reflectPods(t, f)
				testkit.Pass(time.Minute)
				testkit.WantNumber(t, "lists", len(podLists(f)), 1)
				fixture.AddPods(f, 1)
				synctest.Wait()
				r.wantInSync(t, f)

				watches := podWatches(f)
				testkit.WantNumber(t, "watches", len(watches), 5)
				for i, shortest := range row.shortest {
					delay := watches[i+1].At.Sub(watches[i].At)
					testkit.WantBetween(t, fmt.Sprintf("delay of retry %d", i+1), delay, shortest, 2*shortest)
				}
			})
		})
	}
}

// After many failures, a backoff takes half a minute. Once watches work again, it must not stay near that.
func TestBackoffBeginsAgainOnceWatchesWork(t *testing.T) {
	for _, refusal := range []string{"500", "410"} {
		t.Run(refusal, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.Script(t, "watch pods, 6 times: refuse "+refusal)
				reflectPods(t, f)
				testkit.Pass(2 * time.Minute) // the six backoffs
				fixture.AddPods(f, 1)
				testkit.Pass(ending.ResetAfter)
				f.Script(t, "watch pods: refuse "+refusal)
				f.EndWatches()
				testkit.Pass(time.Minute)
				watches := podWatches(f)
				last := len(watches) - 1
				testkit.WantBetween(t, "the backoff", watches[last].At.Sub(watches[last-1].At),
					ending.InitialBackoff, 2*ending.InitialBackoff)
			})
		})
	}
}

// A server that is back after an outage may have forgotten the version, and ask for patience.
func TestExpiredWatchAfterAnOutageHonoursRetryAfter(t *testing.T) {
	for range 8 { // because of the jitter
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			p := podcount.Start(t, f, "-controllers", "pod-count")
			testkit.Pass(time.Minute)
			p.Net.Kill()
			testkit.Pass(2 * time.Minute)
			f.Script(t, "watch pods: refuse 410 retry-after 60s")
			p.Net.Restore()
			suite.MeetFaults(t, f)
			testkit.Pass(58 * time.Second)
			testkit.WantNumber(t, "lists before the time is over", len(podLists(f)), 1)
			testkit.Pass(20 * time.Second)
			testkit.WantNumber(t, "lists after that", len(podLists(f)), 2)
		})
	}
}

// An alert leaves out the reasons start and hour.
func TestRelistIsCountedWithItsReason(t *testing.T) {
	failed := jsonEvent("ERROR", `{"kind":"Status","status":"Failure","reason":"StorageReadError","code":500}`)
	expiredWithoutCode := jsonEvent("ERROR", `{"kind":"Status","status":"Failure","reason":"Expired"}`)
	for _, row := range []struct {
		reason string
		times  int
		do     fakekube.Effect // on the first watches
	}{
		{"expired", 1, fakekube.Reply{Code: 410, Body: "{}"}},
		{"expired", 1, fakekube.Reply{Body: expiredWithoutCode}},
		{"refused", 1, fakekube.Reply{Code: 400, Body: "{}"}},
		{"error", 2, fakekube.Reply{Body: failed}},
		{"garbage", 2, fakekube.Reply{Body: "}{"}},
		{"silence", 2, fakekube.Stall{}},
		{"short", 3, fakekube.Reply{Body: "\n"}},
	} {
		t.Run(row.reason, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.Inject(t, fakekube.Fault{On: watchOfPods, Times: row.times, Do: row.do})
				r := reflectPods(t, f)
				testkit.Pass(3 * kube.Silence)
				testkit.WantNumber(t, "lists", len(podLists(f)), 2)
				testkit.WantText(t, r.report.Metrics.Text(),
					`podcount_relists_total{kind="Pod",reason="start"} 1`+"\n",
					fmt.Sprintf("podcount_relists_total{kind=%q,reason=%q} 1\n", "Pod", row.reason))
			})
		})
	}
}

// isVersionQuestion reports whether a request only asks for the newest version.
func isVersionQuestion(q fakekube.Request) bool {
	return fixture.IsList("pods")(q) && q.Query.Get("limit") == "1"
}

// versionQuestions returns the requests that only asked for the newest version so far.
func versionQuestions(f *fakekube.Server) []fakekube.Request {
	return fixture.Requests(f, isVersionQuestion)
}

// A server that refuses a watch was not away, so it has not been restored from a backup meanwhile.
func TestRefusedWatchIsNoReasonForAQuestion(t *testing.T) {
	for _, refusal := range []string{"401", "403", "404", "429"} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.Script(t, "watch pods, 3 times: refuse "+refusal)
			r := reflectPods(t, f)
			testkit.Pass(time.Minute)
			testkit.WantNumber(t, refusal+": questions", len(versionQuestions(f)), 0)
			testkit.WantNumber(t, refusal+": lists", len(podLists(f)), 1)
			r.wantInSync(t, f)
		})
	}
}

// After an outage, the reflector asks the server for its newest version once a watch is open. This question must not
// delay the watch, whatever its answer is.
func TestReturningServerIsAskedForItsNewestVersion(t *testing.T) {
	for _, row := range []struct {
		name string
		code int // the answer to the question for the version, or 0 for a normal answer
	}{
		{"and answers", 0},
		{"and refuses", 403},
		{"and fails", 500},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddPod("default", "a", "")
				r := reflectPods(t, f)
				outage := f.Inject(t, suite.StatusFault(watchOfPods, fakekube.Always, 503, "ServiceUnavailable", nil))
				if row.code != 0 {
					questions := fakekube.Requests{If: isVersionQuestion}
					refusal := f.Inject(t, suite.StatusFault(questions, fakekube.Always, row.code, "", nil))
					defer refusal.Lift()
				}
				f.BreakWatches()
				testkit.Pass(5 * time.Minute)
				testkit.WantNumber(t, "questions while watches fail", len(versionQuestions(f)), 0)

				outage.Lift()
				testkit.Pass(time.Minute + time.Second)
				testkit.WantNumber(t, "questions", len(versionQuestions(f)), 1)
				f.AddPod("default", "b", "")
				synctest.Wait()
				r.wantInSync(t, f)
				testkit.WantNumber(t, "lists", len(podLists(f)), 1)
			})
		})
	}
}

func TestRefusedConnectionBacksOff(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		r.net.Refuse()
		f.BreakWatches()
		before := r.net.Dialed()
		testkit.Pass(10 * time.Minute)
		testkit.WantBetween(t, "dials in ten minutes", r.net.Dialed()-before, 10, 25)
		testkit.WantBetween(t, "warnings in ten minutes", strings.Count(r.log.String(), "level=WARN"), 0, 11)
		fixture.AddPods(f, 1)
		testkit.WantNumber(t, "watches during the outage", len(podWatches(f)), 1)
		r.net.Restore()
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "watches after the outage", len(podWatches(f)), 2)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

func TestWatchThatRepeatsAnEventIsNoHotLoop(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1)
		known, _ := json.Marshal(podNamed(f, "web-0"))
		f.Inject(t, fakekube.Fault{
			On:    watchOfPods,
			Times: 5,
			Do:    fakekube.Reply{Body: jsonEvent("ADDED", string(known))},
		})
		reflectPods(t, f)
		testkit.WantNumber(t, "watches at once", len(podWatches(f)), 1)
		testkit.Pass(5 * time.Minute)
	})
}

func TestGarbageTwiceInARowLeadsToARelist(t *testing.T) {
	for _, row := range garbage() {
		t.Run(row.name, func(t *testing.T) {
			for garbled, lists := range map[int]int{1: 1, 2: 2} {
				suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
					f.Inject(t, fakekube.Fault{
						On:    watchOfPods,
						Times: garbled,
						Do:    fakekube.Reply{Header: row.header, Body: row.body},
					})
					r := reflectPods(t, f)
					testkit.Pass(time.Minute)
					testkit.WantNumber(t, fmt.Sprintf("lists after %d garbled watches", garbled),
						len(podLists(f)), lists)
					fixture.AddPods(f, 1)
					synctest.Wait()
					r.wantInSync(t, f)
				})
			}
		})
	}
}

// garbageRow is a watch's answer that is not a sequence of valid events.
type garbageRow struct {
	name   string
	header map[string]string
	body   string
}

// protobufWatch is the header of a watch in protobuf.
var protobufWatch = map[string]string{"Content-Type": wire.Protobuf + ";stream=watch"}

func garbage() []garbageRow {
	const (
		pod = `{"kind":"Pod","apiVersion":"v1",` +
			`"metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"999"}}`
		podWithoutUID    = `{"kind":"Pod","metadata":{"name":"x","resourceVersion":"999"}}`
		podWithoutFields = `{"kind":"Pod","metadata":{}}`
		emptyStatus      = `{"kind":"Status"}`
		failure          = `{"kind":"Status","status":"Failure","reason":"StorageReadError","code":500}`
	)
	inProtobuf := func(eventType, object string) string {
		return string(protobuf.Event(eventType, fakekube.Protobuf([]byte(object))))
	}
	return []garbageRow{
		{"no JSON", nil, "}{"},
		{"half an object", nil, `{"type":"ADDED","object":{"metadata":{"name":"x"`},
		{"an unknown type", nil, jsonEvent("MOVED", pod)},
		{"no uid", nil, jsonEvent("ADDED", podWithoutUID)},
		{"half a frame", nil, `{"type":"ADDED",`},
		{"a frame not closed", nil, strings.TrimSuffix(jsonEvent("ADDED", pod), "}")},
		{"no type", nil, `{"object":` + pod + `,"Type":"ADDED"}`},
		{"an ERROR without a status", nil, jsonEvent("ERROR", `{}`)},
		{"a bookmark without a version", nil, jsonEvent("BOOKMARK", `{"metadata":{}}`)},
		{"an ERROR", nil, jsonEvent("ERROR", failure)},

		{"half a length", protobufWatch, "\x00\x00"},
		{"half a protobuf frame", protobufWatch, inProtobuf("ADDED", pod)[:60]},
		{"a frame of 4 GB", protobufWatch, "\xff\xff\xff\xff"},
		{"an empty frame", protobufWatch, "\x00\x00\x00\x00"},
		{"an unknown type in protobuf", protobufWatch, inProtobuf("MOVED", pod)},
		{"a protobuf frame without its magic", protobufWatch, string(protobuf.Event("ADDED", []byte(pod)))},
		{"no uid in protobuf", protobufWatch, inProtobuf("ADDED", podWithoutUID)},
		{"an ERROR without a status in protobuf", protobufWatch, inProtobuf("ERROR", emptyStatus)},
		{"a bookmark without a version in protobuf", protobufWatch, inProtobuf("BOOKMARK", podWithoutFields)},
		{"an ERROR in protobuf", protobufWatch, inProtobuf("ERROR", failure)},
	}
}

func TestSilentWatchIsCutAndResumed(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, "watch pods: hang after 1 byte")
		r := reflectPods(t, f)
		fixture.AddPods(f, 1)
		testkit.Pass(kube.Silence - time.Second)
		testkit.WantNumber(t, "watches before the time limit", len(podWatches(f)), 1)
		testkit.Pass(2 * time.Second)
		testkit.WantNumber(t, "watches after the time limit", len(podWatches(f)), 2)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

// A server whose etcd was restored from an older snapshot sends nothing to a watch that starts at a later version.
func TestWatchFromTheFutureLeadsToARelist(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.SetVersion(5000)
		r := reflectPods(t, f)
		f.SetVersion(300)
		fixture.AddPods(f, 1)
		f.BreakWatches()
		testkit.Pass(3*kube.Silence + time.Minute)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 2)
	})
}

// wantRestoreNoticed brings back the network and the watches, and fails the test unless one list then repairs the
// store.
func (r *testReflector) wantRestoreNoticed(t *testing.T, f *fakekube.Server, refusal *fakekube.Injection) {
	t.Helper()
	testkit.Pass(time.Minute)
	refusal.Lift()
	r.net.Restore()
	testkit.Pass(time.Minute)
	testkit.WantText(t, r.report.Metrics.Text(), `podcount_relists_total{kind="Pod",reason="restored"} 1`)
	r.wantInSync(t, f)
}

// While no watch works, the answers to patches bring newer versions than the one that the next watch resumes from.
func TestRestoreWhileNoWatchWorksIsNoticedByTheVersionOfAnAnswer(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "")
		r := reflectPods(t, f)
		refusal := f.Script(t, "watch pods, always: refuse 503")[0]
		f.EndWatches()
		testkit.Pass(time.Minute)
		restore := f.Snapshot()
		f.AddNode("n") // The answer must be newer than the snapshot, and than what the watch resumes from.
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
		_, err := r.Patch(t.Context(), r.pod("p"), "", patch, dropsNothing)
		if err != nil {
			t.Fatal(err)
		}

		r.net.Refuse()
		f.BreakWatches()
		restore()
		r.wantRestoreNoticed(t, f, refusal)
	})
}

func TestHalfOpenConnectionIsNoticed(t *testing.T) {
	afterABookmark := 10 * time.Minute
	beforeABookmark := 10*time.Minute + 59*time.Second
	for _, protocol := range []struct {
		name    string
		start   func(testing.TB, *fakekube.Server, ...string) *suite.Process
		isHTTP2 bool
		limit   time.Duration // to notice the silence and to recover
	}{
		{"HTTP/2", podcount.StartOverTLS, true, 50 * time.Second},
		{"HTTP/1.1", podcount.Start, false, 155 * time.Second},
	} {
		for _, age := range []time.Duration{time.Second, afterABookmark, beforeABookmark} {
			t.Run(fmt.Sprint(protocol.name, " after ", age), func(t *testing.T) {
				suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
					f.AddNode("cp", suite.ControlPlane)
					p := protocol.start(t, f)
					testkit.Pass(age)
					silentSince := time.Now()
					p.Net.GoSilent()
					fixture.AddPods(f, 1)
					testkit.Pass(protocol.limit)
					suite.WantLabel(t, f, "cp", suite.TotalLabel, "1")
					for _, resource := range []string{"pods", "nodes"} {
						newWatches := fixture.Requests(f, func(request fakekube.Request) bool {
							return fixture.IsWatch(resource)(request) &&
								request.At.After(silentSince) &&
								request.HTTP2 == protocol.isHTTP2
						})
						testkit.WantNumber(t, "watches of "+resource+" since then", len(newWatches), 1)
						lists := fixture.Requests(f, suite.IsList(resource))
						testkit.WantNumber(t, "lists of "+resource, len(lists), 1)
					}
					fixture.SetLabel(f, "cp", suite.TotalLabel, "7")
					suite.WantPeace(t, f)
				})
			})
		}
	}
}

// A server that runs with --goaway-chance closes some connections to new requests. Running requests, such as watches,
// continue on them.
func TestConnectionThatTakesNoMoreRequestsCostsNoRelist(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		isDiscovery := func(request fakekube.Request) bool { return request.Path == "/apis/demo.mark8s.io/v1" }
		f.Inject(t, fakekube.Fault{
			On:    fakekube.Requests{If: isDiscovery},
			Times: 10,
			Do: fakekube.Reply{
				Code:   404,
				Header: map[string]string{"Connection": "close"},
				Body:   "404 page not found",
			},
		})
		p := podcount.StartOverTLS(t, f)
		liveADay(f, 1)
		suite.MeetFaults(t, f)
		liveADay(f, 2)
		suite.WantPeace(t, f)
		if n := p.Net.Dialed(); n < 10 {
			t.Errorf("only %d connections: the server did not shed them", n)
		}
		for _, resource := range []string{"pods", "nodes"} {
			testkit.WantNumber(t, "lists of "+resource, len(fixture.Requests(f, suite.IsList(resource))), 1)
			testkit.WantNumber(t, "watches of "+resource, len(fixture.Requests(f, fixture.IsWatch(resource))), 1)
		}
	})
}

func TestIdleConnectionsThatAreCutCauseNoRelists(t *testing.T) {
	for _, interval := range []time.Duration{1500 * time.Millisecond, 45 * time.Second} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			r := reflectPods(t, f)
			start := time.Now()
			for time.Since(start) < 10*time.Minute {
				testkit.Pass(interval)
				f.BreakWatches()
			}
			testkit.WantNumber(t, fmt.Sprintf("lists with a cut every %v", interval), len(podLists(f)), 1)
			fixture.AddPods(f, 1)
			synctest.Wait()
			r.wantInSync(t, f)
		})
	}
}

// untilAudit is more than audit.Interval with its jitter.
const untilAudit = 67 * time.Minute

// isAudit reports whether a request lists the pods at an exact version. Only the first page of an audit does.
func isAudit(q fakekube.Request) bool {
	return suite.IsList("pods")(q) && q.Query.Get("resourceVersionMatch") == "Exact"
}

// audits returns the lists at an exact version so far.
func audits(f *fakekube.Server) []fakekube.Request { return fixture.Requests(f, isAudit) }

// passUntilAudit lets time pass until the first audit has been requested, or should have been.
func passUntilAudit(f *fakekube.Server) {
	start := time.Now()
	for len(audits(f)) == 0 && time.Since(start) < untilAudit {
		testkit.Pass(time.Second)
	}
}

// wantAudits fails the test unless /metrics shows these results of audits, and this number of objects that differed.
// results has a line for each result, such as "clean 1".
func (r *testReflector) wantAudits(t *testing.T, drift int, results ...string) {
	t.Helper()
	page := r.report.Metrics.Text()
	testkit.WantText(t, page, fmt.Sprintf("podcount_cache_drift_total{kind=\"Pod\"} %d\n", drift))
	var got []string
	for _, found := range auditResult.FindAllStringSubmatch(page, -1) {
		got = append(got, found[1]+" "+found[2])
	}
	slices.Sort(got)
	testkit.WantEqual(t, "results of audits", got, results)
}

var auditResult = regexp.MustCompile(`(?m)^podcount_audits_total{kind="Pod",result="(.+)"} (.+)$`)

// The API server's cache lies about what it has lost, so a list without a version shows the same mistake:
// https://github.com/kubernetes/kubernetes/issues/123072.
func TestAuditFindsWhatTheServersCacheHasLost(t *testing.T) {
	for _, row := range []struct {
		name    string
		pod     string
		changes int // how many changes the server's cache loses
		change  func(f *fakekube.Server)
		example string // with CACHED and ACTUAL for the versions
		deltas  string
	}{
		{"an added pod", "web-9", 1, func(f *fakekube.Server) {
			f.AddPod("default", "web-9", "")
		}, "default/web-9 (cached none, actual ACTUAL)", "+web-9"},
		{"a changed pod", "web-1", 1, func(f *fakekube.Server) {
			f.Put("pods", onNode(podNamed(f, "web-1"), "n1"))
		}, "default/web-1 (cached CACHED, actual ACTUAL)", "~web-1"},
		{"a change of a field that is not kept", "web-1", 1, func(f *fakekube.Server) {
			f.Put("pods", withMeta(podNamed(f, "web-1"), "generateName", "web-"))
		}, "default/web-1 (cached CACHED, actual ACTUAL)", ""},
		{"a deleted pod", "web-1", 2, func(f *fakekube.Server) { // a pod's deletion is two changes
			f.Remove("pods", suite.At("default", "web-1"))
		}, "default/web-1 (cached CACHED, actual none)", "-web-1"},
		{"a recreated pod", "web-1", 3, func(f *fakekube.Server) {
			f.Remove("pods", suite.At("default", "web-1"))
			f.AddPod("default", "web-1", "n1")
		}, "default/web-1 (cached CACHED, actual ACTUAL)", "-web-1 +web-1"},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.AddPods(f, 3)
				r := reflectPods(t, f)
				f.Inject(t, fakekube.Fault{
					On: fakekube.Requests{Verb: "list|watch", Resource: "pods"},
					Do: fakekube.Lie{Changes: row.changes},
				})
				cached := versionOf(f, row.pod)
				row.change(f)
				testkit.Pass(untilAudit)
				r.wantInSync(t, f)
				testkit.WantEqual(t, "deltas", strings.Join(r.deltas, " "), row.deltas)
				r.wantAudits(t, 1, "drift 1")
				actual := versionOf(f, row.pod)
				example := strings.NewReplacer("CACHED", cached, "ACTUAL", actual).Replace(row.example)
				testkit.WantText(t, r.log.String(), "level=WARN", "objects=1", example)

				if len(audits(f)) != 1 {
					t.Fatalf("%d lists at an exact version, want 1", len(audits(f)))
				}
				audited := audits(f)[0].Query.Get("resourceVersion")
				watches := watchVersions(f)
				testkit.WantEqual(t, "version of the watch after the audit", watches[len(watches)-1], audited)
				testkit.Pass(untilAudit)
				r.wantAudits(t, 1, "clean 1", "drift 1")
				testkit.WantNumber(t, "lists without a version", len(podLists(f))-len(audits(f)), 1)
			})
		})
	}
}

// versionOf returns the resourceVersion of a pod of the namespace default, or "" if there is none.
func versionOf(f *fakekube.Server, pod string) string {
	return fakekube.TextIn(fakekube.MetaOf(podNamed(f, pod)), "resourceVersion")
}

func TestAuditOfAChangingClusterFindsNothing(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 3)
		r := reflectPods(t, f)
		f.Script(t, "list pods, 2 times: delay 20s") // the pods change meanwhile
		const pause = 10 * time.Second
		for i := range int(2 * untilAudit / pause) {
			f.AddPod("default", fmt.Sprint("web-", i%7), fmt.Sprint("n", i%3))
			f.Remove("pods", suite.At("default", fmt.Sprint("web-", i%5)))
			testkit.Pass(pause)
		}
		testkit.Pass(time.Minute)
		r.wantInSync(t, f)
		r.wantAudits(t, 0, "clean 2")
		testkit.WantNumber(t, "lists without a version", len(podLists(f))-len(audits(f)), 1)
	})
}

func TestAuditKeepsTheNewerAnswerToAPatch(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "")
		r := reflectPods(t, f)
		f.Script(t, "list pods: delay 10s")
		passUntilAudit(f)
		pod := r.pod("p")
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
		if _, err := r.Patch(t.Context(), pod, "", patch, dropsNothing); err != nil {
			t.Fatal(err)
		}
		patched := r.Get(pod.Key())
		f.Script(t, "watch pods: stall") // so that only the audit can have changed the store
		testkit.Pass(time.Minute)
		r.wantAudits(t, 0, "clean 1")
		version := r.pod("p").ResourceVersion()
		testkit.WantEqual(t, "version in the store", version, patched.ResourceVersion())
	})
}

func TestAuditThatTheServerCannotAnswerIsAList(t *testing.T) {
	refuse := func(code int, reason string) func(*fakekube.Server) fakekube.Fault {
		tooLarge := fakekube.Object{"causes": []any{fakekube.Object{"reason": "ResourceVersionTooLarge"}}}
		return func(*fakekube.Server) fakekube.Fault { return suite.StatusFault(listOfPods, 1, code, reason, tooLarge) }
	}
	ofTheFuture := func(*fakekube.Server) fakekube.Fault {
		const body = `{"kind":"Status","status":"Failure","code":500,` +
			`"message":"etcdserver: mvcc: required revision is a future revision"}`
		return fakekube.Fault{On: listOfPods, Do: fakekube.Reply{Code: 500, Body: body}}
	}
	ignoreTheVersion := func(f *fakekube.Server) fakekube.Fault {
		return fakekube.Fault{On: listOfPods, Do: answerWithoutAVersion(f, func(*http.Request) {})}
	}
	for _, row := range []struct {
		name  string
		fault func(*fakekube.Server) fakekube.Fault
		lists int // the audit and the list in its place; ignoreTheVersion makes one more of the audit
	}{
		{"the version is compacted", refuse(410, "Expired"), 2},
		{"the server lags", refuse(504, "Timeout"), 2},
		{"the server lags, and has an older version of Kubernetes", ofTheFuture, 2},
		{"exact versions are not supported", refuse(400, "BadRequest"), 2},
		{"exact versions are ignored", ignoreTheVersion, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.AddPods(f, 3)
				r := reflectPods(t, f)
				f.LoseEvents(1)
				f.AddPod("default", "lost", "")
				f.Inject(t, row.fault(f))
				testkit.Pass(untilAudit)
				r.wantInSync(t, f)
				r.wantAudits(t, 0, "skipped 1")
				testkit.WantText(t, r.report.Metrics.Text(), `podcount_relists_total{kind="Pod",reason="hour"} 1`)
				testkit.WantNumber(t, "lists after the first", len(podLists(f))-1, row.lists)
				testkit.Pass(untilAudit)
				r.wantAudits(t, 0, "clean 1", "skipped 1")
			})
		})
	}
}

func TestAuditThatFailsDoesNotStopTheWatch(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		f.Script(t, `list pods, 3 times: reply 503 body "overloaded"`)
		testkit.Pass(untilAudit)
		fixture.AddPods(f, 3)
		testkit.Pass(4 * ending.InitialBackoff) // An audit may just have failed.
		r.wantInSync(t, f)
		testkit.WantBetween(t, "lists: the first, and audits", len(podLists(f)), 2, 4)
		testkit.Pass(4*audit.RetryAfter + untilAudit)
		r.wantInSync(t, f)
		testkit.WantText(t, r.report.Metrics.Text(), `podcount_audits_total{kind="Pod",result="clean"}`)
	})
}

// Only a 504 of the API server itself can mean that it does not have the version yet.
func TestAuditThatAProxyCutsOffIsTriedAgain(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		f.Script(t, `list pods: reply 504 body "gateway timeout"`)
		testkit.Pass(untilAudit + 2*audit.RetryAfter)
		r.wantAudits(t, 0, "clean 1", "failed 1")
		testkit.WantNumber(t, "lists without a version", len(podLists(f))-len(audits(f)), 1)
	})
}

func TestListReplacesTheThirdAuditIfTwoHaveFailed(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 3)
		r := reflectPods(t, f)
		f.Inject(t, suite.StatusFault(fakekube.Requests{If: isAudit}, 2, 403, "Forbidden", nil))
		f.LoseEvents(1)
		f.AddPod("default", "lost", "")
		passUntilAudit(f)
		testkit.WantNumber(t, "pods after one failed audit", r.Len(), 3)
		testkit.Pass(4*audit.RetryAfter + time.Minute)
		r.wantInSync(t, f)
		r.wantAudits(t, 0, "failed 2", "skipped 1")
	})
}

func TestConfirmInterruptsAnAudit(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 3)
		r := reflectPods(t, f)
		f.Script(t, "list pods: stall")
		passUntilAudit(f)
		elected := time.Now()
		f.AddPod("default", "new", "")
		if err := r.Confirm(t.Context(), elected); err != nil {
			t.Fatal(err)
		}
		testkit.WantBetween(t, "time until the cache was confirmed", time.Since(elected), 0, 2*position.ConfirmPatience)
		r.wantInSync(t, f)
	})
}

func TestAuditThatIsCutOffChangesNothing(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 50)
		r := reflectPods(t, f)
		f.Script(t, "list pods: cut after 5000 bytes")
		testkit.Pass(untilAudit)
		testkit.WantEqual(t, "deltas", r.deltas, nil)
		r.wantInSync(t, f)
		testkit.Pass(2 * audit.RetryAfter)
		r.wantAudits(t, 0, "clean 1", "failed 1")
	})
}

func TestAuditComesInPagesIfListsDo(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, pages.Limit+500)
		f.Script(t, "list pods, 2 times: cut after 5000 bytes")
		r := reflectPods(t, f)
		testkit.Pass(untilAudit + time.Minute)
		r.wantAudits(t, 0, "clean 1")
		lists := podLists(f)
		testkit.WantNumber(t, "requests", len(lists), 6)
		for _, page := range lists[4:] {
			testkit.WantEqual(t, "limit", page.Query.Get("limit"), "2000")
		}
		testkit.WantNumber(t, "pages with an exact version", len(audits(f)), 1)
		testkit.WantEqual(t, "version of the second page", lists[5].Query.Get("resourceVersion"), "")
	})
}

func TestAuditNamesAtMostFiveObjects(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		f.Script(t, "list|watch pods: lie about 9 changes")
		fixture.AddPods(f, 9)
		testkit.Pass(untilAudit)
		r.wantInSync(t, f)
		r.wantAudits(t, 9, "drift 1")
		testkit.WantText(t, r.log.String(), "objects=9", "default/web-0 (cached none", "default/web-4 (cached none")
		if strings.Contains(r.log.String(), "default/web-5 (cached none") {
			t.Error("the log names a sixth object")
		}
	})
}

func TestSameVersionInAnotherFormIsDriftOnlyForCoreKinds(t *testing.T) {
	core, custom := podKind(), podKind()
	custom.API = "/apis/example.com/v1"
	old := makePod("a", "1", "10", "x")
	otherForm := makePod("a", "1", "10", "y")
	newer := makePod("a", "1", "11", "y")
	for _, row := range []struct {
		name       string
		difference Delta[*Pod]
		isDrift    bool // of custom resources
	}{
		{"the same version", Delta[*Pod]{Old: old, New: otherForm}, false},
		{"another version", Delta[*Pod]{Old: old, New: newer}, true},
		{"an object that was missing", Delta[*Pod]{New: newer}, true},
		{"an object that is gone", Delta[*Pod]{Old: old}, true},
	} {
		differences := []Delta[*Pod]{row.difference}
		testkit.WantNumber(t, row.name+" of a pod: drift", len(driftOf(core, differences)), 1)
		isDrift := len(driftOf(custom, differences)) > 0
		testkit.WantEqual(t, row.name+" of a custom resource is drift", isDrift, row.isDrift)
	}
}

func TestEventsThatTurnBackTimeAreIgnored(t *testing.T) {
	event := func(eventType, uid, version, node string) string {
		pod, _ := json.Marshal(fakekube.Object{
			"metadata": fakekube.Object{"namespace": "default", "name": "a", "uid": uid, "resourceVersion": version},
			"spec":     fakekube.Object{"nodeName": node},
		})
		return jsonEvent(eventType, string(pod))
	}
	events := []string{
		event("ADDED", "u1", "1000", "n1"),
		event("MODIFIED", "u1", "999", "old"),
		event("ADDED", "u1", "1000", "n1"),
		event("DELETED", "u1", "998", "n1"),
		event("DELETED", "u1", "1001", "n1"),
		event("DELETED", "u1", "1001", "n1"),
		event("ADDED", "u2", "1002", "n2"),
		event("ADDED", "u3", "1003", "n3"),
	}
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, fakekube.Fault{On: watchOfPods, Do: fakekube.Reply{Body: strings.Join(events, "\n")}})
		r := reflectPods(t, f)
		testkit.WantEqual(t, "deltas", r.deltas, []string{"+a", "-a", "+a", "-a", "+a"})
		pod := r.pod("a")
		if pod == nil {
			t.Fatal("the store does not hold the pod")
		}
		testkit.WantEqual(t, "uid", pod.UID(), "u3")
		testkit.WantNumber(t, "count of n2", r.perNode.Number(Key{Name: "n2"}), 0)
		testkit.WantNumber(t, "count of n3", r.perNode.Number(Key{Name: "n3"}), 1)
	})
}

func TestListInPagesOnceWholeListsHaveFailed(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, pages.Limit+500)
		f.Script(t, "list pods, 2 times: cut after 5000 bytes")
		r := reflectPods(t, f)
		testkit.Pass(time.Minute)
		r.wantInSync(t, f)
		lists := podLists(f)
		testkit.WantNumber(t, "requests", len(lists), 4)
		for i, want := range []string{"", "", "2000", "2000"} {
			if got := lists[i].Query.Get("limit"); got != want {
				t.Errorf("request %d has limit %q, want %q", i, got, want)
			}
		}
	})
}

func TestExpiredPageStartsTheListAgainOnce(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, pages.Limit+500)
		f.Script(t, "list pods, 2 times: cut after 5000 bytes")
		isLaterPage := func(request fakekube.Request) bool {
			return suite.IsList("pods")(request) && request.Query.Has("continue")
		}
		f.Inject(t, suite.StatusFault(fakekube.Requests{If: isLaterPage}, 1, 410, "Expired", nil))
		r := reflectPods(t, f)
		testkit.Pass(time.Minute)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "requests", len(podLists(f)), 6)
	})
}

// Without that, a list could not be longer than the time for which a proxy keeps a connection open.
func TestPageThatBreaksOffIsRequestedOnceMore(t *testing.T) {
	const isPage = ", skip 3" // after two whole lists, and the first page
	for _, row := range []struct {
		name     string
		cuts     string
		requests int
	}{
		{"once", "once", 5},
		{"twice in a row", "2 times", 7}, // The whole list begins again, with two more pages.
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.AddPods(f, pages.Limit+500)
				f.Script(t, "list pods"+isPage+", "+row.cuts+": cut after 5000 bytes")
				f.Script(t, "list pods, 2 times: cut after 5000 bytes")
				r := reflectPods(t, f)
				testkit.Pass(time.Minute)
				r.wantInSync(t, f)
				testkit.WantNumber(t, "requests", len(podLists(f)), row.requests)
			})
		})
	}
}

func TestFailedListIsThrownAwayWhole(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 500)
		r := reflectPods(t, f)
		for i := range 500 {
			f.LoseEvents(2)
			f.Remove("pods", suite.At("default", fmt.Sprintf("web-%d", i)))
			f.LoseEvents(1)
			f.AddPod("default", fmt.Sprintf("other-%d", i), "")
		}
		f.Script(t, "list pods: cut after 5000 bytes")
		f.Compact()
		f.BreakWatches()
		for len(podLists(f)) < 2 {
			testkit.Pass(10 * time.Millisecond)
		}
		testkit.WantNumber(t, "deltas of half a list", len(r.deltas), 0)
		testkit.WantNumber(t, "pods", r.Len(), 500)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "deltas of a whole list", len(r.deltas), 1000)
		r.wantInSync(t, f)
	})
}

// A wrong selector makes the first list a bad request. Later ones may be refused because of the server.
func TestListThatIsABadRequestIsTriedAgainIfOneHasWorked(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1)
		r := reflectPods(t, f)
		f.Script(t, `
			watch pods: refuse 410
			list pods: refuse 400 reason BadRequest
		`)
		f.EndWatches()
		testkit.Pass(time.Minute)
		fixture.AddPods(f, 2)
		synctest.Wait()
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 3)
	})
}

func TestSilentListIsCut(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1000)
		f.Script(t, "list pods: hang after 5000 bytes")
		r := reflectPods(t, f)
		testkit.Pass(kube.Silence + 10*time.Second)
		r.wantInSync(t, f)
		testkit.WantText(t, r.log.String(), "no sign of life for 2m30s")
	})
}

func TestSlowListLogsItsProgress(t *testing.T) {
	const slowList = 2 * time.Second
	pauseInTheMiddle := func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		io.WriteString(w, `{"metadata":{"resourceVersion":"5"},"items":[`)
		for i := range 1000 {
			if i == 500 {
				http.NewResponseController(w).Flush()
				retry.Sleep(r.Context(), slowList+time.Millisecond)
			}
			fmt.Fprintf(w, `{"metadata":{"name":"p%d","uid":"u","resourceVersion":"4"}},`, i)
		}
		io.WriteString(w, `{"metadata":{"name":"last","uid":"u","resourceVersion":"4"}}]}`)
	}
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, fakekube.Fault{On: listOfPods, Do: fakekube.Handle(pauseInTheMiddle)})
		r := reflectPods(t, f)
		testkit.Pass(slowList)
		testkit.WantNumber(t, "lines at the start", strings.Count(r.log.String(), "still listing"), 0)
		testkit.Pass(time.Second)
		testkit.WantText(t, r.log.String(), `msg="still listing" kind=Pod objects=512 for=2s`)
		testkit.WantNumber(t, "lines after two seconds", strings.Count(r.log.String(), "still listing"), 1)
	})
}

// listFault is something that goes wrong with a list.
type listFault struct {
	name string
	do   fakekube.Effect
}

// listFaults returns the faults of TestLabelsSurviveWhateverAListMeets.
func listFaults() []listFault {
	const (
		meta     = `{"resourceVersion":"100"}`
		firstPod = `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"99"}}`

		podWithoutUID     = `{"metadata":{"name":"b","namespace":"n","resourceVersion":"98"}}`
		podWithoutName    = `{"metadata":{"namespace":"n","uid":"v","resourceVersion":"98"}}`
		podWithoutVersion = `{"metadata":{"name":"b","namespace":"n","uid":"v"}}`
	)
	var (
		html     = map[string]string{"Content-Type": "text/html"}
		protobuf = map[string]string{"Content-Type": wire.Protobuf}
		tooMany  = map[string]string{"Content-Type": "text/plain", "Retry-After": "7"}
		tooLarge = fakekube.Object{
			"causes": []any{
				fakekube.Object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"},
			},
			"retryAfterSeconds": 1,
		}
		retryAfter3 = fakekube.Object{"retryAfterSeconds": 3}
	)
	status := func(code int, reason string, details any, header ...string) fakekube.Effect {
		return suite.StatusFault(fakekube.Requests{}, 0, code, reason, details, header...).Do
	}
	body := func(text string) fakekube.Effect { return fakekube.Reply{Body: text} }
	// withSecond returns a list whose second item is this text.
	withSecond := func(text string) fakekube.Effect {
		return body(`{"metadata":` + meta + `,"items":[` + firstPod + `,` + text)
	}
	inProtobuf := func(item string) fakekube.Effect {
		list := `{"kind":"PodList","metadata":` + meta + `,"items":[` + item + `]}`
		return fakekube.Reply{Header: protobuf, Body: string(fakekube.Protobuf([]byte(list)))}
	}
	return []listFault{
		{"410", status(410, "Expired", nil)},
		{"500", status(500, "InternalError", nil)},
		{"503", status(503, "ServiceUnavailable", nil)},
		{"504, because the version is too large", status(504, "Timeout", tooLarge, "Retry-After", "1")},
		{"429", status(429, "TooManyRequests", nil)},
		{"429 with Retry-After", status(429, "TooManyRequests", retryAfter3, "Retry-After", "3")},
		{"429 in plain text", fakekube.Reply{Code: 429, Header: tooMany, Body: "Too many requests, try again later."}},

		{"a reset", fakekube.DropRequest{}},
		{"cut in the middle", fakekube.Cut{After: 300}},
		{"ended cleanly in the middle", withSecond("")},
		{"no answer", fakekube.Stall{}},
		{"stalled in the middle", fakekube.Hang{After: 300}},

		{"garbage", withSecond(`}{`)},
		{"garbage, as protobuf", fakekube.Reply{Header: protobuf, Body: "k8s\x00garbage"}},
		{"a wrong content type", fakekube.Reply{Code: 200, Header: html, Body: `{"metadata":` + meta + `,"items":[]}`}},
		{"a page of some proxy", fakekube.Reply{Code: 502, Header: html, Body: "<html>"}},
		{"nothing", body("\n")},
		{"no items", body(`{"metadata":` + meta + `}`)},
		{"no version", body(`{"metadata":{},"items":[]}`)},

		{"an item without uid", withSecond(podWithoutUID + `]}`)},
		{"an item without name", withSecond(podWithoutName + `]}`)},
		{"an item without version", withSecond(podWithoutVersion + `]}`)},
		{"an item that is null", withSecond(`null]}`)},
		{"an item without uid, in protobuf", inProtobuf(`{"metadata":{"name":"b","resourceVersion":"98"}}`)},
		{"an item without name, in protobuf", inProtobuf(`{"metadata":{"uid":"b","resourceVersion":"98"}}`)},
	}
}

func TestLabelsSurviveWhateverAListMeets(t *testing.T) {
	for _, row := range listFaults() {
		t.Run(row.name, func(t *testing.T) {
			for _, resource := range []string{"pods", "nodes"} {
				t.Run(resource, func(t *testing.T) {
					fault := fakekube.Fault{
						On:    fakekube.Requests{Verb: "list", Resource: resource},
						Times: 4,
						Do:    row.do,
					}
					suite.Simulate(t, func(t *testing.T, f *fakekube.Server) { disturbLists(t, f, fault) })
				})
			}
		})
	}
}

// disturbLists injects the fault into the first lists after podcount's start, and later into relists. The labels must
// be right after each of them.
func disturbLists(t *testing.T, f *fakekube.Server, fault fakekube.Fault) {
	f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
	f.AddNode("w1", suite.TotalLabel+"=7")
	f.AddNode("w2")
	liveADay(f, 1)
	f.Inject(t, fault)
	p := podcount.Start(t, f, "-node-label", suite.OwnPodsLabel)
	suite.MeetFaults(t, f)
	testkit.Pass(kube.Silence)
	suite.WantPeace(t, f, "-node-label", suite.OwnPodsLabel)

	resource := fault.On.Resource
	firstGoodList := fixture.Requests(f, suite.IsList(resource))[fault.Times]
	tooEarly := fixture.Requests(f, func(request fakekube.Request) bool {
		return fixture.IsWrite(request) && request.At.Before(firstGoodList.At)
	})
	testkit.WantNumber(t, "writes before the first good list", len(tooEarly), 0)

	for day := 2; day < 4; day++ {
		f.Inject(t, fault)
		f.LoseEvents(1000)
		liveADay(f, day)
		f.LoseEvents(0)
		f.Compact()
		f.BreakWatches()
		suite.MeetFaults(t, f)
		testkit.Pass(kube.Silence)
		suite.WantPeace(t, f, "-node-label", suite.OwnPodsLabel)
	}
	for line := range strings.Lines(p.Log.String()) {
		if strings.Contains(line, "cannot list") {
			testkit.WantText(t, line, `err="list `+resource+": ")
		}
	}
}

// trickle returns a handler that lists a number of pods and sends one a minute, so the connection is never silent.
func trickle(pods int) http.HandlerFunc {
	const pod = `{"metadata":{"name":"a","uid":"u","resourceVersion":"4"}}`
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		io.WriteString(w, `{"metadata":{"resourceVersion":"5"},"items":[`+pod)
		for range pods - 1 {
			http.NewResponseController(w).Flush()
			if retry.Sleep(r.Context(), time.Minute) != nil {
				return
			}
			io.WriteString(w, ","+pod)
		}
		io.WriteString(w, "]}")
	}
}

// emptyPages returns a handler whose lists have no items, but always one more page.
func emptyPages() http.HandlerFunc {
	page := 0
	return func(w http.ResponseWriter, r *http.Request) {
		page++
		w.Header().Set("Content-Type", wire.JSON)
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":"page-%d"},"items":[]}`, page)
	}
}

func TestListWithoutEndIsAnErrorThatNamesTheBound(t *testing.T) {
	const pageDelay = 700 * time.Millisecond
	for _, row := range []struct {
		name  string
		fault fakekube.Fault
		bound string
	}{
		{
			"a pod a minute",
			fakekube.Fault{Do: fakekube.Handle(trickle(1000))},
			pages.Timeout.String(),
		},
		{
			"slow empty pages",
			fakekube.Fault{
				Times: int(pages.Timeout/pageDelay) + 1,
				Delay: pageDelay,
				Do:    fakekube.Handle(emptyPages()),
			},
			pages.Timeout.String(),
		},
		{
			"fast empty pages",
			fakekube.Fault{Times: listLimit/pages.Limit + 1, Do: fakekube.Handle(emptyPages())},
			"after 1001 pages",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
				fixture.AddPods(f, 2)
				row.fault.On = listOfPods
				f.Inject(t, row.fault)
				p := podcount.Start(t, f)
				suite.MeetFaults(t, f)
				start := time.Now()
				for !strings.Contains(p.Log.String(), "cannot list") && time.Since(start) <= pages.Timeout {
					testkit.Pass(time.Second)
				}
				testkit.WantText(t, p.Log.String(), `err="list pods: `, row.bound)
				suite.WantPeace(t, f)
			})
		})
	}
}

func TestListOfTooManyObjectsIsAnError(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		client := newAnonymousClient(fixture.Network(t, f).Dial, quietLog())
		defer client.Close()
		r := newPodCache(client, quietLog(), *podKind("app"))
		r.decoder = object.NewDecoder(&r.kind) // as Run does
		for pods := range 4 {
			listing := r.store.newListing()
			listing.count = listLimit - 2
			_, err := r.readList(t.Context(), r.newRequest("PartialObjectMetadataList"), listing)
			want := ""
			if pods > 2 {
				want = "list pods: the list has more than 2000000 objects: if they are pods, " +
					"restrict it with -namespace"
			}
			testkit.WantError(t, fmt.Sprintf("list of %d pods more", pods), err, want)
			f.AddPod("default", fmt.Sprint("p", pods), "")
		}
	})
}

func TestSlowListSucceedsWithinItsTimeLimit(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", suite.ControlPlane)
		f.Inject(t, fakekube.Fault{On: listOfPods, Do: fakekube.Handle(trickle(9))})
		podcount.Start(t, f)
		testkit.Pass(pages.Timeout - time.Minute)
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "1")
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

// watchCase is something that a watch meets. The labels must be right afterwards.
//
// Before it, there are the nodes cp, w1 and w2, the pod a on w1, and the pod b on w2.
type watchCase struct {
	name string
	args []string // more flags for podcount

	fault     fakekube.Fault // for the first watches of pods and of nodes, unless Do is nil
	bookmarks time.Duration  // the time between two bookmarks, or 0 for the default

	// act changes the cluster, and returns the frames that the next watch of pods consists of. If it returns none,
	// no watch is replaced. Without it, a day passes.
	act func(f *fakekube.Server) []watchFrame

	recovery time.Duration // how long the labels may be wrong, beyond the usual time
}

// watchFrame is an event for a watch.
type watchFrame struct {
	eventType string
	object    fakekube.Object
}

func TestLabelsSurviveWhateverAWatchMeets(t *testing.T) {
	for _, c := range slices.Concat(failingWatches(), interruptedWatches(), unexpectedEvents(), lostEvents()) {
		t.Run(c.name, func(t *testing.T) {
			for _, format := range []string{"protobuf", "json"} {
				t.Run(format, func(t *testing.T) {
					suite.Simulate(t, func(t *testing.T, f *fakekube.Server) { c.run(t, f, format) })
				})
			}
		})
	}
}

func (c *watchCase) run(t *testing.T, f *fakekube.Server, format string) {
	f.Bookmarks = cmp.Or(c.bookmarks, f.Bookmarks)
	f.AddNode("cp", suite.ControlPlane)
	f.AddNode("w1")
	f.AddNode("w2")
	f.AddPod("default", "a", "w1")
	f.AddPod("default", "b", "w2")
	if c.fault.Do != nil {
		for _, resource := range []string{"pods", "nodes"} {
			fault := c.fault
			fault.On = fakekube.Requests{Verb: "watch", Resource: resource}
			f.Inject(t, fault)
		}
	}
	args := append([]string{"-node-label", suite.OwnPodsLabel, "-wire", format}, c.args...)
	podcount.Start(t, f, args...)
	synctest.Wait()

	var frames []watchFrame
	if c.act == nil {
		liveADay(f, 1)
	} else {
		frames = c.act(f)
	}
	if len(frames) > 0 {
		f.Inject(t, fakekube.Fault{On: watchOfPods, Do: replyWithFrames(frames, format)})
		f.EndWatches()
	}
	suite.MeetFaults(t, f)
	testkit.Pass(c.recovery)
	suite.WantPeace(t, f, args...)

	liveADay(f, 9)
	suite.WantPeace(t, f, args...)
}

// replyWithFrames returns a watch that sends these frames and ends. The format is "json" or "protobuf".
func replyWithFrames(frames []watchFrame, format string) fakekube.Reply {
	var body []byte
	for _, frame := range frames {
		object, _ := json.Marshal(frame.object)
		if format == "json" {
			body = append(body, jsonEvent(frame.eventType, string(object))+"\n"...)
		} else {
			body = append(body, protobuf.Event(frame.eventType, fakekube.Protobuf(object))...)
		}
	}
	if format == "json" {
		return fakekube.Reply{Body: string(body)}
	}
	return fakekube.Reply{Header: protobufWatch, Body: string(body)}
}

// failingWatches are watches that the server refuses, breaks or fills with errors.
func failingWatches() []watchCase {
	status := func(code int, reason string, header ...string) fakekube.Fault {
		return suite.StatusFault(fakekube.Requests{}, 4, code, reason, nil, header...)
	}
	reply := func(reply fakekube.Reply) fakekube.Fault { return fakekube.Fault{Times: 4, Do: reply} }
	errorEvent := func(code int, reason string) fakekube.Fault {
		status, _ := json.Marshal(fakekube.Status(code, reason, "as scripted", nil))
		return reply(fakekube.Reply{Body: jsonEvent("ERROR", string(status))})
	}
	tooMany := map[string]string{"Content-Type": "text/plain", "Retry-After": "9"}
	html := map[string]string{"Content-Type": "text/html"}
	const halfAnObject = `{"type":"ADDED","object":{"metadata":{"name":"x"`
	return []watchCase{
		{name: "ends cleanly", fault: fakekube.Fault{Times: 5, Do: fakekube.Reply{Body: "\n"}}},
		{name: "reset", fault: fakekube.Fault{Times: 4, Do: fakekube.DropRequest{}}},
		{name: "reset in an object", fault: fakekube.Fault{Do: fakekube.Cut{After: 40}}},
		{name: "no answer", fault: fakekube.Fault{Times: 2, Do: fakekube.Stall{}}, recovery: kube.Silence},
		{name: "silence", fault: fakekube.Fault{Times: 2, Do: fakekube.Hang{After: 1}}, recovery: kube.Silence},
		{name: "silence in an object", fault: fakekube.Fault{Do: fakekube.Hang{After: 40}}, recovery: kube.Silence},

		{name: "400", fault: status(400, "BadRequest")},
		{name: "403", fault: status(403, "Forbidden")},
		{name: "404", fault: status(404, "NotFound")},
		{name: "410", fault: status(410, "Expired")},
		{name: "429", fault: status(429, "TooManyRequests")},
		{name: "429 with Retry-After", fault: status(429, "TooManyRequests", "Retry-After", "9")},
		{name: "429 in plain text", fault: reply(fakekube.Reply{Code: 429, Header: tooMany, Body: "Too many"})},
		{name: "500", fault: status(500, "InternalError")},
		{name: "503", fault: status(503, "ServiceUnavailable")},
		{name: "504", fault: status(504, "Timeout")},

		{name: "a page of some proxy", fault: reply(fakekube.Reply{Header: html, Body: "<html>"})},
		{name: "garbage", fault: reply(fakekube.Reply{Body: "}{"})},
		{name: "half an object", fault: reply(fakekube.Reply{Body: halfAnObject})},

		{name: "ERROR Expired", fault: errorEvent(410, "Expired")},
		{name: "ERROR Expired, no code", fault: errorEvent(0, "Expired")},
		{name: "ERROR Gone", fault: errorEvent(410, "Gone")},
		{name: "ERROR TooManyRequests", fault: errorEvent(429, "TooManyRequests")},
		{name: "ERROR InternalError", fault: errorEvent(500, "InternalError")},
		{name: "ERROR, unknown", fault: errorEvent(0, "SomethingNew")},
		{name: "ERROR without a status", fault: reply(fakekube.Reply{Body: jsonEvent("ERROR", `{}`)})},
	}
}

// interruptedWatches are watches that end while the cluster changes, and watches that run for long.
func interruptedWatches() []watchCase {
	return []watchCase{
		{name: "a history that is gone", act: func(f *fakekube.Server) []watchFrame {
			liveADay(f, 2)
			f.Compact()
			f.BreakWatches()
			return nil
		}},
		{name: "bookmarks for two hours", act: func(f *fakekube.Server) []watchFrame {
			testkit.Pass(2 * time.Hour)
			f.BreakWatches()
			return nil
		}},
		{name: "never a bookmark", bookmarks: 1000 * time.Hour, act: func(f *fakekube.Server) []watchFrame {
			testkit.Pass(2 * time.Hour)
			return nil
		}},
		{name: "an outage", act: func(f *fakekube.Server) []watchFrame {
			reconnect := f.CutOff("127.0.0.1:1")
			liveADay(f, 1)
			testkit.Pass(10 * time.Minute)
			reconnect()
			return nil
		}},
		{name: "a server that was set back", recovery: 3 * kube.Silence, act: func(f *fakekube.Server) []watchFrame {
			turnBack := f.Checkpoint()
			f.SetVersion(f.Latest() + 5000)
			liveADay(f, 2)
			testkit.Pass(30 * time.Second)
			turnBack()
			f.BreakWatches()
			return nil
		}},
	}
}

// unexpectedEvents are watches whose events come twice, are of the wrong type or about a wrong version, or are large.
func unexpectedEvents() []watchCase {
	return []watchCase{
		{name: "an ADDED twice", act: func(f *fakekube.Server) []watchFrame {
			f.LoseEvents(1)
			x := f.AddPod("default", "x", "w1")
			return []watchFrame{{"ADDED", x}, {"ADDED", x}}
		}},
		{name: "an ADDED of known pods", act: func(f *fakekube.Server) []watchFrame {
			return []watchFrame{{"ADDED", podNamed(f, "a")}, {"ADDED", podNamed(f, "b")}}
		}},
		{name: "a MODIFIED of an unknown pod", act: func(f *fakekube.Server) []watchFrame {
			f.LoseEvents(1)
			return []watchFrame{{"MODIFIED", f.AddPod("default", "x", "w1")}}
		}},
		{name: "a DELETED twice", act: func(f *fakekube.Server) []watchFrame {
			f.LoseEvents(2)
			removed := f.Remove("pods", suite.At("default", "a"))
			removed = withMeta(removed, "resourceVersion", strconv.Itoa(f.Latest()))
			return []watchFrame{{"DELETED", removed}, {"DELETED", removed}}
		}},
		{name: "a recreated pod on another node, without a DELETED, as an ADDED", act: recreateAs("ADDED")},
		{name: "a recreated pod on another node, without a DELETED, as a MODIFIED", act: recreateAs("MODIFIED")},
		{
			name: "DELETED from a label selector",
			args: []string{"-pod-selector", "app=web"},
			act:  leaveTheLabelSelector,
		},
		{
			name: "DELETED from a field selector",
			args: []string{"-field-selector", "status.phase=Running"},
			act: func(f *fakekube.Server) []watchFrame {
				pod := fakekube.Clone(podNamed(f, "a"))
				pod["status"] = fakekube.Object{"phase": "Succeeded"}
				f.Put("pods", pod)
				return nil
			},
		},
		{name: "events of an older version", act: func(f *fakekube.Server) []watchFrame {
			old := onNode(withMeta(podNamed(f, "a"), "resourceVersion", "150"), "w2")
			unknown := withMeta(withMeta(old, "name", "ghost"), "uid", "g")
			return []watchFrame{{"MODIFIED", old}, {"DELETED", old}, {"ADDED", unknown}}
		}},
		{name: "a bookmark of an older version", act: func(f *fakekube.Server) []watchFrame {
			return []watchFrame{bookmarkAt("150")}
		}},
		{
			name:     "a bookmark from the future",
			act:      func(f *fakekube.Server) []watchFrame { return []watchFrame{bookmarkAt("99999")} },
			recovery: 3 * kube.Silence,
		},
		{name: "an event from the future", recovery: 3 * kube.Silence, act: func(f *fakekube.Server) []watchFrame {
			moved := onNode(withMeta(podNamed(f, "a"), "resourceVersion", "99999"), "w2")
			removed := withMeta(podNamed(f, "b"), "resourceVersion", "9999999999999999999")
			return []watchFrame{{"MODIFIED", moved}, {"DELETED", removed}}
		}},
		{name: "an unknown type", act: func(f *fakekube.Server) []watchFrame {
			return []watchFrame{{"MOVED", podNamed(f, "a")}}
		}},
		{name: "an event of an object without uid", act: func(f *fakekube.Server) []watchFrame {
			pod := withMeta(podNamed(f, "a"), "resourceVersion", "99999")
			return []watchFrame{{"DELETED", withMeta(pod, "uid", "")}}
		}},
		{name: "an event of an object without name", act: func(f *fakekube.Server) []watchFrame {
			pod := withMeta(podNamed(f, "a"), "resourceVersion", "99999")
			return []watchFrame{{"DELETED", withMeta(pod, "name", "")}}
		}},
		{name: "a frame of 3 MB", act: func(f *fakekube.Server) []watchFrame {
			for _, name := range []string{"x", "y"} {
				f.Put("pods", fakekube.PodOn(fakekube.Object{
					"namespace":   "default",
					"name":        name,
					"labels":      fakekube.Object{"app": "web"},
					"annotations": fakekube.Object{"big": strings.Repeat("x", 3<<20)},
				}, "w1"))
			}
			testkit.Pass(time.Second)
			f.Remove("pods", suite.At("default", "x"))
			return nil
		}},
	}
}

// lostEvents are watches that miss an event. Only the hourly relist can correct that.
func lostEvents() []watchCase {
	const untilRelist = 66 * time.Minute
	return []watchCase{
		{name: "a DELETED lost", recovery: untilRelist, act: func(f *fakekube.Server) []watchFrame {
			f.LoseEvents(2) // a pod's deletion is two changes
			f.Remove("pods", suite.At("default", "a"))
			return nil
		}},
		{name: "an ADDED lost", recovery: untilRelist, act: func(f *fakekube.Server) []watchFrame {
			f.LoseEvents(1)
			f.AddPod("default", "x", "w1")
			return nil
		}},
	}
}

// recreateAs removes the pod a from w1 and recreates it on w2. The watch gets one event of this type about the new pod.
func recreateAs(eventType string) func(f *fakekube.Server) []watchFrame {
	return func(f *fakekube.Server) []watchFrame {
		f.LoseEvents(3)
		f.Remove("pods", suite.At("default", "a"))
		return []watchFrame{{eventType, f.AddPod("default", "a", "w2")}}
	}
}

// leaveTheLabelSelector changes the label app of both pods, so a watch with the selector app=web gets DELETED events.
// In the same change, b moves to w1, but its event shows the old node. In the end, b matches the selector again.
func leaveTheLabelSelector(f *fakekube.Server) []watchFrame {
	a := fakekube.Clone(podNamed(f, "a"))
	fakekube.MetaOf(a)["labels"] = fakekube.Object{"app": "other"}
	f.Put("pods", a)

	b := onNode(podNamed(f, "b"), "w1")
	fakekube.MetaOf(b)["labels"] = fakekube.Object{"app": "other"}
	f.Put("pods", b)
	testkit.Pass(time.Second)
	fakekube.MetaOf(b)["labels"] = fakekube.Object{"app": "web"}
	f.Put("pods", b)
	return nil
}

// podNamed returns a pod of the namespace default.
func podNamed(f *fakekube.Server, name string) fakekube.Object {
	return f.Get("pods", suite.At("default", name))
}

// withMeta returns a copy of an object with another value in a field of its metadata.
func withMeta(object fakekube.Object, field, value string) fakekube.Object {
	object = fakekube.Clone(object)
	fakekube.MetaOf(object)[field] = value
	return object
}

// onNode returns a copy of a pod that runs on another node.
func onNode(pod fakekube.Object, node string) fakekube.Object {
	pod = fakekube.Clone(pod)
	pod["spec"].(fakekube.Object)["nodeName"] = node
	return pod
}

// bookmarkAt returns a bookmark of a version.
func bookmarkAt(version string) watchFrame {
	return watchFrame{"BOOKMARK", fakekube.Object{"metadata": fakekube.Object{"resourceVersion": version}}}
}

// endAfterABookmark makes watches of pods bring a new bookmark, and end at once.
func endAfterABookmark(f *fakekube.Server, times int) *fakekube.Injection {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		io.WriteString(w, newBookmark(f))
	}
	return f.InjectUnchecked(fakekube.Fault{On: watchOfPods, Times: times, Do: fakekube.Handle(answer)})
}

// newBookmark returns a bookmark in JSON, whose version is newer than all before.
func newBookmark(f *fakekube.Server) string {
	f.SetVersion(f.Latest() + 1)
	return jsonEvent("BOOKMARK", fmt.Sprintf(`{"metadata":{"resourceVersion":"%d"}}`, f.Latest()))
}

// A proxy may end each watch after its first event. Each of these watches makes progress.
func TestWatchesThatEndAtOnceBackOffAndAreSaidOnce(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		proxy := endAfterABookmark(f, 200) // enough, but even a hot loop ends
		r := reflectPods(t, f)
		testkit.Pass(10 * time.Minute)
		testkit.WantBetween(t, "watches within ten minutes", len(podWatches(f)), 10, 40)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		log := r.log.String()
		warning := `level=WARN msg="watches end at once" kind=Pod err=EOF`
		testkit.WantNumber(t, "outages that began", strings.Count(log, warning), 1)
		testkit.WantNumber(t, "outages that are over", strings.Count(log, "watching again"), 0)

		proxy.Lift()
		testkit.Pass(2 * time.Minute)
		testkit.WantText(t, r.log.String(), "Pod: watching again after 1")
		if problem := r.State().Problem; problem != nil {
			t.Errorf("after the proxy was mended: %+v", problem)
		}
	})
}

// The events of a watch do not prove that the next one will not expire.
func TestWatchesThatExpireAgainAndAgainBackOff(t *testing.T) {
	expired, _ := json.Marshal(fakekube.Status(410, "Expired", "too old resource version", nil))
	for _, lasts := range []time.Duration{0, 1100 * time.Millisecond, 20 * time.Second} {
		t.Run("after "+lasts.String(), func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				answer := func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Content-Type", wire.JSON)
					io.WriteString(w, newBookmark(f))
					retry.Sleep(r.Context(), lasts)
					io.WriteString(w, jsonEvent("ERROR", string(expired)))
				}
				f.Inject(t, fakekube.Fault{On: watchOfPods, Times: fakekube.Always, Do: fakekube.Handle(answer)})
				reflectPods(t, f)
				testkit.Pass(10 * time.Minute)
				testkit.WantBetween(t, "lists within ten minutes", len(podLists(f)), 5, 30)
			})
		})
	}
}

func TestRetryAfterOfAnExpiredWatchIsHonoured(t *testing.T) {
	inAnEvent, _ := json.Marshal(fakekube.Status(410, "Expired", "", fakekube.Object{"retryAfterSeconds": 60}))
	for _, fault := range []fakekube.Fault{
		suite.StatusFault(watchOfPods, 1, 410, "Expired", nil, "Retry-After", "60"),
		{On: watchOfPods, Do: fakekube.Reply{Body: jsonEvent("ERROR", string(inAnEvent))}},
	} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.Inject(t, fault)
			reflectPods(t, f)
			testkit.Pass(59 * time.Second)
			testkit.WantNumber(t, "lists before its end", len(podLists(f)), 1)
			testkit.Pass(14 * time.Second) // with the jitter
			testkit.WantNumber(t, "lists after its end", len(podLists(f)), 2)
		})
	}
}

// tooNew is a version that no server ever reaches.
const tooNew = "1000000000000000000000000000000"

// An event with such a version, or a bookmark, would make all later ones look old.
func TestVersionThatContradictsLaterOnesLeadsToAList(t *testing.T) {
	for _, row := range []struct {
		name  string
		later func(f *fakekube.Server)
	}{
		{"an added pod", func(f *fakekube.Server) { f.AddPod("default", "new", "") }},
		{"a changed pod", func(f *fakekube.Server) { f.Put("pods", onNode(podNamed(f, "web-0"), "n1")) }},
		{"a removed pod", func(f *fakekube.Server) {
			f.LoseEvents(2) // a pod's deletion is two changes
			removed := f.Remove("pods", suite.At("default", "web-0"))
			removed = withMeta(removed, "resourceVersion", strconv.Itoa(f.Latest()))
			f.SendFrame(fakekube.Frame{Resource: "pods", Type: "DELETED", Object: removed})
		}},
		{"a bookmark", func(f *fakekube.Server) { testkit.Pass(2 * time.Minute) }},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				fixture.AddPods(f, 2)
				r := reflectPods(t, f)
				f.SendFrame(fakekube.Frame{Resource: "pods", Type: "BOOKMARK", Object: bookmarkAt(tooNew).object})
				synctest.Wait()
				testkit.WantEqual(t, "the version of the store", r.State().ResourceVersion, tooNew)
				row.later(f)
				testkit.Pass(2 * time.Second)
				r.wantInSync(t, f)
				testkit.WantText(t, r.report.Metrics.Text(), `podcount_relists_total{kind="Pod",reason="contradiction"} 1`)
				testkit.WantText(t, r.log.String(), `msg="cannot trust the watch"`, "comes after version "+tooNew)
			})
		})
	}
}

// setVersion makes the server name this version in its answer to the next patch of a pod.
func setVersion(t *testing.T, f *fakekube.Server, version string) {
	answer := func(w http.ResponseWriter, _ *http.Request) {
		pod, _ := json.Marshal(withMeta(podNamed(f, "web-0"), "resourceVersion", version))
		w.Header().Set("Content-Type", wire.JSON)
		w.Write(pod)
	}
	f.Inject(t, fakekube.Fault{
		On: fakekube.Requests{Verb: "patch", Resource: "pods"},
		Do: fakekube.Handle(answer),
	})
}

// Until the watch reaches the version of the answer, the store ignores all other changes of the object.
func TestAnswerWithAVersionThatTheWatchNeverReachesLeadsToAList(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		r := reflectPods(t, f)
		for range 3 { // A proxy may end each watch before the time is over.
			testkit.Pass(position.AnswerPatience * 3 / 5)
			f.EndWatches()
		}
		setVersion(t, f, tooNew)
		_, err := r.Patch(t.Context(), r.pod("web-0"), "", map[string]any{}, dropsNothing)
		if err != nil {
			t.Fatal(err)
		}
		f.Put("pods", onNode(podNamed(f, "web-0"), "n1"))
		testkit.Pass(position.AnswerPatience / 2)
		testkit.WantEqual(t, "the node before the answer is doubted", r.pod("web-0").NodeName, "")
		f.EndWatches()
		testkit.Pass(position.AnswerPatience) // in which bookmarks come
		r.wantInSync(t, f)
		testkit.WantText(t, r.report.Metrics.Text(), `podcount_relists_total{kind="Pod",reason="contradiction"} 1`)
		testkit.WantText(t, r.log.String(), "versions have gone back", "from="+tooNew)
		testkit.Pass(10 * time.Minute)
		testkit.WantNumber(t, "lists", len(podLists(f)), 2)
	})
}

// While the list of an audit lasts, no watch is open that could reach the version of an answer.
// patchAfterAnotherChange lets another pod change, and then patches a pod.
func patchAfterAnotherChange(t *testing.T, f *fakekube.Server, r *testReflector) {
	t.Helper()
	f.AddPod("default", "older-than-the-answer", "")
	patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
	_, err := r.Patch(t.Context(), r.pod("web-0"), "", patch, dropsNothing)
	testkit.WantError(t, "Patch", err, "")
}

func TestAnswerDuringASlowAuditIsNotDoubted(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		r := reflectPods(t, f)
		slow := f.Script(t, "list pods: delay 140s")[0]
		for slow.Used() == 0 {
			testkit.Pass(time.Second)
		}
		patchAfterAnotherChange(t, f, r)
		testkit.Pass(5 * time.Minute)
		r.wantInSync(t, f)
		r.wantAudits(t, 0, "clean 1")
		testkit.WantNumber(t, "lists and audits", len(podLists(f)), 2)
	})
}

func TestAnswerDuringASlowListIsNotDoubted(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		r := reflectPods(t, f)
		testkit.Pass(5 * time.Minute)
		patchAndWait := func(*http.Request) {
			patchAfterAnotherChange(t, f, r)
			testkit.Pass(140 * time.Second)
		}
		f.Inject(t, fakekube.Fault{On: listOfPods, Do: answerOf(f, patchAndWait)})
		f.Script(t, "watch pods: refuse 410")
		f.EndWatches()
		testkit.Pass(5 * time.Minute)
		r.wantInSync(t, f)
		if strings.Contains(r.report.Metrics.Text(), `reason="contradiction"`) {
			t.Error("the answer is taken for a contradiction")
		}
	})
}

// listFalseVersion makes the next list name the version tooNew for the pod web-0.
func listFalseVersion(t *testing.T, f *fakekube.Server) {
	pod, _ := json.Marshal(withMeta(podNamed(f, "web-0"), "resourceVersion", tooNew))
	other, _ := json.Marshal(podNamed(f, "web-1"))
	list := fmt.Sprintf(`{"kind":"PodList","metadata":{"resourceVersion":"%d"},"items":[%s,%s]}`, f.Latest(), pod, other)
	f.Inject(t, fakekube.Fault{On: listOfPods, Do: fakekube.Reply{Body: list}})
}

// An audit leaves alone what is newer than its list. That must not protect a version that the server never had.
func TestAuditCorrectsAnObjectWhoseVersionIsNewerThanTheServer(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		listFalseVersion(t, f)
		r := reflectPods(t, f)
		f.Put("pods", onNode(podNamed(f, "web-0"), "n1"))
		testkit.Pass(untilAudit)
		r.wantInSync(t, f)
		r.wantAudits(t, 0, "skipped 1")
		testkit.WantText(t, r.log.String(), "versions have gone back", "from="+tooNew)
	})
}

// The list of such an audit was complete, so its size is no reason for pages.
func TestAuditThatCannotAskForTheNewestVersionFails(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 2)
		listFalseVersion(t, f)
		isQuestion := func(request fakekube.Request) bool { return request.Query.Get("limit") == "1" }
		f.Inject(t, suite.StatusFault(fakekube.Requests{If: isQuestion}, 2, 503, "ServiceUnavailable", nil))
		r := reflectPods(t, f)
		testkit.Pass(untilAudit + 4*audit.RetryAfter)
		r.wantAudits(t, 0, "failed 2", "skipped 1")
		r.wantInSync(t, f)
		testkit.WantEqual(t, "lists come in pages", r.listReader.UsesPages, false)
		testkit.WantText(t, r.log.String(), `err="list pods: 503`)
	})
}

// White space between two frames keeps a connection alive, but says nothing about the server behind it.
func TestWatchThatBringsOnlyWhiteSpaceIsSilent(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		dribble := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.JSON)
			for retry.Sleep(r.Context(), 20*time.Second) == nil {
				io.WriteString(w, "\n")
				w.(http.Flusher).Flush()
			}
		}
		f.Inject(t, fakekube.Fault{On: watchOfPods, Do: fakekube.Handle(dribble)})
		r := reflectPods(t, f)
		fixture.AddPods(f, 1)
		testkit.Pass(kube.Silence + time.Second)
		r.wantInSync(t, f)
		testkit.WantEqual(t, "the outcome", r.State().LastWatch.Outcome, "silence")
	})
}

func TestWatchThatTheServerDoesNotEndIsEndedByTheClient(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		goOn := func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.JSON)
			for retry.Sleep(r.Context(), time.Minute) == nil {
				io.WriteString(w, newBookmark(f))
				w.(http.Flusher).Flush()
			}
		}
		f.Inject(t, fakekube.Fault{On: watchOfPods, Do: fakekube.Handle(goOn)})
		r := reflectPods(t, f)
		timeout, _ := strconv.Atoi(podWatches(f)[0].Query.Get("timeoutSeconds"))
		limit := time.Duration(timeout)*time.Second + watchMargin
		testkit.Pass(limit - time.Second)
		testkit.WantNumber(t, "watches before the limit", len(podWatches(f)), 1)
		testkit.Pass(2 * time.Second)
		testkit.WantNumber(t, "watches after the limit", len(podWatches(f)), 2)
		testkit.WantEqual(t, "the outcome", r.State().LastWatch.Outcome, "ended")
		testkit.WantEqual(t, "why", fmt.Sprint(r.State().LastWatch.Err), errNotEnded.Error())
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

func TestBookmarkWithoutANewVersionIsAContact(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(time.Hour)
		testkit.WantBetween(t, "the time since the last contact", time.Since(r.State().LastHeard), 0, 125*time.Second)
	})
}

func TestEventIsAContact(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(30 * time.Second)
		fixture.AddPods(f, 1)
		synctest.Wait()
		testkit.WantEqual(t, "the time since the last contact", time.Since(r.State().LastHeard), 0)
	})
}

func TestKindWithoutAMetricCanBePatched(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "")
		r := reflectPods(t, f)
		pod := r.pod("p")
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
		_, err := r.Patch(t.Context(), pod, "", patch, dropsNothing)
		testkit.WantError(t, "Patch", err, "")
		testkit.WantEqual(t, "writes", len(suite.WritesTo(f)), 1)
	})
}

// liveADay makes the changes of a day in a small cluster: pods and nodes are added, bound, removed and recreated.
func liveADay(f *fakekube.Server, day int) {
	f.AddPod("default", fmt.Sprint("new-", day), "w1")
	f.AddPod("default", fmt.Sprint("unbound-", day), "")
	f.AddPod("default", fmt.Sprint("unbound-", day-1), "w1") // binds the pod of the day before
	f.Remove("pods", suite.At("default", "comes-back"))
	f.AddPod("default", "comes-back", fmt.Sprint("w", 1+day%2))
	f.Remove("pods", suite.At("default", fmt.Sprint("new-", day-1)))
	f.Put("pods", fakekube.Object{
		"metadata": fakekube.Object{"namespace": "default", "name": "of-nothing-but-metadata"},
	})
	f.AddNode(fmt.Sprint("w", day), suite.ControlPlane)
	f.Remove("nodes", fakekube.Key{Name: "cp"})
	f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
	fixture.SetLabel(f, "w1", suite.ControlPlane, []any{"", nil}[day%2])
}

// confirmResult is how a call of Confirm has ended.
type confirmResult struct {
	err  error
	took time.Duration
}

// startConfirm calls Confirm in the background, as a replica does that is elected now. The channel gets the result.
func (r *testReflector) startConfirm(ctx context.Context) <-chan confirmResult {
	results := make(chan confirmResult, 1)
	elected := time.Now()
	go func() {
		err := r.Confirm(ctx, elected)
		results <- confirmResult{err: err, took: time.Since(elected)}
	}()
	return results
}

// changeSomethingElse raises the newest version without an event on the watch of pods, as a renewed Lease does.
func changeSomethingElse(f *fakekube.Server) { f.AddNode("n") }

// In most rows, the pod new is added right before the replica is elected, and the store lacks it.
func TestConfirmWaitsUntilTheStoreIsNewEnough(t *testing.T) {
	for _, row := range []struct {
		name     string
		before   func(t *testing.T, f *fakekube.Server, r *testReflector) // ends when this replica is elected
		shortest time.Duration                                            // Confirm takes at least this long
		longest  time.Duration                                            // Confirm takes at most this long
		relist   string                                                   // the reason of a list that Confirm demands
	}{
		{
			name:   "the watch has seen the newest version",
			before: func(_ *testing.T, f *fakekube.Server, _ *testReflector) { f.AddPod("default", "new", "") },
		},
		{
			name: "a bookmark brings the newest version",
			before: func(_ *testing.T, f *fakekube.Server, _ *testReflector) {
				changeSomethingElse(f)
				f.Bookmarks = 300 * time.Millisecond
				f.EndWatches()
				synctest.Wait()
			},
			shortest: 299 * time.Millisecond,
			longest:  300 * time.Millisecond,
		},
		{
			name: "the pods do not change",
			before: func(_ *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				changeSomethingElse(f)
			},
			shortest: position.ConfirmPatience - 1,
			longest:  position.ConfirmPatience,
			relist:   "elected",
		},
		{
			name: "the watch lags",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.Lag(watchOfPods, 0)
				synctest.Wait()
				f.AddPod("default", "new", "")
			},
			shortest: position.ConfirmPatience - 1,
			longest:  position.ConfirmPatience,
			relist:   "elected",
		},
		{
			name: "the watch is in a backoff",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.Script(t, "watch pods: refuse 429 retry-after 20s")
				f.EndWatches()
				synctest.Wait()
				f.AddPod("default", "new", "")
			},
			shortest: 20 * time.Second,
			longest:  26 * time.Second,
			relist:   "elected",
		},
		{
			name: "the watch is in a backoff, and the list fails",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.Script(t, "watch pods: refuse 429 retry-after 20s")
				f.Script(t, "list pods: refuse 429 retry-after 20s")
				f.EndWatches()
				synctest.Wait()
				f.AddPod("default", "new", "")
			},
			shortest: 40 * time.Second,
			longest:  51 * time.Second,
			relist:   "elected",
		},
		{
			name: "a list from before runs",
			before: func(t *testing.T, f *fakekube.Server, r *testReflector) {
				f.AddPod("default", "new", "")
				f.Compact()
				f.Script(t, "list pods: delay 5s")
				f.Script(t, "watch pods: refuse 410")
				f.EndWatches()
				testkit.Pass(2 * ending.InitialBackoff)
				testkit.WantNumber(t, "lists when this replica is elected", len(podLists(f)), 2)
				changeSomethingElse(f)
			},
			shortest: 3 * time.Second,
			longest:  5 * time.Second,
		},
		{
			name: "versions have gone back",
			before: func(_ *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				synctest.Wait()
				f.SetVersion(f.Latest() - 1)
			},
			relist: "restored",
		},
		{
			name: "the question is refused",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				f.Script(t, "list pods, 2 times: refuse 429 retry-after 20s")
			},
			shortest: 40 * time.Second,
			longest:  51 * time.Second,
		},
		{
			name: "the question is refused for a second, again and again",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				questions := fakekube.Requests{If: isVersionQuestion}
				f.Inject(t, suite.StatusFault(questions, position.MaxQuestions, 429, "TooManyRequests", nil, "Retry-After", "1"))
			},
			shortest: 3 * time.Second,
			longest:  6 * time.Second, // with the jitter
			relist:   "elected",
		},
		{
			name: "the question is not answered",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				f.Script(t, "list pods: stall")
			},
			shortest: position.ConfirmTimeout,
			longest:  position.ConfirmTimeout + 2*ending.InitialBackoff,
		},
		{
			name: "the question always fails",
			before: func(t *testing.T, f *fakekube.Server, _ *testReflector) {
				f.AddPod("default", "new", "")
				questions := fakekube.Requests{If: isVersionQuestion}
				f.Inject(t, suite.StatusFault(questions, position.MaxQuestions, 500, "InternalError", nil))
			},
			shortest: (1 + 2 + 4) * ending.InitialBackoff,
			longest:  2 * (1 + 2 + 4) * ending.InitialBackoff,
			relist:   "elected",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddPod("default", "old", "")
				r := reflectPods(t, f)
				testkit.Pass(time.Second)
				row.before(t, f, r)
				results := r.startConfirm(t.Context())
				confirm := <-results
				testkit.WantError(t, "Confirm", confirm.err, "")
				testkit.WantBetween(t, "time that it took", confirm.took, row.shortest, row.longest)
				r.wantInSync(t, f)
				for _, reason := range []string{"elected", "restored"} {
					lists := strings.Count(r.report.Metrics.Text(), fmt.Sprintf("reason=%q} 1", reason))
					want := 0
					if reason == row.relist {
						want = 1
					}
					testkit.WantNumber(t, "lists for the reason "+reason, lists, want)
				}
				f.Heal()
				testkit.Pass(time.Minute)
				f.AddPod("default", "later", "")
				testkit.Pass(time.Minute)
				r.wantInSync(t, f)
			})
		})
	}
}

func TestListSinceTheElectionNeedsNoQuestion(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		since := time.Now()
		r := reflectPods(t, f)
		changeSomethingElse(f)
		testkit.Pass(time.Minute)
		testkit.WantError(t, "Confirm", r.Confirm(t.Context(), since), "")
		testkit.WantNumber(t, "questions", len(versionQuestions(f)), 0)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		testkit.WantNumber(t, "watches", len(podWatches(f)), 1)
	})
}

// Confirm returns when the version is new enough. The store must have the objects by then.
func TestVersionMovesOnceItsChangesAreHandedOn(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		var versions []string // at each change of the store
		r.Subscribe(func(Delta[*Pod]) { versions = append(versions, r.State().ResourceVersion) })
		ofTheList := r.State().ResourceVersion
		f.AddPod("default", "in-an-event", "")
		synctest.Wait()
		f.LoseEvents(1)
		f.AddPod("default", "in-an-audit", "")
		f.Inject(t, fakekube.Fault{On: listOfPods, Do: answerWithoutAVersion(f, func(*http.Request) {})})
		passUntilAudit(f)
		audited := audits(f)[0].Query.Get("resourceVersion")
		testkit.Pass(time.Second)
		testkit.WantEqual(t, "the versions", versions, []string{ofTheList, audited})
		if r.State().ResourceVersion == audited {
			t.Error("the list of the audit has not moved the version")
		}
	})
}

// A new leader must leave a server alone that has asked for a pause.
func TestConfirmAsksNothingDuringABackoff(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(time.Second)
		f.Script(t, "watch pods: refuse 429 retry-after 20s")
		f.EndWatches()
		synctest.Wait()
		before := len(f.Received(fakekube.Requests{}))
		r.startConfirm(t.Context())
		testkit.Pass(19 * time.Second)
		testkit.WantNumber(t, "requests during the backoff", len(f.Received(fakekube.Requests{}))-before, 0)
		testkit.WantText(t, r.log.String(), "waits until its cache is confirmed",
			`why="the last list or watch has failed"`)
		testkit.Pass(7 * time.Second)
		testkit.WantNumber(t, "lists after the backoff", len(podLists(f)), 2)
		testkit.WantNumber(t, "questions", len(versionQuestions(f)), 0)
	})
}

func TestStopEndsConfirmAtOnce(t *testing.T) {
	for _, row := range []struct {
		name  string
		fault string
		after time.Duration
	}{
		{"in the question", "list pods: stall", time.Second},
		{"in the backoff of the question", "list pods, always: refuse 503", time.Minute},
		{"while it waits for the watch", "", position.ConfirmPatience / 2},
		{"in the list", "list pods, skip 1, always: stall", time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				r := reflectPods(t, f)
				testkit.Pass(time.Second)
				for _, fault := range f.Script(t, row.fault) {
					defer fault.Lift()
				}
				changeSomethingElse(f)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				results := r.startConfirm(ctx)
				testkit.Pass(row.after)
				testkit.WantNumber(t, "results before the stop", len(results), 0)
				cancel()
				synctest.Wait()
				testkit.WantNumber(t, "results after the stop", len(results), 1)
				confirm := <-results
				testkit.WantEqual(t, "the error", confirm.err, context.Canceled)
			})
		})
	}
}

// holdChanges returns functions that wait until the reflector hands on its next change, and let it go on. It must be
// called before the reflector runs. Until go on is called, the reflector hands on nothing more.
func (r *testReflector) holdChanges() (await, goOn func()) {
	taken := make(chan struct{})
	release := make(chan struct{})
	isFirst := true
	r.Subscribe(func(Delta[*Pod]) {
		if isFirst {
			isFirst = false
			close(taken)
			<-release
		}
	})
	await = func() {
		<-taken
		synctest.Wait()
	}
	return await, func() { close(release) }
}

// wantUnconfirmed fails the test if Confirm has returned. what says when that is.
func wantUnconfirmed(t *testing.T, what string, results <-chan confirmResult) {
	t.Helper()
	testkit.WantNumber(t, "results of Confirm "+what, len(results), 0)
}

// answerOf answers a request as the server would now, but sends the answer later: meanwhile must return before that.
func answerOf(f *fakekube.Server, meanwhile func(r *http.Request)) fakekube.Handle {
	return func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		f.ServeHTTP(answer, r)
		meanwhile(r)
		maps.Copy(w.Header(), answer.Header())
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes())
	}
}

// answerWithoutAVersion answers as a server that ignores which version an audit asks for. It calls meanwhile before it
// sends the answer.
func answerWithoutAVersion(f *fakekube.Server, meanwhile func(r *http.Request)) fakekube.Handle {
	return func(w http.ResponseWriter, r *http.Request) {
		f.AddNode("n") // so that the newest version is another one
		r.URL.RawQuery = ""
		answerOf(f, meanwhile)(w, r)
	}
}

// A new leader waits for Synced, and then for Confirm, which must know the list by then.
func TestListIsRecordedBeforeItCountsAsTheFirst(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		elected := time.Now()
		confirmed := make(chan error, 1)
		reflectPods(t, f, func(r *testReflector) {
			go func() {
				<-r.Synced()
				atOnce, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				confirmed <- r.Confirm(atOnce, elected)
			}()
		})
		testkit.WantError(t, "Confirm", <-confirmed, "")
		testkit.WantNumber(t, "questions", len(versionQuestions(f)), 0)
	})
}

// A new leader must find the list's objects in the cache, and their keys in the queue.
func TestListConfirmsAfterItsChangesAreHandedOn(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		var awaitChange, goOn func()
		r := reflectPods(t, f, func(r *testReflector) { awaitChange, goOn = r.holdChanges() })
		testkit.Pass(time.Second)
		f.LoseEvents(1)
		f.AddPod("default", "new", "")
		results := r.startConfirm(t.Context())
		awaitChange() // of the list that Confirm demands
		wantUnconfirmed(t, "while a change is handed on", results)
		goOn()
		testkit.WantError(t, "Confirm", (<-results).err, "")
		r.wantInSync(t, f)
	})
}

// The list may be older than the answer, which says nothing about a restored backup.
func TestAnswerDuringAListIsNeitherDoubtedNorForgotten(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "")
		r := reflectPods(t, f)
		testkit.Pass(time.Minute)
		var restore func()
		patchMeanwhile := func(q *http.Request) {
			f.AddNode("n") // The backup is newer than the list, and older than the answer.
			restore = f.Snapshot()
			patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
			_, err := r.Patch(q.Context(), r.pod("p"), "", patch, dropsNothing)
			testkit.WantError(t, "Patch", err, "")
		}
		f.Inject(t, fakekube.Fault{On: listOfPods, Do: answerOf(f, patchMeanwhile)})
		f.Script(t, "watch pods: refuse 410")
		refusal := f.Script(t, "watch pods, always: refuse 503")[0]
		f.EndWatches()
		testkit.Pass(time.Minute)
		if strings.Contains(r.log.String(), "versions have gone back") {
			t.Error("the answer is taken for the sign of a restored backup")
		}

		r.net.Refuse()
		restore()
		r.wantRestoreNoticed(t, f, refusal)
	})
}

// With -once, the list of a resource under /apis/ must not end in silence: nobody hears its error.
func TestListOfCountsIsTriedAgainAfterAnUnknownHost(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{})
		fixture.AddCount(f, "c", `{}`)
		f.Script(t, "list counts: drop request") // Discovery has the only connection so far.
		r := reflectCounts(t, f, func(r *testReflector) {
			r.once = true
			dials := 0
			r.client = newAnonymousClient(func(ctx context.Context, network, address string) (net.Conn, error) {
				dials++
				if dials == 2 {
					return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
				}
				return r.net.Dial(ctx, network, address)
			}, newLog(r.log, slog.LevelInfo))
			t.Cleanup(r.client.Close)
		})
		testkit.Pass(30 * time.Second)
		testkit.WantNumber(t, "Counts", r.Len(), 1)
	})
}

// A removed resource confirms the cache, because then there is nothing to write. But first the cache must know it.
func TestRemovalConfirmsAfterTheStoreIsEmpty(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.InstallCRD(f, &fixture.CRD{})
		fixture.AddCount(f, "c", `{}`)
		var awaitChange, goOn func()
		r := reflectCounts(t, f, func(r *testReflector) { awaitChange, goOn = r.holdChanges() })
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "Counts", r.Len(), 1)
		f.LoseEvents(1)
		fixture.InstallCRD(f, nil)
		results := r.startConfirm(t.Context())
		awaitChange()
		wantUnconfirmed(t, "while a removed object is handed on", results)
		testkit.WantNumber(t, "Counts after the removal", r.Len(), 0)
		if r.Installed() != nil {
			t.Error("the resource still counts as installed")
		}
		goOn()
		testkit.WantError(t, "Confirm", (<-results).err, "")
	})
}

func TestNodeNamesComeWithWholeObjects(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "n1")
		r := startReflector(t, f, object.PodKind(), func(r *testReflector) { r.NeedWholeObjects() })
		testkit.WantNumber(t, "pods of n1 in the list", r.perNode.Number(Key{Name: "n1"}), 1)
		f.AddPod("default", "q", "n1")
		synctest.Wait()
		testkit.WantNumber(t, "pods of n1 with those of the watch", r.perNode.Number(Key{Name: "n1"}), 2)
	})
}

// The page reads the state when it gets a step.
func TestStateMayBeReadAtEachStep(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		fixture.AddPods(f, 1)
		points := map[trace.Point]bool{}
		r := reflectPods(t, f, func(r *testReflector) {
			r.report.Trace.Listen(func(s trace.Step) {
				points[s.Point] = true
				r.State()
			})
		})
		f.AddPod("default", "new", "")
		testkit.Pass(time.Second)
		f.Script(t, "watch pods: refuse 410")
		f.EndWatches()
		passUntilAudit(f)
		changeSomethingElse(f)
		testkit.WantError(t, "Confirm", (<-r.startConfirm(t.Context())).err, "")
		synctest.Wait() // for the steps that follow the answer
		for _, point := range []trace.Point{
			trace.Listed, trace.Watching, trace.Frame, trace.Change, trace.Ended, trace.Audited,
		} {
			if !points[point] {
				t.Errorf("no step %q was seen", point)
			}
		}
	})
}

// The watch has not ended by itself, so it says nothing about the server.
func TestWatchThatConfirmInterruptsIsNotJudged(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(100 * time.Millisecond)
		changeSomethingElse(f)
		confirm := <-r.startConfirm(t.Context())
		testkit.WantBetween(t, "time that Confirm took", confirm.took, position.ConfirmPatience-1, position.ConfirmPatience)
		synctest.Wait()
		testkit.WantEqual(t, "the last watch", r.State().LastWatch, nil)
		testkit.WantNumber(t, "warnings", strings.Count(r.log.String(), "level=WARN"), 0)
		testkit.WantNumber(t, "watches", len(podWatches(f)), 2)
	})
}

// BenchmarkWatchWithViewer measures a watch in JSON whose objects have 200 kB of annotations, as anybody may put on a
// Count: without a viewer, with one that takes all steps, and with one that has no room for any.
func BenchmarkWatchWithViewer(b *testing.B) {
	for _, row := range []struct {
		name   string
		listen func(*trace.Trace) (stop func())
	}{
		{"none", func(*trace.Trace) func() { return func() {} }},
		{"one", func(t *trace.Trace) func() { return t.Listen(func(trace.Step) {}) }},
		{"one-without-room", func(t *trace.Trace) func() {
			return t.ListenWithin(func() bool { return false }, func(trace.Step) {})
		}},
	} {
		b.Run(row.name, func(b *testing.B) { benchmarkWatch(b, row.listen) })
	}
}

func benchmarkWatch(b *testing.B, listen func(*trace.Trace) (stop func())) {
	const n = 100 // frames in a watch
	version := 1
	var annotations strings.Builder
	for i := 0; annotations.Len() < 200_000; i++ {
		fmt.Fprintf(&annotations, `,"a%05d":"secret"`, i)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", wire.JSON)
		for range n {
			version++
			fmt.Fprintf(w, `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p",`+
				`"namespace":"default","uid":"u","resourceVersion":"%d","annotations":{"a":""%s}},`+
				`"spec":{"nodeName":"n"},"status":{"phase":"Running"}}}`+"\n", version, annotations.String())
		}
	}))
	defer server.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}
	steps := new(trace.Trace)
	defer listen(steps)()
	log := slog.New(trace.NewHandler(slog.DiscardHandler, steps))
	client := newAnonymousClient(dial, log)
	defer client.Close()
	r := NewReflector(ReflectorOptions[*Pod]{
		Sinks:         observe.Sinks{Log: log, Metrics: metrics.NewRegistry(), Trace: steps},
		Client:        client,
		Kind:          *podKind(),
		Store:         NewStore[*Pod](),
		ServerBackoff: newServerBackoff(),
		Restores:      &position.Restores{},
		ServerOutage:  logging.NewServerOutage(log, kube.IsUnanswered, nil),
	})
	r.decoder = object.NewDecoder(&r.kind) // as Run does
	b.ReportAllocs()
	for b.Loop() {
		request := r.newRequest("")
		body, err := r.client.Stream(b.Context(), request)
		if err != nil {
			b.Fatal(err)
		}
		if end := r.consume(request, body, "1"); end.Err != io.EOF || end.Events != n {
			b.Fatal(end.Err)
		}
		body.Close()
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "events/s")
}
