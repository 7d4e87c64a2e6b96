// Mutants is the command behind `make mutants`. It breaks podcount on purpose, in one way at a time, and checks that a
// test fails. It runs in the root of a checkout, and changes nothing there: it works on copies, one for each processor.
//
//	mutants [NAME...]
//
// The files testdata/mutants/*.txt say what to break:
//
//	package .
//
//	two-workers-for-one-key: A key that is added while a worker has it goes to another at once.
//	noticed by TestKeyAddedDuringWorkComesAgain
//	in Queue.take
//	- item.stage = stageWorking
//	+ item.stage = stageWaiting
//
// A mutant begins with its name, and what podcount does wrong with it. Then comes the test that has to fail, or a
// subtest in words, as in `TestWrites/the uid is sent`. The rest is the change: a function, method, type, variable or
// constant, and lines of it as in a diff, each behind its sign and a blank. The lines with a minus or without a sign
// must be there exactly once, whatever their indentation. Write no more of them than that takes.
//
// A mutant may have several changes, each below its own `in`, and ends with an empty line. What is not Go is named by
// its file: `file deploy/policy.yaml`. A line `package` is for all mutants below it. A name of another package follows
// its directory, as in `noticed by deploy TestAlertsFireWhenTheyShould` or `in internal/api/kube Client.Do`.
//
// A mutant that its own test does not notice is tried with all tests, at the end. The exit code is 1 if a mutant fits
// no longer, does not compile, or is noticed by no test, and if a test fails without any mutant.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run tries the mutants with these names, or all if there are none.
func run(ctx context.Context, names []string, out io.Writer) error {
	mutants, err := readAll(os.DirFS("."))
	if err != nil {
		return err
	}
	chosen, err := choose(mutants, names)
	if err != nil {
		return err
	}
	t, err := newTrial(ctx, chosen, out)
	if err != nil {
		return err
	}
	defer t.close()
	return t.run()
}

// choose returns the mutants with these names, or all if there are none.
func choose(mutants []mutant, names []string) ([]mutant, error) {
	if len(mutants) == 0 {
		return nil, fmt.Errorf("there is no mutant in %s: run this in the root of the checkout", rulesDir)
	}
	for _, name := range names {
		if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }) {
			return nil, fmt.Errorf("there is no mutant %q in %s", name, rulesDir)
		}
	}
	return slices.DeleteFunc(mutants, func(m mutant) bool {
		return len(names) > 0 && !slices.Contains(names, m.name)
	}), nil
}
