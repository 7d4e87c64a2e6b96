package sim

import (
	"fmt"
	"slices"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// faultSteps returns all faults. Each seed uses some of them.
func faultSteps() []step {
	steps := slices.Concat(requestFaults(), oddFrameSteps(), rateFaults(), accessFaults(), clusterFaults())
	for i := range steps {
		steps[i].isFault = true
	}
	return steps
}

// clusterFaults returns the faults of the server, of its history, of connections, processes, the lease and the CRD.
func clusterFaults() []step {
	return []step{
		{name: "server killed", weight: 6, do: serverKilled{
			lasts: span{100 * time.Millisecond, time.Minute},
		}.strike},
		{name: "watches end", weight: 4, do: (*sim).watchesEnd},
		{name: "history compacted", weight: 3, do: (*sim).historyCompacted},
		{name: "backup made", weight: 1, do: (*sim).backupMade},
		{name: "backup restored", weight: 1, do: backupRestored{
			outage: span{time.Second, 20 * time.Second},
		}.strike},
		{name: "events lost", weight: 1, do: eventsLost{most: 4}.strike},
		{name: "server's cache lies", weight: 1, do: cacheLies{most: 4}.strike},
		{name: "server lags", weight: 3, do: serverLags{
			lasts: span{time.Second, 10 * time.Minute},
		}.strike, reach: oneProcess},
		{
			name: "connections fall silent", weight: 3, do: (*sim).connectionsFallSilent,
			reach: oneProcess,
		},
		{name: "network away", weight: 3, do: networkAway{
			lasts: span{time.Second, 2 * time.Minute},
		}.strike, reach: oneProcess},
		{name: "process stopped", weight: 4, do: processStopped{
			pause: span{time.Second, 20 * time.Second},
		}.strike, reach: oneProcess},
		{name: "writer killed", weight: 2, do: (*sim).nextWriterKilled},
		{name: "lease taken over", weight: 2, do: leaseTakenOver{
			lasts: span{5 * time.Second, 5 * time.Minute},
			skew:  time.Hour,
		}.strike},
		{name: "lease deleted", weight: 1, do: (*sim).leaseDeleted},
		{name: "CRD comes, changes or goes", weight: 2, do: (*sim).crdComesChangesOrGoes},
	}
}

// serverKilled breaks all connections and refuses new ones for a while, as when an API server crashes or is upgraded.
// After that, the server may have forgotten its history.
type serverKilled struct {
	lasts span
}

func (f serverKilled) strike(s *sim) string {
	d := s.drawAndNoteLength(f.lasts)
	isCompacted := s.flipCoin()
	s.killServer()
	s.later(d, func() {
		if isCompacted {
			s.fake.Compact()
		}
		s.restoreServer()
	})
	return fmt.Sprintf("THE SERVER IS KILLED, for %v, then compacted: %v", d, isCompacted)
}

// killServer breaks all connections and refuses new ones until restoreServer is called.
func (s *sim) killServer() {
	s.net.Kill()
	s.eachProcess(s.forgetInFlight)
}

func (s *sim) restoreServer() { s.net.Restore() }

// watchesEnd ends all watches, cleanly or by breaking them, as when a load balancer is restarted or a server stops.
func (s *sim) watchesEnd() string {
	isBroken := s.flipCoin()
	if isBroken {
		s.fake.BreakWatches()
	} else {
		s.fake.EndWatches()
	}
	return fmt.Sprint("WATCHES END, broken: ", isBroken)
}

// historyCompacted makes the server forget all earlier changes. API servers compact etcd every five minutes.
func (s *sim) historyCompacted() string {
	s.fake.Compact()
	return "COMPACTED"
}

// backupMade makes a backup of the cluster.
func (s *sim) backupMade() string {
	s.restoreBackup = s.fake.Snapshot()
	return "a backup is made"
}

// backupRestored restores the last backup of the cluster, as after the loss of etcd. A restored server uses the
// versions since the backup again, for other changes.
type backupRestored struct {
	outage span // how long the server is away
}

func (f backupRestored) strike(s *sim) string {
	d := s.drawAndNoteLength(f.outage)
	s.killServer()
	synctest.Wait() // for the requests that the server is still working on
	s.restoreBackup()
	s.forgetAfter(s.fake.Latest()) // The server is away, so no process can write a newer version.
	s.later(d, s.restoreServer)
	return fmt.Sprintf("THE BACKUP IS RESTORED, which takes %v", d)
}

// forgetAfter forgets what happened after a version, because the newer versions will be used for other changes.
func (s *sim) forgetAfter(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byHost {
		for _, progress := range p.progress {
			progress.forget()
		}
		p.electedAtVersion = 0
		p.mayBeStale["nodes"] = true
		p.mayBeStale["counts"] = true
	}
	for resource, all := range s.history {
		s.history[resource] = slices.DeleteFunc(all, func(c fakekube.Change) bool { return c.Version > version })
	}
	s.newest = version
	s.allowDriftLocked(s.resources()...)
	s.leaseTamperedAt = time.Now()
	s.extraBound = max(s.extraBound, s.LongestUnlisted)
}

// eventsLost hides the next changes from all watches. API servers have had such bugs
// (https://github.com/kubernetes/kubernetes/issues/123072).
type eventsLost struct {
	most int // how many changes are lost at most
}

func (f eventsLost) strike(s *sim) string {
	n := 1 + s.dice.IntN(f.most)
	s.fake.LoseEvents(n)
	s.allowDrift(s.resources()...)
	s.extendBound(s.LongestUnlisted)
	return fmt.Sprint("WATCHES LOSE the next ", n, " changes")
}

// cacheLies hides the next changes of a resource from all watches, and from lists that come from the server's cache.
// Only lists at an exact version show them. It ends when all faults stop, but what the watches have missed stays lost
// (https://github.com/kubernetes/kubernetes/issues/123072).
type cacheLies struct {
	most int // how many changes are hidden at most
}

func (f cacheLies) strike(s *sim) string {
	lie := fakekube.Lie{Changes: 1 + s.dice.IntN(f.most)}
	resource := pick(s.dice, "pods", "nodes", "counts")
	s.fake.InjectUnchecked(fakekube.Fault{
		On: fakekube.Requests{Verb: "list|watch", Resource: resource},
		Do: lie,
	})
	s.allowDrift(resource)
	s.extendBound(s.LongestUnlisted)
	return fmt.Sprintf("THE CACHE OF THE SERVER LIES about the next %d changes of %s", lie.Changes, resource)
}

// allowDrift notes that from now on, audits of these resources may find that a cache was wrong.
func (s *sim) allowDrift(resources ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allowDriftLocked(resources...)
}

func (s *sim) allowDriftLocked(resources ...string) {
	for _, resource := range resources {
		s.mayDrift[resource] = true
	}
}

// serverLags sends the watches of one process to a server that gets no changes for a while, as when the watch cache of
// one of several API servers lags behind etcd.
type serverLags struct {
	lasts span
}

func (f serverLags) strike(s *sim) string {
	p := s.target.p
	d := s.drawAndNoteLength(f.lasts)
	catchUp := s.fake.Lag(fakekube.Requests{Host: p.host}, 0)
	s.later(d, catchUp)
	return fmt.Sprintf("THE SERVER OF r%d LAGS for %v", p.slot, d)
}

// connectionsFallSilent drops everything that is sent on the connections of one process, as when a firewall has
// forgotten them.
func (s *sim) connectionsFallSilent() string {
	p := s.target.p
	s.disturb(p, (*link).silence)
	s.extendBoundForSilentConnection()
	return fmt.Sprint("CONNECTIONS FALL SILENT, of r", p.slot)
}

// networkAway takes the network of one process away. Either the process notices it at once, as when its own cable is
// pulled, or only by the silence, as when a cable further away is pulled.
type networkAway struct {
	lasts span
}

func (f networkAway) strike(s *sim) string {
	p := s.target.p
	d := s.drawAndNoteLength(f.lasts)
	isSilent := s.flipCoin()
	if isSilent {
		s.disturb(p, func(l *link) {
			l.setLost()
			l.silence()
		})
		s.extendBoundForSilentConnection()
	} else {
		s.disturb(p, func(l *link) {
			l.setAway(true)
			l.cut()
		})
	}
	s.later(d, func() { p.link.setAway(false) })
	return fmt.Sprintf("NETWORK OF r%d AWAY for %v, silently: %v", p.slot, d, isSilent)
}

// processStopped stops a process, as in a rollout, or kills it, as when its node fails. It starts another one later.
type processStopped struct {
	pause span // until the next process starts
}

func (f processStopped) strike(s *sim) string {
	p := s.target.p
	isKilled := s.flipCoin()
	d := s.drawAndNoteLength(f.pause)
	if isKilled {
		s.killProcess(p.slot, d)
	} else {
		s.stopProcess(p.slot, d)
	}
	return fmt.Sprintf("r%d IS STOPPED, killed: %v, another in %v", p.slot, isKilled, d)
}

// nextWriterKilled kills the next process that writes to a node, before it can post the Event, as the kernel kills one
// that runs out of memory.
func (s *sim) nextWriterKilled() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killNextWriter = true
	return "THE NEXT WRITER IS KILLED"
}

