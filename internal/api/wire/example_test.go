package wire_test

import (
	"fmt"
	"strings"

	"podcount/internal/api/wire"
)

// thing is what these tests read of an object: its name, its uid and one label.
type thing struct {
	name, uid wire.Text
	app       wire.Text // the value of the label app
}

func (th *thing) Reset() {
	th.name = th.name[:0]
	th.uid = th.uid[:0]
	th.app = th.app[:0]
}

func (th *thing) ReadJSON(object []byte) error {
	return wire.EachMember(object, "", func(name, value []byte) error {
		if string(name) == "metadata" {
			return wire.EachMember(value, "metadata", th.readMetadata)
		}
		return nil
	})
}

func (th *thing) readMetadata(name, value []byte) error {
	switch string(name) {
	case "name":
		return th.name.Read(value, "metadata.name")
	case "uid":
		return th.uid.Read(value, "metadata.uid")
	case "labels":
		return wire.EachMember(value, "metadata.labels", th.readLabel)
	}
	return nil
}

func (th *thing) readLabel(name, value []byte) error {
	if string(name) == "app" {
		return th.app.Read(value, "metadata.labels")
	}
	return nil
}

func (th *thing) Schema() wire.Schema {
	setLabel := func(key, value []byte) {
		if string(key) == "app" {
			th.app = append(th.app[:0], value...)
		}
	}
	return wire.Schema{
		1: wire.Schema{ // metadata
			1:  &th.name,
			5:  &th.uid,
			11: wire.StringMap(setLabel),
		},
	}
}

// String is name/uid/app.
func (th *thing) String() string {
	return fmt.Sprintf("%s/%s/%s", th.name, th.uid, th.app)
}

// The ObjectReader, a thing, holds one object of the list after another.
func ExampleReader_List() {
	answer := `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[
		{"metadata":{"name":"web-0","uid":"a1","labels":{"app":"web"}}},
		{"metadata":{"name":"db-0","uid":"b2"}}
	]}`
	var pod thing
	reader := wire.NewReader(&pod)
	meta, err := reader.List(strings.NewReader(answer), false, func() error {
		fmt.Printf("%s, whose label app is %q\n", pod.name, pod.app)
		return nil
	})
	fmt.Println("as of", meta.ResourceVersion, err)
	// Output:
	// web-0, whose label app is "web"
	// db-0, whose label app is ""
	// as of 5 <nil>
}
