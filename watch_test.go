package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/metrics"
	"podcount/internal/options"
	"podcount/internal/retry"
	"podcount/internal/suite"
	"podcount/internal/testkit"
	"podcount/internal/wire"
)

// listOfPods and watchOfPods select the requests that a fault meets.
var (
	listOfPods  = fakekube.Requests{Verb: "list", Resource: "pods"}
	watchOfPods = fakekube.Requests{Verb: "watch", Resource: "pods"}
)

// podLists returns the requests for lists of pods so far.
func podLists(f *fakekube.Server) []fakekube.Request { return f.Requests(suite.IsList("pods")) }

// podWatches returns the requests for watches of pods so far.
func podWatches(f *fakekube.Server) []fakekube.Request { return f.Requests(fakekube.IsWatch("pods")) }

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
	byNode *CountIndex[*Pod, string]
	net    *fakekube.Network
	log    *testkit.Buffer

	// deltas has an entry for each change: "+NAME" for an added pod, "~NAME" for an updated one, "-NAME" for a
	// removed one.
	deltas []string
}

// newPodCache makes a reflector of pods with a store of its own.
func newPodCache(client *kube.Client, log *slog.Logger, kind Kind[*Pod]) *Reflector[*Pod] {
	return NewReflector(ReflectorOptions[*Pod]{
		Client:  client,
		Kind:    kind,
		Store:   NewStore[*Pod](),
		Log:     log,
		Metrics: metrics.NewRegistry(),
	})
}

// reflectPods starts a reflector of the fake's pods, which runs until the test ends.
func reflectPods(t *testing.T, f *fakekube.Server) *testReflector {
	r := &testReflector{net: f.ServeIn(t), log: &testkit.Buffer{}}
	log := newLog(r.log, levelRequest)
	client := newAnonymousClient(r.net.Dial, log)
	kind := Kind[*Pod]{
		Name:     "Pod",
		API:      "/api/v1",
		Resource: "pods",
		Protobuf: true,
		New:      func() *Pod { return new(Pod) },
	}
	r.Reflector = newPodCache(client, log, kind)
	r.byNode = CountBy(r.Store, nodeNameOf)
	r.Subscribe(r.recordDelta)

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
	return newClient(&options.Options{}, config, dial, log, metrics.NewRegistry())
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
		f.AddPods(2)
		r := reflectPods(t, f)
		r.wantInSync(t, f)
		f.AddPod("default", "new", "")
		synctest.Wait()
		f.AddPod("default", "new", "n1") // bound
		f.Remove("pods", suite.At("default", "web-0"))
		synctest.Wait()
		r.wantInSync(t, f)
		if want := []string{"+new", "~new", "-web-0"}; !slices.Equal(r.deltas, want) {
			t.Errorf("got the deltas %q, want %q", r.deltas, want)
		}
		testkit.WantNumber(t, "count of n1", r.byNode.Count("n1"), 1)
		q := podWatches(f)[0].Query
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		if q.Get("allowWatchBookmarks") != "true" || seconds < 300 || seconds >= 600 ||
			q.Get("resourceVersion") == "" {
			t.Errorf("watch asked for with %v", q)
		}
		if q := podLists(f)[0].Query; len(q) != 0 {
			t.Errorf("list asked for with %v", q)
		}
	})
}

func TestEndedWatchIsResumedWithoutARelist(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(1)
		r := reflectPods(t, f)
		testkit.Pass(10 * time.Second)
		last := fakekube.TextIn(fakekube.MetaOf(f.AddPod("default", "a", "")), "resourceVersion")
		testkit.Pass(10 * time.Second)
		f.AddNode("another-kind-raises-the-version")
		f.EndWatches(false)
		synctest.Wait() // no time passes
		if v := watchVersions(f); len(v) != 2 || v[1] != last {
			t.Errorf("watches from %q, want the second from %s", v, last)
		}
		f.Remove("pods", suite.At("default", "a"))
		testkit.Pass(11 * time.Minute) // past what any watch was asked for
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		watches := podWatches(f)
		asked, _ := strconv.Atoi(watches[1].Query.Get("timeoutSeconds"))
		if len(watches) < 3 {
			t.Fatalf("watches from %q", watchVersions(f))
		}
		if gap := watches[2].At.Sub(watches[1].At); gap != time.Duration(asked)*time.Second {
			t.Errorf("resumed after %v; the watch was asked for for %d s", gap, asked)
		}
		r.wantInSync(t, f)
	})
}

func TestBookmarkMovesTheResumePointAndNothingElse(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(1)
		r := reflectPods(t, f)
		f.AddNode("n") // the pods' watch hears of this version in a bookmark alone
		now := strconv.Itoa(f.Latest())
		testkit.Pass(11 * time.Minute)
		v := watchVersions(f)
		if len(v) < 2 || v[1] != now {
			t.Errorf("watches from %q, want the second from %s", v, now)
		}
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		testkit.WantNumber(t, "changes heard", len(r.deltas), 0)
		r.wantInSync(t, f)
	})
}

