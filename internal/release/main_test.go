package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongArgumentsAreErrorsOfUsage(t *testing.T) {
	for _, line := range []string{"", "bild", "build more", "build -x", "verify", "verify one two", "verify -key k one", "all -key"} {
		err := run(t.Context(), strings.Fields(line), new(strings.Builder))
		if !errors.Is(err, errUsage) {
			t.Errorf("release %s: %v", line, err)
		}
	}
}

func TestFileThatCannotBeWrittenStaysAsItWas(t *testing.T) {
	name := filepath.Join(folderWith(t, "file", "old"), "file")
	if err := os.Mkdir(name+".unfinished", 0o755); err != nil { // in the way of the new file
		t.Fatal(err)
	}
	if err := writeFile(name, []byte("new")); err == nil {
		t.Error("writeFile returns no error")
	}
	contents, err := os.ReadFile(name)
	if err != nil || string(contents) != "old" {
		t.Errorf("the file has %q, %v", contents, err)
	}
}
