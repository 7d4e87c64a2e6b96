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

// lease is the part of a Lease that is read and written.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
type lease struct {
	// Metadata is written as it was read. It has the resourceVersion, so of two replicas that write at the same time
	// one gets a 409.
	Metadata json.RawMessage
	Spec     leaseSpec

	isMissing bool // The server does not have the Lease yet.
}

type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"` // "" if there is no holder
	LeaseDurationSeconds int    `json:"leaseDurationSeconds,omitempty"`
	AcquireTime          string `json:"acquireTime,omitempty"` // in the format microTime, as RenewTime
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions"` // an int32 in the API, as LeaseDurationSeconds
}

// microTime is the format of times in a Lease: they have exactly six fractional digits.
const microTime = "2006-01-02T15:04:05.000000Z07:00"

// tryToHold tries once to get or to renew the lease, and returns the deadline of the term that this begins or extends.
// The deadline counts from before the write was sent, because other replicas may count the lease's duration as soon as
// the server has it. client-go calls this step tryAcquireOrRenew.
func (e *Election) tryToHold(ctx context.Context) (deadline time.Time, err error) {
	sentAt, err := e.update(ctx, e.claim)
	return sentAt.Add(e.options.RenewDeadline), err
}

// leaseChange returns the spec to write in place of the present one. It returns errHeld if it may not change the lease,
// because that has another holder.
type leaseChange func(present lease, now time.Time) (leaseSpec, error)

// claim is the leaseChange that makes us the holder.
func (e *Election) claim(present lease, now time.Time) (leaseSpec, error) {
	holder := present.Spec.HolderIdentity
	isOurs := holder == e.id
	isHeld := holder != "" && !isOurs
	if isHeld && now.Before(e.takeoverAt) {
		return leaseSpec{}, fmt.Errorf("%w by %q", errHeld, holder)
	}
	next := present.Spec
	next.HolderIdentity = e.id
	next.LeaseDurationSeconds = int(e.options.LeaseDuration / time.Second)
	next.RenewTime = now.UTC().Format(microTime)
	if isOurs {
		return next, nil
	}
	next.AcquireTime = next.RenewTime
	// The first holder makes no transition. An int32 cannot count more than MaxInt32 of them.
	if !present.isMissing && next.LeaseTransitions < math.MaxInt32 {
		next.LeaseTransitions++
	}
	return next, nil
}

// giveBack is the leaseChange that leaves the lease without a holder. The API demands a duration: one second is what
// client-go writes.
func (e *Election) giveBack(present lease, now time.Time) (leaseSpec, error) {
	if holder := present.Spec.HolderIdentity; holder != e.id {
		return leaseSpec{}, fmt.Errorf("%w by %q", errHeld, holder)
	}
	at := now.UTC().Format(microTime)
	return leaseSpec{
		LeaseDurationSeconds: 1,
		AcquireTime:          at,
		RenewTime:            at,
		LeaseTransitions:     present.Spec.LeaseTransitions,
	}, nil
}

// update changes the lease, and returns when it began to send the change. If somebody else has changed the lease since
// it was last read, update tries once more. It takes at most half of RenewDeadline, which leaves time for another try.
func (e *Election) update(ctx context.Context, change leaseChange) (sentAt time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.options.RenewDeadline/2)
	defer cancel()
	sentAt, err = e.updateOnce(ctx, change)
	if isConflict(err) {
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

// updateOnce does once what update does, in three steps.
func (e *Election) updateOnce(ctx context.Context, change leaseChange) (sentAt time.Time, err error) {
	// 1. Read the lease. The answer to our own last write saves us the request, as on client-go's fast path.
	if !e.fromOwnWrite {
		if err := e.look(ctx); err != nil {
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
	return sentAt, e.put(ctx, next)
}

// look reads the lease. When the lease has changed, its holder is alive, and gets the full duration from now on.
func (e *Election) look(ctx context.Context) error {
	var present lease
	err := e.client.Send(ctx, kube.Request{Method: http.MethodGet, Path: e.path}, &present)
	if kube.StatusOf(err).Reason == "NotFound" {
		present = lease{Metadata: e.newMeta, isMissing: true}
	} else if err != nil {
		return err
	}
	if present.Spec != e.observed.Spec {
		duration := time.Duration(present.Spec.LeaseDurationSeconds) * time.Second
		e.takeoverAt = time.Now().Add(max(e.options.RetryPeriod, duration))
	}
	e.observed = present
	return nil
}

// put writes the lease. If there is none, a PUT without resourceVersion creates it. That needs the rights to create and
// update this one name; a POST would need the right to create leases of any name.
func (e *Election) put(ctx context.Context, spec leaseSpec) error {
	e.fromOwnWrite = false
	e.mayHold = true // until we know better: the server may do it even if we get no answer
	body := map[string]any{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   e.observed.Metadata,
		"spec":       spec,
	}
	request := kube.Request{Method: http.MethodPut, Path: e.path, Body: body, WithoutPermit: true}
	var written lease
	if err := e.client.Send(ctx, request, &written); err != nil {
		return err
	}
	e.observed = written
	e.fromOwnWrite = true
	e.mayHold = spec.HolderIdentity == e.id
	return nil
}
