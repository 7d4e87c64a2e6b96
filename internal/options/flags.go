package options

import (
	"flag"
	"io"
	"strings"
	"time"
)

// defaultOnceTimeout is the default of -once-timeout, which may only be changed together with -once or -prune.
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

	// Flags that are no option of a running podcount.
	controllerList    string // the value of -controllers, from which Options.Controllers follows
	manifestParts     string // the parts of the manifest to print, joined by commas; "" prints none
	manifestNamespace string // the namespace of podcount in the manifest
	image             string // the image of podcount in the manifest
	showsVersion      bool
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
	c.section("Where the cluster is")
	c.text(&c.Kubeconfig, "kubeconfig", "FILE",
		"read this kubeconfig (default: $KUBECONFIG, else the pod's service account, else ~/.kube/config)")
	c.text(&c.Context, "context", "NAME",
		"use this context of the kubeconfig (default: its current context)")
	c.text(&c.Master, "master", "URL",
		"connect to the API server at this address, instead of the one found")
	c.text(&c.Wire, "wire", "FORMAT",
		"request pods and nodes in this format: protobuf or json")

	c.section("What is counted")
	c.text(&c.controllerList, "controllers", "LIST",
		"run these controllers: names, joined by commas; * stands for all that are on by default, "+
			"-NAME leaves one out; help lists them")
	c.text(&c.Namespace, "namespace", "NAME",
		"read only the pods and Counts of this namespace (default: of all)")
	c.text(&c.PodSelector, "pod-selector", "SELECTOR",
		"count only pods with these labels, as with kubectl -l (default: all)")
	c.text(&c.FieldSelector, "field-selector", "SELECTOR",
		"count only pods with these fields, as with kubectl --field-selector (default: all)")
}

// defineWriting defines the flags about what is written, how often, and whether at all.
func (c *commandLine) defineWriting() {
	c.section("What is written")
	c.text(&c.TotalLabel, "total-label", "KEY",
		"write the number of all pods to this label")
	c.value(&c.TotalNodes, "total-nodes", "SELECTOR",
		"write it to these nodes: k, !k, k=v, k!=v, k in (a,b), k notin (a,b), k>1, k<1, joined by commas; "+
			"'' is every node (default: nodes with the label node-role.kubernetes.io/control-plane "+
			"or node-role.kubernetes.io/master)")
	c.text(&c.NodeLabel, "node-label", "KEY",
		"label each node with the number of its own pods (default: no such label)")
	c.value((*onOff)(&c.PodEvents), "pod-events", "on|off",
		"post an Event on each new pod: one more write per pod")
	c.duration(&c.Interval, "interval", "DURATION",
		"check every node this often, and write to it no more often")
	c.float(&c.QPS, "qps", "N",
		"write at most N labels or statuses a second, per controller")
	c.integer(&c.Burst, "burst", "N",
		"write up to N of them at once before -qps sets the pace")
	c.integer(&c.Workers, "workers", "N",
		"work on N objects at a time, per controller")

	c.section("Once, or not at all")
	c.boolean(&c.Once, "once",
		"list, write what is wrong, and exit: with code 1 if a write failed")
	c.duration(&c.OnceTimeout, "once-timeout", "DURATION",
		"end -once or -prune after this time, with code 1 and the names of the objects that are left")
	c.boolean(&c.DryRun, "dry-run",
		"log what would be written, and write nothing: no Event and no Lease")
	c.boolean(&c.Prune, "prune",
		"remove the labels of -total-label and -node-label from all nodes, and exit")
}

// defineElection defines the flags about several replicas.
func (c *commandLine) defineElection() {
	c.section("Several replicas")
	c.boolean(&c.LeaderElect, "leader-elect",
		"work only while leading; the replicas with the same Lease elect one leader")
	c.duration(&c.LeaseDuration, "leader-elect-lease-duration", "DURATION",
		"take over when the leader has not renewed the Lease for this long")
	c.duration(&c.RenewDeadline, "leader-elect-renew-deadline", "DURATION",
		"as the leader, stop writing and exit when the Lease could not be renewed for this long")
	c.duration(&c.RetryPeriod, "leader-elect-retry-period", "DURATION",
		"try to get or renew the Lease this often")
	c.text(&c.LeaseName, "leader-elect-resource-name", "NAME",
		"the name of the Lease")
	c.text(&c.LeaseNamespace, "leader-elect-resource-namespace", "NAME",
		"the namespace of the Lease (default: that of podcount's pod, else kube-system)")
}

// defineOperation defines the flags about logs, HTTP and installation.
func (c *commandLine) defineOperation() {
	c.section("Watching it")
	c.text(&c.Listen, "listen", "[HOST]:PORT",
		"serve /livez, /readyz, /healthz, /metrics and /debug/state over HTTP; / lists them (default: do not listen)")
	c.integer(&c.Verbosity, "v", "N",
		"log more: 2 adds the start and end of each watch, and the Events that a dry run would post; "+
			"4 adds each watch event and queue step; 6 adds each request")
	c.text(&c.LogFormat, "log-format", "FORMAT",
		"log to stderr as text (logfmt), json, or auto: short lines on a terminal, and text elsewhere")
	c.boolean(&c.showsVersion, "version", "print the version, and exit")
	c.list("-h", "print this help, and exit")

	c.section("Installing it")
	c.flags.BoolFunc("manifest", "", c.setManifest)
	c.list("-manifest[=PARTS]",
		"print the YAML that runs podcount in a cluster with the other flags given, for kubectl apply -f -; "+
			"PARTS, joined by commas, are some of podcount, policy, network-policy, count-crd, count-sample, "+
			"and alerts, a PrometheusRule (default podcount,policy); "+
			"with -once a CronJob takes the place of the Deployment")
	c.text(&c.image, "image", "IMAGE", "the container image in the manifest")
	c.text(&c.manifestNamespace, "manifest-namespace", "NAME", "the namespace in which the manifest puts podcount")
}

// setManifest takes the value of -manifest, which is "true" if none is given.
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

// section begins a group of flags in the help.
func (c *commandLine) section(title string) {
	c.sections = append(c.sections, helpSection{title: title})
}

// list adds a flag to the last section of the help.
func (c *commandLine) list(usage, about string) {
	last := &c.sections[len(c.sections)-1]
	last.flags = append(last.flags, helpFlag{usage, about})
}

// The functions below define a flag. What target holds is the flag's default, which the help shows unless it is "".

func (c *commandLine) text(target *string, name, argument, about string) {
	c.flags.StringVar(target, name, *target, about)
	c.listWithDefault(name, argument, about)
}

func (c *commandLine) integer(target *int, name, argument, about string) {
	c.flags.IntVar(target, name, *target, about)
	c.listWithDefault(name, argument, about)
}

func (c *commandLine) float(target *float64, name, argument, about string) {
	c.flags.Float64Var(target, name, *target, about)
	c.listWithDefault(name, argument, about)
}

func (c *commandLine) duration(target *time.Duration, name, argument, about string) {
	c.value((*duration)(target), name, argument, about)
}

func (c *commandLine) value(target flag.Value, name, argument, about string) {
	c.flags.Var(target, name, about)
	c.listWithDefault(name, argument, about)
}

func (c *commandLine) boolean(target *bool, name, about string) {
	c.flags.BoolVar(target, name, *target, about)
	c.list("-"+name, about)
}

func (c *commandLine) listWithDefault(name, argument, about string) {
	byDefault := c.flags.Lookup(name).DefValue
	if byDefault != "" {
		about += " (default " + strings.Replace(byDefault, "m0s", "m", 1) + ")"
	}
	c.list("-"+name+" "+argument, about)
}
