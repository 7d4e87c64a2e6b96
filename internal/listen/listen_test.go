package listen

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// served runs a Server on this machine and returns its address.
func served(t *testing.T, handler http.HandlerFunc) (address string) {
	t.Helper()
	server, err := Listen(t.Context(), "127.0.0.1:0", handler, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve() }()
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return server.Addr().String()
}

func sayOK(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// ask asks a server for a page, on a connection of its own. It returns the status and the text, or the error.
func ask(address string) string {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + address + "/livez")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return resp.Status + ": " + string(text)
}

func TestClosedServerKeepsNoConnectionAndNoPort(t *testing.T) {
	server, err := Listen(t.Context(), "127.0.0.1:0", http.HandlerFunc(sayOK), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- server.Serve() }()
	address := server.Addr().String()
	if got := ask(address); got != "200 OK: ok" {
		t.Errorf("it answers %q", got)
	}
	idler := idle(t, address, 100)
	server.Close()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	<-idler.ended
	if got := ask(address); !strings.Contains(got, "connection refused") {
		t.Errorf("closed, it answers %q", got)
	}
}

// idler is a client of a Server that sends half a request. When its connection has ended is sent to ended.
type idler struct {
	net.Conn
	ended chan time.Time
}

// idle opens a connection to a Server, and sends a header that does not end.
func idle(t *testing.T, address string, header int) *idler {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	i := &idler{conn, make(chan time.Time, 1)}
	// Where the server refuses it at once, not all of it can be written.
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: podcount\r\nX: %s", strings.Repeat("x", header))
	go func() {
		io.Copy(io.Discard, conn)
		i.ended <- time.Now()
	}()
	return i
}

func TestUnfinishedRequestsKeepNoProbeOutAndEndAfterTwoSeconds(t *testing.T) {
	address := served(t, sayOK)
	livez := func(when string) {
		t.Helper()
		if got := ask(address); got != "200 OK: ok" {
			t.Errorf("%s, /livez answers %q", when, got)
		}
	}
	start := time.Now()
	var idlers []*idler
	for range connectionLimit + 36 {
		idlers = append(idlers, idle(t, address, 100))
	}
	livez("beside more connections than are allowed")
	for i, c := range idlers[:37] { // the probe took a place, too
		if ended := <-c.ended; ended.Sub(start) > headerTime-100*time.Millisecond {
			t.Errorf("connection %d, one of the oldest, was open for %v", i, ended.Sub(start))
		}
	}
	for i, c := range idlers[37:] {
		ended := (<-c.ended).Sub(start)
		if ended < headerTime-100*time.Millisecond || ended > headerTime+2*time.Second {
			t.Errorf("connection %d, one of the newest, was open for %v, want %v", 37+i, ended, headerTime)
		}
	}
	livez("after them")
}

func TestRequestThatHasArrivedIsAnsweredHoweverManyConnectionsFollow(t *testing.T) {
	met := make(chan struct{})
	release := make(chan struct{})
	address := served(t, func(w http.ResponseWriter, r *http.Request) {
		close(met)
		<-release
		sayOK(w, r)
	})
	answer := make(chan string)
	go func() { answer <- ask(address) }()
	<-met
	var idlers []*idler
	for range 2 * connectionLimit {
		idlers = append(idlers, idle(t, address, 100))
	}
	<-idlers[connectionLimit].ended // so many have come in
	close(release)
	if got := <-answer; got != "200 OK: ok" {
		t.Errorf("the request that had arrived got %q", got)
	}
}

// Else 64 requests whose bodies never come would keep out everybody until their time is over.
func TestRequestWithABodyThatDoesNotComeIsAnsweredAtOnce(t *testing.T) {
	address := served(t, sayOK)
	start := time.Now()
	for range 3 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "GET /livez HTTP/1.1\r\nHost: podcount\r\nContent-Length: 10\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 200 OK\r\n") {
			t.Errorf("the answer is %q", answer)
		}
	}
	if took := time.Since(start); took > 3*time.Second { // else 5 s each
		t.Errorf("three requests took %v", took)
	}
}

func TestHeadersOfMoreThanFourKilobytesAreRefusedAtOnce(t *testing.T) {
	address := served(t, sayOK)
	for header, want := range map[int]string{headerLimit - 200: "200 OK", headerLimit + 1: "431 Request Header Fields Too Large"} {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: podcount\r\nX: %s\r\n\r\n", strings.Repeat("x", header))
		answer, _ := io.ReadAll(conn)
		if !strings.HasPrefix(string(answer), "HTTP/1.1 "+want+"\r\n") {
			t.Errorf("with a header of %d bytes the answer is %q, want %s", header, answer, want)
		}
	}
}
