package fakekube

import "strconv"

// initialEventsEnd annotates the bookmark that ends the initial events of a watch.
// https://kubernetes.io/docs/reference/labels-annotations-taints/#k8s-io-initial-events-end
const initialEventsEnd = "k8s.io/initial-events-end"

// sendBookmark sends the seen version if the client has asked for bookmarks. annotations may be nil.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#watch-bookmarks
func (w *watcher) sendBookmark(annotations Object) {
	if !w.r.listOptions.wantsBookmarks {
		return
	}
	meta := Object{"resourceVersion": strconv.Itoa(w.seenVersion)}
	if annotations != nil {
		meta["annotations"] = annotations
	}
	o := w.r.kind.empty()
	o["metadata"] = meta
	shown := w.render(o)
	if t, isTable := shown.(table); isTable {
		t.Rows[0].Object = w.r.renderMetadata(o) // even if includeObject asks for something else
	}
	w.send("BOOKMARK", shown)
}

// emptyObjects holds, by resource, what an empty object looks like in a bookmark. Other kinds show nothing.
var emptyObjects = map[string]string{
	"pods": `{"spec":{"containers":null},"status":{}}`,
	"nodes": `{"spec":{},"status":{"daemonEndpoints":{"kubeletEndpoint":{"Port":0}},"nodeInfo":{"architecture":"",` +
		`"bootID":"","containerRuntimeVersion":"","kernelVersion":"","kubeProxyVersion":"","kubeletVersion":"",` +
		`"machineID":"","operatingSystem":"","osImage":"","systemUUID":""}}}`,
	"namespaces": `{"spec":{},"status":{}}`,
	"events": `{"involvedObject":{},"source":{},"firstTimestamp":null,"lastTimestamp":null,"eventTime":null,` +
		`"reportingComponent":"","reportingInstance":""}`,
	"leases": `{"spec":{}}`,
	"customresourcedefinitions": `{"spec":{"group":"","names":{"plural":"","kind":""},"scope":"","versions":null},` +
		`"status":{"conditions":null,"acceptedNames":{"plural":"","kind":""},"storedVersions":null}}`,
	"clusterroles":                      `{"rules":null}`,
	"clusterrolebindings":               `{"roleRef":{"apiGroup":"","kind":"","name":""}}`,
	"roles":                             `{"rules":null}`,
	"rolebindings":                      `{"roleRef":{"apiGroup":"","kind":"","name":""}}`,
	"validatingadmissionpolicies":       `{"spec":{},"status":{}}`,
	"validatingadmissionpolicybindings": `{"spec":{}}`,
}

// empty returns an empty object of the kind.
func (k kind) empty() Object {
	text := emptyObjects[k.resource]
	if text == "" || !k.isKnown() {
		return Object{}
	}
	return parsed(text).(Object)
}
