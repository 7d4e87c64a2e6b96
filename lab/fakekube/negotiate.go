package fakekube

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Media types that the fake supports.
const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// mediaOfServer lists the media types that a real server offers if it supports none of the client's. The fake does
// not support YAML.
const mediaOfServer = "application/json, application/yaml, application/vnd.kubernetes.protobuf"

// Alternate forms in which clients may ask for objects.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
const (
	viewMetadata     = "PartialObjectMetadata"
	viewMetadataList = "PartialObjectMetadataList"
	viewTable        = "Table"
)

// view is the form in which a client wants objects. The zero view means whole objects.
type view struct {
	kind    string // one of the constants above, or ""
	version string // "v1" or "v1beta1" of meta.k8s.io
}

// apiVersion returns the apiVersion of the form.
func (v view) apiVersion() string { return "meta.k8s.io/" + v.version }

// mediaClause is one clause of an Accept header.
type mediaClause struct {
	media   string
	params  map[string]string
	quality float64 // from 0 to 1
}

// mediaClauses parses an Accept header and returns its clauses in order of preference.
// https://www.rfc-editor.org/rfc/rfc9110#name-accept
func mediaClauses(accept string) []mediaClause {
	var all []mediaClause
	for text := range strings.SplitSeq(accept, ",") {
		parts := strings.Split(strings.ReplaceAll(text, " ", ""), ";")
		clause := mediaClause{media: parts[0], params: map[string]string{}, quality: 1}
		for _, part := range parts[1:] {
			name, value, _ := strings.Cut(part, "=")
			clause.params[name] = value
		}
		if quality, err := strconv.ParseFloat(clause.params["q"], 64); err == nil {
			clause.quality = quality
		}
		all = append(all, clause)
	}
	slices.SortStableFunc(all, func(a, b mediaClause) int { return cmp.Compare(b.quality, a.quality) })
	return all
}

// checkAccept reports whether the client accepts a media type of the real server. If not, it answers 406. For
// built-in kinds, the server checks this first.
func (r *request) checkAccept() bool {
	clauses := mediaClauses(r.Header.Get("Accept"))
	if r.kind.isCustom() || slices.ContainsFunc(clauses, mediaClause.isOfServer) {
		return true
	}
	offered := mediaOfServer
	if r.isForCollection() {
		offered += ", application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
	}
	r.failWith(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "+offered, Object{})
	return false
}

// negotiate chooses the media type and the form of the answer. If the fake supports none that the client accepts, it
// answers 406 and returns false.
func (s *Server) negotiate(r *request) bool {
	for _, clause := range mediaClauses(r.Header.Get("Accept")) {
		if s.serves(r, clause) {
			if clause.media == mediaProtobuf {
				r.mediaType = mediaProtobuf
			}
			r.view = clause.view()
			return true
		}
	}
	r.failWith(406, "NotAcceptable", "only the following media types are accepted: "+mediaOfServer, nil)
	return false
}

// mediaOfStatus chooses the media type of a failure. The server encodes every Status in protobuf, even if the kind of
// the request has no protobuf form.
func mediaOfStatus(accept string) string {
	for _, clause := range mediaClauses(accept) {
		isWhole := clause.params["as"] == ""
		switch {
		case clause.media == mediaProtobuf && isWhole:
			return mediaProtobuf
		case clause.isAny() || clause.media == mediaJSON && isWhole:
			return mediaJSON
		}
	}
	return mediaJSON
}

// isForCollection reports whether the request is a list or a watch.
func (r *request) isForCollection() bool { return r.info.Verb == "list" || r.info.Verb == "watch" }

// isOfServer reports whether a real server supports the media type.
func (c mediaClause) isOfServer() bool {
	switch c.media {
	case "", "*/*", mediaJSON, mediaProtobuf, "application/yaml":
		return true
	}
	return false
}

// isAny reports whether the clause leaves the choice to the server, which then uses JSON.
func (c mediaClause) isAny() bool {
	return c.media == "" || c.media == "*/*" || c.media == "application/*"
}

// view returns the form that the clause asks for.
func (c mediaClause) view() view { return view{c.params["as"], c.params["v"]} }

// serves reports whether the fake can satisfy a clause.
func (s *Server) serves(r *request, c mediaClause) bool {
	isProtobuf := c.media == mediaProtobuf
	isWhole := c.params["as"] == ""
	if isProtobuf && isWhole && !r.kind.hasProtobuf() {
		return false
	}
	if !c.isAny() && !isProtobuf && c.media != mediaJSON {
		return false
	}
	if stream := c.params["stream"]; stream != "" && stream != "watch" {
		return false
	}
	if s.OnlyMediaType != "" && r.isForCollection() && c.media != "" {
		return c.media == s.OnlyMediaType && c.params["as"] == ""
	}
	isKnownVersion := c.params["v"] == "v1" || c.params["v"] == "v1beta1"
	isOfMeta := c.params["g"] == "meta.k8s.io" && isKnownVersion
	switch c.params["as"] {
	case "":
		return true
	case viewMetadata, viewMetadataList:
		return isOfMeta
	case viewTable:
		return isOfMeta && !isProtobuf
	}
	return false
}

// checkListView reports whether a list has the requested form. If not, it answers 406.
func (r *request) checkListView() bool {
	if r.view.kind == viewMetadata {
		r.failWith(406, "NotAcceptable", fmt.Sprintf("you requested %s, but the requested object is a list (%sList)",
			viewMetadata, r.kind.goType()), nil)
		return false
	}
	return true
}

// checkObjectView is checkListView for a single object.
func (r *request) checkObjectView() bool {
	if r.view.kind == viewMetadataList && r.kind.isCustom() {
		r.internalError("content is not a list")
		return false
	}
	if r.view.kind == viewMetadataList {
		r.failWith(406, "NotAcceptable", fmt.Sprintf("you requested %s, but the requested object is not a list (%s)",
			viewMetadataList, r.kind.goType()), nil)
		return false
	}
	return true
}

// goType returns the kind's type in the server's source, which some messages contain.
func (k kind) goType() string {
	if k.isCustom() {
		return "*unstructured.Unstructured"
	}
	name, _, _ := strings.Cut(cmp.Or(k.stored().group, "core"), ".")
	return "*" + name + "." + k.kind
}
