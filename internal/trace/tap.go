package trace

import "io"

// Tap is a reader that remembers what was read from it while somebody listens, so that a step can show the bytes of a
// frame. Only one goroutine may use it.
type Tap struct {
	trace *Trace
	r     io.Reader
	at    int64  // the offset in the stream of the first byte in data
	data  []byte // what was read and not yet taken
}

// tapLimit is how many bytes a Tap remembers.
const tapLimit = 256 << 10

// NewTap returns a Tap that reads from r.
func NewTap(t *Trace, r io.Reader) *Tap { return &Tap{trace: t, r: r} }

// Read implements io.Reader.
func (tap *Tap) Read(p []byte) (int, error) {
	n, err := tap.r.Read(p)
	if !tap.trace.IsOn() || len(tap.data)+n > tapLimit {
		tap.at += int64(len(tap.data) + n)
		tap.data = nil
		return n, err
	}
	tap.data = append(tap.data, p[:n]...)
	return n, err
}

// Take returns the bytes between two offsets of the stream, and forgets them and all before. It returns nil if it does
// not have all of them.
func (tap *Tap) Take(start, end int64) (taken []byte) {
	last := tap.at + int64(len(tap.data))
	if start >= tap.at && start <= end && end <= last {
		taken = append(taken, tap.data[start-tap.at:end-tap.at]...)
	}
	if end > tap.at && end <= last {
		tap.data = tap.data[end-tap.at:]
		tap.at = end
	}
	return taken
}
