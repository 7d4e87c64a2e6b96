package sim

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestTotalsMustFit(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*totals)
		want   string
	}{
		{"all watches and events", func(*totals) {}, ""},
		{"half of the watches", func(n *totals) { n.watchesLogged = 4 }, ""},
		{"too few watches", func(n *totals) { n.watchesLogged = 3 }, "served 8 watches"},
		{"too many watches", func(n *totals) { n.watchesLogged = 9 }, "served 8 watches"},
		{"half of the events", func(n *totals) { n.eventsLogged = 5 }, ""},
		{"too few events", func(n *totals) { n.eventsLogged = 4 }, "sent 9 events"},
		{"too many events", func(n *totals) { n.eventsLogged = 10 }, "sent 9 events"},
		{"no events at all", func(n *totals) { n.eventsSent, n.eventsLogged = 0, 0 }, "sent 0 events"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := &sim{totals: totals{
				watchesRequested: 9,
				watchesRefused:   1,
				watchesLogged:    8,
				eventsSent:       9,
				eventsLogged:     9,
			}}
			row.change(&s.totals)
			s.checkTotalsLocked()
			wantBroken(t, s, row.want)
		})
	}
}

// wantBroken fails the test unless a broken rule contains want, or if want is "" and a rule is broken.
func wantBroken(t *testing.T, s *sim, want string) {
	t.Helper()
	broken := strings.Join(s.broken, "\n")
	if want == "" {
		testkit.WantEqual(t, "the broken rules", broken, "")
		return
	}
	testkit.WantText(t, broken, want)
}

// readLog returns the simulation of a process that has logged these lines. It has requested watches from versions 4 and
// 6. In the fake's history, 5 adds the pod p, 6 changes it, 7 is lost, and 9 deletes it.
func readLog(t *testing.T, lines ...string) *sim {
	t.Helper()
	pod := fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "p"}}
	s := &sim{
		flags:    flags{selects: func(fakekube.Object) bool { return true }},
		began:    time.Now(),
		newest:   9,
		mayDrift: map[string]bool{"pods": true},
		history:  map[string][]fakekube.Change{},
	}
	s.history["pods"] = []fakekube.Change{
		{Resource: "pods", Version: 5, New: pod},
		{Resource: "pods", Version: 6, Old: pod, New: pod},
		{Resource: "pods", Version: 7, Old: pod, New: pod, Lost: true},
		{Resource: "pods", Version: 9, Old: pod},
	}
	p := &proc{host: "r0", progress: map[string]*progress{"pods": {unlogged: map[int]int{4: 1, 6: 1}}}}
	log := &processLog{sim: s, p: p}
	for _, line := range lines {
		n, err := log.Write([]byte(line + "\n"))
		if n != len(line)+1 || err != nil {
			t.Fatalf("the log has accepted %d bytes of %q: %v", n, line, err)
		}
	}
	return s
}

func listedAt(rv int) string { return reportLine("listed", rv) }

func auditedAt(rv, drift int) string {
	return fmt.Sprintf(`{"level":"INFO","msg":"audited","kind":"Pod","rv":"%d","drift":%d}`, rv, drift)
}

func watchingFrom(rv int) string { return reportLine("watching", rv) }

func reportLine(message string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"kind":"Pod","rv":"%d"}`, message, rv)
}

func applied(event string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"rv":"%d","stale":false}`, event, rv)
}

func skipped(event string, rv int) string {
	return fmt.Sprintf(`{"level":"DEBUG","msg":%q,"rv":"%d","stale":true}`, event, rv)
}

const (
	added    = "ADDED Pod default/p"
	modified = "MODIFIED Pod default/p"
	deleted  = "DELETED Pod default/p"
	bookmark = "BOOKMARK Pod"
)

func TestRightLogBreaksNoRule(t *testing.T) {
	for _, row := range []struct {
		name  string
		lines []string
	}{
		{"one watch", []string{
			listedAt(4), watchingFrom(4), applied(added, 5), applied(modified, 6), applied(bookmark, 8), applied(deleted, 9),
		}},
		{"two watches", []string{
			listedAt(4), watchingFrom(4), applied(added, 5), applied(modified, 6), watchingFrom(6), applied(deleted, 9),
		}},
		{"a second list", []string{
			listedAt(4), watchingFrom(4), applied(added, 5), listedAt(6), watchingFrom(6), applied(deleted, 9),
		}},
		{"an audit", []string{
			listedAt(4), watchingFrom(4), applied(added, 5), applied(modified, 6), auditedAt(6, 0), watchingFrom(6),
		}},
		{"an audit that finds a lost event", []string{listedAt(6), watchingFrom(6), auditedAt(6, 1)}},
		{"an old event is skipped", []string{listedAt(4), watchingFrom(4), applied(added, 5), skipped(added, 5)}},
		{"a lost event does not come", []string{listedAt(6), watchingFrom(6), applied(bookmark, 8)}},
		{"a list from an undone history", []string{listedAt(20), watchingFrom(4), applied(modified, 6)}},
		{"other lines", []string{
			`{"level":"INFO","msg":"ready"}`, `{"level":"WARN","msg":"cannot list","err":"x"}`,
		}},
	} {
		t.Run(row.name, func(t *testing.T) { wantBroken(t, readLog(t, row.lines...), "") })
	}
}

