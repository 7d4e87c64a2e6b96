package options

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"podcount/internal/labels"
)

const defaultOnceTimeout = 10 * time.Minute

// duration is a flag's value, whose error says what is missing.
type duration time.Duration

func (d *duration) String() string { return time.Duration(*d).String() }

func (d *duration) Set(text string) error {
	parsed, err := time.ParseDuration(text)
	isNumber := text != "" && strings.Trim(text, "0123456789") == ""
	if err != nil && isNumber {
		return fmt.Errorf("it has no unit: write %ss for seconds, %[1]sm for minutes", text)
	}
	if err != nil {
		return errors.New("write a number and its unit, as in 500ms, 10s or 5m")
	}
	*d = duration(parsed)
	return nil
}

// helpText is what -h prints. It grows with each flag that is defined. README.md shows the same: a test compares them.
type helpText struct{ strings.Builder }

// helpNameWidth is how wide a flag and its argument are in the help, with the blanks after them.
const helpNameWidth = 20

const helpBeginning = `podcount counts pods and writes the counts to labels of nodes.

  laptop    podcount -dry-run -once                says what it would write to the cluster of
                                                   kubectl's current context, and writes nothing
  cluster   podcount -leader-elect -listen :8080   in each of several replicas (see -manifest)
  CronJob   podcount -once                         list, write, exit (see -manifest)
`

const helpEnd = `
Exit codes: 0 stopped on request, or done; 1 failed; 2 wrong usage.
`

// section begins a group of flags.
func (h *helpText) section(title string) {
	h.WriteString("\n" + title + "\n")
}

// flag adds a flag with its argument, and what it is for, one line below the other. A flag that is wider than
// helpNameWidth brings the blanks after it along. flag returns what the flag is for.
func (h *helpText) flag(name, about string) string {
	name = fmt.Sprintf("  %-*s", helpNameWidth, name)
	indent := strings.Repeat(" ", len(name))
	h.WriteString(name + strings.ReplaceAll(about, "\n", "\n"+indent) + "\n")
	return about
}

