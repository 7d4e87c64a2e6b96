package logging

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/testkit"
)

var errForbidden = errors.New("forbidden")

// testServerOutage runs a test in virtual time, with the outages of two kinds that ask one server.
func testServerOutage(t *testing.T, test func(t *testing.T, pods, nodes *Outage, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		logger := slog.New(NewHandler(log, Style{}, slog.LevelInfo))
		isAway := func(err error) bool { return errors.Is(err, errRefused) }
		details := func() []any { return []any{"labels_age", 5 * time.Second} }
		server := NewServerOutage(logger, isAway, details)
		defer server.Stop()
		pods := NewOutage(logger, "Pod", "watching again", "kind", "Pod").Of(server)
		defer pods.Stop()
		nodes := NewOutage(logger, "Node", "watching again", "kind", "Node").Of(server)
		defer nodes.Stop()
		test(t, pods, nodes, log)
	})
}

func TestServerThatIsAwayGetsOneLineAMinute(t *testing.T) {
	testServerOutage(t, func(t *testing.T, pods, nodes *Outage, log *bytes.Buffer) {
		for range 20 {
			pods.Failed("watch", "cannot watch", time.Minute, "key", "x", "err", errRefused)
			nodes.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
			testkit.Pass(5 * time.Second)
		}
		wantLines(t, "in 100 s", log,
			`level=WARN msg="the API server cannot be reached" labels_age=5s err="connection refused"`,
			`level=WARN msg="the API server cannot be reached" for=1m0s failed_tries=24 labels_age=5s `+
				`err="connection refused"`)
		testkit.WantNumber(t, "parts that fail", pods.Failing(), 1)
		problem, _ := pods.Problem()
		testkit.WantEqual(t, "the problem", problem,
			Problem{Text: "the API server cannot be reached: connection refused", Err: errRefused})

		pods.Worked("watch")
		wantLines(t, "after the first has come back", log)
		testkit.WantNumber(t, "parts that fail after the end", pods.Failing(), 0)
		nodes.Worked("watch")
		wantLines(t, "after the last has come back", log,
			`level=INFO msg="API server: reached again after 1m40s" failed_tries=40`)
	})
}

// The server is back, but has not loaded its roles yet.
func TestRefusalAfterAnOutageIsAProblemOfItsOwn(t *testing.T) {
	testServerOutage(t, func(t *testing.T, pods, _ *Outage, log *bytes.Buffer) {
		pods.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
		takeLines(log)
		testkit.Pass(time.Second)
		pods.Failed("watch", "cannot watch", time.Minute, "err", errForbidden)
		wantLines(t, "the server answers", log,
			`level=INFO msg="API server: reached again after 1s" failed_tries=1`,
			`level=WARN msg="cannot watch" kind=Pod err=forbidden`)
		testkit.Pass(time.Second)
		pods.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
		testkit.WantNumber(t, "parts that fail", pods.Failing(), 1)
		takeLines(log)
		pods.Worked("watch")
		wantLines(t, "all works", log, `level=INFO msg="API server: reached again after 0s" failed_tries=1`)
	})
}

func TestPartThatIsNoLongerNeededEndsAnOutageOfTheServer(t *testing.T) {
	testServerOutage(t, func(t *testing.T, pods, _ *Outage, log *bytes.Buffer) {
		for _, end := range []func(part string){pods.Forget, pods.GiveUp} {
			pods.Failed("key", "cannot reconcile", time.Minute, "err", errRefused)
			end("key")
			testkit.WantNumber(t, "parts that fail", pods.Failing(), 0)
		}
		takeLines(log)
		testkit.Pass(time.Hour)
		wantLines(t, "in an hour without a failure", log)
	})
}
