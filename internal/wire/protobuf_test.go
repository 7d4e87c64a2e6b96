package wire

import (
	"strings"
	"testing"
)

// wrongly is an ObjectReader whose schema has a value that means nothing.
type wrongly struct{ nothing }

func (wrongly) Schema() Schema { return Schema{1: new(int64)} }

func TestSchemaWithAValueOfAnUnknownTypePanics(t *testing.T) {
	const object = "\x0a\x01x" // field 1, a text
	answer := "k8s\x00" + "\x12\x05" + "\x12\x03" + object
	defer func() {
		wrong := recover()
		if wrong != "wire: a *int64 in a Schema, at 1" {
			t.Errorf("it panics with %v", wrong)
		}
	}()
	NewDecoder(wrongly{}).List(strings.NewReader(answer), true, func(err error) error { return err })
	t.Error("it does not panic")
}
