package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// flurry lets the cluster change while writes are in flight, right before a calm.
func (s *sim) flurry() {
	isWrite := func(q fakekube.Request) bool { return q.Verb == "patch" && q.Resource != "events" }
	times := 1 + s.dice.IntN(8)
	delay := s.drawDuration(span{100 * time.Millisecond, 3 * time.Second})
	s.fake.LiftFaults() // Only this delay must meet the writes.
	s.fake.InjectUnchecked(fakekube.Fault{On: fakekube.Requests{If: isWrite}, Times: times, Delay: delay})
	for range 1 + s.dice.IntN(20) {
		s.takeStep(lifeSteps)
		<-time.After(s.drawDuration(span{time.Millisecond, time.Second}))
	}
}

// calm ends all faults. Then everything must become right within the bound, and stay right without a write.
func (s *sim) calm() {
	s.endFaults()
	start := time.Now()
	bound := s.nextBound()
	s.recordPhase("all faults stop; everything must be right within %v", bound)
	settle(bound)
	s.checkRight("within the bound")
	s.checkStaysRight(start)
	if !s.hasBroken() {
		s.recordPhase("everything is right")
	}
}

// checkStaysRight checks that nothing is written for five intervals, and then everything is still right. By then, the
// processes must have logged what they received. calmBegan is when all faults stopped.
func (s *sim) checkStaysRight(calmBegan time.Time) {
	writesBefore := s.noteCalm(calmBegan)
	settle(5 * s.interval)
	s.checkRight("five intervals later")

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.writes != writesBefore {
		s.failLocked("writes continue although everything is right")
	}
	s.checkProgressLocked()
}

// settle lets d of time pass, and then waits until all other goroutines are blocked.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// endFaults ends all faults, also those that wait for a request, or for more bytes of a watch.
func (s *sim) endFaults() {
	s.fake.Heal()
	s.restoreServer()
	s.eachProcess(func(p *proc) { p.link.heal() })
	s.healAccess()
	if fixture.InstalledCRD(s.fake) == nil {
		fixture.InstallCRD(s.fake, &fixture.CRD{HasStatus: true})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killNextWriter = false
}

// extendBound adds d to the next bound, because of a fault whose effect lasts that long. Of several faults, only the
// longest counts.
func (s *sim) extendBound(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.extraBound = max(s.extraBound, d)
}

// silenceMargin is added to the silences in Options before they extend the bound.
const silenceMargin = 5 * time.Second

// extendBoundForSilence is extendBound for a fault that a process notices only because a connection is silent.
func (s *sim) extendBoundForSilence() { s.extendBound(s.Silence + silenceMargin) }

// extendBoundForSilentConnection is extendBoundForSilence for a fault of a whole connection. Over HTTP/2, pings find it
// earlier.
func (s *sim) extendBoundForSilentConnection() {
	if s.access.isHTTP2 {
		s.extendBound(s.HTTP2Silence + silenceMargin)
		return
	}
	s.extendBoundForSilence()
}

// nextBound returns the time within which everything must be right, and resets what has extended that bound.
func (s *sim) nextBound() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	const timeForWrites = 10 * time.Second // for all labels and statuses, at the default -qps
	bound := s.LongestBackoff + s.interval + timeForWrites + 2*s.LongestDiscovery + s.extraBound
	if s.elects() {
		bound += s.leaseDuration + s.renewDeadline
	}
	s.extraBound = 0
	return bound
}

// noteCalm adds a calm that began at start to the statistics, and returns the number of writes so far.
func (s *sim) noteCalm(start time.Time) (writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.calms++
	s.stats.slowest = max(s.stats.slowest, s.lastWriteAt.Sub(start))
	return s.stats.writes
}

