package main

// countDefinition returns the CustomResourceDefinition of Counts. It must equal that of deploy/count-crd.yaml.
func countDefinition() object {
	spec := object{
		"type":     "object",
		"required": []any{"name", "count"},
		"properties": object{
			"name": object{
				"description": "A pod belongs to this name if one of its labels app, app.kubernetes.io/name or run has " +
					"this value.",
				"type":      "string",
				"minLength": 1,
				"maxLength": 63,
			},
			"count": object{
				"description": "How many pods of this name the namespace should have. Finished pods count, too.",
				"type":        "integer",
				"format":      "int32",
				"minimum":     0,
			},
		},
	}
	status := object{
		"description": "Written by podcount.",
		"type":        "object",
		"properties": object{
			"healthy": object{
				"description": "Whether the number of pods equals spec.count.",
				"type":        "boolean",
			},
			"count": object{
				"description": "The number of pods.",
				"type":        "integer",
				"format":      "int32",
			},
			"observedGeneration": object{
				"description": "The metadata.generation of the spec that this status is for.",
				"type":        "integer",
				"format":      "int64",
			},
		},
	}
	schema := object{
		"type":       "object",
		"required":   []any{"spec"},
		"properties": object{"spec": spec, "status": status},
	}
	column := func(name, kind, path string) object {
		return object{"name": name, "type": kind, "jsonPath": path}
	}
	return object{
		"apiVersion": "apiextensions.k8s.io/v1",
		"kind":       "CustomResourceDefinition",
		"metadata":   object{"name": "counts.demo.mark8s.io"},
		"spec": object{
			"group": "demo.mark8s.io",
			"scope": "Namespaced",
			"names": object{"kind": "Count", "listKind": "CountList", "plural": "counts", "singular": "count"},
			"versions": []any{object{
				"name":         "v1",
				"served":       true,
				"storage":      true,
				"subresources": object{"status": object{}},
				"schema":       object{"openAPIV3Schema": schema},
				"additionalPrinterColumns": []any{
					column("App", "string", ".spec.name"),
					column("Want", "integer", ".spec.count"),
					column("Have", "integer", ".status.count"),
					column("Healthy", "boolean", ".status.healthy"),
					column("Age", "date", ".metadata.creationTimestamp"),
				},
			}},
		},
	}
}
