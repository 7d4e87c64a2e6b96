// Package kubeconfig finds out where a cluster is, and who we are there. It looks where kubectl looks, in the same
// order: in kubeconfig files, in the service account of the pod that this process runs in, or in an address alone.
//
// The result is a Config, whose Credential is kept up to date: token, certificate and key files are read again when
// they change, and exec programs run again when their credential expires or is refused.
//
// What the package does not support, it refuses, with an error that names the file, the field, and what to do. It never
// sends a request to a server, waits for a file system that hangs only for a limited time, and puts no secret into an
// error or a log line.
//
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
package kubeconfig
