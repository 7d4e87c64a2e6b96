package fakekube

import (
	"encoding/json"
	"fmt"
	"strings"
)

// cause is one reason for refusing an object or the options of a request.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type cause struct {
	reason  string // such as "FieldValueInvalid"
	field   string // path, such as "spec.containers[0].name"
	message string // such as `Invalid value: "A": must be lower case`
}

// invalidValue refuses an invalid value.
func invalidValue(field string, value any, reason string) cause {
	return cause{"FieldValueInvalid", field, fmt.Sprintf("Invalid value: %s: %s", describeValue(value), reason)}
}

// required refuses an empty field. why may be "".
func required(field, reason string) cause {
	return cause{"FieldValueRequired", field, joinReason("Required value", reason)}
}

// forbiddenField refuses that a field is set or changed.
func forbiddenField(field, reason string) cause {
	return cause{"FieldValueForbidden", field, "Forbidden: " + reason}
}

// duplicateValue refuses the repetition of a value in a list.
func duplicateValue(field string, value any) cause {
	return cause{"FieldValueDuplicate", field, "Duplicate value: " + describeValue(value)}
}

// notSupported refuses a value that is not among the supported ones.
func notSupported(field string, value any, supported ...string) cause {
	quoted := make([]string, len(supported))
	for i, one := range supported {
		quoted[i] = fmt.Sprintf("%q", one)
	}
	reason := fmt.Sprintf("Unsupported value: %s: supported values: %s",
		describeValue(value), strings.Join(quoted, ", "))
	return cause{"FieldValueNotSupported", field, reason}
}

// tooLong refuses a text of more than this many bytes.
func tooLong(field string, bytes int) cause {
	return cause{"FieldValueTooLong", field, fmt.Sprintf("Too long: may not be more than %d bytes", bytes)}
}

// joinReason appends a reason to a message. why may be "".
func joinReason(what, reason string) string {
	if reason == "" {
		return what
	}
	return what + ": " + reason
}

// describeValue returns a value as messages show it: a text in quotes, anything else in JSON.
func describeValue(value any) string {
	if text, isText := value.(string); isText {
		return fmt.Sprintf("%q", text)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

// refuse answers 422 with everything that is wrong with the request's object.
func (r *request) refuse(causes []cause) {
	r.refuseAs(r.kind.kind, r.kind.stored().group, r.key.Name, causes)
}

// refuseAs is refuse for something else than the request's object, such as the options of a request.
func (r *request) refuseAs(kind, group, name string, causes []cause) {
	details := Object{"kind": kind}
	if name != "" {
		details["name"] = name
	}
	qualified := kind
	if group != "" {
		details["group"] = group
		qualified += "." + group
	}
	r.refuseWith(qualified, name, details, causes)
}

// refuseWith answers 422. Like the server, it repeats identical causes in the details, but not in the message.
func (r *request) refuseWith(qualified, name string, details Object, causes []cause) {
	var causeObjects []any
	var messages []string
	isRepeated := map[string]bool{}
	for _, c := range causes {
		causeObjects = append(causeObjects, Object{"reason": c.reason, "message": c.message, "field": c.field})
		message := c.field + ": " + c.message
		if !isRepeated[message] {
			isRepeated[message] = true
			messages = append(messages, message)
		}
	}
	details["causes"] = causeObjects
	all := strings.Join(messages, ", ")
	if len(messages) > 1 {
		all = "[" + all + "]"
	}
	r.failWith(422, "Invalid", fmt.Sprintf("%s %q is invalid: %s", qualified, name, all), details)
}

// badRequest answers 400.
func (r *request) badRequest(message string) { r.failWith(400, "BadRequest", message, nil) }

// internalError answers 500 without a reason, as the server does after an unexpected error.
func (r *request) internalError(message string) { r.failWith(500, "", message, nil) }

// succeed answers 201 with a Status, as the server does if the action did not create an object.
func (r *request) succeed() {
	r.answer(201, Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{},
		"status":     "Success",
		"code":       201,
	})
}
