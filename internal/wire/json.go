package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// decode reads the next JSON value, of any type, into d.raw.
func (d *Decoder) decode(s *json.Decoder) error {
	if cap(d.raw) > keptLimit {
		d.raw = nil
	}
	return s.Decode(&d.raw)
}

// readObject reads the next JSON value, and has the ObjectReader take its fields. Its errors name the place.
func (d *Decoder) readObject(s *json.Decoder) error {
	start := s.InputOffset()
	d.into.Reset()
	err := d.decode(s)
	if err == nil {
		err = d.into.ReadJSON(d.raw)
	}
	if err != nil {
		return fmt.Errorf("after byte %d: %w", start, err)
	}
	return nil
}

// listJSON reads a list in JSON. It stores the list's metadata in meta, calls take after each object, and reports
// whether what it read is a list: it has items, even if they are null.
func (d *Decoder) listJSON(src *source, meta *ListMeta, take func() error) (isList bool, err error) {
	s := src.newJSON()
	err = eachField(s, func(name string) error {
		switch name {
		case "metadata":
			return d.readListMeta(s, meta)
		case "items":
			isList = true
			return d.readItems(s, take)
		default:
			return d.skipField(s, name)
		}
	})
	return isList, err
}

// eachField reads one JSON object. It calls read with the name of each field; read must read the value. It returns
// io.EOF if the stream is empty, and the errors of read as they are.
func eachField(s *json.Decoder, read func(name string) error) error {
	begin, err := s.Token()
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		return fmt.Errorf("the answer should be a JSON object, but begins with %v", begin)
	}
	for {
		token, err := s.Token()
		if err == io.EOF {
			return io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
		if token == json.Delim('}') {
			return nil
		}
		name := token.(string) // the decoder accepts only a string here
		if err := read(name); err != nil {
			return err
		}
	}
}

// skipField skips the value of the field with this name.
func (d *Decoder) skipField(s *json.Decoder, name string) error {
	if err := d.decode(s); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (d *Decoder) readListMeta(s *json.Decoder, meta *ListMeta) error {
	if err := d.decode(s); err != nil {
		return fmt.Errorf("metadata: %w", err)
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

// readItems reads the objects of a list, and calls take after each. null is the empty list.
func (d *Decoder) readItems(s *json.Decoder, take func() error) error {
	begin, err := s.Token()
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	if begin == nil {
		return nil
	}
	if begin != json.Delim('[') {
		return errors.New("items: this should be a JSON array")
	}
	for number := 0; s.More(); number++ {
		if err := d.readObject(s); err != nil {
			return &ItemError{Item: number, Err: err}
		}
		if err := take(); err != nil {
			return err
		}
	}
	if _, err := s.Token(); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	return nil
}

// eventsJSON returns a function that reads the next frame of a watch. The function returns io.EOF at the end.
func (d *Decoder) eventsJSON(src *source) func() (Event, error) {
	s := src.newJSON()
	return func() (Event, error) {
		start := s.InputOffset()
		d.into.Reset()
		if err := d.decode(s); err != nil {
			return Event{}, err
		}
		event, err := d.readEvent(d.raw)
		if err != nil {
			return event, fmt.Errorf("after byte %d: %w", start, err)
		}
		return event, nil
	}
}

// readEvent reads one frame of a watch. The fields may have any order.
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
	default:
		return event, nil // the caller refuses it
	}
}
