package fakekube

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"net/http"
	"strconv"
	"strings"
)

// partialMetadata shows only the metadata of an object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
type partialMetadata struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   any    `json:"metadata"`
}

// render returns an object in the requested form. isBare is for items of a list, which do not repeat kind and
// apiVersion if the kind is built in.
func (r *request) render(o Object, isBare bool) any {
	switch r.view.kind {
	case viewMetadata, viewMetadataList:
		return r.renderMetadata(o)
	case viewTable:
		version := TextIn(MetaOf(o), "resourceVersion")
		return r.tableOf(listMeta{ResourceVersion: version}, []Object{o})
	}
	shown := maps.Clone(r.kind.shown(o))
	delete(shown, "kind")
	delete(shown, "apiVersion")
	if !isBare || r.kind.isCustom() {
		shown["kind"] = r.kind.kind
		shown["apiVersion"] = r.kind.apiVersion()
	}
	return shown
}

// renderMetadata returns only the metadata of an object.
func (r *request) renderMetadata(o Object) any {
	return partialMetadata{viewMetadata, r.view.apiVersion(), o["metadata"]}
}

// answerList answers with the items of a list.
func (r *request) answerList(meta listMeta, items []Object) {
	if !r.checkListView() {
		return
	}
	if r.view.kind == viewTable {
		if r.checkTableParameters() {
			r.answer(200, r.tableOf(meta, items))
		}
		return
	}
	kind := r.kind.kind + "List"
	apiVersion := r.kind.apiVersion()
	if r.view.kind != "" {
		kind = viewMetadataList
		apiVersion = r.view.apiVersion()
	}
	if r.view.kind == "" && r.kind.isCustom() && meta.Continue == nil {
		meta.Continue = new(string) // the server has no Go type for these lists that would omit it
	}
	if r.mediaType == mediaProtobuf {
		r.code = 200
		typ := typeOfKind(apiVersion, strings.TrimSuffix(kind, "List"))
		r.replyProtobuf = protobufAnswer(apiVersion, kind, protobufList(typ, meta, r.kind.allShown(items)))
		if r.spy == nil {
			return // only a spy needs it in JSON
		}
	}
	shown := make([]any, len(items))
	for i, o := range items {
		shown[i] = r.render(o, true)
	}
	if len(items) == 0 && r.view.kind != "" {
		shown = nil // null, as in the server's answer; a list of whole objects has []
	}
	r.answer(200, struct {
		Kind       string   `json:"kind"`
		APIVersion string   `json:"apiVersion"`
		Metadata   listMeta `json:"metadata"`
		Items      []any    `json:"items"`
	}{kind, apiVersion, meta, shown})
}

// answer sets the answer, which is sent after the handler has returned and released the lock. A failure has a media
// type of its own.
func (r *request) answer(code int, body any) {
	r.code = code
	if code >= 400 {
		r.mediaType = mediaOfStatus(r.Header.Get("Accept"))
	}
	reply, err := json.Marshal(body)
	if err != nil {
		panic(err) // cannot happen: stored objects come from JSON
	}
	r.replyJSON = reply
}

// encoded returns the answer in the negotiated media type.
func (r *request) encoded() []byte {
	if r.replyProtobuf != nil {
		return r.replyProtobuf
	}
	if r.mediaType == mediaProtobuf {
		return Protobuf(r.replyJSON)
	}
	if !r.isForPeople() {
		return r.replyJSON
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, r.replyJSON, "", "  "); err != nil {
		return r.replyJSON
	}
	return pretty.Bytes()
}

// isForPeople reports whether to indent the answer for a human reader: the parameter pretty says so, or the client is
// a browser or a command-line tool.
func (r *request) isForPeople() bool {
	if r.query.Has("pretty") {
		pretty, err := strconv.ParseBool(r.query.Get("pretty"))
		return err == nil && pretty
	}
	for _, program := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(r.UserAgent(), program) {
			return true
		}
	}
	return false
}

// gzipFrom is the size in bytes above which the server compresses answers.
const gzipFrom = 128 << 10

// acceptsGzip reports whether the client accepts compressed answers. Like the server, it ignores clauses with a
// quality.
func (r *request) acceptsGzip() bool {
	for clause := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		if strings.TrimSpace(clause) == "gzip" {
			return true
		}
	}
	return false
}

// payload returns the bytes to send, and whether they are compressed. Like the server, it prefers speed to size.
func (r *request) payload() (data []byte, isCompressed bool) {
	data = r.encoded()
	if len(data) <= gzipFrom || !r.acceptsGzip() {
		return data, false
	}
	var compressed bytes.Buffer
	z, err := gzip.NewWriterLevel(&compressed, gzip.BestSpeed)
	if err != nil {
		panic(err) // cannot happen: the level is valid
	}
	z.Write(data)
	z.Close()
	return compressed.Bytes(), true
}

// send sends the answer.
func (r *request) send() {
	data, isCompressed := r.payload()
	r.w.Header().Set("Content-Type", r.mediaType)
	if isCompressed {
		r.w.Header().Set("Content-Encoding", "gzip")
		r.w.Header().Set("Vary", "Accept-Encoding")
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	r.w.WriteHeader(r.code)
	if r.Method != http.MethodHead {
		r.w.Write(data)
	}
}
