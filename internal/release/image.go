package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// imageSpec describes the image of one release.
type imageSpec struct {
	Name     string         // without tag: podcount
	Version  string         // the tag, and the label org.opencontainers.image.version
	Commit   string         // the label org.opencontainers.image.revision
	Created  time.Time      // the time of the commit, for all files and for `created`
	Programs []imageProgram // in the order of the index; some Dockers give the tag only to the first: see dockerImages
}

// imageProgram is podcount for one processor architecture of Linux.
type imageProgram struct {
	Arch     string // as in GOARCH
	Variant  string // v7 for arm, v8 for arm64, otherwise empty
	Contents []byte
}

// What deploy/Dockerfile has, too.
const (
	imageUser        = "65532:65532"
	imageFile        = "podcount"
	imageDescription = "A Kubernetes controller made of nothing but Go's standard library"
	imageLicenses    = "Apache-2.0"
)

// imageHost is the beginning of the image's full name. Docker and containerd add it to a name without a host. Others need
// it: CRI-O refuses a name without a host, and podman would add localhost/.
const imageHost = "docker.io/library/"

// The media types of https://github.com/opencontainers/image-spec
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// packImage returns the image as an archive for docker load, podman load, ctr images import and
// skopeo copy oci-archive:. The same spec gives the same bytes, if the same version of Go has compiled this.
//
// The archive is an OCI image layout. Its index.json has one entry, because podman and skopeo refuse several. That
// entry is an index with a manifest for each platform. The archive also has the manifest.json of docker save, for a
// Docker without the containerd image store, which does not read index.json. See dockerImages.
func packImage(spec imageSpec) ([]byte, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	spec.Created = spec.Created.UTC().Truncate(time.Second)
	archive := imageArchive{files: []file{{name: "blobs/"}, {name: "blobs/sha256/"}}}
	var images []platformImage
	for _, program := range spec.Programs {
		image, err := archive.addPlatform(spec, program)
		if err != nil {
			return nil, fmt.Errorf("cannot make the image for linux/%s: %w", program.Arch, err)
		}
		images = append(images, image)
	}
	if err := archive.addIndexes(spec, images); err != nil {
		return nil, err
	}
	return packTar(archive.files, spec.Created)
}

// A tag has at most 128 characters. Eight of them are for -ppc64le, the longest suffix that dockerImages adds.
var isImageVersion = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}$`).MatchString

func (s imageSpec) check() error {
	if !isImageVersion(s.Version) {
		return fmt.Errorf("the version %q cannot be the tag of an image: use at most 120 letters, digits, '_', '.' or '-', "+
			"and do not begin with '.' or '-'", s.Version)
	}
	if len(s.Programs) == 0 {
		return errors.New("an image needs a program for at least one architecture")
	}
	for i, program := range s.Programs {
		isSame := func(other imageProgram) bool { return other.Arch == program.Arch }
		if slices.ContainsFunc(s.Programs[:i], isSame) {
			return fmt.Errorf("the image has two programs for linux/%s: leave one out", program.Arch)
		}
	}
	return nil
}

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

// platformImage is the image of one platform, as the archive has it.
type platformImage struct {
	program  imageProgram
	manifest ociDescriptor
	config   ociDescriptor
	layer    ociDescriptor
}

// addPlatform adds the layer, the config and the manifest of one platform.
func (a *imageArchive) addPlatform(spec imageSpec, program imageProgram) (platformImage, error) {
	image := platformImage{program: program}
	layer, err := packTar([]file{{name: imageFile, contents: program.Contents, isExecutable: true}}, spec.Created)
	if err != nil {
		return image, err
	}
	compressed, err := compress(layer)
	if err != nil {
		return image, err
	}
	image.layer = a.addBlob(layerType, compressed)

	image.config, err = a.addJSON(configType, spec.config(program, digestOf(layer)))
	if err != nil {
		return image, err
	}
	image.manifest, err = a.addJSON(manifestType, ociManifest{
		SchemaVersion: 2,
		MediaType:     manifestType,
		Config:        image.config,
		Layers:        []ociDescriptor{image.layer},
	})
	platform := program.platform()
	image.manifest.Platform = &platform
	return image, err
}

func (p imageProgram) platform() ociPlatform {
	return ociPlatform{Architecture: p.Arch, OS: "linux", Variant: p.Variant}
}

func (s imageSpec) config(program imageProgram, diffID string) ociConfig {
	return ociConfig{
		Created:     s.Created,
		ociPlatform: program.platform(),
		Config: ociProcess{
			User:       imageUser,
			Entrypoint: []string{"/" + imageFile},
			Labels: map[string]string{
				"org.opencontainers.image.created":     s.Created.Format(time.RFC3339),
				"org.opencontainers.image.description": imageDescription,
				"org.opencontainers.image.licenses":    imageLicenses,
				"org.opencontainers.image.revision":    s.Commit,
				"org.opencontainers.image.title":       s.Name,
				"org.opencontainers.image.version":     s.Version,
			},
		},
		RootFS:  ociRootFS{Type: "layers", DiffIDs: []string{diffID}},
		History: []ociHistory{{Created: s.Created, CreatedBy: "internal/release adds /" + imageFile}},
	}
}

// addIndexes adds what leads to the images: the two indexes, manifest.json and oci-layout.
func (a *imageArchive) addIndexes(spec imageSpec, images []platformImage) error {
	var manifests []ociDescriptor
	for _, image := range images {
		manifests = append(manifests, image.manifest)
	}
	index, err := a.addJSON(indexType, ociIndex{SchemaVersion: 2, MediaType: indexType, Manifests: manifests})
	if err != nil {
		return err
	}
	// podman, containerd and a Docker that uses containerd's image store take the name from the first annotation. skopeo
	// finds an image by the second one.
	index.Annotations = map[string]string{
		"io.containerd.image.name":          imageHost + spec.Name + ":" + spec.Version,
		"org.opencontainers.image.ref.name": spec.Version,
	}
	top := ociIndex{SchemaVersion: 2, MediaType: indexType, Manifests: []ociDescriptor{index}}
	if err := a.addFile("index.json", top); err != nil {
		return err
	}
	if err := a.addFile("manifest.json", dockerImages(spec, images)); err != nil {
		return err
	}
	return a.addFile("oci-layout", ociLayout{Version: "1.0.0"})
}

// dockerImages returns what manifest.json lists. A Docker without the containerd image store loads all these images,
// whatever its processor is. A tag of such a Docker is an image for one platform. So each image gets a tag with its
// architecture, and the first one also gets the tag without it.
func dockerImages(spec imageSpec, images []platformImage) []dockerImage {
	var list []dockerImage
	for i, image := range images {
		tag := spec.Name + ":" + spec.Version
		tags := []string{tag + "-" + image.program.Arch}
		if i == 0 {
			tags = append(tags, tag)
		}
		list = append(list, dockerImage{
			Config:   blobPath(image.config.Digest),
			RepoTags: tags,
			Layers:   []string{blobPath(image.layer.Digest)},
		})
	}
	return list
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
