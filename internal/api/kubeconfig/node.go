package kubeconfig

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
)

// node is a value in a kubeconfig. It may be a secret, so a node prints as its place in the file. The names of fields
// are compared exactly, as kubectl does; encoding/json would ignore their case.
//
// The methods that read a value return the zero value if it is missing or wrong. They add an error to faults if it is
// wrong. A caller reads all the fields that it needs, and then checks faults once.
type node struct {
	file   string
	place  string // such as users[0].user; "" is the whole file
	value  any    // as returned by yaml.Parse; nil if there is no value
	faults *faults
}

// faults keeps the first fault that was found in some kubeconfigs.
type faults struct{ first error }

// addFault adds a fault. The message continues a sentence that begins with the node's place.
func (n node) addFault(format string, args ...any) {
	if n.faults.first == nil {
		n.faults.first = fmt.Errorf("%s "+format, append([]any{n}, args...)...)
	}
}

func (n node) String() string { return n.file + ": " + cmp.Or(n.place, "this") }

// as returns the value of a node. If there is a value, it must be of type T. wanted describes T in the error.
func as[T any](n node, wanted string) T {
	value, isT := n.value.(T)
	if !isT && n.value != nil {
		n.addFault("must be %s", wanted)
	}
	return value
}

func (n node) text() string {
	return as[string](n, "a string: quote what looks like a number or a boolean")
}

func (n node) isTrue() bool {
	return as[bool](n, "true or false, without quotes")
}

// at returns the field of a map.
func (n node) at(name string) node {
	fields := as[map[string]any](n, "a map")
	place := strings.Trim(n.place+"."+name, ".")
	return node{file: n.file, place: place, value: fields[name], faults: n.faults}
}

// items returns the items of a list.
func (n node) items() (items []node) {
	for i, value := range as[[]any](n, "a list") {
		place := fmt.Sprintf("%s[%d]", n.place, i)
		items = append(items, node{file: n.file, place: place, value: value, faults: n.faults})
	}
	return items
}

// path returns a file name as an absolute path. A relative name is relative to the kubeconfig. The path must be
// absolute, because the name of a program would otherwise be looked up in $PATH.
func (n node) path() string {
	path := n.text()
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	path, _ = filepath.Abs(filepath.Join(filepath.Dir(n.file), path))
	return path
}

// extension returns the content of the extension with this name, or nil if there is none.
func (n node) extension(name string) any {
	var content any
	isFound := false
	for _, entry := range n.at("extensions").items() {
		if entry.at("name").text() != name {
			continue
		}
		if isFound {
			entry.at("name").addFault("is that of another extension: remove one of them")
		}
		isFound = true
		content = entry.at("extension").value
	}
	return content
}

// part reads a part of a credential: its content from the field NAME-data, or else its file's name from the field NAME.
// It refuses both, as kubectl does.
func (n node) part(name string) part {
	file := n.at(name)
	data := n.at(name + "-data")
	if file.text() != "" && data.text() != "" {
		file.addFault("is given twice, also as %s-data: remove one of them", name)
	}
	decoded, err := base64.StdEncoding.DecodeString(data.text())
	if err != nil {
		data.addFault("is not valid base64")
	}
	if len(decoded) > 0 {
		return part{field: name + "-data", data: decoded, kubeconfig: n.file}
	}
	return part{field: name, file: file.path(), maxAge: maxCertAge}
}
