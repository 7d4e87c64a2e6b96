package behaviours

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	"podcount/lab/fakekube"
)

// What the policies say about writes of other objects than nodes.
const (
	noMetadata = "may not change labels, annotations, finalizers, owners or other metadata"
	noManager  = "may not make others managers"
	noFields   = "may not become the manager of metadata of what it writes, or of fields that do not exist"
	noTaking   = "may not take metadata of what it writes from its managers"
)

// owner is an owner that the garbage collector would not let go.
var owner = object{"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": "1", "blockOwnerDeletion": true}

// badMetadata is metadata that podcount must not write, each with a name.
var badMetadata = map[string]object{
	"a finalizer":    {"finalizers": []any{"podcount.test/hold"}},
	"an owner":       {"ownerReferences": []any{owner}},
	"an annotation":  {"annotations": object{"a": "b"}},
	"a label":        {"labels": object{"a": "b"}},
	"a generateName": {"generateName": "a"},
}

// asPodcount returns a path with the field manager that podcount gives.
func asPodcount(path string) string { return path + "?fieldManager=podcount" }

// managed returns metadata with one more entry in managedFields.
func managed(apiVersion, manager, operation string, fields object) object {
	return object{"managedFields": []any{object{
		"manager":    manager,
		"operation":  operation,
		"apiVersion": apiVersion,
		"fieldsType": "FieldsV1",
		"fieldsV1":   fields,
	}}}
}

// aLabel is a field of which the server makes podcount no manager, because podcount does not set it.
var aLabel = object{"f:metadata": object{"f:labels": object{"f:a": object{}}}}

// unknownFields are fields that nothing has. They would only make an object larger.
var unknownFields = map[string]object{
	"a field":           {"f:a": object{}},
	"a part of a field": {"f:spec": object{"f:a": object{}}, "f:type": object{"f:a": object{}}},
}

// ofOthers is metadata that others may give to what podcount writes.
var ofOthers = object{
	"annotations": object{"note": "x"},
	"labels":      object{"a": "b"},
	"finalizers":  []any{"podcount.test/keep"},
}

// withoutOthers is the removal of that metadata.
var withoutOthers = object{"annotations": nil, "labels": nil, "finalizers": nil}

// wantDenied fails the test unless a request of the account is refused by a policy that says one of these reasons. If
// two policies refuse a request, the server names any one of them.
func (g *guarded) wantDenied(what, method, path string, body object, reasons ...string) {
	g.Helper()
	_, err := g.account.try(method, path, body)
	isSaid := func(reason string) bool { return strings.Contains(err.Error(), "podcount "+reason) }
	if !isStatus(err, 422, "Invalid") || !slices.ContainsFunc(reasons, isSaid) {
		g.Errorf("%s, by %s %s, was not refused with one of %q: %v", what, method, path, reasons, err)
	}
}

