package wire_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"podcount/internal/api/wire"
	"podcount/lab/testkit"
)

// recording returns the body of an answer that was recorded from a real server.
func recording(t testing.TB, file string) string {
	t.Helper()
	text := testkit.ReadFile(t, "../../../testdata/transcripts/"+file)
	if strings.HasSuffix(file, ".pb") {
		return text
	}
	_, body, _ := strings.Cut(text, "\n\n")
	return body
}

// field returns a protobuf field whose content is a string, or other fields.
func field(number int, content ...string) string {
	text := strings.Join(content, "")
	head := binary.AppendUvarint(nil, uint64(number)<<3|2)
	head = binary.AppendUvarint(head, uint64(len(text)))
	return string(head) + text
}

// numberField returns a protobuf field whose content is a number.
func numberField(number, value int) string {
	head := binary.AppendUvarint(nil, uint64(number)<<3)
	return string(binary.AppendUvarint(head, uint64(value)))
}

// protobufAnswer returns an answer in protobuf, with an object of this kind.
func protobufAnswer(kind, object string) string {
	return "k8s\x00" + field(1, field(2, kind)) + field(2, object)
}

// protobufList returns a list of objects in protobuf.
func protobufList(objects ...string) string {
	fields := []string{field(1, field(2, "5"))}
	for _, o := range objects {
		fields = append(fields, field(2, o))
	}
	return protobufAnswer("ThingList", strings.Join(fields, ""))
}

// protobufThing returns an object in protobuf.
func protobufThing(name, uid, app string) string {
	return field(1, field(1, name), field(5, uid), field(11, field(1, "app"), field(2, app)))
}

// protobufFrame returns a frame of a watch in protobuf.
func protobufFrame(event, answer string) string {
	frame := field(1, event) + field(2, field(1, answer))
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(frame)))) + frame
}

// readList reads a list of things.
func readList(r io.Reader, isProtobuf bool) (things []string, meta wire.ListMeta, err error) {
	var th thing
	meta, err = wire.NewReader(&th).List(r, isProtobuf, func() error {
		things = append(things, th.String())
		return nil
	})
	return things, meta, err
}

// readEvents reads a watch of things. It returns a line for each event: its type, then its thing or Status.
func readEvents(r io.Reader, isProtobuf bool) (events []string, err error) {
	var th thing
	err = wire.NewReader(&th).Events(r, isProtobuf, func(event wire.Event) error {
		if event.Status != nil {
			events = append(events, fmt.Sprintf("%s %d %s", event.Type, event.Status.Code, event.Status.Message))
		} else {
			events = append(events, event.Type+" "+th.String())
		}
		return nil
	})
	return events, err
}

// wantEmptyList fails the test unless a list was read that has no things, and the resourceVersion 5.
func wantEmptyList(t *testing.T, list string, isProtobuf bool) {
	t.Helper()
	things, meta, err := readList(strings.NewReader(list), isProtobuf)
	what := fmt.Sprintf("list %q", list)
	testkit.WantError(t, what, err, "")
	testkit.WantEqual(t, what+": things", things, nil)
	testkit.WantEqual(t, what+": resourceVersion", meta.ResourceVersion, "5")
}

// wantGarbage fails the test unless err is a GarbageError that says want.
func wantGarbage(t *testing.T, what string, err error, want string) {
	t.Helper()
	testkit.WantError(t, what, err, want)
	if !errors.As(err, new(wire.GarbageError)) {
		t.Errorf("%s: got the error %v, want a GarbageError", what, err)
	}
}

func TestListIsTheSameInBothForms(t *testing.T) {
	wantMeta := wire.ListMeta{
		ResourceVersion: "217",
		Continue:        "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MjE3LCJzdGFydCI6Ii9kZWZhdWx0L3AyXHUwMDAwIn0",
	}
	want := []string{
		"p1/0ec2e3b2-7f91-43e4-b6d9-308f8d87f73d/nginx",
		"p2/2bda54ea-2b99-47e1-9896-3abbea112061/nginx",
	}
	for _, file := range []string{"list-metadata.txt", "list-metadata.pb"} {
		body := recording(t, file)
		for _, r := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body))} {
			things, meta, err := readList(r, strings.HasSuffix(file, ".pb"))
			testkit.WantError(t, file, err, "")
			testkit.WantEqual(t, file+": metadata", meta, wantMeta)
			testkit.WantEqual(t, file+": things", things, want)
		}
	}
}