// checkRight checks that all labels and statuses are right. A failure begins with when.
func (s *sim) checkRight(when string) {
	expected, actual := s.labelsAndStatuses(s.look())
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(expected)) {
		if actual[name] != expected[name] {
			s.failLocked("%s, %s is %q and should be %q", when, name, actual[name], expected[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(actual)) {
		_, isExpected := expected[name]
		if !isExpected {
			s.failLocked("%s, %s is %q and should not be there", when, name, actual[name])
		}
	}
}

// view is the part of the cluster's state that determines what the labels and statuses should be, and what they are.
type view struct {
	objects           map[string]map[key]fakekube.Object // by resource: all pods, nodes and Counts
	hasStatusResource bool                               // the CRD of Counts has a status subresource
}

// viewedResources are the resources in a view.
var viewedResources = []string{"pods", "nodes", "counts"}

// look returns a view of the fake's present state.
func (s *sim) look() view {
	crd := fixture.InstalledCRD(s.fake)
	v := view{
		objects:           map[string]map[key]fakekube.Object{},
		hasStatusResource: crd != nil && crd.HasStatus,
	}
	for _, resource := range viewedResources {
		v.objects[resource] = map[key]fakekube.Object{}
		for _, o := range s.fake.All(resource) {
			v.objects[resource][fakekube.KeyOf(o)] = o
		}
	}
	return v
}

// apply makes the view that of the time after a change.
func (v view) apply(c fakekube.Change) {
	if c.New == nil {
		delete(v.objects[c.Resource], c.Key())
	} else {
		v.objects[c.Resource][c.Key()] = c.New
	}
}

// These functions return the names of labels and statuses in words, as broken rules show them.

func nameOfTotal(node string) string { return node + " total" }

func nameOfOwnPods(node string) string { return node + " own" }

func nameOfStatus(count key) string { return count.String() }

// isStatus reports whether a name is that of a status. Only those have a namespace.
func isStatus(name string) bool { return strings.Contains(name, "/") }

// labelsAndStatuses returns what the labels and statuses should be, and what they are, by their names in words.
func (s *sim) labelsAndStatuses(v view) (expected, actual map[string]string) {
	expected = map[string]string{}
	actual = map[string]string{}
	pods := slices.Collect(maps.Values(v.objects["pods"]))
	pods = slices.DeleteFunc(pods, func(pod fakekube.Object) bool { return !s.shows("pods", pod) })
	s.addLabels(v, pods, expected, actual)
	if s.runsCounts {
		s.addStatuses(v, pods, expected, actual)
	}
	return expected, actual
}

// addLabels adds the labels of all nodes to expected and actual.
func (s *sim) addLabels(v view, pods []fakekube.Object, expected, actual map[string]string) {
	perNode := map[string]int{}
	for _, pod := range pods {
		perNode[nodeOf(pod)]++
	}
	for key, node := range v.objects["nodes"] {
		labels, _ := fakekube.MetaOf(node)["labels"].(fakekube.Object)
		_, showsTotal := labels[s.ControlPlaneLabel]
		if showsTotal {
			expected[nameOfTotal(key.Name)] = strconv.Itoa(len(pods))
		}
		total, hasTotal := labels[s.TotalLabel]
		if hasTotal {
			actual[nameOfTotal(key.Name)] = fmt.Sprint(total)
		}
		if !s.labelsEachNode {
			continue
		}
		expected[nameOfOwnPods(key.Name)] = strconv.Itoa(perNode[key.Name])
		own, hasOwn := labels[s.OwnPodsLabel]
		if hasOwn {
			actual[nameOfOwnPods(key.Name)] = fmt.Sprint(own)
		}
	}
}

// addStatuses adds the statuses of all Counts to expected and actual, as texts: healthy, count, and observedGeneration
// if the CRD has a status subresource.
func (s *sim) addStatuses(v view, pods []fakekube.Object, expected, actual map[string]string) {
	perName := podsPerName(pods)
	for key, count := range v.objects["counts"] {
		if !s.shows("counts", count) {
			continue
		}
		spec := count["spec"].(fakekube.Object)
		status, _ := count["status"].(fakekube.Object)
		want, isValid := spec["count"].(float64)
		name := nameOfStatus(key)
		if !isValid { // The status of an invalid Count may be anything but healthy.
			expected[name] = "false"
			actual[name] = fmt.Sprint(status["healthy"] == true)
			continue
		}
		number := perName[key.Namespace+"/"+fakekube.TextIn(spec, "name")]
		expected[name] = fmt.Sprint(number == int(want), " ", number)
		actual[name] = fmt.Sprint(status["healthy"], " ", status["count"])
		if v.hasStatusResource {
			expected[name] += fmt.Sprint(" ", fakekube.MetaOf(count)["generation"])
			actual[name] += fmt.Sprint(" ", status["observedGeneration"])
		}
	}
}

// podsPerName counts the pods by namespace and by the value of their label app or run, as NAMESPACE/VALUE.
func podsPerName(pods []fakekube.Object) map[string]int {
	perName := map[string]int{}
	for _, pod := range pods {
		namespace := fakekube.TextIn(fakekube.MetaOf(pod), "namespace")
		app := labelOf(pod, "app")
		run := labelOf(pod, "run")
		perName[namespace+"/"+app]++
		if run != app {
			perName[namespace+"/"+run]++
		}
	}
	return perName
}
