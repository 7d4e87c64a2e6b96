package listen

import (
	"net"
	"net/netip"
	"strings"
)

// IsLoopback reports whether a HOST:PORT, or a host alone, is surely this machine: localhost, 127.0.0.0/8 or ::1. It
// does not look up other names.
func IsLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(address, "["), "]") // there is no port
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}
