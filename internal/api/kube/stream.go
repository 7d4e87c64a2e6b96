package kube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"podcount/internal/api/wire"
)

// Silence is how long a Stream waits for a sign of life: data of a list, a whole frame of a watch. An idle watch gets a
// bookmark every minute, or after two minutes if the server has just restarted.
const Silence = 150 * time.Second

// ErrSilent is the error of a Stream that has given no sign of life for the duration Silence.
var ErrSilent = fmt.Errorf("no sign of life for %v", Silence)

// Stream is the body of a list or a watch. Reading it fails with ErrSilent if nothing arrives for the duration Silence,
// and with the cause if the context of the request ends. In a watch, only whole frames count, of which the reader must
// tell Heard: a proxy that has lost its server may go on sending white space. Only one goroutine at a time may read;
// any may call Close.
type Stream struct {
	IsProtobuf bool // the server has chosen protobuf; otherwise the stream is JSON

	isWatch bool
	body    io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc // ends ctx
	timer   *time.Timer             // ends ctx with ErrSilent
}

// Stream opens a list or a watch. Its answer may have any length. The caller must close it. The errors are those of Do,
// and ErrSilent. Lists come compressed, because net/http asks for gzip by itself.
func (c *Client) Stream(ctx context.Context, r Request) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{isWatch: r.verb() == "watch", body: http.NoBody, ctx: ctx, cancel: cancel}
	s.timer = time.AfterFunc(Silence, func() { cancel(ErrSilent) })
	resp, err := c.Do(ctx, r)
	if err == nil {
		s.body = resp.Body
		s.IsProtobuf, err = formatOf(resp)
		err = r.Wrap(err)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Read implements io.Reader. It waits until something arrives.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 && !s.isWatch {
		s.Heard()
	}
	return n, shortened(err, errorLimit)
}

// Heard tells the Stream that there was a sign of life, such as a whole frame of a watch. Silence begins anew.
func (s *Stream) Heard() { s.timer.Reset(Silence) }

// Close ends the request, unless it has ended already.
func (s *Stream) Close() error {
	s.timer.Stop()
	s.cancel(nil)
	return s.body.Close()
}

// Accept returns a value for Request.Accept. The preferred media type comes first. If metadataOnly is set, the request
// asks for the kind as, such as PartialObjectMetadata, which has only the metadata of each object. Servers that do not
// support this send whole objects.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
func Accept(metadataOnly bool, as string, types ...string) string {
	var all []string
	for _, t := range types {
		if metadataOnly {
			all = append(all, t+";as="+as+";g=meta.k8s.io;v=v1")
		}
		all = append(all, t)
	}
	return strings.Join(all, ", ")
}

// formatOf reports whether an answer is in protobuf. If it is not, it is in JSON. Any other format is an error.
func formatOf(resp *http.Response) (isProtobuf bool, err error) {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	mediaType = strings.TrimSpace(mediaType)
	switch mediaType {
	case wire.Protobuf:
		return true, nil
	case wire.JSON:
		return false, nil
	default:
		return false, fmt.Errorf("the answer is %q, neither JSON nor protobuf: is this the API server?",
			wire.Shorten(mediaType, quoteLimit))
	}
}