func TestBrokenConnectionIsResumedWithoutARelist(t *testing.T) {
	for _, only := range []string{wire.Protobuf, wire.JSON} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.OnlyMediaType = only
			f.Script(t, "watch pods: cut after 100 bytes")
			r := reflectPods(t, f)
			testkit.Pass(2 * time.Second)
			f.AddPod("default", "half-an-object", "") // breaks in the middle of it
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
				f.AddPods(3)
				if row.do != nil {
					f.Inject(t, fakekube.Fault{On: watchOfPods, Do: row.do})
				}
				r := reflectPods(t, f)
				if row.do == nil {
					r.net.Refuse()
					f.EndWatches(true)
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
		f.EndWatches(true)
		testkit.Pass(5 * time.Minute)
		f.AddPods(1)
		f.Compact() // as a restarted server is
		r.net.Restore()
		back := len(podWatches(f))
		for len(podWatches(f)) == back {
			testkit.Pass(time.Second)
		}
		testkit.Pass(2 * initialBackoff)
		r.wantInSync(t, f)
	})
}

func TestExpiredVersionIsNotRetriedInAHotLoop(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, suite.StatusFault(watchOfPods, 20, 410, "Expired", nil))
		reflectPods(t, f)
		testkit.Pass(2 * time.Minute)
		if n := len(podLists(f)); n < 4 || n > 12 {
			t.Errorf("%d lists in two minutes of 410s", n)
		}
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
	const longestRetryAfter = 2 * time.Second // "Retry-After: 1" asks for 1 s; the client adds up to 1 s
	for _, row := range []struct {
		name     string
		do       fakekube.Effect
		minDelay time.Duration // the upper bound of each delay is at least this
	}{
		{"429 with Retry-After, plain text", tooMany, longestRetryAfter},
		{"429 in the stream", tooManyInStream, 0},
		{"500", fakekube.Reply{Code: 500, Body: "{}"}, 0},
		{"a page that is no JSON", page, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.Inject(t, fakekube.Fault{On: watchOfPods, Times: 4, Do: row.do})
				r := reflectPods(t, f)
				testkit.Pass(time.Minute)
				testkit.WantNumber(t, "lists", len(podLists(f)), 1)
				f.AddPods(1)
				synctest.Wait()
				r.wantInSync(t, f)

				watches := podWatches(f)
				testkit.WantNumber(t, "watches", len(watches), 5)
				for i := 1; i < len(watches); i++ {
					shortest := 800 * time.Millisecond << (i - 1)
					longest := max(2*shortest, row.minDelay)
					delay := watches[i].At.Sub(watches[i-1].At)
					testkit.WantBetween(t, fmt.Sprintf("delay of retry %d", i), delay, shortest, longest)
				}
			})
		})
	}
}

// After an outage, the reflector asks the server for its newest version once a watch is open. This request must not
// delay the watch, whatever its answer is.
func TestReturningServerIsAskedForItsNewestVersion(t *testing.T) {
	asksForVersion := func(request fakekube.Request) bool {
		return strings.HasSuffix(request.Path, "/pods") && request.Query.Get("limit") == "1"
	}
	for _, row := range []struct {
		name string
		code int // the answer to the request for the version, or 0 for a normal answer
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
					requests := fakekube.Requests{If: asksForVersion}
					refusal := f.Inject(t, suite.StatusFault(requests, fakekube.Always, row.code, "", nil))
					defer refusal.Lift()
				}
				f.EndWatches(true)
				testkit.Pass(5 * time.Minute)
				testkit.WantNumber(t, "requests for the version while watches fail", len(f.Requests(asksForVersion)), 0)

				outage.Lift()
				testkit.Pass(time.Minute + time.Second)
				testkit.WantNumber(t, "requests for the version", len(f.Requests(asksForVersion)), 1)
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
		f.EndWatches(true)
		before := r.net.Dialed()
		testkit.Pass(10 * time.Minute)
		if n := r.net.Dialed() - before; n < 10 || n > 25 {
			t.Errorf("%d dials in ten minutes", n)
		}
		if n := strings.Count(r.log.String(), "level=WARN"); n > 11 {
			t.Errorf("%d warnings in ten minutes", n)
		}
		f.AddPods(1)
		testkit.WantNumber(t, "watches, before its end", len(podWatches(f)), 1)
		r.net.Restore()
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "watches", len(podWatches(f)), 2)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

func TestThreeShortWatchesInARowLeadToARelist(t *testing.T) {
	for times, lists := range map[int]int{2: 1, 3: 2} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.Inject(t, fakekube.Fault{
				On:    watchOfPods,
				Times: times,
				Do:    fakekube.Reply{Body: "\n"},
			})
			r := reflectPods(t, f)
			testkit.Pass(time.Minute)
			testkit.WantNumber(t, fmt.Sprintf("lists after %d short watches", times), len(podLists(f)),
				lists)
			f.AddPods(1)
			synctest.Wait()
			r.wantInSync(t, f)
		})
	}
}

