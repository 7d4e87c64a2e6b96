package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"podcount/internal/api/wire"
)

// addRecordings adds the bodies of the recorded answers whose files match a pattern.
func addRecordings(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob("../../../testdata/transcripts/" + pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no recordings %s: %v", pattern, err)
	}
	for _, file := range files {
		f.Add([]byte(recording(f, filepath.Base(file))))
	}
}

func FuzzListInJSON(f *testing.F) {
	addRecordings(f, "list-*.txt")
	f.Add([]byte(`{"items":null,"metadata":{"resourceVersion":"5"}}`))
	f.Fuzz(func(t *testing.T, data []byte) { wantSameList(t, data, false) })
}

func FuzzListInProtobuf(f *testing.F) {
	addRecordings(f, "list-*.pb")
	f.Add([]byte(protobufList(protobufThing("a", "u", "x"), numberField(1, 7))))
	f.Fuzz(func(t *testing.T, data []byte) { wantSameList(t, data, true) })
}

// wantSameList fails the test unless reading byte by byte gives the same list, or the same error.
func wantSameList(t *testing.T, data []byte, isProtobuf bool) {
	things, meta, err := readList(bytes.NewReader(data), isProtobuf)
	again, metaAgain, errAgain := readList(iotest.OneByteReader(bytes.NewReader(data)), isProtobuf)
	if !slices.Equal(things, again) || meta != metaAgain || fmt.Sprint(err) != fmt.Sprint(errAgain) {
		t.Fatalf("%q: got %q, %+v, %v; byte by byte %q, %+v, %v", data, things, meta, err, again, metaAgain, errAgain)
	}
	if err == nil && meta.ResourceVersion == "" {
		t.Fatalf("%q: a list without a version", data)
	}
	wantFromData(t, data, things)
}

// wantFromData fails the test if more was read than the data can hold. A thing needs at least one byte, and a byte of
// JSON that is not UTF-8 becomes three bytes of text.
func wantFromData(t *testing.T, data []byte, read []string) {
	if len(read) > len(data) || len(strings.Join(read, "")) > 3*len(data)+100*len(read) {
		t.Fatalf("%q: more was read than the data can hold: %q", data, read)
	}
}

func FuzzEventsInJSON(f *testing.F) {
	addRecordings(f, "watch-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) { wantSameEvents(t, data, false) })
}

func FuzzEventsInProtobuf(f *testing.F) {
	addRecordings(f, "watch-*.pb")
	f.Add([]byte(protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("a", "u", "x")))))
	f.Fuzz(func(t *testing.T, data []byte) { wantSameEvents(t, data, true) })
}

// wantSameEvents fails the test unless reading byte by byte gives the same events, or the same error.
func wantSameEvents(t *testing.T, data []byte, isProtobuf bool) {
	events, err := readEvents(bytes.NewReader(data), isProtobuf)
	again, errAgain := readEvents(iotest.OneByteReader(bytes.NewReader(data)), isProtobuf)
	if !slices.Equal(events, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
		t.Fatalf("%q: got %q, %v; byte by byte %q, %v", data, events, err, again, errAgain)
	}
	if err != nil && !errors.As(err, new(wire.GarbageError)) {
		t.Fatalf("%q: %v is not a GarbageError", data, err)
	}
	wantFromData(t, data, events)
}

func FuzzParseStatus(f *testing.F) {
	addRecordings(f, "unauthorized.*")
	addRecordings(f, "node-patch-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, isProtobuf := range []bool{false, true} {
			s := wire.ParseStatus(data, isProtobuf)
			if size := len(s.Message) + len(s.Reason); size > 1500 || len(s.Details.Causes) > 32 {
				t.Fatalf("%q: got a Status that is not short: %+v", data, s)
			}
		}
	})
}
