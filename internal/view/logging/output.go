package logging

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// OutputLimit is how many bytes of lines an Output usually keeps for a slow reader.
const OutputLimit = 1 << 20

// Output writes lines to a file, such as stderr, without ever blocking the caller. A plain write to a pipe blocks while
// the pipe is full. If a program logs while it holds locks, that can stop the whole program. So Write only copies the
// line to a buffer, and the Output's own goroutine writes it to the file.
//
// The buffer has a limit. Lines that do not fit, and lines that the file refuses, are dropped and counted. As soon as
// the file accepts lines again, a report says how many are missing. An Output is safe for concurrent use.
type Output struct {
	file   io.Writer
	limit  int // the maximum of bytes
	report func(missing int) (line []byte)
	lost   atomic.Int64  // how many lines were dropped since the start
	wake   chan struct{} // holds a token while run has work to do
	ended  chan struct{} // closed when run has ended

	mu       sync.Mutex // guards the fields below
	buffer   []bufferEntry
	bytes    int // the length of all lines in the buffer
	isClosed bool

	// isDropping becomes true when a line does not fit, and false when half of the buffer is free. Meanwhile, all lines
	// are dropped, even short ones that fit: one large gap is easier to read than many small ones.
	isDropping bool

	// Only run uses the fields below.
	missing   int  // how many lines were dropped since the last report
	isRefused bool // the file refused the last line
}

// bufferEntry is a line, or a gap where lines were dropped.
type bufferEntry struct {
	line    []byte // nil for a gap
	dropped int    // how many lines were dropped in a gap
}

// NewOutput makes an Output, which the caller must close. Its buffer holds up to limit bytes of lines.
//
// report returns a line for the file that says how many lines are missing. It may also report that elsewhere, and
// return nil. The Output's goroutine calls it.
func NewOutput(file io.Writer, limit int, report func(missing int) (line []byte)) *Output {
	o := &Output{
		file:   file,
		limit:  limit,
		report: report,
		wake:   make(chan struct{}, 1),
		ended:  make(chan struct{}),
	}
	go o.run()
	return o
}

// Write takes one whole line. It never blocks, and never fails.
func (o *Output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.bytes+len(line) > o.limit {
		o.isDropping = true
	} else if o.bytes <= o.limit/2 {
		o.isDropping = false
	}
	if o.isClosed || o.isDropping {
		o.dropLocked()
	} else {
		o.buffer = append(o.buffer, bufferEntry{line: bytes.Clone(line)})
		o.bytes += len(line)
	}
	o.wakeUp()
	return len(line), nil
}

// dropLocked adds a dropped line to the gap at the end of the buffer.
func (o *Output) dropLocked() {
	o.lost.Add(1)
	last := len(o.buffer) - 1
	if last >= 0 && o.buffer[last].dropped > 0 {
		o.buffer[last].dropped++
		return
	}
	o.buffer = append(o.buffer, bufferEntry{dropped: 1})
}

func (o *Output) wakeUp() {
	select {
	case o.wake <- struct{}{}:
	default: // There is already a token.
	}
}

// Lost returns how many lines have been dropped since the start.
func (o *Output) Lost() int64 { return o.lost.Load() }

// Close waits until the lines in the buffer are written. It gives up when no line was written for idleTimeout, or when
// stopTimeout has passed after the end of ctx. Lines that are not written by then, and lines that are added later,
// count as lost. Close must be called once.
func (o *Output) Close(ctx context.Context, idleTimeout, stopTimeout time.Duration) {
	o.mu.Lock()
	o.isClosed = true
	o.mu.Unlock()
	o.wakeUp()
	for {
		before := o.countLines()
		if o.endsWithin(ctx, idleTimeout, stopTimeout) {
			return
		}
		left := o.countLines()
		if left == before || ctx.Err() != nil {
			o.lost.Add(int64(left))
			return
		}
	}
}

// endsWithin reports whether run ends within idleTimeout, or within stopTimeout after the end of ctx.
func (o *Output) endsWithin(ctx context.Context, idleTimeout, stopTimeout time.Duration) bool {
	select {
	case <-o.ended:
		return true
	case <-time.After(idleTimeout):
		return false
	case <-ctx.Done():
	}
	select {
	case <-o.ended:
		return true
	case <-time.After(min(idleTimeout, stopTimeout)):
		return false
	}
}

// countLines returns how many lines are in the buffer.
func (o *Output) countLines() (lines int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, entry := range o.buffer {
		if entry.line != nil {
			lines++
		}
	}
	return lines
}

// run writes lines to the file until the Output is closed and its buffer is empty. It is the Output's own goroutine.
func (o *Output) run() {
	defer close(o.ended)
	for range o.wake {
		// Read this before the buffer is emptied: a closed Output gets no more lines, so its buffer stays empty.
		wasClosed := o.wasClosed()
		o.emptyBuffer()
		if wasClosed {
			return
		}
	}
}

func (o *Output) wasClosed() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.isClosed
}

// emptyBuffer writes all lines in the buffer. An entry stays in the buffer while it is being written, so that the limit
// and Close count it.
func (o *Output) emptyBuffer() {
	for {
		entry, ok := o.firstEntry()
		if !ok {
			return
		}
		o.write(entry)
		o.removeFirst(entry)
	}
}

func (o *Output) firstEntry() (entry bufferEntry, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buffer) == 0 {
		return bufferEntry{}, false
	}
	return o.buffer[0], true
}

// removeFirst removes the first entry, which was written. If it is a gap that has grown meanwhile, the new part stays.
func (o *Output) removeFirst(written bufferEntry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if grown := o.buffer[0].dropped - written.dropped; grown > 0 {
		o.buffer[0].dropped = grown
		return
	}
	o.buffer[0] = bufferEntry{} // The array of the buffer must not keep the line.
	o.buffer = o.buffer[1:]
	o.bytes -= len(written.line)
	if len(o.buffer) == 0 {
		o.buffer = nil // Nor may the array stay after a burst of lines.
	}
}

// write writes a line to the file, or counts the lines in a gap. If lines are missing and the file accepts lines, it
// reports how many are missing.
func (o *Output) write(entry bufferEntry) {
	if entry.line == nil {
		o.missing += entry.dropped
	} else {
		o.writeLine(entry.line)
	}
	if o.missing == 0 || o.isRefused {
		return
	}
	if line := o.report(o.missing); line != nil {
		o.file.Write(line) // If this fails, the report is lost, but Lost still returns the number.
	}
	o.missing = 0
}

func (o *Output) writeLine(line []byte) {
	_, err := o.file.Write(line)
	o.isRefused = err != nil
	if o.isRefused {
		o.lost.Add(1)
		o.missing++
	}
}
