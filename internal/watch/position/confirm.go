package position

import (
	"context"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/watch/ending"
)

const (
	// ConfirmPatience is how long Confirm waits until the watch has reached the server's newest version, before it
	// demands a list. Where objects change all the time, an event comes at once. Elsewhere, only a bookmark shows that
	// nothing has changed, and bookmarks come once a minute.
	ConfirmPatience = 500 * time.Millisecond

	// ConfirmTimeout is the limit of each question, of Confirm and before an audit.
	ConfirmTimeout = 10 * time.Second

	// MaxQuestions is how often Confirm asks for the newest version before it demands a list. The watch may work
	// although all questions fail, and then nothing else would confirm the store.
	MaxQuestions = 3
)

// Why Confirm and Restores demand lists: labels of podcount_relists_total.
const (
	elected  = "elected"
	restored = "restored"
)

// confirmation is what Confirm waits for.
type confirmation struct {
	since   time.Time          // a list that was requested after this time confirms the store
	newest  string             // the server's newest version, which confirms it, too; "" until the server has named it
	endWait context.CancelFunc // called when the store is confirmed
}

// Confirm returns nil once the store is at least as new as the server was at some moment after since. It returns the
// error of ctx if that ends before. One goroutine at a time may call it.
//
//	ask for the newest version ──▶ wait for the watch ──▶ demand a list ──▶ wait for it
//
// It returns from each of these states as soon as the store has reached the newest version, is equal to a list that was
// requested after since, or is empty because the resource is absent.
func (p *Position) Confirm(ctx context.Context, since time.Time) error {
	waiting, endWait := context.WithCancel(ctx)
	defer endWait()
	p.mu.Lock()
	p.confirmation = &confirmation{since: since, endWait: endWait}
	p.endWaitIfConfirmedLocked()
	p.mu.Unlock()
	slow := time.AfterFunc(ConfirmPatience, func() { p.o.Report.Unconfirmed(p.whyUnconfirmed()) })
	defer slow.Stop()

	reason := p.askAndAwaitWatch(waiting)
	p.mu.Lock()
	if p.confirmation != nil && ctx.Err() == nil {
		p.demandLocked(reason)
	}
	p.mu.Unlock()
	<-waiting.Done()

	p.mu.Lock()
	p.endConfirmationLocked()
	p.mu.Unlock()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	p.o.Report.Confirmed()
	return nil
}

// askAndAwaitWatch asks the server for its newest version, and gives the watch some time to reach it. It returns the
// reason for a list, unless waiting has ended.
func (p *Position) askAndAwaitWatch(waiting context.Context) (reason string) {
	var failed retry.Streak
	for range MaxQuestions {
		if retry.Sleep(waiting, p.untilNextQuestion()) != nil {
			return ""
		}
		if p.isPaused() {
			// A question now would disturb a server that needs rest. The list waits until the backoff is over.
			return elected
		}
		known, newest, err := p.ask(waiting, ConfirmTimeout)
		if err == nil && p.checkForRestore(known, newest) {
			return restored
		}
		if err == nil {
			p.awaitVersion(waiting, newest)
			return elected // because the watch has not reached that version in time
		}
		if waiting.Err() != nil {
			return ""
		}
		p.o.Report.CannotConfirm(err)
		retry.Sleep(waiting, ending.AddFailure(&failed, err))
	}
	return elected
}

// isPaused reports whether the loop is in a backoff.
func (p *Position) isPaused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Now().Before(p.pausedUntil)
}

// awaitVersion waits for ConfirmPatience, or until the watch has reached the server's newest version.
func (p *Position) awaitVersion(waiting context.Context, newest string) {
	p.mu.Lock()
	if p.confirmation != nil {
		p.confirmation.newest = newest
		p.endWaitIfConfirmedLocked()
	}
	p.mu.Unlock()
	retry.Sleep(waiting, ConfirmPatience)
}

// endWaitIfConfirmedLocked makes Confirm return if the store is confirmed.
func (p *Position) endWaitIfConfirmedLocked() {
	c := p.confirmation
	if c == nil {
		return
	}
	isListed := !p.listedAsOf.Before(c.since)
	areVersionsKnown := c.newest != "" && p.version != ""
	isReached := areVersionsKnown && !object.IsNewer(c.newest, p.version)
	if isListed || isReached || p.isAbsent {
		c.endWait()
		p.endConfirmationLocked()
	}
}

// endConfirmationLocked withdraws what Confirm has demanded.
func (p *Position) endConfirmationLocked() {
	p.confirmation = nil
	if p.demanded == elected {
		p.demanded = ""
	}
}

func (p *Position) whyUnconfirmed() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case time.Now().Before(p.pausedUntil):
		return "the last list or watch has failed"
	case p.version == "":
		return "a list is not complete"
	case p.confirmation == nil || p.confirmation.newest == "":
		return "the newest version is not known yet"
	}
	return "the watch is at version " + p.version + ", and the newest is " + p.confirmation.newest
}
