package main

import (
	"context"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// command is a line of testdata/kubectl.txt: a shell command and what it must lead to.
type command struct {
	line  string
	code  int
	texts []string // in the output, in this order
}

// kubectlParagraphs reads testdata/kubectl.txt.
func kubectlParagraphs(t *testing.T) (paragraphs [][]command) {
	t.Helper()
	for paragraph := range strings.SplitSeq(testkit.ReadFile(t, "testdata/kubectl.txt"), "\n\n") {
		var commands []command
		for line := range strings.Lines(paragraph) {
			if strings.HasPrefix(line, "#") {
				continue
			}
			before, after, found := strings.Cut(strings.TrimSpace(line), "  # ")
			code, texts, _ := strings.Cut(after, " ")
			number, err := strconv.Atoi(code)
			if !found || err != nil {
				t.Fatalf("a command needs a comment with its exit code: %s", line)
			}
			commands = append(commands, command{strings.TrimSpace(before), number, strings.Split(texts, " … ")})
		}
		if commands != nil {
			paragraphs = append(paragraphs, commands)
		}
	}
	return paragraphs
}

// run runs a command and returns what is wrong with its output or its exit code, or "".
func (c command) run(env []string) (problem string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	shell := exec.CommandContext(ctx, "sh", "-c", c.line)
	shell.Dir = "testdata"
	shell.Env = env
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) } // kills kubectl, too
	out, err := shell.CombinedOutput()
	code := 0
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		return err.Error()
	}
	if code != c.code {
		return "exit code " + strconv.Itoa(code) + ", want " + strconv.Itoa(c.code) + ":\n" + string(out)
	}
	rest := string(out)
	for _, text := range c.texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			return "no " + strconv.Quote(text) + " (any more) in:\n" + string(out)
		}
		rest = after
	}
	return ""
}

// at names the server at which the commands are tried. On a real server without kubelets and controllers, commands fail
// that depend on these.
var at = flag.String("kubeconfig", "", "the `FILE` of another server, with a playground's objects in it, for the "+
	"commands of testdata/kubectl.txt")

func TestKubectlInThePlayground(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("kubectl is not installed")
	}
	paragraphs := kubectlParagraphs(t)
	config := *at
	if config == "" {
		config = livingCluster(t)
	}
	env := append(os.Environ(), "KUBECONFIG="+config, "KUBECACHEDIR="+filepath.Join(t.TempDir(), "cache"))
	problems := make([][]string, len(paragraphs))
	var wg sync.WaitGroup
	for i, commands := range paragraphs {
		wg.Go(func() {
			for _, command := range commands {
				problems[i] = append(problems[i], command.run(env))
			}
		})
	}
	wg.Wait()
	for i, commands := range paragraphs {
		for j, command := range commands {
			t.Run(command.line, func(t *testing.T) {
				if problems[i][j] != "" {
					t.Error(problems[i][j])
				}
			})
		}
	}
}

// livingCluster runs a cluster until the test ends, and returns the name of its kubeconfig.
func livingCluster(t *testing.T) (config string) {
	c := newCluster(nil)
	url, ca := fixture.Listen(t, c.fake)
	config = filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(config, []byte(fakekube.Kubeconfig(url, ca, "token: "+token)), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		life := time.NewTicker(pace / 5)
		defer life.Stop()
		for {
			select {
			case <-life.C:
				c.live()
			case <-stop:
				return
			}
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-stopped
	})
	return config
}
