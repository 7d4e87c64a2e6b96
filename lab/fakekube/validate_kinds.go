package fakekube

import (
	"fmt"
	"strings"
)

// validateSpec validates everything but the metadata of a built-in object.
func (k kind) validateSpec(old, o Object) []cause {
	switch k.place() {
	case "pods":
		return validatePod(old, o)
	case "namespaces":
		return validateNamespace(o)
	case "events":
		return k.validateEvent(old, o)
	case "configmaps", "secrets":
		return k.validateData(old, o)
	case "leases.coordination.k8s.io":
		return validateLease(o)
	case "clusterrolebindings.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io":
		return k.validateBinding(old, o)
	case definitions:
		return validateDefinition(old, o)
	}
	return nil
}

// validateNamespace validates a namespace.
func validateNamespace(o Object) []cause {
	var causes []cause
	for _, finalizer := range textsIn(objectIn(o, "spec")["finalizers"]) {
		causes = append(causes, validateNamespaceFinalizer("spec.finalizers", finalizer)...)
	}
	phase := TextIn(objectIn(o, "status"), "phase")
	switch {
	case isTerminating(o) && phase != "Terminating":
		reason := "may only be 'Terminating' if `deletionTimestamp` is not empty"
		causes = append(causes, invalidValue("status.Phase", phase, reason))
	case !isTerminating(o) && phase != "Active":
		reason := "may only be 'Active' if `deletionTimestamp` is empty"
		causes = append(causes, invalidValue("status.Phase", phase, reason))
	}
	return causes
}

// validateNamespaceFinalizer validates a finalizer in the spec of a namespace.
func validateNamespaceFinalizer(path, finalizer string) []cause {
	var causes []cause
	for _, problem := range labelKeyProblems(finalizer) {
		causes = append(causes, invalidValue(path, finalizer, problem))
	}
	if !strings.Contains(finalizer, "/") && finalizer != "kubernetes" && !isCollectorFinalizer(finalizer) {
		reason := "name is neither a standard finalizer name nor is it fully qualified"
		causes = append(causes, invalidValue(path, finalizer, reason))
	}
	return causes
}

// validateLease validates a Lease.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/lease-v1/
func validateLease(o Object) []cause {
	var causes []cause
	spec := objectIn(o, "spec")
	if seconds, isSet := spec["leaseDurationSeconds"].(float64); isSet && seconds <= 0 {
		causes = append(causes, invalidValue("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
	}
	if count, isSet := spec["leaseTransitions"].(float64); isSet && count < 0 {
		causes = append(causes, invalidValue("spec.leaseTransitions", count, "must be greater than or equal to 0"))
	}
	return causes
}

// validateData refuses changes of the immutable fields of a ConfigMap or a Secret.
func (k kind) validateData(old, o Object) []cause {
	var causes []cause
	if k.qualified() == "secrets" && old["type"] != nil && old["type"] != o["type"] {
		causes = append(causes, invalidValue("type", o["type"], "field is immutable"))
	}
	if old["immutable"] != true {
		return causes
	}
	const why = "field is immutable when `immutable` is set"
	for _, field := range []string{"immutable", "data", "binaryData"} {
		if !isEqualJSON(old[field], o[field]) {
			causes = append(causes, forbiddenField(field, why))
		}
	}
	return causes
}

// validateBinding validates a binding of a role.
// https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/role-binding-v1/
func (k kind) validateBinding(old, o Object) []cause {
	role := objectIn(o, "roleRef")
	causes := validateOneOf(role, "roleRef.", "apiGroup", k.group)
	kinds := []string{"ClusterRole"}
	if k.isNamespaced {
		kinds = []string{"Role", "ClusterRole"}
	}
	causes = append(causes, validateOneOf(role, "roleRef.", "kind", kinds...)...)
	name := TextIn(role, "name")
	if name == "" {
		causes = append(causes, required("roleRef.name", ""))
	} else if problem := segmentProblem(name); problem != "" {
		causes = append(causes, invalidValue("roleRef.name", name, problem))
	}
	for i, subject := range objectsIn(o["subjects"]) {
		at := fmt.Sprintf("subjects[%d].", i)
		if TextIn(subject, "name") == "" {
			causes = append(causes, required(at+"name", ""))
		}
		group := k.group
		if TextIn(subject, "kind") == "ServiceAccount" {
			group = ""
		}
		kindCauses := validateOneOf(subject, at, "kind", "ServiceAccount", "User", "Group")
		if len(kindCauses) == 0 {
			kindCauses = validateOneOf(subject, at, "apiGroup", group)
		}
		causes = append(causes, kindCauses...)
		if !k.isNamespaced && TextIn(subject, "kind") == "ServiceAccount" && TextIn(subject, "namespace") == "" {
			causes = append(causes, required(at+"namespace", ""))
		}
	}
	if old != nil && !isEqualJSON(old["roleRef"], role) {
		changed := fmt.Sprintf(`Invalid value: {"APIGroup":%q,"Kind":%q,"Name":%q}: cannot change roleRef`,
			role["apiGroup"], role["kind"], role["name"])
		causes = append(causes, cause{"FieldValueInvalid", "roleRef", changed})
	}
	return causes
}
