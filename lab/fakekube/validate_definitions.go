package fakekube

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// validateDefinition validates the names, the versions and the schemas of a CustomResourceDefinition. old is the
// replaced one, or nil.
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
	if validation, isShared := sharedByVersions(spec, "schema").(Object); isShared {
		schema := objectIn(validation, "openAPIV3Schema")
		if schema != nil {
			causes = append(causes, validateStructural("spec.validation.openAPIV3Schema", schema, atRoot)...)
		}
	}
	causes = append(causes, validateColumns("spec.", sharedByVersions(spec, "additionalPrinterColumns"))...)
	if old != nil {
		causes = append(causes, validateDefinitionUpdate(old, o)...)
	}
	return append(causes, validateApproval(group, objectIn(o, "metadata", "annotations"))...)
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

// approvalAnnotation links to the approval of a definition in one of Kubernetes' own groups.
const approvalAnnotation = "api-approved.kubernetes.io"

// validateApproval refuses definitions in Kubernetes' own groups without an approval.
func validateApproval(group string, annotations Object) []cause {
	dotted := "." + group
	isProtected := strings.HasSuffix(dotted, ".k8s.io") || strings.HasSuffix(dotted, ".kubernetes.io")
	if !isProtected {
		return nil
	}
	const (
		field = "metadata.annotations[" + approvalAnnotation + "]"
		need  = `protected groups must have approval annotation "` + approvalAnnotation + `"`
		see   = ", see https://github.com/kubernetes/enhancements/pull/1111"
	)
	approval := TextIn(annotations, approvalAnnotation)
	approvedAt, err := url.Parse(approval)
	isURL := err == nil && approvedAt.Host != "" && approvedAt.Scheme != ""
	switch {
	case approval == "":
		return []cause{required(field, need+see)}
	case !isURL && !strings.HasPrefix(approval, "unapproved"):
		reason := need + ` with either a URL or a reason starting with "unapproved"` + see
		return []cause{invalidValue(field, approval, reason)}
	}
	return nil
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
		schema := objectIn(version, "schema", "openAPIV3Schema")
		if schema == nil {
			causes = append(causes, required(at+"schema.openAPIV3Schema", ""))
		} else if sharedByVersions(spec, "schema") == nil {
			causes = append(causes, validateStructural(at+"schema.openAPIV3Schema", schema, atRoot)...)
		}
		if sharedByVersions(spec, "additionalPrinterColumns") == nil {
			causes = append(causes, validateColumns(at, version["additionalPrinterColumns"])...)
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

// sharedByVersions returns a field if it is equal in all versions of a definition, and nil otherwise. The server
// reports such a field once, as a field of the spec.
func sharedByVersions(spec Object, field string) any {
	versions := objectsIn(spec["versions"])
	if len(versions) == 0 {
		return nil
	}
	shared := versions[0][field]
	differs := func(version Object) bool { return !isEqualJSON(version[field], shared) }
	if slices.ContainsFunc(versions, differs) {
		return nil
	}
	return shared
}

// Allowed values of printer columns.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#additional-printer-columns
var (
	columnTypes   = []string{"boolean", "date", "integer", "number", "string"}
	columnFormats = []string{"byte", "date", "date-time", "double", "float", "int32", "int64", "password"}
)

// validateColumns validates the printer columns at a path.
func validateColumns(path string, columns any) []cause {
	var causes []cause
	for i, column := range objectsIn(columns) {
		at := fmt.Sprintf("%sadditionalPrinterColumns[%d].", path, i)
		if TextIn(column, "name") == "" {
			causes = append(causes, required(at+"name", ""))
		}
		actual := TextIn(column, "type")
		reason := "must be one of " + strings.Join(columnTypes, ",")
		if actual == "" {
			causes = append(causes, required(at+"type", reason))
		} else if !slices.Contains(columnTypes, actual) {
			causes = append(causes, invalidValue(at+"type", actual, reason))
		}
		format := TextIn(column, "format")
		if format != "" && !slices.Contains(columnFormats, format) {
			reason := "must be one of " + strings.Join(columnFormats, ",")
			causes = append(causes, invalidValue(at+"format", format, reason))
		}
		jsonPath := TextIn(column, "jsonPath")
		if jsonPath == "" {
			causes = append(causes, required(at+"JSONPath", ""))
		} else if jsonPath[0] != '.' {
			causes = append(causes, invalidValue(at+"JSONPath", jsonPath, "must be a simple json path starting with ."))
		}
	}
	return causes
}

// mixedCase is the first part of the message about the name of a kind.
const mixedCase = "may have mixed case, but should otherwise match: "

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
			causes = append(causes, invalidValue(at, name, mixedCase+problem))
		case field == "plural" || field == "singular":
			if problem := dnsLabelProblem(name); problem != "" {
				causes = append(causes, invalidValue(at, name, problem))
			}
		}
	}
	causes = append(causes, validateDNSLabels("spec.names.shortNames", textsIn(names["shortNames"]))...)
	if listKind := TextIn(names, "listKind"); listKind != "" && listKind == TextIn(names, "kind") {
		causes = append(causes, invalidValue("spec.names.listKind", listKind, "kind and listKind may not be the same"))
	}
	return append(causes, validateDNSLabels("spec.names.categories", textsIn(names["categories"]))...)
}

// validateDNSLabels validates that all names in a list at this path are labels of RFC 1035.
func validateDNSLabels(path string, names []string) []cause {
	var causes []cause
	for i, name := range names {
		if problem := dnsLabelProblem(name); problem != "" {
			causes = append(causes, invalidValue(fmt.Sprintf("%s[%d]", path, i), name, problem))
		}
	}
	return causes
}
