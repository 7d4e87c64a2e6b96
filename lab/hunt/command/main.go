// Command is the program behind `make bug`, as package hunt explains. It runs in the top directory of a checkout.
//
//	command [-level LEVEL | -bug NUMBER]   begins a hunt, or goes on with the one that is on
//	command -answer NAME                   judges an answer; none gives up
//	command -hint yes|file                 gives a hint
//
// A flag with an empty value counts as left out. The exit code is 0 also after a wrong answer. It is 2 if the command
// is wrong, and 1 if something else fails.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"podcount/lab/hunt"
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run returns the exit code.
func run(args []string, stdout, stderr io.Writer) int {
	// A Ctrl-C stops the playground, and this program then says what can be done next.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	err := do(args, signals, stdout, stderr)
	var usage hunt.UsageError
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &usage):
		fmt.Fprintln(stderr, "bug:", err)
		return 2
	}
	fmt.Fprintln(stderr, "bug:", err)
	return 1
}

// do does what the arguments ask for.
func do(args []string, signals <-chan os.Signal, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("bug", flag.ContinueOnError)
	set.SetOutput(stderr)
	level := set.String("level", "", "how hard the bug may be: easy, middle or hard")
	number := set.String("bug", "", "the number of the bug")
	answer := set.String("answer", "", "the name of what is broken, or none to give up")
	hint := set.String("hint", "", "yes for a hint, file for the file")
	if err := set.Parse(args); err != nil {
		return errors.Join(hunt.UsageError("that is no command of the hunt"), err)
	}
	if set.NArg() > 0 {
		return hunt.UsageError(fmt.Sprintf("%q cannot stand alone: use LEVEL=, BUG=, ANSWER= or HINT=", set.Arg(0)))
	}
	checkout, err := filepath.Abs(".")
	if err != nil {
		return err
	}
	h := &hunt.Hunt{
		Checkout: checkout,
		Bin:      filepath.Join(checkout, "bin"),
		Out:      stdout,
		Choose:   rand.IntN,
		Play: func(program string, args []string) error {
			return play(exec.Command(program, args...), signals, stdout, stderr)
		},
	}
	if err := os.MkdirAll(h.Bin, 0o755); err != nil {
		return err
	}
	switch {
	case *answer != "":
		return h.Answer(*answer)
	case *hint != "":
		return h.Hint(*hint)
	}
	return h.Start(context.Background(), *level, *number) // A Ctrl-C reaches the compiler by itself.
}

// play runs the playground, and passes signals on to it. The playground ends with exit code 1 if podcount ends by
// itself, which may be the symptom, so that is no error.
func play(cmd *exec.Cmd, signals <-chan os.Signal, stdout, stderr io.Writer) error {
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // A Ctrl-C must reach it once.
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case sig := <-signals:
			cmd.Process.Signal(sig)
		case err := <-ended:
			var exit *exec.ExitError
			if errors.As(err, &exit) && exit.ExitCode() == 1 {
				return nil
			}
			return err
		}
	}
}
