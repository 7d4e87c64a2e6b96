package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
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
		files = append(files, file{name: name, contents: contents, isExecutable: isScript(contents)})
	}
	packed, err := packTar(inFolder("podcount-"+t.version, files), t.time)
	if err != nil {
		return nil, err
	}
	return compress(packed)
}

// isScript reports whether a file of the source can be executed. The permissions on the disk cannot tell, because not
// every file system keeps them.
func isScript(contents []byte) bool { return bytes.HasPrefix(contents, []byte("#!")) }

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
	output, err := outputOf(goCommand(t.dir, "list", "-deps", "-json=Dir,Standard,GoFiles,IgnoredGoFiles,EmbedFiles",
		".", "./deploy/release"))
	if err != nil {
		return nil, err
	}
	top, err := filepath.Abs(t.dir)
	if err != nil {
		return nil, err
	}
	names := slices.Clone(topFiles)
	packages := json.NewDecoder(bytes.NewReader(output))
	for {
		var p sourcePackage
		err := packages.Decode(&p)
		if err == io.EOF {
			return names, nil
		}
		if err != nil {
			return nil, fmt.Errorf("the output of go list: %w", err)
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

// wholeFiles returns the names of all files in a tree without git, but those in bin/, where the Makefile puts what it
// builds.
func wholeFiles(t tree) ([]string, error) {
	var names []string
	err := filepath.WalkDir(t.dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(t.dir, path)
		if err != nil {
			return err
		}
		if name == "bin" && entry.IsDir() {
			return filepath.SkipDir
		}
		if !entry.IsDir() {
			names = append(names, filepath.ToSlash(name))
		}
		return nil
	})
	return names, err
}

// export writes the files of the commit to a folder, and returns them as a tree without git. So a release has the bytes
// of the commit, even if git has changed ends of lines on the disk, or if other files lie there.
func (t tree) export(dir string) (tree, error) {
	archive, err := t.archiveCommit()
	if err != nil {
		return tree{}, err
	}
	files, err := readTar(archive)
	if err != nil {
		return tree{}, fmt.Errorf("the commit: %w", err)
	}
	for name, contents := range files {
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(name)), contents); err != nil {
			return tree{}, err
		}
	}
	t.dir = dir
	t.isGit = false
	return t, nil
}

// archiveCommit returns the files of the commit as a tar.
//
// git archive obeys what a repository sets for itself, such as attributes and replaced commits. So it runs in an empty
// repository, which only borrows the objects of this one.
func (t tree) archiveCommit() ([]byte, error) {
	objects, err := t.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
	if err != nil {
		return nil, err
	}
	empty, err := os.MkdirTemp("", "podcount-git-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(empty)
	empty, err = filepath.Abs(empty) // TMPDIR can be relative.
	if err != nil {
		return nil, err
	}
	if _, err := outputOf(gitCommand(empty, "init", "-q", "--bare", "--template=", ".")); err != nil {
		return nil, err
	}
	command := gitCommand(empty,
		"-c", "core.autocrlf=false", "-c", "core.eol=lf", "-c", "core.attributesFile=/dev/null",
		"archive", "--format=tar", t.commit)
	command.Env = append(command.Env, "GIT_ATTR_NOSYSTEM=1", "GIT_DIR="+empty, "GIT_OBJECT_DIRECTORY="+objects)
	return outputOf(command)
}
