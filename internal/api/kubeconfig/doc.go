// Package kubeconfig finds the address of a cluster, and a credential for it. It looks in the same places as kubectl,
// in the same order: in kubeconfig files, and in the service account of the pod that this process runs in. An address
// is enough if the cluster needs no credential.
//
// The result is a Config, which keeps its Credential up to date. It reads token, certificate and key files again at
// intervals, and after the server has refused the credential. It runs an exec program again when the credential expires
// or is refused.
//
// Who asks, and when: kube.Client calls Config.Credential before each request, and nothing asks on a timer. So a file
// is read only when a request needs it, and a program runs only once its last credential has ended. After a 401, the
// Client calls once more, with the credential that was refused, and everything is renewed. A renewal (access.renew,
// part.read, execPlugin.newest) outlives a caller who gives up: the next one gets its result.
//
// The package refuses a kubeconfig that it does not fully support. The error names the file, the field, and what to do.
// The package sends no requests, and puts no secret into an error or a log line. It stops waiting for a file system
// that hangs.
//
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
package kubeconfig
