package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

const testCommit = "0123456789abcdef0123456789abcdef01234567"

// folderWith returns a folder with these files, given as name and contents in turn.
func folderWith(t *testing.T, namesAndContents ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i < len(namesAndContents); i += 2 {
		path := filepath.Join(dir, namesAndContents[i])
		if err := writeFile(path, []byte(namesAndContents[i+1])); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestTreeWithoutGitIsWhatItsStampSays(t *testing.T) {
	rows := []struct{ stamp, version, commit string }{
		{testCommit + " 1700000000 v1.1.0\n", "v1.1.0", testCommit},
		{testCommit + " 1700000000 \n", "0123456789ab", testCommit},                           // git archive without a tag
		{testCommit + " 1700000000 %(describe:tags,abbrev=12)\n", "0123456789ab", testCommit}, // an older git
	}
	for _, row := range rows {
		read, err := readTree(folderWith(t, stampName, row.stamp), "")
		if err != nil {
			t.Errorf("%q: %v", row.stamp, err)
		}
		testkit.WantEqual(t, "the version", read.version, row.version)
		testkit.WantEqual(t, "the commit", read.commit, row.commit)
		testkit.WantEqual(t, "the time", read.time.Unix(), 1700000000)
	}
}

func TestTreeThatNeitherGitNorAStampKnowsIsBuiltAsDev(t *testing.T) {
	for name, dir := range map[string]string{
		"no stamp":            t.TempDir(),
		"a placeholder":       folderWith(t, stampName, "$Format:%H %ct$\n"),
		"an empty stamp":      folderWith(t, stampName, ""),
		"a stamp of one word": folderWith(t, stampName, "one"),
		"a stamp of no time":  folderWith(t, stampName, testCommit+" soon v1.1.0"),
		"a broken repository": folderWith(t, ".git/HEAD", "", stampName, testCommit+" 1700000000 v1.1.0"),
	} {
		read, err := readTree(dir, "")
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, name+": the version", read.version, "dev")
		testkit.WantEqual(t, name+": the commit", read.commit, "unknown")
		if read.whyUnknown == nil {
			t.Errorf("%s: it is not said why the commit is unknown", name)
		}
	}
}

func TestGivenVersionReplacesThatOfTheStamp(t *testing.T) {
	dir := folderWith(t, stampName, testCommit+" 1700000000 v1.1.0")
	read, err := readTree(dir, "v1.2.0")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the version", read.version, "v1.2.0")
	testkit.WantEqual(t, "the commit", read.commit, testCommit)
}

func TestVersionsThatNoFileOrTagCanHaveAreRefused(t *testing.T) {
	for _, version := range []string{"v1/2", "v1 2", "../x", "-v1", "v1'", "v1+fips", strings.Repeat("v", 121)} {
		if _, err := readTree(t.TempDir(), version); err == nil {
			t.Errorf("the version %q is accepted", version)
		}
	}
	for _, version := range []string{"v1.1.0", "v1.1.0-3-g0123abc-dirty", "0123abc", "dev", strings.Repeat("v", 120)} {
		if _, err := readTree(t.TempDir(), version); err != nil {
			t.Errorf("the version %q: %v", version, err)
		}
	}
	tagged := folderWith(t, stampName, testCommit+" 1700000000 release/v1")
	_, err := readTree(tagged, "")
	testkit.WantError(t, "a tag with a slash", err, `"release/v1" cannot be a version: give one as in VERSION=v1.1.0`)
}

func TestModuleHasTheVersionOfTheTreeInTheFormOfGo(t *testing.T) {
	const ofCommit = "v0.0.0-20231114221320-0123456789ab"
	rows := []struct{ version, commit, want string }{
		{"v1.1.0", testCommit, "v1.1.0"},
		{"v0.0.1-rc.1", testCommit, "v0.0.1-rc.1"},
		{"v1.1.0-3-g0123456789ab-dirty", testCommit + "-dirty", "v1.1.0-3-g0123456789ab-dirty"},
		{"v2.0.0", testCommit, "v2.0.0+incompatible"},
		{"v10.0.0-x", testCommit, "v10.0.0-x+incompatible"},
		{"0123456789ab", testCommit, ofCommit},
		{"0123456789ab-dirty", testCommit + "-dirty", ofCommit + "-dirty"},
		{"1.1.0", testCommit, ofCommit},
		{"v1.1", testCommit, ofCommit},
		{"v1.1.0-01", testCommit, ofCommit}, // Go allows no zero before a number.
		{"v1.1.0-a..b", testCommit, ofCommit},
		{"v1.1.0-a_b", testCommit, ofCommit},
	}
	for _, row := range rows {
		named := tree{version: row.version, commit: row.commit, time: time.Unix(1700000000, 0)}
		testkit.WantEqual(t, row.version, named.moduleVersion(), row.want)
	}
	unknown := tree{version: "dev", commit: "unknown", whyUnknown: errors.New("no git")}
	testkit.WantEqual(t, "an unknown commit", unknown.moduleVersion(), "v0.0.0-dev")
	unknown.version = "v1.1.0"
	testkit.WantEqual(t, "an unknown commit of a version", unknown.moduleVersion(), "v1.1.0")
}

func TestVariablesOfGitDoNotLeadToAnotherRepository(t *testing.T) {
	repository := gitRepository(t, "main.go", "package main")
	other := gitRepository(t, "main.go", "package other")
	t.Setenv("GIT_DIR", filepath.Join(other.dir, ".git"))
	read, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_DIR", "")
	wanted, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the commit", read.commit, wanted.commit)
}

// gitRepository returns a folder in which the files were committed.
func gitRepository(t *testing.T, namesAndContents ...string) tree {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("this test needs git")
	}
	dir := folderWith(t, namesAndContents...)
	for _, line := range []string{"init -q", "add .", "commit -q -m first"} {
		runGit(t, dir, strings.Fields(line)...)
	}
	return tree{dir: dir, isGit: true}
}

