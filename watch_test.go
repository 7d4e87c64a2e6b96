package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// kubeconfigOf is a kubeconfig of one cluster and one user, of these names, and of what else is given.
func kubeconfigOf(cluster, user, rest string) string {
	return strings.NewReplacer("CLUSTER", cluster, "USER", user).Replace(`clusters:
- name: "CLUSTER"
  cluster: {server: "https://h", tls-server-name: api}
users:
- name: "USER"
  user: {token: secret}
`) + rest
}

func TestWhatHasNoNameIsFoundByNoName(t *testing.T) {
	const nameless = `contexts: [{name: "", context: {cluster: c, user: u}}]`
	const both = `contexts:
- {name: "", context: {cluster: gone}}
- {name: x, context: {cluster: c, user: u}}
`
	for name, c := range map[string]struct {
		config, context, master string
		server, token, source   string
	}{
		"a context without a user takes the user without a name": {
			config: kubeconfigOf("c", "", "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"),
			server: "https://h", token: "secret", source: "config, context x",
		},
		"and none where each has a name": {
			config: kubeconfigOf("c", "u", "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"),
			server: "https://h", token: "", source: "config, context x",
		},
		"a context without a cluster takes the cluster without a name": {
			config: kubeconfigOf("", "u", "contexts: [{name: x, context: {user: u}}]\ncurrent-context: x\n"),
			server: "https://h", token: "secret", source: "config, context x",
		},
		"without a current context that without a name counts": {
			config: kubeconfigOf("c", "u", nameless),
			server: "https://h", token: "secret", source: `config, context ""`,
		},
		"for -master, too": {
			config: kubeconfigOf("c", "u", nameless), master: "https://m",
			server: "https://m", token: "secret", source: `config, context ""`,
		},
		"nothing has a name": {
			config: kubeconfigOf("", "", `contexts: [{name: "", context: {}}]`),
			server: "https://h", token: "secret", source: `config, context ""`,
		},
		"a current context comes first": {
			config: kubeconfigOf("c", "u", both+"current-context: x\n"),
			server: "https://h", token: "secret", source: "config, context x",
		},
		"and so does -context": {
			config: kubeconfigOf("c", "u", both), context: "x",
			server: "https://h", token: "secret", source: "config, context x",
		},
		"-master needs no context, and takes the user without a name": {
			config: kubeconfigOf("", "", ""), master: "https://m",
			server: "https://m", token: "secret", source: "config",
		},
	} {
		cfg, err := load(t, map[string]string{"config": c.config}, "config", c.context, c.master, nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		cred, err := cfg.Credential(t.Context(), nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		source := cfg.Source[strings.LastIndex(cfg.Source, "/")+1:]
		if cfg.Server.String() != c.server || cred.token != c.token || source != c.source {
			t.Errorf("%s: %s, token %q, of %s", name, cfg.Server, cred.token, cfg.Source)
		}
		cfg.Close()
	}
}

func TestPartThatIsGivenTwiceIsRefusedAsByKubectl(t *testing.T) {
	const place = "config: users[0].user."
	for fields, want := range map[string]string{
		"client-certificate: f, client-certificate-data: YQ==, client-key-data: YQ==": place +
			"client-certificate is given twice, also as client-certificate-data: remove one of them",
		"client-certificate-data: YQ==, client-key: f, client-key-data: YQ==": place +
			"client-key is given twice, also as client-key-data: remove one of them",
		// A key without a certificate is unused, and a token's file is what the token is renewed from.
		"client-key: f, client-key-data: YQ==": "",
		"token: t, tokenFile: f":               "",
	} {
		config := fakekube.Kubeconfig("https://h", nil, "{"+fields+"}")
		_, err := load(t, map[string]string{"config": config, "f": "x"}, "config", "", "", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}

	ca := fakekube.NewAuthority(t, "the CA").PEM()
	config := fakekube.Kubeconfig("https://h", ca, "{}")
	config = strings.Replace(config, "    server:", "    certificate-authority: ca.crt\n    server:", 1)
	_, err := load(t, map[string]string{"config": config, "ca.crt": string(ca)}, "config", "", "", nil)
	want := "config: clusters[0].cluster.certificate-authority is given twice, " +
		"also as certificate-authority-data: remove one of them"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// toldCluster returns the cluster that the program of execConfig was told of in each of its runs, nil where it was not.
func toldCluster(t *testing.T, dir, version string) (clusters []fakekube.Object) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "runs"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var info struct {
			APIVersion, Kind string
			Spec             struct {
				Cluster     fakekube.Object
				Interactive *bool
			}
		}
		err := json.Unmarshal([]byte(line[strings.Index(line, "{"):]), &info)
		isRight := info.Kind == "ExecCredential" && info.APIVersion == "client.authentication.k8s.io/"+version
		if err != nil || !isRight || info.Spec.Interactive == nil || *info.Spec.Interactive {
			t.Errorf("%v: it was told %s", err, line)
		}
		clusters = append(clusters, info.Spec.Cluster)
	}
	return clusters
}

func TestExecProgramIsToldTheClusterIfItAsks(t *testing.T) {
	const cluster = `proxy-url: "http://proxy:3128", tls-server-name: api, disable-compression: true, extensions: [
    {name: else, extension: 1}, {name: client.authentication.k8s.io/exec, extension: {audience: us, list: [1, 2.5]}}]`
	ca := fakekube.NewAuthority(t, "the CA").PEM()
	data, _ := json.Marshal(ca) // as base64
	for name, c := range map[string]struct {
		cluster, ask, version, master, want string
	}{
		"all there is": {
			cluster, ", provideClusterInfo: true", "v1", "",
			`{"server":"https://h:6443/k8s","tls-server-name":"api","certificate-authority-data":CA,` +
				`"proxy-url":"http://proxy:3128","disable-compression":true,"config":{"audience":"us","list":[1,2.5]}}`,
		},
		"the address of -master without the name of the old one": {
			cluster, ", provideClusterInfo: true", "v1beta1", "https://m",
			`{"server":"https://m","certificate-authority-data":CA,"proxy-url":"http://proxy:3128",` +
				`"disable-compression":true,"config":{"audience":"us","list":[1,2.5]}}`,
		},
		"nothing more": {
			"", ", provideClusterInfo: true", "v1", "",
			`{"server":"https://h:6443/k8s","certificate-authority-data":CA,"config":null}`,
		},
		"only if it asks": {cluster, ", provideClusterInfo: false", "v1", "", "null"},
		"by default":      {cluster, "", "v1beta1", "", "null"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			config := fakekube.Kubeconfig("https://h:6443/k8s", nil, fakekube.ExecUser(t, dir, c.version, c.ask))
			config = strings.Replace(config, "    server: https://h:6443/k8s\n    certificate-authority-data: \n",
				"    {server: https://h:6443/k8s, certificate-authority: ca.crt, "+c.cluster+"}\n", 1)
			writeFiles(t, dir, map[string]string{"answer": fakekube.ExecCredential(c.version, fakekube.Object{"token": "t"})})
			cfg, err := load(t, map[string]string{"config": config, "ca.crt": string(ca)}, "config", "", c.master, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cfg.Close()
			if cred, err := cfg.Credential(t.Context(), nil); err != nil || cred.token != "t" {
				t.Fatal(cred, err)
			}
			told := toldCluster(t, dir, c.version)
			wantNumber(t, "runs", len(told), 1)
			var want fakekube.Object
			if err := json.Unmarshal([]byte(strings.Replace(c.want, "CA", string(data), 1)), &want); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(told[0], want) {
				t.Errorf("it was told\n%v, want\n%v", told[0], want)
			}
		})
	}
}

func TestExecProgramIsToldTheNewestCA(t *testing.T) {
	dir := t.TempDir()
	first, second := fakekube.NewAuthority(t, "the first CA").PEM(), fakekube.NewAuthority(t, "the second CA").PEM()
	synctest.Test(t, func(t *testing.T) {
		config := fakekube.Kubeconfig("https://h", nil, fakekube.ExecUser(t, dir, "v1", ", provideClusterInfo: true"))
		config = strings.Replace(config, "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		expires := time.Now().Add(time.Minute).UTC().Format(time.RFC3339)
		writeFiles(t, dir, map[string]string{
			"config": config,
			"ca.crt": string(first),
			"answer": fakekube.ExecCredential("v1", fakekube.Object{"token": "t", "expirationTimestamp": expires}),
		})
		cfg, err := load(t, nil, filepath.Join(dir, "config"), "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		for _, ca := range [][]byte{first, second} {
			writeFiles(t, dir, map[string]string{"ca.crt": string(ca)})
			if _, err := cfg.Credential(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			pass(2 * time.Minute)
			data, _ := json.Marshal(ca)
			told := toldCluster(t, dir, "v1")
			got, _ := json.Marshal(told[len(told)-1]["certificate-authority-data"])
			if string(got) != string(data) {
				t.Errorf("it was told %s, want %s", got, data)
			}
		}
		wantNumber(t, "runs", len(toldCluster(t, dir, "v1")), 2)
	})
}

func TestExtensionForTheExecProgramIsThereOnce(t *testing.T) {
	const program = "apiVersion: client.authentication.k8s.io/v1, command: /bin/true, provideClusterInfo: true"
	config := fakekube.Kubeconfig("https://h", nil, "exec: {"+program+"}")
	const extension = "{name: client.authentication.k8s.io/exec, extension: a}"
	config = strings.Replace(config, "    server:", "    extensions: ["+extension+", "+extension+"]\n    server:", 1)
	_, err := load(t, map[string]string{"config": config}, "config", "", "", nil)
	want := "clusters[0].cluster.extensions[1].name is that of another extension: remove one of them"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
