package fakekube

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// An answer consists of frames, which follow each other without a gap:
//   - In a watch, each event is a frame.
//   - In a list, each item is a frame. What precedes the first item is a frame too, and so is what follows the last.
//   - Any other answer is one frame.
//
// Frames are those of the bytes that are sent. A compressed answer is one frame. In the answer of an Upstream that is
// neither JSON nor protobuf, so is each part that arrives.

// CutFrame breaks off the answer at the end of a frame, or some bytes before or after it, as soon as these bytes are
// sent. Frames are counted from 1. Frame 0 ends where the body begins. The answer must be long enough.
//
// Like Cut, it breaks an HTTP/1.1 connection. Over HTTP/2 it resets only the stream.
type CutFrame struct {
	Frame int

	// Extra is the number of bytes that follow the end of the frame. If it is negative, that many bytes of the frame
	// are missing.
	Extra int
}

func (f CutFrame) apply(e *faultedRequest) {
	e.injection.recordTruncation(true) // unless the writer reaches the place
	w := &frameCutter{
		ResponseWriter: e.w,
		place:          f,
		isSpared:       e.isSpared,
		reached:        func() { e.injection.recordTruncation(false) },
	}
	if f.Frame == 0 {
		w.isFound = true
		w.left = f.Extra
	}
	e.serveNormally(w, e.server.Spy)
}

func (f CutFrame) problem() string {
	if f.Frame < 0 || f.Frame == 0 && f.Extra < 0 {
		return "there is no such frame: frames are counted from 1, and frame 0 ends where the body begins"
	}
	return ""
}

// String returns the effect in the text form of Script.
func (f CutFrame) String() string {
	text := fmt.Sprintf("cut after frame %d", f.Frame)
	switch {
	case f.Extra > 0:
		text += " plus " + byteCount(f.Extra)
	case f.Extra < 0:
		text += " minus " + byteCount(-f.Extra)
	}
	return text
}

// byteCount returns a number of bytes in words.
func byteCount(n int) string {
	if n == 1 {
		return "1 byte"
	}
	return fmt.Sprintf("%d bytes", n)
}

// frameCutter passes on an answer up to the place of a CutFrame, and then breaks off.
type frameCutter struct {
	http.ResponseWriter
	place    CutFrame
	isSpared func() bool // from then on, everything passes
	reached  func()      // called when the place is reached

	framesSoFar int  // in the parts of the answer that find has seen
	isFound     bool // the place is in the current Write, or in a later one
	left        int  // bytes that may still pass, if isFound
}

// Unwrap gives http.ResponseController access to Flush.
func (w *frameCutter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *frameCutter) WriteHeader(code int) {
	w.ResponseWriter.WriteHeader(code)
	w.breakOffIfDue()
}

func (w *frameCutter) Write(p []byte) (int, error) {
	if w.isSpared() {
		return w.ResponseWriter.Write(p)
	}
	if !w.isFound {
		w.find(p)
	}
	if !w.isFound {
		return w.ResponseWriter.Write(p)
	}
	n, err := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	w.breakOffIfDue()
	return n, err
}

// find looks for the place in the next part of the answer.
func (w *frameCutter) find(part []byte) {
	ends := frameEnds(part)
	index := w.place.Frame - 1 - w.framesSoFar // of the place's frame in this part
	w.framesSoFar += len(ends)
	if index < len(ends) {
		w.isFound = true
		w.left = max(0, ends[index]+w.place.Extra)
	}
}

// breakOffIfDue ends the request by a panic, as http.Handler specifies, if the answer has reached the place.
func (w *frameCutter) breakOffIfDue() {
	if !w.isFound || w.left > 0 {
		return
	}
	w.reached()
	http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler)
}

// cuts implements cutter.
func (w *frameCutter) cuts(answer []byte) bool {
	ends := frameEnds(answer)
	switch {
	case w.place.Frame == 0:
		return w.place.Extra < len(answer)
	case w.place.Frame > len(ends):
		return false
	}
	return ends[w.place.Frame-1]+w.place.Extra < len(answer)
}

