package wire

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// source is what a stream is read from. It remembers how far that is, and how it ended, and limits what is held of it.
type source struct {
	r   io.Reader
	at  int64 // bytes read
	end int64 // how many may be read
	err error // of the last read

	// decoder reads from the source, if the stream is JSON. It buffers what lies beyond its InputOffset, at most
	// piece bytes of that: so end moves on as values are read.
	decoder *json.Decoder
	piece   int64
}

// newSource is for a stream of any length.
func newSource(r io.Reader) *source {
	return &source{r: r, piece: pieceLimit, end: math.MaxInt64}
}

// newJSON returns a decoder that reads from the source, and has it keep the limit of a piece.
func (s *source) newJSON() *json.Decoder {
	s.decoder = json.NewDecoder(s)
	return s.decoder
}

// Limited reads from r, up to a limit in bytes. Whoever asks for more after that gets an error, which says that r has
// more, even if r ends exactly there: Limited does not look. So r is read to its end only if it is shorter than that.
func Limited(r io.Reader, bytes int64) io.Reader {
	return &source{r: r, piece: bytes, end: bytes}
}

// Read reads from r, up to the limit.
func (s *source) Read(p []byte) (int, error) {
	if s.decoder != nil {
		s.end = s.decoder.InputOffset() + s.piece
	}
	if s.at >= s.end {
		return 0, fmt.Errorf("more than %d bytes in one piece, before byte %d", s.piece, s.at)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.end-s.at)])
	s.at += int64(n)
	s.err = err
	return n, err
}
