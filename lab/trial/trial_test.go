package trial

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"podcount/lab/fakekube"
)

func TestPollerPassesAllOtherRows(t *testing.T) {
	Run(t, Program{Run: poller{}.run, Elects: true, KnownFailures: map[string]string{
		"20,000 pods": "it lists all of them again and again",
	}})
}

// play plays the row of this name in a bubble, and returns its result.
func play(t *testing.T, p Program, name string) Result {
	t.Helper()
	for _, row := range append(Rows(), Steps()...) {
		if row.Name == name {
			return RunRow(t, p, row)
		}
	}
	t.Fatalf("there is no row %q", name)
	return Result{}
}

func TestEachMistakeHasItsVerdict(t *testing.T) {
	for _, row := range []struct {
		mistake string
		poller  poller
		row     string
		verdict Verdict
		detail  string // a part of it
	}{
		{"it waits for ever for an answer", poller{waitsForEver: true}, "list unanswered", Wrong, "3m20s after the fault"},
		{"it exits after an error", poller{exits: true}, "list refused", Exited, "503"},
		{"it asks again at once after an error", poller{hurries: true}, "unauthorized", HotLoop, "requests a second"},
		{"it connects again at once", poller{hurries: true}, "server away", HotLoop, "connections a second"},
		{"it writes what is right already", poller{alwaysWrites: true}, "quiet", Needless, "writes in 30s"},
		{"it counts half a list", poller{believesHalf: true}, "list truncated", FalseNumber, "never was the number"},
		{"it counts a page of HTML", poller{believesAll: true}, "list garbage", FalseNumber, `got the label "0"`},
		{"it counts a refusal", poller{believesAll: true}, "list refused", FalseNumber, `got the label "0"`},
		{"it writes one node after the other", poller{writesInTurn: true}, "slow webhook", Blocked, "no node is right"},
		{"it runs on after a SIGTERM", poller{ignoresStop: true}, "stop", NotStopped, "30s"},
		{"it labels all nodes", poller{writesWorkers: true}, "counts", Wrong, "no control-plane node"},
		{"it lists everything again and again", poller{}, "20,000 pods", HotLoop, "listed all pods 7 times in 15s"},
		{"it writes only the first number", poller{writesOnce: true}, "follows", Wrong, "there are"},
		{"it ignores the Lease", poller{ignoresLease: true}, "foreign leader", Intruded, "somebody-else held the Lease"},
	} {
		t.Run(row.mistake, func(t *testing.T) {
			r := play(t, Program{Run: row.poller.run, Elects: true}, row.row)
			if r.Verdict != row.verdict || !strings.Contains(r.Detail, row.detail) {
				t.Errorf("the verdict is %q, want %q with %q\n%s", r.Verdict, row.verdict, row.detail, r.Story())
			}
			if !strings.Contains(r.Story(), r.Detail) {
				t.Errorf("the story does not tell why:\n%s", r.Story())
			}
		})
	}
}

func TestProgramThatDoesNothingIsToldSo(t *testing.T) {
	sleep := func(ctx context.Context, _ Cluster) error {
		<-ctx.Done()
		return nil
	}
	r := play(t, Program{Run: sleep}, "follows")
	if r.Verdict != NeverRight || !strings.Contains(r.Detail, "no request at all") {
		t.Errorf("%s: %s", r.Verdict, r.Detail)
	}
}

func TestFaultThatMeetsNothingIsNamed(t *testing.T) {
	for row, want := range map[string]string{
		"watch cut":   "right after 0.0 s; its fault met nothing", // a poller does not watch
		"watch ended": "right after 0.0 s; its fault met nothing",
		"list cut":    "right after 4.0 s",
	} {
		if r := play(t, Program{Run: poller{}.run}, row); r.Summary() != want {
			t.Errorf("%s: %s, want %s", row, r.Summary(), want)
		}
	}
}

func TestMistakeOfTheTrialIsNoVerdictOnTheProgram(t *testing.T) {
	job := Job{Reads: "pods", Writes: "nodes", Setup: func(*fakekube.Server) { panic("no such kind") }}
	r := play(t, Program{Run: poller{}.run, Job: &job}, "counts")
	if r.Verdict != Broken || r.Green() || !strings.Contains(r.Detail, "no such kind") {
		t.Errorf("%s: %s", r.Verdict, r.Detail)
	}
}

func TestRowsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, row := range append(Rows(), Steps()...) {
		if names[row.Name] {
			t.Errorf("there are two rows %q", row.Name)
		}
		names[row.Name] = true
		for _, sentence := range []string{row.Happens, row.Why} {
			if !strings.HasSuffix(sentence, ".") {
				t.Errorf("the row %q says %q, which is no sentence", row.Name, sentence)
			}
		}
		if u, err := url.Parse(row.Report); err != nil || u.Scheme != "https" || u.Host == "" {
			t.Errorf("the row %q has the report %q", row.Name, row.Report)
		}
	}
}

func TestKnownFailureIsSkippedWithItsReason(t *testing.T) {
	tr := newTrial(Program{Run: poller{}.run, KnownFailures: map[string]string{"counts": "it cannot"}})
	if why := tr.missing(Rows()[0]); why != "known to fail: it cannot" {
		t.Errorf("the row is skipped because of %q", why)
	}
}

func TestReportsShowVerdictsAndStories(t *testing.T) {
	right := play(t, Program{Run: poller{}.run}, "counts")
	wrong := play(t, Program{Run: poller{exits: true}.run}, "list refused")
	wrong.Output = "<script>alert(1)</script>"
	report := Report{Program: "./mine <flag>", Results: []Result{right, wrong}}

	var page, table, decoded bytes.Buffer
	if err := WriteHTML(&page, report); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"<h1>1 row passed, 1 failed</h1>", `<details data-level="good">`, `<details data-level="bad" open>`,
		"the program has exited: 503 Service Unavailable", "./mine &lt;flag&gt;", "&lt;script&gt;",
	} {
		if !strings.Contains(page.String(), part) {
			t.Errorf("the page lacks %s:\n%s", part, &page)
		}
	}
	WriteTable(&table, report.Results)
	for _, line := range []string{"calm\n", "✓ counts ", "✗ list refused         exited\n", "1 row passed, 1 failed"} {
		if !strings.Contains(table.String(), line) {
			t.Errorf("the table lacks %q:\n%s", line, &table)
		}
	}
	if err := WriteJSON(&decoded, report); err != nil {
		t.Fatal(err)
	}
	var again Report
	if err := json.Unmarshal(decoded.Bytes(), &again); err != nil || again.Results[1].Story() != wrong.Story() {
		t.Errorf("JSON does not keep the story: %v", err)
	}
}
