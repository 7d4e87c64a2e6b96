package kubeconfig

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// load runs Load in a new directory with some files. The directory is the HOME, and o.Kubeconfig and KUBECONFIG are
// relative to it.
func load(t *testing.T, files map[string]string, o Options, env map[string]string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, files)
	in := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	o.Kubeconfig = in(o.Kubeconfig)
	o.ServiceAccount = in("account")
	o.Names = flagNames
	o.Getenv = func(name string) string {
		switch name {
		case "HOME":
			return dir
		case "KUBECONFIG":
			var list []string
			for _, file := range filepath.SplitList(env[name]) {
				list = append(list, in(file))
			}
			return strings.Join(list, string(filepath.ListSeparator))
		}
		return env[name]
	}
	return Load(t.Context(), o)
}

// loadText runs Load with one kubeconfig, which has this text.
func loadText(t *testing.T, text string) (*Config, error) {
	t.Helper()
	return load(t, map[string]string{"config": text}, Options{Kubeconfig: "config"}, nil)
}

// flagNames are names of options, as a program's flags would have them.
var flagNames = OptionNames{Kubeconfig: "-kubeconfig", Context: "-context", Master: "-master"}

func TestKubeconfigErrorsQuoteNoSecret(t *testing.T) {
	for _, user := range []string{
		"client-key-data: abc\n      s3cret", "token: s3cret: x", "token: *s3cret", `token: "abc"s3cret`, "token: %s3cret",
		"token: 's3cret", "token: |2\n  s3cret", "token: {s3cret", "token: [s3cret}", "\ttoken: s3cret",
		"token: !!int s3cret", `token: "\s3cret"`, "client-key-data: s3cret!", "token: a\n    s3cret",
		"{token: s3cret: }",
	} {
		_, err := loadText(t, fakekube.Kubeconfig("https://h", nil, user))
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got the error %v, want one without the secret", user, err)
		}
	}
}

func TestClusterIsFoundInTheOrderOfKubectl(t *testing.T) {
	_, ca := fixture.Listen(t, fakekube.New())
	config := func(server string) string { return fakekube.Kubeconfig(server, ca, "token: t-"+server[8:]) }
	files := map[string]string{
		"flag": config("https://flag"), "env": config("https://env"), ".kube/config": config("https://home"),
		"account/token": "account-token\n", "account/ca.crt": string(ca),
	}
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
	list := strings.Join([]string{"missing", "env", "flag"}, string(filepath.ListSeparator))
	podAndEnv := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBECONFIG": "env"}
	for _, c := range []struct {
		name               string
		kubeconfig, master string
		env                map[string]string
		server, token      string
	}{
		{"the flag is first", "flag", "", podAndEnv, "https://flag", "t-flag"},
		{"KUBECONFIG precedes the pod", "", "", podAndEnv, "https://env", "t-env"},
		{"the pod precedes the home", "", "", pod, "https://[fd00::1]:6443", "account-token"},
		{"the home is last", "", "", nil, "https://home", "t-home"},
		{"-master replaces the address", "flag", "https://over:1/k8s/c-1", nil, "https://over:1/k8s/c-1", "t-flag"},
		{"KUBECONFIG may be a list", "", "", map[string]string{"KUBECONFIG": list}, "https://env", "t-env"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg, err := load(t, files, Options{Kubeconfig: c.kubeconfig, Master: c.master}, c.env)
			if err != nil {
				t.Fatal(err)
			}
			cred := mustCredential(t, cfg)
			testkit.WantEqual(t, "server", cfg.Server.String(), c.server)
			testkit.WantEqual(t, "token", cred.Token, c.token)
			isVerified := cred.TLS.RootCAs != nil && !cred.TLS.InsecureSkipVerify
			testkit.WantEqual(t, "the server is verified", isVerified, true)
		})
	}
}

