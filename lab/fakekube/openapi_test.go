package fakekube

import (
	"regexp"
	"testing"

	"podcount/lab/testkit"
)

// document returns the OpenAPI document of a group's version, such as "api/v1".
func document(t *testing.T, f *Server, groupVersion string) Object {
	t.Helper()
	code, index := ask(t, f, "GET", "/openapi/v3", "")
	if code != 200 {
		t.Fatalf("%d %s", code, index)
	}
	url := TextIn(objectIn(parsed(index).(Object), "paths", groupVersion), "serverRelativeURL")
	code, text := ask(t, f, "GET", url, "")
	if code != 200 {
		t.Fatalf("%s: %d %s", url, code, text)
	}
	return parsed(text).(Object)
}

func TestSchemaReferencesResolve(t *testing.T) {
	f := New()
	defineWidgets(f, withStatus)
	reference := regexp.MustCompile(`"#/components/schemas/([^"]*)"`)
	for _, g := range f.groups() {
		for _, v := range g.versions {
			path := v.kinds[0].path()
			_, text := ask(t, f, "GET", "/openapi/v3/"+path, "")
			schemas := objectIn(parsed(text).(Object), "components", "schemas")
			for _, found := range reference.FindAllStringSubmatch(text, -1) {
				if schemas[found[1]] == nil {
					t.Errorf("%s: no schema %s", path, found[1])
				}
			}
			for _, k := range v.kinds {
				schema := objectIn(schemas, k.schemaName())
				if schema["x-kubernetes-group-version-kind"] == nil {
					t.Errorf("%s: the schema of %s does not say so", path, k.kind)
				}
			}
		}
	}
}

func TestSchemasDescribeListMerging(t *testing.T) {
	schemas := objectIn(document(t, New(), "api/v1"), "components", "schemas")
	containers := objectIn(schemas, schemaNameOf("PodSpec"), "properties", "containers")
	if containers["x-kubernetes-patch-strategy"] != "merge" || containers["x-kubernetes-patch-merge-key"] != "name" {
		t.Errorf("containers: %v", containers)
	}
	volumes := objectIn(schemas, schemaNameOf("PodSpec"), "properties", "volumes")
	if volumes["x-kubernetes-patch-strategy"] != "merge,retainKeys" {
		t.Errorf("volumes: %v", volumes)
	}
}

func TestSchemaOfACustomResource(t *testing.T) {
	f := New()
	schema := `"schema":{"openAPIV3Schema":{"type":"object","properties":{"spec":{"type":"object","properties":` +
		`{"size":{"type":"integer","description":"how large"}}}}}}`
	f.PutJSON("customresourcedefinitions", definition("a.io", "widgets", "Widget",
		`{"name":"v1","served":true,"storage":true,`+schema+`}`))
	widget := objectIn(document(t, f, "apis/a.io/v1"), "components", "schemas", "io.a.v1.Widget", "properties")
	if TextIn(objectIn(widget, "spec", "properties", "size"), "description") != "how large" {
		t.Errorf("%v", widget)
	}
	if objectIn(widget, "metadata") == nil {
		t.Error("it has no metadata")
	}
}

func TestDocumentMayBeKeptForEver(t *testing.T) {
	f := New()
	outdated := serve(f, newRequest("GET", "/openapi/v3/api/v1?hash=OLD", ""))
	answer := serve(f, newRequest("GET", outdated.Header().Get("Location"), ""))
	testkit.WantEqual(t, "Cache-Control", answer.Header().Get("Cache-Control"), "public, immutable")
}
