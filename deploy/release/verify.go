package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// verifyRelease builds a release again from this tree, and returns an error unless that gives the same bytes. name is
// the file of the release.
func verifyRelease(ctx context.Context, name string, stdout io.Writer) error {
	if name == "" {
		return fmt.Errorf("name the release, as in make verify RELEASE=podcount-v1.1.0.tar: %w", errUsage)
	}
	given, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("RELEASE: %w", err)
	}
	files, err := readTar(given)
	if err != nil {
		return fmt.Errorf("%s is cut off, or is no release: %w", name, err)
	}
	r, err := readRecipe(files)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t, err := readTree(".", r.version)
	if err != nil {
		return err
	}
	tagged, err := r.checkTag(t)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	t, err = t.committed()
	if err != nil {
		return fmt.Errorf("%s was built from the commit %s, but here %w", name, r.commit, err)
	}
	if err := r.check(t); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	built, err := makeContents(ctx, t, r.fips, r.platforms, stdout)
	if err != nil {
		return err
	}
	packed, err := packRelease(t, built)
	if err != nil {
		return err
	}
	if err := compareReleases(stdout, given, packed); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, err = fmt.Fprintf(stdout, "%s has the same bytes as the one built here: %d files, SHA-256 %s\n%s\n",
		name, len(built), sum(given), tagged)
	return err
}

// recipe is what one must know to build a release again.
type recipe struct {
	version   string
	commit    string
	goVersion string
	fips      string
	platforms []platform
}

// These match what a provenance may name. It can come from anybody, and what it names is printed and built.
var (
	isCommit    = regexp.MustCompile(`^[0-9a-f]{40}([0-9a-f]{24})?$`)
	isGoVersion = regexp.MustCompile(`^go1\.[0-9]+(\.[0-9]+|rc[0-9]+|beta[0-9]+)?$`)
)

// readRecipe reads the recipe from the provenance in a release.
func readRecipe(files map[string][]byte) (recipe, error) {
	names := slices.Sorted(maps.Keys(files))
	i := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, provenanceSuffix) })
	if i < 0 {
		return recipe{}, errors.New("it has no provenance, so it is no release: name the file podcount-VERSION.tar")
	}
	var s statement
	if err := json.Unmarshal(files[names[i]], &s); err != nil {
		return recipe{}, fmt.Errorf("the provenance is not valid: %w", err)
	}
	definition := s.Predicate.BuildDefinition
	r := recipe{
		version:   definition.ExternalParameters.Version,
		goVersion: definition.InternalParameters.Go,
		fips:      definition.ExternalParameters.FIPS,
	}
	if len(definition.ResolvedDependencies) > 0 {
		r.commit = definition.ResolvedDependencies[0].Digest.GitCommit
	}
	for _, named := range []struct {
		what, value string
		pattern     *regexp.Regexp
	}{
		{"version", r.version, isRelease},
		{"commit", r.commit, isCommit},
		{"version of Go", r.goVersion, isGoVersion},
		{"value of GOFIPS140", r.fips, isFIPS},
	} {
		if !named.pattern.MatchString(named.value) {
			return recipe{}, fmt.Errorf("the provenance has an odd %s: %q", named.what, named.value)
		}
	}
	platforms := definition.ExternalParameters.Platforms
	if len(platforms) == 0 {
		return recipe{}, errors.New("the provenance names no platform")
	}
	var err error
	r.platforms, err = parsePlatforms(strings.Join(platforms, ","))
	return r, err
}

// check returns an error if this tree, which is as committed has returned it, or this version of Go must give other
// bytes.
func (r recipe) check(t tree) error {
	if t.commit != r.commit {
		return fmt.Errorf("it was built from the commit %s, and here is %s: check that commit out", r.commit, t.commit)
	}
	if runtime.Version() != r.goVersion {
		return fmt.Errorf("it was built with %s, and this is %s: install that version, or try "+
			"GOTOOLCHAIN=%[1]s make verify RELEASE=FILE, which downloads it", r.goVersion, runtime.Version())
	}
	return checkWhole(t)
}

// checkTag returns an error if the tag of the version names another commit than the release does. found says what the
// tag names.
func (r recipe) checkTag(t tree) (found string, err error) {
	tagged, err := t.taggedCommit()
	if err != nil {
		return "", err
	}
	if tagged == "" {
		return fmt.Sprintf("there is no tag %s here, so nothing checks that this version is the commit %s",
			r.version, r.commit), nil
	}
	if tagged != r.commit {
		return "", fmt.Errorf("it says that %s is the commit %s, but here the tag of that name is the commit %s: "+
			"do not use the release unless you know why", r.version, r.commit, tagged)
	}
	return fmt.Sprintf("the tag %s is its commit, %s", r.version, r.commit), nil
}

// compareReleases returns an error unless a release has the bytes of the one that was built here. It also prints which
// files differ.
func compareReleases(stdout io.Writer, given, built []byte) error {
	if bytes.Equal(given, built) {
		return nil
	}
	givenFiles, err := readTar(given)
	if err != nil {
		return err
	}
	builtFiles, err := readTar(built)
	if err != nil {
		return err
	}
	differences := listDifferences(stdout, "", givenFiles, builtFiles)
	if differences == 0 {
		return errors.New("the files are those that were built here, but the archive has other bytes around them, " +
			"such as other folders, owners or permissions: do not unpack it")
	}
	return fmt.Errorf("%d of the files differ from those built here", differences)
}

// listDifferences prints each file that differs, after an indent, and returns how many there are.
func listDifferences(stdout io.Writer, indent string, given, built map[string][]byte) int {
	names := slices.Collect(maps.Keys(given))
	names = slices.AppendSeq(names, maps.Keys(built))
	slices.Sort(names)
	differences := 0
	for _, name := range slices.Compact(names) {
		difference := compareFile(given[name], built[name])
		if difference == "" {
			continue
		}
		differences++
		fmt.Fprintf(stdout, "%s%s %q\n", indent, difference, name) // The name can be of any form.
		if strings.HasSuffix(name, sourceSuffix) {
			listSources(stdout, given[name], built[name])
		}
	}
	return differences
}

// compareFile returns how a file differs from the one built here, or "". A file that is missing is nil.
func compareFile(given, built []byte) string {
	switch {
	case built == nil:
		return "only in the release:"
	case given == nil:
		return "only here:"
	case !bytes.Equal(given, built):
		return "DIFFERS:"
	}
	return ""
}

// listSources prints which files differ between two sources. It prints nothing if one of them cannot be read.
func listSources(stdout io.Writer, given, built []byte) {
	givenFiles, err := readSource(given)
	if err != nil {
		return
	}
	builtFiles, err := readSource(built)
	if err != nil {
		return
	}
	listDifferences(stdout, "          ", givenFiles, builtFiles)
}

// maxSource is how many bytes of a source are read. A hostile one could decompress to any number of them.
const maxSource = 256 << 20

// readSource returns the contents of each file in a source, by name.
func readSource(packed []byte) (map[string][]byte, error) {
	unpacked, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	archive, err := io.ReadAll(io.LimitReader(unpacked, maxSource))
	if err != nil {
		return nil, err
	}
	return readTar(archive)
}
