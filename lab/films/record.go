package films

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"podcount/lab/sim"
)

const (
	// margin is how long a film goes on before and after what it shows.
	margin = 30 * time.Second

	maxSize = 300_000 // bytes of JSON
)

// Check records each film, and checks that it shows what it should and is not too large. It writes the films to a
// directory, each as NAME.json, and films.json, which describes all of them. Of the options' Recording, only Attach is
// used.
func Check(t *testing.T, o sim.Options, dir string) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, film := range all {
		t.Run(film.Name, func(t *testing.T) {
			part, err := film.cut(film.record(t, o))
			if err != nil {
				t.Fatal(err)
			}
			text := withoutHost(encode(t, part))
			if len(text) > maxSize {
				t.Errorf("the film has %d bytes, more than %d", len(text), maxSize)
			}
			write(t, dir, film.Name, text)
		})
	}
	write(t, dir, "films", encode(t, all))
}

func encode(t *testing.T, value any) []byte {
	text, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// withoutHost replaces the name of this machine, with which the identities in a Lease begin.
func withoutHost(text []byte) []byte {
	name, _ := os.Hostname()
	identity := regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `_([0-9a-f]{16})\b`)
	return identity.ReplaceAll(text, []byte("host_$1"))
}

// write writes NAME.json to a directory.
func write(t *testing.T, dir, name string, text []byte) {
	if err := os.WriteFile(filepath.Join(dir, name+".json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// record returns the whole history that the film is a part of.
func (f Film) record(t *testing.T, o sim.Options) (history sim.History) {
	o.Recording = &sim.Recording{Attach: o.Recording.Attach, Keep: func(h sim.History) error {
		history = h
		return nil
	}}
	if f.check != nil {
		f.check(t, o)
		return history
	}
	var err error
	if o.Only, err = sim.ParseSteps(f.only); err != nil {
		t.Fatal(err)
	}
	o.Seed = f.seed
	sim.Run(t, o)
	return history
}

// step is what the films read of a step.
type step struct {
	At          time.Time
	Point, Type string
}

func read(text json.RawMessage) (s step) {
	if err := json.Unmarshal(text, &s); err != nil {
		panic(err)
	}
	return s
}

// cut returns the part of a history that shows all that the film should, each as early as possible, without log lines
// that only help to debug.
func (f Film) cut(history sim.History) (sim.History, error) {
	var first, last step
	rest := history.Steps
	for i, shown := range f.shows {
		pattern := regexp.MustCompile(shown)
		at := slices.IndexFunc(rest, func(text json.RawMessage) bool { return pattern.Match(text) })
		if at < 0 {
			return history, fmt.Errorf("%s does not show %s any more: choose another seed in lab/films/films.go",
				history.Title, shown)
		}
		last = read(rest[at])
		if i == 0 {
			first = last
		}
		rest = rest[at+1:]
	}
	begin, end := first.At.Add(-margin), last.At.Add(margin)
	history.Began = begin
	history.Steps = slices.DeleteFunc(slices.Clone(history.Steps), func(text json.RawMessage) bool {
		s := read(text)
		return s.At.Before(begin) || s.At.After(end) || s.Point == "log" && s.Type == "DEBUG"
	})
	return history, nil
}