func runGit(t *testing.T, dir string, args ...string) []byte {
	t.Helper()
	command := gitCommand(dir, args...)
	command.Env = append(command.Env,
		"GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com", "GIT_COMMITTER_DATE=1700000000 +0000",
	)
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, output)
	}
	return output
}

func TestGitSaysWhichVersionATreeIs(t *testing.T) {
	repository := gitRepository(t, "main.go", "package main")
	head, err := repository.git("rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	untagged, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the version without a tag", untagged.version, head[:12])
	testkit.WantEqual(t, "the commit", untagged.commit, head)
	testkit.WantEqual(t, "the time", untagged.time.UTC(), time.Unix(1700000000, 0).UTC())

	runGit(t, repository.dir, "tag", "v1.1.0")
	tagged, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the version with a tag", tagged.version, "v1.1.0")

	if err := writeFile(filepath.Join(repository.dir, "new.go"), nil); err != nil {
		t.Fatal(err)
	}
	changed, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the version with a new file", changed.version, "v1.1.0-dirty")
	testkit.WantEqual(t, "the commit with a new file", changed.commit, head+"-dirty")
}

// taggedRepository returns a repository with two commits, and the commits. Then it runs commands of git, which are
// joined by semicolons. In them, FIRST is the first commit.
func taggedRepository(t *testing.T, commands string) (repository tree, first, second string) {
	t.Helper()
	repository = gitRepository(t, "main.go", "package main")
	if err := writeFile(filepath.Join(repository.dir, "new.go"), nil); err != nil {
		t.Fatal(err)
	}
	runGit(t, repository.dir, "add", ".")
	runGit(t, repository.dir, "commit", "-q", "-m", "second")
	first, err := repository.git("rev-parse", "HEAD~")
	if err != nil {
		t.Fatal(err)
	}
	second, err = repository.git("rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.SplitSeq(commands, ";") {
		if line != "" {
			runGit(t, repository.dir, strings.Fields(strings.ReplaceAll(line, "FIRST", first))...)
		}
	}
	repository.version = "v9.9.9"
	repository.commit = second
	return repository, first, second
}

// otherTags are the commands that let git make v9.9.9 the name of the first commit.
var otherTags = map[string]string{
	"a light tag":      "tag v9.9.9 FIRST",
	"an annotated tag": "tag -a -m nine v9.9.9 FIRST",
	"a packed tag":     "tag v9.9.9 FIRST; pack-refs --all",
}

func TestVersionThatIsTheTagOfAnotherCommitIsRefused(t *testing.T) {
	for name, commands := range otherTags {
		t.Run(name, func(t *testing.T) {
			repository, first, second := taggedRepository(t, commands)
			t.Chdir(repository.dir)
			for _, command := range []string{"build", "version", "image", "all"} {
				err := run(t.Context(), []string{command, "-version", "v9.9.9"}, new(strings.Builder))
				testkit.WantError(t, "release "+command, err, "the tag v9.9.9 is the commit "+first+", but here is "+second)
			}
		})
	}
}

