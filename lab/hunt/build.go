package hunt

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"podcount/lab/mutants"
)

// buildBroken builds podcount from a checkout with a mutant. The checkout stays as it is: the go command reads the
// broken files from elsewhere.
func buildBroken(ctx context.Context, checkout string, m mutants.Mutant, program string) error {
	if m.Broken == nil {
		return fmt.Errorf("the bug does not fit this checkout, because its code was changed: undo that, for example by " +
			"`git restore .`, or give up by `make bug ANSWER=none`")
	}
	// The directory is deleted afterwards, so that nobody finds the broken files by chance.
	dir, err := os.MkdirTemp("", "hunt")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	replaced := map[string]string{}
	for name, text := range m.Broken {
		broken := filepath.Join(dir, fmt.Sprint(len(replaced), ".go"))
		replaced[filepath.Join(checkout, name)] = broken
		if err := os.WriteFile(broken, []byte(text), 0o600); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		return err
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		return err
	}
	return build(ctx, checkout, program, ".", "-overlay", file)
}

// build builds a package of a checkout for this machine, whatever the environment says about others.
func build(ctx context.Context, checkout, program, name string, flags ...string) error {
	args := append(append([]string{"build"}, flags...), "-o", program, name)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = checkout
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOENV=off", "GOOS=", "GOARCH=", "GOFLAGS=", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}
