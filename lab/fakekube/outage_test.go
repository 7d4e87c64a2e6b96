package fakekube

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// startWatch watches pods on a new goroutine. ended receives whether the connection broke.
func startWatch(t *testing.T, f *Server, query string) (answer *httptest.ResponseRecorder, ended chan bool) {
	t.Helper()
	answer = httptest.NewRecorder()
	ended = make(chan bool, 1)
	r := httptest.NewRequestWithContext(t.Context(), "GET", "/api/v1/pods?watch=true"+query, nil)
	go func() {
		defer func() { ended <- recover() == http.ErrAbortHandler }()
		f.ServeHTTP(answer, r)
	}()
	return answer, ended
}

func TestEndWatchesEndsRequestedWatches(t *testing.T) {
	f := New()
	server := f.Listen("http")
	defer server.Close()
	for i := range 50 {
		answer, err := http.Get(server.URL + "/api/v1/pods?watch=true&timeoutSeconds=60&resourceVersion=202")
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 {
			f.BreakWatches()
		} else {
			f.EndWatches()
		}
		lines := bufio.NewScanner(answer.Body)
		for lines.Scan() {
		}
		if isBroken := lines.Err() != nil; isBroken != (i%2 == 1) {
			t.Errorf("watch %d ended with %v", i, lines.Err())
		}
		answer.Body.Close()
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestEndWatchesEndsDelayedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Script(t, "*: delay 1s")
		_, ended := startWatch(t, f, "&resourceVersion=202")
		synctest.Wait()
		f.EndWatches()
		if isBroken := <-ended; isBroken {
			t.Error("its connection broke")
		}
	})
}

func TestAwaitChecksWithoutRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		start := time.Now()
		f.Await(t, "a second later", func() bool { return time.Since(start) > time.Second })
		if passed := time.Since(start); passed > 2*time.Second {
			t.Errorf("it took %v", passed)
		}
	})
}

func TestCutOffHostBreaksAndRecovers(t *testing.T) {
	f := New()
	reconnect := f.CutOff("a:1")
	wantAnswer(t, f, "GET http://a:1/api/v1/pods", "", 0, "")
	wantAnswer(t, f, "GET http://b:1/api/v1/pods", "", 200, "PodList")
	reconnect()
	wantAnswer(t, f, "GET http://a:1/api/v1/pods", "", 200, "PodList")
	testkit.WantNumber(t, "requests", len(f.Received(Requests{Verb: "list", Resource: "pods"})), 3)
}

func TestEachUndoUndoesOnlyItsOwnCall(t *testing.T) {
	f := New()
	reconnect, permit := f.CutOff("a"), f.Forbid("list pods")
	reconnectLast, permitLast := f.CutOff("a"), f.Forbid("list pods")
	for range 2 { // the second time does nothing
		reconnect()
		permit()
	}
	wantAnswer(t, f, "GET http://a/version", "", 0, "")
	wantAnswer(t, f, "GET http://b/api/v1/pods", "", 403, "Forbidden")
	reconnectLast()
	permitLast()
	wantAnswer(t, f, "GET http://a/api/v1/pods", "", 200, "PodList")
}

func TestLaggingServerIsSilentUntilItCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		addPods(f, 2)
		first := f.Lag(Requests{}, 1)
		second := f.Lag(Requests{}, 1)
		answer, ended := startWatch(t, f, "&resourceVersion=202")
		synctest.Wait()
		if got := strings.Count(answer.Body.String(), "ADDED"); got != 1 {
			t.Errorf("%d events, want 1", got)
		}
		first()
		synctest.Wait()
		if got := strings.Count(answer.Body.String(), "ADDED"); got != 1 {
			t.Errorf("an earlier lag's end ends this one: %d events", got)
		}
		second()
		second()
		synctest.Wait()
		if got := strings.Count(answer.Body.String(), "ADDED"); got != 2 {
			t.Errorf("%d events after it caught up, want 2", got)
		}
		f.BreakWatches()
		if isBroken := <-ended; !isBroken {
			t.Error("the watch ended cleanly")
		}
	})
}

func TestHealSparesWatchesFromLaterTruncation(t *testing.T) {
	for _, fault := range []Fault{
		{Do: Hang{After: 1}},
		{Do: Cut{After: 1}},
		{Do: CutFrame{Frame: 1}},
		{Do: Truncate{}},
		{Do: Hang{After: 1}, Delay: time.Second},
	} {
		t.Run(fault.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { checkHealSparesWatch(t, fault) })
		})
	}
}

