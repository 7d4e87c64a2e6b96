package kube

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
)

// unanswered is the error of a request to which no answer has come: the server could not be reached, broke off the
// connection, or took too long. A request that its own caller has cut off is none.
type unanswered struct {
	error
	isHopeless bool // see IsHopeless
}

func (u unanswered) Unwrap() error { return u.error }

// withoutAnswer returns the error of a request to which no answer has come, given that of the network.
func (c *Client) withoutAnswer(ctx context.Context, err error) error {
	cause := whyCutOff(ctx, err)
	tookTooLong := errors.Is(cause, context.DeadlineExceeded) || errors.Is(cause, ErrSilent)
	isCallersWish := ctx.Err() != nil && !tookTooLong
	if isCallersWish || errors.As(cause, new(notPermitted)) {
		return c.explain(cause)
	}
	return unanswered{c.explain(cause), isHopeless(err)}
}

// IsUnanswered reports whether err says that the API server is away: no answer has come, or that of a proxy. Every
// other error shows that the server answers (see IsAnswer), or is about something else, such as a credential.
func IsUnanswered(err error) bool {
	return errors.As(err, new(unanswered)) || StatusOf(err).isOfProxy
}

// IsAnswer reports whether the API server has answered a request that has ended with err: with success if err is nil,
// or with a refusal.
func IsAnswer(err error) bool {
	return err == nil || StatusOf(err).Code != 0 && !IsUnanswered(err)
}

// WasSilent reports whether a stream has ended with err because nothing has arrived for a while. Then nothing is known
// about that while. Any other stream that ends was whole until its end.
func WasSilent(err error) bool {
	if err == nil {
		return false
	}
	hasLostPing := strings.Contains(err.Error(), "http2: client connection lost") // net/http has no better sign.
	return hasLostPing || errors.Is(err, ErrSilent) || errors.Is(err, os.ErrDeadlineExceeded)
}

// IsHopeless reports whether the same request would fail in the same way until a person acts: the server's certificate
// is not valid for this client, or the name of its host does not exist.
func IsHopeless(err error) bool {
	var u unanswered
	return errors.As(err, &u) && u.isHopeless
}

// isHopeless is IsHopeless for an error of the network.
func isHopeless(err error) bool {
	var notFound *net.DNSError
	hasNoHost := errors.As(err, &notFound) && notFound.IsNotFound
	return hasNoHost || errors.As(err, new(*tls.CertificateVerificationError))
}

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
