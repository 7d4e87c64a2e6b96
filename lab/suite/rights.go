package suite

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/yaml"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Rights shows that the manifest grants the rights that podcount uses, and no others.
var Rights = Topic{
	{"the manifest's rights are those that podcount uses", rightsAreThoseUsed},
}

// rightsAreThoseUsed runs podcount with the arguments of its own manifest, for different flags. The rights in the
// manifest must allow every request, and every right must be used.
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
				args := append(argsOf(t, text), "-listen=", "-page=", "-pod-selector=app")
				liveWithEverything(f, func() { podcount.Start(t, f, args...) })
				wantRights(t, f, granted)
			})
		})
	}
}

// liveWithEverything starts podcount by calling start, and makes podcount send each kind of request that it ever sends.
func liveWithEverything(f *fakekube.Server, start func()) {
	fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	for _, ns := range []string{"a", "leases"} {
		f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": ns}})
	}
	for _, ns := range []string{"default", "a"} {
		count := `{"metadata":{"namespace":%q,"name":"web"},"spec":{"name":"web","count":1}}`
		f.PutJSON("counts", fmt.Sprintf(count, ns))
	}
	start()
	testkit.Pass(time.Minute)
	// A pod comes, stops matching the selector, and matches again. So each Event happens twice, and the second is a
	// patch.
	for range 2 {
		for _, labels := range []fakekube.Object{{"app": "web"}, nil} {
			for _, ns := range []string{"default", "a"} {
				f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": ns, "name": "p", "labels": labels}, "cp"))
				testkit.Pass(time.Minute)
			}
		}
	}
	// Without its Lease, podcount has to create one.
	for _, lease := range f.All("leases") {
		f.Remove("leases", fakekube.KeyOf(lease))
	}
	testkit.Pass(time.Minute)
}

// wantRights fails the test for each request that no right allows, and for each right that no request needs.
func wantRights(t *testing.T, f *fakekube.Server, granted []right) {
	t.Helper()
	var used []right
	for _, r := range f.Received(fakekube.Requests{}) {
		for _, needed := range rightsNeeded(r) {
			used = append(used, needed)
			if !slices.ContainsFunc(granted, func(g right) bool { return g.covers(needed) }) {
				t.Errorf("podcount uses a right that the manifest does not grant: %s", needed)
			}
		}
	}
	for _, g := range granted {
		if !slices.ContainsFunc(used, g.covers) {
			t.Errorf("the manifest grants a right that podcount does not use: %s", g)
		}
	}
}

// right is what RBAC grants, or what a request needs: one verb on one resource.
type right struct {
	verb, group, resource string
	namespace             string // "" means all namespaces, or a resource without one
	name                  string // "" means every object
}

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s in %q %s", r.verb, r.resource, r.group, r.namespace, r.name))
}

// covers reports whether r allows what needs another right.
func (r right) covers(needed right) bool {
	isKind := r.verb == needed.verb && r.group == needed.group && r.resource == needed.resource
	isNamespace := r.namespace == "" || r.namespace == needed.namespace
	isName := r.name == "" || r.name == needed.name
	return isKind && isNamespace && isName
}

// rightsNeeded returns the rights that a request needs. Discovery needs none. A PUT without a resourceVersion may
// create the object, so it needs two.
func rightsNeeded(r fakekube.Request) []right {
	isDiscovery := strings.HasPrefix(r.Path, "/apis/") && strings.Count(r.Path, "/") == 3
	if isDiscovery {
		return nil
	}
	needed := right{
		verb:     r.Verb,
		group:    r.Group,
		resource: strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/"),
		name:     r.Name,
	}
	if _, rest, ok := strings.Cut(r.Path, "/namespaces/"); ok {
		needed.namespace, _, _ = strings.Cut(rest, "/")
	}
	mayCreate := r.Method == "PUT" && !strings.Contains(r.Body, `"resourceVersion"`)
	if !mayCreate {
		return []right{needed}
	}
	create := needed
	create.verb = "create"
	return []right{needed, create}
}

// rightsOf returns the rights that the roles and bindings of a manifest grant. A role without a binding fails the test.
func rightsOf(t *testing.T, manifest string) (rights []right) {
	t.Helper()
	rules := map[roleKey][]any{}
	var bindings []fakekube.Object
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		o := tree.(fakekube.Object)
		switch kind := fakekube.TextIn(o, "kind"); kind {
		case "ClusterRole", "Role":
			key := fakekube.KeyOf(o)
			rules[roleKey{kind, key.Namespace, key.Name}] = o["rules"].([]any)
		case "ClusterRoleBinding", "RoleBinding":
			bindings = append(bindings, o)
		}
	}
	isBound := map[roleKey]bool{}
	for _, binding := range bindings {
		namespace := fakekube.KeyOf(binding).Namespace
		role := roleOf(binding)
		isBound[role] = true
		for _, rule := range rules[role] {
			rights = append(rights, rightsOfRule(rule.(fakekube.Object), namespace)...)
		}
	}
	for role := range rules {
		if !isBound[role] {
			t.Errorf("the role %v has no binding", role)
		}
	}
	return rights
}

// roleKey names a Role, or a ClusterRole, whose namespace is "".
type roleKey struct{ kind, namespace, name string }

// roleOf returns the role that a binding refers to.
func roleOf(binding fakekube.Object) roleKey {
	ref := binding["roleRef"].(fakekube.Object)
	role := roleKey{kind: fakekube.TextIn(ref, "kind"), name: fakekube.TextIn(ref, "name")}
	if role.kind == "Role" {
		role.namespace = fakekube.KeyOf(binding).Namespace
	}
	return role
}

// rightsOfRule returns the rights that a rule grants in the namespace of its binding.
func rightsOfRule(rule fakekube.Object, namespace string) (rights []right) {
	names := []string{""}
	if rule["resourceNames"] != nil {
		names = textsIn(rule, "resourceNames")
	}
	for _, group := range textsIn(rule, "apiGroups") {
		for _, resource := range textsIn(rule, "resources") {
			for _, verb := range textsIn(rule, "verbs") {
				for _, name := range names {
					rights = append(rights, right{verb, group, resource, namespace, name})
				}
			}
		}
	}
	return rights
}

// textsIn returns a field that is a list of texts.
func textsIn(o fakekube.Object, field string) (texts []string) {
	for _, text := range o[field].([]any) {
		texts = append(texts, text.(string))
	}
	return texts
}
