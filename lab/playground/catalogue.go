package main

import (
	"strings"
)

// namespaces lists the playground's first namespaces.
var namespaces = []string{"default", "kube-system", "kube-public", "kube-node-lease", "shop", "monitoring"}

// cartReplicas is how many pods the Deployment cart has, and its Count wants.
const cartReplicas = 3

// catalogue returns the playground's first workloads. The one named web must come first.
func catalogue() []*workload {
	return []*workload{
		deployment("default", "web", "nginx:1.29", (leastWeb+mostWeb)/2),
		static("etcd", controlPlaneNode, "registry.k8s.io/etcd:3.6.5-0"),
		static("kube-apiserver", controlPlaneNode, "registry.k8s.io/kube-apiserver:v1.35.0"),
		static("kube-controller-manager", controlPlaneNode, "registry.k8s.io/kube-controller-manager:v1.35.0"),
		static("kube-scheduler", controlPlaneNode, "registry.k8s.io/kube-scheduler:v1.35.0"),
		static("kube-proxy", nodes[0], "registry.k8s.io/kube-proxy:v1.35.0"),
		static("kube-proxy", nodes[1], "registry.k8s.io/kube-proxy:v1.35.0"),
		static("kube-proxy", nodes[2], "registry.k8s.io/kube-proxy:v1.35.0"),
		deployment("kube-system", "coredns", "registry.k8s.io/coredns/coredns:v1.13.1", 2),
		deployment("shop", "cart", "registry.example/shop/cart:v12", cartReplicas),
		deployment("shop", "checkout", "registry.example/shop/checkout:v7", 2),
		deployment("shop", "search", "registry.example/shop/search:v3", 2),
		statefulSet("shop", "db", "postgres:18", 1),
		deployment("monitoring", "grafana", "grafana/grafana:12.2.0", 1),
		statefulSet("monitoring", "prometheus", "prom/prometheus:v3.7.3", 1),
	}
}

// podSpec returns the spec of a pod with one container, which is named after its image.
func podSpec(image string) object {
	name := image[strings.LastIndex(image, "/")+1:]
	name, _, _ = strings.Cut(name, ":")
	c := object{
		"name":      name,
		"image":     image,
		"resources": object{"requests": object{"cpu": "50m", "memory": "64Mi"}},
	}
	return object{"containers": []any{c}, "restartPolicy": "Always"}
}

// deployment returns the ReplicaSet of a Deployment.
func deployment(namespace, name, image string, replicas int) *workload {
	hash := podTemplateHash(name)
	return (&workload{
		namespace: namespace,
		name:      name + "-" + hash,
		kind:      "ReplicaSet",
		replicas:  replicas,
		labels:    object{"app": name, "pod-template-hash": hash},
		spec:      podSpec(image),
	}).identified()
}

// statefulSet returns a StatefulSet.
func statefulSet(namespace, name, image string, replicas int) *workload {
	return (&workload{
		namespace: namespace,
		name:      name,
		kind:      "StatefulSet",
		replicas:  replicas,
		labels:    object{"app": name, "controller-revision-hash": name + "-" + podTemplateHash(name)},
		spec:      podSpec(image),
	}).identified()
}

// static returns a static pod. Its node's kubelet runs it from a file, and keeps a mirror of it in the API.
func static(component, node, image string) *workload {
	spec := podSpec(image)
	spec["nodeName"] = node
	spec["hostNetwork"] = true
	spec["tolerations"] = []any{object{"operator": "Exists"}}
	return (&workload{
		namespace: "kube-system",
		name:      component + "-" + node,
		kind:      "Node",
		replicas:  1,
		labels:    object{"component": component, "tier": "control-plane"},
		spec:      spec,
	}).identified()
}

// podTemplateHash invents the hash of a Deployment's template. It has only letters that such hashes have.
func podTemplateHash(name string) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	hash := []byte(digest(name)[:9])
	for i := range hash {
		hash[i] = letters[int(hash[i])%len(letters)]
	}
	return string(hash)
}

// identified sets the uid of the owner, which is always the same for the same workload, and returns the workload.
func (w *workload) identified() *workload {
	w.uid = uuidOf(digest(w.namespace, w.kind, w.name))
	return w
}
