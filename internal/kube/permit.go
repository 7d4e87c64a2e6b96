package kube

import (
	"bytes"
	"io"
	"net/http"
)

// guardBody makes a request read its body through a permittedBody.
func guardBody(req *http.Request, body []byte, permit Permit) {
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(&permittedBody{bytes.NewReader(body), permit}), nil
	}
	req.Body, _ = open()
	req.GetBody = open // lets the transport send the request again when the connection closed before it had begun
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
