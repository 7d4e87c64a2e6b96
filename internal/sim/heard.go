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

// What processes say they have heard is held against the fake's history. A process logs, at -v 4, that it has listed,
// that it watches, and each event of its watches. Of the events, the simulation checks what etcd's robustness tests
// demand of a watch (https://github.com/etcd-io/etcd/tree/main/tests/robustness). The words are theirs:
//   - ordered: events come in the order of their versions,
//   - unique: each comes once,
//   - atomic: each comes whole,
//   - reliable: none is left out between two that came,
//   - resumable: nor between the last of one watch and the first of the next,
//   - bookmarkable: nor before a bookmark.
//
// None of that would be worth anything if the log had other words some day, and the simulation went on without hearing.
// So four more rules hold:
//   - Each line of the log can be read, and has what its message needs.
//   - A process says that it watches only where it has asked to.
//   - At each calm, it has said that it watches each resource, and that it has heard of all that the fake has told it.
//   - In the end, the numbers of what was said fit those of what was told.

// logLine is what the simulation reads of a line of the log.
type logLine struct {
	Level    string
	Msg      string
	Kind     string
	Resource string
	RV       *string
	Stale    *bool // of an event: it is no newer than what was heard before, and is passed over
}

// eventTypes are the first word of the message that an event of a watch is logged with. Its kind and key follow.
var eventTypes = []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

// resourceOfKind are the resources that are watched.
var resourceOfKind = map[string]string{"Pod": "pods", "Node": "nodes", "Count": "counts"}

// processLog is where a process writes its log.
type processLog struct {
	sim *sim
	p   *proc
}

func (l *processLog) Write(text []byte) (int, error) {
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	for line := range bytes.Lines(text) {
		l.sim.hearLocked(l.p, bytes.TrimSuffix(line, []byte("\n")))
	}
	return len(text), nil
}

// hearLocked reads a line of a process's log.
func (s *sim) hearLocked(p *proc, text []byte) {
	var line logLine
	err := json.Unmarshal(text, &line)
	if err == nil && (line.Level == "" || strings.TrimSpace(line.Msg) == "") {
		err = errors.New("it has no level, or no msg")
	}
	if err != nil {
		s.breakLocked(p, "logs a line that cannot be read: %v: %s", err, text)
		return
	}
	if line.Level != "DEBUG" {
		s.sayLocked("%s %s %s", p.host, line.Level, shortLine(text))
	}
	if line.Level == "ERROR" || strings.Contains(line.Msg, "panic") {
		s.breakLocked(p, "says that it has a bug: %s", line.Msg)
	}
	if p.isDead {
		return
	}
	words := strings.Fields(line.Msg)
	switch {
	case line.Msg == "discovered":
		s.hearDiscoveredLocked(p, text, line.Resource)
	case line.Msg == "listed":
		s.hearOfLocked(p, text, line.Kind, line.RV, s.hearListedLocked)
	case line.Msg == "watching":
		s.hearOfLocked(p, text, line.Kind, line.RV, s.hearWatchingLocked)
	case slices.Contains(eventTypes, words[0]):
		s.hearEventLocked(p, text, line, words)
	case line.Stale != nil:
		s.breakLocked(p, "logs an event of an unknown type: %s", text)
	}
}

// hearOfLocked finds the resource and the version that a line speaks of, and hands them on.
func (s *sim) hearOfLocked(p *proc, text []byte, kind string, rv *string, hear func(*proc, heardOf)) {
	h := p.hearings[resourceOfKind[kind]]
	if h == nil {
		s.breakLocked(p, "logs a line that should name a kind that it watches: %s", text)
		return
	}
	if rv == nil {
		s.breakLocked(p, "logs a line that lacks rv: %s", text)
		return
	}
	version, err := strconv.Atoi(*rv)
	if err != nil {
		s.breakLocked(p, "logs a line whose rv is no version: %s", text)
		return
	}
	hear(p, heardOf{hearing: h, resource: resourceOfKind[kind], version: version, text: text})
}

