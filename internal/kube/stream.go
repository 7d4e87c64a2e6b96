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

const (
	Silence = 150 * time.Second // of a list or a watch, which has a bookmark a minute, two after a server's restart
)

var ErrSilent = fmt.Errorf("nothing was heard for %v", Silence)

// Accept lists media types, the best first; if metadataOnly, of objects as this kind, though a server may send whole ones.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
func Accept(metadataOnly bool, as string, types ...string) string {
	for i, t := range types {
		if metadataOnly {
			types[i] = t + ";as=" + as + ";g=meta.k8s.io;v=v1, " + t
		}
	}
	return strings.Join(types, ", ")
}

// wireOf tells in which form an answer is.
func wireOf(resp *http.Response) (isProtobuf bool, err error) {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind = strings.TrimSpace(kind); kind != wire.JSON && kind != wire.Protobuf {
		err = fmt.Errorf("the answer is %q, neither JSON nor protobuf: is this the API server?", kind)
	}
	return kind == wire.Protobuf, err
}

// Stream is a body that must keep talking. Where our own context has ended, its error says why.
type Stream struct {
	io.ReadCloser
	IsProtobuf bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	timer      *time.Timer
}

func (b *Stream) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(Silence)
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(b.ctx), err)
	}
	return n, err
}

func (b *Stream) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}
