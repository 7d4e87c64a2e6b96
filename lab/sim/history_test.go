package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// threeProcesses is a seed with three processes.
const threeProcesses = 39

// wantedStep has the fields of the history's steps that the tests look at.
type wantedStep struct {
	Lane  int
	At    time.Time
	Until time.Time
	Point string
	Type  string
	Key   string
	Text  string
	Bytes []byte
}

// emitKey is the key of a process's emit function in its context.
type emitKey struct{}

// emitOne emits one step of the program, and then waits until the process is stopped.
func emitOne(ctx context.Context, _ string, _ *http.Client) error {
	emit(ctx, `{"point":"taken","key":"node/n1"}`)
	return nil
}

// emit emits a step with the present time. step is an object that is not empty.
func emit(ctx context.Context, step string) {
	at, err := json.Marshal(time.Now())
	must(err)
	ctx.Value(emitKey{}).(func(json.RawMessage))(fmt.Appendf(nil, `{"at":%s,%s`, at, step[1:]))
}

// recordingTo returns a recording that keeps the last history in kept.
func recordingTo(kept *History) *Recording {
	return &Recording{
		Attach: func(ctx context.Context, emit func(json.RawMessage)) context.Context {
			return context.WithValue(ctx, emitKey{}, emit)
		},
		Keep: func(h History) error {
			*kept = h
			return nil
		},
	}
}

// recordSeed simulates a seed, and returns its history.
func recordSeed(t *testing.T, seed uint64, do action) (History, Result) {
	var kept History
	o := optionsFor(do)
	o.Seed = seed
	o.Recording = recordingTo(&kept)
	result := Simulate(t, o)
	return kept, result
}

// parseSteps parses the steps of a history.
func parseSteps(t *testing.T, recorded []json.RawMessage) (steps []wantedStep) {
	for _, text := range recorded {
		var step wantedStep
		if err := json.Unmarshal(text, &step); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		steps = append(steps, step)
	}
	return steps
}

func TestHistoryHasALaneForEachProcess(t *testing.T) {
	history, _ := recordSeed(t, threeProcesses, emitOne)
	testkit.WantEqual(t, "the lanes", history.Lanes, []string{"server", "faults", "r0", "r1", "r2"})
	testkit.WantText(t, history.Title, "seed 39: program -interval 1s ", "; plain HTTP")
	steps := parseSteps(t, history.Steps)
	for slot := range 3 {
		var points []string
		for _, step := range steps {
			if step.Lane == firstProcessLane+slot && step.Point != pointBroken {
				points = append(points, step.Point)
			}
		}
		testkit.WantEqual(t, "the first steps of a process", points[:3], []string{pointStarts, "taken", pointEnds})
	}
}

func TestHistoryHasAllFaultsOfTheSeed(t *testing.T) {
	history, result := recordSeed(t, threeProcesses, emitOne)
	var descriptions []string
	ends := 0
	for _, step := range parseSteps(t, history.Steps) {
		if step.Point != pointFault {
			continue
		}
		testkit.WantNumber(t, "the lane of a fault", step.Lane, faultsLane)
		descriptions = append(descriptions, step.Text)
		if step.Until.After(step.At) {
			ends++
		}
	}
	faults := 0
	for _, taken := range result.taken {
		if !taken.isFault {
			continue
		}
		faults++
		_, description, _ := strings.Cut(taken.line, fmt.Sprintf("step %d: ", taken.number))
		if !slices.Contains(descriptions, description) {
			t.Errorf("the history lacks %q", description)
		}
	}
	testkit.WantBetween(t, "faults", faults, 10, 1000)
	testkit.WantBetween(t, "faults whose end is known", ends, 1, faults)
}

func TestHistoryIsInTheOrderOfTime(t *testing.T) {
	history, _ := recordSeed(t, threeProcesses, emitOne)
	last := history.Began
	for _, step := range parseSteps(t, history.Steps) {
		if step.At.Before(last) {
			t.Errorf("a step is at %v, after one at %v", step.At, last)
		}
		last = step.At
	}
	testkit.WantBetween(t, "the time of the last step", last.Sub(history.Began), time.Minute, 24*time.Hour)
}

func TestHistoryShowsAStepBeforeItsChanges(t *testing.T) {
	history, _ := recordSeed(t, threeProcesses, emitOne)
	steps := parseSteps(t, history.Steps)
	created := 0
	for i, step := range steps {
		name, isCreation := strings.CutPrefix(step.Text, "+ pod ")
		if !isCreation {
			continue
		}
		created++
		name, _, _ = strings.Cut(name, " ")
		stored := steps[i+1]
		testkit.WantEqual(t, "the next step", []string{stored.Point, stored.Type, stored.Key},
			[]string{pointStored, "created", name})
	}
	testkit.WantBetween(t, "created pods", created, 5, 1000)
}

