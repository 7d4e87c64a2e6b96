// Package fakekube is an in-memory Kubernetes API server for controller tests and playgrounds. It is an http.Handler
// that answers kubectl, client-go and handwritten clients like a real kube-apiserver v1.35, within the limits below. It
// imports only the standard library.
//
// docs/build/fake.md has a first test to copy, says how another module gets the package, and compares it with others.
//
//	func TestControllerRetries(t *testing.T) {
//		fake := fakekube.New()
//		fake.AddNode("worker")
//		fake.Script(t, "patch nodes, 2 times: refuse 503")
//		server := fake.Listen("http")
//		defer server.Close()
//		startController(t, server.URL) // the code under test
//		fake.Await(t, "the label", func() bool { return isChecked(fake, "worker") })
//	}
//
// A function takes a TB only if it can fail the test. A call that can do nothing, such as a Put of an unknown resource,
// panics; a question about what is not there is answered with nil.
//
// # Serving
//
// Listen serves over TCP in real time. NewNetwork serves over an in-process network, which also works in a bubble of
// testing/synctest, where hours of virtual time pass at once. Both can break connections (Kill), refuse them (Refuse)
// or make them half-open (GoSilent). NewTCPNetwork is for a handler that stands before a fake. An Authority issues
// server and client certificates, and Kubeconfig writes a kubeconfig.
//
// # What a test can do
//
// A test can change the cluster (AddNode, AddPod, Put, Edit, Remove), look at it (Get, All, Selected, Changes), and
// look at what clients have asked for (Received). A Spy observes each request, answer and change.
//
// A Fault selects requests, says how many of them are affected, and what happens to them. Inject takes it as a Go
// value, Script as a line such as "patch nodes worker-1, skip 2, 3 times: delay 2s, refuse 503". The test fails if
// fewer requests than that meet the fault. A Lie is a fault of the server's watch cache: lists and watches from the
// cache are outdated, while lists at an exact version are correct.
//
// Some faults do not belong to a request. Watches end (EndWatches, BreakWatches), miss changes (LoseEvents), lag behind
// (Lag) or send nonsense (SendFrame). The history is lost (Compact), and etcd is set back (Snapshot, Checkpoint). A
// server has little Capacity (Limit), one of its addresses is cut off (CutOff), a right is gone (Forbid), or a webhook
// changes what clients write (Mutate).
//
// With an Upstream, the fake is a proxy that lets faults happen before another server, such as a real one.
//
// # Resources
//
// A resource is named by its plural, as in paths: "pods", "nodes", "namespaces", "events", "configmaps", "secrets",
// "serviceaccounts", "leases", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
// "validatingadmissionpolicies", "validatingadmissionpolicybindings" and "customresourcedefinitions". Clients can also
// create the reviews that show what they may do (SelfSubjectAccessReview and others) and who they are
// (SelfSubjectReview).
//
// Events are served in the core group and in events.k8s.io, which share them. Put, Get and the like have them in the
// form of the core group. A resource "events" of Requests is that of both groups, and "events.events.k8s.io" is that of
// the second.
//
// Serve adds other built-in kinds, such as Services and Deployments. A CustomResourceDefinition adds a custom resource,
// whether a client creates it or Put stores it. If two groups have the same plural, methods such as Put and Get need
// the group as well: "widgets.example.com".
//
// # Users
//
// Initially, everyone may do everything. After a call of Allow, requests need a credential, and RBAC roles and bindings
// determine what a user may do, including impersonation.
//
// # What happens without a request
//
// The fake runs no controllers, but it finishes deletions at once, as the controllers of a healthy cluster would: a
// terminating pod on a node stops and is removed; the garbage collector's finalizers are removed, but dependent objects
// stay; and a namespace is removed with everything in it. Any other finalizer keeps its object until a write removes
// it. With NoControllers, terminating objects stay.
//
// # Fidelity
//
// The package's tests compare the fake's answers with recorded exchanges with a real server. The fake validates the
// metadata of all kinds, the names and images of containers, Leases, Events, bindings, and the names and versions of
// definitions. It refuses changes of immutable fields. Custom resources must obey their schemas. Of all other fields it
// checks only the types. It sets the defaults of the fields that most pods have. Put neither validates nor sets
// defaults.
//
// Refusals have the server's wording, with three exceptions: repeated causes appear once; a message that repeats a
// patched object omits managedFields; and the diff of internal types in the refusal of a pod update is missing.
//
// # Limits
//
// The fake does not convert between versions or groups (except for Events), collect garbage, schedule pods, or store
// anything on disk. Unknown paths are a 404. Compared with a real server, it also lacks:
//   - the fields, defaults and checks of all other built-in kinds, of which Serve knows only the metadata;
//   - server-side apply, which is a 415, and managedFields;
//   - YAML, which is a 415 in requests and a 406 in answers;
//   - protobuf for discovery and, except for metadata, for definitions and policies;
//   - subresources such as scale, which are a 404, except status, binding and eviction of pods, finalize of namespaces,
//     and token of service accounts;
//   - the checks of a pod's probes, ports, volumes, resources and tolerations, of taints, of the rules of roles, and of
//     the keys of ConfigMaps and Secrets; quantities keep the unit in which they are written;
//   - of schemas, everything but types, required fields, enums, limits and patterns: formats, allOf, anyOf, oneOf, not,
//     and the rules of sets, maps and embedded resources always pass, and a schema itself may be anything;
//   - CEL: rules in definitions always pass, and policies can only express that a node of a certain name lacks a
//     certain label;
//   - the full life of a definition: after a change of its schema, objects are shown as they were stored;
//     status.storedVersions never changes; and deleting it removes its objects at once, whatever their finalizers;
//   - a cache that outlives compaction: a real server may still know what etcd has compacted;
//   - waiting for a version in the future, which a real server does for three seconds in a list;
//   - the default cluster roles, except for the permissions from system:basic-user, system:discovery and
//     system:public-info-viewer; the aggregation of cluster roles; and the prevention of privilege escalation;
//   - extra fields of users: impersonating them requires the permission but has no effect;
//   - JWTs: a service account's token is plain text that names the account;
//   - more than names and ages in the tables of ConfigMaps, Secrets, bindings and policies, and the init containers in
//     those of pods;
//   - most health checks: only ping, log and etcd exist, and they always succeed;
//   - /metrics, /logs and /openapi/v2, which are a 404. The documents of /openapi/v3 exist only in JSON, and describe
//     built-in kinds by their fields and types, without descriptions;
//   - in discovery, the hashes of stored versions (storageVersionHash), and the order of groups that are not built in.
package fakekube
