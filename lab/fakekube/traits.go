package fakekube

// traits are the differences in how the API server treats the objects of different kinds.
type traits struct {
	// returnsDeletedObject: a DELETE is answered with the object instead of a Status.
	returnsDeletedObject bool

	// allowsCreateOnUpdate: a PUT creates the object if it does not exist.
	allowsCreateOnUpdate bool

	// requiresVersionOnUpdate: a PUT must contain a resourceVersion.
	requiresVersionOnUpdate bool

	// hasGeneration: metadata.generation counts the changes of the spec.
	hasGeneration bool

	// hasDependents: the garbage collector handles dependent objects, so a DELETE may set its finalizers.
	hasDependents bool
}

// custom are the traits of custom resources.
var custom = traits{requiresVersionOnUpdate: true, hasGeneration: true, hasDependents: true}

// added are the traits of kinds that Serve has added. Those of most workloads are the same.
var added = traits{hasGeneration: true, hasDependents: true}

// builtInTraits are the traits of built-in kinds, by qualified resource. In the real server, the strategies of the
// registry correspond to them.
var builtInTraits = map[string]traits{
	"pods":            {returnsDeletedObject: true, hasGeneration: true, hasDependents: true},
	"nodes":           {hasDependents: true},
	"namespaces":      {returnsDeletedObject: true, hasDependents: true},
	"events":          {allowsCreateOnUpdate: true},
	"configmaps":      {hasDependents: true},
	"secrets":         {hasDependents: true},
	"serviceaccounts": {returnsDeletedObject: true, hasDependents: true},

	"leases.coordination.k8s.io": {allowsCreateOnUpdate: true, requiresVersionOnUpdate: true, hasDependents: true},

	"clusterroles.rbac.authorization.k8s.io":        {allowsCreateOnUpdate: true, hasDependents: true},
	"clusterrolebindings.rbac.authorization.k8s.io": {allowsCreateOnUpdate: true, hasDependents: true},
	"roles.rbac.authorization.k8s.io":               {allowsCreateOnUpdate: true, hasDependents: true},
	"rolebindings.rbac.authorization.k8s.io":        {allowsCreateOnUpdate: true, hasDependents: true},

	"customresourcedefinitions.apiextensions.k8s.io": {
		returnsDeletedObject: true, requiresVersionOnUpdate: true, hasGeneration: true, hasDependents: true,
	},
	"validatingadmissionpolicies.admissionregistration.k8s.io": {
		requiresVersionOnUpdate: true, hasGeneration: true, hasDependents: true,
	},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {
		requiresVersionOnUpdate: true, hasGeneration: true, hasDependents: true,
	},
}

// traits returns the traits of the kind.
func (k kind) traits() traits {
	switch {
	case k.isCustom():
		return custom
	case k.isAdded:
		return added
	}
	return builtInTraits[k.place()]
}
