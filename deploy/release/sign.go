package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
)

// signatureNamespace is what a signature is for. ssh-keygen refuses it for anything else, such as a signed commit.
const signatureNamespace = "podcount-release"

// sign returns the signature of data by a private key, as ssh-keygen writes it. The key may be any that ssh-keygen can
// use, also one on a hardware token or in an agent. ssh-keygen may ask for a passphrase, on the terminal.
func sign(ctx context.Context, data []byte, key string) ([]byte, error) {
	var signature bytes.Buffer
	command := exec.Command("ssh-keygen", "-q", "-Y", "sign", "-n", signatureNamespace, "-f", key)
	command.Stdin = bytes.NewReader(data)
	command.Stdout = &signature
	command.Stderr = os.Stderr
	if err := runUntil(ctx, command); err != nil {
		return nil, fmt.Errorf("KEY=%s: ssh-keygen cannot sign with this key: %w "+
			"(without a terminal for the passphrase, load the key with ssh-add, and name its .pub file)", key, err)
	}
	return signature.Bytes(), nil
}

// writeSigned writes a file, and its signature beside it unless there is none. So no signature is ever beside other
// bytes.
func writeSigned(name string, contents, signature []byte) error {
	err := os.Remove(name + ".sig")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeFile(name, contents); err != nil {
		return err
	}
	if signature == nil {
		return nil
	}
	return writeFile(name+".sig", signature)
}
