package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// source is the stream that a reader reads. It counts bytes, remembers how the stream ended, and limits how much of it
// is held in memory.
type source struct {
	r   io.Reader
	at  int64 // how many bytes have been read
	end int64 // how many bytes may be read
	err error // the error of the last read

	// decoder reads from this source, if the stream is JSON. It buffers what lies beyond its InputOffset. The source
	// limits that buffer to maxBuffered bytes by moving end forward as the decoder proceeds.
	decoder     *json.Decoder
	maxBuffered int64
}

// newSource returns a source for a stream of any length.
func newSource(r io.Reader) *source {
	return &source{r: r, maxBuffered: pieceLimit, end: math.MaxInt64}
}

// newJSON returns a decoder that reads from the source, and from now on limits how much that decoder buffers.
func (s *source) newJSON() *json.Decoder {
	s.decoder = json.NewDecoder(s)
	return s.decoder
}

// Limited returns a reader of the first bytes of r, up to a limit. A read after that fails, even if r ends exactly
// there: Limited does not look. So r is read to its end only if it is shorter than the limit.
func Limited(r io.Reader, limit int64) io.Reader {
	return &source{r: r, maxBuffered: limit, end: limit}
}

// Read reads from the stream. It fails at the limit.
func (s *source) Read(p []byte) (int, error) {
	if s.decoder != nil {
		s.end = s.decoder.InputOffset() + s.maxBuffered
	}
	left := s.end - s.at
	if left <= 0 {
		return 0, fmt.Errorf("more than %d bytes in one piece", s.maxBuffered)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), left)])
	s.at += int64(n)
	s.err = err
	return n, err
}
