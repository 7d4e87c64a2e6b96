package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"podcount/lab/mutants"
)

// A trial tries mutants on copies of the checkout.
type trial struct {
	ctx        context.Context
	out        io.Writer
	mutants    []mutants.Mutant
	dir        string   // has the copies
	copies     []string // their directories
	processors int      // for each command

	mu        sync.Mutex // guards what follows
	tried     int
	unnoticed []mutants.Mutant // by the tests that they name
	problems  []error
}

// newTrial makes the copies. The caller must call close, which deletes them.
func newTrial(ctx context.Context, chosen []mutants.Mutant, out io.Writer) (*trial, error) {
	dir, err := os.MkdirTemp("", "mutants")
	count := min(runtime.NumCPU(), len(chosen))
	t := &trial{ctx: ctx, out: out, mutants: chosen, dir: dir, processors: runtime.NumCPU() / count}
	for i := range count {
		t.copies = append(t.copies, filepath.Join(dir, fmt.Sprint(i)))
		err = errors.Join(err, copyCheckout(t.copies[i]))
	}
	if err != nil {
		t.close()
	}
	return t, err
}

func (t *trial) close() { os.RemoveAll(t.dir) }

// copyCheckout copies the working directory, but nothing of Git, and nothing that was built.
func copyCheckout(to string) error {
	entries, err := os.ReadDir(".")
	for _, entry := range entries {
		name, target := entry.Name(), filepath.Join(to, entry.Name())
		switch {
		case name == ".git" || name == "bin":
		case entry.IsDir():
			err = errors.Join(err, os.CopyFS(target, os.DirFS(name)))
		default:
			text, errOfRead := os.ReadFile(name)
			err = errors.Join(err, errOfRead, os.MkdirAll(to, 0o755), os.WriteFile(target, text, 0o644))
		}
	}
	return err
}

// run tries all mutants. It returns an error unless a test notices each.
func (t *trial) run() error {
	began := time.Now()
	t.checkTests()
	if len(t.problems) == 0 {
		fmt.Fprintf(t.out, "without a mutant, the tests pass (%s)\n", since(began))
		onEach(t.copies, t.mutants, t.try)
		t.processors = runtime.NumCPU()
		onEach(t.copies[:1], t.unnoticed, t.tryAllTests)
		fmt.Fprintf(t.out, "%d of %d mutants tried, %d not noticed by the test that they name, %d problems (%s)\n",
			t.tried, len(t.mutants), len(t.unnoticed), len(t.problems), since(began))
	}
	if t.ctx.Err() != nil {
		return context.Cause(t.ctx)
	}
	return errors.Join(t.problems...)
}

// onEach calls do for all jobs, each with one of the copies, and with all copies at once.
func onEach[T any](copies []string, jobs []T, do func(dir string, job T)) {
	waiting := make(chan T, len(jobs))
	for _, job := range jobs {
		waiting <- job
	}
	close(waiting)
	var workers sync.WaitGroup
	for _, dir := range copies {
		workers.Go(func() {
			for job := range waiting {
				do(dir, job)
			}
		})
	}
	workers.Wait()
}

// checkTests looks whether the tests that the mutants name exist, and pass without any mutant.
func (t *trial) checkTests() {
	tests := map[string][]mutants.Named{}
	for _, m := range t.mutants {
		tests[m.Test.Dir] = append(tests[m.Test.Dir], m.Test)
	}
	onEach(t.copies, slices.Sorted(maps.Keys(tests)), func(dir, tested string) {
		output, _ := t.test(dir, mutants.Mutant{}, tested, "-v", "-timeout=9m", "-run="+pattern(tests[tested]...))
		for _, m := range t.mutants {
			if m.Test.Dir == tested && !strings.Contains(output, "--- PASS: "+underscored(m.Test.Name)+" ") {
				t.fail("%s: without a mutant, %q has not run, or does not pass:\n%s", m.Place, m.Test.Name, output)
				return
			}
		}
	})
}

