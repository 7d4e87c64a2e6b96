package trial

import (
	"fmt"
	"time"

	"podcount/lab/fakekube"
)

// html is what a proxy answers that knows no API.
const html = `reply 200 header Content-Type text/html body "<!doctype html><title>Please log in</title>"`

var calm = []Row{
	{
		Name:    "counts",
		Happens: "The program starts in a cluster with pods and nodes.",
		Why:     "A controller is installed in a cluster that has objects already, and starts again at each upgrade.",
		Report:  "https://github.com/kudobuilder/kudo/issues/57",
		play: func(s *scene) {
			s.startEarly()
			s.faultEnds()
		},
	},
	{
		Name:    "follows",
		Happens: "Pods come and go, a few at a time and many at once.",
		Why:     "Rollouts and Jobs create and delete many pods at once.",
		Report:  "https://github.com/nolar/kopf/issues/718",
		play: func(s *scene) {
			s.start()
			for range 5 {
				s.change()
				s.pause(2 * time.Second)
			}
		},
	},
	{
		Name:    "quiet",
		Happens: "Nothing changes for 30 s.",
		Why:     "A cluster rests most of the time, and a needless write wakes its own writer again.",
		Report:  "https://github.com/Altinity/clickhouse-operator/issues/1413",
		play: func(s *scene) {
			s.start()
			s.change()
			s.faultEnds()
			s.awaitRight(Wrong, s.endedAt, usualLimit, "a change")
			s.pause(5 * time.Second) // what is late may still come
			s.mustBeCalm(30 * time.Second)
		},
	},
	{
		Name:    "overwritten",
		Happens: "Someone else changes one label and removes another.",
		Why:     "People and other tools edit what a controller has made.",
		Report:  "https://github.com/Altinity/clickhouse-operator/issues/1517",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			s.counting.overwrite(s.counting.nodes[0], "4711")
			s.counting.overwrite(s.counting.nodes[1], "")
		},
	},
	{
		Name:    "new node",
		Happens: "A control-plane node joins the cluster.",
		Why:     "An autoscaler adds nodes at any time, often several at once.",
		Report:  "https://github.com/hetznercloud/hcloud-cloud-controller-manager/issues/1035",
		needs:   needsPods,
		play: func(s *scene) {
			s.start()
			s.say("adds the node %scp-3", s.prefix)
			s.cluster.addNode(s.prefix+"cp-3", true)
			s.counting.nodes = append(s.counting.nodes, s.prefix+"cp-3")
		},
	},
}

var watchesEnd = []Row{
	{
		Name:    "watch ended",
		Happens: "The server ends all watches, five times.",
		Why:     "The server ends every watch after some minutes, and an upgrade of the control plane ends all of them.",
		Report:  "https://github.com/piraeusdatastore/piraeus-ha-controller/issues/2",
		play: func(s *scene) {
			s.start()
			for range 5 {
				s.endWatches()
				s.change()
				s.pause(2 * time.Second)
			}
		},
	},
	{
		Name:    "watch cut",
		Happens: "The connection of a watch breaks in the middle of an event.",
		Why:     "A server or proxy that dies while it writes leaves half an event in the stream.",
		Report:  "https://github.com/kubernetes-client/javascript/issues/249",
		play: func(s *scene) {
			s.inject(fakekube.Fault{On: s.onWatch(), Times: 2, Do: fakekube.Cut{After: 100}})
			s.start()
			for range 3 {
				s.change()
				s.pause(3 * time.Second)
			}
		},
	},
	{
		Name:    "watch half-open",
		Happens: "The connections die without a sign: no event comes any more, and no error.",
		Why:     "A load balancer, NAT or firewall forgets a connection, and tells neither end.",
		Report:  "https://github.com/nolar/kopf/pull/1267",
		limit:   silentLimit,
		play: func(s *scene) {
			s.start()
			s.pause(time.Second)
			s.timeline.add("server", "cannot be reached over the open connections; new ones work")
			for _, p := range s.instances {
				p.net.GoSilent()
			}
			s.change()
		},
	},
	{
		Name:    "watch unanswered",
		Happens: "A watch breaks, and the request for the next one is never answered.",
		Why:     "A proxy or an overloaded server accepts the request, and never sends the headers of an answer.",
		Report:  "https://github.com/fabric8io/kubernetes-client/issues/6071",
		limit:   silentLimit,
		play: func(s *scene) {
			s.start()
			s.script("watch READS: stall")
			s.breakConnections()
			s.awaitHit(10 * time.Second)
			s.change()
		},
	},
	{
		Name:    "watch too old",
		Happens: "The program is cut off, and its version is too old afterwards: the server refuses with 410.",
		Why:     "A server keeps only the last changes, and refuses a version that is older.",
		Report:  "https://github.com/dotnet/dotnet-operator-sdk/issues/793",
		needs:   needsFake,
		play:    func(s *scene) { s.tooOld(fakekube.Refuse{Code: 410}) },
	},
	{
		Name:    "watch expired",
		Happens: "As before, but the 410 comes as an ERROR event of the watch.",
		Why:     "etcd keeps about five minutes of history, and a slow watch gets this event.",
		Report:  "https://github.com/obmarg/kazan/pull/76",
		needs:   needsFake,
		play: func(s *scene) {
			s.tooOld(fakekube.Reply{Body: `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},` +
				`"status":"Failure","message":"too old resource version: 1 (99)","reason":"Expired","code":410}}` + "\n"})
		},
	},
	{
		Name:    "bookmarks",
		Happens: "Other objects change while the program's watches only get bookmarks; then all watches end.",
		Why:     "A watch of a quiet kind would keep an old version while the rest of the cluster moves on.",
		Report:  "https://github.com/kubernetes-client/python/issues/1729",
		needs:   needsFake,
		play: func(s *scene) {
			s.fake.Bookmarks = 2 * time.Second
			s.start()
			for i := range 100 {
				s.fake.Put("configmaps", fakekube.Object{
					"metadata": fakekube.Object{"namespace": "default", "name": fmt.Sprint("other-", i)},
				})
			}
			s.pause(5 * time.Second)
			s.say("compacts the history")
			s.fake.Compact()
			s.endWatches()
			s.change()
		},
	},
}

