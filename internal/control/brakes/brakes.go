// Package brakes writes to objects, and holds writes back. This is all that makes a key or a write of an object wait.
// Events and the Lease have limits of their own: see packages events and leader.
//
//	what waits                for how long                        why                                 where
//	a controller that starts  until this replica leads and the    half a list, or an old one, would   control.Manager
//	                          caches are usable                   make wrong numbers
//	a replica that starts     0 to 1 s, with -leader-elect        many may start together             control.Manager
//	its first lists           until its first try for the Lease,  lists that come after the election  control.Manager
//	                          or 3 s                              confirm the caches, too
//	a key that has failed     5 ms, doubled by each failure up to the next try may fail as well, and  Queue.Done
//	                          30 s, and at random up to twice     no other key need wait; RetryNow
//	                          that; or Retry-After: see           ends it when the server answers
//	                          retry.Streak                        again
//	a key that was added      until a worker is free, and no      two workers would write one object  Queue
//	                          other one has the key
//	an ordinary key           while up to three urgent keys go    the total should be right first     Queue
//	a key that is unknown     until the next -interval            a function that adds keys panicked  Controller.look
//	the key of the total      min(1 s, -interval) since it last   it looks at all nodes               podCountController
//	                          added nodes
//	a node that has changed   min(1 s, -interval)                 two podcounts must not fight        podCountController
//	a status that was changed -interval                           the same                            countController
//	an object after a write   -interval; for a Count,             changes come together, and others   Brakes.Correct
//	                          min(1 s, -interval)                 watch the object
//	an object that is gone    -interval                           the server may be wrong about that  Brakes.Correct
//	a field that was dropped  10 min                              each try costs as much as a write   Brakes.Correct
//	each write                until its turn by -qps and -burst   the server serves others, too       Brakes.Correct
//	each request              while the credential is renewed     the old one may have ended          kubeconfig
//
// After a wait for its turn, an object is compared with the caches again, because they may have changed meanwhile.
package brakes

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"podcount/internal/api/object"
	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
	"podcount/internal/view/observe"
)

// droppedPause is how long podcount does not write a field again that the server has dropped: the server accepts the
// patch, but drops what it writes, as a webhook or a schema may do. Such a write costs the server, and all clients that
// watch the object, as much as one that works.
const droppedPause = 10 * time.Minute

// Options configure the brakes of a controller. All of them are required.
type Options struct {
	Stop   context.Context // ends every wait
	Once   bool            // No key is added for later, and a field that the server drops is an error.
	DryRun bool            // Nothing is sent. What would be sent is logged.

	QPS      float64       // how many objects are written in a second
	Burst    int           // how many may be written at once after a pause
	Interval time.Duration // how long an object is left alone after a write, unless CoolDown is set, or if it is gone

	AddAfter func(object.Key, time.Duration) // Queue.AddAfter of the controller
	Wrote    func(object.Key)                // gets each object that was written, if the server has kept all of it
	Observer *observe.ControllerReport
}

// Brakes write the objects of one controller. Safe for concurrent use, but no two goroutines may have the same key.
type Brakes struct {
	// CoolDown is how long an object is left alone after a write. It is Options.Interval unless Setup sets it.
	CoolDown time.Duration

	options Options
	turns   *retry.Bucket

	coolingDown retry.Pauses[string] // by uid, because another object may get the name later
	dropped     retry.Pauses[pausedField]
	wouldWrite  sync.Map // by key: the fields that a dry run has logged last
}

// pausedField is a field of an object that the server has dropped.
type pausedField struct {
	key       object.Key
	uid, name string
}

// New makes the brakes of a controller.
func New(o Options) *Brakes {
	if o.Once {
		o.AddAfter = func(object.Key, time.Duration) {} // The next run looks at it.
	}
	return &Brakes{CoolDown: o.Interval, options: o, turns: retry.NewBucket(o.QPS, o.Burst)}
}

// Comparison is an object compared with what it should be.
type Comparison struct {
	Kind   string // of the object, for people: "node"
	Noun   string // of its fields, for people: "label"; "" is "field"
	UID    string
	Fields []Field // all that the controller writes of it, whether it is right or not

	// Patch writes the fields that are due. The error wraps object.ErrGone if the object is gone, and
	// object.ErrStripped if the server has dropped fields. Then dropped has their names.
	Patch func(ctx context.Context, due []Field) (dropped []string, err error)

	// OnWritten is told of each field that was written, and in a dry run of each that would be. It may be nil.
	OnWritten func(Field)

	// OnFinished is called when all is written that may be: the object is right, was written, or would be in a dry run,
	// or the server drops what is still wrong. It may be nil.
	OnFinished func()
}

// Field is a field of an object, such as a label.
type Field struct {
	Name     string
	From, To Value // what it is, and what it should be
	IsWrong  bool
}

// Value is the value of a field. The zero Value says that the object does not have the field.
type Value struct {
	Text   string
	Exists bool
}

// String returns the value for log lines and Events.
func (v Value) String() string {
	if !v.Exists {
		return "none"
	}
	return v.Text
}