// try tries a mutant with the test that it names.
func (t *trial) try(dir string, m mutants.Mutant) {
	began := time.Now()
	output, err := t.test(dir, m, m.Test.Dir, "-timeout=90s", "-run="+pattern(m.Test))
	var result string
	switch {
	case t.ctx.Err() != nil:
		return
	case err == nil:
		result = "not noticed by " + m.Test.Name
	case testsFailed.MatchString(output):
		result = "noticed by " + m.Test.Name
	default:
		result = "does not compile"
		t.fail("%s: %s does not compile: %w\n%s", m.Place, m.Name, err, output)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tried++
	if err == nil {
		t.unnoticed = append(t.unnoticed, m)
	}
	fmt.Fprintf(t.out, "%d/%d %s: %s (%s)\n", t.tried, len(t.mutants), m.Name, result, since(began))
}

// tryAllTests tries a mutant that its own test does not notice: with all tests of that package, with the simulation,
// and with all others.
func (t *trial) tryAllTests(dir string, m mutants.Mutant) {
	for _, args := range [][]string{{m.Test.Dir}, {".", "-run=^TestSimulation$"}, {"..."}} {
		args = append(args, "-timeout=9m")
		output, err := t.test(dir, m, args[0], args[1:]...)
		switch {
		case t.ctx.Err() != nil:
			return
		case err == nil:
			continue
		case !testsFailed.MatchString(output):
			t.fail("%s: %s does not compile: %w\n%s", m.Place, m.Name, err, output)
			return
		}
		if sound, err := t.test(dir, mutants.Mutant{}, args[0], args[1:]...); err != nil {
			t.fail("%s: without a mutant, tests fail:\n%s", m.Place, sound)
			return
		}
		failed := failedTest.FindAllString(output, -1)
		noticed := strings.TrimPrefix(failed[len(failed)-1], "--- FAIL: ")
		fmt.Fprintf(t.out, "%s\n%s: %s is noticed by %s: name that\n", output, m.Place, m.Name, noticed)
		return
	}
	t.fail("%s: no test notices %s: %s", m.Place, m.Name, m.Why)
}

// fail adds a problem.
func (t *trial) fail(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.problems = append(t.problems, fmt.Errorf(format, args...))
}

// test runs tests of a package in a copy, which it breaks as a mutant says, and mends at the end.
func (t *trial) test(dir string, m mutants.Mutant, tested string, flags ...string) (output string, err error) {
	for name, broken := range m.Broken {
		file := filepath.Join(dir, name)
		sound, err := os.ReadFile(file)
		if err != nil {
			return "", err
		}
		defer os.WriteFile(file, sound, 0o644)
		if err := os.WriteFile(file, []byte(broken), 0o644); err != nil {
			return "", err
		}
	}
	// With -trimpath, the copies share what is compiled.
	flags = append([]string{"test", "-count=1", "-failfast", "-vet=off", "-trimpath", "./" + tested}, flags...)
	cmd := exec.CommandContext(t.ctx, "go", flags...)
	cmd.Dir = dir
	// The simulation must not look for the shortest story with which it fails, and ONLY is not for it but for mutants.
	// What goes to TMPDIR is deleted at the end.
	cmd.Env = append(os.Environ(), "SHRINK=0", "ONLY=", "TMPDIR="+t.dir, fmt.Sprint("GOMAXPROCS=", t.processors))
	// A cancel kills the whole group, which is all that go has started. What has left the group is not waited for.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// What go test prints if a test fails. If it cannot compile the tests, it prints no time.
var (
	testsFailed = regexp.MustCompile(`(?m)^FAIL\t\S+\t[0-9.]+s$`)
	failedTest  = regexp.MustCompile(`--- FAIL: \S+|panic: .*`)
)

// pattern returns the value of -run for tests and subtests.
func pattern(tests ...mutants.Named) string {
	patterns := make([]string, len(tests))
	for i, test := range tests {
		quoted := regexp.QuoteMeta(underscored(test.Name))
		patterns[i] = "^" + strings.ReplaceAll(quoted, "/", "$/^") + "$"
	}
	return strings.Join(patterns, "|")
}

// underscored returns the name of a test as the go command prints it.
func underscored(name string) string { return strings.ReplaceAll(name, " ", "_") }

func since(began time.Time) time.Duration { return time.Since(began).Round(100 * time.Millisecond) }
