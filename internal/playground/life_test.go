package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/yaml"
)

// liveFor lets a cluster live for so long, in virtual time. web stays as it is.
func liveFor(c *cluster, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(max(pace, d/360))
		c.grown = time.Now()
		c.live()
	}
}

// runPod is what `kubectl run` does: a pod in the namespace default.
func runPod(t *testing.T, c *cluster, name string, spec object) {
	t.Helper()
	_, err := c.create("pods", object{"metadata": object{"namespace": "default", "name": name}, "spec": spec})
	if err != nil {
		t.Fatal(err)
	}
}

func podNamed(c *cluster, name string) object {
	return c.fake.Get("pods", fakekube.Key{Namespace: "default", Name: name})
}

// told are the reasons of the Events about an object in the order in which they were posted, and how often each was
// counted if more than once.
func told(c *cluster, name string) string {
	events := slices.DeleteFunc(c.all("events"), func(event object) bool {
		about, _ := event["involvedObject"].(object)
		return about["name"] != name
	})
	number := func(event object) string { _, n, _ := strings.Cut(fakekube.KeyOf(event).Name, "."); return n }
	slices.SortFunc(events, func(a, b object) int { return strings.Compare(number(a), number(b)) })
	var reasons []string
	for _, event := range events {
		reason := fakekube.TextIn(event, "reason")
		if count, _ := event["count"].(float64); count > 1 {
			reason += fmt.Sprintf("×%v", count)
		}
		reasons = append(reasons, reason)
	}
	return strings.Join(reasons, " ")
}

// look is what `kubectl get pods` shows of a pod's state: its phase, whether it is ready, how often its container was
// restarted, and what that waits for.
func look(pod object) string {
	status, _ := pod["status"].(object)
	statuses, _ := status["containerStatuses"].([]any)
	if len(statuses) == 0 {
		return phaseOf(pod)
	}
	container, _ := statuses[0].(object)
	state, _ := container["state"].(object)
	waits, _ := state["waiting"].(object)
	text := fmt.Sprint(phaseOf(pod), " ready=", container["ready"], " restarts=", container["restartCount"])
	return strings.TrimSpace(text + " " + fakekube.TextIn(waits, "reason"))
}

func wantLook(t *testing.T, c *cluster, pod, want string) {
	t.Helper()
	if got := look(podNamed(c, pod)); got != want {
		t.Errorf("%s: %s, want %s", pod, got, want)
	}
}

func wantTold(t *testing.T, c *cluster, name, want string) {
	t.Helper()
	if got := told(c, name); got != want {
		t.Errorf("events about %s: %s, want %s", name, got, want)
	}
}

func TestPodThatAUserMakesIsScheduledAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		runPod(t, c, "mine", podSpec("example/mine"))
		liveFor(c, pace)
		wantLook(t, c, "mine", "Pending ready=false restarts=0 ContainerCreating")
		wantTold(t, c, "mine", "Scheduled Pulling")
		liveFor(c, pullTime+pace)
		wantLook(t, c, "mine", "Running ready=true restarts=0")
		wantTold(t, c, "mine", "Scheduled Pulling Pulled Created Started")
		pod := podNamed(c, "mine")
		status, _ := pod["status"].(object)
		if !strings.HasPrefix(nodeOf(pod), "worker-") || !strings.HasPrefix(fakekube.TextIn(status, "podIP"), "10.244.") {
			t.Errorf("it runs on node %q with the IP %v", nodeOf(pod), status["podIP"])
		}
		version := fakekube.MetaOf(pod)["resourceVersion"]
		liveFor(c, time.Minute)
		if fakekube.MetaOf(podNamed(c, "mine"))["resourceVersion"] != version {
			t.Error("a pod that runs is written again")
		}
	})
}

