package trace

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/protobuf"
	"podcount/lab/testkit"
)

// secretPod has the text hunter2 wherever people put secrets.
const secretPod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web-1","namespace":"shop","uid":"u-1",` +
	`"resourceVersion":"77","labels":{"app":"web"},"annotations":{"applied":"{\"value\":\"hunter2\"}"},` +
	`"managedFields":[{"manager":"hunter2"}]},` +
	`"spec":{"nodeName":"worker-1","containers":[{"name":"web","image":"nginx","args":["--password=hunter2"],` +
	`"env":[{"name":"PASSWORD","value":"hunter2"}]}]},` +
	`"status":{"phase":"Running","message":"hunter2"}}`

// framesOf returns a frame with this object, in JSON and in protobuf.
func framesOf(eventType, object string) map[string][]byte {
	return map[string][]byte{
		"JSON":     []byte(`{"type":"` + eventType + `","object":` + object + "}\n"),
		"protobuf": protobuf.Event(eventType, fakekube.Protobuf([]byte(object))),
	}
}

// maskAs masks the beginning of a frame of this size, in JSON or in protobuf.
func maskAs(form string, head []byte, size int) []byte {
	return maskFrame(head, Step{Type: "MODIFIED", Size: size, IsProtobuf: form == "protobuf"})
}

func TestMaskHidesWhatMayBeASecretAndKeepsWhatPodcountReads(t *testing.T) {
	for form, frame := range framesOf("MODIFIED", secretPod) {
		t.Run(form, func(t *testing.T) {
			if !bytes.Contains(frame, []byte("hunter2")) {
				t.Fatalf("there is no secret in the frame %q", frame)
			}
			before := bytes.Clone(frame)
			masked := string(maskAs(form, frame, len(frame)))
			testkit.WantText(t, masked,
				"MODIFIED", "Pod", "web-1", "shop", "u-1", "77", "app", "web", "applied", "worker-1", "Running", "***")
			for _, secret := range []string{"hunter2", "PASSWORD", "nginx"} {
				if strings.Contains(masked, secret) {
					t.Errorf("%q is in the masked frame %q", secret, masked)
				}
			}
			if form == "protobuf" {
				testkit.WantNumber(t, "its length", len(masked), len(frame))
			}
			testkit.WantEqual(t, "the frame after that", string(frame), string(before))
		})
	}
}

// The trace has only the beginning of a long frame.
func TestMaskHidesTheSameInEachBeginningOfAFrame(t *testing.T) {
	for form, frame := range framesOf("ADDED", secretPod) {
		whole := maskAs(form, frame, len(frame))
		for length := range frame {
			masked := maskAs(form, frame[:length], len(frame))
			if !bytes.HasPrefix(whole, masked) {
				t.Fatalf("%s: of the first %d bytes, it shows %q, which is no beginning of %q", form, length, masked, whole)
			}
			if isMuch := length > len(frame)/2; isMuch && !bytes.Contains(masked, []byte("web-1")) {
				t.Fatalf("%s: of the first %d bytes, it shows only %q", form, length, masked)
			}
		}
	}
}

