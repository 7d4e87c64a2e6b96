package course

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"podcount/lab/trial"
)

// In real time, and as processes, all rows of all stages would take an hour. So each stage has to pass what it is the
// first to learn, and must fail what the next one learns, as when a student begins that. The last stage has to pass
// all.
func TestStagesAsProcesses(t *testing.T) {
	if os.Getenv("COURSE_PROCESSES") == "" {
		t.Skip("it takes some minutes: .ci/learn runs it")
	}
	dir := t.TempDir()
	build := exec.Command("go", "build", "-o", dir, "../../learn/...")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	var all sync.WaitGroup
	for i, stage := range stages {
		all.Go(func() { playProcess(t, dir, stage, stage, stage.newRows()) })
		if i+1 == len(stages) {
			all.Go(func() { playProcess(t, dir, stage, stage, stage.oldRows()) })
			continue
		}
		next := stages[i+1]
		mustFail := slices.DeleteFunc(next.newRows(), func(r trial.Row) bool {
			return stage.mustPass(r.Name) || slices.Contains(unseen, r.Name) || slices.Contains(slow, r.Name)
		})
		all.Go(func() { playProcess(t, dir, stage, next, mustFail) })
	}
	all.Wait()
}

// unseen are rows that stages fail because they connect again and again while the server is down. Nobody sees that if
// the program is a process: its connections are refused by the system.
var unseen = []string{"server away", "crash loop", "crowd returns", "stop without server"}

// slow are rows that take minutes to fail, or, as "20,000 pods", are failed only by a program that is quick enough to
// list more than twice in 15 s. That stages fail them is shown in virtual time.
var slow = []string{"list unanswered", "watch unanswered", "watch half-open", "20,000 pods"}

// playProcess puts the process of a stage to rows of a course's stage, and fails the test if it does not pass what the
// table promises, or passes what it must fail.
func playProcess(t *testing.T, dir string, stage, course Stage, rows []trial.Row) {
	line := environmentOf(course) + "exec '" + filepath.Join(dir, stage.Dir) + "'"
	results, err := trial.All(t.Context(), course.program(trial.Command(line)), trial.Options{Rows: rows})
	if err != nil {
		t.Error(err)
	}
	for _, r := range results {
		isSkipped := r.Verdict == trial.Skipped // as when it has failed the row that all others need
		if r.Green() != stage.mustPass(r.Name) && !(isSkipped && course.Number > stage.Number) {
			t.Errorf("stage %d must pass this row: %t\n%s", stage.Number, stage.mustPass(r.Name), r.Story())
		}
	}
}
