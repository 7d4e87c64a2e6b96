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
