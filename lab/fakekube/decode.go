package fakekube

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// convertBodyToJSON converts a protobuf body to JSON. If the fake does not support the body's media type, or cannot
// decode it, it answers so and returns false.
func (r *request) convertBodyToJSON() bool {
	contentType := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(contentType)
	isOptions := r.Method == http.MethodDelete && !r.kind.isCustom()
	if err == nil && media == mediaProtobuf && (r.kind.isKnown() || isOptions) {
		return r.readProtobuf()
	}
	if contentType == "" || err == nil && media == mediaJSON {
		return true
	}
	known := []string{mediaJSON, "application/yaml", mediaProtobuf}
	if err == nil && slices.Contains(known, media) {
		known = []string{mediaJSON} // the real server supports the others as well
	}
	text := "the body of the request was in an unknown format - accepted media types include: " +
		strings.Join(known, ", ")
	if r.kind.isAdded && media == mediaProtobuf {
		text += fmt.Sprintf(" (the fake knows no fields of a %s, so its client must send JSON: in client-go's rest.Config, "+
			`set ContentType to "application/json")`, r.kind.kind)
	}
	r.failWith(415, "UnsupportedMediaType", text, nil)
	return false
}

// typeMeta is the type of an object.
type typeMeta struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
}

// typeOf returns the type of an object in JSON. Its error has the server's wording.
func typeOf(body []byte) (typeMeta, error) {
	// An anonymous struct, because encoding/json's error would contain a type's name.
	var found struct {
		APIVersion string `json:"apiVersion,omitempty"`
		Kind       string `json:"kind,omitempty"`
	}
	if err := json.Unmarshal(body, &found); err != nil {
		return typeMeta{}, fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return found, nil
}

// notRegistered is the server's message for an unknown kind. It contains a place in the server's source.
func notRegistered(t typeMeta) string {
	return fmt.Sprintf("no kind %q is registered for version %q in scheme \"pkg/runtime/scheme.go:111\"",
		t.Kind, t.APIVersion)
}

// decodeOptions decodes options of this kind. If the body is something else, it answers 400 and returns false.
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

// shownBytes is how many bytes of an undecodable body the server repeats in its answer.
const shownBytes = 30

// shownBody returns an undecodable body as the server repeats it.
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

// decodeObject returns the object in the body of a request, in its stored form. If the body is not an object of the
// request's kind, it answers so and returns nil.
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
		problems = strictProblems(r.body, r.kind.typ())
	}
	if len(problems) > 0 && r.options.fieldValidation == "Strict" {
		r.failDecoding(r.kind.kind, r.kind.version, strictError(problems))
		return nil
	}
	r.warn(problems)
	return o
}

// decodeObjectAs is decodeObject for a subresource whose objects have a kind of their own.
func (r *request) decodeObjectAs(k kind) Object {
	ofPath := r.kind
	defer func() { r.kind = ofPath }()
	r.kind = k
	return r.decodeObject()
}

// strictError is the server's message for unknown and duplicate fields under strict validation.
func strictError(problems []string) string {
	return "strict decoding error: " + strings.Join(problems, ", ")
}

// warn sends the client a warning about each unknown or duplicate field, if it wants warnings.
func (r *request) warn(problems []string) {
	if r.options.fieldValidation != "Warn" {
		return
	}
	for _, problem := range problems {
		r.w.Header().Add("Warning", fmt.Sprintf("299 - %q", problem))
	}
}

// toStored returns an object in its stored form: with metadata, but without its type and without fields that the kind
// does not have. unknown lists the dropped fields. The error describes a value of the wrong type.
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
	case k.isAdded:
		o, err = k.withTypedMetadata(sent)
		if err != nil {
			return nil, nil, err
		}
	case structs[k.typ()] != nil:
		converted, err := convert(k.typ(), sent)
		if err != nil {
			return nil, nil, err
		}
		o, _ = converted.(Object)
		if k.isNewEvent() {
			return k.stored().toStored(renamed(o, oldEventFields))
		}
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

// withTypedMetadata returns an object of a kind that Serve has added, in its stored form: with converted metadata, and
// otherwise as sent, but without nulls.
func (k kind) withTypedMetadata(sent Object) (Object, error) {
	o, _ := withoutNulls(cloned(sent)).(Object)
	meta, err := (&converter{owner: k.kind, path: []string{"metadata"}}).value(o["metadata"], "ObjectMeta")
	if err != nil {
		return nil, err
	}
	if meta != nil {
		o["metadata"] = meta
	}
	return o, nil
}

// failDecoding answers 400 because a body of this kind and version cannot become an object of the request's kind.
func (r *request) failDecoding(kind, version, reason string) {
	r.badRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s: %s", kind, version, r.kind.kind, reason))
}

// checkType reports whether an object of this type may be written by the request. If not, it answers so. Objects of
// built-in kinds may leave their type out.
func (r *request) checkType(t typeMeta) bool {
	if r.kind.isCustom() {
		if t.APIVersion != r.kind.apiVersion() {
			r.failVersion(t.APIVersion)
			return false
		}
		if t.Kind != r.kind.kind {
			refusal := invalidValue("kind", t.Kind, "must be "+r.kind.kind)
			r.refuseAs(t.Kind, r.kind.group, TextIn(MetaOf(parsed(string(r.body)).(Object)), "name"), []cause{refusal})
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
	i := slices.IndexFunc(r.arrival.kinds, func(k kind) bool {
		return k.kind == named && k.group == group && k.version == version && !k.isCustom()
	})
	if i < 0 {
		r.failDecoding(named, version, notRegistered(typeMeta{APIVersion: apiVersion, Kind: named}))
		return false
	}
	if r.arrival.kinds[i].place() == r.kind.place() {
		r.failVersion(apiVersion)
		return false
	}
	r.failDecoding(named, version, fmt.Sprintf("converting (%s.%s) to (%s.%s): unknown conversion",
		version, named, goPackage(r.kind.stored().group), r.kind.kind))
	return false
}

// failVersion answers 400 because an object that a client sends is of another version than the path.
func (r *request) failVersion(apiVersion string) {
	r.badRequest(fmt.Sprintf("the API version in the data (%s) does not match the expected API version (%s)",
		apiVersion, r.kind.apiVersion()))
}

// goPackage returns the name of the Go package with the types of a group in the server's source.
func goPackage(group string) string {
	first, _, _ := strings.Cut(group, ".")
	return cmp.Or(first, "core")
}
