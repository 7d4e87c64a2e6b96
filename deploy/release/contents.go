package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// isRelease matches the version of a release, as in https://semver.org. The names of its files must fit into a tar, so
// at most 32 characters may follow the hyphen.
var isRelease = regexp.MustCompile(
	`^v` + number + `\.` + number + `\.` + number + `(-[0-9A-Za-z][0-9A-Za-z.-]{0,31})?$`)

// number matches a part of a version. A number has no zero before it.
const number = `(0|[1-9][0-9]{0,5})`

// isFIPS matches the values of GOFIPS140 that name one module for all times.
var isFIPS = regexp.MustCompile(`^(off|v[0-9]+\.[0-9]+\.[0-9]+)$`)

// checkRelease returns an error if a release should not be made of this tree, which is as committed has returned it.
func checkRelease(t tree) error {
	if !isRelease.MatchString(t.version) || !isModuleVersion.MatchString(t.version) {
		return fmt.Errorf("%s is not the version of a release: give one, as in make release VERSION=v1.1.0", t.version)
	}
	if !isCommit.MatchString(t.commit) {
		return fmt.Errorf("the commit %q is odd: use another source", t.commit)
	}
	if !isGoVersion.MatchString(runtime.Version()) {
		return fmt.Errorf("this Go calls itself %q: make releases with Go from https://go.dev/dl/, "+
			"because others must be able to install the same one", runtime.Version())
	}
	if err := checkWhole(t); err != nil {
		return err
	}
	return checkChanges(t)
}

// newestChanges matches the first heading in CHANGELOG.md that is about a version.
var newestChanges = regexp.MustCompile(`(?m)^## (.*?)\r?$`)

// checkChanges returns an error unless CHANGELOG.md begins with the version, and the day of its release. It is the
// commit that must say so, because the source in the release is that of the commit. A version with a hyphen, such as
// v1.2.0-rc.1 or a site's own v1.1.0-site.1, needs no heading.
func checkChanges(t tree) error {
	if strings.Contains(t.version, "-") {
		return nil
	}
	changes, err := os.ReadFile(filepath.Join(t.dir, "docs", "CHANGELOG.md"))
	if err != nil {
		return err
	}
	heading := ""
	if found := newestChanges.FindSubmatch(changes); found != nil {
		heading = string(found[1])
	}
	day, isOurs := strings.CutPrefix(heading, t.version+", ")
	if _, err := time.Parse(time.DateOnly, day); !isOurs || err != nil {
		return fmt.Errorf(`docs/CHANGELOG.md begins with "## %s": make that "## %s, YYYY-MM-DD", `+
			"with the day of the release, and commit it; without that, make a prerelease, as in VERSION=%[2]s-rc.1",
			heading, t.version)
	}
	return nil
}

// checkWhole returns an error if the tree is only a part of the source.
func checkWhole(t tree) error {
	if _, err := os.Stat(filepath.Join(t.dir, "docs")); err != nil {
		return fmt.Errorf("this is the source of the program alone, as podcount -source writes it, "+
			"and a release needs the whole source: %w", err)
	}
	return nil
}

// makeContents makes all files of a release.
func makeContents(ctx context.Context, t tree, fips string, platforms []platform, stdout io.Writer) ([]file, error) {
	if t.isGit {
		scratch, err := os.MkdirTemp("", "podcount-source-")
		if err != nil {
			return nil, err
		}
		defer os.RemoveAll(scratch)
		t, err = t.export(scratch)
		if err != nil {
			return nil, err
		}
	}
	c, err := newCompiler(t, fips)
	if err != nil {
		return nil, err
	}
	defer c.close()
	programs, err := c.compileAll(ctx, platforms, stdout)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(stdout, "packing the image, the manifests and the source")
	return c.describe(ctx, programs, platforms)
}

