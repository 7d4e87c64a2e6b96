package logging

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

var errForbidden = errors.New("forbidden")

// testServerOutage runs a test in virtual time, with the outage of a server, and that of the pods, which it mutes.
func testServerOutage(t *testing.T, test func(t *testing.T, server *ServerOutage, pods *Outage, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		logger := slog.New(NewHandler(log, Style{}, slog.LevelInfo))
		isAway := func(err error) bool { return errors.Is(err, errRefused) }
		details := func() []any { return []any{"labels_age", 5 * time.Second} }
		server := NewServerOutage(logger, isAway, details)
		defer server.Stop()
		pods := NewOutage(logger, "Pod", "watching again", "kind", "Pod").MutedBy(server)
		defer pods.Stop()
		test(t, server, pods, log)
	})
}

func TestServerThatIsAwayGetsOneLineAMinute(t *testing.T) {
	testServerOutage(t, func(t *testing.T, server *ServerOutage, pods *Outage, log *bytes.Buffer) {
		for range 20 {
			server.Failed(errRefused)
			pods.Failed("watch", "cannot watch", time.Minute, errRefused)
			testkit.Pass(5 * time.Second)
		}
		wantLines(t, "in 100 s", log,
			`level=WARN msg="the API server cannot be reached" labels_age=5s err="connection refused"`,
			`level=WARN msg="the API server cannot be reached" for=1m0s failed_tries=12 labels_age=5s `+
				`err="connection refused"`)
		testkit.WantNumber(t, "parts that fail", pods.Failing(), 1)
		server.Worked()
		pods.Worked("watch")
		wantLines(t, "at the end", log, `level=INFO msg="API server: reached again after 1m40s" failed_tries=20`)

		pods.Failed("watch", "cannot watch", time.Minute, errForbidden)
		wantLines(t, "the next outage, which counts no muted one", log,
			`level=WARN msg="cannot watch" kind=Pod err=forbidden`)
	})
}

// The server is back, but has not loaded its roles yet.
func TestRefusalIsNotMuted(t *testing.T) {
	testServerOutage(t, func(t *testing.T, server *ServerOutage, pods *Outage, log *bytes.Buffer) {
		server.Failed(errRefused)
		pods.Failed("watch", "cannot watch", time.Minute, errRefused)
		takeLines(log)
		pods.Failed("watch", "cannot watch", time.Minute, errForbidden)
		wantLines(t, "the server answers", log, `level=WARN msg="cannot watch" kind=Pod for=0s failed_tries=2 err=forbidden`)
		testkit.Pass(30 * time.Second)
		pods.Failed("watch", "cannot watch", time.Minute, errRefused)
		testkit.Pass(5 * time.Minute)
		for _, line := range takeLines(log) {
			testkit.WantText(t, line, "the API server cannot be reached")
		}
		server.Worked()
		pods.Worked("watch")
		wantLines(t, "at the end", log,
			`level=INFO msg="API server: reached again after 5m30s" failed_tries=1`,
			`level=INFO msg="Pod: watching again after 5m30s" kind=Pod failed_tries=3`)
	})
}

// A proxy may answer one write as if the server were away.
func TestFaultOfOnePartIsNotThatOfTheServer(t *testing.T) {
	testServerOutage(t, func(t *testing.T, server *ServerOutage, pods *Outage, log *bytes.Buffer) {
		server.Failed(errRefused)
		pods.Failed("watch", "cannot watch", time.Minute, errRefused)
		server.Worked()
		takeLines(log)
		testkit.Pass(time.Second)
		pods.Failed("watch", "cannot watch", time.Minute, errRefused)
		wantLines(t, "it still fails when the server is back", log,
			`level=WARN msg="cannot watch" kind=Pod for=1s failed_tries=2 err="connection refused"`)
	})
}
