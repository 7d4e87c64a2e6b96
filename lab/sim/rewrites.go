package sim

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// rewriteSteps are steps of life that change nothing that matters to the program. They must cause no write: see
// rewritesWithoutWrites.
var rewriteSteps = []step{
	{name: "every object is rewritten", weight: 1, do: (*sim).everyObjectIsRewritten},
	{name: "something else changes", weight: 3, do: (*sim).somethingElseChanges},
}

// rewritesWithoutWrites takes rewriteSteps for a while. None of them may cause a write. Call it when everything is
// right.
func (s *sim) rewritesWithoutWrites() {
	settle(timeForEvents)
	s.setWritesForbidden(true)
	s.recordPhase("only rewrites from now on: nothing may be written")
	for range 1 + s.dice.IntN(4) {
		s.countStep(false)
		s.takeStep(rewriteSteps)
		<-time.After(s.drawDuration(span{10 * time.Millisecond, s.interval}))
	}
	settle(s.labelDelay())
	s.setWritesForbidden(false)
}

// timeForEvents is how long the program may go on posting Events that wait. It keeps 1,000 at most, and posts ten a
// second.
const timeForEvents = 2 * time.Minute

func (s *sim) setWritesForbidden(areForbidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.areWritesForbidden = areForbidden
}

// checkForbiddenLocked checks that a process writes nothing while there are only rewrites. Only leases are renewed.
func (s *sim) checkForbiddenLocked(p *proc, q fakekube.Request) {
	if s.areWritesForbidden {
		s.breakRuleLocked(p, "writes although nothing that matters has changed: %s", q)
	}
}

// everyObjectIsRewritten stores each object again as it is, as a storage migration does after an upgrade of Kubernetes.
// Each gets a new version.
func (s *sim) everyObjectIsRewritten() string {
	for _, resource := range []string{"nodes", "pods", "counts", "leases"} {
		if resource == "counts" && fixture.InstalledCRD(s.fake) == nil {
			continue
		}
		for _, o := range sortedByKey(s.fake.All(resource)) {
			s.fake.Put(resource, o)
		}
	}
	return "every object is rewritten"
}

// sortedByKey sorts objects, so that the same seed always changes them in the same order.
func sortedByKey(objects []fakekube.Object) []fakekube.Object {
	return slices.SortedFunc(slices.Values(objects), func(a, b fakekube.Object) int {
		return strings.Compare(fakekube.KeyOf(a).String(), fakekube.KeyOf(b).String())
	})
}

// somethingElseChanges changes a part of an object that the program does not read, as kubelets and many controllers do
// all the time.
func (s *sim) somethingElseChanges() string {
	switch s.dice.IntN(3) {
	case 0:
		return s.changeElsewhere("pods", s.drawPod(), s.setPodStatus)
	case 1:
		return s.changeElsewhere("nodes", key{Name: s.drawNode()}, s.setHeartbeat)
	default:
		return s.changeElsewhere("counts", s.drawCount(), s.setAnnotation)
	}
}

// changeElsewhere changes an annotation or managedFields of an object, or what usual changes. It does nothing if the
// object does not exist.
func (s *sim) changeElsewhere(resource string, key key, usual func(fakekube.Object)) string {
	change := pick(s.dice, usual, s.setAnnotation, s.setManagedFields)
	old := s.fake.Get(resource, key)
	if old == nil {
		return ""
	}
	o := fakekube.Clone(old)
	change(o)
	s.fake.Put(resource, o)
	return fmt.Sprint("~ something else in ", resource, " ", key)
}

// setPodStatus makes a pod change its phase, as its kubelet does.
func (s *sim) setPodStatus(pod fakekube.Object) {
	pod["status"] = fakekube.Object{
		"phase":      pick(s.dice, "Pending", "Running", "Succeeded", "Failed"),
		"conditions": []any{fakekube.Object{"type": "Ready", "status": pick(s.dice, "True", "False")}},
		"podIP":      fmt.Sprint("10.0.0.", s.dice.IntN(256)),
	}
}

// setHeartbeat makes a node report its conditions, as its kubelet does every few minutes.
func (s *sim) setHeartbeat(node fakekube.Object) {
	now := time.Now().UTC().Format(time.RFC3339)
	node["status"] = fakekube.Object{
		"conditions": []any{fakekube.Object{
			"type": "Ready", "status": pick(s.dice, "True", "False", "Unknown"), "lastHeartbeatTime": now,
		}},
		"images": []any{fakekube.Object{"names": []any{"nginx"}, "sizeBytes": float64(s.dice.IntN(1 << 30))}},
	}
}

func (s *sim) setAnnotation(o fakekube.Object) {
	fakekube.MetaOf(o)["annotations"] = fakekube.Object{"example.com/seen": time.Now().UTC().Format(time.RFC3339Nano)}
}

func (s *sim) setManagedFields(o fakekube.Object) {
	fakekube.MetaOf(o)["managedFields"] = managedFields(1)
}

// managedFields returns n entries, each of another manager.
func managedFields(n int) []any {
	var all []any
	for i := range n {
		all = append(all, fakekube.Object{
			"manager":    fmt.Sprint("manager-", i),
			"operation":  "Update",
			"apiVersion": "v1",
			"time":       time.Now().UTC().Format(time.RFC3339),
			"fieldsType": "FieldsV1",
			"fieldsV1":   fakekube.Object{"f:metadata": fakekube.Object{"f:labels": fakekube.Object{".": fakekube.Object{}}}},
		})
	}
	return all
}
