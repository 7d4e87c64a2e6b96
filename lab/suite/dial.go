package suite

import (
	"context"
	"net"
	"os"
	"syscall"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
)

// failDial returns a dialer that fails with err as the system's dialer does.
func failDial(err error) kube.Dialer {
	return func(context.Context, string, string) (net.Conn, error) { return nil, dialError(err) }
}

// refuseDial returns a dialer that fails as if no server listened.
func refuseDial() kube.Dialer { return failDial(os.NewSyscallError("connect", syscall.ECONNREFUSED)) }

// unknownHostDial returns a dialer that fails as if DNS knew no such host.
func unknownHostDial(host string) kube.Dialer {
	return failDial(&net.DNSError{Err: "no such host", Name: host, IsNotFound: true})
}

// timeOutDial is a dialer that fails after 30 s as if no packet had been answered.
func timeOutDial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := retry.Sleep(ctx, 30*time.Second); err != nil {
		return nil, err // the request has a shorter timeout
	}
	return nil, dialError(os.ErrDeadlineExceeded)
}

func dialError(err error) *net.OpError { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
