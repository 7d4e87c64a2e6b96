package fakekube

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// definitions is the qualified resource of CustomResourceDefinitions. Each that a client creates, or that Put stores,
// adds a kind.
// https://kubernetes.io/docs/reference/kubernetes-api/extend-resources/custom-resource-definition-v1/
const definitions = "customresourcedefinitions.apiextensions.k8s.io"

// CRD is the CustomResourceDefinition of Counts, in short: podcount's custom resource, in the group demo.mark8s.io.
// For any other custom resource, Put its CustomResourceDefinition.
type CRD struct {
	// HasStatus gives Counts a status subresource: a client's write to the object does not change its status, and one
	// to the status changes nothing else. Without it, counts/status is a 404.
	HasStatus bool

	// DropsStatus says that the schema has no status: what clients send of it is dropped without a word.
	DropsStatus bool
}

// countsCRD names the definition that InstallCRD stores.
var countsCRD = Key{Name: "counts.demo.mark8s.io"}

// InstallCRD puts the CRD of Counts in place, or changes it; nil removes it, and all Counts. Where that changes
// something, it ends their watches.
func (s *Server) InstallCRD(crd *CRD) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if crd == nil {
		s.removeLocked(definitions, countsCRD)
		return
	}
	s.putLocked(definitions, s.establishedLocked(crd.definition()))
}

// InstalledCRD is the CRD of Counts, or nil. To change it, install another one.
func (s *Server) InstalledCRD() *CRD {
	s.mu.Lock()
	defer s.mu.Unlock()
	k, isServed := s.kindLocked(countsCRD.Name)
	if !isServed {
		return nil
	}
	return &CRD{HasStatus: k.hasStatus, DropsStatus: k.dropsStatus()}
}

