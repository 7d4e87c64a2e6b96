package fakekube

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
)

// prepareForWrite returns the object to store if a client writes o in place of old, which is nil for a new object. It
// restores what the client may not change and sets defaults.
func (k kind) prepareForWrite(old, o Object, isStatus bool) Object {
	isNewNode := old == nil && k.qualified() == "nodes" // a kubelet registers its node with a status
	if k.hasStatus && !isNewNode {
		o = k.replacePart(old, o, isStatus)
	}
	if k.dropsStatus() {
		delete(o, "status")
	}
	if old == nil {
		k.setInitialFields(o)
	} else {
		keepSystemMetadata(old, o)
	}
	k.setDefaults(o)
	return o
}

// keepSystemMetadata restores the metadata that no client may change: the deletion marks and the generation.
func keepSystemMetadata(old, o Object) {
	before := MetaOf(old)
	after := MetaOf(o)
	if isTerminating(old) {
		after["deletionTimestamp"] = before["deletionTimestamp"]
		if after["deletionGracePeriodSeconds"] == nil && before["deletionGracePeriodSeconds"] != nil {
			after["deletionGracePeriodSeconds"] = before["deletionGracePeriodSeconds"]
		}
	}
	delete(after, "generation")
	if before["generation"] != nil {
		after["generation"] = before["generation"]
	}
}

// replacePart combines old and o: a write to the status changes nothing else, and a write to the object leaves the
// status alone. For built-in kinds, a write to the status may also change the metadata.
func (k kind) replacePart(old, o Object, isStatus bool) Object {
	part := maps.Clone(o)
	status := old["status"]
	if isStatus {
		part = Clone(old)
		status = o["status"]
		if !k.isCustom() && !k.isDefinition() {
			part["metadata"] = o["metadata"]
		}
	}
	part["status"] = status
	if status == nil {
		delete(part, "status")
	}
	if old != nil && k.qualified() == "namespaces" {
		part["spec"] = old["spec"] // only the subresource finalize may change it
	}
	return part
}

// setInitialFields sets the fields of a new object that clients cannot choose.
func (k kind) setInitialFields(o Object) {
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(MetaOf(o), field)
	}
	switch k.qualified() {
	case "pods":
		o["status"] = Object{"phase": "Pending", "qosClass": qosClass(partIn(o, "spec"))}
	case "namespaces":
		spec := partIn(o, "spec")
		finalizers, _ := spec["finalizers"].([]any)
		if !slices.Contains(finalizers, any("kubernetes")) {
			spec["finalizers"] = append(slices.Clone(finalizers), any("kubernetes"))
		}
		o["status"] = Object{"phase": "Active"}
	case definitions:
		o["status"] = newCRDStatus(o)
	}
}

// setDefaults sets the defaults of fields that are not set.
func (k kind) setDefaults(o Object) {
	if k.isAdded && k.hasStatus {
		partIn(o, "status") // answers show it even if it is empty
	}
	switch k.qualified() {
	case "pods":
		setPodDefaults(partIn(o, "spec"))
		setMissing(partIn(o, "status"), "qosClass", qosClass(partIn(o, "spec")))
	case "nodes":
		status := partIn(o, "status")
		if capacity := objectIn(status, "capacity"); capacity != nil {
			setMissing(status, "allocatable", maps.Clone(capacity))
		}
		setNetworks(partIn(o, "spec"))
	case "namespaces":
		partIn(MetaOf(o), "labels")["kubernetes.io/metadata.name"] = TextIn(MetaOf(o), "name")
		setMissing(partIn(o, "status"), "phase", "Active")
	case "secrets":
		setSecretDefaults(o)
	case "rolebindings.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io":
		setMissing(partIn(o, "roleRef"), "apiGroup", k.group)
		for _, subject := range objectsIn(o["subjects"]) {
			if TextIn(subject, "kind") != "ServiceAccount" {
				setMissing(subject, "apiGroup", k.group)
			}
		}
	case definitions:
		setDefinitionDefaults(o)
	case "validatingadmissionpolicies.admissionregistration.k8s.io":
		setPolicyDefaults(partIn(o, "spec"))
	}
}

// partIn returns the object at a key, and creates it if it is missing.
func partIn(o Object, key string) Object {
	part, isObject := o[key].(Object)
	if !isObject {
		part = Object{}
		o[key] = part
	}
	return part
}

// setMissing sets a field if it is missing or an empty text.
func setMissing(o Object, name string, value any) {
	if current := o[name]; current == nil || current == "" {
		o[name] = value
	}
}

