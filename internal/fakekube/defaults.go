package fakekube

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"time"
)

// prepareForWrite is what becomes of old where a client writes o: the parts that the client may not write are as they were,
// and what it leaves out gets its default. old is nil where there is none yet.
func (k kind) prepareForWrite(old, o Object, isStatus bool) Object {
	registersItself := old == nil && k.qualified() == "nodes" // with its status
	if k.hasStatus && !registersItself {
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

// keepSystemMetadata restores what no write may take away from the metadata of an object: that it is being deleted, and its
// generation.
func keepSystemMetadata(old, o Object) {
	was := MetaOf(old)
	is := MetaOf(o)
	if isTerminating(old) {
		is["deletionTimestamp"] = was["deletionTimestamp"]
		if is["deletionGracePeriodSeconds"] == nil && was["deletionGracePeriodSeconds"] != nil {
			is["deletionGracePeriodSeconds"] = was["deletionGracePeriodSeconds"]
		}
	}
	delete(is, "generation")
	if was["generation"] != nil {
		is["generation"] = was["generation"]
	}
}

// replacePart is what becomes of old where o is written: whoever writes to the status changes nothing else, and the
// other way round. The status of a built-in kind takes changes of the metadata along.
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
		part["spec"] = old["spec"] // only the subresource finalize changes it
	}
	return part
}

// setInitialFields sets what the server gives an object that a client creates, whatever it says.
func (k kind) setInitialFields(o Object) {
	for _, field := range []string{"deletionTimestamp", "deletionGracePeriodSeconds"} {
		delete(MetaOf(o), field)
	}
	switch k.qualified() {
	case "pods":
		o["status"] = newPodStatus(partIn(o, "spec"))
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

// setDefaults sets what an object leaves out and has a default.
func (k kind) setDefaults(o Object) {
	switch k.qualified() {
	case "pods":
		setPodDefaults(partIn(o, "spec"))
		setMissing(partIn(o, "status"), "qosClass", qosClass(partIn(o, "spec")))
	case "nodes":
		status := partIn(o, "status")
		if capacity := objectIn(status, "capacity"); capacity != nil {
			setMissing(status, "allocatable", maps.Clone(capacity))
		}
		spec := partIn(o, "spec")
		setNetworks(spec)
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

// partIn is the object under a key. Where there is none, it is made.
func partIn(o Object, key string) Object {
	part, isObject := o[key].(Object)
	if !isObject {
		part = Object{}
		o[key] = part
	}
	return part
}

// setMissing sets a field that is not set, or is empty.
func setMissing(o Object, name string, value any) {
	if is := o[name]; is == nil || is == "" {
		o[name] = value
	}
}

// setNetworks makes the network of a node the first of its networks. Where the two are not the same, the former counts.
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

// setSecretDefaults moves what a Secret says in plain text to its data.
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

// setPodDefaults sets the defaults of a pod's spec, those too that the real server's admission plugins set.
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
				setContainerDefaults(container, spec["hostNetwork"] == true)
			}
		}
	}
	for _, volume := range objectsIn(spec["volumes"]) {
		if volume != nil {
			setVolumeDefaults(volume)
		}
	}
	for _, trouble := range []string{"not-ready", "unreachable"} {
		setToleration(spec, "node.kubernetes.io/"+trouble)
	}
}

// setToleration lets a pod stay for five minutes on a node that has got this taint, unless the pod says something of
// it.
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
func setContainerDefaults(container Object, isOnHost bool) {
	setMissing(container, "terminationMessagePath", "/dev/termination-log")
	setMissing(container, "terminationMessagePolicy", "File")
	setMissing(container, "imagePullPolicy", pullPolicy(TextIn(container, "image")))
	resources := partIn(container, "resources")
	for name, limit := range objectIn(resources, "limits") {
		setMissing(partIn(resources, "requests"), name, limit)
	}
	for _, port := range objectsIn(container["ports"]) {
		setMissing(port, "protocol", "TCP")
		if isOnHost && port["containerPort"] != nil {
			setMissing(port, "hostPort", port["containerPort"])
		}
	}
	for _, variable := range objectsIn(container["env"]) {
		if source := objectIn(variable, "valueFrom", "fieldRef"); source != nil {
			setMissing(source, "apiVersion", "v1")
		}
	}
	for _, name := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		if probe := objectIn(container, name); probe != nil {
			setProbeDefaults(probe)
		}
	}
}

// pullPolicy is when a node pulls an image: always, where the image has no tag, or the tag is "latest".
func pullPolicy(image string) string {
	name := image[strings.LastIndex(image, "/")+1:]
	_, tag, hasTag := strings.Cut(name, ":")
	isDigest := strings.Contains(name, "@")
	if !isDigest && (!hasTag || tag == "latest") {
		return "Always"
	}
	return "IfNotPresent"
}

// setProbeDefaults sets the defaults of a probe.
func setProbeDefaults(probe Object) {
	setMissing(probe, "timeoutSeconds", float64(1))
	setMissing(probe, "periodSeconds", float64(10))
	setMissing(probe, "successThreshold", float64(1))
	setMissing(probe, "failureThreshold", float64(3))
	if get := objectIn(probe, "httpGet"); get != nil {
		setMissing(get, "path", "/")
		setMissing(get, "scheme", "HTTP")
	}
}

// readable is the mode of files in volumes: owner, group and others may read, the owner may write.
const readable = float64(0o644)

// setVolumeDefaults sets the defaults of a volume.
func setVolumeDefaults(volume Object) {
	if len(volume) == 1 { // its name
		volume["emptyDir"] = Object{}
	}
	for _, source := range []string{"configMap", "secret", "projected", "downwardAPI"} {
		if from := objectIn(volume, source); from != nil {
			setMissing(from, "defaultMode", readable)
		}
	}
	if path := objectIn(volume, "hostPath"); path != nil {
		setMissing(path, "type", "")
	}
}

// newPodStatus is the status of a pod that a client has just made. A pod with scheduling gates says that it waits.
// https://kubernetes.io/docs/concepts/scheduling-eviction/pod-scheduling-readiness/
func newPodStatus(spec Object) Object {
	status := Object{"phase": "Pending", "qosClass": qosClass(spec)}
	gates, _ := spec["schedulingGates"].([]any)
	if len(gates) > 0 {
		status["conditions"] = []any{Object{
			"type":               "PodScheduled",
			"status":             "False",
			"lastProbeTime":      nil,
			"lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
			"reason":             "SchedulingGated",
			"message":            "Scheduling is blocked due to non-empty scheduling gates",
		}}
	}
	return status
}

// qosClass says what a pod is worth where its node runs short.
// https://kubernetes.io/docs/concepts/workloads/pods/pod-qos/
func qosClass(spec Object) string {
	hasAny := false
	isGuaranteed := true
	for _, list := range []string{"initContainers", "containers"} {
		for _, container := range objectsIn(spec[list]) {
			resources := objectIn(container, "resources")
			limits := aboveZero(quantitiesIn(resources, "limits"))
			requests := aboveZero(quantitiesIn(resources, "requests"))
			for _, name := range []string{"cpu", "memory"} {
				limit, isLimited := limits[name]
				request, isRequested := requests[name]
				if isLimited || isRequested {
					hasAny = true
				}
				if !isLimited || isRequested && request.amount.Cmp(limit.amount) != 0 {
					isGuaranteed = false
				}
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

// aboveZero are those of some quantities that are more than nothing.
func aboveZero(all map[string]quantity) map[string]quantity {
	maps.DeleteFunc(all, func(_ string, q quantity) bool { return q.amount.Sign() <= 0 })
	return all
}
