package kubeconfig

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// kubeconfigTable reads testdata/kubeconfigs/README.md: the files there, alone or combined, and the expected results.
func kubeconfigTable(t *testing.T) (table [][2]string) {
	single := 0
	text, err := os.ReadFile("../../../testdata/kubeconfigs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, " | ")
		isOfFiles := strings.Contains(cells[0], ".yaml") || strings.Contains(cells[0], ".json")
		if strings.HasPrefix(line, "| ") && isOfFiles {
			table = append(table, [2]string{strings.TrimPrefix(cells[0], "| "), strings.Trim(cells[1], "`")})
			if !strings.Contains(cells[0], " + ") {
				single++
			}
		}
	}
	files, _ := filepath.Glob("../../../testdata/kubeconfigs/*.*")
	testkit.WantNumber(t, "kubeconfigs in the table, with itself and kubectl's views", single+2, len(files))
	return table
}

// kubectlView is how kubectl reads a kubeconfig: the output of `kubectl config view --raw -o json`.
type kubectlView struct {
	Clusters []struct {
		Name    string
		Cluster fakekube.Object
	}
	Users []struct {
		Name string
		User fakekube.Object
	}
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	CurrentContext string `json:"current-context"`
}

// understood returns what access has read, in the terms of kubectl's view.
func understood(a *access) fakekube.Object {
	o := fakekube.Object{
		"server":                   a.server,
		"tls-server-name":          a.serverName,
		"insecure-skip-tls-verify": a.insecure,
		"proxy-url":                a.proxy,
		"token":                    string(a.token.data),
		"tokenFile":                a.token.file,
	}
	for _, p := range []part{a.ca, a.cert, a.key} {
		o[p.field] = p.file
		if len(p.data) > 0 {
			o[p.field] = base64.StdEncoding.EncodeToString(p.data)
		}
	}
	e := a.exec
	if e != nil {
		o["exec"] = fmt.Sprintf("%s %s %q %q %s", e.apiVersion, e.command, e.args, e.env, e.hint)
		if e.cluster != nil {
			text, _ := json.Marshal(e.cluster.Config)
			o["execCluster"] = fmt.Sprintf("%t %s", e.cluster.DisableCompression, text)
		}
	}
	return o
}

// understood returns the same for a cluster and a user of kubectl's view of a file in dir.
func (v kubectlView) understood(dir, cluster, user string) fakekube.Object {
	o := v.fieldsOf(cluster, user)
	resolveFiles(o, dir)
	describeExec(o, dir)
	delete(o, "extensions")
	delete(o, "disable-compression") // only the exec program gets it
	isPlainHTTP := strings.HasPrefix(fakekube.TextIn(o, "server"), "http://")
	if isPlainHTTP {
		removeCredentials(o)
	}
	return o
}

// fieldsOf returns the fields of both a cluster and a user.
func (v kubectlView) fieldsOf(cluster, user string) fakekube.Object {
	o := fakekube.Object{}
	for _, c := range v.Clusters {
		if c.Name == cluster {
			maps.Copy(o, c.Cluster)
		}
	}
	for _, u := range v.Users {
		if u.Name == user {
			maps.Copy(o, u.User)
		}
	}
	return o
}

// resolveFiles makes file names absolute. It removes those whose data is in the file itself.
func resolveFiles(o fakekube.Object, dir string) {
	for _, field := range []string{"certificate-authority", "client-certificate", "client-key", "tokenFile"} {
		file := fakekube.TextIn(o, field)
		_, hasData := o[field+"-data"]
		switch {
		case hasData:
			delete(o, field)
		case file != "" && !filepath.IsAbs(file):
			o[field], _ = filepath.Abs(filepath.Join(dir, file))
		}
	}
}

// describeExec replaces the field exec by a text, and adds execCluster if the program gets the cluster. It removes exec
// if there is another credential.
func describeExec(o fakekube.Object, dir string) {
	program, _ := o["exec"].(fakekube.Object)
	if program == nil {
		return
	}
	hasToken := o["token"] != nil || o["tokenFile"] != nil
	hasCertificate := o["client-certificate"] != nil || o["client-certificate-data"] != nil
	if hasToken || hasCertificate {
		delete(o, "exec")
		return
	}
	var args, env []string
	list, _ := program["args"].([]any)
	for _, arg := range list {
		args = append(args, arg.(string))
	}
	list, _ = program["env"].([]any)
	for _, entry := range list {
		variable := entry.(fakekube.Object)
		env = append(env, fakekube.TextIn(variable, "name")+"="+fakekube.TextIn(variable, "value"))
	}
	command := fakekube.TextIn(program, "command")
	if strings.Contains(command, "/") && !filepath.IsAbs(command) {
		command, _ = filepath.Abs(filepath.Join(dir, command))
	}
	hint := strings.Join(strings.Fields(fakekube.TextIn(program, "installHint")), " ")
	o["exec"] = fmt.Sprintf("%s %s %q %q %s", program["apiVersion"], command, args, env, hint)
	if program["provideClusterInfo"] == true {
		config, _ := json.Marshal(execExtension(o))
		o["execCluster"] = fmt.Sprintf("%t %s", o["disable-compression"] == true, config)
	}
}

// execExtension returns the cluster's extension for exec programs, or nil if there is none.
func execExtension(o fakekube.Object) any {
	extensions, _ := o["extensions"].([]any)
	for _, entry := range extensions {
		extension := entry.(fakekube.Object)
		if extension["name"] == "client.authentication.k8s.io/exec" {
			return extension["extension"]
		}
	}
	return nil
}

