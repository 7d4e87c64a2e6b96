package logging

import (
	"context"
	"fmt"
	"log/slog"
	"unicode"
	"unicode/utf8"
)

// lineLimit is how many bytes a line of the log has at most, in every style.
const lineLimit = 4 << 10

const (
	longestValue  = 2 << 10 // bytes of a value in a line that would be too long: the first try, see shortened
	boundLimit    = 200     // bytes of a value that WithAttrs adds to every line
	frameSize     = 200     // more than the time, the level and the colours of a line need
	attrFrameSize = 50      // more than the quotes and separators around a value need, and the mark that it is cut
)

// limitedHandler shortens the values in lines that would be longer than lineLimit, and passes all records on. No other
// place guarantees that limit. A server decides how long an error is, and a line that is cut in the middle is not
// valid JSON.
type limitedHandler struct {
	next    slog.Handler
	maxSize int // the maximum size of a line without what WithAttrs has added
	prefix  int // the size of the prefix of WithGroup
}

func (h *limitedHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return h.next.Enabled(ctx, level)
}

func (h *limitedHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.next.Handle(ctx, h.shortened(r))
}

func (h *limitedHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	var short []slog.Attr
	for _, a := range attrs {
		a = shortAttr(a, boundLimit)
		next.maxSize -= h.prefix + attrSize(a)
		short = append(short, a)
	}
	next.next = h.next.WithAttrs(short)
	return &next
}

func (h *limitedHandler) WithGroup(name string) slog.Handler {
	next := *h
	next.prefix += len(name) + 1
	next.next = h.next.WithGroup(name)
	return &next
}

// shortened returns the record itself if its line is short enough. Otherwise it halves the limit of the values until
// the line is.
func (h *limitedHandler) shortened(r slog.Record) slog.Record {
	short := r
	for limit := longestValue; limit > 0 && h.lineSize(short) > h.maxSize; limit /= 2 {
		short = slog.NewRecord(r.Time, r.Level, shortText(r.Message, limit), r.PC)
		r.Attrs(func(a slog.Attr) bool {
			short.AddAttrs(shortAttr(a, limit))
			return true
		})
	}
	return short
}

// lineSize returns a size that the line of a record does not exceed in any style.
func (h *limitedHandler) lineSize(r slog.Record) int {
	size := frameSize + quotedSize(r.Message)
	r.Attrs(func(a slog.Attr) bool {
		size += h.prefix + attrSize(a)
		return true
	})
	return size
}

// attrSize returns a size that an attribute does not exceed in any style.
func attrSize(a slog.Attr) int {
	value := a.Value.Resolve()
	size := attrFrameSize + len(a.Key)
	switch value.Kind() {
	case slog.KindGroup:
		for _, member := range value.Group() {
			size += len(a.Key) + attrSize(member)
		}
		return size
	case slog.KindAny:
		if _, isError := value.Any().(error); !isError {
			return size + 4*quotedSize(textOf(value)) // JSON has the names of fields, too.
		}
	}
	return size + quotedSize(textOf(value))
}

// shortAttr returns an attribute whose value has at most limit bytes as it is written, and a mark if it is cut off.
func shortAttr(a slog.Attr, limit int) slog.Attr {
	if change, isChange := a.Value.Any().(Change); isChange {
		change.Object = shortText(change.Object, limit)
		change.Field = shortText(change.Field, limit)
		change.From = shortText(change.From, limit)
		change.To = shortText(change.To, limit)
		return slog.Any(a.Key, change) // A terminal shows it in another way than a group.
	}
	value := a.Value.Resolve()
	if value.Kind() == slog.KindGroup {
		var members []slog.Attr
		for _, member := range value.Group() {
			members = append(members, shortAttr(member, limit))
		}
		return slog.Attr{Key: a.Key, Value: slog.GroupValue(members...)}
	}
	text := textOf(value)
	short := shortText(text, limit)
	if short == text {
		return a
	}
	return slog.String(a.Key, short)
}

// textOf returns a value as a line shows it.
func textOf(value slog.Value) string {
	if err, isError := value.Any().(error); isError {
		return err.Error()
	}
	return value.String()
}

// shortText returns a text, or the beginning of one that has more than limit bytes as it is written, with a mark.
func shortText(text string, limit int) string {
	size := 0
	for i, r := range text {
		size += runeSize(r)
		if size > limit {
			return fmt.Sprintf("%s… (%d bytes in all)", text[:i], len(text))
		}
	}
	return text
}

// quotedSize returns a size that a text does not exceed in any style.
func quotedSize(text string) (size int) {
	for _, r := range text {
		size += runeSize(r)
	}
	return size
}

// runeSize returns the size of the longest form of a character, such as \" or \u0001 or \U0010ffff.
func runeSize(r rune) int {
	switch {
	case r == '"' || r == '\\':
		return 2
	case unicode.IsPrint(r) && r != utf8.RuneError: // A byte that is not UTF-8 is a RuneError, and written as \ufffd.
		return utf8.RuneLen(r)
	case r > 0xFFFF:
		return len(`\U0010ffff`)
	default:
		return len(`\u0001`)
	}
}
