package behaviours

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
)

// manifestPolicy shows that the admission policies of the manifest let podcount's account change nothing on a node
// except podcount's own labels, and no events except its own, and that podcount can work under them. The account may do
// everything as far as RBAC goes.
func manifestPolicy(w *world) {
	if w.options.Fake != nil {
		w.Skip("the fake does not know CEL")
	}
	w.runAlongside("policy")
	g := w.guard("policy")
	g.awaitPolicies()
	g.showLabels()
	g.showManagers()
	g.showMergedManagers()
	g.showOtherWrites()
	g.showEvents()
	g.showLease()
	g.showPodcount()
}

// guarded is a node that the policies of the manifest guard against podcount's account.
type guarded struct {
	*world
	account *world // sends requests as podcount's account
	name    string // of the account and the policies
	token   string // of the account
	node    string // path of the node
}

// guard creates a node in a group, podcount's account and the policies.
func (w *world) guard(group string) *guarded {
	name := w.namespace + "-" + group
	node := w.node(group, group)
	fakekube.MetaOf(node)["labels"].(object)[runLabel] = w.namespace
	path := "/api/v1/nodes/" + fakekube.KeyOf(node).Name
	w.deleteAtEnd(path)
	w.send("POST", "/api/v1/nodes?fieldManager=kubelet", node)

	token := w.addPodcountAccount(name)
	w.createPolicies(name)
	config, err := kubeconfig.Load(w.Context(), kubeconfig.Options{
		Kubeconfig: w.kubeconfigOf("token: " + token),
		Getenv:     os.Getenv,
	})
	if err != nil {
		w.Fatal(err)
	}
	account := *w
	account.client = newClient(config)
	w.Cleanup(account.client.Close)
	w.bind(name+"-admin", name, "cluster-admin")
	return &guarded{w, &account, name, token, path}
}

// createPolicies creates the manifest's policies and their bindings.
func (w *world) createPolicies(account string) {
	manifest := new(bytes.Buffer)
	args := []string{
		"-manifest=policy",
		"-manifest-namespace", w.namespace,
		"-leader-elect-resource-name", account,
		"-total-label", w.label,
	}
	noEnv := func(string) string { return "" }
	if err := w.options.Program(w.Context(), args, noEnv, manifest, io.Discard, nil); err != nil {
		w.Fatal(err)
	}
	collections := map[string]string{
		"ValidatingAdmissionPolicy":        "validatingadmissionpolicies",
		"ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
	}
	for doc := range strings.SplitSeq(manifest.String(), "\n---\n") {
		o := parseYAML(w, doc).(object)
		w.create("/apis/admissionregistration.k8s.io/v1/"+collections[fakekube.TextIn(o, "kind")], o)
	}
}

// isRefused reports whether the account's change of the node is refused with this text.
func (g *guarded) isRefused(change object, why string) bool {
	_, err := g.account.try("PATCH", g.node, change)
	return err != nil && strings.Contains(err.Error(), why)
}

func (g *guarded) wantRefused(what string, change object, why string) {
	g.Helper()
	if !g.isRefused(change, why) {
		g.Errorf("%s was not refused with %q", what, why)
	}
}

// change changes the node as podcount does.
func (g *guarded) change(patch object) {
	g.Helper()
	g.account.send("PATCH", g.node+"?fieldManager=podcount", patch)
}

// event returns an event with these components as source and as reportingComponent.
func (w *world) event(name, source, reporting string) object {
	event := named(name)
	event["involvedObject"] = object{"kind": "Pod", "namespace": w.namespace, "name": "a"}
	event["reason"] = "Test"
	event["source"] = object{"component": source}
	event["reportingComponent"] = reporting
	return event
}

// awaitPolicies waits until each policy refuses a write. Each try must change something, because no policy sees a write
// that changes nothing. The dry runs store nothing while a policy is not in force.
func (g *guarded) awaitPolicies() {
	tries := 0
	g.await("the policies are in force", func() bool {
		tries++
		try := strconv.Itoa(tries)
		_, eventErr := g.account.try("POST", eventsOf(g.namespace), g.event("try-"+try, "kubelet", "kubelet"))
		_, statusErr := g.account.try("PATCH", g.node+"/status", object{"status": object{"phase": try}})
		hasOwner := g.event("owned-"+try, "podcount", "podcount")
		fakekube.MetaOf(hasOwner)["ownerReferences"] = []any{owner}
		_, metadataErr := g.account.try("POST", eventsOf(g.namespace)+"?dryRun=All", hasOwner)
		holder := object{"spec": object{"holderIdentity": strings.Repeat("x", 1000)}}
		maps.Copy(holder, named(g.name))
		_, leaseErr := g.account.try("PUT", g.lease(g.name)+"?dryRun=All", holder)
		return g.isRefused(labels("try", try), "podcount may") &&
			eventErr != nil && statusErr != nil && metadataErr != nil && leaseErr != nil
	})
}

