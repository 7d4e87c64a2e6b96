package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

// isRelease matches the version of a release.
var isRelease = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$`)

// buildRelease writes bin/podcount-VERSION.tar.
func buildRelease(s settings, stdout io.Writer) error {
	t, err := readTree(".", s.version)
	if err != nil {
		return err
	}
	if err := checkRelease(t); err != nil {
		return err
	}
	platforms, err := parsePlatforms(s.platforms)
	if err != nil {
		return err
	}
	files, err := makeContents(t, s.fips, platforms, stdout)
	if err != nil {
		return err
	}
	if s.key != "" {
		signed, err := signContents(files, s.key)
		if err != nil {
			return err
		}
		files = append(files, signed)
	}
	folder := "podcount-" + t.version
	packed, err := packTar(inFolder(folder, files), t.time)
	if err != nil {
		return err
	}
	output := cmp.Or(s.output, filepath.Join("bin", folder+".tar"))
	if err := writeFile(output, packed); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: commit %s, %s, %d files, %.1f MB, SHA-256 %s\n",
		output, t.commit, runtime.Version(), len(files), float64(len(packed))/1e6, sum(packed))
	if s.key == "" {
		fmt.Fprintln(stdout, "it is not signed: KEY=FILE signs it with a private key of ssh-keygen")
	}
	return nil
}

// checkRelease returns an error if nobody could build the same release from the tree again.
func checkRelease(t tree) error {
	if !isRelease.MatchString(t.version) {
		return fmt.Errorf("%s is not the version of a release: give one, as in make release VERSION=v1.1.0", t.version)
	}
	if strings.HasSuffix(t.commit, "-dirty") {
		changes, err := t.git("status", "--short")
		return errors.Join(err, fmt.Errorf("the files differ from the commit, so commit or remove these first:\n%s", changes))
	}
	if t.unknown != nil {
		return fmt.Errorf("the commit is unknown: %w", t.unknown)
	}
	if _, err := os.Stat(filepath.Join(t.dir, "docs")); err != nil {
		return fmt.Errorf("this is the source of the program alone, as podcount -source writes it, "+
			"and a release needs the whole source: %w", err)
	}
	return checkTag(t)
}

// checkTag returns an error if git has a tag of this version for another commit.
func checkTag(t tree) error {
	if !t.isGit {
		return nil
	}
	tagged, err := t.git("for-each-ref", "--format=%(objectname) %(*objectname)", "refs/tags/"+t.version)
	if err != nil {
		return err
	}
	if tagged != "" && !strings.Contains(tagged, t.commit) {
		return fmt.Errorf("the tag %s is another commit, %s, than the one here, %s", t.version, tagged, t.commit)
	}
	return nil
}

// makeContents makes all files of a release but the signature.
func makeContents(t tree, fips string, platforms []platform, stdout io.Writer) ([]file, error) {
	c, err := newCompiler(t, fips)
	if err != nil {
		return nil, err
	}
	defer c.close()
	programs, err := c.compileAll(platforms, stdout)
	if err != nil {
		return nil, err
	}
	var files []file
	for _, p := range programs {
		files = append(files, file{name: p.platform.binaryName(t.version), contents: p.contents, isExecutable: true})
	}

	fmt.Fprintln(stdout, "packing the image, the manifests and the source")
	prefix := "podcount-" + t.version
	image, err := imageOf(t, programs)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: prefix + "-image.tar", contents: image})
	source, err := packWholeSource(t)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: prefix + "-source.tar.gz", contents: source})
	manifests, err := makeManifests(c)
	if err != nil {
		return nil, err
	}
	files = append(files, manifests...)

	sbom, err := makeSBOM(t, c.fips, programs)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: prefix + ".cdx.json", contents: sbom})
	provenance, err := makeProvenance(t, c.fips, platforms, files)
	if err != nil {
		return nil, err
	}
	files = append(files, file{name: prefix + provenanceSuffix, contents: provenance})
	return append(files, file{name: sumsName, contents: makeSums(files)}), nil
}

// provenanceSuffix is the end of the name of the provenance.
const provenanceSuffix = ".provenance.json"

// signContents returns the signature of SHA256SUMS, which is the last of the files.
func signContents(files []file, key string) (file, error) {
	scratch, err := os.MkdirTemp("", "podcount-sign-")
	if err != nil {
		return file{}, err
	}
	defer os.RemoveAll(scratch)
	signature, err := sign(files[len(files)-1].contents, key, scratch)
	return file{name: signatureName, contents: signature}, err
}

// imageName returns the name and the tag of the image.
func imageName(t tree) string { return "podcount:" + t.version }

// imageOf returns the archive of an image with the programs for Linux.
func imageOf(t tree, programs []program) ([]byte, error) {
	spec := imageSpec{Name: "podcount", Version: t.version, Commit: t.commit, Created: t.time}
	for _, p := range programs {
		if p.platform.os == "linux" {
			spec.Programs = append(spec.Programs, imageProgram{
				Arch:     p.platform.arch,
				Variant:  variants[p.platform.arch],
				Contents: p.contents,
			})
		}
	}
	return packImage(spec)
}

// variants are the processors of an architecture for which buildSettings has the compiler build. Images name them in
// the way of https://github.com/opencontainers/image-spec/blob/main/image-index.md
var variants = map[string]string{"arm": "v7", "arm64": "v8"}

// makeManifests returns the files of deploy/ that people apply or import. podcount.yaml names the image of this release,
// so podcount prints that file again.
func makeManifests(c *compiler) ([]file, error) {
	paths, err := filepath.Glob(filepath.Join(c.tree.dir, "deploy", "*.yaml"))
	if err != nil {
		return nil, err
	}
	paths = append(paths, filepath.Join(c.tree.dir, "deploy", "dashboard.json"))
	var files []file
	for _, path := range paths {
		name := filepath.Base(path)
		contents, err := os.ReadFile(path)
		if name == "podcount.yaml" {
			contents, err = printManifest(c)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, file{name: "manifests/" + name, contents: contents})
	}
	return files, nil
}

// printManifest returns the manifest with the image of this release.
func printManifest(c *compiler) ([]byte, error) {
	podcount := filepath.Join(c.scratch, "podcount")
	if runtime.GOOS == "windows" {
		podcount += ".exe"
	}
	if err := c.compile(platform{runtime.GOOS, runtime.GOARCH}, podcount); err != nil {
		return nil, err
	}
	manifest, err := exec.Command(podcount, "-manifest=podcount", "-image", imageHost+imageName(c.tree)).Output()
	if err != nil {
		return nil, fmt.Errorf("podcount -manifest: %w", err)
	}
	return manifest, nil
}
