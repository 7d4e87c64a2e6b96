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

	"podcount/lab/fakekube"
)

// With -v 4, a process logs that it has listed, that it watches, and each event of its watches. The simulation compares
// that log with the fake's history. It checks what etcd's robustness tests demand of a watch, and uses their words
// (https://github.com/etcd-io/etcd/tree/main/tests/robustness):
//   - ordered: events come in the order of their versions,
//   - unique: each event comes once,
//   - atomic: each event comes whole,
//   - reliable: no event is missing between two others,
//   - resumable: no event is missing between the end of one watch and the start of the next,
//   - bookmarkable: no event is missing before a bookmark.
//
// If the wording of the log changed, these checks would pass without checking anything. Four more rules prevent that:
//   - Each line of the log can be parsed, and has the fields that its message needs.
//   - A process logs a watch only after it has requested one.
//   - At each calm, a process has logged a watch of each resource, and every event that the fake has sent to it.
//   - At the end of a seed, the numbers of logged watches and events fit those that the fake has served.

// logLine has the fields of a line of the log that the rules are about.
type logLine struct {
	Level    string
	Msg      string
	Kind     string
	Resource string
	RV       *string
	Why      string // why a list is due
	Drift    *int   // in how many objects an audit found that the cache was wrong
	Stale    *bool  // whether the process has skipped the event, because it is not newer than the last one
}

// eventTypes are the first words of the messages about events. The kind and the key follow.
var eventTypes = []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

// resourceOfKind has the watched resources by their kinds.
var resourceOfKind = map[string]string{"Pod": "pods", "Node": "nodes", "Count": "counts"}

// progress is how far a process has followed a resource, according to its log.
type progress struct {
	// upTo is the version of the last list or event. It is 0 before the first list, and after a restored backup, when
	// the old versions have lost their meaning.
	upTo int

	// isWatching is whether the process has logged a watch since its last list.
	isWatching bool

	// isDiscovered is whether the process has ever logged that the resource is installed.
	isDiscovered bool

	// sent is the newest version of an event that the fake has sent to the process.
	sent int

	// unloggedAudit is when the fake last answered an audit of the process that is not logged yet, or zero.
	unloggedAudit time.Time

	// unlogged counts the watches that were requested and are not logged yet, by version. Some of them never began.
	unlogged map[int]int
}

// forget forgets the versions, which a restored backup has made meaningless.
func (p *progress) forget() {
	p.upTo = 0
	p.sent = 0
}

// totals are numbers for a whole seed.
type totals struct {
	watchesRequested int // by the processes
	watchesRefused   int // by the fake, or by a fault in its place
	watchesLogged    int // by the processes
	eventsSent       int // by the fake
	eventsLogged     int // by the processes, without bookmarks and without skipped events
}

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
	s.checkSecretsInLogLocked(p, text)
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
	case line.Msg == "the resource is installed":
		s.noteDiscoveredLocked(p, text, line.Resource)
	case line.Msg == "listed":
		s.noteListedLocked(p, text, line)
	case line.Msg == "audited":
		s.noteAuditedLocked(p, text, line)
	case line.Msg == "watching":
		s.noteWatchingLocked(p, text, line)
	case slices.Contains(eventTypes, words[0]):
		s.noteEventLocked(p, text, line, words)
	case line.Stale != nil:
		s.breakRuleLocked(p, "logs an event of an unknown type: %s", text)
	}
}

func parseLogLine(text []byte) (logLine, error) {
	var line logLine
	if err := json.Unmarshal(text, &line); err != nil {
		return line, err
	}
	if line.Level == "" || strings.TrimSpace(line.Msg) == "" {
		return line, errors.New("it has no level, or no msg")
	}
	return line, nil
}

// noteDiscoveredLocked notes that a resource was installed or has changed. A Retry-After from before that no longer
// applies.
func (s *sim) noteDiscoveredLocked(p *proc, text []byte, resource string) {
	progress := p.progress[resource]
	if progress == nil {
		s.breakRuleLocked(p, "logs a line without a resource that it watches: %s", text)
		return
	}
	progress.isDiscovered = true
	maps.DeleteFunc(p.retryAfter, func(call string, _ time.Time) bool { return strings.Contains(call, "/"+resource) })
}

