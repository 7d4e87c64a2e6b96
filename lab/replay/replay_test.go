package replay

import (
	"bytes"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"podcount/internal/view/page"
	"podcount/lab/testkit"
)

// pageWith returns the page with a history.
func pageWith(t *testing.T, history any) string {
	var text bytes.Buffer
	if err := Write(&text, page.HTML, history); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// nameOfEvil is a name that would end the element of the history, and start a script.
const nameOfEvil = "</script><script>alert(1)</script><!-- & \u2028"

func TestHistoryIsOnThePage(t *testing.T) {
	text := pageWith(t, map[string]string{"title": nameOfEvil})
	_, rest, _ := strings.Cut(text, `<script type="application/json" id="history">`)
	element, _, _ := strings.Cut(rest, "</script>")
	var got map[string]string
	if err := json.Unmarshal([]byte(element), &got); err != nil {
		t.Fatalf("%v: %s", err, element)
	}
	testkit.WantEqual(t, "the title", got["title"], nameOfEvil)
}

func TestNoNameEndsTheElementOfTheHistory(t *testing.T) {
	text := pageWith(t, map[string]string{"title": nameOfEvil})
	for _, tag := range []string{"<script", "</script>"} {
		testkit.WantNumber(t, tag, strings.Count(text, tag), strings.Count(page.HTML, tag)+1)
	}
}

func TestHistoryIsThereBeforeTheFirstScriptRuns(t *testing.T) {
	first := regexp.MustCompile(`<script[^>]*>`).FindString(pageWith(t, nil))
	testkit.WantEqual(t, "the first script", first, `<script type="application/json" id="history">`)
}

func TestPageWithAHistoryHasAPolicyBeforeItsStyles(t *testing.T) {
	beforeStyles, _, _ := strings.Cut(pageWith(t, nil), "<style")
	testkit.WantText(t, beforeStyles, `<meta http-equiv="Content-Security-Policy" content="default-src 'none'; `+
		`img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'">`)
}

// fullDisk is a file on a full disk.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestWriteReturnsErrors(t *testing.T) {
	testkit.WantError(t, "a full disk", Write(fullDisk{}, page.HTML, nil), "the disk is full")
	testkit.WantError(t, "another page", Write(new(bytes.Buffer), "<title>", nil), `no place "</head>"`)
	testkit.WantError(t, "no JSON", Write(new(bytes.Buffer), page.HTML, func() {}), "unsupported type")
}
