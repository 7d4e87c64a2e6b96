// Package mutants reads the ways to break podcount on purpose, and applies them to the files of a checkout, without
// changing those. The files testdata/mutants/*.txt say what to break:
//
//	package .
//
//	two-workers-for-one-key: A key that is added while a worker has it goes to another at once.
//	noticed by TestKeyAddedDuringWorkComesAgain
//	in Queue.take
//	- item.stage = stageWorking
//	+ item.stage = stageWaiting
//
// A mutant begins with its name, and what podcount does wrong with it. Then comes the test that has to fail, or a
// subtest in words, as in `TestWrites/the uid is sent`. The rest is the change: a function, method, type, variable or
// constant, and lines of it as in a diff, each behind its sign and a blank. The lines with a minus or without a sign
// must be there exactly once, whatever their indentation. Write no more of them than that takes.
//
// A mutant may have several changes, each below its own `in`, and ends with an empty line. What is not Go is named by
// its file: `file deploy/policy.yaml`. A line `package` is for all mutants below it. A name of another package follows
// its directory, as in `noticed by deploy TestAlertsFireWhenTheyShould` or `in internal/api/kube Client.Do`.
package mutants

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
)

// Dir has the files that say what to break.
const Dir = "testdata/mutants"

// A Mutant is one way to break podcount.
type Mutant struct {
	Place string // the file and the line where it begins
	Name  string
	Why   string // what podcount does wrong with it
	Test  Named  // the test that has to fail, or a subtest in words, after a slash

	// Broken is what the files contain that differ, by their names. It is nil if the mutant does not fit.
	Broken map[string]string

	edits []edit
}

// A Named thing is a declaration, or a test, in the package of a directory.
type Named struct{ Dir, Name string }

// An edit replaces lines of a declaration, or of a whole file, which is a name without a directory.
type edit struct {
	Named
	lines []string // each behind its sign and a blank: those with a minus go, those with a plus are new
	at    span     // the lines that it replaces
}

// ReadAll reads all mutants, and applies each to the files of a checkout. If the error tells of mutants that do not
// fit, all are returned with it.
func ReadAll(checkout fs.FS) ([]Mutant, error) {
	files, err := fs.Glob(checkout, Dir+"/*.txt")
	if err != nil {
		return nil, err
	}
	var mutants []Mutant
	for _, file := range files {
		text, err := fs.ReadFile(checkout, file)
		if err != nil {
			return nil, err
		}
		more, err := parse(file, string(text))
		if err != nil {
			return nil, err
		}
		mutants = append(mutants, more...)
	}
	return mutants, applyAll(mutants, checkout)
}

// applyAll applies each mutant to the files of a checkout.
func applyAll(mutants []Mutant, checkout fs.FS) error {
	s, err := readSource(checkout)
	if err != nil {
		return err
	}
	places := map[string]string{}
	var problems []error
	for i := range mutants {
		m := &mutants[i]
		err := s.apply(m)
		if other := places[m.Name]; other != "" {
			err = fmt.Errorf("rename it, because another one has this name: %s", other)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", m.Place, m.Name, err))
		}
		places[m.Name] = m.Place
	}
	return errors.Join(problems...)
}

// parse reads a file of mutants.
func parse(file, text string) ([]Mutant, error) {
	var mutants []Mutant
	dir := "."
	isBetween := true // whether the line is outside of a mutant
	for i, line := range strings.Split(text, "\n") {
		place := fmt.Sprintf("%s:%d", file, i+1)
		newDir, isPackage := strings.CutPrefix(line, "package ")
		name, why, isTitle := strings.Cut(line, ": ")
		switch {
		case line == "":
			isBetween = true
		case isBetween && isPackage:
			dir = newDir
		case isBetween && isTitle:
			mutants = append(mutants, Mutant{Place: place, Name: name, Why: why})
			isBetween = false
		case isBetween || !mutants[len(mutants)-1].add(line, dir):
			return nil, fmt.Errorf("%s: %q cannot stand here: see `go doc ./lab/mutants`", place, line)
		}
	}
	return mutants, nil
}

// add takes a line of a mutant other than the first, and reports whether it can be one. Names are of the package in
// dir, unless they say another one.
func (m *Mutant) add(line, dir string) bool {
	switch word, rest, _ := strings.Cut(line, " "); {
	case strings.ContainsAny(line[:1], "-+ ") && len(m.edits) > 0:
		last := &m.edits[len(m.edits)-1]
		last.lines = append(last.lines, line)
	case word == "file":
		m.edits = append(m.edits, edit{Named: Named{Name: rest}})
	case word == "in":
		m.edits = append(m.edits, edit{Named: parseName(rest, dir)})
	case strings.HasPrefix(line, "noticed by "):
		m.Test = parseName(strings.TrimPrefix(rest, "by "), dir)
	default:
		return false
	}
	return true
}

// parseName reads a name, which may stand behind the directory of its package. That is dir otherwise.
func parseName(text, dir string) Named {
	first, rest, hasDir := strings.Cut(text, " ")
	if !hasDir || strings.HasPrefix(first, "Test") { // The name of a subtest has blanks.
		return Named{dir, text}
	}
	return Named{first, rest}
}

// without returns the lines of an edit that do not have a sign: without the plus it is what must be there, and without
// the minus what replaces it.
func (e edit) without(sign byte) (lines []string) {
	for _, line := range e.lines {
		if line[0] != sign {
			lines = append(lines, strings.TrimPrefix(line[1:], " "))
		}
	}
	return lines
}

func unindented(line string) string     { return strings.TrimLeft(line, " \t") }
func indentation(line string) string    { return strings.TrimSuffix(line, unindented(line)) }
func isSameUnindented(a, b string) bool { return unindented(a) == unindented(b) }

// Places returns the declarations that a mutant changes. They are those that it names, so what it changes in a file
// that is not Go is none.
func (m Mutant) Places() (places []Named) {
	for _, e := range m.edits {
		if e.Dir != "" && !slices.Contains(places, e.Named) {
			places = append(places, e.Named)
		}
	}
	return places
}

// Diff returns the changes of a mutant that fits, each below its file and line, with the signs of a diff.
func (m Mutant) Diff() string {
	var text strings.Builder
	for _, e := range slices.Backward(m.edits) { // The last one comes first.
		fmt.Fprintf(&text, "%s:%d\n", e.at.file, e.at.first+1)
		for _, line := range e.lines {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}
