package docs_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

var (
	memberPattern = regexp.MustCompile(`^\*?([A-Za-z]\w*(?:\.[A-Za-z]\w*)+)(\(.*\))?$`)
	testPattern   = regexp.MustCompile(`^(Test|Fuzz|Benchmark)[A-Z]\w*$`)
	plainPattern  = regexp.MustCompile(`^\*?([A-Za-z]+[a-z][A-Z]\w*|[A-Z][a-z]\w*)(\(.*\))?$`) // in MixedCaps
)

// variables are what pages call values of these types, as the examples do.
var variables = map[string]string{
	"c":       "Controller",
	"f":       "Server",
	"fake":    "Server",
	"p":       "program",
	"network": "Network",
}

// membersOfOthers are names of the standard library, of client-go and controller-runtime, and fields of objects.
var membersOfOthers = []string{
	"synctest.Test", "t.Context", "time.Sleep", "rest.Config",
	"metadata.generation", "source.component", "spec.count", "spec.name", "status.count",
	"status.healthy", "status.observedGeneration",
}

// namesOfOthers are names in MixedCaps of client-go and controller-runtime, of Kubernetes' objects, and of slog.
var namesOfOthers = []string{
	"expirationTimestamp", "Debug", "Info", "Warn",
}

// fileEndingPattern matches the endings of names that look like a member, but are those of files or hosts.
var fileEndingPattern = regexp.MustCompile(
	`\.(go|md|yaml|json|jsonl|txt|svg|crt|key|pb|patch|kubeconfig|proto|io|com|org|sh|mod)$`)

func TestEachIdentifierInThePagesExists(t *testing.T) {
	d := declarationsOfTree(t)
	texts := strings.Join(textsOfProduct(t), "\n")
	for _, p := range loadPages(t) {
		for _, b := range p.blocks {
			for _, s := range codeSpans(b) {
				if problem := problemOfName(d, p, texts, s.text); problem != "" {
					t.Errorf("%s: %s: %s", p.at(s.line), s.text, problem)
				}
			}
		}
	}
}

// problemOfName says what is wrong with inline code that is the name of a test, of a member, or of something else in
// MixedCaps. Such a name need not be one of Go: it may be in texts, which the program prints or installs.
func problemOfName(d *declarations, p page, texts, name string) string {
	if member := memberPattern.FindStringSubmatch(name); member != nil {
		if fileEndingPattern.MatchString(name) || slices.Contains(membersOfOthers, member[1]) {
			return ""
		}
		return d.problemOfMember(strings.Split(member[1], "."))
	}
	plain := plainPattern.FindStringSubmatch(name)
	switch {
	case plain == nil, d.names[plain[1]], slices.Contains(namesOfOthers, plain[1]), p.declares(plain[1]):
		return ""
	case testPattern.MatchString(plain[1]):
		return "there is no such test"
	case !hasWord(texts, plain[1]):
		return "neither the code nor what it prints has this name"
	}
	return ""
}

// problemOfMember says which part of a name such as Type.field.Method does not exist. The first part is a package, a
// type or a variable.
func (d *declarations) problemOfMember(parts []string) string {
	owner := parts[0]
	if typeName, isVariable := variables[owner]; isVariable {
		owner = typeName
	}
	if !d.types[owner] && !d.packages[owner] {
		return "there is no type, package or variable " + owner
	}
	for _, name := range parts[1:] {
		typeName, isKnown := d.member(owner, name)
		if !isKnown {
			return owner + " has no " + name
		}
		owner = typeName
	}
	return ""
}

// declares reports whether Go code in the page has this name.
func (p page) declares(name string) bool {
	return slices.ContainsFunc(p.of(code), func(b block) bool {
		return b.language == "go" && hasWord(b.source(), name)
	})
}

// hasWord reports whether a text has a word, and not only as a part of a longer one.
func hasWord(text, word string) bool {
	return regexp.MustCompile(`\b` + regexp.QuoteMeta(word) + `\b`).MatchString(text)
}

// In comments of the code, tables say in their last column, "where", what does what they describe.
func TestEachNameInTheTablesOfTheCodeExists(t *testing.T) {
	d := declarationsOfTree(t)
	for _, file := range []string{"internal/control/once.go", "internal/control/brakes/brakes.go"} {
		column, checked := 0, 0
		for line := range strings.Lines(testkit.ReadFile(t, "../"+file)) {
			row := []rune(strings.TrimSpace(line))
			if title, isTitle := strings.CutSuffix(string(row), " where"); isTitle && column == 0 {
				column = len([]rune(title)) + 1
			}
			isRow := column > 0 && len(row) > column && strings.HasPrefix(line, "//\t")
			if !isRow || string(row[column:]) == "where" {
				continue
			}
			for _, name := range strings.Split(string(row[column:]), ", ") {
				checked++
				parts := strings.Split(name, ".")
				isPlain := len(parts) == 1 && (d.names[name] || d.packages[name])
				if problem := d.problemOfMember(parts); problem != "" && !isPlain {
					t.Errorf("%s: %s: %s", file, name, problem)
				}
			}
		}
		testkit.WantBetween(t, "names in "+file, checked, 12, 100)
	}
}

// seePattern matches a member to which a comment sends its readers.
var seePattern = regexp.MustCompile(`\b[Ss]ee ([A-Za-z]\w*\.[A-Z]\w*)`)

func TestEachNameThatACommentSendsToExists(t *testing.T) {
	d := declarationsOfTree(t)
	checked := 0
	for _, file := range goFiles(t) {
		for _, found := range seePattern.FindAllStringSubmatch(testkit.ReadFile(t, fromHere(file.name)), -1) {
			checked++
			if problem := d.problemOfMember(strings.Split(found[1], ".")); problem != "" {
				t.Errorf("%s: see %s: %s", file.name, found[1], problem)
			}
		}
	}
	testkit.WantBetween(t, "names that were checked", checked, 10, 1000)
}
