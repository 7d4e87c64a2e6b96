package listen

import (
	"net/http"
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
