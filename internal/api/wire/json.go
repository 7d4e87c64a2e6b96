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
func (rd *Reader) listJSON(src *source, meta *ListMeta, handle func() error) (isList bool, err error) {
	in := src.newJSONDecoder()
	begin, err := in.Token()
	if err == io.EOF {
		return false, errors.New("the answer is empty")
	}
	if err != nil {
		return false, err
	}
	if begin != json.Delim('{') {
		found := fmt.Sprint(cmp.Or[json.Token](begin, "null")) // Token returns nil for null.
		return false, fmt.Errorf("the answer should be a JSON object, but begins with %s", Shorten(found, quoteLimit))
	}
	for {
		token, err := nextToken(in) // the name of a field, or the end
		switch {
		case err != nil:
		case token == json.Delim('}'):
			return isList, nil
		case token == "metadata":
			err = rd.readListMeta(in, meta)
		case token == "items":
			isList = true
			err = rd.readItems(in, handle)
		default:
			err = rd.readValue(in)
		}
		if err != nil {
			return isList, err
		}
	}
}

// nextToken returns the next token of a value that has begun. It returns io.ErrUnexpectedEOF at the end of the stream.
func nextToken(in *json.Decoder) (json.Token, error) {
	token, err := in.Token()
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return token, err
}

func (rd *Reader) readListMeta(in *json.Decoder, meta *ListMeta) error {
	if err := rd.readValue(in); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return EachMember(rd.raw, "metadata", func(name, value []byte) (err error) {
		switch string(name) {
		case "resourceVersion":
			meta.ResourceVersion, err = textOf(value, "metadata.resourceVersion")
		case "continue":
			meta.Continue, err = textOf(value, "metadata.continue")
		}
		return err
	})
}

// textOf returns a JSON string, or "" for null.
func textOf(value []byte, field string) (string, error) {
	var text Text
	err := text.Read(value, field)
	return string(text), err
}

// readItems reads the objects of a list, and calls handle after each. null is the empty list.
func (rd *Reader) readItems(in *json.Decoder, handle func() error) error {
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
		if err := rd.readObject(in); err != nil {
			return fmt.Errorf("items: item %d: %w", index, err)
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
func (rd *Reader) eventsJSON(src *source) func() (Event, error) {
	in := src.newJSONDecoder()
	return func() (Event, error) {
		start := in.InputOffset()
		rd.into.Reset()
		if err := rd.readValue(in); err != nil {
			return Event{}, err
		}
		event, err := rd.readEvent(rd.raw)
		if err != nil {
			return event, fmt.Errorf("after byte %d: %w", start, err)
		}
		event.Size = in.InputOffset() - start
		if rd.wantsHead() {
			event.Head = rd.raw[:min(len(rd.raw), headLimit)]
		}
		return event, nil
	}
}

// readEvent reads one frame of a watch. The fields may have any order.
func (rd *Reader) readEvent(frame []byte) (Event, error) {
	var event Event
	object := []byte("null")
	err := EachMember(frame, "", func(name, value []byte) error {
		switch string(name) {
		case "type":
			text, err := textOf(value, "type")
			event.Type = Shorten(text, typeLimit)
			return err
		case "object":
			object = value
		}
		return nil
	})
	if err != nil {
		return event, err
	}
	switch event.Type {
	case "ERROR":
		event.Status = new(Status)
		if event.Status.readJSON(object) != nil {
			*event.Status = quoted(object)
		}
		return event, nil
	case "ADDED", "MODIFIED", "DELETED", "BOOKMARK":
		return event, rd.into.ReadJSON(object)
	default:
		return event, nil // the caller must reject it
	}
}

// readObject reads the next JSON value, and passes it to the ObjectReader. Its errors name the offset.
func (rd *Reader) readObject(in *json.Decoder) error {
	start := in.InputOffset()
	rd.into.Reset()
	err := rd.readValue(in)
	if err == nil {
		err = rd.into.ReadJSON(rd.raw)
	}
	if err != nil {
		return fmt.Errorf("after byte %d: %w", start, err)
	}
	return nil
}

// readValue reads the next JSON value, of any type, into rd.raw.
func (rd *Reader) readValue(in *json.Decoder) error {
	if cap(rd.raw) > keptLimit {
		rd.raw = nil
	}
	return in.Decode(&rd.raw)
}
