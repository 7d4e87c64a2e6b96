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
		found := fmt.Sprint(cmp.Or[json.Token](begin, "null")) // Token returns nil for null.
		return fmt.Errorf("the answer should be a JSON object, but begins with %s", Shorten(found, quoteLimit))
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
			meta.ResourceVersion, err = textOf(value, "metadata.resourceVersion")
		case "continue":
			meta.Continue, err = textOf(value, "metadata.continue")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// textOf returns a JSON string, or "" for null.
func textOf(value []byte, field string) (string, error) {
	var text Text
	err := text.Read(value, field)
	return string(text), err
}

// errEnough ends the reading of an answer of which enough is known.
var errEnough = errors.New("enough was read")

// ReadListMeta reads the metadata of a list in JSON, and nothing that follows them.
func ReadListMeta(r io.Reader) (meta ListMeta, err error) {
	d := NewDecoder(nil)
	in := newSource(r).newJSONDecoder()
	err = eachField(in, func(name string) error {
		if name != "metadata" {
			return d.skipField(in, name)
		}
		if err := d.readListMeta(in, &meta); err != nil {
			return err
		}
		return errEnough
	})
	if err != nil && err != errEnough {
		return ListMeta{}, err
	}
	return meta, meta.check()
}

// ReadResources reads an answer of discovery, which is JSON. It calls handle with the name of each resource, which is
// valid only during the call. It returns the kind of the answer, which should be APIResourceList.
// https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func ReadResources(r io.Reader, handle func(name []byte)) (kind string, err error) {
	d := NewDecoder(nil)
	in := newSource(r).newJSONDecoder()
	var resource Text
	err = eachField(in, func(name string) error {
		switch name {
		case "kind":
			text, err := d.readText(in, name)
			kind = text
			return err
		case "resources":
			return eachElement(in, name, func(int) error {
				resource = resource[:0]
				if err := d.readName(in, &resource); err != nil {
					return err
				}
				handle(resource)
				return nil
			})
		default:
			return d.skipField(in, name)
		}
	})
	return Shorten(kind, typeLimit), err
}

// readText reads the value of a field, which is a string.
func (d *Decoder) readText(in *json.Decoder, field string) (string, error) {
	if err := d.readValue(in); err != nil {
		return "", fmt.Errorf("%s: %w", field, err)
	}
	return textOf(d.raw, field)
}

// readName reads the name of the next resource.
func (d *Decoder) readName(in *json.Decoder, name *Text) error {
	if err := d.readValue(in); err != nil {
		return fmt.Errorf("resources: %w", err)
	}
	if err := WantObject(d.raw, "resources"); err != nil {
		return err
	}
	for member, value := range Members(d.raw) {
		if string(member) == "name" {
			return name.Read(value, "resources.name")
		}
	}
	return nil
}

// readItems reads the objects of a list, and calls handle after each. null is the empty list.
func (d *Decoder) readItems(in *json.Decoder, handle func() error) error {
	return eachElement(in, "items", func(index int) error {
		if err := d.readObject(in); err != nil {
			return &ItemError{Item: index, Err: err}
		}
		return handle()
	})
}

// eachElement reads one JSON array, the value of a field. It calls read with the index of each element, and read must
// consume the element. It returns the errors of read unchanged. null is the empty array.
func eachElement(in *json.Decoder, field string, read func(index int) error) error {
	begin, err := nextToken(in)
	if err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	if begin == nil { // null
		return nil
	}
	if begin != json.Delim('[') {
		return fmt.Errorf("%s: this should be a JSON array", field)
	}
	for index := 0; in.More(); index++ {
		if err := read(index); err != nil {
			return err
		}
	}
	if _, err := nextToken(in); err != nil {
		return fmt.Errorf("%s: %w", field, err)
	}
	return nil
}

// eventsJSON returns a function that reads the next frame of a watch. The function returns io.EOF at the end.
func (d *Decoder) eventsJSON(src *source) func() (Event, error) {
	in := src.newJSONDecoder()
	src.hasFrames = true
	return func() (Event, error) {
		start := in.InputOffset()
		d.into.Reset()
		if err := d.readValue(in); err != nil {
			if beginning := src.takeHugeError(); beginning != nil {
				status := quoted(beginning)
				return Event{Type: "ERROR", Status: &status, Size: src.bytesRead - start}, nil
			}
			return Event{}, err
		}
		event, err := d.readEvent(d.raw)
		if err != nil {
			return event, fmt.Errorf("after byte %d: %w", start, err)
		}
		event.Size = in.InputOffset() - start
		if d.wantsHead() {
			event.Head = d.raw[:min(len(d.raw), headLimit)]
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
			text, err := textOf(value, "type")
			if err != nil {
				return event, err
			}
			event.Type = Shorten(text, typeLimit)
		case "object":
			object = value
		}
	}
	switch event.Type {
	case "ERROR":
		event.Status = new(Status)
		err := event.Status.readJSON(object)
		if err == errLongStatus {
			*event.Status = quoted(object)
			return event, nil
		}
		return event, err
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
