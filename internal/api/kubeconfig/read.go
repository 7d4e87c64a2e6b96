package kubeconfig

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podcount/internal/api/yaml"
)

// kubeconfigs are the clusters, users and contexts of one or more files.
type kubeconfigs struct {
	entries map[entry]node
	current string // the name of the current context
	faults  faults
}

// entry is a cluster, a user or a context.
type entry struct{ kind, name string }

// parse adds the entries of a file. They replace earlier entries of the same name.
func (k *kubeconfigs) parse(file string, text []byte) error {
	tree, err := yaml.Parse(string(text))
	if err != nil {
		return fmt.Errorf("%s:%w", file, err) // the error begins with the number of the line
	}
	root := node{file: file, value: tree, faults: &k.faults}
	kind := root.at("kind")
	if cmp.Or(kind.text(), "Config") != "Config" {
		kind.addFault("is %q, not Config: this is not a kubeconfig", kind.text())
	}
	version := root.at("apiVersion")
	if cmp.Or(version.text(), "v1") != "v1" {
		version.addFault("is %q, but must be v1", version.text())
	}
	k.current = cmp.Or(root.at("current-context").text(), k.current)
	entries := map[entry]node{}
	for _, kind := range []string{"cluster", "user", "context"} {
		for _, item := range root.at(kind + "s").items() {
			e := entry{kind, item.at("name").text()}
			if _, isTwice := entries[e]; isTwice {
				item.at("name").addFault("is that of another %s %q", kind, e.name)
			}
			entries[e] = item.at(kind)
		}
	}
	maps.Copy(k.entries, entries)
	return k.faults.first
}

// notFound returns the error for a name that no entry of its kind has.
func (k *kubeconfigs) notFound(source string, e entry) error {
	return fmt.Errorf("%s: there is no %s %q (there is: %s)", source, e.kind, e.name, k.names(e.kind))
}

// names lists the entries of a kind, for error messages.
func (k *kubeconfigs) names(kind string) string {
	var all []string
	for e := range k.entries {
		if e.kind == kind {
			all = append(all, fmt.Sprintf("%s %q", kind, e.name))
		}
	}
	slices.Sort(all)
	return cmp.Or(strings.Join(all, ", "), "none")
}

// readKubeconfigs reads one context from some files: the one of this name, or else the current one. As in client-go, a
// context, a cluster or a user may have the empty name, and a missing name refers to that one.
func (a *access) readKubeconfigs(ctx context.Context, files []string, contextName string) error {
	a.source = strings.Join(files, string(filepath.ListSeparator))
	all, err := a.mergeKubeconfigs(ctx, files)
	if err != nil {
		return err
	}
	return a.readContext(all, contextName)
}

// readContext reads a context of some kubeconfigs, its cluster and its user.
func (a *access) readContext(all *kubeconfigs, contextName string) error {
	chosen, hasContext, err := a.chooseContext(all, cmp.Or(contextName, all.current))
	if err != nil {
		return err
	}
	clusterName := entry{"cluster", chosen.at("cluster").text()}
	userName := entry{"user", chosen.at("user").text()}
	if all.faults.first != nil {
		return all.faults.first
	}
	cluster, hasCluster := all.entries[clusterName]
	if !hasCluster && hasContext {
		return all.notFound(a.source, clusterName)
	}
	user, hasUser := all.entries[userName]
	if !hasUser && userName.name != "" {
		return all.notFound(a.source, userName)
	}
	a.readCluster(cluster)
	if hasUser {
		a.readUser(user, cluster)
	}
	return all.faults.first
}

// mergeKubeconfigs reads several files. If several have an entry of the same name, the first file wins. Unknown fields
// are ignored. https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
func (a *access) mergeKubeconfigs(ctx context.Context, files []string) (*kubeconfigs, error) {
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	all := &kubeconfigs{entries: map[entry]node{}}
	hasRead := false
	// Begin with the last file: each file replaces entries of those after it.
	for i, file := range slices.Backward(files) {
		text, err := readKubeconfig(ctx, file)
		isEmpty := len(bytes.TrimSpace(text)) == 0
		isAbsent := isEmpty && (err == nil || errors.Is(err, os.ErrNotExist))
		mustExist := i == 0 && !hasRead
		if isAbsent && !mustExist {
			continue // like kubectl, which requires only one of several files
		}
		if err != nil {
			return nil, err
		}
		if isEmpty && a.master == "" { // with a master, an empty file is enough
			return nil, fmt.Errorf("%s is empty: name a kubeconfig by %s or KUBECONFIG, or give %s",
				file, a.names.Kubeconfig, a.names.Master)
		}
		if err := all.parse(file, text); err != nil {
			return nil, err
		}
		hasRead = true
	}
	return all, nil
}