// Record answers normally, and reports what was sent. It has no text form.
type Record struct {
	// Begin is called with each request, and returns the function that is called when the answer has ended. Both are
	// called on the goroutine of the request, without a lock.
	Begin func(Request) (ended func(Recording))
}

// Recording is an answer as it was sent.
type Recording struct {
	Header http.Header
	Frames []RecordedFrame
}

// RecordedFrame is a frame of a recorded answer.
type RecordedFrame struct {
	Size   int       // in bytes
	SentAt time.Time // in virtual time within a bubble
}

func (f Record) apply(e *faultedRequest) {
	ended := f.Begin(e.info)
	w := &frameRecorder{ResponseWriter: e.w}
	defer func() { // also if the answer breaks off
		ended(Recording{Header: w.Header().Clone(), Frames: w.frames})
	}()
	e.serveNormally(w, e.server.Spy)
}

func (f Record) problem() string {
	if f.Begin == nil {
		return "nobody gets the recording"
	}
	return ""
}

// String returns a text for messages. Script cannot parse it.
func (f Record) String() string { return "record …" }

// frameRecorder notes the frames of an answer.
type frameRecorder struct {
	http.ResponseWriter
	frames []RecordedFrame
}

// Unwrap gives http.ResponseController access to Flush.
func (w *frameRecorder) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *frameRecorder) Write(p []byte) (int, error) {
	start := 0
	for _, end := range frameEnds(p) {
		w.frames = append(w.frames, RecordedFrame{Size: end - start, SentAt: time.Now()})
		start = end
	}
	return w.ResponseWriter.Write(p)
}

// frameEnds returns where the frames end in a part of an answer: in the whole answer, or in one event of a watch. The
// last frame ends at the end.
func frameEnds(part []byte) []int {
	if bytes.HasPrefix(part, []byte(protobufMagic)) {
		return append(listEndsInProtobuf(part), len(part))
	}
	return append(listEndsInJSON(part), len(part))
}

// listEndsInJSON returns where the frames of a list in JSON end, except for the last one. It returns nil for anything
// else.
func listEndsInJSON(answer []byte) (ends []int) {
	decoder := json.NewDecoder(bytes.NewReader(answer))
	if !skipToItems(decoder) {
		return nil
	}
	ends = []int{int(decoder.InputOffset())}
	for decoder.More() {
		var item json.RawMessage
		if decoder.Decode(&item) != nil {
			return nil
		}
		ends = append(ends, int(decoder.InputOffset()))
	}
	return ends
}

// skipToItems reads an object up to the bracket that opens its items. It returns false if there are none.
func skipToItems(decoder *json.Decoder) bool {
	opening, _ := decoder.Token()
	if opening != json.Delim('{') {
		return false
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return false
		}
		if name == "items" {
			bracket, _ := decoder.Token()
			return bracket == json.Delim('[')
		}
		var skipped json.RawMessage
		if decoder.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}

// listEndsInProtobuf is listEndsInJSON for protobuf. A list has its metadata as field 1, and each item as a field 2.
func listEndsInProtobuf(answer []byte) (ends []int) {
	kind, message, err := openEnvelope(answer)
	if err != nil || !strings.HasSuffix(kind.Kind, "List") {
		return nil
	}
	end := messageStart(answer)
	eachField(message, func(f wireValue) error {
		isItem := f.number == 2
		isFirstItem := isItem && len(ends) == 0
		if isFirstItem {
			ends = append(ends, end) // of what precedes the items
		}
		end += f.encodedSize()
		if isItem {
			ends = append(ends, end)
		}
		return nil
	})
	return ends
}

// messageStart returns where the message begins in a valid envelope.
func messageStart(answer []byte) (start int) {
	end := len(protobufMagic)
	eachField(answer[len(protobufMagic):], func(f wireValue) error {
		end += f.encodedSize()
		isMessage := f.number == 2
		if isMessage {
			start = end - len(f.bytes)
		}
		return nil
	})
	return start
}

// encodedSize returns the size of a field of bytes, with its number and its length.
func (f wireValue) encodedSize() int {
	head := binary.AppendUvarint(nil, uint64(f.number)<<3|wireBytes)
	head = binary.AppendUvarint(head, uint64(len(f.bytes)))
	return len(head) + len(f.bytes)
}
