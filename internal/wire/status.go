package wire

import (
	"bytes"
	"encoding/json"
)

// Status is the error that the API server answers, as it is sent: as the body of an answer, or in a watch.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	Code            int // as in HTTP
	Reason, Message string
	Details         struct {
		Causes            []struct{ Reason, Field string } // read in JSON alone
		RetryAfterSeconds int                              // 0 if the server does not ask to wait
	}
}

// ParseStatus reads the body of an answer that is a Status. What is none has no Code.
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

func (s *Status) readProtobuf(body []byte) (err error) {
	defer rescue(&err)
	p := newMessage(newSource(bytes.NewReader(body)))
	p.magic()
	p.walk(0, int64(len(body)), s.schema())
	return nil
}

// schema is that of an answer, or of what a frame of a watch has in its place: there, the Status is field 2.
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
