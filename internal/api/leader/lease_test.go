package leader

import (
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestLeaseIsWrittenAsByClientGo(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startReplica(t, f, "a")
		testkit.Pass(time.Second)
		created := storedLease(f)
		identity := r.Identity()
		acquired := fakekube.TextIn(created, "acquireTime")
		testkit.WantEqual(t, "the new lease", created, fakekube.Object{
			"holderIdentity":       identity,
			"leaseDurationSeconds": 15.0,
			"leaseTransitions":     0.0,
			"acquireTime":          acquired,
			"renewTime":            acquired,
		})
		if !regexp.MustCompile(`^2000-01-01T00:00:00\.[0-9]{6}Z$`).MatchString(acquired) {
			t.Errorf("acquireTime is %s, want six fractional digits", acquired)
		}

		// Somebody labels the lease. The next renewal meets a conflict, and must only read the lease again.
		f.Put("leases", fakekube.Object{
			"metadata": fakekube.Object{
				"namespace": leaseKey.Namespace,
				"name":      leaseKey.Name,
				"labels":    fakekube.Object{"theirs": "stays"},
			},
			"spec": created,
		})
		testkit.Pass(8 * time.Second)
		renewed := storedLease(f)
		testkit.WantEqual(t, "the renewed acquireTime", renewed["acquireTime"], created["acquireTime"])
		testkit.WantEqual(t, "the renewed leaseTransitions", renewed["leaseTransitions"], 0.0)
		if renewed["renewTime"] == created["renewTime"] {
			t.Error("renewTime has not changed")
		}
		labels, _ := fakekube.MetaOf(f.Get("leases", leaseKey))["labels"].(fakekube.Object)
		testkit.WantEqual(t, "the foreign label", labels["theirs"], "stays")
		var methods []string
		for _, request := range leaseRequests(f, func(fakekube.Request) bool { return true }) {
			methods = append(methods, request.Method)
		}
		// The lease is created. Then a renewal is refused with a conflict, and tried again. More renewals follow.
		testkit.WantEqual(t, "the requests", strings.Join(methods, " "), "GET PUT PUT GET PUT PUT PUT PUT")

		f.Remove("leases", leaseKey)
		testkit.Pass(10 * time.Second)
		testkit.WantEqual(t, "the holder of the recreated lease", storedHolder(f), identity)
		r.stop()
		posts := leaseRequests(f, func(r fakekube.Request) bool { return r.Method == "POST" })
		testkit.WantNumber(t, "POSTs", len(posts), 0)
	})
}

// The times in a lease come from its holder's clock, which may be wrong. So only this replica's clock may count.
func TestHeldLeaseIsTakenAfterItsDuration(t *testing.T) {
	for _, row := range []struct {
		name string
		skew time.Duration
	}{
		{"the holder's clock is right", 0},
		{"the holder's clock is slow", -24 * time.Hour},
		{"the holder's clock is fast", 24 * time.Hour},
	} {
		t.Run(row.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				renew := func() { storeHeldLease(f, "other", 20, time.Now().Add(row.skew)) }
				renew()
				r := startReplica(t, f, "a")
				testkit.Pass(19 * time.Second)
				for range 30 {
					renew()
					testkit.Pass(2 * time.Second)
				}
				r.wantLeading(t, "while the holder renews", false)

				// The holder has died. Changes of the lease's metadata do not prolong its term.
				renew()
				died := time.Now()
				touchLeaseUntil(f, died.Add(20*time.Second-1))
				r.wantLeading(t, "20 s after the last renewal, less a moment", false)
				testkit.WantEqual(t, "the holder", storedHolder(f), "other")

				// The replica may have read the last renewal up to 4.4 s after it.
				testkit.Pass(time.Until(died.Add(25 * time.Second)))
				r.wantLeading(t, "25 s after the last renewal", true)
				taken := storedLease(f)
				testkit.WantEqual(t, "leaseTransitions", taken["leaseTransitions"], 5.0)
				testkit.WantEqual(t, "leaseDurationSeconds", taken["leaseDurationSeconds"], 15.0)
				acquired, err := time.Parse(microTime, fakekube.TextIn(taken, "acquireTime"))
				if err != nil || acquired.Before(died.Add(20*time.Second-time.Microsecond)) {
					t.Errorf("acquireTime is %v (%v), want the time of the takeover", acquired, err)
				}
				if !strings.HasPrefix(storedHolder(f), "a_") {
					t.Errorf("the holder is %s, want a_…", storedHolder(f))
				}
				testkit.WantNumber(t, "log lines on the holder", strings.Count(r.log.String(), "standing by"), 1)
			})
		})
	}
}

// touchLeaseUntil changes an annotation of the lease every two seconds.
func touchLeaseUntil(f server, end time.Time) {
	for time.Until(end) > 0 {
		testkit.Pass(min(2*time.Second, time.Until(end)))
		o := fakekube.Clone(f.Get("leases", leaseKey))
		if fakekube.TextIn(o["spec"].(fakekube.Object), "holderIdentity") != "other" {
			return
		}
		fakekube.MetaOf(o)["annotations"] = fakekube.Object{"touched": time.Now().String()}
		f.Put("leases", o)
	}
}

