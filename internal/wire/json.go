package wire

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// listJSON reads a list in JSON. It stores the list's metadata in meta, and calls handle after each object. isList
// reports whether there was a field items, even if it was null.
func (d *Decoder) listJSON(src *source, meta *ListMeta, handle func() error) (isList bool, err error) {
	in := src.newJSONDecoder()
	err = eachField(in, func(name string) error {
		switch name {
		case "metadata":
			return d.readListMeta(in, meta)
		case "items":
			isList = true
			return d.readItems(in, handle)
		default:
			return d.skipField(in, name)
		}
	})
	return isList, err
}

// nextToken returns the next token of a value that has begun. It returns io.ErrUnexpectedEOF at the end of the stream.
func nextToken(in *json.Decoder) (json.Token, error) {
	token, err := in.Token()
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return token, err
}

// eachField reads one JSON object. It calls read with the name of each field, and read must consume the value. It
// returns the errors of read unchanged.
func eachField(in *json.Decoder, read func(name string) error) error {
	begin, err := in.Token()
	if err == io.EOF {
		return errors.New("the answer is empty")
	}
	if err != nil {
		return err
	}
	if begin != json.Delim('{') {
		found := cmp.Or[json.Token](begin, "null") // Token returns nil for null.
		return fmt.Errorf("the answer should be a JSON object, but begins with %v", found)
	}
	for {
		token, err := nextToken(in)
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
func (d *Decoder) skipField(in *json.Decoder, name string) error {
	if err := d.readValue(in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

func (d *Decoder) readListMeta(in *json.Decoder, meta *ListMeta) error {
	if err := d.readValue(in); err != nil {
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

// readItems reads the objects of a list, and calls handle after each. null is the empty list.
func (d *Decoder) readItems(in *json.Decoder, handle func() error) error {
	begin, err := nextToken(in)
	if err != nil {
		return fmt.Errorf("items: %w", err)
	}
	if begin == nil { // null
		return nil
	}
	if begin != json.Delim('[') {
		return errors.New("items: this should be a JSON array")
	}
	for index := 0; in.More(); index++ {
		if err := d.readObject(in); err != nil {
			return &ItemError{Item: index, Err: err}
		}
		if err := handle(); err != nil {
			return err
		}
	}
	if _, err := nextToken(in); err != nil {
		return fmt.Errorf("items: %w", err)
	}
	return nil
}

// eventsJSON returns a function that reads the next frame of a watch. The function returns io.EOF at the end.
func (d *Decoder) eventsJSON(src *source) func() (Event, error) {
	in := src.newJSONDecoder()
	return func() (Event, error) {
		start := in.InputOffset()
		d.into.Reset()
		if err := d.readValue(in); err != nil {
			return Event{}, err
		}
		event, err := d.readEvent(d.raw)
		if err != nil {
			return event, fmt.Errorf("after byte %d: %w", start, err)
		}
		event.Start = start
		event.End = in.InputOffset()
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
		return event, nil // the caller must reject it
	}
}

// readObject reads the next JSON value, and passes it to the ObjectReader. Its errors name the offset.
func (d *Decoder) readObject(in *json.Decoder) error {
	start := in.InputOffset()
	d.into.Reset()
	err := d.readValue(in)
	if err == nil {
		err = d.into.ReadJSON(d.raw)
	}
	if err != nil {
		return fmt.Errorf("after byte %d: %w", start, err)
	}
	return nil
}

// readValue reads the next JSON value, of any type, into d.raw.
func (d *Decoder) readValue(in *json.Decoder) error {
	if cap(d.raw) > keptLimit {
		d.raw = nil
	}
	return in.Decode(&d.raw)
}