// setNetworks keeps podCIDR and the first of podCIDRs equal. If they differ, podCIDR wins.
func setNetworks(spec Object) {
	networks := textsIn(spec["podCIDRs"])
	network := TextIn(spec, "podCIDR")
	switch {
	case network == "" && len(networks) > 0:
		spec["podCIDR"] = networks[0]
	case network != "" && (len(networks) == 0 || networks[0] != network):
		spec["podCIDRs"] = []any{network}
	}
}

// setSecretDefaults moves the stringData of a Secret to its data, and sets its default type.
func setSecretDefaults(o Object) {
	plain, _ := o["stringData"].(Object)
	for key := range plain {
		partIn(o, "data")[key] = base64.StdEncoding.EncodeToString([]byte(TextIn(plain, key)))
	}
	delete(o, "stringData")
	setMissing(o, "type", "Opaque")
}

// setPolicyDefaults sets the defaults of a ValidatingAdmissionPolicy.
func setPolicyDefaults(spec Object) {
	setMissing(spec, "failurePolicy", "Fail")
	match := objectIn(spec, "matchConstraints")
	if match == nil {
		return
	}
	setMissing(match, "matchPolicy", "Equivalent")
	setMissing(match, "namespaceSelector", Object{})
	setMissing(match, "objectSelector", Object{})
	for _, rule := range objectsIn(match["resourceRules"]) {
		setMissing(rule, "scope", "*")
	}
}

// setPodDefaults sets the defaults of a pod's spec, including those of the real server's admission plugins.
// https://kubernetes.io/docs/reference/access-authn-authz/admission-controllers/#defaulttolerationseconds
func setPodDefaults(spec Object) {
	setMissing(spec, "restartPolicy", "Always")
	setMissing(spec, "terminationGracePeriodSeconds", float64(30))
	setMissing(spec, "dnsPolicy", "ClusterFirst")
	setMissing(spec, "securityContext", Object{})
	setMissing(spec, "schedulerName", "default-scheduler")
	setMissing(spec, "enableServiceLinks", true)
	setMissing(spec, "priority", float64(0))
	setMissing(spec, "preemptionPolicy", "PreemptLowerPriority")
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range objectsIn(spec[list]) {
			if container != nil {
				setContainerDefaults(container)
			}
		}
	}
	for _, taint := range []string{"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"} {
		setToleration(spec, taint)
	}
}

// setToleration makes a pod tolerate a taint for five minutes, unless it already tolerates it.
func setToleration(spec Object, taint string) {
	tolerations, _ := spec["tolerations"].([]any)
	for _, toleration := range objectsIn(spec["tolerations"]) {
		key := TextIn(toleration, "key")
		effect := TextIn(toleration, "effect")
		if (key == taint || key == "") && (effect == "NoExecute" || effect == "") {
			return
		}
	}
	spec["tolerations"] = append(slices.Clone(tolerations), any(Object{
		"key":               taint,
		"operator":          "Exists",
		"effect":            "NoExecute",
		"tolerationSeconds": float64(300),
	}))
}

// setContainerDefaults sets the defaults of a container.
func setContainerDefaults(container Object) {
	setMissing(container, "terminationMessagePath", "/dev/termination-log")
	setMissing(container, "terminationMessagePolicy", "File")
	setMissing(container, "imagePullPolicy", pullPolicy(TextIn(container, "image")))
	resources := partIn(container, "resources")
	for name, limit := range objectIn(resources, "limits") {
		setMissing(partIn(resources, "requests"), name, limit)
	}
	for _, port := range objectsIn(container["ports"]) {
		setMissing(port, "protocol", "TCP")
	}
}

// pullPolicy returns the default imagePullPolicy: Always if the tag is missing or "latest".
func pullPolicy(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, hasTag := strings.Cut(name, ":")
	isDigest := strings.Contains(name, "@")
	if !isDigest && (!hasTag || tag == "latest") {
		return "Always"
	}
	return "IfNotPresent"
}

// qosClass returns the quality-of-service class of a pod. It compares amounts by their texts.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func qosClass(spec Object) string {
	hasAny := false
	isGuaranteed := true
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range objectsIn(spec[list]) {
			limits := objectIn(container, "resources", "limits")
			requests := objectIn(container, "resources", "requests")
			for _, name := range []string{"cpu", "memory"} {
				limit, request := limits[name], requests[name]
				hasAny = hasAny || limit != nil || request != nil
				isGuaranteed = isGuaranteed && limit != nil && (request == nil || request == limit)
			}
		}
	}
	switch {
	case !hasAny:
		return "BestEffort"
	case isGuaranteed:
		return "Guaranteed"
	}
	return "Burstable"
}
