package hunt

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"podcount/lab/mutants"
)

// A Hunt is what the commands of `make bug` work on. All fields are required.
type Hunt struct {
	Checkout string // the directory of the checkout, which stays as it is
	Bin      string // the directory for what is built, and for what is remembered between two commands
	Out      io.Writer

	// Choose returns a number from 0 up to but without n.
	Choose func(n int) int

	// Play runs the playground with these arguments, until the student stops it.
	Play func(program string, args []string) error
}

// A UsageError says what is wrong with a command, and how it would be right.
type UsageError string

func (e UsageError) Error() string { return string(e) }

// usagef returns a UsageError.
func usagef(format string, args ...any) error { return UsageError(fmt.Sprintf(format, args...)) }

// maxWrong is after how many wrong answers the file is offered.
const maxWrong = 2

// Start begins a hunt, or goes on with the one that is on. The level and the number of the bug may be "", which leaves
// the choice to the hunt.
func (h *Hunt) Start(ctx context.Context, level, number string) error {
	s, err := readState(h.Bin)
	if err != nil {
		return err
	}
	bug, isOn := find(s.Current)
	if isOn {
		h.say("A hunt is on already, and goes on. `make bug ANSWER=none` would give it up.")
	} else if bug, err = h.choose(s, level, number); err != nil {
		return err
	} else if bug.Mutant == "" {
		h.say("You have found all bugs. `make bug BUG=7` hunts bug 7 once more, and `make clean` forgets all of that.")
		return nil
	}
	all, err := h.mutants()
	if err != nil {
		return err
	}
	podcountFlags := bug.flags()
	h.introduce(s, bug, podcountFlags)
	program, playground := filepath.Join(h.Bin, "podcount-with-a-bug"), filepath.Join(h.Bin, "playground")
	h.say("Compiling podcount with the bug, and the playground …")
	if err := buildBroken(ctx, h.Checkout, all[bug.Mutant], program); err != nil {
		return err
	}
	if err := build(ctx, h.Checkout, playground, "./lab/playground"); err != nil {
		return err
	}
	if !isOn {
		s.begin(bug)
		if err := s.write(h.Bin); err != nil {
			return err
		}
	}
	err = h.Play(playground, append([]string{"-script", bug.Script, program, h.Bin}, podcountFlags...))
	h.next(s)
	return err
}

// introduce says which bug is hunted, what a user reports, and what will happen.
func (h *Hunt) introduce(s state, bug Bug, podcountFlags []string) {
	h.say("Bug %d of %d, of the level %s. %s", numberOf(bug), len(Bugs()), bug.Level, progress(s))
	h.say("A user reports:")
	h.print(wrapped(bug.Symptom, "    "))
	h.say("The playground shows that within %d seconds. podcount has one bug, and these flags:", bug.Seconds)
	h.print("    " + strings.Join(podcountFlags, " ") + "\n\n")
	if bug.Script != "" {
		h.say("These things happen by themselves, and each is said:")
		h.print("    " + strings.ReplaceAll(shortened(bug.Script), "\n", "\n    ") + "\n\n")
	}
	h.say("Look at the lines that follow, at podcount's page, and at the code. Which function, method, type or variable " +
		"is broken? Ctrl-C stops the playground.")
}

// maxSteps is how many steps of a script are shown before it begins.
const maxSteps = 8

// shortened returns the first steps of a script, and says how many more there are.
func shortened(script string) string {
	steps := strings.Split(script, "\n")
	if len(steps) <= maxSteps {
		return script
	}
	return fmt.Sprintf("%s\n… and %d more such steps", strings.Join(steps[:maxSteps-1], "\n"), len(steps)-maxSteps+1)
}

// next says what can be done next while a hunt is on.
func (h *Hunt) next(s state) {
	lines := []string{
		"Next:",
		"  make bug ANSWER=Type.method   # name what is broken: a method as Queue.Get, a function, a type, a variable",
		"  make bug HINT=yes             # a hint",
	}
	if s.Wrong >= maxWrong {
		lines = append(lines, "  make bug HINT=file            # the file with the bug")
	}
	lines = append(lines,
		"  make bug                      # play it once more",
		"  make bug ANSWER=none          # give up, and read the story")
	h.print(strings.Join(lines, "\n") + "\n")
}

