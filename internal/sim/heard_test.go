package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

func TestSimulationFailsIfItHearsFewerEventsThanWereTold(t *testing.T) {
	all := hearingTotals{watchesAsked: 9, watchesRefused: 1, watchesSaid: 8, eventsTold: 9, eventsSaid: 9}
	for _, c := range []struct {
		name   string
		change func(*hearingTotals)
		want   string
	}{
		{"all", func(h *hearingTotals) {}, ""},
		{"half of the watches", func(h *hearingTotals) { h.watchesSaid = 4 }, ""},
		{"too few watches", func(h *hearingTotals) { h.watchesSaid = 3 }, "served 8 watches"},
		{"too many watches", func(h *hearingTotals) { h.watchesSaid = 9 }, "served 8 watches"},
		{"half of the events", func(h *hearingTotals) { h.eventsSaid = 5 }, ""},
		{"too few events", func(h *hearingTotals) { h.eventsSaid = 4 }, "told 9 events"},
		{"too many events", func(h *hearingTotals) { h.eventsSaid = 10 }, "told 9 events"},
		{"no events at all", func(h *hearingTotals) { h.eventsTold, h.eventsSaid = 0, 0 }, "told 0 events"},
	} {
		totals := all
		c.change(&totals)
		s := &sim{heard: totals}
		s.checkTotalsLocked()
		broken := strings.Join(s.wrong, "\n")
		if (broken == "") != (c.want == "") || !strings.Contains(broken, c.want) {
			t.Errorf("%s: %q, want %q", c.name, broken, c.want)
		}
	}
}

// heardInLog is what a simulation finds broken, when a process logs these lines. The fake's history, in which p is a
// pod, is: 5 adds p, 6 changes it, 7 is lost, 9 deletes it. The process has asked for watches from versions 4 and 6.
func heardInLog(t *testing.T, lines ...string) string {
	t.Helper()
	pod := fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "p"}}
	s := &sim{
		flags:   flags{selects: func(fakekube.Object) bool { return true }},
		began:   time.Now(),
		newest:  9,
		history: map[string][]fakekube.Change{},
	}
	s.history["pods"] = []fakekube.Change{
		{Resource: "pods", Version: 5, New: pod},
		{Resource: "pods", Version: 6, Old: pod, New: pod},
		{Resource: "pods", Version: 7, Old: pod, New: pod, Lost: true},
		{Resource: "pods", Version: 9, Old: pod},
	}
	p := &proc{host: "r0", hearings: map[string]*hearing{"pods": {unsaid: map[int]int{4: 1, 6: 1}}}}
	log := &processLog{sim: s, p: p}
	for _, line := range lines {
		n, err := log.Write([]byte(line + "\n"))
		if n != len(line)+1 || err != nil {
			t.Fatalf("the log takes %d bytes of %q: %v", n, line, err)
		}
	}
	return strings.Join(s.wrong, "\n")
}

// The lines of a log: a list, the beginning of a watch, and events that are taken or passed over.
func listedAt(rv int) string { return flowLine("listed", rv) }

func watchingFrom(rv int) string { return flowLine("watching", rv) }

func flowLine(message string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"kind":"Pod","rv":"%d"}`, message, rv)
}

func taken(event string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"rv":"%d","stale":false}`, event, rv)
}