func TestMasterIsEnough(t *testing.T) {
	cfg, err := load(t, nil, Options{Master: "127.0.0.1:8001"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "server", cfg.Server.String(), "https://127.0.0.1:8001")
}

func TestUnusableKubeconfigIsRefusedWithAReason(t *testing.T) {
	good := fakekube.Kubeconfig("https://h", nil, "token: s3cret")
	change := func(old, text string) string { return strings.Replace(good, old, text, 1) }
	const ca = "certificate-authority-data: "
	const pair = "{client-certificate-data: aGVsbG8=, client-key-data: aGVsbG8=}"
	const alpha = "client.authentication.k8s.io/v1alpha1"
	user := func(fields string) string { return change("token: s3cret", fields) }
	for want, file := range map[string]string{
		`there is no context "other"`:                  change("current-context: fake", "current-context: other"),
		"no current-context":                           change("current-context: fake", ""),
		`there is no cluster "none"`:                   change("{cluster: fake", "{cluster: none"),
		`there is no user "none"`:                      change("user: me}", "user: none}"),
		"as-groups is not supported":                   user("as-groups: [a]"),
		"password is not supported":                    user("password: s3cret"),
		"exec: the apiVersion":                         user("exec: {command: aws, apiVersion: " + alpha + "}"),
		"the token of":                                 user("token: \"s3cret\\nmore\""),
		"apiVersion is \"v2\"":                         change("apiVersion: v1", "apiVersion: v2"),
		"exec: the command is missing":                 user("exec: {}"),
		"client-key is missing":                        user("client-certificate: c.crt"),
		"the cluster has no server":                    change("server: https://h", "server:"),
		"exec: the command is":                         user("exec: {apiVersion: client.authentication.k8s.io/v1}"),
		"must be https://HOST":                         change("https://h", "ftp://h"),
		"there is no certificate in":                   change(ca, ca+"aGVsbG8="),
		"client-certificate-data and client-key-data:": user(pair),
		"tokenFile: ":                                  user("tokenFile: empty"),
		"no such file":                                 user("tokenFile: none"),
		"config:3: ":                                   "a: 1\nb: 2\n  c: 3\n",
		"is not valid base64":                          change(ca, ca+"'%%%'"),
		"users[0].user.token must be a string":         user("token: 12345"),
		`that of another user "me"`:                    change("users:\n", "users:\n- name: me\n"),
	} {
		t.Run(want, func(t *testing.T) {
			files := map[string]string{"config": file, "empty": " \n"}
			_, err := load(t, files, Options{Kubeconfig: "config"}, nil)
			testkit.WantError(t, "Load", err, want)
			testkit.WantError(t, "Load", err, "config")
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error contains the secret: %v", err)
			}
		})
	}
}

func TestMissingClusterIsAnErrorWithAReason(t *testing.T) {
	inPod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	missing := map[string]string{"KUBECONFIG": "/nope/a" + string(filepath.ListSeparator) + "/nope/b"}
	account := map[string]string{"account/token": "t"}
	config := map[string]string{"config": fakekube.Kubeconfig("https://h", nil, "token: t")}
	for _, c := range []struct {
		name    string
		files   map[string]string
		options Options
		env     map[string]string
		want    string
	}{
		{"a context in a pod", account, Options{Context: "x"}, inPod, "-context x: there is no kubeconfig"},
		{"a context and -master", nil, Options{Context: "y", Master: "https://h"}, nil, "-context y: there is no kubeconfig"},
		{"an unsupported scheme", config, Options{Kubeconfig: "config", Master: "ftp://h"}, nil, "-master, "},
		{"a missing kubeconfig", nil, Options{Kubeconfig: "/nope/a"}, nil, "-kubeconfig /nope/a: no such file"},
		{"missing kubeconfigs", nil, Options{}, missing, "KUBECONFIG /nope/a: no such file"},
		{"a pod without a token", nil, Options{}, inPod, "account/token: no such file"},
		{"nothing", nil, Options{}, nil, "give -kubeconfig or -master"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := load(t, c.files, c.options, c.env)
			testkit.WantError(t, "Load", err, c.want)
		})
	}
}

