package main

import (
	"runtime"
	"slices"
	"strings"
)

// statement is the provenance of a release: which source and which settings gave which files. It is a Statement of
// in-toto with a predicate of SLSA, and has the fields that are used here. They are described in
// https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md and https://slsa.dev/spec/v1.0/provenance
type statement struct {
	Type          string     `json:"_type"`
	Subject       []resource `json:"subject"`
	PredicateType string     `json:"predicateType"`
	Predicate     struct {
		BuildDefinition buildDefinition `json:"buildDefinition"`
		RunDetails      runDetails      `json:"runDetails"`
	} `json:"predicate"`
}

// resource is a file that was built, or something that it was built from.
type resource struct {
	Name   string         `json:"name,omitempty"`
	URI    string         `json:"uri,omitempty"`
	Digest resourceDigest `json:"digest,omitzero"`
}

type resourceDigest struct {
	SHA256    string `json:"sha256,omitempty"`
	GitCommit string `json:"gitCommit,omitempty"`
}

type buildDefinition struct {
	BuildType            string             `json:"buildType"`
	ExternalParameters   externalParameters `json:"externalParameters"`
	InternalParameters   internalParameters `json:"internalParameters"`
	ResolvedDependencies []resource         `json:"resolvedDependencies"`
}

// externalParameters are what the user of `make release` chose. `make verify` reads them.
type externalParameters struct {
	Version   string   `json:"version"`
	Platforms []string `json:"platforms"`
	FIPS      string   `json:"GOFIPS140"`
}

// internalParameters are what this command chose.
type internalParameters struct {
	Go          string   `json:"go"`
	Environment []string `json:"environment"`
	Flags       []string `json:"flags"`
}

type runDetails struct {
	Builder struct {
		ID string `json:"id"`
	} `json:"builder"`
}

// makeProvenance returns the statement about these files and the image. It names no time and no machine, because the
// same source gives the same files everywhere. Who built them is what the signature of the release says.
func makeProvenance(t tree, fips string, platforms []platform, files []file, imageDigest string) ([]byte, error) {
	var s statement
	s.Type = "https://in-toto.io/Statement/v1"
	s.PredicateType = "https://slsa.dev/provenance/v1"
	for _, f := range files {
		s.Subject = append(s.Subject, resource{Name: f.name, Digest: resourceDigest{SHA256: sum(f.contents)}})
	}
	imageSum := strings.TrimPrefix(imageDigest, "sha256:")
	s.Subject = append(s.Subject, resource{Name: imageHost + imageName(t), Digest: resourceDigest{SHA256: imageSum}})
	definition := &s.Predicate.BuildDefinition
	definition.BuildType = "urn:podcount:make-release:v1"
	definition.ExternalParameters.Version = t.version
	definition.ExternalParameters.FIPS = fips
	for _, p := range platforms {
		definition.ExternalParameters.Platforms = append(definition.ExternalParameters.Platforms, p.String())
	}
	definition.InternalParameters = internalParameters{
		Go:          runtime.Version(),
		Environment: buildSettings,
		Flags:       slices.Concat(buildFlags, []string{"-ldflags", linkerFlags(t)}),
	}
	definition.ResolvedDependencies = []resource{
		{URI: "pkg:golang/podcount@" + t.version, Digest: resourceDigest{GitCommit: t.commit}},
		{URI: "pkg:golang/stdlib@" + strings.TrimPrefix(runtime.Version(), "go")},
	}
	s.Predicate.RunDetails.Builder.ID = "urn:podcount:make-release:v1"
	return marshal(s)
}
