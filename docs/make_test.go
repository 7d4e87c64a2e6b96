package docs_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestPagesNameTheTargetsOfMake(t *testing.T) {
	targets := targetsOfMake(t)
	var named []string
	for _, p := range loadPages(t) {
		for _, c := range p.commands() {
			for _, target := range c.targets() {
				named = append(named, target)
				if !slices.Contains(targets, target) {
					t.Errorf("%s: make has no target %s", p.at(c.line), target)
				}
			}
		}
	}
	for _, target := range targets {
		if !slices.Contains(named, target) {
			t.Errorf("no page names make %s", target)
		}
	}
}

// targetsOfMake returns the targets in the Makefile.
func targetsOfMake(t *testing.T) (targets []string) {
	t.Helper()
	makefile := testkit.ReadFile(t, fromHere("Makefile"))
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9]+):`).FindAllStringSubmatch(makefile, -1) {
		targets = append(targets, found[1])
	}
	return targets
}

// targets returns the targets of a make command, without its variables and flags.
func (c command) targets() (targets []string) {
	if c.words[0] != "make" {
		return nil
	}
	for _, word := range c.words[1:] {
		if !strings.Contains(word, "=") && !strings.HasPrefix(word, "-") {
			targets = append(targets, word)
		}
	}
	return targets
}

// outsideVariables are the variables of make, and those that podcount's tests read from their environment.
var outsideVariables = []string{
	"ANSWER", "ARGS", "BUG", "CASE", "CONTEXT", "DOCKER", "FRESH", "FUZZTIME", "GOARCH", "GOFIPS140", "GOOS", "HINT",
	"IMAGE", "KEY", "KUBECONFIG", "LEVEL", "ONLY", "PLATFORMS", "RELEASE", "SEEDS", "SHRINK", "SIGNERS", "STAGE",
	"STORY", "TRACE", "VERSION",
	"MAKE_RELEASE", "name", // which nobody should set
}

// stub is a program that takes the place of another one. It appends its name, its arguments and some variables to the
// file calls, and answers as go would.
const stub = `#!/bin/sh
{
	printf '%s' "${0##*/}"
	printf ' <%s>' "$@"
	printf '\nSEEDS=%s ONLY=%s TRACE=%s CASE=%s KUBECONFIG=%s CONTEXT=%s' \
		"$SEEDS" "$ONLY" "$TRACE" "$CASE" "$KUBECONFIG" "$CONTEXT"
	printf ' AIRGAP=%s,%s,%s\n' "$AIRGAP_RELEASE" "$AIRGAP_SIGNERS" "$AIRGAP_KUBECONFIG"
} >>"$CALLS"
case "$1 $2" in
'env GOARCH') echo amd64 ;;
'env GOOS') echo linux ;;
'list ./...') echo package ;;
'test -list') echo FuzzTarget ;;
esac
`

// makefile is a copy of the Makefile in a folder of its own. Its recipes call stubs.
type makefile struct{ dir string }

func newMakefile(t *testing.T) makefile {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("this test needs make")
	}
	m := makefile{t.TempDir()}
	testkit.WriteFiles(t, m.dir, map[string]string{"Makefile": testkit.ReadFile(t, fromHere("Makefile"))})
	m.writeStubs(t)
	return m
}

func (m makefile) writeStubs(t *testing.T) {
	t.Helper()
	stubs := []string{"stubs/go", "stubs/docker", "stubs/bash", "bin/playground", "bin/course", "bin/hunt"}
	for _, name := range stubs {
		testkit.WriteFiles(t, m.dir, map[string]string{name: stub})
		if err := os.Chmod(filepath.Join(m.dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
}

// run runs make with variables, which are of the form NAME=VALUE, and returns the calls of the stubs. The recipe may
// fail.
func (m makefile) run(t *testing.T, target string, onCommandLine, inEnvironment []string) (calls string) {
	t.Helper()
	file := filepath.Join(m.dir, "calls")
	os.Remove(file)
	command := exec.Command("make", append([]string{"-s", target}, onCommandLine...)...)
	command.Dir = m.dir
	command.Env = append([]string{"PATH=" + m.dir + "/stubs:" + os.Getenv("PATH"), "CALLS=" + file}, inEnvironment...)
	output, err := command.CombinedOutput()
	t.Logf("make %s: %v: %s", target, err, output)
	text, _ := os.ReadFile(file)
	return string(text)
}

func TestMakeRunsNothingOfItsVariables(t *testing.T) {
	for _, target := range targetsOfMake(t) {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			m := newMakefile(t)
			mark := filepath.Join(m.dir, "mark")
			for _, hostile := range []string{
				"$(shell : >MARK)", "$$(: >MARK)", "$(: >MARK)", "`: >MARK`", "'; : >MARK; '", `"; : >MARK; "`, "; : >MARK;",
				"x\n: >MARK\n", "linux/`: >MARK`,$(shell : >MARK)",
			} {
				value := strings.ReplaceAll(hostile, "MARK", mark)
				var variables []string
				for _, name := range outsideVariables {
					if name == "DOCKER" {
						variables = append(variables, name+"=docker "+value) // The first word is a command, by its nature.
						continue
					}
					variables = append(variables, name+"="+value)
				}
				m.writeStubs(t)
				m.run(t, target, variables, nil)
				m.run(t, target, nil, variables)
				if os.Remove(mark) == nil {
					t.Errorf("it runs the value %s", value)
				}
			}
		})
	}
}

func TestVariablesOfMakeStayAsTheyAre(t *testing.T) {
	const value = "a  $(shell :) `b` $$c ${d} \"e\" 'f' \\g * "
	rows := []struct{ target, variable, want string }{
		{"learn", "STAGE", "<-stage> <%s> <-fresh> <>"},
		{"learn", "FRESH", "<-fresh> <%s> <learn>"},
		{"check", "PROGRAM", "<-program> <%s> <-only> <>"},
		{"check", "ONLY", "<-only> <%s> <check>"},
		{"bug", "LEVEL", "<-level> <%s> <-bug> <>"},
		{"bug", "BUG", "<-bug> <%s> <-answer> <>"},
		{"bug", "ANSWER", "<-answer> <%s> <-hint> <>"},
		{"bug", "HINT", "<-hint> <%s>"},
		{"build", "VERSION", "<-version> <%s>"},
		{"build", "GOFIPS140", "<-fips> <%s>"},
		{"build", "GOOS", "<-os> <%s>"},
		{"build", "GOARCH", "<-arch> <%s>"},
		{"image", "IMAGE", "<-t> <%s>"},
		{"image", "PLATFORMS", "<--platform> <%s>"},
		{"archive", "PLATFORMS", "<-platforms> <%s>"},
		{"archive", "VERSION", "<-version> <%s>"},
		{"release", "VERSION", "<-version> <%s>"},
		{"release", "PLATFORMS", "<-platforms> <%s>"},
		{"release", "GOFIPS140", "<-fips> <%s>"},
		{"release", "KEY", "<-key> <%s>"},
		{"verify", "RELEASE", "<verify> <%s>"},
		{"sim", "SEEDS", "SEEDS=%s ONLY="},
		{"sweep", "CASE", "CASE=%s KUBECONFIG="},
		{"e2e", "KUBECONFIG", "KUBECONFIG=%s CONTEXT="},
		{"airgap", "RELEASE", "AIRGAP=%s,,"},
		{"fuzz", "FUZZTIME", "<-fuzztime> <%s>"},
	}
	m := newMakefile(t)
	for _, row := range rows {
		calls := m.run(t, row.target, []string{row.variable + "=" + value}, nil)
		testkit.WantText(t, calls, fmt.Sprintf(row.want, value))
	}
	calls := m.run(t, "sim", []string{"SEEDS=1", "ONLY=" + value, "TRACE=" + value}, nil)
	testkit.WantText(t, calls, "SEEDS=1 ONLY="+value+" TRACE="+value+" CASE=")
	calls = m.run(t, "airgap", []string{"RELEASE=r", "SIGNERS=" + value, "KUBECONFIG=" + value}, nil)
	testkit.WantText(t, calls, "AIRGAP=r,"+value+","+value+"\n")
}

func TestListsOfWordsAreSplitAtBlanksAlone(t *testing.T) {
	m := newMakefile(t)
	calls := m.run(t, "run", []string{"ARGS=-v 4  -pod-selector * '$$b'"}, nil)
	testkit.WantText(t, calls, "playground <bin/podcount> <bin> <-v> <4> <-pod-selector> <*> <'$$b'>\n")
	calls = m.run(t, "run", nil, nil)
	testkit.WantText(t, calls, "playground <bin/podcount> <bin> <-v> <2> <-interval> <3s>\n")
	calls = m.run(t, "image", []string{"DOCKER=docker --remote *", "PLATFORMS=linux/arm64,linux/arm/v7"}, nil)
	testkit.WantText(t, calls,
		"<build> <-version> <> <-os> <linux> <-arch> <arm64> ",
		"<build> <-version> <> <-os> <linux> <-arch> <arm> ",
		"docker <--remote> <*> <build> <--platform> <linux/arm64,linux/arm/v7> <--build-arg> <VERSION=",
	)
	calls = m.run(t, "image", nil, nil)
	testkit.WantText(t, calls, "docker <build> <--platform> <linux/amd64> <--build-arg> <TARGETARCH=amd64> ")
}

// A kubeconfig in the environment is somebody's daily one.
func TestOnlyTheCommandLineNamesTheClusterOfATest(t *testing.T) {
	m := newMakefile(t)
	testkit.WantEqual(t, "calls of make e2e", m.run(t, "e2e", nil, []string{"KUBECONFIG=daily"}), "")
	testkit.WantEqual(t, "without a file", m.run(t, "e2e", []string{"KUBECONFIG="}, []string{"KUBECONFIG=daily"}), "")
	calls := m.run(t, "airgap", []string{"RELEASE=r"}, []string{"KUBECONFIG=daily"})
	testkit.WantText(t, calls, "AIRGAP=r,,\n")
}