// Correct writes what is wrong with an object. If the object must be left alone, its key is added again at the end of
// that time, except with -once. If other writes have their turn first, Correct waits. compare compares the object with
// the caches, and returns nil if the object is gone. It is called again after a wait for the turn, because the caches
// may have changed meanwhile.
//
// The error is that of the write. It is nil if nothing was to be written, or not yet, and if the object is gone. If the
// server drops fields, it is nil as well, because the brakes try again later; but with -once there is no later try.
func (b *Brakes) Correct(ctx context.Context, key object.Key, compare func() *Comparison) error {
	now := compare()
	due := b.due(key, now)
	if len(due) > 0 {
		if !b.restOrAwaitTurn(key, now.UID) {
			return nil
		}
		now = compare()
		due = b.due(key, now)
	}
	if now == nil {
		b.Forget(key)
		return nil
	}
	for _, f := range now.Fields {
		// That a field is absent, as it should be, does not prove that the server would keep a value.
		if !f.IsWrong && f.To.Exists {
			b.noteKept(key, now, f)
		}
	}
	switch {
	case len(due) == 0:
		b.wouldWrite.Delete(key)
	case b.options.DryRun:
		b.logDryRun(key, now, due)
	default:
		isFinished, err := b.write(ctx, key, now, due)
		if !isFinished {
			return err
		}
	}
	if now.OnFinished != nil {
		now.OnFinished()
	}
	return nil
}

// due returns the fields that are wrong, without those whose writes are paused.
func (b *Brakes) due(key object.Key, now *Comparison) (due []Field) {
	if now == nil {
		return nil
	}
	for _, f := range now.Fields {
		if f.IsWrong && b.dropped.Left(pausedField{key, now.UID, f.Name}) == 0 {
			due = append(due, f)
		}
	}
	return due
}

// restOrAwaitTurn waits until -qps allows a write of an object. It returns false if the object cools down after a
// write: then its key is added again at the end of that. It also returns false if podcount stops.
func (b *Brakes) restOrAwaitTurn(key object.Key, uid string) bool {
	left := b.coolingDown.Left(uid)
	if left > 0 {
		b.options.Observer.Rests(key, left)
		b.options.AddAfter(key, left)
		return false
	}
	return b.options.DryRun || b.turns.Wait(b.options.Stop) == nil
}

// write sends one patch with fields of an object. Unless that fails, the object cools down after it, and is finished.
// An object that is gone is not finished either, but that is no error.
func (b *Brakes) write(
	ctx context.Context, key object.Key, now *Comparison, due []Field,
) (isFinished bool, err error) {
	dropped, err := now.Patch(ctx, due)
	if errors.Is(err, object.ErrGone) {
		b.coolingDown.Begin(now.UID, b.options.Interval)
		b.options.AddAfter(key, b.options.Interval) // in case the server was wrong
		return false, nil
	}
	isStripped := errors.Is(err, object.ErrStripped)
	if err != nil && !isStripped {
		return false, err
	}
	for _, f := range due {
		isDropped := slices.Contains(dropped, f.Name)
		switch {
		case !isDropped:
			b.noteKept(key, now, f)
			b.options.Observer.Written(f.change(key, now))
			now.tell(f)
		case !b.options.Once: // Otherwise there will be no further try after a pause: the run fails.
			b.pause(key, now, f, err)
		}
	}
	if isStripped && b.options.Once {
		return false, err
	}
	b.coolingDown.Begin(now.UID, b.CoolDown)
	if !isStripped {
		b.options.Wrote(key)
	}
	return true, nil
}

// pause pauses the writes of a field that the server has dropped. It tells of the first such field, and then of no
// other until all pauses have ended.
func (b *Brakes) pause(key object.Key, now *Comparison, f Field, err error) {
	isFirst := b.dropped.Begin(pausedField{key, now.UID, f.Name}, droppedPause)
	if isFirst {
		b.options.Observer.Dropped(f.change(key, now), droppedPause, err)
	}
	b.options.AddAfter(key, droppedPause)
}

// noteKept ends the pause of a field, because the object has it. It tells of the end of the last pause.
func (b *Brakes) noteKept(key object.Key, now *Comparison, f Field) {
	wasLast := b.dropped.End(pausedField{key, now.UID, f.Name})
	if wasLast {
		b.options.Observer.KeptAgain(f.change(key, now))
	}
}

// logDryRun logs what would be written to an object, except for what it has logged already. Like a write, that makes
// the object cool down.
func (b *Brakes) logDryRun(key object.Key, now *Comparison, due []Field) {
	b.coolingDown.Begin(now.UID, b.CoolDown)
	previous, _ := b.wouldWrite.Swap(key, due)
	logged, _ := previous.([]Field)
	for _, f := range due {
		if !slices.Contains(logged, f) {
			b.options.Observer.WouldWrite(f.change(key, now))
			now.tell(f)
		}
	}
}

func (c *Comparison) tell(f Field) {
	if c.OnWritten != nil {
		c.OnWritten(f)
	}
}

// change describes a write of a field, for the log.
func (f Field) change(key object.Key, now *Comparison) logging.Change {
	verb := "wrote"
	if !f.To.Exists {
		verb = "removed"
	}
	return logging.Change{
		Verb:   verb,
		Kind:   now.Kind,
		Object: key.String(),
		Name:   cmp.Or(now.Noun, "field"),
		Field:  f.Name,
		From:   f.From.String(),
		To:     f.To.String(),
	}
}

// Forget ends the pauses of the fields that the server has dropped from an object: the object is gone, or the server
// may keep now what it has dropped before. A rest after a write goes on.
func (b *Brakes) Forget(key object.Key) {
	b.dropped.EndAll(func(f pausedField) bool { return f.key == key })
	b.wouldWrite.Delete(key)
}
