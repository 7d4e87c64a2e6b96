package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	"podcount/lab/testkit"
)

func TestEachMutantFits(t *testing.T) {
	if _, err := readAll(os.DirFS("../../..")); err != nil {
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
			mutants, err := readAll(source)
			if err != nil {
				t.Fatal(err)
			}
			want := strings.Replace(string(source[c.file].Data), c.old, c.new, 1)
			testkit.WantEqual(t, c.file, mutants[0].broken[c.file], want)
		})
	}
}

func TestMutantMayHaveSeveralChanges(t *testing.T) {
	mutants, err := readAll(checkout(begin + "in twice\n- return n\n+ return low\n+ // never\n" +
		"in p Box.Grow\n- if b.size < high {\n+ {\nin Box.Grow\n  b.size++\n+ b.size++\n" +
		"file deploy/p.yaml\n- paused: false\n"))
	if err != nil {
		t.Fatal(err)
	}
	broken := strings.NewReplacer("return n\n", "return low\n\t// never\n", "if b.size < high {", "{",
		"b.size++\n", "b.size++\n\t\tb.size++\n").Replace(code)
	testkit.WantEqual(t, "the code", mutants[0].broken["p/p.go"], broken)
	testkit.WantEqual(t, "the manifest", mutants[0].broken["deploy/p.yaml"], "spec:\n  replicas: 1\n")
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
			_, err := readAll(checkout(c.mutants))
			if err == nil {
				t.Fatal("there was no error")
			}
			testkit.WantText(t, err.Error(), c.want)
		})
	}
}

func TestUnknownNameIsAnError(t *testing.T) {
	known := []mutant{{name: "a"}, {name: "b"}}
	if _, err := choose(known, []string{"a", "c"}); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := choose(nil, nil); err == nil {
		t.Error("without any mutant, there was no error")
	}
	chosen, err := choose(known, []string{"b"})
	if err != nil || len(chosen) != 1 || chosen[0].name != "b" {
		t.Errorf("got %v and %v", chosen, err)
	}
}

func TestTestsAreNamedAsTheGoCommandDoes(t *testing.T) {
	got := pattern(named{name: "TestA"}, named{name: "TestB/-x writes (a) label"})
	testkit.WantEqual(t, "the pattern", got, `^TestA$|^TestB$/^-x_writes_\(a\)_label$`)
}

// enterModule makes a small module the working directory, and TMPDIR another one. It returns the latter.
func enterModule(t *testing.T, imports, tests, mutants string) (temp string) {
	t.Helper()
	t.Chdir(t.TempDir())
	temp = t.TempDir()
	t.Setenv("TMPDIR", temp)
	testkit.WriteFiles(t, ".", map[string]string{
		"go.mod":                 "module p\n\ngo 1.26\n",
		"p.go":                   "package p\n\nfunc one() int {\n\treturn 1\n}\n\nfunc two() int {\n\treturn 2\n}\n",
		"p_test.go":              "package p\n\nimport (" + imports + "; \"testing\")\n\n" + tests,
		"testdata/mutants/p.txt": mutants,
	})
	return temp
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left are %v (%v)", left, err)
	}
}

func TestOnlyAFailedTestNotices(t *testing.T) {
	temp := enterModule(t, `"errors"`, `
		var err = errors.New("wrong")

		func TestOne(t *testing.T) {
			if one() != 1 {
				t.Error(err)
			}
		}

		func TestTwo(t *testing.T) {
			if two() != 2 {
				t.Error(err)
			}
		}`,
		"named: N.\nnoticed by TestOne\nin one\n- return 1\n+ return 2\n\n"+
			"other: O.\nnoticed by TestOne\nin two\n- return 2\n+ return 1\n\n"+
			"none: Nobody sees it.\nnoticed by TestOne\nin one\n- return 1\n+ return 0 + 1\n\n"+
			"broken: B.\nnoticed by TestOne\nin one\n- return 1\n+ return x\n")
	var out testkit.Buffer
	err := run(t.Context(), nil, &out)
	testkit.WantText(t, out.String(), "named: noticed by TestOne", "other: not noticed by TestOne",
		"p.txt:7: other is noticed by TestTwo: name that", "none: not noticed by TestOne",
		"broken: does not compile", "4 of 4 mutants tried, 2 not noticed by the test that they name, 2 problems")
	if err == nil {
		t.Fatal("there was no error")
	}
	testkit.WantText(t, err.Error(), "no test notices none: Nobody sees it", "broken does not compile", "undefined: x")
	wantEmpty(t, temp)
}

func TestTestThatFailsWithoutAMutantIsAnError(t *testing.T) {
	enterModule(t, `"errors"`, "func TestOne(t *testing.T) { t.Error(errors.ErrUnsupported) }\n",
		"named: N.\nnoticed by TestOne\nin one\n- return 1\n+ return 2\n")
	err := run(t.Context(), nil, io.Discard)
	if err == nil {
		t.Fatal("there was no error")
	}
	testkit.WantText(t, err.Error(), `p.txt:1: without a mutant, "TestOne" has not run`, "unsupported operation")
}

// The mutant lets its test connect to a listener, and then wait.
func TestInterruptEndsTheTestsAndLeavesNothing(t *testing.T) {
	temp := enterModule(t, `"net"; "os"`, `func TestOne(t *testing.T) {
			if one() != 1 {
				conn, _ := net.Dial("tcp", os.Getenv("LISTENER"))
				conn.Read(make([]byte, 1))
			}
		}`,
		"named: N.\nnoticed by TestOne\nin one\n- return 1\n+ return 2\n")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	t.Setenv("LISTENER", listener.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- run(ctx, nil, io.Discard) }()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the test goes on")
	}
	wantEmpty(t, temp)
}
