package fakekube

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// list answers a list, or one of its pages.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func (s *Server) list(r *request) {
	options, isValid := r.listOptions()
	if !isValid {
		return
	}
	if options.token != "" {
		s.listFrom(r, options)
		return
	}
	wanted, err := parseVersion(options.versionText)
	if err != nil {
		r.fail(400, "BadRequest", "invalid resource version: "+err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted > uint64(s.version) {
		r.failTooLarge(wanted, s.version)
		return
	}
	if wanted == 0 && options.versionText != "" && r.kind.isCached() {
		options.limit = 0 // the cache answers whatever it has, in one piece
	}
	if !options.wantsExactVersion(wanted) {
		s.pageLocked(r, options, s.version, s.cachedLocked(r), "")
		return
	}
	version := int(wanted)
	if version < s.forgotten {
		r.fail(410, "Expired", "The resourceVersion for the provided list is too old.", nil)
		return
	}
	s.pageLocked(r, options, version, s.objectsAtLocked(r.kind, version), "")
}

// wantsExactVersion reports whether a list is to be as things were at the version. A limit without a match means that,
// too: so it was before there were matches.
func (o listOptions) wantsExactVersion(version uint64) bool {
	if version == 0 {
		return false
	}
	isLegacy := o.match == "" && o.limit > 0
	return o.match == matchExact || isLegacy
}

// listFrom answers with the page that a continue token stands for.
func (s *Server) listFrom(r *request, options listOptions) {
	token, err := parseContinue(options.token)
	if err != nil {
		r.fail(400, "BadRequest", "invalid continue token: "+err.Error(), nil)
		return
	}
	if options.versionText != "" && options.versionText != "0" {
		r.fail(400, "BadRequest", "specifying resource version is not allowed when using continue", nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	version := s.version
	switch {
	case token.RV > int64(s.version):
		r.failTooLarge(uint64(token.RV), s.version)
		return
	case token.RV > 0 && token.RV < int64(s.forgotten):
		r.failExpiredToken(token)
		return
	case token.RV > 0:
		version = int(token.RV)
	}
	if options.versionText == "0" {
		options.limit = 0
	}
	s.pageLocked(r, options, version, s.objectsAtLocked(r.kind, version), token.place())
}

// listMeta is the metadata of a list. https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/
type listMeta struct {
	ResourceVersion    string  `json:"resourceVersion"`
	Continue           *string `json:"continue,omitempty"` // nil is left out, but not ""
	RemainingItemCount int     `json:"remainingItemCount,omitempty"`
}

// pageLocked answers with those of the objects, which were so at a version, that are selected, from a place on: all of
// them, or as many as there may be in a page.
func (s *Server) pageLocked(r *request, options listOptions, version int, all map[Key]Object, from string) {
	found := sorted(all, options.selects)
	place := func(o Object) string {
		if r.key.Namespace != "" {
			return KeyOf(o).Name
		}
		return KeyOf(o).String()
	}
	if from != "" {
		found = slices.DeleteFunc(found, func(o Object) bool { return place(o) < from })
	}
	meta := listMeta{ResourceVersion: strconv.Itoa(version)}
	token := ""
	limit := int(options.limit)
	if limit > 0 && len(found) > limit {
		last := place(found[limit-1])
		next := continueToken{V: continueVersion, RV: int64(version), Start: placeAfter(last)}
		token = next.encoded()
		meta.Continue = &token
		isSelective := r.q.Get("labelSelector")+r.q.Get("fieldSelector") != ""
		if !isSelective {
			meta.RemainingItemCount = len(found) - limit
		}
		found = found[:limit]
	}
	r.items = found
	r.more = token != ""
	r.answerList(meta, found)
}

// sorted is those of the objects that are selected, in the order of etcd's keys.
func sorted(all map[Key]Object, selects func(Object) bool) []Object {
	type placed struct {
		place string
		o     Object
	}
	var found []placed
	for key, o := range all {
		if selects(o) {
			found = append(found, placed{key.String(), o})
		}
	}
	slices.SortFunc(found, func(a, b placed) int { return strings.Compare(a.place, b.place) })
	objects := make([]Object, len(found))
	for i := range found {
		objects[i] = found[i].o
	}
	return objects
}

// objectsAtLocked is the objects of a kind as they were at a version that is not forgotten. They must not be
// changed. What has happened since is undone, the newest first.
func (s *Server) objectsAtLocked(k kind, version int) map[Key]Object {
	then := s.objects[k.qualified()]
	isCopy := false
	for _, c := range slices.Backward(s.history) {
		if c.Version <= version {
			break
		}
		if c.Resource != k.resource || c.Group != k.group {
			continue
		}
		if !isCopy {
			then = maps.Clone(then)
			isCopy = true
		}
		if c.Old == nil {
			delete(then, c.Key())
			continue
		}
		then[c.Key()] = c.Old
	}
	return then
}

// read answers a GET of one object. It is as it is now, which no version of the past changes.
func (s *Server) read(r *request) {
	wanted, err := parseVersion(r.q.Get("resourceVersion"))
	if err != nil {
		r.fail(500, "", err.Error(), nil)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted > uint64(s.version) {
		r.failTooLarge(wanted, s.version)
		return
	}
	o := s.objects[r.kind.qualified()][r.key]
	if o == nil || r.status && !r.kind.hasStatus {
		r.notFound()
		return
	}
	if !r.canShowOne() || r.view.kind == viewTable && !r.canShowTable() {
		return
	}
	r.answer(200, r.show(o, false))
}
