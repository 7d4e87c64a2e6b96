package sim

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// The log of the last list, or of the end of a watch, may arrive after the next request.
func TestStatesOfAReflectorFollowItsRequestsAndItsLog(t *testing.T) {
	list := func(query string) fakekube.Request { return requestFor("list", query) }
	watch := requestFor("watch", "watch=1")
	kind := "Node"
	say := func(message string) logLine { return logLine{Msg: message, Kind: kind} }
	event := func(message string) logLine { return logLine{Msg: message, Stale: new(bool)} }
	again := logLine{Msg: "listing again", Kind: kind, Why: "watch nodes: 410 Expired: too old"}
	silence := logLine{Msg: "listing again", Kind: kind, Why: "no sign of life for 2m30s"}
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
