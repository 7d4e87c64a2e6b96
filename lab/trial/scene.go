package trial

import (
	"context"
	"fmt"
	"net/http"
	"sync"
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

	changes   int       // how often change was called
	endedAt   time.Time // when the fault had ended
	problem   error     // why the job is not done; nil if it is
	rightAt   time.Time // since when it has been done; zero if it is not
	settledAt time.Time // since when it was done, and stayed so, after the fault
	isJudged  bool      // a false number proves something from now on
	falsehood string    // the first false number; "" if there was none
	dialedAt  []time.Time
	dialed    int               // by all programs so far
	aims      int               // how many faults wait for a request or a watch
	hits      atomic.Int32      // how often one of them has met one
	seen      map[string]string // the labels of the nodes when they were last looked at

	wake chan struct{} // has an element after a request

	mu        sync.Mutex // guards the fields below
	holders   map[string]*instance
	intrusion string // how a program has written without the Lease
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

// pause waits, while the program must not exit.
func (s *scene) pause(d time.Duration) {
	end := time.After(d)
	for {
		select {
		case <-end:
			s.look()
			return
		case <-s.aMoment():
			s.look()
		case <-s.wake:
			s.look()
		case <-s.cluster.changed():
			s.look()
		}
	}
}

// aMoment returns a channel that gets the time after a moment.
func (s *scene) aMoment() <-chan time.Time { return time.After(200 * time.Millisecond) }

// look looks at what the programs have done. It ends the row if one has exited.
func (s *scene) look() {
	if s.ctx.Err() != nil {
		s.end(Interrupted, "the trial was stopped")
	}
	dialed := 0
	for _, p := range s.instances {
		dialed += p.net.Dialed()
		if p.process == nil {
			continue
		}
		select {
		case <-p.process.done():
			s.noticeEnd(p)
		default:
		}
	}
	if s.counting != nil {
		s.noticeLabels()
	}
	s.problem = s.job.right()
	switch {
	case s.problem != nil:
		s.rightAt = time.Time{}
	case s.rightAt.IsZero():
		s.rightAt = time.Now()
		s.say("all is right")
	}
	for ; s.dialed < dialed; s.dialed++ {
		s.dialedAt = append(s.dialedAt, time.Now())
	}
	if s.counting == nil {
		return
	}
	if text := s.counting.falseNumber(); text != "" && s.falsehood == "" && s.isJudged {
		s.falsehood = fmt.Sprintf("at second %.1f, %s", time.Since(s.timeline.began).Seconds(), text)
		s.say("that is false: %s", text)
	}
}

// awaitRight waits until the job is done. It ends the row with a verdict if that takes longer than the limit. name is
// what happened at the time since.
func (s *scene) awaitRight(otherwise Verdict, since time.Time, limit time.Duration, name string) {
	late := time.After(limit - time.Since(since))
	for {
		changed := s.cluster.changed()
		if s.look(); s.problem == nil {
			return
		}
		select {
		case <-changed:
		case <-s.wake:
		case <-s.aMoment():
		case <-late:
			if s.look(); s.problem != nil {
				s.end(otherwise, "%s after %s, %v%s", limit, name, s.problem, s.silence())
			}
		}
	}
}

// silence says since when the programs have sent nothing. It returns "" if they have sent something lately.
func (s *scene) silence() string {
	last := s.lastRequest()
	switch {
	case last.IsZero():
		return "; and the program has sent no request at all"
	case time.Since(last) > silenceToTell:
		return fmt.Sprintf("; and the last request came at second %.1f", last.Sub(s.timeline.began).Seconds())
	}
	return ""
}

// silenceToTell is how long a program must have been silent for that to be a hint.
const silenceToTell = 20 * time.Second

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
		if s.staysRight(calmAfterwards) {
			return
		}
		s.say("it is wrong again")
	}
}

// limit returns how long a program may take after the fault.
func (s *scene) limit() time.Duration {
	if s.row.limit != 0 {
		return s.row.limit
	}
	return usualLimit
}

// staysRight waits, and reports whether the job stays done meanwhile.
func (s *scene) staysRight(d time.Duration) bool {
	end := time.Now().Add(d)
	for time.Now().Before(end) {
		s.pause(min(200*time.Millisecond, time.Until(end)))
		if s.problem != nil {
			return false
		}
	}
	return true
}
