package fakekube

// traits are what the API server does with the objects of one kind and not with those of another.
type traits struct {
	// returnsDeletedObject: a DELETE is answered with the object, and not with a Status that names it.
	returnsDeletedObject bool

	// allowsCreateOnUpdate: a PUT to a name that is not there creates the object.
	allowsCreateOnUpdate bool

	// requiresVersionOnUpdate: a PUT must say a resourceVersion, and changes that version alone.
	requiresVersionOnUpdate bool

	// hasGeneration: metadata.generation counts the changes of the spec.
	hasGeneration bool

	// hasDependents: the garbage collector looks after what the objects own, so that a DELETE may set its finalizers.
	hasDependents bool
}

// custom are the traits of all custom resources.
var custom = traits{requiresVersionOnUpdate: true, hasGeneration: true, hasDependents: true}

// builtInTraits are those of the built-in kinds, by qualified resource. The real server has them in the strategies of
// its registry.
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

// traits are those of the kind.
func (k kind) traits() traits {
	if k.isCustom() {
		return custom
	}
	return builtInTraits[k.qualified()]
}