// choose chooses a bug. Without a number it is one that was not found yet, of the level, or of the first level that
// has one. The bug is empty if all were found.
func (h *Hunt) choose(s state, level, number string) (Bug, error) {
	bugs := Bugs()
	if number != "" {
		for i, bug := range bugs {
			if fmt.Sprint(i+1) == number {
				return bug, nil
			}
		}
		return Bug{}, usagef("there is no bug %s: use `make bug BUG=N` with a number from 1 to %d, or leave it out",
			number, len(bugs))
	}
	if level != "" && !slices.Contains(Levels(), Level(level)) {
		return Bug{}, usagef("there is no level %q: use `make bug LEVEL=easy`, middle or hard, or leave it out", level)
	}
	for _, l := range Levels() {
		if level != "" && Level(level) != l {
			continue
		}
		left := slices.DeleteFunc(slices.Clone(bugs), func(b Bug) bool { return b.Level != l || s.Found[b.Mutant] > 0 })
		fresh := slices.DeleteFunc(slices.Clone(left), func(b Bug) bool { return slices.Contains(s.GivenUp, b.Mutant) })
		if len(fresh) > 0 {
			left = fresh
		}
		if len(left) > 0 {
			return left[h.Choose(len(left))], nil
		}
	}
	if level != "" {
		return Bug{}, usagef("you have found all bugs of the level %s: use `make bug` for another one", level)
	}
	return Bug{}, nil
}

// Answer judges an answer. "none" gives up.
func (h *Hunt) Answer(answer string) error {
	s, bug, m, err := h.current()
	if err != nil {
		return err
	}
	if answer == "none" {
		s.GivenUp = append(s.GivenUp, bug.Mutant)
		s.end()
		h.say("You have given up bug %d. It was %s.", numberOf(bug), listed(m.Places()))
		h.tell(bug, m)
		return h.finish(s)
	}
	name := plain(answer)
	isKnown, err := h.isDeclared(name)
	if err != nil {
		return err
	}
	if !isKnown {
		return usagef("podcount has no %q: write a name as in the code, such as ANSWER=Queue.Get for a method of Queue. "+
			"This does not count as an answer", answer)
	}
	if !isRight(name, m.Places()) {
		s.Wrong++
		h.say("No, %s is sound. That was wrong answer %d about bug %d.", answer, s.Wrong, numberOf(bug))
		if err := s.write(h.Bin); err != nil {
			return err
		}
		h.next(s)
		return nil
	}
	s.Found[bug.Mutant] = s.Wrong + 1
	s.end()
	h.say("Right: bug %d is in %s. You needed %s and %s.", numberOf(bug), listed(m.Places()),
		counted(s.Wrong+1, "answer"), counted(s.Hints, "hint"))
	h.tell(bug, m)
	return h.finish(s)
}

// finish remembers that a hunt is over, and says what can be done next.
func (h *Hunt) finish(s state) error {
	h.say("%s", progress(s))
	h.print("Next:\n" +
		"  make bug              # the next bug\n" +
		"  make bug LEVEL=hard   # one of a level: easy, middle or hard\n")
	return s.write(h.Bin)
}

// tell tells the story of a bug.
func (h *Hunt) tell(bug Bug, m mutants.Mutant) {
	h.say("The bug: %s", m.Why)
	h.say("The change, where a minus is the sound code and a plus is the bug:")
	for line := range strings.Lines(m.Diff()) {
		h.print("    " + line)
	}
	h.print("\n")
	h.say("The rule that it breaks, in %s:", bug.Page)
	h.print(wrapped(bug.Rule, "    "))
	h.say("The test that notices is %s, in %s. This shows it, on a copy of the checkout:",
		m.Test.Name, packageName(m.Test.Dir))
	h.print("    make mutants ONLY=" + m.Name + "\n\n")
	if bug.Known != nil {
		h.say("Others had a bug of this kind, too. %s: %s", bug.Known.name(), bug.Known.Story)
		h.print("    " + bug.Known.URL + "\n\n")
	}
}

// packageName returns the name of a directory for people.
func packageName(dir string) string {
	if dir == "." {
		return "the top directory"
	}
	return dir
}

// Hint gives the next hint, or with "file" names the files with the bug.
func (h *Hunt) Hint(which string) error {
	s, bug, m, err := h.current()
	if err != nil {
		return err
	}
	switch {
	case which == "file":
		var files []string
		for _, place := range m.Places() {
			for name := range m.Broken {
				if path.Dir(name) == place.Dir && !slices.Contains(files, name) {
					files = append(files, name)
				}
			}
		}
		slices.Sort(files)
		h.say("The bug is in %s.", strings.Join(files, " and "))
	case which != "yes":
		return usagef("there is no hint %q: use `make bug HINT=yes`, or HINT=file for the file", which)
	case s.Hints >= len(bug.Hints):
		for _, hint := range bug.Hints {
			h.say("%s", hint)
		}
		h.say("There are no more hints, but `make bug HINT=file` names the file.")
	default:
		h.say("Hint %d of %d: %s", s.Hints+1, len(bug.Hints), bug.Hints[s.Hints])
		s.Hints++
	}
	if err := s.write(h.Bin); err != nil {
		return err
	}
	h.next(s)
	return nil
}

