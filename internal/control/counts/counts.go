// Package counts decides what the status of a Count should be, and which Events tell people of it. It sends nothing,
// and knows only a Count as the cache has it, the number of pods, and what it has said about the Count before.
package counts

import (
	"fmt"
	"strconv"
	"sync"

	"podcount/internal/api/object"
	"podcount/internal/api/wire"
)

// View is a Count, a custom resource, as the cache has it.
type View struct {
	*object.Count

	// HasSubresource says that a write of the status leaves the spec and the generation alone. Otherwise each write
	// raises the generation, so observedGeneration would never be right. It is left out then.
	HasSubresource bool
}

// Subresource returns the subresource of a Count to which its status is written: "" if it is an ordinary field.
func (v View) Subresource() string {
	if v.HasSubresource {
		return "status"
	}
	return ""
}

// OwnPart returns the part of a status that podcount writes, for comparisons.
func (v View) OwnPart(s object.CountStatus) object.CountStatus {
	if !v.HasSubresource {
		s.ObservedGeneration = ""
	}
	return s
}

// RightStatus returns the status that a Count should have if its app has this number of pods. If its spec is invalid,
// its status stays as it is, except that it is not healthy.
func (v View) RightStatus(pods int) object.CountStatus {
	if v.Invalid != "" {
		status := v.Status
		if status.Healthy == "true" {
			status.Healthy = "false"
		}
		return v.OwnPart(status)
	}
	return v.OwnPart(object.CountStatus{
		Healthy:            wire.Raw(strconv.FormatBool(pods == v.Want)),
		Count:              wire.Raw(strconv.Itoa(pods)),
		ObservedGeneration: wire.Raw(strconv.FormatInt(v.Generation, 10)),
	})
}

// Report is what Events say about a Count. The same report is not posted twice in a row.
type Report struct {
	uid        string           // of the Count, because another Count may get its name later
	generation wire.Raw         // the status's observedGeneration, or "" if it has none
	spec       object.CountSpec // the zero value if it is not known
	reason     string
	message    string
}

// ReportOf returns what Events say about a Count with this status. A status that is not healthy, or missing, makes a
// mismatch.
func (v View) ReportOf(status object.CountStatus) Report {
	report := Report{
		uid:        v.UID(),
		generation: status.ObservedGeneration,
		spec:       v.CountSpec,
		reason:     "CountMismatch",
		message:    fmt.Sprintf("want %d pods of %s, have %s", v.Want, v.App, status.Count),
	}
	if status.Healthy == "true" {
		report.reason = "CountMatched"
	}
	if v.Invalid != "" {
		report.reason = "InvalidCount"
		report.message = v.Invalid
	}
	return report
}

// ReportBefore returns the report that an earlier process may have posted when it wrote the present status.
func (v View) ReportBefore() Report {
	status := v.OwnPart(v.Status)
	report := v.ReportOf(status)
	if !v.isOfSpec(status) {
		report.spec = object.CountSpec{}
	}
	return report
}

// isOfSpec reports whether a status was computed for the present spec. Without observedGeneration, it checks whether
// healthy agrees with the status's count and the spec's.
func (v View) isOfSpec(status object.CountStatus) bool {
	if v.Invalid != "" {
		return false // RightStatus keeps the status of an earlier spec.
	}
	if status.ObservedGeneration != "" {
		return string(status.ObservedGeneration) == strconv.FormatInt(v.Generation, 10)
	}
	hasWanted := string(status.Count) == strconv.Itoa(v.Want)
	return string(status.Healthy) == strconv.FormatBool(hasWanted)
}

// Event is what people are told. Type is Normal or Warning.
type Event struct{ Type, Reason, Message string }

// Reports are the Reports about Counts. The zero value has none. Safe for concurrent use, but no two goroutines may
// have the same Count.
type Reports struct{ byKey sync.Map }

// KeepPrevious returns the Report about a Count that was posted last, by this process or, as the status tells, by an
// earlier one. It stores that Report, because the answer to the write that follows may be lost:
//
//  1. The status says 2 pods, and 3 are right. The report on 2 is the previous one.
//  2. The server writes 3, but its answer is lost. So nothing is posted yet.
//  3. The next try finds 3 in the status already. But the report on 2 is stored, so the one on 3 is posted.
func (r *Reports) KeepPrevious(v View) Report {
	previous := v.ReportBefore()
	stored, _ := r.byKey.Load(v.Key())
	if last, isKnown := stored.(Report); isKnown && last.uid == v.UID() {
		previous = last
	}
	r.byKey.Store(v.Key(), previous)
	return previous
}

// Posted stores the Report about a Count that is posted now.
func (r *Reports) Posted(v View, report Report) { r.byKey.Store(v.Key(), report) }

// Forget drops the Report about a Count that is gone, and tells whether there was one.
func (r *Reports) Forget(key object.Key) (wasKnown bool) {
	_, wasKnown = r.byKey.LoadAndDelete(key)
	return wasKnown
}

// EventsAfter returns the Events for a report that follows another one: Synced for a new spec, a warning for each
// mismatch or invalid spec, and CountMatched for a match that follows something else. There are none if the reports are
// the same.
func (r Report) EventsAfter(previous Report) (events []Event) {
	if r == previous {
		return nil
	}
	isNewSpec := r.spec != previous.spec || r.generation != previous.generation
	if isNewSpec && r.spec.Invalid == "" {
		events = append(events, Event{"Normal", "Synced", "Count synced successfully"})
	}
	switch {
	case r.reason != "CountMatched":
		events = append(events, Event{"Warning", r.reason, r.message})
	case previous.reason != "CountMatched":
		events = append(events, Event{"Normal", r.reason, r.message})
	}
	return events
}
