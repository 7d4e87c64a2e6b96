package behaviours

import (
	"path"

	"podcount/internal/api/kube"
)

func refusedByPolicy(w *world) {
	node := w.addNode("policy", "policy")
	const group = "/apis/admissionregistration.k8s.io/v1/"
	_, err := w.try("GET", group+"validatingadmissionpolicies?limit=1", nil)
	if kube.StatusOf(err).Code == 404 {
		w.cannotShow("ValidatingAdmissionPolicy needs Kubernetes 1.30")
	}
	policy := named(w.namespace)
	policy["spec"] = object{
		"failurePolicy": "Fail",
		"matchConstraints": object{"resourceRules": []any{object{
			"apiGroups":   []any{""},
			"apiVersions": []any{"v1"},
			"operations":  []any{"CREATE", "UPDATE"},
			"resources":   []any{"nodes"},
		}}},
		"matchConditions": []any{object{
			"name":       "ours",
			"expression": "object.metadata.name == '" + path.Base(node) + "'",
		}},
		"validations": []any{object{
			"expression": "!('" + countLabel + "' in object.metadata.labels)",
			"message":    "no counts today",
		}},
	}
	policyPath := w.create(group+"validatingadmissionpolicies", policy)
	binding := named(w.namespace)
	binding["spec"] = object{"policyName": w.namespace, "validationActions": []any{"Deny"}}
	bindingPath := w.create(group+"validatingadmissionpolicybindings", binding)
	w.await("the policy is in force", func() bool {
		_, err := w.try("PATCH", node, labels(countLabel, "13"))
		return err != nil
	})

	log := w.start(w.admin(), "policy")
	w.awaitLog(log, "422 Invalid", "no counts today")
	w.delete(bindingPath)
	w.delete(policyPath)
	w.awaitLabel(node, "0")
}