func TestVersionThatIsTheTagOfNothingElseIsAccepted(t *testing.T) {
	for name, commands := range map[string]string{
		"no tag":                   "",
		"a tag of this commit":     "tag v9.9.9",
		"an annotated tag of it":   "tag -a -m nine v9.9.9",
		"a branch":                 "branch v9.9.9 FIRST",
		"a tag of a similar name":  "tag v9.9.9/x FIRST",
		"a tag of another version": "tag v9.9.8 FIRST",
	} {
		repository, _, second := taggedRepository(t, commands)
		testkit.WantError(t, name, repository.checkTag(), "")
		repository.commit = second + "-dirty"
		testkit.WantError(t, name+", with changed files", repository.checkTag(), "")
	}
}

func TestVersionThatIsATagOfNoCommitIsRefused(t *testing.T) {
	repository, _, _ := taggedRepository(t, "tag v9.9.9 HEAD^{tree}")
	testkit.WantError(t, "the tree", repository.checkTag(), "the tag v9.9.9 names no commit")
}

func TestReleaseOfAnUnknownCommitOrOfChangedFilesIsRefused(t *testing.T) {
	_, err := tree{whyUnknown: errors.New("no git")}.committed()
	testkit.WantError(t, "an unknown commit", err, "the commit is unknown: no git")
	_, err = tree{isDirty: true}.committed()
	testkit.WantError(t, "a stamp of a changed source", err, "says that the source differs from its commit")

	repository := gitRepository(t, "main.go", "package main")
	if err := writeFile(filepath.Join(repository.dir, "main.go"), []byte("package changed")); err != nil {
		t.Fatal(err)
	}
	changed, err := readTree(repository.dir, "v1.1.0")
	if err != nil {
		t.Fatal(err)
	}
	_, err = changed.committed()
	testkit.WantError(t, "a changed file", err, "commit or revert these first:\n M main.go")
}

func TestFileThatGitDoesNotKnowIsNoObstacleToARelease(t *testing.T) {
	repository := gitRepository(t, "main.go", "package main")
	if err := writeFile(filepath.Join(repository.dir, "podcount-v1.1.0.tar"), nil); err != nil {
		t.Fatal(err)
	}
	read, err := readTree(repository.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	committed, err := read.committed()
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the commit", committed.commit+"-dirty", read.commit)
	testkit.WantEqual(t, "the version", committed.version+"-dirty", read.version)
}

func TestArchiveOfGitKnowsItsCommit(t *testing.T) {
	attributes, err := os.ReadFile(".gitattributes")
	if err != nil {
		t.Fatal(err)
	}
	stamp, err := os.ReadFile("stamp")
	if err != nil {
		t.Fatal(err)
	}
	isFilled := !strings.HasPrefix(string(stamp), "$Format")
	if isFilled {
		t.Skip("this source is from an archive")
	}
	repository := gitRepository(t, stampName, string(stamp), "deploy/release/.gitattributes", string(attributes))
	runGit(t, repository.dir, "tag", "v1.1.0")
	head, err := repository.git("rev-parse", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	runGit(t, repository.dir, "archive", "-o", filepath.Join(unpacked, "source.tar"), "HEAD")
	tar := exec.Command("tar", "xf", "source.tar")
	tar.Dir = unpacked
	if output, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, output)
	}
	read, err := readTree(unpacked, "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the version", read.version, "v1.1.0")
	testkit.WantEqual(t, "the commit", read.commit, head)
}

func TestPackedSourceKnowsItsCommit(t *testing.T) {
	original := tree{version: "v1.1.0", commit: testCommit, time: time.Unix(1700000000, 0)}
	read, err := readTree(folderWith(t, stampName, string(original.stamp())), "")
	if err != nil {
		t.Fatal(err)
	}
	read.dir = ""
	testkit.WantEqual(t, "the tree", read, original)
}

func TestSourceOfAnUnknownCommitStaysUnknown(t *testing.T) {
	original, err := readTree(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	read, err := readTree(folderWith(t, stampName, string(original.stamp())), "")
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the commit", read.commit, "unknown")
	if read.whyUnknown == nil {
		t.Error("it is not said why the commit is unknown")
	}
}
