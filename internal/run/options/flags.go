package options

import (
	"errors"
	"flag"
	"io"
	"strings"
	"time"

	"podcount/deploy"
)

// commandLine holds the flags while Parse reads them.
type commandLine struct {
	*Options
	program Program

	flags    *flag.FlagSet
	sections []helpSection // all flags, in the order of the help

	// Flags without a field in Options.
	controllerList    string // the value of -controllers, from which chooseControllers sets Options.Controllers
	manifestParts     string // the parts of the manifest to print, joined by commas; "" prints none
	manifestNamespace string // the namespace of podcount in the manifest
	image             string // the image of podcount in the manifest
	showsVersion      bool
	showsSource       bool

	pods deploy.Pods // the pods in the manifest
}

// newCommandLine defines all flags, and sets what they are by default.
func newCommandLine(program Program) *commandLine {
	c := &commandLine{
		Options: &Options{
			Wire:          "protobuf",
			TotalLabel:    "hopegi/pod-count",
			TotalNodes:    controlPlaneNodes(),
			PodEvents:     true,
			Interval:      10 * time.Second,
			QPS:           20,
			Burst:         40,
			Workers:       4,
			OnceTimeout:   10 * time.Minute,
			LeaseName:     "podcount",
			LeaseDuration: 15 * time.Second,
			RenewDeadline: 10 * time.Second,
			RetryPeriod:   2 * time.Second,
			LogFormat:     "auto",
			own:           map[string]any{},
		},
		program:           program,
		flags:             flag.NewFlagSet("podcount", flag.ContinueOnError),
		controllerList:    "*",
		manifestNamespace: "kube-system",
		image:             "podcount:latest",
		pods:              deploy.DefaultPods(),
	}
	c.flags.SetOutput(io.Discard)
	c.defineBuiltIn()
	c.defineOwn()
	return c
}

// defineBuiltIn defines podcount's own flags, in the order of the help.
func (c *commandLine) defineBuiltIn() {
	c.beginSection("Where the cluster is")
	c.define(&c.Kubeconfig, "kubeconfig", "FILE",
		"read this kubeconfig (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)")
	c.define(&c.Context, "context", "NAME",
		"use this context of the kubeconfig (default: its current context)")
	c.define(&c.Master, "master", "URL",
		"connect to the API server at this address, instead of the one found")
	c.define(&c.Wire, "wire", "protobuf|json",
		"request pods and nodes in this format")

	c.beginSection("What is counted")
	c.define(&c.controllerList, "controllers", "LIST",
		"run these controllers: names, joined by commas; * means all that are on by default, "+
			"-NAME leaves one out; `-controllers help` lists them")
	c.define(&c.Namespace, "namespace", "NAME",
		"read only the pods and Counts of this namespace (default: all namespaces)")
	c.define(&c.PodSelector, "pod-selector", "SELECTOR",
		"count only pods with these labels, as with kubectl -l (default: all)")
	c.define(&c.FieldSelector, "field-selector", "SELECTOR",
		"count only pods with these fields, as with kubectl --field-selector (default: all)")

	c.beginSection("What is written")
	c.define(&c.TotalLabel, "total-label", "KEY",
		"write the number of all pods to this label")
	c.define(&c.TotalNodes, "total-nodes", "SELECTOR",
		"write the number of all pods to these nodes: k, !k, k=v, k!=v, k in (a,b), k notin (a,b), k>1, k<1, "+
			"joined by commas; '' is every node (default: nodes with the label node-role.kubernetes.io/control-plane "+
			"or node-role.kubernetes.io/master)")
	c.define(&c.NodeLabel, "node-label", "KEY",
		"label each node with the number of its own pods (default: no such label)")
	c.define((*onOff)(&c.PodEvents), "pod-events", "on|off",
		"post an Event on each new pod: one more write per pod")
	c.define(&c.Interval, "interval", "DURATION",
		"check every node at this interval, and write to each at most once per interval "+
			"(to a Count at most once per second or per interval, whichever is shorter)")
	c.define(&c.QPS, "qps", "N",
		"send at most N patches of nodes or Counts a second, per controller")
	c.define(&c.Burst, "burst", "N",
		"send up to N patches at once before -qps limits them")
	c.define(&c.Workers, "workers", "N",
		"work on N objects at a time, per controller")

	c.beginSection("One run, or a dry run")
	c.define(&c.Once, "once", "",
		"list, correct what is wrong, and exit; the code is 1 if that could not be completed")
	c.define(&c.OnceTimeout, "once-timeout", "DURATION",
		"end -once or -prune after this time, with code 1 and the names of the objects that are left")
	c.define(&c.DryRun, "dry-run", "",
		"log what would be written, and write nothing: no Event and no Lease")
	c.define(&c.Prune, "prune", "",
		"remove the labels of -total-label and -node-label from all nodes, and exit")

	c.beginSection("Several replicas")
	c.define(&c.LeaderElect, "leader-elect", "",
		"work only while leading; the replicas with the same Lease elect one leader")
	c.define(&c.LeaseDuration, "leader-elect-lease-duration", "DURATION",
		"take over when the leader has not renewed the Lease for this long")
	c.define(&c.RenewDeadline, "leader-elect-renew-deadline", "DURATION",
		"as the leader, stop writing and exit when the Lease could not be renewed for this long")
	c.define(&c.RetryPeriod, "leader-elect-retry-period", "DURATION",
		"try to acquire or renew the Lease this often")
	c.define(&c.LeaseName, "leader-elect-resource-name", "NAME",
		"the name of the Lease")
	c.define(&c.LeaseNamespace, "leader-elect-resource-namespace", "NAME",
		"the namespace of the Lease (default: that of podcount's pod, else kube-system)")

	c.beginSection("Monitoring")
	c.define(&c.Listen, "listen", "[HOST]:PORT",
		"serve /livez, /readyz, /healthz and /metrics over HTTP; / lists them (default: do not listen)")
	c.define(&c.Page, "page", "HOST:PORT",
		"serve a web page that shows what podcount knows and does, /debug/state, /statusz and /flagz; "+
			"a HOST other than this machine needs -page-token-file (default: no page)")
	c.define(&c.PageTokenFile, "page-token-file", "FILE",
		"show the page only to those who have the token in this file, as the password of any user (default: no token)")
	c.define(&c.Verbosity, "v", "N",
		"log more: 2 adds the start and end of each watch, and the Events that a dry run would post; "+
			"4 adds each watch event and queue step; 6 adds each request")
	c.define(&c.LogFormat, "log-format", "auto|text|json",
		"log to stderr in this format; text is logfmt, and auto is short lines on a terminal, and text elsewhere")
	c.define(&c.showsVersion, "version", "", "print the version, the commit, Go's version and the FIPS mode, and exit")
	c.define(&c.showsSource, "source", "", "write the source of this podcount to stdout, as a tar, and exit")
	c.addToHelp("-h", "print this help, and exit")

	c.beginSection("Installing")
	c.flags.BoolFunc("manifest", "", c.setManifest)
	c.addToHelp("-manifest[=PARTS]",
		"print the YAML that runs podcount in a cluster with the other flags given, for kubectl apply -f -; "+
			"PARTS, joined by commas, are some of podcount, policy, network-policy, count-crd, count-sample, "+
			"alerts, a PrometheusRule, and pod-monitor, a PodMonitor (default podcount,policy); "+
			"with -once a CronJob takes the place of the Deployment")
	c.define(&c.image, "image", "IMAGE", "the container image in the manifest")
	c.define(&c.pods.PullSecrets, "image-pull-secrets", "NAMES",
		"the Secrets in the manifest, joined by commas, with which nodes pull the image (default: none)")
	c.define(&c.manifestNamespace, "manifest-namespace", "NAME", "the namespace in which the manifest puts podcount")
	c.define(&c.pods.NodeSelector, "manifest-node-selector", "LABELS",
		"put the pods of the manifest only on nodes with these labels: KEY=VALUE, joined by commas (default: all nodes)")
	c.define(&c.pods.Requests, "manifest-requests", "RESOURCES",
		"what each pod of the manifest requests: cpu=N, memory=N or both, joined by a comma")
	c.define(&c.pods.Limits, "manifest-limits", "RESOURCES",
		"what each pod of the manifest may use; GOMEMLIMIT is nine tenths of the memory")
}

