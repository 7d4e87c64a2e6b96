package trial

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"podcount/lab/fakekube"
)

// scene is where a row happens. Only the goroutine of the row may use it, unless a method says otherwise.
type scene struct {
	trial     *trial
	row       Row
	ctx       context.Context // ends when the trial is interrupted
	isVirtual bool
	dir       string // for the files of the programs

	fake     *fakekube.Server // answers the programs; before a real cluster, it only passes on what no fault replaces
	api      http.Handler     // the fake, or what guards a real cluster
	token    string           // of the programs
	cluster  cluster
	prefix   string // of the names of all objects
	label    string
	job      job
	counting *counting // the job, or nil if it is another one
	reads    string    // what the job reads, in the words of a script
	writes   string    // what it writes

	timeline  *timeline
	instances []*instance
	isClosed  bool
	mayEnd    bool // whether a program may end by itself

	changes   int               // how often change was called
	endedAt   time.Time         // when the fault had ended
	problem   error             // why the job is not done; nil if it is
	rightAt   time.Time         // since when it has been done; zero if it is not
	settledAt time.Time         // since when it was done, and stayed so, after the fault
	isJudged  bool              // a false number proves something from now on
	falsehood string            // the first false number; "" if there was none
	seen      map[string]string // the labels of the nodes when they were last looked at
	dialedAt  []time.Time       // when programs have connected
	aims      int               // how many faults wait for a request or a watch
	hits      atomic.Int32      // how often one of them has met one

	wake     chan struct{} // has an element after a request
	election election
}

// job is what the programs of a row do.
type job interface {
	setup()
	change(n int) string // says what has changed
	right() error
}

// ended is the panic that ends a row with a verdict.
type ended struct {
	verdict Verdict
	detail  string
}

// end ends the row.
func (s *scene) end(verdict Verdict, format string, args ...any) {
	panic(ended{verdict, fmt.Sprintf(format, args...)})
}

// say adds what the trial does to the timeline.
func (s *scene) say(format string, args ...any) { s.timeline.add("trial", format, args...) }

// start starts a program, and waits until it is right. How it becomes so is not judged: other rows do that.
func (s *scene) start() *instance {
	p := s.connect()
	p.start(s)
	s.awaitRight(NeverRight, time.Now(), usualLimit, "the start")
	s.isJudged = true
	return p
}

// startEarly starts a program, and judges all that it does.
func (s *scene) startEarly() *instance {
	s.isJudged = true
	p := s.connect()
	p.start(s)
	return p
}

// change changes what the programs read.
func (s *scene) change() {
	s.changes++
	s.say("changes: %s", s.job.change(s.changes))
}

// faultEnds says that from now on, nothing keeps the programs from being right.
func (s *scene) faultEnds() { s.endedAt = time.Now() }

// second returns a time in seconds since the beginning of the row.
func (s *scene) second(at time.Time) float64 { return at.Sub(s.timeline.began).Seconds() }

// await waits until something is true, and looks at what the programs do meanwhile. It returns false if that takes
// longer than the limit.
func (s *scene) await(limit time.Duration, isTrue func() bool) bool {
	late := time.After(limit)
	for {
		changed := s.cluster.changed()
		if s.look(); isTrue() {
			return true
		}
		select {
		case <-changed:
		case <-s.wake:
		case <-time.After(200 * time.Millisecond):
		case <-late:
			s.look()
			return isTrue()
		}
	}
}

// pause waits, while the program must not exit.
func (s *scene) pause(d time.Duration) { s.await(d, func() bool { return false }) }

// look looks at what the programs have done. It ends the row if one has exited.
func (s *scene) look() {
	if s.ctx.Err() != nil {
		s.end(Interrupted, "the trial was stopped")
	}
	s.noticeConnections()
	if s.counting != nil {
		s.noticeLabels()
		s.noticeFalseNumber()
	}
	s.problem = s.job.right()
	switch {
	case s.problem != nil:
		s.rightAt = time.Time{}
	case s.rightAt.IsZero():
		s.rightAt = time.Now()
		s.say("all is right")
	}
	for _, p := range s.instances {
		if p.hasEnded() {
			s.noticeEnd(p)
		}
	}
}

// awaitRight waits until the job is done. It ends the row with a verdict if that takes longer than the limit. name is
// what happened at the time since.
func (s *scene) awaitRight(otherwise Verdict, since time.Time, limit time.Duration, name string) {
	isRight := s.await(limit-time.Since(since), func() bool { return s.problem == nil })
	if !isRight {
		s.end(otherwise, "%s after %s, %v%s", limit, name, s.problem, s.silence())
	}
}

// finish waits until the job is done after the fault, and stays done. Then it looks whether the programs are only right
// by chance, or follow what happens now.
func (s *scene) finish() {
	s.settle(s.endedAt, "the fault")
	s.settledAt = s.rightAt
	s.change()
	s.settle(time.Now(), "a further change")
}

// settle waits until the job is done, and stays done. The time since which the program has the limit has a name.
func (s *scene) settle(since time.Time, name string) {
	for {
		s.awaitRight(Wrong, since, s.limit(), name)
		if becameWrong := s.await(calmAfterwards, func() bool { return s.problem != nil }); !becameWrong {
			return
		}
		s.say("it is wrong again")
	}
}

// limit returns how long a program may take after the fault.
func (s *scene) limit() time.Duration { return cmp.Or(s.row.limit, usualLimit) }

// answered is called after each request of a program, on the request's goroutine.
func (s *scene) answered(p *instance, rt fakekube.Route, code int) {
	if s.row.needs&needsElection != 0 && isWrite(rt) && code < 300 {
		s.noteLease(p, rt)
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}
