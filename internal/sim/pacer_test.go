package sim

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

func TestBytesPassAtTheSpeedOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		start := time.Now()
		p.pass(1000, nil)
		testkit.WantEqual(t, "the time without a limit", time.Since(start), time.Duration(0))
		p.setSpeed(100)
		done := make(chan time.Duration)
		for range 2 {
			go func() {
				p.pass(500, nil)
				done <- time.Since(start)
			}()
		}
		testkit.WantEqual(t, "the time of the first 500 bytes", <-done, 5*time.Second)
		testkit.WantEqual(t, "the time of the second 500 bytes", <-done, 10*time.Second)
	})
}

func TestBytesPassAtOnceWhenTheLimitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		start := time.Now()
		p.setSpeed(1)
		go func() {
			<-time.After(3 * time.Second)
			p.setSpeed(0)
		}()
		p.pass(1000, nil)
		testkit.WantEqual(t, "the time", time.Since(start), 3*time.Second)
	})
}

func TestClosedConnectionDoesNotWaitForItsBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p pacer
		p.setSpeed(1)
		gone := make(chan struct{})
		close(gone)
		start := time.Now()
		p.pass(1000, gone)
		testkit.WantEqual(t, "the time", time.Since(start), time.Duration(0))
	})
}

// newLink returns a link to a fake, and a client that uses it.
func newLink(t *testing.T) (*link, *http.Client) {
	l := &link{net: fakekube.New().ServeIn(t), wires: map[*wire]bool{}}
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return l, &http.Client{Transport: transport}
}

func TestSlowLinkDelaysAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newLink(t)
		l.setSpeed(100)
		start := time.Now()
		answer, err := client.Get("http://fake/readyz")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		// The answer has from 80 to 250 bytes.
		testkit.WantBetween(t, "the time", time.Since(start), 800*time.Millisecond, 2500*time.Millisecond)
		testkit.WantEqual(t, "an answer may come too late", l.mayLose(), true)
		l.heal()
		testkit.WantEqual(t, "an answer may come too late after that", l.mayLose(), false)
	})
}

func TestOnlyOldConnectionsAreCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := newLink(t)
		dial := func() net.Conn {
			conn, err := l.dial(t.Context(), "tcp", "fake:80")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			return conn
		}
		old := dial()
		<-time.After(30 * time.Second)
		fresh := dial()
		l.cutOld()
		testkit.WantEqual(t, "the old connection is cut without a limit", isCut(old), false)
		l.setMaxAge(30 * time.Second)
		l.cutOld()
		testkit.WantEqual(t, "the old connection is cut", isCut(old), true)
		testkit.WantEqual(t, "the fresh connection is cut", isCut(fresh), false)
	})
}

// isCut reports whether a connection is broken. It waits up to a second for that. Nothing must be sent meanwhile.
func isCut(conn net.Conn) bool {
	conn.SetReadDeadline(time.Now().Add(time.Second))
	_, err := conn.Read(make([]byte, 1))
	return !errors.Is(err, os.ErrDeadlineExceeded)
}
