package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"podcount/internal/api/events"
	"podcount/lab/testkit"
)

func TestPolicyIsForTheAccountAndTheLabelsOfTheFlags(t *testing.T) {
	s := settings()
	s.Name = "podcount-a"
	s.Namespace = "ops"
	s.Labels = []string{"x.y/all", "x.y/own"}
	text := manifest(t, s, "policy")
	testkit.WantText(t, text, `'["x.y/all","x.y/own"]'`)

	policies := strings.Count(text, "kind: ValidatingAdmissionPolicy\n")
	forTheAccount := strings.Count(text, `request.userInfo.username == "system:serviceaccount:ops:podcount-a"`)
	testkit.WantNumber(t, "policies", policies, 5)
	testkit.WantNumber(t, "policies for the account", forTheAccount, policies)
}

func TestEachPolicyIsBound(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*Settings)
		policies int
	}{
		{"the default", func(*Settings) {}, 5},
		{"no election", func(s *Settings) { s.LeaderElect = false }, 4},
		{"no Counts", func(s *Settings) { s.Count = false }, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			var names, bound []string
			for line := range strings.Lines(manifest(t, settings(c.change), "policy")) {
				if name, ok := strings.CutPrefix(line, "metadata: {name: "); ok {
					names = append(names, strings.TrimSuffix(name, "}\n"))
				}
				if name, ok := strings.CutPrefix(line, "  policyName: "); ok {
					bound = append(bound, strings.TrimSuffix(name, "\n"))
				}
			}
			// A binding has the name of its policy, and follows it.
			testkit.WantEqual(t, "the bound policies", bound, slices.Compact(names))
			testkit.WantNumber(t, "policies", len(bound), c.policies)
		})
	}
}

// object is an object in YAML.
type object = map[string]any

// objectsOfKind returns the objects of these kinds in a part of the default manifest.
func objectsOfKind(t *testing.T, part string, kinds ...string) (found []object) {
	t.Helper()
	for document := range strings.SplitSeq(manifest(t, settings(), part), "\n---\n") {
		o := parse(t, document)
		if slices.Contains(kinds, o["kind"].(string)) {
			found = append(found, o)
		}
	}
	return found
}

// itemsOf returns the items of a list of objects, or none if there is no list.
func itemsOf(list any) (items []object) {
	for _, item := range asList(list) {
		items = append(items, item.(object))
	}
	return items
}

func asList(list any) []any {
	items, _ := list.([]any)
	return items
}

// isMatched reports whether a policy in the default manifest looks at an operation on a resource, and for leases, only
// at the one with podcount's name.
func isMatched(t *testing.T, suffix string, group, resource any, operation string) bool {
	t.Helper()
	for _, policy := range objectsOfKind(t, "policy", "ValidatingAdmissionPolicy") {
		if policy["metadata"].(object)["name"] != "podcount"+suffix {
			continue
		}
		constraints := policy["spec"].(object)["matchConstraints"].(object)
		for _, rule := range itemsOf(constraints["resourceRules"]) {
			names := fmt.Sprint(rule["resourceNames"])
			if slices.Contains(asList(rule["apiGroups"]), group) && slices.Contains(asList(rule["resources"]), resource) &&
				slices.Contains(asList(rule["operations"]), any(operation)) &&
				(resource == "leases") == (names == "[podcount]") {
				return true
			}
		}
	}
	return false
}

func TestPoliciesLookAtEachWriteThatTheManifestGrants(t *testing.T) {
	operations := map[string]string{"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
	writes := 0
	for _, role := range objectsOfKind(t, "podcount", "ClusterRole", "Role") {
		for _, rule := range itemsOf(role["rules"]) {
			group, resource := asList(rule["apiGroups"])[0], asList(rule["resources"])[0]
			for _, verb := range asList(rule["verbs"]) {
				operation, isWrite := operations[verb.(string)]
				if !isWrite {
					continue
				}
				writes++
				guard := "-metadata"
				if resource == "nodes" {
					guard = ""
				}
				if !isMatched(t, guard, group, resource, operation) {
					t.Errorf("podcount may %s %s, but no policy guards their metadata", verb, resource)
				}
			}
		}
	}
	testkit.WantNumber(t, "verbs that write", writes, 6)
	for _, operation := range []string{"CREATE", "UPDATE"} {
		if !isMatched(t, "-events", "", "events", operation) {
			t.Errorf("podcount-events does not match %s", operation)
		}
		if !isMatched(t, "-lease", "coordination.k8s.io", "leases", operation) {
			t.Errorf("podcount-lease does not match %s", operation)
		}
	}
}

func TestPolicyAllowsTheLongestMessageOfPodcount(t *testing.T) {
	text := manifest(t, settings(), "policy")
	testkit.WantText(t, text, fmt.Sprintf(`bytes(object.?message.orValue("")).size() <= %d`+"\n", events.MaxMessage))
}
