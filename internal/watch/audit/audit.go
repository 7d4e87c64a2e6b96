// Package audit says when a store is compared with what the server had at the same version, and what stands in the way.
//
// The last watch has ended at that version. So any difference is a fault, and not the passage of time: a watch has
// missed a change, or etcd was restored from a backup. A list without a version cannot prove a fault, and might not
// even find it. By default since Kubernetes 1.31, and always since 1.34, such a list comes from the watch cache, which
// is what may have lost the change (https://github.com/kubernetes/kubernetes/issues/123072). A list at an exact version
// comes from etcd if the server's cache differs from etcd.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
package audit

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/view/observe"
	"podcount/internal/watch/ending"
	"podcount/internal/watch/position"
)

const (
	// Interval is the time from the last complete list or audit to the next audit, ± 10 %. After one that has failed,
	// RetryAfter counts.
	Interval = time.Hour

	// RetryAfter is the least time from a failed audit to the next one. The longest is twice that.
	RetryAfter = 5 * time.Minute

	// maxFailed is how many audits in a row must fail until a list replaces the next one.
	maxFailed = 2
)

// Plan says when the next audit is due. The zero Plan has one that is due now. One goroutine may use it.
type Plan struct {
	due    time.Time
	failed int // in a row
}

// Due returns when the next audit is due.
func (p *Plan) Due() time.Time { return p.due }

// IsDue reports whether an audit is due.
func (p *Plan) IsDue() bool { return !time.Now().Before(p.due) }

// Done plans the next audit after one, or after a complete list, which makes up for it.
func (p *Plan) Done() {
	p.due = time.Now().Add(retry.Between(Interval*9/10, Interval*11/10))
	p.failed = 0
}

// fail counts an audit that has failed, and postpones the next one.
func (p *Plan) fail() {
	p.failed++
	p.Postpone()
}

// Postpone lets the watch go on before the next audit, because events are more urgent.
func (p *Plan) Postpone() { p.due = time.Now().Add(retry.Between(RetryAfter, 2*RetryAfter)) }

// Cache is what an audit compares with the server.
type Cache interface {
	Len() int // the number of its objects

	// HasServerCaughtUp asks whether the server has come as far as the newest object in the cache.
	HasServerCaughtUp(ctx context.Context) (bool, error)

	// Correct compares the cache with a list of the objects as they were at exactly this version, and corrects the
	// cache. It returns the objects that were not right. The error wraps ErrOtherVersion if the list has another
	// version, or position.ErrListDemanded if a list is more urgent.
	Correct(ctx context.Context, version string) (drift []observe.Change, err error)

	// Relist lists without a version.
	Relist(ctx context.Context) error
}

// Audit compares a cache with what the server had at this version, at which the last watch has ended. If that is not
// possible, the cache is listed instead. Audit returns the error of a request that has failed.
func (p *Plan) Audit(ctx context.Context, version string, cache Cache, report *observe.CacheReport) error {
	began := time.Now()
	obstacle := p.obstacle(version)
	if obstacle != nil {
		return relistInstead(ctx, version, obstacle, cache, report)
	}
	// Ask first whether the server has come as far as the cache. Suppose that the cache has an object at version 900,
	// from an answer to a patch, and that after a restore the server is at 500. Correct would take this object for one
	// that is newer than its list, and leave it alone.
	hasCaughtUp, err := cache.HasServerCaughtUp(ctx)
	if err == nil && !hasCaughtUp {
		return relistInstead(ctx, version, ending.ErrContradiction, cache, report)
	}
	var drift []observe.Change
	if err == nil {
		drift, err = cache.Correct(ctx, version)
	}
	switch {
	case errors.Is(err, position.ErrListDemanded) || ctx.Err() != nil:
		return nil // The audit was interrupted, and has not failed.
	case isVersionUnavailable(err):
		return relistInstead(ctx, version, err, cache, report)
	case err != nil:
		p.fail()
		report.AuditEnded("failed")
		return err
	}
	report.Audited(version, cache.Len(), drift, time.Since(began))
	p.Done()
	return nil
}

// relistInstead lists without a version, which finds less than an audit, and proves nothing. why is the reason. If it
// is an error of the server with a Retry-After, the list waits for that.
func relistInstead(
	ctx context.Context, version string, why error, cache Cache, report *observe.CacheReport,
) error {
	report.CannotAudit(version, why)
	if err := retry.Sleep(ctx, kube.RetryAfter(why)); err != nil {
		return err
	}
	return cache.Relist(ctx)
}

// obstacle returns why a list must replace the audit at this version. nil means that nothing stands in its way.
func (p *Plan) obstacle(version string) error {
	switch {
	case !object.IsDecimal(version):
		return errors.New("the version is not a number")
	case p.failed >= maxFailed: // A list finds less than an audit, but more than nothing.
		return fmt.Errorf("%d audits in a row have failed", p.failed)
	}
	return nil
}

// ErrOtherVersion means that the server has sent another version than it was asked for. Servers before Kubernetes 1.19
// do.
var ErrOtherVersion = errors.New("the server has sent another version")

// isVersionUnavailable reports whether the error of an audit's list means that the server cannot show that version. It
// has forgotten the version (410), does not have it yet, or does not support exact versions.
func isVersionUnavailable(err error) bool {
	if errors.Is(err, ErrOtherVersion) {
		return true
	}
	status := kube.StatusOf(err)
	switch status.Code {
	case http.StatusGone, http.StatusBadRequest:
		return true
	case http.StatusGatewayTimeout: // Any other 504 is from a proxy.
		return status.HasCause("ResourceVersionTooLarge")
	case http.StatusInternalServerError: // https://github.com/kubernetes/kubernetes/issues/132358
		return strings.Contains(status.Message, "future revision")
	}
	return false
}
