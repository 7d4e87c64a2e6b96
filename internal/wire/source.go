package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// source is what a stream is read from. It remembers how far that is, and how it ended.
type source struct {
	r       io.Reader
	json    *json.Decoder // that reads from it, if there is one: it holds what is behind its InputOffset,
	piece   int64         // and may hold so much
	at, end int64         // bytes read, and how many may be
	err     error
}

func newSource(r io.Reader) *source { return &source{r: r, piece: 3 * objectLimit, end: math.MaxInt64} }

// Limited reads from r, and fails after so many bytes.
func Limited(r io.Reader, bytes int64) io.Reader { return &source{r: r, piece: bytes, end: bytes} }

func (s *source) Read(p []byte) (int, error) {
	if s.json != nil {
		s.end = s.json.InputOffset() + s.piece
	}
	if s.at >= s.end {
		return 0, fmt.Errorf("more than %d bytes in one piece, before byte %d", s.piece, s.at)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.end-s.at)])
	s.at, s.err = s.at+int64(n), err
	return n, err
}
