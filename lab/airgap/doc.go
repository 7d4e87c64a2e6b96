// Package airgap has a test that carries a release to a site without a network, and installs podcount there. `make
// airgap` runs it. The package has no other code.
package airgap
