//go:build !js

// Playground is the command behind `make run`. It runs a fake API server with a small cluster that lives, and podcount
// against it. Signals and the buttons of a web page disturb the server.
//
//	playground [-script SCRIPT] PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]
//
// The playground writes a kubeconfig to the directory, for kubectl in another terminal, and removes it at the end. The
// file .playground.lock beside it stays.
//
// Unless the flags say something else about an election, podcount runs with -leader-elect, so that a second replica can
// be started. podcount's page is shown at http://127.0.0.1:8081/, or at the next free port, with buttons.
//
// SIGUSR1 takes the server away until 20 seconds after the last such signal. SIGUSR2 makes the server forget its
// history, and brings it back. Ctrl-C stops podcount and the server.
//
// A SCRIPT lets things happen at certain times, such as "5s: press wave". script.go explains its lines. `make bug` uses
// that.
//
// The exit code is 0 after a Ctrl-C. It is 1 if the kubeconfig cannot be written, or if podcount cannot be started,
// ends by itself or does not stop. It is 2 if the arguments are wrong.
//
// The files, apart from those of the cluster:
//   - main.go starts and stops everything;
//   - playground.go is what the buttons share, and measures what podcount does;
//   - buttons.go and buttons_*.go are the buttons, and presses.go reports what happens after a press;
//   - script.go lets things happen by themselves;
//   - proxy.go serves the buttons and passes on podcount's page, and front.go serves all of that over TCP;
//   - replicas.go runs the processes of podcount, with flags as in flags.go.
//
// In a tab of a browser, main_js.go takes the place of main.go and front.go, and a podcount is a worker (child_js.go)
// and no process (child.go): see lab/site.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run runs until a signal arrives or podcount ends, and returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	// Signals must be caught before the user reads about them, and before there is a process to stop.
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(stops)
	disturbances := make(chan os.Signal, 1)
	signal.Notify(disturbances, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(disturbances)

	var todo script
	if len(args) > 1 && args[0] == "-script" {
		var err error
		if todo, err = parseScript(args[1]); err != nil {
			fmt.Fprintln(stderr, "playground:", err)
			return 2
		}
		args = args[2:]
	}
	if len(args) < 2 {
		fmt.Fprintln(stderr, "usage: playground [-script SCRIPT] PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]")
		return 2
	}
	podcountFlags := flags(args[2:])
	if podcountFlags.has("page") {
		fmt.Fprintln(stderr, "playground: leave out -page: the playground sets it, and shows the page itself")
		return 2
	}
	p := newPlayground(args[0], podcountFlags, usualPauses, stdout, stderr)
	p.script = todo
	defer p.close()
	if err := p.run(args[1], stops, disturbances); err != nil {
		fmt.Fprintln(stderr, "playground:", err)
		return 1
	}
	return 0
}

// run writes the kubeconfig to a directory, serves the page, and runs podcount until a value comes from stops. It
// returns an error if podcount ends before.
func (p *playground) run(dir string, stops, disturbances <-chan os.Signal) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	file, err := writeOwnKubeconfig(dir, p.kubeconfig(token))
	if err != nil {
		return err
	}
	defer os.Remove(file)
	defer os.Remove(secondKubeconfig(file))
	front, err := startFront(p)
	if err != nil {
		return err
	}
	defer front.close()
	todo, err := p.script.begin(p)
	if err != nil {
		return err
	}
	first := newReplica("the first replica", token, file, p.flags)
	if err := p.replicas.add(first); err != nil {
		return err
	}
	_, err = exec.LookPath("kubectl")
	hasKubectl := err == nil
	p.presses.work.Go(func() { p.introduce(introduction(front.url(), file, hasKubectl)) })
	if p.script != nil {
		p.presses.work.Go(func() { todo.play(p) })
	}
	p.presses.work.Go(func() { p.disturb(disturbances) })
	return p.live(stops, p.replicas.ended)
}

// introduce prints a text below podcount's first lines, which would push it off the screen.
func (p *playground) introduce(text string) {
	_, err := p.await(p.pauses.start, func() bool {
		isRight := !p.flags.writesLabel() || p.label() == p.truth()
		return isRight && p.requests(time.Time{}).watches > 0
	})
	if err == nil && pause(p.ctx, p.pauses.quiet) == nil {
		fmt.Fprint(p.out, text)
	}
}

// disturb does what signals ask for, until the playground ends.
func (p *playground) disturb(signals <-chan os.Signal) {
	for {
		select {
		case sig := <-signals:
			p.use(func(c *cluster) { c.disturb(sig) })
		case <-p.ctx.Done():
			return
		}
	}
}

// introduction says what runs, where to look at it, and what to try first.
func introduction(page, kubeconfig string, hasKubectl bool) string {
	commands := []string{
		"export KUBECONFIG=" + kubeconfig,
		"kubectl get nodes -L hopegi/pod-count",
	}
	if !hasKubectl {
		commands = []string{"curl -s " + page + "api/v1/nodes/" + controlPlaneNode}
	}
	const disturb = "kill -USR1 %d  # takes the server away for %s"
	commands = append(commands, fmt.Sprintf(disturb, os.Getpid(), seconds(outage)))
	return "\nSee what podcount does: " + page + "\n" +
		"The buttons of the view Machine disturb its fake cluster.\n" +
		"In another terminal, try:\n  " + strings.Join(commands, "\n  ") + "\n" +
		"docs/learn/exercises.md has exercises. Ctrl-C stops everything.\n" +
		"A controller of your own, as learn/README.md builds it, finds this cluster with\n" +
		"  export SERVER=" + strings.TrimSuffix(page, "/") + "\n\n"
}

// disturb does what a signal asks for. A pod comes meanwhile, which podcount cannot see at once.
func (c *cluster) disturb(sig os.Signal) {
	if sig == syscall.SIGUSR1 {
		c.controllers.web.replicas++
		c.takeAway(outage)
		return
	}
	c.forgetHistory()
}
