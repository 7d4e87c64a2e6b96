package fakekube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// validate validates an object that a client writes in place of old, which is nil for a new object. isStatus means
// that the write is to the status subresource. Unlike the server, it reports each cause only once.
func (k kind) validate(old, o Object, isStatus bool) []cause {
	var causes []cause
	if old == nil {
		causes = k.validateMeta(o)
	} else {
		causes = k.validateMetaUpdate(old, o)
	}
	if k.isCustom() {
		return append(causes, k.validateBySchema(o, isStatus)...)
	}
	return append(causes, k.validateSpec(old, o)...)
}

// validateMeta validates the metadata of an object.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/object-meta/
func (k kind) validateMeta(o Object) []cause {
	var causes []cause
	meta := MetaOf(o)
	name := TextIn(meta, "name")
	generateName := TextIn(meta, "generateName")
	if generateName != "" {
		if problem := k.nameProblem(exampleName(generateName)); problem != "" {
			causes = append(causes, invalidValue("metadata.generateName", generateName, problem))
		}
	}
	if name == "" {
		causes = append(causes, required("metadata.name", "name or generateName is required"))
	} else if problem := k.nameProblem(name); problem != "" {
		causes = append(causes, invalidValue("metadata.name", name, problem))
	}
	causes = append(causes, validateLabels(meta)...)
	causes = append(causes, validateOwners(meta)...)
	return append(causes, validateFinalizers(meta)...)
}

// exampleName returns a name that a generateName could produce, for validation. A trailing dash is not a problem, for
// example.
func exampleName(generateName string) string {
	if beginning, endsInDash := strings.CutSuffix(generateName, "-"); endsInDash && beginning != "" {
		return beginning[:len(beginning)-1] + "a"
	}
	return generateName
}

// validateLabels validates labels and annotations.
func validateLabels(meta Object) []cause {
	var causes []cause
	labels, _ := meta["labels"].(Object)
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		for _, problem := range labelKeyProblems(key) {
			causes = append(causes, invalidValue("metadata.labels", key, problem))
		}
		value := TextIn(labels, key)
		if problem := labelValueProblem(value); problem != "" {
			causes = append(causes, invalidValue("metadata.labels", value, problem))
		}
	}
	annotations, _ := meta["annotations"].(Object)
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		for _, problem := range labelKeyProblems(strings.ToLower(key)) {
			causes = append(causes, invalidValue("metadata.annotations", key, problem))
		}
	}
	return causes
}

// validateOwners validates ownerReferences.
func validateOwners(meta Object) []cause {
	var causes []cause
	var controller Object
	for _, owner := range objectsIn(meta["ownerReferences"]) {
		if TextIn(owner, "apiVersion") == "" {
			causes = append(causes,
				invalidValue("metadata.ownerReferences.apiVersion", "", "version must not be empty"))
		}
		for _, field := range []string{"kind", "name", "uid"} {
			if TextIn(owner, field) == "" {
				causes = append(causes, invalidValue("metadata.ownerReferences."+field, "", "must not be empty"))
			}
		}
		if owner["controller"] != true {
			continue
		}
		if controller != nil {
			all := ownerReferencesOf(meta)
			reason := fmt.Sprintf("Only one reference can have Controller set to true. Found \"true\" in references "+
				"for %s/%s and %s/%s", controller["kind"], controller["name"], owner["kind"], owner["name"])
			causes = append(causes, invalidValue("metadata.ownerReferences", all, reason))
		}
		controller = owner
	}
	return causes
}

// ownerReference is an owner in messages, with the fields in the server's order.
type ownerReference struct {
	APIVersion         any `json:"apiVersion"`
	Kind               any `json:"kind"`
	Name               any `json:"name"`
	UID                any `json:"uid"`
	Controller         any `json:"controller,omitempty"`
	BlockOwnerDeletion any `json:"blockOwnerDeletion,omitempty"`
}

// ownerReferencesOf returns the owners of an object as messages show them.
func ownerReferencesOf(meta Object) []ownerReference {
	var shown []ownerReference
	for _, owner := range objectsIn(meta["ownerReferences"]) {
		shown = append(shown, ownerReference{
			APIVersion:         owner["apiVersion"],
			Kind:               owner["kind"],
			Name:               owner["name"],
			UID:                owner["uid"],
			Controller:         owner["controller"],
			BlockOwnerDeletion: owner["blockOwnerDeletion"],
		})
	}
	return shown
}

// validateFinalizers returns the causes for which an API server rejects an object's finalizers.
func validateFinalizers(meta Object) []cause {
	var causes []cause
	finalizers := textsIn(meta["finalizers"])
	for _, finalizer := range finalizers {
		for _, problem := range labelKeyProblems(finalizer) {
			causes = append(causes, invalidValue("metadata.finalizers", finalizer, problem))
		}
	}
	for i, finalizer := range finalizers {
		if !strings.Contains(finalizer, "/") && !isCollectorFinalizer(finalizer) {
			field := fmt.Sprintf("metadata.finalizers[%d]", i)
			reason := "name is neither a standard finalizer name nor is it fully qualified"
			causes = append(causes, invalidValue(field, finalizer, reason))
		}
	}
	if slices.Contains(finalizers, orphanFinalizer) && slices.Contains(finalizers, foregroundFinalizer) {
		reason := "finalizer orphan and foregroundDeletion cannot be both set"
		causes = append(causes, invalidValue("metadata.finalizers", finalizers, reason))
	}
	return causes
}

// validateMetaUpdate validates the metadata of an object that replaces old.
func (k kind) validateMetaUpdate(old, o Object) []cause {
	before := MetaOf(old)
	meta := MetaOf(o)
	causes := validateLabels(meta)
	if isTerminating(old) {
		isOld := func(finalizer string) bool { return slices.Contains(finalizersOf(old), finalizer) }
		added := slices.DeleteFunc(finalizersOf(o), isOld)
		if len(added) > 0 {
			reason := fmt.Sprintf("no new finalizers can be added if the object is being deleted, found new "+
				"finalizers %#v",
				added)
			causes = append(causes, forbiddenField("metadata.finalizers", reason))
		}
	}
	for _, field := range []string{"uid", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		if meta[field] != nil && meta[field] != before[field] {
			causes = append(causes, invalidValue("metadata."+field, meta[field], "field is immutable"))
		}
	}
	causes = append(causes, validateOwners(meta)...)
	return append(causes, validateFinalizers(meta)...)
}
