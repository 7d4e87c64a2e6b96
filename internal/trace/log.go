package trace

import (
	"bytes"
	"context"
	"log/slog"
)

// handler passes log records to another handler, and emits a step for each while somebody listens.
type handler struct {
	next  slog.Handler
	trace *Trace
	attrs []slog.Attr // of the logger
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
		step := Step{Point: LogLine, Type: levelName(record.Level), Text: h.line(ctx, record)}
		h.trace.emit(step, placeOf(record.PC))
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
	text := slog.NewTextHandler(&line, &slog.HandlerOptions{
		Level: slog.Level(-100),
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey || a.Key == slog.LevelKey {
				return slog.Attr{}
			}
			return a
		},
	})
	text.WithAttrs(h.attrs).Handle(ctx, record)
	return string(bytes.TrimSpace(line.Bytes()))
}

func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	own := append(h.attrs[:len(h.attrs):len(h.attrs)], attrs...)
	return &handler{next: h.next.WithAttrs(attrs), trace: h.trace, attrs: own}
}

func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{next: h.next.WithGroup(name), trace: h.trace, attrs: h.attrs}
}
