package films

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"podcount/lab/sim"
	"podcount/lab/testkit"
)

var began = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// historyOf returns a history whose steps have these points, one every ten seconds.
func historyOf(points ...string) sim.History {
	h := sim.History{Began: began}
	for i, point := range points {
		at := began.Add(time.Duration(i) * 10 * time.Second).Format(time.RFC3339)
		step := fmt.Sprintf(`{"at":%q,"point":%q,"type":"DEBUG"}`, at, point)
		h.Steps = append(h.Steps, json.RawMessage(step))
	}
	return h
}

func pointsOf(h sim.History) (points []string) {
	for _, text := range h.Steps {
		points = append(points, read(text).Point)
	}
	return points
}

func TestFilmIsAPartWithAMargin(t *testing.T) {
	film := Film{shows: []string{`"a"`, `"b"`, `"c"`}}
	h := historyOf("0", "1", "c", "2", "3", "4", "a", "5", "a", "b", "6", "c", "7", "log", "8", "9", "c")
	part, err := film.cut(h)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the points", pointsOf(part), []string{"2", "3", "4", "a", "5", "a", "b", "6", "c", "7", "8"})
	testkit.WantEqual(t, "its beginning", part.Began, began.Add(30*time.Second))
	testkit.WantNumber(t, "steps of the whole history", len(h.Steps), 17)
}

func TestFilmSaysWhatItDoesNotShow(t *testing.T) {
	film := Film{shows: []string{`"a"`, `"b"`, `"c"`}}
	for missing, points := range map[string][]string{"a": {"c", "b"}, "b": {"b", "a", "c"}, "c": {"c", "a", "b", "a"}} {
		_, err := film.cut(historyOf(points...))
		testkit.WantError(t, fmt.Sprint("of ", points), err, fmt.Sprintf("does not show %q any more", missing))
	}
}

func TestFilmsAreDescribed(t *testing.T) {
	names := map[string]bool{}
	for _, film := range all {
		names[film.Name] = true
		testkit.WantEqual(t, film.Name+" has a title and a text", film.Title != "" && film.About != "", true)
		testkit.WantEqual(t, film.Name+" has either a seed or a check", film.seed == 0, film.check != nil)
	}
	testkit.WantNumber(t, "names", len(names), len(all))
}

// The site shows the films that were recorded into its folder. FILMS=$PWD/lab/site/films records them anew.
func TestFilmsOfTheSiteShowWhatTheTableSays(t *testing.T) {
	const dir = "../site/films/"
	testkit.WantEqual(t, "the table", testkit.ReadFile(t, dir+"films.json"), string(encode(t, all)))
	for _, film := range all {
		text := testkit.ReadFile(t, dir+film.Name+".json")
		testkit.WantBetween(t, "bytes of "+film.Name, len(text), 1, maxSize)
		var history sim.History
		if err := json.Unmarshal([]byte(text), &history); err != nil {
			t.Fatal(err)
		}
		if _, err := film.cut(history); err != nil {
			t.Errorf("%s: %v", film.Name, err)
		}
	}
}
