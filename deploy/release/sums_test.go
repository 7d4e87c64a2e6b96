package main

import (
	"testing"

	"podcount/lab/testkit"
)

func TestSumsAreThoseOfSha256sum(t *testing.T) {
	// printf abc | sha256sum
	const digest = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
	sums := sumsOf([]file{{name: "manifests/a", contents: []byte("abc")}})
	testkit.WantEqual(t, "the sums", string(sums.contents), digest+"  manifests/a\n")
}
