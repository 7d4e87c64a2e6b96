package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"podcount/lab/testkit"
)

func TestExitCodeSaysWhetherTheCommandWasWrong(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, row := range []struct {
		args string
		code int
		want string
	}{
		{"-answer Queue.Get", 2, "bug: no hunt is on: `make bug` begins one\n"},
		{"-hint yes", 2, "no hunt is on"},
		{"-level soft", 2, `there is no level "soft"`},
		{"-level easy", 2, "in the top directory of the checkout"},
		{"-bug 0", 2, "there is no bug 0"},
		{"hard", 2, `"hard" cannot stand alone`},
		{"-name x", 2, "flag provided but not defined"},
		{"-h", 0, "-answer"},
	} {
		var stdout, stderr bytes.Buffer
		testkit.WantNumber(t, "the exit code of "+row.args, run(strings.Fields(row.args), &stdout, &stderr), row.code)
		testkit.WantText(t, stderr.String(), row.want)
	}
	testkit.WriteFiles(t, "bin", map[string]string{"hunt.state": "%"})
	var stderr bytes.Buffer
	testkit.WantNumber(t, "the exit code with a broken state", run(nil, &stderr, &stderr), 1)
}

// The script stands in for the playground: it ends with 0 when it is interrupted.
func TestCtrlCStopsThePlaygroundOnce(t *testing.T) {
	out := &testkit.Buffer{Wrote: make(chan struct{}, 1)}
	signals := make(chan os.Signal, 1)
	ended := make(chan error)
	cmd := exec.Command("sh", "-c", `trap 'kill $!; echo stopped; exit 0' INT; tail -f /dev/null & echo ready; wait`)
	go func() { ended <- play(cmd, signals, out, out) }()
	<-out.Wrote
	signals <- syscall.SIGINT
	if err := <-ended; err != nil {
		t.Error(err)
	}
	testkit.WantEqual(t, "the output", out.String(), "ready\nstopped\n")
}

func TestPlaygroundThatEndsWithPodcountIsNoError(t *testing.T) {
	if err := play(exec.Command("sh", "-c", "exit 1"), nil, nil, nil); err != nil {
		t.Error(err)
	}
	if err := play(exec.Command("sh", "-c", "exit 2"), nil, nil, nil); err == nil {
		t.Error("that the arguments are wrong is no error")
	}
	if err := play(exec.Command("./not-here"), nil, nil, nil); err == nil {
		t.Error("a playground that is not there is no error")
	}
}
