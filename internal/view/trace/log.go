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

	// derive holds what made the logger from the first one: calls of WithAttrs and WithGroup.
	derive []func(slog.Handler) slog.Handler
}

// NewHandler returns a handler that passes records to next. While somebody listens to t, it emits a step for each
// record, even for those whose level next does not want.
func NewHandler(next slog.Handler, t *Trace) slog.Handler {
	return &handler{next: next, trace: t}
}

func (h *handler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.trace.IsOn() || h.next.Enabled(ctx, level)
}

func (h *handler) Handle(ctx context.Context, record slog.Record) error {
	if h.trace.IsOn() {
		h.trace.emit(record.PC, func() Step {
			return Step{Point: LogLine, Type: levelName(record.Level), Text: h.line(ctx, record)}
		})
	}
	if !h.next.Enabled(ctx, record.Level) {
		return nil
	}
	return h.next.Handle(ctx, record)
}

// levelName returns the name of a level. As in podcount's log, all levels below INFO are DEBUG.
func levelName(level slog.Level) string {
	if level < slog.LevelInfo {
		return slog.LevelDebug.String()
	}
	return level.String()
}

// line returns a record as one line of logfmt, without its time and level.
func (h *handler) line(ctx context.Context, record slog.Record) string {
	var line bytes.Buffer
	var text slog.Handler = slog.NewTextHandler(&line, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})
	for _, derive := range h.derive {
		text = derive(text)
	}
	text.Handle(ctx, record)
	return string(bytes.TrimSpace(line.Bytes()))
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return h.derived(func(h slog.Handler) slog.Handler { return h.WithAttrs(attrs) })
}

func (h *handler) WithGroup(name string) slog.Handler {
	return h.derived(func(h slog.Handler) slog.Handler { return h.WithGroup(name) })
}

// derived returns the handler of a logger that was made from this one's.
func (h *handler) derived(derive func(slog.Handler) slog.Handler) slog.Handler {
	all := append(slices.Clip(h.derive), derive)
	return &handler{next: derive(h.next), trace: h.trace, derive: all}
}