func TestWrongLogBreaksOneRule(t *testing.T) {
	const before5 = `after version 4 applies `
	const only5 = `but the changes were "5 ADDED default/p, " (atomic, reliable, bookmarkable)`
	for _, row := range []struct {
		name  string
		lines []string // after the lines for a list and a watch at version 4
		want  string
	}{
		{
			"ordered", []string{applied(added, 5), applied(modified, 6), applied(added, 5)},
			"applies an old event after version 6: ADDED Pod default/p rv=5 stale=false (ordered, unique)",
		},
		{"unique", []string{applied(added, 5), applied(added, 5)}, "applies an old event after version 5"},
		{"atomic: another type", []string{applied(modified, 5)}, only5},
		{"atomic: another key", []string{applied("ADDED Pod default/q", 5)}, only5},
		{
			"reliable: an event is missing", []string{applied(modified, 6)},
			`but the changes were "5 ADDED default/p, 6 MODIFIED default/p, " (atomic`,
		},
		{
			"reliable: an event too many", []string{applied(added, 5), applied(modified, 6), applied(modified, 8)},
			`but the changes were "" (atomic`,
		},
		{
			"resumable", []string{applied(added, 5), watchingFrom(6)},
			"watches pods from version 6, but has read up to version 5 (resumable)",
		},
		{"bookmarkable", []string{applied(bookmark, 5)}, before5 + "BOOKMARK Pod rv=5 stale=false, " + only5},
		{
			"an audit at another version", []string{applied(added, 5), auditedAt(4, 0)},
			"audits pods at version 4, but has read up to version 5",
		},
		{
			"an audit without drift", []string{reportLine("audited", 4)},
			"logs an audit that lacks drift",
		},
		{
			"a new event is skipped", []string{skipped(added, 5)},
			"skips a new event after version 4: ADDED Pod default/p rv=5 stale=true",
		},
		{
			"a watch that was not requested", []string{listedAt(9), watchingFrom(9)},
			"logs a watch that it has not requested: watching kind=Pod rv=9",
		},
		{
			"a watch that was requested once", []string{watchingFrom(4)},
			"logs a watch that it has not requested: watching kind=Pod rv=4",
		},
		{"an error", []string{`{"level":"ERROR","msg":"oh"}`}, "logs a bug: oh"},
		{"a panic", []string{`{"level":"WARN","msg":"a panic in a worker"}`}, "logs a bug: a panic in a worker"},
		{"no level", []string{`{"msg":"ready"}`}, "logs a line that cannot be parsed: it has no level, or no msg"},
		{
			"another kind", []string{`{"level":"DEBUG","msg":"listed","kind":"Count","rv":"4"}`},
			"logs a line without a kind that it watches",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := readLog(t, append([]string{listedAt(4), watchingFrom(4)}, row.lines...)...)
			testkit.WantNumber(t, "broken rules", len(s.broken), 1)
			wantBroken(t, s, row.want)
			wantBroken(t, s, "r0 ")
		})
	}
}

func TestDriftWithoutALostChangeBreaksARule(t *testing.T) {
	s := readLog(t, listedAt(4), watchingFrom(4))
	s.mayDrift = nil
	log := &processLog{sim: s, p: &proc{host: "r1", progress: map[string]*progress{"pods": {upTo: 4}}}}
	log.Write([]byte(auditedAt(4, 0)))
	wantBroken(t, s, "")
	log.Write([]byte(auditedAt(4, 1)))
	wantBroken(t, s, "finds a difference where no change was lost: audited kind=Pod rv=4 drift=1")
}

func TestHiddenChangeMayComeOrNot(t *testing.T) {
	changes := []fakekube.Change{{Version: 5, Hidden: true}, {Version: 6}}
	for i := range changes {
		changes[i].Resource = "pods"
		changes[i].New = fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "p"}}
	}
	s := &sim{
		flags:   flags{selects: func(fakekube.Object) bool { return true }},
		history: map[string][]fakekube.Change{"pods": changes},
	}
	const fifth, sixth = "5 ADDED default/p, ", "6 ADDED default/p, "
	testkit.WantEqual(t, "events if the hidden change does not come", s.changesBetweenLocked("pods", 4, 6, sixth), sixth)
	testkit.WantEqual(t, "events if the hidden change comes", s.changesBetweenLocked("pods", 4, 5, fifth), fifth)
	testkit.WantEqual(t, "events before a bookmark", s.changesBetweenLocked("pods", 4, 5, ""), "")
}

