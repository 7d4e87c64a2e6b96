//go:build go1.26

package testkit

import (
	"crypto/fips140"
	"crypto/rand"
	randv2 "math/rand/v2"
	"testing"
	"testing/cryptotest"
)

// IsSeededByTime reports whether crypto/rand seeds itself by measuring how long accesses to 32 MiB of memory take. In
// FIPS 140-3 mode, newer modules than v1.0.0 do.
func IsSeededByTime() bool {
	return fips140.Enabled() && fips140.Version() != "v1.0.0"
}

// AllowRandomInVirtualTime lets crypto/rand work in the virtual time of testing/synctest. If it seeds itself by time,
// it would panic there, so it gets another source until the process ends. Call it in TestMain.
func AllowRandomInVirtualTime() {
	if !IsSeededByTime() {
		return
	}
	approved := rand.Reader
	cryptotest.SetGlobalRandom(new(testing.T), randv2.Uint64())
	rand.Reader = approved // It uses the new source, too. FIPS 140-3 mode makes keys with no other reader.
}
