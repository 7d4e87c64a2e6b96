package deploy

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// Characters, for strings.Trim.
const (
	lowerCase     = "abcdefghijklmnopqrstuvwxyz"
	digits        = "0123456789"
	alphanumerics = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
)

// terms are the conditions and values that a template can refer to.
type terms struct {
	conditions map[string]bool
	values     map[string]string
}

func newTerms(s Settings) terms {
	writes := !s.DryRun
	elects := s.LeaderElect && writes // A dry run takes no Lease.
	roles := newRoles(s)
	t := terms{
		conditions: map[string]bool{
			"cluster-rights":    len(roles.cluster) > 0,
			"rights-in-default": len(roles.inDefault) > 0,
			"every-namespace":   s.PodNamespace == "",
			"one-namespace":     s.PodNamespace != "",
			"leader-elect":      elects,
			"one-replica":       !s.Once && !elects,
			"deployment":        !s.Once,
			"cron-job":          s.Once,
			"pull-secrets":      len(s.PullSecrets.items) > 0,
			"node-selector":     len(s.NodeSelector.items) > 0,
			"memory-limit":      s.goMemoryLimit() != "",
			"listen":            s.Port != 0,
			"no-listen":         s.Port == 0,
			"writes-labels":     s.PodCount && writes,
			"writes-statuses":   s.Count && writes,
			"rule-file":         s.ruleFile,
			"prometheus-rule":   !s.ruleFile,
		},
		values: map[string]string{
			"NAME":             s.Name, // It needs no quotes, even with a suffix: see checkName.
			"NAMESPACE":        scalar(s.Namespace),
			"POD_NAMESPACE":    scalar(s.PodNamespace),
			"LEASE_NAMESPACE":  scalar(s.LeaseNamespace),
			"IMAGE":            scalar(s.Image),
			"PULL_SECRETS":     s.PullSecrets.yaml(yamlReference),
			"NODE_SELECTOR":    s.NodeSelector.yaml(yamlLabel),
			"REQUESTS":         s.Requests.yaml(yamlResource),
			"LIMITS":           s.Limits.yaml(yamlResource),
			"GOMEMLIMIT":       s.goMemoryLimit(),
			"ACCOUNT":          "system:serviceaccount:" + s.Namespace + ":" + s.Name,
			"LABELS":           `["` + strings.Join(s.Labels, `","`) + `"]`, // Their keys need no escapes.
			"PORT":             strconv.Itoa(s.Port),
			"ARGS":             argLines(s.Args),
			"CLUSTER_RULES":    rulesOf(roles.cluster),
			"NAMESPACED_RULES": rulesOf(roles.namespaced),
			"DEFAULT_RULES":    rulesOf(roles.inDefault),
		},
	}
	s.addAlertValues(t.values)
	return t
}

// renderFile returns the documents of a template, without those that are empty. A template that is not there, or that
// refers to other terms, is a bug: then it panics.
func (t terms) renderFile(name string) string {
	text, err := files.ReadFile(name)
	if err != nil {
		panic(err)
	}
	var documents []string
	for document := range strings.SplitSeq(string(text), "---\n") {
		if rendered := t.render(document); rendered != "" {
			documents = append(documents, rendered)
		}
	}
	return strings.Join(documents, "---\n")
}

// render returns one document of a template, or "" if all of its lines are left out.
func (t terms) render(template string) string {
	var out strings.Builder
	skipsParagraph := false
	for line := range strings.Lines(template) {
		line = strings.TrimSuffix(line, "\n")
		if skipsParagraph {
			skipsParagraph = line != "" // The empty line that ends the paragraph is skipped, too.
			continue
		}
		text, condition, isConditional := strings.Cut(line, "#if ")
		holds, isKnown := t.conditions[condition]
		if isConditional && !isKnown {
			panic("there is no condition " + condition)
		}
		isMarkOnly := isConditional && strings.TrimSpace(text) == ""
		if isMarkOnly {
			skipsParagraph = !holds
			continue
		}
		if isConditional && !holds {
			continue
		}
		out.WriteString(strings.TrimRight(t.expand(text), " ") + "\n")
	}
	return out.String()
}

// expand replaces each $NAME in a line with its value. All lines of the value get the indentation of this line.
func (t terms) expand(line string) string {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	return os.Expand(line, func(name string) string {
		value, isKnown := t.values[name]
		if !isKnown {
			panic("there is no value $" + name)
		}
		return strings.ReplaceAll(value, "\n", "\n"+indent)
	})
}

// argLines formats the arguments of a container as a YAML list, one per line. What strconv writes for UTF-8 has the
// same meaning in YAML.
func argLines(args []string) string {
	var lines []string
	for _, arg := range args {
		// Kubernetes replaces $(NAME) with an environment variable, and $$ with $.
		lines = append(lines, "- "+strconv.Quote(strings.ReplaceAll(arg, "$", "$$")))
	}
	return strings.Join(lines, "\n")
}

// scalar formats a text as a YAML string. It adds quotes if a parser might otherwise read a number, a boolean, null, or
// a date.
func scalar(text string) string {
	isPlain := text != "" &&
		strings.Trim(text[:1], lowerCase) == "" &&
		strings.Trim(text, alphanumerics+"._-/:@") == "" &&
		!strings.HasSuffix(text, ":") &&
		!slices.Contains([]string{"null", "true", "false", "yes", "no", "on", "off", "y", "n"}, text)
	if isPlain {
		return text
	}
	return strconv.Quote(text)
}
