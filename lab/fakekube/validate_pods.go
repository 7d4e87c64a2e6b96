package fakekube

import (
	"fmt"
	"slices"
)

// validatePod validates what clients of a pod rely on: its containers have names and images, and its spec stays as it
// is. A real server checks far more fields.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/
func validatePod(old, o Object) []cause {
	spec := objectIn(o, "spec")
	var causes []cause
	if len(objectsIn(spec["containers"])) == 0 {
		causes = append(causes, required("spec.containers", ""))
	}
	names := map[string]bool{}
	causes = append(causes, validateContainers(spec, "containers", names)...)
	causes = append(causes, validateContainers(spec, "initContainers", names)...)
	causes = append(causes, validateOneOf(spec, "spec.", "restartPolicy", "Always", "OnFailure", "Never")...)
	if name := TextIn(spec, "nodeName"); name != "" {
		if problem := subdomainProblem(name); problem != "" {
			causes = append(causes, invalidValue("spec.nodeName", name, problem))
		}
	}
	if old != nil {
		causes = append(causes, validatePodUpdate(old, o)...)
	}
	return causes
}

// validateOneOf validates that a field has one of these values. path is the prefix of its name.
func validateOneOf(o Object, path, name string, values ...string) []cause {
	value := TextIn(o, name)
	if slices.Contains(values, value) {
		return nil
	}
	return []cause{notSupported(path+name, value, values...)}
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
		if name != "" && names[name] {
			causes = append(causes, duplicateValue(path+"name", name))
		}
		names[name] = true
	}
	return causes
}

// validatePodUpdate refuses changes of a pod's spec, except of the few fields that may change. What values these may
// have is not checked.
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
	for _, field := range []string{"activeDeadlineSeconds", "tolerations"} {
		newSpec[field] = oldSpec[field]
		if oldSpec[field] == nil {
			delete(newSpec, field)
		}
	}
	if isEqualJSON(oldSpec, newSpec) {
		return nil
	}
	return []cause{forbiddenField("spec", "pod updates may not change fields other than "+
		"`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,"+
		"`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow "+
		"it to be set to 1 if it was previously negative)\n")}
}
