// Command is the program behind `make trial`. It puts a controller on trial, as package trial explains.
//
//	command [flags] [PROGRAM]
//
// PROGRAM is a line for a shell, such as './mine --kubeconfig $KUBECONFIG'. Without it, bin/podcount is on trial. The
// exit code is 0 if the program has passed all rows, 1 if it has not, and 2 after a wrong call.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"podcount/lab/trial"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // If nobody reads the output any more, the trial still ends what it has started.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // A second signal ends the trial at once.
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// podcount is the line that starts podcount. Its usual -interval of 10 s would be in each figure.
const podcount = `exec bin/podcount -total-label "$TRIAL_LABEL" -interval 1s ${TRIAL_LEASE:+-leader-elect ` +
	`-leader-elect-resource-namespace "${TRIAL_LEASE%/*}" -leader-elect-resource-name "${TRIAL_LEASE#*/}"}`

// call is what a call asks for.
type call struct {
	program           trial.Program
	line              string
	options           trial.Options
	json, html, lines string // files to write; "" for none
	list              bool
}

// run returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, err := parse(args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintln(stderr, "trial:", err)
		return 2
	}
	if c.list {
		list(stdout)
		return 0
	}
	outputs, err := c.open()
	if err != nil {
		fmt.Fprintln(stderr, "trial:", err)
		return 2
	}
	fmt.Fprintln(stdout, "on trial:", c.line)
	began := time.Now()
	progress := trial.NewProgress(stdout)
	c.options.Began = progress.Began
	c.options.Ended = progress.Ended
	results, err := trial.All(ctx, c.program, c.options)
	progress.Close()
	if err != nil {
		fmt.Fprintln(stderr, "trial:", err)
		return 2
	}
	trial.WriteStories(stdout, results)
	trial.WriteTable(stdout, results)
	report := trial.Report{
		Program: c.line,
		Began:   began.UTC(),
		Seconds: time.Since(began).Seconds(),
		Results: results,
	}
	for _, out := range outputs {
		if err := out.write(report); err != nil {
			fmt.Fprintln(stderr, "trial: a report could not be written:", err)
			return 1
		}
	}
	isRed := func(r trial.Result) bool { return !r.Green() }
	if slices.ContainsFunc(results, isRed) || ctx.Err() != nil {
		return 1
	}
	return 0
}

func parse(args []string, stderr io.Writer) (*call, error) {
	c := &call{}
	flags := flag.NewFlagSet("trial", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprintln(stderr, "use: trial [flags] [PROGRAM], where PROGRAM is a line for a shell, such as")
		fmt.Fprintln(stderr, "'./mine --kubeconfig $KUBECONFIG'; without it, bin/podcount is on trial")
		flags.PrintDefaults()
	}
	only := flags.String("only", "", "run only the rows whose GROUP/NAME contains one of these `words`, joined by commas")
	var elects bool
	yesOrNo(flags, &elects, "elects", "whether the program elects a leader if it gets $TRIAL_LEASE: `yes or no`")
	flags.BoolVar(&c.list, "list", false, "list the rows, what happens in each and why, with a report of it, and exit")
	flags.StringVar(&c.json, "json", "", "write the results and the stories to this `file`, as JSON")
	flags.StringVar(&c.html, "html", "", "write the results and the stories to this `file`, as a page")
	flags.StringVar(&c.lines, "lines", "", "write a line for each result to this `file`")
	flags.IntVar(&c.options.Parallel, "parallel", 12, "run this many rows at once")
	yesOrNo(flags, &c.options.Hours, "hours", "whether to run the rows that take hours, too: `yes or no`")
	flags.StringVar(&c.options.Kubeconfig, "cluster", "", "use the cluster of this kubeconfig `file` in place of the fake")
	flags.StringVar(&c.options.Context, "context", "", "use this context of the file")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case flags.NArg() > 1:
		return nil, fmt.Errorf("the program must be one argument, and %q is another one", flags.Arg(1))
	case c.options.Parallel < 1:
		return nil, fmt.Errorf("-parallel %d: at least one row must run", c.options.Parallel)
	}
	c.line = cmp.Or(flags.Arg(0), podcount)
	c.program = trial.Command(c.line)
	c.program.Elects = elects || c.line == podcount
	if *only != "" {
		for word := range strings.SplitSeq(*only, ",") {
			if word = strings.TrimSpace(word); word != "" {
				c.options.Words = append(c.options.Words, word)
			}
		}
	}
	return c, nil
}

// yesOrNo defines a flag that is yes or no, as in a variable of make. Without a value, it is yes.
func yesOrNo(flags *flag.FlagSet, isYes *bool, name, usage string) {
	flags.BoolFunc(name, usage, func(value string) error {
		if value != "yes" && value != "no" && value != "true" {
			return errors.New("it must be yes or no")
		}
		*isYes = value != "no"
		return nil
	})
}

func list(w io.Writer) {
	for _, row := range trial.Rows() {
		fmt.Fprintf(w, "%s/%s\n  %s\n  %s\n  %s\n", row.Group, row.Name, row.Happens, row.Why, row.Report)
	}
}

// output is a report that will be written to a file.
type output struct {
	file   *os.File
	format func(io.Writer, trial.Report) error
}

// open creates the files for the reports, so that a wrong name costs no trial.
func (c *call) open() (outputs []output, err error) {
	for _, out := range []struct {
		file   string
		format func(io.Writer, trial.Report) error
	}{{c.json, trial.WriteJSON}, {c.html, trial.WriteHTML}, {c.lines, trial.WriteLines}} {
		if out.file == "" {
			continue
		}
		f, err := os.Create(out.file)
		if err != nil {
			return nil, err
		}
		outputs = append(outputs, output{f, out.format})
	}
	return outputs, nil
}

func (o output) write(report trial.Report) error {
	return errors.Join(o.format(o.file, report), o.file.Close())
}
