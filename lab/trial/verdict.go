package trial

import (
	"fmt"
	"time"
)

// Verdict says how a program has passed a row.
type Verdict string

const (
	Right       Verdict = "right"           // in time, without any of the faults below
	Wrong       Verdict = "wrong"           // when the limit was over
	NeverRight  Verdict = "never right"     // not even before the fault
	Exited      Verdict = "exited"          // by itself
	HotLoop     Verdict = "hot loop"        // it has asked more often than hotRate
	FalseNumber Verdict = "false number"    // it has written a number that never was true
	Needless    Verdict = "needless writes" // it has written what was right already
	NoLease     Verdict = "took no Lease"   // although it should elect
	Intruded    Verdict = "wrote without the Lease"
	Blocked     Verdict = "held up"     // one write that could not be done held up another one
	NotStopped  Verdict = "not stopped" // it ran on after a SIGTERM, or although its work was done
	Unlike      Verdict = "not as expected"
	Skipped     Verdict = "skipped"     // the row needs something that is not there
	Interrupted Verdict = "interrupted" // the trial was stopped
	Broken      Verdict = "broken"      // the trial itself has failed
)

const (
	// hotRate is how many requests or connections a second are too many, over any hotSpan. client-go's own limit is 5
	// requests a second after a burst of 10.
	hotRate = 20
	hotSpan = 5 * time.Second

	// stopLimit is how long a program may take to stop. After that, Kubernetes kills a pod.
	stopLimit = 30 * time.Second

	// calmAfterwards is how long a program that is right is watched for needless writes, and must stay right.
	calmAfterwards = 3 * time.Second
)

// Result is the outcome of one row.
type Result struct {
	Row

	Verdict Verdict

	// Seconds is the time from the end of the fault until the program was right.
	Seconds float64

	// Limit is the time in seconds after which a program counts as wrong.
	Limit float64

	// Detail says more about the verdict, as a sentence.
	Detail string

	// Note is what else is worth knowing, such as that the fault met no request.
	Note string `json:",omitempty"`

	// Requests is how many requests the program has sent in the row, and Peak the memory that it took, in MiB; 0 if that
	// is not known.
	Requests int
	Peak     float64 `json:",omitempty"`

	// Timeline is what happened, in order.
	Timeline []Entry

	// Output is the end of what the program has printed.
	Output string `json:",omitempty"`
}

// Green reports whether the verdict speaks for the program, or says nothing about it.
func (r Result) Green() bool { return r.Verdict == Right || r.saysNothing() }

// saysNothing reports whether the row has not been played to its end.
func (r Result) saysNothing() bool { return r.Verdict == Skipped || r.Verdict == Interrupted }

// Summary is the verdict in a few words, such as "right after 3.1 s".
func (r Result) Summary() string {
	if r.Note != "" {
		return r.verdict() + "; " + r.Note
	}
	return r.verdict()
}

func (r Result) verdict() string {
	switch r.Verdict {
	case Right:
		if r.Detail != "" {
			return r.Detail
		}
		return fmt.Sprintf("right after %.1f s", r.Seconds)
	case Wrong:
		return fmt.Sprintf("still wrong after %.0f s", r.Limit)
	case Skipped:
		return "skipped: " + r.Detail
	}
	return string(r.Verdict)
}
