package fakekube

import (
	"crypto/sha512"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// openAPIPath is the root of the schemas. Each version of a group has its own document.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#openapi-v3
const openAPIPath = "/openapi/v3"

// serveOpenAPI answers a request for schemas, and reports whether the request was one.
func (s *Server) serveOpenAPI(r *request, path string) bool {
	group, isDocument := strings.CutPrefix(path, openAPIPath+"/")
	if path != openAPIPath && !isDocument {
		return false
	}
	documents := map[string]any{}
	for _, g := range s.groups() {
		for _, v := range g.versions {
			at := v.kinds[0].path()
			if isDocument && at != group {
				continue
			}
			data, _ := json.Marshal(v.openAPI())
			hash := fmt.Sprintf("%X", sha512.Sum512(data))
			url := openAPIPath + "/" + at + "?hash=" + hash
			if isDocument {
				r.answerOpenAPI(data, hash, url)
				return true
			}
			documents[at] = Object{"serverRelativeURL": url}
		}
	}
	if isDocument {
		r.w.WriteHeader(http.StatusNotFound)
		return true
	}
	r.mediaType = "text/plain; charset=utf-8" // as in the real server's answer, although it is JSON
	r.answer(200, Object{"paths": documents})
	return true
}

// answerOpenAPI answers with a document. A client that names its hash may cache it forever; an outdated hash is
// redirected.
func (r *request) answerOpenAPI(document []byte, hash, url string) {
	if discoveryMediaType(r.Header.Get("Accept"), false) == "" {
		r.w.WriteHeader(http.StatusNotAcceptable)
		return
	}
	header := r.w.Header()
	header.Set("ETag", `"`+hash+`"`)
	header.Set("Vary", "Accept")
	wantedHash := r.query.Get("hash")
	switch {
	case wantedHash != "" && wantedHash != hash:
		header.Set("Content-Type", mediaJSON)
		header.Set("Location", url)
		r.w.WriteHeader(http.StatusMovedPermanently)
		return
	case wantedHash != "":
		header.Set("Cache-Control", "public, immutable")
	}
	if r.Header.Get("If-None-Match") == `"`+hash+`"` {
		r.w.WriteHeader(http.StatusNotModified)
		return
	}
	r.answer(200, json.RawMessage(document))
}

// openAPI returns the document of a version: its paths, and the types of its kinds.
func (v groupVersion) openAPI() Object {
	paths := Object{}
	schemas := Object{}
	for _, k := range v.kinds {
		maps.Copy(paths, k.openAPIPaths())
		if !k.isKnown() {
			schemas[k.schemaName()] = k.openSchema()
			addSchemas(schemas, "ObjectMeta")
			continue
		}
		addSchemas(schemas, k.typ())
		schema, _ := schemas[k.schemaName()].(Object)
		if schema != nil {
			schema["x-kubernetes-group-version-kind"] = k.groupVersionKind()
		}
	}
	return Object{
		"openapi":    "3.0.0",
		"info":       Object{"title": "Kubernetes", "version": "1.35"},
		"paths":      paths,
		"components": Object{"schemas": schemas},
	}
}

// groupVersionKind is the extension that links a schema or an operation to the kind.
func (k kind) groupVersionKind() []any {
	return []any{Object{"group": k.group, "version": k.version, "kind": k.kind}}
}

// schemaName returns the name of the kind's schema in its document.
func (k kind) schemaName() string {
	switch {
	case k.isAdded:
		return schemaNameOf(goPackage(k.group) + "." + k.version + "." + k.kind)
	case !k.isCustom():
		return schemaNameOf(k.typ())
	}
	words := strings.Split(k.group, ".")
	slices.Reverse(words)
	return strings.Join(append(words, k.version, k.kind), ".")
}

// schemaNameOf returns the name of a type's schema. The real server's names also contain the Go package.
func schemaNameOf(typ string) string { return "io.k8s.api." + typ }

func schemaRef(name string) Object { return Object{"$ref": "#/components/schemas/" + name} }

// openAPIPaths returns the paths of a kind with the operations that clients look up. Clients use them to find the
// kind's schema, and to see whether the server validates fields and supports strategic merge patches.
func (k kind) openAPIPaths() Object {
	collection := "/" + k.path()
	var inPath []any
	if k.isNamespaced {
		collection += "/namespaces/{namespace}"
		inPath = append(inPath, parameter("namespace", "path"))
	}
	collection += "/" + k.resource
	create := k.operation("post", k.body(mediaJSON), "dryRun", "fieldManager", "fieldValidation")
	if k.isReview {
		return Object{collection: Object{"post": create, "parameters": inPath}}
	}
	patches := []string{"application/json-patch+json", "application/merge-patch+json"}
	if k.isKnown() { // kubectl would look for merge keys in the schema
		patches = append(patches, "application/strategic-merge-patch+json")
	}
	list := k.operation("list", nil, "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
		"resourceVersionMatch", "sendInitialEvents", "timeoutSeconds", "watch", "allowWatchBookmarks")
	return Object{
		collection: Object{"get": list, "post": create, "parameters": inPath},
		collection + "/{name}": Object{
			"get":        k.operation("get", nil),
			"put":        k.operation("put", k.body(mediaJSON), "dryRun", "fieldManager", "fieldValidation"),
			"patch":      k.operation("patch", k.body(patches...), "dryRun", "fieldManager", "fieldValidation"),
			"delete":     k.operation("delete", nil, "dryRun", "gracePeriodSeconds", "propagationPolicy"),
			"parameters": append(slices.Clone(inPath), parameter("name", "path")),
		},
	}
}

// operation describes one method of a path.
func (k kind) operation(action string, body any, query ...string) Object {
	parameters := []any{}
	for _, name := range query {
		parameters = append(parameters, parameter(name, "query"))
	}
	content := Object{mediaJSON: Object{"schema": schemaRef(k.schemaName())}}
	operation := Object{
		"parameters":                      parameters,
		"responses":                       Object{"200": Object{"description": "OK", "content": content}},
		"x-kubernetes-action":             action,
		"x-kubernetes-group-version-kind": k.groupVersionKind()[0],
	}
	if body != nil {
		operation["requestBody"] = body
	}
	return operation
}

// body describes a request's body in these media types.
func (k kind) body(media ...string) Object {
	content := Object{}
	for _, m := range media {
		content[m] = Object{"schema": schemaRef(k.schemaName())}
	}
	return Object{"content": content}
}

func parameter(name, in string) Object {
	p := Object{"name": name, "in": in, "schema": Object{"type": "string", "uniqueItems": true}}
	if in == "path" {
		p["required"] = true
	}
	return p
}

// openSchema returns the schema of a custom resource, extended by the fields that all objects have. A kind that Serve
// has added may have any other field.
func (k kind) openSchema() Object {
	schema := Clone(objectIn(k.crd, "schema", "openAPIV3Schema"))
	if k.isAdded {
		schema = Object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}
	}
	properties := objectIn(schema, "properties")
	if properties == nil {
		properties = Object{}
		schema["properties"] = properties
	}
	properties["apiVersion"] = Object{"type": "string"}
	properties["kind"] = Object{"type": "string"}
	properties["metadata"] = Object{"allOf": []any{schemaRef(schemaNameOf("ObjectMeta"))}}
	schema["x-kubernetes-group-version-kind"] = k.groupVersionKind()
	return schema
}