func TestLogMustShowEverythingAtACalm(t *testing.T) {
	for _, row := range []struct {
		name   string
		change func(*progress)
		want   string
	}{
		{"all events are logged", func(*progress) {}, ""},
		{"a list has brought more", func(p *progress) { p.upTo = 7 }, ""},
		{"the last event is missing", func(p *progress) { p.sent = 7 }, "of counts up to version 6, though it was sent"},
		{"no watch", func(p *progress) { p.isWatching = false }, "that it watches counts"},
		{"no list", func(p *progress) { p.upTo = 0 }, "that it has listed counts"},
		{"no discovery", func(p *progress) { p.isDiscovered = false }, "that counts is installed"},
		{"no audit", func(p *progress) { p.unloggedAudit = time.Now() }, "the audit of counts that was answered at 2000-"},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				whole := progress{upTo: 6, sent: 6, isWatching: true, isDiscovered: true}
				pods := whole
				nodes := whole
				counts := whole
				row.change(&counts)
				p := &proc{
					host:     "r0",
					began:    time.Now(),
					progress: map[string]*progress{"pods": &pods, "nodes": &nodes, "counts": &counts},
				}
				s := &sim{flags: flags{runsCounts: true}, began: time.Now(), slots: []*proc{p}}
				s.checkProgressLocked()
				wantBroken(t, s, "") // the process has just started
				<-time.After(warmUp)
				s.checkProgressLocked()
				wantBroken(t, s, row.want)
			})
		})
	}
}

// The process was elected at version 6. The pod p was added at 5 and changed at 6, and the node n was added at 6.
func TestLeaderMustKnowWhatIsOlderThanItsElection(t *testing.T) {
	const missed5 = "r0 writes, but was elected at version 6 and has not received 5 ADDED default/p, nor 1 later events"
	for _, row := range []struct {
		name   string
		change func(s *sim, p *proc)
		want   string
	}{
		{"it knows all", func(*sim, *proc) {}, ""},
		{"it lacks newer events", func(s *sim, p *proc) { p.electedAtVersion = 4; p.progress["pods"].upTo = 4 }, ""},
		{"it lacks pods", func(s *sim, p *proc) { p.progress["pods"].upTo = 4 }, missed5},
		{"it lacks a node", func(s *sim, p *proc) { p.progress["nodes"].upTo = 5 }, "6 ADDED n, nor 0 later events"},
		{"it lacks a Count, and writes to a node", func(s *sim, p *proc) { p.progress["counts"].upTo = 1 }, ""},
		{"it was not elected", func(s *sim, p *proc) { p.electedAtVersion = 0; p.progress["pods"].upTo = 4 }, ""},
		{"a backup was restored", func(s *sim, p *proc) { p.progress["pods"].forget() }, ""},
		{"it was killed", func(s *sim, p *proc) { p.isDead = true; p.progress["pods"].upTo = 4 }, ""},
		{"the watches have lost the events", func(s *sim, p *proc) {
			p.progress["pods"].upTo = 4
			for i := range s.history["pods"] {
				s.history["pods"][i].Lost = true
			}
		}, ""},
		{"its log is late", func(s *sim, p *proc) {
			p.progress["pods"].upTo = 4
			go func() {
				s.mu.Lock()
				defer s.mu.Unlock()
				p.progress["pods"].upTo = 6
			}()
		}, ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pod := fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "p"}}
				node := fakekube.Object{"metadata": fakekube.Object{"name": "n"}}
				count := fakekube.Object{"metadata": fakekube.Object{"namespace": "default", "name": "c"}}
				s := &sim{
					flags: flags{selects: func(fakekube.Object) bool { return true }},
					t:     t,
					began: time.Now(),
					history: map[string][]fakekube.Change{
						"pods": {
							{Resource: "pods", Version: 5, New: pod},
							{Resource: "pods", Version: 6, Old: pod, New: pod},
						},
						"nodes":  {{Resource: "nodes", Version: 6, New: node}},
						"counts": {{Resource: "counts", Version: 2, New: count}},
					},
				}
				p := &proc{
					host:             "r0",
					electedAtVersion: 6,
					progress:         map[string]*progress{"pods": {upTo: 6}, "nodes": {upTo: 6}, "counts": {upTo: 6}},
				}
				row.change(s, p)
				s.mu.Lock()
				s.checkKnowsElectionLocked(p, fakekube.Request{Route: fakekube.Route{Resource: "nodes"}})
				s.mu.Unlock()
				s.running.Wait()
				wantBroken(t, s, row.want)
			})
		})
	}
}
