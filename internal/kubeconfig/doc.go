// Package kubeconfig finds out where a cluster is, and who we are there: from kubeconfig files, from the service
// account of the pod that we run in, or from an address alone, in the order of kubectl. What it finds is a Config,
// whose credentials change with time: tokens, certificates and keys are read again as their files change, and exec
// programs are run again when what they gave expires or is refused.
//
// What it cannot do as kubectl does it refuses, with an error that names the file, the place in it, and the way out. It
// sends no request to any server, holds nobody up for a file system that hangs, and puts no secret into an error or a
// line of the log.
//
// Its errors speak to podcount's users, of podcount's flags: -kubeconfig, -context and -master.
//
// https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
package kubeconfig
