// Package fakekube is a Kubernetes API server in memory, for the tests of controllers and for playgrounds. It is an
// http.Handler that answers as a real kube-apiserver v1.35 does, to kubectl, to client-go and to clients made by hand,
// within the limits below. It imports nothing but the standard library.
//
//	func TestControllerTriesAgain(t *testing.T) {
//		fake := fakekube.New()
//		fake.AddNode("worker")
//		fake.Script(t, "patch nodes, 2 times: refuse 503")
//		startController(t, fake.ServeFor(t)) // the code under test gets a URL
//		fake.Await(t, "the label", func() bool { return fake.Label("worker", "checked") == "yes" })
//	}
//
// # Serving
//
// ServeFor serves over TCP and plain HTTP/1.1, and ServeTLSFor over TCP with TLS and HTTP/2; there, real time passes.
// ServeIn serves over a network within the process, which also works in a bubble of testing/synctest, where a test can
// let hours pass at once. An Authority issues certificates of servers and clients, and Kubeconfig writes a kubeconfig.
//
// # What a test can do
//
// It can play the cluster (Put, AddNode, AddPod, SetLabel, Remove), end and starve watches (EndWatches, Compact,
// LoseEvents, Lag, SendFrame), and cut a client off (CutOff). It can look at what was asked for (Requests) and at what
// became of it (Get, All, Label, Changes). A Spy hears of each request, answer and change.
//
// A Fault says which requests, how many of them, and what happens to them: in Go (Inject), or as a line of a Script,
// such as "patch nodes worker-1, skip 2, 3 times: delay 2s, refuse 503". A fault that fewer requests have met than it
// says fails the test. A Lie is a fault of the cache from which the server answers lists and watches, while lists at an
// exact version are true.
//
// RunTests, in a package's TestMain, finds what its tests leave behind. RunExecPlugin makes the binary of a test the
// program that a kubeconfig names in place of a credential. Protobuf, ProtobufEvent and ProtobufMessage make answers
// for tests of a decoder.
//
// # Resources
//
// A resource is named by its plural, as in paths: "pods", "nodes", "namespaces", "events", "configmaps", "secrets",
// "serviceaccounts", "leases", "roles", "rolebindings", "clusterroles", "clusterrolebindings",
// "validatingadmissionpolicies", "validatingadmissionpolicybindings" and "customresourcedefinitions". Clients can also
// ask what they may do (SelfSubjectAccessReview and the other reviews of access) and who they are (SelfSubjectReview).
//
// Whoever creates a CustomResourceDefinition, by a request or by Put, adds a resource. Where two groups have the same
// plural, Put, Get and the other methods need the group, too: "widgets.example.com".
//
// The package was made for the controller podcount, which shows in two places: InstallCRD, AddCount and CountStatus are
// for its custom resource, Counts, of the group demo.mark8s.io, and the value of ExecPluginDir has its name.
//
// # Users
//
// At first, everybody may do everything. After a call of Allow, requests need a credential: one of the tokens of Allow,
// which stand for a user who may do everything, the token of AddUser or of a service account, or a certificate that
// ClientCA has signed. Their users may do what RBAC's roles and bindings say, impersonate others included. Forbid takes
// a right from everybody.
//
// # What happens by itself
//
// No controllers run, but what a DELETE begins is ended at once, as a healthy cluster's controllers would end it: a pod
// on a node is told to end, and goes; the garbage collector removes its finalizers, but leaves the objects that the
// deleted one owned where they are; a namespace goes with all that is in it. Any other finalizer keeps its object until
// a write removes it. With NoControllers, what is marked as being deleted stays so.
//
// # How exact it is
//
// Conversations with a real server are recorded, and the tests of the package hold the fake's answers against them. It
// checks and completes what clients write: the metadata of all kinds, the fields that most pods have, nodes,
// ConfigMaps, Secrets, Leases, Events, roles, bindings, definitions and, by their schemas, custom resources. Of other
// fields it checks the types alone. Put checks and completes nothing.
//
// It refuses in the server's words, with three exceptions: a cause that the server says several times is said once; a
// message that repeats a patched object does so without managedFields; and where the server shows a difference of its
// internal types, after the words that refuse a change of a pod, there is nothing.
//
// # What it lacks
//
// It does not convert between versions, collect garbage, schedule, or keep anything on disk. A path that it does not
// know is a 404. Of what a real server has, it also lacks:
//   - all other built-in kinds, such as Services and Deployments;
//   - server-side apply, which is a 415, and the managedFields that come with it;
//   - YAML, which is a 415 in requests and a 406 in answers; protobuf of definitions and policies, of which it has the
//     metadata alone, as the server has of custom resources; and protobuf of discovery;
//   - subresources, which are a 404, but for status, the binding and the eviction of pods, the finalizers of namespaces
//     (finalize), and the tokens of service accounts;
//   - CEL: the rules in definitions pass, and of the policies' it knows two sentences, that an object has a name and
//     that it has no such label;
//   - the whole life of a definition: after its schema has changed, objects are shown as they were stored; its
//     status.storedVersions stay as they were; and deleting it removes its objects at once, whatever finalizers they
//     have;
//   - a memory that outlives compaction: a real server's cache may still know what etcd has forgotten. Nor does a list
//     wait for a version from the future, as a real server does for three seconds;
//   - the default cluster roles, but for the rights that users have by system:basic-user, system:discovery and
//     system:public-info-viewer; the aggregation of cluster roles; and the check that nobody gives away more rights
//     than they have;
//   - the extra fields of users: impersonating them needs the right, and does nothing;
//   - tokens that are JWTs: the text of a service account's token says whose it is, and nothing else;
//   - most health checks: it names ping, log and etcd, and is always well;
//   - /metrics, /logs and /openapi/v2, which are a 404. The documents of /openapi/v3 describe built-in kinds by their
//     fields and types, without descriptions, and are there in JSON alone;
//   - the hashes of stored versions in discovery (storageVersionHash), and the order of its groups beyond that of the
//     built-in ones.
package fakekube
