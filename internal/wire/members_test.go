package wire

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
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
			t.Fatalf("%q: %q, want %q", data, got, want)
		}
		for name, value := range want {
			if !bytes.Equal(got[name], value) {
				t.Fatalf("%q: %q is %q, want %q", data, name, got[name], value)
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
		if err := text.Read([]byte(c.value), "metadata.name"); err != nil || string(text) != c.want {
			t.Errorf("%s: %q, %v", c.value, text, err)
		}
	}
	text = Text("before")
	err := text.Read([]byte(`7`), "metadata.name")
	want := "json: cannot unmarshal number into Go struct field item.metadata.name of type string"
	if err == nil || err.Error() != want || string(text) != "before" {
		t.Errorf("%q, %v", text, err)
	}
}

func TestTextUsesItsMemoryAgain(t *testing.T) {
	var text Text
	value := []byte(`"some name of an object"`)
	allocations := testing.AllocsPerRun(10, func() {
		text = text[:0]
		text.Read(value, "metadata.name")
	})
	if allocations > 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func TestWantObjectTakesAnObjectOrNull(t *testing.T) {
	for value, want := range map[string]string{
		`{"a":1}`: "",
		`null`:    "",
		`[]`:      "json: cannot unmarshal array into Go struct field item.spec of type struct {}",
		`"{}"`:    "json: cannot unmarshal string into Go struct field item.spec of type struct {}",
	} {
		err := WantObject([]byte(value), "spec")
		if want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("%s: %v, want %q", value, err, want)
		}
	}
}

func TestRawIsWrittenUnchanged(t *testing.T) {
	type status struct {
		Count   Raw `json:"count,omitempty"`
		Healthy Raw `json:"healthy,omitempty"`
	}
	text, err := json.Marshal(status{Count: RawOf([]byte(`"3"`)), Healthy: RawOf([]byte(`null`))})
	if err != nil || string(text) != `{"count":"3"}` {
		t.Errorf("%s, %v", text, err)
	}
}

func TestMembersStopsWhenItsCallerDoes(t *testing.T) {
	n := 0
	for range Members([]byte(`{"a":1,"b":2}`)) {
		n++
		break
	}
	if n != 1 {
		t.Errorf("%d members", n)
	}
}
