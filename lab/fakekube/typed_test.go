package fakekube

import (
	"slices"
	"testing"
)

// gadget returns a kind with this schema in JSON.
func gadget(schema string) kind {
	version := Object{"schema": Object{"openAPIV3Schema": parsed(schema)}}
	return kind{group: "a.io", kind: "Gadget", resource: "gadgets", crd: version, installation: 1}
}

func TestSchemaPrunesAndDefaultsCustomResources(t *testing.T) {
	k := gadget(`{"type":"object","properties":{
		"kept":{"type":"object","x-kubernetes-preserve-unknown-fields":true},
		"set":{"type":"object","properties":{
			"color":{"type":"string","default":"red"},"n":{"type":"string","nullable":true}}},
		"map":{"type":"object","additionalProperties":
			{"type":"object","properties":{"x":{"type":"integer","default":1}}}},
		"list":{"type":"array","items":{"type":"object","properties":{"y":{"type":"integer"}}}}}}`)
	sent := parsed(`{"metadata":{"name":"a","odd":1},"kept":{"any":1},"set":{"n":null,"color":null},"map":{"k":{"z":1}},
		"list":[{"y":1,"z":2}],"gone":1}`).(Object)
	got, unknown, err := k.toStored(sent)
	if err != nil {
		t.Fatal(err)
	}
	wantJSON(t, "what is stored", got, `{"metadata":{"name":"a"},"kept":{"any":1},"set":{"n":null,"color":"red"},`+
		`"map":{"k":{"x":1}},"list":[{"y":1}]}`)
	want := []string{
		`unknown field "metadata.odd"`,
		`unknown field "gone"`,
		`unknown field "list[0].z"`,
		`unknown field "map.k.z"`,
	}
	if !slices.Equal(unknown, want) {
		t.Errorf("%q, want %q", unknown, want)
	}
}

func TestCustomResourcesAreValidatedByTheirSchema(t *testing.T) {
	k := gadget(`{"type":"object","properties":{
		"step":{"type":"number","multipleOf":0.5,"minimum":0,"exclusiveMinimum":true},
		"few":{"type":"object","maxProperties":1,"x-kubernetes-preserve-unknown-fields":true},
		"list":{"type":"array","maxItems":1,"items":{"type":"string","pattern":"^a"}}}}`)
	for _, c := range []struct {
		value string
		want  []string // refused fields
	}{
		{`{"step":1.5,"few":{"b":1},"list":["ab"]}`, nil},
		{`{"step":0.2}`, []string{"step"}},
		{`{"step":0}`, []string{"step"}},
		{`{"few":{"a":1,"b":2}}`, []string{"few"}},
		{`{"list":["ab","b"]}`, []string{"list", "list[1]"}},
	} {
		var got []string
		for _, one := range k.validateBySchema(parsed(c.value).(Object), false) {
			got = append(got, one.field)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: refused are %q, want %q", c.value, got, c.want)
		}
	}
}

func TestDefaultsForPutObjectsAreNotAChange(t *testing.T) {
	const pod = "/api/v1/namespaces/default/pods/p"
	f := New()
	f.AddPod("default", "p", "n")
	f.AddNode("n")
	before := f.Latest()
	wantAnswer(t, f, "PATCH "+pod, `{"metadata":{"labels":{"app":"web"}}}`, 200, "")
	wantAnswer(t, f, "PATCH /api/v1/nodes/n", `{}`, 200, "")
	if f.Latest() != before {
		t.Errorf("patches that say nothing new made version %d of %d", f.Latest(), before)
	}
	wantAnswer(t, f, "PATCH "+pod, `{"metadata":{"labels":{"app":"db"}}}`, 200, `"generation":1`)
	wantAnswer(t, f, "PATCH "+pod, `{"spec":{"activeDeadlineSeconds":5}}`, 200, `"generation":2`)
	wantAnswer(t, f, "PATCH "+pod, `{"spec":{"nodeName":"m"}}`, 422, "pod updates may not change fields")
}
