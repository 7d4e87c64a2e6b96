package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// stampName is the file that says which commit a tree without git is.
//
// In git, the file has a placeholder, which `git archive` replaces: see export-subst in the manual of gitattributes.
// The sources that this command packs have the file in its final form, too. So an archive of the source knows its
// commit.
const stampName = "deploy/release/stamp"

// tree is the source that is built.
type tree struct {
	dir        string
	version    string    // such as v1.1.0, v1.1.0-3-g0123456789ab or dev
	commit     string    // 40 hexadecimal digits, or unknown; "-dirty" follows if the tree is dirty
	time       time.Time // when the commit was made
	isGit      bool
	isDirty    bool  // files differ from the commit; without git, nothing checks that
	whyUnknown error // why the commit is unknown; nil if it is known
}

// readTree finds out what the source in dir is. If version is not empty, it replaces the version that git or the stamp
// knows. If neither knows the commit, the source is the version dev, of the commit unknown.
func readTree(dir, version string) (tree, error) {
	t := tree{dir: dir}
	_, err := os.Stat(filepath.Join(dir, ".git")) // A folder, or a file in a worktree.
	t.isGit = err == nil
	if t.isGit {
		t.whyUnknown = t.askGit()
	} else {
		t.whyUnknown = t.readStamp()
	}
	if t.whyUnknown != nil {
		t.version = "dev"
		t.commit = "unknown"
		t.time = time.Unix(0, 0)
	}
	if version != "" {
		t.version = version
	}
	if !isVersion.MatchString(t.version) {
		return tree{}, fmt.Errorf("%q cannot be a version: give one as in VERSION=v1.1.0, of at most 120 letters, "+
			"digits, '.', '_' and '-', and with a letter or digit first", t.version)
	}
	return t, nil
}

// isVersion matches versions that can be part of a file's name, and of the tag of an image. A tag may have 128
// characters, of which dockerImages needs some.
var isVersion = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._-]{0,119}$`)

// isCommitOrDirty matches the name of a commit, with or without the mark of a dirty tree. Some repositories name
// commits by SHA-256 sums.
var isCommitOrDirty = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?(-dirty)?$`)

// isModuleVersion matches what Go takes for the version of a module.
var isModuleVersion = regexp.MustCompile(`^(v` + number + `)(\.` + number + `){2}(-` + word + `(\.` + word + `)*)?$`)

// word matches a part of a version after the hyphen. If it is a number, it has no zero before it.
const word = `(0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)`

// moduleVersion returns the version as Go names it. If the tree's version has not the form that Go demands, as without
// a tag, it is made of the commit, as in https://go.dev/ref/mod#pseudo-versions.
func (t tree) moduleVersion() string {
	matched := isModuleVersion.FindStringSubmatch(t.version)
	switch {
	case matched == nil && t.whyUnknown != nil:
		return "v0.0.0-dev"
	case matched == nil:
		commit, dirty, isDirty := strings.Cut(t.commit, "-")
		version := "v0.0.0-" + t.time.UTC().Format("20060102150405") + "-" + commit[:12]
		if isDirty {
			version += "-" + dirty
		}
		return version
	case matched[1] != "v0" && matched[1] != "v1":
		return t.version + "+incompatible" // From v2 on, Go wants the major version in the module's name, too.
	}
	return t.version
}

// askGit sets what git knows.
func (t *tree) askGit() error {
	head, err := t.git("-c", "log.showSignature=false", "log", "-1", "--format=%H %ct")
	if err != nil {
		return err
	}
	description, err := t.git("describe", "--tags", "--always", "--abbrev=12")
	if err != nil {
		return err
	}
	if err := t.setCommit(head + " " + description); err != nil {
		return err
	}
	changes, err := t.git("status", "--porcelain", "--untracked-files=normal")
	if err != nil {
		return err
	}
	if changes != "" {
		t.isDirty = true
		t.version += "-dirty"
		t.commit += "-dirty"
	}
	return nil
}

// committed returns the tree as a release is made of it: as it is in its commit. It returns an error if the commit is
// unknown, or if files of the commit were changed. Files that git does not know do not matter: see export.
func (t tree) committed() (tree, error) {
	if t.whyUnknown != nil {
		return tree{}, fmt.Errorf("the commit is unknown: %w", t.whyUnknown)
	}
	if !t.isDirty {
		return t, nil
	}
	if !t.isGit {
		return tree{}, fmt.Errorf("%s says that the source differs from its commit: use another source", stampName)
	}
	changes, err := t.git("status", "--porcelain", "--untracked-files=no")
	if err != nil {
		return tree{}, err
	}
	if changes != "" {
		return tree{}, fmt.Errorf("the files differ from the commit, so commit or revert these first:\n%s", changes)
	}
	t.isDirty = false
	t.commit = strings.TrimSuffix(t.commit, "-dirty")
	t.version = strings.TrimSuffix(t.version, "-dirty")
	return t, nil
}

