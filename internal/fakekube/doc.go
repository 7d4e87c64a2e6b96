// Package fakekube is an API server for tests and for looking: an http.Handler that keeps pods, nodes, namespaces,
// Events, ConfigMaps, Secrets, service accounts, Leases, roles, admission policies and custom resources in memory, and
// answers in the shapes of a real kube-apiserver v1.35. kubectl can use it, and so can other clients that ask for no
// more than what follows. It answers in JSON; in protobuf, too, all built-in kinds but definitions and policies.
//
// It serves over TCP, where real time passes (ServeFor, and ServeTLSFor for TLS and HTTP/2), and over a network within
// the process (ServeIn), which works in virtual time, in a bubble of testing/synctest. A test lets a cluster live
// (AddPod, SetLabel, Remove), lets requests meet faults (Script, Inject), ends and starves watches (EndWatches, Compact,
// LoseEvents, Lag, SendFrame), and looks at what was asked for (Requests) and at what became of it (Get, Label). A Spy
// hears of each request, answer and change.
//
// A Fault says which requests, how many of them, and what happens: in Go, or as a line of a Script, such as
// "patch nodes worker-1, skip 2, 3 times: delay 2s, refuse 503". A fault that no request has met fails the test.
// A Lie is a fault of the watch cache, of which lists at an exact version know better.
//
// Users come by the tokens of Allow, who may do everything, by those of AddUser and of service accounts, who may do what
// RBAC's roles and bindings say, or by client certificates; admins may impersonate others. Forbid takes a right from
// all of them. An Authority issues the certificates of servers and clients.
//
// RunExecPlugin makes the binary of a test the program that a kubeconfig names in place of a credential. Protobuf,
// ProtobufObject, ProtobufEvent and ProtobufMessage make answers for tests of a decoder. RunTests, in a package's
// TestMain, finds what its tests leave behind.
//
// A resource is named by its plural, as in paths: "pods", "nodes", "namespaces", "events", "configmaps", "secrets",
// "serviceaccounts", "leases", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
// "validatingadmissionpolicies", "validatingadmissionpolicybindings" and "customresourcedefinitions". Any number of
// custom resources come to these: whoever creates a CustomResourceDefinition, by a request or by Put, adds one. Where
// two groups have the same plural, it needs the group, too: "widgets.example.com". InstallCRD adds Counts.
//
// The package was made for the controller podcount, which shows in two places: InstallCRD and AddCount are for its
// custom resource, Counts, of the group demo.mark8s.io, and the value of ExecPluginDir has its name.
//
// The package imports nothing but the standard library: it routes, selects, and checks names by code of its own, so
// that a mistake in a controller's code cannot cancel itself out.
//
// No controllers run, but what a DELETE begins is ended at once, as a healthy cluster's controllers would end it: a pod
// on a node is told to end, and goes; the garbage collector removes its finalizers, but leaves the objects that the
// deleted one owned where they are; a namespace goes with all that is in it. Any other finalizer keeps its object until
// a write removes it. With NoControllers, what is marked as being deleted stays so.
//
// What clients write is checked and completed as by the server: the metadata of all kinds, the fields that most pods
// have, nodes, ConfigMaps, Secrets, Leases, Events, roles, bindings, definitions and, by their schemas, custom
// resources. Other fields are checked for their types alone. Put checks and completes nothing. Refusals are in the
// server's words, with three exceptions: a cause that the server says several times is said once; a message that
// repeats a patched object does so without managedFields; and where the server shows a difference of its internal
// types, after the words that refuse a change of a pod, there is nothing.
//
// It does not convert between versions, run CEL but for two sentences of it, garbage collect, schedule, or keep
// anything on disk. A path that it does not know is a 404. Of what a real server has, it also lacks:
//   - server-side apply, a 415, and the managedFields that come with it;
//   - YAML, which is a 415 in requests and a 406 in answers, and protobuf of definitions and policies, of which it has
//     the metadata alone, as the server has of custom resources;
//   - subresources, which are a 404, but for status, the binding and the eviction of pods, the finalizers of namespaces
//     (finalize), and the tokens of service accounts;
//   - a memory that outlives compaction: a real server's cache may still know what etcd has forgotten. Nor does it wait
//     for a version from the future, as a real server does for three seconds;
//   - the default cluster roles, but for the rights that every user has by system:basic-user, system:discovery and
//     system:public-info-viewer; the aggregation of cluster roles; and the check that nobody gives away more rights than
//     they have;
//   - tokens that are JWTs: that of a service account says whose it is, and nothing else;
//   - /metrics, /logs and /openapi/v2, which are a 404; the documents of /openapi/v3 describe built-in kinds by their
//     fields and types, without a word of text, and are there in JSON alone;
//   - the hashes of stored versions in discovery, and the order of its groups beyond that of the built-in ones.
package fakekube
