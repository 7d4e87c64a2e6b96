package fakekube

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// continueToken is what a continue token says, in JSON and base64.
type continueToken struct {
	V     string `json:"v"`
	RV    int    `json:"rv"` // the version of the list
	Start string `json:"start"`
}

// list answers a list, or one of its pages. Pages after the first are as things were when the list began, unless the
// history has been compacted meanwhile.
func (s *Server) list(r *request) {
	match := r.selection()
	if match == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted, _ := strconv.Atoi(r.q.Get("resourceVersion")); wanted > s.version {
		r.w.Header().Set("Retry-After", "1")
		message := fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", wanted, s.version)
		r.fail(504, "Timeout", message, Object{
			"causes":            []any{Object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}},
			"retryAfterSeconds": 1,
		})
		return
	}
	if token := r.q.Get("continue"); token != "" {
		s.nextPageLocked(r, token)
		return
	}
	var found []Object
	for _, o := range s.objects[r.kind.qualified()] {
		if match(o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b Object) int { return strings.Compare(KeyOf(a).String(), KeyOf(b).String()) })
	s.pageLocked(r, s.version, found)
}

// nextPageLocked answers with the page that a token of an earlier page stands for.
func (s *Server) nextPageLocked(r *request, token string) {
	text, err := base64.RawStdEncoding.DecodeString(token)
	at := continueToken{}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		r.fail(400, "BadRequest", "invalid continue token: continue key is not valid: "+err.Error(), nil)
		return
	}
	if at.RV < s.forgotten {
		r.fail(410, "Expired", "The provided continue parameter is too old to display a consistent list result. "+
			"You can start a new list without the continue parameter, or use the continue token in this response "+
			"to retrieve the remainder of the results.", nil)
		return
	}
	s.pageLocked(r, at.RV, s.pages[token])
}

// pageLocked answers with the objects of a list at a version, or with as many of them as the request wants in a page.
func (s *Server) pageLocked(r *request, version int, found []Object) {
	meta := struct {
		ResourceVersion    string `json:"resourceVersion"`
		Continue           string `json:"continue,omitempty"`
		RemainingItemCount int    `json:"remainingItemCount,omitempty"`
	}{ResourceVersion: strconv.Itoa(version)}
	limit, _ := strconv.Atoi(r.q.Get("limit"))
	if limit > 0 && len(found) > limit {
		rest := found[limit:]
		found = found[:limit]
		last := KeyOf(found[limit-1]).String()
		text, _ := json.Marshal(continueToken{V: "meta.k8s.io/v1", RV: version, Start: last + "\x00"})
		meta.Continue = base64.RawStdEncoding.EncodeToString(text)
		isSelective := r.q.Get("labelSelector")+r.q.Get("fieldSelector") != ""
		if !isSelective {
			meta.RemainingItemCount = len(rest)
		}
		s.pages[meta.Continue] = rest
	}
	r.items = found
	r.more = meta.Continue != ""

	kind := r.kind.kind + "List"
	apiVersion := r.kind.apiVersion()
	if r.view != "" {
		kind = "PartialObjectMetadataList"
		apiVersion = "meta.k8s.io/v1"
	}
	items := make([]any, len(found))
	for i, o := range found {
		items[i] = r.show(o, true)
	}
	r.answer(200, struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
		Items      []any  `json:"items"`
	}{kind, apiVersion, meta, items})
}

// read answers a GET of one object.
func (s *Server) read(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[r.kind.qualified()][r.key]
	if o == nil || r.status && !r.kind.hasStatus {
		r.notFound()
		return
	}
	r.answer(200, r.show(o, false))
}
