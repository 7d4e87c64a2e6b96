package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// source is a stream from the API server. It counts bytes, remembers how the stream ended, and limits how much of it is
// held in memory.
type source struct {
	r         io.Reader
	bytesRead int64
	err       error // the error of the last read

	// limit is how many bytes may be read. If the stream is JSON, it is how many bytes decoder may hold: those that it
	// has read from this source, without those before its InputOffset.
	limit   int64
	decoder *json.Decoder
}

// newSource returns a source for a stream of any length.
func newSource(r io.Reader) *source { return &source{r: r, limit: math.MaxInt64} }

// newJSONDecoder returns a decoder that reads from the source. From now on, the source limits what that decoder holds.
func (s *source) newJSONDecoder() *json.Decoder {
	s.limit = min(s.limit, pieceLimit)
	s.decoder = json.NewDecoder(s)
	return s.decoder
}

// Limited returns a reader that reads at most limit bytes from r. After that many bytes, it returns an error instead of
// io.EOF, even if r has no more. So only a stream of less than limit bytes can be read to its end.
func Limited(r io.Reader, limit int64) io.Reader { return &source{r: r, limit: limit} }

// Read reads from the stream. It fails at the limit.
func (s *source) Read(p []byte) (int, error) {
	left := s.limit - s.bytesRead
	if s.decoder != nil {
		left += s.decoder.InputOffset()
	}
	if left <= 0 {
		return 0, fmt.Errorf("more than %d bytes in one piece", s.limit)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), left)])
	s.bytesRead += int64(n)
	s.err = err
	return n, err
}
