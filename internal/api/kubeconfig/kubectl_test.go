package kubeconfig

import (
	"cmp"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// kubeconfigTable reads testdata/kubeconfigs/README.md: the files there, alone or combined, and the expected results.
func kubeconfigTable(t *testing.T) (table [][2]string) {
	single := 0
	for line := range strings.Lines(testkit.ReadFile(t, "../../../testdata/kubeconfigs/README.md")) {
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

// understood returns what access has read, without the places that it was read from.
func understood(a *access) fakekube.Object {
	o := fakekube.Object{
		"server":                   a.server,
		"tls-server-name":          a.serverName,
		"insecure-skip-tls-verify": a.insecure,
		"proxy-url":                a.proxy,
		"token":                    string(a.token.data),
		"tokenFile":                a.token.file,
	}
	for _, p := range []*part{&a.ca, &a.cert, &a.key} {
		o[p.field] = p.file + string(p.data)
	}
	if e := a.exec; e != nil {
		o["exec"] = fmt.Sprintf("%s %s %q %q %s", e.apiVersion, e.command, e.args, e.env, e.hint)
		cluster, _ := json.Marshal(e.cluster)
		o["the cluster for exec"] = string(cluster)
	}
	return o
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

// wantSameAsKubectl fails the test unless each context is understood as in kubectl's view, or refused for the same
// reason. That view is a kubeconfig, too, without anything that is hard to read. It returns how many contexts were
// compared.
func wantSameAsKubectl(t *testing.T, paths []string, viewText []byte) (compared int) {
	t.Helper()
	var escaped []byte // because a kubeconfig must escape more characters than JSON
	for _, c := range string(viewText) {
		if c < 0x7f {
			escaped = append(escaped, byte(c))
		} else {
			escaped = fmt.Appendf(escaped, `\U%08x`, c)
		}
	}
	view := &kubeconfigs{entries: map[entry]node{}}
	if err := view.parse(kubeconfigDir+"/view", escaped); err != nil {
		t.Fatalf("kubectl's view: %v", err)
	}
	current, err := readContext(t, paths, "")
	suffix := ", context " + cmp.Or(view.current, `""`)
	if err == nil && !strings.HasSuffix(current.source, suffix) {
		t.Errorf("the current context is %s, want %s", current.source, view.current)
	}
	for e := range view.entries {
		if e.kind != "context" {
			continue
		}
		name := e.name
		got, err := readContext(t, paths, name)
		want := &access{}
		view.faults.first = nil
		wantErr := want.readContext(view, name)
		if faultIn(err) != faultIn(wantErr) {
			t.Errorf("context %s: the error is %v, want %v", name, err, wantErr)
		}
		if err != nil || wantErr != nil {
			continue
		}
		testkit.WantEqual(t, "context "+name, understood(got), understood(want))
		compared++
	}
	return compared
}

// faultIn returns an error without the place of the fault, which kubectl's view has elsewhere.
func faultIn(err error) string {
	fault := regexp.MustCompile(`there is no \w+ "[^"]*"|[\w-]+ is not supported`)
	return fault.FindString(fmt.Sprint(err))
}
