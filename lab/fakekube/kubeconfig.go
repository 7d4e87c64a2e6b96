package fakekube

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// Kubeconfig returns a kubeconfig for a server's URL and its CA in PEM, with YAML for the credentials: userYAML holds
// the lines below "user:", such as "token: secret"; all but the first must be indented by 4 spaces. The current context
// is "fake".
func Kubeconfig(server string, ca []byte, userYAML string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: fake
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: me
  user:
    %s
contexts:
- name: fake
  context: {cluster: fake, user: me}
current-context: fake
`, server, base64.StdEncoding.EncodeToString(ca), userYAML)
}

// KubeconfigJSON returns a kubeconfig as Kubeconfig does, in JSON, which is YAML, too. Programs in all languages can
// read it. user holds the credentials, such as {"token": "secret"}.
func KubeconfigJSON(server string, ca []byte, user Object) []byte {
	text, err := json.MarshalIndent(Object{
		"apiVersion": "v1",
		"kind":       "Config",
		"clusters": []Object{{"name": "fake", "cluster": Object{
			"server":                     server,
			"certificate-authority-data": ca, // becomes base64
		}}},
		"users":           []Object{{"name": "me", "user": user}},
		"contexts":        []Object{{"name": "fake", "context": Object{"cluster": "fake", "user": "me"}}},
		"current-context": "fake",
	}, "", "  ")
	if err != nil {
		panic(err) // user is no JSON
	}
	return append(text, '\n')
}