// Other programs or people may have written such leases. client-go takes each of them after the same time.
func TestOddLeasesAreTakenAsByClientGo(t *testing.T) {
	const atFirstLook = time.Second
	const atSecondLook = 5 * time.Second
	for _, row := range []struct {
		name, spec string
		within     time.Duration
	}{
		{"nothing is set", `{}`, atFirstLook},
		{
			"all is null",
			`{"holderIdentity":null,"leaseDurationSeconds":null,"acquireTime":null,"renewTime":null,"leaseTransitions":null}`,
			atFirstLook,
		},
		{"it was released", `{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":3}`, atFirstLook},
		{"a duration without a holder", `{"leaseDurationSeconds":3600}`, atFirstLook},
		{"a holder without a duration", `{"holderIdentity":"x"}`, atSecondLook},
		{"a negative duration", `{"holderIdentity":"x","leaseDurationSeconds":-5}`, atSecondLook},
		{"unknown fields", `{"holderIdentity":"x","strategy":"y","future":{"a":1}}`, atSecondLook},
		{"no times", `{"holderIdentity":"x","leaseDurationSeconds":10}`, 10 * time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				storeLease(f, row.spec)
				start := time.Now()
				startLeader(t, f, "a")
				took := time.Since(start)
				isTooEarly := row.within > atFirstLook && took < row.within/4
				if isTooEarly || took > row.within {
					t.Errorf("the lease was taken after %v, want at most %v, and a look before", took, row.within)
				}
			})
		})
	}
}

// The API's number of transitions is an int32.
func TestTransitionsStayAtTheirMaximum(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		storeLease(f, `{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":2147483647}`)
		startLeader(t, f, "a")
		testkit.WantEqual(t, "leaseTransitions", storedLease(f)["leaseTransitions"], 2147483647.0)
	})
}

func TestReleasedLeaseIsTakenAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		first := startReplica(t, f, "a")
		testkit.Pass(time.Minute)
		second := startReplica(t, f, "b")
		testkit.Pass(time.Minute)
		first.wantLeading(t, "after two minutes", true)
		second.wantLeading(t, "after two minutes", false)
		first.stop()
		first.wantLeading(t, "after its end", false)
		late, done := first.WhilePermitted(t.Context())
		defer done()
		testkit.WantEqual(t, "why a late write is not sent", context.Cause(late), errNotLeading)
		testkit.WantEqual(t, "the holder", storedHolder(f), "")
		testkit.WantEqual(t, "leaseDurationSeconds", storedLease(f)["leaseDurationSeconds"], 1.0)
		testkit.Pass(5 * time.Second) // The standby waits at most 2.2 retry periods.
		second.wantLeading(t, "5 s after the release", true)
		testkit.WantNumber(t, "calls of OnLost", len(first.lost)+len(second.lost), 0)
	})
}

func TestStandbyNeverWritesTheLease(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		storeHeldLease(f, "other", 3600, time.Now())
		before := f.Latest()
		r := startReplica(t, f, "a")
		testkit.Pass(time.Minute)
		if err := r.MayWrite(); err != errNotLeading {
			t.Errorf("MayWrite: got %v, want %v", err, errNotLeading)
		}
		holder, isKnown := r.Holder()
		testkit.WantEqual(t, "the holder", holder, "other")
		testkit.WantEqual(t, "the holder is known", isKnown, true)
		ctx, release := r.WhilePermitted(t.Context())
		defer release()
		if ctx.Err() == nil {
			t.Error("a standby may have a write in flight")
		}
		r.stop()
		testkit.WantNumber(t, "changes of the lease", f.Latest()-before, 0)
	})
}

func TestOutageEndsWhenTheLeaseIsHeld(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		storeHeldLease(f, "other", 3600, time.Now())
		permit := f.Forbid("get leases")
		r := startReplica(t, f, "a")
		testkit.Pass(time.Second)
		permit()
		testkit.Pass(time.Minute)
		beforeHolder, _, isStandingBy := strings.Cut(r.log.String(), "standing by")
		testkit.WantEqual(t, "the log names the holder", isStandingBy, true)
		testkit.WantText(t, beforeHolder, "lease: requests work again")
	})
}

func TestLostRaceForTheLease(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{
			On:    fakekube.Requests{Verb: "update", Host: "a:1"},
			Delay: 2 * time.Second,
			Met:   func(fakekube.Request) { met <- struct{}{} },
		})
		a := startReplica(t, f, "a")
		<-met // Replica a has found no lease, and creates one.
		b := startReplica(t, f, "b")
		testkit.Pass(3 * time.Second)
		testkit.WantText(t, a.log.String(), "standing by")
		testkit.WantText(t, b.log.String(), "elected")
		warnings := strings.Count(a.log.String()+b.log.String(), "level=WARN")
		testkit.WantNumber(t, "warnings", warnings, 0)

		a.stop()
		testkit.WantNumber(t, "log lines on a release", strings.Count(a.log.String(), "released"), 0)
		if !strings.HasPrefix(storedHolder(f), "b_") {
			t.Errorf("the holder is %s, want b_…", storedHolder(f))
		}
	})
}