func TestWatchThatBringsTheSameAgainAndAgainIsNoHotLoop(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(1)
		old, _ := json.Marshal(fakekube.Object{"type": "ADDED", "object": f.Get("pods", suite.At("default", "web-0"))})
		f.Inject(t, fakekube.Fault{
			On:    watchOfPods,
			Times: 5,
			Do:    fakekube.Reply{Body: string(old)},
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
					f.AddPods(1)
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
		return string(fakekube.ProtobufEvent(eventType, fakekube.Protobuf([]byte(object))))
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
		{"a protobuf frame without its magic", protobufWatch, string(fakekube.ProtobufEvent("ADDED", []byte(pod)))},
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
		f.AddPods(1)
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
		f.AddPods(1)
		f.EndWatches(true)
		testkit.Pass(3*kube.Silence + time.Minute)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 2)
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
					f.AddPods(1)
					testkit.Pass(protocol.limit)
					suite.WantLabel(t, f, "cp", suite.TotalLabel, "1")
					for _, resource := range []string{"pods", "nodes"} {
						newWatches := f.Requests(func(request fakekube.Request) bool {
							return fakekube.IsWatch(resource)(request) &&
								request.At.After(silentSince) &&
								request.HTTP2 == protocol.isHTTP2
						})
						testkit.WantNumber(t, "watches of "+resource+" since then", len(newWatches), 1)
						lists := f.Requests(suite.IsList(resource))
						testkit.WantNumber(t, "lists of "+resource, len(lists), 1)
					}
					f.SetLabel("cp", suite.TotalLabel, "7")
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
		discovery := func(s fakekube.Request) bool { return s.Path == "/apis/demo.mark8s.io/v1" }
		f.Inject(t, fakekube.Fault{
			On:    fakekube.Requests{If: discovery},
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
			t.Errorf("%d connections: they were not shed", n)
		}
		for _, resource := range []string{"pods", "nodes"} {
			testkit.WantNumber(t, "lists of "+resource, len(f.Requests(suite.IsList(resource))), 1)
			testkit.WantNumber(t, "watches of "+resource, len(f.Requests(fakekube.IsWatch(resource))), 1)
		}
	})
}

func TestIdleConnectionsThatAreCutCauseNoRelists(t *testing.T) {
	for _, every := range []time.Duration{1500 * time.Millisecond, 45 * time.Second} {
		suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
			r := reflectPods(t, f)
			for start := time.Now(); time.Since(start) < 10*time.Minute; {
				testkit.Pass(every)
				f.EndWatches(true)
			}
			testkit.WantNumber(t, fmt.Sprintf("lists with a cut every %v", every), len(podLists(f)), 1)
			f.AddPods(1)
			synctest.Wait()
			r.wantInSync(t, f)
		})
	}
}

func TestHourlyRelistThatFailsDoesNotStopTheWatch(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		r := reflectPods(t, f)
		testkit.Pass(50 * time.Minute)
		f.Script(t, `list pods, 3 times: reply 503 body "overloaded"`)
		testkit.Pass(17 * time.Minute)
		f.AddPods(3)
		synctest.Wait()
		r.wantInSync(t, f)
		if n := len(podLists(f)); n < 2 || n > 4 {
			t.Errorf("%d lists", n)
		}
		testkit.Pass(time.Hour)
		r.wantInSync(t, f)
	})
}

func TestHourlyRelistMendsALostEvent(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(3)
		r := reflectPods(t, f)
		f.LoseEvents(2) // a pod's deletion is two changes
		f.Remove("pods", suite.At("default", "web-1"))
		testkit.Pass(50 * time.Minute)
		testkit.WantNumber(t, "pods while the loss is not known", r.Len(), 3)
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
		testkit.Pass(17 * time.Minute)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "lists", len(podLists(f)), 2)
	})
}

func TestEventsThatTurnBackTimeAreIgnored(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		event := func(typ, name, uid, version, node string) string {
			return fmt.Sprintf(
				`{"type":%q,"object":{"metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":%q},"spec":{"nodeName":%q}}}`+"\n",
				typ, name, uid, version, node)
		}
		f.Inject(t, fakekube.Fault{
			On: watchOfPods,
			Do: fakekube.Reply{
				Body: event("ADDED", "a", "u1", "1000", "n1") + event("MODIFIED", "a", "u1", "999", "old") +
					event("ADDED", "a", "u1", "1000",
						"n1") + event("DELETED", "a", "u1", "998", "n1") + event("DELETED", "a", "u1", "1001", "n1") +
					event("ADDED", "a", "u1", "1000",
						"n1") + event("ADDED", "a", "u2", "1002", "n2") + event("ADDED", "a", "u3", "1003", "n3"),
			},
		})
		r := reflectPods(t, f)
		if want := []string{"+a", "-a", "+a", "-a", "+a"}; !slices.Equal(r.deltas, want) {
			t.Errorf("got the deltas %q, want %q", r.deltas, want)
		}
		if p := r.Get(Key{"default", "a"}); p == nil || p.UID() != "u3" || r.byNode.Count("n3") != 1 ||
			r.byNode.Count("n2") != 0 {
			t.Errorf("the store holds %+v", p)
		}
	})
}