func TestPlainHTTPGetsNoCredential(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	file := filepath.Join(dir, "config")
	account := filepath.Join(dir, "account")
	testkit.WriteFiles(t, dir, map[string]string{
		"program":       "#!/bin/sh\ntouch " + dir + "/has-run\n",
		"account/token": "s3cret",
	})
	os.Chmod(program, 0o700)
	users := map[string]string{
		"a token":              "token: s3cret",
		"a token's file":       "tokenFile: is-not-there",
		"a client certificate": "client-certificate: is-not-there\n    client-key: is-not-there",
		"a program":            "exec: {apiVersion: client.authentication.k8s.io/v1, command: " + program + "}",
	}
	writeConfig := func(t *testing.T, server, user string) {
		config := fakekube.Kubeconfig(server, nil, user)
		config = strings.Replace(config, "authority-data: ", "authority: is-not-there", 1)
		testkit.WriteFiles(t, dir, map[string]string{"config": config})
	}
	inPod := func(name string) string {
		return map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}[name]
	}
	for _, address := range []string{
		"http://127.0.0.1:1", "http://localhost:8001", "http://192.0.2.10:8080", "HTTP://example.com",
	} {
		for name, user := range users {
			t.Run(name+" for the server "+address, func(t *testing.T) {
				writeConfig(t, address, user)
				wantNoCredential(t, Options{Kubeconfig: file, ServiceAccount: account, Getenv: noEnv})
			})
			t.Run(name+" for -master "+address, func(t *testing.T) {
				writeConfig(t, "https://h", user)
				wantNoCredential(t, Options{Kubeconfig: file, Master: address, ServiceAccount: account, Getenv: noEnv})
			})
		}
		t.Run("the pod's account for -master "+address, func(t *testing.T) {
			wantNoCredential(t, Options{Master: address, ServiceAccount: account, Getenv: inPod})
		})
	}
	if _, err := os.Stat(filepath.Join(dir, "has-run")); err == nil {
		t.Error("the program has run")
	}
}

// wantNoCredential fails the test unless the Config has empty credentials, and the log reports that once.
func wantNoCredential(t *testing.T, o Options) {
	t.Helper()
	log := &testkit.Buffer{}
	o.Log = logTo(log)
	cfg, err := Load(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Close()
	for range 2 {
		cred, err := cfg.Credential(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if cred.Token != "" || cred.TLS.GetClientCertificate != nil {
			t.Errorf("the credential is %+v, want an empty one", cred)
		}
		testkit.WantEqual(t, "Tried", cred.Tried, "nothing, because the server's address begins with http://")
	}
	const line = `msg="no credential is sent, because the server's address begins with http://" server=`
	testkit.WantText(t, log.String(), line+cfg.Server.Host)
	testkit.WantNumber(t, "lines", strings.Count(log.String(), "\n"), 1)
}

// Somebody else may own the working directory, and a kubeconfig names programs to run.
func TestNoHomeIsNotTheWorkingDirectory(t *testing.T) {
	const user = "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}"
	config := fakekube.Kubeconfig("https://h", nil, user)
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"$HOME/.kube/config": config, ".kube/config": config})
	t.Chdir(dir)
	for contextName, want := range map[string]string{
		"": "no cluster found: give -kubeconfig or -master, or set KUBECONFIG " +
			"(service account: KUBERNETES_SERVICE_HOST is not set, so this process does not run in a pod; " +
			"home directory: HOME is not set, so there is no ~/.kube/config)",
		"fake": "-context fake: there is no kubeconfig that could have this context: give -kubeconfig, or set KUBECONFIG " +
			"(HOME is not set, so there is no ~/.kube/config)",
	} {
		_, err := Load(t.Context(), Options{Context: contextName, Names: flagNames, ServiceAccount: dir, Getenv: noEnv})
		wantErrorText(t, err, want)
	}
	cfg, err := Load(t.Context(), Options{Master: "https://h", Names: flagNames, ServiceAccount: dir, Getenv: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	testkit.WantEqual(t, "source with only -master", cfg.Source, "-master")
}

func TestMasterIsEnoughForAnEmptyKubeconfig(t *testing.T) {
	for _, config := range []string{"", "apiVersion: v1\nkind: Config\nclusters: []\n"} {
		const master = "http://127.0.0.1:8001"
		cfg, err := load(t, map[string]string{".kube/config": config}, Options{Master: master}, nil)
		if err != nil {
			t.Fatalf("%q: %v", config, err)
		}
		testkit.WantEqual(t, "server", cfg.Server.String(), master)
	}
}

func TestInsecureConfigurationsAreWarnedOf(t *testing.T) {
	ca := fakekube.NewAuthority("CA")
	cert, key := ca.Issue("me", func(c *x509.Certificate) { c.NotAfter = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) })
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	mode := os.FileMode(0o644)
	warnings := func(user, open, cluster string) string {
		t.Helper()
		config := fakekube.Kubeconfig("https://h", nil, user)
		testkit.WriteFiles(t, dir, map[string]string{
			"config":  strings.Replace(config, "    certificate-authority-data: ", cluster, 1),
			"token":   "t",
			"tls.crt": string(cert),
			"tls.key": string(key),
		})
		os.Chmod(filepath.Join(dir, open), mode)
		log := &testkit.Buffer{}
		if _, err := Load(t.Context(), Options{Kubeconfig: file, Getenv: noEnv, Log: logTo(log)}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"config", "token", "tls.crt", "tls.key"} {
			os.Remove(filepath.Join(dir, name))
		}
		return log.String()
	}
	const certificate = "client-certificate: tls.crt\n    client-key: tls.key"
	const canBeRead = "every user of this machine can read a file that holds a secret"
	const advice = `: run chmod go-rwx on it" file=`
	for _, open := range []struct{ user, file string }{
		{"token: t", "config"},
		{"tokenFile: token", "token"},
		{certificate, "tls.key"},
	} {
		testkit.WantText(t, warnings(open.user, open.file, ""), canBeRead+advice+dir+"/"+open.file)
	}
	testkit.WantText(t, warnings(certificate, "none", ""), "the client certificate has expired")
	testkit.WantText(t, warnings("token: t", "none", "    insecure-skip-tls-verify: true"),
		"the server's certificate is not verified (insecure-skip-tls-verify)")
	testkit.WantText(t, warnings("tokenfile: token", "none", ""),
		"no credential was found (token, tokenFile, client-certificate or exec)")
	mode = 0o640
	log := warnings("token: t", "config", "")
	if strings.Contains(log, canBeRead) {
		t.Errorf("got a warning about a file that only a group can read: %s", log)
	}
	mode = 0o644
	for _, quiet := range []struct{ user, file string }{
		{"tokenFile: token", "config"},
		{"token: t", "none"},
		{certificate, "tls.crt"},
	} {
		log := warnings(quiet.user, quiet.file, "")
		if strings.Contains(log, canBeRead) {
			t.Errorf("%+v: got a warning, want none: %s", quiet, log)
		}
	}
}

func TestMasterDropsTheServerNameOfTheKubeconfig(t *testing.T) {
	config := fakekube.Kubeconfig("https://h", nil, "token: t")
	config = strings.Replace(config, "    server:", "    tls-server-name: api\n    server:", 1)
	for master, want := range map[string]string{"": "api", "https://other": ""} {
		files := map[string]string{"config": config}
		cfg, err := load(t, files, Options{Kubeconfig: "config", Master: master}, nil)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "ServerName", mustCredential(t, cfg).TLS.ServerName, want)
	}
}

