package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// platform is an operating system and a processor architecture, by Go's names.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "/" + p.arch }

// binaryName returns the name of podcount's binary for the platform in a release.
func (p platform) binaryName(version string) string {
	name := "podcount-" + version + "-" + p.os + "-" + p.arch
	if p.os == "windows" {
		name += ".exe"
	}
	return name
}

// allPlatforms are the platforms that podcount is released for.
var allPlatforms = []platform{
	{"linux", "amd64"},
	{"linux", "arm64"},
	{"linux", "arm"},
	{"linux", "ppc64le"},
	{"linux", "s390x"},
	{"linux", "riscv64"},
	{"darwin", "amd64"},
	{"darwin", "arm64"},
	{"windows", "amd64"},
	{"windows", "arm64"},
}

// parsePlatforms returns the platforms in a list such as linux/amd64,darwin/arm64. They must be some of allPlatforms, at
// least one of them for Linux, because the image is for Linux.
func parsePlatforms(list string) ([]platform, error) {
	if list == "" {
		return allPlatforms, nil
	}
	var chosen []platform
	hasLinux := false
	for name := range strings.SplitSeq(list, ",") {
		i := slices.IndexFunc(allPlatforms, func(p platform) bool { return p.String() == name })
		if i < 0 {
			return nil, fmt.Errorf("PLATFORMS=%s: podcount is not released for %q; use some of %s",
				list, name, namesOf(allPlatforms))
		}
		p := allPlatforms[i]
		if slices.Contains(chosen, p) {
			return nil, fmt.Errorf("PLATFORMS=%s: it names %s twice", list, p)
		}
		hasLinux = hasLinux || p.os == "linux"
		chosen = append(chosen, p)
	}
	if !hasLinux {
		return nil, fmt.Errorf("PLATFORMS=%s: add one for Linux, because the image is for Linux", list)
	}
	return chosen, nil
}

func namesOf(platforms []platform) string {
	var names []string
	for _, p := range platforms {
		names = append(names, p.String())
	}
	return strings.Join(names, ",")
}

// buildSettings are the variables of the go command and its tools that can change the bytes that they build, apart from
// GOOS, GOARCH and GOFIPS140. They replace those of the environment, and the file that `go env -w` writes is not read.
// Those that name a processor name the oldest that Go supports, except for arm, where it is an ARMv7.
var buildSettings = []string{
	"CGO_ENABLED=0",
	"GO111MODULE=on",
	"GOAMD64=v1",
	"GOARM64=v8.0",
	"GOARM=7",
	"GOCLOBBERDEADHASH=",
	"GOCOMPILEDEBUG=",
	"GODEBUG=",
	"GOENV=off",
	"GOEXPERIMENT=",
	"GOFLAGS=",
	"GOPPC64=power8",
	"GORISCV64=rva20u64",
	"GOSSAFUNC=",
	"GOWORK=off",
	"GO_EXTLINK_ENABLED=",
}

// buildFlags are the flags of go build, besides -ldflags. They keep this machine's paths out of the binary, and what the
// go command would ask git.
var buildFlags = []string{"-trimpath", "-buildvcs=false", "-pgo=off"}

// linkerFlags returns the value of -ldflags. -s and -w leave out what only debuggers need. Functions begin at multiples
// of 16 bytes instead of 32, which makes the binary 70 kB smaller.
func linkerFlags(t tree) string {
	return "-s -w -funcalign=16 -X podcount/internal/build.Version=" + t.version +
		" -X podcount/internal/build.Commit=" + t.commit
}

// goCommand returns a go command that runs in dir, for this machine.
func goCommand(dir string, args ...string) *exec.Cmd {
	command := exec.Command("go", args...)
	command.Dir = dir
	command.Env = slices.Concat(os.Environ(), buildSettings, []string{"GOOS=", "GOARCH=", "GOFIPS140=off"})
	return command
}

// compiler builds podcount from a tree, with the tree's own source in it.
type compiler struct {
	tree    tree
	fips    string // the value of GOFIPS140
	source  []byte // what podcount -source will write, compressed
	scratch string // a folder that close removes
	overlay string // a file that has go build read the packed source: see go help build
}

