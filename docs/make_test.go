package docs_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	makefile, err := os.ReadFile(fromHere("Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9]+):`).FindAllStringSubmatch(string(makefile), -1) {
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
