package kubeconfig

import (
	"path/filepath"
	"strings"
	"testing"

	"podcount/internal/api/yaml"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// FuzzLoad reads any text as a kubeconfig. The result is a Config, or an error that contains no secret.
func FuzzLoad(f *testing.F) {
	ca := string(fakekube.NewAuthority("CA").PEM())
	for _, user := range []string{
		"token: s3cret-t0ken",
		"{token: s3cret-t0ken, tokenFile: none}",
		"token: 's3cret t0ken'",
		"password: s3cret-t0ken",
		"{client-certificate-data: YQ==, client-key-data: czNjcmV0}",
		"exec: {apiVersion: client.authentication.k8s.io/v1, command: ./none, env: [{name: A, value: s3cret-t0ken}]}",
	} {
		f.Add(fakekube.Kubeconfig("https://h", nil, user))
		f.Add(fakekube.Kubeconfig("http://h:1/path", []byte(ca), user))
	}
	f.Add("")
	f.Add("contexts: [{name: \"\", context: {}}]\nclusters: [{name: \"\", cluster: {server: h}}]")
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		testkit.WriteFiles(t, dir, map[string]string{"config": text})
		cfg, err := Load(t.Context(), Options{Kubeconfig: filepath.Join(dir, "config"), Getenv: noEnv})
		if err == nil {
			defer cfg.Close()
			scheme := cfg.Server.Scheme
			if cfg.Server.Host == "" || scheme != "https" && scheme != "http" {
				t.Errorf("the server is %s, want an https or http URL with a host", cfg.Server)
			}
			return
		}
		for _, secret := range secretsIn(text) {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("the secret %q is in the error: %v", secret, err)
			}
		}
	})
}

// secretsIn returns the users' secrets in a kubeconfig that occur only once in it, and are long enough not to be part
// of an error by accident. It finds none in a text that cannot be parsed; other tests check the errors about such
// texts.
func secretsIn(text string) (secrets []string) {
	tree, err := yaml.Parse(text)
	if err != nil {
		return nil
	}
	root, _ := tree.(map[string]any)
	users, _ := root["users"].([]any)
	for _, entry := range users {
		named, _ := entry.(map[string]any)
		user, _ := named["user"].(map[string]any)
		for _, field := range []string{"token", "password", "client-key-data"} {
			secret, _ := user[field].(string)
			if len(secret) >= 8 && strings.Count(text, secret) == 1 {
				secrets = append(secrets, secret)
			}
		}
	}
	return secrets
}
