package deploy

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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
			"LABELS":           jsonList(s.Labels),
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

// renderFile returns the documents of a template, without those that are empty.
func (t terms) renderFile(name string) (string, error) {
	text, err := files.ReadFile(name)
	if err != nil {
		return "", err
	}
	var documents []string
	for document := range strings.SplitSeq(string(text), "---\n") {
		rendered, err := t.render(document)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if rendered != "" {
			documents = append(documents, rendered)
		}
	}
	return strings.Join(documents, "---\n"), nil
}

// render returns one document of a template, or "" if all of its lines are left out.
func (t terms) render(template string) (string, error) {
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
			return "", fmt.Errorf("there is no condition %q", condition)
		}
		isMarkOnly := isConditional && strings.TrimSpace(text) == ""
		if isMarkOnly {
			skipsParagraph = !holds
			continue
		}
		if isConditional && !holds {
			continue
		}
		expanded, err := t.expand(text)
		if err != nil {
			return "", err
		}
		out.WriteString(strings.TrimRight(expanded, " ") + "\n")
	}
	return out.String(), nil
}

// expand replaces each $NAME in a line with its value. All lines of the value get the indentation of this line.
func (t terms) expand(line string) (string, error) {
	indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
	var err error
	expanded := os.Expand(line, func(name string) string {
		value, isKnown := t.values[name]
		if !isKnown {
			err = fmt.Errorf("there is no value $%s", name)
		}
		return strings.ReplaceAll(value, "\n", "\n"+indent)
	})
	return expanded, err
}

// argLines formats the arguments of a container as a YAML list, one per line.
func argLines(args []string) string {
	var lines []string
	for _, arg := range args {
		// Kubernetes replaces $(NAME) with an environment variable, and $$ with $.
		lines = append(lines, "- "+quote(strings.ReplaceAll(arg, "$", "$$")))
	}
	return strings.Join(lines, "\n")
}

// jsonList formats texts as a JSON list.
func jsonList(texts []string) string {
	var quoted []string
	for _, text := range texts {
		quoted = append(quoted, quote(text))
	}
	return "[" + strings.Join(quoted, ",") + "]"
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
	return quote(text)
}

// quote puts a text in double quotes. For printable characters, Go, JSON and YAML have the same syntax. checkPrintable
// refuses all other characters.
func quote(text string) string { return strconv.Quote(text) }