// showEvents shows that the account may post only short Events of its own, and change only their count and time.
func (g *guarded) showEvents() {
	const badField = "may not post Events with other fields than its own, or with long ones"
	post := asPodcount(eventsOf(g.namespace))
	long := strings.Repeat("x", 1<<20)
	number := 0
	newEvent := func(changes ...object) object {
		number++
		event := g.event(fmt.Sprint("event-", number), "podcount", "podcount")
		for _, change := range changes {
			maps.Copy(event, change)
		}
		return event
	}
	withMeta := func(more object) object {
		event := newEvent()
		maps.Copy(fakekube.MetaOf(event), more)
		return event
	}

	for what, more := range badMetadata {
		g.wantDenied("an Event with "+what, "POST", post, withMeta(more), noMetadata)
	}
	foreign := withMeta(managed("v1", "another", "Apply", aLabel))
	g.wantDenied("an Event with a foreign manager", "POST", post, foreign, noManager)
	asAnother := eventsOf(g.namespace) + "?fieldManager=another"
	g.wantDenied("an Event of another manager", "POST", asAnother, newEvent(), noManager)
	for what, fields := range unknownFields {
		large := withMeta(managed("v1", "podcount", "Update", fields))
		g.wantDenied("an Event that manages "+what+" that does not exist", "POST", post, large, noFields)
	}
	about := object{"kind": "Pod", "namespace": g.namespace, "name": "a", "fieldPath": long}
	for what, change := range map[string]object{
		"a long reason":    {"reason": long},
		"a reason of 1 kB": {"reason": strings.Repeat("ä", 500)},
		"a long type":      {"type": long},
		"a long path":      {"involvedObject": about},
		"a long instance":  {"reportingInstance": long},
		"a host":           {"source": object{"component": "podcount", "host": "h"}},
		"an action":        {"action": "Act"},
		"a related object": {"related": object{"kind": "Pod", "namespace": g.namespace, "name": "b"}},
		"a series":         {"series": object{"count": 2}},
	} {
		g.wantDenied("an Event with "+what, "POST", post, newEvent(change), badField, noFields)
	}
	for _, message := range []string{long, strings.Repeat("x", 1025), strings.Repeat("ä", 513)} {
		what := fmt.Sprintf("an Event with a message of %d bytes", len(message))
		g.wantDenied(what, "POST", post, newEvent(object{"message": message}), "may post Events only with a message of")
	}
	g.account.send("POST", post, newEvent(object{"message": strings.Repeat("ä", 512)}))

	g.account.send("POST", post, newEvent())
	last := fmt.Sprint(eventsOf(g.namespace), "/event-", number)
	for what, more := range badMetadata {
		g.wantDenied("an Event that gets "+what, "PATCH", asPodcount(last), object{"metadata": more}, noMetadata)
	}
	const mayOnly = "may change only the count and the last time"
	for _, field := range []string{"message", "reason", "action", "reportingInstance", "type"} {
		g.wantDenied("an Event with another "+field, "PATCH", asPodcount(last), object{field: "Other"}, mayOnly, noFields)
	}
	g.wantDenied("a count of another manager", "PATCH", last+"?fieldManager=another", object{"count": 3}, noManager)

	// What others have added may stay, and does not disturb podcount.
	g.send("PATCH", last+"?fieldManager=kubectl-annotate", object{"metadata": ofOthers})
	raise := object{"count": 2, "lastTimestamp": "2026-01-02T03:04:05Z"}
	g.account.send("PATCH", asPodcount(last), raise)
	removal := object{"metadata": object{"annotations": nil}}
	g.wantDenied("an Event without an annotation of others", "PATCH", asPodcount(last), removal, noMetadata)
	reset := object{"metadata": object{"managedFields": []any{object{}}}}
	g.wantDenied("an Event without its managers", "PATCH", asPodcount(last), reset, noTaking)
	g.send("PATCH", last, object{"metadata": object{"finalizers": nil}})
}

// putLease lets the account write its Lease with some more metadata and more fields of the spec, as podcount does: with
// the metadata that it has read.
func (g *guarded) putLease(meta, spec object) error {
	g.Helper()
	old, err := g.try("GET", g.lease(g.name), nil)
	if err != nil {
		old = named(g.name)
	}
	metadata := maps.Clone(fakekube.MetaOf(old))
	maps.Copy(metadata, meta)
	times := "2026-01-02T03:04:05.000000Z"
	wholeSpec := object{"holderIdentity": "me", "leaseDurationSeconds": 15, "acquireTime": times, "renewTime": times}
	maps.Copy(wholeSpec, spec)
	_, err = g.account.try("PUT", asPodcount(g.lease(g.name)), object{
		"apiVersion": "coordination.k8s.io/v1",
		"kind":       "Lease",
		"metadata":   metadata,
		"spec":       wholeSpec,
	})
	return err
}

// showLease shows that the account may write only the spec of its Lease.
func (g *guarded) showLease() {
	const api = "coordination.k8s.io/v1"
	lease := g.lease(g.name)
	g.deleteAtEnd(lease)
	wantDenied := func(what string, meta, spec object, why string) {
		g.Helper()
		err := g.putLease(meta, spec)
		if !isStatus(err, 422, "Invalid") || !strings.Contains(err.Error(), "podcount "+why) {
			g.Errorf("%s was not refused with %q: %v", what, why, err)
		}
	}
	showAll := func(state string) {
		g.Helper()
		for what, meta := range badMetadata {
			wantDenied(state+" with "+what, meta, nil, noMetadata)
		}
		long := object{"holderIdentity": strings.Repeat("x", 1<<20)}
		wantDenied(state+" with a long holder", nil, long, "may write only the holder, the times and the transitions")
		for what, fields := range unknownFields {
			more := managed(api, "podcount", "Update", fields)
			wantDenied(state+" that manages "+what+" that does not exist", more, nil, noFields)
		}
		fields := managed(api, "another", "Apply", aLabel)
		wantDenied(state+" with a foreign manager", fields, nil, noManager)
	}
	mayWrite := func(what string, spec object) {
		g.Helper()
		if err := g.putLease(nil, spec); err != nil {
			g.Errorf("%s was refused: %v", what, err)
		}
	}

	showAll("a new Lease")
	mayWrite("a new Lease", nil)
	showAll("a Lease")
	mayWrite("a renewal", object{"leaseTransitions": 1})

	g.send("PATCH", lease+"?fieldManager=kubectl-annotate", object{"metadata": ofOthers})
	wantDenied("a Lease without its managers", object{"managedFields": []any{object{}}}, nil, noTaking)

	// What others have added may stay, even if the server merges their managers.
	for i := range 11 {
		g.send("PATCH", fmt.Sprint(lease, "?fieldManager=manager-", i), object{"metadata": object{
			"annotations": object{fmt.Sprint("a", i): "x"},
			"labels":      object{fmt.Sprint("l", i): "x"},
			"finalizers":  []any{"podcount.test/keep"},
		}})
	}
	mayWrite("a renewal beside other managers", object{"leaseTransitions": 2})
	mayWrite("a release", object{"holderIdentity": "", "leaseDurationSeconds": 1})
	wantDenied("a Lease without the annotations of others", object{"annotations": object{}}, nil, noMetadata)
	g.send("PATCH", lease, object{"metadata": object{"finalizers": nil}})
	g.delete(lease)
}

