package kube

import (
	"bytes"
	"context"
	"io"
	"net/http"
)

// Permit is the right to write. A leader has it, and may lose it at any moment. Its methods must be safe for concurrent
// use.
//
// For each write, the Client calls MayWrite when it makes the request, and again at each read of the body. Send runs
// under WhilePermitted, so that the end of the permit cuts the write off.
type Permit interface {
	// MayWrite returns an error unless a write may be sent now. It is called often, and must not wait.
	MayWrite() error

	// WhilePermitted returns a context that ends with ctx or with the permit, whichever is first. The caller must call
	// release.
	WhilePermitted(ctx context.Context) (permitted context.Context, release context.CancelFunc)
}

// needsPermit reports whether a request must not be sent without the permit.
func (c *Client) needsPermit(r Request) bool {
	return r.isWrite() && c.permit != nil && !r.WithoutPermit
}

// guardBody gives a request a body that cannot be read without the permit.
func guardBody(req *http.Request, body []byte, permit Permit) {
	open := func() io.ReadCloser {
		return io.NopCloser(&permittedBody{bytes.NewReader(body), permit})
	}
	req.Body = open()
	// The transport reads the body again if the connection was closed before it could send the request.
	req.GetBody = func() (io.ReadCloser, error) { return open(), nil }
	req.ContentLength = int64(len(body))
}

// permittedBody is the body of a write. Reading it fails without the permit, and a server ignores a request whose body
// is incomplete. This is the latest moment for the check: the transport reads the body after it has dialed and sent the
// headers. That may be long after the request was made, for example if the process was suspended.
type permittedBody struct {
	io.Reader
	permit Permit
}

func (b *permittedBody) Read(p []byte) (int, error) {
	if err := b.permit.MayWrite(); err != nil {
		return 0, notPermitted{err}
	}
	return b.Reader.Read(p)
}

// notPermitted is the error of a Permit, for a write that was not sent.
type notPermitted struct{ error }

// Unwrap returns the Permit's own error.
func (e notPermitted) Unwrap() error { return e.error }
