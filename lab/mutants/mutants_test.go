package mutants_test

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"podcount/lab/mutants"
	"podcount/lab/testkit"
)

func TestEachMutantFits(t *testing.T) {
	if _, err := mutants.ReadAll(os.DirFS("../..")); err != nil {
		t.Error(err)
	}
}

// code is what the mutants of these tests break.
const code = `package p

const (
	low  = 1
	high = 2
)

type Box[T any] struct {
	size int
}

func (b *Box[T]) Grow() {
	if b.size < high {
		b.size++
	}
	b.size = max(b.size, low)
}

func twice(n int) int {
	n += low
	if n > high {
		n += low
	}
	return n
}
`

// begin begins a mutant, to which a test adds a change.
const begin = "package p\n\nm: It is broken.\nnoticed by TestBox\n"

// checkout returns the files of a checkout with this file of mutants.
func checkout(mutants string) fstest.MapFS {
	return fstest.MapFS{
		"testdata/mutants/p.txt": {Data: []byte(mutants)},
		"p/p.go":                 {Data: []byte(code)},
		"p/p_test.go":            {Data: []byte("package p\n\nfunc TestBox() {}\n")},
		"q/q_test.go":            {Data: []byte("package q\n\nfunc TestFar() {}\n")},
		"deploy/p.yaml":          {Data: []byte("spec:\n  replicas: 1\n  paused: false\n")},
	}
}

func TestLinesAreReplacedWhereTheyAre(t *testing.T) {
	for _, c := range []struct{ name, change, file, old, new string }{
		{"in a method of a generic type", "in Box.Grow\n- b.size++\n+ b.size--\n", "p/p.go", "b.size++", "b.size--"},
		{"in a constant", "in low\n- low  = 1\n+ low  = 0\n", "p/p.go", "low  = 1", "low  = 0"},
		{"in a type", "in Box\n- size int\n+ size uint\n", "p/p.go", "size int", "size uint"},
		{"beside one that stays", "in twice\n  if n > high {\n- n += low\n", "p/p.go", "\t\tn += low\n", ""},
		{"behind one that stays", "in twice\n  return n\n+ // end\n", "p/p.go", "return n\n", "return n\n\t// end\n"},
		{"deeper than there", "in Box.Grow\n- \t\tb.size++\n+ \t\tif true {\n+ \t\t\tb.size++\n+ \t\t}\n",
			"p/p.go", "b.size++\n", "if true {\n\t\t\tb.size++\n\t\t}\n"},
		{"in a file", "file deploy/p.yaml\n- replicas: 1\n+ replicas: 2\n", "deploy/p.yaml", "replicas: 1", "replicas: 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			source := checkout(begin + c.change)
			all, err := mutants.ReadAll(source)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(string(source[c.file].Data), c.old, c.new, 1)
			testkit.WantEqual(t, c.file, all[0].Broken[c.file], want)
		})
	}
}

func TestMutantMayHaveSeveralChanges(t *testing.T) {
	all, err := mutants.ReadAll(checkout(begin + "in twice\n- return n\n+ return low\n+ // never\n" +
		"in p Box.Grow\n- if b.size < high {\n+ {\nin Box.Grow\n  b.size++\n+ b.size++\n" +
		"file deploy/p.yaml\n- paused: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.NewReplacer("return n\n", "return low\n\t// never\n", "if b.size < high {", "{",
		"b.size++\n", "b.size++\n\t\tb.size++\n").Replace(code)
	testkit.WantEqual(t, "the code", all[0].Broken["p/p.go"], broken)
	testkit.WantEqual(t, "the manifest", all[0].Broken["deploy/p.yaml"], "spec:\n  replicas: 1\n")
}

func TestMutantThatDoesNotFitIsNamed(t *testing.T) {
	const change = "in low\n- low  = 1\n"
	for _, c := range []struct{ name, mutants, want string }{
		{"lines that are not there", begin + "in twice\n- n -= low\n", "p.txt:3: m: write lines that twice has exactly once"},
		{"lines that are elsewhere", begin + "in twice\n- b.size++\n", "it has these 0 times:\nb.size++"},
		{"lines that are there twice", begin + "in twice\n- n += low\n", "it has these 2 times:\nn += low"},
		{"lines of a declaration that is gone", begin + "in Box.Shrink\n- b.size--\n", "p has no Box.Shrink"},
		{"lines of a file that is gone", begin + "file gone.yaml\n- a: b\n", "gone.yaml"},
		{"new lines alone", begin + "in low\n+ more = 3\n", "write lines that low has exactly once"},
		{"no change", begin, "p.txt:3: m: "},
		{"the same lines again", begin + "in twice\n  return n\n", "p.txt:3: m: in twice, it changes nothing"},
		{"a line that two changes have", begin + "in twice\n- n += low\n  if n > high {\nin twice\n- if n > high {\n",
			"two of its changes have the same line"},
		{"no test", "m: It is broken.\nin p low\n- low  = 1\n", "p.txt:1: m: "},
		{"a test that is gone", "m: It is broken.\nnoticed by p TestGone/it grows\nin p low\n- low  = 1\n",
			"p has no TestGone"},
		{"a name that another one has", begin + change + "\nm: So it is.\nnoticed by q TestFar\n" + change,
			"p.txt:8: m: rename it"},
		{"a line that says nothing", begin + change + "and so on\n", `p.txt:7: "and so on" cannot stand here`},
		{"no name", "in low\n- low  = 1\n", `p.txt:1: "in low" cannot stand here`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := mutants.ReadAll(checkout(c.mutants))
			if err == nil {
				t.Fatal("there was no error")
			}
			testkit.WantText(t, err.Error(), c.want)
		})
	}
}

func TestMutantTellsWhereItIsAndWhatItChanges(t *testing.T) {
	all, err := mutants.ReadAll(checkout(begin + "in twice\n- return n\n+ return low\nin Box.Grow\n- b.size++\n" +
		"in Box.Grow\n- b.size = max(b.size, low)\nfile deploy/p.yaml\n- paused: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	places := all[0].Places()
	slices.SortFunc(places, func(a, b mutants.Named) int { return strings.Compare(a.Name, b.Name) })
	testkit.WantEqual(t, "the places", places, []mutants.Named{{Dir: "p", Name: "Box.Grow"}, {Dir: "p", Name: "twice"}})
	testkit.WantEqual(t, "the diff", all[0].Diff(), "deploy/p.yaml:3\n- paused: false\n"+
		"p/p.go:14\n- b.size++\np/p.go:16\n- b.size = max(b.size, low)\np/p.go:24\n- return n\n+ return low\n")
}

func TestMutantThatDoesNotFitBreaksNothing(t *testing.T) {
	all, err := mutants.ReadAll(checkout(begin + "in low\n- low  = 1\n\n" +
		"other: It does not fit.\nnoticed by p TestBox\nin low\n- low  = 1\n+ low  = 2\nin high\n- high = 3\n"))
	if err == nil || len(all) != 2 {
		t.Fatalf("got %v and %v", all, err)
	}
	testkit.WantNumber(t, "broken files of the one that fits", len(all[0].Broken), 1)
	testkit.WantNumber(t, "broken files of the other one", len(all[1].Broken), 0)
}

func TestDeclaredNamesHaveTheirTypesInFront(t *testing.T) {
	declared, err := mutants.Declared(checkout(""))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []mutants.Named{
		{Dir: "p", Name: "Box.Grow"},
		{Dir: "p", Name: "high"},
		{Dir: "q", Name: "TestFar"},
	} {
		if !slices.Contains(declared, want) {
			t.Errorf("%v is not among %v", want, declared)
		}
	}
}
