package deploy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"podcount/internal/api/objectmeta"
)

// Pods are what a site decides about podcount's pods. Each list is the value of a flag.
type Pods struct {
	PullSecrets  List // -image-pull-secrets: the Secrets with which nodes pull the image
	NodeSelector List // -manifest-node-selector: KEY=VALUE, the labels of the nodes on which the pods may run
	Requests     List // -manifest-requests: NAME=QUANTITY, the resources that a pod requests
	Limits       List // -manifest-limits: NAME=QUANTITY, the resources that a pod may use
}

// DefaultPods returns the pods of a manifest without these flags.
func DefaultPods() Pods {
	return Pods{
		PullSecrets:  List{noun: "name", check: objectmeta.CheckDNSName},
		NodeSelector: List{noun: "label", check: checkLabel},
		Requests:     List{noun: "resource", check: checkResource, items: []string{"cpu=10m", "memory=32Mi"}},
		Limits:       List{noun: "resource", check: checkResource, items: []string{"cpu=1", "memory=128Mi"}},
	}
}

// List is the value of a flag: items that are joined by commas.
type List struct {
	noun  string                  // what an item is, for error messages
	check func(item string) error // checks the syntax of an item
	items []string
}

// String returns what Set would read. It implements flag.Value.
func (l *List) String() string { return strings.Join(l.items, ",") }

// Set replaces the items. It implements flag.Value.
func (l *List) Set(text string) error {
	l.items = nil
	if text == "" {
		return nil
	}
	for i, item := range strings.Split(text, ",") {
		if err := l.check(item); err != nil {
			return fmt.Errorf("%s %d %q: %w", l.noun, i+1, item, err)
		}
		l.items = append(l.items, item)
	}
	return nil
}

// checkLabel checks the syntax of KEY=VALUE.
func checkLabel(item string) error {
	key, value, hasValue := strings.Cut(item, "=")
	if !hasValue {
		return errors.New("write KEY=VALUE, or KEY= if the value is empty")
	}
	if err := objectmeta.CheckLabelKey(key); err != nil {
		return err
	}
	return objectmeta.CheckLabelValue(value)
}

// yaml formats the items, joined by commas.
func (l *List) yaml(format func(key, value string) string) string {
	var formatted []string
	for _, item := range l.items {
		key, value, _ := strings.Cut(item, "=")
		formatted = append(formatted, format(key, value))
	}
	return strings.Join(formatted, ", ")
}

func yamlReference(name, _ string) string { return "{name: " + scalar(name) + "}" }

func yamlLabel(key, value string) string { return scalar(key) + ": " + scalar(value) }

// checkResource checks NAME=QUANTITY. The API server checks the quantity when the manifest is applied. But it would
// accept too little memory.
func checkResource(item string) error {
	name, quantity, _ := strings.Cut(item, "=")
	if name != "cpu" && name != "memory" {
		return errors.New("write cpu=QUANTITY or memory=QUANTITY")
	}
	// podcount needs 12 MB in an empty cluster. Less than 16Mi is a mistake, such as a unit that is missing.
	isEnough := name == "cpu" || bytesOf(quantity) >= 16<<20
	if !isEnough {
		return errors.New("write bytes with Ki, Mi, Gi, k, M or G, as in 128Mi; 16Mi is the least")
	}
	return nil
}

// bytesOf returns a quantity of memory in bytes. It returns 0 if it does not understand the quantity: Kubernetes has
// more units, which podcount never needs.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
func bytesOf(quantity string) float64 {
	sizes := map[string]float64{
		"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30,
	}
	number := strings.TrimRight(quantity, "kKMGi")
	amount, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return 0
	}
	return amount * sizes[quantity[len(number):]]
}

// yamlResource formats a resource as YAML. Kubernetes wants a string, so a quantity without a unit needs quotes.
func yamlResource(name, quantity string) string {
	isNumber := strings.Trim(quantity, digits+".") == ""
	isPlain := strings.Trim(quantity, alphanumerics+".") == ""
	if isNumber || !isPlain {
		quantity = strconv.Quote(quantity)
	}
	return name + ": " + quantity
}

// goMemoryLimit returns the value of GOMEMLIMIT, or "" without a limit of memory. It is nine tenths of that limit,
// because Go does not count all memory that the kernel counts.
func (p *Pods) goMemoryLimit() string {
	for _, limit := range p.Limits.items {
		if quantity, isMemory := strings.CutPrefix(limit, "memory="); isMemory {
			return strconv.Itoa(int(bytesOf(quantity)/10*9/(1<<20))) + "MiB"
		}
	}
	return ""
}
