package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"slices"
	"strings"
	"time"
)

// file is a file of an archive.
type file struct {
	name         string // with slashes, below the archive's one folder
	contents     []byte
	isExecutable bool
}

// mode returns the permissions of the file. They are not those on the disk, which depend on the user's umask.
func (f file) mode() int64 {
	if f.isExecutable {
		return 0o755
	}
	return 0o644
}

// packTar returns a tar of the files, sorted by name, in a folder. All times are the same, and root owns everything, so
// that the bytes depend on nothing else.
func packTar(folder string, files []file, modified time.Time) ([]byte, error) {
	sorted := slices.SortedFunc(slices.Values(files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for _, f := range sorted {
		header := &tar.Header{
			Typeflag: tar.TypeReg,
			Name:     folder + "/" + f.name,
			Size:     int64(len(f.contents)),
			Mode:     f.mode(),
			ModTime:  modified,
			Format:   tar.FormatUSTAR,
		}
		if err := w.WriteHeader(header); err != nil {
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
