package deploy

import (
	"errors"
	"fmt"
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
		if err := l.checkNext(item); err != nil {
			return fmt.Errorf("%s %d %q: %w", l.noun, i+1, item, err)
		}
		l.items = append(l.items, item)
	}
	return nil
}

// checkNext checks an item that is about to be added.
func (l *List) checkNext(item string) error {
	if err := l.check(item); err != nil {
		return err
	}
	key, _, _ := strings.Cut(item, "=")
	if _, isThere := l.find(key); isThere {
		return errors.New("an earlier one has the same name: leave one of the two out")
	}
	return nil
}

// find returns the value of the item KEY=VALUE.
func (l *List) find(key string) (value string, isThere bool) {
	for _, item := range l.items {
		k, v, _ := strings.Cut(item, "=")
		if k == key {
			return v, true
		}
	}
	return "", false
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
