package sim

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

func TestNetHTTPRetriesAGETThatIsAsOldAsTheWaitForItsAnswer(t *testing.T) {
	for _, row := range []struct {
		name    string
		method  string
		isFirst bool  // the request is the first one on its connection
		arrives int32 // how often it arrives
	}{
		{name: "a GET", method: http.MethodGet, arrives: 2},
		{name: "the first GET on a connection", method: http.MethodGet, isFirst: true, arrives: 1},
		{name: "a PATCH", method: http.MethodPatch, arrives: 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var arrived atomic.Int32
				handler := func(_ http.ResponseWriter, r *http.Request) {
					if r.URL.Path == "/lost" {
						arrived.Add(1)
					}
					if arrived.Load() == 1 {
						<-r.Context().Done()
					}
				}
				l := &link{net: fixture.Network(t, http.HandlerFunc(handler)), wires: map[*wire]bool{}}
				client := clientOf(t, l)
				if !row.isFirst {
					exchange(t, client, http.MethodGet, "/other")
				}
				time.AfterFunc(2*time.Minute, l.cut)
				exchange(t, client, row.method, "/lost")
				testkit.WantEqual(t, "the number of arrivals", arrived.Load(), row.arrives)
				testkit.WantEqual(t, "the age of the request", l.lost.maxAge(), 2*time.Minute)
			})
		})
	}
}

// exchange sends a request, and reads the answer. It ignores errors.
func exchange(t *testing.T, client *http.Client, method, path string) {
	request, err := http.NewRequestWithContext(t.Context(), method, "http://fake"+path, strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return
	}
	io.Copy(io.Discard, answer.Body) // so that the connection is kept
	answer.Body.Close()
}

func TestOnlyAGETThatWasLostAShortTimeAgoMayBeOldOverHTTP1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newLink(t)
		s := &sim{access: &access{}}
		p := &proc{link: l}
		wantAge := func(what, method string, want time.Duration) {
			t.Helper()
			testkit.WantEqual(t, "the age of "+what, s.maxAgeLocked(p, fakekube.Request{Method: method}), want)
		}
		exchange(t, client, http.MethodGet, "/readyz")
		l.cut()
		synctest.Wait()
		wantAge("a GET after an idle connection broke", http.MethodGet, 0)
		l.lost.add(time.Now().Add(-time.Minute))
		l.lost.add(time.Now().Add(-time.Second))
		wantAge("a GET after two were lost", http.MethodGet, time.Minute)
		wantAge("a PATCH after two GETs were lost", http.MethodPatch, 0)
		<-time.After(connectTime)
		wantAge("a GET that needed long to connect", http.MethodGet, time.Minute+connectTime)
		<-time.After(time.Nanosecond)
		wantAge("a GET long after that", http.MethodGet, 0)
	})
}

func TestRequestMayBeAsOldAsTheSheddingOverHTTP2(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{Options: Options{Silence: 150 * time.Second}, access: &access{}}
		f := &s.access.shedding
		wantAge := func(when string, want time.Duration) {
			t.Helper()
			testkit.WantEqual(t, "the age "+when, s.maxAgeLocked(nil, fakekube.Request{HTTP2: true}), want)
		}
		wantAge("before connections are shed", 0)
		f.set(true)
		<-time.After(8 * time.Second)
		wantAge("while connections are shed", 8*time.Second)
		f.set(true)
		f.set(false)
		f.set(false)
		<-time.After(12 * time.Second)
		wantAge("during the last wait of net/http", 20*time.Second)
		f.set(true)
		f.set(false)
		wantAge("when connections are shed again meanwhile", 20*time.Second)
		<-time.After(24*time.Second + time.Nanosecond)
		wantAge("after the last wait", 0)
		f.set(true)
		<-time.After(time.Second)
		wantAge("when connections are shed again later", time.Second)
		<-time.After(time.Hour)
		wantAge("when connections are shed for an hour", 150*time.Second)
	})
}

func TestOldCredentialIsAllowedOnlyInARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{
			Options: Options{LongestOldCredential: time.Minute},
			access:  &access{isTLS: true},
		}
		p := &proc{link: &link{}}
		s.files.note("new", false)
		<-time.After(time.Minute + connectTime + time.Second)
		old := fakekube.Request{Method: http.MethodGet, Token: "old"}
		p.link.lost.add(time.Now().Add(-2 * time.Second))
		s.checkNewCredentialIsUsedLocked(p, old)
		testkit.WantEqual(t, "the number of broken rules after a retry", len(s.broken), 0)
		<-time.After(connectTime + time.Second)
		s.checkNewCredentialIsUsedLocked(p, old)
		testkit.WantEqual(t, "the number of broken rules without a retry", len(s.broken), 1)
	})
}

func TestWriteOfWhatIsThereIsAllowedOnlyInARetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{Options: Options{Silence: 150 * time.Second}, access: &access{}}
		node := fakekube.Object{"metadata": fakekube.Object{
			"uid":    "n1",
			"labels": fakekube.Object{"pod-count": "8"},
		}}
		write := fakekube.Request{
			HTTP2: true,
			Route: fakekube.Route{Verb: "patch", Resource: "nodes", Name: "n1"},
			Body:  `{"metadata":{"uid":"n1","labels":{"pod-count":"8"}}}`,
		}
		known := map[string]*knowledge{objectID("nodes", keyIn(write)): {object: node, at: time.Now()}}
		p := &proc{knows: known, link: &link{}}
		s.access.shedding.set(true)
		<-time.After(2 * time.Second)
		s.checkWriteIsNeededLocked(p, write, patchIn(write))
		testkit.WantEqual(t, "the number of broken rules after a retry", len(s.broken), 0)
		s.access.shedding.set(false)
		<-time.After(time.Minute)
		s.checkWriteIsNeededLocked(p, write, patchIn(write))
		testkit.WantEqual(t, "the number of broken rules without a retry", len(s.broken), 1)
	})
}
