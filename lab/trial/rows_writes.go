package trial

import (
	"crypto/rand"
	"fmt"
	"time"

	"podcount/lab/fakekube"
)

var writesFail = []Row{
	{
		Name:    "busy node",
		Happens: "Someone else writes another label of a node, ten times a second for 17 s.",
		Why:     "kubelets, operators and autoscalers write the same node all the time.",
		Report:  "https://github.com/NVIDIA/gpu-operator/pull/1873",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			s.change()
			s.writeOtherLabel(10 * time.Second)
			s.awaitRight(Wrong, time.Now(), usualLimit, "a change")
			s.writeOtherLabel(2 * time.Second) // what is late may still come
			begin := time.Now()
			s.writeOtherLabel(5 * time.Second)
			s.mustNotWrite(begin)
		},
	},
	{
		Name:    "answer lost",
		Happens: "A write takes effect, but its answer is lost, twice.",
		Why:     "A connection breaks after the server has stored the write.",
		Report:  "https://github.com/patroni/patroni/pull/3174",
		play:    func(s *scene) { s.onWrites("write WRITES, 2 times: drop answer") },
	},
	{
		Name:    "write 409",
		Happens: "A write is refused as a conflict, three times.",
		Why:     "kubelets and other controllers write the same node at the same time.",
		Report:  "https://github.com/kubernetes-sigs/node-feature-discovery/issues/122",
		play:    func(s *scene) { s.onWrites("write WRITES, 3 times: refuse 409") },
	},
	{
		Name:    "write 422",
		Happens: "A policy refuses the writes of one node, which must not hold up the other node.",
		Why:     "A policy or a webhook refuses the writes of one object, perhaps for good.",
		Report:  "https://github.com/kubernetes-sigs/aws-load-balancer-controller/pull/126",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			fault := s.onOneNode(fakekube.Always, fakekube.Refuse{Code: 422, Message: "not before tonight"}, 0)
			s.change()
			s.otherNodeWithin(15 * time.Second)
			s.pause(5 * time.Second)
			s.say("ends the policy")
			fault.Lift()
		},
	},
	{
		Name:    "write 429",
		Happens: "A write is refused with 429 and Retry-After: 1, three times.",
		Why:     "A server under load refuses writes, too.",
		Report:  "https://github.com/kubernetes/client-go/issues/222",
		play:    func(s *scene) { s.onWrites("write WRITES, 3 times: refuse 429 retry-after 1s") },
	},
	{
		Name:    "write 500",
		Happens: "A write fails with 500, three times.",
		Why:     "When etcd changes its leader, a write can time out.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/82960",
		play:    func(s *scene) { s.onWrites("write WRITES, 3 times: refuse 500") },
	},
	{
		Name:    "slow webhook",
		Happens: "A write of one node takes 20 s, which must not hold up the other node.",
		Why:     "A webhook may take up to 30 s for each write that it sees.",
		Report:  "https://github.com/dapr/dapr/issues/2993",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			s.onOneNode(1, nil, 20*time.Second)
			s.change()
			s.otherNodeWithin(15 * time.Second)
			s.pause(20 * time.Second)
		},
	},
	{
		Name:    "node recreated",
		Happens: "A node is deleted, and created again under its name.",
		Why:     "Clouds bring up a replacement under the name of the old node.",
		Report:  "https://github.com/kubernetes/cloud-provider-vsphere/issues/397",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			node := s.counting.nodes[0]
			s.say("deletes the node %s, and creates it again", node)
			s.cluster.removeNode(node)
			s.cluster.addNode(node, true)
		},
	},
	{
		Name:    "fight",
		Happens: "Someone else writes another number, again and again for 10 s.",
		Why:     "Two programs believe that the same field is theirs.",
		Report:  "https://github.com/stacklok/toolhive/issues/5730",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			for i := range 20 {
				s.counting.overwrite(s.counting.nodes[0], fmt.Sprint(90000+i))
				s.pause(500 * time.Millisecond)
			}
		},
	},
}

var credentials = []Row{
	{
		Name:    "token rotated",
		Happens: "The token becomes invalid. The new one is in the files.",
		Why:     "Tokens expire within hours, and the kubelet writes a new one to the file in time.",
		Report:  "https://github.com/VictoriaMetrics/VictoriaLogs/issues/995",
		needs:   needsFake | needsCredential,
		limit:   tokenLimit,
		play: func(s *scene) {
			p := s.start()
			secondToken := rand.Text()
			s.say("writes the new token to the files, and makes the old one invalid")
			p.writeCredential(s, secondToken)
			s.fake.Allow(secondToken)
			s.breakConnections()
			s.change()
		},
	},
	{
		Name:    "unauthorized",
		Happens: "For 10 s, the server refuses each request with 401, though the token is right.",
		Why:     "A server that has just started refuses tokens that are right, as does one whose token review is down.",
		Report:  "https://github.com/patroni/patroni/issues/2536",
		play: func(s *scene) {
			s.start()
			lift := s.script("*, always: refuse 401")
			s.breakConnections()
			s.change()
			s.pause(10 * time.Second)
			s.timeline.add("server", "knows the token again")
			lift()
		},
	},
	{
		Name:    "forbidden",
		Happens: "The program lacks the right to write for 10 s (403).",
		Why:     "The roles of a program are often created or mended after it has started.",
		Report:  "https://github.com/patroni/patroni/issues/3536",
		play: func(s *scene) {
			s.start()
			lift := s.script("write WRITES, always: refuse 403")
			s.change()
			s.pause(10 * time.Second)
			s.say("grants the right")
			lift()
		},
	},
}

