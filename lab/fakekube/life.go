package fakekube

import (
	"fmt"
	"strings"
)

// AddCount creates a Count in the namespace default with this JSON as its spec, or replaces the spec of an existing
// one. It returns the Count as stored. The status stays if it is a subresource. AddCount panics if Counts have no CRD
// or the spec is not valid JSON.
func (s *Server) AddCount(name, spec string) Object {
	key := Key{"default", name}
	o := Object{"metadata": Object{"namespace": key.Namespace, "name": key.Name}, "spec": parsed(spec)}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, _ := s.kindLocked(countsCRD.Name)
	old := s.objects[k.qualified()][key]
	if k.hasStatus && old["status"] != nil {
		o["status"] = old["status"]
	}
	return s.putLocked(countsCRD.Name, o)
}

// CountStatus returns healthy, count and observedGeneration from the status of a Count in the namespace default, as
// in "true 3 1". A missing value shows as "<nil>".
func (s *Server) CountStatus(name string) string {
	status, _ := s.Get("counts", Key{"default", name})["status"].(Object)
	return fmt.Sprint(status["healthy"], " ", status["count"], " ", status["observedGeneration"])
}

// AddNode puts a ready node and returns it as stored. Labels have the form "KEY=VALUE" or, for an empty value, "KEY".
// The label kubernetes.io/hostname is set to the node's name.
func (s *Server) AddNode(name string, labels ...string) Object {
	set := Object{"kubernetes.io/hostname": name}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		set[key] = value
	}
	return s.Put("nodes", Object{
		"metadata": Object{"name": name, "labels": set},
		"spec":     Object{},
		"status": Object{
			"conditions": []any{Object{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			"capacity":   Object{"cpu": "2", "memory": "4Gi", "pods": "110"},
		},
	})
}

// AddPod puts a running pod with the label app=web and returns it as stored. If node is "", the pod has no node. The
// node need not exist.
func (s *Server) AddPod(namespace, name, node string) Object {
	meta := Object{"namespace": namespace, "name": name, "labels": Object{"app": "web"}}
	return s.Put("pods", PodOn(meta, node))
}

// AddPodWithLabels puts a pod with these labels, and without a node, in the namespace default.
func (s *Server) AddPodWithLabels(name string, labels Object) {
	s.Put("pods", PodOn(Object{"namespace": "default", "name": name, "labels": labels}, ""))
}

// PodOn returns a running pod for Put, with this metadata and one container. If node is "", the pod has no node.
func PodOn(meta Object, node string) Object {
	spec := Object{
		"containers":    []any{Object{"name": "c", "image": "nginx"}},
		"restartPolicy": "Always",
	}
	if node != "" {
		spec["nodeName"] = node
	}
	return Object{
		"metadata": meta,
		"spec":     spec,
		"status":   Object{"phase": "Running", "qosClass": "BestEffort"},
	}
}

// AddPods puts the pods web-0 to web-(n-1), without a node, in the namespace default.
func (s *Server) AddPods(n int) {
	for i := range n {
		s.AddPod("default", fmt.Sprintf("web-%d", i), "")
	}
}

// SetLabel changes a label of a node, like a patch of another client. v is a string, or nil to remove the label.
// SetLabel panics if there is no such node.
func (s *Server) SetLabel(node, label string, v any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.objectsLocked("nodes")[Key{"", node}]
	if old == nil {
		panic("there is no node " + node)
	}
	o := Clone(old)
	mergePatch(o, Object{"metadata": Object{"labels": Object{label: v}}})
	s.putLocked("nodes", o)
}

// Label returns the value of a node's label, or "-" if the node or the label does not exist.
func (s *Server) Label(node, label string) string {
	labels, _ := MetaOf(s.Get("nodes", Key{"", node}))["labels"].(Object)
	if v, ok := labels[label].(string); ok {
		return v
	}
	return "-"
}
