package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// decode reads the next value of JSON into raw, whatever it is.
func (d *Decoder) decode(s *json.Decoder) error {
	if cap(d.raw) > keptLimit {
		d.raw = nil
	}
	return s.Decode(&d.raw)
}

// readObject reads the next value of JSON, and has the reader take its fields. The error names the place.
func (d *Decoder) readObject(s *json.Decoder) error {
	err := d.decode(s)
	if err == nil {
		err = d.into.ReadJSON(d.raw)
	}
	if err != nil {
		return fmt.Errorf("behind byte %d: %w", s.InputOffset(), err)
	}
	return nil
}

// listJSON reads a list's metadata into meta, and each item into the reader, and reports whether there were items. item
// is called after each, with nil or what is wrong; its error ends the list.
func (d *Decoder) listJSON(src *source, meta *ListMeta, item func(error) error) (isList bool, err error) {
	s := src.newJSON()
	err = eachField(s, func(field string) error {
		switch field {
		case "metadata":
			return d.readListMeta(s, meta)
		case "items":
			isList = true
			return d.readItems(s, item)
		}
		return d.decode(s) // skip it
	})
	return isList, err
}

// eachField walks through one object of JSON. read is called with the name of each field, and must read its value. Of
// an empty stream, the error is io.EOF.
func eachField(s *json.Decoder, read func(field string) error) error {
	begin, err := s.Token()
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("%v instead of an object", begin)
	}
	for {
		token, err := s.Token()
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil || token == json.Delim('}') {
			return err
		}
		field := token.(string) // the decoder lets nothing else stand for a name
		if err := read(field); err != nil {
			return fmt.Errorf("%s: %w", field, err)
		}
	}
}

func (d *Decoder) readListMeta(s *json.Decoder, meta *ListMeta) error {
	if err := d.decode(s); err != nil {
		return err
	}
	if err := WantObject(d.raw, "metadata"); err != nil {
		return err
	}
	for name, value := range Members(d.raw) {
		var err error
		switch string(name) {
		case "resourceVersion":
			err = Unmarshal(value, &meta.ResourceVersion, "metadata.resourceVersion")
		case "continue":
			err = Unmarshal(value, &meta.Continue, "metadata.continue")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readItems reads the array of a list's objects. null is an empty one.
func (d *Decoder) readItems(s *json.Decoder, item func(error) error) error {
	begin, err := s.Token()
	if err != nil || begin == nil {
		return err
	}
	if begin != json.Delim('[') {
		return errors.New("not a list")
	}
	for s.More() {
		if err := item(d.readObject(s)); err != nil {
			return err
		}
	}
	_, err = s.Token()
	return err
}

// eventsJSON returns a function that reads the next frame of a watch. Its error is io.EOF where there is none.
func (d *Decoder) eventsJSON(src *source) func() (Event, error) {
	s := src.newJSON()
	return func() (Event, error) {
		if err := d.decode(s); err != nil {
			return Event{}, err
		}
		event, err := d.readEvent(d.raw)
		if err != nil {
			return event, fmt.Errorf("before byte %d: %w", s.InputOffset(), err)
		}
		return event, nil
	}
}

// readEvent reads a frame. Its type may stand after its object.
func (d *Decoder) readEvent(frame []byte) (Event, error) {
	var event Event
	if err := WantObject(frame, ""); err != nil {
		return event, err
	}
	object := []byte("null")
	for name, value := range Members(frame) {
		switch string(name) {
		case "type":
			if err := Unmarshal(value, &event.Type, "type"); err != nil {
				return event, err
			}
		case "object":
			object = value
		}
	}
	switch event.Type {
	case "ERROR":
		event.Status = new(Status)
		return event, Unmarshal(object, event.Status, "object")
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		return event, d.into.ReadJSON(object)
	}
	return event, nil
}
