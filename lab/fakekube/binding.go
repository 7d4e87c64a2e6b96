package fakekube

import (
	"fmt"
	"time"
)

// bind answers a POST to the subresource binding, with which a scheduler assigns a node to a pod. It does not check
// whether the node exists.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/binding-v1/
func (s *Server) bind(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("CreateOptions") {
		return
	}
	binding := r.decodeObjectAs(kind{version: "v1", kind: "Binding"})
	if binding == nil || !r.checkNamespaceInPath(binding) {
		return
	}
	if TextIn(MetaOf(binding), "name") != r.key.Name {
		r.badRequest("name in URL does not match name in Binding object")
		return
	}
	target := objectIn(binding, "target")
	if problem := targetProblem(TextIn(target, "kind"), TextIn(target, "name")); problem != "" {
		r.internalError(problem)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pod := s.objects["pods"][r.key]
	if pod == nil {
		r.notFound()
		return
	}
	if !r.checkUID(pod, binding) {
		return
	}
	if problem := bindingProblem(pod); problem != "" {
		message := fmt.Sprintf("Operation cannot be fulfilled on pods/binding %q: %s", r.key.Name, problem)
		r.failWith(409, "Conflict", message, Object{"name": r.key.Name, "kind": "pods/binding"})
		return
	}
	s.replaceLocked(r.kind, boundBy(pod, binding), r.options.isDryRun)
	r.succeed()
}

// targetProblem says what is wrong with the target of a Binding. It returns "" if it is valid.
func targetProblem(kind, name string) string {
	if kind != "" && kind != "Node" {
		return fmt.Sprintf("target.kind: Unsupported value: %q: supported values: \"Node\", \"<empty>\"", kind)
	}
	if name == "" {
		return "target.name: Required value"
	}
	return ""
}

// bindingProblem says why a pod cannot be bound. It returns "" if it can.
func bindingProblem(pod Object) string {
	name := TextIn(MetaOf(pod), "name")
	if isTerminating(pod) {
		return fmt.Sprintf("pod %s is being deleted, cannot be assigned to a host", name)
	}
	if node := TextIn(objectIn(pod, "spec"), "nodeName"); node != "" {
		return fmt.Sprintf("pod %s is already assigned to node %q", name, node)
	}
	return ""
}

// boundBy returns a pod with the node, the annotations and the labels of a Binding.
func boundBy(pod, binding Object) Object {
	bound := Clone(pod)
	partIn(bound, "spec")["nodeName"] = objectIn(binding, "target")["name"]
	for _, field := range []string{"annotations", "labels"} {
		for key, value := range objectIn(binding, "metadata", field) {
			partIn(MetaOf(bound), field)[key] = value
		}
	}

	status := partIn(bound, "status")
	conditions := []any{}
	for _, condition := range objectsIn(status["conditions"]) {
		if condition["type"] != "PodScheduled" {
			conditions = append(conditions, condition)
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
