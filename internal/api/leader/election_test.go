package leader

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// A renewal may hang although its context has ended, in a dial or while it waits for a credential. That must not
// prolong the term.
func TestTermEndsThoughARenewalHangs(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		start := time.Now()
		slow := func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			if time.Since(start) > 0 {
				<-time.After(time.Minute) // The end of the context does not end this wait.
			}
			return &kubeconfig.Credential{}, nil
		}
		r := startReplicaWith(t, f, "a", slow)
		<-r.won
		f.AddNode("n")
		f.Script(t, "write nodes: stall")
		written := make(chan error, 1)
		go func() { written <- r.write() }()

		testkit.Pass(10*time.Second - 1)
		r.wantLeading(t, "before the deadline", true)
		testkit.WantNumber(t, "writes that have ended before the deadline", len(written), 0)
		testkit.Pass(1)
		r.wantLeading(t, "at the deadline", false)
		testkit.WantNumber(t, "writes that have ended at the deadline", len(written), 1)
		if err := <-written; err == nil || !strings.Contains(err.Error(), errCutOff.Error()) {
			t.Errorf("the write ended with %v, want %v", err, errCutOff)
		}
		r.wantLost(t, "the lease is lost: it could not be renewed for 10s")
	})
}

// A process that was frozen may continue with a write before its timers fire.
func TestMayWriteChecksTheClock(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		r.mu.Lock()
		r.deadlineTimer.Stop()
		r.deadline = time.Now().Add(time.Second)
		r.mu.Unlock()
		testkit.Pass(time.Second - 1)
		r.wantLeading(t, "before the deadline", true)
		testkit.Pass(1)
		r.wantLeading(t, "at the deadline", false)
	})
}

// Whoever notices the end of the term may ask at once why it has ended, even before OnLost has returned.
func TestLossIsKnownWhenTheTermEnds(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		testkit.WantEqual(t, "lost while it leads", r.IsLost(), false)
		wasKnown := false
		r.options.OnLost = func(error) { wasKnown = r.IsLost() }
		r.loseTerm(errHeld)
		testkit.WantEqual(t, "lost when the term has ended", wasKnown, true)
	})
}

func TestLateRenewalDoesNotRestartTheTerm(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		r.loseTerm(errHeld)
		r.recordRenewal(time.Now().Add(time.Minute), nil)
		r.wantLeading(t, "after a late renewal", false)
		synctest.Wait()
		testkit.WantNumber(t, "calls of OnLost", len(r.lost), 1)
	})
}

// Another replica may start to count the lease's duration when the server has the lease, long before the holder gets
// the answer.
func TestTermBeginsBeforeTheLeaseIsSent(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		isPut := func(r fakekube.Request) bool { return r.Method == "PUT" }
		before := len(leaseRequests(f, isPut))
		slow := f.Script(t, "update leases, always: delay 4s")[0]
		testkit.Pass(3 * time.Second) // one retry period and one second
		renewals := leaseRequests(f, isPut)[before:]
		testkit.WantNumber(t, "renewals", len(renewals), 1)
		sent := renewals[0].At
		testkit.Pass(time.Until(sent) + 4500*time.Millisecond) // The answer has arrived by then.
		slow.Lift()
		f.Script(t, "* leases, always: stall")

		testkit.Pass(time.Until(sent) + 10*time.Second - 1)
		r.wantLeading(t, "10 s after the renewal was sent, less a moment", true)
		testkit.Pass(1)
		r.wantLeading(t, "10 s after the renewal was sent", false)
	})
}

// A renewal also moves the deadline of the writes that are in flight.
func TestWriteMayOutlastATermThatIsRenewed(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.AddNode("n")
		f.Script(t, "write nodes: delay 25s")
		r := startLeader(t, f, "a")
		if err := r.write(); err != nil {
			t.Error(err)
		}
		writes := fixture.Requests(f.Server, func(r fakekube.Request) bool { return r.Resource == "nodes" })
		testkit.WantNumber(t, "writes", len(writes), 1)
	})
}

func TestLeaderStopsWhenItsLeaseIsTaken(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		storeLease(f, `{"holderIdentity":"other","leaseDurationSeconds":15}`)
		testkit.Pass(5 * time.Second)
		r.wantLeading(t, "when another has taken the lease", false)
		r.wantLost(t, `the lease is lost: another replica holds it: "other"`)
		r.stop()
		testkit.WantEqual(t, "the holder", storedHolder(f), "other")
	})
}

func TestTriedSaysWhenTheFirstTryIsOver(t *testing.T) {
	for _, row := range []struct {
		name   string
		script string
		holder string
		after  time.Duration
		isOurs bool
	}{
		{"the lease is free", "get leases: delay 1s", "", time.Second, true},
		{"another replica holds it", "get leases: delay 1s", "other", time.Second, false},
		{"the request is refused", "get leases, always: refuse 403", "", 0, false},
		{"the request is not answered", "get leases, always: stall", "", 5 * time.Second, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				if row.holder != "" {
					storeHeldLease(f, row.holder, 15, time.Now())
				}
				f.Script(t, row.script)
				start := time.Now()
				r := startReplica(t, f, "a")
				<-r.Tried()
				testkit.WantEqual(t, "time of the try", time.Since(start), row.after)
				testkit.WantEqual(t, "won was called", isClosed(r.won), row.isOurs)
			})
		})
	}
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

func TestIdentityIsTheHostAndARandomNumber(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		election := newElection(t, f, "host")
		first := election.Identity()
		second := newElection(t, f, "host").Identity()
		want := "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount"
		testkit.WantEqual(t, "the path of the Lease", election.lease.Path(), want)
		if first == second || !strings.HasPrefix(first, "host_") || len(first) != len("host_")+16 {
			t.Errorf("the identities are %s and %s, want host_ and 16 random digits", first, second)
		}
	})
}
