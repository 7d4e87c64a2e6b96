package docs_test

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

var (
	pathPattern  = regexp.MustCompile(`^[\w.*-]+(/[\w.*-]+)*/?$`)
	topDirectory = regexp.MustCompile(`^(\.ci|deploy|docs|internal|testdata)(/|$)`)
)

// pathIn returns the path of the checkout that a word names, or "" if it names none: one below a directory of the
// checkout, or a Go file or a page alone.
func pathIn(word string) string {
	word = strings.TrimPrefix(word, "./")
	isFile := path.Ext(word) == ".go" || path.Ext(word) == ".md"
	isPattern := strings.Contains(word, "...") // for go test
	if !pathPattern.MatchString(word) || isPattern || !topDirectory.MatchString(word) && !isFile {
		return ""
	}
	return strings.TrimSuffix(word, "/")
}

func TestPathsAreRecognized(t *testing.T) {
	rows := []struct{ word, want string }{
		{"internal/kube", "internal/kube"},
		{"./deploy/", "deploy"},
		{"main.go", "main.go"},
		{"testdata/mutants/*.patch", "testdata/mutants/*.patch"},
		{"./internal/...", ""},
		{"example.com/pods", ""},
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
				isToBeWritten := strings.Contains(p.text, "ave it as `"+name+"`")
				if name != "" && !isToBeWritten && !pathExists(files, name) {
					t.Errorf("%s: there is no file %s", p.at(c.line), name)
				}
			}
		}
	}
}

// pathExists reports whether a path from the top directory leads to something. It may have wildcards. A name without a
// directory may be that of a file anywhere.
func pathExists(files []string, name string) bool {
	found, err := filepath.Glob(fromHere(name))
	if err == nil && len(found) > 0 {
		return true
	}
	return slices.ContainsFunc(files, func(file string) bool {
		isSame, err := path.Match(name, path.Base(file))
		return err == nil && isSame
	})
}

var (
	memberPattern = regexp.MustCompile(`^([A-Za-z]\w*)\.([A-Za-z]\w*)(\(.*\))?$`)
	testPattern   = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
)

// standardPackages are packages of the standard library that pages name.
var standardPackages = []string{"context", "http", "io", "json", "net", "os", "slog", "sync", "synctest", "time", "tls"}

// namesOfOthers are names from client-go and controller-runtime that look like those of this program.
var namesOfOthers = []string{
	"cache.Options", "log.FromContext", "manager.Manager", "reconcile.Reconciler", "reconcile.Result", "rest.RESTClient",
	"rest.Config", "wait.Backoff", "workqueue.TypedInterface",
}

// fieldOwners are the parts of Kubernetes objects whose fields pages name.
var fieldOwners = []string{"metadata", "source", "spec", "status"}

// fileEndings are the endings of names that look like a member, but are those of files or hosts.
var fileEndings = regexp.MustCompile(`\.(go|md|yaml|json|jsonl|txt|svg|crt|key|pb|patch|kubeconfig|proto|io|com|org|sh|mod)$`)

func TestEachIdentifierInThePagesExists(t *testing.T) {
	d := declarationsOfTree(t)
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			for _, s := range codeSpans(b) {
				if problem := problemOfName(d, p, s.text); problem != "" {
					t.Errorf("%s: %s: %s", p.at(s.line), s.text, problem)
				}
			}
		}
	}
}

// problemOfName says what is wrong with inline code that is the name of a test, or names a member of a type or package.
func problemOfName(d *declarations, p page, name string) string {
	if testPattern.MatchString(name) && !d.isFunction(name) && !p.declares(name) {
		return "there is no such test"
	}
	found := memberPattern.FindStringSubmatch(strings.TrimPrefix(name, "*"))
	if found == nil || fileEndings.MatchString(name) {
		return ""
	}
	owner, member := found[1], found[2]
	isOfOthers := slices.Contains(namesOfOthers, owner+"."+member) || slices.Contains(standardPackages, owner) ||
		slices.Contains(fieldOwners, owner)
	switch {
	case d.has(owner, member), isOfOthers:
		return ""
	case d.types[owner]:
		return "the type has no such method or field"
	case d.packages[owner]:
		return "the package has no such name"
	case p.declares(owner): // such as a variable
		return ""
	}
	return "there is no such type, package or variable"
}

// isFunction reports whether any package declares this name at its top level.
func (d *declarations) isFunction(name string) bool {
	for owner := range d.packages {
		if d.members[owner+"."+name] {
			return true
		}
	}
	return false
}

// declares reports whether Go code in the page has this name.
func (p page) declares(name string) bool {
	word := regexp.MustCompile(`\b` + name + `\b`)
	return slices.ContainsFunc(p.of(code), func(b block) bool {
		return b.language == "go" && word.MatchString(b.source())
	})
}

// placedNames matches a place, a colon, and the names that are declared there: `cache.go`: `Store.Apply`, `CountIndex`.
var placedNames = regexp.MustCompile("`([\\w./-]+)`:\\s(`[\\w.]+`(?:(?:, and|,| and)\\s`[\\w.]+`)*)")

// placedName matches the same in one piece of inline code: `cache.go: Store.Apply`.
var placedName = regexp.MustCompile("`([\\w./-]+): ([\\w.]+)`")

func TestEachIdentifierIsDeclaredWhereThePageSaysSo(t *testing.T) {
	d := declarationsOfTree(t)
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			if b.kind == code || b.kind == indented {
				continue
			}
			text := withoutLinks(b.text())
			for _, found := range slices.Concat(
				placedNames.FindAllStringSubmatch(text, -1), placedName.FindAllStringSubmatch(text, -1)) {
				checkPlace(t, d, p.at(b.line), pathIn(found[1]), found[2])
			}
		}
	}
}

// checkPlace checks that names are declared in a file or package. There is nothing to check in a place without Go code.
func checkPlace(t *testing.T, d *declarations, at, place, names string) {
	t.Helper()
	declared := d.inPlace[place]
	if declared == nil {
		return
	}
	for _, name := range regexp.MustCompile(`[\w.]+`).FindAllString(names, -1) {
		isFile := path.Ext(name) == ".go"
		if !declared[name] && !isFile {
			t.Errorf("%s: %s does not declare %s", at, place, name)
		}
	}
}

func TestInternalsNameEachPackage(t *testing.T) {
	entries, err := os.ReadDir(fromHere("internal"))
	if err != nil {
		t.Fatal(err)
	}
	internals := loadPage(t, "docs/internals.md").text
	for _, e := range entries {
		if !strings.Contains(internals, "internal/"+e.Name()) {
			t.Errorf("docs/internals.md does not name internal/%s", e.Name())
		}
	}
}
