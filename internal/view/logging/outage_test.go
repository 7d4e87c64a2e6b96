package logging

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

var errRefused = errors.New("connection refused")

func TestOutageIsLoggedFromBeginningToEnd(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		o.Worked("watch")
		wantLines(t, "before the outage", log)
		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		wantLines(t, "at the beginning", log, `level=WARN msg="cannot watch" kind=Pod err="connection refused"`)
		for range 29 {
			<-time.After(3900 * time.Millisecond)
			o.Failed("watch", "cannot watch", time.Minute, errRefused)
		}
		<-time.After(8900 * time.Millisecond)
		wantLines(t, "within two minutes", log,
			`level=WARN msg="cannot watch" kind=Pod for=1m0s failed_tries=16 err="connection refused"`,
			`level=WARN msg="cannot watch" kind=Pod for=2m0s failed_tries=30 err="connection refused"`)
		o.Worked("watch")
		wantLines(t, "at the end", log, `level=INFO msg="Pod: watching again after 2m2s" kind=Pod failed_tries=30`)
		<-time.After(time.Hour)
		wantLines(t, "after the end", log)
	})
}

// testOutage runs a test in virtual time. The test gets an Outage that logs to log at the level INFO.
func testOutage(t *testing.T, test func(t *testing.T, o *Outage, log *bytes.Buffer)) {
	synctest.Test(t, func(t *testing.T) {
		log := &bytes.Buffer{}
		logger := slog.New(NewHandler(log, Style{}, slog.LevelInfo))
		o := NewOutage(logger, "Pod", "watching again", "kind", "Pod")
		defer o.Stop()
		test(t, o, log)
	})
}

// takeLines empties the log, and returns its lines without their times.
func takeLines(log *bytes.Buffer) (lines []string) {
	synctest.Wait() // A timer may be writing a line.
	for line := range strings.Lines(log.String()) {
		_, afterTime, _ := strings.Cut(line, " ")
		lines = append(lines, strings.TrimSpace(afterTime))
	}
	log.Reset()
	return lines
}

// wantLines checks the lines since the last call of wantLines or takeLines. A failure begins with when.
func wantLines(t *testing.T, when string, log *bytes.Buffer, want ...string) {
	t.Helper()
	testkit.WantEqual(t, when, takeLines(log), want)
}

func TestOutageIsOverOnceAllPartsWork(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		o.Failed("node a", "cannot write", time.Minute, errRefused)
		o.Failed("node b", "cannot write", time.Minute, errRefused)
		<-time.After(61 * time.Second)
		wantLines(t, "after a minute", log,
			`level=WARN msg="cannot write" kind=Pod err="connection refused"`,
			`level=WARN msg="cannot write" kind=Pod for=1m0s failed_tries=2 failing=2 err="connection refused"`)
		o.Worked("node a")
		wantLines(t, "when one part works", log)
		o.Worked("node b")
		wantLines(t, "when both parts work", log,
			`level=INFO msg="Pod: watching again after 1m1s" kind=Pod failed_tries=2`)
	})
}

func TestLongPauseEndsWithAnotherProblem(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		for range 20 {
			o.Failed("watch", "cannot watch", 10*time.Minute, errForbidden)
			<-time.After(61 * time.Second)
		}
		wantLines(t, "within 20 minutes", log,
			`level=WARN msg="cannot watch" kind=Pod err=forbidden`,
			`level=WARN msg="cannot watch" kind=Pod for=10m0s failed_tries=10 err=forbidden`,
			`level=WARN msg="cannot watch" kind=Pod for=20m0s failed_tries=20 err=forbidden`)
		<-time.After(2 * time.Minute)
		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		wantLines(t, "at the first other error", log,
			`level=WARN msg="cannot watch" kind=Pod for=22m20s failed_tries=21 err="connection refused"`)
	})
}

