// Package deploy prints what a cluster is given to run podcount: the account, its rights, the Deployment, the policies.
// The YAML is in templates/. What is printed for the default settings is in the files beside this one, to be applied.
//
// A template has two marks. A line that ends in "#if CONDITION" is printed, without the mark, where the condition
// holds; a line with only the mark keeps or drops its paragraph, up to the next empty line, or the whole document if
// that has no empty lines. And $NAME stands for a value, whose further lines are indented as the first.
package deploy

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

//go:embed templates/*.yaml count-crd.yaml count-sample.yaml
var files embed.FS

// Parts are the names of what Manifest can print.
var Parts = []string{"podcount", "policy", "network-policy", "count-crd", "count-sample", "alerts"}

// Settings say what podcount will do in the cluster, and so what it needs there.
type Settings struct {
	Name      string   // of all objects
	Namespace string   // in which podcount runs
	Image     string   // of its container
	Args      []string // of its container, one at least
	Port      int      // that it listens on; 0: none

	PodCount    bool     // the controller pod-count is on
	Count       bool     // the controller count is on
	PodEvents   bool     // pod-count posts an Event on each new pod
	DryRun      bool     // nothing is written
	LeaderElect bool     // of several replicas one works
	Once        bool     // a CronJob, in place of a Deployment
	Labels      []string // the keys of the labels that pod-count writes
	Rights      []Right  // what other controllers need

	PodNamespace   string // the one namespace whose pods and Counts are read; "": every namespace
	LeaseNamespace string // the namespace of the Lease

	// For the thresholds of alerts.
	QPS           float64       // writes a second
	StuckAfter    time.Duration // for how long a worker may have a key
	LeaseDuration time.Duration

	ruleFile bool // AlertRules is printed
}

// Manifest returns the YAML of these parts. Its errors name the flag that is to be changed.
func Manifest(s Settings, parts ...string) (string, error) {
	if err := s.check(); err != nil {
		return "", err
	}
	var documents []string
	for i, part := range parts {
		if !slices.Contains(Parts, part) {
			return "", fmt.Errorf("-manifest: there is no %q; there are %s", part, strings.Join(Parts, ", "))
		}
		if slices.Contains(parts[:i], part) {
			return "", fmt.Errorf("-manifest names %q twice", part)
		}
		if part == "alerts" && s.Port == 0 {
			return "", errors.New("-manifest=alerts: without -listen there is nothing that Prometheus could ask")
		}
		file := "templates/" + part + ".yaml"
		if part == "count-crd" || part == "count-sample" { // They are the same for everybody.
			file = part + ".yaml"
		}
		text, err := s.terms().renderFile(file)
		if err != nil {
			return "", err
		}
		documents = append(documents, text)
	}
	return strings.Join(documents, "---\n"), nil
}

// suffixes are what templates append to the name of all objects, for those of which there are several.
var suffixes = []string{"-pods", "-lease", "-events", "-else"}

func (s Settings) check() error {
	if !strings.HasPrefix(s.Name, "podcount") {
		return fmt.Errorf("-leader-elect-resource-name %s: -manifest gives all objects the name of the Lease, "+
			"which must begin with podcount, as in podcount-%[1]s", s.Name)
	}
	if len(s.Name) > 63 {
		return fmt.Errorf("-leader-elect-resource-name %s has %d characters: -manifest names all objects so, "+
			"and makes it the value of a label, which has 63 at most", s.Name, len(s.Name))
	}
	for _, suffix := range suffixes {
		if strings.HasSuffix(s.Name, suffix) {
			return fmt.Errorf("-leader-elect-resource-name %s: with -manifest it must not end in %s, "+
				"as objects of another podcount do", s.Name, suffix)
		}
	}
	if s.Namespace == "" {
		return fmt.Errorf("-manifest-namespace %q: name the namespace in which podcount is to run", s.Namespace)
	}
	if err := checkImage(s.Image); err != nil {
		return fmt.Errorf("-image %q: %w: use [HOST[:PORT]/]PATH[:TAG][@DIGEST]", s.Image, err)
	}
	for _, text := range slices.Concat(s.Args, s.Labels) {
		if strings.ContainsFunc(text, isUnprintable) {
			return fmt.Errorf("-manifest: %q has a character that cannot be printed: leave it out", text)
		}
	}
	return s.checkRights()
}

func isUnprintable(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }
