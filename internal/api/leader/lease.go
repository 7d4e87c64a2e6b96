package leader

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
)

// lease is the part of a Lease that is read and written.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
type lease struct {
	// Metadata is written as it was read. It contains the resourceVersion, so if two replicas write at the same time,
	// one of them gets a 409.
	Metadata json.RawMessage
	Spec     leaseSpec

	isMissing bool // The server does not have the Lease yet.
}

const (
	leaseLimit  = 1 << 20 // the maximum size of a Lease that is read, in bytes; all of it is kept, and written again
	holderLimit = 1 << 10 // how many bytes of the holder's identity are kept and shown
)

// readFrom reads the answer to a request about a Lease. It is a func(io.Reader) error for Client.Send.
func (l *lease) readFrom(answer io.Reader) error {
	err := json.NewDecoder(wire.Limited(answer, leaseLimit)).Decode(l)
	l.Spec.HolderIdentity = wire.Shorten(l.Spec.HolderIdentity, holderLimit)
	return err
}

// leaseSpec is the spec of a Lease. Its numbers are of type int32 in the API.
type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"` // "" if there is no holder
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          string `json:"acquireTime,omitempty"` // in the format microTime
	RenewTime            string `json:"renewTime,omitempty"`   // in the format microTime
	LeaseTransitions     int    `json:"leaseTransitions"`      // how often the holder has changed
}

// microTime is the format of the times in a Lease, with exactly six fractional digits.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// tryAcquireOrRenew tries to acquire or renew the lease, once more if another client was faster, and returns the
// deadline of the term that this begins or extends. The deadline counts from the time before the write was sent,
// because other replicas may count the lease's duration as soon as the server has it. After an error, the deadline is
// meaningless.
func (e *Election) tryAcquireOrRenew(ctx context.Context) (deadline time.Time, err error) {
	e.serverBackoff.BeginTry()
	sentAt, err := e.update(ctx, e.claim)
	e.tellOthers(err)
	return sentAt.Add(e.options.RenewDeadline), err
}

// tellOthers tells all who ask the API server how it has answered a request about the Lease.
func (e *Election) tellOthers(err error) {
	switch {
	case err == nil || errors.Is(err, errHeld):
		e.serverBackoff.Succeeded()
	case kube.IsUnanswered(err):
		e.serverBackoff.Unanswered(err) // Its wait is not used, because the election has waits of its own.
	case kube.IsAnswer(err):
		e.serverBackoff.Answered()
	}
}

// leaseChange returns the spec that replaces the current one. It returns errHeld if the lease must not be changed,
// because it has another holder.
type leaseChange func(current lease, now time.Time) (leaseSpec, error)

// claim is the leaseChange that makes this replica the holder, or that renews the lease if this replica holds it
// already. While another replica holds the lease, claim returns errHeld until takeoverAt, which readLease has set.
func (e *Election) claim(current lease, now time.Time) (leaseSpec, error) {
	holder := current.Spec.HolderIdentity
	isOurs := holder == e.id
	isHeld := holder != "" && !isOurs
	if isHeld && now.Before(e.takeoverAt) {
		return leaseSpec{}, fmt.Errorf("%w: %q", errHeld, holder)
	}
	next := current.Spec
	next.HolderIdentity = e.id
	next.LeaseDurationSeconds = int(e.options.LeaseDuration / time.Second)
	next.RenewTime = now.UTC().Format(microTime)
	if isOurs {
		return next, nil
	}
	next.AcquireTime = next.RenewTime
	// The first holder of a new lease does not count as a transition. The counter stops at the largest int32.
	if !current.isMissing && next.LeaseTransitions < math.MaxInt32 {
		next.LeaseTransitions++
	}
	return next, nil
}

// giveBack is the leaseChange that removes this replica as the holder. The API requires a duration. It is one second,
// as in client-go.
func (e *Election) giveBack(current lease, now time.Time) (leaseSpec, error) {
	if holder := current.Spec.HolderIdentity; holder != e.id {
		return leaseSpec{}, fmt.Errorf("%w: %q", errHeld, holder)
	}
	at := now.UTC().Format(microTime)
	return leaseSpec{
		LeaseDurationSeconds: 1,
		AcquireTime:          at,
		RenewTime:            at,
		LeaseTransitions:     current.Spec.LeaseTransitions,
	}, nil
}

// update changes the lease, and returns the time just before the change was sent. If another client has changed the
// lease since it was last read, update tries once more. It takes at most half of RenewDeadline, which leaves time for
// another, shorter call.
func (e *Election) update(ctx context.Context, change leaseChange) (sentAt time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline/2)
	defer cancel()
	sentAt, err = e.updateOnce(ctx, change)
	if isConflict(err) {
		// writeLease has cleared fromOwnWrite, so this reads the lease again.
		return e.updateOnce(ctx, change)
	}
	return sentAt, err
}

// isConflict reports whether a write was refused because the lease was written, created or deleted since it was read.
func isConflict(err error) bool {
	status := kube.StatusOf(err)
	return status.Code == http.StatusConflict ||
		status.Code == http.StatusNotFound ||
		status.HasCause("metadata.resourceVersion")
}

// updateOnce does the same as update, but does not try again after a conflict.
func (e *Election) updateOnce(ctx context.Context, change leaseChange) (sentAt time.Time, err error) {
	// 1. Read the lease, unless the answer to the last write has shown it. That is client-go's fast path.
	if !e.fromOwnWrite {
		if err := e.readLease(ctx); err != nil {
			return time.Time{}, err
		}
	}
	// 2. Decide what to write.
	sentAt = time.Now()
	next, err := change(e.observed, sentAt)
	if err != nil {
		if errors.Is(err, errHeld) {
			e.mayHold = false
		}
		return time.Time{}, err
	}
	// 3. Write it.
	return sentAt, e.writeLease(ctx, next)
}

// readLease reads the lease into observed. If its spec has changed, its holder is alive, and has the full duration from
// now on.
func (e *Election) readLease(ctx context.Context) error {
	var current lease
	err := e.client.Send(ctx, e.lease, current.readFrom)
	isMissing := kube.StatusOf(err).Reason == "NotFound"
	if err != nil && !isMissing {
		return err
	}
	if isMissing {
		current = lease{Metadata: e.newMeta, isMissing: true}
	}
	if current.Spec != e.observed.Spec {
		duration := time.Duration(current.Spec.LeaseDurationSeconds) * time.Second
		// A Lease may have no duration. RetryPeriod is the minimum, so that its holder has time to renew it.
		e.takeoverAt = time.Now().Add(max(e.options.RetryPeriod, duration))
	}
	e.observe(current)
	return nil
}

// writeLease writes the lease with a PUT. If the lease is missing, the PUT creates it, because newMeta has no
// resourceVersion. RBAC can limit a PUT to this one name, while a POST would need the right to create leases of any
// name.
func (e *Election) writeLease(ctx context.Context, spec leaseSpec) error {
	e.fromOwnWrite = false
	e.mayHold = true // The server may carry out the write even if the answer is lost.
	request := e.lease
	request.Method = http.MethodPut
	request.WithoutPermit = true
	request.Body = map[string]any{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   e.observed.Metadata,
		"spec":       spec,
	}
	var written lease
	if err := e.client.Send(ctx, request, written.readFrom); err != nil {
		return err
	}
	e.observe(written)
	e.fromOwnWrite = true
	e.mayHold = spec.HolderIdentity == e.id
	return nil
}
