package fakekube

import (
	"encoding/json"
	"fmt"
	"strings"
)

// cause is one thing that is wrong with an object or with the options of a request.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type cause struct {
	reason  string // such as "FieldValueInvalid"
	field   string // its path, as in "spec.containers[0].name"
	message string // such as `Invalid value: "A": must be lower case`
}

// invalidValue refuses a value that is there, but wrong.
func invalidValue(field string, value any, why string) cause {
	return cause{"FieldValueInvalid", field, fmt.Sprintf("Invalid value: %s: %s", describeValue(value), why)}
}

// required refuses that a field is empty. why may be "".
func required(field, why string) cause {
	return cause{"FieldValueRequired", field, withReason("Required value", why)}
}

// forbiddenField refuses that a field is set, or changed.
func forbiddenField(field, why string) cause {
	return cause{"FieldValueForbidden", field, "Forbidden: " + why}
}

// duplicateValue refuses a value that stands twice in a list.
func duplicateValue(field string, value any) cause {
	return cause{"FieldValueDuplicate", field, "Duplicate value: " + describeValue(value)}
}

// notSupported refuses a value that is none of these.
func notSupported(field string, value any, supported ...string) cause {
	quoted := make([]string, len(supported))
	for i, one := range supported {
		quoted[i] = fmt.Sprintf("%q", one)
	}
	why := fmt.Sprintf("Unsupported value: %s: supported values: %s", describeValue(value), strings.Join(quoted, ", "))
	return cause{"FieldValueNotSupported", field, why}
}

// tooLong refuses a text that has more than so many bytes.
func tooLong(field string, bytes int) cause {
	return cause{"FieldValueTooLong", field, fmt.Sprintf("Too long: may not be more than %d bytes", bytes)}
}

// withReason is what is wrong, and why, if there is more to say.
func withReason(what, why string) string {
	if why == "" {
		return what
	}
	return what + ": " + why
}

// describeValue is a value as messages show it: a text in quotes, anything else in JSON.
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

// refuse answers 422 with all that is wrong with the object of a request.
func (r *request) refuse(causes []cause) {
	r.refuseAs(r.kind.kind, r.kind.group, r.key.Name, causes)
}

// refuseAs is refuse of something that has a kind, a group and a name of its own, such as the options of a request.
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

// refuseWith answers 422 with a message about what is named so. The server says in the message once what the causes may
// say several times.
func (r *request) refuseWith(qualified, name string, details Object, causes []cause) {
	var told []any
	var messages []string
	isSaid := map[string]bool{}
	for _, c := range causes {
		told = append(told, Object{"reason": c.reason, "message": c.message, "field": c.field})
		message := c.field + ": " + c.message
		if !isSaid[message] {
			isSaid[message] = true
			messages = append(messages, message)
		}
	}
	details["causes"] = told
	all := strings.Join(messages, ", ")
	if len(messages) > 1 {
		all = "[" + all + "]"
	}
	r.failWith(422, "Invalid", fmt.Sprintf("%s %q is invalid: %s", qualified, name, all), details)
}

// badRequest answers 400.
func (r *request) badRequest(message string) { r.failWith(400, "BadRequest", message, nil) }

// internalError answers 500 with no reason, as the server does where it met an error that it does not expect.
func (r *request) internalError(message string) { r.failWith(500, "", message, nil) }

// succeed answers 201 with a Status, as the server does where it has done what was asked for and made no object.
func (r *request) succeed() {
	r.answer(201, Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{},
		"status":     "Success",
		"code":       201,
	})
}
