package control

// This is what -once, -dry-run and -prune change while podcount runs. Package options has the rules for flags.
//
//	what                  how it changes                                                 where
//	-once
//	  the log             no line of stdout is lost while somebody reads it              logging.Outputs
//	  a list, discovery   a host that does not exist, or a wrong certificate, ends it    Reflector.isFinal, Presence.Run
//	  a missing resource  nobody waits until it is installed                             Presence.Run, Reflector.onMissing
//	                      its empty cache counts as complete                             Reflector.Run
//	  the first lists     have 2 min at most                                             Manager.limitFirstLists
//	  a change            is left to the next run                                        Controller.SkipsChanges
//	  a look              comes once, and not at each interval                           Manager.runController
//	  a key               is awaited for 10 tries; no rest or pause adds it again        awaitDone, brakes.New
//	  a dropped field     is an error at once                                            Brakes.write
//	  the end             comes when no key has work and tries left, or by -once-timeout Manager.endOnce
//	  the last lines      say what was done; what is left to do is an error              Manager.summarize, endOnce
//	  a stop              before the end is an error                                     Options.ErrStoppedEarly
//	  the page            shows that it is a run of -once                                Overview.mode
//	-dry-run
//	  a write             is only logged, and waits for no turn                          Brakes.Correct, restOrAwaitTurn
//	  an Event            is only logged                                                 program.newRecorder
//	  any other write     is refused by the client                                       kube.Client
//	  the election        does not take place                                            connectAndRun
//	  the log             shows what would be written; -once fails if a line is lost     logging.Outputs
//	  the last lines      say what would be written                                      Manager.summarize
//	  the page            shows no writes, and the log of an outage no age of labels     tellOfWrite, Overview.LabelsAge
//	-prune, which is a run of -once
//	  a label             should be on no node; there need not be one for the total      setUpPodCount, checkTotalNodes
//	  pods                are not watched                                                setUpPodCount
//	  Events              about labels are not posted                                    tellOfWrite
//	  the page            shows no number of pods                                        Overview.labels

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/view/observe"
)

// The limits of -once, beside -once-timeout.
const (
	onceListTimeout = 2 * time.Minute // for the first lists
	onceReminder    = 10 * time.Second
	onceTries       = 10 // for each key

	// pendingSoon is how soon AddAfter must add a key for -once to wait for it.
	pendingSoon = time.Second
)

// startOnceTimers ends -once if it takes too long, unless podcount stops before that.
func (m *Manager) startOnceTimers() {
	timeout := m.options.Flags.OnceTimeout
	go m.limitFirstLists(min(onceListTimeout, timeout))
	go func() {
		if retry.Sleep(m.options.Life.Stop, timeout) == nil {
			m.endOnce(" after " + timeout.String())
		}
	}()
}

// limitFirstLists ends -once if a first list is not complete in time. Until then, it says which lists -once waits for.
func (m *Manager) limitFirstLists(timeout time.Duration) {
	givesUpAt := time.Now().Add(timeout)
	for {
		stopped := retry.Sleep(m.options.Life.Stop, min(onceReminder, time.Until(givesUpAt)))
		kinds := m.options.Incomplete()
		if stopped != nil || len(kinds) == 0 {
			return
		}
		left := time.Until(givesUpAt)
		if left <= 0 {
			m.failOnce(fmt.Errorf("after %v there is no complete list of %s", timeout, strings.Join(kinds, ", ")))
			return
		}
		m.options.Sinks.Log.Info("there is no complete list yet",
			"of", strings.Join(kinds, ", "), "gives_up_in", left.Round(time.Second))
	}
}

// failOnce ends -once with an error.
func (m *Manager) failOnce(why error) {
	m.options.Life.StopWith(fmt.Errorf("%s: %w", m.options.Flags.OnceFlag(), why))
}

// awaitDone waits until each key has succeeded, or has failed onceTries times.
func (c *Controller) awaitDone() {
	const pollInterval = 20 * time.Millisecond
	for retry.Sleep(c.stop, pollInterval) == nil && c.hasTriesLeft() {
	}
}

// hasTriesLeft reports whether a key has work left, and has not failed onceTries times.
func (c *Controller) hasTriesLeft() bool {
	for key := range c.queue.All() {
		if isPending(key) && key.Failures < onceTries {
			return true
		}
	}
	return false
}

// isPending reports whether a key has work to do, now or soon.
func isPending(key observe.KeyState) bool {
	isDueSoon := !key.AddAt.IsZero() && time.Until(key.AddAt) < pendingSoon
	return key.IsDirty || key.IsReady || key.IsWorking || isDueSoon
}

