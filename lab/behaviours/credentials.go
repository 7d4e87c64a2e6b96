package behaviours

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// awaitLog waits until podcount has logged all these texts.
func (w *world) awaitLog(log *testkit.Buffer, texts ...string) {
	w.Helper()
	for _, text := range texts {
		w.await("a log line with "+text, func() bool { return strings.Contains(log.String(), text) })
	}
}

func wrongToken(w *world) {
	node := w.addNode("token", "token")
	token := w.addPodcountAccount("token")
	file := filepath.Join(w.TempDir(), "token")
	writeFile(w, file, "wrong")
	log := w.start(w.as("tokenFile: "+file), "token")
	w.awaitLog(log, "401 Unauthorized", "the token of "+file)
	writeFile(w, file, token)
	w.awaitLabel(node, "0")
}

func missingRight(w *world) {
	node := w.addNode("rights", "rights")
	token := w.addAccount("rights")
	log := w.start(w.as("token: "+token), "rights", "-pod-events", "on")
	w.awaitLog(log, `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"]`)
	w.grant("rights")
	w.awaitLabel(node, "0")
	w.addPod("a", "rights")
	w.awaitLabel(node, "1")
	w.await("the event", func() bool {
		return w.timesReported("default", path.Base(node), "PodCountChanged", "pod count changed from 0 to 1") == 1
	})
}

func execToken(w *world) {
	node := w.addNode("exec", "exec")
	dir := w.TempDir()
	answer := execplugin.Credential("v1", object{"token": w.addPodcountAccount("exec")})
	writeFile(w, filepath.Join(dir, "answer"), answer)
	w.start(w.as(execplugin.User(w, dir, "v1", ", interactiveMode: Never")), "exec")
	w.awaitLabel(node, "0")
}

func masterFlag(w *world) {
	node := w.addNode("master", "master")
	server := w.config.Server.String()
	elsewhere := w.asChanged("token: "+w.addPodcountAccount("master"), func(config string) string {
		return strings.Replace(config, server, "https://192.0.2.1", 1)
	})
	w.start(append(elsewhere, "-master", server), "master")
	w.awaitLabel(node, "0")
}

func wrongCertificate(w *world) {
	if len(w.ca) == 0 {
		w.cannotShow("the kubeconfig has no certificate-authority of its own")
	}
	otherCA := fakekube.NewAuthority("another CA").PEM()
	inYAML := base64.StdEncoding.EncodeToString
	for _, row := range []struct{ name, from, to, want string }{
		{"another CA", inYAML(w.ca), inYAML(otherCA), "give the CA of this cluster as certificate-authority"},
		{
			"another name",
			"    server:", "    tls-server-name: podcount.test\n    server:",
			"give one of these names as tls-server-name",
		},
	} {
		w.Run(row.name, func(t *testing.T) {
			sub := w.under(t)
			access := sub.asChanged("token: none", func(config string) string {
				return strings.Replace(config, row.from, row.to, 1)
			})
			sub.awaitLog(sub.start(access, "none"), row.want)
		})
	}
}

func revokedToken(w *world) {
	w.runAlongside("rotate")
	old := w.addPodcountAccount("old")
	file := filepath.Join(w.TempDir(), "token")
	writeFile(w, file, old)
	node := w.addNode("rotate", "rotate")
	log := w.start(w.as("tokenFile: "+file), "rotate", "-v", "6", "-controllers", "pod-count")
	w.awaitLabel(node, "0")

	writeFile(w, file, w.addPodcountAccount("new"))
	w.delete("/api/v1/namespaces/" + w.namespace + "/serviceaccounts/old")
	w.awaitRefusal(old)
	refused := time.Now()
	w.addPod("rotate-a", "rotate")
	w.awaitLabel(node, "1")
	// Without a 401, podcount would read the file only after a minute.
	testkit.WantBetween(w, "the time until the next write", time.Since(refused), 0, 20*time.Second)
	w.awaitLog(log, "from=0 to=1") // The log is written later, but in order, so it has all that led to this write.
	testkit.WantText(w, log.String(), `status="401 Unauthorized"`)
	w.wantLists(log, 2)
	w.await("two watches, except those that the server ended", func() bool { return watchesNotEnded(log.String()) == 2 })
}

// watchesNotEnded counts the watches in a log. A busy server may end a watch cleanly at any time. Such a watch does not
// count.
func watchesNotEnded(log string) int {
	endedByServer := regexp.MustCompile(`msg="watch ended".* err=EOF`).FindAllString(log, -1)
	return strings.Count(log, "msg=watching") - len(endedByServer)
}

// awaitRefusal waits until the server refuses a token. It may accept a deleted account's token for another 10 s.
func (w *world) awaitRefusal(token string) {
	w.Helper()
	credential := func(ctx context.Context, _ *kubeconfig.Credential) (*kubeconfig.Credential, error) {
		ours, err := w.config.Credential(ctx, nil)
		if err != nil {
			return nil, err
		}
		tlsConfig := &tls.Config{
			RootCAs:            ours.TLS.RootCAs,
			ServerName:         ours.TLS.ServerName,
			InsecureSkipVerify: ours.TLS.InsecureSkipVerify,
		}
		return &kubeconfig.Credential{Token: token, TLS: tlsConfig}, nil
	}
	client := newClient(&kubeconfig.Config{Server: w.config.Server, Credential: credential})
	defer client.Close()
	list := kube.Request{Method: "GET", Path: "/api/v1/nodes", Query: url.Values{"limit": {"1"}}}
	for {
		err := client.Send(w.Context(), list, nil)
		if kube.StatusOf(err).Code == 401 {
			return
		}
		w.pause(500 * time.Millisecond)
	}
}