// The server may have carried out a request although its answer was lost.
func TestLeaseIsReleasedThoughItsAnswerWasLost(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{
			On:  fakekube.Requests{Verb: "update"},
			Met: func(fakekube.Request) { met <- struct{}{} },
			Do:  fakekube.DropAnswer{},
		})
		r := startReplica(t, f, "a")
		<-met
		testkit.Pass(0)
		r.stop()
		if storedLease(f) == nil {
			t.Fatal("there is no lease")
		}
		testkit.WantEqual(t, "the holder", storedHolder(f), "")
	})
}

// A replica that does not know whether it holds the lease must look before it releases it.
func TestLeaseOfAnotherReplicaIsNotReleased(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "update leases: drop request")
		a := startReplica(t, f, "a")
		testkit.Pass(0)
		b := startLeader(t, f, "b")
		a.stop()
		testkit.WantEqual(t, "the holder", storedHolder(f), b.id)
	})
}

func TestReplicaLeadsThoughAnAnswerWasLost(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Script(t, "update: drop answer")
		r := startReplica(t, f, "a")
		testkit.Pass(6 * time.Second)
		r.wantLeading(t, "after the first answer was lost", true)
		f.Script(t, "update: drop answer")
		testkit.Pass(time.Minute)
		r.wantLeading(t, "after the answer to a renewal was lost", true)
		testkit.WantEqual(t, "leaseTransitions", storedLease(f)["leaseTransitions"], 0.0)
	})
}

func TestReleaseIsRetried(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		back := time.AfterFunc(3*time.Second, f.CutOff("a:1"))
		defer back.Stop()
		stopped := time.Now()
		r.stop()
		if took := time.Since(stopped); took > 4*time.Second {
			t.Errorf("the release took %v, want at most 4s", took)
		}
		testkit.WantEqual(t, "the holder", storedHolder(f), "")
		testkit.WantNumber(t, "log lines on the release", strings.Count(r.log.String(), "released"), 1)
	})
}

func TestReleaseIsGivenUpAtItsLimit(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		r := startLeader(t, f, "a")
		f.CutOff("a:1")
		stopped := time.Now()
		r.stop()
		testkit.WantEqual(t, "how long the release was tried", time.Since(stopped), 4*time.Second)
	})
}

func TestMissingRightIsLoggedOnceUntilGranted(t *testing.T) {
	for _, verb := range []string{"get", "update"} {
		t.Run(verb, func(t *testing.T) {
			simulate(t, func(t *testing.T, f server) {
				permit := f.Forbid(verb + " leases")
				r := startReplica(t, f, "a")
				testkit.Pass(9 * time.Minute)
				warnings := strings.Count(r.log.String(), `level=WARN msg="cannot acquire the lease"`)
				testkit.WantNumber(t, "warnings", warnings, 1)
				rule := `apiGroups [\"coordination.k8s.io\"], resources [\"leases\"], verbs [\"` + verb + `\"]`
				testkit.WantText(t, r.log.String(), rule)
				r.wantLeading(t, "without the right", false)

				permit()
				testkit.Pass(10 * time.Second)
				r.wantLeading(t, "with the right", true)
			})
		})
	}
}

func TestLongHolderIsCut(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Put("leases", fakekube.Object{
			"metadata": fakekube.Object{"namespace": leaseKey.Namespace, "name": leaseKey.Name},
			"spec": fakekube.Object{
				"holderIdentity":       strings.Repeat("x", 100_000),
				"leaseDurationSeconds": 15.0,
			},
		})
		r := startReplica(t, f, "a")
		testkit.Pass(time.Second)
		want := strings.Repeat("x", 1024) + "… (100000 bytes in all)"
		holder, _ := r.Holder()
		testkit.WantEqual(t, "the holder", holder, want)
		testkit.WantText(t, r.log.String(), `holder="`+want+`"`)
		testkit.Pass(20 * time.Second) // the other holder does not renew it
		identity := r.Identity()
		holder, _ = r.Holder()
		testkit.WantEqual(t, "the holder after that", holder, identity)
	})
}

func TestHugeLeaseIsNotHeld(t *testing.T) {
	simulate(t, func(t *testing.T, f server) {
		f.Put("leases", fakekube.Object{"metadata": fakekube.Object{
			"namespace":   leaseKey.Namespace,
			"name":        leaseKey.Name,
			"annotations": fakekube.Object{"a": strings.Repeat("x", 1<<20)},
		}})
		r := startReplica(t, f, "a")
		testkit.Pass(10 * time.Second)
		testkit.WantText(t, r.log.String(), "more than 1048576 bytes in one piece")
		_, isKnown := r.Holder()
		testkit.WantEqual(t, "the holder is known", isKnown, false)
	})
}