// newFlags defines the flags, which set options when they are parsed, and returns what -h prints about them. The
// options have the flags' defaults.
func newFlags() (o *Options, fs *flag.FlagSet, help string) {
	o = &Options{
		TotalNodes: NodeChoice{labels.HasKey(controlPlane), labels.HasKey(oldControlPlane)}, // what eitherRole says
	}
	fs = flag.NewFlagSet("podcount", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	durationVar := func(d *time.Duration, name string, byDefault time.Duration, about string) {
		*d = byDefault
		fs.Var((*duration)(d), name, about)
	}
	h := new(helpText)
	h.WriteString(helpBeginning)

	h.section("Where the cluster is")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", h.flag("-kubeconfig FILE",
		"else $KUBECONFIG, the pod's own service account, ~/.kube/config"))
	fs.StringVar(&o.Context, "context", "", h.flag("-context NAME",
		"of the kubeconfig; else its current-context"))
	fs.StringVar(&o.Master, "master", "", h.flag("-master URL",
		"the API server's address, in place of the one found"))
	fs.StringVar(&o.Wire, "wire", "protobuf", h.flag("-wire FORM",
		"protobuf or json: how pods and nodes are asked for first (default protobuf)"))

	h.section("What is counted")
	fs.StringVar(&o.controllers, "controllers", "*", h.flag("-controllers LIST",
		"what to do: names, joined by commas; * stands for all that are on by default,\n"+
			"-NAME leaves one out; help lists them (default *)"))
	fs.StringVar(&o.Namespace, "namespace", "", h.flag("-namespace NS",
		"pods, and Counts, of this namespace only (default all)"))
	fs.StringVar(&o.PodSelector, "pod-selector", "", h.flag("-pod-selector SEL",
		"pods with these labels only, as with kubectl -l (default all)"))
	fs.StringVar(&o.FieldSelector, "field-selector", "", h.flag("-field-selector SEL",
		"pods with these fields only, as with kubectl --field-selector (default all)"))

	h.section("What is written")
	fs.StringVar(&o.TotalLabel, "total-label", "hopegi/pod-count", h.flag("-total-label KEY",
		"the label that gets the number of all pods (default hopegi/pod-count)"))
	fs.StringVar(&o.totalNodes, "total-nodes", eitherRole, h.flag("-total-nodes SEL",
		"the nodes that get it: k, !k, k=v, k!=v, k in (a,b), k notin (a,b), k>1, k<1,\n"+
			"joined by commas; '' is every node (default those with the label\n"+
			"node-role.kubernetes.io/control-plane or node-role.kubernetes.io/master)"))
	fs.StringVar(&o.NodeLabel, "node-label", "", h.flag("-node-label KEY",
		"a label that gets, on every node, the number of its own pods (default none)"))
	fs.StringVar(&o.podEvents, "pod-events", "on", h.flag("-pod-events on|off",
		"post an Event on each new pod: one more write for each (default on)"))
	durationVar(&o.Interval, "interval", 10*time.Second, h.flag("-interval D",
		"check every node this often, and write to one at most this often (default 10s)"))
	rates := h.flag("-qps N, -burst N",
		"writes of labels, or statuses, a second, and at once before that holds, for\n"+
			"each controller (default 20 and 40)")
	fs.Float64Var(&o.QPS, "qps", 20, rates)
	fs.IntVar(&o.Burst, "burst", 40, rates)
	fs.IntVar(&o.Workers, "workers", 4, h.flag("-workers N",
		"objects that each controller works on at a time (default 4)"))

	h.section("Once, or not at all")
	fs.BoolVar(&o.Once, "once", false, h.flag("-once",
		"list, write what is wrong, and exit: 1 if something could not be written"))
	durationVar(&o.OnceTimeout, "once-timeout", defaultOnceTimeout, h.flag("-once-timeout D",
		"how long -once, or -prune, may take in all; then it exits with 1 and names\n"+
			"what is left (default 10m)"))
	fs.BoolVar(&o.DryRun, "dry-run", false, h.flag("-dry-run",
		"say what would be written, and write nothing, not even an Event or a Lease"))
	fs.BoolVar(&o.Prune, "prune", false, h.flag("-prune",
		"remove the labels -total-label and -node-label from all nodes, and exit"))

	h.section("Several replicas")
	fs.BoolVar(&o.LeaderElect, "leader-elect", false, h.flag("-leader-elect",
		"work only while leading: of those with the same Lease one does"))
	durationVar(&o.LeaseDuration, "leader-elect-lease-duration", 15*time.Second,
		h.flag("-leader-elect-lease-duration D        ",
			"others wait so long for a sign of life of the leader, to\n"+
				"take its place (default 15s)"))
	durationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 10*time.Second,
		h.flag("-leader-elect-renew-deadline D        ",
			"a leader that cannot renew its Lease for so long writes\n"+
				"nothing more, and exits (default 10s)"))
	durationVar(&o.RetryPeriod, "leader-elect-retry-period", 2*time.Second,
		h.flag("-leader-elect-retry-period D          ",
			"how often to try to get or to renew it (default 2s)"))
	fs.StringVar(&o.LeaseName, "leader-elect-resource-name", "podcount",
		h.flag("-leader-elect-resource-name NAME      ", "of the Lease (default podcount)"))
	fs.StringVar(&o.LeaseNamespace, "leader-elect-resource-namespace", "",
		h.flag("-leader-elect-resource-namespace NS   ",
			"of the Lease (default the pod's own, else kube-system)"))

	h.section("Watching it")
	fs.StringVar(&o.Listen, "listen", "", h.flag("-listen [HOST]:PORT",
		"serve /livez, /readyz, /healthz, /metrics and /debug/state; / lists\n"+
			"them (default no)"))
	fs.IntVar(&o.Verbosity, "v", 0, h.flag("-v N",
		"2 shows watches that begin and end, and what a dry run would post as Events;\n"+
			"4 each watch event and queue step, too; 6 each request, too (default 0)"))
	fs.StringVar(&o.LogFormat, "log-format", "auto", h.flag("-log-format FORM",
		"of what goes to stderr: text (logfmt), json, or auto: short lines on a\n"+
			"terminal, and text elsewhere (default auto)"))
	fs.BoolVar(&o.version, "version", false, h.flag("-version, -h", "print, and exit"))

	h.section("Installing it")
	fs.BoolFunc("manifest", h.flag("-manifest",
		"print what a cluster needs to run it with the other flags given here, for\n"+
			"kubectl apply -f -; -manifest=NAMES prints some of podcount, policy,\n"+
			"network-policy, count-crd, count-sample and alerts (a PrometheusRule), joined\n"+
			"by commas; with -once a CronJob takes the place of the Deployment"), o.setManifest)
	fs.StringVar(&o.image, "image", "podcount:latest", h.flag("-image IMAGE",
		"in that manifest (default podcount:latest)"))
	fs.StringVar(&o.home, "manifest-namespace", "kube-system", h.flag("-manifest-namespace NS  ",
		"in which it runs (default kube-system)"))

	h.WriteString(helpEnd)
	return o, fs, h.String()
}

// setManifest takes the value of -manifest, which is "true" where none is given.
func (o *Options) setManifest(parts string) error {
	switch parts {
	case "", "true":
		parts = "podcount,policy"
	case "false":
		parts = ""
	}
	o.manifest = parts
	return nil
}
