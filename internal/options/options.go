// Package options reads podcount's command line: the flags, their help and checks, and the manifest that -manifest
// makes of them.
package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"time"

	"podcount/internal/logging"
)

// Options are the flags of one run, after Parse has checked them. The zero value, for tests, has no defaults.
type Options struct {
	// The API server.
	Kubeconfig string // the path of a kubeconfig, or "" to look in the usual places
	Context    string // the context of the kubeconfig, or "" for its current one
	Master     string // the URL of the API server, or "" for the kubeconfig's
	Wire       string // the form to ask for first: protobuf or json

	// What is counted.
	Controllers   []string // the names of the controllers that are on
	Namespace     string   // the only namespace to read pods and Counts from, or "" for all
	PodSelector   string   // a label selector, or ""
	FieldSelector string   // a field selector, or ""

	// What is written.
	TotalLabel string        // the label for the number of all pods
	TotalNodes NodeChoice    // the nodes that get it
	NodeLabel  string        // the label for the number of a node's own pods, or ""
	PodEvents  bool          // post an Event on each new pod
	Interval   time.Duration // between two checks of every node, and at least between two writes to one
	QPS        float64       // writes a second, for each controller
	Burst      int           // writes at once, before QPS limits them
	Workers    int           // of each controller

	// One run, or a rehearsal.
	Once        bool          // exit when all is written; -prune sets it, too
	OnceTimeout time.Duration // at most, for Once
	DryRun      bool          // write nothing
	Prune       bool          // remove the labels

	// The election.
	LeaderElect    bool
	LeaseName      string
	LeaseNamespace string // or "" for the pod's own
	LeaseDuration  time.Duration
	RenewDeadline  time.Duration
	RetryPeriod    time.Duration

	// What podcount shows.
	Listen    string        // the address to serve HTTP at, or ""
	Verbosity int           // 0, 2, 4 or 6
	LogFormat string        // auto, text or json
	LogStyle  logging.Style // what LogFormat comes to, once it is known where the log goes; Parse leaves it alone

	// The text of flags that have become something else when Parse returns.
	controllers string
	totalNodes  string
	podEvents   string
	manifest    string // the parts to print, joined by commas
	image       string
	home        string // the namespace of the manifest
	version     bool

	program Program
}

// Program is what Parse must know of the program whose flags it reads.
type Program struct {
	Version     string
	Controllers []Controller
	PodFields   []string // those that a field selector may name
}

// Controller is what Parse must know of a controller.
type Controller struct {
	Name  string
	About string // what it does, for -controllers=help
	Off   bool   // unless -controllers names it
}

// UsageError is a mistake in what podcount was told: exit code 2.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

func (e UsageError) Unwrap() error { return e.Err }

// Parse reads the command line. Its errors are UsageErrors of one line. It returns nil if all that was wanted is
// printed.
func Parse(args []string, stdout io.Writer, program Program) (*Options, error) {
	o, fs, help := newFlags()
	o.program = program
	err := fs.Parse(args)
	if err == nil && o.manifest != "" {
		err = fs.Parse(append(o.manifestDefaults(), args...))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		_, err = io.WriteString(stdout, help)
		return nil, err
	case err == nil && o.version:
		fmt.Fprintln(stdout, "podcount", program.Version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH)
		return nil, nil
	case err == nil && o.controllers == "help":
		for _, c := range program.Controllers {
			isOn := "on"
			if c.Off {
				isOn = "off"
			}
			fmt.Fprintf(stdout, "%-12s %-4s %s\n", c.Name, isOn, c.About)
		}
		return nil, nil
	case err == nil:
		err = o.check(fs.Args())
	}
	manifest := ""
	if err == nil && o.manifest != "" {
		manifest, err = o.makeManifest(fs)
	}
	if err != nil {
		return nil, UsageError{fmt.Errorf("%w (podcount -h lists the flags)", err)}
	}
	if o.manifest != "" {
		_, err := io.WriteString(stdout, manifest)
		return nil, err
	}
	return o, nil
}

// IsOn reports whether the controller of this name is on.
func (o *Options) IsOn(name string) bool { return slices.Contains(o.Controllers, name) }

// isSwitchedOn reports whether -controllers switches c on: by the first word that names it, else by "*".
func (o *Options) isSwitchedOn(c Controller) bool {
	words := strings.Split(o.controllers, ",")
	if i := slices.IndexFunc(words, func(word string) bool { return strings.TrimPrefix(word, "-") == c.Name }); i >= 0 {
		return words[i] == c.Name
	}
	return slices.Contains(words, "*") && !c.Off
}
