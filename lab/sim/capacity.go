package sim

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
)

// Crowd is a number of processes that share one server, which can do only so much at once.
type Crowd struct {
	// Processes is how many processes there are. Each has a network of its own. They elect no leader.
	Processes int

	// Capacity is what the server can do at once. The cluster has CrowdPods pods, so PerObject must be larger than in
	// reality if each of them is to stand for many.
	Capacity fakekube.Capacity

	// MaxMeanLists is how many lists a process may send until it has recovered, on average, tries that fail included.
	MaxMeanLists float64
}

// CrowdPods is the number of pods in the cluster of a crowd.
const CrowdPods = 200

// shortestWork returns how long the server needs at least to answer one list of each resource to each process.
func (c Crowd) shortestWork() time.Duration {
	perProcess := time.Duration(CrowdPods) * c.Capacity.PerObject
	return time.Duration(c.Processes) * perProcess / time.Duration(c.Capacity.Seats)
}

// Recovery is how the processes of a crowd got their caches and watches.
type Recovery struct {
	All          time.Duration // until each process had a right cache, and watched each resource
	Half         time.Duration // until half of the processes did
	Requests     int
	Peak         int     // the highest number of requests in a second
	MeanLists    float64 // sent by a process on average, of all resources, tries that fail included
	MostLists    int     // the most that one process has sent
	LongestQueue int     // the most requests that have waited in the queue
	Refused      int     // requests that got a 429
}

// String returns a sentence with all the numbers.
func (r Recovery) String() string {
	return fmt.Sprintf("half recovered within %v, all within %v; %d requests, at most %d in a second; "+
		"%d got a 429; at most %d were in the queue; a process sent %.1f lists on average, and at most %d",
		r.Half, r.All, r.Requests, r.Peak, r.Refused, r.LongestQueue, r.MeanLists, r.MostLists)
}

// CheckCrowd checks that a crowd recovers in two storms: when all processes start at once, and when the server is
// killed for ten seconds and has then forgotten its history, so that all must list again. It logs both recoveries.
//
// All must have recovered within twice the time that the server needs for its work, plus LongestBackoff. In the end,
// all processes must agree about the total: none may ever write another one.
func CheckCrowd(t *testing.T, o Options, c Crowd) {
	synctest.Test(t, func(t *testing.T) {
		s := newCrowdSim(t, o, c)
		started := s.awaitRecovery(c, func() {
			for i := range s.slots {
				s.launch(i)
			}
		})
		t.Logf("%d processes start: %v", c.Processes, started)
		settle(3 * time.Minute) // All backoffs are reset.
		recovered := s.awaitRecovery(c, func() {
			s.recordStrike(step{name: "server killed", isFault: true}, s.loseAllWatches)
		})
		t.Logf("%d processes lose their watches: %v", c.Processes, recovered)
		settle(time.Minute) // A film of the recovery has nothing else.
		s.checkAgreement()
		s.end()
		for _, rule := range s.broken {
			t.Error(rule)
		}
	})
}

// newCrowdSim returns a simulation of a crowd. Nothing has to be written in its cluster, because no node shows the
// total. Otherwise each of a thousand writes would be sent to a thousand watches.
func newCrowdSim(t *testing.T, o Options, c Crowd) *sim {
	s := newPlainSim(t, o, c.Processes)
	s.addNodeWithPods("old", CrowdPods)
	return s
}

func (s *sim) addNodeWithPods(name string, pods int) {
	s.fake.AddNode(name)
	for i := range pods {
		s.fake.AddPod("default", fmt.Sprint(name, "-", i), name)
	}
}

// loseAllWatches kills the server for ten seconds. Meanwhile the cluster changes. After that, the server has forgotten
// its history. It returns a description for the history.
func (s *sim) loseAllWatches() string {
	s.faultLasts = 10 * time.Second
	s.killServer()
	settle(s.faultLasts)
	s.fake.Remove("pods", key{Namespace: "default", Name: "old-0"})
	s.addNodeWithPods("new", 1)
	s.fake.Compact()
	s.restoreServer()
	return fmt.Sprintf("THE SERVER IS KILLED, for %v, then compacted: true", s.faultLasts)
}

// awaitRecovery calls storm, waits until each process has a right cache and watches each resource, and checks that this
// does not take too long, nor too many lists.
func (s *sim) awaitRecovery(c Crowd, storm func()) (r Recovery) {
	load := s.fake.Limit(c.Capacity)
	storm()
	start := time.Now()
	goal := s.fake.Latest()
	longest := 2*c.shortestWork() + s.LongestBackoff
	for {
		settle(time.Second)
		left := s.countUnrecovered(goal)
		r.All = time.Since(start)
		if r.Half == 0 && left <= c.Processes/2 {
			r.Half = r.All
		}
		if left == 0 {
			s.recordPhase("all %d processes have recovered", c.Processes)
			break
		}
		if r.All > longest {
			s.fail("%d of %d processes have not recovered within %v", left, c.Processes, longest)
			break
		}
	}
	totals := load()
	r.LongestQueue = totals.LongestQueue
	r.Refused = totals.Refused
	s.countRequests(&r, start)
	if r.MeanLists > c.MaxMeanLists {
		s.fail("a process has sent %.1f lists on average, more than %.1f", r.MeanLists, c.MaxMeanLists)
	}
	return r
}

// countUnrecovered returns how many processes do not know all changes up to a version yet, or do not watch a resource.
func (s *sim) countUnrecovered(version int) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.slots {
		if !s.hasRecoveredLocked(p, version) {
			n++
		}
	}
	return n
}

func (s *sim) hasRecoveredLocked(p *proc, version int) bool {
	for _, resource := range s.resources() {
		progress := p.progress[resource]
		if !progress.isWatching || progress.upTo < version {
			return false
		}
	}
	return true
}

// countRequests fills in the numbers about the requests since start.
func (s *sim) countRequests(r *Recovery, start time.Time) {
	all := s.requestsSince(start)
	r.Requests = len(all)
	r.Peak = peakPerSecond(all)
	lists := 0
	listsOf := map[string]int{} // by host
	for _, q := range all {
		if isListOf(q.Resource)(q) {
			lists++
			listsOf[q.Host]++
			r.MostLists = max(r.MostLists, listsOf[q.Host])
		}
	}
	r.MeanLists = float64(lists) / float64(len(s.slots))
}

// checkAgreement lets a node appear that shows the total. All processes must write the same total to it, and so it must
// change only once.
func (s *sim) checkAgreement() {
	from := s.fake.Latest()
	s.fake.AddNode("total", s.ControlPlaneLabel)
	settle(2 * time.Minute)
	s.checkRight("two minutes after a node has appeared")
	writes := slices.DeleteFunc(s.fake.Changes(), func(c fakekube.Change) bool {
		return c.Resource != "nodes" || c.Version <= from || c.Old == nil
	})
	if len(writes) != 1 {
		s.fail("a new node has changed %d times, so the processes do not agree about the total", len(writes))
	}
}