var listsFail = []Row{
	{
		Name:    "list refused",
		Happens: "The first list is refused with 503, three times.",
		Why:     "A server that is starting, or the proxy before it, refuses everything for a while.",
		Report:  "https://github.com/kubernetes-retired/service-catalog/issues/2648",
		play: func(s *scene) {
			s.atTheStart("relist READS, 3 times: refuse 503")
		},
	},
	{
		Name:    "list 429",
		Happens: "The first list is refused with 429 and Retry-After: 1, three times.",
		Why:     "A server under load refuses some of the clients, and tells them when to come again.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/26871",
		play:    func(s *scene) { s.atTheStart("relist READS, 3 times: refuse 429 retry-after 1s") },
	},
	{
		Name:    "list cut",
		Happens: "The connection breaks in the middle of the first list, twice.",
		Why:     "A long list takes more time than the server grants, which then breaks the answer off.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/51353",
		play: func(s *scene) {
			s.manyPods(50)
			s.atTheStart("relist READS, 2 times: cut after 300 bytes")
		},
	},
	{
		Name:    "list truncated",
		Happens: "The first list ends in its middle as if that were its end, twice.",
		Why:     "A proxy cuts an answer short and ends it as if it were whole, or a client drops the error.",
		Report:  "https://github.com/gardener/external-dns-management/pull/177",
		play: func(s *scene) {
			s.manyPods(50)
			s.atTheStart("relist READS, 2 times: truncate")
		},
	},
	{
		Name:    "list garbage",
		Happens: "A proxy answers the first list with a page of HTML and 200, three times.",
		Why:     "A load balancer or a login page answers in place of the server.",
		Report:  "https://github.com/kubernetes-client/java/issues/849",
		play:    func(s *scene) { s.atTheStart("relist READS, 3 times: " + html) },
	},
	{
		Name:    "list unanswered",
		Happens: "The first list is never answered, and neither refused nor cut.",
		Why:     "In a big cluster, a list can take longer than anybody waits, and some clients wait for ever.",
		Report:  "https://github.com/prometheus-operator/prometheus-operator/pull/4143",
		limit:   silentLimit,
		play:    func(s *scene) { s.atTheStart("relist READS: stall") },
	},
	{
		Name:    "pages expire",
		Happens: "A list of 2,500 pods, and its second page, if asked for, is refused with 410.",
		Why:     "A token for the next page is good for about five minutes, and a slow list takes longer.",
		Report:  "https://github.com/mlrun/mlrun/pull/6360",
		needs:   needsFake,
		play: func(s *scene) {
			s.manyPods(2500)
			hasContinue := func(q fakekube.Request) bool { return q.Query.Has("continue") }
			s.inject(fakekube.Fault{
				On: fakekube.Requests{Verb: "list", Resource: s.reads, If: hasContinue},
				Do: fakekube.Refuse{Code: 410},
			})
			s.startEarly()
			s.faultEnds()
		},
	},
}

