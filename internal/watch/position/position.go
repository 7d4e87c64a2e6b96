// Package position knows where a watch stands, and whether that is where the server stands.
package position

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/object"
	"podcount/internal/run/process"
	"podcount/internal/view/observe"
	"podcount/internal/watch/ending"
)

// AnswerPatience is how long a watch may take to reach the version in an answer to a patch. It is twice the time from
// one bookmark to the next.
const AnswerPatience = 2 * time.Minute

// Position is where the store of one resource stands. The store has all changes up to a version, from which the next
// watch resumes; or a list is due.
//
//	              MakeListDue, or TakeNext after a demand
//	           ┌───────────────────────────────────┐
//	           ▼                                   │
//	start ─▶ a list is due ──Listed──▶ at a version ──MoveTo──▶ at a newer one
//
// A version is compared with what the server has told besides its lists and watches: the versions in the answers to
// patches, and the newest version, for which a question asks. If the server has gone back, etcd was restored from a
// backup, and a list is urgent: soon the server will use the same versions again for other changes.
//
// The exported methods may be called by any goroutine, except those that use the fields of the loop that lists and
// watches: BeginList, Listed, Opened, AllowCatchUp, Apply, Failed, CheckAnswers and AskIfGoneBack. Nothing that may
// call back is called while mu is held.
type Position struct {
	o          Options
	tellOthers func()        // of a restored backup: see Restores
	synced     chan struct{} // closed by markSyncedLocked

	// Only the loop uses these.
	isSuspect bool      // the server may have been away, and only then can etcd have been restored
	openSince time.Time // when the first watch since the last interruption was opened; zero if none was

	mu          sync.Mutex // guards the fields below
	version     string     // "" means that a list is due
	why         string     // why a list is due
	heardAt     time.Time  // when the server last sent a list or an event; zero if it never has
	listedAsOf  time.Time  // when the last complete list of the most recent state was requested
	lostAt      *time.Time // see LostAt
	pausedUntil time.Time  // when the last backoff of the loop ends, or has ended
	isAbsent    bool       // see SetAbsent

	askAgainAt time.Time // the server wants no question before this time
	answered   string    // the newest version in an answer to a patch since the last complete list; "" if none
	answeredAt time.Time

	confirmation *confirmation      // what Confirm waits for; nil while it does not wait
	demanded     string             // why the loop must list as soon as it can: restored or elected; "" if it need not
	interrupt    context.CancelFunc // ends what the loop does for a demanded list; nil while it must not be interrupted
}

// Options configure a Position. All fields are required.
type Options struct {
	Resource string // such as pods
	Restores *Restores
	Report   *observe.CacheReport

	// Ask asks the server for its newest version.
	Ask func(ctx context.Context, timeout time.Duration) (newest string, err error)
}

// New returns a Position at which a list is due.
func New(o Options) *Position {
	p := &Position{o: o, why: "start", synced: make(chan struct{})}
	p.tellOthers = o.Restores.Join(func() { p.demandList(restored) })
	return p
}

// TakeNext returns the version from which the next watch resumes, unless a list is due. A list that was demanded is due
// from now on, and the demand is met.
func (p *Position) TakeNext() (version string, isListDue bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.demanded != "" && p.version != "" { // Otherwise a list is due already, for a reason of its own.
		p.version = ""
		p.why = p.demanded
	}
	p.demanded = ""
	return p.version, p.version == ""
}

// MoveTo notes that the store has all changes up to this version, which the server has just sent. Confirm may return
// now, so the controllers must have the changes, too.
func (p *Position) MoveTo(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moveLocked(version)
}

func (p *Position) moveLocked(version string) {
	p.version = version
	p.why = ""
	p.heardAt = time.Now()
	p.endWaitIfConfirmedLocked()
}

// Heard notes that the server has just sent an event without a newer version. If nothing changes in the cluster, it
// sends bookmarks of one version.
func (p *Position) Heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heardAt = time.Now()
}

// Returned is the reason of a list that becomes due when a resource is removed: it will come when the resource returns.
const Returned = "return"

// MakeListDue makes a list due. The reason is a label of podcount_relists_total.
func (p *Position) MakeListDue(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.version = ""
	p.why = reason
}

// ListBegun is a list that has begun.
type ListBegun struct {
	At       time.Time // when it began
	Reason   string    // why it was due
	answered string    // Position.answered when it began
}

// BeginList notes that a list is about to be requested. No watch is open meanwhile.
func (p *Position) BeginList() ListBegun {
	p.AllowCatchUp()
	p.mu.Lock()
	defer p.mu.Unlock()
	return ListBegun{
		At:       time.Now(),
		Reason:   cmp.Or(p.why, "hour"), // Only a list in place of an audit has no other reason.
		answered: p.answered,
	}
}

