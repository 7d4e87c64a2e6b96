package hunt

import (
	"strings"
	"time"
)

// countsOnly are flags for the controller of Counts alone.
const countsOnly = "-log-format text -controllers count -interval "

// middleBugs returns the bugs for which one has to know which part of podcount should have acted.
func middleBugs() []Bug {
	return []Bug{
		{
			Mutant:  "fight-at-full-speed",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  `8s: send PATCH /api/v1/nodes/control-plane {"metadata": {"labels": {"hopegi/pod-count": "13"}}}`,
			Seconds: 13,
			Symptom: "Two podcounts without an election share my cluster. For some milliseconds after each new pod, " +
				"one knows it and the other does not. Both correct each other's label at once, so that my nodes are " +
				"written again and again. Here, a script plays the other one: its number is corrected within " +
				"milliseconds.",
			Hints: [2]string{
				"Exercise 4 of docs/learn/exercises.md: why does podcount not correct a label at once?",
				"main.go has a function for each change of a node. It adds a key. When?",
			},
			Rule: "Two writers do not fight.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/argoproj/argo-cd/issues/5105",
				"Argo CD and the HorizontalPodAutoscaler both set the replicas of a Deployment, and scaled it up and down " +
					"again and again.",
			},
			Shows: func(r Record) bool {
				return r.first(written+`from=13 to=30`)-r.first(`8 s: send PATCH`) < 700*time.Millisecond
			},
		},
		{
			Mutant:  "node-rests-too-long",
			Level:   Middle,
			Flags:   quiet + "4s",
			Script:  alternating(6, 26, time.Second, "scale web 8", "scale web 15", "scale web 11"),
			Seconds: 27,
			Symptom: "I have set -interval to 4 s, because our autoscaler reads the label. Pods come and go every " +
				"second. The label follows, but only every 8 s.",
			Hints: [2]string{
				"Step 7 of the tour, near its end: what happens to a node after a write, and for how long?",
				"internal/control/brakes has a table of all that makes a write wait.",
			},
			Rule: "After a write, podcount leaves the node alone for an `-interval`, 10 s by default.",
			Page: "docs/run/flags.md",
			Shows: func(r Record) bool {
				return between(2, r.withoutStatuses(1).count(written), 3)
			},
		},
		{
			Mutant:  "dry-run-repeats-a-label",
			Level:   Middle,
			Flags:   quiet + "3s -dry-run -node-label example.com/pods",
			Script:  "6s: scale web 14\n10s: scale web 9",
			Seconds: 15,
			Symptom: "With -dry-run, podcount says what it would write. It said once that control-plane would get 5 " +
				"pods of its own. That has not changed since, but podcount says it again whenever the total changes.",
			Hints: [2]string{
				"A dry run has to know what it has said already. Does it know that of an object, or of each label?",
				"internal/control/brakes remembers what it has logged, label by label.",
			},
			Rule: "It logs an object again when it would write something else to it.",
			Page: "docs/run/flags.md",
			Shows: func(r Record) bool {
				return r.count(`would write node control-plane: .*example.com/pods none → 5`) >= 2
			},
		},
		{
			Mutant:  "failed-list-completes-the-cache",
			Level:   Middle,
			Flags:   quiet + "3s -leader-elect=false",
			Script:  "0s: fault list pods, 2 times: refuse 503",
			Seconds: 12,
			Symptom: "I started podcount while the API server still came up. The first lists of pods failed, and the " +
				"log says so. The label said 0 until a list worked. Slow lists do no such harm.",
			Hints: [2]string{
				"Step 1 of the tour ends with an invariant: nothing is written before there is all of one list. Which one?",
				"watch.go: what does the reflector do after a list that has failed?",
			},
			Rule: "A list that fails is thrown away whole.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes-sigs/node-feature-discovery/issues/2408",
				"With 2,000 nodes, the labels of nodes were removed and added again at nearly each restart of nfd-master, " +
					"because its cache was not complete.",
			},
			Shows: func(r Record) bool { return r.has(written + `from=none to=0`) },
		},
		{
			Mutant:  "half-a-list-is-taken",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "5s: fault relist pods, 2 times: cut after 4000 bytes\n6s: press expire-history",
			Seconds: 22,
			Symptom: "A proxy cut podcount's connection while it listed the pods. Suddenly the label said that half of " +
				"our pods were gone. None was.",
			Hints: [2]string{
				"Which of the invariants in `internals.md` speak of lists that fail?",
				"watch.go reads a list bit by bit. When does the cache change?",
			},
			Rule: "A list that fails is thrown away whole.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/aws/aws-sdk-js/issues/886",
				"The SDK took a list of objects whose connection broke in the middle for the whole list, without an " +
					"error.",
			},
			Shows: func(r Record) bool { return r.has(written+`from=30 to=1\d$`) && r.endsWrong() },
		},
		{
			Mutant:  "gone-without-a-list",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "5s: press expire-history",
			Seconds: 26,
			Symptom: "Our API server was away, and came back without its history. Since then, podcount has not noticed " +
				"any pod that came meanwhile. It asks the server now and then, but never for a list.",
			Hints: [2]string{
				"Exercise 6 of docs/learn/exercises.md lets the server forget. What should happen?",
				"internal/watch/ending has a table of all ends of a watch, and what follows from each.",
			},
			Rule: "once the server has forgotten a version, only a list helps",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/dotnet/dotnet-operator-sdk/pull/735",
				"After a 410, the operator's watch did not begin anew, so it saw no more changes.",
			},
			Shows: func(r Record) bool { return !r.has(`msg="listing again"`) && r.endsWrong() },
		},
		{
			Mutant:  "outage-without-an-end",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "5s: take-away 4s",
			Seconds: 21,
			Symptom: "The API server was away for some seconds. Our on-call engineer saw the warning, and waited for " +
				"the line that says that all is well again. It never came, though podcount had long been working again.",
			Hints: [2]string{
				"`operating.md` says under \"How an outage is logged\" which lines an outage has.",
				"internal/view/logging keeps a list of the parts that fail now. When is it empty?",
			},
			Rule: "An outage gets one line when it begins, one line a minute while it lasts, and one line when it is " +
				"over:",
			Page: "docs/run/operating.md",
			Shows: func(r Record) bool {
				return r.has(`msg="the API server cannot be reached"`) && !r.has(`reached again after`)
			},
		},
		{
			Mutant:  "muted-outages-speak",
			Level:   Middle,
			Flags:   "-log-format text -interval 3s",
			Script:  "6s: take-away 6s",
			Seconds: 17,
			Symptom: "The API server was away for a moment, once. podcount warned of it five times: about pods, nodes, " +
				"Counts, the Lease, and the server. I expect one warning.",
			Hints: [2]string{
				"`operating.md` says under \"How an outage is logged\" when one line stands for everything.",
				"internal/view/logging decides for each part that fails whether it may speak.",
			},
			Rule: "While the API server does not answer lists, watches or requests about the Lease, that one line " +
				"stands for everything.",
			Page: "docs/run/operating.md",
			Known: &Known{
				"https://github.com/rancher/rancher/issues/17257",
				"While a cluster could not be reached, Rancher logged an error for each kind of object, again and again.",
			},
			Shows: func(r Record) bool { return r.count(`level=WARN msg="cannot `) >= 3 },
		},
		{
			Mutant:  "age-of-labels-is-that-of-the-process",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "10s: take-away 4s",
			Seconds: 16,
			Symptom: "The API server has just gone away, a moment ago, and podcount's watches worked until then. The " +
				"warning says that the numbers in the labels have been old for 10 s already.",
			Hints: [2]string{
				"`operating.md` explains each field of a line about an outage.",
				"internal/run/overview knows the state of the whole program, and gives that field its value.",
			},
			Rule: "podcount has not heard of pods or nodes since then.",
			Page: "docs/run/operating.md",
			Shows: func(r Record) bool {
				return r.has(`msg="the API server cannot be reached" labels_age=[1-9]\d*s`)
			},
		},
		{
			Mutant:  "stripped-label-is-written-again",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "0s: strip hopegi/pod-count",
			Seconds: 22,
			Symptom: "A webhook of ours removes labels that it does not know, podcount's too. podcount has noticed, " +
				"and says that it will retry rarely. In fact it writes the label every 3 s, and the webhook removes it " +
				"each time.",
			Hints: [2]string{
				"`flags.md` says under \"Labels that the server drops\" how often podcount tries.",
				"Pauses of several minutes are kept by a type in internal/api/retry.",
			},
			Rule: "It tries that label again every 10 minutes, or at the `-interval` if that is longer.",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/mongodb/mongodb-kubernetes-operator/issues/1732",
				"A policy added labels to pods, and the operator removed them again, without an end.",
			},
			Shows: func(r Record) bool {
				return r.has(`the server drops labels`) && r.withoutStatuses(1).most("patch") >= 1
			},
		},
		{
			Mutant:  "rewritten-pod-is-new",
			Level:   Middle,
			Flags:   strings.Replace(quiet, "-pod-events off", "-pod-events on", 1) + "3s",
			Script:  "6s: scale web 12\n12s: events pod count is",
			Seconds: 15,
			Symptom: "I started one pod. podcount has posted its Event about a new pod four times: once for the pod, " +
				"and again whenever the scheduler or the kubelet has written to it.",
			Hints: [2]string{
				"Step 8 of the tour: who asks for the Event on a pod, and when?",
				"main.go has a function for each change of a pod. How does it know that a pod is new?",
			},
			Rule: "the pod appears after the start, unless `-pod-events off`",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/VictoriaMetrics/operator/issues/2113",
				"After a restart, the operator posted several Events a second about an object in which nothing had " +
					"changed.",
			},
			Shows: func(r Record) bool { return r.has(`pod count is \d+ \(count [3-9]\)`) },
		},
		{
			Mutant:  "synced-is-posted-again",
			Level:   Middle,
			Flags:   countsOnly + "60s",
			Script:  "5s: scale cart 4\n8s: scale cart 5\n12s: events",
			Seconds: 15,
			Symptom: "My Count has not been edited for weeks. Still, `kubectl describe` shows a new Event \"Count " +
				"synced successfully\" each time that a pod of the app comes or goes.",
			Hints: [2]string{
				"`counts.md` has a table of the Events on a Count, and when each is posted.",
				"internal/control/counts compares a report with the one before it.",
			},
			Rule: "podcount has handled a new spec",
			Page: "docs/run/counts.md",
			Known: &Known{
				"https://github.com/knative/eventing/pull/3699",
				"An Event that said \"reconciled\" was posted after each reconcile, also if nothing had changed. At a " +
					"resync, that was one Event for each object.",
			},
			Shows: func(r Record) bool { return r.has(`Count synced successfully \(count [2-9]\)`) },
		},
		{
			Mutant:  "count-rests-too-long",
			Level:   Middle,
			Flags:   countsOnly + "60s",
			Script:  "5s: scale cart 4\n7s: scale cart 6",
			Seconds: 16,
			Symptom: "An -interval of a minute is enough for my labels. Since I have set it, the status of a Count " +
				"also takes up to a minute to follow its pods. It used to take a second.",
			Hints: [2]string{
				"`counts.md` says how often a Count is written.",
				"The controller of Counts is set up in main.go. It shares its brakes with the other one, except for one " +
					"value.",
			},
			Rule:  "It writes each Count at most once a second, or once an `-interval` if that is shorter.",
			Page:  "docs/run/counts.md",
			Shows: func(r Record) bool { return r.has(`7 s: scale cart 6`) && !r.has(`to="6 unhealthy"`) },
		},
		{
			Mutant:  "late-bad-request-ends-podcount",
			Level:   Middle,
			Flags:   quiet + "3s",
			Script:  "4s: fault relist pods, once: refuse 400\n5s: press expire-history",
			Seconds: 15,
			Symptom: "podcount had been running for a week. Then the API server answered one list with 400, perhaps " +
				"because of a proxy, and podcount ended. I expect that it tries again.",
			Hints: [2]string{
				"`failures.md` names three exceptions in which podcount ends. One of them has the word \"first\".",
				"watch.go: after a list that has failed, the reflector decides whether the error is final.",
			},
			Rule:  "a first list that the API server rejects as a bad request (400)",
			Page:  "docs/run/failures.md",
			Shows: func(r Record) bool { return r.has(`podcount ended: exit status 2`) },
		},
		{
			Mutant:  "once-succeeds-without-a-node",
			Level:   Middle,
			Flags:   "-log-format text -once -total-nodes nobody=here",
			Seconds: 6,
			Symptom: "I run podcount -once as a CronJob, and rely on its exit code. I had misspelt -total-nodes, so no " +
				"node got the label. The job was green for weeks. Below, \"podcount ended: <nil>\" means exit code 0.",
			Hints: [2]string{
				"`flags.md` says under \"One run\" what counts as a failure.",
				"internal/control ends a run with -once, and asks each controller for a summary.",
			},
			Rule: "or `-once` or `-prune` is done",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/34633",
				"kubectl ended with exit code 0 after some errors, so scripts took them for successes.",
			},
			Shows: func(r Record) bool { return r.has(`no node gets the total`) && r.has(`podcount ended: <nil>`) },
		},
		{
			Mutant:  "all-wait-for-the-same-token",
			Level:   Middle,
			Flags:   quiet + "3s -qps 1 -burst 1 -node-label example.com/pods",
			Script:  "0s: nodes 20",
			Seconds: 11,
			Symptom: "I allow podcount one write a second, with -qps 1. With 23 nodes to label, it sent four or more " +
				"writes in each second.",
			Hints: [2]string{
				"Before each write, a worker waits for its turn. There are four workers.",
				"internal/api/retry has the bucket of tokens. What happens if several wait for it at once?",
			},
			Rule: "`-qps` and `-burst` limit the patches of each controller.",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/34938",
				"Requests that were sent again after a 429 did not ask the client's rate limiter, so an overloaded server " +
					"got more requests than the client was allowed to send.",
			},
			Shows: func(r Record) bool { return r.most("patch") >= 12 },
		},
		{
			Mutant:  "events-are-waited-for",
			Level:   Middle,
			Flags:   strings.Replace(quiet, "-pod-events off", "-pod-events on", 1) + "3s",
			Script:  "5s: fault create events, always: delay 3s\n6s: scale web 16",
			Seconds: 16,
			Symptom: "The server takes three seconds for each Event. I can live with late Events. But the label is " +
				"late, too: it takes more than ten seconds to follow five new pods.",
			Hints: [2]string{
				"Step 8 of the tour ends with an invariant.",
				"internal/api/events puts Events into a channel. How much room does it have, and what if it is full?",
			},
			Rule: "No controller waits for an Event or a log line.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/pull/3381",
				"Components of Kubernetes could hang in the recording of an Event while the master was down.",
			},
			Shows: Record.endsWrong,
		},
	}
}

// alternating returns steps of a script: these in turn, from one second to another, with a pause between them.
func alternating(from, to int, pause time.Duration, steps ...string) string {
	var lines []string
	end := time.Duration(to) * time.Second
	for at := time.Duration(from) * time.Second; at <= end; at += pause {
		lines = append(lines, at.String()+": "+steps[len(lines)%len(steps)])
	}
	return strings.Join(lines, "\n")
}

// between reports whether a number is at least low, and at most high.
func between(low, n, high int) bool { return low <= n && n <= high }
