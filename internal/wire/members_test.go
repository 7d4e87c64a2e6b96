package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

// What members find in an object of JSON is what encoding/json finds.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{}`, ` {"a":1}`, `{"a":{"b":"}"},"c":["]",[{}]],"d":null}`, `{"a\"b" : "\\" , "\u0061":-1.5e3 ,"":true}`, "{\n\t\"a\"\r:\n[ ]\t}", `{"a":1,"a":"2"}`,
		`null`, `{"\\\\":"\\\""}`, `{"ä":"\ud83d\ude00","b":false}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var raw json.RawMessage
		var want map[string]json.RawMessage
		if json.Unmarshal(data, &raw) != nil || json.Unmarshal(raw, &want) != nil || !utf8.Valid(data) {
			return
		}
		got := map[string]json.RawMessage{}
		for name, value := range Members(raw) {
			got[string(name)] = value
		}
		if len(got) != len(want) {
			t.Fatalf("%q: %q, want %q", data, got, want)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) {
				t.Fatalf("%q: %q is %q, want %q", data, name, got[name], value)
			}
		}
	})
}
