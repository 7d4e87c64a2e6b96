package mutants

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
	"math"
	"path"
	"slices"
	"strings"
)

// A source is the files of a checkout, and where they declare what.
type source struct {
	fs.FS
	declared map[Named][]span // build constraints allow several of one name
}

// A span is some lines of a file, from first up to but without end, counted from 0.
type span struct {
	file       string
	first, end int
}

// readSource reads what the Go files of a checkout declare.
func readSource(checkout fs.FS) (source, error) {
	s := source{checkout, map[Named][]span{}}
	return s, fs.WalkDir(checkout, ".", func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case path.Ext(file) == ".go":
			return s.readFile(file)
		}
		return nil
	})
}

// readFile notes what a file declares.
func (s source) readFile(file string) error {
	text, err := fs.ReadFile(s, file)
	if err != nil {
		return err
	}
	positions := token.NewFileSet()
	parsed, err := parser.ParseFile(positions, file, text, parser.SkipObjectResolution)
	note := func(name string, node ast.Node) bool {
		n := Named{path.Dir(file), name}
		first, last := positions.Position(node.Pos()).Line, positions.Position(node.End()).Line
		s.declared[n] = append(s.declared[n], span{file, first - 1, last})
		return false // What a declaration contains is no declaration of the package.
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		switch d := node.(type) {
		case *ast.FuncDecl:
			return note(nameOf(d), d)
		case *ast.TypeSpec:
			return note(d.Name.Name, d)
		case *ast.ValueSpec:
			return note(d.Names[0].Name, d)
		}
		return true
	})
	return err
}

// nameOf returns the name of a function. In front of a method's stands that of its type, and a dot.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver, _, _ := strings.Cut(types.ExprString(f.Recv.List[0].Type), "[") // without type parameters
	return strings.TrimPrefix(receiver, "*") + "." + f.Name.Name
}

// Declared returns the functions, methods, types, variables and constants that the Go files of a checkout declare.
func Declared(checkout fs.FS) ([]Named, error) {
	s, err := readSource(checkout)
	return slices.Collect(maps.Keys(s.declared)), err
}

// Find finds what a file or a package of a checkout declares under a name. It returns the file, the line, and the text
// with the comment above.
func Find(checkout fs.FS, place, name string) (file string, line int, text string, err error) {
	pattern := place
	if path.Ext(place) != ".go" {
		pattern += "/*.go"
	}
	files, err := fs.Glob(checkout, pattern)
	s := source{checkout, map[Named][]span{}}
	for _, file := range files {
		err = errors.Join(err, s.readFile(file))
	}
	found := s.declared[Named{path.Dir(pattern), name}]
	if err != nil || len(found) == 0 {
		return "", 0, "", errors.Join(err, fmt.Errorf("%s does not declare %s", place, name))
	}
	all, err := fs.ReadFile(checkout, found[0].file)
	lines, first := strings.Split(string(all), "\n"), found[0].first
	for first > 0 && strings.HasPrefix(lines[first-1], "//") {
		first--
	}
	return found[0].file, found[0].first + 1, strings.Join(lines[first:found[0].end], "\n"), err
}

// where returns the lines of a declaration, or of a whole file.
func (s source) where(n Named) ([]span, error) {
	if n.Dir == "" {
		return []span{{n.Name, 0, math.MaxInt}}, nil
	}
	if s.declared[n] == nil {
		return nil, fmt.Errorf("%s has no %s: write its name and its package as they are now", n.Dir, n.Name)
	}
	return s.declared[n], nil
}

// apply sets what the files that a mutant breaks contain then.
func (s source) apply(m *Mutant) error {
	broken, err := s.broken(m)
	if err == nil {
		m.Broken = broken
	}
	return err
}

// broken places the edits of a mutant, and returns what the files that it breaks contain then.
func (s source) broken(m *Mutant) (broken map[string]string, err error) {
	if m.Test.Name == "" || len(m.edits) == 0 {
		return nil, errors.New("it needs a line `noticed by`, and a change")
	}
	function, _, _ := strings.Cut(m.Test.Name, "/")
	if _, err := s.where(Named{m.Test.Dir, function}); err != nil {
		return nil, err
	}
	for i := range m.edits {
		if err := s.place(&m.edits[i]); err != nil {
			return nil, err
		}
	}
	// The last one comes first, so that the places of the others stay what they are.
	slices.SortFunc(m.edits, func(a, b edit) int { return b.at.first - a.at.first })
	broken = map[string]string{}
	for i, e := range m.edits {
		if slices.Equal(e.without('+'), e.without('-')) {
			return nil, fmt.Errorf("in %s, it changes nothing: write lines with a minus or a plus", e.Name)
		}
		if i > 0 && e.at.file == m.edits[i-1].at.file && e.at.end > m.edits[i-1].at.first {
			return nil, fmt.Errorf("two of its changes have the same line: %s", e.lines[len(e.lines)-1])
		}
		if _, isBroken := broken[e.at.file]; !isBroken {
			text, err := fs.ReadFile(s, e.at.file)
			if err != nil {
				return nil, err
			}
			broken[e.at.file] = string(text)
		}
		broken[e.at.file] = e.replaceIn(broken[e.at.file])
	}
	return broken, nil
}

// replaceIn replaces the lines of an edit in the text of its file. It indents the new ones as the old ones are there.
func (e edit) replaceIn(text string) string {
	lines := strings.Split(text, "\n")
	inRule, inFile := indentation(e.without('+')[0]), indentation(lines[e.at.first])
	replacement := e.without('-')
	for i, line := range replacement {
		replacement[i] = inFile + strings.TrimPrefix(line, inRule)
	}
	return strings.Join(slices.Replace(lines, e.at.first, e.at.end, replacement...), "\n")
}

// place finds the lines that an edit replaces.
func (s source) place(e *edit) error {
	within, err := s.where(e.Named)
	if err != nil {
		return err
	}
	old := e.without('+')
	var found []span
	for _, w := range within {
		text, err := fs.ReadFile(s, w.file)
		if err != nil {
			return err
		}
		lines := strings.Split(string(text), "\n")
		for at := w.first; at+len(old) <= min(w.end, len(lines)); at++ {
			if slices.EqualFunc(lines[at:at+len(old)], old, isSameUnindented) {
				found = append(found, span{w.file, at, at + len(old)})
			}
		}
	}
	if len(old) == 0 || len(found) != 1 {
		return fmt.Errorf("write lines that %s has exactly once; it has these %d times:\n%s",
			e.Name, len(found), strings.Join(old, "\n"))
	}
	e.at = found[0]
	return nil
}
