package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/testkit"
)

// thisTree is podcount's own source, with made-up facts about its commit.
var thisTree = tree{dir: filepath.Join("..", ".."), version: "v1.1.0", commit: testCommit, time: time.Unix(1700000000, 0)}

// filesIn returns the files of a compressed tar, by name, without the folder.
func filesIn(t *testing.T, packed []byte) map[string]string {
	t.Helper()
	uncompressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		contents, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		name, isInFolder := strings.CutPrefix(header.Name, "podcount-v1.1.0/")
		if !isInFolder {
			t.Errorf("%s is not in the folder podcount-v1.1.0", header.Name)
		}
		files[name] = string(contents)
	}
}

func TestSourceInTheBinaryIsTheProgramWithoutTests(t *testing.T) {
	packed, err := packProgramSource(thisTree)
	if err != nil {
		t.Fatal(err)
	}
	files := filesIn(t, packed)
	wanted := []string{
		"main.go", "watch.go", "cache.go", "queue.go", "go.mod", "Makefile", "LICENSE", "README.md",
		"deploy/deploy.go", "deploy/templates/policy.yaml", "internal/page/page.html", "internal/release/main.go",
		"internal/build/fips.go", "internal/build/fips_go125.go", // One of them is for another version of Go.
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

func TestSourceHasTheSameBytesWithGitAndWithout(t *testing.T) {
	repository := gitRepository(t, stampName, "$Format$", "main.go", "package main", ".gitignore", "/bin/\n")
	withGit, err := readTree(repository.dir, "v1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(repository.dir, "main.go"), 0o600); err != nil { // as another umask would
		t.Fatal(err)
	}
	first, err := packWholeSource(withGit)
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

func TestLinkInTheSourceIsRefused(t *testing.T) {
	dir := folderWith(t, "a", "")
	if err := os.Symlink("a", filepath.Join(dir, "b")); err != nil {
		t.Skip(err)
	}
	_, err := packWholeSource(tree{dir: dir})
	testkit.WantError(t, "a link", err, "b is not a regular file")
}

func TestEveryPlatformCanBeNamed(t *testing.T) {
	for _, p := range allPlatforms {
		chosen, err := parsePlatforms(p.String())
		if err != nil || !slices.Equal(chosen, []platform{p}) {
			t.Errorf("%s: %v, %v", p, chosen, err)
		}
	}
	if _, err := parsePlatforms("linux/amd64,plan9/amd64"); err == nil {
		t.Error("plan9 is accepted")
	}
}
