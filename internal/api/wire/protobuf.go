package wire

import (
	"encoding/binary"
	"io"
	"strings"
)

// listProtobuf reads a list in protobuf, as listJSON does in JSON.
//
// Every answer in protobuf is a message runtime.Unknown: its field 1 names the type of the answer, and its field 2 is
// the answer itself.
func (d *Decoder) listProtobuf(src *source, meta *ListMeta, handle func() error) (isList bool, err error) {
	r := newProtobufReader(src)
	schema := d.into.Schema()
	index := 0
	readAndHandle := func(end int64) error {
		d.into.Reset()
		if err := r.readItem(end, schema); err != nil {
			return &ItemError{Item: index, Err: err}
		}
		index++
		return handle()
	}
	kind := ""
	envelope := Schema{
		1: Schema{ // TypeMeta
			2: (*stringTarget)(&kind),
		},
		2: Schema{ // the list
			1: Schema{ // ListMeta
				2: (*stringTarget)(&meta.ResourceVersion),
				3: (*stringTarget)(&meta.Continue),
			},
			2: contentReader(readAndHandle), // items
		},
	}
	if err := r.readMagic(); err != nil {
		return false, err
	}
	err = r.readMessage(unbounded, envelope)
	return strings.HasSuffix(kind, "List"), err
}

// readItem reads an object of a list. It ends at the given offset.
func (r *protobufReader) readItem(end int64, schema Schema) error {
	if err := r.checkSize(end - r.offset()); err != nil {
		return err
	}
	return r.readMessage(end, schema)
}

// eventsProtobuf returns a function that reads the next frame of a watch, as eventsJSON does in JSON.
func (d *Decoder) eventsProtobuf(src *source) func() (Event, error) {
	w := &protobufWatch{
		protobufReader: newProtobufReader(src),
		decoder:        d,
		into:           d.into,
		object:         d.into.Schema(),
	}
	w.answer = Schema{
		2: contentReader(w.readObject),
	}
	w.frame = Schema{
		1: &shortTarget{&w.event.Type, typeLimit},
		2: Schema{ // RawExtension
			1: contentReader(w.readAnswer),
		},
	}
	return w.next
}

// protobufWatch reads a watch. Each frame is its length in four bytes, and then a message WatchEvent. The object of the
// WatchEvent is wrapped in a message Unknown, like the answer to a list.
type protobufWatch struct {
	*protobufReader
	decoder *Decoder
	into    ObjectReader
	event   Event // the event that is being read

	frame  Schema // for the WatchEvent
	answer Schema // for the Unknown
	object Schema // for the object, unless it is a Status
}

// next reads the next frame. It returns io.EOF at the end.
func (w *protobufWatch) next() (Event, error) {
	w.event = Event{}
	w.into.Reset()
	if w.atEnd(unbounded) {
		return w.event, io.EOF
	}
	start := w.offset()
	wantsHead := w.decoder.wantsHead()
	if wantsHead {
		w.keepHead()
	}
	size, err := w.readFrameSize()
	if err != nil {
		return w.event, err
	}
	end := w.offset() + size
	err = w.readMessage(end, w.frame)
	w.event.Size = end - start
	if wantsHead {
		w.event.Head = w.source.head[:min(int64(len(w.source.head)), w.event.Size)]
	}
	return w.event, err
}

// readAnswer reads the Unknown in a WatchEvent. It ends at the given offset.
func (w *protobufWatch) readAnswer(end int64) error {
	if err := w.readMagic(); err != nil {
		return err
	}
	return w.readMessage(end, w.answer)
}

// readObject reads the object in an Unknown. It ends at the given offset.
func (w *protobufWatch) readObject(end int64) error {
	if w.event.Type == "ERROR" {
		w.event.Status = new(Status)
		return w.readMessage(end, w.event.Status.schema())
	}
	return w.readMessage(end, w.object)
}

// readFrameSize reads the four bytes that precede each frame of a watch: its length.
func (r *protobufReader) readFrameSize() (int64, error) {
	head, err := r.peek(4)
	if err != nil {
		return 0, err
	}
	size := int64(binary.BigEndian.Uint32(head))
	r.in.Discard(4)
	return size, r.checkSize(size)
}

// readMagic reads the four bytes that precede each answer, and each object in a watch.
func (r *protobufReader) readMagic() error {
	b, err := r.peek(4)
	if err != nil {
		return err
	}
	if string(b) != "k8s\x00" {
		return r.errorf("protobuf must begin with %q, but this begins with %q", "k8s\x00", b)
	}
	r.in.Discard(4)
	return nil
}

// checkSize returns an error if an object, or a frame of a watch, has too many bytes.
func (r *protobufReader) checkSize(size int64) error {
	if size > objectLimit {
		return r.errorf("%d bytes in one piece are too many, the limit is %d", size, objectLimit)
	}
	return nil
}
