package fakekube

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// proxyOf returns a fake whose upstream is another one, over a network.
func proxyOf(t *testing.T, upstream *Server) *Server {
	return proxyOver(t, networkOf(t, upstream))
}

// proxyOver returns a fake whose upstream is on a network.
func proxyOver(t *testing.T, n *Network) *Server {
	transport := &http.Transport{DialContext: n.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := New()
	proxy.Upstream = &httputil.ReverseProxy{
		Transport:    transport,
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: "upstream"}) },
		ErrorLog:     log.New(io.Discard, "", 0),
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	return proxy
}

// clientOf returns a client of a network, whose requests take at most a minute.
func clientOf(t *testing.T, n *Network) *http.Client {
	transport := &http.Transport{DialContext: n.Dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, Timeout: time.Minute}
}

func TestUpstreamAnswersInsteadOfTheFake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := New()
		proxy := proxyOf(t, upstream)
		proxy.AddNode("mine")
		upstream.AddNode("worker")
		wantAnswer(t, proxy, "GET /api/v1/nodes/worker", "", 200, `"worker"`)
		wantAnswer(t, proxy, "GET /api/v1/nodes/mine", "", 404, `nodes \"mine\" not found`)
		wantAnswer(t, proxy, "PATCH /api/v1/nodes/worker", `{"metadata":{"labels":{"a":"b"}}}`, 200, `"a":"b"`)
		wantAnswer(t, proxy, "GET /healthz", "", 200, "ok")
		wantLabel(t, upstream, "worker", "a", "b")
		testkit.WantNumber(t, "patches that the proxy received", len(proxy.Received(Requests{Verb: "patch"})), 1)
		testkit.WantNumber(t, "requests that the upstream received", len(upstream.Received(Requests{})), 4)
	})
}

func TestFaultsAffectTheAnswersOfAnUpstream(t *testing.T) {
	for _, row := range []struct {
		fault   string
		arrives bool   // at the upstream
		code    int    // 0 if the connection breaks
		want    string // in the answer
	}{
		{"delay 2s", true, 200, `"name":"worker"`},
		{"refuse 503", false, 503, "apiserver not ready"},
		{"reply 502 body bad", false, 502, "bad"},
		{"cut after 20 bytes", true, 0, `{"apiVersion":"v1","`},
		{"cut after frame 1 minus 1 byte", true, 0, `"name":"worker"`},
		{"truncate", true, 200, `{"apiVersion":"v1","`},
		{"drop request", false, 0, ""},
		{"drop answer", true, 0, ""},
		{"reset before acting", false, 0, ""},
		{"reset after acting", true, 0, ""},
	} {
		t.Run(row.fault, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				upstream := New()
				upstream.AddNode("worker")
				proxy := proxyOf(t, upstream)
				proxy.Script(t, "patch nodes: "+row.fault)
				wantAnswer(t, proxy, "PATCH /api/v1/nodes/worker", `{"metadata":{"labels":{"a":"b"}}}`, row.code, row.want)
				if got := labelOf(upstream, "worker", "a") == "b"; got != row.arrives {
					t.Errorf("the request arrived: %v", got)
				}
			})
		})
	}
}

func TestAnswerOfAnUpstreamHangsUntilTheClientLeaves(t *testing.T) {
	for _, fault := range []string{"hang after 20 bytes", "stall"} {
		synctest.Test(t, func(t *testing.T) {
			proxy := networkOf(t, proxyOf(t, New()))
			proxy.server.Handler.(*Server).Script(t, "*: "+fault)
			answer, err := clientOf(t, proxy).Get("http://proxy/api/v1/pods")
			if err == nil {
				_, err = io.Copy(io.Discard, answer.Body)
				answer.Body.Close()
			}
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", fault, err)
			}
		})
	}
}

func TestEventsOfAnUpstreamArriveAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := New()
		proxy := networkOf(t, proxyOf(t, upstream))
		start := time.Now()
		answer, err := clientOf(t, proxy).Get("http://proxy/api/v1/nodes?watch=true&resourceVersion=202")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewReader(answer.Body)
		for _, name := range []string{"a", "b"} {
			upstream.AddNode(name)
			line, _ := lines.ReadString('\n')
			testkit.WantText(t, line, `{"type":"ADDED"`)
		}
		if time.Since(start) > 0 {
			t.Errorf("they took %v", time.Since(start))
		}
	})
}

