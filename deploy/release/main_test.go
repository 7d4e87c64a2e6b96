package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongArgumentsAreErrorsOfUsage(t *testing.T) {
	lines := []string{
		"", "bild", "build more", "build -x", "verify", "verify one two", "verify -key k one", "all -key",
	}
	for _, line := range lines {
		err := run(t.Context(), strings.Fields(line), new(strings.Builder))
		if !errors.Is(err, errUsage) {
			t.Errorf("release %s: %v", line, err)
		}
	}
}

func TestFileThatCannotBeWrittenLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	if err := os.MkdirAll(filepath.Join(name, "in the way"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeFile(name, []byte("new")); err == nil {
		t.Error("writeFile returns no error")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder has %v, %v", entries, err)
	}
}
