package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"
)

// closeTimeout is how long Outputs.Close waits for the last lines of stdout, and again for those of stderr. README.md
// shows the same number.
const closeTimeout = time.Second

// What -once prints is its product, and it comes to an end. So more of it may wait, and for longer.
const (
	onceOutputLimit = 16 << 20    // bytes
	oncePatience    = time.Minute // at the end, with a reader that reads nothing
)

// Outputs are stdout and stderr of a program whose writes must never block. Lines that nobody reads are dropped and
// counted.
type Outputs struct {
	Log    *slog.Logger // writes to Stderr
	Stdout *Output
	Stderr *Output

	options OutputsOptions
}

// OutputsOptions are what Outputs are made with.
type OutputsOptions struct {
	Style  Style      // of the log
	Level  slog.Level // of the log
	Once   bool       // the output is the product of -once, so no line may be lost
	DryRun bool       // the log belongs to the product, because it shows what would be written
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

// Close waits until the last lines are written, but at most closeTimeout for each output. Only -once waits longer,
// until ctx ends. Close returns an error if -once has lost lines of its product.
func (out *Outputs) Close(ctx context.Context) error {
	patience, stopWaiting := context.WithCancel(ctx)
	defer stopWaiting()
	if !out.options.Once {
		stopWaiting()
	}
	// Stdout comes first, because the lines that it has lost are reported on stderr.
	out.Stdout.Close(patience, oncePatience, closeTimeout)
	out.Stderr.Close(patience, oncePatience, closeTimeout)
	if !out.options.Once {
		return nil
	}
	lost := out.Stdout.Lost()
	if out.options.DryRun {
		lost += out.Stderr.Lost()
	}
	if lost > 0 {
		return fmt.Errorf("-once: %d lines of its output were lost, because nobody read them", lost)
	}
	return nil
}