func TestListInPagesOnceWholeListsHaveFailed(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(pageLimit + 500)
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
		f.AddPods(pageLimit + 500)
		f.Script(t, "list pods, 2 times: cut after 5000 bytes")
		second := func(s fakekube.Request) bool { return suite.IsList("pods")(s) && s.Query.Has("continue") }
		f.Inject(t, suite.StatusFault(fakekube.Requests{If: second}, 1, 410, "Expired", nil))
		r := reflectPods(t, f)
		testkit.Pass(time.Minute)
		r.wantInSync(t, f)
		testkit.WantNumber(t, "requests", len(podLists(f)), 6)
	})
}

func TestOutageDoesNotLeadToPages(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Script(t, `list pods, 4 times: reply 503 body "no endpoints available"`)
		r := reflectPods(t, f)
		testkit.Pass(time.Minute)
		r.wantInSync(t, f)
		for _, s := range podLists(f) {
			if s.Query.Has("limit") {
				t.Error("asked for a page")
			}
		}
	})
}

func TestFailedListIsThrownAwayWhole(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(500)
		r := reflectPods(t, f)
		for i := range 500 {
			f.LoseEvents(2)
			f.Remove("pods", suite.At("default", fmt.Sprintf("web-%d", i)))
			f.LoseEvents(1)
			f.AddPod("default", fmt.Sprintf("other-%d", i), "")
		}
		f.Script(t, "list pods: cut after 5000 bytes")
		f.Compact()
		f.EndWatches(true)
		for len(podLists(f)) < 2 {
			testkit.Pass(10 * time.Millisecond)
		}
		testkit.WantNumber(t, "changes heard of half a list", len(r.deltas), 0)
		testkit.WantNumber(t, "pods", r.Len(), 500)
		testkit.Pass(time.Minute)
		testkit.WantNumber(t, "changes heard of a whole one", len(r.deltas), 1000)
		r.wantInSync(t, f)
	})
}

func TestSlowListShowsThatItLives(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPods(1000)
		f.Script(t, "list pods: hang after 5000 bytes")
		r := reflectPods(t, f)
		testkit.Pass(kube.Silence + 10*time.Second)
		r.wantInSync(t, f)
		testkit.WantText(t, r.log.String(), "nothing was heard for 2m30s")
	})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, fakekube.Fault{
			On: listOfPods,
			Do: fakekube.Handle(func(w http.ResponseWriter, r *http.Request) {
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
			}),
		})
		r := reflectPods(t, f)
		testkit.Pass(slowList)
		testkit.WantNumber(t, "lines at the start", strings.Count(r.log.String(), "still listing"), 0)
		testkit.Pass(time.Second)
		testkit.WantText(t, r.log.String(), `msg="still listing" kind=Pod objects=512 for=2s`)
		testkit.WantNumber(t, "lines after two seconds", strings.Count(r.log.String(), "still listing"), 1)
	})
}

