//go:build !go1.26

package testkit

// IsSeededByTime reports whether crypto/rand seeds itself by measuring time. Before Go 1.26, it never does.
func IsSeededByTime() bool { return false }

// AllowRandomInVirtualTime does nothing, because before Go 1.26, crypto/rand works in virtual time.
func AllowRandomInVirtualTime() {}