// Synced returns a channel that is closed by the first call of Listed or MarkSynced.
func (p *Position) Synced() <-chan struct{} { return p.synced }

// MarkSynced notes that the store is complete without a list.
func (p *Position) MarkSynced() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.markSyncedLocked()
}

func (p *Position) markSyncedLocked() {
	if !process.IsClosed(p.synced) {
		close(p.synced)
	}
}

// Listed notes that the store has all objects of a complete list, whose version may be older than those before.
func (p *Position) Listed(l ListBegun, version string) {
	p.isSuspect = false
	p.mu.Lock()
	p.lostAt = nil
	if p.answered == l.answered { // The list has replaced all that those answers have brought.
		p.answered = ""
	}
	p.listedAsOf = l.At
	p.moveLocked(version)
	p.markSyncedLocked()
	p.mu.Unlock()
	p.checkForRestore(l.answered, version)
}

// Opened notes that a watch is open, which keeps the store up to date.
func (p *Position) Opened() {
	if p.openSince.IsZero() {
		p.openSince = time.Now()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostAt = nil
}

// AllowCatchUp gives the next watch the usual time to catch up with the answers to patches: see CheckAnswers.
func (p *Position) AllowCatchUp() { p.openSince = time.Time{} }

// Apply does what a verdict on the end of a watch says. If a list is due, the reason is the name of the outcome. The
// next watch may be late with the answers to patches if the one before was broken.
func (p *Position) Apply(v ending.Verdict) {
	if v.IsBroken {
		p.AllowCatchUp()
	}
	if v.IsListDue {
		p.MakeListDue(v.Outcome.Name)
	}
}

// WatchEnded notes that no watch keeps the store up to date from now on. A watch that was silent has not done so since
// its last event, or since it was opened.
func (p *Position) WatchEnded(end ending.End) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.lostAt != nil {
		return
	}
	at := time.Now()
	if end.IsOpened && kube.WasSilent(end.Err) {
		at = at.Add(-end.Lasted)
		if p.heardAt.After(at) {
			at = p.heardAt
		}
	}
	p.lostAt = &at
}

// LostAt returns since when no watch keeps the store up to date. It is nil while one does, from a list until its watch
// ends, and before the first list.
func (p *Position) LostAt() *time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostAt
}

// BeginPause notes that the loop waits before its next request. A list that is demanded meanwhile waits, too. end must
// be called when the loop goes on, which may be earlier.
func (p *Position) BeginPause(wait time.Duration) (end func()) {
	setEnd := func(at time.Time) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.pausedUntil = at
	}
	setEnd(time.Now().Add(wait))
	return func() { setEnd(time.Now()) }
}

// ErrListDemanded is the cause of a context that has ended because a list is more urgent.
var ErrListDemanded = errors.New("a list is more urgent")

// Interruptible returns a context for a watch or an audit. It ends when a list is demanded, even if that was just
// before the call, and at the deadline, unless that is zero. done must be called when the watch or the audit has ended.
func (p *Position) Interruptible(
	ctx context.Context, deadline time.Time,
) (interruptible context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	stopTimer := func() {}
	if !deadline.IsZero() {
		ctx, stopTimer = context.WithDeadline(ctx, deadline)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.interrupt = func() { cancel(ErrListDemanded) }
	if p.demanded != "" {
		p.interrupt()
	}
	return ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.interrupt = nil
		stopTimer()
		cancel(nil)
	}
}

// SetAbsent says whether the store is empty, and right, because the server does not have the resource.
func (p *Position) SetAbsent(isAbsent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isAbsent = isAbsent
	p.endWaitIfConfirmedLocked()
}

// PatchAnswered notes the version in an answer to a patch. It ignores versions that cannot be compared.
func (p *Position) PatchAnswered(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if object.IsDecimal(version) && object.IsNewer(version, p.answered) {
		p.answered = version
		p.answeredAt = time.Now()
	}
}

// CheckAnswers returns an error if watches should long have reached the newest version in an answer to a patch. Until
// they do, the store ignores changes of that object. After an interruption, they need time to catch up.
func (p *Position) CheckAnswers() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	isAnswerAhead := p.newestKnownLocked() != p.version
	isPatient := time.Since(p.answeredAt) < AnswerPatience || time.Since(p.openSince) < AnswerPatience
	if !isAnswerAhead || isPatient {
		return nil
	}
	return fmt.Errorf("%w: an answer had version %s %v ago, and the watch is still at %s",
		ending.ErrContradiction, p.answered, time.Since(p.answeredAt).Round(time.Second), p.version)
}