// inBothForms runs a test in JSON and in protobuf.
func inBothForms(t *testing.T, test func(t *testing.T, isProtobuf bool)) {
	t.Run("JSON", func(t *testing.T) { test(t, false) })
	t.Run("protobuf", func(t *testing.T) { test(t, true) })
}

// listInTwo cuts a list of two things where the second begins.
func listInTwo(isProtobuf bool) (first, rest string) {
	if isProtobuf {
		one := protobufThing("a", "u", "x")
		two := protobufThing("b", "v", "y")
		whole := protobufList(one, two)
		at := len(whole) - len(field(2, two))
		return whole[:at], whole[at:]
	}
	return `{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a"}},`, `{"metadata":{"name":"b"}}]}`
}

func TestListYieldsAnObjectBeforeTheNextArrives(t *testing.T) {
	inBothForms(t, func(t *testing.T, isProtobuf bool) {
		synctest.Test(t, func(t *testing.T) { // A deadlock fails the test there.
			first, rest := listInTwo(isProtobuf)
			isFirstRead := make(chan struct{})
			r, w := io.Pipe()
			go func() {
				io.WriteString(w, first)
				<-isFirstRead
				io.WriteString(w, rest)
				w.Close()
			}()
			n := 0
			_, err := wire.NewReader(new(thing)).List(r, isProtobuf, func() error {
				n++
				if n == 1 {
					close(isFirstRead)
				}
				return nil
			})
			testkit.WantError(t, "list", err, "")
			testkit.WantNumber(t, "objects", n, 2)
		})
	})
}

func TestListMayBeEmptyWithItsMetadataLast(t *testing.T) {
	wantEmptyList(t, `{"items":null,"metadata":{"resourceVersion":"5"}}`, false)
	wantEmptyList(t, `{"items":[],"metadata":{"resourceVersion":"5","continue":null},"more":[{"items":[1]}]}`, false)
	wantEmptyList(t, protobufList(), true)
}

func TestErrorOfTheCallerEndsAList(t *testing.T) {
	full := errors.New("full")
	inBothForms(t, func(t *testing.T, isProtobuf bool) {
		first, rest := listInTwo(isProtobuf)
		n := 0
		reader := wire.NewReader(new(thing))
		meta, err := reader.List(strings.NewReader(first+rest), isProtobuf, func() error {
			n++
			return full
		})
		if err != full {
			t.Errorf("got the error %v, want %v", err, full)
		}
		testkit.WantNumber(t, "calls", n, 1)
		testkit.WantEqual(t, "resourceVersion", meta.ResourceVersion, "5")
	})
}

func TestListEndsAtAnUnreadableObject(t *testing.T) {
	for _, c := range []struct {
		name, text string
		isProtobuf bool
	}{
		{"JSON", `{"metadata":{"resourceVersion":"5"},"items":[{},7,{}]}`, false},
		{"protobuf", protobufList("", numberField(1, 7), ""), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			things, _, err := readList(strings.NewReader(c.text), c.isProtobuf)
			testkit.WantError(t, "list", err, "items: item 1: ")
			testkit.WantNumber(t, "things", len(things), 1)
		})
	}
}