var serverFails = []Row{
	{
		Name:    "server away",
		Happens: "The server refuses connections for 15 s, while pods change.",
		Why:     "A control plane with one server is away at each restart and each upgrade.",
		Report:  "https://github.com/projectcalico/kube-controllers/issues/54",
		play: func(s *scene) {
			s.start()
			s.down()
			s.change()
			s.pause(15 * time.Second)
			s.change()
			s.up()
		},
	},
	{
		Name:    "server crashes",
		Happens: "The server is killed, and comes back after 1 s without its history.",
		Why:     "A server that restarts begins its history at its start, so that older watches cannot be resumed.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/86483",
		needs:   needsFake,
		play: func(s *scene) {
			s.start()
			s.down()
			s.change()
			s.fake.Compact()
			s.pause(time.Second)
			s.up()
		},
	},
	{
		Name:    "crash loop",
		Happens: "The server is down for 3 s and up for 1 s, five times.",
		Why:     "A server comes up with cold caches, is overrun by its clients, and is killed by its probe.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/57405",
		play: func(s *scene) {
			s.start()
			for range 5 {
				s.down()
				s.change()
				s.fake.Compact() // a real cluster keeps its history
				s.pause(3 * time.Second)
				s.up()
				s.pause(time.Second)
			}
		},
	},
	{
		Name:    "crowd returns",
		Happens: "After 10 s of outage, the server refuses six requests with 429 and Retry-After: 1.",
		Why:     "After an outage, all clients list at once, and most are refused at first.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/79805",
		play: func(s *scene) {
			s.start()
			s.down()
			s.change()
			s.pause(10 * time.Second)
			s.script("*, 6 times: refuse 429 retry-after 1s")
			s.up()
		},
	},
	{
		Name:    "etcd restored",
		Happens: "etcd is restored from a backup: changes are undone, and versions go back.",
		Why:     "An operator restores etcd from a backup, and resourceVersions go back with it.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/107457",
		needs:   needsFake,
		play:    func(s *scene) { s.restore(func() {}) },
	},
	{
		Name:    "etcd restored well",
		Happens: "As before, but versions are raised, and old ones expire, as the manual of etcd recommends.",
		Why:     "An operator restores etcd with --bump-revision and --mark-compacted, so that clients can notice it.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/118501",
		needs:   needsFake,
		play: func(s *scene) {
			s.restore(func() {
				s.fake.SetVersion(s.fake.Latest() + 1_000_000)
				s.fake.Compact()
			})
		},
	},
	{
		Name:    "event lost",
		Happens: "The server's watches lose an event. Lists show it.",
		Why:     "A bug in the server's watch cache drops an event.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/123072",
		needs:   needsFake | needsHours,
		limit:   2 * time.Hour,
		play: func(s *scene) {
			s.start()
			s.pause(time.Second)
			s.isJudged = false // the server itself says what is false
			s.timeline.add("server", "its watches lose the next changes")
			s.fake.LoseEvents(18) // all of a change: 12 additions, and 3 removals in two steps
			s.change()
		},
	},
	{
		Name:    "twin lags",
		Happens: "One of two servers lags for 20 s, and the watches lead to it.",
		Why:     "A load balancer leads to several servers, and one of them may show an older state.",
		Report:  "https://github.com/kubernetes/kubernetes/issues/59848",
		needs:   needsFake,
		play: func(s *scene) {
			s.start()
			s.change()
			s.pause(2 * time.Second)
			s.timeline.add("server", "is another one, which lags behind")
			catchUp := s.fake.Lag(fakekube.Requests{}, 3)
			s.change()
			s.pause(20 * time.Second)
			s.timeline.add("server", "catches up")
			catchUp()
		},
	},
	{
		Name:    "without etcd",
		Happens: "For 10 s, each request fails with 500, and then for 5 s with 429.",
		Why:     "While etcd is away or elects a leader, a server can answer next to nothing.",
		Report:  "https://github.com/operator-framework/java-operator-sdk/issues/2526",
		play: func(s *scene) {
			s.start()
			s.change()
			lift := s.script("*, always: refuse 500")
			s.breakConnections()
			s.pause(10 * time.Second)
			lift()
			lift = s.script("*, always: refuse 429 retry-after 1s")
			s.change()
			s.pause(5 * time.Second)
			lift()
		},
	},
}