var itself = []Row{
	{
		Name:    "stop",
		Happens: "The program gets a SIGTERM.",
		Why:     "Kubernetes stops a program at each upgrade, eviction and drain, and kills it if it takes too long.",
		Report:  "https://github.com/traefik/mesh/issues/627",
		play: func(s *scene) {
			p := s.start()
			s.stop(p)
		},
	},
	{
		Name:    "stop at the start",
		Happens: "The program gets a SIGTERM while its first list is not answered.",
		Why:     "A pod is replaced while it still fills its cache.",
		Report:  "https://github.com/openshift/router/pull/383",
		play: func(s *scene) {
			s.script("*, always: stall")
			p := s.startEarly()
			s.pause(3 * time.Second)
			s.stop(p)
		},
	},
	{
		Name:    "stop without server",
		Happens: "The program gets a SIGTERM while the server is down.",
		Why:     "A drain or a repair stops programs while the control plane is away.",
		Report:  "https://github.com/prometheus-operator/prometheus-operator/issues/129",
		play: func(s *scene) {
			p := s.start()
			s.down()
			s.pause(5 * time.Second)
			s.stop(p)
		},
	},
	{
		Name:    "killed",
		Happens: "The program is killed as its first write arrives, and started again.",
		Why:     "A node dies, or the kernel kills a process, between two writes.",
		Report:  "https://github.com/rabbitmq/cluster-operator/issues/782",
		play: func(s *scene) {
			s.start()
			lift := s.script("write WRITES, always: drop request")
			s.change()
			s.awaitHit(10 * time.Second)
			s.say("kills the program")
			s.instances[0].process.kill()
			<-s.instances[0].process.done()
			lift()
			s.startEarly()
		},
	},
	{
		Name:    "run twice",
		Happens: "Two of the program run at once, without electing a leader.",
		Why:     "A rolling update starts the new pod before it stops the old one.",
		Report:  "https://github.com/operator-framework/operator-lifecycle-manager/pull/3133",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			s.startEarly()
			for range 3 {
				s.change()
				s.pause(2 * time.Second)
			}
			s.faultEnds()
			s.awaitRight(Wrong, s.endedAt, usualLimit, "the changes")
			s.pause(5 * time.Second)
			s.mustBeCalm(10 * time.Second)
		},
	},
	{
		Name:    "20,000 pods",
		Happens: "The cluster has 20,000 pods, and they change.",
		Why:     "Clusters grow, and finished pods of Jobs stay for days.",
		Report:  "https://github.com/flyteorg/flyte/pull/7837",
		needs:   needsFake | needsPods,
		play: func(s *scene) {
			s.manyPods(20000)
			s.start()
			s.change()
			s.faultEnds()
			s.awaitRight(Wrong, s.endedAt, usualLimit, "a change")
			s.mustNotPoll(15 * time.Second)
		},
	},
}

var company = []Row{
	{
		Name:    "two replicas",
		Happens: "Of two replicas one works. It stops, and the other one takes over.",
		Why:     "Controllers run in pairs, and at each update the leader must hand over.",
		Report:  "https://github.com/cloudnative-pg/plugin-barman-cloud/pull/615",
		needs:   needsElection | needsPods,
		play: func(s *scene) {
			s.start()
			s.startEarly()
			s.change()
			s.pause(10 * time.Second)
			leader := s.leader()
			s.say("stops the %s, which leads", leader.who)
			leader.process.terminate()
			s.pause(time.Second)
			s.change()
		},
	},
	{
		Name:    "paused leader",
		Happens: "The leader is frozen for 40 s, and works on afterwards.",
		Why:     "A machine is suspended, migrated or out of CPU, and its processes do not know.",
		Report:  "https://github.com/cilium/cilium/pull/42920",
		needs:   needsElection | needsProcess | needsPods,
		play: func(s *scene) {
			s.start()
			s.startEarly()
			s.pause(5 * time.Second)
			leader := s.leader()
			s.say("freezes the %s, which leads", leader.who)
			leader.process.freeze()
			s.change()
			s.pause(40 * time.Second)
			s.say("lets it go on")
			leader.process.thaw()
			s.change()
			s.faultEnds()
			s.pause(10 * time.Second)
		},
	},
	{
		Name:    "foreign leader",
		Happens: "Someone else holds the Lease for 20 s, and then goes away.",
		Why:     "A standby must wait, however long another one leads.",
		Report:  "https://github.com/kubernetes-sigs/kueue/pull/5848",
		needs:   needsElection | needsPods,
		play: func(s *scene) {
			s.say("takes the Lease as somebody-else")
			s.cluster.hold("somebody-else")
			s.startEarly()
			s.change()
			for range 10 {
				s.pause(2 * time.Second)
				if holder := s.cluster.holder(); holder != "somebody-else" {
					s.end(Intruded, "%q took the Lease, which somebody-else had renewed 2 s before", holder)
				}
				s.cluster.hold("somebody-else")
			}
			s.checkLease()
			s.say("goes away")
		},
	},
}
