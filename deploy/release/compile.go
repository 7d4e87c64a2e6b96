package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
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
	browser,
}

// browser stands for the page in a tab of a browser, which is no binary: see makeSite.
var browser = platform{"js", "wasm"}

// parsePlatforms returns the platforms in a list such as linux/amd64,darwin/arm64. They must be some of allPlatforms,
// at least one of them for Linux, because the image is for Linux.
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

// buildFlags are the flags of go build, besides -ldflags. They keep this machine's paths out of the binary, and what
// the go command would ask git.
var buildFlags = []string{"-trimpath", "-buildvcs=false", "-pgo=off"}

// linkerFlags returns the value of -ldflags. -s and -w leave out what only debuggers need. Functions begin at multiples
// of 16 bytes instead of 32, which makes the binary 70 kB smaller.
func linkerFlags(t tree) string {
	return "-s -w -funcalign=16 -X podcount/internal/run/process.Version=" + t.version +
		" -X podcount/internal/run/process.Commit=" + t.commit
}

// goCommand returns a go command that runs in dir, for this machine.
func goCommand(dir string, args ...string) *exec.Cmd {
	command := exec.Command("go", args...)
	command.Dir = dir
	command.Env = slices.Concat(os.Environ(), buildSettings, []string{"GOOS=", "GOARCH=", "GOFIPS140=off"})
	return command
}

// compiler builds podcount from the source that the binary will carry.
//
// Without git, the go command gives a version only to a module that another one requires. So the source lies in the
// vendor folder of an empty module, whose go.mod requires podcount in the version of the tree. Then go version -m and
// scanners of binaries show that version, whether git is on this machine or not, and whatever tags it knows.
type compiler struct {
	tree    tree
	fips    string // the value of GOFIPS140
	source  []byte // what podcount -source will write, compressed
	scratch string // the folder of the empty module, which close removes
	dir     string // the folder of podcount in it, where go build runs
}

// newCompiler packs the source. The caller must call close in the end.
func newCompiler(t tree, fips string) (*compiler, error) {
	if fips == "" {
		fips = "off"
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
		dir:     filepath.Join(scratch, "vendor", "podcount"),
	}
	if err := c.unpackSource(); err != nil {
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

// goLine matches the line of go.mod that names the version of the language.
var goLine = regexp.MustCompile(`(?m)^go [0-9.]+$`)

// unpackSource writes the empty module, and podcount into its vendor folder. The go command knows which packages are
// there from modules.txt, as go mod vendor writes it.
func (c *compiler) unpackSource() error {
	packed, err := readSource(c.source)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	packages := map[string]bool{}
	for name, contents := range packed {
		_, name, _ := strings.Cut(name, "/") // without the folder podcount-VERSION
		files["vendor/podcount/"+name] = contents
		if path.Ext(name) == ".go" {
			packages[path.Join("podcount", path.Dir(name))] = true
		}
	}
	const goMod = "vendor/podcount/go.mod"
	language := goLine.FindString(string(files[goMod]))
	delete(files, goMod) // It would make a module of its own of the folder.
	files["vendor/podcount/internal/run/process/source.tar.gz"] = c.source
	version := c.tree.moduleVersion()
	files["go.mod"] = fmt.Appendf(nil, "module build\n%s\nrequire podcount %s\n", language, version)
	files["vendor/modules.txt"] = fmt.Appendf(nil, "# podcount %s\n## explicit; %s\n%s\n",
		version, language, strings.Join(slices.Sorted(maps.Keys(packages)), "\n"))
	for name, contents := range files {
		if err := writeFile(filepath.Join(c.scratch, filepath.FromSlash(name)), contents); err != nil {
			return err
		}
	}
	return nil
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
		[]string{"-ldflags", linkerFlags(c.tree), "-o", output, "."},
	)
	command := goCommand(c.dir, args...)
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

// runUntil runs a command, and interrupts it at the end of ctx. An interrupt lets the command stop its own processes
// and remove its files, which a kill would not.
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

// compileAll builds podcount for each platform but the browser, and says so.
func (c *compiler) compileAll(ctx context.Context, platforms []platform, stdout io.Writer) ([]program, error) {
	platforms = slices.DeleteFunc(slices.Clone(platforms), func(p platform) bool { return p == browser })
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

// check returns an error if a binary has a module besides podcount, or does not have its own source and version.
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
		return errors.New("it does not have its source")
	}
	if want := c.tree.moduleVersion(); info.Main.Version != want {
		return fmt.Errorf("its module has the version %s, not %s", info.Main.Version, want)
	}
	return nil
}