// errUnlessAllDone returns the error of -once if it has something left to do.
func (m *Manager) errUnlessAllDone() error {
	for _, c := range m.controllers {
		isDone := c.tally == nil || c.tally.isAllDone() && c.unknown.Load() == nil
		if !isDone {
			return m.options.Flags.ErrStoppedEarly()
		}
	}
	return nil
}

// endOnce logs the outcome of -once. If objects are still wrong, it ends -once with an error that names them. It ends
// -once with another error if a controller cannot do what the flags ask for.
func (m *Manager) endOnce(after string) {
	m.summarize()
	var left []string
	for _, c := range m.controllers {
		if names := c.describeLeft(); names != "" {
			left = append(left, names)
		}
	}
	if len(left) > 0 {
		m.failOnce(fmt.Errorf("%s%s: the log says why", strings.Join(left, "; "), after))
	}
	if len(m.options.Incomplete()) > 0 {
		return // It is not known yet what cannot be done.
	}
	for _, c := range m.controllers {
		if unmet := c.summary().Unmet; unmet != nil {
			m.failOnce(unmet)
		}
	}
}

// describeLeft names the objects that -once could not correct. It returns "" if there are none.
func (c *Controller) describeLeft() string {
	const maxNames = 10
	if unknown := c.unknown.Load(); unknown != nil && c.HasBegun() {
		return fmt.Sprintf("%s cannot find out which objects need work: %v", c.Name, *unknown)
	}
	var names []string
	left := 0
	for key := range c.queue.All() {
		if !isPending(key) {
			continue
		}
		left++
		if left <= maxNames {
			names = append(names, key.Key.String())
		}
	}
	if left == 0 {
		return ""
	}
	if left > maxNames {
		names = append(names, fmt.Sprintf("%d more", left-maxNames))
	}
	return fmt.Sprintf("%s could not correct %s (%s)", c.Name, plural(left, "object"), strings.Join(names, ", "))
}

// summarize logs the outcome of -once, -prune or -dry-run, with a line for each controller. Only its first call logs.
func (m *Manager) summarize() {
	if !m.options.Flags.Once && !m.options.Flags.DryRun {
		return
	}
	m.summarized.Do(func() {
		for _, c := range m.controllers {
			summary := c.summary()
			if !c.HasBegun() || summary.Noun == "" {
				continue
			}
			failed := c.observer.Failing()
			var outcome string
			if m.options.Flags.DryRun {
				outcome = fmt.Sprintf("%s: %d would be written, %d right, %d failed",
					plural(summary.All, summary.Noun), summary.Wrong, summary.All-summary.Wrong, failed)
			} else {
				outcome = c.tally.describe(summary.Noun, failed)
			}
			m.options.Sinks.Log.Info(fmt.Sprintf("%s, in %.1f s", outcome, time.Since(m.started).Seconds()))
		}
	})
}

// tally counts what a controller does in a run of -once, by the keys of the objects, for the line at its end. Without
// -once, it is nil, and mark does nothing. Safe for concurrent use.
type tally struct {
	objects int // how many objects there were when the run began; set before anything else happens

	mu       sync.Mutex // guards progress
	progress map[object.Key]progress
}

// progress is how far a run of -once has come with a key.
type progress int

const (
	todo    progress = iota + 1 // the key was added to the queue
	done                        // it has no work left
	written                     // its object was written to, and it has no work left
)

func newTally() *tally { return &tally{progress: map[object.Key]progress{}} }

// mark records how far the run has come with keys, unless it has come further.
func (t *tally) mark(now progress, keys ...object.Key) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, key := range keys {
		t.progress[key] = max(t.progress[key], now)
	}
}

// countLocked returns how many keys have come just as far.
func (t *tally) countLocked(just progress) (n int) {
	for _, now := range t.progress {
		if now == just {
			n++
		}
	}
	return n
}

// isAllDone reports whether none of the keys that were added has work left.
func (t *tally) isAllDone() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.countLocked(todo) == 0
}

// describe returns the outcome, as in "3 nodes: 1 written, 2 right, 0 failed". noun is the word for one object, such
// as "node". failed is the number of keys that have failed.
func (t *tally) describe(noun string, failed int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	wrote := t.countLocked(written)
	notDone := max(0, t.countLocked(todo)-failed)
	right := max(0, t.objects-wrote-failed-notDone)
	text := fmt.Sprintf("%s: %d written, %d right, %d failed", plural(t.objects, noun), wrote, right, failed)
	if notDone > 0 {
		text += fmt.Sprintf(", %d not done", notDone)
	}
	return text
}

// plural returns a number with its noun, as in "1 node" or "2 nodes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
