package fakekube

import (
	"encoding/json"
	"strings"
	"testing"
)

// wantJSON compares a value with JSON text.
func wantJSON(t *testing.T, what string, got any, want string) {
	t.Helper()
	text, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	expected, err := json.Marshal(parsed(want))
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != string(expected) {
		t.Errorf("%s: %s, want %s", what, text, expected)
	}
}

func TestJSONPatchPointers(t *testing.T) {
	const document = `{"a":{"b":1,"~/":2},"l":[1,2,3]}`
	for _, c := range []struct{ name, patch, want string }{
		{"add to an object", `[{"op":"add","path":"/a/c","value":3}]`, `{"a":{"b":1,"c":3,"~/":2},"l":[1,2,3]}`},
		{"escapes", `[{"op":"remove","path":"/a/~0~1"}]`, `{"a":{"b":1},"l":[1,2,3]}`},
		{"insert", `[{"op":"add","path":"/l/1","value":9}]`, `{"a":{"b":1,"~/":2},"l":[1,9,2,3]}`},
		{"append", `[{"op":"add","path":"/l/-","value":9}]`, `{"a":{"b":1,"~/":2},"l":[1,2,3,9]}`},
		{"from the end", `[{"op":"remove","path":"/l/-1"}]`, `{"a":{"b":1,"~/":2},"l":[1,2]}`},
		{"move", `[{"op":"move","from":"/l/0","path":"/a/b"}]`, `{"a":{"b":1,"~/":2},"l":[2,3]}`},
		{"copies are apart", `[{"op":"copy","from":"/a","path":"/c"},{"op":"remove","path":"/c/b"}]`,
			`{"a":{"b":1,"~/":2},"c":{"~/":2},"l":[1,2,3]}`},
		{"a test that holds", `[{"op":"test","path":"/l","value":[1,2,3]}]`, document},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := applyJSONPatch(parsed(document).(Object), []byte(c.patch))
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, c.patch, got, c.want)
		})
	}
	for _, patch := range []string{
		`[{"op":"remove","path":"/a/none"}]`,
		`[{"op":"remove","path":"/l/3"}]`,
		`[{"op":"add","path":"/l/5","value":1}]`,
		`[{"op":"add","path":"/none/b","value":1}]`,
		`[{"op":"replace","path":"/l/x","value":1}]`,
		`[{"op":"test","path":"/a/b","value":2}]`,
		`[{"op":"move","from":"/x/y","path":"/a/b"}]`,
		`[{"op":"swap","path":"/a/b"}]`,
		`[{"op":"add","path":"a","value":1}]`,
		`[{"op":"remove","path":""}]`,
		`[{"op":"remove"}]`,
	} {
		if got, err := applyJSONPatch(parsed(document).(Object), []byte(patch)); err != errPatch {
			t.Errorf("%s made %v, %v", patch, got, err)
		}
	}
}

func TestJSONPatchLimits(t *testing.T) {
	const configMap = "/api/v1/namespaces/default/configmaps/m"
	f := New()
	f.PutJSON("configmaps", `{"metadata":{"namespace":"default","name":"m"}}`)
	doubling := `,{"op":"copy","from":"/metadata/finalizers","path":"/metadata/finalizers/-"}`
	bomb := `[{"op":"add","path":"/metadata/finalizers","value":["a"]}` + strings.Repeat(doubling, 40) + "]"
	wantAnswer(t, f, "PATCH "+configMap, bomb, 422, "the server rejected our request due to an error in our request")
	test := `{"op":"test","path":"/kind","value":"ConfigMap"}`
	long := "[" + strings.Repeat(test+",", maxPatchOps) + test + "]"
	wantAnswer(t, f, "PATCH "+configMap, long, 413,
		"The allowed maximum operations in a JSON patch is 10000, got 10001")
}

func TestStrategicMergePatchesUseMergeKeys(t *testing.T) {
	const (
		a   = `{"name":"a","env":[{"name":"X","value":"1"}]}`
		pod = `{"spec":{"containers":[` + a + `,{"name":"b"}],"tolerations":[{"key":"k"}]}}`
	)
	for _, c := range []struct{ name, patch, want string }{
		{"items by name", `{"spec":{"containers":[{"name":"b","image":"i"}]}}`,
			`{"spec":{"containers":[` + a + `,{"name":"b","image":"i"}],"tolerations":[{"key":"k"}]}}`},
		{"lists in items", `{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"2"},{"name":"Y"}]}]}}`,
			`{"spec":{"containers":[{"name":"a","env":[{"name":"X","value":"2"},{"name":"Y"}]},{"name":"b"}],` +
				`"tolerations":[{"key":"k"}]}}`},
		{"a list without a key", `{"spec":{"tolerations":[{"key":"l"}]}}`,
			`{"spec":{"containers":[` + a + `,{"name":"b"}],"tolerations":[{"key":"l"}]}}`},
		{"deletion and order",
			`{"spec":{"containers":[{"name":"a","$patch":"delete"},{"name":"c"}],"tolerations":null}}`,
			`{"spec":{"containers":[{"name":"c"},{"name":"b"}]}}`},
		{"an order alone", `{"spec":{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"tolerations":null}}`,
			`{"spec":{"containers":[{"name":"b"},` + a + `]}}`},
		{"a whole list", `{"spec":{"containers":[{"$patch":"replace"},{"name":"z"}],"tolerations":null}}`,
			`{"spec":{"containers":[{"name":"z"}]}}`},
		{"keys that stay", `{"spec":{"$retainKeys":["tolerations"]}}`, `{"spec":{"tolerations":[{"key":"k"}]}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := strategicMerge("Pod", parsed(pod).(Object), parsed(c.patch).(Object))
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, c.patch, got, c.want)
		})
	}
}
