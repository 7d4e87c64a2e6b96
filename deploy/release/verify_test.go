package main

import (
	"encoding/json"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
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
	provenance, err := makeProvenance(testTree, "off", platforms, files, "sha256:00")
	if err != nil {
		t.Fatal(err)
	}
	files = append(files, file{name: "podcount-v1.1.0" + provenanceSuffix, contents: provenance})
	return append(files, sumsOf(files))
}

// filesOf returns what is read of a release with these files.
func filesOf(t *testing.T, files []file) map[string][]byte {
	t.Helper()
	read, err := readTar(archiveOf(t, files))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

func TestReleaseSaysHowToBuildItAgain(t *testing.T) {
	found, err := readRecipe(filesOf(t, testContents(t)))
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the recipe", found, recipe{
		version:   "v1.1.0",
		commit:    testCommit,
		goVersion: runtime.Version(),
		fips:      "off",
		platforms: []platform{{"linux", "amd64"}, {"windows", "arm64"}},
	})
}

func TestOddRecipesAreRefused(t *testing.T) {
	for name, change := range map[string]func(s *statement){
		"version": func(s *statement) { s.Predicate.BuildDefinition.ExternalParameters.Version = "v1.1.0/../x" },
		"commit": func(s *statement) {
			s.Predicate.BuildDefinition.ResolvedDependencies[0].Digest.GitCommit = testCommit + "-dirty"
		},
		"version of Go":      func(s *statement) { s.Predicate.BuildDefinition.InternalParameters.Go = "go1.26;rm" },
		"value of GOFIPS140": func(s *statement) { s.Predicate.BuildDefinition.ExternalParameters.FIPS = "certified" },
		"no platform":        func(s *statement) { s.Predicate.BuildDefinition.ExternalParameters.Platforms = nil },
		"PLATFORMS=":         func(s *statement) { s.Predicate.BuildDefinition.ExternalParameters.Platforms[0] = "../x" },
	} {
		var s statement
		files := testContents(t)
		provenance := &files[len(testPrograms)]
		if err := json.Unmarshal(provenance.contents, &s); err != nil {
			t.Fatal(err)
		}
		change(&s)
		text, err := marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		provenance.contents = text
		_, err = readRecipe(filesOf(t, files))
		testkit.WantError(t, name, err, name)
	}
}

// archiveOf returns a release with these files.
func archiveOf(t *testing.T, files []file) []byte {
	t.Helper()
	archive, err := packRelease(testTree, files)
	if err != nil {
		t.Fatal(err)
	}
	return archive
}

func TestReleaseWithTheSameBytesIsVerified(t *testing.T) {
	var out strings.Builder
	err := compareReleases(&out, archiveOf(t, testContents(t)), archiveOf(t, testContents(t)))
	if err != nil || out.Len() > 0 {
		t.Errorf("%v, %s", err, out.String())
	}
}

func TestFilesThatDifferAreNamed(t *testing.T) {
	built := testContents(t)
	built[0].contents = []byte("other bytes")
	built[1].name = "another file"
	var out strings.Builder
	err := compareReleases(&out, archiveOf(t, testContents(t)), archiveOf(t, built))
	testkit.WantError(t, "the release", err, "3 of the files differ")
	testkit.WantEqual(t, "the list", out.String(), ""+
		"only here: \"podcount-v1.1.0/another file\"\n"+
		"DIFFERS: \"podcount-v1.1.0/podcount-v1.1.0-linux-amd64\"\n"+
		"only in the release: \"podcount-v1.1.0/podcount-v1.1.0-windows-arm64.exe\"\n")
}

func TestPermissionsThatDifferAreNoticed(t *testing.T) {
	built := testContents(t)
	built[0].isExecutable = false
	err := compareReleases(new(strings.Builder), archiveOf(t, testContents(t)), archiveOf(t, built))
	testkit.WantError(t, "the release", err, "the archive has other bytes around them")
}

