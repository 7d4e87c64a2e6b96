package object

// Pod is a pod as podcount sees it.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
type Pod struct {
	Meta
	NodeName string // "" until the pod is scheduled, and always if the kind is MetadataOnly
}

// PodKind returns the kind of pods.
func PodKind() Kind[*Pod] {
	return Kind[*Pod]{
		Name:         "Pod",
		API:          "/api/v1",
		Resource:     "pods",
		Protobuf:     true,
		MetadataOnly: true,
		New:          func() *Pod { return new(Pod) },
		Fields: []Field[*Pod]{
			{"spec.nodeName", [2]int{2, 10}, func(p *Pod) *string { return &p.NodeName }},
		},
	}
}

// HasSameFields compares all fields except those of Meta.
func (p *Pod) HasSameFields(o *Pod) bool { return p.NodeName == o.NodeName }

// Node is a node as podcount sees it: its name and some of its labels.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/
type Node struct{ Meta }

// NodeKind returns the kind of nodes.
func NodeKind() Kind[*Node] {
	return Kind[*Node]{
		Name:         "Node",
		API:          "/api/v1",
		Resource:     "nodes",
		Protobuf:     true,
		MetadataOnly: true,
		PatchMetric:  "podcount_label_patches_total",
		New:          func() *Node { return new(Node) },
	}
}

// HasSameFields reports true, because a Node has no fields but those of Meta.
func (n *Node) HasSameFields(*Node) bool { return true }
