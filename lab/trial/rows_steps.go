package trial

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// Steps returns rows for a program that is not yet a controller, or more than the trial asks for. A course can lead its
// students through them. They need the fake.
//
// The first ones are for a program that does its work once, and ends: with the exit code 0, or with another one if it
// could not do it.
func Steps() []Row {
	rows := slices.Clone(steps)
	for i := range rows {
		rows[i].Group = "steps"
		rows[i].needs |= needsFake | needsPods
	}
	return rows
}

// onceLimit is how long a program may take that does its work once.
const onceLimit = 20 * time.Second

var steps = []Row{
	{
		Name:    "prints",
		Happens: "The program counts 7 pods in two namespaces, prints the number, and ends.",
		Why:     "A list without a namespace asks for those of all namespaces.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/#standard-api-terminology",
		play: func(s *scene) {
			s.manyPods(4)
			p := s.once()
			s.wantCode(p, true)
			if !hasWord(p.process.output(), s.counting.truth()) {
				s.end(Unlike, "it has printed %q, and there are %s pods", p.process.output(), s.counting.truth())
			}
			s.end(Right, "it has printed the number")
		},
	},
	{
		Name:    "no answer is no number",
		Happens: "The list is refused with 503. The program says why, and ends.",
		Why:     "A refusal is JSON, too, and as a list it has no pods.",
		Report:  "https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/",
		play: func(s *scene) {
			s.script("relist READS, always: refuse 503")
			p := s.once()
			s.wantCode(p, false)
			switch {
			case hasWord(p.process.output(), "0"):
				s.end(Unlike, "it has printed %q, and there are %s pods", p.process.output(), s.counting.truth())
			case !strings.Contains(p.process.output(), "503"):
				s.end(Unlike, "it has printed %q, and not that the server has answered 503", p.process.output())
			}
			s.end(Right, "it has said why")
		},
	},
	{
		Name:    "labels",
		Happens: "The program writes the number of pods to a label of each control-plane node, and ends.",
		Why:     "The number is for others, and a label is where they look for it.",
		Report:  "https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/",
		play: func(s *scene) {
			s.wantCode(s.once(), true)
			s.wantRight()
			s.end(Right, "the labels are right")
		},
	},
	{
		Name:    "others' labels stay",
		Happens: "While the program writes, someone else writes another label of the same nodes.",
		Why:     "Others write the same nodes, such as kubelets. Whoever writes a whole node undoes what they have written.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/#patch-and-apply",
		play: func(s *scene) {
			p := s.held(func(node string) { s.cluster.setLabel(node, otherLabel, "kept") })
			s.wantCode(p, true)
			s.wantRight()
			for _, node := range s.counting.nodes {
				if fakekube.TextIn(s.node(node), "metadata", "labels", otherLabel) != "kept" {
					s.end(Unlike, "%s has lost the label %s, which someone else has written meanwhile", node, otherLabel)
				}
			}
			s.end(Right, "nothing of others was undone")
		},
	},
	{
		Name:    "a node is gone",
		Happens: "A node is removed before its write arrives (404). The other one gets its label.",
		Why:     "Nodes come and go, and what was true in the list may be over.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/",
		play: func(s *scene) {
			isFirst := true
			p := s.held(func(node string) {
				if isFirst {
					s.say("removes %s", node)
					s.cluster.removeNode(node)
					s.counting.nodes = without(s.counting.nodes, node)
				}
				isFirst = false
			})
			s.wantCode(p, true)
			s.wantRight()
			s.end(Right, "the other node is right")
		},
	},
	{
		Name:    "another node",
		Happens: "A node is replaced by another one of the same name before its write arrives.",
		Why:     "A name may come again, and a uid never does. What was meant for one node must not reach another.",
		Report:  "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#uids",
		play: func(s *scene) {
			s.held(s.replace)
			for _, node := range s.counting.nodes {
				s.wantNoLabel(node)
			}
			s.end(Right, "the new nodes got nothing that was not meant for them")
		},
	},
	{
		Name:    "says why not",
		Happens: "The writes are forbidden (403). The program says so in the server's words, and ends.",
		Why:     "The server knows which right is missing.",
		Report:  "https://kubernetes.io/docs/reference/access-authn-authz/authorization/",
		play: func(s *scene) {
			const message = "the user trial cannot patch nodes"
			s.script(fmt.Sprintf("write WRITES, always: refuse 403 message %q", message))
			p := s.once()
			s.wantCode(p, false)
			if !strings.Contains(p.process.output(), message) {
				s.end(Unlike, "it has printed %q, and not what the server has said: %s", p.process.output(), message)
			}
			s.end(Right, "it has said why")
		},
	},
	{
		Name:    "at once",
		Happens: "Pods change, and 2 s later the labels must be right.",
		Why:     "Who asks again and again is late, or asks too often. The server tells who watches.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes",
		play: func(s *scene) {
			s.start()
			for range 3 {
				s.pause(time.Second)
				s.change()
				s.awaitRight(Unlike, time.Now(), 2*time.Second, "a change")
			}
			s.faultEnds()
		},
	},
	{
		Name:    "resumes",
		Happens: "The server ends all watches, four times. The program must not list all pods for each of them.",
		Why:     "A watch can go on from the version of the last event. A list of everything costs the server far more.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes",
		play: func(s *scene) {
			s.start()
			begin := time.Now()
			for range 4 {
				s.endWatches()
				s.change()
				s.pause(3 * time.Second)
			}
			lists := fakekube.Requests{Verb: "relist", Resource: s.reads}
			if n := len(s.sentAfter(begin, s.instances[0], lists)); n > 1 {
				s.end(Unlike, "it has asked for all pods %d times, although its versions were still good", n)
			}
		},
	},
	{
		Name:    "asked to wait",
		Happens: "A request is refused with 429 and Retry-After: 10. The next one for the same must not come before that.",
		Why:     "The server knows when it has time again.",
		Report:  "https://kubernetes.io/docs/concepts/cluster-administration/flow-control/",
		play: func(s *scene) {
			s.start()
			isRead := func(q fakekube.Request) bool { return q.Verb == "list" || q.Verb == "watch" }
			on := fakekube.Requests{Resource: s.reads, If: isRead}
			s.inject(fakekube.Fault{On: on, Do: fakekube.Refuse{Code: 429, RetryAfter: 10 * time.Second}})
			s.breakConnections()
			if !s.await(onceLimit, func() bool { return s.hits.Load() > 0 }) {
				s.end(Unlike, "it has not asked for pods within %s after its connections had broken", onceLimit)
			}
			begin := time.Now()
			s.pause(9 * time.Second)
			if n := len(s.sentAfter(begin, s.instances[0], on)); n > 0 {
				s.end(Unlike, "it has asked %d times in 9 s, although the server has said Retry-After: 10", n)
			}
		},
	},
	{
		Name:    "changes while it writes",
		Happens: "A write takes 2 s, and pods change meanwhile. 20 s later all must be right.",
		Why:     "Whoever forgets that something has changed while it was at work is wrong until it looks again.",
		Report:  "https://pkg.go.dev/k8s.io/client-go/util/workqueue",
		play: func(s *scene) {
			s.start()
			lift := s.script("write WRITES, always: delay 2s")
			s.change()
			s.awaitHit(usualLimit)
			s.pause(300 * time.Millisecond)
			s.change()
			s.awaitRight(Unlike, time.Now(), 20*time.Second, "a change")
			lift()
		},
	},
	{
		Name:    "replaced while it writes",
		Happens: "A node is replaced by another one of the same name before a write arrives. The new one must not get it.",
		Why:     "A write says what was true of one object. A uid says of which.",
		Report:  "https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#uids",
		play: func(s *scene) {
			s.start()
			node := s.counting.nodes[0]
			s.script("write WRITES " + node + ": delay 3s")
			lift := s.script("write WRITES " + node + ", always: refuse 500")
			s.change()
			s.awaitHit(usualLimit)
			s.replace(node)
			s.pause(5 * time.Second)
			s.wantNoLabel(node)
			s.say("lets further writes through")
			lift()
		},
	},
	{
		Name:    "no list",
		Happens: "The first list is answered with JSON that is no list, three times.",
		Why:     "A proxy may answer in place of the server, and most JSON can be decoded as a list without items.",
		Report:  "https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris",
		play: func(s *scene) {
			s.atTheStart(`relist READS, 3 times: reply 200 header Content-Type application/json body "{\"error\":\"log in\"}"`)
		},
	},
	{
		Name:    "patient",
		Happens: "For 90 s each request fails with 500. In the last 30 s, the program must not send more than 15.",
		Why:     "A server that is sick gets well sooner if its clients ask less and less often.",
		Report:  "https://kubernetes.io/docs/concepts/cluster-administration/flow-control/",
		play: func(s *scene) {
			s.start()
			lift := s.script("*, always: refuse 500")
			s.breakConnections()
			s.pause(60 * time.Second)
			begin := time.Now()
			s.pause(30 * time.Second)
			if n := len(s.sentAfter(begin, s.instances[0], fakekube.Requests{})); n > 15 {
				s.end(HotLoop, "it has sent %d requests in the last 30 s of an outage", n)
			}
			lift()
		},
	},
	{
		Name:    "demoted",
		Happens: "A node is no longer a control-plane node. It must lose the label.",
		Why:     "What should not be there is as wrong as a wrong number.",
		Report:  "https://kubernetes.io/docs/concepts/architecture/controller/#desired-vs-current",
		play: func(s *scene) {
			s.start()
			node := s.counting.nodes[1]
			s.say("makes %s a worker", node)
			s.counting.nodes = without(s.counting.nodes, node)
			s.cluster.setLabel(node, controlPlane, "")
			if !s.await(usualLimit, func() bool { return s.cluster.labels()[node] == "" }) {
				s.end(Wrong, "%s still has the label %q, and is no control-plane node", node, s.cluster.labels()[node])
			}
		},
	},
	{
		Name:    "own pods",
		Happens: "Pods get a place on a node, and some of them go. Its other label says how many pods it has.",
		Why:     "One change may concern an object of another kind, and an index finds out which.",
		Report:  "https://kubernetes.io/docs/concepts/scheduling-eviction/kube-scheduler/",
		play: func(s *scene) {
			s.start()
			for _, pod := range s.counting.pods {
				s.bind(pod, "worker")
			}
			s.wantOwn("worker", "3")
			s.change()
			s.wantOwn("worker", "0")
			s.bind(s.counting.pods[0], s.counting.nodes[0])
			s.wantOwn(s.counting.nodes[0], "1")
			s.wantOwn(s.counting.nodes[1], "0")
		},
	},
	{
		Name:    "an Event",
		Happens: "A label changes, and an Event of that node says so.",
		Why:     "kubectl describe shows Events, so that people see who has done what.",
		Report:  "https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/",
		play: func(s *scene) {
			s.start()
			s.change()
			node := s.counting.nodes[0]
			var problem string
			if !s.await(usualLimit, func() bool { problem = s.eventProblem(node); return problem == "" }) {
				s.end(Wrong, "%s", problem)
			}
			s.say("there is an Event of %s", node)
		},
	},
	{
		Name:    "stopped while it writes",
		Happens: "The program gets a SIGTERM while the server has not answered its write. It waits for the answer, and ends.",
		Why:     "Whoever is cut off in the middle does not know what has been done.",
		Report:  "https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/#pod-termination",
		play: func(s *scene) {
			p := s.start()
			s.script("write WRITES, always: delay 3s")
			s.change()
			s.awaitHit(usualLimit)
			s.say("sends a SIGTERM")
			s.mayEnd = true
			p.process.terminate()
			s.awaitEnd(p)
			s.wantCode(p, true)
			s.pause(5 * time.Second)
			if n := p.recorder.abandoned(); n > 0 {
				s.end(Unlike, "it has ended before %d of its requests were answered", n)
			}
			s.end(Right, "it has ended what it had begun")
		},
	},
	{
		Name:    "cannot renew",
		Happens: "The leader cannot renew its Lease. The other replica takes that, and the old leader must not write.",
		Why:     "A leader cannot know that another one leads. It must stop by itself before that can be.",
		Report:  "https://kubernetes.io/docs/concepts/architecture/leases/",
		needs:   needsElection,
		play: func(s *scene) {
			s.start()
			s.startEarly()
			s.pause(5 * time.Second)
			leader := s.leader()
			s.say("lets no write of the Lease by the %s through", leader.who)
			s.script("write leases at " + leader.host + ", always: refuse 500")
			before := s.cluster.holder()
			hasPassed := func() bool { return s.cluster.holder() != before }
			if !s.await(usualLimit, hasPassed) {
				s.end(NoLease, "%s after the last renewal, the other replica has not taken the Lease", usualLimit)
			}
			for range 3 {
				s.change()
				s.pause(5 * time.Second)
			}
		},
	},
	{
		Name:    "another clock",
		Happens: "Someone else holds the Lease and renews it, with a clock that is an hour late.",
		Why:     "The times in a Lease come from the clock of another machine.",
		Report:  "https://kubernetes.io/docs/concepts/architecture/leases/",
		needs:   needsElection,
		play: func(s *scene) {
			const other = "somebody-else"
			hold := func() {
				lease := leaseOf(leaseName, other)
				lease["spec"].(fakekube.Object)["renewTime"] = time.Now().UTC().Add(-time.Hour).Format(leaseTime)
				s.fake.Put("leases", lease)
			}
			s.say("takes the Lease as %s", other)
			hold()
			s.startEarly()
			for range 10 {
				s.pause(2 * time.Second)
				if holder := s.cluster.holder(); holder != other {
					s.end(Intruded, "%q took the Lease, which %s had renewed 2 s before", holder, other)
				}
				hold()
			}
			s.say("goes away")
		},
	},
	{
		Name:    "hands over",
		Happens: "Of two replicas the leader is stopped. The other one must lead 8 s later.",
		Why:     "A leader that stops can give the Lease back. Otherwise the others wait until it is over.",
		Report:  "https://kubernetes.io/docs/concepts/architecture/leases/",
		needs:   needsElection,
		play: func(s *scene) {
			s.start()
			s.startEarly()
			s.pause(5 * time.Second)
			leader := s.leader()
			before := s.cluster.holder()
			s.say("stops the %s, which leads", leader.who)
			leader.process.terminate()
			hasPassed := func() bool { return s.cluster.holder() != "" && s.cluster.holder() != before }
			if !s.await(8*time.Second, hasPassed) {
				s.end(Unlike, "8 s after the stop, the Lease still names %q, and nobody else leads", s.cluster.holder())
			}
		},
	},
}

