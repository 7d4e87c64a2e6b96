package logging

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// OutputLimit is how many bytes of lines may wait for a slow reader, unless there is a reason for more.
const OutputLimit = 1 << 20

// Output writes lines to stderr or stdout without making anyone wait. A pipe that is full because its reader has
// stopped blocks whoever writes to it, and everyone waiting for the writer's locks. So Write only copies the line
// into a bounded buffer, and a goroutine of its own writes. Lines that do not fit, and lines that could not be
// written, are dropped and counted. As soon as lines get through again, report is told how many are missing. Safe for
// concurrent use.
type Output struct {
	to     io.Writer
	limit  int
	report func(missing int) (line []byte)
	lost   atomic.Int64  // lines, since the start
	wake   chan struct{} // holds a token while the goroutine has something to do
	ended  chan struct{} // closed when the goroutine has ended

	mu      sync.Mutex // guards all below
	waiting []outputEntry
	bytes   int // of all lines in waiting
	closed  bool
	// A line has not fitted, and less than half of the buffer is free since. All lines are dropped then, as one large gap
	// is easier to read than many small ones between lines that happened to be short.
	dropping bool

	// Owned by the goroutine.
	missing int  // lines dropped since the last report
	failing bool // the newest line could not be written
}

// outputEntry is a line that waits or, without one, the gap that dropped lines have left.
type outputEntry struct {
	line    []byte
	dropped int // lines; 0 where there is a line
}

// NewOutput starts to write lines to a file. limit is how many bytes of them may wait. report returns the line that
// says how many are missing, or reports it elsewhere and returns nil; one goroutine calls it, between two lines. Close
// must be called in the end.
func NewOutput(to io.Writer, limit int, report func(missing int) (line []byte)) *Output {
	o := &Output{to: to, limit: limit, report: report, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go o.run()
	return o
}

// Write takes one whole line. It never blocks, and never fails.
func (o *Output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	isFull := o.bytes+len(line) > o.limit
	o.dropping = isFull || o.dropping && o.bytes > o.limit/2
	if o.closed || o.dropping {
		o.dropLocked()
	} else {
		o.waiting = append(o.waiting, outputEntry{line: bytes.Clone(line)})
		o.bytes += len(line)
	}
	o.wakeUp()
	return len(line), nil
}

func (o *Output) dropLocked() {
	o.lost.Add(1)
	if last := len(o.waiting) - 1; last >= 0 && o.waiting[last].dropped > 0 {
		o.waiting[last].dropped++
		return
	}
	o.waiting = append(o.waiting, outputEntry{dropped: 1})
}

func (o *Output) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default: // it has been told already
	}
}

// Lost returns how many lines have been dropped since the start.
func (o *Output) Lost() int64 { return o.lost.Load() }

// Close waits until the last lines are written, while at least one gets through in each span of patience; once ctx has
// ended, it waits no longer than haste. Lines that are not written by then, or come later, count as lost. It is for one
// caller, once.
func (o *Output) Close(ctx context.Context, patience, haste time.Duration) {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.wakeUp()
	for before := o.left(); !o.endsWithin(ctx, patience, haste); before = o.left() {
		if ctx.Err() != nil || o.left() == before {
			o.lost.Add(int64(o.left()))
			return
		}
	}
}

// endsWithin reports whether the goroutine ends within patience, or within haste from the end of ctx.
func (o *Output) endsWithin(ctx context.Context, patience, haste time.Duration) bool {
	select {
	case <-o.ended:
		return true
	case <-time.After(patience):
		return false
	case <-ctx.Done():
	}
	select {
	case <-o.ended:
		return true
	case <-time.After(min(patience, haste)):
		return false
	}
}

// left returns how many lines wait.
func (o *Output) left() (lines int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, entry := range o.waiting {
		if entry.line != nil {
			lines++
		}
	}
	return lines
}

// run writes what waits until Close, and then what still waits.
func (o *Output) run() {
	defer close(o.ended)
	for range o.wake {
		isLast := o.isClosed() // asked before the rest is written: no line can be added to that once it is true
		for entry, ok := o.first(); ok; entry, ok = o.first() {
			o.write(entry)
			o.remove(entry)
		}
		if isLast {
			return
		}
	}
}

// write writes a line, or notes a gap, and reports what is missing as soon as that is of use.
func (o *Output) write(entry outputEntry) {
	o.missing += entry.dropped
	if entry.line != nil {
		_, err := o.to.Write(entry.line)
		o.failing = err != nil
		if o.failing {
			o.lost.Add(1)
			o.missing++
		}
	}
	if o.missing == 0 || o.failing {
		return
	}
	if line := o.report(o.missing); line != nil {
		o.to.Write(line) // a report that fails is not repeated: Lost still has the number
	}
	o.missing = 0
}

// first returns the entry that has waited longest. It stays in the buffer while it is written.
func (o *Output) first() (entry outputEntry, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.waiting) == 0 {
		return entry, false
	}
	return o.waiting[0], true
}

// remove removes the first entry. A gap may have grown meanwhile: what it has gained stays.
func (o *Output) remove(written outputEntry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if grown := o.waiting[0].dropped - written.dropped; grown > 0 {
		o.waiting[0].dropped = grown
		return
	}
	o.waiting = o.waiting[1:]
	o.bytes -= len(written.line)
}

func (o *Output) isClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closed
}
