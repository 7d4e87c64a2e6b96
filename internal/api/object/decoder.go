package object

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"podcount/internal/api/objectmeta"
	"podcount/internal/api/wire"
)

// Decoder reads objects of one kind from lists, watches and other answers. It reuses its memory, so a pod or a node
// that the store already has needs no allocation. Only one goroutine at a time may use it. This is the way of a list:
//
//	bytes ──package wire, told by Schema or ReadJSON what to read──▶ raw ──buildObject──▶ object and metadata ──add──▶ Listing
//
// wire knows protobuf and JSON, and how a list or a watch is framed. It calls back for each object. buildObject checks
// and packs what was read. Then add, which is Listing.Add, keeps the object or lets the next one overwrite it.
type Decoder[T Object[T]] struct {
	kind     *Kind[T]
	wire     *wire.Reader // fills raw through the methods of wire.ObjectReader, which are at the end of this file
	packer   *objectmeta.Packer
	interner objectmeta.Interner // for the texts of Kind.Fields, which many objects share
	label    wire.Text           // the value of the label that is being read

	// The object that was read last. The next one overwrites it.
	raw      rawObject
	metadata objectmeta.Draft // made from raw by buildObject
	object   T                // made from raw by buildObject, without the metadata; nil after it was kept
}

// NewDecoder returns a decoder. kind.Labels must not change after that.
func NewDecoder[T Object[T]](kind *Kind[T]) *Decoder[T] {
	d := &Decoder[T]{
		kind:     kind,
		packer:   objectmeta.NewPacker(kind.Labels),
		interner: objectmeta.Interner{},
		raw: rawObject{
			labels: make([]objectmeta.Label, len(kind.Labels)),
			fields: make([]wire.Text, len(kind.Fields)),
		},
	}
	d.wire = wire.NewReader(d)
	return d
}

// KeepHeads makes each event have the first bytes of its frame while wanted returns true.
func (d *Decoder[T]) KeepHeads(wanted func() bool) { d.wire.WantsHead = wanted }

// List reads a list as it arrives, and calls add for each object, with its metadata beside it. If add keeps the object,
// it sets the object's metadata, and returns true. Otherwise the next object overwrites it. Errors name the object's
// position in the list or its page, and the place in the object.
func (d *Decoder[T]) List(
	r io.Reader, isProtobuf bool, add func(obj T, metadata objectmeta.Draft) (kept bool, err error),
) (wire.ListMeta, error) {
	position := 0
	var handled error // the error of the function below
	meta, err := d.wire.List(r, isProtobuf, func() error {
		handled = d.buildObject()
		if handled != nil {
			handled = fmt.Errorf("items: item %d: %w", position, handled)
			return handled
		}
		position++
		var kept bool
		kept, handled = add(d.object, d.metadata)
		if kept {
			d.forgetObject()
		}
		return handled
	})
	if err != nil && handled == nil && position > 0 {
		err = fmt.Errorf("after %.300s: %w", d.metadata.NamespacedName(), err)
	}
	return meta, err
}

// WatchEvent is one frame of a watch.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type WatchEvent[T any] struct {
	wire.Event
	Object T // nil if the type is ERROR; a BOOKMARK has an object with only a resourceVersion
}

// Events reads a watch, and calls handle for each frame, until the stream ends or handle fails. It returns
//   - nil if the stream ends between two frames;
//   - the error of handle, or of r, as it is;
//   - a wire.GarbageError if a frame cannot be decoded.
func (d *Decoder[T]) Events(r io.Reader, isProtobuf bool, handle func(WatchEvent[T]) error) error {
	return d.wire.Events(r, isProtobuf, func(frame wire.Event) (err error) {
		event := WatchEvent[T]{Event: frame}
		switch {
		case frame.Status != nil:
		case frame.Type == "BOOKMARK":
			event.Object, err = d.bookmark()
		case frame.Type == "ADDED" || frame.Type == "MODIFIED" || frame.Type == "DELETED":
			event.Object, err = d.takeObject()
		default:
			err = fmt.Errorf("unknown event type %q", frame.Type)
		}
		if err != nil {
			return wire.Garbage(err)
		}
		return handle(event)
	})
}

// bookmark returns an object with only the resourceVersion that was read last.
func (d *Decoder[T]) bookmark() (obj T, err error) {
	if len(d.raw.version) == 0 {
		return obj, errors.New("the bookmark has no metadata.resourceVersion")
	}
	metadata, err := d.packer.Pack(objectmeta.Fields{ResourceVersion: d.raw.version})
	if err != nil {
		return obj, fmt.Errorf("the bookmark's metadata: %w", err)
	}
	obj = d.kind.New()
	obj.ObjectMeta().Metadata = metadata.Keep()
	return obj, nil
}

// Parse decodes one object from JSON.
func (d *Decoder[T]) Parse(r io.Reader) (obj T, err error) {
	if err := d.wire.Object(r); err != nil {
		return obj, err
	}
	return d.takeObject()
}

// takeObject returns the object that was read last, with its metadata. The caller owns it.
func (d *Decoder[T]) takeObject() (obj T, err error) {
	if err := d.buildObject(); err != nil {
		return obj, err
	}
	obj = d.object
	d.forgetObject()
	obj.ObjectMeta().Metadata = d.metadata.Keep()
	return obj, nil
}

