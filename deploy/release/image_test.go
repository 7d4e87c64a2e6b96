package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// imageTree is the source of an image. Its time is in another zone, and has a fraction.
var imageTree = tree{
	version: "v1.1.0",
	commit:  testCommit,
	time:    time.Date(2026, 11, 23, 12, 30, 15, 0, time.FixedZone("", 3600)),
}

// imagePrograms are programs for all platforms of Linux, and one that is in no image. Two of them are equal, so they
// share a layer.
var imagePrograms = []program{
	{platform{"linux", "amd64"}, []byte("the program for amd64")},
	{platform{"linux", "arm64"}, []byte("the program for arm64")},
	{platform{"linux", "arm"}, []byte("the program for arm")},
	{platform{"linux", "ppc64le"}, []byte("a program for two")},
	{platform{"linux", "s390x"}, []byte("a program for two")},
	{platform{"linux", "riscv64"}, []byte("the program for riscv64")},
	{platform{"darwin", "arm64"}, []byte("the program for a Mac")},
}

// linuxPrograms are those that are in the image.
var linuxPrograms = imagePrograms[:6]

// imageCreated is the time of imageTree in UTC.
var imageCreated = time.Date(2026, 11, 23, 11, 30, 15, 0, time.UTC)

func testImage(t *testing.T) []byte {
	t.Helper()
	image, err := packImage(imageTree, imagePrograms)
	if err != nil {
		t.Fatal(err)
	}
	return image.archive
}

// membersOf returns the headers in their order, and the contents by name.
func membersOf(t *testing.T, archive []byte) ([]*tar.Header, map[string]string) {
	t.Helper()
	var headers []*tar.Header
	contents := make(map[string]string)
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if err == io.EOF {
			return headers, contents
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, header)
		contents[header.Name] = string(text)
	}
}

func gunzip(t *testing.T, compressed string) []byte {
	t.Helper()
	reader, err := gzip.NewReader(strings.NewReader(compressed))
	if err != nil {
		t.Fatal(err)
	}
	if !reader.ModTime.IsZero() || reader.Name != "" {
		t.Errorf("the header of gzip has the time %v and the name %q, want none", reader.ModTime, reader.Name)
	}
	contents, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

func sha256Of(contents string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(contents)))
}

// layerOf returns the layer of a platform, which is a blob whose only file has the program.
func layerOf(t *testing.T, files map[string]string, program []byte) string {
	t.Helper()
	for name, contents := range files {
		if !strings.HasPrefix(name, "blobs/") || !strings.HasPrefix(contents, "\x1f\x8b") {
			continue
		}
		_, members := membersOf(t, gunzip(t, contents))
		if members["podcount"] == string(program) {
			return contents
		}
	}
	t.Fatalf("no layer has the file podcount with %q", program)
	return ""
}

// wantedPlatform returns what the image must say of the platform of a program.
func wantedPlatform(p program) string {
	platform := fmt.Sprintf(`"architecture":%q,"os":"linux"`, p.platform.arch)
	switch p.platform.arch {
	case "arm":
		platform += `,"variant":"v7"`
	case "arm64":
		platform += `,"variant":"v8"`
	}
	return platform
}

// wantedConfig returns the config that a platform must have.
func wantedConfig(p program, layer []byte) string {
	platform := wantedPlatform(p)
	return `{"created":"2026-11-23T11:30:15Z",` + platform + `,` +
		`"config":{"User":"65532:65532","Entrypoint":["/podcount"],"Labels":{` +
		`"org.opencontainers.image.created":"2026-11-23T11:30:15Z",` +
		`"org.opencontainers.image.description":"A Kubernetes controller made of nothing but Go's standard library",` +
		`"org.opencontainers.image.licenses":"Apache-2.0",` +
		`"org.opencontainers.image.revision":"0123456789abcdef0123456789abcdef01234567",` +
		`"org.opencontainers.image.title":"podcount",` +
		`"org.opencontainers.image.version":"v1.1.0"}},` +
		`"rootfs":{"type":"layers","diff_ids":["sha256:` + sha256Of(string(layer)) + `"]},` +
		`"history":[{"created":"2026-11-23T11:30:15Z","created_by":"deploy/release adds /podcount"}]}`
}

// checkBlob checks that the archive has a blob with these contents, and returns its descriptor without the brace at
// the end.
func checkBlob(t *testing.T, files map[string]string, mediaType, contents string) string {
	t.Helper()
	sum := sha256Of(contents)
	if files["blobs/sha256/"+sum] != contents {
		t.Errorf("the archive has no blob\n%s", contents)
	}
	return fmt.Sprintf(`{"mediaType":%q,"digest":"sha256:%s","size":%d`, mediaType, sum, len(contents))
}

func TestImageHasAManifestForEachPlatform(t *testing.T) {
	_, files := membersOf(t, testImage(t))
	var manifests []string
	for _, program := range linuxPrograms {
		layer := layerOf(t, files, program.contents)
		config := wantedConfig(program, gunzip(t, layer))
		manifest := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":` +
			checkBlob(t, files, "application/vnd.oci.image.config.v1+json", config) + `},"layers":[` +
			checkBlob(t, files, "application/vnd.oci.image.layer.v1.tar+gzip", layer) + `}]}`
		described := checkBlob(t, files, "application/vnd.oci.image.manifest.v1+json", manifest)
		manifests = append(manifests, described+`,"platform":{`+wantedPlatform(program)+`}}`)
	}
	beginning := `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[`
	index := beginning + strings.Join(manifests, ",") + `]}`
	want := beginning + checkBlob(t, files, "application/vnd.oci.image.index.v1+json", index) +
		`,"annotations":{"io.containerd.image.name":"docker.io/library/podcount:v1.1.0",` +
		`"org.opencontainers.image.ref.name":"v1.1.0"}}]}`
	if got := files["index.json"]; got != want {
		t.Errorf("index.json is\n%s\nwant\n%s", got, want)
	}
	if got, want := files["oci-layout"], `{"imageLayoutVersion":"1.0.0"}`; got != want {
		t.Errorf("oci-layout is %s, want %s", got, want)
	}
}

