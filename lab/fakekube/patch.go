package fakekube

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
)

// Media types of patches.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply
const (
	mediaJSONPatch      = "application/json-patch+json"
	mediaMergePatch     = "application/merge-patch+json"
	mediaStrategicPatch = "application/strategic-merge-patch+json"
	mediaApplyPatch     = "application/apply-patch+yaml"
)

// patch answers a PATCH. It refuses server-side apply.
func (s *Server) patch(r *request) {
	media := r.patchMediaType()
	if media == "" || !r.readOptions("PatchOptions") {
		return
	}
	if media == mediaApplyPatch {
		r.failWith(415, "UnsupportedMediaType", "the fake has no server-side apply - accepted media types include: "+
			strings.Join(r.kind.patchMediaTypes(), ", "), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.kind.place()][r.key]
	if old == nil || r.isStatus && !r.kind.hasStatus {
		r.notFound()
		return
	}
	o := r.applyPatch(media, old)
	if o == nil || !r.checkNameInPath(o) || !r.checkNamespaceInPath(o) {
		return
	}
	s.writeLocked(r, old, o)
}

// patchMediaTypes lists the media types of patches that the fake accepts for the kind.
func (k kind) patchMediaTypes() []string {
	types := []string{mediaJSONPatch, mediaMergePatch}
	if !k.isCustom() {
		types = append(types, mediaStrategicPatch)
	}
	return types
}

// patchMediaType returns the media type of the patch. If the server does not accept it, it answers 415 and returns
// "".
func (r *request) patchMediaType() string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	types := append(r.kind.patchMediaTypes(), mediaApplyPatch)
	for _, known := range types {
		if err == nil && media == known {
			return media
		}
	}
	if r.kind.isCustom() {
		r.failWith(415, "UnsupportedMediaType", "the body of the request was in an unknown format - accepted media "+
			"types include: "+strings.Join(types, ", "), nil)
		return ""
	}
	r.failWith(415, "UnsupportedMediaType", "415: Unsupported Media Type", Object{})
	return ""
}

// errPatch means that a JSON patch cannot be applied. The server gives no reason.
var errPatch = errors.New("the server rejected our request due to an error in our request")

// badPatch is the error of a patch that the server cannot decode: a 400.
type badPatch struct{ message string }

func (e badPatch) Error() string { return e.message }

// patchTooLarge is the error of a JSON patch with too many operations: a 413.
type patchTooLarge struct{ operations int }

func (e patchTooLarge) Error() string {
	return fmt.Sprintf("Request entity too large: The allowed maximum operations in a JSON patch is %d, got %d",
		maxPatchOps, e.operations)
}

// applyPatch returns the patched object. If the patch fails, it answers so and returns nil.
func (r *request) applyPatch(media string, old Object) Object {
	o := Clone(r.kind.shown(old))
	o["kind"] = r.kind.kind
	o["apiVersion"] = r.kind.apiVersion()
	o, err := r.kind.patchObject(media, o, r.body)
	var bad badPatch
	var large patchTooLarge
	switch {
	case err == nil:
		return r.checkPatched(o, patchProblems(media, r.body))
	case errors.As(err, &bad):
		r.badRequest(bad.message)
	case errors.As(err, &large):
		r.failWith(413, "RequestEntityTooLarge", large.Error(), nil)
	case errors.Is(err, errPatch):
		r.failWith(422, "Invalid", err.Error(), Object{})
	default:
		r.internalError(err.Error())
	}
	return nil
}

// patchObject applies a patch to o, which it may modify.
func (k kind) patchObject(media string, o Object, body []byte) (Object, error) {
	if media == mediaJSONPatch {
		return applyJSONPatch(o, body)
	}
	prefix := "error decoding patch: "
	if media == mediaStrategicPatch {
		prefix = ""
	}
	var patch Object
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, badPatch{prefix + err.Error()}
	}
	if media == mediaStrategicPatch {
		return strategicMerge(k.typ(), o, patch)
	}
	if patch == nil {
		return nil, badPatch{"Invalid JSON Patch"}
	}
	mergePatch(o, patch)
	return o, nil
}

// patchProblems lists the duplicate fields of a patch and, for a JSON patch, also the unknown ones.
func patchProblems(media string, body []byte) []string {
	if media != mediaJSONPatch {
		return strictProblems(body, anything)
	}
	problems := strictProblems(body, "[]JSONPatchOperation")
	for i := range problems {
		problems[i] = "json patch " + problems[i]
	}
	return problems
}

// checkPatched returns a patched object in its stored form. problems lists the patch's own unknown and duplicate
// fields. If the object is not of the request's kind, or strict validation finds a problem, it answers so and returns
// nil.
func (r *request) checkPatched(o Object, problems []string) Object {
	text, err := json.Marshal(o)
	if err != nil {
		r.internalError(err.Error())
		return nil
	}
	sentType := typeMeta{APIVersion: TextIn(o, "apiVersion"), Kind: TextIn(o, "kind")}
	hasType := sentType.APIVersion != "" || sentType.Kind != ""
	if hasType && (sentType.Kind != r.kind.kind || sentType.APIVersion != r.kind.apiVersion()) {
		r.refusePatched(text, notRegistered(sentType))
		return nil
	}
	stored, unknown, err := r.kind.toStored(o)
	if err != nil {
		r.refusePatched(text, err.Error())
		return nil
	}
	if !r.kind.isCustom() {
		unknown = strictProblems(text, r.kind.typ())
	}
	problems = append(problems, unknown...)
	if len(problems) > 0 && r.options.fieldValidation == "Strict" {
		r.refusePatched(text, strictError(problems))
		return nil
	}
	r.warn(problems)
	return stored
}

// refusePatched answers 422. Like the server, it repeats the whole patched object.
func (r *request) refusePatched(text []byte, reason string) {
	r.refuseWith("", "", Object{}, []cause{invalidValue("patch", string(text), reason)})
}
