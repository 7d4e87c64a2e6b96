package course

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"

	"podcount/lab/diff"
)

// Call is what a student has typed.
type Call struct {
	Root    string // of the checkout
	Command string // "learn", "check", "hint" or "answer"
	Stage   string // the number of a stage; "" for the present one
	Fresh   string // "yes" if learn shall begin the stage with our program, and not with the student's; "no" or ""
	Program string // a line for a shell, for check; "mine" for learn/mine, and "" for the one that was remembered last
	Only    string // check runs only the rows whose name contains this
	Out     io.Writer
}

// UsageError is a call that cannot be answered as it is. It says what to do.
type UsageError struct{ error }

// errRed says that the student's program does not pass. What it did has been told.
var errRed = errors.New("not yet")

// Run does what a student has typed, and returns the exit code: 0 if all is well, 1 if the program does not pass or
// something has failed, and 2 if the call was wrong.
func Run(ctx context.Context, c Call) int {
	err := c.run(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errRed):
		return 1
	case ctx.Err() != nil:
		err = errors.New("stopped on request")
	}
	fmt.Fprintln(c.Out, "make", c.Command+":", err)
	if wrong := (UsageError{}); errors.As(err, &wrong) || errors.Is(err, errNotBegun) {
		return 2
	}
	return 1
}

func (c Call) run(ctx context.Context) error {
	if c.Fresh != "" && c.Fresh != "yes" && c.Fresh != "no" {
		return UsageError{fmt.Errorf("FRESH=%s: write yes or no", c.Fresh)}
	}
	var wanted Stage
	if c.Stage != "" {
		number, err := strconv.Atoi(c.Stage)
		if err == nil {
			wanted, err = stageNamed(number)
		}
		if err != nil {
			return UsageError{fmt.Errorf("STAGE=%s: write the number of a stage, from 1 to %d", c.Stage, len(stages))}
		}
	}
	s, err := readStudent(c.Root)
	isNew := errors.Is(err, errNotBegun)
	if err != nil && !isNew {
		return err
	}
	if c.Command == "learn" {
		return c.learn(s, wanted, isNew)
	}
	stage := wanted
	if stage.Number == 0 {
		if isNew {
			return err // Nobody knows which stage is meant.
		}
		stage = stages[s.Stage-1]
	}
	switch c.Command {
	case "check":
		return c.check(ctx, s, stage)
	case "hint":
		return c.hint(s, stage)
	case "answer":
		return c.answer(stage)
	}
	return UsageError{fmt.Errorf("there is no command %q: there are learn, check, hint and answer", c.Command)}
}

func (c Call) say(format string, args ...any) { fmt.Fprintf(c.Out, format+"\n", args...) }

// learn says where the student stands, and what comes next. If the present stage is passed, the next one begins.
func (c Call) learn(s *student, wanted Stage, isNew bool) error {
	switch {
	case isNew:
		c.say("Build your own: a Kubernetes controller in %d stages.\n", len(stages))
		s.Stage = max(1, wanted.Number)
	case wanted.Number != 0 && wanted.Number != s.Stage:
		s.Stage, s.Hints = wanted.Number, 0
		s.Passed = min(s.Passed, s.Stage-1)
	case wanted.Number == 0 && s.Passed >= s.Stage && s.Stage < len(stages):
		c.say("Stage %d is done.\n", s.Stage)
		s.Stage, s.Hints = s.Stage+1, 0
	}
	stage := stages[s.Stage-1]
	if c.Fresh == "yes" {
		s.Program = ""
		s.Passed = min(s.Passed, s.Stage-1)
	}
	if !s.hasProgram() || c.Fresh == "yes" {
		kept, err := s.begin(stage)
		if err != nil {
			return err
		}
		if kept != "" {
			c.say("Your program was kept as %s.\n", kept)
		}
	}
	if err := s.save(); err != nil {
		return err
	}
	if s.Passed >= len(stages) && s.Stage == len(stages) {
		c.say("All stages are done: %s is a controller. Next: copy it to a place of its own, and let it do another job.",
			s.shownProgram())
		return nil
	}
	c.show(s, stage)
	c.say("Next: read the page, change the program, and run `make check`.")
	if s.Stage > 1 {
		c.say("(`make learn STAGE=%d FRESH=yes` would begin with the finished stage %d, and keep yours under another name.)",
			s.Stage, s.Stage-1)
	}
	return nil
}

func (c Call) show(s *student, stage Stage) {
	c.say("You stand at stage %d of %d, %q. Your program learns %s.", stage.Number, len(stages), stage.Name, stage.Learns)
	if stage.Before != "" {
		c.say("What the stage before did wrong: %s", stage.Before)
	}
	c.say("\n  the page      learn/%s/README.md", stage.Dir)
	c.say("  your program  %s\n", s.shownProgram())
}

// hint gives the next hint of the present stage, or all of another one.
func (c Call) hint(s *student, stage Stage) error {
	all, err := hints(c.Root, stage)
	if err != nil {
		return err
	}
	first, last := 0, len(all)-1
	if stage.Number == s.Stage {
		if s.Hints > last {
			c.say("There are no further hints. The last one was:\n")
		}
		first = min(s.Hints, last)
		last = first
		s.Hints = first + 1
		if err := s.save(); err != nil {
			return err
		}
	}
	for n := first; n <= last; n++ {
		c.say("Stage %d, %q, hint %d of %d:\n\n%s\n", stage.Number, stage.Name, n+1, len(all), all[n])
	}
	if last+1 < len(all) {
		c.say("Next: change your program, and run `make check`. `make hint` gives one more hint.")
	} else {
		c.say("Next: change your program, and run `make check`. `make answer` shows how we have done it.")
	}
	return nil
}

// answer shows what the finished stage changes.
func (c Call) answer(stage Stage) error {
	change, err := change(c.Root, stage.Number)
	if err != nil {
		return err
	}
	c.say("What changes with stage %d, %q:\n\n%s", stage.Number, stage.Name, change)
	c.say("The whole program is %s.", filepath.Join("learn", stage.Dir, programFile))
	c.say("Next: do the same in your program, and run `make check`.")
	if stage.Number < len(stages) {
		c.say("(`make learn STAGE=%d FRESH=yes` would go on from ours, and keep yours under another name.)", stage.Number+1)
	}
	return nil
}

// change returns what a finished stage changes in the one before it, as a diff. Of stage 1, it returns all.
func change(root string, number int) (text string, err error) {
	before := ""
	if number > 1 {
		if before, err = finished(root, number-1); err != nil {
			return "", err
		}
	}
	after, err := finished(root, number)
	if err != nil {
		return "", err
	}
	return diff.Unified(before, after), nil
}
