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
	s.slots = []*proc{{host: "r0-0:1", activities: map[string]*activity{}}}
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

func TestHistoryHasOnlyOneSeed(t *testing.T) {
	recording := &Recording{}
	err := recording.checkSeeds(Seeds{First: 17, Last: 18})
	testkit.WantError(t, "two seeds", err, "a history has only one seed, such as 17-17, and not 17-18")
	for _, err := range []error{
		recording.checkSeeds(Seeds{First: 17, Last: 17}),
		(*Recording)(nil).checkSeeds(Seeds{First: 17, Last: 18}),
	} {
		if err != nil {
			t.Error(err)
		}
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

func TestRecorderKeepsItsLimits(t *testing.T) {
	line := `{"point":"log","text":"a line"}`
	frame := `{"point":"frame","bytes":"AAAA","size":3}`
	for _, row := range []struct {
		name     string
		recorder recorder
		add      []string
		want     []string
	}{
		{
			"all below the limits", recorder{maxSteps: 3, maxSize: 1000}, []string{line, frame, line},
			[]string{"log []", "frame [0 0 0]", "log []"},
		},
		{
			"no lines of the log", recorder{maxSteps: 3, maxSize: 1000}, []string{line, frame, line, frame, line},
			[]string{"gap left out: 3 lines of the log, the bytes of 2 steps, and the first 0 steps", "frame []", "frame []"},
		},
		{
			"no bytes", recorder{maxSteps: 10, maxSize: 90}, []string{frame, frame},
			[]string{"gap left out: 0 lines of the log, the bytes of 2 steps, and the first 0 steps", "frame []", "frame []"},
		},
		{
			"not the oldest steps", recorder{maxSteps: 2, maxSize: 1000},
			[]string{frame, line, frame, frame, `{"point":"done"}`},
			[]string{"gap left out: 1 lines of the log, the bytes of 3 steps, and the first 2 steps", "frame []", "done []"},
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			for _, step := range row.add {
				row.recorder.add(serverLane, json.RawMessage(step))
			}
			var got []string
			for _, step := range parseSteps(t, row.recorder.recorded()) {
				detail := step.Text
				if step.Point != pointGap {
					detail = fmt.Sprint(step.Bytes)
				}
				got = append(got, step.Point+" "+detail)
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
	testkit.WantNumber(t, "dropped steps", r.droppedSteps, 2)
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
