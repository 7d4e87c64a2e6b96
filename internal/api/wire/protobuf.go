package wire

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
)

// listProtobuf reads a list in protobuf, as listJSON does in JSON.
//
// Every answer in protobuf is a message runtime.Unknown: its field 1 names the type of the answer, and its field 2 is
// the answer itself.
func (rd *Reader) listProtobuf(src *source, meta *ListMeta, handle func() error) (isList bool, err error) {
	r := newProtobufReader(src)
	schema := rd.into.Schema()
	index := 0
	readAndHandle := func(end int64) error {
		rd.into.Reset()
		err := r.checkSize(end - r.offset())
		if err == nil {
			err = r.readMessage(end, schema)
		}
		if err != nil {
			return fmt.Errorf("items: item %d: %w", index, err)
		}
		index++
		return handle()
	}
	kind := ""
	envelope := Schema{
		1: Schema{ // TypeMeta
			2: &shortTarget{&kind, textLimit},
		},
		2: Schema{ // the list
			1: Schema{ // ListMeta
				2: &shortTarget{&meta.ResourceVersion, textLimit},
				3: &shortTarget{&meta.Continue, textLimit},
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

// frameStart is the size of what precedes each frame of a watch: its length, as a number of 32 bits.
const frameStart = 4

// eventsProtobuf returns a function that reads the next frame of a watch, as eventsJSON does in JSON.
//
// After its length, each frame is a message WatchEvent. The object of the WatchEvent is wrapped in a message Unknown,
// like the answer to a list.
func (rd *Reader) eventsProtobuf(src *source) func() (Event, error) {
	r := newProtobufReader(src)
	var event Event // the event that is being read
	var head []byte // the memory of its head
	object := rd.into.Schema()
	readObject := func(end int64) error {
		if event.Type == "ERROR" { // API servers write the type of a WatchEvent before its object.
			event.Status = new(Status)
			return r.readMessage(end, event.Status.schema())
		}
		return r.readMessage(end, object)
	}
	unknown := Schema{2: contentReader(readObject)}
	readUnknown := func(end int64) error {
		if err := r.readMagic(); err != nil {
			return err
		}
		return r.readMessage(end, unknown)
	}
	watchEvent := Schema{
		1: &shortTarget{&event.Type, typeLimit},
		2: Schema{ // RawExtension
			1: contentReader(readUnknown),
		},
	}
	return func() (Event, error) {
		event = Event{}
		rd.into.Reset()
		if r.atEnd(unbounded) {
			return event, io.EOF
		}
		length, err := r.peek(frameStart)
		if err != nil {
			return event, err
		}
		size := int64(binary.BigEndian.Uint32(length))
		if err := r.checkSize(size); err != nil {
			return event, err
		}
		if rd.wantsHead() {
			beginning, err := r.peek(int(min(frameStart+size, headLimit)))
			if err != nil {
				return event, err
			}
			head = append(head[:0], beginning...)
			event.Head = head
		}
		r.in.Discard(frameStart)
		event.Size = frameStart + size
		err = r.readMessage(r.offset()+size, watchEvent)
		return event, err
	}
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
