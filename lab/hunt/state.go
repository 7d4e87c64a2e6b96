package hunt

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// state is what is remembered between two commands.
type state struct {
	Current string         // the mutant that is hunted, or "" while no hunt is on
	Wrong   int            // how many wrong answers there were about it
	Hints   int            // how many hints were given about it
	Found   map[string]int // by mutants that were found: how many answers that took
	GivenUp []string       // the mutants whose stories were told without that
}

// stateFile is the file of the state, in the directory for what is built. It is encoded so that a glance at it does
// not tell the bug.
const stateFile = "hunt.state"

// readState returns the state, which is empty at first.
func readState(bin string) (state, error) {
	s := state{Found: map[string]int{}}
	file := filepath.Join(bin, stateFile)
	encoded, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	text, err := base64.StdEncoding.DecodeString(string(encoded))
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		return s, fmt.Errorf("%s cannot be read: delete it, which begins all hunts anew: %w", file, err)
	}
	return s, nil
}

// write remembers the state.
func (s state) write(bin string) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	encoded := base64.StdEncoding.EncodeToString(text)
	return os.WriteFile(filepath.Join(bin, stateFile), []byte(encoded), 0o600)
}

// begin begins the hunt for a bug.
func (s *state) begin(b Bug) { s.Current, s.Wrong, s.Hints = b.Mutant, 0, 0 }

// end ends the hunt.
func (s *state) end() { s.Current = "" }
