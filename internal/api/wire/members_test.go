package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"

	"podcount/lab/testkit"
)

// Members finds the same members as encoding/json.
func FuzzMembers(f *testing.F) {
	for _, text := range []string{
		`{}`,
		` {"a":1}`,
		`{"a":{"b":"}"},"c":["]",[{}]],"d":null}`,
		`{"a\"b" : "\\" , "\u0061":-1.5e3 ,"":true}`,
		"{\n\t\"a\"\r:\n[ ]\t}",
		`{"a":1,"a":"2"}`,
		`null`,
		`{"\\\\":"\\\""}`,
		`{"ä":"\ud83d\ude00","b":false}`,
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
			t.Fatalf("%q: got %q, want %q", data, got, want)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) {
				t.Fatalf("%q: member %q: got %q, want %q", data, name, got[name], value)
			}
		}
	})
}

func TestTextReadsOnlyStrings(t *testing.T) {
	var text Text
	for _, c := range []struct{ value, want string }{
		{`"plain"`, "plain"},
		{`"an \"escape\" \u00e4"`, `an "escape" ä`},
		{"\"not UTF-8: \xff\"", "not UTF-8: \ufffd"},
		{`null`, "not UTF-8: \ufffd"},
		{`""`, ""},
	} {
		testkit.WantError(t, c.value, text.Read([]byte(c.value), "metadata.name"), "")
		testkit.WantEqual(t, c.value, string(text), c.want)
	}
	text = Text("before")
	err := text.Read([]byte(`7`), "metadata.name")
	testkit.WantError(t, "a number", err,
		"json: cannot unmarshal number into Go struct field item.metadata.name of type string")
	testkit.WantEqual(t, "text after a number", string(text), "before")
}

func TestTextUsesItsMemoryAgain(t *testing.T) {
	var text Text
	value := []byte(`"some name of an object"`)
	allocations := testing.AllocsPerRun(10, func() {
		text = text[:0]
		text.Read(value, "metadata.name")
	})
	testkit.WantEqual(t, "allocations", allocations, 0)
}

func TestWantObjectTakesAnObjectOrNull(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1}`: "",
		`null`:    "",
		`[]`:      "json: cannot unmarshal array into Go struct field item.spec of type struct {}",
		`"{}"`:    "json: cannot unmarshal string into Go struct field item.spec of type struct {}",
	} {
		testkit.WantError(t, value, WantObject([]byte(value), "spec"), want)
	}
}

func TestRawIsWrittenUnchanged(t *testing.T) {
	type status struct {
		Count   Raw `json:"count,omitempty"`
		Healthy Raw `json:"healthy,omitempty"`
	}
	text, err := json.Marshal(status{Count: RawOf([]byte(`"3"`)), Healthy: RawOf([]byte(`null`))})
	testkit.WantError(t, "Marshal", err, "")
	testkit.WantEqual(t, "JSON", string(text), `{"count":"3"}`)
}

func TestMembersStopsWhenItsCallerDoes(t *testing.T) {
	for range Members([]byte(`{"a":1,"b":2}`)) {
		break // A second member would make the loop panic.
	}
}
