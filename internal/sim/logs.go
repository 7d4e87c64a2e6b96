package sim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"podcount/internal/fakekube"
)

// A process logs, at -v 4, that it has listed, that it watches, and each event of its watches. The simulation compares
// that log with the fake's history. It checks what etcd's robustness tests demand of a watch, and uses their words
// (https://github.com/etcd-io/etcd/tree/main/tests/robustness):
//   - ordered: events come in the order of their versions,
//   - unique: each event comes once,
//   - atomic: each event comes whole,
//   - reliable: no event is missing between two others,
//   - resumable: no event is missing between the end of one watch and the start of the next,
//   - bookmarkable: no event is missing before a bookmark.
//
// These checks would pass without looking at anything if the words of the log changed. Four more rules prevent that:
//   - Each line of the log can be parsed, and has the fields that its message needs.
//   - A process logs a watch only after it has requested one.
//   - At each calm, it has logged that it watches each resource, and every event that the fake has sent.
//   - At the end of a seed, the numbers of logged watches and events fit those that the fake has served.

// logLine is what the simulation reads from a line of the log.
type logLine struct {
	Level    string
	Msg      string
	Kind     string
	Resource string
	RV       *string
	Stale    *bool // the process has skipped the event, because it is not newer than the newest one
}

// eventTypes are the first words of the messages with which events are logged. The kind and the key follow.
var eventTypes = []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

// resourceOfKind has the resources that are watched, by kind.
var resourceOfKind = map[string]string{"Pod": "pods", "Node": "nodes", "Count": "counts"}

// processLog is the stderr of a process.
type processLog struct {
	sim *sim
	p   *proc
}

func (l *processLog) Write(text []byte) (int, error) {
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	for line := range bytes.Lines(text) {
		l.sim.readLineLocked(l.p, bytes.TrimSuffix(line, []byte("\n")))
	}
	return len(text), nil
}

// readLineLocked checks a line of a process's log against the rules.
func (s *sim) readLineLocked(p *proc, text []byte) {
	line, err := parseLogLine(text)
	if err != nil {
		s.breakRuleLocked(p, "logs a line that cannot be parsed: %v: %s", err, text)
		return
	}
	if line.Level != "DEBUG" {
		s.recordLocked("%s %s %s", p.host, line.Level, shortLine(text))
	}
	if line.Level == "ERROR" || strings.Contains(line.Msg, "panic") {
		s.breakRuleLocked(p, "logs a bug: %s", line.Msg)
	}
	if p.isDead {
		return
	}
	words := strings.Fields(line.Msg)
	switch {
	case line.Msg == "discovered":
		s.noteDiscoveredLocked(p, text, line.Resource)
	case line.Msg == "listed":
		s.readReportLocked(p, text, line.Kind, line.RV, s.noteListedLocked)
	case line.Msg == "watching":
		s.readReportLocked(p, text, line.Kind, line.RV, s.noteWatchingLocked)
	case slices.Contains(eventTypes, words[0]):
		s.noteEventLocked(p, text, line, words)
	case line.Stale != nil:
		s.breakRuleLocked(p, "logs an event of an unknown type: %s", text)
	}
}

func parseLogLine(text []byte) (logLine, error) {
	var line logLine
	err := json.Unmarshal(text, &line)
	if err != nil {
		return line, err
	}
	if line.Level == "" || strings.TrimSpace(line.Msg) == "" {
		return line, errors.New("it has no level, or no msg")
	}
	return line, nil
}

// readReportLocked finds out which resource and version a line is about, and calls note with them.
func (s *sim) readReportLocked(p *proc, text []byte, kind string, rv *string, note func(*proc, report)) {
	resource := resourceOfKind[kind]
	known := p.progress[resource]
	if known == nil {
		s.breakRuleLocked(p, "logs a line without a kind that it watches: %s", text)
		return
	}
	if rv == nil {
		s.breakRuleLocked(p, "logs a line that lacks rv: %s", text)
		return
	}
	version, err := strconv.Atoi(*rv)
	if err != nil {
		s.breakRuleLocked(p, "logs a line whose rv is no version: %s", text)
		return
	}
	note(p, report{progress: known, resource: resource, version: version, text: text})
}

// noteDiscoveredLocked notes that a resource was installed or has changed. The server's Retry-After was about the
// resource as it was before, so that it no longer applies.
func (s *sim) noteDiscoveredLocked(p *proc, text []byte, resource string) {
	known := p.progress[resource]
	if known == nil {
		s.breakRuleLocked(p, "logs a line without a resource that it watches: %s", text)
		return
	}
	known.isDiscovered = true
	maps.DeleteFunc(p.retryAfter, func(call string, _ time.Time) bool { return strings.Contains(call, "/"+resource) })
}

