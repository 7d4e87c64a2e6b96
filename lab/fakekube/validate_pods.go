package fakekube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// validatePod validates everything but the metadata of a pod.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
func validatePod(old, o Object) []cause {
	spec := objectIn(o, "spec")
	causes := validateVolumes(spec)
	containers := objectsIn(spec["containers"])
	if len(containers) == 0 {
		causes = append(causes, required("spec.containers", ""))
	}
	names := map[string]bool{}
	causes = append(causes, validateContainers(spec, "containers", names)...)
	causes = append(causes, validateContainers(spec, "initContainers", names)...)
	causes = append(causes, validatePolicies(spec)...)
	if selector := objectIn(spec, "nodeSelector"); selector != nil {
		for _, c := range validateLabels(Object{"labels": selector}) {
			c.field = "spec.nodeSelector"
			causes = append(causes, c)
		}
	}
	causes = append(causes, validatePodNames(spec)...)
	for i, gate := range objectsIn(spec["readinessGates"]) {
		condition := TextIn(gate, "conditionType")
		for _, problem := range labelKeyProblems(condition) {
			field := fmt.Sprintf("spec.readinessGates[%d].conditionType", i)
			causes = append(causes, invalidValue(field, condition, problem))
		}
	}
	causes = append(causes, validateTolerations(spec)...)
	if old == nil {
		return append(causes, validateImages(spec)...)
	}
	return append(causes, validatePodUpdate(old, o)...)
}

// validatePolicies validates the restart policy and the DNS policy.
func validatePolicies(spec Object) []cause {
	causes := validateOneOf(spec, "spec.", "restartPolicy", "Always", "OnFailure", "Never")
	policies := []string{"ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"}
	return append(causes, validateOneOf(spec, "spec.", "dnsPolicy", policies...)...)
}

// validateOneOf validates that a field has one of these values. path is the prefix of its name.
func validateOneOf(o Object, path, name string, values ...string) []cause {
	value := TextIn(o, name)
	if slices.Contains(values, value) {
		return nil
	}
	return []cause{notSupported(path+name, value, values...)}
}

// validatePodNames validates the names in a pod's spec, and its deadline.
func validatePodNames(spec Object) []cause {
	var causes []cause
	for _, field := range []string{"nodeName", "serviceAccountName"} {
		name := TextIn(spec, field)
		if name == "" {
			continue
		}
		if problem := subdomainProblem(name); problem != "" {
			causes = append(causes, invalidValue("spec."+field, name, problem))
		}
	}
	if name := TextIn(spec, "hostname"); name != "" {
		if problem := labelProblem(name); problem != "" {
			causes = append(causes, invalidValue("spec.hostname", name, problem))
		}
	}
	if seconds, isSet := spec["activeDeadlineSeconds"].(float64); isSet && seconds < 1 {
		reason := "must be between 1 and 2147483647, inclusive"
		causes = append(causes, invalidValue("spec.activeDeadlineSeconds", seconds, reason))
	}
	return causes
}

// validateVolumes validates a pod's volumes.
func validateVolumes(spec Object) []cause {
	var causes []cause
	isSeen := map[string]bool{}
	for i, volume := range objectsIn(spec["volumes"]) {
		field := fmt.Sprintf("spec.volumes[%d].name", i)
		name := TextIn(volume, "name")
		problem := labelProblem(name)
		switch {
		case name == "":
			causes = append(causes, required(field, ""))
		case problem != "":
			causes = append(causes, invalidValue(field, name, problem))
		case isSeen[name]:
			causes = append(causes, duplicateValue(field, name))
		}
		isSeen[name] = true
	}
	return causes
}