// current returns the state, and the bug that is hunted with its mutant.
func (h *Hunt) current() (state, Bug, mutants.Mutant, error) {
	s, err := readState(h.Bin)
	if err != nil {
		return s, Bug{}, mutants.Mutant{}, err
	}
	bug, isOn := find(s.Current)
	if !isOn {
		return s, Bug{}, mutants.Mutant{}, UsageError("no hunt is on: `make bug` begins one")
	}
	all, err := h.mutants()
	return s, bug, all[bug.Mutant], err
}

// mutants returns all mutants by their names. Those that do not fit the checkout have nothing that is broken.
func (h *Hunt) mutants() (map[string]mutants.Mutant, error) {
	all, err := mutants.ReadAll(os.DirFS(h.Checkout))
	if len(all) == 0 {
		return nil, errors.Join(UsageError("run `make bug` in the top directory of the checkout"), err)
	}
	byName := map[string]mutants.Mutant{}
	for _, m := range all {
		byName[m.Name] = m
	}
	return byName, nil
}

// find returns the bug of a mutant.
func find(mutant string) (bug Bug, isFound bool) {
	for _, b := range Bugs() {
		if b.Mutant == mutant {
			return b, true
		}
	}
	return Bug{}, false
}

// numberOf returns the number of a bug, counted from 1.
func numberOf(bug Bug) int {
	return slices.IndexFunc(Bugs(), func(b Bug) bool { return b.Mutant == bug.Mutant }) + 1
}

// plain returns an answer without what people may add to a name: (*Queue).Get(), for example, becomes Queue.Get.
func plain(answer string) string {
	name, _, _ := strings.Cut(strings.NewReplacer("(*", "", ").", ".", "`", "").Replace(answer), "(")
	return strings.TrimSpace(name)
}

// isRight reports whether a name stands for one of some places. A method may stand without its type, and any name
// behind that of its package.
func isRight(name string, places []mutants.Named) bool {
	return slices.ContainsFunc(places, func(place mutants.Named) bool { return isNameOf(name, place) })
}

func isNameOf(name string, place mutants.Named) bool {
	_, method, _ := strings.Cut(place.Name, ".")
	names := []string{place.Name, method, path.Base(place.Dir) + "." + place.Name, place.Dir + "." + place.Name}
	return name != "" && slices.Contains(names, name)
}

// isDeclared reports whether podcount, without its tests and its lab, declares a name.
func (h *Hunt) isDeclared(name string) (bool, error) {
	declared, err := mutants.Declared(os.DirFS(h.Checkout))
	isMeant := func(n mutants.Named) bool {
		isElsewhere := strings.HasPrefix(n.Dir, "lab") || strings.HasPrefix(n.Name, "Test")
		return isNameOf(name, n) && !isElsewhere
	}
	return slices.ContainsFunc(declared, isMeant), err
}

// progress says how many bugs were found.
func progress(s state) string {
	var parts []string
	for _, level := range Levels() {
		found, all := 0, 0
		for _, bug := range Bugs() {
			if bug.Level == level {
				all++
				found += min(s.Found[bug.Mutant], 1)
			}
		}
		parts = append(parts, fmt.Sprintf("%d of %d %s", found, all, level))
	}
	return "You have found " + strings.Join(parts, ", ") + " ones."
}

// listed returns the names of places for people.
func listed(places []mutants.Named) string {
	var names []string
	for _, place := range places {
		names = append(names, place.Name)
	}
	return strings.Join(names, " and ")
}

// counted returns a number with its noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprint(n, " ", noun, "s")
}

// say prints a paragraph.
func (h *Hunt) say(format string, args ...any) { h.print(wrapped(fmt.Sprintf(format, args...), "")) }

func (h *Hunt) print(text string) { io.WriteString(h.Out, text) }

// width is the length of the longest lines that are printed, as far as words allow.
const width = 100

// wrapped breaks a paragraph into lines with an indentation, and ends it with an empty line.
func wrapped(text, indentation string) string {
	var b strings.Builder
	line := indentation
	for _, word := range strings.Fields(text) {
		if line != indentation && len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = indentation
		}
		if line != indentation {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n\n"
}
