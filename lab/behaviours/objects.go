package behaviours

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// named returns an object that has only a name.
func named(name string) object { return object{"metadata": object{"name": name}} }

// labels returns an object, or a patch, that has only labels. pairs alternates between keys and values.
func labels(pairs ...any) object {
	set := object{}
	for pair := range slices.Chunk(pairs, 2) {
		set[pair[0].(string)] = pair[1]
	}
	return object{"metadata": object{"labels": set}}
}

func (w *world) pods() string { return "/api/v1/namespaces/" + w.namespace + "/pods" }

// pod returns a pod that no scheduler and no kubelet ever takes.
func (w *world) pod(name string, labelPairs ...any) object {
	pod := labels(labelPairs...)
	fakekube.MetaOf(pod)["name"] = name
	pod["spec"] = object{
		"schedulerName": "podcount.test-none",
		"containers":    []any{object{"name": "c", "image": "podcount.test/none"}},
	}
	return pod
}

// addPod creates a pod in a group and returns its path.
func (w *world) addPod(name, group string) (path string) {
	w.Helper()
	return w.create(w.pods(), w.pod(name, "group", group))
}

// addNode creates a node in a group and returns its path. No pod is ever scheduled to it.
func (w *world) addNode(name, group string) (path string) {
	w.Helper()
	return w.create("/api/v1/nodes", w.node(name, group))
}

// node returns a node in a group, whose name begins with our namespace.
func (w *world) node(name, group string) object {
	node := labels("group", group)
	fakekube.MetaOf(node)["name"] = w.namespace + "-" + name
	node["spec"] = object{
		"unschedulable": true,
		"taints":        []any{object{"key": "podcount.test/none", "effect": "NoSchedule"}},
	}
	return node
}

// awaitLabel waits until podcount's label of a node has this value. "" means that the node must not have the label.
func (w *world) awaitLabel(node, want string) {
	w.Helper()
	w.await(fmt.Sprintf("%s has %s=%q", node, w.label, want), func() bool {
		o, err := w.try("GET", node, nil)
		labels, _ := fakekube.MetaOf(o)["labels"].(object)
		return err == nil && fakekube.TextIn(labels, w.label) == want
	})
}

func eventsOf(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }

// events returns the events in a namespace, or none if they cannot be listed.
func (c *cluster) events(ctx context.Context, namespace string) []object {
	var list struct{ Items []object }
	c.client.Send(ctx, kube.Request{Method: "GET", API: eventsOf(namespace)}, testkit.Into(&list))
	return list.Items
}

// involved returns the name of the object that an event is about.
func involved(event object) (name string) {
	about, _ := event["involvedObject"].(object)
	return fakekube.TextIn(about, "name")
}

// timesReported returns how often an event was reported for the object with this name.
func (w *world) timesReported(namespace, name, reason, message string) (times int) {
	for _, event := range w.events(w.Context(), namespace) {
		isAboutName := involved(event) == name
		isReport := fakekube.TextIn(event, "reason") == reason && fakekube.TextIn(event, "message") == message
		if isAboutName && isReport {
			times += int(event["count"].(float64))
		}
	}
	return times
}

// addAccount creates a service account without any rights and returns its token.
func (w *world) addAccount(name string) (token string) {
	w.Helper()
	account := w.create("/api/v1/namespaces/"+w.namespace+"/serviceaccounts", named(name))
	answer := w.send("POST", account+"/token", object{
		"apiVersion": "authentication.k8s.io/v1",
		"kind":       "TokenRequest",
		"spec":       object{},
	})
	return fakekube.TextIn(answer["status"].(object), "token")
}

// addPodcountAccount creates a service account with the cluster-wide rights that the manifest gives podcount, and
// returns its token. From then on, the server grants these rights.
func (w *world) addPodcountAccount(name string) (token string) {
	w.Helper()
	token = w.addAccount(name)
	w.grant(name)
	w.awaitRights(name)
	return token
}

// awaitRights waits until a service account may list pods. A real server learns of new roles and bindings by watches of
// its own, a moment later.
func (w *world) awaitRights(account string) {
	w.Helper()
	if w.options.Fake != nil {
		return // It does not check rights.
	}
	review := object{
		"apiVersion": "authorization.k8s.io/v1",
		"kind":       "SubjectAccessReview",
		"spec": object{
			"user":               "system:serviceaccount:" + w.namespace + ":" + account,
			"resourceAttributes": object{"verb": "list", "resource": "pods"},
		},
	}
	w.await("the server lets "+account+" list pods", func() bool {
		answer := w.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
		return answer["status"].(object)["allowed"] == true
	})
}

// grant gives a service account the cluster-wide rights that the manifest gives podcount.
func (w *world) grant(account string) {
	w.Helper()
	name := w.namespace + "-" + account
	role := named(name)
	role["rules"] = w.rulesOfManifest()
	w.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", role)
	w.bind(name, account, name)
}

// bind creates a binding that gives a service account the rights of a cluster role.
func (w *world) bind(name, account, role string) {
	w.Helper()
	binding := named(name)
	binding["roleRef"] = object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}
	binding["subjects"] = []any{object{"kind": "ServiceAccount", "name": account, "namespace": w.namespace}}
	w.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
}

// rulesOfManifest returns the rules of the cluster roles in deploy/podcount.yaml.
func (w *world) rulesOfManifest() (rules []any) {
	w.Helper()
	for doc := range strings.SplitSeq(testkit.ReadFile(w, "deploy/podcount.yaml"), "\n---\n") {
		_, role, isRole := strings.Cut(doc, "kind: ClusterRole\n")
		if isRole {
			rules = append(rules, parseYAML(w, role).(object)["rules"].([]any)...)
		}
	}
	if len(rules) == 0 {
		w.Fatal("deploy/podcount.yaml has no ClusterRole")
	}
	return rules
}

// admin returns the flags for a user who may do everything.
func (w *world) admin() (args []string) {
	return []string{"-kubeconfig", w.options.Kubeconfig, "-context", w.options.Context}
}

// as returns the flags for another user of the cluster. user is the YAML of a kubeconfig's user.
func (w *world) as(user string) (args []string) {
	w.Helper()
	return []string{"-kubeconfig", w.kubeconfigOf(user)}
}

// kubeconfigOf writes a kubeconfig for another user of the cluster. user is the YAML of a kubeconfig's user.
func (w *world) kubeconfigOf(user string) (file string) {
	w.Helper()
	config := fakekube.Kubeconfig(w.config.Server.String(), w.ca, user)
	credential, err := w.config.Credential(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	if name := credential.TLS.ServerName; name != "" {
		config = strings.Replace(config, "    server:", "    tls-server-name: "+name+"\n    server:", 1)
	}
	file = filepath.Join(w.TempDir(), "config")
	writeFile(w, file, config)
	return file
}

// lease returns the path of a Lease.
func (w *world) lease(name string) (path string) {
	return "/apis/coordination.k8s.io/v1/namespaces/" + w.namespace + "/leases/" + name
}