func TestContainersEndAsTheirCommandsSay(t *testing.T) {
	for command, want := range map[string]string{
		"sleep 5":          "Succeeded ready=false restarts=0",
		"true":             "Succeeded ready=false restarts=0",
		"sleep 5; exit 3":  "Failed ready=false restarts=0",
		"false":            "Failed ready=false restarts=0",
		"sleep 3600":       "Running ready=true restarts=0",
		"nginx -g 'off'":   "Running ready=true restarts=0",
		"sleep infinity":   "Running ready=true restarts=0",
		"echo hello world": "Succeeded ready=false restarts=0",
	} {
		t.Run(command, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(nil)
				spec := podSpec("busybox", "sh", "-c", command)
				spec["restartPolicy"] = "Never"
				runPod(t, c, "one", spec)
				liveFor(c, 10*time.Second)
				wantLook(t, c, "one", want)
			})
		})
	}
}

func TestContainerThatCrashesIsHeldBackLongerEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		runPod(t, c, "crash", podSpec("busybox", "sh", "-c", "exit 1"))
		liveFor(c, 5*time.Second)
		wantLook(t, c, "crash", "Running ready=false restarts=1 CrashLoopBackOff")
		liveFor(c, backOff)
		wantLook(t, c, "crash", "Running ready=false restarts=2 CrashLoopBackOff")
		liveFor(c, 2*backOff)
		wantLook(t, c, "crash", "Running ready=false restarts=3 CrashLoopBackOff")
		if got := told(c, "crash"); !strings.Contains(got, "BackOff×3") {
			t.Errorf("events: %s", got)
		}
	})
}

func TestNodesThatAreOutOfServiceGetNoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		cordon := func(node string, isCordoned any) {
			c.patch("nodes", object{"metadata": object{"name": node}}, object{"spec": object{"unschedulable": isCordoned}})
		}
		cordon("worker-1", true)
		for i := range 4 {
			runPod(t, c, fmt.Sprintf("on-2-%d", i), podSpec("nginx"))
		}
		liveFor(c, 5*time.Second)
		for i := range 4 {
			if node := nodeOf(podNamed(c, fmt.Sprintf("on-2-%d", i))); node != "worker-2" {
				t.Errorf("a pod is on %s, which is cordoned or tainted", node)
			}
		}
		cordon("worker-2", true)
		runPod(t, c, "nowhere", podSpec("nginx"))
		liveFor(c, 5*time.Second)
		wantTold(t, c, "nowhere", "FailedScheduling")
		status, _ := podNamed(c, "nowhere")["status"].(object)
		want := "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 node(s) were unschedulable. no new claims " +
			"to deallocate, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
		if got := fmt.Sprint(status["conditions"]); !strings.Contains(got, want) {
			t.Errorf("its conditions: %s", got)
		}
		cordon("worker-1", nil)
		liveFor(c, 5*time.Second)
		if node := nodeOf(podNamed(c, "nowhere")); node != "worker-1" {
			t.Errorf("when worker-1 is back, the pod is on %q", node)
		}
		taints := fmt.Sprint(c.fake.Get("nodes", fakekube.Key{Name: "worker-2"})["spec"])
		if !strings.Contains(taints, unschedulable) {
			t.Errorf("a cordoned node has no taint: %s", taints)
		}
	})
}

func TestPodThatIsDeletedTerminatesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		runPod(t, c, "mine", podSpec("nginx"))
		liveFor(c, 5*time.Second)
		if err := c.remove("pods", podNamed(c, "mine")); err != nil {
			t.Fatal(err)
		}
		liveFor(c, pace)
		if pod := podNamed(c, "mine"); pod == nil || !isDying(pod) || look(pod) != "Running ready=true restarts=0" {
			t.Errorf("a moment after it was deleted, the pod is %v", pod)
		}
		liveFor(c, stopTime+pace)
		if pod := podNamed(c, "mine"); pod != nil {
			t.Errorf("it does not go: %v", pod)
		}
		wantTold(t, c, "mine", "Scheduled Pulling Pulled Created Started Killing")
	})
}

func TestPodThatIsDeletedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		old := map[string]bool{}
		for _, pod := range c.all("pods") {
			old[uidOf(pod)] = true
			if err := c.remove("pods", pod); err != nil {
				t.Fatal(err)
			}
		}
		liveFor(c, 20*time.Second)
		pods := c.all("pods")
		for _, pod := range pods {
			if old[uidOf(pod)] {
				t.Errorf("%s is still there", fakekube.KeyOf(pod))
			}
		}
		if len(pods) != len(old)-1 { // a Job that is over is not run again
			t.Errorf("%d pods are there in place of %d", len(pods), len(old))
		}
	})
}

func TestKubeletsKeepTheirNodesAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		liveFor(c, time.Hour)
		for _, name := range nodes {
			lease := c.fake.Get("leases", fakekube.Key{Namespace: "kube-node-lease", Name: name})
			spec, _ := lease["spec"].(object)
			renewed, err := time.Parse(time.RFC3339, fakekube.TextIn(spec, "renewTime"))
			if err != nil || time.Since(renewed) > leaseRenewal || spec["holderIdentity"] != name {
				t.Errorf("the Lease of %s: %v", name, spec)
			}
			status, _ := c.fake.Get("nodes", fakekube.Key{Name: name})["status"].(object)
			conditions, _ := status["conditions"].([]any)
			for _, one := range conditions {
				condition, _ := one.(object)
				beat, err := time.Parse(time.RFC3339, fakekube.TextIn(condition, "lastHeartbeatTime"))
				since, _ := time.Parse(time.RFC3339, fakekube.TextIn(condition, "lastTransitionTime"))
				if err != nil || time.Since(beat) > nodeReport || time.Since(since) < time.Hour {
					t.Errorf("a condition of %s: %v", name, condition)
				}
			}
		}
	})
}

func TestEventsAreForgottenAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		if told(c, "db-0") == "" {
			t.Fatal("there are no events about a pod that has been started")
		}
		liveFor(c, eventTTL+2*time.Minute)
		wantTold(t, c, "db-0", "")
	})
}

func TestServerDoesNotKeepItsHistoryForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		liveFor(c, 2*compaction+time.Minute)
		all := func(fakekube.Request) bool { return true }
		if len(c.fake.Changes()) > 1000 || len(c.fake.Requests(all)) > 1000 {
			t.Errorf("after an hour it has %d changes and %d requests", len(c.fake.Changes()), len(c.fake.Requests(all)))
		}
	})
}

func TestPodsOfANodeThatIsGoneAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		c.finish("nodes", c.fake.Get("nodes", fakekube.Key{Name: "worker-1"}))
		liveFor(c, 5*time.Second)
		for _, pod := range c.all("pods") {
			if nodeOf(pod) == "worker-1" {
				t.Errorf("%s is still on it", fakekube.KeyOf(pod))
			}
		}
	})
}

func TestEachNamespaceHasAServiceAccount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		c.create("namespaces", object{"metadata": object{"name": "new"}})
		liveFor(c, pace)
		for _, namespace := range append(namespaces, "new") {
			if c.fake.Get("serviceaccounts", fakekube.Key{Namespace: namespace, Name: "default"}) == nil {
				t.Errorf("%s has none", namespace)
			}
		}
	})
}

func TestBackupsRunAndTheOldOnesGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		liveFor(c, time.Hour)
		var phases []string
		for _, pod := range c.all("pods") {
			if strings.HasPrefix(fakekube.KeyOf(pod).Name, "backup-") {
				phases = append(phases, phaseOf(pod))
			}
		}
		slices.Sort(phases)
		if len(phases) != backupsKept || phases[1] != "Succeeded" {
			t.Errorf("the backups are %v", phases)
		}
	})
}

func TestCountsAreDefinedAsWherePodcountIsInstalled(t *testing.T) {
	text, err := os.ReadFile("../../deploy/count-crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	installed, err := yaml.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := json.Marshal(installed)
	got, _ := json.Marshal(countDefinition())
	if string(got) != string(want) {
		t.Errorf("the playground defines\n%s\nand deploy/count-crd.yaml\n%s", got, want)
	}
}
