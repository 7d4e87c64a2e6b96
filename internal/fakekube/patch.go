package fakekube

import (
	"encoding/json"
)

// patch answers a PATCH. A strategic merge patch is taken for a merge patch.
func (s *Server) patch(r *request) {
	if !r.readOptions("PatchOptions") {
		return
	}
	media := r.Header.Get("Content-Type")
	if media != "application/merge-patch+json" && media != "application/strategic-merge-patch+json" {
		r.fail(415, "UnsupportedMediaType", "415: Unsupported Media Type", Object{})
		return
	}
	var patch Object
	if err := json.Unmarshal(r.body, &patch); err != nil {
		r.fail(400, "BadRequest", "error decoding patch: "+err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objects[r.kind.qualified()][r.key]
	if old == nil || r.status && !r.kind.hasStatus {
		r.notFound()
		return
	}
	o := Clone(old)
	mergePatch(o, patch)
	o, _, err := r.kind.stored(o)
	if err != nil {
		r.badRequest(err.Error())
		return
	}
	if !r.isNamedAsInPath(o) || !r.isInNamespaceOfPath(o) {
		return
	}
	s.writeLocked(r, old, o)
}
