package fakekube

import "strings"

// AddNode puts a ready node and returns it as stored. Labels have the form "KEY=VALUE" or, for an empty value, "KEY".
// The label kubernetes.io/hostname is set to the node's name.
func (s *Server) AddNode(name string, labels ...string) Object {
	set := labelsOf(append([]string{"kubernetes.io/hostname=" + name}, labels...))
	return s.Put("nodes", Object{
		"metadata": Object{"name": name, "labels": set},
		"spec":     Object{},
		"status": Object{
			"conditions": []any{Object{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			"capacity":   Object{"cpu": "2", "memory": "4Gi", "pods": "110"},
		},
	})
}

// AddPod puts a running pod and returns it as stored. If node is "", the pod has no node. The node need not exist.
// Labels have the form of AddNode; without any, the pod has the label app=web.
func (s *Server) AddPod(namespace, name, node string, labels ...string) Object {
	set := Object{"app": "web"}
	if len(labels) > 0 {
		set = labelsOf(labels)
	}
	return s.Put("pods", PodOn(Object{"namespace": namespace, "name": name, "labels": set}, node))
}

// labelsOf parses labels of the form "KEY=VALUE" or, for an empty value, "KEY".
func labelsOf(texts []string) Object {
	set := Object{}
	for _, text := range texts {
		key, value, _ := strings.Cut(text, "=")
		set[key] = value
	}
	return set
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