// checkHealSparesWatch checks that a watch that has met a fault gets all its events after Heal.
func checkHealSparesWatch(t *testing.T, fault Fault) {
	f := New()
	n := &spyLog{}
	f.Spy = n
	f.InjectUnchecked(fault)
	answer, _ := startWatch(t, f, "&resourceVersion=202")
	synctest.Wait()
	f.LiftFaults() // This alone would leave the watch affected.
	f.Heal()
	<-time.After(fault.Delay)
	synctest.Wait()
	for _, name := range []string{"a", "b"} {
		f.AddPod("default", name, "")
		synctest.Wait()
	}
	testkit.WantNumber(t, "events", strings.Count(answer.Body.String(), "ADDED"), 2)
	testkit.WantText(t, strings.Join(n.lines, "\n"), "told watch pods ADDED default/b, cut: false")
}

func TestHealDoesNotMendTruncatedWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.InjectUnchecked(Fault{Do: Hang{After: 1}})
		answer, _ := startWatch(t, f, "&resourceVersion=202")
		addPods(f, 1)
		synctest.Wait()
		f.Heal()
		addPods(f, 1)
		synctest.Wait()
		testkit.WantNumber(t, "bytes", answer.Body.Len(), 1)
	})
}

func TestFrameFollowsPendingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		addPods(f, 1)
		f.SendFrame(Frame{Resource: "pods", Type: "MODIFIED"})
		f.SendFrame(Frame{Resource: "nodes", Raw: "of another watch"})
		f.SendFrame(Frame{Resource: "pods", Type: "ERROR", Object: Status(500, "InternalError", "no", nil)})
		f.SendFrame(Frame{Resource: "pods", Raw: "junk", End: true})
		answer, ended := startWatch(t, f, "&resourceVersion=202")
		synctest.Wait()
		for range 2 { // a waiting watch sends one frame per change
			f.AddNode("n")
			synctest.Wait()
		}
		if isBroken := <-ended; isBroken {
			t.Error("the watch broke")
		}
		var events []string
		for line := range strings.Lines(answer.Body.String()) {
			event, _, _ := strings.Cut(strings.TrimPrefix(line, `{"type":"`), `"`)
			events = append(events, event)
		}
		if got := strings.Join(events, " "); got != "ADDED MODIFIED ERROR junk" {
			t.Errorf("the watch got %s", got)
		}
	})
}

func TestWatchWithoutAVersionBeginsWithExistingObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		n := &spyLog{}
		addPods(f, 1)
		f.Spy = n
		answer, _ := startWatch(t, f, "&timeoutSeconds=1")
		synctest.Wait()
		if got := strings.Count(answer.Body.String(), "ADDED"); got != 1 {
			t.Errorf("%d events, want 1", got)
		}
		want := "asked watch pods\ntold watch pods ADDED default/web-0, cut: false"
		if got := strings.Join(n.lines, "\n"); got != want {
			t.Errorf("the spy heard:\n%s\nwant:\n%s", got, want)
		}
	})
}

func TestRestoredSnapshotReassignsVersions(t *testing.T) {
	f := New()
	addPods(f, 1)
	version := f.Latest()
	restore := f.Snapshot()
	addPods(f, 3)
	defineWidgets(f, onlyV1)
	restore()
	if len(f.All(definitions)) != 0 || len(f.All("pods")) != 1 || f.Latest() != version || len(f.Changes()) != 0 {
		t.Errorf("%v, %d pods, version %d, %d changes",
			f.All(definitions), len(f.All("pods")), f.Latest(), len(f.Changes()))
	}
	before := strconv.Itoa(version - 1)
	_, answer := ask(t, f, "GET", "/api/v1/pods?watch=true&timeoutSeconds=1&resourceVersion="+before, "")
	testkit.WantText(t, answer, "too old resource version")
}

func TestCheckpointRestoresHistoryAndObjects(t *testing.T) {
	f := New()
	addPods(f, 1)
	turnBack := f.Checkpoint()
	f.Remove("pods", Key{"default", "web-0"})
	turnBack()
	if len(f.All("pods")) != 1 || len(f.Changes()) != 3 || f.Latest() != 203 {
		t.Errorf("%d pods, %d changes, version %d", len(f.All("pods")), len(f.Changes()), f.Latest())
	}
}
