package kube

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// Permit is the right to write, which a leader has, and may lose at any moment. Its methods are called by many
// goroutines at a time.
type Permit interface {
	// MayWrite returns an error unless a write may be sent now. It is called often, and must not wait.
	MayWrite() error

	// WhilePermitted returns a context that ends with ctx, and with the permit. Whoever called it releases it.
	WhilePermitted(ctx context.Context) (permitted context.Context, release context.CancelFunc)
}

// needsPermit reports whether a request is sent only while this process may write.
func (c *Client) needsPermit(r Request) bool {
	return r.isWrite() && c.permit != nil && !r.WithoutPermit
}

// guardBody makes a request read its body through a permittedBody.
func guardBody(req *http.Request, body []byte, permit Permit) {
	open := func() io.ReadCloser {
		return io.NopCloser(&permittedBody{bytes.NewReader(body), permit})
	}
	req.Body = open()
	// The transport sends the request again when the connection closed before it had begun.
	req.GetBody = func() (io.ReadCloser, error) { return open(), nil }
	req.ContentLength = int64(len(body))
}

// permittedBody is the body of a write, which fails without a permit. The transport reads it after the dial, the
// handshake and the headers, right before it sends it: that may be long after the request was made, as the process may
// have been frozen meanwhile. A server acts on no request whose body is cut short.
type permittedBody struct {
	io.Reader
	permit Permit
}

func (b *permittedBody) Read(p []byte) (int, error) {
	if err := b.permit.MayWrite(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}
