package main

import (
	"archive/tar"
	"bytes"
	"io"
	"testing"
	"time"

	"podcount/lab/testkit"
)

func TestTarDependsOnNamesAndContentsAlone(t *testing.T) {
	modified := time.Unix(1700000000, 0)
	files := []file{{name: "b", contents: []byte("2"), isExecutable: true}, {name: "a", contents: []byte("1")}}
	packed, err := packTar(files, modified)
	if err != nil {
		t.Fatal(err)
	}
	again, err := packTar([]file{files[1], files[0]}, modified.In(time.FixedZone("east", 3600)))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(packed, again) {
		t.Error("another order and another time zone give other bytes")
	}
}

func TestTarHasFilesOfRootSortedByName(t *testing.T) {
	modified := time.Unix(1700000000, 0)
	files := []file{{name: "b", isExecutable: true}, {name: "a"}, {name: "c/"}}
	packed, err := packTar(inFolder("folder", files), modified)
	if err != nil {
		t.Fatal(err)
	}
	type member struct {
		name     string
		mode     int64
		owner    int
		modified int64
	}
	var members []member
	for archive := tar.NewReader(bytes.NewReader(packed)); ; {
		header, err := archive.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		members = append(members, member{header.Name, header.Mode, header.Uid + header.Gid, header.ModTime.Unix()})
	}
	testkit.WantEqual(t, "the members", members, []member{
		{"folder/a", 0o644, 0, 1700000000},
		{"folder/b", 0o755, 0, 1700000000},
		{"folder/c/", 0o755, 0, 1700000000},
	})
}

func TestCompressedBytesHaveNoTimeAndNoName(t *testing.T) {
	packed, err := compress([]byte("text"))
	if err != nil {
		t.Fatal(err)
	}
	// The header of gzip: two bytes of magic, the method, flags (a name is one), and four bytes of time.
	testkit.WantEqual(t, "the flags", packed[3], 0)
	testkit.WantEqual(t, "the time", string(packed[4:8]), "\x00\x00\x00\x00")
}

func TestOddMembersOfAnArchiveAreRefused(t *testing.T) {
	twice, err := packTar([]file{{name: "a"}, {name: "a"}}, time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	_, err = readTar(twice)
	testkit.WantError(t, "a name twice", err, `"a" is there twice`)

	var withLink bytes.Buffer
	w := tar.NewWriter(&withLink)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"})
	w.Close()
	_, err = readTar(withLink.Bytes())
	testkit.WantError(t, "a link", err, `"link" is not a regular file`)

	var huge bytes.Buffer
	w = tar.NewWriter(&huge)
	w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "huge", Size: 1 << 40})
	_, err = readTar(huge.Bytes())
	testkit.WantError(t, "a terabyte", err, `with "huge", the files have more bytes than the archive`)
}