// showLabels shows that the account may change podcount's label and nothing else, and that other users may change more.
func (g *guarded) showLabels() {
	metadata := func(field string, value any) object { return object{"metadata": object{field: value}} }
	mayOnly := "may change only these labels of a node: " + g.label
	othersField := labels(g.label, "1")
	fakekube.MetaOf(othersField)["managedFields"] = []any{object{}}
	for _, row := range []struct {
		what   string
		change object
		why    string
	}{
		{"another spec", object{"spec": object{"taints": []any{}}}, "may not change the spec"},
		{"a foreign label", labels("group", "other", g.label, "1"), mayOnly},
		{"an annotation", metadata("annotations", object{"a": "b"}), "may not change annotations"},
		{"a generateName", metadata("generateName", "a"), "may not change annotations, finalizers"},
		{"a takeover of fields", othersField, "podcount may not remove others"},
		{"a new label", labels("another", "x"), "podcount may"},
		{"the removal of a label", labels("group", nil), "podcount may"},
		{"an uncordon", object{"spec": object{"unschedulable": nil}}, "podcount may"},
		{"a finalizer", metadata("finalizers", []any{"a.b/c"}), "podcount may"},
	} {
		g.wantRefused(row.what, row.change, row.why)
	}
	g.change(labels(g.label, "1"))
	g.change(labels(g.label, nil))
	g.change(labels(g.label, "2", "group", "policy"))

	byOthers := labels("another", "x")
	byOthers["spec"] = object{"unschedulable": nil}
	g.send("PATCH", g.node+"?fieldManager=kubectl-edit", byOthers)
}

func (g *guarded) managedFields() []any {
	return fakekube.MetaOf(g.send("GET", g.node, nil))["managedFields"].([]any)
}

// showManagers shows that the account cannot make any manager the owner of more fields.
func (g *guarded) showManagers() {
	before := g.managedFields()
	for _, row := range []struct{ what, manager, operation string }{
		{"an apply by podcount", "podcount", "Apply"},
		{"an update by podcount", "podcount", "Update"},
		{"another manager", "another", "Update"},
		{"a merged entry", "ancient-changes", "Update"},
	} {
		entry := object{
			"manager":    row.manager,
			"operation":  row.operation,
			"apiVersion": "v1",
			"fieldsType": "FieldsV1",
			"fieldsV1":   object{"f:spec": object{"f:taints": object{}}},
		}
		fields := append(slices.Clone(before), entry)
		change := object{"metadata": object{"managedFields": fields}}
		g.wantRefused(row.what+" that manages the taints", change, "podcount may")
	}
	_, err := g.account.try("PATCH", g.node+"?fieldManager=another", labels(g.label, "7"))
	g.wantStatus("a write as another manager", err, 422, "Invalid")

	// When podcount writes its label, another manager of the label loses it.
	g.send("PATCH", g.node+"?fieldManager=kubectl-label", labels(g.label, "8", "third", "x"))
	g.change(labels(g.label, "3"))
}

// showMergedManagers shows that podcount may write even if there are ten other managers. The server then merges the
// oldest of them.
func (g *guarded) showMergedManagers() {
	g.change(labels(g.label, nil))
	for i := range 10 {
		annotations := object{fmt.Sprint("a", i): "x"}
		path := fmt.Sprint(g.node, "?fieldManager=manager-", i)
		g.send("PATCH", path, object{"metadata": object{"annotations": annotations}})
	}
	g.change(labels(g.label, "4"))
	managers := fmt.Sprint(g.managedFields())
	if !strings.Contains(managers, "ancient-changes") {
		g.Errorf("the server has merged no managers: %s", managers)
	}
	g.awaitLabel(g.node, "4")
}

// showOtherWrites shows that the account may do nothing else to nodes, and nothing to the events of others.
func (g *guarded) showOtherWrites() {
	events := eventsOf(g.namespace)
	ours := events + "/ours"
	theirs := events + "/theirs"
	again := object{"count": 2}
	g.account.send("POST", asPodcount(events), g.event("ours", "podcount", "podcount"))
	g.account.send("PATCH", asPodcount(ours), again)
	g.send("POST", events, g.event("theirs", "kubelet", "kubelet"))
	for _, row := range []struct {
		method, path string
		body         object
	}{
		{"DELETE", g.node, nil},
		{"POST", "/api/v1/nodes", named(g.namespace + "-made")},
		{"PATCH", g.node + "/status", object{"status": object{"phase": "none"}}},
		{"GET", g.node + "/proxy/", nil},
		{"POST", events, g.event("false", "podcount", "kubelet")},
		{"PATCH", theirs, again},
		{"PATCH", theirs, g.event("theirs", "podcount", "podcount")},
		{"PATCH", ours, g.event("ours", "kubelet", "kubelet")},
		{"DELETE", theirs, nil},
	} {
		_, err := g.account.try(row.method, row.path, row.body)
		isByPolicy := isStatus(err, 422, "Invalid") && strings.Contains(err.Error(), "podcount may")
		if !isByPolicy {
			g.Errorf("%s %s %v was not refused by the policies: %v", row.method, row.path, row.body, err)
		}
	}
}
