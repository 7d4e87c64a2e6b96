package fakekube

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// definitions is the qualified resource of CustomResourceDefinitions. Each one that a client creates or Put stores
// adds a kind.
// https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// dropsStatus reports whether the schema of a custom resource lacks the status, so the server does not store it.
func (k kind) dropsStatus() bool {
	if !k.isCustom() {
		return false
	}
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	keepsAll, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool)
	return !keepsAll && objectIn(schema, "properties", "status") == nil
}

// definitionProblemLocked says why a definition makes no kind. It returns "" if it makes one.
func (s *Server) definitionProblemLocked(crd Object) string {
	spec := objectIn(crd, "spec")
	defined := kind{group: TextIn(spec, "group"), resource: TextIn(spec, "names", "plural")}
	switch {
	case defined.group == "" || defined.resource == "" || TextIn(spec, "names", "kind") == "":
		return "spec.group, spec.names.plural or spec.names.kind is missing"
	case TextIn(spec, "scope") == "":
		return "spec.scope is missing: Namespaced or Cluster"
	case storageVersion(crd) == "":
		return "spec.versions has none with storage: true and a name"
	case s.isBuiltInLocked(defined):
		return "the fake serves " + defined.qualified() + " already, perhaps by Serve"
	}
	return ""
}

// isBuiltInLocked reports whether the fake serves the resource of a kind without a definition.
func (s *Server) isBuiltInLocked(defined kind) bool {
	return slices.ContainsFunc(s.kinds, func(k kind) bool {
		return !k.isCustom() && k.qualified() == defined.qualified()
	})
}

// establishedLocked returns a definition with its final status: established, or with the names that conflict.
func (s *Server) establishedLocked(crd Object) Object {
	crd = Clone(crd)
	setDefinitionDefaults(crd)
	s.acceptNamesLocked(crd)
	setEstablished(crd)
	return crd
}

// setDefinitionDefaults sets the optional fields in the spec of a definition.
func setDefinitionDefaults(crd Object) {
	spec := objectIn(crd, "spec")
	names := objectIn(spec, "names")
	if names == nil {
		return
	}
	if spec["conversion"] == nil {
		spec["conversion"] = Object{"strategy": "None"}
	}
	if TextIn(names, "singular") == "" {
		names["singular"] = strings.ToLower(TextIn(names, "kind"))
	}
	if TextIn(names, "listKind") == "" {
		names["listKind"] = TextIn(names, "kind") + "List"
	}
}

// newCRDStatus returns the initial status of a definition.
func newCRDStatus(crd Object) Object {
	return Object{
		"conditions":     nil,
		"acceptedNames":  Object{"plural": "", "kind": ""},
		"storedVersions": []any{storageVersion(crd)},
	}
}

// storageVersion returns the name of the version in which objects are stored.
func storageVersion(crd Object) string {
	for _, version := range objectsIn(objectIn(crd, "spec")["versions"]) {
		if version["storage"] == true {
			return TextIn(version, "name")
		}
	}
	return ""
}

// acceptNamesLocked updates the accepted names in a definition's status, and the conditions that follow from them.
func (s *Server) acceptNamesLocked(crd Object) {
	status := objectIn(crd, "status")
	if status["storedVersions"] == nil {
		status = newCRDStatus(crd)
		crd["status"] = status
	}
	reason, message := s.acceptFreeNamesLocked(crd)
	isEstablished := conditionOf(status, "Established") == "True"
	hasConflict := reason != ""
	if hasConflict {
		setCondition(status, "NamesAccepted", "False", reason, message)
	} else {
		setCondition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
	}
	switch {
	case isEstablished:
		// An established definition stays so, even if its names conflict.
	case hasConflict:
		setCondition(status, "Established", "False", "NotAccepted", "not all names are accepted")
	default:
		setCondition(status, "Established", "False", "Installing", "the initial names have been accepted")
	}
}

