package course

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// mine is the directory of the student's program, in the checkout. git ignores it, and its own go.mod keeps a program
// that does not compile yet away from `go test ./...`.
const mine = "learn/mine"

const goMod = "module mine\n\ngo 1.25\n"

// skeleton is the program with which stage 1 begins.
const skeleton = `// This is your program. Write here what learn/01-count/README.md asks for, and then run: make check
package main

func main() {
}
`

// student is where a student stands. It is kept beside the program.
type student struct {
	root string // of the checkout

	Stage  int // the present one
	Passed int // the last stage that is done; those after a stage to which the student goes back are not
	Hints  int // how many hints of the present stage were given

	Program string // a line for a shell that starts a program in another language; "" for learn/mine
}

// shownProgram returns what the student's program is, for people.
func (s *student) shownProgram() string {
	if s.Program != "" {
		return s.Program
	}
	return mine + "/" + programFile
}

// errNotBegun says that there is no student yet.
var errNotBegun = errors.New("the course has not begun: run `make learn`")

func (s *student) file(name string) string { return filepath.Join(s.root, mine, name) }

const (
	programFile  = "main.go"
	progressFile = "progress.json"
)

// readStudent reads where the student of a checkout stands. The error is errNotBegun if there is none.
func readStudent(root string) (*student, error) {
	s := &student{root: root}
	text, err := os.ReadFile(s.file(progressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return s, errNotBegun
	}
	if err == nil {
		err = json.Unmarshal(text, s)
	}
	if err == nil {
		_, err = stageNamed(s.Stage)
	}
	if err != nil {
		return nil, fmt.Errorf("%s does not say where you stand (%w): delete it, and run `make learn STAGE=…`",
			filepath.Join(mine, progressFile), err)
	}
	return s, nil
}

// save writes down where the student stands.
func (s *student) save() error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return s.write(progressFile, string(text)+"\n")
}

func (s *student) write(name, text string) error {
	if err := os.MkdirAll(filepath.Join(s.root, mine), 0o755); err != nil {
		return err
	}
	return os.WriteFile(s.file(name), []byte(text), 0o644)
}

// hasProgram reports whether there is a program of the student's.
func (s *student) hasProgram() bool {
	_, err := os.Stat(s.file(programFile))
	return err == nil
}

// begin makes the program with which a stage begins, which is the finished stage before. If there is a program, it is
// kept under another name, which begin returns.
func (s *student) begin(stage Stage) (kept string, err error) {
	text, err := finished(s.root, stage.Number-1)
	if err != nil {
		return "", err
	}
	if s.hasProgram() {
		if kept, err = s.keep(); err != nil {
			return "", err
		}
	}
	if _, err := os.Stat(s.file("go.mod")); errors.Is(err, fs.ErrNotExist) {
		if err := s.write("go.mod", goMod); err != nil {
			return "", err
		}
	}
	return kept, s.write(programFile, text)
}

// keep gives the program another name, which does not end in .go, so that go ignores it.
func (s *student) keep() (name string, err error) {
	for n := 1; ; n++ {
		name = fmt.Sprintf("%s.%d", programFile, n)
		if _, err := os.Stat(s.file(name)); errors.Is(err, fs.ErrNotExist) {
			return filepath.Join(mine, name), os.Rename(s.file(programFile), s.file(name))
		}
	}
}

// finished returns the program of a finished stage. That of stage 0 does nothing.
func finished(root string, number int) (string, error) {
	if number == 0 {
		return skeleton, nil
	}
	text, err := os.ReadFile(filepath.Join(root, "learn", stages[number-1].Dir, programFile))
	return string(text), err
}

// hints returns the hints of a stage, the most careful one first.
func hints(root string, stage Stage) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "learn", stage.Dir, "hints.txt"))
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSpace(string(text)), "\n\n"), nil
}
