package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// Recording is how the history of a seed is recorded: see Options.Recording.
type Recording struct {
	// Attach returns the context of a new process. The program that runs with it calls emit with each step of its trace.
	// A step is a JSON object with at least one field.
	Attach func(ctx context.Context, emit func(step json.RawMessage)) context.Context

	// Keep gets the history at the end of the seed, even if the seed has failed.
	Keep func(History) error
}

// History is what happened in a seed. Its JSON is what podcount's page replays.
type History struct {
	// Title says what was simulated.
	Title string `json:"title"`

	// Began is when the seed began.
	Began time.Time `json:"began"`

	// Lanes are the names of the lanes: the server, the faults, and one for each slot of processes.
	Lanes []string `json:"lanes"`

	// Steps are all steps in the order of time. Each is a JSON object. Its lane is an index of Lanes.
	Steps []json.RawMessage `json:"steps"`
}

// The indexes of the lanes. A process that is restarted keeps its lane.
const (
	serverLane       = 0
	faultsLane       = 1
	firstProcessLane = 2
)

// ownStep is a step of the simulation itself. All of its fields but the last are also those of a program's step.
type ownStep struct {
	At      time.Time `json:"at"`
	Point   string    `json:"point"`
	Kind    string    `json:"kind,omitempty"`
	Key     string    `json:"key,omitempty"`
	Type    string    `json:"type,omitempty"`
	Version string    `json:"rv,omitempty"`
	Text    string    `json:"text,omitempty"`

	// Until is when a fault ends, unless all faults stop before that. It is zero if that is not known.
	Until time.Time `json:"until,omitzero"`
}

// The points of the simulation's own steps.
const (
	pointStored = "stored" // the server has created, changed or deleted an object
	pointFault  = "fault"  // a fault begins
	pointLife   = "life"   // something happens that also happens in a healthy cluster
	pointStruck = "struck" // a fault strikes a request of a process, which gets no answer or another one
	pointPhase  = "phase"  // another part of the seed begins
	pointStarts = "starts" // a process starts
	pointEnds   = "ends"   // a process ends
	pointBroken = "broken" // a rule is broken
	pointGap    = "gap"    // something was left out of the history
)

// recordOwnLocked adds a step of the simulation itself to the history.
func (s *sim) recordOwnLocked(lane int, step ownStep) {
	if s.recorder != nil {
		s.recorder.reserve().fill(lane, step)
	}
}

// recordedKinds has the kinds whose changes are part of a history, by their resources.
var recordedKinds = map[string]string{"pods": "Pod", "nodes": "Node", "counts": "Count", "leases": "Lease"}

// recordChangeLocked adds a change of the cluster to the history.
func (s *sim) recordChangeLocked(c fakekube.Change) {
	kind := recordedKinds[c.Resource]
	if s.recorder == nil || kind == "" {
		return
	}
	what := "changed"
	switch {
	case c.Old == nil:
		what = "created"
	case c.New == nil:
		what = "deleted"
	}
	s.recordOwnLocked(serverLane, ownStep{
		Point:   pointStored,
		Kind:    kind,
		Key:     c.Key().String(),
		Type:    what,
		Version: strconv.Itoa(c.Version),
		Text:    textOfChange(c),
	})
}

// textOfChange says which labels have changed, who holds a lease, and who does not hear of the change.
func textOfChange(c fakekube.Change) string {
	var parts []string
	if c.Old != nil && c.New != nil {
		parts = changedLabels(c.Old, c.New)
	}
	if c.Resource == "leases" && c.New != nil {
		spec, _ := c.New["spec"].(fakekube.Object)
		parts = append(parts, fmt.Sprintf("the holder is %q", fakekube.TextIn(spec, "holderIdentity")))
	}
	if c.Lost {
		parts = append(parts, "no watch reports it")
	}
	if c.Hidden {
		parts = append(parts, "the server's cache hides it")
	}
	return strings.Join(parts, "; ")
}

// changedLabels describes the labels in which two versions of an object differ.
func changedLabels(before, after fakekube.Object) (changed []string) {
	labelsBefore, _ := fakekube.MetaOf(before)["labels"].(fakekube.Object)
	labelsAfter, _ := fakekube.MetaOf(after)["labels"].(fakekube.Object)
	names := maps.Clone(labelsBefore)
	if names == nil {
		names = fakekube.Object{}
	}
	maps.Copy(names, labelsAfter)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		old, hadIt := labelsBefore[name]
		value, hasIt := labelsAfter[name]
		switch {
		case !hasIt:
			changed = append(changed, "label "+name+" removed")
		case !hadIt || old != value:
			changed = append(changed, fmt.Sprintf("label %s=%v", name, value))
		}
	}
	return changed
}

// recordStrike calls do, which makes a step happen, and adds that step to the history. It has its place there before
// all changes that it causes, although its description comes after them.
func (s *sim) recordStrike(what step, do func() (description string)) (description string) {
	if s.recorder == nil {
		return do()
	}
	s.faultLasts = 0
	s.mu.Lock()
	place := s.recorder.reserve()
	s.mu.Unlock()

	description = do()
	if description == "" {
		return "" // The place stays empty.
	}
	recorded := ownStep{Point: pointLife, Type: what.name, Text: description}
	if what.isFault {
		recorded.Point = pointFault
	}
	if s.faultLasts > 0 {
		recorded.Until = place.at.Add(s.faultLasts)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	place.fill(faultsLane, recorded)
	return description
}

// attach returns the context of a new process, whose trace becomes part of the history.
func (s *sim) attach(ctx context.Context, p *proc) context.Context {
	if s.recorder == nil {
		return ctx
	}
	return s.Recording.Attach(ctx, func(step json.RawMessage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !p.isDead { // What a killed process still does matters to nobody.
			s.recorder.add(p.lane(), step)
		}
	})
}

// lane returns the index of the process's lane.
func (p *proc) lane() int { return firstProcessLane + p.slot }

// recordEndLocked adds the end of a process to the history.
func (s *sim) recordEndLocked(p *proc, err error) {
	ended := ownStep{Point: pointEnds, Key: p.host, Type: "stopped"}
	if err != nil {
		ended.Type = "failed"
		ended.Text = err.Error()
	}
	s.recordOwnLocked(p.lane(), ended)
}

// keepHistoryLocked passes the history on.
func (s *sim) keepHistoryLocked() {
	if s.recorder == nil {
		return
	}
	lanes := []string{"server", "faults"}
	for i := range s.slots {
		lanes = append(lanes, fmt.Sprint("r", i))
	}
	err := s.Recording.Keep(History{
		Title: fmt.Sprintf("seed %d: %s %s; %v", s.Seed, s.Name, strings.Join(s.args, " "), s.access),
		Began: s.began,
		Lanes: lanes,
		Steps: s.recorder.recorded(),
	})
	if err != nil {
		s.t.Errorf("the history of seed %d is lost: %v", s.Seed, err)
	}
}

// checkSeeds returns an error if more than one seed is to be recorded.
func (r *Recording) checkSeeds(seeds Seeds) error {
	if r != nil && seeds.First != seeds.Last {
		return fmt.Errorf("a history has only one seed, such as 17-17, and not %d-%d", seeds.First, seeds.Last)
	}
	return nil
}
