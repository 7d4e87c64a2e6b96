// Package ending says what follows the end of a watch: the next watch, at once or after a wait, or a list.
package ending

import (
	"errors"
	"net/http"
	"slices"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/internal/api/wire"
)

// The backoff after a failed request has the same values as in client-go's reflector. While the server is away, the
// first answer that anybody gets ends the waits of all: see retry.Shared.
const (
	InitialBackoff = 800 * time.Millisecond // after the first failure; each further failure doubles it
	MaxBackoff     = 30 * time.Second
	ResetAfter     = 2 * time.Minute // without a failure of a server that answers
)

// Brief is how long a watch must last to count as working.
const Brief = time.Second

// ErrContradiction means that the server has named a version that is newer than all it has. If a watch has reached a
// false version, all changes up to that version are taken for old ones, and dropped. If the answer to a patch had it,
// the same happens to the changes of that object.
var ErrContradiction = errors.New("the server's versions contradict each other")

// End is how a watch ended, and what it brought.
type End struct {
	Err           error // io.EOF if the server ended the stream between two events
	IsOpened      bool  // the server accepted the watch
	Events        int   // the number of events that could be decoded, bookmarks included
	HasProgressed bool  // the watch moved the version at which the next one begins
	Lasted        time.Duration
}

func (e End) isBrief() bool { return e.IsOpened && e.Lasted < Brief }

// broughtNews reports whether the watch brought a new version, or stayed open and brought an event.
func (e End) broughtNews() bool { return e.HasProgressed || e.Events > 0 && !e.isBrief() }

// circumstances are what an Outcome is found by.
type circumstances struct {
	End
	status       kube.Status // what the server has sent in place of an event; its Code is 0 if it has not
	followsBrief bool        // the watch that was opened before this one was brief
}

// Outcome is a way in which a watch may end, and what follows from it. The next watch resumes from the last version,
// unless a list comes first.
//
// A watch is fruitless if the next one from the same version may end in the same way. Then only a list helps. But a
// list is expensive. So where the cause may also be temporary, the next watch is tried first.
type Outcome struct {
	Name    string // one word, for people; also the reason of a list that follows, in podcount_relists_total
	When    string // how the watch ended
	Meaning string // one or two sentences for people: what has happened, and what podcount does

	// Problem is logged as a failure, and the next request waits for the backoff. If it is "", nothing has failed, and
	// the next request is sent at once, unless HasOwnBackoff is set.
	Problem string

	// HasOwnBackoff means that the next request waits for a backoff that counts only ends like this one. Earlier
	// failures of other kinds do not lengthen it.
	HasOwnBackoff bool

	// RelistAfter is how many fruitless watches in a row, including this one, lead to a list, however the others ended.
	// 0 means that this one was not fruitless. A new row begins after a list, and with a watch that has brought news.
	RelistAfter int

	is func(circumstances) bool
}

// Outcomes are all of them. A watch has the first one that fits. The order matters: a Status or silence says more than
// the fact that the watch was not opened.
var Outcomes = []Outcome{
	{
		// The server has forgotten the version and will not remember it.
		Name:          "expired",
		When:          "410, as an answer or an ERROR event",
		Meaning:       "This is normal: the server no longer knows the version of the watch. podcount lists again.",
		HasOwnBackoff: true,
		RelistAfter:   1,
		is: func(c circumstances) bool {
			return c.status.Code == http.StatusGone || c.status.Reason == "Expired" || c.status.Reason == "Gone"
		},
	},
	{
		// The server would reject the same request again, perhaps because of its version.
		Name:        "refused",
		When:        "400 or 422",
		Meaning:     "The server rejected the request, perhaps because of its version. podcount lists again.",
		Problem:     "cannot watch",
		RelistAfter: 1,
		is: func(c circumstances) bool {
			return c.status.Code == http.StatusBadRequest || c.status.Code == http.StatusUnprocessableEntity
		},
	},
	{
		// The next watch may get the same event.
		Name:        "error",
		When:        "any other ERROR event, except 429",
		Meaning:     "The server ended the watch with an error. podcount resumes it, and lists again if that repeats.",
		Problem:     "cannot watch",
		RelistAfter: 2,
		is: func(c circumstances) bool {
			return c.IsOpened && c.status.Code != 0 && c.status.Code != http.StatusTooManyRequests
		},
	},
	{
		// The connection is dead, or the version is newer than all that a restored server knows.
		Name:        "silence",
		When:        "no whole event for 150 s, not even a bookmark",
		Meaning:     "No whole event arrived for a long time. podcount opens a new watch, and lists again if that repeats.",
		RelistAfter: 2,
		is: func(c circumstances) bool { // After an event, the watch has worked.
			return c.status.Code == 0 && errors.Is(c.Err, kube.ErrSilent) && c.Events == 0
		},
	},
	{
		// The version is good until the server says otherwise, and a list would only add load.
		Name:    "unavailable",
		When:    "401, 403, 404, 429, 5xx or no connection; 429 as an ERROR event",
		Meaning: "The watch could not be opened: the error says why. podcount tries again, and resumes it.",
		Problem: "cannot watch",
		is:      func(c circumstances) bool { return c.status.Code != 0 || !c.IsOpened },
	},
	{
		// The next watch may get the same bytes.
		Name:        "garbage",
		When:        "an event that cannot be decoded",
		Meaning:     "What arrived could not be decoded. podcount resumes the watch, and lists again if that repeats.",
		Problem:     "cannot decode the watch",
		RelistAfter: 2,
		is:          func(c circumstances) bool { return errors.As(c.Err, new(wire.GarbageError)) },
	},
	{
		// Changes up to the false version are taken for old and dropped; a list is the truth, whatever its version.
		Name:        "contradiction",
		When:        "an event shows that an earlier version was false",
		Meaning:     "The server's versions contradict each other, so changes may be lost. podcount lists again.",
		Problem:     "cannot trust the watch",
		RelistAfter: 1,
		is:          func(c circumstances) bool { return errors.Is(c.Err, ErrContradiction) },
	},
	{
		// Without a backoff this would be a hot loop.
		Name:        "short",
		When:        "it ends within 1 s, without a new version",
		Meaning:     "The watch ended within a second, without news. podcount waits before it opens the next one.",
		Problem:     "watch ended at once",
		RelistAfter: 3,
		is:          func(c circumstances) bool { return c.isBrief() && !c.HasProgressed },
	},
	{
		// A proxy may end each watch after its first event; a list would not help, but a hot loop must not be.
		Name:    "brief",
		When:    "it ends within 1 s, with news, like the one before",
		Meaning: "The watch ended within a second, like the one before. podcount waits before it resumes it.",
		Problem: "watches end at once",
		is:      func(c circumstances) bool { return c.isBrief() && c.followsBrief },
	},
	{
		// Every watch ends; the version is still good.
		Name:    "ended",
		When:    "any other end",
		Meaning: "Watches end after some minutes, or when a connection breaks or falls silent. podcount resumes it.",
		is:      func(circumstances) bool { return true },
	},
}

