package main

import (
	"fmt"
	"slices"
	"time"

	"podcount/lab/fakekube"
)

const (
	controlPlane     = "node-role.kubernetes.io/control-plane"
	controlPlaneNode = "control-plane"
	kubeletVersion   = "v1.35.0"

	// leaseRenewal is how often a kubelet renews its node's Lease.
	leaseRenewal = 10 * time.Second

	// nodeReport is how often a kubelet posts its node's status although nothing has changed.
	nodeReport = 5 * time.Minute
)

// nodes lists the nodes that have a kubelet. The first one is for the control plane.
var nodes = []string{controlPlaneNode, "worker-1", "worker-2"}

// register creates a node and its Lease, as a kubelet does when it starts.
func register(c *client, name string, index int) error {
	labels := object{
		"beta.kubernetes.io/arch": "amd64",
		"beta.kubernetes.io/os":   "linux",
		"kubernetes.io/arch":      "amd64",
		"kubernetes.io/hostname":  name,
		"kubernetes.io/os":        "linux",
	}
	cidr := fmt.Sprintf("10.244.%d.0/24", index)
	spec := object{"podCIDR": cidr, "podCIDRs": []any{cidr}}
	if name == controlPlaneNode {
		labels[controlPlane] = ""
		labels["node.kubernetes.io/exclude-from-external-load-balancers"] = ""
		spec["taints"] = []any{object{"key": controlPlane, "effect": "NoSchedule"}}
	}
	node, err := c.create("nodes", object{
		"metadata": object{
			"name":        name,
			"labels":      labels,
			"annotations": object{"node.alpha.kubernetes.io/ttl": "0"},
		},
		"spec": spec,
	})
	if err != nil {
		return err
	}
	if err := c.patchStatus("nodes", node, nodeStatus(name, index, time.Now())); err != nil {
		return err
	}
	now := stampMicro(time.Now())
	_, err = c.create("leases", object{
		"metadata": object{
			"namespace": "kube-node-lease",
			"name":      name,
			"ownerReferences": []any{
				object{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uidOf(node)},
			},
		},
		"spec": object{"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": now},
	})
	return err
}

// nodeStatus returns the status that a kubelet writes for a healthy node.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/node-v1/#NodeStatus
func nodeStatus(name string, index int, now time.Time) object {
	resources := func(cpu, memory string) object {
		return object{
			"cpu":               cpu,
			"memory":            memory,
			"pods":              "110",
			"ephemeral-storage": "61255492Ki",
			"hugepages-1Gi":     "0",
			"hugepages-2Mi":     "0",
		}
	}
	return object{
		"addresses": []any{
			object{"type": "InternalIP", "address": fmt.Sprintf("192.168.65.%d", 10+index)},
			object{"type": "Hostname", "address": name},
		},
		"capacity":        resources("4", "8148892Ki"),
		"allocatable":     resources("4", "8046492Ki"),
		"conditions":      nodeConditions(now, now),
		"daemonEndpoints": object{"kubeletEndpoint": object{"Port": 10250}},
		"nodeInfo": object{
			"architecture":            "amd64",
			"bootID":                  uuidOf(digest("boot", name)),
			"containerRuntimeVersion": "containerd://2.1.4",
			"kernelVersion":           "6.12.48+deb13-amd64",
			"kubeProxyVersion":        "",
			"kubeletVersion":          kubeletVersion,
			"machineID":               digest("machine", name)[:32],
			"operatingSystem":         "linux",
			"osImage":                 "Debian GNU/Linux 13 (trixie)",
			"systemUUID":              uuidOf(digest("system", name)),
		},
	}
}

// uuidOf returns a UUID of these hexadecimal digits.
func uuidOf(hex string) string {
	return hex[:8] + "-" + hex[8:12] + "-" + hex[12:16] + "-" + hex[16:20] + "-" + hex[20:32]
}

// nodeConditions returns the conditions of a node that has been healthy since a time.
func nodeConditions(since, now time.Time) []any {
	condition := func(kind, status, reason, message string) object {
		return object{
			"type":               kind,
			"status":             status,
			"reason":             reason,
			"message":            message,
			"lastHeartbeatTime":  stamp(now),
			"lastTransitionTime": stamp(since),
		}
	}
	return []any{
		condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
		condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
		condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
		condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
	}
}

// heartbeat reports for the kubelets that their nodes are alive. Only one goroutine may use it.
type heartbeat struct {
	*client
	since    time.Time // when the nodes were created
	renewed  time.Time
	reported time.Time
}

// step renews the Leases of the nodes and posts their status, when that is due.
func (h *heartbeat) step() {
	now := time.Now()
	isRenewal := now.Sub(h.renewed) >= leaseRenewal
	isReport := now.Sub(h.reported) >= nodeReport
	for _, node := range h.all("nodes") {
		name := fakekube.KeyOf(node).Name
		if !slices.Contains(nodes, name) {
			continue // that node has no kubelet
		}
		if isReport {
			h.patchStatus("nodes", node, object{"conditions": nodeConditions(h.since, now)})
		}
		if isRenewal {
			h.renew(name)
		}
	}
	if isRenewal {
		h.renewed = now
	}
	if isReport {
		h.reported = now
	}
}

// renew renews the Lease of a node.
func (h *heartbeat) renew(node string) {
	lease := object{"metadata": object{"namespace": "kube-node-lease", "name": node}}
	h.patch("leases", lease, object{"spec": object{"renewTime": stampMicro(time.Now())}})
}

// addressOf returns a node's internal IP.
func addressOf(node object) string {
	status, _ := node["status"].(object)
	addresses, _ := status["addresses"].([]any)
	for _, one := range addresses {
		address, _ := one.(object)
		if address["type"] == "InternalIP" {
			return fakekube.TextIn(address, "address")
		}
	}
	return ""
}

// nodesByName returns the nodes that exist.
func nodesByName(c *client) map[string]object {
	byName := map[string]object{}
	for _, node := range c.all("nodes") {
		byName[fakekube.KeyOf(node).Name] = node
	}
	return byName
}