func passedOver(event string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"rv":"%d","stale":true}`, event, rv)
}

const (
	added    = "ADDED Pod default/p"
	modified = "MODIFIED Pod default/p"
	deleted  = "DELETED Pod default/p"
	bookmark = "BOOKMARK Pod"
)

func TestProcessThatHearsAWatchAsItWasBreaksNoRule(t *testing.T) {
	for name, lines := range map[string][]string{
		"one watch": {
			listedAt(4), watchingFrom(4), taken(added, 5), taken(modified, 6), taken(bookmark, 8), taken(deleted, 9),
		},
		"two watches": {
			listedAt(4), watchingFrom(4), taken(added, 5), taken(modified, 6), watchingFrom(6), taken(deleted, 9),
		},
		"a second list": {
			listedAt(4), watchingFrom(4), taken(added, 5), listedAt(6), watchingFrom(6), taken(deleted, 9),
		},
		"what is old is passed over":    {listedAt(4), watchingFrom(4), taken(added, 5), passedOver(added, 5)},
		"a lost event does not come":    {listedAt(6), watchingFrom(6), taken(bookmark, 8)},
		"a list from an undone history": {listedAt(20), watchingFrom(4), taken(modified, 6)},
		"other lines of the log": {
			`{"level":"INFO","msg":"ready"}`, `{"level":"WARN","msg":"cannot list","err":"x"}`,
		},
	} {
		if broken := heardInLog(t, lines...); broken != "" {
			t.Errorf("%s: %s", name, broken)
		}
	}
}

func TestProcessThatHearsAWatchOtherwiseBreaksARule(t *testing.T) {
	watches := []string{listedAt(4), watchingFrom(4)}
	for _, c := range []struct {
		name  string
		lines []string // after a list and the beginning of a watch at version 4
		want  string
	}{
		{
			"ordered",
			[]string{taken(added, 5), taken(modified, 6), taken(added, 5)},
			"having heard up to 6 (ordered, unique)",
		},
		{"unique", []string{taken(added, 5), taken(added, 5)}, "having heard up to 5 (ordered, unique)"},
		{"atomic: another type", []string{taken(modified, 5)}, `what there was: "5 ADDED default/p, " (atomic`},
		{
			"atomic: another key",
			[]string{taken("ADDED Pod default/q", 5)},
			`what there was: "5 ADDED default/p, " (atomic`,
		},
		{
			"reliable",
			[]string{taken(modified, 6)},
			`what there was: "5 ADDED default/p, 6 MODIFIED default/p, " (atomic`,
		},
		{
			"reliable: what never was",
			[]string{taken(added, 5), taken(modified, 6), taken(modified, 8)},
			`what there was: "" (atomic`,
		},
		{
			"resumable",
			[]string{taken(added, 5), watchingFrom(6)},
			"watches pods from 6, and had heard up to 5 (resumable)",
		},
		{
			"bookmarkable",
			[]string{taken(bookmark, 5)},
			`what there was: "5 ADDED default/p, " (atomic, reliable, bookmarkable)`,
		},
		{
			"news passed over",
			[]string{passedOver(added, 5)},
			"passes over ADDED Pod default/p rv=5 stale=true, having heard up to 4",
		},
		{
			"not asked for",
			[]string{listedAt(9), watchingFrom(9)},
			"watches what it has not asked for: watching kind=Pod rv=9",
		},
		{"asked for once", []string{watchingFrom(4)}, "watches what it has not asked for: watching kind=Pod rv=4"},
		{"a bug", []string{`{"level":"ERROR","msg":"oh"}`}, "says that it has a bug: oh"},
		{
			"a panic",
			[]string{`{"level":"WARN","msg":"a panic in a worker"}`},
			"says that it has a bug: a panic in a worker",
		},
		{"no level", []string{`{"msg":"ready"}`}, "logs a line that cannot be read: it has no level, or no msg"},
		{
			"another kind",
			[]string{`{"level":"DEBUG","msg":"listed","kind":"Count","rv":"4"}`},
			"should name a kind that it watches",
		},
	} {
		broken := heardInLog(t, append(slices.Clone(watches), c.lines...)...)
		if !strings.HasPrefix(broken, "r0 ") || !strings.Contains(broken, c.want) || strings.Contains(broken, "\n") {
			t.Errorf("%s: %q is broken, want %q", c.name, broken, c.want)
		}
	}
}

func TestProcessMustHaveHeardOfAllThatItWasToldWhenAllIsQuiet(t *testing.T) {
	whole := hearing{upTo: 6, told: 6, watches: true, isDiscovered: true}
	for _, c := range []struct {
		name   string
		change func(*hearing)
		want   string
	}{
		{"all of it", func(h *hearing) {}, ""},
		{"more, by a list", func(h *hearing) { h.upTo = 7 }, ""},
		{"not the last event", func(h *hearing) { h.told = 7 }, "heard of counts up to 6, and was told of 7"},
		{"no watch", func(h *hearing) { h.watches = false }, "that it watches counts"},
		{"no list", func(h *hearing) { h.upTo = 0 }, "that it has listed counts"},
		{"no discovery", func(h *hearing) { h.isDiscovered = false }, "that it has discovered counts"},
	} {
		synctest.Test(t, func(t *testing.T) {
			pods, nodes, counts := whole, whole, whole
			c.change(&counts)
			p := &proc{
				host:     "r0",
				began:    time.Now(),
				hearings: map[string]*hearing{"pods": &pods, "nodes": &nodes, "counts": &counts},
			}
			s := &sim{flags: flags{runsCounts: true}, began: time.Now(), slots: []*proc{p}}
			s.checkHeardLocked()
			if len(s.wrong) > 0 {
				t.Errorf("%s, just started: %q", c.name, s.wrong)
			}
			<-time.After(settled)
			s.checkHeardLocked()
			broken := strings.Join(s.wrong, "\n")
			if (broken == "") != (c.want == "") || !strings.Contains(broken, c.want) {
				t.Errorf("%s: %q, want %q", c.name, broken, c.want)
			}
		})
	}
}
