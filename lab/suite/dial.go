package suite

import (
	"context"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
)

// failDial returns a dialer that fails with err as the system's dialer does. address is an IP:PORT, which the error
// shows, or "".
func failDial(address string, err error) kube.Dialer {
	failure := dialError(err)
	if ip, err := netip.ParseAddrPort(address); err == nil {
		failure.Addr = net.TCPAddrFromAddrPort(ip)
	}
	return func(context.Context, string, string) (net.Conn, error) { return nil, failure }
}

// refuseDial returns a dialer that fails as if no server listened at this IP:PORT, or anywhere if it is "".
func refuseDial(address string) kube.Dialer {
	return failDial(address, os.NewSyscallError("connect", syscall.ECONNREFUSED))
}

// unknownHostDial returns a dialer that fails as if DNS knew no such host.
func unknownHostDial(host string) kube.Dialer {
	return failDial("", &net.DNSError{Err: "no such host", Name: host, IsNotFound: true})
}

// timeOutDial is a dialer that fails after 30 s as if no packet had been answered.
func timeOutDial(ctx context.Context, _, _ string) (net.Conn, error) {
	if err := retry.Sleep(ctx, 30*time.Second); err != nil {
		return nil, err // the request has a shorter timeout
	}
	return nil, dialError(os.ErrDeadlineExceeded)
}

// neverDial is a dialer that waits until ctx ends.
func neverDial(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func dialError(err error) *net.OpError { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
