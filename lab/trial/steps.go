package trial

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// script injects faults in the words of fakekube.Server.Script. READS and WRITES stand for what the job reads and
// writes. A fault need not be met. Each time it is, the timeline says so.
func (s *scene) script(lines ...string) (lift func()) {
	var faults []*fakekube.Injection
	for _, line := range lines {
		fault, err := fakekube.ParseFault(strings.NewReplacer("READS", s.reads, "WRITES", s.writes).Replace(line))
		if err != nil {
			panic(fmt.Sprintf("the row %q: %v", s.row.Name, err))
		}
		faults = append(faults, s.inject(fault))
	}
	return func() {
		for _, fault := range slices.Backward(faults) {
			fault.Lift()
		}
	}
}

// inject injects a fault that need not be met.
func (s *scene) inject(fault fakekube.Fault) *fakekube.Injection {
	s.aims++
	fault.Met = func(q fakekube.Request) {
		s.hits.Add(1)
		what := "delays the answer to"
		if fault.Do != nil {
			what = fault.Do.String() + ":"
		}
		s.timeline.add("server", "%s %s %s", what, q.Method, q.Path)
	}
	return s.fake.InjectUnchecked(fault)
}

// onWatch selects watches of what the job reads that go on from a version, not those that begin with a list.
func (s *scene) onWatch() fakekube.Requests {
	return fakekube.Requests{Verb: "watch", Resource: s.reads, If: func(q fakekube.Request) bool {
		return q.Query.Get("sendInitialEvents") != "true"
	}}
}

// breakConnections breaks all connections of all programs, and takes new ones.
func (s *scene) breakConnections() {
	for _, p := range s.instances {
		p.net.Kill()
		p.net.Restore()
	}
}

// down takes the server down until up is called.
func (s *scene) down() {
	s.timeline.add("server", "is down")
	for _, p := range s.instances {
		p.net.Kill()
	}
}

// up ends down.
func (s *scene) up() {
	s.timeline.add("server", "is up")
	for _, p := range s.instances {
		p.net.Restore()
	}
}

// awaitHit waits until a fault of the row has met a request, or until the limit if none comes.
func (s *scene) awaitHit(limit time.Duration) {
	s.await(limit, func() bool { return s.hits.Load() > 0 })
}

// endWatches ends all watches, as a server does from time to time.
func (s *scene) endWatches() {
	s.aims++
	for _, p := range s.instances {
		s.hits.Add(int32(p.recorder.openWatches()))
	}
	s.timeline.add("server", "ends all watches")
	s.fake.EndWatches()
}

// tooOld makes the version of a program too old while it is cut off. Watches from such a version get the effect.
func (s *scene) tooOld(effect fakekube.Effect) {
	s.start()
	s.down()
	s.change()
	s.say("compacts the history")
	s.fake.Compact()
	oldest := s.fake.Latest()
	s.inject(fakekube.Fault{Times: fakekube.Always, Do: effect, On: fakekube.Requests{
		Verb:     "watch",
		Resource: s.reads,
		If: func(q fakekube.Request) bool {
			version, err := strconv.Atoi(q.Query.Get("resourceVersion"))
			return err == nil && version > 0 && version < oldest
		},
	}})
	s.pause(time.Second)
	s.up()
}

// restore sets etcd back to a backup, while the server is down. finish completes that.
func (s *scene) restore(finish func()) {
	s.start()
	restore := s.fake.Snapshot()
	forget := s.remember()
	s.change()
	s.pause(3 * time.Second)
	s.down()
	s.timeline.add("server", "its etcd is restored from a backup")
	restore()
	finish()
	forget()
	s.pause(2 * time.Second)
	s.up()
	s.pause(5 * time.Second)
	s.change()
}

// atTheStart lets a fault happen to a program that starts, and pods change afterwards.
func (s *scene) atTheStart(fault string) {
	s.script(fault)
	s.startEarly()
	s.faultEnds()
}

// onWrites lets a fault happen to the writes of a program that runs.
func (s *scene) onWrites(fault string) {
	s.start()
	s.script(fault)
	s.change()
}

// manyPods adds pods before the program starts.
func (s *scene) manyPods(n int) {
	if s.counting != nil {
		s.counting.add(n)
	}
}

// onOneNode injects a fault for the writes of one node: the first that is written.
func (s *scene) onOneNode(times int, effect fakekube.Effect, delay time.Duration) *fakekube.Injection {
	node := "" // The fake calls If with its own lock.
	return s.inject(fakekube.Fault{Times: times, Delay: delay, Do: effect, On: fakekube.Requests{
		Verb:     "write",
		Resource: s.writes,
		If: func(q fakekube.Request) bool {
			node = cmp.Or(node, q.Name)
			return q.Name == node
		},
	}})
}

// otherNodeWithin waits until one node has met a fault, and ends the row if the other one is not right in time after
// that.
func (s *scene) otherNodeWithin(limit time.Duration) {
	s.awaitHit(usualLimit)
	isRight := func(node string) bool { return s.seen[node] == s.counting.truth() }
	if !s.await(limit, func() bool { return slices.ContainsFunc(s.counting.nodes, isRight) }) {
		s.end(Blocked, "after %s, no node is right: the write of one waits for that of the other", limit)
	}
	s.say("one node is right")
}

// stop asks a program to stop, and ends the row.
func (s *scene) stop(p *instance) {
	s.say("sends a SIGTERM")
	s.faultEnds()
	p.process.terminate()
	select {
	case <-p.process.done():
	case <-s.ctx.Done():
		s.look()
	case <-time.After(stopLimit):
		s.end(NotStopped, "it still ran %s after a SIGTERM", stopLimit)
	}
	s.settledAt = time.Now()
	s.end(Right, "stopped after %.1f s", s.settledAt.Sub(s.endedAt).Seconds())
}

// overwrite changes a label as another client does.
func (c *counting) overwrite(node, value string) {
	c.scene.say("writes the label %q to %s", value, node)
	c.fought[value] = true
	c.scene.cluster.setLabel(node, c.scene.label, value)
}

// writeOtherLabel writes a label that is not the program's to a node, ten times a second.
func (s *scene) writeOtherLabel(d time.Duration) {
	node := s.counting.nodes[0]
	s.say("writes another label to %s for %s", node, d)
	for begin := time.Now(); time.Since(begin) < d; s.pause(100 * time.Millisecond) {
		s.cluster.setLabel(node, "trial.podcount.dev/other", fmt.Sprint(time.Now().UnixMilli()))
	}
}

// remember returns a function that says that the cluster is as it was.
func (s *scene) remember() (forget func()) {
	if s.counting == nil {
		return func() {}
	}
	pods := slices.Clone(s.counting.pods)
	return func() {
		s.counting.pods = pods
		s.counting.know()
	}
}