// chooseContext finds the context of a name, and adds it to a.source. No context is needed if the name is empty and
// a.master says where the server is.
func (a *access) chooseContext(all *kubeconfigs, name string) (chosen node, isFound bool, err error) {
	chosen, isFound = all.entries[entry{"context", name}]
	switch {
	case isFound:
		a.source += ", context " + cmp.Or(name, `""`)
		return chosen, true, nil
	case name != "":
		return node{}, false, all.notFound(a.source, entry{"context", name})
	case a.master != "":
		return node{}, false, nil
	default:
		return node{}, false, fmt.Errorf("%s: there is no current-context: choose one with %s (there is: %s)",
			a.source, a.names.Context, all.names("context"))
	}
}

// readCluster reads where the server is, and how to verify it.
func (a *access) readCluster(cluster node) {
	a.server = cluster.at("server").text()
	a.serverName = cluster.at("tls-server-name").text()
	a.proxy = cluster.at("proxy-url").text()
	insecure := cluster.at("insecure-skip-tls-verify")
	a.insecure = insecure.isTrue()
	a.ca = cluster.part("certificate-authority")
	if a.insecure && a.ca.isGiven() {
		insecure.addFault("excludes a certificate-authority: remove one of them")
	}
	if a.isPlainHTTP() {
		a.ca = part{} // there is nothing to verify
	}
}

// readUser reads the user's credential. A client certificate and a token come before an exec program, as with kubectl.
func (a *access) readUser(user, cluster node) {
	if a.isPlainHTTP() {
		a.isCredentialWithheld = true
		return
	}
	for _, name := range []string{
		"auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra",
	} {
		if field := user.at(name); field.value != nil && field.value != "" {
			field.addFault("is not supported: use a token, a client-certificate or exec, of a user of its own")
		}
	}
	a.cert = user.part("client-certificate")
	a.key = user.part("client-key") // without a certificate, it is ignored
	if a.cert.isGiven() && !a.key.isGiven() {
		user.at("client-key").addFault("is missing: it belongs to the client-certificate")
	}
	a.token = part{
		field:      "tokenFile",
		file:       user.at("tokenFile").path(),
		data:       bytes.TrimSpace([]byte(user.at("token").text())),
		kubeconfig: user.file,
		maxAge:     maxTokenAge,
		check:      checkToken,
	}
	exec := user.at("exec")
	if exec.value != nil && !a.token.isGiven() && !a.cert.isGiven() {
		a.readExec(exec, cluster)
	}
}

// readExec reads which program provides the user's credential.
func (a *access) readExec(exec, cluster node) {
	command := exec.at("command").text()
	if strings.ContainsRune(command, filepath.Separator) {
		command = exec.at("command").path()
	}
	a.exec = &execPlugin{
		apiVersion: exec.at("apiVersion").text(),
		command:    command,
		hint:       shortened([]byte(exec.at("installHint").text()), 1000),
		timeout:    execTimeout,
	}
	a.token = part{from: command}
	a.cert = part{field: "the output of " + command}
	a.key = part{}
	for _, arg := range exec.at("args").items() {
		a.exec.args = append(a.exec.args, arg.text())
	}
	for _, variable := range exec.at("env").items() {
		name := variable.at("name").text()
		a.exec.env = append(a.exec.env, name+"="+variable.at("value").text())
	}
	if exec.at("provideClusterInfo").isTrue() {
		a.exec.cluster = &execCluster{
			DisableCompression: cluster.at("disable-compression").isTrue(),
			Config:             cluster.extension("client.authentication.k8s.io/exec"),
		}
	}
	mode := exec.at("interactiveMode")
	if mode.text() == "Always" {
		mode.addFault("is Always, but this process cannot ask anybody: use a credential that needs no input")
	}
}
