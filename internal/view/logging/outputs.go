package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// closeTimeout is how long Outputs.Close waits for the last lines of stdout, and again for those of stderr.
// docs/operating.md shows the same number.
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
