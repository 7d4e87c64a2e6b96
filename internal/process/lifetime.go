package process

import (
	"context"
	"time"
)

// Lifetime has three contexts that end one after the other in a shutdown.
type Lifetime struct {
	Stop     context.Context // ends first: then nothing new begins
	Work     context.Context // ends after a grace period: then reconciles in flight must end
	Requests context.Context // ends last: then every request is cut off

	// Fail ends Stop. The error of the first call is what Err returns; nil means that all is well.
	Fail context.CancelCauseFunc

	// CutRequests ends Requests, and Work with it.
	CutRequests context.CancelCauseFunc
}

// NewLifetime returns a Lifetime whose Stop ends when ctx ends. Work ends drainTimeout after Stop.
func NewLifetime(ctx context.Context, drainTimeout time.Duration) *Lifetime {
	l := &Lifetime{}
	l.Stop, l.Fail = context.WithCancelCause(ctx)
	l.Requests, l.CutRequests = context.WithCancelCause(context.WithoutCancel(ctx))
	l.Work = WithGrace(l.Requests, l.Stop, drainTimeout)
	return l
}

// End ends all three contexts.
func (l *Lifetime) End() {
	l.Fail(nil)
	l.CutRequests(nil)
}

// Err returns the error that ended Stop, or nil if podcount was asked to stop.
func (l *Lifetime) Err() error {
	cause := context.Cause(l.Stop)
	if cause == context.Canceled {
		return nil
	}
	return cause
}

// WithGrace returns a context that ends with ctx, or grace after stop has ended.
func WithGrace(ctx, stop context.Context, grace time.Duration) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	context.AfterFunc(stop, func() { time.AfterFunc(grace, cancel) })
	return ctx
}
