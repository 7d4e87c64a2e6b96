package object

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
	"podcount/lab/fakekube"
	"podcount/lab/protobuf"
)

// FuzzDecodeList checks that a list that is accepted has the objects that encoding/json finds in it.
func FuzzDecodeList(f *testing.F) {
	addRecordings(f, "list-*.txt")
	f.Add([]byte(`{"metadata":{"resourceVersion":"5"},"items":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []*Pod
		keepAll := func(p *Pod, metadata objectmeta.Draft) (kept bool, err error) {
			p.Metadata = metadata.Keep()
			got = append(got, p)
			return true, nil
		}
		meta, err := NewDecoder(podKind("app")).List(bytes.NewReader(data), false, keepAll)
		if err != nil || mayDifferFromEncodingJSON(data, len(got)) {
			return
		}
		wantMeta, want := unmarshalList(t, data)
		if len(got) != len(want) || meta != wantMeta {
			t.Fatalf("%q: %d objects, %+v; want %d, %+v", data, len(got), meta, len(want), wantMeta)
		}
		for i, p := range got {
			m := want[i].Metadata
			isEqual := p.Key() == Key{Namespace: m.Namespace, Name: m.Name} &&
				p.UID() == m.UID &&
				p.ResourceVersion() == m.ResourceVersion &&
				p.NodeName == want[i].Spec.NodeName &&
				labelsOf(p)["app"] == m.Labels["app"]
			if !isEqual || p.UID() == "" {
				t.Fatalf("%q: item %d is %+v, want %+v", data, i, p, want[i])
			}
		}
	})
}

// addRecordings adds the bodies of recorded answers to the seeds of a fuzz test.
func addRecordings(f *testing.F, pattern string) {
	files, _ := filepath.Glob("../../../testdata/transcripts/" + pattern)
	for _, file := range files {
		f.Add(recording(f, filepath.Base(file)))
	}
}

// mayDifferFromEncodingJSON reports whether a list of n objects has names that encoding/json reads differently: with
// escapes, in another case, or twice.
func mayDifferFromEncodingJSON(list []byte, n int) bool {
	return bytes.ContainsRune(list, '\\') ||
		hasNamesInOtherCases(list) ||
		bytes.Count(list, []byte(`"items"`)) != 1 ||
		bytes.Count(list, []byte(`"metadata"`)) != 1+n
}

// hasNamesInOtherCases reports whether JSON has names that differ only in case from those that the decoder reads.
// encoding/json reads them too.
func hasNamesInOtherCases(data []byte) bool {
	folded := bytes.ToLower(data)
	for _, name := range []string{
		"metadata", "items", "namespace", "name", "uid", "resourceVersion", "continue", "labels", "spec", "nodeName",
	} {
		if bytes.Count(folded, []byte(strings.ToLower(name))) != bytes.Count(data, []byte(name)) {
			return true
		}
	}
	return bytes.ContainsAny(data, "\u017f\u212a") // Unicode folds these to s and k
}

// unmarshalledPod is a pod as encoding/json reads it.
type unmarshalledPod struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		Labels                                map[string]string
	}
	Spec struct{ NodeName string }
}

// unmarshalList reads a list of pods with encoding/json.
func unmarshalList(t *testing.T, data []byte) (meta wire.ListMeta, pods []unmarshalledPod) {
	t.Helper()
	var fields map[string]json.RawMessage
	err := json.NewDecoder(bytes.NewReader(data)).Decode(&fields)
	if err == nil {
		err = json.Unmarshal(fields["items"], &pods)
	}
	if err == nil {
		err = json.Unmarshal(fields["metadata"], &meta)
	}
	if err != nil {
		t.Fatalf("%q is accepted, but encoding/json refuses it: %v", data, err)
	}
	return meta, pods
}

// FuzzDecodeProtobuf checks that protobuf never causes a panic, and that its result does not depend on the size of the
// reads.
func FuzzDecodeProtobuf(f *testing.F) {
	addRecordings(f, "*.pb")
	for _, row := range hostileLists() {
		f.Add([]byte(row.body[:min(len(row.body), 1000)]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		whole, wholeMeta, wholeErr := decoded(data, true, podKind("app"))
		oneByOne := iotest.OneByteReader(bytes.NewReader(data))
		bytewise, bytewiseMeta, bytewiseErr := decodedBy(NewDecoder(podKind("app")), oneByOne, true, true)
		isEqual := slices.Equal(whole, bytewise) &&
			wholeMeta == bytewiseMeta &&
			fmt.Sprint(wholeErr) == fmt.Sprint(bytewiseErr)
		if !isEqual {
			t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, whole, wholeErr, bytewise, bytewiseErr)
		}
		wantSameEventsBytewise(t, data, true)
		wire.ParseStatus(data, true)
	})
}

// FuzzProtobufIsJSON checks that an object is the same in protobuf and in JSON, and that unknown fields in protobuf
// change nothing.
func FuzzProtobufIsJSON(f *testing.F) {
	f.Add("web-0", "default", "0ec2e3b2-7f91-43e4-b6d9-308f8d87f73d", "217", "app", "nginx", "node-1",
		[]byte("\x1a\x00"))
	f.Add("node-1", "", "u", "9", "node-role.kubernetes.io/control-plane", "", "", []byte{})
	f.Fuzz(func(t *testing.T, name, namespace, uid, version, label, value, node string, unknown []byte) {
		for _, s := range []string{name, namespace, uid, version, label, value, node} {
			if !utf8.ValidString(s) || len(s) > 1000 {
				return // JSON cannot express the first, and protobuf refuses the second
			}
		}
		meta := fakekube.Object{
			"name":            name,
			"namespace":       namespace,
			"uid":             uid,
			"resourceVersion": version,
			"labels":          fakekube.Object{label: value, "app": "x"},
		}
		pod := fakekube.Object{"metadata": meta, "spec": fakekube.Object{"nodeName": node}}
		list, _ := json.Marshal(fakekube.Object{
			"kind":     "PodList",
			"metadata": fakekube.Object{"resourceVersion": "5"},
			"items":    []any{pod},
		})

		kind := podKind("app", label)
		want, wantMeta, wantErr := decoded(list, false, kind)
		got, gotMeta, err := decoded(fakekube.Protobuf(list), true, kind)
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) || err == nil && gotMeta != wantMeta {
			t.Fatalf("%s: %q, %v; in JSON %q, %v", list, got, err, want, wantErr)
		}

		padded := protobufListWithUnknownFields(pod, unknown)
		again, _, err := decoded(padded, true, kind)
		if !slices.Equal(got, again) {
			t.Fatalf("%q: %q, %v, want %q", padded, again, err, got)
		}
	})
}

// protobufListWithUnknownFields returns a list in protobuf whose only item has fields that no kind has.
func protobufListWithUnknownFields(item fakekube.Object, value []byte) []byte {
	var pod, list, envelope protobuf.Message
	pod.Bytes(99, value)
	pod = append(pod, protobuf.Object(item)...)
	pod.Bytes(60, value)
	pod.Int(61, len(value))
	list.Bytes(1, []byte{0x12, 1, '5'})
	list.Bytes(2, pod)
	envelope.Bytes(1, []byte("\x12\x07PodList"))
	envelope.Bytes(2, list)
	return append([]byte("k8s\x00"), envelope...)
}

// FuzzDecodeEvents checks that every event of a watch in JSON is complete, and that the events do not depend on the
// size of the reads.
func FuzzDecodeEvents(f *testing.F) {
	addRecordings(f, "watch-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) { wantSameEventsBytewise(t, data, false) })
}

// wantSameEventsBytewise fails the test if a watch has an incomplete event, if it has other events when it is read byte
// by byte, or if it ends with another error than a GarbageError.
func wantSameEventsBytewise(t *testing.T, data []byte, isProtobuf bool) {
	t.Helper()
	read := func(r io.Reader) (events []string, err error) {
		err = NewDecoder(podKind("app")).Events(r, isProtobuf, func(event WatchEvent[*Pod]) error {
			if !isComplete(event) {
				t.Fatalf("%q: an incomplete event %+v", data, event)
			}
			events = append(events, describeEvent(event))
			return nil
		})
		return events, err
	}
	whole, err := read(bytes.NewReader(data))
	bytewise, bytewiseErr := read(iotest.OneByteReader(bytes.NewReader(data)))
	if !slices.Equal(whole, bytewise) || (err == nil) != (bytewiseErr == nil) {
		t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, whole, err, bytewise, bytewiseErr)
	}
	if err != nil && !errors.As(err, new(wire.GarbageError)) {
		t.Fatalf("%q: got the error %v, want a GarbageError", data, err)
	}
}

// isComplete reports whether an event has everything that the reflector needs.
func isComplete(event WatchEvent[*Pod]) bool {
	switch event.Type {
	case "ERROR":
		return event.Status != nil
	case "BOOKMARK":
		return event.Object.ResourceVersion() != ""
	case "ADDED", "MODIFIED", "DELETED":
		return event.Object.Key().Name != "" && event.Object.UID() != ""
	default:
		return false
	}
}
