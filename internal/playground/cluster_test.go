package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
)

// answers reports whether the server answers clients that call it by the cluster's host, and what.
func answers(c *cluster, path string) (code int, body string) {
	defer func() {
		if recover() == http.ErrAbortHandler {
			code = 0
		}
	}()
	request := httptest.NewRequest(http.MethodGet, "http://"+c.host+path, nil)
	request.Header.Set("Authorization", "Bearer "+token)
	w := httptest.NewRecorder()
	c.fake.ServeHTTP(w, request)
	return w.Code, w.Body.String()
}

func TestClusterHasAboutThirtyPodsHoweverLongItLives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		names := map[string]bool{}
		for range 20 * 60 {
			<-time.After(time.Second)
			c.live()
			pods := c.all("pods")
			if len(pods) < 24 || len(pods) > 40 {
				t.Fatalf("there are %d pods", len(pods))
			}
			hasAddress := map[any]bool{}
			for _, pod := range pods {
				names[fakekube.KeyOf(pod).Name] = true
				spec, _ := pod["spec"].(object)
				status, _ := pod["status"].(object)
				ip := status["podIP"]
				if hasAddress[ip] && ip != nil && spec["hostNetwork"] != true {
					t.Fatalf("two pods have the address %v", ip)
				}
				hasAddress[ip] = true
			}
		}
		if len(names) < 100 {
			t.Errorf("only %d pods were there in all", len(names))
		}
	})
}

func TestServerIsGoneForTwentySecondsAfterUSR1(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newCluster(&out)
		c.host = "127.0.0.1:1"
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != http.StatusOK {
			t.Fatalf("%d %s", code, body)
		}
		c.disturb(syscall.SIGUSR1)
		<-time.After(outage - time.Second)
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != 0 {
			t.Errorf("the server answers %d %s", code, body)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != http.StatusOK {
			t.Errorf("when it is back, the server answers %d %s", code, body)
		}
		want := "playground: the server is gone\nplayground: the server is back\n"
		if out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	})
}

func TestLastSignalSaysWhenTheServerComesBack(t *testing.T) {
	const path = "/api/v1/nodes/worker-1"
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newCluster(&out)
		c.host = "127.0.0.1:1"
		c.disturb(syscall.SIGUSR1)
		<-time.After(outage / 2)
		c.disturb(syscall.SIGUSR1)
		<-time.After(outage/2 + time.Second)
		synctest.Wait()
		if code, body := answers(c, path); code != 0 {
			t.Errorf("the first signal's end ends the second's outage: %d %s", code, body)
		}
		c.disturb(syscall.SIGUSR2)
		if code, body := answers(c, path); code != http.StatusOK {
			t.Errorf("after USR2, the server answers %d %s", code, body)
		}
		c.disturb(syscall.SIGUSR1)
		c.end()
		<-time.After(2 * outage)
		synctest.Wait()
		if got := strings.Count(out.String(), "is back"); got != 1 {
			t.Errorf("the server came back %d times:\n%s", got, out.String())
		}
	})
}

func TestServerHasForgottenItsHistoryAfterUSR2(t *testing.T) {
	var out bytes.Buffer
	c := newCluster(&out)
	c.host = "127.0.0.1:1"
	c.disturb(syscall.SIGUSR2)
	code, body := answers(c, "/api/v1/pods?watch=true&resourceVersion=201")
	if code != http.StatusOK || !strings.Contains(body, "too old resource version") {
		t.Errorf("a watch from before: %d %s", code, body)
	}
	if code, body := answers(c, "/api/v1/namespaces/default/pods/web-unseen-1"); code != http.StatusOK {
		t.Errorf("the pod that no watch has told of: %d %s", code, body)
	}
	want := "playground: the server is gone\nplayground: the server is back\n"
	if out.String() != want {
		t.Errorf("it says %q, want %q", out.String(), want)
	}
}

// The test's own binary stands in for podcount. It does not know the flag -kubeconfig, and ends.
func TestPlaygroundEndsWithPodcountAndLeavesNoKubeconfig(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for program, want := range map[string]string{
		self:                           "playground: podcount ended: exit status 2\n",
		filepath.Join(dir, "not-here"): "no such file or directory\n",
	} {
		var stdout, stderr bytes.Buffer
		code := run([]string{program, dir, "-v", "2"}, &stdout, &stderr)
		if code != 1 || !strings.HasSuffix(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", program, code, stderr.String())
		}
		file := filepath.Join(dir, "playground.kubeconfig")
		said := "podcount runs against it: " + program + " -kubeconfig " + file + " -v 2\n"
		if !strings.Contains(stdout.String(), said) {
			t.Errorf("no %q in:\n%s", said, stdout.String())
		}
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the kubeconfig is left: %v", err)
		}
	}
	var stderr bytes.Buffer
	if code := run([]string{self}, nil, &stderr); code != 2 || !strings.HasPrefix(stderr.String(), "usage: playground ") {
		t.Errorf("without a directory: exit code %d, %s", code, stderr.String())
	}
}

func TestPlaygroundSaysWhatToTry(t *testing.T) {
	const url = "https://127.0.0.1:6443"
	want := `In another terminal, try:
  export KUBECONFIG=/d/config
  kubectl get nodes -L hopegi/pod-count
  kubectl get pods -A -w
  kubectl describe node control-plane
  kubectl get count web -o yaml
  kubectl run mine --image=nginx
  kubectl label node worker-1 node-role.kubernetes.io/control-plane=
`
	if got := whatToTry(url, "/d/config", true); got != want {
		t.Errorf("with kubectl:\n%s", got)
	}
	want = `In another terminal, try:
  curl -sk -H 'Authorization: Bearer playground' https://127.0.0.1:6443/api/v1/nodes/control-plane
`
	if got := whatToTry(url, "/d/config", false); got != want {
		t.Errorf("without kubectl:\n%s", got)
	}
}
