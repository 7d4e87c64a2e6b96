package wire

import (
	"strings"
	"testing"
)

// badSchema is an ObjectReader whose schema contains a value of a type that Schema does not allow.
type badSchema struct{ nothing }

func (badSchema) Schema() Schema { return Schema{1: new(int64)} }

func TestSchemaOfAnUnknownTypePanics(t *testing.T) {
	const object = "\x0a\x01x" // field 1, a text
	answer := "k8s\x00" + "\x12\x05" + "\x12\x03" + object
	defer func() {
		got := recover()
		want := "wire: a Schema must not contain a *int64, but has one for field 2.2.1"
		if got != want {
			t.Errorf("it panics with %v, want %s", got, want)
		}
	}()
	NewDecoder(badSchema{}).List(strings.NewReader(answer), true, func() error { return nil })
	t.Error("it does not panic")
}