func TestMaskReadsJSONAsPodcountDoes(t *testing.T) {
	for _, row := range []struct{ name, frame, want string }{
		{
			"any order",
			`{"object":{"status":{"x":"hunter2","phase":"P"},"metadata":{"name":"n"},"kind":"K"},"type":"ADDED"}`,
			`{"object":{"status":{"x":"***","phase":"P"},"metadata":{"name":"n"},"kind":"K"},"type":"ADDED"}`,
		},
		{
			"names that occur twice",
			`{"object":{"spec":{"nodeName":"a"},"spec":{"secret":"hunter2"},"spec":"hunter2"},"object":{"data":"hunter2"}}`,
			`{"object":{"spec":{"nodeName":"a"},"spec":{"secret":"***"},"spec":"***"},"object":{"data":"***"}}`,
		},
		{
			"escapes in names",
			`{"object":{"sp\u0065c":{"nodeN\u0061me":"n","env":"hunter2"},"met\u0061data\u0000":{"name":"hunter2"}}}`,
			`{"object":{"sp\u0065c":{"nodeN\u0061me":"n","env":"***"},"met\u0061data\u0000":"***"}}`,
		},
		{
			"names in other places and cases",
			`{"object":{"spec":{"metadata":{"name":"hunter2"},"a":{"kind":"hunter2"}},"Kind":"hunter2"},"name":"hunter2"}`,
			`{"object":{"spec":{"metadata":"***","a":"***"},"Kind":"***"},"name":"***"}`,
		},
		{
			"other types than podcount expects",
			`{"object":{"metadata":["hunter2"],"spec":"hunter2","status":7,"kind":null}}`,
			`{"object":{"metadata":"***","spec":"***","status":"***","kind":null}}`,
		},
		{
			"values of several parts",
			`{"object":{"metadata":{"labels":{"a":"b","c":""},"finalizers":["f",1e400,true],"managedFields":[{"a":[{}]}]}}}`,
			`{"object":{"metadata":{"labels":{"a":"b","c":""},"finalizers":["f",1e400,true],"managedFields":"***"}}}`,
		},
		{
			"an empty name",
			`{"object":{"metadata":{"annotations":{"":"hunter2"}},"":"hunter2"},"":"hunter2"}`,
			`{"object":{"metadata":{"annotations":{"":"***"}},"":"***"},"":"***"}`,
		},
		{"white space", " {\n\t\"type\" : \"ADDED\" , \"object\" : { } }", `{"type":"ADDED","object":{}}`},
		{"no object", `["hunter2"]`, `"***"`},
		{"brackets that do not match", `{"object":{"metadata":{"labels":[}},"spec":{"env":"hunter2"}}}`, ""},
		{"a comma too many", `{"object":{"metadata":{"labels":{},},"spec":{"env":"hunter2"}}}`, ""},
		{"a bracket that is missing", `{"object":{"metadata":{"labels":{"a":"b","spec":{"env":"x"}},}}`, ""},
		{"a name that is no string", `{"object":{"metadata":{"labels":{7:"b"}}}}`, ""},
		{"a string with a line break", "{\"object\":{\"kind\":\"K\n\"}}", ""},
		{"no colon", `{"object" {"kind":"K"}}`, ""},
		{"no comma", `{"object":{"kind":"K" "spec":{}}}`, ""},
		{"no JSON", "hunter2 ", ""},
		{"no JSON that ends", "hunter2", ""},
		{"a string that does not end", `"hunter2`, `"***"`},
	} {
		testkit.WantEqual(t, row.name, string(maskAs("JSON", []byte(row.frame), len(row.frame))), row.want)
	}
}

func TestMaskKeepsTheStatusOfAnError(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","code":410}`
	for form, frame := range framesOf("ERROR", status) {
		masked := maskFrame(frame, Step{Type: "ERROR", Size: len(frame), IsProtobuf: form == "protobuf"})
		testkit.WantEqual(t, form, string(masked), string(frame))
	}
}

func TestMaskShowsNothingOfAFrameThatItCannotRead(t *testing.T) {
	frame := framesOf("ADDED", secretPod)["protobuf"]
	for length := range frame {
		if masked := maskAs("protobuf", frame[:length], length); masked != nil {
			t.Fatalf("a frame that ends after %d bytes is shown as %q", length, masked)
		}
	}
	if masked := maskAs("protobuf", []byte("hunter2 is no frame"), 19); masked != nil {
		t.Errorf("garbage is shown as %q", masked)
	}
}

func TestMaskIsShort(t *testing.T) {
	labels := `{"l":"` + strings.Repeat("x", 2*ByteLimit) + `"}`
	for form, frame := range framesOf("ADDED", `{"apiVersion":"v1","kind":"Pod","metadata":{"labels":`+labels+`}}`) {
		testkit.WantNumber(t, form, len(maskAs(form, frame, len(frame))), ByteLimit)
	}
}

func FuzzMask(f *testing.F) {
	for form, frame := range framesOf("ADDED", secretPod) {
		f.Add(frame, form == "protobuf", len(frame)/2)
	}
	f.Fuzz(func(t *testing.T, frame []byte, isProtobuf bool, length int) {
		step := Step{Size: len(frame), IsProtobuf: isProtobuf}
		whole := maskFrame(frame, step)
		if !isProtobuf && json.Valid(frame) && len(whole) < ByteLimit && !json.Valid(whole) {
			t.Errorf("%q becomes %q, which is no JSON", frame, whole)
		}
		if length < 0 || length > len(frame) || whole == nil {
			return
		}
		if part := maskFrame(frame[:length], step); !bytes.HasPrefix(whole, part) {
			t.Errorf("%q: its first %d bytes show %q, and all show %q", frame, length, part, whole)
		}
	})
}

// BenchmarkMask measures what a frame with many annotations costs the page.
func BenchmarkMask(b *testing.B) {
	annotations := strings.Repeat(`"annotation":"secret",`, 400) + `"last":""`
	object := `{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{` + annotations + `}}}`
	for form, frame := range framesOf("ADDED", object) {
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				maskAs(form, frame, len(frame))
			}
		})
	}
}
