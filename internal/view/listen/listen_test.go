package listen

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// start runs a Server on this machine. Its address is server.Addr, and it sends what Serve returns to ended.
func start(t *testing.T, handler http.HandlerFunc) (server *Server, ended <-chan error) {
	t.Helper()
	server, err := Listen(t.Context(), "127.0.0.1:0", handler, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() { result <- server.Serve() }()
	return server, result
}

// served runs a Server on this machine until the test ends, and returns its address.
func served(t *testing.T, handler http.HandlerFunc) (address string) {
	t.Helper()
	server, ended := start(t, handler)
	t.Cleanup(func() {
		server.Close()
		if err := <-ended; err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return server.Addr().String()
}

func answerOK(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") }

// ask requests a page on a connection of its own. It returns the status and the text, or the error.
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
	server, ended := start(t, answerOK)
	address := server.Addr().String()
	testkit.WantEqual(t, "the answer", ask(address), "200 OK: ok")
	idler := idle(t, address, 100)
	server.Close()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	<-idler.ended
	testkit.WantText(t, ask(address), "connection refused")
}

// idler is a client that has sent half a request.
type idler struct {
	net.Conn
	ended chan time.Time // gets the time at which the connection ended
}

// idle opens a connection to a Server, and sends a header of this length without its end.
func idle(t *testing.T, address string, header int) *idler {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	i := &idler{conn, make(chan time.Time, 1)}
	// The write may fail: the server may have closed the connection already.
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: podcount\r\nX: %s", strings.Repeat("x", header))
	go func() {
		io.Copy(io.Discard, conn)
		i.ended <- time.Now()
	}()
	return i
}

func TestUnfinishedRequestsKeepNoProbeOut(t *testing.T) {
	const surplus = 36
	address := served(t, answerOK)
	begin := time.Now()
	var idlers []*idler
	for range connectionLimit + surplus {
		idlers = append(idlers, idle(t, address, 100))
	}
	testkit.WantEqual(t, "the answer beside too many connections", ask(address), "200 OK: ok")
	oldest, newest := idlers[:surplus+1], idlers[surplus+1:] // the probe took a place, too
	for i, c := range oldest {
		took := (<-c.ended).Sub(begin)
		if took > headerTimeout-100*time.Millisecond {
			t.Errorf("connection %d, one of the oldest, was open for %v", i, took)
		}
	}
	for i, c := range newest {
		took := (<-c.ended).Sub(begin)
		if took < headerTimeout-100*time.Millisecond || took > headerTimeout+2*time.Second {
			t.Errorf("connection %d of the newest was open for %v, want %v", i, took, headerTimeout)
		}
	}
	testkit.WantEqual(t, "the answer after them", ask(address), "200 OK: ok")
}

func TestRequestThatHasArrivedIsAnswered(t *testing.T) {
	hasArrived := make(chan struct{})
	release := make(chan struct{})
	address := served(t, func(w http.ResponseWriter, r *http.Request) {
		close(hasArrived)
		<-release
		answerOK(w, r)
	})
	answer := make(chan string)
	go func() { answer <- ask(address) }()
	<-hasArrived
	var idlers []*idler
	for range 2 * connectionLimit {
		idlers = append(idlers, idle(t, address, 100))
	}
	<-idlers[connectionLimit].ended // by now the server has closed all older ones that had not sent their request
	close(release)
	testkit.WantEqual(t, "the answer", <-answer, "200 OK: ok")
}

func TestAnswersInProgressKeepTheirPlaces(t *testing.T) {
	hasArrived := make(chan struct{})
	release := make(chan struct{})
	address := served(t, func(w http.ResponseWriter, r *http.Request) {
		hasArrived <- struct{}{}
		<-release
		answerOK(w, r)
	})
	answers := make(chan string, connectionLimit+1)
	for range connectionLimit {
		go func() { answers <- ask(address) }()
		<-hasArrived
	}
	go func() { answers <- ask(address) }() // It waits.
	select {
	case <-hasArrived:
		t.Error("a request has arrived while all places were taken")
	case answer := <-answers:
		t.Errorf("while all places were taken, a request got the answer %s", answer)
	case <-time.After(200 * time.Millisecond):
	}
	release <- struct{}{}
	<-hasArrived
	close(release)
	for range connectionLimit + 1 {
		testkit.WantEqual(t, "an answer", <-answers, "200 OK: ok")
	}
}

func TestClosedServerDoesNotWaitForAPlace(t *testing.T) {
	hasArrived := make(chan struct{})
	release := make(chan struct{})
	server, ended := start(t, func(http.ResponseWriter, *http.Request) {
		hasArrived <- struct{}{}
		<-release
	})
	defer close(release)
	answers := make(chan string, connectionLimit+1)
	for range connectionLimit {
		go func() { answers <- ask(server.Addr().String()) }()
		<-hasArrived
	}
	waiting, err := net.Dial("tcp", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	server.Close()
	if err := <-ended; err != nil {
		t.Errorf("it ended with %v", err)
	}
	if text, _ := io.ReadAll(waiting); len(text) > 0 {
		t.Errorf("the connection that waited got %q", text)
	}
}

// fullListener returns a listener whose places are all taken by connections that were accepted one second ago, and
// whose requests arrived then.
func fullListener() *cappedListener {
	l := &cappedListener{grace: maxGrace}
	accepted := time.Now().Add(-time.Second)
	for range connectionLimit {
		answerUntil := accepted.Add(answerTimeout)
		l.open = append(l.open, &trackedConn{listener: l, accepted: accepted, answerUntil: answerUntil})
	}
	return l
}

func TestPlacesAreLostInThisOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fullListener()
		newest := &trackedConn{listener: l}
		_, wait := l.add(newest)
		testkit.WantEqual(t, "the wait for an answer", wait, answerTimeout-time.Second)

		hangs := l.open[40]
		hangs.answerUntil = time.Now().Add(-time.Millisecond)
		first, wait := l.add(newest)
		if first != hangs || wait > 0 {
			t.Errorf("an answer that is over its time keeps its place: wait %v", wait)
		}
		late, later := l.open[50], l.open[51]
		late.answerUntil, later.answerUntil = time.Time{}, time.Time{}
		late.accepted = late.accepted.Add(-time.Millisecond)
		first, _ = l.add(newest)
		if first != late {
			t.Error("the oldest connection without a request is not the first to lose its place")
		}
		late.accepted = time.Now()
		later.accepted = time.Now()
		hangs.answerUntil = time.Now().Add(time.Minute)
		_, wait = l.add(newest)
		testkit.WantEqual(t, "the wait for a request that may still come", wait, maxGrace)
	})
}

func TestIdleConnectionsShortenTheTimeForRequestsToArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := fullListener()
		for range connectionLimit {
			l.shortenGrace()
		}
		testkit.WantEqual(t, "the time after many idle connections at once", l.grace, maxGrace/2)
		for range 10 {
			testkit.Pass(maxGrace)
			l.shortenGrace()
		}
		testkit.WantEqual(t, "the time after ten more", l.grace, minGrace)
		l.lengthenGrace()
		testkit.WantEqual(t, "the time after a request", l.grace, minGrace+graceStep)
		for range 1000 {
			l.lengthenGrace()
		}
		testkit.WantEqual(t, "the time after a flood of requests", l.grace, maxGrace)
	})
}

