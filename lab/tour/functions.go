package tour

import (
	"io/fs"
	"regexp"

	"podcount/lab/mutants"
)

// function is a function or a type that the tour names. Its source begins with the comment above it.
type function struct {
	Name   string `json:"name"`
	File   string `json:"file"`
	Line   int    `json:"line"`
	Source string `json:"source"`
}

var (
	// placePattern matches a file or a package, and the functions that are declared there, as in `cache.go`:
	// `Store.apply`.
	placePattern = regexp.MustCompile("`([\\w./-]+)`: ((?:`[\\w.]+`(?:, | and )?)+)")

	// namePattern matches one of these functions.
	namePattern = regexp.MustCompile("`([\\w.]+)`")
)

// functionsIn finds the functions that a text names.
func functionsIn(checkout fs.FS, text string) (functions []function, err error) {
	for _, found := range placePattern.FindAllStringSubmatch(text, -1) {
		for _, name := range namePattern.FindAllStringSubmatch(found[2], -1) {
			file, line, source, err := mutants.Find(checkout, found[1], name[1])
			if err != nil {
				return nil, err
			}
			functions = append(functions, function{name[1], file, line, source})
		}
	}
	return functions, nil
}
