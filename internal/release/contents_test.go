package main

import (
	"testing"

	"podcount/internal/testkit"
)

func TestReleasesWithoutAVersionOrAPartOfTheSourceAreRefused(t *testing.T) {
	complete := tree{dir: thisTree.dir, version: "v1.1.0", commit: testCommit}
	if err := checkRelease(complete); err != nil {
		t.Error(err)
	}
	unnamed := complete
	unnamed.version = "dev"
	testkit.WantError(t, "no version", checkRelease(unnamed), "make release VERSION=v1.1.0")
	partial := complete
	partial.dir = t.TempDir()
	testkit.WantError(t, "no documentation", checkRelease(partial), "the source of the program alone")
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
