package fakekube

import (
	"encoding/json"
	"fmt"
	"time"
)

// bind answers a POST to the subresource binding of a pod, by which a scheduler gives the pod its node. Whether there
// is a node of that name is not asked.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/binding-v1/
func (s *Server) bind(r *request) {
	if !r.isReadable() || !r.readOptions("CreateOptions") {
		return
	}
	var binding struct {
		Metadata struct {
			Name string `json:"name"`
			UID  string `json:"uid"`
		} `json:"metadata"`
		Target struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"target"`
	}
	if err := json.Unmarshal(r.body, &binding); err != nil {
		r.fail(400, "BadRequest", "Binding in version \"v1\" cannot be handled as a Binding: "+err.Error(), nil)
		return
	}
	if binding.Metadata.Name != r.key.Name {
		r.fail(400, "BadRequest", "name in URL does not match name in Binding object", nil)
		return
	}
	if problem := targetProblem(binding.Target.Kind, binding.Target.Name); problem != "" {
		r.answer(500, Object{
			"kind":       "Status",
			"apiVersion": "v1",
			"metadata":   Object{},
			"status":     "Failure",
			"message":    problem,
			"code":       500,
		})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.objects["pods"][r.key]
	if pod == nil {
		r.notFound()
		return
	}
	if uid := TextIn(MetaOf(pod), "uid"); binding.Metadata.UID != "" && binding.Metadata.UID != uid {
		message := fmt.Sprintf("Operation cannot be fulfilled on pods %q: StorageError: invalid object, Code: 4, "+
			"Key: /registry/pods/%s, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: %s, "+
			"UID in object meta: %s", r.key.Name, r.key, binding.Metadata.UID, uid)
		r.fail(409, "Conflict", message, r.details())
		return
	}
	if problem := bindingProblem(pod); problem != "" {
		message := fmt.Sprintf("Operation cannot be fulfilled on pods/binding %q: %s", r.key.Name, problem)
		r.fail(409, "Conflict", message, Object{"name": r.key.Name, "kind": "pods/binding"})
		return
	}
	s.replaceLocked(r.kind, boundTo(pod, binding.Target.Name), r.options.isDryRun)
	r.answer(201, Object{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   Object{},
		"status":     "Success",
		"code":       201,
	})
}

// targetProblem says what is wrong with the node that a Binding names; "" is nothing.
func targetProblem(kind, name string) string {
	if kind != "" && kind != "Node" {
		return fmt.Sprintf("target.kind: Unsupported value: %q: supported values: \"Node\", \"<empty>\"", kind)
	}
	if name == "" {
		return "target.name: Required value"
	}
	return ""
}

// bindingProblem says why a pod can get no node; "" is that it can.
func bindingProblem(pod Object) string {
	meta := MetaOf(pod)
	if meta["deletionTimestamp"] != nil {
		return fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", meta["name"])
	}
	spec, _ := pod["spec"].(Object)
	if node := TextIn(spec, "nodeName"); node != "" {
		return fmt.Sprintf("pod %s is already assigned to node %q", meta["name"], node)
	}
	return ""
}

// boundTo is a pod once it has its node.
func boundTo(pod Object, node string) Object {
	bound := Clone(pod)
	spec, _ := bound["spec"].(Object)
	spec["nodeName"] = node
	status, _ := bound["status"].(Object)
	if status == nil {
		status = Object{}
		bound["status"] = status
	}
	conditions := []any{}
	old, _ := status["conditions"].([]any)
	for _, one := range old {
		if condition, _ := one.(Object); condition["type"] != "PodScheduled" {
			conditions = append(conditions, one)
		}
	}
	status["conditions"] = append(conditions, Object{
		"type":               "PodScheduled",
		"status":             "True",
		"lastProbeTime":      nil,
		"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	})
	return bound
}
