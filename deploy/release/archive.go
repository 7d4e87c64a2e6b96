package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive, or a folder if the name ends in a slash.
type file struct {
	name         string // with slashes
	contents     []byte
	isExecutable bool
}

// isFolder reports whether it is a folder. Archives need none, but some programs that read images expect them.
func (f file) isFolder() bool { return strings.HasSuffix(f.name, "/") }

// header returns what a tar says of the file. The permissions are not those on the disk, which depend on the user's
// umask.
func (f file) header(modified time.Time) *tar.Header {
	header := &tar.Header{
		Typeflag: tar.TypeReg,
		Name:     f.name,
		Size:     int64(len(f.contents)),
		Mode:     0o644,
		ModTime:  modified,
		Format:   tar.FormatUSTAR,
	}
	if f.isFolder() {
		header.Typeflag = tar.TypeDir
	}
	if f.isFolder() || f.isExecutable {
		header.Mode = 0o755
	}
	return header
}

// inFolder returns the files as they are in a folder.
func inFolder(folder string, files []file) []file {
	var moved []file
	for _, f := range files {
		f.name = folder + "/" + f.name
		moved = append(moved, f)
	}
	return moved
}

// packTar returns a tar of the files, sorted by name. All times are the same, and root owns everything, so that the
// bytes depend on nothing else.
func packTar(files []file, modified time.Time) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range sorted {
		if err := w.WriteHeader(f.header(modified)); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.contents); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// compress returns data in gzip's format, without a name and a time.
func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return packed.Bytes(), nil
}

// readTar returns the contents of each file in a tar, by name. It refuses what none of our archives has: links, a name
// twice, and files that are larger than the archive, as sparse ones can be.
func readTar(archive []byte) (map[string][]byte, error) {
	files := map[string][]byte{}
	var size int64 // of all files
	members := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := members.Next()
		if err == io.EOF {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag == tar.TypeDir || header.Typeflag == tar.TypeXGlobalHeader {
			continue // git archive writes its commit into a global header.
		}
		if header.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("%q is not a regular file", header.Name)
		}
		size += header.Size
		if size > int64(len(archive)) {
			return nil, fmt.Errorf("with %q, the files have more bytes than the archive", header.Name)
		}
		if _, isThere := files[header.Name]; isThere {
			return nil, fmt.Errorf("%q is there twice", header.Name)
		}
		files[header.Name], err = io.ReadAll(members)
		if err != nil {
			return nil, err
		}
	}
}
