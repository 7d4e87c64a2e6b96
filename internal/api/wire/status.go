package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
)

// StatusLimit is the maximum size of a Status in JSON, in bytes.
const StatusLimit = 64 << 10

// What is kept of a Status, because errors are logged, shown on the page, and kept for each object that fails.
const (
	messageLimit = 1 << 10 // bytes of the message
	reasonLimit  = 100     // bytes of a reason
	fieldLimit   = 200     // bytes of the field of a cause
	causeLimit   = 32      // causes
	quoteLimit   = 200     // bytes of a text that is not a Status
)

// Status is an error of the API server, as it sends it in the body of an answer or in a watch. Long texts are cut, and
// further causes are dropped.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type Status struct {
	Code            int // the HTTP status code
	Reason, Message string
	Details         struct {
		Causes            []Cause
		RetryAfterSeconds int // 0 if the server does not ask the client to wait
	}
}

// Cause is one of several reasons for an error, such as a field that is invalid.
type Cause struct{ Reason, Field string }

// ParseStatus reads a Status from the body of an answer. If the body is not a Status, or too large for one, Code is 0,
// and Message quotes its beginning.
func ParseStatus(body []byte, isProtobuf bool) Status {
	var s Status
	read := s.readJSON
	if isProtobuf {
		read = s.readProtobuf
	}
	if err := read(body); err != nil || s.Code == 0 {
		return quoted(body)
	}
	return s
}

// quoted returns a Status whose message is the beginning of a text, on one line.
func quoted(text []byte) Status {
	text = text[:min(len(text), StatusLimit)]
	line := strings.Join(strings.Fields(string(text)), " ")
	return Status{Message: strconv.Quote(line[:min(len(line), quoteLimit)])}
}

func (s *Status) readJSON(text []byte) error {
	if len(text) > StatusLimit {
		return errors.New("the Status is too large")
	}
	err := json.Unmarshal(text, s)
	s.shorten()
	return err
}

// shorten cuts off what is too long, and frees the memory of the rest.
func (s *Status) shorten() {
	s.Message = Shorten(s.Message, messageLimit)
	s.Reason = Shorten(s.Reason, reasonLimit)
	causes := s.Details.Causes
	s.Details.Causes = slices.Clone(causes[:min(len(causes), causeLimit)])
	for i := range s.Details.Causes {
		cause := &s.Details.Causes[i]
		cause.Reason = Shorten(cause.Reason, reasonLimit)
		cause.Field = Shorten(cause.Field, fieldLimit)
	}
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
		3: &shortTarget{&s.Message, messageLimit},
		4: &shortTarget{&s.Reason, reasonLimit},
		5: Schema{ // details
			4: (*causesTarget)(&s.Details.Causes),
			5: (*intTarget)(&s.Details.RetryAfterSeconds),
		},
		6: (*intTarget)(&s.Code),
	}
}

// causesTarget receives the first causes of a Status.
type causesTarget []Cause

func (causes *causesTarget) readField(r *protobufReader, f field) error {
	if len(*causes) == causeLimit {
		return nil
	}
	var cause Cause
	schema := Schema{
		1: &shortTarget{&cause.Reason, reasonLimit},
		3: &shortTarget{&cause.Field, fieldLimit},
	}
	if err := schema.readField(r, f); err != nil {
		return err
	}
	*causes = append(*causes, cause)
	return nil
}