// addSchemas adds the schema of a type and of all types that its fields use.
func addSchemas(schemas Object, typ string) {
	name := schemaNameOf(typ)
	if schemas[name] != nil || structs[typ] == nil {
		return
	}
	properties := Object{}
	schema := Object{"type": "object", "properties": properties}
	schemas[name] = schema
	var required []any
	for _, field := range slices.Sorted(maps.Keys(structs[typ])) {
		f := structs[typ][field]
		properties[field] = f.schema()
		if f.isRequired {
			required = append(required, field)
		}
		addSchemas(schemas, innerType(f.typ))
	}
	if len(required) > 0 {
		schema["required"] = required
	}
}

// innerType strips all list and map prefixes from a type.
func innerType(typ string) string {
	for {
		items, isList := strings.CutPrefix(typ, "[]")
		items, isMap := strings.CutPrefix(items, "map[string]")
		if !isList && !isMap {
			return typ
		}
		typ = items
	}
}

// schema returns the schema of a field with its strategic merge extensions.
func (f field) schema() Object {
	schema := schemaOf(f.typ)
	strategy := ""
	switch {
	case f.mergeKey != "":
		strategy = "merge"
		schema["x-kubernetes-patch-merge-key"] = f.mergeKey
		schema["x-kubernetes-list-type"] = "map"
		schema["x-kubernetes-list-map-keys"] = []any{f.mergeKey}
	case f.isSet:
		strategy = "merge"
		schema["x-kubernetes-list-type"] = "set"
	}
	if f.retainsKeys {
		strategy = strings.TrimPrefix(strategy+",retainKeys", ",")
	}
	if strategy != "" {
		schema["x-kubernetes-patch-strategy"] = strategy
	}
	return schema
}

// schemaOf returns the schema of a type.
func schemaOf(typ string) Object {
	if structs[typ] != nil {
		return Object{"allOf": []any{schemaRef(schemaNameOf(typ))}}
	}
	if typ == "[]byte" {
		return Object{"type": "string", "format": "byte"}
	}
	if items, isList := strings.CutPrefix(typ, "[]"); isList {
		return Object{"type": "array", "items": schemaOf(items)}
	}
	if items, isMap := strings.CutPrefix(typ, "map[string]"); isMap {
		return Object{"type": "object", "additionalProperties": schemaOf(items)}
	}
	text := Object{"type": "string"}
	switch typ {
	case "string":
		return text
	case "bool":
		return Object{"type": "boolean"}
	case "int32", "int64":
		return Object{"type": "integer", "format": typ}
	case "float64":
		return Object{"type": "number", "format": "double"}
	case "Time", "MicroTime":
		return Object{"type": "string", "format": "date-time"}
	case "Quantity":
		return Object{"oneOf": []any{text, Object{"type": "number"}}}
	case "IntOrString":
		return Object{"format": "int-or-string", "oneOf": []any{Object{"type": "integer"}, text}}
	}
	return Object{"x-kubernetes-preserve-unknown-fields": true}
}
