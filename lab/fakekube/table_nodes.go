package fakekube

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

var nodePrinter = printer{
	columns: []column{
		nameColumn,
		{Name: "Status", Type: "string", Description: "The status of the node"},
		{Name: "Roles", Type: "string", Description: "The roles of the node"},
		ageColumn,
		{Name: "Version", Type: "string", Description: "Kubelet Version reported by the node."},
		{Name: "Internal-IP", Type: "string", Priority: 1, Description: addressesDescription},
		{Name: "External-IP", Type: "string", Priority: 1, Description: addressesDescription},
		{Name: "OS-Image", Type: "string", Priority: 1, Description: "OS Image reported by the node from " +
			"/etc/os-release (e.g. Debian GNU/Linux 7 (wheezy))."},
		{Name: "Kernel-Version", Type: "string", Priority: 1, Description: "Kernel Version reported by the node from " +
			"'uname -r' (e.g. 3.16.0-0.bpo.4-amd64)."},
		{Name: "Container-Runtime", Type: "string", Priority: 1, Description: "ContainerRuntime Version reported by " +
			"the node through runtime remote API (e.g. containerd://1.4.2)."},
	},
	cells: func(o Object, now time.Time) []any {
		info := objectIn(o, "status", "nodeInfo")
		return []any{
			nameCell(o),
			nodeStatus(o),
			cmp.Or(strings.Join(nodeRoles(o), ","), "<none>"),
			ageCell(o, now),
			TextIn(info, "kubeletVersion"),
			nodeAddress(o, "InternalIP"),
			nodeAddress(o, "ExternalIP"),
			cmp.Or(TextIn(info, "osImage"), "<unknown>"),
			cmp.Or(TextIn(info, "kernelVersion"), "<unknown>"),
			cmp.Or(TextIn(info, "containerRuntimeVersion"), "<unknown>"),
		}
	},
}

const addressesDescription = "List of addresses reachable to the node. Queried from cloud provider, if available. " +
	"More info: https://kubernetes.io/docs/reference/node/node-status/#addresses Note: This field is declared as " +
	"mergeable, but the merge key is not sufficiently unique, which can cause data corruption when it is merged. " +
	"Callers should instead use a full-replacement patch. See https://pr.k8s.io/79391 for an example. Consumers " +
	"should assume that addresses can change during the lifetime of a Node. However, there are some exceptions where " +
	"this may not be possible, such as Pods that inherit a Node's address in its own status or consumers of the " +
	"downward API (status.hostIP)."

// nodeStatus says whether a node is ready and schedulable.
func nodeStatus(o Object) string {
	status := "NotReady"
	switch conditionOf(objectIn(o, "status"), "Ready") {
	case "":
		status = "Unknown"
	case "True":
		status = "Ready"
	}
	if objectIn(o, "spec")["unschedulable"] == true {
		status += ",SchedulingDisabled"
	}
	return status
}

// nodeRoles returns the sorted roles in a node's labels.
func nodeRoles(o Object) []string {
	var roles []string
	for label, value := range objectIn(o, "metadata", "labels") {
		role, isRole := strings.CutPrefix(label, "node-role.kubernetes.io/")
		if isRole && role != "" {
			roles = append(roles, role)
		}
		if named, _ := value.(string); label == "kubernetes.io/role" && named != "" {
			roles = append(roles, named)
		}
	}
	slices.Sort(roles)
	return slices.Compact(roles)
}

// nodeAddress returns the first address of a type, as a cell.
func nodeAddress(o Object, kind string) string {
	for _, address := range objectsIn(objectIn(o, "status")["addresses"]) {
		if TextIn(address, "type") == kind {
			return TextIn(address, "address")
		}
	}
	return "<none>"
}
