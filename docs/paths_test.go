package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// pathPattern matches what may be a path, perhaps with wildcards.
var pathPattern = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)

// fileEndings are the endings of files that pages name without their directory.
var fileEndings = []string{".go", ".jsonl", ".md", ".mod"}

// notDirectories is what stands before a slash, but is no directory of the checkout: directories that exist elsewhere,
// packages and resources of others, prefixes of labels, media types and namespaces.
var notDirectories = []string{
	"application", "bin", "compress", "count", "counts", "crd", "default", "deployment", "encoding", "hopegi", "linux",
	"localhost", "log", "net", "nodes", "podcount", "Sync", "text", "testing", "tools", "widgets",
}

// pathIn returns the path of the checkout that a word names, or "" if it names none. Whatever has a slash is a path, so
// that a misspelt directory is noticed, unless it is known to be something else. A file may stand alone.
func pathIn(word string) string {
	word = strings.TrimPrefix(word, "../podcount/") // the checkout beside the module of a reader
	word = strings.TrimSuffix(strings.TrimPrefix(word, "./"), "/")
	isPattern := strings.Contains(word, "...") // for go test
	if !pathPattern.MatchString(word) || isPattern {
		return ""
	}
	first, _, hasSlash := strings.Cut(word, "/")
	isHost := strings.Contains(strings.TrimPrefix(first, "."), ".")
	switch {
	case hasSlash && !isHost && !testPattern.MatchString(first) && !slices.Contains(notDirectories, first):
		return word
	case slices.Contains(topDirectories, word), slices.Contains(fileEndings, path.Ext(word)):
		return word
	}
	return ""
}

// topDirectories are the directories of the checkout, as far as pages name them alone.
var topDirectories = []string{".ci", "deploy", "docs", "internal", "lab", "testdata"}

func TestPathsAreRecognized(t *testing.T) {
	rows := []struct{ word, want string }{
		{"internal/api/kube", "internal/api/kube"},
		{"./deploy/", "deploy"},
		{"../podcount/lab/trial", "lab/trial"},
		{"main.go", "main.go"},
		{"testdata/mutants/*.txt", "testdata/mutants/*.txt"},
		{"interal/kube", "interal/kube"},
		{"./internal/...", ""},
		{"example.com/pods", ""},
		{"net/http", ""},
		{"/metrics", ""},
		{"deployment", ""},
	}
	for _, row := range rows {
		t.Run(row.word, func(t *testing.T) { testkit.WantEqual(t, "the path", pathIn(row.word), row.want) })
	}
}

func TestEachPathInThePagesExists(t *testing.T) {
	files := filesOfTree(t)
	for _, p := range loadPages(t) {
		for _, c := range p.commands() {
			for _, word := range c.words {
				name := pathIn(strings.Trim(word, `'",`))
				isToBeWritten := strings.Contains(p.text, "ave it as `"+name+"`") || name == ofStudent
				if name != "" && !isToBeWritten && !p.pathExists(files, name) {
					t.Errorf("%s: there is no file %s", p.at(c.line), name)
				}
			}
		}
	}
}

// ofStudent is the directory of a student of the course. `make learn` makes it.
const ofStudent = "learn/mine"

// pathExists reports whether a path leads to something, from the top directory or from that of the page. It may have
// wildcards. A file may stand alone if the page names its directory somewhere.
func (p page) pathExists(files []string, name string) bool {
	for _, directory := range []string{".", path.Dir(p.name)} {
		found, err := filepath.Glob(fromHere(path.Join(directory, name)))
		if err == nil && len(found) > 0 {
			return true
		}
	}
	return slices.ContainsFunc(files, func(file string) bool {
		return path.Base(file) == name && strings.Contains(p.text, path.Dir(file))
	})
}

func TestInternalsNameEachPackage(t *testing.T) {
	internals := loadPage(t, "docs/change/internals.md").text
	named := map[string]bool{}
	for _, file := range goFiles(t) {
		directory := path.Dir(file.name)
		top, _, _ := strings.Cut(directory, "/")
		_, err := os.Stat(fromHere(directory + "/go.mod"))
		isPackage := slices.Contains([]string{"deploy", "internal", "lab"}, top) && err != nil // and no other module
		if isPackage && !named[directory] && !strings.Contains(internals, "`"+directory+"`") {
			t.Errorf("docs/change/internals.md does not say what %s holds", directory)
		}
		named[directory] = true
	}
}