func TestHistoryOfAFailedSeedShowsTheBrokenRule(t *testing.T) {
	history, result := recordSeed(t, threeProcesses, fail)
	for _, step := range parseSteps(t, history.Steps) {
		if step.Point == pointBroken {
			testkit.WantEqual(t, "the broken rule", step.Key+" "+step.Text, result.Broken[0])
			return
		}
	}
	t.Error("the history has no broken rule")
}

func TestHistoryOfAKilledProcessEnds(t *testing.T) {
	var kept History
	o := optionsFor(doNothing)
	o.Recording = recordingTo(&kept)
	s := emptySim(t, o)
	s.slots = []*proc{{host: "r0-0:1"}}
	ctx := s.attach(t.Context(), s.slots[0])
	emit(ctx, `{"point":"taken"}`)
	s.markDead(0)
	emit(ctx, `{"point":"done"}`)
	s.mu.Lock()
	s.keepHistoryLocked()
	s.mu.Unlock()
	var points []string
	for _, step := range parseSteps(t, kept.Steps) {
		points = append(points, step.Point+" "+step.Type)
	}
	testkit.WantEqual(t, "the steps", points, []string{"taken ", "ends killed"})
}

func TestHistorySaysWhichLabelsHaveChanged(t *testing.T) {
	var kept History
	o := optionsFor(doNothing)
	o.Recording = recordingTo(&kept)
	s := emptySim(t, o)
	s.fake.AddNode("n1", "role=worker")
	fixture.SetLabel(s.fake, "n1", "role", nil)
	fixture.SetLabel(s.fake, "n1", "pods", "7")
	s.fake.LoseEvents(1)
	s.fake.Remove("nodes", key{Name: "n1"})
	var changes []string
	for _, step := range parseSteps(t, s.recorder.recorded()) {
		changes = append(changes, fmt.Sprintf("%s %s: %s", step.Type, step.Key, step.Text))
	}
	testkit.WantEqual(t, "the changes", changes, []string{
		"created n1: ",
		"changed n1: label role removed",
		"changed n1: label pods=7",
		"deleted n1: no watch reports it",
	})
}

func TestOnlyTheSeedItselfIsRecorded(t *testing.T) {
	o := optionsFor(fail)
	failed := Simulate(t, o)
	o.Recording = recordingTo(new(History))
	o.Recording.Keep = func(History) error {
		t.Error("a run that makes the story shorter is recorded")
		return nil
	}
	shrinker := &shrinker{t: t, options: o, rule: failed.rules[0], end: time.Now().Add(time.Minute)}
	if !shrinker.breaksRule(failed.taken) {
		t.Errorf("%d runs have not broken the rule", shrinker.runs)
	}
}

func TestRunSeedsRefusesToRecordTwoSeeds(t *testing.T) {
	o := optionsFor(doNothing)
	o.Recording = recordingTo(new(History))
	inner := new(testing.T)
	hasEnded := make(chan struct{})
	go func() {
		defer close(hasEnded) // Fatal ends only this goroutine.
		RunSeeds(inner, o, Seeds{First: 17, Last: 18})
	}()
	<-hasEnded
	if !inner.Failed() {
		t.Error("the test has passed")
	}
}

func TestRecorderKeepsTheNewestSteps(t *testing.T) {
	for _, row := range []struct {
		name     string
		recorder recorder
		want     []string
	}{
		{"all below the limits", recorder{maxSteps: 3, maxSize: 1000}, []string{"a ", "b ", "c "}},
		{"two steps", recorder{maxSteps: 2, maxSize: 1000}, []string{"gap left out: the first 1 steps", "b ", "c "}},
		{"30 bytes", recorder{maxSteps: 3, maxSize: 30}, []string{"gap left out: the first 2 steps", "c "}},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, point := range []string{"a", "b", "c"} {
				row.recorder.add(serverLane, json.RawMessage(`{"point":"`+point+`"}`))
			}
			var got []string
			for _, step := range parseSteps(t, row.recorder.recorded()) {
				got = append(got, step.Point+" "+step.Text)
			}
			testkit.WantEqual(t, "the steps", got, row.want)
		})
	}
}

// A wave of pods may push its own place out of the history before it is filled.
func TestRecorderDropsAPlaceBeforeItIsFilled(t *testing.T) {
	r := recorder{maxSteps: 2, maxSize: 1000}
	place := r.reserve()
	for range 3 {
		r.add(serverLane, json.RawMessage(`{"point":"stored"}`))
	}
	place.fill(faultsLane, ownStep{Point: pointLife})
	testkit.WantNumber(t, "dropped steps", r.dropped, 2)
	testkit.WantNumber(t, "bytes", r.size, 2*len(`{"lane":0,"point":"stored"}`))
}

func TestLostHistoryFailsTheTest(t *testing.T) {
	o := optionsFor(doNothing)
	o.Recording = recordingTo(new(History))
	o.Recording.Keep = func(History) error { return errors.New("the disk is full") }
	s := emptySim(new(testing.T), o)
	s.keepHistoryLocked()
	if !s.t.Failed() {
		t.Error("the test has passed")
	}
}
