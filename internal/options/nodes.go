package options

import (
	"slices"

	"podcount/internal/labels"
)

const (
	controlPlane    = "node-role.kubernetes.io/control-plane"
	oldControlPlane = "node-role.kubernetes.io/master"
)

const eitherRole = controlPlane + " or " + oldControlPlane // no selector says this

// NodeChoice is the nodes that meet one of the selectors.
type NodeChoice []labels.Selector

func (c NodeChoice) Matches(label func(key string) (value string, ok bool)) bool {
	return slices.ContainsFunc(c, func(s labels.Selector) bool { return s.Matches(label) })
}

// Keys returns the keys of the labels that decide.
func (c NodeChoice) Keys() (keys []string) {
	for _, s := range c {
		keys = append(keys, s.Keys()...)
	}
	return keys
}