// leaseTakenOver gives the lease to another holder with a wrong clock, which renews it for a while, as when another
// program is configured with the same lease.
type leaseTakenOver struct {
	lasts span
	skew  time.Duration // how far its clock is fast or slow
}

func (f leaseTakenOver) strike(s *sim) string {
	if !s.elects() {
		return ""
	}
	d := s.drawAndNoteLength(f.lasts)
	skew := pick(s.dice, -f.skew, f.skew)
	s.mu.Lock()
	s.leaseTamperedAt = time.Now()
	s.mu.Unlock()
	s.takeLease(skew)
	s.running.Go(func() {
		end := time.Now().Add(d)
		for time.Now().Before(end) && s.pause(s.leaseDuration/3) {
			if fakekube.TextIn(s.lease(), "holderIdentity") != otherHolder {
				return
			}
			s.takeLease(skew)
		}
	})
	s.extendBound(d)
	return fmt.Sprintf("ANOTHER PROGRAM LEADS for %v, by a clock that is off by %v", d, skew)
}

// otherHolder is the identity of the other program that takes the lease.
const otherHolder = "another"

// takeLease writes the lease as another program does whose clock is off by skew.
func (s *sim) takeLease(skew time.Duration) {
	now := time.Now().Add(skew).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	s.fake.Put("leases", fakekube.Object{
		"metadata": fakekube.Object{"namespace": s.LeaseNamespace, "name": s.LeaseName},
		"spec": fakekube.Object{
			"holderIdentity":       otherHolder,
			"leaseDurationSeconds": s.leaseDuration.Seconds(),
			"acquireTime":          now,
			"renewTime":            now,
			"leaseTransitions":     1,
		},
	})
}