func TestBadListsAreErrorsThatNameThePlace(t *testing.T) {
	begin := `{"metadata":{"resourceVersion":"5"},"items":[`
	for _, c := range []struct{ text, want string }{
		{``, "the answer is empty"},
		{`null`, "the answer should be a JSON object, but begins with null"},
		{`[]`, "the answer should be a JSON object, but begins with ["},
		{`{"items":[]}`, "no metadata.resourceVersion"},
		{`{"metadata":{"resourceVersion":"5"}}`, "no items"},
		{`{"metadata":{"resourceVersion":5},"items":[]}`,
			"json: cannot unmarshal number into Go struct field item.metadata.resourceVersion"},
		{`{"metadata":[],"items":[]}`, "json: cannot unmarshal array into Go struct field item.metadata"},
		{`{"metadata":{"resourceVersion":"5"},"items":{}}`, "items: this should be a JSON array"},
		{begin + `{},`, "items: item 1: after byte 47: EOF"},
		{begin + `{},{"met`, "items: item 1: after byte 47: unexpected EOF"},
		{begin + `{},7]}`, "items: item 1: after byte 47: json: cannot unmarshal number"},
		{begin + `{"metadata":[1]}]}`,
			"items: item 0: after byte 45: json: cannot unmarshal array into Go struct field item.metadata"},
		{begin + `{"metadata":{"uid":1}}]}`,
			"items: item 0: after byte 45: json: cannot unmarshal number into Go struct field item.metadata.uid"},
	} {
		_, _, err := readList(strings.NewReader(c.text), false)
		testkit.WantError(t, c.text, err, c.want)
	}

	good := protobufThing("a", "u", "x")
	for _, c := range []struct{ name, text, want string }{
		{"nothing", "", "after byte 0: unexpected EOF"},
		{"JSON", begin, `after byte 0: protobuf must begin with "k8s\x00", but this begins with "{\"me"`},
		{"no list", protobufAnswer("Thing", good), "not a list"},
		{"cut in an item", protobufList(good)[:34], "items: item 0: after byte 34: unexpected EOF"},
		{"a group", protobufList("\x13"), "items: item 0: after byte 27: the field has the unknown wire type 3"},
		{"a name that is a number", protobufList(field(1, numberField(1, 7))),
			"items: item 0: after byte 30: the field 1 has the wire type 0, not 2"},
		{"a name that is not UTF-8", protobufList(field(1, field(1, "\xff"))),
			"items: item 0: after byte 30: a string of 1 bytes is not UTF-8"},
		{"metadata that is a number", protobufList(numberField(1, 7)),
			"items: item 0: after byte 28: the field 1 has the wire type 0, not 2"},
		{"metadata beyond its object", protobufList("\x0a\x09"),
			"after byte 28: the field's length is 9, which is more than its message has left"},
	} {
		_, _, err := readList(strings.NewReader(c.text), true)
		testkit.WantError(t, c.name, err, c.want)
	}
}

func TestReaderIsUsedAgainAfterAnError(t *testing.T) {
	var th thing
	reader := wire.NewReader(&th)
	inBothForms(t, func(t *testing.T, isProtobuf bool) {
		first, rest := listInTwo(isProtobuf)
		_, err := reader.List(strings.NewReader(first), isProtobuf, func() error { return nil })
		testkit.WantError(t, "half a list", err, "EOF")
		last := ""
		_, err = reader.List(strings.NewReader(first+rest), isProtobuf, func() error {
			last = th.String()
			return nil
		})
		testkit.WantError(t, "the whole list", err, "")
		testkit.WantText(t, last, "b/")
	})
}

func TestObjectIsReadWithoutWhatFollows(t *testing.T) {
	var th thing
	reader := wire.NewReader(&th)
	for _, c := range []struct{ text, want string }{
		{`{"metadata":{"name":"a","uid":"u","labels":{"app":"x"}}}`, "a/u/x"},
		{` {"metadata" : {"name":"a\u0062","NAME":"c"}} what follows`, "ab//"},
		{`null`, "//"},
	} {
		testkit.WantError(t, c.text, reader.Object(strings.NewReader(c.text)), "")
		testkit.WantEqual(t, c.text, th.String(), c.want)
	}
	testkit.WantError(t, "a number", reader.Object(strings.NewReader(`7`)), "after byte 0: json: cannot unmarshal number")
	testkit.WantError(t, "half an object", reader.Object(strings.NewReader(`{"metadata"`)), "unexpected EOF")
}

func TestWatchIsReadInAnyPieces(t *testing.T) {
	for file, want := range map[string][]string{
		"watch-from-list.txt": {
			"ADDED p4/d05a4788-620a-4dfc-b27f-a3b42812400b/nginx",
			"MODIFIED p4/d05a4788-620a-4dfc-b27f-a3b42812400b/nginx",
			"DELETED p4/d05a4788-620a-4dfc-b27f-a3b42812400b/nginx",
			"BOOKMARK //",
		},
		"watch-expired.txt": {"ERROR 410 too old resource version: 202 (280)"},
		"watch-expired.pb":  {"ERROR 410 too old resource version: 1 (209512)"},
	} {
		body := recording(t, file)
		for _, r := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body))} {
			events, err := readEvents(r, strings.HasSuffix(file, ".pb"))
			testkit.WantError(t, file, err, "")
			testkit.WantEqual(t, file, events, want)
		}
	}
}

