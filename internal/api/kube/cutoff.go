package kube

import (
	"context"
	"errors"
	"io"
)

// whyCutOff returns the cause of the context's end, in place of the error of a request that the end has cut off. Any
// other error it returns as it is. net/http does not name the cause: over HTTP/2, it says only that the context has
// ended, and over HTTP/1.1, the second read of a body says only that the connection is closed. A write that was not
// sent, because it had no permit, says so itself, even if its context has ended, too.
func whyCutOff(ctx context.Context, err error) error {
	hasFailed := err != nil && err != io.EOF
	if !hasFailed || ctx.Err() == nil || errors.As(err, new(notPermitted)) {
		return err
	}
	return context.Cause(ctx)
}

// answerBody is the body of an answer. Reading it fails with the cause if the context of the request ends.
type answerBody struct {
	io.ReadCloser
	ctx context.Context
}

func (b *answerBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	return n, whyCutOff(b.ctx, err)
}
