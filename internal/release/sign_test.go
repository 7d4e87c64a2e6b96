package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"podcount/internal/testkit"
)

func TestSignatureIsBesideTheFileAndNamesItsPurpose(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("this test needs ssh-keygen")
	}
	dir := folderWith(t, "release.tar", "the bytes")
	key := filepath.Join(dir, "key")
	if output, err := exec.Command("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, output)
	}
	name := filepath.Join(dir, "release.tar")
	if err := sign(t.Context(), name, key); err != nil {
		t.Fatal(err)
	}
	verify := func(namespace string) error {
		archive, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		command := exec.Command("ssh-keygen", "-Y", "check-novalidate", "-n", namespace, "-s", name+".sig")
		command.Stdin = archive
		return command.Run()
	}
	if err := verify(signatureNamespace); err != nil {
		t.Errorf("the signature is not valid: %v", err)
	}
	if err := verify("git"); err == nil {
		t.Error("the signature is also one of a commit")
	}
	if err := removeSignature(name); err != nil {
		t.Error(err)
	}
	testkit.WantError(t, "a missing key", sign(t.Context(), name, key+"-missing"), "KEY="+key+"-missing")
}

func TestSignatureThatIsNotThereNeedsNoRemoval(t *testing.T) {
	if err := removeSignature(filepath.Join(t.TempDir(), "release.tar")); err != nil {
		t.Error(err)
	}
}
