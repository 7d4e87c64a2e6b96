// Package deploy prints what a cluster is given to run podcount: the account, its rights, the Deployment, the policies.
// The YAML is in templates/. What is printed for the default settings is in the files beside this one, to be applied.
//
// A template has two marks. A line that ends in "#if CONDITION" is printed, without the mark, where the condition
// holds; a line with only the mark keeps or drops its paragraph, up to the next empty line, or the whole document if
// that has no empty lines. And $NAME stands for a value, whose further lines are indented as the first.
package deploy

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
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
		text, err := s.renderFile(file)
		if err != nil {
			return "", err
		}
		documents = append(documents, text)
	}
	return strings.Join(documents, "---\n"), nil
}

// renderFile returns the documents of a template that are not left out with these settings.
func (s Settings) renderFile(name string) (string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	var documents []string
	for document := range strings.SplitSeq(string(text), "---\n") {
		if rendered := s.render(document); rendered != "" {
			documents = append(documents, rendered)
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// render returns a document of a template as it is with these settings; "" where it is left out.
func (s Settings) render(template string) string {
	var out strings.Builder
	dropsParagraph := false
	for line := range strings.Lines(template) {
		text, condition, isConditional := strings.Cut(strings.TrimSuffix(line, "\n"), "#if ")
		if text == "" && !isConditional && dropsParagraph { // the empty line after it
			dropsParagraph = false
			continue
		}
		if isConditional && strings.TrimSpace(text) == "" {
			dropsParagraph = !s.holds(condition)
			continue
		}
		if dropsParagraph || isConditional && !s.holds(condition) {
			continue
		}
		indented := func(name string) string {
			indent := text[:len(text)-len(strings.TrimLeft(text, " "))]
			return strings.ReplaceAll(s.value(name), "\n", "\n"+indent)
		}
		out.WriteString(strings.TrimRight(os.Expand(text, indented), " ") + "\n")
	}
	return out.String()
}

// holds answers the conditions of the templates.
func (s Settings) holds(condition string) bool {
	writes := !s.DryRun
	// Events about pods and Counts go to the namespace of these, those about nodes to default.
	eventsBesidePods := writes && (s.Count || s.PodCount && s.PodEvents)
	coversDefault := eventsBesidePods && (s.PodNamespace == "" || s.PodNamespace == "default")
	switch condition {
	case "pod-count":
		return s.PodCount
	case "count":
		return s.Count
	case "writes":
		return writes
	case "count-writes":
		return s.Count && writes
	case "events-beside-pods":
		return eventsBesidePods
	case "events-in-default":
		return writes && s.PodCount && !coversDefault
	case "every-namespace":
		return s.PodNamespace == ""
	case "one-namespace":
		return s.PodNamespace != ""
	case "leader-elect": // A dry run takes no Lease.
		return s.LeaderElect && writes
	case "one-replica":
		return !s.Once && (!s.LeaderElect || !writes)
	case "deployment":
		return !s.Once
	case "cron-job":
		return s.Once
	case "labels-written":
		return s.PodCount && writes
	case "rule-file":
		return s.ruleFile
	case "prometheus-rule":
		return !s.ruleFile
	case "listen":
		return s.Port != 0
	case "no-listen":
		return s.Port == 0
	}
	panic("a template asks for " + condition)
}

// value returns what a name stands for in the templates. A value is never expanded a second time.
func (s Settings) value(name string) string {
	switch name {
	case "NAME":
		return s.Name // check has seen to it that this is a text in YAML, whatever follows it.
	case "NAMESPACE":
		return scalar(s.Namespace)
	case "POD_NAMESPACE":
		return scalar(s.PodNamespace)
	case "LEASE_NAMESPACE":
		return scalar(s.LeaseNamespace)
	case "IMAGE":
		return scalar(s.Image)
	case "ACCOUNT":
		return "system:serviceaccount:" + s.Namespace + ":" + s.Name
	case "EVENT_VERBS":
		if s.Once { // The same Event does not come twice in one run, which would raise the count of the first.
			return "[create]"
		}
		return "[create, patch]"
	case "LABELS":
		return jsonOf(s.Labels)
	case "PORT":
		return strconv.Itoa(s.Port)
	case "ARGS":
		var lines []string
		for _, arg := range s.Args {
			// Kubernetes would put environment variables in place of $(NAME), but takes $$ for $.
			lines = append(lines, "- "+jsonOf(strings.ReplaceAll(arg, "$", "$$")))
		}
		return strings.Join(lines, "\n")
	}
	if value, ok := s.alertValue(name); ok {
		return value
	}
	panic("a template asks for $" + name)
}

// scalar writes a text in YAML: plain where no parser takes that for anything else (a number, a boolean, null, a date).
func scalar(text string) string {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	isPlain := text != "" &&
		strings.Trim(text[:1], letters) == "" &&
		strings.Trim(text, letters+"ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@") == "" &&
		!strings.HasSuffix(text, ":") &&
		!slices.Contains([]string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}, text)
	if isPlain {
		return text
	}
	return jsonOf(text)
}

// jsonOf writes a value in JSON, which is YAML, too.
func jsonOf(v any) string {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic(err) // Texts and lists of them can be written.
	}
	return strings.TrimSuffix(out.String(), "\n")
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
	for _, arg := range s.Args {
		if strings.ContainsFunc(arg, func(c rune) bool { return !unicode.IsPrint(c) || c == unicode.ReplacementChar }) {
			return fmt.Errorf("-manifest: %q has a character that cannot be printed: leave it out", arg)
		}
	}
	return nil
}
