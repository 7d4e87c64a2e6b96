package wire

import (
	"bytes"
	"encoding/json"
)

// Status is an error of the API server, as it sends it in the body of an answer or in a watch.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	Code            int // the HTTP status code
	Reason, Message string
	Details         struct {
		Causes            []struct{ Reason, Field string } // empty if the Status was in protobuf
		RetryAfterSeconds int                              // 0 if the server does not ask the client to wait
	}
}

// ParseStatus reads a Status from the body of an answer. If the body is not a Status, Code is 0.
func ParseStatus(body []byte, isProtobuf bool) Status {
	var s Status
	var err error
	if isProtobuf {
		err = s.readProtobuf(body)
	} else {
		err = json.Unmarshal(body, &s)
	}
	if err != nil {
		s.Code = 0
	}
	return s
}

func (s *Status) readProtobuf(body []byte) error {
	r := newProtobufReader(newSource(bytes.NewReader(body)))
	if err := r.readMagic(); err != nil {
		return err
	}
	unknown := Schema{2: s.schema()}
	return r.readMessage(int64(len(body)), unknown)
}

func (s *Status) schema() Schema {
	return Schema{
		3: (*stringTarget)(&s.Message),
		4: (*stringTarget)(&s.Reason),
		5: Schema{ // details
			5: (*intTarget)(&s.Details.RetryAfterSeconds),
		},
		6: (*intTarget)(&s.Code),
	}
}
