package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"
	"unicode/utf8"

	"podcount/lab/testkit"
)

// EachMember finds the same members as encoding/json.
func FuzzEachMember(f *testing.F) {
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
		err := EachMember(raw, "", func(name, value []byte) error {
			got[string(name)] = value
			return nil
		})
		testkit.WantError(t, "EachMember", err, "")
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

func TestMembersAreThoseOfAnObjectOrNull(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1}`: "",
		`null`:    "",
		`[]`:      "json: cannot unmarshal array into Go struct field item.spec of type struct {}",
		`"{}"`:    "json: cannot unmarshal string into Go struct field item.spec of type struct {}",
	} {
		err := EachMember([]byte(value), "spec", func(_, _ []byte) error { return nil })
		testkit.WantError(t, value, err, want)
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

func TestErrorOfTheCallerEndsTheMembers(t *testing.T) {
	full := errors.New("full")
	n := 0
	err := EachMember([]byte(`{"a":1,"b":2}`), "", func(_, _ []byte) error {
		n++
		return full
	})
	testkit.WantEqual(t, "error", err, full)
	testkit.WantNumber(t, "members", n, 1)
}
