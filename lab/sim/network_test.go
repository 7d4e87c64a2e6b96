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

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// newLink returns a link to a fake, and a client that uses it.
func newLink(t *testing.T) (*link, *http.Client) {
	l := &link{net: fixture.Network(t, fakekube.New()), wires: map[*wire]bool{}}
	return l, clientOf(t, l)
}

// clientOf returns a client that uses a link.
func clientOf(t *testing.T, l *link) *http.Client {
	transport := &http.Transport{DialContext: l.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
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

func TestLastAlertOfTLSDoesNotWaitForTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe() // nobody reads from theirs
		defer theirs.Close()
		l := &link{wires: map[*wire]bool{}}
		w := l.newWire(ours)
		defer w.Close()
		start := time.Now()
		w.SetWriteDeadline(start.Add(5 * time.Second))
		_, err := w.Write([]byte("alert"))
		testkit.WantEqual(t, "the error", err, nil)
		testkit.WantEqual(t, "time that it took", time.Since(start), time.Duration(0))
	})
}
