package fakekube

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

var roleBindingPrinter = printer{
	columns: bindingColumns("roleBinding", "RoleRef can reference a Role in the current namespace or a ClusterRole in "+
		"the global namespace. If the RoleRef cannot be resolved, the Authorizer must return an error."),
	cells: bindingCells,
}

var clusterRoleBindingPrinter = printer{
	columns: bindingColumns("clusterRoleBinding", "RoleRef can only reference a ClusterRole in the global namespace. "+
		"If the RoleRef cannot be resolved, the Authorizer must return an error."),
	cells: bindingCells,
}

func bindingColumns(kind, roleDescription string) []column {
	return []column{
		nameColumn,
		{Name: "Role", Type: "string", Description: roleDescription},
		ageColumn,
		{Name: "Users", Type: "string", Priority: 1, Description: "Users in the " + kind},
		{Name: "Groups", Type: "string", Priority: 1, Description: "Groups in the " + kind},
		{Name: "ServiceAccounts", Type: "string", Priority: 1, Description: "ServiceAccounts in the " + kind},
	}
}

func bindingCells(o Object, now time.Time) []any {
	role := objectIn(o, "roleRef")
	return []any{
		nameCell(o),
		TextIn(role, "kind") + "/" + TextIn(role, "name"),
		ageCell(o, now),
		subjectsOf(o, "User"),
		subjectsOf(o, "Group"),
		subjectsOf(o, "ServiceAccount"),
	}
}

// subjectsOf lists the subjects of a kind in a binding.
func subjectsOf(binding Object, kind string) string {
	var names []string
	for _, subject := range objectsIn(binding["subjects"]) {
		if TextIn(subject, "kind") != kind {
			continue
		}
		name := TextIn(subject, "name")
		if kind == "ServiceAccount" {
			name = TextIn(subject, "namespace") + "/" + name
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

var policyPrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Validations", Type: "integer", Description: "Validations indicates the number of validation rules " +
			"defined in this configuration"},
		{Name: "ParamKind", Type: "string", Description: "ParamKind specifies the kind of resources used to " +
			"parameterize this policy"},
		ageColumn,
	},
	cells: func(o Object, now time.Time) []any {
		spec := objectIn(o, "spec")
		parameters := "<unset>"
		if kind := objectIn(spec, "paramKind"); kind != nil {
			parameters = TextIn(kind, "apiVersion") + "/" + TextIn(kind, "kind")
		}
		return []any{nameCell(o), len(objectsIn(spec["validations"])), parameters, ageCell(o, now)}
	},
}

var policyBindingPrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "PolicyName", Type: "string", Description: "PolicyName indicates the policy definition which the " +
			"policy binding binded to"},
		{Name: "ParamRef", Type: "string", Description: "ParamRef indicates the param resource which sets the " +
			"configuration param"},
		ageColumn,
	},
	cells: func(o Object, now time.Time) []any {
		spec := objectIn(o, "spec")
		parameters := parameterReference(objectIn(spec, "paramRef"))
		return []any{nameCell(o), TextIn(spec, "policyName"), parameters, ageCell(o, now)}
	},
}

// parameterReference returns the cell with the parameters of a policy binding. ref may be nil.
func parameterReference(ref Object) string {
	if ref == nil {
		return "<unset>"
	}
	if selector := objectIn(ref, "selector"); selector != nil {
		return selectorInGo(selector)
	}
	namespace := cmp.Or(TextIn(ref, "namespace"), "*")
	return namespace + "/" + TextIn(ref, "name")
}

// selectorInGo formats a label selector as the server's Go program does.
func selectorInGo(selector Object) string {
	labels := ""
	matchLabels := objectIn(selector, "matchLabels")
	for _, key := range slices.Sorted(maps.Keys(matchLabels)) {
		labels += fmt.Sprintf("%s: %s,", key, TextIn(matchLabels, key))
	}
	expressions := ""
	for _, e := range objectsIn(selector["matchExpressions"]) {
		expressions += fmt.Sprintf("LabelSelectorRequirement{Key:%s,Operator:%s,Values:%s,},",
			TextIn(e, "key"), TextIn(e, "operator"), textsIn(e["values"]))
	}
	return "&LabelSelector{MatchLabels:map[string]string{" + labels + "}," +
		"MatchExpressions:[]LabelSelectorRequirement{" + expressions + "},}"
}