func TestWatchYieldsEventsOfAnyType(t *testing.T) {
	events, err := readEvents(strings.NewReader(
		`{"object":{"metadata":{"name":"a"}},"type":"ADDED"} {"type":"STRANGE","object":7}{}`+
			`{"type":"ERROR","object":{"code":410}}{"type":"BOOKMARK","object":null}`), false)
	testkit.WantError(t, "in JSON", err, "")
	testkit.WantEqual(t, "in JSON", events, []string{"ADDED a//", "STRANGE //", " //", "ERROR 410 ", "BOOKMARK //"})

	events, err = readEvents(strings.NewReader(
		protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("a", "u", "x")))+
			protobufFrame("STRANGE", protobufAnswer("Thing", ""))+
			protobufFrame("ERROR", protobufAnswer("Status", numberField(6, 410)))), true)
	testkit.WantError(t, "in protobuf", err, "")
	testkit.WantEqual(t, "in protobuf", events, []string{"ADDED a/u/x", "STRANGE //", "ERROR 410 "})
}

func TestEventHasTheSizeOfItsFrame(t *testing.T) {
	for name, frames := range map[string][]string{
		"JSON": {`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`, `{"type":"BOOKMARK","object":null}`},
		"protobuf": {
			protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("a", "u", "x"))),
			protobufFrame("ERROR", protobufAnswer("Status", numberField(6, 410))),
		},
	} {
		watch := strings.Join(frames, "")
		rest := watch
		var found []string
		err := wire.NewReader(new(thing)).Events(strings.NewReader(watch), name == "protobuf", func(e wire.Event) error {
			found = append(found, rest[:e.Size])
			rest = rest[e.Size:]
			return nil
		})
		testkit.WantError(t, name, err, "")
		testkit.WantEqual(t, name, found, frames)
	}
}

func TestEventHasTheHeadOfItsFrameOnlyIfThatIsWanted(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, frames := range map[string][]string{
		"JSON": {
			`{"type":"ADDED","object":{"metadata":{"name":"a"}}}`,
			`{"type":"ADDED","object":{"metadata":{"name":"b"},"long":"` + long + `"}}`,
			`{"type":"BOOKMARK","object":null}`,
			`{"type":"BOOKMARK","object":null}`,
		},
		"protobuf": {
			protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("a", "u", "x"))),
			protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("b", "u", "x")+field(99, long))),
			protobufFrame("ERROR", protobufAnswer("Status", numberField(6, 410))),
			protobufFrame("ERROR", protobufAnswer("Status", numberField(6, 411))),
		},
	} {
		for way, wrap := range map[string]func(io.Reader) io.Reader{
			"at once":      func(r io.Reader) io.Reader { return r },
			"byte by byte": iotest.OneByteReader,
		} {
			isWanted := true
			reader := wire.NewReader(new(thing))
			reader.WantsHead = func() bool { return isWanted }
			var heads []string
			read := func(e wire.Event) error {
				heads = append(heads, string(e.Head))
				isWanted = len(heads) < 3
				return nil
			}
			watch := wrap(strings.NewReader(strings.Join(frames, "")))
			testkit.WantError(t, name, reader.Events(watch, name == "protobuf", read), "")
			want := []string{frames[0], frames[1][:8<<10], frames[2], ""}
			testkit.WantEqual(t, name+" "+way, heads, want)
		}
	}
}

func TestErrorOfTheHandlerEndsAWatch(t *testing.T) {
	full := errors.New("full")
	for _, c := range []struct {
		name, frame string
		isProtobuf  bool
	}{
		{"JSON", `{"type":"ADDED","object":{}}`, false},
		{"protobuf", protobufFrame("ADDED", protobufAnswer("Thing", "")), true},
	} {
		n := 0
		reader := wire.NewReader(new(thing))
		err := reader.Events(strings.NewReader(c.frame+c.frame), c.isProtobuf, func(wire.Event) error {
			n++
			return full
		})
		if n != 1 || err != full {
			t.Errorf("%s: %d calls and the error %v, want 1 call and %v", c.name, n, err, full)
		}
	}
}