// noteListedLocked notes that a process has listed a resource.
func (s *sim) noteListedLocked(p *proc, text []byte, line logLine) {
	r, ok := s.parseReportLocked(p, text, line.Kind, line.RV)
	if !ok {
		return
	}
	r.progress.isWatching = false
	r.progress.upTo = r.version
	if r.version > s.newest { // A restored backup has undone this version.
		r.progress.upTo = 0
	}
}

// noteAuditedLocked checks that a process has audited its cache at the version that it has read up to, and that it has
// found no difference unless a fault may have caused one.
func (s *sim) noteAuditedLocked(p *proc, text []byte, line logLine) {
	r, ok := s.parseReportLocked(p, text, line.Kind, line.RV)
	if !ok {
		return
	}
	if line.Drift == nil {
		s.breakRuleLocked(p, "logs an audit that lacks drift: %s", text)
		return
	}
	s.stats.audits++
	s.stats.drifted += *line.Drift
	r.progress.unloggedAudit = time.Time{}
	r.progress.isWatching = false
	upTo := r.progress.upTo
	if upTo != 0 && upTo != r.version {
		s.breakRuleLocked(p, "audits %s at version %d, but has read up to version %d", r.resource, r.version, upTo)
	}
	if upTo == 0 && r.version <= s.newest {
		r.progress.upTo = r.version // The audit has shown all that is older, as a list does.
	}
	if *line.Drift > 0 && !s.mayDrift[r.resource] {
		s.breakRuleLocked(p, "finds a difference where no change was lost: %s", shortLine(text))
	}
}

// report is a line of the log about a version of a resource.
type report struct {
	resource string
	version  int
	progress *progress // of the process, for the resource
	text     []byte    // the line
}

// parseReportLocked finds out which resource and version a line is about. A line without them breaks a rule, and ok is
// false.
func (s *sim) parseReportLocked(p *proc, text []byte, kind string, rv *string) (r report, ok bool) {
	resource := resourceOfKind[kind]
	progress := p.progress[resource]
	if progress == nil {
		s.breakRuleLocked(p, "logs a line without a kind that it watches: %s", text)
		return report{}, false
	}
	if rv == nil {
		s.breakRuleLocked(p, "logs a line that lacks rv: %s", text)
		return report{}, false
	}
	version, err := strconv.Atoi(*rv)
	if err != nil {
		s.breakRuleLocked(p, "logs a line whose rv is no version: %s", text)
		return report{}, false
	}
	return report{resource: resource, version: version, progress: progress, text: text}, true
}