// validateContainers validates one of the lists of containers in a pod's spec. names collects the names that are
// taken.
func validateContainers(spec Object, list string, names map[string]bool) []cause {
	var causes []cause
	for i, container := range objectsIn(spec[list]) {
		path := fmt.Sprintf("spec.%s[%d].", list, i)
		name := TextIn(container, "name")
		problem := labelProblem(name)
		switch {
		case name == "":
			causes = append(causes, required(path+"name", ""))
		case problem != "":
			causes = append(causes, invalidValue(path+"name", name, problem))
		}
		if TextIn(container, "image") == "" {
			causes = append(causes, required(path+"image", ""))
		}
		causes = append(causes, validateOneOf(container, path, "imagePullPolicy", "Always", "IfNotPresent", "Never")...)
		causes = append(causes, validatePorts(container, path)...)
		causes = append(causes, validateEnv(container, path)...)
		causes = append(causes, validateVolumeMounts(spec, container, path)...)
		causes = append(causes, validateProbes(container, path)...)
		causes = append(causes, validateResources(container, path)...)
		if name != "" && names[name] {
			causes = append(causes, duplicateValue(path+"name", name))
		}
		names[name] = true
	}
	return causes
}

// maxPort is the highest port number.
const maxPort = 65535

// validatePorts validates the ports of a container.
func validatePorts(container Object, path string) []cause {
	var causes []cause
	isSeen := map[string]bool{}
	for i, port := range objectsIn(container["ports"]) {
		at := fmt.Sprintf("%sports[%d].", path, i)
		if name := TextIn(port, "name"); name != "" {
			problems := portNameProblems(name)
			for _, problem := range problems {
				causes = append(causes, invalidValue(at+"name", name, problem))
			}
			if len(problems) == 0 && isSeen[name] {
				causes = append(causes, duplicateValue(at+"name", name))
			}
			isSeen[name] = true
		}
		number, _ := port["containerPort"].(float64)
		switch {
		case number == 0:
			causes = append(causes, required(at+"containerPort", ""))
		case number < 0 || number > maxPort:
			reason := "must be between 1 and 65535, inclusive"
			causes = append(causes, invalidValue(at+"containerPort", number, reason))
		}
		if host, isSet := port["hostPort"].(float64); isSet && host != 0 && (host < 0 || host > maxPort) {
			causes = append(causes, invalidValue(at+"hostPort", host, "must be between 1 and 65535, inclusive"))
		}
		causes = append(causes, validateOneOf(port, at, "protocol", "SCTP", "TCP", "UDP")...)
	}
	return causes
}

// validateResources validates the resources that a container asks for.
// https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/
func validateResources(container Object, path string) []cause {
	resources := objectIn(container, "resources")
	limits := quantitiesIn(resources, "limits")
	requests := quantitiesIn(resources, "requests")
	causes := validateAmounts(limits, path+"resources.limits")
	causes = append(causes, validateAmounts(requests, path+"resources.requests")...)
	for _, name := range slices.Sorted(maps.Keys(requests)) {
		request := requests[name]
		limit, isLimited := limits[name]
		difference := 0
		if isLimited {
			difference = request.amount.Cmp(limit.amount)
		}
		problem := ""
		switch {
		case isExtended(name) && !isLimited:
			reason := "Limit must be set for non overcommitable resources"
			causes = append(causes, required(path+"resources.limits", reason))
		case isExtended(name) && difference != 0:
			problem = fmt.Sprintf("must be equal to %s limit of %s", name, limit)
		case difference > 0:
			problem = fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit)
		}
		if problem != "" {
			causes = append(causes, invalidValue(path+"resources.requests", request.String(), problem))
		}
	}
	return causes
}

// validateAmounts validates amounts of resources at a path.
func validateAmounts(amounts map[string]quantity, path string) []cause {
	var causes []cause
	for _, name := range slices.Sorted(maps.Keys(amounts)) {
		at := fmt.Sprintf("%s[%s]", path, name)
		amount := amounts[name]
		if !strings.Contains(name, "/") && !isNativeResource(name) {
			causes = append(causes,
				invalidValue(at, name, "must be a standard resource type or fully qualified"),
				invalidValue(at, name, "must be a standard resource for containers"))
		}
		if amount.amount.Sign() < 0 {
			causes = append(causes, invalidValue(at, amount.String(), "must be greater than or equal to 0"))
		}
		if isExtended(name) && !amount.isWhole() {
			causes = append(causes, invalidValue(at, amount.String(), "must be an integer"))
		}
	}
	return causes
}

// isNativeResource reports whether a resource name without a domain is known.
func isNativeResource(name string) bool {
	isStandard := name == "cpu" || name == "memory" || name == "ephemeral-storage"
	return isStandard || strings.HasPrefix(name, "hugepages-")
}

// isExtended reports whether Kubernetes itself does not define the resource. Its amounts are whole numbers and cannot
// be overcommitted.
func isExtended(resource string) bool {
	domain, _, hasDomain := strings.Cut(resource, "/")
	return hasDomain && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io")
}

// validateEnv validates the environment of a container.
func validateEnv(container Object, path string) []cause {
	var causes []cause
	for i, variable := range objectsIn(container["env"]) {
		at := fmt.Sprintf("%senv[%d].", path, i)
		if TextIn(variable, "name") == "" {
			causes = append(causes, required(at+"name", ""))
		}
		if TextIn(variable, "value") != "" && variable["valueFrom"] != nil {
			reason := "may not be specified when `value` is not empty"
			causes = append(causes, invalidValue(at+"valueFrom", "", reason))
		}
	}
	return causes
}

// validateVolumeMounts validates the volume mounts of a container.
func validateVolumeMounts(spec, container Object, path string) []cause {
	var causes []cause
	isVolume := map[string]bool{}
	for _, volume := range objectsIn(spec["volumes"]) {
		isVolume[TextIn(volume, "name")] = true
	}
	isMounted := map[string]bool{}
	for i, mount := range objectsIn(container["volumeMounts"]) {
		at := fmt.Sprintf("%svolumeMounts[%d].", path, i)
		name := TextIn(mount, "name")
		switch {
		case name == "":
			causes = append(causes, required(at+"name", ""))
		case !isVolume[name]:
			causes = append(causes, cause{"FieldValueNotFound", at + "name", fmt.Sprintf("Not found: %q", name)})
		}
		to := TextIn(mount, "mountPath")
		switch {
		case to == "":
			causes = append(causes, required(at+"mountPath", ""))
		case isMounted[to]:
			causes = append(causes, invalidValue(at+"mountPath", to, "must be unique"))
		}
		isMounted[to] = true
	}
	return causes
}

// validateImages refuses image names with surrounding spaces.
func validateImages(spec Object) []cause {
	var causes []cause
	for i, container := range objectsIn(spec["containers"]) {
		image := TextIn(container, "image")
		if image != strings.TrimSpace(image) {
			field := fmt.Sprintf("spec.containers[%d].image", i)
			causes = append(causes, invalidValue(field, image, "must not have leading or trailing whitespace"))
		}
	}
	return causes
}

// validateTolerations validates a pod's tolerations.
func validateTolerations(spec Object) []cause {
	var causes []cause
	for i, toleration := range objectsIn(spec["tolerations"]) {
		at := fmt.Sprintf("spec.tolerations[%d].", i)
		key := TextIn(toleration, "key")
		operator := TextIn(toleration, "operator")
		if key != "" {
			for _, problem := range labelKeyProblems(key) {
				causes = append(causes, invalidValue(at+"key", key, problem))
			}
		}
		if key == "" && operator != "Exists" {
			reason := "operator must be Exists when `key` is empty, which means \"match all values and all keys\""
			causes = append(causes, invalidValue(at+"operator", operator, reason))
		}
		effect := TextIn(toleration, "effect")
		if toleration["tolerationSeconds"] != nil && effect != "NoExecute" {
			reason := "effect must be 'NoExecute' when `tolerationSeconds` is set"
			causes = append(causes, invalidValue(at+"effect", effect, reason))
		}
		value := TextIn(toleration, "value")
		switch {
		case operator == "Exists" && value != "":
			reason := "value must be empty when `operator` is 'Exists'"
			causes = append(causes, invalidValue(at+"operator", value, reason))
		case operator != "Exists" && operator != "":
			causes = append(causes, validateOneOf(toleration, at, "operator", "Equal", "Exists")...)
		}
		if effect != "" {
			causes = append(causes, validateOneOf(toleration, at, "effect", taintEffects...)...)
		}
	}
	return causes
}

