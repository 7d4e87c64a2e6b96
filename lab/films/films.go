// Package films has the films of the page's gallery: recorded histories of the simulation, each of which shows one
// thing that happens to controllers.
//
// The simulation needs podcount's own function, so TestFilms in main_test.go records them.
package films

import (
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/sim"
)

// Film is a short part of a history. Its JSON is what the page needs to know besides that history.
type Film struct {
	Name  string `json:"name"` // in addresses, and in the names of files
	Title string `json:"title"`
	About string `json:"about"` // what to watch for

	// The history is that of a seed, of which only these steps happen, unless check is another simulation.
	seed  uint64
	only  string
	check func(*testing.T, sim.Options)

	// shows are regular expressions of steps, as JSON, which the film must show in this order. The film begins with the
	// first step that fits the first one. Each step should lead to the next one: what happens at the same time is in
	// another order each time.
	shows []string
}

// all are the films, in the order in which the page names them.
var all = []Film{
	{
		Name:  "lost-event",
		Title: "A lost event",
		About: "Two pods are created, and the API server loses both events. For most of an hour the labels are wrong, and " +
			"no watch can tell. Then the hourly audit lists the pods at exactly the version of the cache, finds the two, " +
			"and the labels are corrected at once.",
		seed: 126,
		only: "1-30,59,61,63",
		shows: []string{
			`"type":"events lost"`,
			`"point":"stored","kind":"Pod",.*no watch reports it`,
			`"point":"request",.*/pods\?.*resourceVersionMatch=Exact`,
			`"point":"change",.*"kind":"Pod",.*"type":"(added|removed)"`,
			`"point":"audited",.*"kind":"Pod",.*"count":`,
		},
	},
	{
		Name:  "restored-backup",
		Title: "A restored backup",
		About: "A pod is deleted, and the labels go from 13 to 12. Then etcd is restored from a backup in which the pod " +
			"still exists, so the versions of the cluster go back. podcount notices that as soon as the server answers. " +
			"It does not resume its watches but lists, and writes 13.",
		seed: 26,
		only: "1-30,74,75,77",
		shows: []string{
			`"point":"stored","kind":"Node",.*label hopegi/pod-count=12`,
			`"type":"backup restored"`,
			`"point":"log",.*versions have gone back`,
			`"point":"request",.*/pods","code":"200`,
			`"point":"change",.*"kind":"Pod",.*"type":"(added|removed)"`,
			`"point":"stored","kind":"Node",.*label hopegi/pod-count=13`,
		},
	},
	{
		Name:  "silent-leader",
		Title: "A silent leader",
		About: "r1 leads, and r0 stands by. Then nothing passes on r1's network any more, as if r1 were paused. It cannot " +
			"renew the lease, so it ends, and has written nothing since. r0 takes the lease when that has not changed for " +
			"15 s, and writes the label when the next pod comes. The next r1 only stands by.",
		seed: 649,
		only: "2,5-8,38,334,337", // Step 38 takes the network of r0 away, so that r1 leads.
		shows: []string{
			`"type":"network away",.*NETWORK OF r1`,
			`"lane":3,.*"point":"lease",.*"type":"lost"`,
			`"lane":2,.*"point":"lease",.*"type":"acquired"`,
			`"point":"stored","kind":"Pod",.*"type":"created"`,
			`"point":"stored","kind":"Node",.*label hopegi/pod-count=`,
		},
	},
	{
		Name:  "returning-crowd",
		Title: "A returning crowd",
		About: "Six podcounts share an API server that works on one request at a time. It is killed, and comes back after " +
			"10 s without its history, so all six have to list at once. It refuses what does not fit into its queue with a " +
			"429. Each podcount waits for at least as long as the 429 asks, and all recover in about 10 s.",
		check: checkCrowd,
		shows: []string{
			`"type":"server killed"`,
			`"point":"ended",.*"kind":"Pod","type":"expired"`,
			`"point":"request",.*"code":"429`,
			`"point":"listed"`,
			`"point":"phase",.*all 6 processes have recovered`,
		},
	},
	{
		Name:  "410",
		Title: "An outage and a 410",
		About: "The API server is away for 24 s, and a pod is deleted meanwhile. After that, the server has forgotten its " +
			"history: it ends both watches with the error 410. So podcount lists everything again, sees by comparison " +
			"that the pod is gone, and corrects the labels.",
		seed: 26,
		only: "1-30,86,87",
		shows: []string{
			`"type":"server killed"`,
			`"point":"stored","kind":"Pod",.*"type":"(created|deleted)"`,
			`"point":"ended",.*"kind":"Pod","type":"expired"`,
			`"point":"request",.*/pods","code":"200`,
			`"point":"change",.*"kind":"Pod",.*"type":"(added|removed)"`,
			`"point":"stored","kind":"Node",.*label hopegi/pod-count=`,
		},
	},
}

// checkCrowd checks that six processes recover, although a list of the pods takes a second, and others have to wait.
func checkCrowd(t *testing.T, o sim.Options) {
	sim.CheckCrowd(t, o, sim.Crowd{
		Processes: 6,
		Capacity: fakekube.Capacity{
			Seats:      1,
			Queue:      3,
			MaxWait:    15 * time.Second,
			PerRequest: 20 * time.Millisecond,
			PerObject:  time.Second / sim.CrowdPods,
		},
		MaxMeanLists: 20,
	})
}
