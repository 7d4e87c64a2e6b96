package options

import (
	"flag"
	"io"
	"strings"
	"time"

	"podcount/deploy"
)

// defaultOnceTimeout is the default of -once-timeout.
const defaultOnceTimeout = 10 * time.Minute

// defaults returns the options without any flag.
func defaults() *Options {
	return &Options{
		Wire:          "protobuf",
		TotalLabel:    "hopegi/pod-count",
		TotalNodes:    controlPlaneNodes(),
		PodEvents:     true,
		Interval:      10 * time.Second,
		QPS:           20,
		Burst:         40,
		Workers:       4,
		OnceTimeout:   defaultOnceTimeout,
		LeaseName:     "podcount",
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		LogFormat:     "auto",
		own:           map[string]any{},
	}
}

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

// newCommandLine defines all flags.
func newCommandLine(program Program) *commandLine {
	c := &commandLine{
		Options:           defaults(),
		program:           program,
		flags:             flag.NewFlagSet("podcount", flag.ContinueOnError),
		controllerList:    "*",
		manifestNamespace: "kube-system",
		image:             "podcount:latest",
		pods:              deploy.DefaultPods(),
	}
	c.flags.SetOutput(io.Discard)
	c.defineReading()
	c.defineWriting()
	c.defineElection()
	c.defineOperation()
	c.defineOwn()
	return c
}

// defineReading defines the flags about the cluster, and what is read from it.
func (c *commandLine) defineReading() {
	c.beginSection("Where the cluster is")
	c.stringFlag(&c.Kubeconfig, "kubeconfig", "FILE",
		"read this kubeconfig (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)")
	c.stringFlag(&c.Context, "context", "NAME",
		"use this context of the kubeconfig (default: its current context)")
	c.stringFlag(&c.Master, "master", "URL",
		"connect to the API server at this address, instead of the one found")
	c.stringFlag(&c.Wire, "wire", "protobuf|json",
		"request pods and nodes in this format")

	c.beginSection("What is counted")
	c.stringFlag(&c.controllerList, "controllers", "LIST",
		"run these controllers: names, joined by commas; * means all that are on by default, "+
			"-NAME leaves one out; `-controllers help` lists them")
	c.stringFlag(&c.Namespace, "namespace", "NAME",
		"read only the pods and Counts of this namespace (default: all namespaces)")
	c.stringFlag(&c.PodSelector, "pod-selector", "SELECTOR",
		"count only pods with these labels, as with kubectl -l (default: all)")
	c.stringFlag(&c.FieldSelector, "field-selector", "SELECTOR",
		"count only pods with these fields, as with kubectl --field-selector (default: all)")
}

// defineWriting defines the flags about what is written, how often, and whether at all.
func (c *commandLine) defineWriting() {
	c.beginSection("What is written")
	c.stringFlag(&c.TotalLabel, "total-label", "KEY",
		"write the number of all pods to this label")
	c.customFlag(&c.TotalNodes, "total-nodes", "SELECTOR",
		"write the number of all pods to these nodes: k, !k, k=v, k!=v, k in (a,b), k notin (a,b), k>1, k<1, "+
			"joined by commas; '' is every node (default: nodes with the label node-role.kubernetes.io/control-plane "+
			"or node-role.kubernetes.io/master)")
	c.stringFlag(&c.NodeLabel, "node-label", "KEY",
		"label each node with the number of its own pods (default: no such label)")
	c.customFlag((*onOff)(&c.PodEvents), "pod-events", "on|off",
		"post an Event on each new pod: one more write per pod")
	c.durationFlag(&c.Interval, "interval", "DURATION",
		"check every node at this interval, and write to each at most once per interval "+
			"(to a Count at most once per second or per interval, whichever is shorter)")
	c.floatFlag(&c.QPS, "qps", "N",
		"send at most N patches of nodes or Counts a second, per controller")
	c.intFlag(&c.Burst, "burst", "N",
		"send up to N patches at once before -qps limits them")
	c.intFlag(&c.Workers, "workers", "N",
		"work on N objects at a time, per controller")

	c.beginSection("One run, or a dry run")
	c.boolFlag(&c.Once, "once",
		"list, correct what is wrong, and exit; the code is 1 if that could not be completed")
	c.durationFlag(&c.OnceTimeout, "once-timeout", "DURATION",
		"end -once or -prune after this time, with code 1 and the names of the objects that are left")
	c.boolFlag(&c.DryRun, "dry-run",
		"log what would be written, and write nothing: no Event and no Lease")
	c.boolFlag(&c.Prune, "prune",
		"remove the labels of -total-label and -node-label from all nodes, and exit")
}

