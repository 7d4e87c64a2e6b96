package fakekube

import (
	"encoding/base64"
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
