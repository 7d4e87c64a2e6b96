package suite

import (
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// LeasePath is the URL path of the Lease unless flags change it.
const LeasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount"

// LeaseKey is the key of the Lease at LeasePath.
var LeaseKey = At("kube-system", "podcount")

// StartReplica runs a podcount that takes part in the election. Its requests carry its name as their host: replica "a"
// calls the API server by the address "a:1".
func (podcount Program) StartReplica(t *testing.T, f *fakekube.Server, name string, args ...string) *Process {
	t.Helper()
	args = append([]string{
		"-master", "http://" + hostOf(name),
		"-v", "6",
		"-leader-elect",
		"-pod-events", "off",
		"-interval", "1s",
	}, args...)
	return podcount.StartOn(t, fixture.Network(t, f), args...)
}

// hostOf returns the HOST:PORT by which a replica calls the API server.
func hostOf(replica string) string { return replica + ":1" }

// LeaseNow returns the spec of the Lease, or nil if there is none.
func LeaseNow(f *fakekube.Server) fakekube.Object {
	spec, _ := f.Get("leases", LeaseKey)["spec"].(fakekube.Object)
	return spec
}

// holderNow returns the holder of the Lease, or "" if it is released or does not exist.
func holderNow(f *fakekube.Server) string { return fakekube.TextIn(LeaseNow(f), "holderIdentity") }
