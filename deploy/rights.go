package deploy

import (
	"fmt"
	"slices"
	"strings"
)

// Right lets podcount use some verbs on the objects of one resource.
type Right struct {
	APIGroup string // "" is the core group
	Resource string // in the plural, perhaps with a subresource: pods, deployments/status
	Verbs    []string

	// ClusterWide grants the right in the whole cluster. Otherwise it is granted in the namespaces whose pods podcount
	// reads.
	//
	// Events are an exception: with ClusterWide, the right is for Events about objects without a namespace, such as
	// nodes. These Events are in the namespace default, so the right is granted only there.
	ClusterWide bool
}

// roles are the three roles of podcount, each with its rights.
type roles struct {
	cluster    []Right // for the whole cluster
	namespaced []Right // for the namespaces whose pods podcount reads
	inDefault  []Right // for the namespace default: Events about nodes
}

// wantedRights returns the rights that the controllers need without -dry-run and -once. usedVerbs then removes verbs.
func (s Settings) wantedRights() []Right {
	postEvents := Right{Resource: "events", Verbs: []string{"create", "patch"}}
	postEventsOnNodes := postEvents
	postEventsOnNodes.ClusterWide = true

	var rights []Right
	if s.PodCount {
		writeNodes := Right{Resource: "nodes", Verbs: []string{"list", "watch", "patch"}, ClusterWide: true}
		rights = append(rights, writeNodes, postEventsOnNodes)
	}
	rights = append(rights, Right{Resource: "pods", Verbs: []string{"list", "watch"}})
	if s.Count {
		rights = append(rights,
			Right{APIGroup: "demo.mark8s.io", Resource: "counts", Verbs: []string{"list", "watch"}},
			Right{APIGroup: "demo.mark8s.io", Resource: "counts/status", Verbs: []string{"patch"}})
	}
	if s.Count || s.PodCount && s.PodEvents {
		rights = append(rights, postEvents)
	}
	return append(rights, s.Rights...)
}

// newRoles distributes the rights that podcount uses with these settings over its roles. A role has at most one right
// for each resource.
func newRoles(s Settings) roles {
	var r roles
	for _, right := range s.wantedRights() {
		right.Verbs = s.usedVerbs(right)
		if len(right.Verbs) == 0 {
			continue
		}
		switch {
		case right.ClusterWide && right.isEvents():
			r.inDefault = addRight(r.inDefault, right)
		case right.ClusterWide:
			r.cluster = addRight(r.cluster, right)
		default:
			r.namespaced = addRight(r.namespaced, right)
		}
	}
	includesDefault := s.PodNamespace == "" || s.PodNamespace == "default"
	if includesDefault && slices.ContainsFunc(r.namespaced, Right.isEvents) {
		r.inDefault = nil // the role namespaced has the same right there
	}
	return r
}

// usedVerbs returns the verbs of a right that podcount uses with these settings.
func (s Settings) usedVerbs(r Right) []string {
	var used []string
	for _, verb := range r.Verbs {
		reads := verb == "get" || verb == "list" || verb == "watch"
		if s.DryRun && !reads {
			continue
		}
		// A patch is for an Event that occurs again, and with -once none does.
		if s.Once && r.isEvents() && verb == "patch" {
			continue
		}
		used = append(used, verb)
	}
	return used
}

func (r Right) isEvents() bool { return r.APIGroup == "" && r.Resource == "events" }

// addRight adds a right to a role. If the role already has a right for the resource, it adds the verbs to that one.
func addRight(role []Right, r Right) []Right {
	i := slices.IndexFunc(role, func(other Right) bool {
		return other.APIGroup == r.APIGroup && other.Resource == r.Resource
	})
	if i < 0 {
		return append(role, r)
	}
	for _, verb := range r.Verbs {
		if !slices.Contains(role[i].Verbs, verb) {
			role[i].Verbs = append(slices.Clip(role[i].Verbs), verb)
		}
	}
	return role
}

// rulesOf writes the rules of a role in YAML, one a line.
func rulesOf(role []Right) string {
	var lines []string
	for _, r := range role {
		lines = append(lines, fmt.Sprintf("- {apiGroups: [%s], resources: [%s], verbs: [%s]}",
			scalar(r.APIGroup), scalar(r.Resource), strings.Join(r.Verbs, ", ")))
	}
	return strings.Join(lines, "\n")
}

// checkRights returns an error if a right of Settings.Rights cannot be written as a rule.
func (s Settings) checkRights() error {
	for _, r := range s.Rights {
		isComplete := r.Resource != "" && len(r.Verbs) > 0
		if !isComplete {
			return fmt.Errorf("-manifest: a controller's right %+v must have a resource and verbs", r)
		}
		for _, text := range append([]string{r.APIGroup, r.Resource}, r.Verbs...) {
			if strings.Trim(text, lowerCase+digits+".-/") != "" {
				return fmt.Errorf("-manifest: a controller's right names %q: use lower-case letters, digits and .-/", text)
			}
		}
	}
	return nil
}
