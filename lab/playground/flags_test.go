package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

func TestFlagsAreReadAsPodcountReadsThem(t *testing.T) {
	for _, row := range []struct{ flags, want string }{
		{"", "default"},
		{"-v 2", "default"},
		{"-total-label a/b", "a/b"},
		{"--total-label a/b -v 2", "a/b"},
		{"-total-label=a/b", "a/b"},
		{"-total-label=a/b --total-label c", "c"},
		{"-total-label", "default"},
	} {
		got := flags(strings.Fields(row.flags)).value("total-label", "default")
		testkit.WantEqual(t, "the label of "+row.flags, got, row.want)
	}
	given := flags{"-listen", ":1", "-v", "2", "--listen=:2"}
	if rest := given.without("listen"); !slices.Equal(rest, flags{"-v", "2"}) {
		t.Errorf("without -listen, the flags are %q", rest)
	}
	testkit.WantEqual(t, "the interval", flags{"-interval", "3s"}.interval(), 3*time.Second)
	testkit.WantEqual(t, "the default interval", flags{}.interval(), 10*time.Second)
}

func TestFlagsDecideWhetherTheLabelIsWritten(t *testing.T) {
	for _, row := range []struct {
		flags string
		want  bool
	}{
		{"-v 2", true},
		{"-controllers pod-count", true},
		{"-controllers=*,pod-printer", true},
		{"-controllers *,-count", true},
		{"-controllers *,-pod-count", false},
		{"-controllers pod-printer", false},
		{"-dry-run", false},
	} {
		given := flags(strings.Fields(row.flags))
		testkit.WantEqual(t, "the label is written with "+row.flags, given.writesLabel(), row.want)
	}
	p := &playground{flags: flags{"-dry-run"}}
	if _, err := p.pressButton("pod-more"); err != errNoLabel {
		t.Errorf("a press in a dry run: %v", err)
	}
}

func TestElectionIsTheDefault(t *testing.T) {
	for _, row := range []struct {
		flags string
		isOn  bool // there is an election
		isOwn bool // the playground does not add its flags
	}{
		{"-v 2 -interval 3s", true, false},
		{"-leader-elect", true, true},
		{"-leader-elect=false", false, true},
		{"-dry-run", false, true},
		{"-once", false, true},
		{"-leader-elect-lease-duration 20s", false, true},
	} {
		given := flags(strings.Fields(row.flags))
		got := given.withElection()
		testkit.WantEqual(t, "an election with "+row.flags, got.hasElection(), row.isOn)
		testkit.WantEqual(t, "the user decides with "+row.flags, slices.Equal(got, given), row.isOwn)
	}
	playground := &playground{flags: flags{"-leader-elect"}, pauses: usualPauses}
	testkit.WantText(t, killServerButton().expect(playground), "the playground ends with it")
	playground.flags = flags{}.withElection()
	wantNo(t, halfOpenButton().expect(playground), "the playground ends with it")
}
