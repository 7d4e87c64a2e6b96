package course

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"podcount/lab/trial"
)

// check puts the student's program to the rows of its stage, and then to those of the stages before. It tells the story
// of the first row that the program fails.
func (c Call) check(ctx context.Context, s *student, stage Stage) error {
	if err := c.chooseProgram(s); err != nil {
		return err
	}
	line, err := c.commandLine(ctx, s, stage)
	if err != nil {
		return err
	}
	c.say("Stage %d, %q: %s", stage.Number, stage.Name, s.shownProgram())
	program := stage.program(trial.Command(line))
	if c.Only != "" && len(c.chosen(append(stage.newRows(), stage.oldRows()...))) == 0 {
		return UsageError{fmt.Errorf("ONLY=%s: stage %d has no row of that name", c.Only, stage.Number)}
	}
	for _, rows := range [][]trial.Row{stage.newRows(), stage.oldRows()} {
		if rows = c.chosen(rows); len(rows) == 0 {
			continue
		}
		red, err := c.play(ctx, program, rows, stage)
		if err != nil {
			return err
		}
		if len(red) > 0 {
			c.tell(red)
			return errRed
		}
	}
	if c.Only != "" {
		c.say("\nThat is right. Next: `make check`, for all rows.")
		return nil
	}
	c.say("\nStage %d, %q, is done: your program passes all its rows.", stage.Number, stage.Name)
	if c.Stage == "" {
		s.Passed = max(s.Passed, stage.Number)
		if err := s.save(); err != nil {
			return err
		}
		c.say("Next: `make learn` goes on.")
	} else {
		c.say("Next: `make learn` says where you stand.")
	}
	return nil
}

// commandLine returns the line for a shell that starts the student's program. It builds a program in Go.
func (c Call) commandLine(ctx context.Context, s *student, stage Stage) (string, error) {
	line := s.Program
	if line == "" {
		if !s.hasProgram() {
			return "", UsageError{fmt.Errorf("there is no %s/%s: run `make learn`, or say PROGRAM='…'", mine, programFile)}
		}
		binary, err := filepath.Abs(filepath.Join(c.Root, "bin", "mine"))
		if err != nil {
			return "", err
		}
		build := exec.CommandContext(ctx, "go", "build", "-o", binary, ".")
		build.Dir = filepath.Join(c.Root, mine)
		build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
		if output, err := build.CombinedOutput(); err != nil {
			c.say("Your program does not compile yet:\n\n%s", output)
			c.say("Next: mend that, and run `make check` again.")
			return "", errRed
		}
		line = "'" + strings.ReplaceAll(binary, "'", `'\''`) + "'"
	}
	return environmentOf(stage) + withExec(line), nil
}

// chooseProgram decides which program a check is for, and remembers it. With a STAGE, it is for this check alone: so
// the pages show what our own stages do wrong.
func (c Call) chooseProgram(s *student) error {
	switch c.Program {
	case "":
		return nil
	case "mine":
		s.Program = ""
	default:
		s.Program = c.Program
	}
	if c.Stage != "" {
		return nil
	}
	return s.save()
}

// environmentOf returns the beginning of a line for a shell, which sets the environment that a stage's page promises.
func environmentOf(stage Stage) string {
	names := []string{"LABEL", "NODE_LABEL"}
	if stage.Number < whoAmI {
		names = append(names, "SERVER")
	}
	if stage.Number >= oneOfTwo {
		names = append(names, "LEASE", "IDENTITY")
	}
	// Python keeps what it prints until its buffer is full, if that is no terminal, and a killed program prints nothing.
	line := "export PYTHONUNBUFFERED=1"
	for _, name := range names {
		line += fmt.Sprintf(` %s="${TRIAL_%s-}"`, name, name)
	}
	return line + "; "
}

// withExec lets a program take the place of the shell, so that a signal for the process is one for the program. A line
// of several commands stays as it is.
func withExec(line string) string {
	first, _, _ := strings.Cut(line, " ")
	if strings.ContainsAny(line, ";&|()\n") || strings.Contains(first, "=") {
		return line
	}
	return "exec " + line
}

// chosen returns the rows whose names contain what the student has asked for.
func (c Call) chosen(rows []trial.Row) []trial.Row {
	return slices.DeleteFunc(rows, func(r trial.Row) bool { return !strings.Contains(r.Name, c.Only) })
}

// play puts a program to rows, and returns the results that are red: first the first one in the order of the table.
// Rows that wait for faults to pass run at once. Those of the first stages are short, and run in their order.
func (c Call) play(
	ctx context.Context, program trial.Program, rows []trial.Row, stage Stage,
) (red []trial.Result, err error) {
	parallel := 0
	if stage.Number < looking {
		parallel = 1
	}
	playing, stop := context.WithCancel(ctx)
	defer stop()
	progress := trial.NewProgress(c.Out)
	defer progress.Close()
	results := map[string]trial.Result{}
	_, err = trial.All(playing, program, trial.Options{
		Rows:     rows,
		Parallel: parallel,
		Began:    progress.Began,
		Ended: func(r trial.Result) {
			if playing.Err() != nil {
				return
			}
			progress.Ended(r)
			results[r.Name] = r
			if firstRed(rows, results) != nil {
				stop()
			}
		},
	})
	for _, row := range rows {
		if r, isKnown := results[row.Name]; isKnown && !r.Green() {
			red = append(red, r)
		}
	}
	if err == nil && len(red) == 0 {
		err = ctx.Err()
	}
	return red, err
}

// firstRed returns the first result that is red, in the order of the rows, when all before it are known. It returns nil
// if that is not so.
func firstRed(rows []trial.Row, results map[string]trial.Result) *trial.Result {
	for _, row := range rows {
		r, isKnown := results[row.Name]
		switch {
		case !isKnown:
			return nil
		case !r.Green():
			return &r
		}
	}
	return nil
}

// tell tells the story of the first row that the program fails, and names the others.
func (c Call) tell(red []trial.Result) {
	c.say("\n%s", red[0].Story())
	if len(red) > 1 {
		var names []string
		for _, r := range red[1:] {
			names = append(names, r.Name)
		}
		c.say("It also fails: %s. For the story of one of them: make check ONLY='%s'\n", strings.Join(names, ", "), names[0])
	}
	c.say("Next: mend that, and run `make check` again. `make hint` helps, and `make answer` shows how we have done it.")
}
