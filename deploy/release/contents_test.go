package main

import (
	"testing"

	"podcount/lab/testkit"
)

func TestReleasesWithoutAVersionOrAPartOfTheSourceAreRefused(t *testing.T) {
	complete := tree{dir: thisTree.dir, version: "v1.1.0-rc.1", commit: testCommit}
	if err := checkRelease(complete); err != nil {
		t.Error(err)
	}
	unnamed := complete
	unnamed.version = "dev"
	testkit.WantError(t, "no version", checkRelease(unnamed), "make release VERSION=v1.1.0")
	unordered := complete
	unordered.version = "v1.1.0-01"
	testkit.WantError(t, "no version of Go", checkRelease(unordered), "v1.1.0-01 is not the version of a release")
	partial := complete
	partial.dir = t.TempDir()
	testkit.WantError(t, "no documentation", checkRelease(partial), "the source of the program alone")
}

func TestReleaseWithoutItsChangesIsRefused(t *testing.T) {
	released := func(version, changes string) error {
		return checkRelease(tree{dir: folderWith(t, "docs/CHANGELOG.md", changes), version: version, commit: testCommit})
	}
	const older = "\n\n- new\n\n## v1.0.0, 2026-01-31\n"
	for _, heading := range []string{"## v1.1.0, 2026-11-26", "## v1.1.0, 2026-11-26\r"} {
		testkit.WantError(t, heading, released("v1.1.0", "# Changes\n\n"+heading+older), "")
	}
	for _, heading := range []string{
		"## Next", "## v1.1.0", "## v1.1.0, soon", "## v1.1.0, 2026-02-30", "## v1.1.0-rc.1, 2026-11-26",
		"## v1.1, 2026-11-26",
		"## v1.0.0, 2026-11-26", "# v1.1.0, 2026-11-26", "### v1.1.0, 2026-11-26", "## Next\n\n## v1.1.0, 2026-11-26",
	} {
		err := released("v1.1.0", "# Changes\n\n"+heading+older)
		testkit.WantError(t, heading, err, `make that "## v1.1.0, YYYY-MM-DD"`)
		testkit.WantError(t, heading, err, "VERSION=v1.1.0-rc.1")
		testkit.WantError(t, heading+", for a prerelease", released("v1.1.0-site.1", "# Changes\n\n"+heading+older), "")
	}
	testkit.WantError(t, "no changes", released("v1.1.0", ""), `docs/CHANGELOG.md begins with "## "`)
	missing := tree{dir: folderWith(t, "docs/run/flags.md", ""), version: "v1.1.0", commit: testCommit}
	testkit.WantError(t, "no file", checkRelease(missing), "CHANGELOG.md")
}

func TestVersionOfAReleaseIsASemanticOne(t *testing.T) {
	for _, version := range []string{"v1.1.0", "v0.0.1", "v1.1.1-site.1", "v1.1.1-go1.26.9", "v10.20.30-rc1"} {
		if !isRelease.MatchString(version) {
			t.Errorf("%s is refused", version)
		}
	}
	for _, version := range []string{"1.1.0", "v1.1", "v01.1.0", "v1.1.0-", "v1.1.0+fips", "v1.1.0-.", "v1.1.0/x", "dev"} {
		if isRelease.MatchString(version) {
			t.Errorf("%s is accepted", version)
		}
	}
}
