package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
)

// signatureNamespace is what a signature is for. ssh-keygen refuses it for anything else, such as a signed commit.
const signatureNamespace = "podcount-release"

// removeSignature removes the signature of a file that will be replaced.
func removeSignature(name string) error {
	err := os.Remove(name + ".sig")
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sign writes the signature of a file beside it, with the ending .sig. There must be none yet. The key may be any that ssh-keygen can use, also
// one on a hardware token or in an agent. ssh-keygen may ask for a passphrase.
func sign(ctx context.Context, name, key string) error {
	command := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", signatureNamespace, "-f", key, name)
	command.Stdin = os.Stdin
	command.Stdout = os.Stdout
	command.Stderr = os.Stderr
	if err := runUntil(ctx, command); err != nil {
		return fmt.Errorf("KEY=%s: ssh-keygen cannot sign with this key: %w "+
			"(without a terminal for the passphrase, load the key with ssh-add, and name its .pub file)", key, err)
	}
	return nil
}