// validatePodUpdate refuses forbidden changes of a pod.
// https://kubernetes.io/docs/concepts/workloads/pods/#pod-update-and-replacement
func validatePodUpdate(old, o Object) []cause {
	oldSpec := objectIn(old, "spec")
	newSpec := Clone(objectIn(o, "spec"))
	for _, list := range []string{"containers", "initContainers"} {
		before := objectsIn(oldSpec[list])
		after := objectsIn(newSpec[list])
		if len(before) != len(after) {
			kind := "containers"
			if list == "initContainers" {
				kind = "init containers"
			}
			return []cause{forbiddenField("spec."+list, "pod updates may not add or remove "+kind)}
		}
		for i := range after {
			after[i]["image"] = before[i]["image"]
		}
	}
	causes := validateDeadlineUpdate(oldSpec, newSpec)
	causes = append(causes, validateTolerationUpdate(oldSpec, newSpec)...)
	for _, field := range []string{"activeDeadlineSeconds", "tolerations"} {
		newSpec[field] = oldSpec[field]
		if oldSpec[field] == nil {
			delete(newSpec, field)
		}
	}
	if before, isSet := oldSpec["terminationGracePeriodSeconds"].(float64); isSet && before < 0 {
		newSpec["terminationGracePeriodSeconds"] = before
	}
	if len(causes) == 0 && !isEqualJSON(oldSpec, newSpec) {
		causes = append(causes, forbiddenField("spec", "pod updates may not change fields other than "+
			"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
			"`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "+
			"it to be set to 1 if it was previously negative)\n"))
	}
	qos := objectIn(o, "status")["qosClass"]
	if before := objectIn(old, "status")["qosClass"]; before != nil && qos != nil && !isEqualJSON(qos, before) {
		causes = append(causes, invalidValue("status.qosClass", qos, "field is immutable"))
	}
	return causes
}

// validateDeadlineUpdate validates that activeDeadlineSeconds only decreases.
func validateDeadlineUpdate(oldSpec, newSpec Object) []cause {
	before, wasSet := oldSpec["activeDeadlineSeconds"].(float64)
	after, isSet := newSpec["activeDeadlineSeconds"].(float64)
	const field = "spec.activeDeadlineSeconds"
	switch {
	case wasSet && !isSet:
		return []cause{invalidValue(field, nil, "must not update from a positive integer to nil value")}
	case wasSet && after > before:
		return []cause{invalidValue(field, after, "must be less than or equal to previous value")}
	}
	return nil
}

// validateTolerationUpdate validates that tolerations are only added.
func validateTolerationUpdate(oldSpec, newSpec Object) []cause {
	bare := func(toleration Object) Object {
		without := maps.Clone(toleration)
		delete(without, "tolerationSeconds")
		return without
	}
	after := objectsIn(newSpec["tolerations"])
	for _, before := range objectsIn(oldSpec["tolerations"]) {
		isSame := func(toleration Object) bool { return isEqualJSON(bare(toleration), bare(before)) }
		isKept := slices.ContainsFunc(after, isSame)
		if !isKept {
			reason := "existing toleration can not be modified except its tolerationSeconds"
			return []cause{forbiddenField("spec.tolerations", reason)}
		}
	}
	return nil
}
