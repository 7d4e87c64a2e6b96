package fakekube

import (
	"compress/gzip"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// The media types that the fake knows.
const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// negotiate picks the first media type of Accept that the fake can answer.
func (s *Server) negotiate(r *request) bool {
	isCollection := r.key.Name == ""
	hasProtobuf := isCollection && (r.kind.resource == "pods" || r.kind.resource == "nodes")
	for clause := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, params, _ := strings.Cut(strings.ReplaceAll(clause, " ", ""), ";")
		as := ""
		for _, param := range strings.Split(params, ";") {
			if value, found := strings.CutPrefix(param, "as="); found {
				as = value
			}
		}
		switch media {
		case "", "*/*", mediaJSON:
		case mediaProtobuf:
			if !hasProtobuf {
				continue
			}
		default:
			continue
		}
		if as != "" && !strings.HasPrefix(as, "PartialObjectMetadata") {
			continue
		}
		if s.OnlyMediaType != "" && isCollection && media != "" && (media != s.OnlyMediaType || as != "") {
			continue
		}
		if media == mediaProtobuf {
			r.media = mediaProtobuf
		}
		if as != "" {
			r.view = "PartialObjectMetadata"
		}
		return true
	}
	r.fail(406, "NotAcceptable", "only the following media types are accepted: application/json", Object{})
	return false
}

// show is the object as the request wants to see it. The items of a list are bare: they say neither kind nor version,
// unless they are PartialObjectMetadata.
func (r *request) show(o Object, isBare bool) any {
	if r.view != "" {
		return struct {
			Kind       string `json:"kind,omitempty"`
			APIVersion string `json:"apiVersion,omitempty"`
			Metadata   any    `json:"metadata"`
		}{"PartialObjectMetadata", "meta.k8s.io/v1", o["metadata"]}
	}
	shown := maps.Clone(o)
	delete(shown, "kind")
	delete(shown, "apiVersion")
	if !isBare {
		shown["kind"] = r.kind.kind
		shown["apiVersion"] = r.kind.apiVersion()
	}
	return shown
}

// answerList answers with the items of a list.
func (r *request) answerList(meta listMeta, items []Object) {
	kind := r.kind.kind + "List"
	apiVersion := r.kind.apiVersion()
	if r.view != "" {
		kind = "PartialObjectMetadataList"
		apiVersion = "meta.k8s.io/v1"
	}
	shown := make([]any, len(items))
	for i, o := range items {
		shown[i] = r.show(o, true)
	}
	r.answer(200, struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   listMeta `json:"metadata"`
		Items      []any    `json:"items"`
	}{kind, apiVersion, meta, shown})
}

// answer sets what will be sent once the handler, which may hold the lock, has returned.
func (r *request) answer(code int, body any) {
	r.code = code
	r.reply, _ = json.Marshal(body)
}

// encoded is the answer in the media type that was agreed on.
func (r *request) encoded() []byte {
	if r.media == mediaProtobuf {
		return Protobuf(r.reply)
	}
	return r.reply
}

// gzipFrom is the size from which on the server compresses an answer, for a client that understands that.
const gzipFrom = 128 << 10

// send sends the answer.
func (r *request) send() {
	data := r.encoded()
	r.w.Header().Set("Content-Type", r.media)
	if len(data) > gzipFrom && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		r.w.Header().Set("Content-Encoding", "gzip")
		r.w.WriteHeader(r.code)
		z := gzip.NewWriter(r.w)
		defer z.Close()
		z.Write(data)
		return
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	r.w.WriteHeader(r.code)
	if r.Method != http.MethodHead {
		r.w.Write(data)
	}
}
