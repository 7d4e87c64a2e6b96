package main

import (
	"errors"
	"net/http"

	"podcount/internal/fakekube"
)

// inNamespaces are the resources whose objects go with their namespace.
var inNamespaces = []string{"pods", "events", "configmaps", "secrets", "serviceaccounts", "leases", "counts"}

// janitor looks after namespaces, as kube-controller-manager does: each has a service account, and one that is deleted
// goes when all that is in it has gone.
type janitor struct{ *client }

func (j *janitor) step() {
	hasAccount := map[string]bool{}
	for _, account := range j.all("serviceaccounts") {
		key := fakekube.KeyOf(account)
		if key.Name == "default" {
			hasAccount[key.Namespace] = true
		}
	}
	for _, namespace := range j.all("namespaces") {
		name := fakekube.KeyOf(namespace).Name
		if isDying(namespace) {
			j.empty(namespace)
			continue
		}
		if !hasAccount[name] {
			j.create("serviceaccounts", object{"metadata": object{"namespace": name, "name": "default"}})
		}
	}
}

// empty deletes what is in a namespace, and lets go of it when there is nothing left.
func (j *janitor) empty(namespace object) {
	name := fakekube.KeyOf(namespace).Name
	isEmpty := true
	for _, resource := range inNamespaces {
		for _, o := range j.all(resource) {
			if fakekube.KeyOf(o).Namespace != name {
				continue
			}
			isEmpty = false
			if !isDying(o) {
				j.remove(resource, o)
			}
		}
	}
	if !isEmpty {
		return
	}
	final := fakekube.Clone(namespace)
	final["apiVersion"] = "v1"
	final["kind"] = "Namespace"
	final["spec"] = object{"finalizers": []any{}}
	j.send(http.MethodPut, pathOf("namespaces", namespace)+"/finalize", mediaJSON, final)
}

// createAnyway makes an object that may be there already.
func (c *client) createAnyway(resource string, o object) error {
	_, err := c.create(resource, o)
	var refused *refusal
	if errors.As(err, &refused) && refused.code == http.StatusConflict {
		return nil
	}
	return err
}
