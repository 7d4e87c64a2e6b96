package main

import (
	"encoding/json"
	"regexp"
	"runtime"
	"testing"

	"podcount/lab/testkit"
)

func TestBillOfMaterialsHasTheModuleAndGoAlone(t *testing.T) {
	text, err := makeSBOM(testTree, "v1.0.0", testPrograms)
	if err != nil {
		t.Fatal(err)
	}
	var b bom
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "the module", b.Metadata.Component.PURL, "pkg:golang/podcount@v1.1.0")
	testkit.WantEqual(t, "the time", b.Metadata.Timestamp, "2023-11-14T22:13:20Z")
	testkit.WantEqual(t, "libraries", len(b.Components), 1)
	testkit.WantEqual(t, "the library", b.Components[0].PURL, "pkg:golang/stdlib@"+runtime.Version()[2:])
	testkit.WantEqual(t, "the binaries", len(b.Metadata.Component.Components), len(testPrograms))
	testkit.WantEqual(t, "the sum of a binary",
		b.Metadata.Component.Components[0].Hashes[0].Content, sum([]byte("for linux")))
	testkit.WantEqual(t, "what the library needs", len(b.Dependencies[1].DependsOn), 0)
}

func TestSerialNumberIsTheSameForTheSameBinaries(t *testing.T) {
	number := serialNumber(testTree, "off", testPrograms)
	isUUID := regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if !isUUID.MatchString(number) {
		t.Errorf("%s is no UUID of version 8", number)
	}
	testkit.WantEqual(t, "the number of the same", serialNumber(testTree, "off", testPrograms), number)
	if serialNumber(testTree, "off", testPrograms[:1]) == number {
		t.Error("other binaries have the same number")
	}
}