// buildObject sets d.metadata and d.object from d.raw.
func (d *Decoder[T]) buildObject() (err error) {
	raw := &d.raw
	if len(raw.name) == 0 || len(raw.uid) == 0 || len(raw.version) == 0 {
		return fmt.Errorf("%s %.300q has no metadata.name, uid or resourceVersion", d.kind.Name, raw.key())
	}
	d.metadata, err = d.packer.Pack(objectmeta.Fields{
		Namespace:       raw.namespace,
		Name:            raw.name,
		UID:             raw.uid,
		ResourceVersion: raw.version,
		Labels:          raw.labels,
	})
	if err != nil {
		return fmt.Errorf("%s %.300q: %w", d.kind.Name, raw.key(), err)
	}
	var none T
	if d.object == none {
		d.object = d.kind.New()
	}
	for i, field := range d.kind.Fields {
		*field.Of(d.object) = ""
		if text := raw.fields[i]; len(text) <= objectmeta.NameLimit {
			*field.Of(d.object) = d.interner.Intern(text)
		}
	}
	if d.kind.ReadJSON != nil {
		d.kind.ReadJSON(d.object, raw.json)
	}
	return nil
}

// forgetObject must be called when d.object is kept, so that the next object gets memory of its own.
func (d *Decoder[T]) forgetObject() {
	var none T
	d.object = none
}

// rawObject has the fields of an object as the server sent them. The next object overwrites it.
type rawObject struct {
	namespace wire.Text
	name      wire.Text
	uid       wire.Text
	version   wire.Text
	labels    []objectmeta.Label // labels[i] is the label with the key Kind.Labels[i]
	fields    []wire.Text        // fields[i] is Kind.Fields[i]

	// json is the whole object, or nil if it came in protobuf. It is valid only until the next object is read.
	json []byte
}

// key returns the object's namespace and name.
func (raw *rawObject) key() Key { return Key{string(raw.namespace), string(raw.name)} }

// Reset empties raw for the next object. It is one of the methods of wire.ObjectReader, with ReadJSON and Schema.
func (d *Decoder[T]) Reset() {
	raw := &d.raw
	raw.namespace = raw.namespace[:0]
	raw.name = raw.name[:0]
	raw.uid = raw.uid[:0]
	raw.version = raw.version[:0]
	raw.dropLabels()
	for i := range raw.fields {
		raw.fields[i] = raw.fields[i][:0]
	}
	raw.json = nil
}

func (raw *rawObject) dropLabels() {
	for i := range raw.labels {
		raw.labels[i].IsPresent = false
	}
}

// setLabel stores a label in raw if its key is in Kind.Labels.
func (d *Decoder[T]) setLabel(key, value []byte) {
	for i, wanted := range d.kind.Labels {
		if wanted == string(key) {
			label := &d.raw.labels[i]
			label.IsPresent = true
			label.Value = append(label.Value[:0], value...)
			return
		}
	}
}

// ReadJSON reads a JSON object into raw.
func (d *Decoder[T]) ReadJSON(object []byte) error {
	d.raw.json = object
	return wire.EachMember(object, "", func(name, value []byte) error {
		if string(name) == "metadata" {
			return d.readMetadata(value)
		}
		if d.kind.MetadataOnly { // The server may send whole objects all the same.
			return nil
		}
		return d.readFields(name, value)
	})
}

func (d *Decoder[T]) readMetadata(object []byte) error {
	raw := &d.raw
	return wire.EachMember(object, "metadata", func(name, value []byte) error {
		switch string(name) {
		case "namespace":
			return raw.namespace.Read(value, "metadata.namespace")
		case "name":
			return raw.name.Read(value, "metadata.name")
		case "uid":
			return raw.uid.Read(value, "metadata.uid")
		case "resourceVersion":
			return raw.version.Read(value, "metadata.resourceVersion")
		case "labels":
			return d.readLabels(value)
		}
		return nil
	})
}

func (d *Decoder[T]) readLabels(object []byte) error {
	if string(object) == "null" {
		d.raw.dropLabels() // As in encoding/json, null removes the labels of an earlier member "labels".
	}
	text := &d.label
	return wire.EachMember(object, "metadata.labels", func(name, value []byte) error {
		*text = (*text)[:0] // Read does not change text if the value is null.
		if err := text.Read(value, "metadata.labels"); err != nil {
			return err
		}
		d.setLabel(name, *text)
		return nil
	})
}

// readFields reads the fields of the kind that are members of an object with this name, such as spec.
func (d *Decoder[T]) readFields(objectName, object []byte) error {
	for i, field := range d.kind.Fields {
		parent, wanted, _ := strings.Cut(field.JSON, ".")
		if parent != string(objectName) {
			continue
		}
		err := wire.EachMember(object, parent, func(name, value []byte) error {
			if string(name) != wanted {
				return nil
			}
			return d.raw.fields[i].Read(value, field.JSON)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Schema says where in raw the fields of a protobuf object go. The field numbers are those of the generated.proto files
// in k8s.io/api and k8s.io/apimachinery.
func (d *Decoder[T]) Schema() wire.Schema {
	raw := &d.raw
	known := wire.Schema{
		1: wire.Schema{ // metadata
			1:  &raw.name,
			3:  &raw.namespace,
			5:  &raw.uid,
			6:  &raw.version,
			11: wire.StringMap(d.setLabel),
		},
	}
	if d.kind.MetadataOnly {
		return known
	}
	for i, field := range d.kind.Fields {
		parent, number := field.Protobuf[0], field.Protobuf[1]
		if known[parent] == nil {
			known[parent] = wire.Schema{}
		}
		known[parent].(wire.Schema)[number] = &raw.fields[i]
	}
	return known
}
