package fakekube

// traits are what the API server does with the objects of one kind and not with those of another.
type traits struct {
	// answersDeleted: a DELETE is answered with the object, and not with a Status that names it.
	answersDeleted bool

	// isMadeByPut: a PUT to a name that is not there creates the object.
	isMadeByPut bool

	// needsVersion: a PUT must say a resourceVersion, and changes that version alone.
	needsVersion bool

	// hasGeneration: metadata.generation counts the changes of the spec.
	hasGeneration bool

	// hasDependents: the garbage collector looks after what the objects own, so that a DELETE may set its finalizers.
	hasDependents bool
}

// custom are the traits of all custom resources.
var custom = traits{needsVersion: true, hasGeneration: true, hasDependents: true}

// builtInTraits are those of the built-in kinds, by qualified resource. The real server has them in the strategies of
// its registry.
var builtInTraits = map[string]traits{
	"pods":            {answersDeleted: true, hasGeneration: true, hasDependents: true},
	"nodes":           {hasDependents: true},
	"namespaces":      {answersDeleted: true, hasDependents: true},
	"events":          {isMadeByPut: true},
	"configmaps":      {hasDependents: true},
	"secrets":         {hasDependents: true},
	"serviceaccounts": {answersDeleted: true, hasDependents: true},

	"leases.coordination.k8s.io": {isMadeByPut: true, needsVersion: true, hasDependents: true},

	"clusterroles.rbac.authorization.k8s.io":        {isMadeByPut: true, hasDependents: true},
	"clusterrolebindings.rbac.authorization.k8s.io": {isMadeByPut: true, hasDependents: true},
	"roles.rbac.authorization.k8s.io":               {isMadeByPut: true, hasDependents: true},
	"rolebindings.rbac.authorization.k8s.io":        {isMadeByPut: true, hasDependents: true},

	"customresourcedefinitions.apiextensions.k8s.io": {
		answersDeleted: true, needsVersion: true, hasGeneration: true, hasDependents: true,
	},
	"validatingadmissionpolicies.admissionregistration.k8s.io": {
		needsVersion: true, hasGeneration: true, hasDependents: true,
	},
	"validatingadmissionpolicybindings.admissionregistration.k8s.io": {
		needsVersion: true, hasGeneration: true, hasDependents: true,
	},
}

// traits are those of the kind.
func (k kind) traits() traits {
	if k.isCustom() {
		return custom
	}
	return builtInTraits[k.qualified()]
}
