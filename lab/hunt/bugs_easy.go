package hunt

import (
	"strings"
	"time"
)

// Flags that most bugs share: the controller of the labels alone, without Events on pods, and with lines that have
// their times. An interval follows.
const quiet = "-log-format text -controllers pod-count -pod-events off -interval "

// written is a line about the label with the total.
const written = `msg="label written" node=control-plane label=hopegi/pod-count `

// easyBugs returns the bugs whose symptom leads to one step of the tour.
func easyBugs() []Bug {
	return []Bug{
		{
			Mutant:  "deleted-is-a-change",
			Level:   Easy,
			Flags:   quiet + "3s",
			Script:  "6s: scale web 5",
			Seconds: 20,
			Symptom: "I scaled a Deployment down, and its pods are gone. The label still counts them, however long I " +
				"wait. When I scale up, the number grows as it should.",
			Hints: [2]string{
				"Step 4 of the tour: what does the cache do with each kind of watch event?",
				"A watch event has one of four types. Look for the place in cache.go that tells them apart.",
			},
			Rule: "when faults and changes stop, every label becomes correct, and then podcount writes nothing more.",
			Page: "docs/learn/tour.md",
			Known: &Known{
				"https://github.com/kubernetes-sigs/sig-storage-local-static-provisioner/pull/222",
				"The provisioner missed that a volume was deleted, so its cache kept it, and no new volume took its " +
					"place.",
			},
			Shows: Record.endsWrong,
		},
		{
			Mutant:  "no-rest-between-writes",
			Level:   Easy,
			Flags:   quiet + "5s",
			Script:  "6s: scale web 12\n7s: scale web 13\n8s: scale web 14\n9s: scale web 15\n10s: scale web 16",
			Seconds: 16,
			Symptom: "While pods come one by one, podcount writes the label again for each of them. I have set " +
				"-interval to 5 s, so I expect one write in 5 s at most: each write goes to all clients that watch nodes.",
			Hints: [2]string{
				"Step 7 of the tour, near its end: what happens to a node after a write?",
				"internal/control/brakes has a table of all that makes a write wait. One of these is never begun.",
			},
			Rule:  "After a write, podcount leaves the node alone for an `-interval`, 10 s by default.",
			Page:  "docs/run/flags.md",
			Shows: func(r Record) bool { return r.count(written) >= 5 },
		},
		{
			Mutant:  "dry-run-writes",
			Level:   Easy,
			Flags:   quiet + "3s -dry-run",
			Script:  "6s: scale web 14",
			Seconds: 12,
			Symptom: "I only wanted to see what podcount would do, and started it with -dry-run. Now there is a label " +
				"on my control-plane node, and it changes with my pods.",
			Hints: [2]string{
				"In the docs, `flags.md` says under \"Dry run\" what must not happen. Two places in the code keep that " +
					"promise.",
				"One place is a switch just before the write, and the other one refuses the request. Both are broken.",
			},
			Rule: "`podcount -dry-run` logs what it would write, and writes nothing: no label, no status, no Event, no " +
				"Lease.",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/ksonnet/ksonnet/issues/615",
				"`ks apply --dry-run` added labels and annotations to the objects in the cluster.",
			},
			Shows: func(r Record) bool { return r.has(`and the label says 3\d;`) },
		},
		{
			Mutant:  "write-before-sync",
			Level:   Easy,
			Flags:   quiet + "3s -leader-elect=false",
			Script:  "0s: fault list pods, once: delay 6s",
			Seconds: 12,
			Symptom: "Our API server is slow, and a list of all pods takes some seconds. Each time podcount starts, " +
				"the label says 0 for that long, and our dashboards raise an alarm.",
			Hints: [2]string{
				"Step 1 of the tour ends with an invariant. Its first half is broken.",
				"Who waits for the caches before the first key? Look at the manager in internal/control.",
			},
			Rule: "Nothing is written before the caches are complete.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes-sigs/node-feature-discovery/issues/1802",
				"On a cluster of 4,000 nodes, the lists timed out at the start, and nfd-master took the empty cache for " +
					"the truth: all labels of all nodes were removed.",
			},
			Shows: func(r Record) bool { return r.has(written + `from=none to=0`) },
		},
		{
			Mutant:  "version-sent",
			Level:   Easy,
			Flags:   quiet + "3s",
			Seconds: 12,
			Symptom: "The label never appears. The log says that each write is a conflict, because \"the object has " +
				"been modified\". Nobody but the kubelets writes to my nodes.",
			Hints: [2]string{
				"Step 7 of the tour: what is in the body of the patch, and what is not?",
				"watch.go has the patch. Look at what it says about the metadata of the object.",
			},
			Rule: "A write carries the uid, and no resourceVersion.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/NVIDIA/gpu-operator/pull/1873",
				"The operator could not label nodes, because its update of the whole node was a conflict with any other " +
					"change since. A patch without a version is none.",
			},
			Shows: func(r Record) bool { return r.has(`patch nodes/control-plane: 409 Conflict`) && !r.has(written) },
		},
		{
			Mutant:  "no-backoff",
			Level:   Easy,
			Flags:   quiet + "3s",
			Script:  "5s: fault patch nodes, always: refuse 403\n6s: scale web 14",
			Seconds: 17,
			Symptom: "Somebody has taken away podcount's right to patch nodes. That is our fault. But since then, " +
				"podcount has sent the same patch twenty times a second, although the answer is always 403.",
			Hints: [2]string{
				"Step 6 of the tour: what does a key do that has failed?",
				"internal/api/retry computes how long all waits after failures are.",
			},
			Rule: "Each failure backs off alone, with jitter.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/pull/87795",
				"client-go's reflector waited one second after each failed list, always. When an API server had crashed, " +
					"all clients came back at it together, each second.",
			},
			Shows: func(r Record) bool { return r.most("patch") >= 40 },
		},
		{
			Mutant:  "whole-objects-without-a-spec",
			Level:   Easy,
			Flags:   quiet + "3s -node-label example.com/pods",
			Seconds: 8,
			Symptom: "With -node-label, each node should get the number of its own pods. All my nodes get a 0. The " +
				"label with the number of all pods is right.",
			Hints: [2]string{
				"Step 3 of the tour: which fields of a pod does podcount ask for, and who may ask for more?",
				"watch.go has the methods by which controllers say what they need of the objects.",
			},
			Rule: "Each kind is listed once for all controllers, and only its metadata is requested unless a " +
				"controller needs more.",
			Page:  "docs/change/internals.md",
			Shows: func(r Record) bool { return r.has(`node=worker-1 label=example.com/pods from=none to=0`) },
		},
		{
			Mutant:  "prune-removes-nothing",
			Level:   Easy,
			Flags:   "-log-format text -prune",
			Script:  `0s: send PATCH /api/v1/nodes/control-plane {"metadata": {"labels": {"hopegi/pod-count": "30"}}}`,
			Seconds: 6,
			Symptom: "I want to get rid of podcount, and ran it with -prune. It has changed the label to 0. I expect " +
				"that the label is removed.",
			Hints: [2]string{
				"What should a node's label be? main.go answers this with two functions, and has others for -prune.",
				"The controller pod-count is set up in main.go. What does it do there with -prune?",
			},
			Rule: "`podcount -prune` removes the labels of `-total-label` and `-node-label` from all nodes, logs each, " +
				"and exits.",
			Page:  "docs/run/flags.md",
			Shows: func(r Record) bool { return r.has(written + `from=30 to=0`) },
		},
		{
			Mutant:  "domains-that-end-alike",
			Level:   Easy,
			Flags:   quiet + "3s -total-label notkubernetes.io/pods",
			Seconds: 6,
			Symptom: "Our company owns the domain notkubernetes.io, and uses it for all labels. podcount refuses to " +
				"start with such a label.",
			Hints: [2]string{
				"The message that podcount prints is in one place of the code.",
				"internal/run/options checks the flags.",
			},
			Rule:  "keys under `kubernetes.io`, `k8s.io` and their subdomains",
			Page:  "docs/run/flags.md",
			Shows: func(r Record) bool { return r.has(`-total-label notkubernetes.io/pods: labels under`) },
		},
		{
			Mutant:  "replace-without-removals",
			Level:   Easy,
			Flags:   quiet + "3s",
			Script:  "5s: press lose-event",
			Seconds: 32,
			Symptom: "A pod was deleted, and the API server forgot to tell podcount's watch. That happens. But some " +
				"seconds later, podcount listed all pods again, the log says so, and the label still counts the pod.",
			Hints: [2]string{
				"The answer to exercise 6 of docs/learn/exercises.md: how does a list find out that a pod is gone?",
				"cache.go: each object of a list gets a mark. Who looks at the marks at the end?",
			},
			Rule: "A list is a diff.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/koordinator-sh/koordinator/pull/2911",
				"The scheduler ignored what a new list tells about objects that are gone, so deleted pods stayed in its " +
					"cache for ever.",
			},
			Shows: func(r Record) bool {
				return r.after(`msg="listing again" kind=Pod`).has(`msg=listed kind=Pod`) && r.endsWrong()
			},
		},
		{
			Mutant:  "failed-key-is-forgotten",
			Level:   Easy,
			Flags:   quiet + "60s",
			Script:  "0s: fault patch nodes, once: refuse 500",
			Seconds: 16,
			Symptom: "The API server was overloaded for a moment and answered a write with 500. podcount logged the " +
				"error, and then did nothing. A minute later, the label was right. I expect another try within a second.",
			Hints: [2]string{
				"Step 6 of the tour: three promises of the queue.",
				"queue.go: what does a worker tell the queue when its work has ended with an error?",
			},
			Rule: "A key that has failed waits before its next try, and no other key waits with it.",
			Page: "docs/learn/tour.md",
			Known: &Known{
				"https://github.com/kubernetes-sigs/kubebuilder/issues/224",
				"An error of Reconcile did not bring the key back into the queue, so nothing was tried again before the " +
					"next resync.",
			},
			Shows: func(r Record) bool { return r.has(`msg="cannot reconcile"`) && r.endsWrong() },
		},
		{
			Mutant:  "ready-before-the-lists",
			Level:   Easy,
			Flags:   quiet + "3s -listen LISTEN",
			Script:  "0s: fault list pods, always: refuse 503\n6s: show /readyz",
			Seconds: 9,
			Symptom: "During an upgrade, the API server could not list pods. Each new podcount was ready at once " +
				"although it knew no pod, and so the rollout replaced all old ones by new ones that could do nothing.",
			Hints: [2]string{
				"`monitoring.md` says under \"Health\" what /readyz means.",
				"internal/view/listen serves the port of -listen. What does it ask before it answers?",
			},
			Rule: "200 once the first lists of all caches are complete, else 503 with the kinds that are missing",
			Page: "docs/run/monitoring.md",
			Known: &Known{
				"https://github.com/linkerd/linkerd2/issues/1013",
				"Controllers served requests before their caches were full, so the dashboard lacked most pods after a " +
					"restart.",
			},
			Shows: func(r Record) bool { return r.has(`GET /readyz: 200`) },
		},
		{
			Mutant:  "metrics-of-yesterday",
			Level:   Easy,
			Flags:   quiet + "3s -listen LISTEN",
			Script:  "4s: show /metrics podcount_pods\n6s: scale web 14\n12s: show /metrics podcount_pods",
			Seconds: 15,
			Symptom: "The label is right, but the metrics do not move. After the first request, /metrics answers with " +
				"the same numbers for ever.",
			Hints: [2]string{
				"The numbers are read once a second, however many ask for them.",
				"internal/view/listen keeps what was read last. Who decides that it is too old?",
			},
			Rule: "16 at a time, others get 503; the numbers are read once a second",
			Page: "docs/approve/security.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/57686",
				"The kubelet's metrics went on showing the last sizes of volumes that had long moved to another node.",
			},
			Shows: func(r Record) bool {
				return strings.Join(r.texts(`podcount_pods \d+`), " ") == "podcount_pods 30 podcount_pods 30"
			},
		},
		{
			Mutant:  "retry-after-ignored",
			Level:   Easy,
			Flags:   quiet + "3s",
			Script:  "0s: fault patch nodes, once: refuse 429 retry-after 15s",
			Seconds: 14,
			Symptom: "Our API server protects itself: it answered podcount's write with 429 and asked for patience, 15 " +
				"seconds of it. podcount came back at once.",
			Hints: [2]string{
				"Step 6 of the tour: what counts in place of the backoff, if the server says so?",
				"The wait that a server states is read from an HTTP header, in internal/api/kube.",
			},
			Rule: "If the server states a wait of its own (`Retry-After`), that counts instead, but only three times " +
				"in a row.",
			Page: "docs/learn/tour.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/26871",
				"The client sent a request again within milliseconds, and ten times, although each answer was a 429 with " +
					"a Retry-After.",
			},
			Shows: func(r Record) bool { return r.has(`429 TooManyRequests`) && r.first(written) < 10*time.Second },
		},
	}
}
