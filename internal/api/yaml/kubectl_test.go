package yaml

import (
	"bufio"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// recordedDocument is a document, and how kubectl reads it: see testdata/record.
type recordedDocument struct {
	Name, Text string
	Refused    string // kubectl's error, "" if there was none
	Tree       any
}

func recordedDocuments(t *testing.T, file string) (documents []recordedDocument) {
	t.Helper()
	for line := range strings.Lines(testkit.ReadFile(t, file)) {
		var d recordedDocument
		decoder := json.NewDecoder(strings.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&d); err != nil {
			t.Fatal(err)
		}
		documents = append(documents, d)
	}
	return documents
}

// refusedOnPurpose returns the documents that kubectl reads and Parse refuses on purpose: the reason for each name.
func refusedOnPurpose(t *testing.T) map[string]string {
	t.Helper()
	file, err := os.Open("testdata/refused.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	reasons := map[string]string{}
	lines := bufio.NewScanner(file)
	reason := ""
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " "):
			for _, name := range strings.Fields(line) {
				reasons[name] = reason
			}
		default:
			reason = line
		}
	}
	if lines.Err() != nil {
		t.Fatal(lines.Err())
	}
	return reasons
}

// Parse reads every document as kubectl does, or refuses it. It refuses every document that kubectl refuses. No error
// quotes a value. PODCOUNT_YAML names another file of documents to compare: Parse may refuse any of those.
func TestTreesEqualThoseOfKubectl(t *testing.T) {
	file := os.Getenv("PODCOUNT_YAML")
	isOther := file != ""
	if !isOther {
		file = "testdata/kubectl.jsonl"
	}
	documents := recordedDocuments(t, file)
	if len(documents) < 300 && !isOther {
		t.Errorf("there are %d documents, want 300", len(documents))
	}
	reasons := refusedOnPurpose(t)
	read, refused, refusedByBoth := 0, 0, 0
	for _, d := range documents {
		tree, err := Parse(d.Text)
		if err != nil && !errorsOfParse.MatchString(err.Error()) {
			t.Errorf("%s: an unknown error, which may quote a value: %v", d.Name, err)
		}
		_, isOnPurpose := reasons[d.Name]
		switch {
		case err != nil && d.Refused != "":
			refusedByBoth++
		case err != nil && (isOnPurpose || isOther):
			refused++
			delete(reasons, d.Name)
		case err != nil:
			t.Errorf("%s: kubectl reads %.300q, podcount does not: %v", d.Name, d.Text, err)
		case d.Refused != "" && !readsMore(d):
			t.Errorf("%s: kubectl refuses %.300q (%s), but podcount reads %v", d.Name, d.Text, d.Refused, tree)
		case d.Refused == "" && !isSame(extension(tree), d.Tree):
			t.Errorf("%s: kubectl reads %.300q as\n %#v, podcount as\n %#v", d.Name, d.Text, d.Tree, extension(tree))
		default:
			read++
		}
	}
	t.Logf("%d documents are read alike, %d are refused by both, %d only by podcount", read, refusedByBoth, refused)
	for name, reason := range reasons {
		if !isOther {
			t.Errorf("testdata/refused.txt: %s (%s) is not refused, or not in the file", name, reason)
		}
	}
}

// readsMore reports whether a document has the escape \/. JSON has it, and YAML has it since 1.2; kubectl reads 1.1.
func readsMore(d recordedDocument) bool {
	return strings.Contains(d.Text, `\/`) && strings.HasSuffix(d.Refused, "found unknown escape character")
}

// extension returns the first extension of a kubeconfig, which kubectl shows unchanged.
func extension(tree any) any {
	config, _ := tree.(map[string]any)
	extensions, _ := config["extensions"].([]any)
	if len(extensions) == 0 {
		return nil
	}
	first, _ := extensions[0].(map[string]any)
	return first["extension"]
}

// isSame reports whether two trees are equal. Numbers are equal if their values are, however they are written.
func isSame(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, isMap := b.(map[string]any)
		if !isMap || len(a) != len(b) {
			return false
		}
		for key, value := range a {
			other, isThere := b[key]
			if !isThere || !isSame(value, other) {
				return false
			}
		}
		return true
	case []any:
		b, isList := b.([]any)
		if !isList || len(a) != len(b) {
			return false
		}
		for i, value := range a {
			if !isSame(value, b[i]) {
				return false
			}
		}
		return true
	case json.Number:
		b, isNumber := b.(json.Number)
		x, xErr := strconv.ParseFloat(string(a), 64)
		y, yErr := strconv.ParseFloat(string(b), 64)
		return isNumber && (a == b || xErr == nil && yErr == nil && x == y)
	}
	return a == b
}