func TestLabelsSurviveWhateverAListMeets(t *testing.T) {
	text, html := map[string]string{
		"Content-Type": "text/plain",
		"Retry-After":  "7",
	}, map[string]string{
		"Content-Type": "text/html",
	}
	tooLarge := fakekube.Object{
		"causes": []any{
			fakekube.Object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"},
		},
		"retryAfterSeconds": 1,
	}
	status := func(code int, reason string, details any, header ...string) fakekube.Fault {
		return suite.StatusFault(fakekube.Requests{}, 0, code, reason, details, header...)
	}
	list := func(item string) fakekube.Fault {
		return fakekube.Fault{
			Do: fakekube.Reply{
				Body: `{"metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"99"}},` + item,
			},
		}
	}
	for name, ft := range map[string]fakekube.Fault{
		"410":                               status(410, "Expired", nil),
		"500":                               status(500, "InternalError", nil),
		"503":                               status(503, "ServiceUnavailable", nil),
		"504, as the version is too large":  status(504, "Timeout", tooLarge, "Retry-After", "1"),
		"429":                               status(429, "TooManyRequests", nil),
		"429 with Retry-After":              status(429, "TooManyRequests", fakekube.Object{"retryAfterSeconds": 3}, "Retry-After", "3"),
		"429 in plain text":                 {Do: fakekube.Reply{Code: 429, Body: "Too many requests, please try again later.", Header: text}},
		"a reset":                           {Do: fakekube.DropRequest{}},
		"cut in the middle":                 {Do: fakekube.Cut{After: 300}},
		"ended cleanly in the middle":       list(""),
		"no answer":                         {Do: fakekube.Stall{}},
		"stalled in the middle":             {Do: fakekube.Hang{After: 300}},
		"garbage":                           list(`}{`),
		"garbage, as protobuf":              {Do: fakekube.Reply{Body: "k8s\x00garbage", Header: map[string]string{"Content-Type": wire.Protobuf}}},
		"a wrong content type":              {Do: fakekube.Reply{Code: 200, Body: `{"metadata":{"resourceVersion":"100"},"items":[]}`, Header: html}},
		"a page of some proxy":              {Do: fakekube.Reply{Code: 502, Body: "<html>", Header: html}},
		"nothing":                           {Do: fakekube.Reply{Body: "\n"}},
		"no items":                          {Do: fakekube.Reply{Body: `{"metadata":{"resourceVersion":"100"}}`}},
		"no version":                        {Do: fakekube.Reply{Body: `{"metadata":{},"items":[]}`}},
		"an item without uid":               list(`{"metadata":{"name":"b","namespace":"n","resourceVersion":"98"}}]}`),
		"an item without name":              list(`{"metadata":{"namespace":"n","uid":"v","resourceVersion":"98"}}]}`),
		"an item without version":           list(`{"metadata":{"name":"b","namespace":"n","uid":"v"}}]}`),
		"an item that is none":              list(`null]}`),
		"an item without uid, in protobuf":  {Do: fakekube.Reply{Body: string(fakekube.Protobuf([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"b","resourceVersion":"98"}}]}`))), Header: map[string]string{"Content-Type": wire.Protobuf}}},
		"an item without name, in protobuf": {Do: fakekube.Reply{Body: string(fakekube.Protobuf([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"uid":"b","resourceVersion":"98"}}]}`))), Header: map[string]string{"Content-Type": wire.Protobuf}}},
	} {
		for _, resource := range []string{"pods", "nodes"} {
			t.Run(name+"/"+resource, func(t *testing.T) {
				suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
					f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
					f.AddNode("w1", suite.TotalLabel+"=7")
					f.AddNode("w2")
					liveADay(f, 1)
					ft.On = fakekube.Requests{Verb: "list", Resource: resource}
					ft.Times = 4
					f.Inject(t, ft)
					p := podcount.Start(t, f, "-node-label", suite.OwnPodsLabel)
					suite.MeetFaults(t, f)
					testkit.Pass(kube.Silence)
					suite.WantPeace(t, f, "-node-label", suite.OwnPodsLabel)
					good := f.Requests(suite.IsList(resource))[ft.Times].At
					testkit.WantNumber(
						t,
						"writes before a whole list was asked for",
						len(f.Requests(
							func(s fakekube.Request) bool { return fakekube.IsWrite(s) && s.At.Before(good) })),
						0,
					)
					for day := 2; day < 4; day++ { // and once more where it is a relist that meets them
						f.Inject(t, ft)
						f.LoseEvents(1000)
						liveADay(f, day)
						f.LoseEvents(0)
						f.Compact()
						f.EndWatches(true)
						suite.MeetFaults(t, f)
						testkit.Pass(kube.Silence)
						suite.WantPeace(t, f, "-node-label", suite.OwnPodsLabel)
					}
					for line := range strings.Lines(p.Log.String()) {
						if strings.Contains(line, "cannot list") {
							testkit.WantText(t, line, `err="list `+resource+": ")
						}
					}
				})
			})
		}
	}
}

func TestListWithoutEndIsAnErrorThatNamesTheBound(t *testing.T) {
	const begin, item, end = `{"metadata":{"resourceVersion":"5"},"items":[`, `{"metadata":{"name":"a","uid":"u","resourceVersion":"4"}}`, `]}`
	trickle := func(items int) http.HandlerFunc { // a minute each, which is not silence
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.JSON)
			io.WriteString(w, begin+item)
			for range items - 1 {
				http.NewResponseController(w).Flush()
				if retry.Sleep(r.Context(), time.Minute) != nil {
					return
				}
				io.WriteString(w, ","+item)
			}
			io.WriteString(w, end)
		}
	}
	page := 0
	for name, c := range map[string]struct {
		fault fakekube.Fault
		want  string
	}{
		"an object a minute": {fakekube.Fault{Do: fakekube.Handle(trickle(1000))}, listTimeout.String()},
		"pages of nothing": {fakekube.Fault{Times: int(listTimeout/(700*time.Millisecond)) + 1, Delay: 700 * time.Millisecond, Do: fakekube.Handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.JSON)
			page++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":"page-%d"},"items":[]}`, page)
		})}, listTimeout.String()},
		"pages of nothing at full speed": {fakekube.Fault{Times: listLimit/pageLimit + 1, Do: fakekube.Handle(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", wire.JSON)
			page++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":"page-%d"},"items":[]}`, page)
		})}, "after 1001 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
				f.AddPods(2)
				c.fault.On = listOfPods
				f.Inject(t, c.fault)
				p := podcount.Start(t, f)
				suite.MeetFaults(t, f)
				for start := time.Now(); !strings.Contains(p.Log.String(), "cannot list") && time.Since(start) <= listTimeout; {
					testkit.Pass(time.Second)
				}
				testkit.WantText(t, p.Log.String(), `err="list pods: `)
				testkit.WantText(t, p.Log.String(), c.want)
				suite.WantPeace(t, f)
			})
		})
	}
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) { // of two million objects, the last few
		base, _ := url.Parse("http://127.0.0.1:1")
		client := newClient(&options.Options{}, &kubeconfig.Config{Server: base, Credential: noCredential},
			f.ServeIn(t).Dial, quietLog(), metrics.NewRegistry())
		defer client.Close()
		r := newPodCache(client, quietLog(), *podKind())
		r.kind.API, r.kind.Resource = "/api/v1", "pods"
		tooMany := "list pods: the list has more than 2000000 objects: if they are pods, restrict it with -namespace"
		for pods, want := range []string{"<nil>", "<nil>", "<nil>", tooMany} {
			listing := r.BeginList()
			listing.count = listLimit - 2
			_, err := r.readPages(t.Context(), listing)
			testkit.WantText(t, fmt.Sprint(err), want)
			f.AddPod("default", fmt.Sprint("p", pods), "")
		}
	})
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) { // slow is not endless
		f.AddNode("cp", suite.ControlPlane)
		f.Inject(t,
			fakekube.Fault{On: listOfPods, Do: fakekube.Handle(trickle(9))})
		podcount.Start(t, f)
		testkit.Pass(listTimeout - time.Minute)
		suite.WantLabel(t, f, "cp", suite.TotalLabel, "1")
		testkit.WantNumber(t, "lists", len(podLists(f)), 1)
	})
}

