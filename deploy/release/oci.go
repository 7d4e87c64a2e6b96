package main

import (
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// The media types of https://github.com/opencontainers/image-spec
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// ociDescriptor refers to a blob of the archive.
type ociDescriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *ociPlatform      `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// ociPlatform is where a program runs.
type ociPlatform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// ociIndex lists manifests or other indexes.
type ociIndex struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType"`
	Manifests     []ociDescriptor `json:"manifests"`
}

// ociManifest is the image of one platform.
type ociManifest struct {
	SchemaVersion int             `json:"schemaVersion"`
	MediaType     string          `json:"mediaType"`
	Config        ociDescriptor   `json:"config"`
	Layers        []ociDescriptor `json:"layers"`
}

// ociConfig says what a container of an image runs. Docker reads the same form.
type ociConfig struct {
	Created time.Time `json:"created"`
	ociPlatform
	Config  ociProcess   `json:"config"`
	RootFS  ociRootFS    `json:"rootfs"`
	History []ociHistory `json:"history"`
}

// ociProcess is the process in a container.
type ociProcess struct {
	User       string
	Entrypoint []string
	Labels     map[string]string
}

// ociRootFS has the digests of the layers as they are before compression.
type ociRootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

// ociHistory says how a layer was made.
type ociHistory struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// ociLayout is the file that marks an OCI image layout.
type ociLayout struct {
	Version string `json:"imageLayoutVersion"`
}

// dockerImage is an entry of manifest.json. Its paths lead to blobs.
type dockerImage struct {
	Config   string
	RepoTags []string
	Layers   []string
}

// imageArchive is the archive before it is packed.
type imageArchive struct {
	files []file
}

func (a *imageArchive) addJSON(mediaType string, value any) (ociDescriptor, error) {
	contents, err := json.Marshal(value)
	if err != nil {
		return ociDescriptor{}, err
	}
	return a.addBlob(mediaType, contents), nil
}

// addBlob adds a file that is named after its digest, unless the archive has it already.
func (a *imageArchive) addBlob(mediaType string, contents []byte) ociDescriptor {
	digest := digestOf(contents)
	path := blobPath(digest)
	isSame := func(f file) bool { return f.name == path }
	if !slices.ContainsFunc(a.files, isSame) {
		a.files = append(a.files, file{name: path, contents: contents})
	}
	return ociDescriptor{MediaType: mediaType, Digest: digest, Size: len(contents)}
}

func (a *imageArchive) addFile(name string, value any) error {
	contents, err := json.Marshal(value)
	if err != nil {
		return err
	}
	a.files = append(a.files, file{name: name, contents: contents})
	return nil
}

func digestOf(contents []byte) string { return "sha256:" + sum(contents) }

func blobPath(digest string) string {
	return "blobs/" + strings.Replace(digest, ":", "/", 1)
}
