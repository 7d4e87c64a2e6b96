package main

import (
	"errors"
	"path/filepath"
	"testing"

	"podcount/internal/testkit"
)

func TestReleasesThatNobodyCouldBuildAgainAreRefused(t *testing.T) {
	complete := tree{dir: thisTree.dir, version: "v1.1.0", commit: testCommit}
	if err := checkRelease(complete); err != nil {
		t.Error(err)
	}
	unnamed := complete
	unnamed.version = "dev"
	testkit.WantError(t, "no version", checkRelease(unnamed), "make release VERSION=v1.1.0")
	unknown := complete
	unknown.whyUnknown = errors.New("no git")
	testkit.WantError(t, "no commit", checkRelease(unknown), "the commit is unknown: no git")
	dirty := complete
	dirty.isDirty = true
	testkit.WantError(t, "another commit", checkRelease(dirty), "says that the source differs from its commit")
	partial := complete
	partial.dir = t.TempDir()
	testkit.WantError(t, "no documentation", checkRelease(partial), "the source of the program alone")
}

func TestReleaseOfChangedFilesOrAnotherTagIsRefused(t *testing.T) {
	repository := gitRepository(t, "docs/a.md", "# A")
	runGit(t, repository.dir, "tag", "v1.0.0")
	if err := writeFile(filepath.Join(repository.dir, "new.go"), nil); err != nil {
		t.Fatal(err)
	}
	changed, err := readTree(repository.dir, "v1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantError(t, "a new file", checkRelease(changed), "new.go")

	runGit(t, repository.dir, "add", ".")
	runGit(t, repository.dir, "commit", "-q", "-m", "second")
	tagged, err := readTree(repository.dir, "v1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantError(t, "another tag", checkRelease(tagged), "check the tag out, or give another VERSION")
}
