package main

import (
	"fmt"
	"time"
)

// What deploy/Dockerfile says of the image, too. A test compares the two.
const (
	imageUser        = "65532:65532"
	imageFile        = "podcount"
	imageDescription = "A Kubernetes controller made of nothing but Go's standard library"
	imageLicense     = "Apache-2.0"
)

// imageHost is the beginning of the image's full name. Docker and containerd add it to a name without a host. Others
// need it: CRI-O refuses a name without a host, and podman would add localhost/.
const imageHost = "docker.io/library/"

// imageName returns the name of the image with its tag, without the host.
func imageName(t tree) string { return "podcount:" + t.version }

// variants are the processors of an architecture for which buildSettings has the compiler build. Images name them in
// the way of https://github.com/opencontainers/image-spec/blob/main/image-index.md
var variants = map[string]string{"arm": "v7", "arm64": "v8"}

// packImage returns an image of the programs for Linux, as an archive for docker load, podman load, ctr images import
// and skopeo copy oci-archive:. The same programs give the same bytes, if the same version of Go has compiled this.
//
// The archive is an OCI image layout. Its index.json has one entry, because podman and skopeo refuse several. That
// entry is an index with a manifest for each platform. The archive also has the manifest.json of docker save, for a
// Docker without the containerd image store, which does not read index.json. See dockerImages.
func packImage(t tree, programs []program) (packedImage, error) {
	archive := imageArchive{files: []file{{name: "blobs/"}, {name: "blobs/sha256/"}}}
	var images []platformImage
	for _, p := range programs {
		if p.platform.os != "linux" {
			continue
		}
		image, err := archive.addPlatform(t, p)
		if err != nil {
			return packedImage{}, fmt.Errorf("cannot make the image for %s: %w", p.platform, err)
		}
		images = append(images, image)
	}
	index, err := archive.addIndexes(t, images)
	if err != nil {
		return packedImage{}, err
	}
	packed, err := packTar(archive.files, t.time)
	return packedImage{archive: packed, digest: index.Digest}, err
}

// packedImage is an image as an archive.
type packedImage struct {
	archive []byte
	digest  string // of the index of all platforms, as registries and containerd show it: sha256:…
}

// platformImage is the image of one platform, as the archive has it.
type platformImage struct {
	arch     string
	manifest ociDescriptor
	config   ociDescriptor
	layer    ociDescriptor
}

// addPlatform adds the layer, the config and the manifest of one platform.
func (a *imageArchive) addPlatform(t tree, p program) (platformImage, error) {
	image := platformImage{arch: p.platform.arch}
	layer, err := packTar([]file{{name: imageFile, contents: p.contents, isExecutable: true}}, t.time)
	if err != nil {
		return image, err
	}
	compressed, err := compress(layer)
	if err != nil {
		return image, err
	}
	image.layer = a.addBlob(layerType, compressed)

	platform := ociPlatform{
		Architecture: p.platform.arch,
		OS:           p.platform.os,
		Variant:      variants[p.platform.arch],
	}
	image.config, err = a.addJSON(configType, configOf(t, platform, digestOf(layer)))
	if err != nil {
		return image, err
	}
	image.manifest, err = a.addJSON(manifestType, ociManifest{
		SchemaVersion: 2,
		MediaType:     manifestType,
		Config:        image.config,
		Layers:        []ociDescriptor{image.layer},
	})
	image.manifest.Platform = &platform
	return image, err
}

// configOf says how podcount runs in a container. diffID is the digest of the layer before it is compressed.
func configOf(t tree, platform ociPlatform, diffID string) ociConfig {
	created := t.time.UTC()
	return ociConfig{
		Created:     created,
		ociPlatform: platform,
		Config: ociProcess{
			User:       imageUser,
			Entrypoint: []string{"/" + imageFile},
			Labels: map[string]string{
				"org.opencontainers.image.created":     created.Format(time.RFC3339),
				"org.opencontainers.image.description": imageDescription,
				"org.opencontainers.image.licenses":    imageLicense,
				"org.opencontainers.image.revision":    t.commit,
				"org.opencontainers.image.title":       "podcount",
				"org.opencontainers.image.version":     t.version,
			},
		},
		RootFS:  ociRootFS{Type: "layers", DiffIDs: []string{diffID}},
		History: []ociHistory{{Created: created, CreatedBy: "deploy/release adds /" + imageFile}},
	}
}

// addIndexes adds what leads to the images: the two indexes, manifest.json and oci-layout. It returns the index of all
// platforms.
func (a *imageArchive) addIndexes(t tree, images []platformImage) (ociDescriptor, error) {
	var manifests []ociDescriptor
	for _, image := range images {
		manifests = append(manifests, image.manifest)
	}
	index, err := a.addJSON(indexType, ociIndex{SchemaVersion: 2, MediaType: indexType, Manifests: manifests})
	if err != nil {
		return ociDescriptor{}, err
	}
	// podman, containerd and a Docker that uses containerd's image store take the name from the first annotation. skopeo
	// finds an image by the second one.
	index.Annotations = map[string]string{
		"io.containerd.image.name":          imageHost + imageName(t),
		"org.opencontainers.image.ref.name": t.version,
	}
	top := ociIndex{SchemaVersion: 2, MediaType: indexType, Manifests: []ociDescriptor{index}}
	if err := a.addFile("index.json", top); err != nil {
		return ociDescriptor{}, err
	}
	if err := a.addFile("manifest.json", dockerImages(t, images)); err != nil {
		return ociDescriptor{}, err
	}
	return index, a.addFile("oci-layout", ociLayout{Version: "1.0.0"})
}

// dockerImages returns what manifest.json lists. A Docker without the containerd image store loads all these images,
// whatever its processor is. A tag of such a Docker is an image for one platform. So each image gets a tag with its
// architecture, and the first one also gets the tag without it.
func dockerImages(t tree, images []platformImage) []dockerImage {
	var list []dockerImage
	for i, image := range images {
		tags := []string{imageName(t) + "-" + image.arch}
		if i == 0 {
			tags = append(tags, imageName(t))
		}
		list = append(list, dockerImage{
			Config:   blobPath(image.config.Digest),
			RepoTags: tags,
			Layers:   []string{blobPath(image.layer.Digest)},
		})
	}
	return list
}
