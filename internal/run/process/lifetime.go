package process

import (
	"context"
	"fmt"
	"time"
)

// Lifetime has three contexts that end one after the other in a shutdown. They are fields, and not parameters, because
// they last as long as the process, not as long as one call.
type Lifetime struct {
	Stop     context.Context // ends first; after that, no new work begins
	Work     context.Context // ends after a grace period; reconciles in flight must end with it
	Requests context.Context // ends last; requests in flight are cut off then

	// StopWith ends Stop. Err returns its error; nil means a normal end. Only the first call counts.
	StopWith context.CancelCauseFunc

	// CutRequests ends Requests, and Work with it.
	CutRequests context.CancelCauseFunc
}

// NewLifetime returns a Lifetime whose Stop ends when ctx ends. Work ends drainTimeout after Stop.
func NewLifetime(ctx context.Context, drainTimeout time.Duration) *Lifetime {
	l := &Lifetime{}
	l.Stop, l.StopWith = context.WithCancelCause(ctx)
	l.Requests, l.CutRequests = context.WithCancelCause(context.WithoutCancel(ctx))
	l.Work = WithGrace(l.Requests, l.Stop, drainTimeout)
	return l
}

// End ends all three contexts.
func (l *Lifetime) End() {
	l.StopWith(nil)
	l.CutRequests(nil)
}

// Err returns the error that ended Stop. It is nil if podcount was asked to stop, or if Stop has not ended.
func (l *Lifetime) Err() error {
	cause := context.Cause(l.Stop)
	if cause == context.Canceled {
		return nil
	}
	return cause
}

// WithGrace returns a context that ends with ctx, or when the time grace has passed since stop ended.
func WithGrace(ctx, stop context.Context, grace time.Duration) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	tooLate := fmt.Errorf("cut off %v after the stop began", grace)
	context.AfterFunc(stop, func() { time.AfterFunc(grace, func() { cancel(tooLate) }) })
	return ctx
}