func TestFilesOfTheSourceThatDifferAreNamed(t *testing.T) {
	sourceWith := func(name string) []byte {
		archive, err := packTar([]file{{name: "same"}, {name: name}}, testTree.time)
		if err != nil {
			t.Fatal(err)
		}
		source, err := compress(archive)
		if err != nil {
			t.Fatal(err)
		}
		return source
	}
	var out strings.Builder
	listSources(&out, sourceWith("given"), sourceWith("built"))
	testkit.WantEqual(t, "the list", out.String(), ""+
		"          only here: \"built\"\n"+
		"          only in the release: \"given\"\n")
}

func TestFileThatIsNoReleaseIsRefused(t *testing.T) {
	noRelease, err := packRelease(testTree, []file{{name: "a"}})
	if err != nil {
		t.Fatal(err)
	}
	dir := folderWith(t, "text", strings.Repeat("text ", 500), "tar", string(noRelease), "empty", "",
		"cut", string(noRelease[:600]))
	for _, name := range []string{"text", "tar", "empty", "cut", "missing"} {
		path := filepath.Join(dir, name)
		err := verifyRelease(t.Context(), path, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: the error is %v, and does not name the file", name, err)
		}
	}
}

func TestReleaseIsNotVerifiedIfItsTagNamesAnotherCommit(t *testing.T) {
	for name, commands := range otherTags {
		t.Run(name, func(t *testing.T) {
			repository, first, second := taggedRepository(t, commands)
			_, err := recipe{version: "v9.9.9", commit: second}.checkTag(repository)
			testkit.WantError(t, "another tag", err, "it says that v9.9.9 is the commit "+second+
				", but here the tag of that name is the commit "+first+": do not use the release unless you know why")
		})
	}
	repository, first, _ := taggedRepository(t, "tag v1.1.0 FIRST")
	file := filepath.Join(t.TempDir(), "release.tar")
	if err := writeFile(file, archiveOf(t, testContents(t))); err != nil {
		t.Fatal(err)
	}
	t.Chdir(repository.dir)
	err := verifyRelease(t.Context(), file, new(strings.Builder))
	testkit.WantError(t, "verify", err, file+": it says that v1.1.0 is the commit "+testCommit)
	testkit.WantError(t, "verify", err, "the tag of that name is the commit "+first)
}

func TestVerifySaysWhetherATagConfirmsTheVersion(t *testing.T) {
	for commands, want := range map[string]string{
		"":                      "there is no tag v9.9.9 here, so nothing checks that this version is the commit ",
		"branch v9.9.9 FIRST":   "there is no tag v9.9.9 here, so nothing checks that this version is the commit ",
		"tag v9.9.9":            "the tag v9.9.9 is its commit, ",
		"tag -a -m nine v9.9.9": "the tag v9.9.9 is its commit, ",
	} {
		repository, _, second := taggedRepository(t, commands)
		found, err := recipe{version: "v9.9.9", commit: second}.checkTag(repository)
		testkit.WantError(t, commands, err, "")
		testkit.WantEqual(t, commands, found, want+second)
	}
	found, err := recipe{version: "v1.1.0", commit: testCommit}.checkTag(testTree)
	testkit.WantError(t, "no git", err, "")
	testkit.WantText(t, found, "there is no tag v1.1.0 here")
}

func TestVerifyRefusesAnotherCommitAndAnotherGo(t *testing.T) {
	r := recipe{commit: testCommit, goVersion: runtime.Version()}
	whole := testTree
	whole.dir = thisTree.dir
	if err := r.check(whole); err != nil {
		t.Error(err)
	}
	testkit.WantError(t, "a part of the source", r.check(tree{commit: testCommit, dir: t.TempDir()}), "the whole source")
	r.goVersion = "go1.99"
	testkit.WantError(t, "another Go", r.check(testTree), "GOTOOLCHAIN=go1.99 make verify")
	r.commit = "another"
	testkit.WantError(t, "another commit", r.check(testTree), "it was built from the commit another")
}
