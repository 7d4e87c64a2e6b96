package object

import (
	"encoding/json"
	"reflect"

	"podcount/internal/api/wire"
)

// JSONObject is an object of a kind that only one controller reads. F is a struct with the fields that the controller
// needs, which encoding/json fills from the whole object:
//
//	type deployment struct {
//		Spec struct{ Replicas int }
//	}
type JSONObject[F any] struct {
	Meta
	Fields F

	// Invalid says which field has another type on the server than in F. If it is not "", Fields may be incomplete.
	Invalid string
}

// JSONKind returns a kind of JSONObjects, as in JSONKind[deployment]("Deployment", "/apis/apps/v1", "deployments"). The
// parameters are the Kind's fields of the same names.
func JSONKind[F any](name, api, resource string) Kind[*JSONObject[F]] {
	return Kind[*JSONObject[F]]{
		Name:     name,
		API:      api,
		Resource: resource,
		New:      func() *JSONObject[F] { return new(JSONObject[F]) },
		ReadJSON: (*JSONObject[F]).readJSON,
	}
}

// HasSameFields compares all fields except those of Meta.
func (o *JSONObject[F]) HasSameFields(other *JSONObject[F]) bool {
	return o.Invalid == other.Invalid && reflect.DeepEqual(o.Fields, other.Fields)
}

func (o *JSONObject[F]) readJSON(text []byte) {
	var none F
	o.Fields = none
	o.Invalid = ""
	if err := json.Unmarshal(text, &o.Fields); err != nil {
		o.Invalid = wire.Shorten(err.Error(), valueLimit)
	}
}