// checkTag returns an error if git has a tag of this version for another commit.
func (t tree) checkTag() error {
	tagged, err := t.taggedCommit()
	if err != nil {
		return err
	}
	if commit := strings.TrimSuffix(t.commit, "-dirty"); tagged != "" && tagged != commit {
		return fmt.Errorf("the tag %s is the commit %s, but here is %s: check the tag out, or give another VERSION",
			t.version, tagged, commit)
	}
	return nil
}

// taggedCommit returns the commit that git's tag of this version names. It returns "" if there is no such tag, or no
// git.
func (t tree) taggedCommit() (string, error) {
	if !t.isGit {
		return "", nil
	}
	tag := "refs/tags/" + t.version // A branch can have the same name.
	_, err := t.git("rev-parse", "--verify", "--quiet", tag)
	if exit := new(exec.ExitError); errors.As(err, &exit) && exit.ExitCode() == 1 {
		return "", nil // There is no such tag.
	}
	if err != nil {
		return "", err
	}
	commit, err := t.git("--no-replace-objects", "rev-parse", "--verify", "--quiet", tag+"^{commit}")
	if err != nil {
		return "", fmt.Errorf("the tag %s names no commit: %w", t.version, err)
	}
	return commit, nil
}

// git returns what git prints, without the last newline.
func (t *tree) git(args ...string) (string, error) {
	output, err := outputOf(gitCommand(t.dir, args...))
	return strings.TrimSuffix(string(output), "\n"), err
}

// gitCommand returns a git command about the repository in dir. Variables such as GIT_DIR, which git itself sets for
// its hooks, would lead it to another repository. Those of GIT_CONFIG stay, because they may say that the folder is
// safe.
func gitCommand(dir string, args ...string) *exec.Cmd {
	command := exec.Command("git", args...)
	command.Dir = dir
	leadsElsewhere := func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_") && !strings.HasPrefix(variable, "GIT_CONFIG")
	}
	command.Env = slices.DeleteFunc(os.Environ(), leadsElsewhere)
	return command
}

// readStamp sets what the stamp says.
func (t *tree) readStamp() error {
	stamp, err := os.ReadFile(filepath.Join(t.dir, stampName))
	if err != nil {
		return fmt.Errorf("there is no git here: %w", err)
	}
	text := strings.TrimSpace(string(stamp))
	if strings.HasPrefix(text, "$Format") {
		return fmt.Errorf("there is no git here, and %s is not filled in: unpack an archive of git archive, "+
			"or the source in a release", stampName)
	}
	if err := t.setCommit(text); err != nil {
		return fmt.Errorf("%s: %w", stampName, err)
	}
	t.isDirty = strings.HasSuffix(t.commit, "-dirty")
	return nil
}

// setCommit sets commit, time and version from a line "COMMIT SECONDS VERSION". The seconds count from 1970. Without a
// version, which `git archive` leaves out if there is no tag, it is the beginning of the commit.
func (t *tree) setCommit(line string) error {
	words := strings.Fields(line)
	if len(words) == 3 && strings.HasPrefix(words[2], "%(") {
		words = words[:2] // Git before 2.35 does not know this placeholder, and leaves it as it is.
	}
	if len(words) == 2 {
		words = append(words, words[0][:min(12, len(words[0]))])
	}
	if len(words) != 3 {
		return fmt.Errorf("%q is not COMMIT SECONDS VERSION", line)
	}
	if !isCommitOrDirty.MatchString(words[0]) {
		return fmt.Errorf("%q is not COMMIT SECONDS VERSION: the commit is odd", line)
	}
	seconds, err := strconv.ParseInt(words[1], 10, 64)
	if err != nil {
		return fmt.Errorf("%q is not COMMIT SECONDS VERSION: %w", line, err)
	}
	t.commit = words[0]
	t.time = time.Unix(seconds, 0)
	t.version = words[2]
	return nil
}

// stamp returns the contents of the file stamp in the sources that are packed.
func (t *tree) stamp() []byte {
	if t.whyUnknown != nil {
		return []byte("$Format: unknown$\n")
	}
	return fmt.Appendf(nil, "%s %d %s\n", t.commit, t.time.Unix(), t.version)
}