// kubeconfigOf returns a kubeconfig with one cluster and one user of these names, and with the rest.
func kubeconfigOf(cluster, user, rest string) string {
	return strings.NewReplacer("CLUSTER", cluster, "USER", user).Replace(`clusters:
- name: "CLUSTER"
  cluster: {server: "https://h", tls-server-name: api}
users:
- name: "USER"
  user: {token: secret}
`) + rest
}

func TestMissingNameIsTheEmptyName(t *testing.T) {
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
		"a context without a user has no credential if every user has a name": {
			config: kubeconfigOf("c", "u", "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\n"),
			server: "https://h", token: "", source: "config, context x",
		},
		"a context without a cluster takes the cluster without a name": {
			config: kubeconfigOf("", "u", "contexts: [{name: x, context: {user: u}}]\ncurrent-context: x\n"),
			server: "https://h", token: "secret", source: "config, context x",
		},
		"the context without a name is the default": {
			config: kubeconfigOf("c", "u", nameless),
			server: "https://h", token: "secret", source: `config, context ""`,
		},
		"it is also the default with -master": {
			config: kubeconfigOf("c", "u", nameless), master: "https://m",
			server: "https://m", token: "secret", source: `config, context ""`,
		},
		"context, cluster and user may all lack a name": {
			config: kubeconfigOf("", "", `contexts: [{name: "", context: {}}]`),
			server: "https://h", token: "secret", source: `config, context ""`,
		},
		"a current context precedes the context without a name": {
			config: kubeconfigOf("c", "u", both+"current-context: x\n"),
			server: "https://h", token: "secret", source: "config, context x",
		},
		"-context precedes the context without a name": {
			config: kubeconfigOf("c", "u", both), context: "x",
			server: "https://h", token: "secret", source: "config, context x",
		},
		"-master needs no context, and takes the user without a name": {
			config: kubeconfigOf("", "", ""), master: "https://m",
			server: "https://m", token: "secret", source: "config",
		},
	} {
		t.Run(name, func(t *testing.T) {
			files := map[string]string{"config": c.config}
			cfg, err := load(t, files, Options{Kubeconfig: "config", Context: c.context, Master: c.master}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer cfg.Close()
			wantToken(t, cfg, c.token)
			testkit.WantEqual(t, "server", cfg.Server.String(), c.server)
			source := cfg.Source[strings.LastIndex(cfg.Source, "/")+1:]
			testkit.WantEqual(t, "source", source, c.source)
		})
	}
}

