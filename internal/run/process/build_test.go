package process

import (
	"bytes"
	"compress/gzip"
	"io"
	"runtime"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestSourceIsWrittenUncompressed(t *testing.T) {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	io.WriteString(w, "a tar")
	w.Close()
	var out strings.Builder
	if err := unpack(packed.String(), &out); err != nil {
		t.Error(err)
	}
	testkit.WantEqual(t, "the source", out.String(), "a tar")
}

func TestProgramWithoutItsSourceSaysHowToBuildItWithIt(t *testing.T) {
	var out strings.Builder
	err := WriteSource(&out)
	testkit.WantError(t, "WriteSource, because the tree's source.tar.gz is empty", err, "`make build` includes it")
	testkit.WantEqual(t, "the source", out.String(), "")
}

func TestDamagedSourceIsAnError(t *testing.T) {
	if err := unpack("not compressed", io.Discard); err == nil {
		t.Error("unpack takes what is not compressed")
	}
}

func TestDescriptionHasVersionCommitGoAndFIPSMode(t *testing.T) {
	lines := strings.Split(Describe(), "\n")
	testkit.WantEqual(t, "lines", len(lines), 5) // The last one is empty.
	testkit.WantEqual(t, "the version", lines[0], "podcount dev")
	testkit.WantEqual(t, "the commit", lines[1], "commit: unknown")
	testkit.WantEqual(t, "Go", lines[2], "Go: "+runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	testkit.WantText(t, lines[3], "FIPS 140-3: o") // off, on or only
}
