package logging

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// lines returns what was written, without the times.
func lines(b *bytes.Buffer) (all []string) {
	synctest.Wait() // for lines that a timer writes now
	for line := range strings.Lines(b.String()) {
		_, rest, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		all = append(all, strings.TrimSpace(rest))
	}
	b.Reset()
	return all
}

func wantLines(t *testing.T, when string, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s:\n%s\nwant\n%s", when, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func testOutage() (*Outage, *bytes.Buffer) {
	out := &bytes.Buffer{}
	return NewOutage(slog.New(NewHandler(out, Style{}, slog.LevelInfo)), "Pod", "watching again", "kind", "Pod"), out
}

var errRefused = errors.New("connection refused")

func TestOutageIsSaidWhenItBeginsOnceAMinuteAndWhenItIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		o.Worked("watch")
		wantLines(t, "while all is well", lines(out))
		o.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
		wantLines(t, "at the beginning", lines(out), `level=WARN msg="cannot watch" kind=Pod err="connection refused"`)
		for range 29 {
			<-time.After(3900 * time.Millisecond)
			o.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
		}
		<-time.After(8900 * time.Millisecond)
		wantLines(t, "within two minutes", lines(out),
			`level=WARN msg="cannot watch" kind=Pod for=1m0s failed_tries=16 err="connection refused"`,
			`level=WARN msg="cannot watch" kind=Pod for=2m0s failed_tries=30 err="connection refused"`)
		o.Worked("watch")
		wantLines(t, "at the end", lines(out), `level=INFO msg="Pod: watching again after 2m2s" kind=Pod failed_tries=30`)
		<-time.After(time.Hour)
		wantLines(t, "afterwards", lines(out))
	})
}

func TestOutageIsOverOnceAllPartsWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		o.Failed("node a", "cannot write", time.Minute)
		o.Failed("node b", "cannot write", time.Minute)
		<-time.After(61 * time.Second)
		wantLines(t, "after a minute", lines(out), `level=WARN msg="cannot write" kind=Pod`,
			`level=WARN msg="cannot write" kind=Pod for=1m0s failed_tries=2 failing=2`)
		o.Worked("node a")
		wantLines(t, "when one works", lines(out))
		o.Worked("node b")
		wantLines(t, "when both work", lines(out), `level=INFO msg="Pod: watching again after 1m1s" kind=Pod failed_tries=2`)
	})
}

func TestWhatSomebodyHasToActOnIsSaidLessOftenUntilItBecomesWhatPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		for range 20 {
			o.Failed("watch", "cannot watch", 10*time.Minute, "err", "403")
			<-time.After(61 * time.Second)
		}
		wantLines(t, "in 20 minutes", lines(out), `level=WARN msg="cannot watch" kind=Pod err=403`,
			`level=WARN msg="cannot watch" kind=Pod for=10m0s failed_tries=10 err=403`,
			`level=WARN msg="cannot watch" kind=Pod for=20m0s failed_tries=20 err=403`)
		<-time.After(2 * time.Minute)
		o.Failed("watch", "cannot watch", time.Minute, "err", errRefused)
		wantLines(t, "at the first other error", lines(out),
			`level=WARN msg="cannot watch" kind=Pod for=22m20s failed_tries=21 err="connection refused"`)
	})
}

// Something that fails and works by turns must not fill the log, nor may it go unsaid for ever.
func TestOutagesThatFollowEachOtherQuicklyAreSaidFiveTimesInFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		for range 310 {
			o.Failed("watch", "cannot watch", time.Minute)
			<-time.After(500 * time.Millisecond)
			o.Worked("watch")
			<-time.After(500 * time.Millisecond)
		}
		all := lines(out)
		if len(all) != 2*2*outagesSaid {
			t.Errorf("%d lines in 310 seconds, want %d", len(all), 2*2*outagesSaid)
		}
		if want := `level=WARN msg="cannot watch" kind=Pod unsaid_outages=295`; all[2*outagesSaid] != want {
			t.Errorf("the sixth beginning is %s, want %s", all[2*outagesSaid], want)
		}
		o.Failed("watch", "cannot watch", time.Minute)
		<-time.After(5 * time.Minute)
		o.Failed("watch", "cannot watch", time.Minute)
		wantLines(t, "an outage that lasts", lines(out)[:1], `level=WARN msg="cannot watch" kind=Pod for=5m0s failed_tries=2 unsaid_outages=5`)
	})
}

func TestStoppedOutageSaysNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		o.Failed("watch", "cannot watch", time.Minute)
		lines(out)
		o.Stop()
		<-time.After(time.Hour)
		wantLines(t, "after the stop", lines(out))
	})
}

func TestTerminalShowsShortLines(t *testing.T) {
	change := Change{Verb: "wrote", Kind: "node", Object: "control-plane", Name: "label", Field: "hopegi/pod-count", From: "30", To: "32"}
	for want, say := range map[string]func(*slog.Logger){
		"wrote  control-plane  hopegi/pod-count 30 → 32": func(l *slog.Logger) { l.Info("label written", change.Attr()) },
		"listed  kind=Pod  objects=3":                    func(l *slog.Logger) { l.Info("listed", "kind", "Pod", "objects", 3) },
		"WARN  cannot watch  kind=Pod  retry=1s  no route to it": func(l *slog.Logger) {
			l.Warn("cannot watch", "err", errors.New("no route to it"), "kind", "Pod", "retry", time.Second)
		},
		"ERROR  it panics  controller=count": func(l *slog.Logger) { l.With("controller", "count").Error("it panics") },
		`said  it="two words"  empty=""`:     func(l *slog.Logger) { l.Info("said", "it", "two words", "empty", "") },
		"debug  looked":                      func(l *slog.Logger) { l.Debug("looked") },
		"moved  from.x=1":                    func(l *slog.Logger) { l.WithGroup("from").Info("moved", "x", 1) },
		// What a server says must not clear the screen, or look like a line of ours.
		"said  \ufffd[2Jall gone well": func(l *slog.Logger) { l.Info("said", "err", "\x1b[2Jall gone\nwell") },
	} {
		out := &bytes.Buffer{}
		say(slog.New(NewHandler(out, Style{form: terminal}, slog.LevelDebug)))
		stamp, rest, _ := strings.Cut(out.String(), "  ")
		if _, err := time.Parse("15:04:05", stamp); err != nil || rest != want+"\n" {
			t.Errorf("%q, want a time and %q", out.String(), want)
		}
	}
}

func TestChangeHasAnAttributeForEachPartInLogfmtAndJSON(t *testing.T) {
	change := Change{Verb: "wrote", Kind: "node", Object: "n1", Name: "label", Field: "a/b", From: "none", To: "2"}
	for want, style := range map[string]Style{
		`level=INFO msg="label written" node=n1 label=a/b from=none to=2`:                       {form: text},
		`"level":"INFO","msg":"label written","node":"n1","label":"a/b","from":"none","to":"2"`: {form: jsonText},
	} {
		out := &bytes.Buffer{}
		slog.New(NewHandler(out, style, slog.LevelInfo)).Info("label written", change.Attr())
		if !strings.Contains(out.String(), want) {
			t.Errorf("%s\nwant %s", out, want)
		}
	}
}

func TestColourIsForTerminalsAlone(t *testing.T) {
	out := &bytes.Buffer{}
	log := slog.New(NewHandler(out, Style{form: terminal, color: true}, slog.LevelInfo))
	log.Warn("careful")
	if want := yellow + "WARN" + plain + "  careful"; !strings.Contains(out.String(), want) {
		t.Errorf("%q, want %q", out.String(), want)
	}
	out.Reset()
	slog.New(NewHandler(out, Style{form: terminal}, slog.LevelInfo)).Warn("careful")
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q has an escape", out.String())
	}
}

