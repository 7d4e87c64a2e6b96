package fakekube

import (
	"cmp"
	"strings"
	"time"
)

var namespacePrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Status", Type: "string", Description: "The status of the namespace"},
		ageColumn,
	},
	cells: func(o Object, now time.Time) []any {
		return []any{nameCell(o), TextIn(objectIn(o, "status"), "phase"), ageCell(o, now)}
	},
}

// agePrinter prints only names and ages.
var agePrinter = printer{
	columns: []column{nameColumn, ageColumn},
	cells:   func(o Object, now time.Time) []any { return []any{nameCell(o), ageCell(o, now)} },
}

var leasePrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Holder", Type: "string", Description: "holderIdentity contains the identity of the holder of a " +
			"current lease. If Coordinated Leader Election is used, the holder identity must be equal to the elected " +
			"LeaseCandidate.metadata.name field."},
		ageColumn,
	},
	cells: func(o Object, now time.Time) []any {
		return []any{nameCell(o), TextIn(objectIn(o, "spec"), "holderIdentity"), ageCell(o, now)}
	},
}

var eventPrinter = printer{
	columns: []column{
		{Name: "Last Seen", Type: "string", Description: "The time at which the most recent occurrence of this event " +
			"was recorded."},
		{Name: "Type", Type: "string", Description: "Type of this event (Normal, Warning), new types could be added " +
			"in the future"},
		{Name: "Reason", Type: "string", Description: "This should be a short, machine understandable string that " +
			"gives the reason for the transition into the object's current status."},
		{Name: "Object", Type: "string", Description: "The object that this event is about."},
		{Name: "Subobject", Type: "string", Priority: 1, Description: "If referring to a piece of an object instead " +
			"of an entire object, this string should contain a valid JSON/Go field access statement, such as " +
			"desiredState.manifest.containers[2]. For example, if the object reference is to a container within a " +
			"pod, this would take on a value like: \"spec.containers{name}\" (where \"name\" refers to the name of " +
			"the container that triggered the event) or if no container name is specified \"spec.containers[2]\" " +
			"(container with index 2 in this pod). This syntax is chosen only to have some well-defined way of " +
			"referencing a part of an object."},
		{Name: "Source", Type: "string", Priority: 1, Description: "The component reporting this event. Should be a " +
			"short machine understandable string."},
		{Name: "Message", Type: "string", Description: "A human-readable description of the status of this operation."},
		{Name: "First Seen", Type: "string", Priority: 1, Description: "The time at which the event was first " +
			"recorded. (Time of server receipt is in TypeMeta.)"},
		{Name: "Count", Type: "string", Priority: 1, Description: "The number of times this event has occurred."},
		{Name: "Name", Type: "string", Format: "name", Priority: 1, Description: nameDescription},
	},
	cells: func(o Object, now time.Time) []any {
		first := cmp.Or(TextIn(o, "firstTimestamp"), TextIn(o, "eventTime"))
		last := cmp.Or(TextIn(o, "lastTimestamp"), first)
		count := max(numberIn(o, "count"), 1)
		if series := objectIn(o, "series"); series != nil {
			last = TextIn(series, "lastObservedTime")
			count = numberIn(series, "count")
		}
		about := objectIn(o, "involvedObject")
		return []any{
			elapsed(last, now),
			TextIn(o, "type"),
			TextIn(o, "reason"),
			objectReference(about),
			TextIn(about, "fieldPath"),
			eventSource(o),
			strings.TrimSpace(TextIn(o, "message")),
			elapsed(first, now),
			count,
			nameCell(o),
		}
	},
}

// objectReference returns a reference in kubectl's syntax, such as "pod/web".
func objectReference(about Object) string {
	kind := strings.ToLower(TextIn(about, "kind"))
	name := TextIn(about, "name")
	if name == "" {
		return kind
	}
	return kind + "/" + name
}

// eventSource returns the component that reported an event, and its host.
func eventSource(o Object) string {
	source := objectIn(o, "source")
	component := cmp.Or(TextIn(source, "component"), TextIn(o, "reportingComponent"))
	host := cmp.Or(TextIn(source, "host"), TextIn(o, "reportingInstance"))
	if host == "" {
		return component
	}
	return component + ", " + host
}

// createdPrinter prints only names and creation times.
var createdPrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Created At", Type: "date", Description: createdDescription},
	},
	cells: func(o Object, _ time.Time) []any {
		created := TextIn(MetaOf(o), "creationTimestamp")
		return []any{nameCell(o), cmp.Or(created, "0001-01-01T00:00:00Z")}
	},
}