func TestLayerHasNothingButTheProgramWhichAllMayRun(t *testing.T) {
	_, files := membersOf(t, testImage(t))
	headers, _ := membersOf(t, gunzip(t, layerOf(t, files, linuxPrograms[0].contents)))
	if len(headers) != 1 {
		t.Fatalf("the layer has %d files, want 1", len(headers))
	}
	file := headers[0]
	if file.Name != "podcount" || file.Typeflag != tar.TypeReg || file.Mode != 0o755 {
		t.Errorf("the layer has %q with mode %o, want podcount with 755", file.Name, file.Mode)
	}
	checkOwnerAndTime(t, file)
}

func checkOwnerAndTime(t *testing.T, file *tar.Header) {
	t.Helper()
	if file.Uid != 0 || file.Gid != 0 || file.Uname != "" || file.Gname != "" {
		t.Errorf("%s belongs to %d:%d (%q:%q), want 0:0 without names",
			file.Name, file.Uid, file.Gid, file.Uname, file.Gname)
	}
	if !file.ModTime.Equal(imageCreated) {
		t.Errorf("%s has the time %v, want %v", file.Name, file.ModTime.UTC(), imageCreated)
	}
}

func TestMembersOfTheImageArchiveAreSortedAndHaveTheTimeOfTheCommit(t *testing.T) {
	headers, _ := membersOf(t, testImage(t))
	var names []string
	for _, header := range headers {
		names = append(names, header.Name)
		checkOwnerAndTime(t, header)
		wantMode := int64(0o644)
		if header.Typeflag == tar.TypeDir {
			wantMode = 0o755
		}
		if header.Mode != wantMode {
			t.Errorf("%s has the mode %o, want %o", header.Name, header.Mode, wantMode)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the members are not sorted: %q", names)
	}
	if len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("a member is there twice: %q", names)
	}
}

func TestEachBlobOfTheImageHasItsDigestAsNameAndIsUsed(t *testing.T) {
	_, files := membersOf(t, testImage(t))
	var all strings.Builder
	blobs := 0
	for _, contents := range files {
		all.WriteString(contents)
	}
	for name, contents := range files {
		sum, isBlob := strings.CutPrefix(name, "blobs/sha256/")
		if !isBlob || sum == "" {
			continue
		}
		blobs++
		if sum != sha256Of(contents) {
			t.Errorf("the blob %s has the digest %s", sum, sha256Of(contents))
		}
		if !strings.Contains(all.String(), `"sha256:`+sum) {
			t.Errorf("nothing refers to the blob %s", sum)
		}
	}
	// One index; a manifest and a config for each of six platforms; two of them share a layer.
	if want := 1 + 6 + 6 + 5; blobs != want {
		t.Errorf("the archive has %d blobs, want %d", blobs, want)
	}
}

func TestDockerGetsATagForEachArchitectureAndTheFirstOneTheShortTag(t *testing.T) {
	_, files := membersOf(t, testImage(t))
	tags := []string{
		`"podcount:v1.1.0-amd64","podcount:v1.1.0"`, `"podcount:v1.1.0-arm64"`, `"podcount:v1.1.0-arm"`,
		`"podcount:v1.1.0-ppc64le"`, `"podcount:v1.1.0-s390x"`, `"podcount:v1.1.0-riscv64"`,
	}
	var images []string
	for i, program := range linuxPrograms {
		layer := layerOf(t, files, program.contents)
		config := wantedConfig(program, gunzip(t, layer))
		images = append(images, fmt.Sprintf(`{"Config":"blobs/sha256/%s","RepoTags":[%s],"Layers":["blobs/sha256/%s"]}`,
			sha256Of(config), tags[i], sha256Of(layer)))
	}
	want := "[" + strings.Join(images, ",") + "]"
	if got := files["manifest.json"]; got != want {
		t.Errorf("manifest.json is\n%s\nwant\n%s", got, want)
	}
}

func TestImageHasTheSettingsOfTheDockerfile(t *testing.T) {
	dockerfile, err := os.ReadFile("../../deploy/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"USER " + imageUser + "\n",
		"COPY podcount-linux-$TARGETARCH /" + imageFile + "\n",
		`ENTRYPOINT ["/` + imageFile + `"]` + "\n",
		"org.opencontainers.image.title=podcount ",
		`org.opencontainers.image.description="` + imageDescription + `"`,
		"org.opencontainers.image.licenses=" + imageLicense + " ",
	} {
		if !strings.Contains(string(dockerfile), want) {
			t.Errorf("deploy/Dockerfile does not have %q, which the image of a release has", want)
		}
	}
}

func TestSameInputGivesTheSameImage(t *testing.T) {
	want := testImage(t)
	inUTC := imageTree
	inUTC.time = imageCreated
	for range 20 {
		again, err := packImage(inUTC, imagePrograms)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(again.archive, want) {
			t.Fatal("the same commit time in another zone, or the same again, gives another archive")
		}
	}
}

func TestDigestOfTheImageIsThatOfItsIndex(t *testing.T) {
	image, err := packImage(imageTree, imagePrograms)
	if err != nil {
		t.Fatal(err)
	}
	_, files := membersOf(t, image.archive)
	if !strings.Contains(files["index.json"], `"manifests":[{"mediaType":"`+indexType+`","digest":"`+image.digest+`"`) {
		t.Errorf("%s is not the digest in index.json: %s", image.digest, files["index.json"])
	}
}
