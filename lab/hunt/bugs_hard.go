package hunt

import (
	"regexp"
	"strings"
	"time"
)

// hardBugs returns the bugs whose cause is far from the symptom, or seldom matters.
func hardBugs() []Bug {
	return []Bug{
		{
			Mutant:  "plus-and-minus-one",
			Level:   Hard,
			Flags:   quiet + "3s -node-label example.com/pods",
			Script:  "6s: scale web 16",
			Seconds: 16,
			Symptom: "With -node-label, each node gets the number of its own pods. At the start, the numbers of all " +
				"nodes add up to the total. After some new pods, they add up to more than that, and it gets worse with " +
				"time. The total itself stays right.",
			Hints: [2]string{
				"A new pod has no node at first. The scheduler gives it one later.",
				"cache.go keeps its counts in indexes. What happens to them when a known object changes?",
			},
			Rule: "Level, not edge.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kcp-dev/kcp/issues/4277",
				"Gauges of how many workspaces there are went up and down with events, and said four to five times as " +
					"many as there were. Two replicas disagreed.",
			},
			Shows: func(r Record) bool {
				sum := 0
				for _, node := range []string{"control-plane", "worker-1", "worker-2"} {
					sum += last(r.numbers(`node=` + node + ` label=example.com/pods from=\S+ to=(\d+)`))
				}
				return sum > last(r.numbers(written+`from=\S+ to=(\d+)`))
			},
		},
		{
			Mutant:  "gauge-of-what-nobody-counted",
			Level:   Hard,
			Flags:   quiet + "3s -listen LISTEN",
			Script:  "0s: fault list pods, always: refuse 503\n6s: show /metrics podcount_pods",
			Seconds: 9,
			Symptom: "podcount has not been able to list any pod yet. Its metrics say that there are 0 pods, and that " +
				"has raised an alarm. I expect that a metric says nothing as long as podcount knows nothing.",
			Hints: [2]string{
				"`monitoring.md` says in its part on metrics when a series is absent.",
				"internal/run/overview sets the gauges that are about the whole program.",
			},
			Rule:  "While its value is unknown, a series is absent, because a 0 would look like a real value:",
			Page:  "docs/run/monitoring.md",
			Shows: func(r Record) bool { return r.has(`podcount_pods 0`) },
		},
		{
			Mutant:  "stripped-counted-as-written",
			Level:   Hard,
			Flags:   quiet + "3s -listen LISTEN",
			Script:  "0s: strip hopegi/pod-count\n6s: show /metrics podcount_label_patches_total",
			Seconds: 9,
			Symptom: "A webhook of ours removes podcount's label from each patch. We have an alert on the metric for " +
				"that, and it never fires: the metric counts such a patch as written.",
			Hints: [2]string{
				"`monitoring.md` lists the results that a patch can have.",
				"watch.go sends the patches, and reports how each has ended.",
			},
			Rule: "Patches of node labels: written, failed, stripped (the answer lacks the label) or gone (the node no " +
				"longer exists).",
			Page: "docs/run/monitoring.md",
			Shows: func(r Record) bool {
				return r.has(`the server drops labels`) && r.has(`patches_total\{result="stripped"\} 0`)
			},
		},
		{
			Mutant: "news-excuse-a-hot-loop",
			Level:  Hard,
			Flags:  quiet + "3s",
			Script: "5s: fault watch pods, always: cut after frame 1\n5s: break-watches\n" +
				"6s: scale web 14\n8s: scale web 9\n10s: scale web 13\n12s: scale web 9",
			Seconds: 16,
			Symptom: "A proxy of ours ends each watch after its first event. podcount begins the next watch at once, " +
				"so that on a busy day the proxy gets a request for each event, and no pause in between.",
			Hints: [2]string{
				"`internals.md` has a table of how a watch ends. Two of its rows are about watches that end within a " +
					"second.",
				"internal/watch/ending has that table in Go, with a condition in each row.",
			},
			Rule: "it ends within 1 s, with news, like the one before | backs off and resumes",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/openyurtio/openyurt/pull/1056",
				"A proxy ended watches at once that did not say for how long they should last, and its clients asked " +
					"again without a pause.",
			},
			Shows: func(r Record) bool { return r.most("watch") >= 18 },
		},
		{
			Mutant:  "listen-under-any-name",
			Level:   Hard,
			Flags:   quiet + "3s -listen LISTEN",
			Script:  "4s: ask /metrics evil.example",
			Seconds: 7,
			Symptom: "Our security team has run podcount on a laptop, with -listen on 127.0.0.1. They have shown that " +
				"any website in the laptop's browser can read the metrics, if it lets its own name lead to 127.0.0.1.",
			Hints: [2]string{
				"`security.md` calls this DNS rebinding. What must be true of a request?",
				"internal/view/listen looks at the Host of each request.",
			},
			Rule: "Then the pages answer only requests whose `Host` is `localhost`, 127.0.0.1, ::1 or the name in the " +
				"flag.",
			Page: "docs/approve/security.md",
			Known: &Known{
				"https://github.com/linkerd/linkerd2/pull/3629",
				"linkerd's dashboard answered requests with any Host, so a website could have read it by DNS rebinding.",
			},
			Shows: func(r Record) bool { return r.has(`GET /metrics: 200`) },
		},
		{
			Mutant:  "one-404-stands-down",
			Level:   Hard,
			Flags:   countsOnly + "3s",
			Script:  "3s: fault get /apis/demo.mark8s.io/v1, once: refuse 404",
			Seconds: 20,
			Symptom: "One of our three API servers was just starting, and answered a single request with 404. podcount " +
				"said that the CRD was removed, and forgot all Counts. Nobody had touched the CRD.",
			Hints: [2]string{
				"A CRD can come and go. How often must podcount hear that it is gone?",
				"internal/watch/presence asks discovery.",
			},
			Rule: "A single 404 proves nothing",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/envoyproxy/gateway/issues/7871",
				"A discovery that timed out was taken for a CRD that is not installed, so the gateway ran without its " +
					"security policies.",
			},
			Shows: func(r Record) bool { return r.has(`msg="the resource was removed`) },
		},
		{
			Mutant:  "renewals-of-others-unseen",
			Level:   Hard,
			Flags:   quiet + "3s -leader-elect",
			Script:  "3s: press second-replica",
			Seconds: 28,
			Symptom: "I run two replicas. The first one leads, and renews its Lease every two seconds. After a quarter " +
				"of a minute, the second one takes the Lease away from it, and the first one ends.",
			Hints: [2]string{
				"Step 10 of the tour: how does a replica that waits measure time?",
				"internal/api/leader reads the Lease, and notes when it has changed. What is a change?",
			},
			Rule: "Only the leader writes.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/23731",
				"A bug in the election client let a replica believe that it led after it had lost the lock to another " +
					"one. So there were two leaders.",
			},
			Shows: func(r Record) bool { return r.count(`msg="elected: this replica leads"`) >= 2 },
		},
		{
			Mutant:  "lease-taken-unseen",
			Level:   Hard,
			Flags:   quiet + "3s -leader-elect",
			Script:  "4s: press second-replica",
			Seconds: 14,
			Symptom: "I run two replicas. When the second one starts, it does not stand by, but leads at once, " +
				"although the first one is well. The two then quarrel about the Lease.",
			Hints: [2]string{
				"Step 10 of the tour: how long does a replica wait for a Lease that another one holds?",
				"internal/api/leader writes its own name into the Lease. When may it?",
			},
			Rule: "Only the leader writes.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/cilium/cilium/pull/42920",
				"Two operators led at once, because the old one did not stop in time. Both gave the same range of " +
					"addresses to different nodes.",
			},
			Shows: func(r Record) bool { return r.count(`msg="elected: this replica leads"`) >= 2 },
		},
		{
			Mutant:  "http1-over-tls",
			Level:   Hard,
			Flags:   quiet + "3s",
			Script:  "3s: press half-open",
			Seconds: 58,
			Symptom: "A firewall forgot podcount's connection without telling anybody, as firewalls do. A pod came, " +
				"and a minute later, the label still did not count it. I expect that podcount notices a dead connection " +
				"within 50 s.",
			Hints: [2]string{
				"Which of the invariants in `internals.md` is about dead connections? What is it that notices them so " +
					"soon?",
				"internal/api/kube makes the HTTP client. Which protocol does it speak, and who decides that?",
			},
			Rule: "HTTP/2 pings find it within 50 s.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/client-go/issues/374",
				"client-go did not notice that a load balancer had dropped its connections. So kubelets could not report, " +
					"their nodes counted as not ready, and their pods were evicted.",
			},
			Shows: Record.endsWrong,
		},
		{
			Mutant:  "retry-after-of-a-410-ignored",
			Level:   Hard,
			Flags:   quiet + "3s",
			Script:  "5s: fault watch pods, once: refuse 410 retry-after 20s\n6s: break-watches\n7s: scale web 14",
			Seconds: 18,
			Symptom: "The API server had to drop its history, and knew that all clients would list everything now. So " +
				"it asked each for 20 s of patience with its 410. podcount listed the pods after two seconds.",
			Hints: [2]string{
				"How long does podcount wait before it lists, after each end of a watch?",
				"internal/watch/ending has three backoffs. One of them does not listen to the server.",
			},
			Rule: "If the server states a wait (`Retry-After`), that replaces the backoff three times, and then the " +
				"longer of the two counts",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/client-go/issues/222",
				"An API server that was saturated answered with 429, and clients sent their requests again nevertheless: " +
					"thousands a second from the kubelets of one cluster.",
			},
			Shows: func(r Record) bool {
				return r.after(`msg="listing again" kind=Pod`).has(`msg=listed kind=Pod`)
			},
		},
		{
			Mutant:  "watches-end-together",
			Level:   Hard,
			Flags:   "-log-format text -interval 3s -v 6",
			Seconds: 6,
			Symptom: "Since we run podcount in all our clusters, the central proxy has seen a peak every five minutes: " +
				"all watches end in the same second, and begin anew. The flag -v 6 shows what podcount asks for.",
			Hints: [2]string{
				"The tour shows the URL of a watch in step 2. Which of its parameters decides when the watch ends?",
				"watch.go opens the watches.",
			},
			Rule: "5 to 10 minutes in all",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/pull/8574",
				"The API server ended each watch after exactly five minutes. Since then, each gets a random time.",
			},
			Shows: func(r Record) bool {
				timeouts := r.numbers(`timeoutSeconds=(\d+)`)
				return len(timeouts) >= 3 && timeouts[0] == timeouts[1] && timeouts[1] == timeouts[2]
			},
		},
		{
			Mutant:  "delay-ends-a-backoff",
			Level:   Hard,
			Flags:   quiet + "3s",
			Script:  "5s: fault patch nodes, always: refuse 500\n" + fight(6, 40),
			Seconds: 42,
			Symptom: "The API server refuses podcount's writes for a while, and a script of ours changes the label " +
				"each second. The pauses between podcount's tries should double up to half a minute. They do not: each " +
				"change of the label leads to another try a second later.",
			Hints: [2]string{
				"A key can wait for two times at once: for the end of its backoff, and for the end of a delay.",
				"queue.go decides from a few facts where a key belongs.",
			},
			Rule: "Adding the key again does not shorten the wait.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/openshift/hive/pull/1393",
				"Each update of a DNS zone that failed led to another try at once, past the backoff, and each try updated " +
					"the zone.",
			},
			Shows: func(r Record) bool { return r.withoutStatuses(3).sum("patch") >= 9 },
		},
		{
			Mutant:  "total-waits-in-line",
			Level:   Hard,
			Flags:   quiet + "3s -qps 1 -burst 1 -node-label example.com/pods",
			Script:  "0s: nodes 40\n" + alternating(4, 22, 1500*time.Millisecond, "scale web 13", "scale web 8", "scale web 16"),
			Seconds: 24,
			Symptom: "I allow one write a second, and have 43 nodes. With -node-label, the first round takes 43 s, and " +
				"that is fine. But meanwhile the total on the control plane does not follow its pods, and that is the " +
				"label that I care about.",
			Hints: [2]string{
				"`flags.md` says under \"When, and how often\" which nodes go first.",
				"A controller can say which of its keys are urgent. The one of the labels is set up in main.go.",
			},
			Rule: "Nodes with a wrong total go first, but leave one patch in four to the other nodes.",
			Page: "docs/run/flags.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/68179",
				"With 10,000 StatefulSets, each resync filled the queue, and what users had just changed waited behind it " +
					"for minutes.",
			},
			Shows: func(r Record) bool { return r.count(written) <= 2 },
		},
		{
			Mutant:  "added-while-processing-is-lost",
			Level:   Hard,
			Flags:   countsOnly + "60s",
			Script:  "4s: fault patch counts/status, always: delay 4s\n5s: scale cart 4\n7s: scale cart 6",
			Seconds: 18,
			Symptom: "Our API server takes four seconds for a write. A pod came, and podcount began to write the " +
				"status of my Count. Two more pods came during that write. Until a minute later, the status did not count " +
				"them.",
			Hints: [2]string{
				"Step 6 of the tour: three promises of the queue. The second one has two sentences.",
				"queue.go: what happens to a key that is added while a worker has it?",
			},
			Rule: "If a key is added while a worker has it, it is handed out again afterwards.",
			Page: "docs/learn/tour.md",
			Shows: func(r Record) bool {
				return r.has(`to="4 unhealthy"`) && !r.has(`to="6 unhealthy"`)
			},
		},
		{
			Mutant:  "two-workers-for-one-key",
			Level:   Hard,
			Flags:   countsOnly + "60s -v 4",
			Script:  "4s: fault patch counts/status, always: delay 4s\n5s: scale cart 4\n7s: scale cart 6",
			Seconds: 14,
			Symptom: "Our API server takes four seconds for a write. While one write of a Count's status was under " +
				"way, podcount began another one about the same Count. The first one ended last, and its number was the " +
				"older one. The flag -v 4 shows what the queue does.",
			Hints: [2]string{
				"Step 6 of the tour: three promises of the queue.",
				"queue.go: each key has a stage. When does it change?",
			},
			Rule: "Two workers never have the same key at once.",
			Page: "docs/learn/tour.md",
			Known: &Known{
				"https://github.com/open-cluster-management-io/ocm/pull/654",
				"Two keys of the queue led to the same object, so two workers changed it at once.",
			},
			Shows: func(r Record) bool {
				var had []string
				for _, line := range r {
					step := regexp.MustCompile(`msg="queue: (get|done)"`).FindStringSubmatch(line.Text)
					if step != nil {
						had = append(had, step[1])
					}
				}
				return strings.Contains(strings.Join(had, " "), "get get")
			},
		},
		{
			Mutant:  "depth-counts-all-keys",
			Level:   Hard,
			Flags:   quiet + "20s -listen LISTEN",
			Script:  "4s: scale web 14\n8s: show /metrics workqueue_depth",
			Seconds: 11,
			Symptom: "Our alert on workqueue_depth fires although all workers are idle. A key is counted as waiting " +
				"for a worker, while it only waits for the end of the 20 s after its last write.",
			Hints: [2]string{
				"`monitoring.md` says what the metric counts.",
				"internal/view/observe counts the keys of a queue by what they wait for.",
			},
			Rule:  "`workqueue_depth` counts only keys that wait for a worker, not those that wait for an `-interval`.",
			Page:  "docs/run/monitoring.md",
			Shows: func(r Record) bool { return r.has(`workqueue_depth\{name="pod-count"\} [1-9]`) },
		},
		{
			Mutant: "write-leaves-a-goroutine",
			Level:  Hard,
			Flags:  quiet + "1s -listen LISTEN",
			Script: "4s: show /metrics go_goroutines\n" +
				alternating(5, 18, time.Second, "scale web 8", "scale web 10", "scale web 13") +
				"\n21s: show /metrics go_goroutines",
			Seconds: 24,
			Symptom: "podcount's memory grows slowly, day by day, and faster on clusters where more happens. The " +
				"metric go_goroutines grows with it, by one for each label that is written.",
			Hints: [2]string{
				"What is done once for each write, by both controllers?",
				"internal/control/brakes has the one way to write to an object.",
			},
			Rule: "Every wait ends with a context or a limit.",
			Page: "docs/change/internals.md",
			Known: &Known{
				"https://github.com/kubernetes/kubernetes/issues/33186",
				"The federation's service controller leaked goroutines.",
			},
			Shows: func(r Record) bool {
				found := r.numbers(`go_goroutines (\d+)`)
				return len(found) == 2 && found[1] >= found[0]+7
			},
		},
	}
}

// fight returns steps of a script in which another client writes a wrong label each second.
func fight(from, to int) string {
	return alternating(from, to, time.Second,
		`send PATCH /api/v1/nodes/control-plane {"metadata": {"labels": {"hopegi/pod-count": "101"}}}`,
		`send PATCH /api/v1/nodes/control-plane {"metadata": {"labels": {"hopegi/pod-count": "102"}}}`)
}

// last returns the last number, or 0 if there is none.
func last(numbers []int) int {
	if len(numbers) == 0 {
		return 0
	}
	return numbers[len(numbers)-1]
}
