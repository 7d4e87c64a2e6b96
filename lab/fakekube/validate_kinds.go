package fakekube

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// validateSpec validates everything but the metadata of a built-in object.
func (k kind) validateSpec(old, o Object) []cause {
	switch k.place() {
	case "pods":
		return validatePod(old, o)
	case "nodes":
		return validateNode(old, o)
	case "namespaces":
		return validateNamespace(o)
	case "events":
		return k.validateEvent(old, o)
	case "configmaps", "secrets":
		return k.validateData(old, o)
	case "leases.coordination.k8s.io":
		return validateLease(o)
	case "clusterroles.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io":
		return k.validateRules(o)
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

// taintEffects are the effects of taints and tolerations.
var taintEffects = []string{"NoSchedule", "PreferNoSchedule", "NoExecute"}

// validateNode validates a node. Taints are reported in metadata, as by the server.
func validateNode(old, o Object) []cause {
	spec := objectIn(o, "spec")
	var causes []cause
	isSeen := map[[2]string]bool{}
	for i, taint := range objectsIn(spec["taints"]) {
		at := fmt.Sprintf("metadata.taints[%d]", i)
		key := TextIn(taint, "key")
		value := TextIn(taint, "value")
		effect := TextIn(taint, "effect")
		for _, problem := range labelKeyProblems(key) {
			causes = append(causes, invalidValue(at+".key", key, problem))
		}
		if problem := labelValueProblem(value); problem != "" {
			causes = append(causes, invalidValue(at+".value", value, problem))
		}
		if effect == "" {
			causes = append(causes, required(at+".effect", ""))
		} else {
			causes = append(causes, validateOneOf(taint, at+".", "effect", taintEffects...)...)
		}
		if isSeen[[2]string{key, effect}] {
			twice := fmt.Sprintf(`Duplicate value: {"Key":%q,"Value":%q,"Effect":%q,"TimeAdded":null}: taints must be `+
				`unique by key and effect pair`, key, value, effect)
			causes = append(causes, cause{"FieldValueDuplicate", at, twice})
		}
		isSeen[[2]string{key, effect}] = true
	}
	for i, network := range textsIn(spec["podCIDRs"]) {
		if _, err := netip.ParsePrefix(network); err != nil {
			field := fmt.Sprintf("spec.podCIDRs[%d]", i)
			reason := "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
			causes = append(causes, invalidValue(field, network, reason))
		}
	}
	return append(causes, validateNodeUpdate(objectIn(old, "spec"), spec)...)
}

// validateNodeUpdate refuses forbidden changes of a node's spec.
func validateNodeUpdate(before, spec Object) []cause {
	var causes []cause
	if before["podCIDRs"] != nil && !isEqualJSON(before["podCIDRs"], spec["podCIDRs"]) {
		reason := `node updates may not change podCIDR except from "" to valid`
		causes = append(causes, forbiddenField("spec.podCIDRs", reason))
	}
	if before["providerID"] != nil && before["providerID"] != spec["providerID"] {
		reason := `node updates may not change providerID except from "" to valid`
		causes = append(causes, forbiddenField("spec.providerID", reason))
	}
	return causes
}

// configKeyPattern is the syntax of the keys of ConfigMaps and Secrets. The server's message contains it.
const configKeyPattern = `[-._a-zA-Z0-9]+`

var configKeySyntax = regexp.MustCompile("^" + configKeyPattern + "$")

// validateData validates a ConfigMap or a Secret.
func (k kind) validateData(old, o Object) []cause {
	var causes []cause
	for _, field := range []string{"data", "binaryData"} {
		for _, key := range slices.Sorted(maps.Keys(objectIn(o, field))) {
			at := fmt.Sprintf("%s[%s]", field, key)
			if !configKeySyntax.MatchString(key) {
				reason := "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. " +
					"'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is " +
					"'" + configKeyPattern + "')"
				causes = append(causes, invalidValue(at, key, reason))
			}
			if _, isTwice := objectIn(o, "binaryData")[key]; isTwice && field == "data" {
				causes = append(causes, invalidValue(at, key, "duplicate of key present in binaryData"))
			}
		}
	}
	if old == nil {
		return causes
	}
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

// validateRules validates the rules of a role.
// https://kubernetes.io/docs/reference/kubernetes-api/authorization-resources/cluster-role-v1/
func (k kind) validateRules(o Object) []cause {
	var causes []cause
	for i, rule := range objectsIn(o["rules"]) {
		at := fmt.Sprintf("rules[%d].", i)
		if len(textsIn(rule["verbs"])) == 0 {
			causes = append(causes, required(at+"verbs", "verbs must contain at least one value"))
		}
		paths := textsIn(rule["nonResourceURLs"])
		groups := textsIn(rule["apiGroups"])
		resources := textsIn(rule["resources"])
		if len(paths) > 0 {
			if k.isNamespaced {
				reason := "namespaced rules cannot apply to non-resource URLs"
				causes = append(causes, invalidValue(at+"nonResourceURLs", paths, reason))
			} else if len(groups) > 0 || len(resources) > 0 {
				reason := "rules cannot apply to both regular resources and non-resource URLs"
				causes = append(causes, invalidValue(at+"nonResourceURLs", paths, reason))
			}
			continue
		}
		if len(groups) == 0 {
			causes = append(causes, required(at+"apiGroups", "resource rules must supply at least one api group"))
		}
		if len(resources) == 0 {
			causes = append(causes, required(at+"resources", "resource rules must supply at least one resource"))
		}
	}
	aggregation := objectIn(o, "aggregationRule")
	if aggregation != nil && len(objectsIn(aggregation["clusterRoleSelectors"])) == 0 {
		reason := "at least one clusterRoleSelector required if aggregationRule is non-nil"
		causes = append(causes, required("aggregationRule.clusterRoleSelectors", reason))
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
