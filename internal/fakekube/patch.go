package fakekube

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"strings"
)

// The media types of patches.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply
const (
	mediaJSONPatch      = "application/json-patch+json"
	mediaMergePatch     = "application/merge-patch+json"
	mediaStrategicPatch = "application/strategic-merge-patch+json"
	mediaApplyPatch     = "application/apply-patch+yaml"
)

// patch answers a PATCH. Server-side apply is refused.
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
	old := s.objects[r.kind.qualified()][r.key]
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

// patchMediaTypes are the media types of patches that the fake takes for objects of the kind.
func (k kind) patchMediaTypes() []string {
	types := []string{mediaJSONPatch, mediaMergePatch}
	if !k.isCustom() {
		types = append(types, mediaStrategicPatch)
	}
	return types
}

// patchMediaType is the media type of a patch. Where the server takes no such patches, it answers so and returns "".
func (r *request) patchMediaType() string {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	types := append(r.kind.patchMediaTypes(), mediaApplyPatch)
	for _, known := range types {
		if err == nil && media == known {
			return media
		}
	}
	if r.kind.isCustom() {
		r.failWith(415, "UnsupportedMediaType", "the body of the request was in an unknown format - accepted media types "+
			"include: "+strings.Join(types, ", "), nil)
		return ""
	}
	r.failWith(415, "UnsupportedMediaType", "415: Unsupported Media Type", Object{})
	return ""
}

// errPatch is that a JSON patch cannot be applied. The server does not say why.
var errPatch = errors.New("the server rejected our request due to an error in our request")

// badPatch is a patch that the server cannot read, a 400.
type badPatch struct{ message string }

func (e badPatch) Error() string { return e.message }

// patchTooLarge is a JSON patch of more operations than the server takes, a 413.
type patchTooLarge struct{ operations int }

func (e patchTooLarge) Error() string {
	return fmt.Sprintf("Request entity too large: The allowed maximum operations in a JSON patch is %d, got %d",
		maxPatchOps, e.operations)
}

// applyPatch is what a patch makes of an object. It is nil where that cannot be, which is answered.
func (r *request) applyPatch(media string, old Object) Object {
	o := Clone(old)
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

// patchObject is an object with a patch applied to it. The object is used up.
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
		return strategicMerge(k.kind, o, patch)
	}
	if patch == nil {
		return nil, badPatch{"Invalid JSON Patch"}
	}
	mergePatch(o, patch)
	return o, nil
}

// patchProblems are the duplicate fields of a patch and, where it is a JSON patch, the unknown ones.
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

// checkPatched is a patched object as it is stored. It is nil where that is none of the request's kind, or where it or the
// patch has fields that the client does not want to be passed over, which is answered. problems are the fields of the
// patch that are duplicate or unknown.
func (r *request) checkPatched(o Object, problems []string) Object {
	text, err := json.Marshal(o)
	if err != nil {
		r.internalError(err.Error())
		return nil
	}
	said := typeMeta{APIVersion: TextIn(o, "apiVersion"), Kind: TextIn(o, "kind")}
	hasType := said.APIVersion != "" || said.Kind != ""
	if hasType && (said.Kind != r.kind.kind || said.APIVersion != r.kind.apiVersion()) {
		r.refusePatched(text, notRegistered(said))
		return nil
	}
	stored, unknown, err := r.kind.toStored(o)
	if err != nil {
		r.refusePatched(text, err.Error())
		return nil
	}
	if !r.kind.isCustom() {
		unknown = strictProblems(text, r.kind.kind)
	}
	problems = append(problems, unknown...)
	if len(problems) > 0 && r.options.fieldValidation == "Strict" {
		r.refusePatched(text, strictError(problems))
		return nil
	}
	r.warn(problems)
	return stored
}

// refusePatched refuses what a patch has made of an object. The server says the whole of it.
func (r *request) refusePatched(text []byte, why string) {
	r.refuseWith("", "", Object{}, []cause{invalidValue("patch", string(text), why)})
}
