package sim

import (
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

func TestSeedsTakeAimAtEveryPossiblePair(t *testing.T) {
	aimedAt := map[pair]bool{}
	for seed := uint64(1); seed <= 250; seed++ {
		pairs := pairsToAimAt(seed)
		if seed%2 == 1 && len(pairs) > 0 {
			t.Errorf("seed %d takes aim at %v", seed, pairs)
		}
		for _, one := range pairs {
			aimedAt[one] = true
			if one.state != pairs[0].state {
				t.Errorf("seed %d takes aim at %q and %q", seed, pairs[0].state, one.state)
			}
		}
	}
	testkit.WantNumber(t, "pairs at which no seed takes aim", len(possiblePairs())-len(aimedAt), 0)
	testkit.WantBetween(t, "possible pairs", len(aimedAt), 1000, 3000)
}

func TestEachSeedAllowsItsAims(t *testing.T) {
	for seed := uint64(2); seed <= 250; seed += 2 {
		synctest.Test(t, func(t *testing.T) {
			o := optionsFor(doNothing)
			o.Seed = seed
			s := newSim(t, o) // It would not end if no setting allowed the aims.
			if !s.allowsAims() {
				t.Errorf("seed %d does not allow its aims", seed)
			}
		})
	}
}

func TestImpossiblePairsAreLeftOut(t *testing.T) {
	for _, row := range []struct {
		one  pair
		want bool
	}{
		{pair{stateWatching, "server killed"}, true},
		{pair{stateAbsent, "discovery get 500: etcd has no leader"}, true},
		{pair{stateAbsent, "lists of counts get 500: etcd has no leader"}, false},
		{pair{stateAudit, "lists of nodes get 500: etcd has no leader"}, true},
		{pair{stateWatching, "lists of nodes get 500: etcd has no leader"}, false},
		{pair{stateResumingWatch, "watches of pods get a login page"}, true},
		{pair{stateFirstList, "patches of nodes get 500: etcd has no leader"}, false},
		{pair{stateStandingBy, "patches of nodes get 500: etcd has no leader"}, false},
		{pair{stateLeading, "patches of nodes get 500: etcd has no leader"}, true},
		{pair{stateNoElection, "lease deleted"}, false},
		{pair{stateReleasing, "lease deleted"}, true},
	} {
		if got := slices.Contains(possiblePairs(), row.one); got != row.want {
			t.Errorf("%v is possible: %v, want %v", row.one, got, row.want)
		}
	}
}

func TestEveryStateHasAWayIntoIt(t *testing.T) {
	for _, in := range allStates {
		if leadInto[in] == nil {
			t.Errorf("nothing leads into the state %q", in)
		}
	}
}

func TestUnmetPairsAreGroupedByRequests(t *testing.T) {
	stats := Stats{met: map[pair]bool{}}
	for _, one := range possiblePairs() {
		stats.met[one] = true
	}
	for _, fault := range []string{
		"leases get 500: etcd has no leader", "leases get 401: a token has expired", "lease deleted",
	} {
		delete(stats.met, pair{stateLeading, fault})
	}
	text := stats.unmetPairs()
	want := "- leading (3): lease deleted; leases get 401: a token has expired, or 500: etcd has no leader\n"
	testkit.WantText(t, text, want)
	testkit.WantNumber(t, "lines", strings.Count(text, "\n"), 2)
	for _, one := range possiblePairs() {
		if one.state == stateStandingBy {
			delete(stats.met, one)
		}
	}
	testkit.WantText(t, stats.unmetPairs(), "leases get anything;")
}

// The log of the last list, or of the end of a watch, may arrive after the next request.
func TestStatesOfAReflectorFollowItsRequestsAndItsLog(t *testing.T) {
	list := func(query string) fakekube.Request { return requestFor("list", query) }
	watch := requestFor("watch", "watch=1")
	kind := "Node"
	say := func(message string) logLine { return logLine{Msg: message, Kind: kind} }
	event := func(message string) logLine { return logLine{Msg: message, Stale: new(bool)} }
	again := logLine{Msg: "listing again", Kind: kind, Why: "watch nodes: 410 Expired: too old"}
	silence := logLine{Msg: "listing again", Kind: kind, Why: "no data arrived for 2m30s"}
	for _, row := range []struct {
		name  string
		steps []any // requests, lines of the log, and durations
		want  state
	}{
		{"start", nil, stateUnlisted},
		{"first list", []any{list("")}, stateFirstList},
		{"first list failed", []any{list(""), say("cannot list")}, stateUnlisted},
		{"check of the version", []any{list(""), say("listed"), watch, say("watching"), list("limit=1")}, stateWatching},
		{"watch after a list", []any{list(""), say("listed"), watch}, stateOpeningWatch},
		{"watch before its list is logged", []any{list(""), watch, say("listed")}, stateOpeningWatch},
		{"watching", []any{list(""), say("listed"), watch, say("watching")}, stateWatching},
		{"idle", []any{list(""), watch, say("watching"), time.Minute}, stateIdle},
		{"idle but for bookmarks", []any{list(""), watch, say("watching"), time.Minute, event("BOOKMARK Node")}, stateIdle},
		{"an event", []any{list(""), watch, say("watching"), time.Minute, event("ADDED Node n0")}, stateWatching},
		{"resumed", []any{list(""), watch, say("watching"), say("watch ended"), watch}, stateResumingWatch},
		{"resumed before the end is logged", []any{list(""), watch, say("watching"), watch, say("watch ended")},
			stateResumingWatch},
		{"refused", []any{list(""), watch, say("cannot watch")}, stateWaitingToWatch},
		{"tried again", []any{list(""), watch, say("cannot watch"), watch}, stateRetryingWatch},
		{"expired", []any{list(""), watch, say("watching"), say("watch ended"), again}, stateWaitingToList},
		{"list after that", []any{list(""), watch, say("watching"), say("watch ended"), again, list("")}, stateExpiredList},
		{"list after garbage", []any{list(""), watch, say("cannot decode the watch"), say("listing again"), list("")},
			stateGarbageList},
		{"list after an error", []any{list(""), watch, say("cannot watch"), say("listing again"), list("")}, stateOtherList},
		{"silence, logged late", []any{list(""), watch, say("watching"), time.Hour, list(""), silence}, stateSilenceList},
		{"audit", []any{list(""), say("listed"), watch, say("watching"), time.Hour, list("resourceVersionMatch=Exact")},
			stateAudit},
		{"pages", []any{list(""), watch, say("watching"), again, list("limit=2000")}, statePagedList},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sim{Options: Options{Silence: time.Minute}}
				p := &proc{activities: s.newActivities()}
				for _, step := range row.steps {
					switch step := step.(type) {
					case fakekube.Request:
						s.followRequestLocked(p, step)
					case logLine:
						p.followLogLocked(step)
					case time.Duration:
						<-time.After(step)
					}
				}
				testkit.WantEqual(t, "the state", s.stateOfLocked(p, "nodes"), row.want)
			})
		})
	}
}

