package process

import (
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
)

// Version and Commit are set by the linker: see deploy/release. A plain `go build` leaves them as they are here.
var (
	Version = "dev"
	Commit  = "unknown"
)

// packedSource is a tar of the source, compressed by gzip. The file here is empty. `make build` has the compiler read
// another one in its place, so that a tree never holds the source of an older build.
//
//go:embed source.tar.gz
var packedSource string

// WriteSource writes the source of the program as a tar. All files are in one folder, such as podcount-v1.1.0.
// `make build` in that folder builds the same bytes again, with the same version of Go.
func WriteSource(w io.Writer) error { return unpack(packedSource, w) }

func unpack(packed string, w io.Writer) error {
	if packed == "" { // after a plain `go build`
		return errors.New("-source: this podcount was built without its source: `make build` includes it")
	}
	source, err := gzip.NewReader(strings.NewReader(packed))
	if err != nil {
		return fmt.Errorf("-source: %w", err)
	}
	_, err = io.Copy(w, source)
	return err
}

// Describe returns what -version prints: one line on each thing.
func Describe() string {
	return "podcount " + Version + "\n" +
		"commit: " + Commit + "\n" +
		"Go: " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH + "\n" +
		"FIPS 140-3: " + FIPSMode() + "\n"
}
