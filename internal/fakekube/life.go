package fakekube

import (
	"fmt"
	"strings"
)

// AddCount makes a Count in the namespace default, with this JSON as its spec, or replaces the spec of the one that is
// there. It returns the Count as stored. Where the status is a subresource, that of the Count stays. It panics where
// Counts have no CRD, and where the spec is not JSON.
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

// CountStatus is what the status of a Count in the namespace default says: healthy, count and observedGeneration, as
// in "true 3 1", with "<nil>" for each that is not there.
func (s *Server) CountStatus(name string) string {
	status, _ := s.Get("counts", Key{"default", name})["status"].(Object)
	return fmt.Sprint(status["healthy"], " ", status["count"], " ", status["observedGeneration"])
}

// AddNode puts a node that is ready, with labels in the form "KEY=VALUE" or, for an empty value, "KEY". The label
// kubernetes.io/hostname is the node's name. It returns the node as stored.
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

// AddPod puts a pod of the phase Running on a node or, where node is "", on none. It has the label app=web. The node
// need not be there. It returns the pod as stored.
func (s *Server) AddPod(namespace, name, node string) Object {
	meta := Object{"namespace": namespace, "name": name, "labels": Object{"app": "web"}}
	return s.Put("pods", PodOn(meta, node))
}

// AddPodWithLabels puts a pod with these labels in the namespace default, on no node.
func (s *Server) AddPodWithLabels(name string, labels Object) {
	s.Put("pods", PodOn(Object{"namespace": "default", "name": name, "labels": labels}, ""))
}

// PodOn is a pod for Put, with this metadata: of the phase Running, with one container, on a node or, where node is "",
// on none.
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

// AddPods puts the pods web-0 to web-(n-1) in the namespace default, on no node.
func (s *Server) AddPods(n int) {
	for i := range n {
		s.AddPod("default", fmt.Sprintf("web-%d", i), "")
	}
}

// SetLabel changes a label of a node, as another client's patch would. v is a string; nil removes the label. It panics
// where there is no such node.
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

// Label is the value of a node's label, "-" where the node or the label is not there.
func (s *Server) Label(node, label string) string {
	labels, _ := MetaOf(s.Get("nodes", Key{"", node}))["labels"].(Object)
	if v, ok := labels[label].(string); ok {
		return v
	}
	return "-"
}
