package fakekube

import (
	"fmt"
	"strings"
)

// validateDefinition validates the names and the versions of a CustomResourceDefinition, but not what is in its schemas
// and its columns. old is the replaced one, or nil.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#specifying-a-structural-schema
func validateDefinition(old, o Object) []cause {
	spec := objectIn(o, "spec")
	names := objectIn(spec, "names")
	group := TextIn(spec, "group")
	var causes []cause
	name := TextIn(MetaOf(o), "name")
	if old == nil && name != TextIn(names, "plural")+"."+group {
		causes = append(causes, invalidValue("metadata.name", name, `must be spec.names.plural+"."+spec.group`))
	}
	switch {
	case group == "":
		causes = append(causes, required("spec.group", ""))
	case subdomainProblem(group) != "":
		causes = append(causes, invalidValue("spec.group", group, subdomainProblem(group)))
	case !strings.Contains(group, "."):
		causes = append(causes, invalidValue("spec.group", group, "should be a domain with at least one dot"))
	}
	if TextIn(spec, "scope") == "" {
		causes = append(causes, required("spec.scope", ""))
	} else {
		causes = append(causes, validateOneOf(spec, "spec.", "scope", "Cluster", "Namespaced")...)
	}
	causes = append(causes, validateVersions(spec)...)
	causes = append(causes, validateDefinitionNames(names)...)
	if old != nil {
		causes = append(causes, validateDefinitionUpdate(old, o)...)
	}
	return causes
}

// validateDefinitionUpdate refuses changes of the fields that determine how objects are stored.
func validateDefinitionUpdate(old, o Object) []cause {
	var causes []cause
	check := func(within []string, field string) {
		before := TextIn(objectIn(old, within...), field)
		after := TextIn(objectIn(o, within...), field)
		if before != after {
			at := strings.Join(within, ".") + "." + field
			causes = append(causes, invalidValue(at, after, "field is immutable"))
		}
	}
	if conditionOf(objectIn(old, "status"), "Established") == "True" {
		check([]string{"spec"}, "scope")
		check([]string{"spec", "names"}, "kind")
	}
	check([]string{"spec"}, "group")
	check([]string{"spec", "names"}, "plural")
	return causes
}

// validateVersions validates the versions of a definition.
func validateVersions(spec Object) []cause {
	var causes []cause
	stored := 0
	hasTwins := false
	isNamed := map[string]bool{}
	for i, version := range objectsIn(spec["versions"]) {
		at := fmt.Sprintf("spec.versions[%d].", i)
		if version["storage"] == true {
			stored++
		}
		hasTwins = hasTwins || isNamed[TextIn(version, "name")]
		isNamed[TextIn(version, "name")] = true
		if name := TextIn(version, "name"); dnsLabelProblem(name) != "" {
			causes = append(causes, invalidValue(at+"name", name, dnsLabelProblem(name)))
		}
		if objectIn(version, "schema", "openAPIV3Schema") == nil {
			causes = append(causes, required(at+"schema.openAPIV3Schema", ""))
		}
	}
	if hasTwins {
		causes = append(causes, invalidValue("spec.versions", spec["versions"], "must contain unique version names"))
	}
	if stored != 1 {
		reason := "must have exactly one version marked as storage version"
		causes = append(causes, invalidValue("spec.versions", spec["versions"], reason))
	}
	return causes
}

// validateDefinitionNames validates the names in a definition.
func validateDefinitionNames(names Object) []cause {
	var causes []cause
	for _, field := range []string{"plural", "singular", "kind", "listKind"} {
		name := TextIn(names, field)
		at := "spec.names." + field
		problem := dnsLabelProblem(strings.ToLower(name))
		switch {
		case name == "":
			causes = append(causes, required(at, ""))
		case (field == "kind" || field == "listKind") && problem != "":
			causes = append(causes, invalidValue(at, name, "may have mixed case, but should otherwise match: "+problem))
		case field == "plural" || field == "singular":
			if problem := dnsLabelProblem(name); problem != "" {
				causes = append(causes, invalidValue(at, name, problem))
			}
		}
	}
	if listKind := TextIn(names, "listKind"); listKind != "" && listKind == TextIn(names, "kind") {
		causes = append(causes, invalidValue("spec.names.listKind", listKind, "kind and listKind may not be the same"))
	}
	return causes
}
