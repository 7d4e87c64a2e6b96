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
	readLimit int64 // bytesRead must not exceed this
	err       error // the error of the last read

	// head collects the first bytes of a frame in protobuf, as far as it has capacity. It is nil until somebody wants
	// them.
	head []byte

	// decoder reads from this source if the stream is JSON. It buffers the bytes after its InputOffset. The source limits
	// that buffer to maxBuffered bytes: it raises readLimit as the decoder proceeds.
	decoder     *json.Decoder
	maxBuffered int64

	// hasFrames means that the stream is a watch. An ERROR frame may be as large as a Status, and not as an object. Of
	// one that is larger, hugeError is the beginning.
	hasFrames bool
	hugeError []byte
}

// newSource returns a source for a stream of any length.
func newSource(r io.Reader) *source {
	return &source{r: r, maxBuffered: pieceLimit, readLimit: math.MaxInt64}
}

// newJSONDecoder returns a decoder that reads from the source. From now on, the source limits that decoder's buffer.
func (s *source) newJSONDecoder() *json.Decoder {
	s.decoder = json.NewDecoder(s)
	return s.decoder
}

// Limited returns a reader that reads at most limit bytes from r. After that many bytes, it returns an error instead of
// io.EOF, even if r has no more. So only a stream of less than limit bytes can be read to its end.
func Limited(r io.Reader, limit int64) io.Reader {
	return &source{r: r, maxBuffered: limit, readLimit: limit}
}

// Read reads from the stream. It fails at the limit.
func (s *source) Read(p []byte) (int, error) {
	if s.decoder != nil {
		s.readLimit = s.decoder.InputOffset() + s.maxBuffered
		s.checkErrorFrame()
	}
	if s.hugeError != nil {
		return 0, errLongStatus
	}
	left := s.readLimit - s.bytesRead
	if left <= 0 {
		return 0, fmt.Errorf("more than %d bytes in one piece", s.maxBuffered)
	}
	n, err := s.r.Read(p[:min(int64(len(p)), left)])
	s.bytesRead += int64(n)
	s.head = append(s.head, p[:min(n, cap(s.head)-len(s.head))]...)
	s.err = err
	return n, err
}

// checkErrorFrame sets hugeError if the frame that is being read is an ERROR frame, and larger than a Status can be. A
// frame that has come in one piece is refused by Status.readJSON.
func (s *source) checkErrorFrame() {
	buffered := s.bytesRead - s.decoder.InputOffset()
	if !s.hasFrames || buffered <= StatusLimit {
		return
	}
	beginning := make([]byte, 4*quoteLimit)
	io.ReadFull(s.decoder.Buffered(), beginning)
	if isErrorFrame(beginning) {
		s.hugeError = beginning
	}
}

// takeHugeError returns the beginning of an ERROR frame that was too large, once. It returns nil if there was none.
func (s *source) takeHugeError() (beginning []byte) {
	beginning = s.hugeError
	s.hugeError = nil
	return beginning
}