// otherLabel is a label that is not the program's.
const otherLabel = "trial.podcount.dev/other"

// once starts a program that ends by itself, and waits for its end.
func (s *scene) once() *instance {
	s.mayEnd = true
	p := s.startEarly()
	s.awaitEnd(p)
	return p
}

// held starts a program that ends by itself. When its first write of a node has been sent, meanwhile is called with
// each node, in the order in which a list has them. The writes arrive after that. held waits for the program's end.
func (s *scene) held(meanwhile func(node string)) *instance {
	s.script("write WRITES, always: delay 2s")
	s.mayEnd = true
	p := s.startEarly()
	if !s.await(onceLimit, func() bool { return s.hits.Load() > 0 }) {
		s.end(Unlike, "it has sent no write to a node within %s", onceLimit)
	}
	for _, node := range slices.Clone(s.counting.nodes) {
		meanwhile(node)
	}
	s.awaitEnd(p)
	return p
}

// awaitEnd waits for the end of a program. It ends the row if that takes too long.
func (s *scene) awaitEnd(p *instance) {
	if !s.await(onceLimit, p.hasEnded) {
		s.end(NotStopped, "it still ran after %s", onceLimit)
	}
	s.look()
}

// wantCode ends the row unless the program has ended with the exit code 0, or with another one if it has failed.
func (s *scene) wantCode(p *instance, isDone bool) {
	code := p.process.code()
	s.timeline.add(p.who, "has ended with the exit code %d", code)
	switch {
	case isDone && code != 0:
		s.end(Unlike, "the exit code is %d, and 0 would say that all was done", code)
	case !isDone && code == 0:
		s.end(Unlike, "the exit code is 0, although the program could not do its work")
	}
}