// showPodcount shows that podcount itself does all of its work under the policies.
func (g *guarded) showPodcount() {
	g.Run("podcount", func(t *testing.T) {
		w := g.under(t)
		log := w.start(w.as("token: "+g.token), "policy",
			"-controllers", "pod-count",
			"-pod-events", "on",
			"-leader-elect",
			"-leader-elect-resource-namespace", g.namespace,
			"-leader-elect-resource-name", g.name,
			"-leader-elect-lease-duration", "6s",
			"-leader-elect-renew-deadline", "4s",
			"-leader-elect-retry-period", "200ms",
		)
		w.awaitLabel(g.node, "0")
		for range 2 {
			a := w.addPod("policy-a", "policy")
			w.awaitLabel(g.node, "1")
			w.delete(a)
			w.awaitLabel(g.node, "0")
		}
		w.await("two events on the pod and on the node", func() bool {
			onPod := w.timesReported(w.namespace, "policy-a", "PodCounted", "pod count is 1")
			onNode := w.timesReported("default", path.Base(g.node), "PodCountChanged", "pod count changed from 0 to 1")
			return onPod == 2 && onNode == 2
		})
		w.wantNoWarnings(log)
	})
	lease := g.send("GET", g.lease(g.name), nil)
	if holder := fakekube.TextIn(lease["spec"].(object), "holderIdentity"); holder != "" {
		g.Errorf("podcount has not released its Lease: %q holds it", holder)
	}
	g.delete(g.lease(g.name))
}

// countPolicy shows that the policies let podcount's account write the status of a Count, but not become the manager of
// its metadata. The server ignores metadata in a request for the status, and yet notes in managedFields who sent it.
func countPolicy(w *world) {
	if w.options.Fake != nil {
		w.Skip("the fake does not know CEL")
	}
	count := w.addCount()
	g := w.guard("policy-counts")
	g.awaitPolicies()

	status := count + "/status"
	g.account.send("PATCH", asPodcount(status), object{"status": object{"count": 1}})
	for what, more := range badMetadata {
		if what == "a generateName" {
			continue // The server does not note this.
		}
		change := object{"metadata": more, "status": object{"count": 2}}
		g.wantDenied("a status with "+what, "PATCH", asPodcount(status), change, noFields)
	}
	g.send("PATCH", count+"?fieldManager=gitops", object{"metadata": ofOthers})
	taking := object{"metadata": withoutOthers, "status": object{"count": 3}}
	g.wantDenied("a status without the metadata of others", "PATCH", asPodcount(status), taking, noTaking)
	g.account.send("PATCH", asPodcount(status), object{"status": object{"count": 3}})
	g.send("PATCH", count+"?fieldManager=gitops", object{"metadata": withoutOthers})

	change := object{"status": object{"count": 7}}
	g.wantDenied("a status of another manager", "PATCH", status+"?fieldManager=another", change, noManager)
	for i := range 11 {
		path := fmt.Sprint(count, "?fieldManager=manager-", i)
		g.send("PATCH", path, object{"metadata": object{"annotations": object{fmt.Sprint("a", i): "x"}}})
	}
	g.account.send("PATCH", asPodcount(status), object{"status": object{"count": 4}})
	g.send("PATCH", count+"/status?fieldManager=another", object{"status": object{"count": 5}})
	g.account.send("PATCH", asPodcount(status), object{"status": object{"count": 6}})
}
