package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"podcount/lab/testkit"
)

func TestSignatureIsBesideTheFileAndNamesItsPurpose(t *testing.T) {
	if _, err := exec.LookPath("ssh-keygen"); err != nil {
		t.Skip("this test needs ssh-keygen")
	}
	dir := t.TempDir()
	key := filepath.Join(dir, "key")
	if output, err := exec.Command("ssh-keygen", "-q", "-t", "ecdsa", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("ssh-keygen: %v: %s", err, output)
	}
	data := []byte("the bytes of a release")
	signature, err := sign(t.Context(), data, key)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "release.tar")
	if err := writeSigned(name, data, signature); err != nil {
		t.Fatal(err)
	}
	verify := func(namespace string) error {
		command := exec.Command("ssh-keygen", "-Y", "check-novalidate", "-n", namespace, "-s", name+".sig")
		command.Stdin = bytes.NewReader(data)
		return command.Run()
	}
	if err := verify(signatureNamespace); err != nil {
		t.Errorf("the signature is not valid: %v", err)
	}
	if err := verify("git"); err == nil {
		t.Error("the signature is also one of a commit")
	}
	_, err = sign(t.Context(), data, key+"-missing")
	testkit.WantError(t, "a missing key", err, "KEY="+key+"-missing")
}

func TestOldSignatureIsNeverBesideANewRelease(t *testing.T) {
	name := filepath.Join(folderWith(t, "release.tar", "old", "release.tar.sig", "old"), "release.tar")
	if err := writeSigned(name, []byte("new"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name + ".sig"); err == nil {
		t.Error("the old signature is still there")
	}
	contents, err := os.ReadFile(name)
	if err != nil || string(contents) != "new" {
		t.Errorf("the release has %q, %v", contents, err)
	}
}