// wantRight ends the row unless the labels are right now.
func (s *scene) wantRight() {
	if s.look(); s.problem != nil {
		s.end(Unlike, "%v", s.problem)
	}
}

// node returns a node.
func (s *scene) node(name string) fakekube.Object {
	return s.fake.Get("nodes", fakekube.Key{Name: name})
}

// replace lets another node take the place and the name of one.
func (s *scene) replace(node string) {
	s.say("replaces %s", node)
	s.cluster.removeNode(node)
	s.cluster.addNode(node, true)
}

// wantNoLabel ends the row if a node that has replaced another one got the label that was meant for that.
func (s *scene) wantNoLabel(node string) {
	if value := s.cluster.labels()[node]; value != "" {
		s.end(Unlike, "the new %s got the label %q, which was meant for the node before it", node, value)
	}
}

// bind gives a pod a place on a node.
func (s *scene) bind(pod, node string) {
	s.say("gives %s a place on %s", pod, node)
	key, _ := placeOf(pod)
	s.fake.Edit("pods", key, func(o fakekube.Object) { o["spec"].(fakekube.Object)["nodeName"] = node })
}

// wantOwn waits until the label for the number of a node's own pods has a value. It ends the row if it does not get it.
func (s *scene) wantOwn(node, want string) {
	key := s.instances[0].NodeLabel
	got := ""
	hasIt := s.await(usualLimit, func() bool {
		got = fakekube.TextIn(s.node(node), "metadata", "labels", key)
		return got == want
	})
	if !hasIt {
		s.end(Wrong, "the label %s of %s is %q, and it has %s pods", key, node, got, want)
	}
	s.say("the label %s of %s is %q", key, node, want)
}