// lease returns the spec of the lease, or nil if there is no lease.
func (s *sim) lease() fakekube.Object {
	lease := s.fake.Get("leases", key{Namespace: s.LeaseNamespace, Name: s.LeaseName})
	spec, _ := lease["spec"].(fakekube.Object)
	return spec
}

// leaseDeleted deletes the lease, as when an administrator tidies up.
func (s *sim) leaseDeleted() string {
	s.fake.Remove("leases", key{Namespace: s.LeaseNamespace, Name: s.LeaseName})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaseTamperedAt = time.Now()
	return "THE LEASE IS DELETED"
}

// crdComesChangesOrGoes removes the CRD of Counts with all Counts, or installs it, or changes whether it has a status
// subresource, as when a chart is removed, installed or upgraded.
func (s *sim) crdComesChangesOrGoes() string {
	if fixture.InstalledCRD(s.fake) != nil && s.flipCoin() {
		fixture.InstallCRD(s.fake, nil)
		return "THE CRD IS GONE"
	}
	hasStatus := s.dice.IntN(4) > 0
	fixture.InstallCRD(s.fake, &fixture.CRD{HasStatus: hasStatus})
	return fmt.Sprint("THE CRD IS THERE, with a subresource: ", hasStatus)
}

// oddFrame sends a frame on a watch that does not stand for a change.
type oddFrame struct {
	name  string // in the story
	frame fakekube.Frame
}

// oddFrames returns the errors that a server sends when a version is too old or when it is overloaded, repeated events,
// an event of an unknown type, and frames that a proxy has damaged.
func oddFrames() []oddFrame {
	failure := func(code int, reason string) fakekube.Frame {
		return fakekube.Frame{Type: "ERROR", Object: fakekube.Status(code, reason, "simulated", nil), End: true}
	}
	return []oddFrame{
		{"an error 410, Expired", failure(410, "Expired")},
		{"an error 410, Gone", failure(410, "Gone")},
		{"an error 429", failure(429, "TooManyRequests")},
		{"an error 500", failure(500, "InternalError")},
		{"an error of an unknown code", failure(499, "Odd")},
		{"an event of an unknown type", fakekube.Frame{Type: "SYNC"}},
		{"one more ADDED", fakekube.Frame{Type: "ADDED"}},
		{"one more MODIFIED", fakekube.Frame{Type: "MODIFIED"}},
		{"one more BOOKMARK", fakekube.Frame{Type: "BOOKMARK"}},
		{"two bytes of garbage", fakekube.Frame{Raw: "\x00\x00", End: true}},
		{"half an event", fakekube.Frame{Raw: `{"type":"ADDED","object":{"metadata":{`, End: true}},
		{"a page of HTML", fakekube.Frame{Raw: "<html>", End: true}},
	}
}

// oddFrameSteps returns one fault for each odd frame.
func oddFrameSteps() (steps []step) {
	for _, odd := range oddFrames() {
		steps = append(steps, odd.step())
	}
	return steps
}

func (f oddFrame) step() step {
	return step{name: "a frame with " + f.name, weight: 1, do: f.strike, reach: oneResource}
}

func (f oddFrame) strike(s *sim) string {
	f.frame.Resource = s.target.resource
	s.fake.SendFrame(f.frame)
	return fmt.Sprintf("A FRAME on a watch of %s: %s", s.target.resource, f.name)
}
