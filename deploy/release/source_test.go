package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

// thisTree is podcount's own source, with made-up facts about its commit.
var thisTree = tree{
	dir: filepath.Join("..", ".."), version: "v1.1.0", commit: testCommit, time: time.Unix(1700000000, 0),
}

// filesIn returns the files of a source, by name, without the folder.
func filesIn(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	unpacked, err := readSource(packed)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for path, contents := range unpacked {
		name, isInFolder := strings.CutPrefix(path, "podcount-v1.1.0/")
		if !isInFolder {
			t.Errorf("%s is not in the folder podcount-v1.1.0", path)
		}
		files[name] = string(contents)
	}
	return files
}

func TestSourceInTheBinaryIsTheProgramWithoutTests(t *testing.T) {
	packed, err := packProgramSource(thisTree)
	if err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, packed)
	wanted := []string{
		"main.go", "watch.go", "cache.go", "queue.go", "go.mod", "Makefile", "LICENSE", "README.md",
		"deploy/deploy.go", "deploy/templates/policy.yaml", "internal/view/page/page.html", "deploy/release/main.go",
		"internal/run/process/fips.go", "internal/run/process/fips_go125.go", // One of them is for another version of Go.
	}
	for _, name := range wanted {
		onDisk, err := os.ReadFile(filepath.Join(thisTree.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if files[name] != string(onDisk) {
			t.Errorf("%s is not in the source as it is on the disk", name)
		}
	}
	for name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(name, "docs/") {
			t.Errorf("%s is in the source", name)
		}
	}
	testkit.WantEqual(t, "the stamp", files[stampName], testCommit+" 1700000000 v1.1.0\n")
	if len(packed) > 300_000 {
		t.Errorf("the source has %d bytes, which is more than 300 kB", len(packed))
	}
}

func TestSourceWithoutGitIsEveryFileOutsideBin(t *testing.T) {
	dir := folderWith(t, stampName, "", "main.go", "package main", "docs/a.md", "# A", "bin/podcount", "built")
	unpacked := tree{dir: dir, version: "v1.1.0", commit: testCommit, time: time.Unix(1700000000, 0)}
	packed, err := packWholeSource(unpacked)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the files", filesIn(t, packed), map[string]string{
		stampName:   testCommit + " 1700000000 v1.1.0\n",
		"main.go":   "package main",
		"docs/a.md": "# A",
	})
}

// exportOf returns what is packed of a repository for a release.
func exportOf(t *testing.T, repository tree) tree {
	t.Helper()
	read, err := readTree(repository.dir, "v1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	committed, err := read.committed()
	if err != nil {
		t.Fatal(err)
	}
	exported, err := committed.export(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return exported
}

func TestSourceHasTheSameBytesWithGitAndWithout(t *testing.T) {
	repository := gitRepository(t, stampName, "$Format$", "main.go", "package main", "run", "#!/bin/sh\n")
	first, err := packWholeSource(exportOf(t, repository))
	if err != nil {
		t.Fatal(err)
	}
	var namesAndContents []string
	for name, contents := range filesIn(t, first) {
		namesAndContents = append(namesAndContents, name, contents)
	}
	withoutGit, err := readTree(folderWith(t, namesAndContents...), "")
	if err != nil {
		t.Fatal(err)
	}
	second, err := packWholeSource(withoutGit)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the source that was unpacked gives other bytes than the repository")
	}
}

func TestReleaseIsMadeOfTheCommitWhateverLiesOnTheDisk(t *testing.T) {
	repository := gitRepository(t, "main.go", "package main\n", "text", "a\nb\n")
	runGit(t, repository.dir, "config", "core.autocrlf", "true")
	runGit(t, repository.dir, "config", "core.attributesFile", ".git/info/attributes")
	for name, contents := range map[string]string{
		"stranger.go":       "package main",
		".git/info/exclude": "stranger.go\n",

		".git/info/attributes": "text export-ignore\n",
	} {
		if err := writeFile(filepath.Join(repository.dir, name), []byte(contents)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(repository.dir, "text")); err != nil {
		t.Fatal(err)
	}
	runGit(t, repository.dir, "checkout", "--", "text")
	onDisk, err := os.ReadFile(filepath.Join(repository.dir, "text"))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the text on the disk", string(onDisk), "a\r\nb\r\n")
	packed, err := packWholeSource(exportOf(t, repository))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the files", filesIn(t, packed), map[string]string{
		"main.go": "package main\n",
		"text":    "a\nb\n",
	})
}

// The packed source tells what can be executed by the first two bytes of a file.
func TestScriptsAloneCanBeExecuted(t *testing.T) {
	top := tree{dir: thisTree.dir}
	list, err := top.git("ls-files", "-s")
	if err != nil {
		t.Skip("this test needs the repository:", err)
	}
	for line := range strings.Lines(list) {
		facts, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		contents, err := os.ReadFile(filepath.Join(top.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		isExecutable := strings.HasPrefix(facts, "100755")
		if isExecutable != isScript(contents) {
			t.Errorf("%s can be executed: %v; it begins with #!: %v", name, isExecutable, isScript(contents))
		}
	}
}

func TestLinkInTheSourceIsRefused(t *testing.T) {
	dir := folderWith(t, "a", "")
	if err := os.Symlink("a", filepath.Join(dir, "b")); err != nil {
		t.Skip(err)
	}
	_, err := packWholeSource(tree{dir: dir})
	testkit.WantError(t, "a link", err, "b is not a regular file")
}