// eventProblem says why there is no Event of a node. It returns "" if there is one.
func (s *scene) eventProblem(node string) string {
	problem := "there is no Event"
	uid := fakekube.TextIn(s.node(node), "metadata", "uid")
	for _, e := range s.fake.All("events") {
		about := func(field string) string { return fakekube.TextIn(e, "involvedObject", field) }
		switch {
		case about("kind") == "" || about("name") == "":
			problem = "there is an Event whose involvedObject lacks the kind or the name"
		case about("kind") != "Node" || about("name") != node:
			problem = fmt.Sprintf("there is an Event of the %s %q, and none of the Node %s", about("kind"), about("name"), node)
		case about("uid") != uid:
			problem = fmt.Sprintf("there is an Event of %s with the uid %q, and that node has %s", node, about("uid"), uid)
		default:
			return ""
		}
	}
	return problem
}

// hasWord reports whether a number stands by itself in a short line of a text. A long one is no answer for people, such
// as the JSON of a list.
func hasWord(text, number string) bool {
	word := regexp.MustCompile(`(^|[^0-9.])` + number + `($|[^0-9.])`)
	for line := range strings.Lines(text) {
		if len(line) <= 120 && word.MatchString(line) {
			return true
		}
	}
	return false
}

// without returns the names but one.
func without(names []string, unwanted string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == unwanted })
}