func TestLabelsSurviveWhateverAWatchMeets(t *testing.T) {
	type frame struct {
		event string
		obj   fakekube.Object
	}
	const a, b = "a", "b" // pods on w1 and w2
	pod := func(f *fakekube.Server, name string) fakekube.Object {
		return f.Get("pods", suite.At("default", name))
	}
	of := func(o fakekube.Object, field, value string) fakekube.Object { // o, changed
		o = fakekube.Clone(o)
		if fakekube.MetaOf(o)[field] = value; field == "nodeName" {
			o["spec"].(fakekube.Object)[field] = value
		}
		return o
	}
	version := func(v string) fakekube.Object {
		return fakekube.Object{"metadata": fakekube.Object{"resourceVersion": v}}
	}
	errorFrame := func(code int, reason string) fakekube.Fault {
		body, _ := json.Marshal(
			fakekube.Object{"type": "ERROR", "object": fakekube.Status(code, reason, "as scripted", nil)})
		return fakekube.Fault{Times: 4, Do: fakekube.Reply{Body: string(body)}}
	}
	status := func(code int, reason string, header ...string) fakekube.Fault {
		return suite.StatusFault(fakekube.Requests{}, 4, code, reason, nil, header...)
	}
	type row struct {
		args  string
		fault fakekube.Fault                   // meets the first watches, of pods and of nodes
		life  func(f *fakekube.Server) []frame // what happens then, and what the next watch says of it, if anything
		wait  time.Duration                    // beyond the bound

		bookmarks time.Duration // if not one a minute
	}
	for name, c := range map[string]row{
		"ends cleanly":            {fault: fakekube.Fault{Times: 5, Do: fakekube.Reply{Body: "\n"}}},
		"reset":                   {fault: fakekube.Fault{Times: 4, Do: fakekube.DropRequest{}}},
		"reset in an object":      {fault: fakekube.Fault{Do: fakekube.Cut{After: 40}}},
		"429":                     {fault: status(429, "TooManyRequests")},
		"429 with Retry-After":    {fault: status(429, "TooManyRequests", "Retry-After", "9")},
		"429 in plain text":       {fault: fakekube.Fault{Times: 4, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": "text/plain", "Retry-After": "9"}, Body: "Too many"}}},
		"500":                     {fault: status(500, "InternalError")},
		"503":                     {fault: status(503, "ServiceUnavailable")},
		"504":                     {fault: status(504, "Timeout")},
		"410":                     {fault: status(410, "Expired")},
		"400":                     {fault: status(400, "BadRequest")},
		"403":                     {fault: status(403, "Forbidden")},
		"404":                     {fault: status(404, "NotFound")},
		"a page of some proxy":    {fault: fakekube.Fault{Times: 4, Do: fakekube.Reply{Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}}},
		"garbage":                 {fault: fakekube.Fault{Times: 4, Do: fakekube.Reply{Body: "}{"}}},
		"half an object":          {fault: fakekube.Fault{Times: 4, Do: fakekube.Reply{Body: `{"type":"ADDED","object":{"metadata":{"name":"x"`}}},
		"no answer":               {fault: fakekube.Fault{Times: 2, Do: fakekube.Stall{}}, wait: kube.Silence},
		"silence":                 {fault: fakekube.Fault{Times: 2, Do: fakekube.Hang{After: 1}}, wait: kube.Silence},
		"silence in an object":    {fault: fakekube.Fault{Do: fakekube.Hang{After: 40}}, wait: kube.Silence},
		"ERROR Expired":           {fault: errorFrame(410, "Expired")},
		"ERROR Expired, no code":  {fault: errorFrame(0, "Expired")},
		"ERROR Gone":              {fault: errorFrame(410, "Gone")},
		"ERROR TooManyRequests":   {fault: errorFrame(429, "TooManyRequests")},
		"ERROR InternalError":     {fault: errorFrame(500, "InternalError")},
		"ERROR, unknown":          {fault: errorFrame(0, "SomethingNew")},
		"ERROR, of nothing":       {fault: fakekube.Fault{Times: 4, Do: fakekube.Reply{Body: `{"type":"ERROR","object":{}}`}}},
		"a history that is gone":  {life: func(f *fakekube.Server) []frame { liveADay(f, 2); f.Compact(); f.EndWatches(true); return nil }},
		"bookmarks for two hours": {life: func(f *fakekube.Server) []frame { testkit.Pass(2 * time.Hour); f.EndWatches(true); return nil }},
		"never a bookmark":        {bookmarks: 1000 * time.Hour, life: func(f *fakekube.Server) []frame { testkit.Pass(2 * time.Hour); return nil }},
		"an outage": {life: func(f *fakekube.Server) []frame {
			f.CutOff("127.0.0.1:1", true)
			liveADay(f, 1)
			testkit.Pass(10 * time.Minute)
			f.CutOff("127.0.0.1:1", false)
			return nil
		}},
		"an ADDED twice": {life: func(f *fakekube.Server) []frame {
			f.LoseEvents(1)
			x := f.AddPod("default", "x", "w1")
			return []frame{{"ADDED", x}, {"ADDED", x}}
		}},
		"an ADDED of what is known": {life: func(f *fakekube.Server) []frame { return []frame{{"ADDED", pod(f, a)}, {"ADDED", pod(f, b)}} }},
		"a MODIFIED of what is not known": {life: func(f *fakekube.Server) []frame {
			f.LoseEvents(1)
			return []frame{{"MODIFIED", f.AddPod("default", "x", "w1")}}
		}},
		"a DELETED twice": {life: func(f *fakekube.Server) []frame {
			f.LoseEvents(2)
			gone := f.Remove("pods", suite.At("default", a))
			gone = of(gone, "resourceVersion", strconv.Itoa(f.Latest()))
			return []frame{{"DELETED", gone}, {"DELETED", gone}}
		}},
		"the same name with a new uid on another node, told by an ADDED alone": {life: func(f *fakekube.Server) []frame {
			f.LoseEvents(3)
			f.Remove("pods", suite.At("default", a))
			return []frame{{"ADDED", f.AddPod("default", a, "w2")}}
		}},
		"the same name with a new uid on another node, told by a MODIFIED alone": {life: func(f *fakekube.Server) []frame {
			f.LoseEvents(3)
			f.Remove("pods", suite.At("default", a))
			return []frame{{"MODIFIED", f.AddPod("default", a, "w2")}}
		}},
		"DELETED from a label selector": {args: "-pod-selector app=web", life: func(f *fakekube.Server) []frame {
			other := fakekube.Clone(pod(f, a))
			fakekube.MetaOf(other)["labels"] = fakekube.Object{"app": "other"}
			f.Put("pods", other)
			other = fakekube.Clone(pod(f, b))
			other["spec"].(fakekube.Object)["nodeName"] = "w1" // moved and gone at once: what comes is the old content
			fakekube.MetaOf(other)["labels"] = fakekube.Object{"app": "other"}
			f.Put("pods", other)
			testkit.Pass(time.Second)
			fakekube.MetaOf(other)["labels"] = fakekube.Object{"app": "web"} // and back
			f.Put("pods", other)
			return nil
		}},
		"DELETED from a field selector": {args: "-field-selector status.phase=Running", life: func(f *fakekube.Server) []frame {
			done := fakekube.Clone(pod(f, a))
			done["status"] = fakekube.Object{"phase": "Succeeded"}
			f.Put("pods", done)
			return nil
		}},
		"events of an older version": {life: func(f *fakekube.Server) []frame {
			old := of(of(pod(f, a), "resourceVersion", "150"), "nodeName", "w2")
			return []frame{{"MODIFIED", old}, {"DELETED", old}, {"ADDED", of(of(old, "name", "ghost"), "uid", "g")}}
		}},
		"a bookmark of an older version": {life: func(f *fakekube.Server) []frame { return []frame{{"BOOKMARK", version("150")}} }},
		"a bookmark from the future":     {life: func(f *fakekube.Server) []frame { return []frame{{"BOOKMARK", version("99999")}} }, wait: 3 * kube.Silence},
		"an event from the future": {wait: 3 * kube.Silence, life: func(f *fakekube.Server) []frame {
			return []frame{{"MODIFIED", of(of(pod(f, a), "resourceVersion", "99999"), "nodeName", "w2")}, {"DELETED", of(pod(f, b), "resourceVersion", "9999999999999999999")}}
		}},
		"a server that was set back": {wait: 3 * kube.Silence, life: func(f *fakekube.Server) []frame {
			turnBack := f.Checkpoint()
			f.SetVersion(f.Latest() + 5000)
			liveADay(f, 2)
			testkit.Pass(30 * time.Second)
			turnBack()
			f.EndWatches(true)
			return nil
		}},
		"an unknown type": {life: func(f *fakekube.Server) []frame { return []frame{{"MOVED", pod(f, a)}} }},
		"an event of an object without uid": {life: func(f *fakekube.Server) []frame {
			return []frame{{"DELETED", of(of(pod(f, a), "resourceVersion", "99999"), "uid", "")}}
		}},
		"an event of an object without name": {life: func(f *fakekube.Server) []frame {
			return []frame{{"DELETED", of(of(pod(f, a), "resourceVersion", "99999"), "name", "")}}
		}},
		"a DELETED lost": {wait: 66 * time.Minute, life: func(f *fakekube.Server) []frame {
			f.LoseEvents(2)
			f.Remove("pods", suite.At("default", a))
			return nil
		}},
		"an ADDED lost": {wait: 66 * time.Minute, life: func(f *fakekube.Server) []frame {
			f.LoseEvents(1)
			f.AddPod("default", "x", "w1")
			return nil
		}},
		"a frame of 3 MB": {life: func(f *fakekube.Server) []frame {
			big := func(name string) fakekube.Object {
				return fakekube.Object{"namespace": "default", "name": name, "labels": fakekube.Object{"app": "web"}, "annotations": fakekube.Object{"big": strings.Repeat("x", 3<<20)}}
			}
			f.Put("pods", fakekube.PodOn(big("x"), "w1"))
			f.Put("pods", fakekube.PodOn(big("y"), "w1"))
			testkit.Pass(time.Second)
			f.Remove("pods", suite.At("default", "x"))
			return nil
		}},
	} {
		for _, form := range []string{"protobuf", "json"} {
			t.Run(name+"/"+form, func(t *testing.T) {
				suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
					args := append(strings.Fields(c.args), "-node-label", suite.OwnPodsLabel, "-wire", form)
					f.Bookmarks = cmp.Or(c.bookmarks, f.Bookmarks)
					f.AddNode("cp", suite.ControlPlane)
					f.AddNode("w1")
					f.AddNode("w2")
					f.AddPod("default", a, "w1")
					f.AddPod("default", b, "w2")
					for _, resource := range []string{"pods", "nodes"} {
						if ft := c.fault; ft.Do != nil {
							ft.On = fakekube.Requests{Verb: "watch", Resource: resource}
							f.Inject(t, ft)
						}
					}
					podcount.Start(t, f, args...)
					synctest.Wait()
					life := c.life
					if life == nil {
						life = func(*fakekube.Server) []frame { liveADay(f, 1); return nil }
					}
					if frames := life(f); frames != nil {
						body, header := "", map[string]string{}
						for _, fr := range frames {
							data, _ := json.Marshal(fr.obj)
							if form == "json" {
								body += fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", fr.event, data)
							} else {
								body += string(fakekube.ProtobufEvent(fr.event, fakekube.Protobuf(data)))
								header["Content-Type"] = wire.Protobuf + ";stream=watch"
							}
						}
						f.Inject(t, fakekube.Fault{
							On: watchOfPods,
							Do: fakekube.Reply{Header: header, Body: body},
						})
						f.EndWatches(false)
					}
					suite.MeetFaults(t, f)
					testkit.Pass(c.wait)
					suite.WantPeace(t, f, args...)
					liveADay(f, 9) // all goes on
					suite.WantPeace(t, f, args...)
				})
			})
		}
	}
}

