package wire

import (
	"errors"
	"strings"
	"testing"
)

// nothing is an ObjectReader that reads no fields.
type nothing struct{}

func (nothing) Reset()                       {}
func (nothing) ReadJSON(object []byte) error { return WantObject(object, "") }
func (nothing) Schema() Schema               { return Schema{} }

// smallPieces returns a source whose limit is so low that a test reaches it easily.
func smallPieces(text string) *source {
	src := newSource(strings.NewReader(text))
	src.maxBuffered = 1000
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
		n := 0
		_, err := NewDecoder(nothing{}).listJSON(smallPieces(c.list), &ListMeta{}, func() error {
			n++
			return nil
		})
		if n != c.items || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %d items, %v", c.name, n, err)
		}
	}

	src := smallPieces(`{"type":"ADDED","object":` + small + `}{"type":"ADDED","object":` + large + `}`)
	next := NewDecoder(nothing{}).eventsJSON(src)
	if event, err := next(); event.Type != "ADDED" || err != nil {
		t.Errorf("a small frame: %+v, %v", event, err)
	}
	if _, err := next(); err == nil || !strings.Contains(err.Error(), tooLarge) {
		t.Errorf("a large frame: %v", err)
	}
}

func TestSourceRemembersHowItEnded(t *testing.T) {
	broken := errors.New("broken")
	src := newSource(failing{broken})
	if _, err := src.Read(make([]byte, 1)); err != broken || src.err != broken {
		t.Errorf("%v, %v", err, src.err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }
