package course

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"podcount/lab/testkit"
	"podcount/lab/trial"
)

// checkout returns the directory of a checkout that has nothing but what the course needs.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for _, stage := range stages {
		for _, name := range []string{programFile, "hints.txt"} {
			text := testkit.ReadFile(t, "../../learn/"+stage.Dir+"/"+name)
			testkit.WriteFiles(t, root, map[string]string{"learn/" + stage.Dir + "/" + name: text})
		}
	}
	return root
}

// typed does what a student types, and returns the exit code and what it prints.
func typed(t *testing.T, c Call) (code int, printed string) {
	t.Helper()
	var out bytes.Buffer
	c.Out = &out
	code = Run(t.Context(), c)
	return code, out.String()
}

// wantTyped fails the test unless what a student types ends with this code, and prints these texts.
func wantTyped(t *testing.T, c Call, code int, texts ...string) {
	t.Helper()
	got, printed := typed(t, c)
	if got != code {
		t.Errorf("make %s: the exit code is %d, want %d", c.Command, got, code)
	}
	testkit.WantText(t, printed, texts...)
}

// own returns the student's program in a checkout.
func own(t *testing.T, root string) string {
	t.Helper()
	return testkit.ReadFile(t, filepath.Join(root, mine, programFile))
}

func TestStudentGoesFromStageToStage(t *testing.T) {
	root := checkout(t)
	learn, check := Call{Root: root, Command: "learn"}, Call{Root: root, Command: "check"}
	write := func(text string) { testkit.WriteFiles(t, root, map[string]string{mine + "/" + programFile: text}) }

	wantTyped(t, learn, 0, "stage 1 of 12", "learn/01-count/README.md", mine+"/main.go", "make check")
	testkit.WantEqual(t, "the first program", own(t, root), skeleton)
	wantTyped(t, check, 1, "✗ steps: prints", `it has printed "", and there are 7 pods`, "make hint")
	wantTyped(t, Call{Root: root, Command: "hint"}, 0, "hint 1 of 2", "one more hint")
	wantTyped(t, Call{Root: root, Command: "hint"}, 0, "hint 2 of 2", "make answer")
	wantTyped(t, Call{Root: root, Command: "hint"}, 0, "hint 2 of 2", "make answer")
	wantTyped(t, Call{Root: root, Command: "answer"}, 0, "@@ -0,0 +1,", "+package main", "learn/01-count/main.go")

	write("package main\n\nfunc main() { count() }\n")
	wantTyped(t, check, 1, "does not compile yet", "undefined: count", "make check")

	first, err := finished(root, 1)
	if err != nil {
		t.Fatal(err)
	}
	write(first)
	wantTyped(t, check, 0, "✓ steps: prints", `Stage 1, "count", is done`, "make learn")
	wantTyped(t, learn, 0, "Stage 1 is done.", "stage 2 of 12", "learn/02-write/README.md")
	testkit.WantEqual(t, "the program at stage 2", own(t, root), first)
	wantTyped(t, learn, 0, "stage 2 of 12")
	wantTyped(t, check, 1, "✗ steps: labels", `cp-1 has the label "", and there are 3 pods`)
}

func TestProgramIsNeverLost(t *testing.T) {
	root := checkout(t)
	learn := Call{Root: root, Command: "learn"}
	wantTyped(t, learn, 0, "stage 1")
	testkit.WriteFiles(t, root, map[string]string{
		mine + "/" + programFile: "package main // mine\n",
		mine + "/go.mod":         "module ofmine\n",
	})

	learn.Stage = "5"
	wantTyped(t, learn, 0, "stage 5 of 12", "FRESH=yes")
	testkit.WantEqual(t, "the program", own(t, root), "package main // mine\n")

	learn.Fresh = "yes"
	wantTyped(t, learn, 0, "Your program was kept as "+filepath.Join(mine, "main.go.1"))
	fourth, err := finished(root, 4)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the program of the stage before", own(t, root), fourth)
	testkit.WantEqual(t, "the one that was kept", testkit.ReadFile(t, filepath.Join(root, mine, "main.go.1")),
		"package main // mine\n")
	wantTyped(t, learn, 0, "main.go.2")
	testkit.WantEqual(t, "go.mod", testkit.ReadFile(t, filepath.Join(root, mine, "go.mod")), "module ofmine\n")
}

func TestWrongCallsSayTheWayOut(t *testing.T) {
	fresh, begun := checkout(t), checkout(t)
	wantTyped(t, Call{Root: begun, Command: "learn"}, 0)
	damaged := checkout(t)
	testkit.WriteFiles(t, damaged, map[string]string{mine + "/" + progressFile: "{"})
	for _, c := range []struct {
		call Call
		code int
		says string
	}{
		{Call{Root: fresh, Command: "check"}, 2, "run `make learn`"},
		{Call{Root: fresh, Command: "hint"}, 2, "run `make learn`"},
		{Call{Root: fresh, Command: "answer"}, 2, "run `make learn`"},
		{Call{Root: fresh, Command: "check", Stage: "3"}, 2, "there is no learn/mine/main.go"},
		{Call{Root: begun, Command: "learn", Stage: "13"}, 2, "STAGE=13: write the number of a stage, from 1 to 12"},
		{Call{Root: begun, Command: "check", Stage: "watch"}, 2, "STAGE=watch: write the number of a stage"},
		{Call{Root: begun, Command: "learn", Fresh: "y"}, 2, "FRESH=y: write yes or no"},
		{Call{Root: begun, Command: "run"}, 2, "there are learn, check, hint and answer"},
		{Call{Root: damaged, Command: "check"}, 1, filepath.Join(mine, progressFile)},
		{Call{Root: begun, Command: "check", Program: "no-such-program"}, 1, "no-such-program"},
	} {
		t.Run(c.says, func(t *testing.T) { wantTyped(t, c.call, c.code, c.says) })
	}
}

func TestAnswersAndHintsOfAnyStageNeedNoStudent(t *testing.T) {
	root := checkout(t)
	wantTyped(t, Call{Root: root, Command: "hint", Stage: "7"}, 0, `Stage 7, "patience", hint 1 of 2`, "hint 2 of 2")
	wantTyped(t, Call{Root: root, Command: "answer", Stage: "12"}, 0, "type election struct", "make check")
	if _, err := os.Stat(filepath.Join(root, mine)); err == nil {
		t.Error("there is a program, although nobody has begun")
	}
}

func TestProgramInAnyLanguageIsChecked(t *testing.T) {
	root := checkout(t)
	wantTyped(t, Call{Root: root, Command: "learn"}, 0)
	one := Call{Root: root, Command: "check", Program: "mine", Only: "prin"}
	wantTyped(t, one, 1, "✗ steps: prints")
	one.Only = "print it"
	wantTyped(t, one, 2, "ONLY=print it: stage 1 has no row of that name")
	program := `case $SERVER in http://*) echo 7 pods;; *) exit 3;; esac`
	check := Call{Root: root, Command: "check", Program: program}
	wantTyped(t, check, 1, "✓ steps: prints", "✗ steps: no answer is no number")
	wantTyped(t, Call{Root: root, Command: "learn"}, 0, "your program  "+program)
	wantTyped(t, Call{Root: root, Command: "check", Only: "prints"}, 0, "✓ steps: prints", "That is right.")
	wantTyped(t, Call{Root: root, Command: "check", Stage: "10"}, 1, "exited: exit status 3")
	wantTyped(t, Call{Root: root, Command: "check", Program: "exec echo 8 pods", Stage: "1"}, 1,
		`it has printed "8 pods\n"`, "`make check STAGE=1 PROGRAM='exec echo 8 pods'`", "`make hint STAGE=1`")
	wantTyped(t, Call{Root: root, Command: "learn"}, 0, "your program  "+program) // A STAGE is for one check alone.
	wantTyped(t, Call{Root: root, Command: "check", Program: "mine"}, 1, mine+"/main.go", "✗ steps: prints")
}

func TestStageIsDoneOnceItIsCheckedAndNotBefore(t *testing.T) {
	root := checkout(t)
	learn := Call{Root: root, Command: "learn"}
	wantTyped(t, learn, 0, "stage 1 of 12")
	first, err := finished(root, 1)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WriteFiles(t, root, map[string]string{mine + "/" + programFile: first})
	wantTyped(t, Call{Root: root, Command: "check", Stage: "1"}, 0, "is done")
	wantTyped(t, learn, 0, "Stage 1 is done.", "stage 2 of 12")

	// Who goes back passes the stages from there on once more.
	testkit.WriteFiles(t, root, map[string]string{mine + "/" + progressFile: `{"Stage": 12, "Passed": 12}`})
	wantTyped(t, learn, 0, "All stages are done")
	wantTyped(t, Call{Root: root, Command: "learn", Stage: "3"}, 0, "stage 3 of 12")
	wantTyped(t, learn, 0, "stage 3 of 12")
	testkit.WriteFiles(t, root, map[string]string{mine + "/" + progressFile: `{"Stage": 12, "Passed": 12}`})
	wantTyped(t, Call{Root: root, Command: "learn", Fresh: "yes"}, 0, "stage 12 of 12")
}

func TestRowIsChosenByItsNameOrAPart(t *testing.T) {
	testkit.WantNumber(t, "rows", len(Call{Only: "stop"}.chosen(allRows())), 1)
	testkit.WantNumber(t, "rows", len(Call{Only: "stop "}.chosen(allRows())), 2)
	testkit.WantNumber(t, "rows", len(Call{}.chosen(allRows())), len(allRows()))
}

func TestInterruptEndsACheck(t *testing.T) {
	root := checkout(t)
	wantTyped(t, Call{Root: root, Command: "learn"}, 0)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	code := Run(ctx, Call{Root: root, Command: "check", Program: "sleep 60", Out: &out})
	if code != 1 || strings.Contains(out.String(), "is done") {
		t.Errorf("the code is %d:\n%s", code, &out)
	}
}

func TestFirstRowOfTheTableIsTold(t *testing.T) {
	rows := []trial.Row{{Name: "first"}, {Name: "second"}, {Name: "third"}}
	results := map[string]trial.Result{}
	for _, step := range []struct {
		name    string
		verdict trial.Verdict
		told    string
	}{
		{"third", trial.Wrong, ""},
		{"first", trial.Right, ""},
		{"second", trial.Exited, "second"},
	} {
		results[step.name] = trial.Result{Row: trial.Row{Name: step.name}, Verdict: step.verdict}
		told := ""
		if red := firstRed(rows, results); red != nil {
			told = red.Name
		}
		testkit.WantEqual(t, "the row that is told after "+step.name, told, step.told)
	}
}
