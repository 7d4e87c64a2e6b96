package kubeconfig

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"podcount/internal/yaml"
)

// kubeconfigs are files that are read together: the clusters, users and contexts of all of them, by their names.
type kubeconfigs struct {
	clusters, users, contexts map[string]node
	current                   string // the name of the current context
}

// of returns the map of one kind, and where an entry of that kind stands in a file: in a list of this name.
func (k *kubeconfigs) of(kind string) (byName map[string]node, list string) {
	switch kind {
	case "cluster":
		return k.clusters, "clusters"
	case "user":
		return k.users, "users"
	}
	return k.contexts, "contexts"
}

// names lists what there is of a kind, for errors.
func (k *kubeconfigs) names(kind string) string {
	byName, _ := k.of(kind)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		all = append(all, fmt.Sprintf("%s %q", kind, name))
	}
	return cmp.Or(strings.Join(all, ", "), "none")
}

// add reads a file. What it names takes the place of what was there by that name.
func (k *kubeconfigs) add(root node) {
	kind, version := root.at("kind"), root.at("apiVersion")
	refuseIf(cmp.Or(kind.text(), "Config") != "Config",
		"%s is %q, not Config: this is no kubeconfig", kind, kind.value)
	refuseIf(cmp.Or(version.text(), "v1") != "v1", "%s is %q, and must be v1", version, version.value)
	k.current = cmp.Or(root.at("current-context").text(), k.current)
	for _, kind := range []string{"cluster", "user", "context"} {
		byName, list := k.of(kind)
		isHere := map[string]bool{}
		for _, entry := range root.at(list).items() {
			name := entry.at("name").text()
			refuseIf(isHere[name], "%s is that of another %s %q", entry.at("name"), kind, name)
			isHere[name] = true
			byName[name] = entry.at(kind)
		}
	}
}

// mergeKubeconfigs reads files together; where two set the same name, the first counts. Fields that are not known are
// passed over. https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
func (a *access) mergeKubeconfigs(ctx context.Context, files []string) (*kubeconfigs, error) {
	files = slices.DeleteFunc(files, func(file string) bool { return file == "" })
	all := &kubeconfigs{clusters: map[string]node{}, users: map[string]node{}, contexts: map[string]node{}}
	hasRead := false
	for i, file := range slices.Backward(files) {
		text, err := readKubeconfig(ctx, file)
		isEmpty := len(bytes.TrimSpace(text)) == 0
		isAbsent := isEmpty && (err == nil || errors.Is(err, os.ErrNotExist))
		if isAbsent && (i > 0 || hasRead) {
			continue // as kubectl does with one of a list
		}
		if err != nil {
			return nil, err
		}
		if isEmpty && a.master == "" { // else -master will do
			return nil, fmt.Errorf("%s is empty", file)
		}
		tree, err := yaml.Parse(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s:%w", file, err)
		}
		all.add(node{file: file, value: tree})
		hasRead = true
	}
	return all, nil
}

// readKubeconfigs reads one context of the files together: the one named, or else their current one. As in client-go, a
// name that is not given is "", which may be that of a context, a cluster or a user.
func (a *access) readKubeconfigs(ctx context.Context, files []string, contextName string) (err error) {
	defer catch(&err)
	a.source = strings.Join(files, string(filepath.ListSeparator))
	all, err := a.mergeKubeconfigs(ctx, files)
	if err != nil {
		return err
	}
	contextName = cmp.Or(contextName, all.current)
	chosen, hasContext := all.contexts[contextName]
	isMasterEnough := a.master != "" && contextName == ""
	if !hasContext && contextName != "" {
		return fmt.Errorf("%s: there is no context %q (there is: %s)", a.source, contextName, all.names("context"))
	}
	if !hasContext && !isMasterEnough {
		return fmt.Errorf("%s: no current-context: name one with -context (there is: %s)",
			a.source, all.names("context"))
	}
	if hasContext {
		a.source += ", context " + cmp.Or(contextName, `""`)
	}
	clusterName := chosen.at("cluster").text()
	userName := chosen.at("user").text()
	cluster, hasCluster := all.clusters[clusterName]
	if !hasCluster && hasContext {
		return fmt.Errorf("%s: there is no cluster %q (there is: %s)", a.source, clusterName, all.names("cluster"))
	}
	user, hasUser := all.users[userName]
	if !hasUser && userName != "" {
		return fmt.Errorf("%s: there is no user %q (there is: %s)", a.source, userName, all.names("user"))
	}
	a.readCluster(cluster)
	switch {
	case !hasUser:
	case a.isPlainHTTP():
		a.isWithheld = true
	default:
		a.readUser(user)
		a.readExec(user, cluster)
	}
	return nil
}

// readCluster reads the server, and what it is verified by.
func (a *access) readCluster(cluster node) {
	a.server = cluster.at("server").text()
	a.serverName = cluster.at("tls-server-name").text()
	a.proxy = cluster.at("proxy-url").text()
	insecure := cluster.at("insecure-skip-tls-verify")
	a.insecure = insecure.isTrue()
	cluster.refuseBoth("certificate-authority")
	a.ca = cluster.part("certificate-authority")
	refuseIf(a.insecure && a.ca.given(), "%s excludes a certificate-authority: remove one of them", insecure)
	if a.isPlainHTTP() {
		a.ca = part{} // there is nothing to verify
	}
}