// If the server waited for bodies, 64 requests like this one would lock out all clients until their timeout.
func TestRequestWhoseBodyDoesNotComeIsAnsweredAtOnce(t *testing.T) {
	address := served(t, answerOK)
	begin := time.Now()
	for range 3 {
		answer := exchange(t, address, "Content-Length: 10")
		testkit.WantText(t, answer, "HTTP/1.1 200 OK\r\n")
	}
	took := time.Since(begin)
	if took > 3*time.Second { // waiting for a body takes 5 s
		t.Errorf("three requests took %v", took)
	}
}

func TestLongHeadersAreRefused(t *testing.T) {
	rows := []struct {
		name, want string
		length     int
	}{
		{"less than 4 KB", "200 OK", headerLimit - 200},
		{"more than 4 KB", "431 Request Header Fields Too Large", headerLimit + 1},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			answer := exchange(t, served(t, answerOK), "X: "+strings.Repeat("x", row.length))
			testkit.WantText(t, answer, "HTTP/1.1 "+row.want+"\r\n")
		})
	}
}

// While net/http waits for the client to read the refusal, others need the place.
func TestRequestThatCannotBeReadKeepsNoPlace(t *testing.T) {
	server, _ := start(t, answerOK)
	defer server.Close()
	answer := exchange(t, server.Addr().String(), "X: "+strings.Repeat("x", headerLimit+1))
	testkit.WantText(t, answer, "431")
	l := server.listener
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range l.open {
		testkit.WantEqual(t, "until when it must be answered", conn.answerUntil, time.Time{})
	}
}

// exchange sends a request with one more header, and returns all that the server answers.
func exchange(t *testing.T, address, header string) (answer string) {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /livez HTTP/1.1\r\nHost: podcount\r\n%s\r\n\r\n", header)
	text, _ := io.ReadAll(conn) // the server may reset the connection after its answer
	return string(text)
}
