package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
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
	ended  chan struct{} // closed when run has ended

	mu       sync.Mutex // guards the fields below
	wake     *sync.Cond // tells run that there is a line in the buffer, or that the Output is closed
	buffer   [][]byte   // A line stays here while it is being written, so that the limit and Close count it.
	bytes    int        // the length of all lines in the buffer
	missing  int        // how many lines were dropped since the last report
	isClosed bool

	// isDropping becomes true when a line does not fit, and false when half of the buffer is free. Meanwhile, all lines
	// are dropped, even short ones that fit: one large gap is easier to read than many small ones.
	isDropping bool
}

// NewOutput makes an Output, which the caller must close. Its buffer holds up to limit bytes of lines.
//
// report returns a line for the file that says how many lines are missing. It may also report that elsewhere, and
// return nil. It must not write to the Output.
func NewOutput(file io.Writer, limit int, report func(missing int) (line []byte)) *Output {
	o := &Output{file: file, limit: limit, report: report, ended: make(chan struct{})}
	o.wake = sync.NewCond(&o.mu)
	go o.run()
	return o
}

// Write takes one whole line. It never blocks, and never fails.
func (o *Output) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.buffer) > 0 && o.bytes+len(line) > o.limit {
		o.isDropping = true
	}
	if o.isClosed || o.isDropping {
		o.dropLocked()
	} else {
		o.addLocked(bytes.Clone(line))
	}
	return len(line), nil
}

func (o *Output) addLocked(line []byte) {
	o.buffer = append(o.buffer, line)
	o.bytes += len(line)
	o.wake.Signal()
}

func (o *Output) dropLocked() {
	o.lost.Add(1)
	o.missing++
}

// Lost returns how many lines have been dropped since the start.
func (o *Output) Lost() int64 { return o.lost.Load() }

// Close waits until the lines in the buffer are written. It gives up when no line was written for idleTimeout, or when
// stopTimeout has passed after the end of ctx. Lines that are not written by then, and lines that are added later,
// count as lost. Close must be called once.
func (o *Output) Close(ctx context.Context, idleTimeout, stopTimeout time.Duration) {
	o.mu.Lock()
	o.isClosed = true
	o.wake.Signal()
	o.mu.Unlock()
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopTimeout, func() { close(late) }) })()
	for {
		before := o.waiting()
		isLate := false
		select {
		case <-o.ended:
			return
		case <-late:
			isLate = true
		case <-time.After(idleTimeout):
		}
		if left := o.waiting(); isLate || left == before {
			o.lost.Add(int64(left))
			return
		}
	}
}

// waiting returns how many lines are in the buffer.
func (o *Output) waiting() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buffer)
}

// run writes lines to the file until the Output is closed and its buffer is empty. It is the Output's own goroutine.
func (o *Output) run() {
	defer close(o.ended)
	for line, ok := o.first(); ok; line, ok = o.first() {
		_, err := o.file.Write(line)
		o.removeFirst(err)
	}
}

// first waits for a line. ok is false if there will be none, because the Output is closed.
func (o *Output) first() (line []byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.buffer) == 0 && !o.isClosed {
		o.wake.Wait()
	}
	if len(o.buffer) == 0 {
		return nil, false
	}
	return o.buffer[0], true
}

// removeFirst removes the first line, which the file has taken, or has refused with an error. If lines are missing, and
// the file takes lines, it adds a report where they are missing. The file may refuse that as any other line.
func (o *Output) removeFirst(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.bytes -= len(o.buffer[0])
	o.buffer[0] = nil // The array of the buffer must not keep the line.
	o.buffer = o.buffer[1:]
	if len(o.buffer) == 0 {
		o.buffer = nil // Nor may the array stay after a burst of lines.
	}
	if o.bytes <= o.limit/2 {
		o.isDropping = false
	}
	if err != nil {
		o.dropLocked()
		return
	}
	if o.missing > 0 && !o.isDropping {
		if line := o.report(o.missing); line != nil {
			o.addLocked(line)
		}
		o.missing = 0
	}
}

// closeTimeout is how long Outputs.Close waits for the last lines of stdout, and again for those of stderr.
// docs/run/failures.md shows the same number.
const closeTimeout = time.Second

// The output of -once is its product, so it gets a larger buffer and more time than a log.
const (
	onceOutputLimit = 16 << 20    // bytes
	onceIdleTimeout = time.Minute // how long Close waits for a reader that reads nothing
)

// Outputs are the stdout and stderr of a program, to which writes never block. Lines that nobody reads are dropped and
// counted.
type Outputs struct {
	Log    *slog.Logger // writes to Stderr
	Stdout *Output
	Stderr *Output

	options OutputsOptions
}

// OutputsOptions configure Outputs.
type OutputsOptions struct {
	Style  Style      // of the log
	Level  slog.Level // of the log
	Once   bool       // Stdout has the product of -once, so no line of it may be lost.
	DryRun bool       // The log is part of that product, because it shows what would be written.
}

// NewOutputs makes Outputs, which the caller must close.
func NewOutputs(stdout, stderr io.Writer, o OutputsOptions) *Outputs {
	limit := OutputLimit
	if o.Once {
		limit = onceOutputLimit
	}
	out := &Outputs{options: o}
	out.Stderr = NewOutput(stderr, limit, func(missing int) []byte {
		var line bytes.Buffer
		log := slog.New(NewHandler(&line, o.Style, o.Level))
		log.Warn("log lines were dropped, because stderr was not read, or failed", "lines", missing)
		return line.Bytes()
	})
	out.Log = slog.New(NewHandler(out.Stderr, o.Style, o.Level))
	out.Stdout = NewOutput(stdout, limit, func(missing int) []byte {
		out.Log.Warn("printed lines were dropped, because stdout was not read, or failed", "lines", missing)
		return nil
	})
	return out
}

// Close waits until the last lines are written, but at most closeTimeout for each output. -once waits longer: until ctx
// has ended, or until nobody has read a line for onceIdleTimeout. Close returns an error if -once has lost lines of its
// product.
func (out *Outputs) Close(ctx context.Context) error {
	waiting, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	if !out.options.Once {
		stopWaiting()
	}
	// Close stdout first, because its lost lines are reported on stderr.
	out.Stdout.Close(waiting, onceIdleTimeout, closeTimeout)
	out.Stderr.Close(waiting, onceIdleTimeout, closeTimeout)
	if !out.options.Once {
		return nil
	}
	lost := out.Stdout.Lost()
	if out.options.DryRun {
		lost += out.Stderr.Lost()
	}
	if lost > 0 {
		return fmt.Errorf("-once: %d lines of output were lost, because the reader was too slow or stopped", lost)
	}
	return nil
}
