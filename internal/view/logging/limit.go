package logging

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"unicode/utf8"
)

// lineLimit is how many bytes a line of the log has at most, in every style.
const lineLimit = 4 << 10

const (
	longestValue = 2 << 10 // bytes of a value in a line that would be too long: the first try, see limitedHandler
	boundLimit   = 100     // bytes of a value that WithAttrs adds to every line
)

// limitedHandler shortens the values in lines that would be longer than lineLimit. No other place guarantees that
// limit. A server decides how long an error is, and a line that is cut in the middle is not valid JSON.
type limitedHandler struct {
	next slog.Handler // writes to line
	line *lineBuffer
}

// lineBuffer holds the line that is being made. All handlers that were derived from one share it.
type lineBuffer struct {
	mu sync.Mutex // held while a line is made and written
	bytes.Buffer
	w io.Writer // gets the line
}

func (h *limitedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

// Handle writes a record as one line. While that is too long, it halves the limit of the values.
func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	short := r
	for limit := longestValue; ; limit /= 2 {
		h.line.Reset()
		if err := h.next.Handle(ctx, short); err != nil {
			return err
		}
		if h.line.Len() <= lineLimit || limit == 0 {
			_, err := h.line.w.Write(h.line.Bytes())
			return err
		}
		short = shortRecord(r, limit)
	}
}

func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var short []slog.Attr
	for _, a := range attrs {
		short = append(short, shortAttr(a, boundLimit))
	}
	return &limitedHandler{next: h.next.WithAttrs(short), line: h.line}
}

func (h *limitedHandler) WithGroup(name string) slog.Handler {
	return &limitedHandler{next: h.next.WithGroup(name), line: h.line}
}

// shortRecord returns a record whose message and values have at most limit bytes, and a mark if they are cut off.
func shortRecord(r slog.Record, limit int) slog.Record {
	short := slog.NewRecord(r.Time, r.Level, shortText(r.Message, limit), r.PC)
	r.Attrs(func(a slog.Attr) bool {
		short.AddAttrs(shortAttr(a, limit))
		return true
	})
	return short
}

// shortAttr returns an attribute whose value has at most limit bytes, and a mark if it is cut off. A value that is cut
// off becomes a text, whatever it was.
func shortAttr(a slog.Attr, limit int) slog.Attr {
	text := a.Value.Resolve().String()
	if len(text) <= limit {
		return a
	}
	return slog.String(a.Key, shortText(text, limit))
}

// shortText returns a text, or the beginning of one that has more bytes than limit, with a mark.
func shortText(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return fmt.Sprintf("%s… (%d bytes in all)", text[:limit], len(text))
}
