package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// topFiles are the files that `make build` needs, or that say how to use it, and that are in no package.
var topFiles = []string{"LICENSE", "Makefile", "README.md", "deploy/Dockerfile", "go.mod", stampName}

// packProgramSource returns the source that the binary carries, as a compressed tar. It is all that `make build` needs:
// the program and this command, without tests and documentation.
func packProgramSource(t tree) ([]byte, error) {
	names, err := programFiles(t)
	if err != nil {
		return nil, err
	}
	return packSource(t, names)
}

// packWholeSource returns all of the source as a compressed tar.
func packWholeSource(t tree) ([]byte, error) {
	names, err := wholeFiles(t)
	if err != nil {
		return nil, err
	}
	return packSource(t, names)
}

// packSource packs these files of a tree, and its stamp.
func packSource(t tree, names []string) ([]byte, error) {
	var files []file
	for _, name := range names {
		path := filepath.Join(t.dir, filepath.FromSlash(name))
		info, err := os.Lstat(path)
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s is not a regular file: the source can have no other", name)
		}
		contents, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if name == stampName {
			contents = t.stamp()
		}
		files = append(files, file{name: name, contents: contents, isExecutable: info.Mode()&0o100 != 0})
	}
	packed, err := packTar(inFolder("podcount-"+t.version, files), t.time)
	if err != nil {
		return nil, err
	}
	return compress(packed)
}

// sourcePackage is the part of the output of go list that names files of a package.
type sourcePackage struct {
	Dir            string
	Standard       bool
	GoFiles        []string
	IgnoredGoFiles []string // for other systems and other versions of Go
	EmbedFiles     []string
}

// programFiles returns the names of the files that `make build` needs, for every platform.
func programFiles(t tree) ([]string, error) {
	command := goCommand(t.dir, "list", "-deps", "-json=Dir,Standard,GoFiles,IgnoredGoFiles,EmbedFiles",
		".", "./internal/release")
	output, err := command.Output()
	if exit := new(exec.ExitError); errors.As(err, &exit) {
		return nil, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
	}
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	top, err := filepath.Abs(t.dir)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(topFiles)
	for packages := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p sourcePackage
		err := packages.Decode(&p)
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		if p.Standard {
			continue
		}
		folder, err := filepath.Rel(top, p.Dir)
		if err != nil {
			return nil, err
		}
		for _, name := range slices.Concat(p.GoFiles, p.IgnoredGoFiles, p.EmbedFiles) {
			if !strings.HasSuffix(name, "_test.go") {
				names = append(names, filepath.ToSlash(filepath.Join(folder, name)))
			}
		}
	}
}

// wholeFiles returns the names of all files of the source. Without git, these are all files but those in bin/, where
// the Makefile puts what it builds.
func wholeFiles(t tree) ([]string, error) {
	if t.isGit {
		list, err := t.git("ls-files", "-z")
		return strings.Split(strings.TrimSuffix(list, "\x00"), "\x00"), err
	}
	var names []string
	err := filepath.WalkDir(t.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(t.dir, path)
		if err != nil {
			return err
		}
		if name == "bin" {
			return filepath.SkipDir
		}
		if !entry.IsDir() {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names, err
}