// hearDiscoveredLocked: a resource has come, or is another now, so what was asked of requests for it before is void.
func (s *sim) hearDiscoveredLocked(p *proc, text []byte, resource string) {
	h := p.hearings[resource]
	if h == nil {
		s.breakLocked(p, "logs a line that should name a resource that it watches: %s", text)
		return
	}
	h.isDiscovered = true
	maps.DeleteFunc(p.mustWait, func(call string, _ time.Time) bool { return strings.Contains(call, "/"+resource) })
}

// heardOf is what a process has said of a resource.
type heardOf struct {
	*hearing
	resource string
	version  int
	text     []byte // of the log's line
}

// hearing is how far a process says that it has heard of a resource, and how far it must have.
type hearing struct {
	upTo    int         // the version, by its own word; 0: it has not listed yet, or its version means nothing any more
	watches bool        // it has said so since it listed
	told    int         // the newest version of an event that the fake has told it
	unsaid  map[int]int // watches that it has asked for and not said it had begun, by version; some never began

	isDiscovered bool // it has said so, ever
}

// forget is called when versions go back.
func (h *hearing) forget() {
	h.upTo = 0
	h.told = 0
}

// hearingTotals are numbers of a whole seed.
type hearingTotals struct {
	watchesAsked   int // by the processes, of the fake
	watchesRefused int // by the fake, or by a fault in its place
	watchesSaid    int // by the processes
	eventsTold     int // by the fake
	eventsSaid     int // without bookmarks, and without what was passed over
}

// noteWatchAskedLocked notes that a process asks for a watch, so that it may say, once, that it watches from there on.
// Whether it does say so is not asked of each watch, as faults keep some from beginning. It is asked of each resource
// at each calm, and of all watches taken together in the end.
func (s *sim) noteWatchAskedLocked(p *proc, q fakekube.Request) {
	s.heard.watchesAsked++
	h := p.hearings[q.Resource]
	if h == nil {
		s.breakLocked(p, "watches what none of its controllers reads: %s", q)
		return
	}
	version, _ := strconv.Atoi(q.Query.Get("resourceVersion"))
	h.unsaid[version]++
}

// noteToldLocked notes that the fake tells a process of an event. By the next calm, the process must have said that it
// has heard that far.
func (s *sim) noteToldLocked(p *proc, resource string, version int) {
	s.heard.eventsTold++
	h := p.hearings[resource]
	if h != nil && version <= s.newest {
		h.told = max(h.told, version)
	}
}

func (s *sim) hearListedLocked(p *proc, of heardOf) {
	of.watches = false
	of.upTo = of.version
	if of.version > s.newest { // the list is of a time that a restored backup has undone
		of.upTo = 0
	}
}

func (s *sim) hearWatchingLocked(p *proc, of heardOf) {
	s.stats.watches++
	s.heard.watchesSaid++
	if of.unsaid[of.version] == 0 {
		s.breakLocked(p, "says that it watches what it has not asked for: %s", shortLine(of.text))
	}
	of.unsaid[of.version]--
	of.watches = true
	if of.upTo != 0 && of.upTo != of.version {
		s.breakLocked(p, "watches %s from %d, and had heard up to %d (resumable)", of.resource, of.version, of.upTo)
	}
}

// hearEventLocked reads an event: words are its type, its kind and, unless it is a bookmark, its key.
func (s *sim) hearEventLocked(p *proc, text []byte, line logLine, words []string) {
	isBookmark := words[0] == "BOOKMARK"
	if len(words) != 3 && !(isBookmark && len(words) == 2) {
		s.breakLocked(p, "logs an event without a kind or a key: %s", text)
		return
	}
	if line.Stale == nil {
		s.breakLocked(p, "logs an event that lacks stale: %s", text)
		return
	}
	s.hearOfLocked(p, text, words[1], line.RV, func(p *proc, of heardOf) {
		s.stats.events++
		if *line.Stale {
			s.checkPassedOverLocked(p, of)
			return
		}
		want := ""
		if !isBookmark {
			s.heard.eventsSaid++
			want = fmt.Sprintf("%d %s %s, ", of.version, words[0], words[2])
		}
		s.checkTakenLocked(p, of, want)
	})
}

