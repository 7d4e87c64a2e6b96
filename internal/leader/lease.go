package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"podcount/internal/kube"
)

// lease is what is read of a Lease, and written.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
type lease struct {
	Metadata json.RawMessage // goes back as it came, with its resourceVersion: of two writers one gets a 409
	Spec     leaseSpec
	isNew    bool // the server does not have it yet
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`                 // "": nobody holds it
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"` // int32 in the API, as the transitions are
	AcquireTime          string `json:"acquireTime,omitempty"`          // in the form of microTime, as is the next
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions"`
}

// microTime is how a Lease's times are written: with exactly six fractional digits.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// tryToHold makes one attempt to get the lease, or to renew it, and returns the deadline of the term that this gives.
// It counts from before the lease was sent: another replica may start to count the lease's duration as soon as the
// server has it.
func (e *Election) tryToHold(ctx context.Context) (deadline time.Time, err error) {
	err = e.replace(ctx, func(had lease, now time.Time) (leaseSpec, error) {
		deadline = now.Add(e.options.RenewDeadline)
		return e.claim(had, now)
	})
	return deadline, err
}

// claim returns the lease with us as its holder, or errHeld while it is another's.
func (e *Election) claim(had lease, now time.Time) (leaseSpec, error) {
	isOurs := had.Spec.HolderIdentity == e.id
	isHeld := !isOurs && had.Spec.HolderIdentity != ""
	if isHeld && now.Before(e.takeoverAt) {
		return leaseSpec{}, fmt.Errorf("%w by %q", errHeld, had.Spec.HolderIdentity)
	}
	next := had.Spec
	next.HolderIdentity = e.id
	next.LeaseDurationSeconds = int(e.options.LeaseDuration / time.Second)
	next.RenewTime = now.UTC().Format(microTime)
	if isOurs {
		return next, nil
	}
	next.AcquireTime = next.RenewTime
	// The first holder follows nobody. The API has no number of transitions beyond int32: there it stays.
	if !had.isNew && next.LeaseTransitions < math.MaxInt32 {
		next.LeaseTransitions++
	}
	return next, nil
}

// giveBack returns the lease with no holder, or errHeld if it is another's.
func (e *Election) giveBack(had lease, now time.Time) (leaseSpec, error) {
	if had.Spec.HolderIdentity != e.id {
		return leaseSpec{}, fmt.Errorf("%w by %q", errHeld, had.Spec.HolderIdentity)
	}
	at := now.UTC().Format(microTime)
	transitions := had.Spec.LeaseTransitions
	return leaseSpec{LeaseDurationSeconds: 1, AcquireTime: at, RenewTime: at, LeaseTransitions: transitions}, nil
}

// leaseChange computes the new spec of a lease from the present one. With errHeld it leaves the lease to another.
type leaseChange func(had lease, now time.Time) (leaseSpec, error)

// replace changes the lease. An attempt that hangs leaves time for another one before the deadline.
func (e *Election) replace(ctx context.Context, change leaseChange) error {
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline/2)
	defer cancel()
	err := e.replaceOnce(ctx, change)
	s := kube.StatusOf(err)
	if s.Code == http.StatusConflict || s.Code == http.StatusNotFound || s.HasCause("metadata.resourceVersion") {
		return e.replaceOnce(ctx, change) // somebody else has written, made or removed it: look at once
	}
	return err
}

// replaceOnce looks at the lease, unless it is known from our own last write, and writes what change makes of it.
func (e *Election) replaceOnce(ctx context.Context, change leaseChange) error {
	if !e.fromOwnWrite {
		if err := e.look(ctx); err != nil {
			return err
		}
	}
	spec, err := change(e.observed, time.Now())
	if errors.Is(err, errHeld) {
		e.mayHold = false
	}
	if err != nil {
		return err
	}
	return e.put(ctx, spec)
}

// look reads the lease. If it has changed, its holder gets its full duration again.
func (e *Election) look(ctx context.Context) error {
	var now lease
	err := e.client.Send(ctx, kube.Request{Method: http.MethodGet, Path: e.path}, &now)
	if kube.StatusOf(err).Reason == "NotFound" {
		now = lease{Metadata: e.bare, isNew: true}
	} else if err != nil {
		return err
	}
	if now.Spec != e.observed.Spec {
		duration := time.Duration(now.Spec.LeaseDurationSeconds) * time.Second
		e.takeoverAt = time.Now().Add(max(e.options.RetryPeriod, duration))
	}
	e.observed = now
	return nil
}

// put writes the lease, and makes it where there is none: a PUT without resourceVersion does that, and needs no more
// than rights to this one name.
func (e *Election) put(ctx context.Context, spec leaseSpec) error {
	e.fromOwnWrite = false
	e.mayHold = true
	body := map[string]any{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   e.observed.Metadata,
		"spec":       spec,
	}
	request := kube.Request{Method: http.MethodPut, Path: e.path, Body: body, WithoutPermit: true}
	var got lease
	if err := e.client.Send(ctx, request, &got); err != nil {
		return err
	}
	e.observed = got
	e.fromOwnWrite = true
	e.mayHold = spec.HolderIdentity == e.id
	return nil
}
