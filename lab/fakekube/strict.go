package fakekube

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// strictProblems describes the unknown and duplicate fields of a JSON body in the server's words and in their order.
// typ is the type of the body, or anything if it is unknown.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#setting-the-field-validation-level
func strictProblems(body []byte, typ string) []string {
	r := &strictReader{decoder: json.NewDecoder(bytes.NewReader(body))}
	r.value("", typ)
	return r.problems
}

// strictReader reads JSON token by token.
type strictReader struct {
	decoder  *json.Decoder
	problems []string
}

// value reads a value of this type at a path.
func (r *strictReader) value(path, typ string) {
	token, err := r.decoder.Token()
	if err != nil {
		return
	}
	switch token {
	case json.Delim('{'):
		r.object(path, typ)
	case json.Delim('['):
		r.list(path, typ)
	}
}

// object reads an object after its opening brace.
func (r *strictReader) object(path, typ string) {
	isSeen := map[string]bool{}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return
		}
		name, _ := token.(string)
		at := name
		if path != "" {
			at = path + "." + name
		}
		of, isKnown := typeOfField(typ, name)
		if isSeen[name] {
			r.problems = append(r.problems, fmt.Sprintf("duplicate field %q", at))
		} else if !isKnown {
			r.problems = append(r.problems, fmt.Sprintf("unknown field %q", at))
		}
		isSeen[name] = true
		if isKnown {
			r.value(at, of)
			continue
		}
		var skipped json.RawMessage
		if r.decoder.Decode(&skipped) != nil {
			return
		}
	}
	_, _ = r.decoder.Token() // the closing brace; the next read would return any error again
}

// list reads a list after its opening bracket.
func (r *strictReader) list(path, typ string) {
	for i := 0; r.decoder.More(); i++ {
		r.value(fmt.Sprintf("%s[%d]", path, i), typeOfItem(typ))
	}
	_, _ = r.decoder.Token()
}
