package kube

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
)

// errNoPermit is what a permit that is not given says.
var errNoPermit = errors.New("no permit")

// simulate runs a test in virtual time, with a fake of its own.
func simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}
