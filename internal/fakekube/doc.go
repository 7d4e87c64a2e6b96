// Package fakekube is an API server for tests and for looking: an http.Handler that keeps pods, nodes, namespaces,
// Events, service accounts, Leases, roles, admission policies and one custom resource in memory, and answers in the
// shapes of a real kube-apiserver v1.35, in JSON and, for pods and nodes, in protobuf. kubectl and client-go can use
// it.
//
// It serves over TCP, where real time passes (ServeTLSFor), and over a network within the process (ServeIn), which
// works in virtual time, in a bubble of testing/synctest. A test lets a cluster live (AddPod, SetLabel, Remove), lets
// requests meet faults (Inject, Keep), ends and starves watches (EndWatches, Compact, LoseNext, FallBehind), and looks
// at what was asked for (Requests) and at what became of it (Get, Label). A Spy hears of each request, answer and
// change.
//
// A resource is named by its plural, as in paths: "pods", "nodes", "namespaces", "events", "serviceaccounts", "leases",
// "counts", "customresourcedefinitions", "clusterroles", "clusterrolebindings", "validatingadmissionpolicies" and
// "validatingadmissionpolicybindings". Counts, the custom resource, are there while InstallCRD says so.
//
// The package imports nothing but the standard library: it routes, selects, and checks names by code of its own, so
// that a mistake in a controller's code cannot cancel itself out.
//
// It does not convert between versions, run CEL but for two sentences of it, garbage collect, schedule, or keep
// anything on disk. A path that it does not know is a 404.
package fakekube