// definition is the whole CustomResourceDefinition.
func (crd *CRD) definition() Object {
	anything := Object{"x-kubernetes-preserve-unknown-fields": true}
	properties := Object{"spec": anything}
	if !crd.DropsStatus {
		properties["status"] = anything
	}
	version := Object{
		"name":    "v1",
		"served":  true,
		"storage": true,
		"schema":  Object{"openAPIV3Schema": Object{"type": "object", "properties": properties}},
		"additionalPrinterColumns": []any{
			Object{"name": "App", "type": "string", "jsonPath": ".spec.name"},
			Object{"name": "Want", "type": "integer", "jsonPath": ".spec.count"},
			Object{"name": "Have", "type": "integer", "jsonPath": ".status.count"},
			Object{"name": "Healthy", "type": "boolean", "jsonPath": ".status.healthy"},
			Object{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
		},
	}
	if crd.HasStatus {
		version["subresources"] = Object{"status": Object{}}
	}
	return Object{
		"metadata": Object{"name": countsCRD.Name},
		"spec": Object{
			"group":    "demo.mark8s.io",
			"scope":    "Namespaced",
			"names":    Object{"plural": "counts", "singular": "count", "kind": "Count", "listKind": "CountList"},
			"versions": []any{version},
		},
	}
}

// dropsStatus reports whether a custom resource's schema has no status, so that it does not keep one.
func (k kind) dropsStatus() bool {
	if !k.isCustom() {
		return false
	}
	schema := objectIn(k.crd, "schema", "openAPIV3Schema")
	keepsAll, _ := schema["x-kubernetes-preserve-unknown-fields"].(bool)
	return !keepsAll && objectIn(schema, "properties", "status") == nil
}

// establishedLocked is a definition with the status that the server gives it once it serves the kind, or has found that
// the names are taken.
func (s *Server) establishedLocked(crd Object) Object {
	crd = Clone(crd)
	setDefinitionDefaults(crd)
	s.acceptNamesLocked(crd)
	setEstablished(crd)
	return crd
}

// setDefinitionDefaults sets what the spec of a definition may leave out.
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

// newCRDStatus is the status that a definition is created with.
func newCRDStatus(crd Object) Object {
	return Object{
		"conditions":     nil,
		"acceptedNames":  Object{"plural": "", "kind": ""},
		"storedVersions": []any{storageVersion(crd)},
	}
}

// storageVersion is the name of the version in which a definition's objects are stored.
func storageVersion(crd Object) string {
	for _, version := range objectsIn(objectIn(crd, "spec")["versions"]) {
		if version["storage"] == true {
			return TextIn(version, "name")
		}
	}
	return ""
}

// acceptNamesLocked writes to a definition's status which of its names it has got.
func (s *Server) acceptNamesLocked(crd Object) {
	status := objectIn(crd, "status")
	if status["storedVersions"] == nil {
		status = newCRDStatus(crd)
		crd["status"] = status
	}
	reason, message := s.acceptFreeNamesLocked(crd)
	isEstablished := conditionOf(status, "Established") == "True"
	switch {
	case reason != "":
		setCondition(status, "NamesAccepted", "False", reason, message)
		if !isEstablished {
			setCondition(status, "Established", "False", "NotAccepted", "not all names are accepted")
		}
	default:
		setCondition(status, "NamesAccepted", "True", "NoConflicts", "no conflicts found")
		if !isEstablished {
			setCondition(status, "Established", "False", "Installing", "the initial names have been accepted")
		}
	}
}

// setEstablished says in a definition's status that its kind is served, if its names were accepted.
func setEstablished(crd Object) {
	status := objectIn(crd, "status")
	if conditionOf(status, "NamesAccepted") == "True" && conditionOf(status, "Established") != "True" {
		setCondition(status, "Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
	}
}

// acceptFreeNamesLocked gives a definition each of its names that no other one of its group has. Of the names that are taken,
// it tells about the last; reason is "" where there is none.
func (s *Server) acceptFreeNamesLocked(crd Object) (reason, message string) {
	wanted := objectIn(crd, "spec", "names")
	status := objectIn(crd, "status")
	accepted := maps.Clone(objectIn(status, "acceptedNames"))
	status["acceptedNames"] = accepted
	resources, kinds := s.namesTakenLocked(crd)
	take := func(name string, taken []string, conflict string) {
		text := TextIn(wanted, name)
		if text != TextIn(accepted, name) && slices.Contains(taken, text) {
			reason = conflict
			message = inUse(text)
			return
		}
		accepted[name] = text
	}
	take("plural", resources, "PluralConflict")
	take("singular", resources, "SingularConflict")
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
	take("kind", kinds, "KindConflict")
	take("listKind", kinds, "ListKindConflict")
	copyIfSet(accepted, wanted, "categories")
	return reason, message
}

func inUse(name string) string { return fmt.Sprintf("%q is already in use", name) }

// copyIfSet makes a key of an object what it is in another one.
func copyIfSet(into, from Object, key string) {
	delete(into, key)
	if from[key] != nil {
		into[key] = from[key]
	}
}

// namesTakenLocked are the names that the other definitions of a group have: those of resources, and those of kinds.
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

// conditionOf is the status of a condition, "" where there is none.
func conditionOf(status Object, condition string) string {
	for _, c := range objectsIn(status["conditions"]) {
		if TextIn(c, "type") == condition {
			return TextIn(c, "status")
		}
	}
	return ""
}

// setCondition writes a condition. Its time changes only with its status.
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

// updateCRDStatusLocked does what the server does after each write of a definition: it accepts the names, and then serves the
// kind. Each is a change of its own.
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

// retryConflictedCRDsLocked settles the definitions that have not got all of their names, now that some may be free.
func (s *Server) retryConflictedCRDsLocked() {
	for _, crd := range sortedByName(s.objects[definitions], "") {
		if conditionOf(objectIn(crd, "status"), "NamesAccepted") == "False" {
			s.updateCRDStatusLocked(KeyOf(crd))
		}
	}
}

// hasGoneLocked reports whether the custom resource that a request is about is not served any more.
func (s *Server) hasGoneLocked(r *request) bool {
	return r.kind.isCustom() && r.kind.installationIn(s.kinds) == 0
}

// customKinds are the kinds of a definition that is established, one for each version that is served; the preferred
// version is first. A definition of a resource that is built in has none: its paths lead to the built-in kind.
func customKinds(crd Object) []kind {
	status := objectIn(crd, "status")
	if conditionOf(status, "Established") != "True" {
		return nil
	}
	spec := objectIn(crd, "spec")
	names := objectIn(status, "acceptedNames")
	defined := kind{group: TextIn(spec, "group"), resource: TextIn(names, "plural")}
	isBuiltIn := func(k kind) bool { return k.qualified() == defined.qualified() }
	if slices.ContainsFunc(builtIn, isBuiltIn) {
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

// warnOfDeprecation tells the client that the version of its custom resource is deprecated, if it is.
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

// isReplacedBy reports whether another version of a custom resource is one to use in place of this one, which is
// deprecated: one that is preferred to it, and not deprecated itself.
func (k kind) isReplacedBy(other kind) bool {
	return other.qualified() == k.qualified() && other.crd["deprecated"] != true &&
		compareVersions(other.version, k.version) < 0
}

// updateServedKindsLocked makes the fake serve what a changed definition says. Only a change of the spec, of the names or of
// whether it is served makes a difference: then the watches of the kind end.
func (s *Server) updateServedKindsLocked(c Change) {
	was := customKinds(c.Old)
	is := customKinds(c.New)
	if reflect.DeepEqual(was, is) {
		return
	}
	s.installations++
	for i := range is {
		is[i].installation = s.installations
	}
	isOld := func(k kind) bool {
		return len(was) > 0 && k.qualified() == was[0].qualified()
	}
	s.kinds = slices.Concat(slices.DeleteFunc(slices.Clone(s.kinds), isOld), is)
}

// installationIn tells which definition of a kind was there when these were all kinds; 0 is none.
func (k kind) installationIn(kinds []kind) int {
	i := slices.IndexFunc(kinds, func(other kind) bool {
		return other.resource == k.resource && other.group == k.group && other.version == k.version
	})
	if i < 0 {
		return 0
	}
	return kinds[i].installation
}

// removeCustomObjectsLocked removes the objects of a kind whose definition goes.
func (s *Server) removeCustomObjectsLocked(crd Object) {
	for _, k := range customKinds(crd) {
		for key := range s.objects[k.qualified()] {
			s.removeLocked(k.qualified(), key)
		}
	}
}