// requestFor returns a request for nodes.
func requestFor(verb, query string) fakekube.Request {
	values, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	return fakekube.Request{Query: values, Route: fakekube.Route{Verb: verb, Resource: "nodes"}}
}

func TestStatesOfAnElectionFollowItsLogAndTheAnswers(t *testing.T) {
	s := &sim{flags: flags{leaseDuration: time.Minute}, hostOf: map[string]string{"a": "r0", "b": "r1"}}
	p := &proc{host: "r0", activities: s.newActivities()}
	answer := func(verb, holder string) {
		s.followAnswerLocked(p, fakekube.Answer{
			Request: fakekube.Request{Route: fakekube.Route{Verb: verb, Resource: "leases"}},
			Code:    200,
			Body:    []byte(`{"spec":{"holderIdentity":"` + holder + `"}}`),
		})
	}
	want := func(in state) {
		t.Helper()
		testkit.WantEqual(t, "the state", s.stateOfLocked(p, "leases"), in)
	}
	want(stateAcquiring)
	answer("get", "b")
	want(stateStandingBy)
	s.followRequestLocked(p, fakekube.Request{Method: "PUT", Route: fakekube.Route{Verb: "update", Resource: "leases"}})
	want(stateAcquiring)
	p.followLogLocked(logLine{Msg: "elected: this replica leads"})
	want(stateLeading)
	p.followLogLocked(logLine{Msg: "cannot renew the lease"})
	want(stateNotRenewed)
	answer("update", "a")
	want(stateLeading)
	p.isEnding = true
	want(stateReleasing)
	p.isDead = true
	want("")
}