// Judge says what follows each end of a watch. One goroutine may use it.
//
// A watch that has brought news sets the number of fruitless ones to 0, and so does a list. Neither ends a backoff from
// a server that answers: that takes ResetAfter, because the list itself may be what brings the server down.
type Judge struct {
	server    *retry.Member
	failed    retry.Streak // of lists and watches, although the server answers
	expired   retry.Streak // of outcomes with HasOwnBackoff
	fruitless int          // watches in a row: see Outcome.RelistAfter
	wasBrief  bool         // the last watch that was opened
}

// NewJudge returns a Judge of one resource's watches. server is the backoff while the server does not answer.
func NewJudge(server *retry.Member) *Judge { return &Judge{server: server} }

// Verdict is what follows the end of a watch.
type Verdict struct {
	Outcome   *Outcome
	IsBroken  bool // the watch has failed, or has ended with kube.ErrSilent
	IsListDue bool
	Wait      time.Duration // before the next request
}

// Judge returns what follows the end of a watch.
func (j *Judge) Judge(e End) Verdict {
	o := find(circumstances{End: e, status: kube.StatusOf(e.Err), followsBrief: j.wasBrief})
	if e.IsOpened {
		j.wasBrief = e.isBrief()
	}
	if e.broughtNews() {
		j.fruitless = 0
	}
	isFruitless := o.RelistAfter > 0
	if isFruitless {
		j.fruitless++
	}
	return Verdict{
		Outcome:   o,
		IsBroken:  o.Problem != "" || errors.Is(e.Err, kube.ErrSilent),
		IsListDue: isFruitless && j.fruitless >= o.RelistAfter,
		Wait:      j.waitAfter(o, e.Err),
	}
}

// find returns the first outcome that fits. The last one always does.
func find(c circumstances) *Outcome {
	return &Outcomes[slices.IndexFunc(Outcomes, func(o Outcome) bool { return o.is(c) })]
}

func (j *Judge) waitAfter(o *Outcome, err error) time.Duration {
	switch {
	case o.Problem != "":
		return j.WaitAfterFailure(err)
	case o.HasOwnBackoff:
		return AddFailure(&j.expired, err)
	}
	return 0
}

// WaitAfterFailure counts a list or a watch that has failed, and returns how long to wait. If the server did not
// answer, all who ask it share the backoff, which logs the outage. Otherwise the backoff is that of this resource.
func (j *Judge) WaitAfterFailure(err error) time.Duration {
	if kube.IsUnanswered(err) {
		return j.server.Unanswered(err)
	}
	return AddFailure(&j.failed, err)
}

// AddFailure adds a failure to a streak, and returns how long to wait before the next request: the backoff, or what the
// server has stated.
func AddFailure(streak *retry.Streak, err error) time.Duration {
	return streak.Fail(kube.RetryAfter(err), InitialBackoff, MaxBackoff)
}

// Opened notes that a watch is open.
func (j *Judge) Opened() {
	j.failed.Works(ResetAfter)
	j.expired.Works(ResetAfter)
}

// ListCompleted sets the number of fruitless watches to 0, because a list is complete.
func (j *Judge) ListCompleted() { j.fruitless = 0 }

// Reset ends all backoffs, because nothing is watched any more.
func (j *Judge) Reset() {
	j.failed = retry.Streak{}
	j.expired = retry.Streak{}
	j.server.Succeeded() // It waits for no answer any more.
}
