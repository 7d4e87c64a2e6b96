package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// sum returns the SHA-256 sum of data, in hexadecimal digits.
func sum(data []byte) string {
	digest := sha256.Sum256(data)
	return hex.EncodeToString(digest[:])
}

// sumsOf returns the file SHA256SUMS for these files, in the form that sha256sum -c reads.
func sumsOf(files []file) file {
	var sums bytes.Buffer
	for _, f := range files {
		fmt.Fprintf(&sums, "%s  %s\n", sum(f.contents), f.name)
	}
	return file{name: "SHA256SUMS", contents: sums.Bytes()}
}
