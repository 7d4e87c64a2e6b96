package fakekube

import (
	"cmp"
	"fmt"
	"strings"
)

// Events are served in two groups, which name some fields differently but share their objects. The fake stores them as
// the core group shows them.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
const eventsGroup = "events.k8s.io"

// isNewEvent reports whether the kind is the Event of the group events.k8s.io.
func (k kind) isNewEvent() bool { return k.group == eventsGroup && k.resource == "events" }

// stored returns the kind as which the objects of the kind are stored, which is the kind itself for all but one.
func (k kind) stored() kind {
	if k.isNewEvent() {
		k.group = ""
	}
	return k
}

// place returns the key of the kind's objects in Server.objects.
func (k kind) place() string { return k.stored().qualified() }

// hasChanged reports whether a change is about an object of the kind.
func (k kind) hasChanged(c Change) bool {
	return c.Resource == k.resource && c.Group == k.stored().group
}

// newEventFields holds the fields that events.k8s.io names differently, by their names in the core group.
var newEventFields = map[string]string{
	"involvedObject":     "regarding",
	"message":            "note",
	"reportingComponent": "reportingController",
	"source":             "deprecatedSource",
	"firstTimestamp":     "deprecatedFirstTimestamp",
	"lastTimestamp":      "deprecatedLastTimestamp",
	"count":              "deprecatedCount",
}

// oldEventFields is the inverse of newEventFields.
var oldEventFields = inverted(newEventFields)

func inverted(names map[string]string) map[string]string {
	inverse := map[string]string{}
	for from, to := range names {
		inverse[to] = from
	}
	return inverse
}

// renamed returns a copy of an object in which some fields have other names.
func renamed(o Object, names map[string]string) Object {
	copied := Object{}
	for field, value := range o {
		copied[cmp.Or(names[field], field)] = value
	}
	return copied
}

// shown returns a stored object as the kind shows it. The caller must not modify it.
func (k kind) shown(stored Object) Object {
	if !k.isNewEvent() {
		return stored
	}
	o := renamed(stored, newEventFields)
	converted, err := convert(k.typ(), o)
	if err != nil {
		return o // Put may have stored an invalid object
	}
	return converted.(Object)
}

// allShown is shown for a list.
func (k kind) allShown(stored []Object) []Object {
	if !k.isNewEvent() {
		return stored
	}
	all := make([]Object, len(stored))
	for i, o := range stored {
		all[i] = k.shown(o)
	}
	return all
}

// storedField returns the field of stored objects for which a field of a selector stands.
func (k kind) storedField(field string) string {
	first, rest, isNested := strings.Cut(field, ".")
	name, isRenamed := oldEventFields[first]
	switch {
	case !k.isNewEvent() || !isRenamed:
		return field
	case isNested:
		return name + "." + rest
	}
	return name
}

// validateEvent validates an Event that a client writes in one of the groups. events.k8s.io is stricter. In the core
// group, an Event is of the old sort unless it has an eventTime.
func (k kind) validateEvent(old, o Object) []cause {
	causes := k.validateAnyEvent(o)
	switch {
	case !k.isNewEvent():
	case old == nil:
		causes = append(causes, validateEventSeries(o)...)
		causes = append(causes, validateNewEvent(o)...)
	default:
		if !isEqualJSON(old["series"], o["series"]) {
			causes = append(causes, validateEventSeries(o)...)
		}
		causes = append(causes, validateEventUpdate(old, o)...)
	}
	return causes
}

// longestEventText is the limit, in bytes, of the short texts in an Event with an eventTime.
const longestEventText = 128

// validateAnyEvent validates what both groups check in the same way.
func (k kind) validateAnyEvent(o Object) []cause {
	causes := validateEventNamespace(o)
	if TextIn(o, "eventTime") == "" {
		return causes
	}
	field := "reportingComponent"
	if k.isNewEvent() {
		field = newEventFields[field]
	}
	controller := TextIn(o, "reportingComponent")
	if controller == "" {
		causes = append(causes, required(field, ""))
	}
	for _, problem := range labelKeyProblems(controller) {
		causes = append(causes, invalidValue(field, controller, problem))
	}
	for _, text := range []struct {
		field      string
		longest    int
		isRequired bool
	}{
		{"reportingInstance", longestEventText, true},
		{"action", longestEventText, true},
		{"reason", longestEventText, true},
		{"message", 1024, false},
	} {
		value := TextIn(o, text.field)
		if value == "" && text.isRequired {
			causes = append(causes, required(text.field, ""))
		}
		if len(value) > text.longest {
			reason := fmt.Sprintf("can have at most %d characters", text.longest)
			causes = append(causes, invalidValue(text.field, "", reason))
		}
	}
	return causes
}

// validateEventNamespace checks that an Event is in the namespace of the object that it is about, or, for an object
// without one, in a namespace of the system.
func validateEventNamespace(o Object) []cause {
	namespace := TextIn(MetaOf(o), "namespace")
	named := TextIn(o, "involvedObject", "namespace")
	hasTime := TextIn(o, "eventTime") != ""
	var isRight bool
	switch {
	case named != "":
		isRight = hasTime || named == namespace
	default:
		isRight = namespace == "default" || hasTime && namespace == "kube-system"
	}
	if isRight {
		return nil
	}
	return []cause{invalidValue("involvedObject.namespace", named, "does not match event.namespace")}
}

// validateEventSeries validates the series of an Event, if it has one.
func validateEventSeries(o Object) []cause {
	series := objectIn(o, "series")
	if series == nil {
		return nil
	}
	var causes []cause
	if numberIn(series, "count") < 2 {
		causes = append(causes, invalidValue("series.count", "", "should be at least 2"))
	}
	if TextIn(series, "lastObservedTime") == "" {
		causes = append(causes, required("series.lastObservedTime", ""))
	}
	return causes
}

// validateNewEvent validates what only events.k8s.io demands of a new Event. The causes name fields as the core group.
func validateNewEvent(o Object) []cause {
	var causes []cause
	if TextIn(o, "eventTime") == "" {
		causes = append(causes, required("eventTime", ""))
	}
	if typ := TextIn(o, "type"); typ != "Normal" && typ != "Warning" {
		causes = append(causes, invalidValue("type", "", "has invalid value: "+typ))
	}
	for _, field := range []string{"firstTimestamp", "lastTimestamp", "count", "source"} {
		source, isSource := o[field].(Object)
		isSet := o[field] != nil && (!isSource || len(source) > 0)
		if isSet {
			causes = append(causes, invalidValue(field, "", "needs to be unset"))
		}
	}
	return causes
}

// validateEventUpdate refuses any change in events.k8s.io, except of the series and the metadata.
func validateEventUpdate(old, o Object) []cause {
	var causes []cause
	for _, field := range []string{
		"involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type", "eventTime",
		"action", "related", "reportingComponent", "reportingInstance",
	} {
		if isEqualJSON(old[field], o[field]) {
			continue
		}
		name := field
		if field == "reportingComponent" {
			name = newEventFields[field]
		}
		causes = append(causes, invalidValue(name, o[field], "field is immutable"))
	}
	return causes
}
