// Package options reads podcount's command line: it defines the flags and their help, checks their values, and prints
// the manifest that -manifest asks for.
package options

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"podcount/deploy"
	"podcount/internal/api/kube"
	"podcount/internal/run/process"
	"podcount/internal/view/logging"
	"podcount/internal/view/page"
)

// Options are the values of the flags. Parse returns them checked.
type Options struct {
	// Where the cluster is.
	Kubeconfig string // the path of a kubeconfig; "" searches the usual places
	Context    string // a context of the kubeconfig; "" is its current context
	Master     string // the URL of the API server; "" is the one in the kubeconfig
	Wire       string // the format to request first: protobuf or json

	// What is counted.
	Controllers   []string // the names of the controllers that are on
	Namespace     string   // pods and Counts are read from this namespace; "" is every namespace
	PodSelector   string   // a label selector; "" selects every pod
	FieldSelector string   // a field selector; "" selects every pod

	// What is written.
	TotalLabel string        // the label that shows the number of all pods
	TotalNodes NodeChoice    // the nodes that get TotalLabel
	NodeLabel  string        // the label that shows the number of a node's own pods; "" writes none
	PodEvents  bool          // post an Event on each new pod
	Interval   time.Duration // between two checks of all nodes, and at least between two writes to one node
	QPS        float64       // writes per second, of each controller
	Burst      int           // writes at once before QPS limits them, of each controller
	Workers    int           // objects that each controller works on at a time

	// One run, or one without writes.
	Once        bool          // exit when everything is written; also true with -prune
	OnceTimeout time.Duration // the most that a run with Once may take
	DryRun      bool          // write nothing
	Prune       bool          // remove the labels instead of writing them

	// Leader election.
	LeaderElect    bool
	LeaseName      string
	LeaseNamespace string // "" is the namespace of podcount's own pod, else kube-system
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration

	// How podcount reports its state.
	Listen        string // the address of the HTTP server for probes and Prometheus; "" starts none
	Page          string // the address of the web page; "" serves none
	PageTokenFile string // a file with the token that the page asks for; "" asks for none
	Verbosity     int    // lines of the slog level -Verbosity and above are logged
	LogFormat     string // auto, text or json

	// Flags are all flags that matter while podcount runs, sorted by name, for /flagz. None holds a secret: they name
	// files that do, and kubeconfig.Load refuses a -master with a password.
	Flags []page.Flag

	own map[string]any // pointers to the values of the flags that NewFlag registers, by name
}

// Program describes the program whose flags Parse reads.
type Program struct{ Controllers []Controller }

// Controller describes a controller that -controllers can switch on and off.
type Controller struct {
	Name  string
	About string // one line for -controllers help
	Off   bool   // the controller is off unless -controllers names it

	// Rights are the rights that the controller needs in a cluster. They are empty for the built-in controllers, whose
	// rights depend on other flags, too: the package deploy knows them.
	Rights []deploy.Right
}

// UsageError reports that the flags, a selector in them, or the kubeconfig cannot be used. The program exits with code
// 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// IsOn reports whether the controller of this name is on.
func (o *Options) IsOn(name string) bool { return slices.Contains(o.Controllers, name) }

// OnceFlag returns the flag that makes podcount run once, for error messages: -prune or -once.
func (o *Options) OnceFlag() string {
	if o.Prune {
		return "-prune"
	}
	return "-once"
}

// ErrStoppedEarly returns the error of -once if podcount is stopped before all was done. Without -once it returns nil.
func (o *Options) ErrStoppedEarly() error {
	if !o.Once {
		return nil
	}
	return fmt.Errorf("%s: stopped before all was done", o.OnceFlag())
}

// StuckAfter returns how long a reconcile may take before its worker counts as stuck: one wait for -qps, and two
// requests.
func (o *Options) StuckAfter() time.Duration {
	seconds := min(float64(o.Workers)/o.QPS, 1e6) // with a small QPS, the duration would overflow
	return time.Duration(seconds*float64(time.Second)) + 2*kube.RequestTimeout
}

// ErrPrinted means that the flags only asked for output, and that it was printed. There is nothing to run.
var ErrPrinted = errors.New("the output that the flags asked for was printed")

// Parse reads the command line. If a flag such as -h, -version or -manifest asks only for output, Parse prints that to
// stdout, and returns ErrPrinted. If a flag cannot be used, the error is a UsageError of one line. Any other error
// comes from writing to stdout.
func Parse(args []string, stdout io.Writer, program Program) (*Options, error) {
	c := newCommandLine(program)
	err := c.flags.Parse(args)
	words := strings.Join(c.flags.Args(), " ")
	var show func(io.Writer) error // prints what the flags ask for, if they only ask for output
	switch {
	case errors.Is(err, flag.ErrHelp):
		show, err = printText(c.help()), nil
	case err != nil: // It is returned below.
	case words != "":
		show, err = c.showWords(words)
	case c.showsVersion:
		show = printText(process.Describe())
	case c.showsSource:
		show = printSource
	case c.controllerList == "help":
		show = printText(c.listOfControllers())
	case c.manifestParts != "":
		show = c.printManifest
	default:
		err = c.check()
	}
	if err != nil {
		return nil, usageError(err)
	}
	if show != nil {
		return nil, cmp.Or(show(stdout), ErrPrinted)
	}
	c.Flags = c.flagValues()
	return c.Options, nil
}

// flagValues returns the values for Options.Flags.
func (c *commandLine) flagValues() (values []page.Flag) {
	c.flags.VisitAll(func(f *flag.Flag) {
		if !isOfManifest(f.Name) && f.Name != "version" && f.Name != "source" {
			values = append(values, page.Flag{Name: f.Name, Value: f.Value.String()})
		}
	})
	return values
}

func usageError(err error) error {
	return UsageError{fmt.Errorf("%w (podcount -h lists the flags)", err)}
}

// printText returns a function that prints a text.
func printText(text string) func(io.Writer) error {
	return func(stdout io.Writer) error {
		_, err := io.WriteString(stdout, text)
		return err
	}
}

// printSource writes the source as a tar, which nobody wants to see on a terminal.
func printSource(stdout io.Writer) error {
	if logging.IsTerminal(stdout) {
		return usageError(errors.New("-source writes a tar: redirect it, as in podcount -source >podcount.tar"))
	}
	return process.WriteSource(stdout)
}

// listOfControllers returns a line about each controller.
func (c *commandLine) listOfControllers() string {
	var lines strings.Builder
	for _, controller := range c.program.Controllers {
		state := "on"
		if controller.Off {
			state = "off"
		}
		fmt.Fprintf(&lines, "%-12s %-4s %s\n", controller.Name, state, controller.About)
	}
	return lines.String()
}
