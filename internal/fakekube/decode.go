package fakekube

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"slices"
	"strings"
)

// convertBodyToJSON reports whether the fake reads the media type of a request's body; where it does not, it answers so. It
// puts JSON in place of protobuf.
func (r *request) convertBodyToJSON() bool {
	contentType := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	if err == nil && media == mediaProtobuf && !r.kind.isCustom() {
		return r.readProtobuf()
	}
	if contentType == "" || err == nil && media == mediaJSON {
		return true
	}
	known := []string{mediaJSON, "application/yaml", mediaProtobuf}
	if err == nil && slices.Contains(known, media) {
		known = []string{mediaJSON} // the real server reads the others, too
	}
	r.failWith(415, "UnsupportedMediaType", "the body of the request was in an unknown format - accepted media types "+
		"include: "+strings.Join(known, ", "), nil)
	return false
}

// typeMeta is what says the type of an object.
type typeMeta struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

// typeOf reads the type of an object in JSON. Its error is in the server's words.
func typeOf(body []byte) (typeMeta, error) {
	var found struct { // without a name, which the error would say
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return typeMeta{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return found, nil
}

// notRegistered says that there is no such kind. It names the place in the server's source that knows the kinds.
func notRegistered(t typeMeta) string {
	return fmt.Sprintf("no kind %q is registered for version %q in scheme \"pkg/runtime/scheme.go:111\"",
		t.Kind, t.APIVersion)
}

// decodeOptions reads options of this kind. Where they are none, it answers so and reports false.
func (r *request) decodeOptions(body []byte, kind string, into any) bool {
	found, err := typeOf(body)
	if err == nil && found.Kind != "" && found.Kind != kind {
		r.badRequest(notRegistered(found))
		return false
	}
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	if err != nil {
		r.badRequest(err.Error())
		return false
	}
	return true
}

// shownBytes is how much of a body the server repeats in its answer.
const shownBytes = 30

// shownBody is a body as the server repeats it where it cannot read it.
func shownBody(body []byte) string {
	if len(body) == 0 {
		return "<empty>"
	}
	rest := ""
	shown := body
	if len(body) > shownBytes {
		shown = body[:shownBytes]
		rest = " ..."
	}
	if body[0] == '{' {
		return string(shown) + rest
	}
	return hex.EncodeToString(shown) + rest
}

// decodeObject is the object that a request brings. It is nil where that is none, or of another kind, which is answered.
func (r *request) decodeObject() Object {
	found, err := typeOf(r.body)
	if err == nil && r.kind.isCustom() && found.Kind == "" {
		err = fmt.Errorf("Object 'Kind' is missing in '%s'", r.body)
	}
	if err != nil {
		r.failUnreadable(err)
		return nil
	}
	if !r.checkType(found) {
		return nil
	}
	var sent Object
	err = json.Unmarshal(r.body, &sent)
	if err != nil {
		r.failDecoding(r.kind.kind, r.kind.version, err.Error())
		return nil
	}
	o, unknown, err := r.kind.toStored(sent)
	if err != nil {
		r.failDecoding(r.kind.kind, r.kind.version, err.Error())
		return nil
	}
	problems := unknown
	if r.kind.isCustom() {
		problems = append(strictProblems(r.body, anything), unknown...)
	} else {
		problems = strictProblems(r.body, r.kind.kind)
	}
	if len(problems) > 0 && r.options.fieldValidation == "Strict" {
		r.failDecoding(r.kind.kind, r.kind.version, strictError(problems))
		return nil
	}
	r.warn(problems)
	return o
}

// decodeObjectAs is decoded for a request to a subresource that takes objects of a kind of its own.
func (r *request) decodeObjectAs(k kind) Object {
	ofPath := r.kind
	defer func() { r.kind = ofPath }()
	r.kind = k
	return r.decodeObject()
}

// strictError is what the server says of unknown and duplicate fields that it refuses.
func strictError(problems []string) string {
	return "strict decoding error: " + strings.Join(problems, ", ")
}

// warn tells the client of unknown and duplicate fields, unless it does not want to know.
func (r *request) warn(problems []string) {
	if r.options.fieldValidation != "Warn" {
		return
	}
	for _, problem := range problems {
		r.w.Header().Add("Warning", fmt.Sprintf("299 - %q", problem))
	}
}

// toStored is an object of this kind as it is stored: of what the kind does not know, nothing is left. It has metadata,
// but does not say its type. unknown are the fields that were dropped. The error says what is not of its type.
func (k kind) toStored(sent Object) (o Object, unknown []string, err error) {
	sent = maps.Clone(sent)
	delete(sent, "kind")
	delete(sent, "apiVersion")
	switch {
	case k.isCustom():
		o, unknown, err = k.pruned(sent)
		if err != nil {
			return nil, nil, err
		}
	case structs[k.kind] != nil:
		converted, err := typed(k.kind, sent)
		if err != nil {
			return nil, nil, err
		}
		o, _ = converted.(Object)
	default:
		o = Clone(sent)
	}
	if o == nil {
		o = Object{}
	}
	if MetaOf(o) == nil {
		o["metadata"] = Object{}
	}
	delete(MetaOf(o), "managedFields")
	delete(MetaOf(o), "selfLink")
	return o, unknown, nil
}

// failDecoding refuses a body of a kind and version that the server cannot take for an object of the request's kind.
func (r *request) failDecoding(kind, version, why string) {
	r.badRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", kind, version, r.kind.kind, why))
}

// checkType reports whether an object that says this type may be written by the request. Where it may not, that is
// answered. Of a built-in kind, an object need not say its type.
func (r *request) checkType(t typeMeta) bool {
	if r.kind.isCustom() {
		if t.APIVersion != r.kind.apiVersion() {
			r.badRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
				t.APIVersion, r.kind.apiVersion()))
			return false
		}
		if t.Kind != r.kind.kind {
			why := invalidValue("kind", t.Kind, "must be "+r.kind.kind)
			r.refuseAs(t.Kind, r.kind.group, TextIn(MetaOf(parsed(string(r.body)).(Object)), "name"), []cause{why})
			return false
		}
		return true
	}
	named := cmp.Or(t.Kind, r.kind.kind)
	apiVersion := cmp.Or(t.APIVersion, r.kind.apiVersion())
	if named == r.kind.kind && apiVersion == r.kind.apiVersion() {
		return true
	}
	group, version, hasGroup := strings.Cut(apiVersion, "/")
	if !hasGroup {
		version = group
		group = ""
	}
	i := slices.IndexFunc(builtIn, func(k kind) bool {
		return k.kind == named && k.group == group && k.version == version
	})
	if i < 0 {
		r.failDecoding(named, version, notRegistered(typeMeta{APIVersion: apiVersion, Kind: named}))
		return false
	}
	r.failDecoding(named, version, fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion",
		version, named, goPackage(r.kind.group), r.kind.kind))
	return false
}

// goPackage is the name of the package in the server's source that has the types of a group.
func goPackage(group string) string {
	first, _, _ := strings.Cut(group, ".")
	return cmp.Or(first, "core")
}
