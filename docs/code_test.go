package docs_test

import (
	"encoding/json"
	"errors"
	"go/format"
	"io"
	"regexp"
	"strings"
	"testing"

	"podcount/internal/api/yaml"
	"podcount/lab/testkit"
)

// eachBlockIn calls check with each block of code in this language. check returns an error if the block is wrong.
func eachBlockIn(t *testing.T, language string, check func(source string) error) {
	t.Helper()
	for _, p := range loadPages(t) {
		for _, b := range p.of(code) {
			if b.language != language {
				continue
			}
			if err := check(b.source()); err != nil {
				t.Errorf("%s: %v", p.at(b.line), err)
			}
		}
	}
}

func TestEachBlockOfYAMLCanBeRead(t *testing.T) {
	eachBlockIn(t, "yaml", func(source string) error {
		for document := range strings.SplitSeq(source, "\n---\n") {
			if _, err := yaml.Parse(document); err != nil {
				return err
			}
		}
		return nil
	})
}

// A block may be a whole file or a part of one, such as a few statements.
func TestEachBlockOfGoIsFormatted(t *testing.T) {
	eachBlockIn(t, "go", func(source string) error {
		formatted, err := format.Source([]byte(source))
		if err == nil && string(formatted) != source {
			return errors.New("gofmt would change this block")
		}
		return err
	})
}

// filesOfFake have the Go that docs/build/fake.md shows. .ci/fake runs the first one, and a copy of the other one in
// another module.
var filesOfFake = []string{
	"testdata/comparison/clientgo/clientgo_test.go",
	"lab/fakekube/example_first_test.go",
}

func TestPartsOfGoInFakeAreThoseOfTests(t *testing.T) {
	tested := ""
	for _, file := range filesOfFake {
		tested += withoutIndentation(testkit.ReadFile(t, fromHere(file)))
	}
	for _, b := range loadPage(t, "docs/build/fake.md").of(code) {
		if b.language == "go" && !strings.Contains(tested, withoutIndentation(b.source())) {
			t.Errorf("docs/build/fake.md:%d: none of %s has these lines", b.line, strings.Join(filesOfFake, ", "))
		}
	}
}

// withoutIndentation returns lines without the blanks that they begin with.
func withoutIndentation(lines string) string {
	return regexp.MustCompile(`(?m)^[ \t]+`).ReplaceAllString(lines, "")
}

// A block may have several values, as a log has.
func TestEachBlockOfJSONCanBeRead(t *testing.T) {
	eachBlockIn(t, "json", func(source string) error {
		decoder := json.NewDecoder(strings.NewReader(source))
		for {
			var value any
			err := decoder.Decode(&value)
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return err
			}
		}
	})
}
