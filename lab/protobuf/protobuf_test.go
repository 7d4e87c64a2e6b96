package protobuf

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"podcount/lab/fakekube"
)

func TestObjectIsWhatTheEnvelopeHolds(t *testing.T) {
	pod := fakekube.PodOn(fakekube.Object{"name": strings.Repeat("a", 200), "namespace": "default"}, "n")
	pod["apiVersion"] = "v1"
	pod["kind"] = "Pod"
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	var types, envelope Message
	types.Text(1, "v1")
	types.Text(2, "Pod")
	envelope.Bytes(1, types)
	envelope.Bytes(2, Object(pod))
	envelope.Text(3, "")
	envelope.Text(4, "")
	want := fakekube.Protobuf(text)
	if got := append([]byte("k8s\x00"), envelope...); !bytes.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
