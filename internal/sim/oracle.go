package sim

import (
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// flurry is what comes right before a calm: the cluster changes while writes are in flight.
func (s *sim) flurry() {
	isWrite := func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource != "events" }
	times := 1 + s.dice.IntN(8)
	delay := s.drawDuration(span{100 * time.Millisecond, 3 * time.Second})
	s.fake.LiftFaults()
	s.fake.InjectUnchecked(fakekube.Fault{On: fakekube.Requests{If: isWrite}, Times: times, Delay: delay})
	for range 1 + s.dice.IntN(20) {
		s.takeStep(lifeSteps)
		<-time.After(s.drawDuration(span{time.Millisecond, time.Second}))
	}
}

// calm ends all faults. Then everything must become right within the bound, and stay right without any write.
func (s *sim) calm() {
	s.endFaults()
	start := time.Now()
	bound := s.nextBound()
	s.record("all faults stop; everything must be right within %v", bound)
	settle(bound)
	s.checkRight("within the bound")
	writes := s.noteCalm(start)
	settle(5 * s.interval)
	s.checkRight("five intervals later")

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.writes != writes {
		s.failLocked("writes continue although everything is right")
	}
	s.checkProgressLocked()
	if len(s.broken) == 0 {
		s.recordLocked("everything is right")
	}
}

// settle lets time pass, and then waits until every goroutine is blocked.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *sim) endFaults() {
	s.fake.Heal()
	s.restoreServer()
	s.eachProcess(func(p *proc) { p.link.setAway(false) })
	if s.fake.InstalledCRD() == nil {
		s.fake.InstallCRD(&fakekube.CRD{HasStatus: true})
	}
}

// extendBound makes the next bound longer, because of a fault that lasts that long.
func (s *sim) extendBound(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extraBound = max(s.extraBound, d)
}

// extendBoundForSilence is extendBound for a fault that is noticed only because a connection is silent.
func (s *sim) extendBoundForSilence() { s.extendBound(s.Silence + 5*time.Second) }

// nextBound returns the time within which everything must be right. What has extended it no longer counts after that.
func (s *sim) nextBound() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	const forWrites = 10 * time.Second // all labels and statuses, at the default -qps
	bound := s.LongestBackoff + s.interval + forWrites + 2*s.LongestDiscovery + s.extraBound
	if s.elects() {
		bound += s.leaseDuration + s.renewDeadline
	}
	s.extraBound = 0
	s.killNextWriter = false
	return bound
}

// noteCalm adds a calm to the statistics, and returns the number of writes so far.
func (s *sim) noteCalm(start time.Time) (writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.calms++
	s.stats.slowest = max(s.stats.slowest, s.lastWriteAt.Sub(start))
	return s.stats.writes
}

// checkRight checks that all labels and statuses are right.
func (s *sim) checkRight(when string) {
	truth, has := s.truth()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, want := range truth {
		if has[k] != want {
			s.failLocked("%s, %s is %q and should be %q", when, k, has[k], want)
		}
	}
	for k, got := range has {
		_, should := truth[k]
		if !should {
			s.failLocked("%s, %s is %q and should not be there", when, k, got)
		}
	}
}

// truth returns what the labels and statuses should be, and what they are. It knows that from the fake's own state.
func (s *sim) truth() (truth, has map[string]string) {
	truth = map[string]string{}
	has = map[string]string{}
	pods := slices.DeleteFunc(s.fake.All("pods"), func(pod fakekube.Object) bool { return !s.shows("pods", pod) })
	s.truthOfNodes(pods, truth, has)
	if s.runsCounts {
		s.truthOfCounts(pods, truth, has)
	}
	return truth, has
}

// truthOfNodes adds the labels of the nodes to truth and has.
func (s *sim) truthOfNodes(pods []fakekube.Object, truth, has map[string]string) {
	perNode := map[string]int{}
	for _, pod := range pods {
		perNode[nodeOf(pod)]++
	}
	for _, node := range s.fake.All("nodes") {
		name := fakekube.TextIn(fakekube.MetaOf(node), "name")
		labels, _ := fakekube.MetaOf(node)["labels"].(fakekube.Object)
		_, showsTotal := labels[s.ControlPlaneLabel]
		if showsTotal {
			truth[name+" total"] = strconv.Itoa(len(pods))
		}
		total, hasTotal := labels[s.TotalLabel]
		if hasTotal {
			has[name+" total"] = fmt.Sprint(total)
		}
		if !s.labelsEachNode {
			continue
		}
		truth[name+" own"] = strconv.Itoa(perNode[name])
		own, hasOwn := labels[s.OwnPodsLabel]
		if hasOwn {
			has[name+" own"] = fmt.Sprint(own)
		}
	}
}

// truthOfCounts adds the statuses of the Counts to truth and has.
func (s *sim) truthOfCounts(pods []fakekube.Object, truth, has map[string]string) {
	perName := map[string]int{} // by namespace and by the label app or run
	for _, pod := range pods {
		namespace := fakekube.TextIn(fakekube.MetaOf(pod), "namespace")
		app := labelOf(pod, "app")
		run := labelOf(pod, "run")
		perName[namespace+"/"+app]++
		if run != app {
			perName[namespace+"/"+run]++
		}
	}
	for _, count := range s.fake.All("counts") {
		if !s.shows("counts", count) {
			continue
		}
		key := fakekube.KeyOf(count)
		spec := count["spec"].(fakekube.Object)
		status, _ := count["status"].(fakekube.Object)
		want, isValid := spec["count"].(float64)
		if !isValid { // its status only must not be healthy
			truth[key.String()] = "false"
			has[key.String()] = fmt.Sprint(status["healthy"] == true)
			continue
		}
		there := perName[key.Namespace+"/"+fakekube.TextIn(spec, "name")]
		truth[key.String()] = fmt.Sprint(there == int(want), " ", there)
		has[key.String()] = fmt.Sprint(status["healthy"], " ", status["count"])
		if s.fake.InstalledCRD().HasStatus {
			truth[key.String()] += fmt.Sprint(" ", fakekube.MetaOf(count)["generation"])
			has[key.String()] += fmt.Sprint(" ", status["observedGeneration"])
		}
	}
}
