package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
	"podcount/internal/yaml"
)

// Rights shows that the manifest grants what podcount uses, and nothing else.
var Rights = Topic{
	{"the manifest's rights are those that podcount uses", rightsAreThoseUsed},
}

// What podcount does with the arguments of its own manifest, it may do by the rights in it, and it has no right that it does
// not use: whatever the flags are.
func rightsAreThoseUsed(t *testing.T, podcount Program) {
	for _, flags := range []string{
		"",
		"-pod-events on",
		"-node-label x.y/own",
		"-namespace default",
		"-namespace a",
		"-namespace a -pod-events on",
		"-namespace default -pod-events on",
		"-leader-elect=false",
		"-leader-elect-resource-namespace leases -leader-elect-resource-name podcount-b",
		"-dry-run",
		"-dry-run -namespace a",
		"-controllers pod-count",
		"-controllers pod-count -pod-events on",
		"-controllers pod-count -namespace a",
		"-controllers pod-count -namespace a -pod-events on",
		"-controllers pod-count -namespace default -pod-events on",
		"-controllers pod-count -namespace default",
		"-controllers pod-count -leader-elect=false",
		"-controllers pod-count -dry-run",
		"-controllers count",
		"-controllers count -namespace a",
		"-controllers count -dry-run",
		"-controllers pod-printer",
		"-controllers pod-printer -namespace a -leader-elect=false",
		"-once",
		"-once -dry-run",
		"-controllers *,pod-printer",
	} {
		t.Run(flags, func(t *testing.T) {
			text := podcount.manifest(t, append([]string{"-manifest=podcount"}, strings.Fields(flags)...)...)
			granted := rightsOf(t, text)
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", ControlPlane)
				for _, ns := range []string{"a", "leases"} {
					f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": ns}})
				}
				for _, ns := range []string{"default", "a"} {
					f.PutJSON("counts", fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"web"},"spec":{"name":"web","count":1}}`, ns))
				}
				args := append(argsOf(t, text), "-listen=", "-pod-selector=app")
				podcount.Start(t, f, args...)
				testkit.Pass(time.Minute)
				// A pod that comes, goes out of sight, and comes back makes each event happen twice.
				for range 2 {
					for _, app := range []string{"web", ""} {
						for _, ns := range []string{"default", "a"} {
							labels := fakekube.Object{"app": app}
							if app == "" {
								labels = nil
							}
							f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": ns, "name": "p", "labels": labels}, "cp"))
							testkit.Pass(time.Minute)
						}
					}
				}
				for _, lease := range f.All("leases") { // somebody removes it
					f.Remove("leases", fakekube.KeyOf(lease))
				}
				testkit.Pass(time.Minute)

				var used []right
				for _, s := range f.Requests(All) {
					for _, needed := range rightsNeeded(s) {
						used = append(used, needed)
						if !slices.ContainsFunc(granted, func(g right) bool { return g.covers(needed) }) {
							t.Errorf("the manifest does not allow: %s", needed)
						}
					}
				}
				for _, g := range granted {
					if !slices.ContainsFunc(used, g.covers) {
						t.Errorf("the manifest allows what is not used: %s", g)
					}
				}
			})
		})
	}
}

// right is one that RBAC grants, or that a request needs.
type right struct {
	verb, group, resource string
	namespace             string // "": of the cluster, or every namespace
	name                  string // the one object; "": any
}

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s in %q %s", r.verb, r.resource, r.group, r.namespace, r.name))
}

// covers reports whether who has r may do what needs another right.
func (r right) covers(needed right) bool {
	return r.verb == needed.verb && r.group == needed.group && r.resource == needed.resource &&
		(r.namespace == "" || r.namespace == needed.namespace) && (r.name == "" || r.name == needed.name)
}

// rightsNeeded are the rights that a request needs.
func rightsNeeded(s fakekube.Request) []right {
	if strings.HasPrefix(s.Path, "/apis/") && strings.Count(s.Path, "/") == 3 { // discovery, which is everybody's
		return nil
	}
	r := right{verb: s.Verb, group: s.Group, resource: strings.TrimSuffix(s.Resource+"/"+s.Subresource, "/"), name: s.Name}
	if _, rest, ok := strings.Cut(s.Path, "/namespaces/"); ok {
		r.namespace, _, _ = strings.Cut(rest, "/")
	}
	if s.Method == "PUT" && !strings.Contains(s.Body, `"resourceVersion"`) { // this makes the object
		create := r
		create.verb = "create"
		return []right{r, create}
	}
	return []right{r}
}

// rightsOf are the rights that a manifest grants, by its roles and bindings.
func rightsOf(t *testing.T, manifest string) (rights []right) {
	roles := map[string][]any{} // the rules, by kind, namespace and name
	var bindings []fakekube.Object
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		o := tree.(fakekube.Object)
		switch kind := fakekube.TextIn(o, "kind"); kind {
		case "ClusterRole", "Role":
			roles[kind+" "+fakekube.TextIn(fakekube.MetaOf(o), "namespace")+" "+fakekube.TextIn(fakekube.MetaOf(o), "name")] = o["rules"].([]any)
		case "ClusterRoleBinding", "RoleBinding":
			bindings = append(bindings, o)
		}
	}
	bound := map[string]bool{}
	for _, b := range bindings {
		namespace := fakekube.TextIn(fakekube.MetaOf(b), "namespace")
		ref := b["roleRef"].(fakekube.Object)
		role := fakekube.TextIn(ref, "kind") + "  " + fakekube.TextIn(ref, "name")
		if fakekube.TextIn(ref, "kind") == "Role" {
			role = "Role " + namespace + " " + fakekube.TextIn(ref, "name")
		}
		bound[role] = true
		for _, rule := range roles[role] {
			names, _ := rule.(fakekube.Object)["resourceNames"].([]any)
			if names == nil {
				names = []any{""}
			}
			for _, group := range rule.(fakekube.Object)["apiGroups"].([]any) {
				for _, resource := range rule.(fakekube.Object)["resources"].([]any) {
					for _, verb := range rule.(fakekube.Object)["verbs"].([]any) {
						for _, name := range names {
							rights = append(rights, right{verb.(string), group.(string), resource.(string), namespace, name.(string)})
						}
					}
				}
			}
		}
	}
	for role := range roles {
		if !bound[role] {
			t.Errorf("nobody has the role %s", role)
		}
	}
	return rights
}
