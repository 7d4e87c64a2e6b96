package wire

import (
	"bytes"
	"encoding/json"
)

// Status is the error that the API server answers, as it is sent.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	Code            int // as in HTTP
	Reason, Message string
	Details         struct {
		Causes            []struct{ Reason, Field string }
		RetryAfterSeconds int
	}
}

// schema is that of a Status but its causes, as field 2 of the message around it.
func (s *Status) schema() Schema {
	return Schema{
		2:     Enter{},
		203:   &s.Message,
		204:   &s.Reason,
		205:   Enter{},
		20505: &s.Details.RetryAfterSeconds,
		206:   &s.Code,
	}
}

// ParseStatus reads the body of an answer that is a Status; one with the Code 0 where it is not.
func ParseStatus(body []byte, isProtobuf bool) (s Status) {
	if !isProtobuf {
		if json.Unmarshal(body, &s) != nil {
			s.Code = 0
		}
		return s
	}
	defer rescue(new(error))
	p := newProtobuf(newSource(bytes.NewReader(body)))
	p.magic()
	p.walk(0, int64(len(body)), s.schema())
	return s
}
