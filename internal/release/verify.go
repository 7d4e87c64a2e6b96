package main

import (
	"archive/tar"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// verifyRelease builds a release again from this tree, and returns an error unless each file has the same bytes.
func verifyRelease(s settings, args []string, stdout io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("name one file, as in make verify RELEASE=podcount-v1.1.0.tar: %w", errUsage)
	}
	given, err := readRelease(args[0])
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	parameters, err := given.parameters()
	if err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	t, err := readTree(".", parameters.version)
	if err != nil {
		return err
	}
	if err := parameters.check(t); err != nil {
		return fmt.Errorf("%s: %w", args[0], err)
	}
	platforms, err := parsePlatforms(strings.Join(parameters.platforms, ","))
	if err != nil {
		return err
	}
	built, err := makeContents(t, parameters.fips, platforms, stdout)
	if err != nil {
		return err
	}
	return given.compare(built, stdout)
}

// release is the sum of each file of a release, by name.
type release struct {
	sums       map[string]string // of all files but SHA256SUMS and its signature, as they are
	provenance []byte
	isSigned   bool
}

// readRelease reads a release, and checks that SHA256SUMS is about all of its files.
func readRelease(path string) (release, error) {
	archive, err := os.Open(path)
	if err != nil {
		return release{}, err
	}
	defer archive.Close()
	r := release{sums: map[string]string{}}
	var stated map[string]string
	for members := tar.NewReader(archive); ; {
		header, err := members.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return release{}, err
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		if header.Typeflag != tar.TypeReg {
			return release{}, fmt.Errorf("%s is not a regular file", header.Name)
		}
		contents, err := io.ReadAll(members)
		if err != nil {
			return release{}, err
		}
		_, name, _ := strings.Cut(header.Name, "/")
		switch {
		case name == sumsName:
			stated, err = readSums(contents)
			if err != nil {
				return release{}, err
			}
			continue
		case name == signatureName:
			r.isSigned = true
			continue
		case strings.HasSuffix(name, provenanceSuffix):
			r.provenance = contents
		}
		r.sums[name] = sum(contents)
	}
	if !maps.Equal(stated, r.sums) {
		return release{}, fmt.Errorf("the files are not those that %s names: unpack it, and try sha256sum -c", sumsName)
	}
	return r, nil
}

// parameters are what one must know to build a release again.
type parameters struct {
	version   string
	commit    string
	goVersion string
	fips      string
	platforms []string
}

// parameters reads the provenance.
func (r release) parameters() (parameters, error) {
	if r.provenance == nil {
		return parameters{}, errors.New("there is no provenance in it, so this is no release of podcount")
	}
	var s statement
	if err := json.Unmarshal(r.provenance, &s); err != nil {
		return parameters{}, fmt.Errorf("the provenance is not valid: %w", err)
	}
	definition := s.Predicate.BuildDefinition
	p := parameters{
		version:   definition.ExternalParameters.Version,
		goVersion: definition.InternalParameters.Go,
		fips:      definition.ExternalParameters.FIPS,
		platforms: definition.ExternalParameters.Platforms,
	}
	if len(definition.ResolvedDependencies) > 0 {
		p.commit = definition.ResolvedDependencies[0].Digest.GitCommit
	}
	return p, nil
}

// check returns an error if this tree or this version of Go must give other bytes.
func (p parameters) check(t tree) error {
	if t.commit != p.commit {
		return fmt.Errorf("it was built from the commit %s, and here is %s: check that commit out, or unpack the "+
			"source that is in the release, and verify there", p.commit, t.commit)
	}
	if runtime.Version() != p.goVersion {
		return fmt.Errorf("it was built with %s, and this is %s: install that version, or try "+
			"GOTOOLCHAIN=%[1]s make verify, which downloads it", p.goVersion, runtime.Version())
	}
	return nil
}

// compare prints for each file whether it is the same, and returns an error if one is not.
func (r release) compare(built []file, stdout io.Writer) error {
	builtSums := map[string]string{}
	for _, f := range built {
		builtSums[f.name] = sum(f.contents)
	}
	delete(builtSums, sumsName) // It is a list of the others, which readRelease has checked.
	names := slices.Collect(maps.Keys(r.sums))
	names = slices.AppendSeq(names, maps.Keys(builtSums))
	slices.Sort(names)
	differences := 0
	for _, name := range slices.Compact(names) {
		switch {
		case r.sums[name] == builtSums[name]:
			fmt.Fprintln(stdout, "same     ", name)
			continue
		case builtSums[name] == "":
			fmt.Fprintln(stdout, "not built", name)
		case r.sums[name] == "":
			fmt.Fprintln(stdout, "missing  ", name)
		default:
			fmt.Fprintln(stdout, "DIFFERS  ", name)
		}
		differences++
	}
	if differences > 0 {
		return fmt.Errorf("%d files differ from those built here", differences)
	}
	fmt.Fprintf(stdout, "all %d files are the same\n", len(r.sums))
	if r.isSigned {
		fmt.Fprintf(stdout, "%s is signed: docs/releases.md says how to check by whom\n", sumsName)
	}
	return nil
}