// setManifest sets manifestParts. Without a value, package flag passes "true", and the parts are the default ones.
func (c *commandLine) setManifest(parts string) error {
	if parts == "" || parts == "true" {
		parts = "podcount,policy"
	}
	c.manifestParts = parts
	return nil
}

// beginSection begins a group of flags in the help.
func (c *commandLine) beginSection(title string) {
	c.sections = append(c.sections, helpSection{title: title})
}

// addToHelp adds a flag to the last section of the help.
func (c *commandLine) addToHelp(usage, about string) {
	last := &c.sections[len(c.sections)-1]
	last.flags = append(last.flags, helpFlag{usage, about})
}

// define defines a flag whose value is stored in target. The value that target has before is the default. A bool has no
// argument. The help shows the default unless it is "" or false, or the flag's description has it.
func (c *commandLine) define(target any, name, argument, about string) {
	switch target := target.(type) {
	case *bool:
		c.flags.BoolVar(target, name, *target, about)
	case *int:
		c.flags.IntVar(target, name, *target, about)
	case *float64:
		c.flags.Float64Var(target, name, *target, about)
	case *string:
		c.flags.StringVar(target, name, *target, about)
	case *time.Duration:
		c.flags.Var((*duration)(target), name, about)
	case flag.Value:
		c.flags.Var(target, name, about)
	}
	byDefault := c.flags.Lookup(name).DefValue
	isShown := byDefault != "" && byDefault != "false" && !strings.Contains(about, "(default:")
	if isShown {
		about += " (default " + strings.Replace(byDefault, "m0s", "m", 1) + ")"
	}
	c.addToHelp(strings.TrimSpace("-"+name+" "+argument), about)
}

// duration is the value of a flag. Unlike that of package flag, its error says what is wrong, such as a missing unit.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	*d = duration(parsed)
	return err
}

// onOff is the value of a flag that is on or off.
type onOff bool

func (v *onOff) String() string {
	if *v {
		return "on"
	}
	return "off"
}

func (v *onOff) Set(text string) error {
	if text != "on" && text != "off" {
		return errors.New("use on or off")
	}
	*v = text == "on"
	return nil
}
