package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// bom is a software bill of materials in CycloneDX 1.6, with the fields that are used here. They are described in
// https://cyclonedx.org/docs/1.6/json/
type bom struct {
	Schema       string          `json:"$schema"`
	Format       string          `json:"bomFormat"`
	SpecVersion  string          `json:"specVersion"`
	SerialNumber string          `json:"serialNumber"`
	Version      int             `json:"version"`
	Metadata     bomMetadata     `json:"metadata"`
	Components   []bomComponent  `json:"components"`
	Dependencies []bomDependency `json:"dependencies"`
	Compositions []bomAggregate  `json:"compositions"`
}

type bomMetadata struct {
	Timestamp  string         `json:"timestamp"` // of the commit
	Lifecycles []bomLifecycle `json:"lifecycles"`
	Authors    []bomName      `json:"authors"` // of this bill
	Component  bomComponent   `json:"component"`
}

// bomName is a person or an organization.
type bomName struct {
	Name string `json:"name"`
}

type bomLifecycle struct {
	Phase string `json:"phase"`
}

type bomComponent struct {
	Type        string         `json:"type"`
	Ref         string         `json:"bom-ref"`
	Supplier    *bomName       `json:"supplier,omitempty"`
	Name        string         `json:"name"`
	Version     string         `json:"version,omitempty"`
	Description string         `json:"description,omitempty"`
	Hashes      []bomHash      `json:"hashes,omitempty"`
	Licenses    []bomLicense   `json:"licenses,omitempty"`
	CPE         string         `json:"cpe,omitempty"`
	PURL        string         `json:"purl,omitempty"`
	Properties  []bomProperty  `json:"properties,omitempty"`
	Components  []bomComponent `json:"components,omitempty"`
}

type bomHash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

type bomLicense struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type bomProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// bomDependency says that the component Ref consists of, or needs, the components DependsOn.
type bomDependency struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn,omitempty"`
}

// bomAggregate says that nothing is missing from the dependencies of these components.
type bomAggregate struct {
	Aggregate    string   `json:"aggregate"`
	Dependencies []string `json:"dependencies"`
}

// makeSBOM returns the bill of materials of a release: the module podcount, its binaries, and Go's standard library.
// Nothing else is in a binary: see compiler.check. The library has the name stdlib, by which databases of
// vulnerabilities know it.
//
// It is written here because the usual tools add the time and a random number.
func makeSBOM(t tree, fips string, programs []program) ([]byte, error) {
	goVersion := strings.TrimPrefix(runtime.Version(), "go")
	module := bomComponent{
		Type:        "application",
		Ref:         "pkg:golang/podcount@" + t.version,
		Supplier:    &bomName{authors},
		Name:        "podcount",
		Version:     t.version,
		Description: imageDescription,
		Licenses:    licensed(imageLicense),
		PURL:        "pkg:golang/podcount@" + t.version,
		Properties: []bomProperty{
			{"podcount:commit", t.commit},
			{"podcount:GOFIPS140", fips},
		},
	}
	for _, p := range programs {
		module.Components = append(module.Components, fileComponent(t, p))
	}
	library := bomComponent{
		Type:        "library",
		Ref:         "pkg:golang/stdlib@" + goVersion,
		Supplier:    &bomName{"The Go Authors"},
		Name:        "stdlib",
		Version:     goVersion,
		Description: "Go's standard library and runtime, with the packages of golang.org/x that they include",
		Licenses:    licensed("BSD-3-Clause"),
		CPE:         "cpe:2.3:a:golang:go:" + goVersion + ":*:*:*:*:*:*:*",
		PURL:        "pkg:golang/stdlib@" + goVersion,
	}
	return marshal(bom{
		Schema:       "http://cyclonedx.org/schema/bom-1.6.schema.json",
		Format:       "CycloneDX",
		SpecVersion:  "1.6",
		SerialNumber: serialNumber(t, fips, programs),
		Version:      1,
		Metadata: bomMetadata{
			Timestamp:  t.time.UTC().Format(time.RFC3339),
			Lifecycles: []bomLifecycle{{Phase: "build"}},
			Authors:    []bomName{{authors}},
			Component:  module,
		},
		Components: []bomComponent{library},
		Dependencies: []bomDependency{
			{Ref: module.Ref, DependsOn: []string{library.Ref}},
			{Ref: library.Ref},
		},
		Compositions: []bomAggregate{{Aggregate: "complete", Dependencies: []string{module.Ref, library.Ref}}},
	})
}

// authors are those who make podcount, and its bill of materials.
const authors = "The podcount authors"

// fileComponent describes the binary for a platform.
func fileComponent(t tree, p program) bomComponent {
	name := p.platform.binaryName(t.version)
	return bomComponent{
		Type:   "file",
		Ref:    "file:" + name,
		Name:   name,
		Hashes: []bomHash{{Algorithm: "SHA-256", Content: sum(p.contents)}},
	}
}

func licensed(id string) []bomLicense {
	var l bomLicense
	l.License.ID = id
	return []bomLicense{l}
}

// serialNumber returns a UUID that is the same for the same binaries. It has the form of version 8, whose bits may be
// chosen freely: see https://www.rfc-editor.org/rfc/rfc9562#name-uuid-version-8
func serialNumber(t tree, fips string, programs []program) string {
	h := sha256.New()
	fmt.Fprintln(h, "podcount", t.version, t.commit, fips)
	for _, p := range programs {
		fmt.Fprintln(h, p.platform, sum(p.contents))
	}
	id := h.Sum(nil)[:16]
	id[6] = id[6]&0x0f | 0x80 // version 8
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}

// marshal returns a value as JSON that people can read.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return text.Bytes(), nil
}
