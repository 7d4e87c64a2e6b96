package main

import (
	_ "embed"

	"podcount/internal/api/yaml"
)

// countCRD is a copy of deploy/count-crd.yaml.
//
//go:embed count-crd.yaml
var countCRD string

// countDefinition returns the CustomResourceDefinition of Counts.
func countDefinition() object {
	tree, err := yaml.Parse(countCRD)
	if err != nil {
		panic(err) // a mistake in this package
	}
	return tree.(object)
}
