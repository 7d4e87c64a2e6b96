package hunt

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"podcount/lab/mutants"
)

// TestEachSymptomShows proves the catalogue by processes: the broken podcount has to show the symptom in the
// playground, and the sound one must not. It takes some minutes, so it runs only if the environment's HUNT is "all",
// or has names of mutants. `.ci/hunt` calls it.
func TestEachSymptomShows(t *testing.T) {
	chosen := strings.Fields(os.Getenv("HUNT"))
	if len(chosen) == 0 {
		t.Skip("HUNT is not set")
	}
	for _, name := range chosen {
		if _, isThere := find(name); !isThere && name != "all" {
			t.Errorf("no bug of the hunt is called %s", name)
		}
	}
	checkout, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := mutants.ReadAll(os.DirFS(checkout))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	sound, playground := filepath.Join(dir, "podcount"), filepath.Join(dir, "playground")
	for program, name := range map[string]string{sound: ".", playground: "./lab/playground"} {
		if err := build(t.Context(), checkout, program, name); err != nil {
			t.Fatal(err)
		}
	}
	// Few programs are built at once, and each playground begins when its program is there, so that they do not slow
	// down each other.
	builders := make(chan struct{}, runtime.NumCPU())
	bugs := Bugs()
	slices.SortStableFunc(bugs, func(a, b Bug) int { return b.Seconds - a.Seconds }) // the longest first
	for _, bug := range bugs {
		if !slices.Contains(chosen, "all") && !slices.Contains(chosen, bug.Mutant) {
			continue
		}
		at := slices.IndexFunc(all, func(m mutants.Mutant) bool { return m.Name == bug.Mutant })
		if at < 0 {
			t.Fatalf("there is no mutant %s", bug.Mutant)
		}
		t.Run(bug.Mutant, func(t *testing.T) {
			t.Parallel()
			builders <- struct{}{}
			broken := filepath.Join(t.TempDir(), "podcount")
			err := buildBroken(t.Context(), checkout, all[at], broken)
			if err != nil {
				<-builders
				t.Fatal(err)
			}
			records := make(chan Record)
			go func() { records <- play(t, playground, sound, bug) }()
			<-builders
			if r := play(t, playground, broken, bug); !bug.Shows(r) {
				t.Errorf("the broken podcount does not show the symptom:\n%s", shown(r))
			}
			r := <-records
			if bug.Shows(r) {
				t.Errorf("the sound podcount shows the symptom:\n%s", shown(r))
			}
			if !r.has(`msg="podcount starts"`) || r.has(`^playground: that has failed`) {
				t.Errorf("the sound podcount did not run, or the script failed:\n%s", shown(r))
			}
		})
	}
}

// play runs a podcount in the playground, until the symptom of a bug is certain or podcount ends, and returns the
// output.
func play(t *testing.T, playground, podcount string, bug Bug) (r Record) {
	ctx, cancel := context.WithTimeout(t.Context(), bug.duration())
	defer cancel()
	output, input := io.Pipe()
	args := append([]string{"-script", bug.Script, podcount, t.TempDir()}, bug.flags()...)
	cmd := exec.CommandContext(ctx, playground, args...)
	cmd.Stdout, cmd.Stderr = input, input
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	began := time.Now()
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return nil
	}
	go func() { input.CloseWithError(errors.Join(cmd.Wait(), io.EOF)) }()
	lines := bufio.NewScanner(output)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		r = append(r, Line{time.Since(began), lines.Text()})
	}
	return r
}

// shown returns a record as a text.
func shown(r Record) string {
	var text strings.Builder
	for _, line := range r {
		text.WriteString(line.At.Round(time.Millisecond).String() + " " + line.Text + "\n")
	}
	return text.String()
}