// readUser reads the user's token and client certificate.
func (a *access) readUser(user node) {
	for _, no := range []string{"auth-provider", "username", "password", "as", "as-uid", "as-groups", "as-user-extra"} {
		field := user.at(no)
		refuseIf(!field.isEmpty(),
			"%s is not supported: use a token, a client-certificate or exec, of an account that is podcount's own", field)
	}
	a.cert = user.part("client-certificate")
	a.key = user.part("client-key")
	refuseIf(a.cert.given() && !a.key.given(),
		"%s is missing, and goes with the client-certificate", user.at("client-key"))
	if a.cert.given() { // a key alone is passed over
		user.refuseBoth("client-certificate")
		user.refuseBoth("client-key")
	}
	a.token = part{
		field:      "tokenFile",
		file:       user.at("tokenFile").path(),
		data:       bytes.TrimSpace([]byte(user.at("token").text())),
		kubeconfig: user.file,
		age:        tokenAge,
		check:      checkToken,
	}
}

// readExec reads which program gives the user's credential, unless the user has another one: that comes first, as with
// kubectl. It is not called for a server over plain http: that is sent no credential, so no program runs.
func (a *access) readExec(user, cluster node) {
	e := user.at("exec")
	if e.value == nil || a.token.given() || a.cert.given() {
		return
	}
	command := e.at("command").text()
	if strings.ContainsRune(command, filepath.Separator) {
		command = e.at("command").path()
	}
	a.exec = &execPlugin{
		apiVersion: e.at("apiVersion").text(),
		command:    command,
		hint:       shortened([]byte(e.at("installHint").text()), 1000),
		limit:      execTime,
	}
	a.token = part{from: command}
	a.cert = part{field: "what " + command + " gave"}
	a.key = part{} // one without a certificate
	for _, arg := range e.at("args").items() {
		a.exec.args = append(a.exec.args, arg.text())
	}
	for _, v := range e.at("env").items() {
		name := v.at("name").text()
		a.exec.env = append(a.exec.env, name+"="+v.at("value").text())
	}
	if e.at("provideClusterInfo").isTrue() {
		a.exec.cluster = &execCluster{
			DisableCompression: cluster.at("disable-compression").isTrue(),
			Config:             cluster.extension("client.authentication.k8s.io/exec"),
		}
	}
	mode := e.at("interactiveMode")
	refuseIf(mode.text() == "Always",
		"%s is Always, but podcount has nobody to ask: use a credential that needs no one", mode)
}

// node is a value in a kubeconfig. It may be a secret, so it prints as its place. Names of fields are exact, which
// those of encoding/json are not.
type node struct {
	file  string
	place string // such as users[0].user; "" is the whole file
	value any    // as package yaml gives it; nil where there is none
}

func (n node) String() string { return n.file + ": " + cmp.Or(n.place, "this") }

// isEmpty reports whether there is no value, or one that says nothing.
func (n node) isEmpty() bool {
	switch value := n.value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}

// as returns the value, or nothing where there is none. A value of another type is thrown as an error.
func as[T any](n node, kind string) T {
	v, ok := n.value.(T)
	refuseIf(!ok && n.value != nil, "%s must be %s", n, kind)
	return v
}

func (n node) text() string {
	return as[string](n, "a text: quote what looks like a number, or like true")
}

func (n node) isTrue() bool {
	return as[bool](n, "true or false, without quotes")
}

// at returns the value under a name.
func (n node) at(name string) node {
	place := strings.Trim(n.place+"."+name, ".")
	return node{n.file, place, as[map[string]any](n, "a map")[name]}
}

// items returns the values of a list.
func (n node) items() (items []node) {
	for i, v := range as[[]any](n, "a list") {
		items = append(items, node{n.file, fmt.Sprintf("%s[%d]", n.place, i), v})
	}
	return items
}

// path returns a file's name, which is relative to the file that it stands in. It is made absolute, as else a program
// beside its file would be looked for in $PATH.
func (n node) path() string {
	path := n.text()
	if path == "" || filepath.IsAbs(path) {
		return path
	}
	path, _ = filepath.Abs(filepath.Join(filepath.Dir(n.file), path))
	return path
}

// extension returns what one of the extensions holds, nil if there is none of that name.
func (n node) extension(name string) any {
	var found *node
	for _, entry := range n.at("extensions").items() {
		isIt := entry.at("name").text() == name
		refuseIf(isIt && found != nil, "%s is that of another extension: remove one of them", entry.at("name"))
		if isIt {
			value := entry.at("extension")
			found = &value
		}
	}
	if found == nil {
		return nil
	}
	return found.value
}

// part reads a file's name from the field of that name, or contents from name-data.
func (n node) part(name string) part {
	data := n.at(name + "-data")
	decoded, err := base64.StdEncoding.DecodeString(data.text())
	refuseIf(err != nil, "%s is not base64", data)
	if len(decoded) > 0 {
		return part{field: name + "-data", data: decoded, kubeconfig: n.file}
	}
	return part{field: name, file: n.at(name).path(), age: certAge}
}

// refuseBoth refuses a part that is given both as a file and as data: kubectl refuses that, too.
func (n node) refuseBoth(name string) {
	file, data := n.at(name), n.at(name+"-data")
	refuseIf(file.text() != "" && data.text() != "",
		"%s is given twice, also as %s-data: remove one of them", file, name)
}

// thrown is an error on its way through the reader of kubeconfigs, up to readKubeconfigs, which catches it. It does not
// leave this file.
type thrown struct{ error }

// refuseIf throws, if bad, what is wrong.
func refuseIf(bad bool, format string, args ...any) {
	if bad {
		panic(thrown{fmt.Errorf(format, args...)})
	}
}

// catch is deferred by the function that is to return the error thrown below it.
func catch(err *error) {
	v := recover()
	if t, ok := v.(thrown); ok {
		*err = t.error
	} else if v != nil {
		panic(v)
	}
}
