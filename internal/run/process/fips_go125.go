//go:build !go1.26

package process

import "crypto/fips140"

// FIPSMode returns whether Go's FIPS 140-3 module is in use: off or on. Go 1.25 cannot tell the version of the module,
// nor whether other cryptography is refused. The build information in the binary can: see go version -m.
func FIPSMode() string {
	if fips140.Enabled() {
		return "on"
	}
	return "off"
}
