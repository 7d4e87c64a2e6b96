package fakekube

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// list answers a list request, or one of its pages.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
func (s *Server) list(r *request) {
	options := r.listOptions
	selects := r.selector()
	if selects == nil {
		return
	}
	if options.token != "" {
		s.listFrom(r, selects)
		return
	}
	wanted, err := parseVersion(options.versionText)
	if err != nil {
		r.badRequest("invalid resource version: " + err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted > uint64(s.latestVersion) {
		r.failTooLargeVersion(wanted, s.latestVersion)
		return
	}
	p := page{selects: selects, limit: int(options.limit)}
	if wanted == 0 && options.versionText != "" && r.kind.isCached() {
		p.limit = 0 // the cache ignores the limit
	}
	if !options.wantsExactVersion(wanted) {
		p.version = s.latestVersion
		p.objects = s.cachedLocked(r)
		r.answerPage(p)
		return
	}
	p.version = int(wanted)
	if p.version < s.compactedVersion {
		r.failWith(410, "Expired", "The resourceVersion for the provided list is too old.", nil)
		return
	}
	p.objects = s.objectsAtLocked(r.kind, p.version)
	r.answerPage(p)
}

// wantsExactVersion reports whether the list must show the objects as they were at the version. A limit without a
// resourceVersionMatch also asks for that, because it did so before that parameter existed.
func (o listOptions) wantsExactVersion(version uint64) bool {
	if version == 0 {
		return false
	}
	isLegacy := o.match == "" && o.limit > 0
	return o.match == matchExact || isLegacy
}

// listFrom answers with the page of a continue token.
func (s *Server) listFrom(r *request, selects func(Object) bool) {
	options := r.listOptions
	token, err := parseContinue(options.token)
	if err != nil {
		r.badRequest("invalid continue token: " + err.Error())
		return
	}
	if options.versionText != "" && options.versionText != "0" {
		r.badRequest("specifying resource version is not allowed when using continue")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := page{version: s.latestVersion, selects: selects, start: token.startKey(), limit: int(options.limit)}
	switch {
	case token.RV > int64(s.latestVersion):
		r.failTooLargeVersion(uint64(token.RV), s.latestVersion)
		return
	case token.RV > 0 && token.RV < int64(s.compactedVersion):
		r.failExpiredToken(token)
		return
	case token.RV > 0:
		p.version = int(token.RV)
	}
	if options.versionText == "0" {
		p.limit = 0
	}
	p.objects = s.objectsAtLocked(r.kind, p.version)
	r.answerPage(p)
}

// listMeta is the metadata of a list.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/list-meta/
type listMeta struct {
	ResourceVersion    string  `json:"resourceVersion,omitempty"`
	Continue           *string `json:"continue,omitempty"` // nil is left out, "" is not
	RemainingItemCount int     `json:"remainingItemCount,omitempty"`
}

// page selects the objects of a list or of one of its pages.
type page struct {
	version int            // resourceVersion of the list
	objects map[Key]Object // all objects of the kind at that version
	selects func(Object) bool
	start   string // continue key of the first object; "" for the first page
	limit   int    // maximum number of objects; no limit if it is 0 or less
}

// answerPage answers with a page and, if more objects follow, with a token for the next one. The caller holds the
// lock.
func (r *request) answerPage(p page) {
	found := selectedInOrder(p.objects, p.selects)
	if p.start != "" {
		found = slices.DeleteFunc(found, func(o Object) bool { return r.continueKeyOf(o) < p.start })
	}
	meta := listMeta{ResourceVersion: strconv.Itoa(p.version)}
	r.hasMore = p.limit > 0 && len(found) > p.limit
	if r.hasMore {
		last := r.continueKeyOf(found[p.limit-1])
		token := continueToken{V: continueVersion, RV: int64(p.version), Start: continueKeyAfter(last)}.encoded()
		meta.Continue = &token
		isSelective := r.query.Get("labelSelector") != "" || r.query.Get("fieldSelector") != ""
		if !isSelective {
			meta.RemainingItemCount = len(found) - p.limit
		}
		found = found[:p.limit]
	}
	r.items = found
	r.answerList(meta, found)
}

// continueKeyOf returns an object's position in a list: its key, without the namespace if the request is for only
// one.
func (r *request) continueKeyOf(o Object) string {
	if r.key.Namespace != "" {
		return KeyOf(o).Name
	}
	return KeyOf(o).String()
}

// selectedInOrder returns the selected objects in the order of their keys in etcd.
func selectedInOrder(all map[Key]Object, selects func(Object) bool) []Object {
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

// objectsAtLocked returns the objects of a kind as they were at a version that has not been compacted. It undoes
// later changes, newest first. The caller must not modify the map.
func (s *Server) objectsAtLocked(k kind, version int) map[Key]Object {
	then := s.objects[k.place()]
	isCopy := false
	for _, c := range slices.Backward(s.history) {
		if c.Version <= version {
			break
		}
		if !k.hasChanged(c) {
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

// read answers a GET of one object with its current state, even if the request names an older version.
func (s *Server) read(r *request) {
	if r.rejectInvalidName() {
		return
	}
	wanted, err := parseVersion(r.query.Get("resourceVersion"))
	switch {
	case err != nil && r.kind.isCached():
		r.internalError(err.Error())
		return
	case err != nil:
		r.badRequest("invalid resource version: " + err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if wanted > uint64(s.latestVersion) {
		r.failTooLargeVersion(wanted, s.latestVersion)
		return
	}
	o := s.objects[r.kind.place()][r.key]
	if o == nil || r.isStatus && !r.kind.hasStatus {
		r.notFound()
		return
	}
	if !r.checkObjectView() || r.view.kind == viewTable && !r.checkTableParameters() {
		return
	}
	r.answer(200, r.render(o, false))
}
