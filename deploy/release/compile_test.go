package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
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

// smallProgram is a tree with the files that compiler needs, whose program prints a word.
func smallProgram(t *testing.T, version string) tree {
	t.Helper()
	return tree{version: version, commit: testCommit, time: time.Unix(1700000000, 0), dir: folderWith(t,
		"LICENSE", "", "Makefile", "", "README.md", "", "deploy/Dockerfile", "", stampName, "",
		"go.mod", "module podcount\n\ngo 1.25\n",
		"main.go", "package main\n\nimport \"podcount/internal/run/process\"\n\n"+
			"func main() { println(len(process.Source)) }\n",
		"internal/run/process/build.go",
		"package process\n\nimport _ \"embed\"\n\n//go:embed source.tar.gz\nvar Source string\n",
		"internal/run/process/source.tar.gz", "",
		"deploy/release/main.go", "package main\n\nfunc main() {}\n",
	)}
}

func TestBinaryHasTheVersionAndTheSourceOfItsTree(t *testing.T) {
	for version, want := range map[string]string{
		"v1.1.0":       "v1.1.0",
		"0123456789ab": "v0.0.0-20231114221320-0123456789ab",
	} {
		var binaries [2][]byte // from two folders
		for i := range binaries {
			c, err := newCompiler(smallProgram(t, version), "")
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			output := filepath.Join(t.TempDir(), "podcount")
			if err := c.compile(t.Context(), platform{runtime.GOOS, runtime.GOARCH}, output); err != nil {
				t.Fatal(err)
			}
			binaries[i], err = os.ReadFile(output)
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(binaries[0], binaries[1]) {
			t.Errorf("version %s: another folder gives other bytes", version)
		}
		info, err := buildinfo.Read(bytes.NewReader(binaries[0]))
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "the module", info.Main.Path, "podcount")
		testkit.WantEqual(t, "its version", info.Main.Version, want)
	}
}

func TestBinaryWithoutItsSourceOrItsVersionIsRefused(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := compiler{
		tree:   thisTree,
		source: []byte("a source " + strings.Repeat("that no binary has ", 3) + t.Name() + t.TempDir()),
	}
	testkit.WantError(t, "the binary of this test", c.check(binary), "it does not have its source")
	c.source = nil
	testkit.WantError(t, "the binary of this test", c.check(binary), "its module has the version ")
	testkit.WantError(t, "no binary", c.check("compile_test.go"), "unrecognized file format")
}
