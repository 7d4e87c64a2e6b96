package deploy

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestKustomizationHasTheFilesOfTheDefaultParts(t *testing.T) {
	text := testkit.ReadFile(t, "kustomization.yaml")
	// A transformer, such as a prefix for names, would change the account that the policies guard.
	testkit.WantEqual(t, "kustomization.yaml", parse(t, text), map[string]any{
		"apiVersion": "kustomize.config.k8s.io/v1beta1",
		"kind":       "Kustomization",
		"resources":  []any{"podcount.yaml", "policy.yaml"},
	})
	for _, file := range []string{"podcount.yaml", "policy.yaml"} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

// documentedOverlay returns the overlay in docs/run/install.md, and its only patch.
func documentedOverlay(t *testing.T) (overlay, patch map[string]any) {
	t.Helper()
	page := testkit.ReadFile(t, "../docs/run/install.md")
	const fence = "```yaml\n"
	begin := strings.Index(page, fence+"apiVersion: kustomize.config.k8s.io/v1beta1\n")
	if begin < 0 {
		t.Fatal("docs/run/install.md has no overlay")
	}
	text, _, _ := strings.Cut(string(page[begin+len(fence):]), "```\n")
	overlay = parse(t, text)
	patches := overlay["patches"].([]any)
	testkit.WantNumber(t, "patches", len(patches), 1)
	return overlay, parse(t, patches[0].(map[string]any)["patch"].(string))
}

// kustomize finds what an overlay changes by these names. It ignores an image that it does not find.
func TestDocumentedOverlayFitsTheBase(t *testing.T) {
	overlay, patch := documentedOverlay(t)
	deployment := objects(t, manifest(t, settings(), "podcount"))["Deployment"]
	base := container(at(deployment, "spec", "template", "spec"))

	replaced := overlay["images"].([]any)[0].(map[string]any)["name"]
	image, _, _ := strings.Cut(base["image"].(string), ":")
	testkit.WantEqual(t, "the image that it replaces", replaced, any(image))
	for _, field := range []string{"apiVersion", "kind"} {
		testkit.WantEqual(t, field, patch[field], deployment[field])
	}
	for _, field := range []string{"name", "namespace"} {
		testkit.WantEqual(t, field, at(patch, "metadata")[field], at(deployment, "metadata")[field])
	}
	patched := container(at(patch, "spec", "template", "spec"))
	testkit.WantEqual(t, "the container", patched["name"], base["name"])
}

// Another field could rename the account that the policies guard, or give podcount flags that they do not know.
func TestDocumentedOverlayChangesOnlyThePods(t *testing.T) {
	overlay, patch := documentedOverlay(t)
	fields := slices.Sorted(maps.Keys(overlay))
	testkit.WantEqual(t, "the overlay's fields", fields,
		[]string{"apiVersion", "images", "kind", "patches", "resources"})
	patched := container(at(patch, "spec", "template", "spec"))
	fields = slices.Sorted(maps.Keys(patched))
	testkit.WantEqual(t, "the container's fields", fields, []string{"env", "name", "resources"})
}

func TestDocumentedOverlayHasTheMemoryLimitOfGo(t *testing.T) {
	_, patch := documentedOverlay(t)
	patched := container(at(patch, "spec", "template", "spec"))
	pods := DefaultPods()
	set(t, &pods.Limits, "memory="+at(patched, "resources", "limits")["memory"].(string))
	testkit.WantEqual(t, "env", patched["env"],
		any([]any{map[string]any{"name": "GOMEMLIMIT", "value": pods.goMemoryLimit()}}))
}
