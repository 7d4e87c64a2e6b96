package kubeconfig

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"podcount/internal/fakekube"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("PODCOUNT_TEST_PLUGIN"); dir != "" {
		os.Exit(fakekube.RunExecPlugin(dir))
	}
	os.Exit(fakekube.RunTests(m))
}

// noEnv is an empty environment.
func noEnv(string) string { return "" }

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

// isRaced reports whether the race detector is on, which makes everything slow.
func isRaced() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
