package main

import (
	"strings"
	"testing"
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
		config := kubeconfigFor("https://h", nil, "{"+fields+"}")
		_, err := load(t, map[string]string{"config": config, "f": "x"}, "config", "", "", nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasSuffix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}

	ca := newAuthority(t, "the CA").pem()
	config := kubeconfigFor("https://h", ca, "{}")
	config = strings.Replace(config, "    server:", "    certificate-authority: ca.crt\n    server:", 1)
	_, err := load(t, map[string]string{"config": config, "ca.crt": string(ca)}, "config", "", "", nil)
	want := "config: clusters[0].cluster.certificate-authority is given twice, " +
		"also as certificate-authority-data: remove one of them"
	if err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}