// report is what a line of the log reports on a resource.
type report struct {
	*progress
	resource string
	version  int
	text     []byte // the line
}

// progress is how far a process has followed a resource, by its own log.
type progress struct {
	// upTo is the version of the newest event or list. It is 0 before the first list, and after a restored backup,
	// when the old versions have lost their meaning.
	upTo int

	// isWatching says that the process has logged a watch since its newest list.
	isWatching bool

	// isDiscovered says that the process has ever logged that the resource is installed.
	isDiscovered bool

	// sent is the newest version of an event that the fake has sent to the process.
	sent int

	// unlogged counts the watches that were requested and not logged yet, by version. Some of them never began.
	unlogged map[int]int
}

// forget is called when a backup has been restored.
func (p *progress) forget() {
	p.upTo = 0
	p.sent = 0
}

// totals are numbers of a whole seed.
type totals struct {
	watchesRequested int // by the processes
	watchesRefused   int // by the fake, or by a fault in its place
	watchesLogged    int // by the processes
	eventsSent       int // by the fake
	eventsLogged     int // by the processes, without bookmarks and without skipped events
}

// noteWatchRequestLocked notes that a process requests a watch. From now on it may log, once, that it watches from that
// version. Not every watch must be logged, because faults keep some of them from beginning. But each resource must be
// watched at each calm, and the totals must fit.
func (s *sim) noteWatchRequestLocked(p *proc, q fakekube.Request) {
	s.totals.watchesRequested++
	known := p.progress[q.Resource]
	if known == nil {
		s.breakRuleLocked(p, "watches a resource that none of its controllers reads: %s", q)
		return
	}
	version, _ := strconv.Atoi(q.Query.Get("resourceVersion"))
	known.unlogged[version]++
}

// noteSentEventLocked notes that the fake sends an event to a process. The process must have logged it by the next
// calm.
func (s *sim) noteSentEventLocked(p *proc, resource string, version int) {
	s.totals.eventsSent++
	known := p.progress[resource]
	if known != nil && version <= s.newest {
		known.sent = max(known.sent, version)
	}
}

func (s *sim) noteListedLocked(_ *proc, r report) {
	r.isWatching = false
	r.upTo = r.version
	if r.version > s.newest { // a restored backup has undone this version
		r.upTo = 0
	}
}

func (s *sim) noteWatchingLocked(p *proc, r report) {
	s.stats.watches++
	s.totals.watchesLogged++
	if r.unlogged[r.version] == 0 {
		s.breakRuleLocked(p, "logs a watch that it has not requested: %s", shortLine(r.text))
	}
	r.unlogged[r.version]--
	r.isWatching = true
	if r.upTo != 0 && r.upTo != r.version {
		s.breakRuleLocked(p, "watches %s from version %d, but has read up to version %d (resumable)",
			r.resource, r.version, r.upTo)
	}
}

// noteEventLocked checks an event. words are its type, its kind and, unless it is a bookmark, its key.
func (s *sim) noteEventLocked(p *proc, text []byte, line logLine, words []string) {
	isBookmark := words[0] == "BOOKMARK"
	isComplete := len(words) == 3 || isBookmark && len(words) == 2
	if !isComplete {
		s.breakRuleLocked(p, "logs an event without a kind or a key: %s", text)
		return
	}
	if line.Stale == nil {
		s.breakRuleLocked(p, "logs an event that lacks stale: %s", text)
		return
	}
	s.readReportLocked(p, text, words[1], line.RV, func(p *proc, r report) {
		s.stats.events++
		switch {
		case *line.Stale:
			s.checkSkippedLocked(p, r)
		case isBookmark:
			s.checkAppliedLocked(p, r, "")
		default:
			s.totals.eventsLogged++
			s.checkAppliedLocked(p, r, fmt.Sprintf("%d %s %s, ", r.version, words[0], words[2]))
		}
	})
}

// checkSkippedLocked checks that an event that was skipped is not new.
func (s *sim) checkSkippedLocked(p *proc, r report) {
	if r.upTo != 0 && r.version > r.upTo {
		s.breakRuleLocked(p, "skips a new event after version %d: %s", r.upTo, shortLine(r.text))
	}
}

// checkAppliedLocked checks that an event that was applied is newer than all before it, and that none is missing in
// between. want is what changesBetweenLocked must return: this event, or "" for a bookmark.
func (s *sim) checkAppliedLocked(p *proc, r report, want string) {
	if r.upTo == 0 {
		return
	}
	if r.version <= r.upTo {
		s.breakRuleLocked(p, "applies an old event after version %d: %s (ordered, unique)",
			r.upTo, shortLine(r.text))
		return
	}
	changes := s.changesBetweenLocked(r.resource, r.upTo, r.version)
	if changes != want {
		s.breakRuleLocked(p, "after version %d applies %s, but the changes were %q (atomic, reliable, bookmarkable)",
			r.upTo, shortLine(r.text), changes)
	}
	r.upTo = r.version
}