// A part that fails and recovers again and again must not fill the log, and the log must not hide it.
func TestOutagesInARowAreLimited(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		for range 310 {
			o.Failed("watch", "cannot watch", time.Minute, errRefused)
			<-time.After(500 * time.Millisecond)
			o.Worked("watch")
			<-time.After(500 * time.Millisecond)
		}
		lines := takeLines(log)
		testkit.WantNumber(t, "lines in 310 seconds", len(lines), 2*2*maxAnnounced)
		sixth := lines[2*maxAnnounced]
		testkit.WantEqual(t, "the sixth announcement", sixth,
			`level=WARN msg="cannot watch" kind=Pod unannounced_outages=295 err="connection refused"`)

		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		<-time.After(5 * time.Minute)
		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		testkit.WantEqual(t, "the announcement of an outage that lasts", takeLines(log)[0],
			`level=WARN msg="cannot watch" kind=Pod for=5m0s failed_tries=2 unannounced_outages=5 `+
				`err="connection refused"`)
	})
}

func TestStoppedOutageLogsNoReminder(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		takeLines(log)
		o.Stop()
		<-time.After(time.Hour)
		wantLines(t, "after the stop", log)
	})
}

func TestPartThatIsNotTriedAnyMoreIsNotRemindedOf(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		o.Failed("watch", "cannot watch", time.Minute, errRefused)
		<-time.After(maxTryInterval)
		takeLines(log)
		<-time.After(time.Hour)
		wantLines(t, "an hour later", log)
	})
}

func TestPartThatIsGivenUpIsNotLogged(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		o.Failed("post", "cannot post", time.Minute, errRefused)
		takeLines(log)
		o.GiveUp("post")
		<-time.After(time.Hour)
		wantLines(t, "after it was given up", log)
	})
}

func TestChronicPartHidesNoOutage(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		failChronically(o, 20*time.Minute)
		takeLines(log)
		<-time.After(time.Second)
		o.Failed("a", "cannot write", time.Minute, errRefused, "key", "a")
		wantLines(t, "when another part fails", log,
			`level=WARN msg="cannot write" kind=Pod failing=2 key=a err="connection refused"`)
		<-time.After(5 * time.Second)
		o.Worked("a")
		wantLines(t, "when that part works", log,
			`level=INFO msg="Pod: watching again after 5s, but 1 still fails" kind=Pod failed_tries=1`)
		failChronically(o, 10*time.Minute)
		testkit.WantBetween(t, "lines on the chronic part in ten minutes", len(takeLines(log)), 9, 11)
		o.Worked("bad")
		wantLines(t, "when all parts work", log,
			`level=INFO msg="Pod: watching again after 30m6s" kind=Pod failed_tries=20`)
	})
}

// failChronically lets the part "bad" fail every 30 s for d, while the part "good" works.
func failChronically(o *Outage, d time.Duration) {
	for range d / (30 * time.Second) {
		o.Failed("bad", "cannot write", time.Minute, errRefused, "key", "bad")
		<-time.After(30 * time.Second)
		o.Worked("good")
	}
}

func TestRecoveredChronicPartEndsNoOtherOutage(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, log *bytes.Buffer) {
		failChronically(o, 20*time.Minute)
		o.Failed("a", "cannot write", time.Minute, errRefused, "key", "a")
		takeLines(log)
		<-time.After(5 * time.Second)
		o.Worked("bad")
		wantLines(t, "when the chronic part works", log)
		<-time.After(5 * time.Second)
		o.Worked("a")
		wantLines(t, "when all parts work", log,
			`level=INFO msg="Pod: watching again after 10s" kind=Pod failed_tries=1`)
	})
}

func TestOutageTellsItsNewestFailure(t *testing.T) {
	testOutage(t, func(t *testing.T, o *Outage, _ *bytes.Buffer) {
		o.Failed("list", "cannot list", time.Minute, errRefused)
		<-time.After(time.Second)
		o.Failed("watch", "cannot watch", time.Minute, errForbidden)
		problem, isFailing := o.Problem()
		testkit.WantEqual(t, "isFailing", isFailing, true)
		testkit.WantEqual(t, "the newest failure", problem, Problem{Text: "cannot watch: forbidden", Err: errForbidden})
		o.Worked("watch")
		problem, _ = o.Problem()
		want := Problem{Text: "cannot list: connection refused", Err: errRefused}
		testkit.WantEqual(t, "the failure that is left", problem, want)
		o.Worked("list")
		_, isFailing = o.Problem()
		testkit.WantEqual(t, "isFailing in the end", isFailing, false)
	})
}
