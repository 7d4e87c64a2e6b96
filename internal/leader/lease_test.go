package leader

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"podcount/internal/fakekube"
)

var podcountLease = fakekube.Key{Namespace: "kube-system", Name: "podcount"}

// heldBy stores the lease with this holder, as one who has just renewed it by a clock of their own.
func heldBy(f *fakekube.Server, holder string, seconds int, clock time.Time) {
	at := clock.UTC().Format(microTime)
	f.PutJSON("leases", fmt.Sprintf(`{
		"metadata": {"namespace": "kube-system", "name": "podcount"},
		"spec": {"holderIdentity": %q, "leaseDurationSeconds": %d, "leaseTransitions": 4, "acquireTime": %q, "renewTime": %q}
	}`, holder, seconds, at, at))
}

// leaseAt is the spec of the lease as it is stored.
func leaseAt(f *fakekube.Server) fakekube.Object {
	spec, _ := f.Get("leases", podcountLease)["spec"].(fakekube.Object)
	return spec
}

func TestLeaseThatIsHeldIsTakenWhenItsDurationHasPassedWithoutARenewalAndNotBefore(t *testing.T) {
	for _, skew := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			heldBy(f, "other", 20, time.Now().Add(skew))
			r := startReplica(t, f, "a", noCredential)
			pass(19 * time.Second)
			heldBy(f, "other", 20, time.Now().Add(skew+time.Second)) // it is alive
			pass(20*time.Second - 1)
			if r.leads() || fakekube.TextIn(leaseAt(f), "holderIdentity") != "other" {
				t.Errorf("skew %v: it was taken from its holder: %v", skew, leaseAt(f))
			}
			pass(5 * time.Second) // at which its last renewal was seen: two retry periods later, and a little, at most
			holder := fakekube.TextIn(leaseAt(f), "holderIdentity")
			if !r.leads() || !strings.HasPrefix(holder, "a_") || leaseAt(f)["leaseTransitions"] != 5.0 {
				t.Errorf("skew %v: it was not taken: %v", skew, leaseAt(f))
			}
		})
	}
}

func TestLeaseIsReleasedAtTheEndAndTheNextReplicaNeedNotWait(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		first := startReplica(t, f, "a", noCredential)
		pass(time.Minute)
		second := startReplica(t, f, "b", noCredential)
		pass(time.Minute)
		if !first.leads() || second.leads() {
			t.Fatalf("the first leads: %v, the second: %v", first.leads(), second.leads())
		}
		first.stop()
		now := leaseAt(f)
		if first.leads() || fakekube.TextIn(now, "holderIdentity") != "" || now["leaseDurationSeconds"] != 1.0 {
			t.Errorf("after its end, it leads: %v, and the lease is %v", first.leads(), now)
		}
		pass(5 * time.Second) // two retry periods, and a little, at most
		if !second.leads() {
			t.Error("the second does not lead")
		}
		wantNumber(t, "leases lost", len(first.lost)+len(second.lost), 0)
	})
}

func TestReplicaThatWasNeverElectedLeavesTheLeaseAlone(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		heldBy(f, "other", 3600, time.Now())
		before := f.Latest()
		r := startReplica(t, f, "a", noCredential)
		pass(time.Minute)
		if err := r.election.MayWrite(); err != errNotLeading {
			t.Errorf("it may write: %v", err)
		}
		ctx, release := r.election.WhilePermitted(t.Context())
		defer release()
		if ctx.Err() == nil {
			t.Error("a write may be under way")
		}
		r.stop()
		wantNumber(t, "changes", f.Latest()-before, 0)
	})
}

func TestIdentityBeginsWithTheHostAndIsAnotherEachTime(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		a, b := newElection(t, f, "host", noCredential, nil), newElection(t, f, "host", noCredential, nil)
		path, first := a.Lease()
		_, second := b.Lease()
		if path != "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount" {
			t.Errorf("the lease is at %s", path)
		}
		if first == second || !strings.HasPrefix(first, "host_") || len(first) != len("host_")+16 {
			t.Errorf("they are %s and %s", first, second)
		}
	})
}