// describe returns the programs, and everything that a release has besides them.
func (c *compiler) describe(ctx context.Context, programs []program, platforms []platform) ([]file, error) {
	t := c.tree
	prefix := "podcount-" + t.version
	image, err := packImage(t, programs)
	if err != nil {
		return nil, err
	}
	source, err := packWholeSource(t)
	if err != nil {
		return nil, err
	}
	manifests, err := makeManifests(c)
	if err != nil {
		return nil, err
	}
	licenses, err := makeLicenses(t)
	if err != nil {
		return nil, err
	}
	sbom, err := makeSBOM(t, c.fips, programs)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, p := range programs {
		files = append(files, file{name: p.platform.binaryName(t.version), contents: p.contents, isExecutable: true})
	}
	files = append(files, file{name: prefix + "-image.tar", contents: image.archive})
	files = append(files, file{name: prefix + sourceSuffix, contents: source})
	if slices.Contains(platforms, browser) {
		site, err := makeSite(ctx, c)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: prefix + "-browser.tar.gz", contents: site})
	}
	files = append(files, manifests...)
	files = append(files, licenses...)
	files = append(files, file{name: prefix + ".cdx.json", contents: sbom})

	// These two are about the files before them.
	provenance, err := makeProvenance(t, c.fips, platforms, files, image.digest)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: prefix + provenanceSuffix, contents: provenance})
	return append(files, sumsOf(files)), nil
}

// The names of two files that verify.go looks for end in these words.
const (
	sourceSuffix     = "-source.tar.gz"
	provenanceSuffix = ".provenance.json"
)

// makeSite returns an archive of the static files with which podcount runs in a browser: see lab/site.
func makeSite(ctx context.Context, c *compiler) ([]byte, error) {
	dir := filepath.Join(c.scratch, "site")
	command := goCommand(c.tree.dir, "run", "./lab/site", "-version", c.tree.version, dir)
	command.Stderr = os.Stderr
	if err := runUntil(ctx, command); err != nil {
		return nil, fmt.Errorf("the site for a browser: %w", err)
	}
	site := os.DirFS(dir)
	var files []file
	err := fs.WalkDir(site, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		contents, err := fs.ReadFile(site, name)
		files = append(files, file{name: name, contents: contents})
		return err
	})
	if err != nil {
		return nil, err
	}
	packed, err := packTar(inFolder("podcount-"+c.tree.version+"-browser", files), c.tree.time)
	if err != nil {
		return nil, err
	}
	return compress(packed)
}

// makeLicenses returns the licences of what is in the binaries: podcount, and Go's standard library.
func makeLicenses(t tree) ([]file, error) {
	ours, err := os.ReadFile(filepath.Join(t.dir, "LICENSE"))
	if err != nil {
		return nil, err
	}
	root, err := outputOf(goCommand(t.dir, "env", "GOROOT"))
	if err != nil {
		return nil, err
	}
	ofGo, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(root)), "LICENSE"))
	if err != nil {
		return nil, fmt.Errorf("the licence of Go, which must come with the binaries: %w", err)
	}
	return []file{{name: "LICENSE", contents: ours}, {name: "LICENSE-go", contents: ofGo}}, nil
}

// packRelease packs the files of a release.
func packRelease(t tree, files []file) ([]byte, error) {
	return packTar(inFolder("podcount-"+t.version, files), t.time)
}

// makeManifests returns the files of deploy/ that people apply or import.
func makeManifests(c *compiler) ([]file, error) {
	deploy := os.DirFS(filepath.Join(c.tree.dir, "deploy"))
	names, err := fs.Glob(deploy, "*.yaml")
	if err != nil {
		return nil, err
	}
	var files []file
	for _, name := range append(names, "dashboard.json") {
		contents, err := makeManifest(c, deploy, name)
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "manifests/" + name, contents: contents})
	}
	return files, nil
}

// makeManifest returns a file of deploy/ as the release has it. podcount.yaml must name the image of this release, so
// podcount prints it again.
func makeManifest(c *compiler, deploy fs.FS, name string) ([]byte, error) {
	if name == "podcount.yaml" {
		return outputOf(goCommand(c.tree.dir, "run", ".", "-manifest=podcount", "-image", imageHost+imageName(c.tree)))
	}
	return fs.ReadFile(deploy, name)
}

// outputOf runs a command, and returns what it writes to stdout. Its error has what the command writes to stderr.
func outputOf(command *exec.Cmd) ([]byte, error) {
	output, err := command.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(command.Args, " "), err)
	}
	return output, nil
}
