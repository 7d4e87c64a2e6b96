package fakekube

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

const (
	controlPlane  = "node-role.kubernetes.io/control-plane"
	podCountLabel = "hopegi/pod-count"
)

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

func wantLabel(t *testing.T, f *Server, node, label, want string) {
	t.Helper()
	if got := f.Label(node, label); got != want {
		t.Errorf("node %s has %s=%s, want %s", node, label, got, want)
	}
}

// recording returns the body of an answer that a real server gave.
func recording(t *testing.T, name string) []byte {
	t.Helper()
	body, err := os.ReadFile("../../testdata/transcripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".txt") {
		_, body, _ = bytes.Cut(body, []byte("\n\n"))
	}
	return body
}
