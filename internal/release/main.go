// Release is the command that builds podcount, and everything that belongs to a release of it. The Makefile calls it.
//
//	release build [FLAGS]           builds the binary for one platform, with its own source in it
//	release version [FLAGS]         prints the version that build would give to the binary
//	release image [FLAGS]           writes an image for Linux as one archive, without docker
//	release all [FLAGS]             writes podcount-VERSION.tar, with everything that a site needs
//	release verify [FLAGS] FILE     builds everything in such a file again, and compares the bytes
//
// It must run in the top folder of podcount's source. That may be a git checkout, or the files of an archive without
// git: see tree.go.
//
// The same source and the same version of Go give the same bytes, whoever builds, and wherever. So nothing here may
// depend on the time, the user, the folder, the order of a map, or the environment. The exceptions are PATH, and what
// the go command needs to find its cache and its toolchain.
//
// The files:
//   - tree.go finds out which version and commit the source is;
//   - source.go packs the source, and archive.go packs files into a tar;
//   - compile.go runs the go command;
//   - contents.go makes the files of a release, except for image.go (the image), sbom.go (the SBOM) and provenance.go;
//   - sums.go writes, checks and signs SHA256SUMS;
//   - verify.go compares.
//
// The exit code is 0 if all went well, 1 if something failed or differs, and 2 if the arguments are wrong.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

func main() {
	err := run(os.Args[1:], os.Stdout)
	switch {
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

// errUsage is wrapped by all errors about the arguments.
var errUsage = errors.New("see the comment in internal/release/main.go")

// settings are the values of the flags.
type settings struct {
	version   string // the version to build; "" asks git, or the stamp
	output    string // the file to write
	os        string // of the one platform to build for; "" is that of this machine
	arch      string
	platforms string // of all platforms to build for: OS/ARCH, joined by commas
	fips      string // GOFIPS140, such as v1.0.0; off by default
	key       string // a file with a private key that signs, for ssh-keygen
}

func run(args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("name a command: build, version, image, all or verify: %w", errUsage)
	}
	var s settings
	flags := flag.NewFlagSet("release "+args[0], flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.StringVar(&s.version, "version", "", "")
	flags.StringVar(&s.output, "o", "", "")
	flags.StringVar(&s.os, "os", "", "")
	flags.StringVar(&s.arch, "arch", "", "")
	flags.StringVar(&s.platforms, "platforms", "", "")
	flags.StringVar(&s.fips, "fips", "", "")
	flags.StringVar(&s.key, "key", "", "")
	if err := flags.Parse(args[1:]); err != nil {
		return fmt.Errorf("%w: %w", err, errUsage)
	}
	switch args[0] {
	case "build":
		return buildOne(s, stdout)
	case "version":
		return printVersion(s, stdout)
	case "image":
		return buildImage(s, stdout)
	case "all":
		return buildRelease(s, stdout)
	case "verify":
		return verifyRelease(s, flags.Args(), stdout)
	}
	return fmt.Errorf("there is no command %q: %w", args[0], errUsage)
}

// buildOne builds the binary for one platform.
func buildOne(s settings, stdout io.Writer) error {
	t, err := readTree(".", s.version)
	if err != nil {
		return err
	}
	p := platform{os: cmp.Or(s.os, runtime.GOOS), arch: cmp.Or(s.arch, runtime.GOARCH)}
	c, err := newCompiler(t, s.fips)
	if err != nil {
		return err
	}
	defer c.close()
	output := cmp.Or(s.output, filepath.Join("bin", "podcount"))
	if t.unknown != nil {
		fmt.Fprintln(stdout, "the commit is unknown:", t.unknown)
	}
	fmt.Fprintf(stdout, "building %s, version %s, for %s\n", output, t.version, p)
	return c.compile(p, output)
}

func printVersion(s settings, stdout io.Writer) error {
	t, err := readTree(".", s.version)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, t.version)
	return err
}

// buildImage writes an archive with an image for one or more platforms of Linux.
func buildImage(s settings, stdout io.Writer) error {
	t, err := readTree(".", s.version)
	if err != nil {
		return err
	}
	platforms, err := parsePlatforms(s.platforms)
	if err != nil {
		return err
	}
	c, err := newCompiler(t, s.fips)
	if err != nil {
		return err
	}
	defer c.close()
	programs, err := c.compileAll(platforms, stdout)
	if err != nil {
		return err
	}
	image, err := imageOf(t, programs)
	if err != nil {
		return err
	}
	if err := writeFile(s.output, image); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: the image %s\n", s.output, imageName(t))
	return err
}

// parsePlatforms returns the platforms in a list such as linux/amd64,darwin/arm64. They must be some of allPlatforms.
func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return allPlatforms, nil
	}
	var chosen []platform
	for name := range strings.SplitSeq(list, ",") {
		known := false
		for _, p := range allPlatforms {
			if p.String() == name {
				chosen = append(chosen, p)
				known = true
			}
		}
		if !known {
			return nil, fmt.Errorf("PLATFORMS: podcount is not released for %q, but for %s", name, allPlatforms)
		}
	}
	return chosen, nil
}

// writeFile writes a file, in a folder that it makes if it is missing.
func writeFile(name string, contents []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return os.WriteFile(name, contents, 0o644)
}
