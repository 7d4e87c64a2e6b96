// Command is the program behind `make mutants`. It breaks podcount on purpose, in one way at a time, and checks that a
// test fails. It runs in the root of a checkout, and changes nothing there: it works on copies, one for each processor.
//
//	command [NAME...]
//
// Package mutants explains the files that say what to break, testdata/mutants/*.txt.
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

	"podcount/lab/mutants"
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
	all, err := mutants.ReadAll(os.DirFS("."))
	if err != nil {
		return err
	}
	chosen, err := choose(all, names)
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
func choose(all []mutants.Mutant, names []string) ([]mutants.Mutant, error) {
	if len(all) == 0 {
		return nil, fmt.Errorf("there is no mutant in %s: run this in the root of the checkout", mutants.Dir)
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(m mutants.Mutant) bool { return m.Name == name }) {
			return nil, fmt.Errorf("there is no mutant %q in %s", name, mutants.Dir)
		}
	}
	return slices.DeleteFunc(all, func(m mutants.Mutant) bool {
		return len(names) > 0 && !slices.Contains(names, m.Name)
	}), nil
}
