package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"podcount/internal/testkit"
)

func TestEveryPlatformCanBeNamed(t *testing.T) {
	for _, p := range allPlatforms {
		list := "linux/amd64," + p.String()
		if p.String() == "linux/amd64" {
			list = "linux/amd64"
		}
		chosen, err := parsePlatforms(list)
		if err != nil || !slices.Contains(chosen, p) {
			t.Errorf("%s: %v, %v", list, chosen, err)
		}
	}
	all, err := parsePlatforms("")
	if err != nil || !slices.Equal(all, allPlatforms) {
		t.Errorf("no list: %v, %v", all, err)
	}
}

func TestOddPlatformsAreRefused(t *testing.T) {
	for list, want := range map[string]string{
		"linux/amd64,plan9/amd64": `podcount is not released for "plan9/amd64"; use some of linux/amd64,linux/arm64,`,
		"linux/amd64,":            `podcount is not released for ""`,
		"linux/arm,linux/arm":     "it names linux/arm twice",
		"darwin/arm64":            "add one for Linux",
	} {
		_, err := parsePlatforms(list)
		testkit.WantError(t, list, err, "PLATFORMS="+list+": ")
		testkit.WantError(t, list, err, want)
	}
}

func TestBinariesOfWindowsHaveItsEnding(t *testing.T) {
	testkit.WantEqual(t, "Linux", platform{"linux", "arm"}.binaryName("v1"), "podcount-v1-linux-arm")
	testkit.WantEqual(t, "Windows", platform{"windows", "arm64"}.binaryName("v1"), "podcount-v1-windows-arm64.exe")
}

func TestBinaryWithoutItsSourceIsRefused(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := compiler{source: []byte("a source " + strings.Repeat("that no binary has ", 3) + t.Name() + t.TempDir())}
	testkit.WantError(t, "the binary of this test", c.check(binary), "it does not have its source")
	c.source = nil
	if err := c.check(binary); err != nil {
		t.Error(err)
	}
	testkit.WantError(t, "no binary", c.check("compile_test.go"), "unrecognized file format")
}
