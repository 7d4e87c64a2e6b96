package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The file with the sums of all others, and the file with its signature.
const (
	sumsName      = "SHA256SUMS"
	signatureName = sumsName + ".sig"
)

// signatureNamespace is what a signature is for. ssh-keygen refuses it for anything else, such as a signed commit.
const signatureNamespace = "podcount-release"

// makeSums returns the sums of the files, in the form that sha256sum -c reads.
func makeSums(files []file) []byte {
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", sum(f.contents), f.name)
	}
	return sums.Bytes()
}

// readSums returns the sum of each file that is named in SHA256SUMS.
func readSums(sums []byte) (map[string]string, error) {
	byName := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(sums))
	for lines.Scan() {
		digest, name, found := strings.Cut(lines.Text(), "  ")
		if !found {
			return nil, fmt.Errorf("%s: %q is not a sum, two spaces and a name", sumsName, lines.Text())
		}
		byName[name] = digest
	}
	return byName, lines.Err()
}

// sign returns the signature of the sums by a private key, as ssh-keygen writes it. The key may be any that ssh-keygen
// can use, also one on a hardware token or in an agent. ssh-keygen may ask for a passphrase.
func sign(sums []byte, key, scratch string) ([]byte, error) {
	name := filepath.Join(scratch, sumsName)
	if err := os.WriteFile(name, sums, 0o644); err != nil {
		return nil, err
	}
	command := exec.Command("ssh-keygen", "-Y", "sign", "-n", signatureNamespace, "-f", key, name)
	command.Stdin = os.Stdin
	command.Stdout = os.Stdout
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("KEY=%s: ssh-keygen cannot sign with this key: %w", key, err)
	}
	return os.ReadFile(filepath.Join(scratch, signatureName))
}