// liveADay is a day in the life of a small cluster: pods come, are bound, go and come back under their name; nodes, too.
func liveADay(f *fakekube.Server, day int) {
	f.AddPod("default", fmt.Sprint("new-", day), "w1")
	f.AddPod("default", fmt.Sprint("unbound-", day), "")
	f.AddPod("default", fmt.Sprint("unbound-", day-1), "w1") // bound now, if it was there
	f.Remove("pods", suite.At("default", "comes-back"))
	f.AddPod("default", "comes-back", fmt.Sprint("w", 1+day%2))
	f.Remove("pods", suite.At("default", fmt.Sprint("new-", day-1)))
	f.Put("pods",
		fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "of-nothing-but-metadata"}})
	f.AddNode(fmt.Sprint("w", day), suite.ControlPlane)
	f.Remove("nodes", fakekube.Key{Name: "cp"})
	f.AddNode("cp", suite.ControlPlane, suite.TotalLabel+"=7")
	f.SetLabel("w1", suite.ControlPlane, []any{"", nil}[day%2])
}

func TestKindWithoutAMetricCanBePatched(t *testing.T) {
	suite.Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "p", "")
		r := reflectPods(t, f)
		pod := r.Get(Key{"default", "p"})
		patch := map[string]any{"metadata": map[string]any{"labels": map[string]any{"checked": "yes"}}}
		now, err := r.Patch(t.Context(), pod, "", patch, func(*Pod) bool { return true })
		if err != nil || now == nil {
			t.Errorf("the patch returned %v and the error %v", now, err)
		}
		testkit.WantEqual(t, "writes", len(suite.WritesTo(f)), 1)
	})
}