// defineElection defines the flags about several replicas.
func (c *commandLine) defineElection() {
	c.beginSection("Several replicas")
	c.boolFlag(&c.LeaderElect, "leader-elect",
		"work only while leading; the replicas with the same Lease elect one leader")
	c.durationFlag(&c.LeaseDuration, "leader-elect-lease-duration", "DURATION",
		"take over when the leader has not renewed the Lease for this long")
	c.durationFlag(&c.RenewDeadline, "leader-elect-renew-deadline", "DURATION",
		"as the leader, stop writing and exit when the Lease could not be renewed for this long")
	c.durationFlag(&c.RetryPeriod, "leader-elect-retry-period", "DURATION",
		"try to acquire or renew the Lease this often")
	c.stringFlag(&c.LeaseName, "leader-elect-resource-name", "NAME",
		"the name of the Lease")
	c.stringFlag(&c.LeaseNamespace, "leader-elect-resource-namespace", "NAME",
		"the namespace of the Lease (default: that of podcount's pod, else kube-system)")
}

// defineOperation defines the flags about logs, HTTP and installation.
func (c *commandLine) defineOperation() {
	c.beginSection("Monitoring")
	c.stringFlag(&c.Listen, "listen", "[HOST]:PORT",
		"serve /livez, /readyz, /healthz and /metrics over HTTP; / lists them (default: do not listen)")
	c.stringFlag(&c.Page, "page", "HOST:PORT",
		"serve a web page that shows what podcount knows and does, /debug/state, /statusz and /flagz; "+
			"a HOST other than this machine needs -page-token-file (default: no page)")
	c.stringFlag(&c.PageTokenFile, "page-token-file", "FILE",
		"show the page only to those who have the token in this file, as the password of any user (default: no token)")
	c.intFlag(&c.Verbosity, "v", "N",
		"log more: 2 adds the start and end of each watch, and the Events that a dry run would post; "+
			"4 adds each watch event and queue step; 6 adds each request")
	c.stringFlag(&c.LogFormat, "log-format", "auto|text|json",
		"log to stderr in this format; text is logfmt, and auto is short lines on a terminal, and text elsewhere")
	c.boolFlag(&c.showsVersion, "version", "print the version, the commit, Go's version and the FIPS mode, and exit")
	c.boolFlag(&c.showsSource, "source", "write the source of this podcount to stdout, as a tar, and exit")
	c.addToHelp("-h", "print this help, and exit")

	c.beginSection("Installing")
	c.flags.BoolFunc("manifest", "", c.setManifest)
	c.addToHelp("-manifest[=PARTS]",
		"print the YAML that runs podcount in a cluster with the other flags given, for kubectl apply -f -; "+
			"PARTS, joined by commas, are some of podcount, policy, network-policy, count-crd, count-sample, "+
			"alerts, a PrometheusRule, and pod-monitor, a PodMonitor (default podcount,policy); "+
			"with -once a CronJob takes the place of the Deployment")
	c.stringFlag(&c.image, "image", "IMAGE", "the container image in the manifest")
	c.customFlag(&c.pods.PullSecrets, "image-pull-secrets", "NAMES",
		"the Secrets in the manifest, joined by commas, with which nodes pull the image (default: none)")
	c.stringFlag(&c.manifestNamespace, "manifest-namespace", "NAME", "the namespace in which the manifest puts podcount")
	c.customFlag(&c.pods.NodeSelector, "manifest-node-selector", "LABELS",
		"put the pods of the manifest only on nodes with these labels: KEY=VALUE, joined by commas (default: all nodes)")
	c.customFlag(&c.pods.Requests, "manifest-requests", "RESOURCES",
		"what each pod of the manifest requests: cpu=N, memory=N or both, joined by a comma")
	c.customFlag(&c.pods.Limits, "manifest-limits", "RESOURCES",
		"what each pod of the manifest may use; GOMEMLIMIT is nine tenths of the memory")
}

// setManifest sets manifestParts. Without a value, package flag passes "true", and the parts are the default ones.
func (c *commandLine) setManifest(parts string) error {
	switch parts {
	case "", "true":
		c.manifestParts = "podcount,policy"
	case "false":
		c.manifestParts = ""
	default:
		c.manifestParts = parts
	}
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

// The methods below define a flag whose value is stored in target. The value that target has before is the default. The
// help shows the default unless it is "".

func (c *commandLine) stringFlag(target *string, name, argument, about string) {
	c.flags.StringVar(target, name, *target, about)
	c.addToHelpWithDefault(name, argument, about)
}

func (c *commandLine) intFlag(target *int, name, argument, about string) {
	c.customFlag((*wholeNumber)(target), name, argument, about)
}

func (c *commandLine) floatFlag(target *float64, name, argument, about string) {
	c.customFlag((*number)(target), name, argument, about)
}

func (c *commandLine) durationFlag(target *time.Duration, name, argument, about string) {
	c.customFlag((*duration)(target), name, argument, about)
}

func (c *commandLine) customFlag(target flag.Value, name, argument, about string) {
	c.flags.Var(target, name, about)
	c.addToHelpWithDefault(name, argument, about)
}

func (c *commandLine) boolFlag(target *bool, name, about string) {
	c.flags.BoolVar(target, name, *target, about)
	c.addToHelp("-"+name, about)
}

func (c *commandLine) addToHelpWithDefault(name, argument, about string) {
	byDefault := c.flags.Lookup(name).DefValue
	if byDefault != "" {
		about += " (default " + strings.Replace(byDefault, "m0s", "m", 1) + ")"
	}
	c.addToHelp("-"+name+" "+argument, about)
}
