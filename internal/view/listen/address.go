package listen

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

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
