package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// answers sends a request by the cluster's host and returns the answer. The code is 0 if there is no answer.
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

func TestClusterAlwaysHasAboutThirtyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		names := map[string]bool{}
		for range 20 * 60 {
			<-time.After(time.Second)
			c.live()
			pods := c.all("pods")
			if len(pods) < 24 || len(pods) > 40 {
				t.Fatalf("there are %d pods, want 24 to 40", len(pods))
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
		if len(names) < 35 {
			t.Errorf("there have been only %d pods, want 35 or more", len(names))
		}
	})
}

// A change of the label is an Event about the node. The limits are those of podcount's recorder of Events.
func TestUntouchedClusterGivesPodcountNothingToWarnOf(t *testing.T) {
	const burst, pause = 25, 5 * time.Minute
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		label, writes := 0, 0
		inTenMinutes := 0
		for second := range 2 * 60 * 60 {
			if pods := len(c.all("pods")); pods != label {
				label = pods
				writes++
			}
			allowed := burst + second/int(pause.Seconds())
			if writes > allowed {
				t.Fatalf("after %d s, the label has changed %d times, want at most %d", second, writes, allowed)
			}
			cart := slices.DeleteFunc(c.all("pods"), func(pod object) bool {
				labels, _ := fakekube.MetaOf(pod)["labels"].(object)
				return labels["app"] != "cart"
			})
			if len(cart) != cartReplicas {
				t.Fatalf("after %d s, the Count of cart counts %d pods, and wants %d", second, len(cart), cartReplicas)
			}
			if second == 10*60 {
				inTenMinutes = writes
			}
			<-time.After(time.Second)
			c.live()
		}
		testkit.WantBetween(t, "changes of the label within ten minutes", inTenMinutes, 10, burst)
	})
}

func TestPodsThatAPersonHasAddedGoOneByOne(t *testing.T) {
	c := newCluster(nil)
	for _, row := range []struct{ replicas, want int }{
		{mostWeb + 20, mostWeb + 19},
		{mostWeb, mostWeb - 1},
		{leastWeb, leastWeb + 1},
		{0, 1},
	} {
		c.controllers.web.replicas = row.replicas
		c.controllers.wander()
		testkit.WantNumber(t, fmt.Sprintf("replicas after %d", row.replicas), c.controllers.web.replicas, row.want)
	}
}

// goneAndBack is the output of one outage.
const goneAndBack = "playground: the server is gone\nplayground: the server is back\n"

func TestUSR1TakesTheServerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := newCluster(&out)
		c.host = "127.0.0.1:1"
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != http.StatusOK {
			t.Fatalf("at first, the server answers %d %s", code, body)
		}
		pods := len(c.all("pods"))
		c.disturb(syscall.SIGUSR1)
		<-time.After(outage - time.Second)
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != 0 {
			t.Errorf("during the outage, the server answers %d %s", code, body)
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if code, body := answers(c, "/api/v1/nodes/worker-1"); code != http.StatusOK {
			t.Errorf("after the outage, the server answers %d %s", code, body)
		}
		c.step()
		testkit.WantNumber(t, "pods that came during the outage", len(c.all("pods"))-pods, 1)
		testkit.WantEqual(t, "the output", out.String(), goneAndBack)
	})
}

func TestNewestSignalDecidesWhenTheServerIsBack(t *testing.T) {
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
			t.Errorf("the first outage's end has ended the second one: %d %s", code, body)
		}
		c.disturb(syscall.SIGUSR2)
		if code, body := answers(c, path); code != http.StatusOK {
			t.Errorf("after USR2, the server answers %d %s", code, body)
		}
		testkit.WantEqual(t, "the output of one long outage", out.String(), goneAndBack)
		c.disturb(syscall.SIGUSR1)
		c.end()
		<-time.After(2 * outage)
		synctest.Wait()
		testkit.WantNumber(t, "times that the server came back", strings.Count(out.String(), "is back"), 1)
	})
}

func TestUSR2ForgetsTheHistory(t *testing.T) {
	var out bytes.Buffer
	c := newCluster(&out)
	c.host = "127.0.0.1:1"
	c.disturb(syscall.SIGUSR2)
	code, body := answers(c, "/api/v1/pods?watch=true&resourceVersion=201")
	if code != http.StatusOK || !strings.Contains(body, "too old resource version") {
		t.Errorf("a watch from an old version gets %d %s, want an error for it", code, body)
	}
	c.step()
	if code, body := answers(c, "/api/v1/namespaces/default/pods/web-unseen-1"); code != http.StatusOK {
		t.Errorf("the pod that no watch has reported: %d %s", code, body)
	} else if strings.Contains(body, "deletionTimestamp") {
		t.Errorf("the pod that no watch has reported is being deleted: %s", body)
	}
	testkit.WantEqual(t, "the output", out.String(), goneAndBack)
}

// The test's own binary stands in for podcount. It does not know the flag -kubeconfig, and ends.
func TestPlaygroundEndsWithPodcount(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, row := range []struct{ program, want string }{
		{self, "playground: podcount ended: exit status 2\n"},
		{filepath.Join(dir, "not-here"), "no such file or directory\n"},
	} {
		var stdout, stderr bytes.Buffer
		code := run([]string{row.program, dir, "-v", "2"}, &stdout, &stderr)
		testkit.WantNumber(t, "the exit code of "+row.program, code, 1)
		testkit.WantText(t, stderr.String(), row.want)
		file := filepath.Join(dir, "playground.kubeconfig")
		if _, err := os.Stat(file); !os.IsNotExist(err) {
			t.Errorf("the kubeconfig was not removed: %v", err)
		}
	}
	var stderr bytes.Buffer
	testkit.WantNumber(t, "the exit code without a directory", run([]string{self}, nil, &stderr), 2)
	testkit.WantText(t, stderr.String(), "usage: playground ")
	testkit.WantNumber(t, "the exit code with -page", run([]string{self, dir, "-page=:80"}, nil, &stderr), 2)
	testkit.WantText(t, stderr.String(), "leave out -page")
}

func TestIntroductionNamesOnePageAndWhatToDoThere(t *testing.T) {
	const page = "http://127.0.0.1:8081/"
	disturb := fmt.Sprintf("  kill -USR1 %d  # takes the server away for 20 s\n", os.Getpid())
	first := `
See what podcount does: http://127.0.0.1:8081/
The buttons of the view Machine disturb its fake cluster.
In another terminal, try:
`
	const last = `docs/learn/exercises.md has exercises. Ctrl-C stops everything.
A controller of your own, as learn/README.md builds it, finds this cluster with
  export SERVER=http://127.0.0.1:8081

`
	want := first + `  export KUBECONFIG=/d/config
  kubectl get nodes -L hopegi/pod-count
` + disturb + last
	testkit.WantEqual(t, "the text with kubectl", introduction(page, "/d/config", true), want)
	want = first + `  curl -s http://127.0.0.1:8081/api/v1/nodes/control-plane
` + disturb + last
	testkit.WantEqual(t, "the text without kubectl", introduction(page, "/d/config", false), want)
}
