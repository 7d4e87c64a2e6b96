package trace

import (
	"bytes"
	"testing"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
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
		"protobuf": fakekube.ProtobufEvent(eventType, fakekube.Protobuf([]byte(object))),
	}
}

func TestMaskHidesWhatMayBeASecretAndKeepsWhatPodcountReads(t *testing.T) {
	for form, frame := range framesOf("MODIFIED", secretPod) {
		t.Run(form, func(t *testing.T) {
			if !bytes.Contains(frame, []byte("hunter2")) {
				t.Fatalf("there is no secret in the frame %q", frame)
			}
			masked := string(Mask(bytes.Clone(frame), form == "protobuf"))
			testkit.WantText(t, masked,
				"MODIFIED", "Pod", "web-1", "shop", "u-1", "77", "app", "web", "applied", "worker-1", "Running", "***")
			for _, secret := range []string{"hunter2", "PASSWORD", "nginx"} {
				if bytes.Contains([]byte(masked), []byte(secret)) {
					t.Errorf("%q is in the masked frame %q", secret, masked)
				}
			}
			if form == "protobuf" {
				testkit.WantNumber(t, "its length", len(masked), len(frame))
			}
		})
	}
}

func TestMaskKeepsTheStatusOfAnError(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"too old resource version","code":410}`
	for form, frame := range framesOf("ERROR", status) {
		masked := Mask(bytes.Clone(frame), form == "protobuf")
		testkit.WantEqual(t, form, string(masked), string(frame))
	}
}

func TestMaskShowsNothingOfAFrameThatItCannotRead(t *testing.T) {
	for form, frame := range framesOf("ADDED", secretPod) {
		for length := range frame[:len(frame)-2] {
			masked := Mask(bytes.Clone(frame[:length]), form == "protobuf")
			if bytes.Contains(masked, []byte("hunter2")) {
				t.Fatalf("%s: of the first %d bytes, it shows %q", form, length, masked)
			}
		}
	}
	if masked := Mask([]byte("hunter2 is no frame"), true); masked != nil {
		t.Errorf("garbage is shown as %q", masked)
	}
}

func FuzzMask(f *testing.F) {
	for form, frame := range framesOf("ADDED", secretPod) {
		f.Add(frame, form == "protobuf")
	}
	f.Fuzz(func(t *testing.T, frame []byte, isProtobuf bool) {
		Mask(bytes.Clone(frame), isProtobuf) // must not panic
	})
}