func TestGarbageErrorWrapsItsReason(t *testing.T) {
	nameless := errors.New("a thing without a name")
	err := wire.Garbage(nameless)
	wantGarbage(t, "a nameless thing", err, "frame: a thing without a name")
	if !errors.Is(err, nameless) {
		t.Errorf("%v does not wrap %v", err, nameless)
	}
	_, err = readEvents(strings.NewReader(`{"type":`), false)
	if !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a frame: %v does not wrap %v", err, io.ErrUnexpectedEOF)
	}
}

// After a broken connection, the caller can resume the watch at once. After garbage it must wait, because the same
// garbage may come again.
func TestBrokenConnectionIsNotGarbage(t *testing.T) {
	broken := errors.New("connection reset")
	for _, c := range []struct {
		name, frame string
		isProtobuf  bool
	}{
		{"JSON", `{"type":"ADDED","object":{"metadata":{"name":"a"}}}`, false},
		{"protobuf", protobufFrame("ADDED", protobufAnswer("Thing", protobufThing("a", "u", "x"))), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for cut := range len(c.frame) + 1 {
				part := c.frame[:cut]
				r := io.MultiReader(strings.NewReader(part), iotest.ErrReader(broken))
				if _, err := readEvents(r, c.isProtobuf); err != broken {
					t.Errorf("%q, and then the connection breaks: got the error %v, want %v", part, err, broken)
				}
				_, err := readEvents(strings.NewReader(part), c.isProtobuf)
				isGarbage := errors.As(err, new(wire.GarbageError))
				isWhole := cut == 0 || cut == len(c.frame)
				if isWhole && err != nil {
					t.Errorf("%q, and then the stream ends: got the error %v, want none", part, err)
				}
				if !isWhole && !isGarbage {
					t.Errorf("%q, and then the stream ends: got the error %v, want a GarbageError", part, err)
				}
			}
		})
	}
}

func TestBadFramesAreGarbageErrorsThatNameThePlace(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`<html>`, "frame: invalid character '<'"},
		{`[]`, "frame: after byte 0: json: cannot unmarshal array"},
		{`{"type":7}`, "after byte 0: json: cannot unmarshal number into Go struct field item.type"},
		{`{"type":"ADDED","object":{"metadata":{"name":7}}}`,
			"after byte 0: json: cannot unmarshal number into Go struct field item.metadata.name"},
	} {
		_, err := readEvents(strings.NewReader(c.text), false)
		wantGarbage(t, c.text, err, c.want)
	}
	_, err := readEvents(strings.NewReader(protobufFrame("ADDED", "JSON")), true)
	wantGarbage(t, "no magic", err,
		`frame: after byte 15: protobuf must begin with "k8s\x00", but this begins with "JSON"`)
}

// endless reads one text again and again.
type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (n int, err error) {
	for n < len(p) {
		copied := copy(p[n:], e.text[e.at:])
		n += copied
		e.at = (e.at + copied) % len(e.text)
	}
	return n, nil
}

// after reads the beginning, and then one text again and again.
func after(beginning, text string) io.Reader {
	return io.MultiReader(strings.NewReader(beginning), &endless{text: text})
}

func TestTooLargeAPieceIsAnErrorAndNotHeld(t *testing.T) {
	tera := string(binary.AppendUvarint([]byte{2<<3 | 2}, 1<<40)) // the head of a field 2 of 1 TB
	object := string(binary.AppendUvarint([]byte{2<<3 | 2}, 8<<20+1))
	name := string(binary.AppendUvarint([]byte{1<<3 | 2}, 64<<10+1))
	big := strings.Repeat("a", 64<<10)
	for _, c := range []struct {
		name       string
		r          io.Reader
		isProtobuf bool
		maxMB      int
		want       string
	}{
		// In JSON, a buffer doubles up to 32 MB.
		{"an object in JSON", after(`{"items":[{"metadata":{"name":"`, big), false, 80,
			"more than 25165824 bytes in one piece"},
		{"an object in protobuf", after("k8s\x00"+tera+object, big), true, 1,
			"items: item 0: after byte 16: 8388609 bytes in one piece are too many, the limit is 8388608"},
		{"a string in protobuf", strings.NewReader(protobufList(field(1, name+big+"a"))), true, 1,
			"a string of 65537 bytes is too long, the limit is 65536"},
	} {
		var memBefore, memAfter runtime.MemStats
		runtime.ReadMemStats(&memBefore)
		_, _, err := readList(c.r, c.isProtobuf)
		runtime.ReadMemStats(&memAfter)
		testkit.WantError(t, c.name, err, c.want)
		allocated := int(memAfter.TotalAlloc-memBefore.TotalAlloc) >> 20
		testkit.WantBetween(t, c.name+": MB allocated", allocated, 0, c.maxMB)
	}

	frame := string(binary.BigEndian.AppendUint32(nil, 8<<20+1))
	_, err := readEvents(after(frame, big), true)
	wantGarbage(t, "a frame in protobuf", err, "8388609 bytes in one piece are too many")
}