func TestPartGivenTwiceIsRefused(t *testing.T) {
	const place = "config: users[0].user."
	for fields, want := range map[string]string{
		"client-certificate: f, client-certificate-data: YQ==, client-key-data: YQ==": place +
			"client-certificate is given twice, also as client-certificate-data: remove one of them",
		"client-certificate-data: YQ==, client-key: f, client-key-data: YQ==": place +
			"client-key is given twice, also as client-key-data: remove one of them",
		"token: t, tokenFile: f": "", // The file renews the token.
	} {
		config := fakekube.Kubeconfig("https://h", nil, "{"+fields+"}")
		_, err := load(t, map[string]string{"config": config, "f": "x"}, Options{Kubeconfig: "config"}, nil)
		testkit.WantError(t, fields, err, want)
	}

	ca := fakekube.NewAuthority("the CA").PEM()
	config := fakekube.Kubeconfig("https://h", ca, "{}")
	config = strings.Replace(config, "    server:", "    certificate-authority: ca.crt\n    server:", 1)
	_, err := load(t, map[string]string{"config": config, "ca.crt": string(ca)}, Options{Kubeconfig: "config"}, nil)
	testkit.WantError(t, "a CA given twice", err, "config: clusters[0].cluster.certificate-authority is given twice, "+
		"also as certificate-authority-data: remove one of them")
}

func TestDuplicateExecExtensionIsRefused(t *testing.T) {
	const program = "apiVersion: client.authentication.k8s.io/v1, command: /bin/true, provideClusterInfo: true"
	config := fakekube.Kubeconfig("https://h", nil, "exec: {"+program+"}")
	const extension = "{name: client.authentication.k8s.io/exec, extension: a}"
	config = strings.Replace(config, "    server:", "    extensions: ["+extension+", "+extension+"]\n    server:", 1)
	_, err := loadText(t, config)
	testkit.WantError(t, "Load", err,
		"clusters[0].cluster.extensions[1].name is that of another extension: remove one of them")
}

func TestServerAddressIsCheckedBeforeFilesAreRead(t *testing.T) {
	for want, config := range map[string]string{
		"must be https://HOST":                  fakekube.Kubeconfig("https://h?x=y", nil, "token: t"),
		"the server's address must be https://": fakekube.Kubeconfig("https://h:port", nil, "token: t"),
	} {
		config = strings.Replace(config, "authority-data: ", "authority: is-not-there", 1)
		_, err := loadText(t, config)
		testkit.WantError(t, "Load", err, want)
	}
}

func TestUnsupportedFieldMayBeEmpty(t *testing.T) {
	for user, isGood := range map[string]bool{
		"token: t\n    password:":           true,
		`{token: t, password: ""}`:          true,
		"{token: t, as-groups: [a]}":        false,
		`{token: t, password: "[]"}`:        false,
		"{token: t, as: false}":             false,
		"{token: t, auth-provider: {a: b}}": false,
	} {
		config := fakekube.Kubeconfig("https://h", nil, user)
		cfg, err := loadText(t, config)
		if (err == nil) != isGood {
			t.Errorf("%s: got the error %v, want one: %v", user, err, !isGood)
		}
		if err == nil {
			cfg.Close()
		}
	}
}

func TestTokenAndCertificatePrecedeAProgram(t *testing.T) {
	cert, key := fakekube.NewAuthority("CA").Issue("me", nil)
	for _, user := range []string{"token: t", "tokenFile: token", "client-certificate: tls.crt\n    client-key: tls.key"} {
		files := map[string]string{
			"config":  fakekube.Kubeconfig("https://h", nil, user+"\n    exec: {command: is-not-there}"),
			"token":   "t",
			"tls.crt": string(cert),
			"tls.key": string(key),
		}
		_, err := load(t, files, Options{Kubeconfig: "config"}, nil)
		testkit.WantError(t, user, err, "")
	}
}
