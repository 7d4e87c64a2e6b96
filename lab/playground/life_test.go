package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// liveFor lets a cluster live for a while, in virtual time. The number of web's pods does not change.
func liveFor(c *cluster, d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		<-time.After(max(pace, d/360))
		c.grown = time.Now()
		c.live()
	}
}

// runPod creates a pod in the namespace default, as `kubectl run` does.
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

// eventsOn returns the reasons of the Events about an object, in the order in which they were posted.
func eventsOn(c *cluster, name string) string {
	events := slices.DeleteFunc(c.all("events"), func(event object) bool {
		about, _ := event["involvedObject"].(object)
		return about["name"] != name
	})
	number := func(event object) string {
		_, n, _ := strings.Cut(fakekube.KeyOf(event).Name, ".")
		return n
	}
	slices.SortFunc(events, func(a, b object) int { return strings.Compare(number(a), number(b)) })
	var reasons []string
	for _, event := range events {
		reasons = append(reasons, fakekube.TextIn(event, "reason"))
	}
	return strings.Join(reasons, " ")
}

// look returns what `kubectl get pods` shows of a pod: its phase, whether it is ready, how often its container was
// restarted, and what the container waits for.
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
	testkit.WantEqual(t, "the state of "+pod, look(podNamed(c, pod)), want)
}

func wantEvents(t *testing.T, c *cluster, name, want string) {
	t.Helper()
	testkit.WantEqual(t, "the events on "+name, eventsOn(c, name), want)
}

func TestNewPodIsScheduledAndRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		runPod(t, c, "mine", podSpec("example/mine"))
		liveFor(c, pace)
		wantLook(t, c, "mine", "Pending ready=false restarts=0 ContainerCreating")
		wantEvents(t, c, "mine", "Scheduled Pulling")
		liveFor(c, pullTime+pace)
		wantLook(t, c, "mine", "Running ready=true restarts=0")
		wantEvents(t, c, "mine", "Scheduled Pulling Pulled Created Started")
		pod := podNamed(c, "mine")
		status, _ := pod["status"].(object)
		if !strings.HasPrefix(nodeOf(pod), "worker-") || !strings.HasPrefix(fakekube.TextIn(status, "podIP"), "10.244.") {
			t.Errorf("the pod runs on %q with the IP %v, want a worker and 10.244.…", nodeOf(pod), status["podIP"])
		}
		version := fakekube.MetaOf(pod)["resourceVersion"]
		liveFor(c, time.Minute)
		if fakekube.MetaOf(podNamed(c, "mine"))["resourceVersion"] != version {
			t.Error("the pod was written although nothing has changed")
		}
	})
}

func TestCordonedNodesGetNoPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		cordon := func(node string, isCordoned any) {
			patch := object{"spec": object{"unschedulable": isCordoned}}
			c.patch("nodes", object{"metadata": object{"name": node}}, patch)
		}
		cordon("worker-1", true)
		for i := range 4 {
			runPod(t, c, fmt.Sprintf("on-2-%d", i), podSpec("nginx"))
		}
		liveFor(c, 5*time.Second)
		for i := range 4 {
			if node := nodeOf(podNamed(c, fmt.Sprintf("on-2-%d", i))); node != "worker-2" {
				t.Errorf("a pod is on %s, want worker-2", node)
			}
		}
		cordon("worker-2", true)
		runPod(t, c, "nowhere", podSpec("nginx"))
		liveFor(c, 5*time.Second)
		testkit.WantEqual(t, "the pod's node while all are cordoned", nodeOf(podNamed(c, "nowhere")), "")
		cordon("worker-1", nil)
		liveFor(c, 5*time.Second)
		testkit.WantEqual(t, "the pod's node when worker-1 is back", nodeOf(podNamed(c, "nowhere")), "worker-1")
	})
}

func TestDeletedPodStopsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		runPod(t, c, "mine", podSpec("nginx"))
		liveFor(c, 5*time.Second)
		if err := c.remove("pods", podNamed(c, "mine")); err != nil {
			t.Fatal(err)
		}
		liveFor(c, pace)
		if pod := podNamed(c, "mine"); pod == nil || !isDying(pod) || look(pod) != "Running ready=true restarts=0" {
			t.Errorf("right after its deletion, the pod is %v, want one that runs and is being deleted", pod)
		}
		liveFor(c, stopTime+pace)
		if pod := podNamed(c, "mine"); pod != nil {
			t.Errorf("the pod is still there: %v", pod)
		}
		wantEvents(t, c, "mine", "Scheduled Pulling Pulled Created Started Killing")
	})
}

func TestDeletedPodIsReplaced(t *testing.T) {
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
		testkit.WantNumber(t, "pods", len(pods), len(old))
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
				t.Errorf("the Lease of %s is %v, want one that was just renewed", name, spec)
			}
			status, _ := c.fake.Get("nodes", fakekube.Key{Name: name})["status"].(object)
			conditions, _ := status["conditions"].([]any)
			for _, one := range conditions {
				condition, _ := one.(object)
				beat, err := time.Parse(time.RFC3339, fakekube.TextIn(condition, "lastHeartbeatTime"))
				since, _ := time.Parse(time.RFC3339, fakekube.TextIn(condition, "lastTransitionTime"))
				if err != nil || time.Since(beat) > nodeReport || time.Since(since) < time.Hour {
					t.Errorf("a condition of %s is %v, want an old one with a recent heartbeat", name, condition)
				}
			}
		}
	})
}

func TestEventsAreForgottenAfterAnHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		if eventsOn(c, "db-0") == "" {
			t.Fatal("there are no events on a pod that was started")
		}
		liveFor(c, eventTTL+2*time.Minute)
		wantEvents(t, c, "db-0", "")
	})
}

func TestServerDoesNotKeepItsHistoryForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		liveFor(c, 2*compaction+time.Minute)
		all := func(fakekube.Request) bool { return true }
		changes := len(c.fake.Changes())
		requests := len(fixture.Requests(c.fake, all))
		if changes > 1000 || requests > 1000 {
			t.Errorf("after an hour there are %d changes and %d requests, want at most 1000 of each", changes, requests)
		}
	})
}

func TestPodsOfADeletedNodeAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(nil)
		c.finish("nodes", c.fake.Get("nodes", fakekube.Key{Name: "worker-1"}))
		liveFor(c, 5*time.Second)
		for _, pod := range c.all("pods") {
			if nodeOf(pod) == "worker-1" {
				t.Errorf("%s is still on the deleted node", fakekube.KeyOf(pod))
			}
		}
	})
}

func TestCountDefinitionIsThatOfDeploy(t *testing.T) {
	text := testkit.ReadFile(t, "../../deploy/count-crd.yaml")
	testkit.WantEqual(t, "the definition, compared with deploy/count-crd.yaml", countCRD, text)
}
