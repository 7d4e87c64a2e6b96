package trace

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
)

// handler passes log records to another handler, and emits a step for each while somebody listens.
type handler struct {
	next  slog.Handler
	trace *Trace
	attrs []slog.Attr // from WithAttrs
}

// NewHandler returns a handler that passes records to next. While somebody listens to t, it emits a step for each
// record, even for those whose level next does not want. The step has the record as a line of logfmt, without its time
// and level.
func NewHandler(next slog.Handler, t *Trace) slog.Handler { return &handler{next: next, trace: t} }

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.trace.IsOn() || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	h.trace.EmitBuilt(func() Step {
		var line bytes.Buffer
		text := slog.NewTextHandler(&line, &slog.HandlerOptions{ReplaceAttr: dropTimeAndLevel})
		text.WithAttrs(h.attrs).Handle(ctx, record)
		return Step{Point: LogLine, Type: levelName(record.Level), Text: string(bytes.TrimSpace(line.Bytes()))}
	})
	if !h.next.Enabled(ctx, record.Level) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

func dropTimeAndLevel(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
		return slog.Attr{}
	}
	return a
}

// levelName returns the name of a level. As in podcount's log, all levels below INFO are DEBUG.
func levelName(level slog.Level) string {
	if level < slog.LevelInfo {
		return slog.LevelDebug.String()
	}
	return level.String()
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.next.WithAttrs(attrs), h.trace, slices.Concat(h.attrs, attrs)}
}

// WithGroup leaves the names of attributes as they are in steps, which show no groups.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.next.WithGroup(name), h.trace, h.attrs}
}
