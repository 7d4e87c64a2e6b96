package fakekube

import (
	"context"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// exchange is the answer to a request, and how long it took.
type exchange struct {
	answer *httptest.ResponseRecorder
	took   time.Duration
}

// startRequest sends a GET on a new goroutine, and returns when the server works on it, or when it waits.
func startRequest(ctx context.Context, f *Server, path string) (ended chan exchange) {
	ended = make(chan exchange, 1)
	answer := httptest.NewRecorder()
	start := time.Now()
	go func() {
		f.ServeHTTP(answer, httptest.NewRequestWithContext(ctx, "GET", path, nil))
		ended <- exchange{answer, time.Since(start)}
	}()
	synctest.Wait()
	return ended
}

func TestRequestsBeyondTheSeatsWaitInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		load := f.Limit(Capacity{Seats: 2, Queue: 3, PerRequest: time.Second})
		var all []chan exchange
		for range 5 {
			all = append(all, startRequest(t.Context(), f, "/api/v1/nodes"))
		}
		for i, seconds := range []int{1, 1, 2, 2, 3} {
			got := <-all[i]
			testkit.WantNumber(t, "code", got.answer.Code, 200)
			if got.took != time.Duration(seconds)*time.Second {
				t.Errorf("request %d took %v, want %d s", i, got.took, seconds)
			}
		}
		testkit.WantNumber(t, "the longest queue", load().LongestQueue, 3)
	})
}

func TestRequestBeyondTheQueueIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		load := f.Limit(Capacity{Seats: 1, Queue: 1, PerRequest: time.Second})
		startRequest(t.Context(), f, "/api/v1/nodes")
		startRequest(t.Context(), f, "/api/v1/nodes")
		got := <-startRequest(t.Context(), f, "/api/v1/nodes")
		testkit.WantNumber(t, "code", got.answer.Code, 429)
		if got.answer.Header().Get("Retry-After") != "1" || got.took != 0 {
			t.Errorf("after %v: %v", got.took, got.answer.Header())
		}
		testkit.WantNumber(t, "refused requests", load().Refused, 1)
	})
}

func TestRequestThatWaitsTooLongIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Limit(Capacity{Seats: 1, Queue: 2, MaxWait: 15 * time.Second, PerRequest: time.Minute})
		first := startRequest(t.Context(), f, "/api/v1/nodes")
		got := <-startRequest(t.Context(), f, "/api/v1/nodes")
		testkit.WantNumber(t, "code", got.answer.Code, 429)
		if got.took != 15*time.Second {
			t.Errorf("it was refused after %v", got.took)
		}
		testkit.WantNumber(t, "code of the first", (<-first).answer.Code, 200)
	})
}

func TestListKeepsItsSeatLongerForEachObject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		addPods(f, 3)
		f.Limit(Capacity{Seats: 1, PerRequest: time.Second, PerObject: time.Minute})
		if got := <-startRequest(t.Context(), f, "/api/v1/pods"); got.took != time.Second+3*time.Minute {
			t.Errorf("the list took %v", got.took)
		}
		if got := <-startRequest(t.Context(), f, "/api/v1/namespaces/default/pods/web-0"); got.took != time.Second {
			t.Errorf("the get took %v", got.took)
		}
	})
}

func TestWatchTakesASeatOnlyWhileItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Limit(Capacity{Seats: 1, Queue: 1, PerRequest: time.Second})
		watch := startRequest(t.Context(), f, "/api/v1/pods?watch=true&timeoutSeconds=60")
		if got := <-startRequest(t.Context(), f, "/api/v1/nodes"); got.took != 2*time.Second {
			t.Errorf("the request after the watch took %v", got.took)
		}
		if got := <-watch; got.took != 61*time.Second {
			t.Errorf("the watch took %v", got.took)
		}
	})
}

func TestClientThatGivesUpLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Limit(Capacity{Seats: 1, Queue: 1, PerRequest: time.Minute})
		startRequest(t.Context(), f, "/api/v1/nodes")
		ctx, giveUp := context.WithCancel(t.Context())
		waiting := startRequest(ctx, f, "/api/v1/nodes")
		giveUp()
		<-waiting
		got := <-startRequest(t.Context(), f, "/api/v1/nodes")
		testkit.WantNumber(t, "code of the next one", got.answer.Code, 200)
	})
}

func TestFaultThatReplacesTheAnswerNeedsNoSeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Limit(Capacity{Seats: 1, PerRequest: time.Minute})
		startRequest(t.Context(), f, "/api/v1/pods")
		f.Script(t, "list nodes: refuse 503")
		got := <-startRequest(t.Context(), f, "/api/v1/nodes")
		testkit.WantNumber(t, "code", got.answer.Code, 503)
	})
}