func TestProtobufLimitIsForOnePiece(t *testing.T) {
	text := strings.Repeat("a", 64<<10)
	list := protobufList(slices.Repeat([]string{protobufThing(text, "u", "x")}, 200)...)
	things, _, err := readList(strings.NewReader(list), true)
	testkit.WantError(t, "the list", err, "")
	testkit.WantNumber(t, "things", len(things), 200)
	if len(list) < 9<<20 {
		t.Errorf("the list has only %d bytes, want more than the limit for one piece", len(list))
	}
}

func TestLimitedFailsAtItsLimit(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"abc", "<nil>"},
		{"abcd", "more than 4 bytes in one piece"},
	} {
		got, err := io.ReadAll(wire.Limited(strings.NewReader(c.text), 4))
		if string(got) != c.text || fmt.Sprint(err) != c.want {
			t.Errorf("%s: got %q and the error %v, want %s", c.text, got, err, c.want)
		}
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(wire.Limited(strings.NewReader("abcdef"), 4), got); err != nil {
		t.Errorf("reading up to the limit: %v", err)
	}
}

func TestStatusIsReadInEitherForm(t *testing.T) {
	for _, file := range []string{"unauthorized.txt", "unauthorized.pb"} {
		s := wire.ParseStatus([]byte(recording(t, file)), strings.HasSuffix(file, ".pb"))
		testkit.WantEqual(t, file, s, wire.Status{Code: 401, Reason: "Unauthorized", Message: "Unauthorized"})
	}
	busy := `{"code":429,"details":{"retryAfterSeconds":7,"causes":[{"reason":"a","field":"metadata.uid"}]}}`
	s := wire.ParseStatus([]byte(busy), false)
	want := wire.Status{Code: 429}
	want.Details.RetryAfterSeconds = 7
	want.Details.Causes = []wire.Cause{{"a", "metadata.uid"}}
	testkit.WantEqual(t, "in JSON", s, want)
	cause := field(4, field(1, "a")+field(2, "a message")+field(3, "metadata.uid"))
	busy = protobufAnswer("Status", field(5, cause+numberField(5, 7))+numberField(6, 429))
	s = wire.ParseStatus([]byte(busy), true)
	testkit.WantEqual(t, "in protobuf", s, want)
}

func TestLongTextsOfAStatusAreCut(t *testing.T) {
	long := strings.Repeat("é", 25_000)
	text := `{"code":422,"reason":"` + long[:998] + `xx","message":"` + long + `","details":{"causes":[{"field":"` +
		long[:1000] + `"}` + strings.Repeat(`,{}`, 2000) + `]}}`
	causes := strings.Repeat(field(4, field(3, long[:1000])), 2000)
	inProtobuf := protobufAnswer("Status", field(3, long)+field(4, long[:998]+"xx")+field(5, causes)+numberField(6, 422))
	for name, s := range map[string]wire.Status{
		"in JSON":     wire.ParseStatus([]byte(text), false),
		"in protobuf": wire.ParseStatus([]byte(inProtobuf), true),
	} {
		testkit.WantNumber(t, "code "+name, s.Code, 422)
		testkit.WantText(t, s.Message, long[:1024]+"… (", "000 bytes in all)")
		testkit.WantEqual(t, "reason "+name, s.Reason, long[:100]+"… (1000 bytes in all)")
		testkit.WantBetween(t, "bytes of the message "+name, len(s.Message), 1024, 1100)
		testkit.WantNumber(t, "causes "+name, len(s.Details.Causes), 32)
		testkit.WantEqual(t, "a field "+name, s.Details.Causes[0].Field, long[:200]+"… (1000 bytes in all)")
	}
}

