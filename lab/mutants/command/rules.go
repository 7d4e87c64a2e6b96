package main

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// rulesDir has the files that say what to break.
const rulesDir = "testdata/mutants"

// A mutant is one way to break podcount.
type mutant struct {
	place     string // the file and the line where it begins
	name, why string
	test      named // the test that has to fail, or a subtest in words, after a slash
	edits     []edit

	broken map[string]string // what the files contain that differ, by their names
}

// A named thing is a declaration, or a test, in the package of a directory.
type named struct{ dir, name string }

// An edit replaces lines of a declaration, or of a whole file, which is a name without a directory.
type edit struct {
	named
	lines []string // each behind its sign and a blank: those with a minus go, those with a plus are new
	at    span     // the lines that it replaces
}

// readAll reads all mutants, and applies each to the files of a checkout. The error tells of all that do not fit.
func readAll(checkout fs.FS) ([]mutant, error) {
	files, err := fs.Glob(checkout, rulesDir+"/*.txt")
	if err != nil {
		return nil, err
	}
	var mutants []mutant
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
func applyAll(mutants []mutant, checkout fs.FS) error {
	s, err := readSource(checkout)
	if err != nil {
		return err
	}
	places := map[string]string{}
	var problems []error
	for i := range mutants {
		m := &mutants[i]
		err := s.apply(m)
		if other := places[m.name]; other != "" {
			err = fmt.Errorf("rename it, because another one has this name: %s", other)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: %s: %w", m.place, m.name, err))
		}
		places[m.name] = m.place
	}
	return errors.Join(problems...)
}

// parse reads a file of mutants.
func parse(file, text string) ([]mutant, error) {
	var mutants []mutant
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
			mutants = append(mutants, mutant{place: place, name: name, why: why})
			isBetween = false
		case isBetween || !mutants[len(mutants)-1].add(line, dir):
			return nil, fmt.Errorf("%s: %q cannot stand here: see `go doc ./lab/mutants/command`", place, line)
		}
	}
	return mutants, nil
}

// add takes a line of a mutant other than the first, and reports whether it can be one. Names are of the package in
// dir, unless they say another one.
func (m *mutant) add(line, dir string) bool {
	switch word, rest, _ := strings.Cut(line, " "); {
	case strings.ContainsAny(line[:1], "-+ ") && len(m.edits) > 0:
		last := &m.edits[len(m.edits)-1]
		last.lines = append(last.lines, line)
	case word == "file":
		m.edits = append(m.edits, edit{named: named{name: rest}})
	case word == "in":
		m.edits = append(m.edits, edit{named: parseName(rest, dir)})
	case strings.HasPrefix(line, "noticed by "):
		m.test = parseName(strings.TrimPrefix(rest, "by "), dir)
	default:
		return false
	}
	return true
}

// parseName reads a name, which may stand behind the directory of its package. That is dir otherwise.
func parseName(text, dir string) named {
	first, rest, hasDir := strings.Cut(text, " ")
	if !hasDir || strings.HasPrefix(first, "Test") { // The name of a subtest has blanks.
		return named{dir, text}
	}
	return named{first, rest}
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
