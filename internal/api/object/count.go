package object

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strconv"

	"podcount/internal/api/wire"
)

// Count is the custom resource that deploy/count-crd.yaml defines. It says how many pods of an app its namespace should
// have.
type Count struct {
	Meta
	CountSpec
	Generation int64 // increases with each change of the spec
	Status     CountStatus
}

// valueLimit is how many bytes of a value in a custom resource, or of an error about it, are kept.
const valueLimit = 500

// CountSpec is what a Count asks for.
type CountSpec struct {
	App  string // spec.name
	Want int    // spec.count: how many pods the app should have

	// Invalid says what is wrong with the spec. If it is not "", no decision may depend on App and Want.
	Invalid string
}

// CountStatus is the status of a Count. Its fields are "" if the status does not have them. They are compared as JSON
// text, so a value of the wrong type never equals the right one. The server may have such values if the schema is not
// strict.
type CountStatus struct {
	Healthy            wire.Raw `json:"healthy,omitempty"`
	Count              wire.Raw `json:"count,omitempty"`
	ObservedGeneration wire.Raw `json:"observedGeneration,omitempty"`
}

// Text returns a status for people, as in "2 healthy".
func (s CountStatus) Text() string {
	switch {
	case s.Count == "":
		return "none"
	case s.Healthy == "true":
		return string(s.Count) + " healthy"
	}
	return string(s.Count) + " unhealthy"
}

// CountKind returns the kind of Counts.
func CountKind() Kind[*Count] {
	return Kind[*Count]{
		Name:        "Count",
		API:         "/apis/demo.mark8s.io/v1",
		Resource:    "counts",
		PatchMetric: "podcount_status_patches_total",
		New:         func() *Count { return new(Count) },
		ReadJSON:    (*Count).readJSON,
	}
}

// HasSameFields compares all fields except those of Meta.
func (c *Count) HasSameFields(o *Count) bool {
	return c.CountSpec == o.CountSpec && c.Generation == o.Generation && c.Status == o.Status
}

// readJSON never fails: a value of the wrong type counts as missing, because a schema that somebody else has written
// may allow it.
func (c *Count) readJSON(text []byte) {
	c.Generation = 0
	json.Unmarshal(wire.At(text, "metadata", "generation"), &c.Generation)
	c.CountSpec = readCountSpec(valueAt(text, "spec", "name"), valueAt(text, "spec", "count"))
	c.Status = CountStatus{
		Healthy:            statusAt(text, "healthy"),
		Count:              statusAt(text, "count"),
		ObservedGeneration: statusAt(text, "observedGeneration"),
	}
}

func readCountSpec(name, count wire.Raw) (spec CountSpec) {
	err := json.Unmarshal([]byte(name), &spec.App)
	if err != nil || spec.App == "" {
		spec.Invalid = fmt.Sprintf("spec.name is %.100s, and must be the name of an app", cmp.Or(name, "missing"))
		return spec
	}
	spec.Want, err = strconv.Atoi(string(count))
	if err != nil || spec.Want < 0 {
		spec.Invalid = fmt.Sprintf("spec.count is %.100s, and must be a whole number, 0 or more", cmp.Or(count, "missing"))
	}
	return spec
}

// valueAt returns a value in an object, or "". A value that is too long is cut off, so it is not valid JSON any more.
func valueAt(text []byte, path ...string) wire.Raw {
	value := wire.At(text, path...)
	return wire.RawOf(value[:min(len(value), valueLimit)])
}

// statusAt returns a value of a status. One that is longer than any right value counts as missing.
func statusAt(text []byte, name string) wire.Raw {
	value := wire.At(text, "status", name)
	if len(value) > valueLimit {
		return ""
	}
	return wire.RawOf(value)
}
