package fakekube

import (
	"slices"
	"testing"
)

func TestConvertDropsUnknownFields(t *testing.T) {
	for _, c := range []struct{ name, typ, sent, want string }{
		{"unknown fields", "ObjectMeta", `{"name":"a","nope":1}`, `{"name":"a"}`},
		{"what is empty", "ObjectMeta", `{"name":"a","labels":{},"finalizers":[],"uid":"","annotations":null}`,
			`{"name":"a"}`},
		{"an empty object tells something", "Volume", `{"name":"v","emptyDir":{}}`, `{"name":"v","emptyDir":{}}`},
		{"a text may be empty", "LeaseSpec", `{"holderIdentity":""}`, `{"holderIdentity":""}`},
		{"zeros are shown", "DaemonEndpoint", `{}`, `{"Port":0}`},
		{"or are not", "NodeSpec", `{"unschedulable":false}`, `{}`},
		{"no rule is no list", "Role", `{"metadata":{},"rules":[]}`, `{"metadata":{},"rules":null}`},
		{"quantities are texts", "ResourceRequirements", `{"limits":{"cpu":1}}`, `{"limits":{"cpu":"1"}}`},
		{"times are in UTC", "ObjectMeta", `{"creationTimestamp":"2026-01-01T01:00:00+01:00"}`,
			`{"creationTimestamp":"2026-01-01T00:00:00Z"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := convert(c.typ, parsed(c.sent))
			if err != nil {
				t.Fatal(err)
			}
			wantJSON(t, c.sent, got, c.want)
		})
	}
}

func TestConvertRefusesWrongTypesInTheServersWords(t *testing.T) {
	for _, c := range []struct{ sent, want string }{
		{`{"spec":{"containers":"x"}}`,
			"json: cannot unmarshal string into Go struct field PodSpec.spec.containers of type []v1.Container"},
		{`{"spec":{"containers":[{"name":3}]}}`,
			"json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string"},
		{`{"metadata":{"labels":{"a":true}}}`,
			"json: cannot unmarshal bool into Go struct field ObjectMeta.metadata.labels of type string"},
		{`{"spec":{"priority":1.5}}`,
			"json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32"},
		{`{"spec":[]}`, "json: cannot unmarshal array into Go struct field Pod.spec of type v1.PodSpec"},
	} {
		_, err := convert("Pod", parsed(c.sent))
		if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.sent, err, c.want)
		}
	}
}

func TestStrictProblemsAreInOrder(t *testing.T) {
	const body = `{"b":{"c":[1,{"d":1}]},"metadata":{"name":"a","name":"b","labels":{"x":"1","x":"2"},"y":1},` +
		`"spec":{"containers":[{"name":"c"},{"nope":{"name":1}}]}}`
	got := strictProblems([]byte(body), "Pod")
	want := []string{
		`unknown field "b"`,
		`duplicate field "metadata.name"`,
		`duplicate field "metadata.labels.x"`,
		`unknown field "metadata.y"`,
		`unknown field "spec.containers[1].nope"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

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

func TestCombinedSchemasAreValidated(t *testing.T) {
	k := gadget(`{"type":"object","properties":{
		"any":{"anyOf":[{"type":"string"},{"type":"integer"}],"x-kubernetes-int-or-string":true},
		"one":{"type":"integer","oneOf":[{"minimum":5},{"maximum":7}]},
		"all":{"type":"string","allOf":[{"minLength":2},{"pattern":"^a"}]},
		"not":{"type":"string","not":{"enum":["no"]}},
		"step":{"type":"number","multipleOf":0.5,"minimum":0,"exclusiveMinimum":true},
		"few":{"type":"object","maxProperties":1,"x-kubernetes-preserve-unknown-fields":true},
		"ip":{"type":"string","format":"ipv4"},
		"odd":{"type":"string","format":"unheard-of"}}}`)
	for _, c := range []struct {
		value string
		want  []string // refused fields
	}{
		{`{"any":"x","one":3,"all":"ab","not":"yes","step":1.5,"few":{"a":1},"ip":"1.2.3.4","odd":""}`, nil},
		{`{"any":true}`, []string{"any", "<nil>", "any"}},
		{`{"one":6}`, []string{"<nil>"}},
		{`{"all":"b"}`, []string{"all", "all", "<nil>"}},
		{`{"not":"no"}`, []string{"<nil>"}},
		{`{"step":0.2}`, []string{"step"}},
		{`{"step":0}`, []string{"step"}},
		{`{"few":{"a":1,"b":2}}`, []string{"few"}},
		{`{"ip":"::1"}`, []string{"ip"}},
		{`{"odd":[]}`, []string{"odd"}},
	} {
		var got []string
		for _, one := range k.validateBySchema(nil, parsed(c.value).(Object), false) {
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
