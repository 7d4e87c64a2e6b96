package main

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"podcount/internal/testkit"
)

// testTree is a source whose release is made up.
var testTree = tree{version: "v1.1.0", commit: testCommit, time: time.Unix(1700000000, 0)}

// testPrograms are made-up binaries.
var testPrograms = []program{
	{platform{"linux", "amd64"}, []byte("for linux")},
	{platform{"windows", "arm64"}, []byte("for windows")},
}

// testContents returns the files of a made-up release.
func testContents(t *testing.T) []file {
	t.Helper()
	var platforms []platform
	var files []file
	for _, p := range testPrograms {
		platforms = append(platforms, p.platform)
		files = append(files, file{name: p.platform.binaryName("v1.1.0"), contents: p.contents, isExecutable: true})
	}
	provenance, err := makeProvenance(testTree, "off", platforms, files)
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, file{name: "podcount-v1.1.0" + provenanceSuffix, contents: provenance})
	return append(files, file{name: sumsName, contents: makeSums(files)})
}

// packed returns the name of a release with these files.
func packed(t *testing.T, files []file) string {
	t.Helper()
	contents, err := packTar(inFolder("podcount-v1.1.0", files), testTree.time)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "podcount-v1.1.0.tar")
	if err := writeFile(path, contents); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReleaseSaysHowToBuildItAgain(t *testing.T) {
	read, err := readRelease(packed(t, testContents(t)))
	if err != nil {
		t.Fatal(err)
	}
	p, err := read.parameters()
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the parameters", p, parameters{
		version:   "v1.1.0",
		commit:    testCommit,
		goVersion: runtime.Version(),
		fips:      "off",
		platforms: []string{"linux/amd64", "windows/arm64"},
	})
}

func TestSameFilesAreVerified(t *testing.T) {
	read, err := readRelease(packed(t, testContents(t)))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := read.compare(testContents(t), &out); err != nil {
		t.Error(err)
	}
	testkit.WantText(t, out.String(), "same      podcount-v1.1.0-linux-amd64\n", "all 3 files are the same\n")
}

func TestFilesThatDifferAreNamed(t *testing.T) {
	read, err := readRelease(packed(t, testContents(t)))
	if err != nil {
		t.Fatal(err)
	}
	built := testContents(t)
	built[0].contents = []byte("other bytes")
	built[1].name = "another file"
	var out strings.Builder
	testkit.WantError(t, "compare", read.compare(built, &out), "3 files differ")
	testkit.WantText(t, out.String(),
		"DIFFERS   podcount-v1.1.0-linux-amd64\n",
		"not built podcount-v1.1.0-windows-arm64.exe\n",
		"missing   another file\n",
		"same      podcount-v1.1.0.provenance.json\n",
	)
}

func TestReleaseWhoseSumsAreOfOtherFilesIsRefused(t *testing.T) {
	changes := map[string]func(files []file) []file{
		"a changed file": func(files []file) []file {
			files[0].contents = []byte("changed")
			return files
		},
		"one file more":   func(files []file) []file { return append(files, file{name: "more"}) },
		"one file less":   func(files []file) []file { return files[1:] },
		"no sums":         func(files []file) []file { return files[:len(files)-1] },
		"a signature too": func(files []file) []file { return append(files[1:], file{name: signatureName}) },
	}
	for name, change := range changes {
		_, err := readRelease(packed(t, change(testContents(t))))
		testkit.WantError(t, name, err, "the files are not those that SHA256SUMS names")
	}
}

func TestFileThatIsNoReleaseIsRefused(t *testing.T) {
	for name, path := range map[string]string{
		"a folder":     t.TempDir(),
		"no tar":       filepath.Join(folderWith(t, "a", strings.Repeat("text ", 500)), "a"),
		"not there":    filepath.Join(t.TempDir(), "a"),
		"no podcount":  packed(t, []file{{name: "a"}, {name: sumsName, contents: makeSums([]file{{name: "a"}})}}),
		"an empty tar": packed(t, nil),
	} {
		err := verifyRelease(settings{}, []string{path}, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %v, and does not name the file", name, err)
		}
	}
}

func TestVerifyRefusesAnotherCommitAndAnotherGo(t *testing.T) {
	p := parameters{commit: testCommit, goVersion: runtime.Version()}
	if err := p.check(testTree); err != nil {
		t.Error(err)
	}
	p.goVersion = "go1.99"
	testkit.WantError(t, "another Go", p.check(testTree), "GOTOOLCHAIN=go1.99 make verify")
	p.commit = "another"
	testkit.WantError(t, "another commit", p.check(testTree), "it was built from the commit another")
}

func TestSumsAreThoseOfSha256sum(t *testing.T) {
	// printf abc | sha256sum
	const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	sums := makeSums([]file{{name: "manifests/a", contents: []byte("abc")}})
	testkit.WantEqual(t, "the sums", string(sums), digest+"  manifests/a\n")
	read, err := readSums(sums)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "what was read", read, map[string]string{"manifests/a": digest})
}

func TestOddSumsAreRefused(t *testing.T) {
	_, err := readSums([]byte("not a sum\n"))
	testkit.WantError(t, "a line without two spaces", err, `"not a sum" is not a sum`)
}

func TestBillOfMaterialsHasTheModuleAndGoAlone(t *testing.T) {
	text, err := makeSBOM(testTree, "v1.0.0", testPrograms)
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the module", b.Metadata.Component.PURL, "pkg:golang/podcount@v1.1.0")
	testkit.WantEqual(t, "the time", b.Metadata.Timestamp, "2023-11-14T22:13:20Z")
	testkit.WantEqual(t, "libraries", len(b.Components), 1)
	testkit.WantEqual(t, "the library", b.Components[0].PURL, "pkg:golang/std@"+runtime.Version()[2:])
	testkit.WantEqual(t, "the binaries", len(b.Metadata.Component.Components), len(testPrograms))
	testkit.WantEqual(t, "the sum of a binary",
		b.Metadata.Component.Components[0].Hashes[0].Content, sum([]byte("for linux")))
	testkit.WantEqual(t, "what the library needs", len(b.Dependencies[1].DependsOn), 0)
}

func TestSerialNumberIsTheSameForTheSameBinaries(t *testing.T) {
	number := serialNumber(testTree, "off", testPrograms)
	isUUID := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !isUUID.MatchString(number) {
		t.Errorf("%s is no UUID of version 8", number)
	}
	testkit.WantEqual(t, "the number of the same", serialNumber(testTree, "off", testPrograms), number)
	if serialNumber(testTree, "off", testPrograms[:1]) == number {
		t.Error("other binaries have the same number")
	}
}

func TestReleasesThatNobodyCouldBuildAgainAreRefused(t *testing.T) {
	complete := tree{dir: thisTree.dir, version: "v1.1.0", commit: testCommit}
	if err := checkRelease(complete); err != nil {
		t.Error(err)
	}
	unnamed := complete
	unnamed.version = "dev"
	testkit.WantError(t, "no version", checkRelease(unnamed), "make release VERSION=v1.1.0")
	unknown := complete
	unknown.unknown = errors.New("no git")
	testkit.WantError(t, "no commit", checkRelease(unknown), "the commit is unknown: no git")
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
	testkit.WantError(t, "another tag", checkRelease(tagged), "the tag v1.0.0 is another commit")
}