// State is where a store stands, for people.
type State struct {
	Version  string    // "" if a list is due
	HeardAt  time.Time // when the server last sent a list or an event; zero if it never has, or IsAbsent
	IsAbsent bool      // see SetAbsent
}

// State returns where the store stands.
func (p *Position) State() State {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isAbsent { // The server has nothing to send.
		return State{Version: p.version, IsAbsent: true}
	}
	return State{Version: p.version, HeardAt: p.heardAt}
}

// Failed notes that a request has failed. Unless the server has refused it (4xx), the server may have been away, and
// only then can etcd have been restored. A watch that ends is no such sign: servers end watches all the time. If it
// ends because the server goes away, the next request fails.
func (p *Position) Failed(err error) {
	isRefusal := kube.StatusOf(err).Code/100 == 4
	p.isSuspect = p.isSuspect || !isRefusal
}

// QuestionTimeout is the limit of a question while a watch is open. It is short because the watch is not read
// meanwhile.
const QuestionTimeout = time.Second

// AskIfGoneBack asks, if that is suspected, whether the server's newest version is older than one that it named before.
// Then it makes a list due, and returns true. If the server has used these versions again already, this finds nothing,
// and only an audit can.
//
// If the server does not answer, the suspicion stays, and the next watch asks again. The same happens while Retry-After
// forbids the question. The open watch goes on at once, because Retry-After was for the question alone.
func (p *Position) AskIfGoneBack(ctx context.Context) bool {
	if !p.isSuspect {
		return false
	}
	known, newest, err := p.ask(ctx, QuestionTimeout)
	if err != nil {
		return false
	}
	p.isSuspect = false
	if !p.checkForRestore(known, newest) {
		return false
	}
	p.MakeListDue(restored)
	return true
}

// AskIfCaughtUp asks whether the server has come as far as the newest version that an object in the store has, if that
// is ahead of the watch. "" means that no object has a version.
func (p *Position) AskIfCaughtUp(ctx context.Context, held string) (bool, error) {
	if held == "" || !object.IsNewer(held, p.State().Version) {
		return true, nil
	}
	_, newest, err := p.ask(ctx, ConfirmTimeout)
	if err != nil {
		return false, err
	}
	return !p.checkForRestore(held, newest), nil
}

// newestKnownLocked returns the newest version that the server has named. While no watch works, only the answers to
// patches tell how new the server has been.
func (p *Position) newestKnownLocked() string {
	if p.answered != "" && object.IsNewer(p.answered, p.version) {
		return p.answered
	}
	return p.version
}

// ask asks the server for its newest version, and notes when it wants to be asked again. Before that time, ask fails.
// known is the newest version that was known before the question: meanwhile, a watch may bring what is newer.
func (p *Position) ask(ctx context.Context, timeout time.Duration) (known, newest string, err error) {
	if p.untilNextQuestion() > 0 {
		return "", "", fmt.Errorf("list %s: the server does not want to name its newest version yet", p.o.Resource)
	}
	p.mu.Lock()
	known = p.newestKnownLocked()
	p.mu.Unlock()
	newest, err = p.o.Ask(ctx, timeout)
	askAgainAt := time.Now().Add(kube.RetryAfter(err))
	p.mu.Lock()
	defer p.mu.Unlock()
	if askAgainAt.After(p.askAgainAt) {
		p.askAgainAt = askAgainAt
	}
	return known, newest, err
}

// untilNextQuestion returns how much longer the server wants no question. It returns 0 or less if it may be asked now.
func (p *Position) untilNextQuestion() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.askAgainAt)
}

// checkForRestore returns whether the server's newest version is older than one that was known before. If so, it
// reports that, and tells the other resources. "" means that none was known.
func (p *Position) checkForRestore(known, newest string) bool {
	areComparable := object.IsDecimal(known) && object.IsDecimal(newest)
	if !areComparable || !object.IsNewer(known, newest) {
		return false
	}
	p.o.Report.WentBack(known, newest)
	p.tellOthers()
	return true
}

// demandList makes the loop list as soon as it can. A watch or an audit is interrupted for that. A list that runs, or a
// backoff, ends first.
func (p *Position) demandList(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.demandLocked(reason)
}

func (p *Position) demandLocked(reason string) {
	if p.demanded != restored { // A leader may withdraw its demand. That must not end another one.
		p.demanded = reason
	}
	if p.interrupt != nil {
		p.interrupt()
	}
}
