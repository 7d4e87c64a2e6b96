package listen

import (
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
)

// LoopbackOnly returns a handler that passes on only requests whose Host is this machine's loopback.
//
// A site on the internet can let its own name lead to 127.0.0.1. A browser then takes podcount for a part of that site,
// whose scripts could read its answers.
func LoopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !IsLoopback(r.Host) {
			http.Error(w, misnamedHost, http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

const misnamedHost = "This port of podcount is only for this machine: use http://localhost:PORT or " +
	"http://127.0.0.1:PORT. Under any other name, a site could let its name lead here, and read the answer " +
	"(DNS rebinding)."

// guardLoopback returns a handler like LoopbackOnly if the port of the request's Server is on the loopback. It also
// passes on requests for the name that the Server was asked to listen on, which is nobody else's.
func guardLoopback(next http.Handler) http.Handler {
	onlyHere := LoopbackOnly(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, isServed := r.Context().Value(connKey{}).(*trackedConn)
		isForAll := !isServed || !IsLoopback(conn.listener.Addr().String())
		if isForAll || conn.listener.isAskedFor(r.Host) {
			next.ServeHTTP(w, r)
			return
		}
		onlyHere.ServeHTTP(w, r)
	})
}

// isAskedFor reports whether a Host is the one that the listener was asked to listen on.
func (l *cappedListener) isAskedFor(host string) bool {
	return l.host != "" && strings.EqualFold(hostOf(host), l.host)
}

// IsLoopback reports whether a HOST:PORT, or a host alone, is surely this machine: localhost, 127.0.0.0/8 or ::1. It
// does not look up other names. The port must be a number, and there must be nothing else.
func IsLoopback(address string) bool {
	host := hostOf(address)
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback() && ip.Zone() == ""
}

// hostOf returns the host of a HOST:PORT, or of a host alone. It returns "" if the address is malformed.
func hostOf(address string) string {
	if _, err := netip.ParseAddr(address); err == nil {
		return address // an IPv6 address can have no brackets if it is alone
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port, err = net.SplitHostPort(address + ":0")
	}
	_, errOfPort := strconv.ParseUint(port, 10, 16)
	isBracketed := strings.HasPrefix(address, "[")
	if err != nil || errOfPort != nil || isBracketed != strings.Contains(host, ":") {
		return ""
	}
	return host
}
