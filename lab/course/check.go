package course

import (
	"context"
	"errors"
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
	newRows, oldRows := c.chosen(stage.newRows()), c.chosen(stage.oldRows())
	if c.Only != "" && len(newRows)+len(oldRows) == 0 {
		return UsageError{fmt.Errorf("ONLY=%s: stage %d has no row of that name", c.Only, stage.Number)}
	}
	if err := c.chooseProgram(s); err != nil {
		return err
	}
	line, err := c.commandLine(ctx, s, stage)
	if err != nil {
		return err
	}
	c.say("Stage %d, %q: %s", stage.Number, stage.Name, s.shownProgram())
	program := stage.program(trial.Command(line))
	for _, rows := range [][]trial.Row{newRows, oldRows} {
		if len(rows) == 0 {
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
		c.say("\nThat is right. Next: `make check%s`, for all rows.", c.again())
		return nil
	}
	c.say("\nStage %d, %q, is done: your program passes all its rows.", stage.Number, stage.Name)
	// A program that was named with a STAGE may be anybody's.
	if stage.Number == s.Stage && (c.Stage == "" || c.Program == "") {
		s.Passed = stage.Number
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
		output, err := build.CombinedOutput()
		if failed := new(exec.ExitError); errors.As(err, &failed) && ctx.Err() == nil {
			c.say("Your program does not compile yet:\n\n%s", output)
			c.say("Next: mend that, and run `make check%s` again.", c.again())
			return "", errRed
		}
		if err != nil {
			return "", fmt.Errorf("go build: %w", err)
		}
		line = quoted(binary)
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
// of several commands stays as it is, and so does one that begins with exec or sets a variable.
func withExec(line string) string {
	first, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	if strings.ContainsAny(line, ";&|()\n") || strings.Contains(first, "=") || first == "exec" {
		return line
	}
	return "exec " + line
}

// atStage returns what a further command needs to be about the same stage, if that is not the present one.
func (c Call) atStage() string {
	if c.Stage == "" {
		return ""
	}
	return " STAGE=" + c.Stage
}

// again returns what a further check needs to be about the same stage and program. Without a STAGE, both are
// remembered.
func (c Call) again() string {
	if c.Stage == "" || c.Program == "" {
		return c.atStage()
	}
	return c.atStage() + " PROGRAM=" + quoted(c.Program)
}

// quoted returns a text as a word for a shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// chosen returns those of the rows that the student has asked for: the one of that name, or else, if there is none in
// the whole course, those whose names contain that.
func (c Call) chosen(rows []trial.Row) []trial.Row {
	isName := slices.ContainsFunc(allRows(), func(r trial.Row) bool { return r.Name == c.Only })
	return slices.DeleteFunc(rows, func(r trial.Row) bool {
		return r.Name != c.Only && (isName || !strings.Contains(r.Name, c.Only))
	})
}

// play puts a program to rows, and returns the results that are red, in the order of the table. It stops when it knows
// the first of these. Rows run together, because they wait most of their time. Those of the first stages are short, and
// run one after the other.
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

// tell tells the story of the first row that the program fails, and names the others that are known.
func (c Call) tell(red []trial.Result) {
	c.say("\n%s", red[0].Story())
	if len(red) > 1 {
		var names []string
		for _, r := range red[1:] {
			names = append(names, r.Name)
		}
		c.say("It also fails: %s. For the story of one of them: `make check%s ONLY=%s`\n",
			strings.Join(names, ", "), c.again(), quoted(names[0]))
	}
	c.say("Next: mend that, and run `make check%s` again. `make hint%s` helps, and `make answer%s` shows how we did it.",
		c.again(), c.atStage(), c.atStage())
}