func TestShortenCutsNoCharacterInTwo(t *testing.T) {
	for _, row := range []struct {
		text  string
		limit int
		want  string
	}{
		{"abc", 3, "abc"},
		{"abcd", 3, "abc… (4 bytes in all)"},
		{"aéb", 2, "a… (4 bytes in all)"},
		{"aéb", 3, "aé… (4 bytes in all)"},
		{"🙂🙂", 7, "🙂… (8 bytes in all)"},
		{"\xff\xff\xff", 2, "… (3 bytes in all)"},
		{"abc", 0, "… (3 bytes in all)"},
	} {
		testkit.WantEqual(t, fmt.Sprintf("%q cut after %d bytes", row.text, row.limit),
			wire.Shorten(row.text, row.limit), row.want)
	}
}

func TestLongErrorFrameIsQuoted(t *testing.T) {
	frame := `{"type":"ERROR","object":{"message":"` + strings.Repeat("<", wire.StatusLimit) + `","code":410}}`
	var status *wire.Status
	err := wire.NewReader(new(thing)).Events(strings.NewReader(frame), false, func(e wire.Event) error {
		status = e.Status
		return nil
	})
	testkit.WantError(t, "Events", err, "")
	testkit.WantText(t, status.Message, "message", `<<<<`)
	testkit.WantBetween(t, "bytes of the message", len(status.Message), 100, 300)
}

func TestLongTextsOfAnAnswerAreErrorsOrCut(t *testing.T) {
	long := strings.Repeat("7", 70_000)
	const tooLong = "a string of 70002 bytes is too long, the limit is 65536"
	for _, row := range []struct{ list, want string }{
		{`{"metadata":{"resourceVersion":"` + long + `"},"items":[]}`, "metadata.resourceVersion: " + tooLong},
		{`{"metadata":{"resourceVersion":"` + long[:65] + `"},"items":[]}`, "resourceVersion has 65 bytes; the limit is 64"},
		{`{"metadata":{"resourceVersion":"` + long[:64] + `"},"items":[]}`, ""},
		{`{"metadata":{"resourceVersion":"7","continue":"` + long[:4097] + `"},"items":[]}`,
			"continue has 4097 bytes; the limit is 4096"},
		{`{"metadata":{"resourceVersion":"7","continue":"` + long[:4096] + `"},"items":[]}`, ""},
		{`{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":"` + long + `"}}]}`, "metadata.name: " + tooLong},
		{`{"metadata":{"resourceVersion":` + long + `},"items":[]}`, "json: cannot unmarshal number into"},
		{`"` + long + `"`, "begins with 777"},
	} {
		_, _, err := readList(strings.NewReader(row.list), false)
		testkit.WantError(t, fmt.Sprintf("%.50s", row.list), err, row.want)
		if err != nil {
			testkit.WantBetween(t, "bytes of the error", len(err.Error()), 1, 500)
		}
	}
	_, _, err := readList(strings.NewReader(protobufAnswer("ThingList", field(1, field(2, long[:65])))), true)
	testkit.WantError(t, "in protobuf", err, "resourceVersion has 65 bytes; the limit is 64")
	cut := long[:50] + "… (1000 bytes in all) //"
	events, err := readEvents(strings.NewReader(`{"type":"`+long[:1000]+`"}`), false)
	testkit.WantError(t, "a long type in JSON", err, "")
	testkit.WantEqual(t, "a long type in JSON", events, []string{cut})
	events, err = readEvents(strings.NewReader(protobufFrame(long[:1000], protobufAnswer("Thing", ""))), true)
	testkit.WantError(t, "a long type in protobuf", err, "")
	testkit.WantEqual(t, "a long type in protobuf", events, []string{cut})
}

func TestOtherAnswersHaveNoStatusCode(t *testing.T) {
	for _, text := range []string{``, `too many requests`, `"429"`, `{"code":"429"}`, `{"code":429,"reason":7}`} {
		testkit.WantNumber(t, text, wire.ParseStatus([]byte(text), false).Code, 0)
	}
	whole := protobufAnswer("Status", numberField(6, 429))
	for _, text := range []string{"", "k8s\x00", "429", whole[:len(whole)-1], whole + "\xff"} {
		testkit.WantNumber(t, fmt.Sprintf("%q", text), wire.ParseStatus([]byte(text), true).Code, 0)
	}
}
