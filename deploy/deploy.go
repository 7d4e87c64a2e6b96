// Package deploy prints the YAML that runs podcount in a cluster: the account, its rights, the Deployment, the
// policies.
//
// The YAML is made from the files in templates/. This directory also has the YAML for the default settings, ready for
// kubectl apply -f.
//
// A template has two kinds of marks:
//
//   - "#if CONDITION" at the end of a line. The line is printed, without the mark, only if the condition holds. A mark
//     that is alone on its line applies to the paragraph below it, which ends at an empty line or with the document.
//   - $NAME. A value replaces it. If the value has several lines, all of them get the indentation of the line.
package deploy

import (
	"cmp"
	"embed"
	"fmt"
	"slices"
	"strings"
	"time"
)

//go:embed templates/*.yaml count-crd.yaml count-sample.yaml
var files embed.FS

// Parts are the names of the parts that Manifest can print.
var Parts = []string{"podcount", "policy", "network-policy", "count-crd", "count-sample", "alerts", "pod-monitor"}

// Settings describe the podcount that will run in the cluster.
type Settings struct {
	// The objects in the cluster.
	Name      string   // the name of all objects
	Namespace string   // the namespace in which podcount runs
	Image     string   // the image of the container
	Args      []string // the arguments of the container, at least one
	Port      int      // the port that podcount listens on; 0 if it does not listen

	Pods // what a site decides about the pods

	// The work of podcount. The rights depend on it.
	PodCount    bool     // the controller pod-count is on
	Count       bool     // the controller count is on
	PodEvents   bool     // pod-count posts an Event on each new pod
	Labels      []string // the keys of the labels that pod-count writes
	Rights      []Right  // the rights that other controllers need
	DryRun      bool     // podcount writes nothing
	LeaderElect bool     // two replicas run, and elect a leader
	Once        bool     // podcount is a CronJob, not a Deployment

	// The namespaces that podcount uses.
	PodNamespace   string // podcount reads the pods and Counts of this namespace; "" is every namespace
	LeaseNamespace string // the namespace of the Lease

	// The thresholds of the alerts depend on these.
	QPS           float64       // writes per second
	StuckAfter    time.Duration // a worker that needs longer for one key is stuck
	LeaseDuration time.Duration // how long a leader that died keeps the Lease

	// The alerts are a rule file for every podcount, not a PrometheusRule for this one. A test makes alerts.yaml so.
	ruleFile bool
}

// Manifest returns the YAML of these parts, each of which must be one of Parts. Its errors name the flag to change.
func Manifest(s Settings, parts ...string) (string, error) {
	if err := cmp.Or(s.checkName(), s.checkImage()); err != nil {
		return "", err
	}
	terms := newTerms(s)
	var documents []string
	for _, part := range parts {
		if err := s.checkPart(part); err != nil {
			return "", err
		}
		documents = append(documents, terms.renderFile(fileOf(part)))
	}
	return strings.Join(documents, "---\n"), nil
}

// nameSuffixes are the strings that the templates append to Settings.Name where a kind has several objects.
var nameSuffixes = []string{"-pods", "-lease", "-events", "-metadata", "-else"}

// checkName returns an error unless the name can be the name of an object, the value of a label, and a YAML string
// without quotes. It also refuses a name that another podcount's name with a suffix could equal.
func (s Settings) checkName() error {
	if !strings.HasPrefix(s.Name, "podcount") {
		return fmt.Errorf("-leader-elect-resource-name %s: -manifest gives all objects this name, "+
			"which must begin with podcount, as in podcount-%[1]s", s.Name)
	}
	// Kubernetes would cut a longer name in the names of the pods, by which the alerts know them.
	const maxLength = 58 - len("-1234567890-")
	if len(s.Name) > maxLength {
		return fmt.Errorf("-leader-elect-resource-name %s has %d characters: with -manifest, it may have %d",
			s.Name, len(s.Name), maxLength)
	}
	for _, suffix := range nameSuffixes {
		if strings.HasSuffix(s.Name, suffix) {
			return fmt.Errorf("-leader-elect-resource-name %s: with -manifest, the name must not end in %s, "+
				"because podcount adds that to the names of some objects", s.Name, suffix)
		}
	}
	return nil
}

func (s Settings) checkPart(part string) error {
	if !slices.Contains(Parts, part) {
		return fmt.Errorf("-manifest: unknown part %q; the parts are %s", part, strings.Join(Parts, ", "))
	}
	if (part == "alerts" || part == "pod-monitor") && s.Port == 0 {
		return fmt.Errorf("-manifest=%s: without -listen there is nothing that Prometheus could scrape", part)
	}
	return nil
}

// fileOf returns the file for a part. It is a template, except for the parts about Counts.
func fileOf(part string) string {
	if part == "count-crd" || part == "count-sample" {
		return part + ".yaml"
	}
	return "templates/" + part + ".yaml"
}