func TestAutoIsShortLinesOnATerminalAndLogfmtElsewhere(t *testing.T) {
	tty := openTerminal(t)
	file, err := os.Create(t.TempDir() + "/log")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, c := range []struct {
		format string
		w      io.Writer
		env    string
		want   Style
	}{
		{"auto", tty, "", Style{terminal, true}},
		{"auto", tty, "NO_COLOR=1", Style{terminal, false}},
		{"auto", tty, "NO_COLOR=", Style{terminal, true}},
		{"auto", tty, "TERM=dumb", Style{terminal, false}},
		{"text", tty, "", Style{text, false}},
		{"json", tty, "", Style{jsonText, false}},
		{"auto", file, "", Style{text, false}},
		{"auto", &bytes.Buffer{}, "", Style{text, false}},
		{"json", file, "", Style{jsonText, false}},
	} {
		name, value, _ := strings.Cut(c.env, "=")
		getenv := func(asked string) string {
			if asked == name {
				return value
			}
			return ""
		}
		if got := StyleOf(c.format, c.w, getenv); got != c.want {
			t.Errorf("%s on %T with %q: %v, want %v", c.format, c.w, c.env, got, c.want)
		}
	}
}

// openTerminal opens the side of a pseudo-terminal that programs do not use; it is a terminal all the same.
func openTerminal(t *testing.T) *os.File {
	tty, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("this machine has no pseudo-terminals:", err)
	}
	t.Cleanup(func() { tty.Close() })
	return tty
}

// What fails for ever must not hide that the rest begins to fail, and works again.
func TestChronicFailureHidesNoOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		o.Failed("other", "cannot write", time.Minute)
		<-time.After(time.Second)
		o.Worked("other") // so that one sees: others work
		tryBad := func(d time.Duration) {
			for range d / (30 * time.Second) {
				o.Failed("bad", "cannot write", time.Minute, "key", "bad")
				<-time.After(30 * time.Second)
				o.Worked("good")
			}
		}
		tryBad(20 * time.Minute)
		lines(out)
		<-time.After(time.Second)
		o.Failed("a", "cannot write", time.Minute, "key", "a")
		wantLines(t, "when another fails", lines(out), `level=WARN msg="cannot write" kind=Pod failing=2 key=a`)
		<-time.After(5 * time.Second)
		o.Worked("a")
		wantLines(t, "when that works", lines(out), `level=INFO msg="Pod: watching again, but for 1, after 5s" kind=Pod failed_tries=1`)
		tryBad(10 * time.Minute)
		if all := lines(out); len(all) < 9 || len(all) > 11 {
			t.Errorf("%d lines about what is left in ten minutes", len(all))
		}
		o.Worked("bad")
		wantLines(t, "when all works", lines(out), `level=INFO msg="Pod: watching again after 30m6s" kind=Pod failed_tries=20`)
	})
}

func TestChronicPartThatWorksEndsNoOutageOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		defer o.Stop()
		for range 40 {
			o.Failed("bad", "cannot write", time.Minute, "key", "bad")
			<-time.After(30 * time.Second)
			o.Worked("good")
		}
		o.Failed("a", "cannot write", time.Minute, "key", "a")
		lines(out)
		<-time.After(5 * time.Second)
		o.Worked("bad")
		wantLines(t, "when the chronic part works", lines(out))
		<-time.After(5 * time.Second)
		o.Worked("a")
		wantLines(t, "when all works", lines(out), `level=INFO msg="Pod: watching again after 10s" kind=Pod failed_tries=1`)
	})
}

func TestPartThatIsGivenUpEndsNothingForPeople(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, out := testOutage()
		o.Failed("post", "cannot post", time.Minute)
		lines(out)
		o.GiveUp("post")
		<-time.After(time.Hour)
		wantLines(t, "afterwards", lines(out))
	})
}