// setEstablished sets the condition Established if the names have been accepted.
func setEstablished(crd Object) {
	status := objectIn(crd, "status")
	if conditionOf(status, "NamesAccepted") == "True" && conditionOf(status, "Established") != "True" {
		setCondition(status, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
	}
}

// acceptFreeNamesLocked accepts each name of a definition that no other definition of the group uses. reason and
// message describe the last conflict; reason is "" if there is none.
func (s *Server) acceptFreeNamesLocked(crd Object) (reason, message string) {
	wanted := objectIn(crd, "spec", "names")
	status := objectIn(crd, "status")
	accepted := maps.Clone(objectIn(status, "acceptedNames"))
	status["acceptedNames"] = accepted
	resources, kinds := s.namesTakenLocked(crd)
	accept := func(name string, taken []string, conflict string) {
		text := TextIn(wanted, name)
		if text != TextIn(accepted, name) && slices.Contains(taken, text) {
			reason = conflict
			message = inUse(text)
			return
		}
		accepted[name] = text
	}
	accept("plural", resources, "PluralConflict")
	accept("singular", resources, "SingularConflict")
	var refused []string
	for _, short := range textsIn(wanted["shortNames"]) {
		if slices.Contains(resources, short) && !slices.Contains(textsIn(accepted["shortNames"]), short) {
			refused = append(refused, inUse(short))
		}
	}
	if len(refused) > 0 {
		reason = "ShortNamesConflict"
		message = strings.Join(refused, ", ")
	} else {
		copyIfSet(accepted, wanted, "shortNames")
	}
	accept("kind", kinds, "KindConflict")
	accept("listKind", kinds, "ListKindConflict")
	copyIfSet(accepted, wanted, "categories")
	return reason, message
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }

// copyIfSet copies a key between objects, or deletes it if the source lacks it.
func copyIfSet(into, from Object, key string) {
	delete(into, key)
	if from[key] != nil {
		into[key] = from[key]
	}
}

// namesTakenLocked returns the resource names and the kind names that other definitions of the group use.
func (s *Server) namesTakenLocked(crd Object) (resources, kinds []string) {
	group := TextIn(objectIn(crd, "spec"), "group")
	for key, other := range s.objects[definitions] {
		if key == KeyOf(crd) || TextIn(objectIn(other, "spec"), "group") != group {
			continue
		}
		taken := objectIn(other, "status", "acceptedNames")
		resources = append(resources, TextIn(taken, "plural"), TextIn(taken, "singular"))
		resources = append(resources, textsIn(taken["shortNames"])...)
		kinds = append(kinds, TextIn(taken, "kind"), TextIn(taken, "listKind"))
	}
	return resources, kinds
}

// conditionOf returns the status of a condition, or "" if it is missing.
func conditionOf(status Object, condition string) string {
	for _, c := range objectsIn(status["conditions"]) {
		if TextIn(c, "type") == condition {
			return TextIn(c, "status")
		}
	}
	return ""
}

// setCondition sets a condition. lastTransitionTime changes only with the condition's status.
func setCondition(status Object, condition, value, reason, message string) {
	now := time.Now().UTC().Format(time.RFC3339)
	next := Object{
		"type":               condition,
		"status":             value,
		"lastTransitionTime": now,
		"reason":             reason,
		"message":            message,
	}
	list, _ := status["conditions"].([]any)
	for i, c := range objectsIn(status["conditions"]) {
		if TextIn(c, "type") != condition {
			continue
		}
		if TextIn(c, "status") == value {
			next["lastTransitionTime"] = c["lastTransitionTime"]
		}
		list = slices.Clone(list)
		list[i] = next
		status["conditions"] = list
		return
	}
	status["conditions"] = append(slices.Clone(list), any(next))
}

// updateCRDStatusLocked does what the server's controllers do after each write of a definition: they accept its
// names, and then establish it. Each step is a change of its own.
func (s *Server) updateCRDStatusLocked(key Key) {
	stored := s.objects[definitions][key]
	crd := Clone(stored)
	s.acceptNamesLocked(crd)
	if !reflect.DeepEqual(crd, Clone(stored)) {
		stored = s.putLocked(definitions, crd)
	}
	crd = Clone(stored)
	setEstablished(crd)
	if !reflect.DeepEqual(crd, Clone(stored)) {
		s.putLocked(definitions, crd)
	}
}

// retryConflictedCRDsLocked updates the definitions with name conflicts, because some names may have become free.
func (s *Server) retryConflictedCRDsLocked() {
	for _, crd := range sortedByName(s.objects[definitions], "") {
		if conditionOf(objectIn(crd, "status"), "NamesAccepted") == "False" {
			s.updateCRDStatusLocked(KeyOf(crd))
		}
	}
}

// hasGoneLocked reports whether the request's custom resource is no longer served.
func (s *Server) hasGoneLocked(r *request) bool {
	return r.kind.isCustom() && r.kind.installationIn(s.kinds) == 0
}

// customKindsLocked returns the kinds of an established definition, one for each served version, with the preferred
// version first. It returns none for the resource of a built-in kind, because the paths lead to that kind.
func (s *Server) customKindsLocked(crd Object) []kind {
	status := objectIn(crd, "status")
	if conditionOf(status, "Established") != "True" {
		return nil
	}
	spec := objectIn(crd, "spec")
	names := objectIn(status, "acceptedNames")
	defined := kind{group: TextIn(spec, "group"), resource: TextIn(names, "plural")}
	if s.isBuiltInLocked(defined) {
		return nil
	}
	var served []kind
	for _, version := range objectsIn(spec["versions"]) {
		if version["served"] != true {
			continue
		}
		served = append(served, kind{
			group:        defined.group,
			version:      TextIn(version, "name"),
			resource:     defined.resource,
			kind:         TextIn(names, "kind"),
			singular:     TextIn(names, "singular"),
			shortNames:   textsIn(names["shortNames"]),
			categories:   textsIn(names["categories"]),
			isNamespaced: TextIn(spec, "scope") == "Namespaced",
			hasStatus:    objectIn(version, "subresources")["status"] != nil,
			crd:          version,
		})
	}
	slices.SortStableFunc(served, func(a, b kind) int { return compareVersions(a.version, b.version) })
	return served
}

// warnOfDeprecation warns the client if this version of the custom resource is deprecated.
func (r *request) warnOfDeprecation() {
	if r.kind.crd["deprecated"] != true {
		return
	}
	text := TextIn(r.kind.crd, "deprecationWarning")
	if text == "" {
		text = fmt.Sprintf("%s %s is deprecated", r.kind.apiVersion(), r.kind.kind)
		i := slices.IndexFunc(r.arrival.kinds, r.kind.isReplacedBy)
		if i >= 0 {
			text += fmt.Sprintf("; use %s %s", r.arrival.kinds[i].apiVersion(), r.kind.kind)
		}
	}
	r.w.Header().Add("Warning", fmt.Sprintf("299 - %q", text))
}

// isReplacedBy reports whether other is a version of the same custom resource that is preferred to k and not
// deprecated.
func (k kind) isReplacedBy(other kind) bool {
	return other.qualified() == k.qualified() && other.crd["deprecated"] != true &&
		compareVersions(other.version, k.version) < 0
}

// updateServedKindsLocked updates the served kinds after a change of a definition. Only changes of the spec, the
// accepted names or the condition Established matter; they end the watches of the kind.
func (s *Server) updateServedKindsLocked(c Change) {
	before := s.customKindsLocked(c.Old)
	after := s.customKindsLocked(c.New)
	if reflect.DeepEqual(before, after) {
		return
	}
	s.installations++
	for i := range after {
		after[i].installation = s.installations
	}
	isOld := func(k kind) bool {
		return len(before) > 0 && k.qualified() == before[0].qualified()
	}
	s.kinds = slices.Concat(slices.DeleteFunc(slices.Clone(s.kinds), isOld), after)
}

// installationIn returns the installation of the kind among kinds, or 0 if it is missing.
func (k kind) installationIn(kinds []kind) int {
	i := slices.IndexFunc(kinds, func(other kind) bool {
		return other.resource == k.resource && other.group == k.group && other.version == k.version
	})
	if i < 0 {
		return 0
	}
	return kinds[i].installation
}

// removeCustomObjectsLocked removes all objects of a definition's kind.
func (s *Server) removeCustomObjectsLocked(crd Object) {
	for _, k := range s.customKindsLocked(crd) {
		for key := range s.objects[k.place()] {
			s.removeLocked(k.qualified(), key)
		}
	}
}
