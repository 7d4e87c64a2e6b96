// Release is the command that builds podcount, and everything that belongs to a release of it. The Makefile calls it.
//
//	release build     builds the binary for one platform, with its own source in it
//	release version   prints the version that build would give to the binary
//	release image     writes an image for Linux as one archive, without docker
//	release all       writes podcount-VERSION.tar, with everything that a site needs
//	release verify FILE   builds everything in such a file again, and compares the bytes
//
// All but verify take these flags, where they make sense:
//
//	-version VERSION     the version, instead of what git says
//	-o FILE              the file to write
//	-os OS -arch ARCH    build: the platform, by Go's names
//	-platforms LIST      image, all: the platforms, as in linux/amd64,linux/arm64
//	-fips VERSION        the value of GOFIPS140, such as v1.0.0
//	-key FILE            all: a private key that signs, for ssh-keygen
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
//   - contents.go makes the files of a release: image.go and oci.go make the image, sbom.go and provenance.go the two
//     statements;
//   - sums.go writes SHA256SUMS, and sign.go signs the release;
//   - verify.go compares.
//
// The exit code is 0 if all went well, 1 if something failed or differs, and 2 if the arguments are wrong. `go run`,
// which the Makefile uses, makes 1 of the 2.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
)

func main() {
	// After a signal, the command that runs is interrupted, and the temporary folders are removed.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP,
		syscall.SIGPIPE)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
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
var errUsage = errors.New("see the comment in deploy/release/main.go")

// settings are the values of the flags.
type settings struct {
	version   string // the version to build; "" asks git, or the stamp
	output    string // the file to write
	os        string // of the one platform to build for; "" is that of this machine
	arch      string
	platforms string // of all platforms to build for: OS/ARCH, joined by commas
	fips      string // GOFIPS140, such as v1.0.0; "" is off
	key       string // a file with a private key that signs, for ssh-keygen
}

// readTree returns the source here, as the version that was asked for. That version must not be the tag of another
// commit.
func (s settings) readTree() (tree, error) {
	t, err := readTree(".", s.version)
	if err != nil {
		return tree{}, err
	}
	return t, t.checkTag()
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	if len(args) == 0 {
		return fmt.Errorf("name a command: build, version, image, all or verify: %w", errUsage)
	}
	var s settings
	flags := flag.NewFlagSet("", flag.ContinueOnError)
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
	if args[0] == "verify" && flags.NFlag() > 0 {
		return fmt.Errorf("verify takes no flag, because the release says how it was built: %w", errUsage)
	}
	if args[0] == "verify" && flags.NArg() == 1 {
		return verifyRelease(ctx, flags.Arg(0), stdout)
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("there is an argument too many, %q: %w", flags.Arg(flags.NArg()-1), errUsage)
	}
	switch args[0] {
	case "build":
		return buildOne(ctx, s, stdout)
	case "version":
		return printVersion(s, stdout)
	case "image":
		return buildImage(ctx, s, stdout)
	case "all":
		return buildRelease(ctx, s, stdout)
	case "verify":
		return verifyRelease(ctx, "", stdout)
	}
	return fmt.Errorf("there is no command %q: %w", args[0], errUsage)
}

// buildOne builds the binary for one platform.
func buildOne(ctx context.Context, s settings, stdout io.Writer) error {
	t, err := s.readTree()
	if err != nil {
		return err
	}
	c, err := newCompiler(t, s.fips)
	if err != nil {
		return err
	}
	defer c.close()
	p := platform{os: cmp.Or(s.os, runtime.GOOS), arch: cmp.Or(s.arch, runtime.GOARCH)}
	usual := filepath.Join("bin", "podcount")
	if p.os == "windows" {
		usual += ".exe"
	}
	output := cmp.Or(s.output, usual)
	if t.whyUnknown != nil {
		fmt.Fprintln(stdout, "the commit is unknown:", t.whyUnknown)
	}
	fmt.Fprintf(stdout, "building %s, version %s, for %s\n", output, t.version, p)
	return c.compile(ctx, p, output)
}

func printVersion(s settings, stdout io.Writer) error {
	t, err := s.readTree()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, t.version)
	return err
}

// buildImage writes an archive with an image for one or more platforms of Linux.
func buildImage(ctx context.Context, s settings, stdout io.Writer) error {
	t, err := s.readTree()
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
	programs, err := c.compileAll(ctx, platforms, stdout)
	if err != nil {
		return err
	}
	image, err := packImage(t, programs)
	if err != nil {
		return err
	}
	output := cmp.Or(s.output, filepath.Join("bin", "podcount-image.tar"))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err := writeFile(output, image.archive); err != nil {
		return err
	}
	_, err = fmt.Fprintf(stdout, "%s: the image %s%s, %s\n", output, imageHost, imageName(t), image.digest)
	return err
}

// buildRelease writes bin/podcount-VERSION.tar, and its signature beside it.
func buildRelease(ctx context.Context, s settings, stdout io.Writer) error {
	t, err := s.readTree()
	if err != nil {
		return err
	}
	t, err = t.committed()
	if err != nil {
		return err
	}
	if err := checkRelease(t); err != nil {
		return err
	}
	if s.fips != "" && !isFIPS.MatchString(s.fips) {
		return fmt.Errorf("GOFIPS140=%s: name a version, as in v1.0.0, because a release must not change with Go's names",
			s.fips)
	}
	platforms, err := parsePlatforms(s.platforms)
	if err != nil {
		return err
	}
	if s.key != "" {
		if _, err := os.Stat(s.key); err != nil {
			return fmt.Errorf("KEY: %w", err)
		}
	}
	files, err := makeContents(ctx, t, s.fips, platforms, stdout)
	if err != nil {
		return err
	}
	packed, err := packRelease(t, files)
	if err != nil {
		return err
	}
	var signature []byte
	if s.key != "" {
		signature, err = sign(ctx, packed, s.key)
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	output := cmp.Or(s.output, filepath.Join("bin", "podcount-"+t.version+".tar"))
	if err := writeSigned(output, packed, signature); err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s: commit %s, %s, %d files, %.1f MB, SHA-256 %s\n",
		output, t.commit, runtime.Version(), len(files), float64(len(packed))/1e6, sum(packed))
	if signature == nil {
		fmt.Fprintln(stdout, "it is not signed: KEY=FILE signs it with a private key of ssh-keygen")
		return nil
	}
	_, err = fmt.Fprintln(stdout, output+".sig: its signature")
	return err
}

// writeFile writes a file, in a folder that it makes if it is missing. After an error, the file is as it was.
func writeFile(name string, contents []byte) error {
	folder := filepath.Dir(name)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	unfinished, err := os.CreateTemp(folder, ".unfinished-")
	if err != nil {
		return err
	}
	defer os.Remove(unfinished.Name())
	_, err = unfinished.Write(contents)
	err = cmp.Or(err, unfinished.Chmod(0o644))
	err = errors.Join(err, unfinished.Close())
	if err != nil {
		return err
	}
	return os.Rename(unfinished.Name(), name)
}