// removeCredentials removes what is not used for a server at http://: no credential is sent there, and nothing
// verified.
func removeCredentials(o fakekube.Object) {
	fields := []string{
		"certificate-authority", "client-certificate", "client-key", "token", "tokenFile", "exec", "execCluster",
	}
	maps.DeleteFunc(o, func(field string, _ any) bool {
		return slices.Contains(fields, strings.TrimSuffix(field, "-data"))
	})
}

// wrong returns the expected error if the view lacks the cluster or the user, or if the user has a password.
func (v kubectlView) wrong(cluster, user string) string {
	hasUser := user == ""
	for _, u := range v.Users {
		if u.Name != user {
			continue
		}
		hasUser = true
		if u.User["password"] != nil {
			return "password is not supported"
		}
	}
	hasCluster := false
	for _, c := range v.Clusters {
		hasCluster = hasCluster || c.Name == cluster
	}
	switch {
	case !hasCluster:
		return fmt.Sprintf("there is no cluster %q", cluster)
	case !hasUser:
		return fmt.Sprintf("there is no user %q", user)
	default:
		return ""
	}
}

const kubeconfigDir = "../../../testdata/kubeconfigs"

// kubectl.json records how kubectl reads the same files. With PODCOUNT_KUBECTL=compare, the test runs the kubectl of
// this machine instead (see testdata/kubeconfigs/compare). With PODCOUNT_KUBECTL=record, it also records the output.
func TestKubeconfigsAreReadAsKubectlReadsThem(t *testing.T) {
	const recorded = kubeconfigDir + "/kubectl.json"
	views := map[string]json.RawMessage{}
	if text, err := os.ReadFile(recorded); err == nil {
		json.Unmarshal(text, &views)
	}
	mode := os.Getenv("PODCOUNT_KUBECTL")
	if mode == "record" {
		clear(views)
	}
	contexts := 0
	for _, row := range kubeconfigTable(t) {
		files, want := row[0], row[1]
		t.Run(files, func(t *testing.T) {
			var paths []string
			for _, name := range strings.Split(files, " + ") {
				paths = append(paths, filepath.Join(kubeconfigDir, name))
			}
			if want != "as kubectl" {
				wantRefused(t, paths, want)
				return
			}
			if mode != "" {
				views[files] = runKubectl(t, paths)
			}
			contexts += wantSameAsKubectl(t, paths, views[files])
		})
	}
	if mode == "record" {
		text, _ := json.MarshalIndent(views, "", " ")
		os.WriteFile(recorded, append(text, '\n'), 0o644)
	}
	t.Logf("%d contexts are understood as by kubectl", contexts)
	if contexts < 30 {
		t.Errorf("%d contexts were compared, want 30", contexts)
	}
}

// readContext reads one context of some kubeconfigs, or the current one if the name is "".
func readContext(t *testing.T, paths []string, name string) (*access, error) {
	a := &access{log: slog.New(slog.DiscardHandler)}
	return a, a.readKubeconfigs(t.Context(), slices.Clone(paths), name)
}

// wantRefused fails the test unless the current context of the kubeconfigs is refused with this error.
func wantRefused(t *testing.T, paths []string, want string) {
	t.Helper()
	a, err := readContext(t, paths, "")
	if err == nil {
		_, err = a.newConfig(t.Context())
	}
	testkit.WantError(t, "the current context", err, want)
}

// runKubectl returns the view of the kubectl of this machine.
func runKubectl(t *testing.T, paths []string) json.RawMessage {
	t.Helper()
	cmd := exec.Command("kubectl", "config", "view", "--raw", "-o", "json")
	cmd.Env = append(os.Environ(), "KUBECONFIG="+strings.Join(paths, string(filepath.ListSeparator)))
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("kubectl refuses it: %v", err)
	}
	return out
}

// wantSameAsKubectl fails the test unless each context is understood as in kubectl's view, or refused for a known
// reason. It returns how many contexts were compared.
func wantSameAsKubectl(t *testing.T, paths []string, viewText []byte) (compared int) {
	t.Helper()
	var view kubectlView
	if err := json.Unmarshal(viewText, &view); err != nil {
		t.Errorf("kubectl's view: %v", err)
	}
	current, err := readContext(t, paths, "")
	suffix := ", context " + cmp.Or(view.CurrentContext, `""`)
	if err == nil && !strings.HasSuffix(current.source, suffix) {
		t.Errorf("the current context is %s, want %s", current.source, view.CurrentContext)
	}
	for _, c := range view.Contexts {
		a, err := readContext(t, paths, c.Name)
		fault := view.wrong(c.Context.Cluster, c.Context.User)
		if fault != "" && err != nil && strings.Contains(err.Error(), fault) {
			continue
		}
		if err != nil || fault != "" {
			t.Errorf("context %s: the error is %v, want %q", c.Name, err, fault)
			continue
		}
		got := understood(a)
		want := view.understood(kubeconfigDir, c.Context.Cluster, c.Context.User)
		for _, o := range []fakekube.Object{got, want} {
			maps.DeleteFunc(o, func(_ string, v any) bool { return v == "" || v == false || v == nil })
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("context %s:\n podcount %v\n kubectl  %v", c.Name, got, want)
		}
		compared++
	}
	return compared
}
