package main

import (
	"errors"
	"net/http"

	"podcount/lab/fakekube"
)

// janitor gives each namespace the service account default, as kube-controller-manager does.
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
		if !hasAccount[name] && !isDying(namespace) {
			j.create("serviceaccounts", object{"metadata": object{"namespace": name, "name": "default"}})
		}
	}
}

// createAnyway creates an object unless it exists already.
func (c *client) createAnyway(resource string, o object) error {
	_, err := c.create(resource, o)
	var refused *refusal
	if errors.As(err, &refused) && refused.code == http.StatusConflict {
		return nil
	}
	return err
}