// newCompiler packs the source. The caller must call close in the end.
func newCompiler(t tree, fips string) (*compiler, error) {
	if fips == "" {
		fips = "off"
	}
	// The overlay must name a file as the go command does, which resolves a symbolic link in TMPDIR.
	dir, err := filepath.EvalSymlinks(t.dir)
	if err != nil {
		return nil, err
	}
	t.dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := checkGoVersion(t.dir); err != nil {
		return nil, err
	}
	source, err := packProgramSource(t)
	if err != nil {
		return nil, err
	}
	scratch, err := os.MkdirTemp("", "podcount-release-")
	if err != nil {
		return nil, err
	}
	scratch, err = filepath.Abs(scratch) // TMPDIR can be relative.
	if err != nil {
		return nil, err
	}
	c := &compiler{
		tree:    t,
		fips:    fips,
		source:  source,
		scratch: scratch,
		overlay: filepath.Join(scratch, "overlay.json"),
	}
	if err := c.writeOverlay(); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// checkGoVersion returns an error if the go command that would compile is not the one that runs this command. That
// happens if PATH names another one.
func checkGoVersion(dir string) error {
	output, err := outputOf(goCommand(dir, "env", "GOVERSION"))
	if err != nil {
		return err
	}
	version := strings.TrimSpace(string(output))
	if version != runtime.Version() {
		return fmt.Errorf("the go command in PATH is %s, but this command was built by %s: put that one into PATH",
			version, runtime.Version())
	}
	return nil
}

// writeOverlay writes the source into the scratch folder, and the file that puts it in the place of the empty one.
func (c *compiler) writeOverlay() error {
	packed := filepath.Join(c.scratch, "source.tar.gz")
	if err := os.WriteFile(packed, c.source, 0o644); err != nil {
		return err
	}
	replaced := filepath.Join(c.tree.dir, "internal", "build", "source.tar.gz")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {replaced: packed}})
	if err != nil {
		return err
	}
	return os.WriteFile(c.overlay, overlay, 0o644)
}

func (c *compiler) close() error { return os.RemoveAll(c.scratch) }

// compile builds podcount for a platform.
func (c *compiler) compile(ctx context.Context, p platform, output string) error {
	output, err := filepath.Abs(output)
	if err != nil {
		return err
	}
	args := slices.Concat(
		[]string{"build"},
		buildFlags,
		[]string{"-overlay", c.overlay, "-ldflags", linkerFlags(c.tree), "-o", output, "."},
	)
	command := goCommand(c.tree.dir, args...)
	command.Env = append(command.Env, "GOOS="+p.os, "GOARCH="+p.arch, "GOFIPS140="+c.fips, "GOTMPDIR="+c.scratch)
	command.Stdout = os.Stdout
	command.Stderr = os.Stderr
	if err := runUntil(ctx, command); err != nil {
		return fmt.Errorf("go build for %s: %w", p, err)
	}
	if err := c.check(output); err != nil {
		return fmt.Errorf("%s: %w", output, err)
	}
	return nil
}

// runUntil runs a command, and interrupts it at the end of ctx. An interrupt lets the command stop its own processes and
// remove its files, which a kill would not.
func runUntil(ctx context.Context, command *exec.Cmd) error {
	if err := command.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		if err := command.Process.Signal(os.Interrupt); err != nil {
			command.Process.Kill() // Windows has no interrupts.
		}
	})
	defer stop()
	err := command.Wait()
	return cmp.Or(ctx.Err(), err)
}

// program is podcount's binary for a platform.
type program struct {
	platform platform
	contents []byte
}

// compileAll builds podcount for each platform, and says so.
func (c *compiler) compileAll(ctx context.Context, platforms []platform, stdout io.Writer) ([]program, error) {
	var programs []program
	for i, p := range platforms {
		fmt.Fprintf(stdout, "building version %s for %s (%d of %d)\n", c.tree.version, p, i+1, len(platforms))
		output := filepath.Join(c.scratch, "podcount")
		if err := c.compile(ctx, p, output); err != nil {
			return nil, err
		}
		contents, err := os.ReadFile(output)
		if err != nil {
			return nil, err
		}
		programs = append(programs, program{platform: p, contents: contents})
	}
	return programs, nil
}

// check returns an error if a binary has a module besides podcount, or does not have its own source.
func (c *compiler) check(name string) error {
	binary, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return err
	}
	if len(info.Deps) > 0 {
		return fmt.Errorf("it has the module %s, but podcount must have no dependency", info.Deps[0].Path)
	}
	if !bytes.Contains(binary, c.source) {
		return errors.New("it does not have its source: the go command did not use the overlay")
	}
	return nil
}
