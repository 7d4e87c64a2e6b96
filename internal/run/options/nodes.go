package options

import (
	"slices"

	"podcount/internal/api/objectmeta"
)

// NodeChoice selects nodes: those whose labels match at least one selector. It is the value of -total-nodes.
type NodeChoice struct {
	selectors []objectmeta.Selector
	text      string // the selector that was given, or words for the default, which no single selector can express
}

// controlPlaneNodes selects the nodes of the control plane. Before Kubernetes 1.24 they had the label master.
func controlPlaneNodes() NodeChoice {
	controlPlane, _ := objectmeta.ParseSelector("node-role.kubernetes.io/control-plane")
	master, _ := objectmeta.ParseSelector("node-role.kubernetes.io/master")
	return NodeChoice{[]objectmeta.Selector{controlPlane, master}, "(the nodes of the control plane)"}
}

// Matches reports whether a node is selected. The function label returns the value of the node's label with this key,
// and whether the node has it.
func (c *NodeChoice) Matches(label func(key string) (value string, ok bool)) bool {
	return slices.ContainsFunc(c.selectors, func(s objectmeta.Selector) bool { return s.Matches(label) })
}

// Keys returns the keys of the labels that the selectors look at.
func (c *NodeChoice) Keys() []string {
	var keys []string
	for _, s := range c.selectors {
		keys = append(keys, s.Keys()...)
	}
	return keys
}

// String returns the selector as it was given, or words for the default. It implements flag.Value.
func (c *NodeChoice) String() string { return c.text }

// Set replaces the selectors by one, which has the syntax of kubectl -l. It implements flag.Value.
func (c *NodeChoice) Set(text string) error {
	s, err := objectmeta.ParseSelector(text)
	if err != nil {
		return err
	}
	*c = NodeChoice{selectors: []objectmeta.Selector{s}, text: text}
	return nil
}
