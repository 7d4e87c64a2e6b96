package kube

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"podcount/internal/wire"
)

// Silence is how long a Stream may say nothing. A watch has a bookmark a minute, and the first one two minutes after a
// server's restart.
const Silence = 150 * time.Second

// ErrSilent is how a Stream ends that has said nothing for the time of Silence.
var ErrSilent = fmt.Errorf("nothing was heard for %v", Silence)

// Stream is the body of a list or of a watch, which ends with ErrSilent when nothing has arrived for the time of
// Silence. Where the context that it was opened with has ended, its error is the cause of that. It is read by one
// goroutine at a time; Close may be called by any.
type Stream struct {
	IsProtobuf bool // what the server has chosen of the Request's Accept; else it is JSON

	body   io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc // of ctx
	timer  *time.Timer             // cancels ctx for silence
}

// Stream opens a list or a watch, whose answer may be of any length. The caller closes it. Errors are those of Do, and
// ErrSilent; where ctx has ended, they wrap the cause of that.
func (c *Client) Stream(ctx context.Context, r Request) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &Stream{body: http.NoBody, ctx: ctx, cancel: cancel}
	s.timer = time.AfterFunc(Silence, func() { cancel(ErrSilent) })
	err := s.open(c, r)
	if err == nil {
		return s, nil
	}
	cause := context.Cause(ctx) // before Close, which is a cause, too
	s.Close()
	return nil, cmp.Or(r.Failed(cause), err)
}

func (s *Stream) open(c *Client, r Request) error {
	resp, err := c.Do(s.ctx, r)
	if err != nil {
		return err
	}
	s.body = resp.Body
	s.IsProtobuf, err = formOf(resp)
	return r.Failed(err)
}

// Read reads what has arrived, and waits where nothing has.
func (s *Stream) Read(p []byte) (int, error) {
	n, err := s.body.Read(p)
	if n > 0 {
		s.timer.Reset(Silence)
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(s.ctx), err)
	}
	return n, err
}

// Close ends the request, if it has not ended by itself.
func (s *Stream) Close() error {
	s.timer.Stop()
	s.cancel(nil)
	return s.body.Close()
}

// Accept is a Request's Accept that lists media types, the best first. If metadataOnly, it asks for metadata alone, as
// objects of the kind that as names, or else, from a server that has no such form of them, for whole objects.
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

// formOf tells in which form an answer is. An error says that it is in none that an API server sends.
func formOf(resp *http.Response) (isProtobuf bool, err error) {
	mediaType, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	mediaType = strings.TrimSpace(mediaType)
	switch mediaType {
	case wire.Protobuf:
		return true, nil
	case wire.JSON:
		return false, nil
	}
	return false, fmt.Errorf("the answer is %q, neither JSON nor protobuf: is this the API server?", mediaType)
}