// changesBetweenLocked returns the events that a watch must bring of the versions after from, up to and including to.
func (s *sim) changesBetweenLocked(resource string, from, to int) string {
	events := ""
	all := s.history[resource]
	i := sort.Search(len(all), func(i int) bool { return all[i].Version > from })
	for ; i < len(all) && all[i].Version <= to; i++ {
		event := s.eventOf(all[i])
		if event != "" && !all[i].Lost {
			events += fmt.Sprintf("%d %s, ", all[i].Version, event)
		}
	}
	return events
}

// eventOf returns the type and the key of the event that a change leads to on a watch, or "" if it leads to none.
func (s *sim) eventOf(c fakekube.Change) string {
	was := c.Old != nil && s.shows(c.Resource, c.Old)
	is := c.New != nil && s.shows(c.Resource, c.New)
	switch {
	case was && is:
		return "MODIFIED " + fakekube.KeyOf(c.New).String()
	case is:
		return "ADDED " + fakekube.KeyOf(c.New).String()
	case was:
		return "DELETED " + fakekube.KeyOf(c.Old).String()
	}
	return ""
}

// shows reports whether the program's lists and watches have an object.
func (s *sim) shows(resource string, o fakekube.Object) bool {
	isInside := s.namespace == "" || fakekube.TextIn(fakekube.MetaOf(o), "namespace") == s.namespace
	switch resource {
	case "nodes":
		return true
	case "counts":
		return isInside
	}
	return isInside && s.selects(o)
}

// warmUp is how long a process may need, without faults, until it watches everything.
const warmUp = time.Minute

// checkProgressLocked checks, at a calm, that each process has logged a watch of each resource, and every event that it
// was sent.
func (s *sim) checkProgressLocked() {
	for _, p := range s.slots {
		if p.isEnding || time.Since(p.began) < warmUp {
			continue
		}
		for _, resource := range s.resources() {
			s.checkResourceLocked(p, resource)
		}
	}
}

func (s *sim) checkResourceLocked(p *proc, resource string) {
	known := p.progress[resource]
	switch {
	case resource == "counts" && !known.isDiscovered:
		s.breakRuleLocked(p, "has not logged, though no fault is left, that it has discovered %s", resource)
	case known.upTo == 0:
		s.breakRuleLocked(p, "has not logged, though no fault is left, that it has listed %s", resource)
	case !known.isWatching:
		s.breakRuleLocked(p, "has not logged, though no fault is left, that it watches %s", resource)
	case known.upTo < known.sent:
		s.breakRuleLocked(p, "has logged events of %s up to version %d, though it was sent events up to version %d",
			resource, known.upTo, known.sent)
	}
}

// checkTotalsLocked checks, at the end of a seed, that the simulation has understood the logs.
func (s *sim) checkTotalsLocked() {
	served := s.totals.watchesRequested - s.totals.watchesRefused
	if !isPlausible(s.totals.watchesLogged, served) {
		s.failLocked("the fake has served %d watches, but the processes have logged %d",
			served, s.totals.watchesLogged)
	}
	if !isPlausible(s.totals.eventsLogged, s.totals.eventsSent) {
		s.failLocked("the fake has sent %d events, but the processes have logged %d",
			s.totals.eventsSent, s.totals.eventsLogged)
	}
}

// isPlausible reports whether a number that was logged fits the number that was served. Faults keep some of what is
// served from arriving, but not more than half of it.
func isPlausible(logged, served int) bool {
	return served > 0 && logged <= served && 2*logged >= served
}

// shortLine returns a line of the log as the story shows it: its message and its attributes.
func shortLine(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	decoder.Token() // the opening brace
	var message string
	var attrs []string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			break
		}
		var value any
		err = decoder.Decode(&value)
		if err != nil {
			break
		}
		switch name {
		case "time", "level":
		case "msg":
			message = fmt.Sprint(value)
		default:
			attrs = append(attrs, fmt.Sprint(name, "=", quoteIfNeeded(fmt.Sprint(value))))
		}
	}
	return strings.Join(append([]string{message}, attrs...), " ")
}

// quoteIfNeeded quotes a value that is not one word.
func quoteIfNeeded(value string) string {
	if value == "" || strings.ContainsAny(value, " \"\n") {
		return strconv.Quote(value)
	}
	return value
}
