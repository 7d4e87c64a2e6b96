//go:build go1.26

package process

import "crypto/fips140"

// FIPSMode returns whether Go's FIPS 140-3 module is in use: off, on, or only. With only, cryptography that is not
// approved is an error. The module "latest" is the one in Go's own source, which is not validated.
func FIPSMode() string {
	switch {
	case !fips140.Enabled():
		return "off"
	case fips140.Enforced():
		return "only (module " + fips140.Version() + ")"
	}
	return "on (module " + fips140.Version() + ")"
}