func TestWatchOfAnUpstreamEndsAsOneOfTheFake(t *testing.T) {
	for _, row := range []struct {
		end      func(proxy *Server)
		isBroken bool
	}{
		{(*Server).EndWatches, false},
		{(*Server).BreakWatches, true},
		{func(proxy *Server) { proxy.CutOff("elsewhere") }, true},
	} {
		for _, delay := range []string{"0s", "1s"} { // EndWatches also ends a watch that only waits to begin
			synctest.Test(t, func(t *testing.T) {
				upstream := New()
				proxy := proxyOf(t, upstream)
				if delay != "0s" {
					proxy.Script(t, "watch pods: delay "+delay)
				}
				_, ended := startWatch(t, proxy, "&resourceVersion=202")
				synctest.Wait()
				row.end(proxy)
				start := time.Now()
				if isBroken := <-ended; isBroken != row.isBroken || time.Since(start) > time.Second {
					t.Errorf("broken: %v, after %v, want %v", isBroken, time.Since(start), row.isBroken)
				}
			})
		}
	}
}

func TestEndedWatchOfAnUpstreamHasWholeEvents(t *testing.T) {
	f := New()
	f.Upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", mediaJSON)
		io.WriteString(w, "{\"type\":\"ADDED\"}\n{\"type\":")
		f.EndWatches()
		<-r.Context().Done()
		io.WriteString(w, `"DELETED"}`+"\n")
		panic(http.ErrAbortHandler)
	})
	code, body := ask(t, f, "GET", "/api/v1/pods?watch=true", "")
	if code != 200 || body != "{\"type\":\"ADDED\"}\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestWatchOfAnUpstreamThatEndsBeforeItBeginsIsEmpty(t *testing.T) {
	f := New()
	f.Upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.EndWatches()
		<-r.Context().Done()
		http.Error(w, "the client has gone", http.StatusBadGateway)
	})
	if code, body := ask(t, f, "GET", "/api/v1/pods?watch=true", ""); code != 200 || body != "" {
		t.Errorf("%d %q", code, body)
	}
}

func TestUpstreamThatIsAwayBreaksTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		behind := networkOf(t, New())
		front := networkOf(t, proxyOver(t, behind))
		client := clientOf(t, front)
		watch, err := client.Get("http://proxy/api/v1/pods?watch=true&resourceVersion=202")
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Body.Close()
		behind.Kill()
		if _, err := io.Copy(io.Discard, watch.Body); err == nil {
			t.Error("the watch ended cleanly")
		}
		if answer, err := client.Get("http://proxy/api/v1/pods"); !errors.Is(err, io.EOF) {
			t.Errorf("the connection to the proxy does not break: %v, %v", answer, err)
		}
	})
}

func TestUpstreamChecksTheCredentials(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		upstream := New()
		upstream.Allow("secret")
		proxy := proxyOf(t, upstream)
		proxy.Allow()
		proxy.AddUser("secret", "alice")
		for token, want := range map[string]int{"secret": 200, "wrong": 401, "": 403} {
			testkit.WantNumber(t, "the code", serve(proxy, newRequest("GET", "/api/v1/pods", token)).Code, want)
		}
		testkit.WantNumber(t, "requests by alice", len(proxy.Received(Requests{User: "alice"})), 1)
	})
}

func TestTokenOfAnUpstreamHasNoName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := proxyOf(t, New())
		serve(proxy, newRequest("GET", "/api/v1/pods", "secret"))
		if got := proxy.Received(Requests{User: "secret"}); len(got) != 1 || got[0].User != "" {
			t.Errorf("the requests with the token are %v", got)
		}
	})
}

func TestLimitAlsoHoldsBackRequestsToAnUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		proxy := proxyOf(t, New())
		proxy.Limit(Capacity{Seats: 1, PerRequest: time.Second})
		start := time.Now()
		wantAnswer(t, proxy, "GET /api/v1/pods", "", 200, `"items":[]`)
		if time.Since(start) != time.Second {
			t.Errorf("it took %v", time.Since(start))
		}
	})
}

func TestOtherAnswersOfAnUpstreamPassAsTheyCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Upstream = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).Flush()
			for range 2 {
				<-time.After(time.Second)
				io.WriteString(w, "line\n")
				http.NewResponseController(w).Flush()
			}
		})
		start := time.Now()
		answer, err := clientOf(t, networkOf(t, f)).Get("http://fake/api/v1/namespaces/default/pods/web/log?follow=true")
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		lines := bufio.NewReader(answer.Body)
		for i := range 2 {
			line, _ := lines.ReadString('\n')
			if line != "line\n" || time.Since(start) != time.Duration(i+1)*time.Second {
				t.Errorf("%q after %v", line, time.Since(start))
			}
		}
	})
}

func TestBodyThatIsTooLargeIsTooLargeForAnUpstream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := `{"metadata":{"annotations":{"a":"` + strings.Repeat("x", maxBody) + `"}}}`
		wantAnswer(t, proxyOf(t, New()), "POST /api/v1/nodes", body, 413, "limit is 3145728")
	})
}
