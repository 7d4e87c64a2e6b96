package suite

import (
	"testing"

	"podcount/internal/fakekube"
)

// LeasePath is where the Lease is unless flags place it elsewhere.
const LeasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount"

// LeaseKey is the key of the Lease at LeasePath.
var LeaseKey = At("kube-system", "podcount")

// StartReplica runs a podcount that takes part in the election. It calls the API server by the host name given, so that
// requests show which replica has sent them.
func (podcount Program) StartReplica(t *testing.T, f *fakekube.Server, name string, args ...string) *Process {
	t.Helper()
	given := []string{
		"-master", "http://" + name + ":1",
		"-v", "6",
		"-leader-elect",
		"-pod-events", "off",
		"-interval", "1s",
	}
	return podcount.StartOn(t, f.ServeIn(t), append(given, args...)...)
}

// LeaseNow returns the spec of the Lease, or nil if there is none.
func LeaseNow(f *fakekube.Server) fakekube.Object {
	spec, _ := f.Get("leases", LeaseKey)["spec"].(fakekube.Object)
	return spec
}