// noteWatchingLocked checks that a process has requested the watch that it logs, and that the watch continues where the
// process has read up to.
func (s *sim) noteWatchingLocked(p *proc, text []byte, line logLine) {
	r, ok := s.parseReportLocked(p, text, line.Kind, line.RV)
	if !ok {
		return
	}
	s.stats.watches++
	s.totals.watchesLogged++
	if r.progress.unlogged[r.version] == 0 {
		s.breakRuleLocked(p, "logs a watch that it has not requested: %s", shortLine(text))
	}
	r.progress.unlogged[r.version]--
	r.progress.isWatching = true
	upTo := r.progress.upTo
	if upTo != 0 && upTo != r.version {
		s.breakRuleLocked(p, "watches %s from version %d, but has read up to version %d (resumable)",
			r.resource, r.version, upTo)
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
	r, ok := s.parseReportLocked(p, text, words[1], line.RV)
	if !ok {
		return
	}
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
}

// checkSkippedLocked checks that a skipped event is not new.
func (s *sim) checkSkippedLocked(p *proc, r report) {
	upTo := r.progress.upTo
	if upTo != 0 && r.version > upTo {
		s.breakRuleLocked(p, "skips a new event after version %d: %s", upTo, shortLine(r.text))
	}
}

// checkAppliedLocked checks that an applied event is newer than all before it, and that no event is missing in between.
// want is what changesBetweenLocked must return: this event, or "" for a bookmark.
func (s *sim) checkAppliedLocked(p *proc, r report, want string) {
	upTo := r.progress.upTo
	if upTo == 0 {
		return
	}
	if r.version <= upTo {
		s.breakRuleLocked(p, "applies an old event after version %d: %s (ordered, unique)", upTo, shortLine(r.text))
		return
	}
	changes := s.changesBetweenLocked(r.resource, upTo, r.version, want)
	if changes != want {
		s.breakRuleLocked(p, "after version %d applies %s, but the changes were %q (atomic, reliable, bookmarkable)",
			upTo, shortLine(r.text), changes)
	}
	r.progress.upTo = r.version
}

// changesBetweenLocked returns the events that a watch must bring for the versions after from, up to and including to.
// It leaves out those that a lie hides, except for the event want, which the process has applied: a watch may bring it
// after the lie was lifted.
func (s *sim) changesBetweenLocked(resource string, from, to int, want string) string {
	events := ""
	all := s.history[resource]
	i := sort.Search(len(all), func(i int) bool { return all[i].Version > from })
	for ; i < len(all) && all[i].Version <= to; i++ {
		event := s.eventOf(all[i])
		if event == "" || all[i].Lost {
			continue
		}
		text := fmt.Sprintf("%d %s, ", all[i].Version, event)
		isHidden := all[i].Hidden && text != want
		if !isHidden {
			events += text
		}
	}
	return events
}

// eventOf returns the type and the key of the event that a change causes on a watch, or "" if it causes none.
func (s *sim) eventOf(c fakekube.Change) string {
	wasShown := c.Old != nil && s.shows(c.Resource, c.Old)
	isShown := c.New != nil && s.shows(c.Resource, c.New)
	switch {
	case wasShown && isShown:
		return "MODIFIED " + fakekube.KeyOf(c.New).String()
	case isShown:
		return "ADDED " + fakekube.KeyOf(c.New).String()
	case wasShown:
		return "DELETED " + fakekube.KeyOf(c.Old).String()
	}
	return ""
}

// shows reports whether the program's lists and watches, with their namespace and selectors, include an object.
func (s *sim) shows(resource string, o fakekube.Object) bool {
	isInNamespace := s.namespace == "" || fakekube.TextIn(fakekube.MetaOf(o), "namespace") == s.namespace
	switch resource {
	case "nodes":
		return true
	case "counts":
		return isInNamespace
	default:
		return isInNamespace && s.selects(o)
	}
}

// noteWatchRequestLocked notes that a process requests a watch. From now on it may log, once, that it watches from that
// version. It need not, because a fault may keep the watch from beginning.
func (s *sim) noteWatchRequestLocked(p *proc, q fakekube.Request) {
	s.totals.watchesRequested++
	progress := p.progress[q.Resource]
	if progress == nil {
		s.breakRuleLocked(p, "watches a resource that none of its controllers reads: %s", q)
		return
	}
	version, _ := strconv.Atoi(q.Query.Get("resourceVersion"))
	progress.unlogged[version]++
}

// noteSentEventLocked notes that the fake sends an event to a process. The process must have logged it by the next
// calm.
func (s *sim) noteSentEventLocked(p *proc, resource string, version int) {
	s.totals.eventsSent++
	progress := p.progress[resource]
	if progress != nil && version <= s.newest {
		progress.sent = max(progress.sent, version)
	}
}

// warmUp is the longest time that a process needs, without faults, to watch everything.
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
	missing := p.progress[resource].missing(resource)
	if missing != "" {
		s.breakRuleLocked(p, "%s", missing)
	}
}

// missing says what a process has not logged, though it should have when all faults are over. It returns "" if nothing
// is missing.
func (p *progress) missing(resource string) string {
	switch {
	case resource == "counts" && !p.isDiscovered:
		return fmt.Sprintf("has not logged, though no fault is left, that %s is installed", resource)
	case p.upTo == 0:
		return fmt.Sprintf("has not logged, though no fault is left, that it has listed %s", resource)
	case !p.isWatching:
		return fmt.Sprintf("has not logged, though no fault is left, that it watches %s", resource)
	case p.upTo < p.sent:
		return fmt.Sprintf("has logged events of %s up to version %d, though it was sent events up to version %d",
			resource, p.upTo, p.sent)
	case !p.unloggedAudit.IsZero():
		return fmt.Sprintf("has not logged the audit of %s that was answered at %v", resource, p.unloggedAudit)
	}
	return ""
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

// isPlausible reports whether a number that the processes have logged fits the number that the fake has served. Faults
// keep some of what is served from arriving, but not more than half of it.
func isPlausible(logged, served int) bool {
	return served > 0 && logged <= served && 2*logged >= served
}

// shortLine returns a line of the log as the story shows it: the message, and the attributes as name=value.
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
		if err := decoder.Decode(&value); err != nil {
			break
		}
		switch name {
		case "time", "level":
			// The story shows its own times, and the level apart.
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
