package sim

import (
	"fmt"
	"slices"
	"strconv"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// flurry is the last act before a calm: while writes are under way, what they are about changes again.
func (s *sim) flurry() {
	isWrite := func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource != "events" }
	times := 1 + s.dice.IntN(8)
	delay := s.some(span{100 * time.Millisecond, 3 * time.Second})
	s.fake.LiftFaults()
	s.fake.InjectUnchecked(fakekube.Fault{On: fakekube.Requests{If: isWrite}, Times: times, Delay: delay})
	for range 1 + s.dice.IntN(20) {
		s.step(lifeSteps)
		<-time.After(s.some(span{time.Millisecond, time.Second}))
	}
}

// calm ends all faults, and asks the oracle.
func (s *sim) calm() {
	s.stopFaults()
	start := time.Now()
	bound := s.takeBound()
	s.say("all faults stop; within %v all must be right", bound)
	settle(bound)
	s.checkRight("within the bound")
	writes := s.countCalm(start)
	settle(5 * s.interval)
	s.checkRight("five intervals later")

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.writes != writes {
		s.failLocked("there is no peace: writes go on when all is right")
	}
	s.checkHeardLocked()
	if len(s.wrong) == 0 {
		s.sayLocked("all is right")
	}
}

// settle lets time pass, and then everything come to rest.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *sim) stopFaults() {
	s.fake.Heal()
	s.restoreServer()
	s.each(func(p *proc) { p.link.setAway(false) })
	if s.fake.InstalledCRD() == nil {
		s.fake.InstallCRD(&fakekube.CRD{HasStatus: true})
	}
}

// needs says that the usual bound must be longer, as something goes on for so long.
func (s *sim) needs(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = max(s.patience, d)
}

// needsSilence is needs, for what is noticed by the silence of a connection.
func (s *sim) needsSilence() { s.needs(s.Silence + 5*time.Second) }

// takeBound is the time within which all must be right once faults have stopped.
func (s *sim) takeBound() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	const forWrites = 10 * time.Second // all labels and statuses, at the default -qps
	bound := s.LongestBackoff + s.interval + forWrites + 2*s.LongestDiscovery + s.patience
	if s.elects() {
		bound += s.leaseDuration + s.renewDeadline
	}
	s.patience = 0
	s.killsWriter = false
	return bound
}

// countCalm adds a calm to the numbers, and returns the writes until now.
func (s *sim) countCalm(start time.Time) (writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.calms++
	s.stats.slowest = max(s.stats.slowest, s.wroteAt.Sub(start))
	return s.stats.writes
}

// checkRight: everything is as it should be.
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
			s.failLocked("%s, %s is %q and should not be", when, k, got)
		}
	}
}

// truth is how everything should be, and has is how it is, by the fake's own state.
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

// truthOfNodes adds what the nodes' labels should be, and are.
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

// truthOfCounts adds what the status of each Count should be, and is.
func (s *sim) truthOfCounts(pods []fakekube.Object, truth, has map[string]string) {
	perName := map[string]int{} // by namespace, and name in a pod's labels
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
		if !isValid { // it must not be called healthy
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
