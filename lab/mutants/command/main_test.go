package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"podcount/lab/mutants"
	"podcount/lab/testkit"
)

func TestUnknownNameIsAnError(t *testing.T) {
	known := []mutants.Mutant{{Name: "a"}, {Name: "b"}}
	if _, err := choose(known, []string{"a", "c"}); err == nil || !strings.Contains(err.Error(), `"c"`) {
		t.Errorf("the error is %v", err)
	}
	if _, err := choose(nil, nil); err == nil {
		t.Error("without any mutant, there was no error")
	}
	chosen, err := choose(known, []string{"b"})
	if err != nil || len(chosen) != 1 || chosen[0].Name != "b" {
		t.Errorf("got %v and %v", chosen, err)
	}
}

func TestTestsAreNamedAsTheGoCommandDoes(t *testing.T) {
	got := pattern(mutants.Named{Name: "TestA"}, mutants.Named{Name: "TestB/-x writes (a) label"})
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
