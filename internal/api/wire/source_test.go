package wire

import (
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"podcount/lab/testkit"
)

// nothing is an ObjectReader that reads no fields.
type nothing struct{}

func (nothing) Reset()                       {}
func (nothing) ReadJSON(object []byte) error { return unmarshal(object, &struct{}{}, "") }
func (nothing) Schema() Schema               { return Schema{} }

// smallPieces returns a source whose limit is so low that a test reaches it easily.
func smallPieces(text string) *source {
	src := newSource(strings.NewReader(text))
	src.limit = 1000
	return src
}

func TestJSONLimitIsForOnePiece(t *testing.T) {
	text := strings.Repeat("a", 900)
	small := `{"name":"` + text + `"}`
	large := `{"name":"` + text + text + `"}`
	const tooLarge = "more than 1000 bytes in one piece"
	for _, c := range []struct {
		name, list string
		items      int
		want       string
	}{
		{"small items", `{"items":[` + strings.Repeat(small+",", 99) + small + `]}`, 100, ""},
		{"a large item", `{"items":[` + small + `,` + large + `]}`, 1, tooLarge},
		{"a large field", `{"kind":"` + text + text + `","items":[]}`, 0, tooLarge},
		{"a large name", `{"` + text + text + `":1,"items":[]}`, 0, tooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := 0
			_, err := NewReader(nothing{}).listJSON(smallPieces(c.list), &ListMeta{}, func() error {
				n++
				return nil
			})
			testkit.WantError(t, "list", err, c.want)
			testkit.WantNumber(t, "items", n, c.items)
		})
	}

	src := smallPieces(`{"type":"ADDED","object":` + small + `}{"type":"ADDED","object":` + large + `}`)
	next := NewReader(nothing{}).eventsJSON(src)
	event, err := next()
	testkit.WantError(t, "a small frame", err, "")
	testkit.WantEqual(t, "its type", event.Type, "ADDED")
	_, err = next()
	testkit.WantError(t, "a large frame", err, tooLarge)
}

func TestSourceRemembersHowItEnded(t *testing.T) {
	broken := errors.New("broken")
	src := newSource(iotest.ErrReader(broken))
	_, err := src.Read(make([]byte, 1))
	if err != broken || src.err != broken {
		t.Errorf("got the error %v and remembered %v, want %v", err, src.err, broken)
	}
}