// checkPassedOverLocked: what is passed over is not news.
func (s *sim) checkPassedOverLocked(p *proc, of heardOf) {
	if of.upTo != 0 && of.version > of.upTo {
		s.breakLocked(p, "passes over %s, having heard up to %d", shortLine(of.text), of.upTo)
	}
}

// checkTakenLocked: what is taken is newer than all before, and no more and no less than there was since then. want
// is that event in the words of happenedLocked; "": a bookmark, before which there was nothing.
func (s *sim) checkTakenLocked(p *proc, of heardOf, want string) {
	if of.upTo == 0 {
		return
	}
	if of.version <= of.upTo {
		s.breakLocked(p, "takes %s, having heard up to %d (ordered, unique)", shortLine(of.text), of.upTo)
		return
	}
	happened := s.happenedLocked(of.resource, of.upTo, of.version)
	if happened != want {
		s.breakLocked(p, "takes %s, having heard up to %d; what there was: %q (atomic, reliable, bookmarkable)",
			shortLine(of.text), of.upTo, happened)
	}
	of.upTo = of.version
}

// happenedLocked is what a watch has to tell of the versions after from, to included.
func (s *sim) happenedLocked(resource string, from, to int) string {
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

// eventOf is what a watch has to tell of a change: an event's type, and the object's key. "": nothing.
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

// settled is how long a process needs, at most, until it watches everything, where nothing fails.
const settled = time.Minute

// checkHeardLocked is asked when all is quiet: each process has said that it watches everything, and that it has heard
// of all that it was told.
func (s *sim) checkHeardLocked() {
	for _, p := range s.slots {
		if p.isEnding || time.Since(p.began) < settled {
			continue
		}
		for _, resource := range s.resources() {
			h := p.hearings[resource]
			switch {
			case resource == "counts" && !h.isDiscovered:
				s.breakLocked(p, "has not said, when all was quiet, that it has discovered %s", resource)
			case h.upTo == 0:
				s.breakLocked(p, "has not said, when all was quiet, that it has listed %s", resource)
			case !h.watches:
				s.breakLocked(p, "has not said, when all was quiet, that it watches %s", resource)
			case h.upTo < h.told:
				s.breakLocked(p, "has said, when all was quiet, that it has heard of %s up to %d, and was told of %d",
					resource, h.upTo, h.told)
			}
		}
	}
}

// checkTotalsLocked is asked in the end: the simulation has not been deaf. Processes have said no more than the fake
// has done; and no less than half of it, as faults keep some from arriving, but not most.
func (s *sim) checkTotalsLocked() {
	h := s.heard
	served := h.watchesAsked - h.watchesRefused
	if !fits(h.watchesSaid, served) {
		s.failLocked("the fake has served %d watches, and processes have said that they began %d",
			served, h.watchesSaid)
	}
	if !fits(h.eventsSaid, h.eventsTold) {
		s.failLocked("the fake has told %d events, and processes have said that they heard of %d",
			h.eventsTold, h.eventsSaid)
	}
}

// fits reports whether what was said, in numbers, may be all of what was done that has arrived.
func fits(said, done int) bool { return done > 0 && said <= done && 2*said >= done }

// shortLine is a line of the log for the story: its message and its attributes.
func shortLine(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	decoder.Token() // the object's beginning
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

// quoteIfNeeded quotes what would be taken for more than one word.
func quoteIfNeeded(value string) string {
	if value == "" || strings.ContainsAny(value, " \"\n") {
		return strconv.Quote(value)
	}
	return value
}
