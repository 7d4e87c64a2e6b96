package main

// main_test.go shows what the whole program does, most of it against internal/fakekube in virtual time (testing/synctest),
// and some of it on a real cluster (make e2e). What one of the other files does alone is shown beside that file.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/background"
	"podcount/internal/behaviours"
	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/options"
	"podcount/internal/retry"
	"podcount/internal/sim"
	"podcount/internal/suite"
	"podcount/internal/testkit"
	"podcount/internal/wire"
	"podcount/internal/yaml"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(fakekube.ExecPluginDir) != "":
		os.Exit(fakekube.RunExecPlugin(os.Getenv(fakekube.ExecPluginDir)))
	case os.Getenv("PODCOUNT_TEST_MAIN") != "":
		main() // the program itself, for tests of signals and exit codes
		os.Exit(0)
	}
	os.Exit(fakekube.RunTests(m))
}

// ---------------------------------------------------------------------------------------------------------------------
// Test harness

// podcount is the program that the suite runs.
var podcount suite.Program = run

// The harness, by the names that these tests have for it.
type (
	logBuffer = testkit.Buffer
	program   = suite.Process
	wiring    = suite.Wiring
)

const (
	podCountLabel = suite.TotalLabel
	ownPodsLabel  = suite.OwnPodsLabel
	leasePath     = suite.LeasePath
)

var (
	startPodcount     = podcount.Start
	startOverTLS      = podcount.StartOverTLS
	startPodcountOn   = podcount.StartOn
	startPodcountWith = podcount.StartWith
	startReplica      = podcount.StartReplica
	survive           = podcount.Survive

	at                = suite.At
	churn             = suite.Churn
	eventsOf          = suite.EventsOf
	fewer             = testkit.Fewer
	isList            = suite.IsList
	isWriteOf         = suite.IsWriteOf
	leaseKey          = suite.LeaseKey
	leaseNow          = suite.LeaseNow
	meetFaults        = suite.MeetFaults
	pass              = testkit.Pass
	simulate          = suite.Simulate
	statusFault       = suite.StatusFault
	surviveFrom       = suite.SurviveFrom
	wantLabel         = suite.WantLabel
	wantNumber        = testkit.WantNumber
	wantPeace         = suite.WantPeace
	wantPeaceAndCount = suite.WantPeaceAndCount
	wantText          = testkit.WantText
	writeFiles        = testkit.WriteFiles
	writesAt          = suite.Writes
)

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

const (
	controlPlane    = "node-role.kubernetes.io/control-plane"
	oldControlPlane = "node-role.kubernetes.io/master"
)

func quietLog() *Log { return newLog(io.Discard, &options.Options{}) }

// ---------------------------------------------------------------------------------------------------------------------
// The controller: the main job

func TestTotalGoesToControlPlaneNodesOfEitherRoleAndToNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("new", controlPlane)
		f.AddNode("old", oldControlPlane+"=true")
		f.AddNode("worker")
		f.AddPods(3)
		startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "new", podCountLabel, "3")
		wantLabel(t, f, "old", podCountLabel, "3")
		wantLabel(t, f, "worker", podCountLabel, "-")
	})
}

func TestRightLabelIsNotWrittenAndAWrongOneOnce(t *testing.T) {
	for _, c := range []struct {
		has    string
		writes int
	}{{"4", 1}, {"3", 0}} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane, podCountLabel+"="+c.has)
			f.AddNode("worker")
			f.AddPods(3)
			startPodcount(t, f)
			pass(time.Minute)
			wantLabel(t, f, "cp", podCountLabel, "3")
			wantNumber(t, "writes with the label at "+c.has, len(f.Requests(fakekube.IsWrite)), c.writes)
		})
	}
}

func TestFirstChangeIsWrittenAtOnceThenOneAnIntervalAndTheLastStateAlways(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		startPodcount(t, f)
		pass(35 * time.Second)
		begin := time.Now()
		before := len(f.Requests(fakekube.IsWrite))
		f.AddPod("default", "first", "")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
		if time.Since(begin) != 0 {
			t.Errorf("it took %v", time.Since(begin))
		}
		for i := range 250 { // 25 s of changes
			f.AddPod("default", fmt.Sprintf("more-%d", i), "")
			pass(100 * time.Millisecond)
		}
		pass(10 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "251")
		writes := f.Requests(fakekube.IsWrite)[before:]
		wantNumber(t, "writes", len(writes), 4) // at 0, 10, 20 and 30 s
		for i := 1; i < len(writes); i++ {
			if gap := writes[i].At.Sub(writes[i-1].At); gap < 10*time.Second || gap > 11*time.Second {
				t.Errorf("%v between two writes", gap)
			}
		}
		before = len(f.Requests(fakekube.IsWrite))
		pass(5 * time.Minute)
		wantNumber(t, "writes in the quiet", len(f.Requests(fakekube.IsWrite))-before, 0)
	})
}

func TestChangeBehindAQuietStartIsWrittenAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane, podCountLabel+"=0")
		startPodcount(t, f)
		pass(2 * time.Second) // nothing was written so far, so nothing rests
		f.AddPods(1)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
	})
}

func TestTotalThatCameAndWentUnwrittenDoesNotDelayTheNextChange(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		const own = "example.com/pods"
		f.AddNode("cp", controlPlane)
		pod := f.AddPod("default", "a", "")
		startPodcount(t, f, "-interval", "60s", "-node-label", own)
		pass(200 * time.Second)
		pod = fakekube.Clone(pod)
		pod["spec"].(fakekube.Object)["nodeName"] = "cp"
		f.Put("pods", pod)
		pass(5 * time.Second)
		wantLabel(t, f, "cp", own, "1") // and rests until 260 s
		f.AddPod("default", "b", "")
		pass(5 * time.Second)
		f.Remove("pods", at("default", "b"))
		pass(52 * time.Second)
		f.AddPod("default", "c", "")
		pass(time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}

func TestNodeThatStopsMatchingLosesTheLabelAndOneThatBeginsGetsIt(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", controlPlane)
		f.AddNode("b")
		f.AddNode("left", podCountLabel+"=7") // from a time before the start
		f.AddPods(2)
		startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "a", podCountLabel, "2")
		wantLabel(t, f, "left", podCountLabel, "-")
		pass(10 * time.Second)
		f.SetLabel("a", controlPlane, nil)
		f.SetLabel("b", controlPlane, "")
		pass(time.Second)
		wantLabel(t, f, "a", podCountLabel, "-")
		wantLabel(t, f, "b", podCountLabel, "2")
	})
}

func TestOwnWriteIsKnownFromItsAnswerBeforeTheWatchTellsIt(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.LoseEvents(1)
		startPodcount(t, f)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 1)
	})
}

func TestAnotherWritersLabelIsPutRight(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		startPodcount(t, f)
		for _, v := range []any{"99", nil} {
			pass(15 * time.Second)
			f.SetLabel("cp", podCountLabel, v)
			pass(time.Second)
			wantLabel(t, f, "cp", podCountLabel, "2")
		}
	})
}

func TestRecreatedNodeGetsTheLabel(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		startPodcount(t, f)
		pass(30 * time.Second)
		for range 3 { // also right behind a write to its predecessor
			f.Remove("nodes", at("", "cp"))
			f.AddNode("cp", controlPlane)
			synctest.Wait()
			wantLabel(t, f, "cp", podCountLabel, "2")
		}
	})
}

func TestNodeLabelCountsEachNodesOwnPods(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		const own = "example.com/pods"
		f.AddNode("cp", controlPlane)
		f.AddNode("w1")
		f.AddNode("w2")
		f.AddPod("a", "x", "w1")
		f.AddPod("a", "y", "w1")
		f.AddPod("a", "unbound", "")
		startPodcount(t, f, "-node-label", own)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "3")
		wantLabel(t, f, "cp", own, "0")
		wantLabel(t, f, "w1", own, "2")
		wantLabel(t, f, "w2", own, "0")
		wantLabel(t, f, "w1", podCountLabel, "-")
		pass(10 * time.Second)
		bound := fakekube.Clone(f.Get("pods", at("a", "unbound")))
		bound["spec"].(fakekube.Object)["nodeName"] = "w2"
		f.Put("pods", bound)
		f.Remove("pods", at("a", "x"))
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantLabel(t, f, "w1", own, "1")
		wantLabel(t, f, "w2", own, "1")
		accept := f.Requests(isList("pods"))[0].Header.Get("Accept")
		if strings.Contains(accept, "PartialObjectMetadata") {
			t.Errorf("asked for metadata alone (%s), which has no spec.nodeName", accept)
		}
	})
}

func TestProtobufAndMetadataAloneAreAskedForUnlessMoreIsNeededOrJSONIsWanted(t *testing.T) {
	metadata := ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
	for args, want := range map[string]struct{ pods, nodes string }{
		"":                                     {wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON, wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON},
		"-wire json":                           {wire.JSON + metadata + ", " + wire.JSON, wire.JSON + metadata + ", " + wire.JSON},
		"-node-label example.com/n":            {wire.Protobuf + ", " + wire.JSON, wire.Protobuf + metadata + ", " + wire.Protobuf + ", " + wire.JSON + metadata + ", " + wire.JSON},
		"-node-label example.com/n -wire json": {wire.JSON, wire.JSON + metadata + ", " + wire.JSON},
	} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			f.AddPods(3)
			startPodcount(t, f, strings.Fields(args)...)
			synctest.Wait()
			for resource, want := range map[string]string{"pods": want.pods, "nodes": want.nodes} {
				for _, s := range f.Requests(isList(resource)) {
					wantText(t, "^"+s.Header.Get("Accept")+"$", "^"+strings.ReplaceAll(want, "%s", "List")+"$")
				}
				for _, s := range f.Requests(fakekube.IsWatch(resource)) {
					wantText(t, "^"+s.Header.Get("Accept")+"$", "^"+strings.ReplaceAll(want, "%s", "")+"$")
				}
			}
			wantLabel(t, f, "cp", podCountLabel, "3")
			f.AddPods(5)
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "5")
		})
	}
}

func TestServerThatAnswersWholeObjectsOrOnlyJSONIsUnderstood(t *testing.T) {
	for _, only := range []string{wire.Protobuf, wire.JSON} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.OnlyMediaType = only // and no metadata alone
			f.AddNode("cp", controlPlane)
			f.AddPods(3)
			startPodcount(t, f)
			synctest.Wait()
			wantLabel(t, f, "cp", podCountLabel, "3")
			f.AddPods(5)
			f.Remove("pods", at("default", "web-0"))
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "4")
		})
	}
}

func TestRefusalInProtobufIsSaidAsOneInJSON(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Forbid("list pods", true)
		p := startPodcount(t, f)
		pass(time.Second)
		wantText(t, p.Log.String(), `list pods: 403 Forbidden: pods is forbidden`)
		wantText(t, p.Log.String(), `(the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"])`)
		f.Forbid("list pods", false)
		f.AddPods(2)
		body := fakekube.Protobuf([]byte(`{"kind":"Status","code":429,"reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":7}}`))
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "watch", Resource: "pods"}, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": wire.Protobuf}, Body: string(body)}})
		pass(5 * time.Second)
		wantText(t, p.Log.String(), "watch pods: 429 TooManyRequests: later")
		if n := len(f.Requests(fakekube.IsWatch("pods"))); n != 1 {
			t.Errorf("%d watches in 5 s, though the server asked for 7", n)
		}
		pass(15 * time.Second)
		f.AddPods(3)
		synctest.Wait()
		wantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 2)
	})
}

func TestTotalDoesNotWaitBehindTheNodesOwnLabels(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 300 { // which take 13 s
			f.AddNode("n" + strconv.Itoa(i))
		}
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		startPodcount(t, f, "-node-label", "example.com/n")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "3")
	})
}

func TestSelectorsAndNamespaceGoToTheServer(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPod("a", "in", "n1")
		f.AddPod("a", "elsewhere", "n2")
		f.AddPod("b", "other-namespace", "n1")
		f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": "a", "name": "other-label", "labels": fakekube.Object{"app": "db"}}, "n1"))
		startPodcount(t, f, "-namespace", "a", "-pod-selector", "app in (web,api)", "-field-selector", "spec.nodeName=n1")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
		pass(20 * time.Second)
		left := fakekube.Clone(f.Get("pods", at("a", "in"))) // leaves the selector: a DELETED to us
		fakekube.MetaOf(left)["labels"] = fakekube.Object{"app": "gone"}
		f.Put("pods", left)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

func TestTotalNodesAreChosenBySelector(t *testing.T) {
	for selector, want := range map[string]string{
		"": "1 1 1", "zone": "1 1 -", "!zone": "- - 1", "zone=a": "1 - -", "zone!=a": "- 1 1", "zone in (a, b)": "1 1 -", "zone notin (a),zone": "- 1 -",
	} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", "zone=a")
			f.AddNode("b", "zone=b")
			f.AddNode("c")
			f.AddPods(1)
			startPodcount(t, f, "-total-nodes", selector)
			synctest.Wait()
			if got := f.Label("a", podCountLabel) + " " + f.Label("b", podCountLabel) + " " + f.Label("c", podCountLabel); got != want {
				t.Errorf("%q chose %s, want %s", selector, got, want)
			}
		})
	}
}

func TestNoNodeForTheTotalIsSaidOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("worker")
		f.AddPods(1)
		p := startPodcount(t, f)
		pass(5 * time.Minute)
		wantNumber(t, "lines about it", strings.Count(p.Log.String(), "no node gets the total"), 1)
		wantText(t, p.Log.String(), "-total-nodes ''")
	})
}

func TestEventsOnNewPodsAndOnChangedNodes(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		cp := f.AddNode("cp", controlPlane)
		f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "shop"}})
		f.AddPods(41) // these are no news
		startPodcount(t, f)
		pass(20 * time.Second)
		pod := f.AddPod("shop", "new", "")
		pass(time.Second)
		if got, want := eventsOf(f, "PodCounted"), []string{"Pod/new in shop: pod count is 42 x1"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		want := []string{"Node/cp in default: pod count changed from 41 to 42 x1", "Node/cp in default: pod count changed from none to 41 x1"}
		if got := eventsOf(f, "PodCountChanged"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		uids := map[string]string{"Pod": fakekube.TextIn(fakekube.MetaOf(pod), "uid"), "Node": fakekube.TextIn(fakekube.MetaOf(cp), "uid")}
		for _, e := range f.All("events") {
			about := e["involvedObject"].(fakekube.Object)
			if fakekube.TextIn(about, "uid") != uids[fakekube.TextIn(about, "kind")] || fakekube.TextIn(e, "reportingComponent") != "podcount" || fakekube.TextIn(e["source"].(fakekube.Object), "component") != "podcount" {
				t.Errorf("event %v", e)
			}
			if !regexp.MustCompile(`^(new|cp)\.[0-9a-f]+$`).MatchString(fakekube.TextIn(fakekube.MetaOf(e), "name")) {
				t.Errorf("an event named %s", fakekube.TextIn(fakekube.MetaOf(e), "name"))
			}
		}
	})
}

func TestPodEventsOffLeavesThePodsOut(t *testing.T) {
	for setting, want := range map[string]int{"on": 1, "off": 0} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			startPodcount(t, f, "-pod-events", setting)
			pass(20 * time.Second)
			f.AddPods(1)
			pass(20 * time.Second)
			wantNumber(t, "events on pods with "+setting, len(eventsOf(f, "PodCounted")), want)
			wantNumber(t, "events on nodes with "+setting, len(eventsOf(f, "PodCountChanged")), 2)
		})
	}
}

func TestLabelsDoNotSufferWhateverEventsMeetAndEachEventIsPostedOrCountedAsDropped(t *testing.T) {
	isEvent := func(s fakekube.Request) bool { return strings.Contains(s.Path, "/events") }
	refused := func(code int, reason string, details any, header ...string) fakekube.Fault {
		return statusFault(fakekube.Requests{}, 0, code, reason, details, header...)
	}
	for name, ft := range map[string]fakekube.Fault{
		"their namespace is being deleted": refused(403, "Forbidden", fakekube.Object{"causes": []any{fakekube.Object{"reason": "NamespaceTerminating", "field": "metadata.namespace"}}}),
		"their namespace is gone":          refused(404, "NotFound", nil),
		"a quota":                          refused(403, "Forbidden", nil),
		"a limit, with Retry-After":        refused(429, "TooManyRequests", nil, "Retry-After", "1"),
		"a limit, in plain text":           {Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": "text/plain"}, Body: "slow down"}},
		"a server that refuses all":        refused(500, "InternalError", nil),
		"a server that breaks":             {Do: fakekube.DropRequest{}},
		"a server that does not answer":    {Do: fakekube.Stall{}},
		"a webhook that takes 20 s":        {Delay: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				f.AddNode("other", controlPlane)
				f.AddNode("worker")
				p := startPodcount(t, f, "-node-label", ownPodsLabel, "-v", "2")
				synctest.Wait()
				goroutines := runtime.NumGoroutine()
				ft.On = fakekube.Requests{If: isEvent}
				ft.Times = fakekube.Always
				lift := f.Inject(t, ft).Lift
				f.AddPods(1500)
				synctest.Wait()
				if n := runtime.NumGoroutine() - goroutines; n > 10 {
					t.Errorf("%d goroutines more with 1,500 events to post", n)
				}
				churn(f, 60)
				for path, writes := range map[string]int{"/api/v1/nodes/cp": 7, "/api/v1/nodes/other": 7, "/api/v1/nodes/worker": 7} {
					wantNumber(t, "writes to "+path+" in a minute", len(f.Requests(func(s fakekube.Request) bool { return fakekube.IsWrite(s) && s.Path == path })), writes)
				}
				lift()
				wantPeace(t, f, "-node-label", ownPodsLabel)
				pass(2 * time.Minute)
				p.Stop()

				begun := 1500 + 60 // on pods, and on labels:
				for _, s := range f.Requests(isWriteOf("nodes")) {
					var patch struct {
						Metadata struct{ Labels map[string]any }
					}
					json.Unmarshal([]byte(s.Body), &patch)
					begun += len(patch.Metadata.Labels)
				}
				posted, dropped := 0, 0
				for _, e := range f.All("events") {
					posted += int(e["count"].(float64))
				}
				fmt.Sscan(regexp.MustCompile(`events_dropped=(\d+)`).FindStringSubmatch(p.Log.String())[1], &dropped)
				wantNumber(t, fmt.Sprintf("events posted (%d) or dropped (%d)", posted, dropped), posted+dropped, begun)
				if posted < 400 || dropped < 400 {
					t.Errorf("%d events were posted, %d dropped: those that waited were to be posted, those for whom there was no room dropped", posted, dropped)
				}
			})
		})
	}
}

func TestPodsFoundByARelistAreNews(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f)
		pass(time.Second)
		f.LoseEvents(1)
		f.AddPod("default", "unseen", "")
		pass(time.Second)
		wantNumber(t, "events before the relist", len(eventsOf(f, "PodCounted")), 0)
		p.Net.Refuse()
		f.EndWatches(true)
		f.AddPod("default", "later", "")
		f.Compact()
		p.Net.Restore()
		pass(2 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "4")
		wantNumber(t, "events after the relist", len(eventsOf(f, "PodCounted")), 2)
	})
}

func TestNothingIsWrittenBeforeBothListsAreComplete(t *testing.T) {
	for _, resource := range []string{"pods", "nodes"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane, podCountLabel+"=500")
			f.AddNode("worker", podCountLabel+"=500")
			f.AddPods(500)
			f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: resource}, Times: 3, Do: fakekube.Cut{After: 300}})
			startPodcount(t, f)
			pass(time.Second)
			wantNumber(t, "writes while "+resource+" are not listed", len(f.Requests(fakekube.IsWrite)), 0)
			pass(time.Minute)
			wantLabel(t, f, "worker", podCountLabel, "-") // then it works
			wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 1)
		})
	}
}

func TestPatchCarriesUIDAndNoVersion(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		node := f.AddNode("cp", controlPlane)
		startPodcount(t, f)
		synctest.Wait()
		writes := f.Requests(fakekube.IsWrite)
		wantNumber(t, "writes", len(writes), 1)
		if got, want := writes[0].Body, fmt.Sprintf(`{"metadata":{"labels":{"hopegi/pod-count":"0"},"uid":%q}}`, fakekube.TextIn(fakekube.MetaOf(node), "uid")); got != want {
			t.Errorf("patch %s, want %s", got, want)
		}
		if got := writes[0].Query.Get("fieldManager"); got != "podcount" {
			t.Errorf("fieldManager %q", got)
		}
	})
}

func TestRefusedWrites(t *testing.T) {
	uid := fakekube.Object{"causes": []any{fakekube.Object{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}}}
	policy := fakekube.Object{"causes": []any{fakekube.Object{"message": "denied request"}}}
	for _, c := range []struct {
		name    string
		fault   fakekube.Fault
		retried bool // soon, by backoff; else the next tick brings it
		log     string
	}{
		{"422 for the uid: the node was recreated", statusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 422, "Invalid", uid), false, ""},
		{"404", statusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 404, "NotFound", nil), false, ""},
		{"422 of a policy", statusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 422, "Invalid", policy), true, "as scripted"},
		{"409", statusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 409, "Conflict", nil), true, "409 Conflict"},
		{"500", statusFault(fakekube.Requests{If: fakekube.IsWrite}, 2, 500, "InternalError", nil), true, "500 InternalError"},
		{"403", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 403, Body: `{"code":403,"reason":"Forbidden","message":"User \"x\" cannot patch resource \"nodes\""}`}}, true, `the RBAC rule that allows it: apiGroups [\"\"], resources [\"nodes\"], verbs [\"patch\"]`},
		{"a proxy's page", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 502, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>\n<h1>Bad Gateway"}}, true, "patch nodes/cp: 502 Bad Gateway"},
		{"a proxy's 404", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 404, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}}, true, "patch nodes/cp: 404 Not Found"},
		{"applied, then the connection broke", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.DropAnswer{}}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				f.AddNode("other", controlPlane)
				f.AddPods(2)
				ft := c.fault
				ft.On.Name = "cp"
				f.Inject(t, ft)
				p := startPodcount(t, f)
				synctest.Wait()
				wantLabel(t, f, "other", podCountLabel, "2") // one key's failure holds back no other
				pass(time.Second)
				if c.retried {
					wantLabel(t, f, "cp", podCountLabel, "2")
				} else {
					wantLabel(t, f, "cp", podCountLabel, "-")
					wantNumber(t, "complaints", strings.Count(p.Log.String(), "cannot reconcile"), 0)
				}
				pass(10 * time.Second)
				wantLabel(t, f, "cp", podCountLabel, "2")
				wantText(t, p.Log.String(), c.log)
			})
		})
	}
}

func TestLabelsEqualTheTruthWhateverAWriteMeets(t *testing.T) {
	type prey struct { // that which meets the fault
		path  string
		spoil func(f *fakekube.Server, v any) // by another writer
		again func(f *fakekube.Server)        // makes it anew
	}
	node := prey{"/api/v1/nodes/cp", func(f *fakekube.Server, v any) { f.SetLabel("cp", podCountLabel, v) }, func(f *fakekube.Server) {
		f.Remove("nodes", at("", "cp"))
		f.AddNode("cp", controlPlane)
	}}
	count := prey{"/apis/demo.mark8s.io/v1/namespaces/default/counts/web/status", func(f *fakekube.Server, v any) {
		o := fakekube.Clone(f.Get("counts", at("default", "web")))
		o["status"] = fakekube.Object{"healthy": v == nil, "count": 7}
		f.Put("counts", o)
	}, func(f *fakekube.Server) {
		f.Remove("counts", at("default", "web"))
		f.AddCount("web", `{"name":"web","count":18}`)
	}}
	meets := func(ft fakekube.Fault) func(*testing.T, *fakekube.Server, prey) {
		return func(t *testing.T, f *fakekube.Server, what prey) {
			scripted := ft
			scripted.On = fakekube.Requests{Verb: "write", Resource: what.path}
			f.Inject(t, scripted)
		}
	}
	refused := func(times, code int, reason string, details any, header ...string) func(*testing.T, *fakekube.Server, prey) {
		return meets(statusFault(fakekube.Requests{}, times, code, reason, details, header...))
	}
	isStalled := map[*fakekube.Server]bool{} // it is to happen once
	for name, happens := range map[string]func(*testing.T, *fakekube.Server, prey){
		"409":                          refused(8, 409, "Conflict", nil),
		"422, as it was recreated":     refused(2, 422, "Invalid", fakekube.Object{"causes": []any{fakekube.Object{"reason": "FieldValueInvalid", "field": "metadata.uid"}}}),
		"422, by a policy":             refused(8, 422, "Invalid", fakekube.Object{"causes": []any{fakekube.Object{"message": "denied"}}}),
		"404":                          refused(2, 404, "NotFound", nil),
		"403, then granted":            refused(7, 403, "Forbidden", nil),
		"429":                          refused(6, 429, "TooManyRequests", nil, "Retry-After", "2"),
		"429, in plain text":           meets(fakekube.Fault{Times: 6, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Content-Type": "text/plain"}, Body: "Too many requests"}}),
		"500":                          refused(8, 500, "InternalError", nil),
		"503":                          refused(6, 503, "ServiceUnavailable", nil, "Retry-After", "2"),
		"a reset":                      meets(fakekube.Fault{Times: 8, Do: fakekube.DropRequest{}}),
		"a reset after it was applied": meets(fakekube.Fault{Do: fakekube.DropAnswer{}}),
		"half an answer":               meets(fakekube.Fault{Do: fakekube.Cut{After: 40}}),
		"no answer": func(t *testing.T, f *fakekube.Server, what prey) {
			if !isStalled[f] {
				isStalled[f] = true
				meets(fakekube.Fault{Do: fakekube.Stall{}})(t, f, what)
				retry.Sleep(t.Context(), kube.RequestTimeout+10*time.Second)
			}
		},
		"a webhook that takes 20 s": meets(fakekube.Fault{Delay: 20 * time.Second}),
		"another writer that changes it": func(t *testing.T, f *fakekube.Server, what prey) {
			for range 5 {
				what.spoil(f, "999")
				retry.Sleep(t.Context(), 3*time.Second)
			}
		},
		"another writer that removes it": func(t *testing.T, f *fakekube.Server, what prey) {
			for range 5 {
				what.spoil(f, nil)
				retry.Sleep(t.Context(), 3*time.Second)
			}
		},
		"an object that is recreated again and again": func(t *testing.T, f *fakekube.Server, what prey) {
			for range 5 {
				what.again(f)
				retry.Sleep(t.Context(), 3*time.Second)
			}
		},
		"an object that is recreated while the write is under way": func(t *testing.T, f *fakekube.Server, what prey) {
			meets(fakekube.Fault{Times: 2, Delay: 5 * time.Second})(t, f, what)
			for range 5 {
				retry.Sleep(t.Context(), 3*time.Second)
				what.again(f)
			}
		},
	} {
		for kind, what := range map[string]prey{"a node": node, "a Count": count} {
			t.Run(kind+" meets "+name, func(t *testing.T) {
				simulate(t, func(t *testing.T, f *fakekube.Server) {
					start := time.Now()
					survive(t, f, func(*program) {
						happens(t, f, what)
						retry.Sleep(t.Context(), 17500*time.Millisecond) // what is changed last is to meet it, too
						happens(t, f, what)
					})
					for _, path := range []string{"/api/v1/nodes/other", "/api/v1/nodes/worker"} { // nobody waits for another
						writes := f.Requests(func(s fakekube.Request) bool {
							return fakekube.IsWrite(s) && s.Path == path && s.At.Sub(start) < 31*time.Second
						})
						for i := 1; i < len(writes); i++ {
							if gap := writes[i].At.Sub(writes[i-1].At); gap < 10*time.Second || gap > 11*time.Second {
								t.Errorf("%s was written after %v", path, gap)
							}
						}
						wantNumber(t, "writes to "+path, len(writes), 4)
					}
				})
			})
		}
	}
}

func TestRetryAfterOfAWriteIsHonoured(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Retry-After": "7", "Content-Type": "text/plain"}, Body: "Too many requests, please try again later."}})
		startPodcount(t, f)
		pass(6900 * time.Millisecond)
		wantNumber(t, "writes within 6.9 s", len(f.Requests(fakekube.IsWrite)), 1)
		pass(1600 * time.Millisecond) // a fifth more, by chance
		wantNumber(t, "writes within 8.5 s", len(f.Requests(fakekube.IsWrite)), 2)
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A server that is busy tells all the same, and would be as busy when all came back at that moment.
func TestWritesThatWereRefusedTogetherDoNotComeBackTogether(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 40 {
			f.AddNode(fmt.Sprint("n", i))
		}
		f.Inject(t, statusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, 40, 429, "TooManyRequests", nil, "Retry-After", "1"))
		startPodcount(t, f, "-total-nodes", "", "-workers", "40", "-burst", "100")
		pass(900 * time.Millisecond)
		wantNumber(t, "writes that were refused", len(f.Requests(isWriteOf("nodes"))), 40)
		pass(1200 * time.Millisecond)
		again := f.Requests(isWriteOf("nodes"))[40:]
		wantNumber(t, "writes that came back", len(again), 40)
		first, last := again[0].At, again[len(again)-1].At
		if last.Sub(first) < 500*time.Millisecond { // would be chance once in 10^11 times
			t.Errorf("all came back within %v", last.Sub(first))
		}
	})
}

func TestServerThatIsNotThereIsSaidOnceAMinuteOfEachThatAsksForIt(t *testing.T) {
	dialing := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, fail := range map[string]kube.Dialer{
		"connection refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		},
		"no such host": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(&net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true})
		},
		"i/o timeout": func(ctx context.Context, _, _ string) (net.Conn, error) { // of the dialer, unless who asks has less patience
			if err := retry.Sleep(ctx, 30*time.Second); err != nil {
				return nil, err
			}
			return nil, dialing(os.ErrDeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", controlPlane)
				f.AddPods(2)
				n, up := f.ServeIn(t), atomic.Bool{}
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					if up.Load() {
						return n.Dial(ctx, network, addr)
					}
					return fail(ctx, network, addr)
				}
				p := startPodcountWith(t, n, wiring{Dial: dial}, "-master", "http://127.0.0.1:1", "-leader-elect", "-v", "0")
				asking := []string{"kind=Pod", "kind=Node", "kind=Count", "lease=kube-system/podcount"}
				pass(90 * time.Second)
				for minute := range 60 {
					before := len(p.Log.String())
					pass(time.Minute)
					said := p.Log.String()[before:]
					for _, who := range asking {
						if lines := strings.Count(said, who); lines != 1 {
							t.Fatalf("%d lines about %s in minute %d:\n%s", lines, who, minute, said)
						}
					}
				}
				wantText(t, p.Log.String(), name)
				wantText(t, p.Log.String(), "for=1m0s")
				up.Store(true)
				wantPeace(t, f)
				for _, over := range []string{"Pod: watching", "Node: watching", "Count: discovery answers", "lease: answered"} {
					wantText(t, p.Log.String(), over+" again after 1h")
				}
				afterwards := p.Log.String()[strings.LastIndex(p.Log.String(), " again after "):]
				wantNumber(t, "warnings once it is there", strings.Count(afterwards, "level=WARN"), 0)
			})
		})
	}
}

func TestOutageOfTheWritesIsSaidAtTheDefaultVerbosityOnceAMinuteAndWhenItIsOver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", controlPlane)
		f.AddNode("cp-2", controlPlane)
		refused := f.Inject(t, statusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 500, "InternalError", nil))
		p := startPodcount(t, f, "-v", "0")
		pass(5*time.Minute + time.Second)
		lines := regexp.MustCompile(`(?m)level=WARN msg="cannot reconcile" controller=pod-count .*$`).FindAllString(p.Log.String(), -1)
		wantNumber(t, "lines in five minutes", len(lines), 6)
		wantText(t, lines[5], " for=5m0s failed_tries=")
		wantText(t, lines[5], " failing=2 ")
		wantText(t, lines[5], " key=cp-")
		refused.Lift()
		pass(2 * time.Minute)
		ends := regexp.MustCompile(`level=INFO msg="pod-count: writing again after [56]m`)
		wantNumber(t, "lines at the end", len(ends.FindAllString(p.Log.String(), -1)), 1)
		wantNumber(t, "labels that are said to be written", strings.Count(p.Log.String(), `level=INFO msg="label written"`), 2)
	})
}

// That nothing fails any more does not mean that something works.
func TestWritingAgainIsSaidOfAWriteThatWorkedAlone(t *testing.T) {
	for name, end := range map[string]func(f *fakekube.Server, p *program){
		"a stop":                    func(_ *fakekube.Server, p *program) { p.Stop() },
		"the node is removed":       func(f *fakekube.Server, _ *program) { f.Remove("nodes", at("", "cp")) },
		"somebody else makes it so": func(f *fakekube.Server, _ *program) { f.SetLabel("cp", podCountLabel, "0") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				f.Inject(t, statusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 500, "InternalError", nil))
				p := startPodcount(t, f, "-v", "0", "-controllers", "pod-count", "-qps", "0.1", "-burst", "3")
				pass(30 * time.Second)
				end(f, p)
				pass(2 * time.Minute)
				wantText(t, p.Log.String(), "cannot reconcile")
				wantNumber(t, "words on a write that worked", strings.Count(p.Log.String(), "writing again"), 0)
				ends := 1
				if name == "a stop" {
					ends = 0
				}
				wantNumber(t, "words on the end", strings.Count(p.Log.String(), `"pod-count: nothing fails any more after `), ends)
			})
		})
	}
}

func TestOneObjectThatAlwaysFailsHidesNoOutage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for _, name := range []string{"bad", "a", "b", "c"} {
			f.AddNode(name)
		}
		isBad := func(s fakekube.Request) bool { return isWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/bad") }
		f.Inject(t, statusFault(fakekube.Requests{If: isBad}, fakekube.Always, 500, "InternalError", nil))
		p := startPodcount(t, f, "-v", "0", "-controllers", "pod-count", "-total-nodes", "")
		pass(5 * time.Minute)
		f.AddPod("default", "a", "") // others are written
		pass(25 * time.Minute)
		before := len(p.Log.String())
		refused := f.Inject(t, statusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, fakekube.Always, 503, "ServiceUnavailable", nil))
		f.AddPod("default", "b", "")
		pass(5 * time.Second)
		begins := regexp.MustCompile(`msg="cannot reconcile" controller=pod-count failing=2 key=[abc] .* 503 `)
		if said := p.Log.String()[before:]; !begins.MatchString(said) {
			t.Errorf("its beginning is not said: %s", said)
		}
		pass(5 * time.Minute)
		refused.Lift()
		pass(2 * time.Minute)
		said := p.Log.String()[before:]
		ends := regexp.MustCompile(`"pod-count: writing again after [56]m[0-9]*s, but 1 still fails"`)
		wantNumber(t, "words on its end", len(ends.FindAllString(said, -1)), 1)
		if lines := strings.Count(p.Log.String(), "level=WARN"); lines > 37+2 {
			t.Errorf("%d lines in 37 minutes", lines)
		}
	})
}

func TestEventThatIsRefusedIsSaidOnceAndIsNoOutage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		isEvent := func(s fakekube.Request) bool { return strings.HasSuffix(s.Path, "/events") }
		f.Inject(t, statusFault(fakekube.Requests{If: isEvent}, 1, 422, "Invalid", nil))
		p := startPodcount(t, f, "-v", "0")
		pass(3 * time.Hour)
		wantNumber(t, "lines on it", strings.Count(p.Log.String(), "cannot post an event"), 1)
		wantNumber(t, "lines on Events", strings.Count(p.Log.String(), "Events: "), 0)
	})
}

func TestLabelThatStaysIsWrittenBesideOneThatDoesNot(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0", "-node-label", ownPodsLabel)
		pass(time.Minute)
		f.AddPod("default", "a", "cp")
		pass(11 * time.Second)
		wantLabel(t, f, "cp", ownPodsLabel, "1")
		pass(time.Hour)
		wantNumber(t, "lines on it", strings.Count(p.Log.String(), "labels do not stay"), 1)
		wantNumber(t, "labels written", strings.Count(p.Log.String(), "label written"), 2)
		f.Remove("nodes", at("", "cp"))
		pass(11 * time.Minute)
		wantNumber(t, "lines that they stay", strings.Count(p.Log.String(), "labels stay again"), 0)
	})
}

func TestNodeMadeAgainDoesNotInheritThatItsLabelsWereDropped(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0")
		pass(time.Minute)
		f.Strip("")
		f.Remove("nodes", at("", "cp"))
		f.AddNode("cp", controlPlane)
		pass(12 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "lines that they stay", strings.Count(p.Log.String(), "labels stay again"), 0)
	})
}

func TestLabelThatTheServerDropsIsTriedEveryTenMinutesHoweverShortOrOddTheInterval(t *testing.T) {
	for _, interval := range []string{"10s", "6m"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			f.Strip(podCountLabel)
			startPodcount(t, f, "-interval", interval)
			pass(time.Hour + time.Minute)
			wantNumber(t, "tries in an hour with -interval "+interval, len(f.Requests(isWriteOf("nodes"))), 7)
		})
	}
}

func TestOutageOfAWatchIsSaidAndItsEnd(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		n := f.ServeIn(t)
		p := startPodcountOn(t, n, "-master", "http://127.0.0.1:1", "-v", "0")
		pass(time.Minute)
		refused := f.Inject(t, statusFault(fakekube.Requests{Verb: "watch", Resource: "pods"}, fakekube.Always, 503, "ServiceUnavailable", nil))
		f.EndWatches(false)
		pass(10 * time.Second)
		refused.Lift()
		pass(30 * time.Second)
		wantNumber(t, "lines at the beginning", strings.Count(p.Log.String(), `level=WARN msg="cannot watch" kind=Pod`), 1)
		wantNumber(t, "lines at the end", strings.Count(p.Log.String(), `level=INFO msg="Pod: watching again after `), 1)
		wantNumber(t, "lines on nodes", strings.Count(p.Log.String(), "kind=Node"), 1) // listed
	})
}

// A mutating webhook that takes our label away costs the server a write each time, and everyone that watches nodes an
// event.
func TestLabelThatTheServerDropsIsSaidOnceAndTriedRarely(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", controlPlane)
		f.AddNode("cp-2", controlPlane)
		f.AddPods(2)
		f.Strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0")
		pass(time.Hour)
		writes := len(f.Requests(isWriteOf("nodes")))
		if writes < 8 || writes > 14 {
			t.Errorf("%d writes to two nodes in an hour, want one in ten minutes for each", writes)
		}
		wantNumber(t, "lines on it", strings.Count(p.Log.String(), `level=WARN msg="labels do not stay`), 1)
		wantNumber(t, "labels that are said to be written", strings.Count(p.Log.String(), "label written"), 0)
		wantNumber(t, "events", len(eventsOf(f, "PodCountChanged")), 0)
		err := startPodcount(t, f, "-once", "-v", "0").Finish()
		if err == nil || !strings.Contains(err.Error(), "could not make 2 objects right") {
			t.Errorf("-once ended with %v", err)
		}
		f.Strip("")
		pass(11 * time.Minute)
		wantLabel(t, f, "cp-1", podCountLabel, "2")
		wantLabel(t, f, "cp-2", podCountLabel, "2")
		wantNumber(t, "lines on the end of it", strings.Count(p.Log.String(), `level=INFO msg="labels stay again"`), 1)
	})
}

func TestStartWithRightsToNodesAloneWaitsSaysTheRuleAndRecovers(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane, podCountLabel+"=7")
			f.AddNode("worker", podCountLabel+"=7")
			f.AddPods(2)
			f.Forbid(verb+" pods", true)
			p := startPodcount(t, f, "-v", "0")
			pass(9 * time.Minute)
			wantText(t, p.Log.String(), `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"`+verb+`\"]`)
			wantNumber(t, "warnings in nine minutes", strings.Count(p.Log.String(), "level=WARN"), 1)
			if verb == "list" {
				wantNumber(t, "writes while nothing is known of pods", len(f.Requests(fakekube.IsWrite)), 0)
			}
			f.AddPods(3)
			f.Forbid(verb+" pods", false)
			wantPeace(t, f)
		})
	}
}

func TestNothingToCountIsTheNumber0AndNothingToLabelIsPeace(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := startPodcount(t, f, "-v", "0") // neither pods nor nodes
		wantPeace(t, f)
		wantNumber(t, "warnings", strings.Count(p.Log.String(), "level=WARN"), 1)
		f.AddNode("worker")
		f.AddPods(2)
		wantPeace(t, f)
		wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 0)
		f.AddNode("cp", controlPlane)
		wantPeace(t, f)
		for i := range 2 {
			f.Remove("pods", at("default", fmt.Sprint("web-", i)))
		}
		wantPeace(t, f)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "lines of trouble", strings.Count(p.Log.String(), "level=WARN"), 1)
	})
}

func TestForbiddenIsSaidOnceInAWhileAndRecovers(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 50 {
			f.AddNode(fmt.Sprintf("cp-%d", i), controlPlane)
		}
		f.Forbid("patch nodes", true)
		p := startPodcount(t, f)
		pass(9 * time.Minute)
		wantNumber(t, "warnings in nine minutes", strings.Count(p.Log.String(), "level=WARN"), 1)
		f.Forbid("patch nodes", false)
		pass(time.Minute + 10*time.Second)
		for i := range 50 {
			wantLabel(t, f, fmt.Sprintf("cp-%d", i), podCountLabel, "0")
		}
	})
}

func TestLabelsEqualTheTruthWhateverBecomesOfTheServer(t *testing.T) {
	isNoWatch := func(s fakekube.Request) bool { return !s.Query.Has("watch") }
	for name, happens := range map[string]func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)){
		"killed for 30 s": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			p.Net.Kill()
			pause(30 * time.Second)
			p.Net.Restore()
		},
		"killed for 30 s, and its history is compacted": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			p.Net.Kill()
			pause(30 * time.Second)
			f.Compact()
			p.Net.Restore()
		},
		"killed for ten minutes": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			p.Net.Kill()
			pause(10 * time.Minute)
			p.Net.Restore()
		},
		"in a crash loop, its history gone each time": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			for range 20 {
				p.Net.Kill()
				pause(5 * time.Second)
				f.Compact()
				p.Net.Restore()
				pause(time.Second)
			}
		},
		"without its etcd": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			f.Inject(t, statusFault(fakekube.Requests{If: isNoWatch}, 12, 500, "", nil))
			pause(15 * time.Second)
			f.EndWatches(true)
			f.Inject(t, statusFault(fakekube.Requests{}, 12, 429, "TooManyRequests", nil, "Retry-After", "1")) // "storage is (re)initializing"
			pause(time.Minute)
		},
		"its etcd restored from an older snapshot": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(22 * time.Second)
			p.Net.Kill()
			restore()
			p.Net.Restore()
			pause(2 * kube.Silence) // of a version that is not there yet, the server says nothing at all
		},
		"its etcd restored from an older snapshot while it was away, whose versions come again soon": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(time.Minute)
			p.Net.Kill()
			<-time.After(3 * time.Second)
			restore()
			p.Net.Restore()
			pause(2 * time.Minute) // with the first answer it is known
		},
		"its etcd restored from an older snapshot, whose versions come again before it is back": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(3 * time.Second)
			p.Net.Kill()
			restore()
			pause(15 * time.Second)
			p.Net.Restore()
			pause(relistInterval * 11 / 10) // other changes under the versions that were seen: only a list can tell
		},
		"its etcd restored from an older snapshot, as is told to do: with higher versions": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			restore := f.Snapshot()
			pause(3 * time.Second)
			p.Net.Kill()
			restore()
			f.SetVersion(f.Latest() + 1000000)
			f.Compact()
			p.Net.Restore()
		},
		"one of two behind": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 0)
			pause(30 * time.Second)
			catchUp()
		},
		"one of two behind what was seen of the other": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(25 * time.Second)
			if f.Label("cp", podCountLabel) == strconv.Itoa(len(f.All("pods"))) {
				t.Error("it was not behind")
			}
			catchUp()
		},
		"one of two behind for ten minutes": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(10 * time.Minute)
			catchUp()
		},
		"one of two behind, and then killed": func(t *testing.T, f *fakekube.Server, p *program, pause func(time.Duration)) {
			catchUp := f.Lag(fakekube.Requests{}, 20)
			pause(30 * time.Second)
			p.Net.Kill()
			catchUp()
			p.Net.Restore()
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				survive(t, f, func(p *program) { happens(t, f, p, func(d time.Duration) { retry.Sleep(t.Context(), d) }) })
			})
		})
	}
}

func TestWritesAreLimitedByQPS(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 100 {
			f.AddNode(fmt.Sprintf("cp-%d", i), controlPlane)
		}
		startPodcount(t, f, "-qps", "10", "-burst", "20")
		synctest.Wait()
		wantNumber(t, "writes at once", len(f.Requests(fakekube.IsWrite)), 20)
		pass(4*time.Second + 50*time.Millisecond)
		wantNumber(t, "writes after 4 s", len(f.Requests(fakekube.IsWrite)), 60)
		pass(5 * time.Second)
		wantNumber(t, "writes after 9 s", len(f.Requests(fakekube.IsWrite)), 100)
	})
}

// An hour, and what goes with it: each request is accounted for. Drawn by lot are how long a watch lasts, when the hourly
// list is due, and when discovery is asked again.
func TestIdleHourIsExactlyTheExpectedRequests(t *testing.T) {
	for _, args := range [][]string{nil, {"-leader-elect"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", controlPlane)
				f.AddPods(2)
				f.AddCount("web", `{"name":"web","count":2}`)
				start := time.Now()
				startPodcount(t, f, args...)
				type change struct {
					at      time.Time
					version int
				}
				var changes []change                                                                           // of what podcount does not look at: so that bookmarks have something to tell
				for pass(500 * time.Millisecond); time.Since(start) < 70*time.Minute; pass(30 * time.Second) { // when no watch ends
					other := f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": "default"}})
					version, _ := strconv.Atoi(fakekube.TextIn(fakekube.MetaOf(other), "resourceVersion"))
					changes = append(changes, change{time.Now(), version})
				}
				sent := map[string][]fakekube.Request{}
				for _, s := range f.Requests(func(fakekube.Request) bool { return true }) {
					what := s.Method + " " + s.Path
					sent[what] = append(sent[what], s)
				}
				// take removes the requests of one kind, and fails the test if one is not from to to after the one before.
				take := func(what, query string, from, to time.Duration) (all []fakekube.Request) {
					all = sent[what]
					delete(sent, what)
					for i, s := range all {
						if got := s.Query.Encode(); got != query {
							t.Errorf("%s with %q, want %q", what, got, query)
						}
						if i > 0 && (s.At.Sub(all[i-1].At) < from || s.At.Sub(all[i-1].At) > to) {
							t.Errorf("%s %v after the one before, want %v to %v", what, s.At.Sub(all[i-1].At), from, to)
						}
					}
					if len(all) == 0 || all[0].At.Sub(start) > time.Second || time.Since(all[len(all)-1].At) > to {
						t.Errorf("%s: %d of them, not from beginning to end", what, len(all))
					}
					return all
				}
				take("GET /apis/demo.mark8s.io/v1", "", discoveryInterval*4/5, discoveryInterval*6/5)
				leased := 0
				if args != nil {
					wantNumber(t, "looks at the lease", len(take("GET "+leasePath, "", 0, 2*time.Hour)), 1)
					leased = len(take("PUT "+leasePath, "fieldManager=podcount", 2*time.Second, 2*time.Second))
				}
				// versionAt is the newest at a time, but for renewals of the lease: up to 16 behind it. And when one comes in the very
				// moment in which a watch ends, the server says no more, and what counts is the bookmark up to a minute before.
				versionAt := func(at time.Time) (v int) {
					v = changes[0].version - 1
					for _, c := range changes {
						if !c.at.After(at) {
							v = c.version
						}
					}
					return v
				}
				for what, path := range map[string]string{"pods": "/api/v1/pods", "nodes": "/api/v1/nodes", "counts": "/apis/demo.mark8s.io/v1/counts"} {
					all := sent["GET "+path]
					delete(sent, "GET "+path)
					if len(all) < 9 || fakekube.IsWatch(what)(all[0]) {
						t.Fatalf("%d requests for %s, the first %s", len(all), what, all[0])
					}
					listed, lists, ends := all[0].At, 0, all[0].At
					for _, s := range all {
						if isList(what)(s) {
							if got := s.Query.Encode(); got != "" {
								t.Errorf("a list of %s with %s", what, got)
							}
							if since := s.At.Sub(listed); lists > 0 && (since < relistInterval*9/10 || since > relistInterval*11/10) {
								t.Errorf("%s listed again after %v", what, since)
							}
							listed, ends, lists = s.At, s.At, lists+1
							continue
						}
						seconds, _ := strconv.Atoi(s.Query.Get("timeoutSeconds"))
						version, _ := strconv.Atoi(s.Query.Get("resourceVersion"))
						if got, want := s.Query.Encode(), fmt.Sprintf("allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d&watch=1", version, seconds); got != want || seconds < 300 || seconds >= 600 {
							t.Errorf("a watch of %s with %s", what, got)
						}
						if !s.At.Equal(ends) {
							t.Errorf("a watch of %s at %v, though the one before ended at %v", what, s.At, ends)
						}
						told := versionAt(s.At.Add(-2*time.Second - 1)) // by the last bookmark, two seconds before the end
						newest := versionAt(s.At)
						if s.At.Sub(start) > time.Minute && (version < told-32*min(leased, 1) || version > newest+16*min(leased, 1)) {
							t.Errorf("a watch of %s from version %d, though a bookmark said %d", what, version, told)
						}
						ends = s.At.Add(time.Duration(seconds) * time.Second)
					}
					wantNumber(t, "lists of "+what, lists, 2)
					if ends.Before(time.Now()) {
						t.Errorf("nobody watches %s", what)
					}
				}
				for what, all := range sent { // the label, the status, and their events: once, at the start
					rest := regexp.MustCompile(`^PATCH /api/v1/nodes/cp$|^PATCH /apis/demo.mark8s.io/v1/namespaces/default/counts/web/status$|^POST /api/v1/namespaces/default/events$`)
					if bound := 1 + 2*strings.Count(what, "POST"); !rest.MatchString(what) || len(all) != bound || all[0].At.Sub(start) > 2*time.Second {
						t.Errorf("%d × %s, at %v", len(all), what, all[0].At)
					}
				}
			})
		})
	}
}

func TestServerThatIsDownIsAskedOnceABackoffStep(t *testing.T) {
	const outage = 10 * time.Minute
	steps := 1 // at most, in so long: one at once, the others with no jitter at all
	for at, step := time.Duration(0), reflectorBackoff; at < outage; step = min(2*step, reflectorMaxBackoff) {
		at += step
		steps++
	}
	discoveries := int(outage/(discoveryInterval*4/5)) + 1
	for name, c := range map[string]struct {
		up, down time.Duration
		cutOff   bool // it lets connections through and breaks the requests
	}{
		"it refuses connections":           {0, outage, false},
		"it breaks each request":           {0, outage, true},
		"it is up for 2 s, each 20 s":      {2 * time.Second, 18 * time.Second, false},
		"it is up for 200 ms, each 5 s":    {200 * time.Millisecond, 5 * time.Second, false},
		"it breaks, but for 2 s each 20 s": {2 * time.Second, 18 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", controlPlane)
				f.AddPods(2)
				p := startPodcount(t, f)
				pass(5 * time.Minute) // of health
				dials, asked := p.Net.Dialed(), len(f.Requests(func(fakekube.Request) bool { return true }))
				crashes, begin := 0, time.Now()
				for time.Since(begin) < outage {
					if crashes++; c.cutOff {
						f.CutOff("127.0.0.1:1", true)
					} else {
						p.Net.Kill()
					}
					pass(c.down)
					f.CutOff("127.0.0.1:1", false)
					p.Net.Restore()
					pass(c.up)
				}
				dials, sent := p.Net.Dialed()-dials, f.Requests(func(fakekube.Request) bool { return true })[asked:]
				if most := 3*(steps+crashes) + discoveries; dials > most || len(sent) > most {
					t.Errorf("%d dials and %d requests, in %d steps and %d crashes: want %d at most", dials, len(sent), steps, crashes, most)
				}
				for _, resource := range []string{"pods", "nodes", "counts"} {
					tries := slices.DeleteFunc(slices.Clone(sent), func(s fakekube.Request) bool { return !strings.HasSuffix(s.Path, "/"+resource) })
					if len(tries) > steps+crashes {
						t.Errorf("%d requests for %s, in %d steps and %d crashes", len(tries), resource, steps, crashes)
					}
				}
				pass(reflectorMaxBackoff * 2)
				for _, kind := range []string{"Pod", "Node", "Count"} {
					// Three watches that end at once lead to a list. The tries that the outage broke are counted above.
					lists := strings.Count(p.Log.String(), "msg=listed kind="+kind+" ")
					watches := strings.Count(p.Log.String(), "msg=watching kind="+kind+" ")
					if lists > 1+watches/3 {
						t.Errorf("%d lists and %d watches of kind %s", lists, watches, kind)
					}
				}
				wantPeace(t, f)
			})
		})
	}
}

func TestThousandEventsASecondForAMinuteCostAWriteAnInterval(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		nodes := []string{"cp", "w1", "w2", "w3"}
		for _, name := range nodes {
			f.AddNode(name)
		}
		f.SetLabel("cp", controlPlane, "")
		startPodcount(t, f, "-node-label", ownPodsLabel, "-v", "0")
		synctest.Wait()
		first := f.Latest()
		for i := range 60_000 / 40 {
			for j := range fewer(10) { // each comes, changes, and goes, which is two changes
				name := fmt.Sprintf("p-%d-%d", i, j)
				f.AddPod("default", name, "")
				f.AddPod("default", name, nodes[rand.IntN(4)])
				if i%50 < 40 {
					f.Remove("pods", at("default", name))
				}
			}
			pass(40 * time.Millisecond)
		}
		if n := f.Latest() - first; n < fewer(50_000) {
			t.Errorf("there were %d events", n)
		}
		for _, name := range nodes {
			writes := len(f.Requests(func(s fakekube.Request) bool { return isWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/"+name) }))
			wantNumber(t, "writes to "+name, writes, 7)
		}
		pass(11 * time.Second) // no need of more
		wantLabel(t, f, "cp", podCountLabel, strconv.Itoa(len(f.All("pods"))))
		wantPeace(t, f, "-node-label", ownPodsLabel)
		wantNumber(t, "lists of pods", len(f.Requests(isList("pods"))), 1)
	})
}

func TestFiveThousandNodesThatAllChangeAtOnceAreRightWithinTheBound(t *testing.T) {
	nodes, qps := fewer(5000), 1000
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		args := []string{"-node-label", ownPodsLabel, "-total-nodes", "", "-qps", strconv.Itoa(qps), "-pod-events", "off", "-v", "0"}
		for i := range nodes {
			f.AddNode(fmt.Sprintf("n%d", i))
		}
		startPodcount(t, f, args...)
		pass(15 * time.Second)
		before := len(f.Requests(isWriteOf("nodes")))
		wantNumber(t, "writes at the start", before, nodes)
		for i := range nodes {
			f.AddPod("default", fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i))
		}
		wantPeace(t, f, args...)
		writes := f.Requests(isWriteOf("nodes"))[before:]
		if len(writes) < nodes || len(writes) > 2*nodes {
			t.Errorf("%d writes to %d nodes", len(writes), nodes)
		}
	})
}

func TestStopFinishesTheWriteInHandAndSendsTheEventsThatWait(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second})
		p := startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "-")
		if err := p.Stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "events", len(eventsOf(f, "PodCountChanged")), 1)
	})
}

func TestStopDoesNotWaitForEventsForEver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Script(t, "create events: stall")
		p := startPodcount(t, f)
		synctest.Wait()
		start := time.Now()
		if err := p.Stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		if d := time.Since(start); d != eventsTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

func TestStopAtAnyStageIsPromptBeginsNothingMoreAndLeavesAllToTheNext(t *testing.T) {
	lists := func(s fakekube.Request) bool { return isList("pods")(s) || isList("nodes")(s) }
	for name, c := range map[string]struct {
		faults []fakekube.Fault
		at     time.Duration
		takes  time.Duration
		args   string
	}{
		"with no server":                    {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.DropRequest{}}}, at: 20 * time.Second},
		"before the first list":             {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.Stall{}}}},
		"in the first list":                 {faults: []fakekube.Fault{{On: fakekube.Requests{If: lists}, Do: fakekube.Hang{After: 40}}}},
		"in one of the first lists":         {faults: []fakekube.Fault{{On: fakekube.Requests{Verb: "list", Resource: "nodes"}, Do: fakekube.Hang{After: 40}}}},
		"in the backoff of a list":          {faults: []fakekube.Fault{statusFault(fakekube.Requests{If: lists}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"at rest":                           {at: 20 * time.Second},
		"in the backoff of a watch":         {faults: []fakekube.Fault{statusFault(fakekube.Requests{Verb: "watch", Resource: "pods"}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in a write":                        {faults: []fakekube.Fault{{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second}}, takes: 3 * time.Second},
		"in a write that is not answered":   {faults: []fakekube.Fault{{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Stall{}}}, takes: drainTimeout},
		"in the backoff of a write":         {faults: []fakekube.Fault{statusFault(fakekube.Requests{If: fakekube.IsWrite}, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in the wait that a write was told": {faults: []fakekube.Fault{statusFault(fakekube.Requests{If: fakekube.IsWrite}, 0, 429, "TooManyRequests", nil, "Retry-After", "30")}, at: 20 * time.Second},
		"between two writes of a node":      {at: 1500 * time.Millisecond},
		"in an event":                       {faults: []fakekube.Fault{{On: fakekube.Requests{Resource: "events"}, Do: fakekube.Stall{}}}, at: time.Second, takes: eventsTimeout},
		"standing by":                       {at: 20 * time.Second, args: "-leader-elect"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				f.AddPods(2)
				if c.args != "" {
					startPodcount(t, f, c.args)
					pass(time.Second)
				}
				lift := func() {}
				for _, ft := range c.faults {
					ft.Times = fakekube.Always
					lift = f.Inject(t, ft).Lift
				}
				p := startPodcount(t, f, strings.Fields(c.args)...)
				pass(c.at)
				f.AddPods(3) // more to write
				synctest.Wait()
				begun := func(s fakekube.Request) bool {
					return !strings.Contains(s.Path, "/events") && s.Method+s.Path != "PUT"+leasePath
				}
				before, stopped := len(f.Requests(begun)), time.Now()
				if err := p.Stop(); err != nil || time.Since(stopped) > c.takes {
					t.Errorf("stopped with %v after %v", err, time.Since(stopped))
				}
				for _, s := range f.Requests(begun)[before:] {
					t.Errorf("begun after the stop: %s", s)
				}
				lift()
				f.AddPods(4)
				startPodcount(t, f)
				wantPeace(t, f)
			})
		})
	}
}

func TestNextProcessMakesRightWhatAKilledOneLeftHalfDone(t *testing.T) {
	for name, c := range map[string]struct {
		fault  string // in it the process is killed
		writes int    // that are left to the next
	}{
		"before its patch arrived":                   {"write nodes at a:1: drop request", 1},
		"between its patch and the answer":           {"write nodes at a:1: drop answer", 0},
		"between its patch and the event":            {"create events at a:1: drop request", 0},
		"between the event's arrival and its answer": {"create events at a:1: drop answer", 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				f.AddPods(2)
				met := make(chan struct{})
				fault, err := fakekube.ParseFault(c.fault)
				if err != nil {
					t.Fatal(err)
				}
				fault.Met = func(fakekube.Request) { met <- struct{}{} }
				f.Inject(t, fault)
				a := startPodcount(t, f, "-master", "http://a:1")
				<-met
				f.CutOff("a:1", true)
				a.Stop()
				startPodcount(t, f, "-master", "http://b:1")
				wantPeace(t, f)
				wantNumber(t, "writes by the next", len(f.Requests(func(s fakekube.Request) bool { return s.Host == "b:1" && isWriteOf("nodes")(s) })), c.writes)
			})
		})
	}
}

// Each hears of its own pods' watch and of the other's write, in whatever order.
func TestTwoWithoutAnElectionAgreeAndDoNotFight(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddCount("web", `{"name":"web","count":18}`)
		startPodcount(t, f, "-master", "http://a:1")
		startPodcount(t, f, "-master", "http://b:1")
		changes, more := 1, 0 // the label is news at the start, as is the status
		wantFew := func(when string) {
			t.Helper()
			for _, host := range []string{"a:1", "b:1"} {
				for _, what := range []string{"nodes", "counts"} {
					if n := len(f.Requests(func(s fakekube.Request) bool { return s.Host == host && isWriteOf(what)(s) })); n > changes+more {
						t.Errorf("%s: %s wrote to %s %d times, of %d changes", when, host, what, n, changes)
					}
				}
			}
		}
		for range 16 { // slowly enough that each change is told
			pass(20 * time.Second)
			f.AddPod("default", fmt.Sprint("p", changes), "")
			changes++
		}
		pass(10 * time.Second)
		wantFew("as both see the same")
		catchUp := f.Lag(fakekube.Requests{Resource: "pods", Host: "b:1"}, 0)
		f.AddPod("default", "one", "")
		f.AddPod("default", "two", "")
		pass(30 * time.Second)
		catchUp()
		wantPeaceAndCount(t, f)
		changes, more = changes+1, 5 // one an interval
		wantFew("as one does not hear of pods for a while")
	})
}

// stuckPipe is a pipe whose reader reads only while it is open.
type stuckPipe struct {
	to   io.Writer
	open chan struct{} // closed: everything gets through
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.open
	return p.to.Write(b)
}

// startBlocked starts a replica whose stdout and stderr are pipes that nobody reads, until open is called.
func startBlocked(t *testing.T, f *fakekube.Server, name string, args ...string) (p *program, open func()) {
	n, reading := f.ServeIn(t), make(chan struct{})
	stuck := func(w io.Writer) io.Writer { return &stuckPipe{w, reading} }
	args = append([]string{"-master", "http://" + name + ":1", "-leader-elect", "-interval", "1s"}, args...)
	open = sync.OnceFunc(func() { close(reading) })
	p = startPodcountWith(t, n, wiring{Pipe: stuck}, args...)
	t.Cleanup(open) // before the program is waited for
	return p, open
}

func TestLeaderWhoseOutputNobodyReadsWorksOnStopsAndGivesItsLeaseBack(t *testing.T) {
	for _, verbosity := range []string{"0", "2", "6"} {
		t.Run("-v "+verbosity, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				p, open := startBlocked(t, f, "a", "-v", verbosity, "-controllers", "*,pod-printer")
				pass(5 * time.Second)
				for i := range 300 {
					f.AddPod("default", fmt.Sprint("p", i), "")
					pass(time.Second)
				}
				wantLabel(t, f, "cp", podCountLabel, "300")
				stopped := time.Now()
				if err := p.Stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > eventsTimeout+2*flushTimeout {
					t.Errorf("it took %v to stop", took)
				}
				if fakekube.TextIn(leaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", leaseNow(f))
				}
				open()
			})
		})
	}
}

func TestLeaderWhoseOutputNobodyReadsEndsWhenItsLeaseIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p, open := startBlocked(t, f, "a", "-v", "0")
		pass(10 * time.Second)
		f.PutJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`)
		taken := time.Now()
		p.Finish()
		if took := time.Since(taken); took > 5*time.Second {
			t.Errorf("it took %v to end", took)
		}
		if err := p.Stop(); err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("it ended with %v", err)
		}
		open()
	})
}

// What was dropped is counted, and said where it is missing.
func TestDroppedLinesAreReportedOnceSomebodyReadsAgain(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p, open := startBlocked(t, f, "a", "-v", "6")
		pass(5 * time.Second) // what is in the first list is not logged one by one
		for i := range 6000 { // with two lines each, of 100 bytes and more
			f.AddPod("default", fmt.Sprint("p", i), "")
		}
		pass(time.Minute)
		open()
		pass(time.Second)
		said := regexp.MustCompile(`log lines were dropped, because stderr was not read, or failed" lines=([0-9]+)`).FindAllStringSubmatch(p.Log.String(), -1)
		if len(said) != 1 || said[0][1] == "0" {
			t.Fatalf("said: %q", said)
		}
		f.AddPod("default", "one-more", "")
		pass(time.Second)
		if after := p.Log.String(); !strings.Contains(after, "ADDED Pod default/one-more") {
			t.Error("nothing is logged afterwards")
		}
	})
}

func TestControllerThatHangsKeepsNeitherTheProcessNorTheLease(t *testing.T) {
	for where, goroutine := range map[string]string{"reconcile": "worker of hangs", "tick": "controller hangs"} {
		t.Run(where, func(t *testing.T) {
			hang := make(chan struct{})
			waitIn := func(place string) { // whatever a context says
				if place == where {
					<-hang
				}
			}
			withController(t, Controller{Name: "hangs", Setup: func(m *manager, c *Controller) {
				Watch(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
				c.Resync = func() []Key {
					waitIn("tick")
					return nil
				}
				c.Reconcile = func(context.Context, Key) (Result, error) {
					waitIn("reconcile")
					return Result{}, nil
				}
			}})
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				hang = make(chan struct{})
				defer close(hang)
				f.AddNode("cp", controlPlane)
				p := startReplica(t, f, "a")
				pass(10 * time.Second)
				wantLabel(t, f, "cp", podCountLabel, "0")
				stopped := time.Now()
				if err := p.Stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > drainTimeout+hangTimeout {
					t.Errorf("it took %v to stop", took)
				}
				wantText(t, p.Log.String(), "something hangs: podcount ends without it")
				wantText(t, p.Log.String(), goroutine)
				if fakekube.TextIn(leaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", leaseNow(f))
				}
			})
		})
	}
}

func TestSecondSignalExitsAndCopiesOfTheFirstDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		var stops, exits int
		go obeySignals(signals, func() { stops++ }, func(string) { exits++ })
		want := func(when string, wantStops, wantExits int) {
			t.Helper()
			synctest.Wait()
			if stops != wantStops || exits != wantExits {
				t.Errorf("%s: %d stops and %d exits, want %d and %d", when, stops, exits, wantStops, wantExits)
			}
		}
		want("before any signal", 0, 0)
		signals <- syscall.SIGTERM
		want("after the first", 1, 0)
		signals <- syscall.SIGTERM
		pass(signalCopyWindow - 1)
		signals <- syscall.SIGTERM
		want("after its copies", 1, 0)
		pass(1)
		signals <- os.Interrupt
		want("after the second", 1, 1)
	})
}

func TestStopThatTakesTooLongIsAnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		exits := make(chan string, 2)
		go obeySignals(signals, func() {}, func(why string) { exits <- why })
		signals <- syscall.SIGTERM
		pass(endTimeout - 1)
		wantNumber(t, "exits before its end", len(exits), 0)
		pass(1)
		wantNumber(t, "exits at its end", len(exits), 1)
		wantText(t, <-exits, "the shutdown hangs: it has not ended in 26s")
		close(signals)
	})
}

// Nothing but its own limits may end a wait: neither what never ends, nor what ends late.
func TestWhatDoesNotEndIsLeftBehindAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, never := &logBuffer{}, make(chan struct{})
		m := &manager{log: newLog(log, &options.Options{})}
		m.running.Go("worker of x", func() { <-never })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		m.awaitEnd("a controller", never, ctx)
		if took := time.Since(start); took != 5*time.Second+hangTimeout {
			t.Errorf("it was waited for %v", took)
		}
		wantText(t, log.String(), `what="a controller" running="worker of x"`)
		close(never)
		start = time.Now()
		m.awaitEnd("a controller", never, t.Context())
		if took := time.Since(start); took != 0 {
			t.Errorf("what had ended was waited for %v", took)
		}
	})
}

func TestWriteThatFailsAfterAStopIsSaid(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Delay: 3 * time.Second, Do: fakekube.Reply{Code: 500, Body: "{}"}})
		p := startPodcount(t, f)
		synctest.Wait()
		p.Stop()
		wantText(t, p.Log.String(), "cannot reconcile")
	})
}

func TestStopDoesNotWaitForTheWriteBudget(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", controlPlane)
		f.AddNode("b", controlPlane)
		p := startPodcount(t, f, "-qps", "0.01", "-burst", "1")
		synctest.Wait()
		start := time.Now()
		if err := p.Stop(); err != nil || time.Since(start) != 0 {
			t.Errorf("stopped with %v after %v", err, time.Since(start))
		}
		wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 1)
	})
}

// The fake, like an old server, knows fewer fields than podcount.
func TestFieldThatTheServerDoesNotKnowEndsTheProgramAsWrongUsage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		refusal := fakekube.Status(400, "BadRequest", `Unable to find "/v1, Resource=pods" that match label selector "", `+
			`field selector "spec.hostNetwork=true": field label not supported: spec.hostNetwork`, nil)
		body, _ := json.Marshal(refusal)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "pods"}, Do: fakekube.Reply{Code: 400, Body: string(body)}}) // a server of an older version
		p := startPodcount(t, f, "-field-selector", "spec.hostNetwork=true")
		synctest.Wait()
		var usage options.UsageError
		if err := p.Stop(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "field label not supported: spec.hostNetwork") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestSecretsAreNotLogged(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("another")
		dir := t.TempDir()
		p := startPodcountOn(t, f.ServeAs(t, dir, "token: sEcReT"), "-kubeconfig", filepath.Join(dir, "config"), "-v", "9")
		pass(time.Minute)
		wantText(t, p.Log.String(), "401 Unauthorized")
		if strings.Contains(p.Log.String(), "sEcReT") {
			t.Error("the token is in the log")
		}
	})
}

func TestVerbosityShowsTheInside(t *testing.T) {
	for v, want := range map[string][]string{
		"0": {"level=INFO msg=listed kind=Pod objects=3 rv=", `msg="label written" node=cp label=hopegi/pod-count from=none to=3`},
		"2": {"msg=watching kind=Pod rv="},
		"4": {`msg="ADDED Pod default/late" rv=`, `msg="queue: add" controller=pod-count key=cp`},
		"6": {`msg="GET /api/v1/pods?`, `status="200 OK" took=`, `msg="PATCH /api/v1/nodes/cp?fieldManager=podcount"`},
	} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			f.AddPods(3)
			p := startPodcount(t, f, "-v", v)
			synctest.Wait()
			f.AddPod("default", "late", "")
			synctest.Wait()
			for level, lines := range map[string][]string{"0": {}, "2": {"msg=watching"}, "4": {"queue: add"}, "6": {"GET /api"}} {
				for _, line := range lines {
					if strings.Contains(p.Log.String(), line) != (level <= v) {
						t.Errorf("-v %s: %q is there or not as it should not be", v, line)
					}
				}
			}
			for _, line := range want {
				wantText(t, p.Log.String(), line)
			}
		})
	}
}

func TestLogsAsJSON(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 500, Body: "{}"}})
		p := startPodcount(t, f, "-log-format", "json")
		pass(time.Second)
		wantText(t, p.Log.String(), `"msg":"cannot reconcile","controller":"pod-count","key":"cp"`)
		wantText(t, p.Log.String(), `"took":"0s"`)
		for line := range strings.Lines(p.Log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The manager

func TestControllersHelpListsThem(t *testing.T) {
	out := &logBuffer{}
	if err := run(t.Context(), []string{"-controllers", "help"}, os.Getenv, out, out, nil); err != nil {
		t.Error(err)
	}
	wantNumber(t, "lines of help", strings.Count(out.String(), "\n"), len(controllers))
	wantText(t, out.String(), "pod-printer  off  prints the pods")
	wantText(t, out.String(), "pod-count    on   writes the numbers")
}

func TestControllersShareCachesAndStartALittleApart(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		p := startPodcount(t, f, "-controllers", "*,pod-printer")
		pass(time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, resource := range []string{"pods", "nodes", "counts"} {
			wantNumber(t, "lists of "+resource, len(f.Requests(isList(resource))), 1)
			wantNumber(t, "watches of "+resource, len(f.Requests(fakekube.IsWatch(resource))), 1)
		}
		begins := regexp.MustCompile(`time=(\S+) .*work begins" controller=(\S+)`).FindAllStringSubmatch(p.Log.String(), -1)
		if len(begins) != 3 || begins[0][1] == begins[1][1] || begins[1][1] == begins[2][1] || begins[0][2] != "pod-count" {
			t.Errorf("controllers began as %q", begins)
		}
	})
}

func TestOnlyWhatIsNeededIsAskedFor(t *testing.T) {
	for flags, want := range map[string]string{
		"-controllers=pod-count":   "nodes pods",
		"-controllers=pod-printer": "pods",
		"-controllers=count":       "counts pods",
		"":                         "counts nodes pods",
	} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			startPodcount(t, f, strings.Fields(flags)...)
			pass(time.Minute)
			var asked []string
			for _, resource := range []string{"counts", "nodes", "pods"} {
				if len(f.Requests(isList(resource))) > 0 {
					asked = append(asked, resource)
				}
			}
			if got := strings.Join(asked, " "); got != want {
				t.Errorf("%s asked for %s, want %s", flags, got, want)
			}
			discovered := len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/apis/demo.mark8s.io/v1" })) > 0
			if discovered != strings.Contains(want, "counts") {
				t.Errorf("%s: discovery was asked: %v", flags, discovered)
			}
		})
	}
}

// withController adds a controller for the time of a test.
func withController(t *testing.T, c Controller) {
	before := controllers
	controllers = append(slices.Clip(controllers), c)
	t.Cleanup(func() { controllers = before })
}

func TestControllerThatPanicsTakesNobodyDownAndIsTriedAgain(t *testing.T) {
	var reconciled atomic.Int32
	withController(t, Controller{Name: "broken", Setup: func(m *manager, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) []Key {
			if d.Old == nil {
				panic("keys of a new pod")
			}
			return []Key{d.Key()}
		})
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			var nothing *Pod
			return Result{}, errors.New(nothing.NodeName)
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f)
		pass(20 * time.Second)
		f.AddPod("default", "more", "")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if n := reconciled.Load(); n < 10 || n > 40 { // two keys, each with a backoff from 5 ms on
			t.Errorf("tried %d times", n)
		}
		wantNumber(t, "stacks", strings.Count(p.Log.String(), "a controller panics"), 1)
		wantText(t, p.Log.String(), "level=ERROR msg=\"a controller panics\" controller=broken")
		wantText(t, p.Log.String(), "main_test.go")
		wantText(t, p.Log.String(), `msg="cannot reconcile" controller=broken`)
		wantPeace(t, f)
	})
}

func TestControllerWhoseRightsAreMissingHoldsUpNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.Forbid("list counts", true)
		f.AddCount("web", `{"name":"web","count":1}`)
		p := startPodcount(t, f)
		f.AddPods(2)
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantText(t, p.Log.String(), `the RBAC rule that allows it: apiGroups [\"demo.mark8s.io\"], resources [\"counts\"], verbs [\"list\"]`)
		f.Forbid("list counts", false)
		pass(time.Minute)
		wantText(t, f.CountStatus("web"), "false 2 1")
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "counts"}, Do: fakekube.Reply{Code: 400, Body: `{"kind":"Status","reason":"BadRequest","message":"no","code":400}`}})
		f.Compact()
		f.EndWatches(false)
		pass(time.Minute)
		f.AddPods(3)
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		wantText(t, f.CountStatus("web"), "false 3 1")
	})
}

func discoveries(f *fakekube.Server) int {
	return len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/apis/demo.mark8s.io/v1" }))
}

func TestControllerWaitsForItsCRDStandsDownWithItAndComesBack(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f)
		pass(10 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantNumber(t, "lines about the wait", strings.Count(p.Log.String(), "is its CRD installed?"), 1)
		wantNumber(t, "warnings", strings.Count(p.Log.String(), "level=WARN"), 0)
		wantNumber(t, "lists of Counts", len(f.Requests(isList("counts"))), 0)
		if n := discoveries(f); n < 50 || n > 76 {
			t.Errorf("%d discoveries in 10 minutes, want one each 8 to 12 s", n)
		}
		for range 2 {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			f.AddCount("web", `{"name":"web","count":2}`)
			pass(13 * time.Second)
			wantText(t, f.CountStatus("web"), "true 2 1")
			f.InstallCRD(nil)
			pass(time.Second)
			lists := len(f.Requests(isList("counts")))
			pass(time.Minute)
			if n := len(f.Requests(isList("counts"))) - lists; n > 6 {
				t.Errorf("%d lists of what is gone", n)
			}
			lists = len(f.Requests(isList("counts"))) + len(f.Requests(fakekube.IsWatch("counts")))
			pass(time.Minute)
			wantNumber(t, "requests for Counts after the stand-down", len(f.Requests(isList("counts")))+len(f.Requests(fakekube.IsWatch("counts")))-lists, 0)
		}
		wantNumber(t, "stand-downs", strings.Count(p.Log.String(), "the resource is gone"), 2)
		wantNumber(t, "words on the deleted Count", strings.Count(p.Log.String(), "a Count is gone"), 2)
		f.AddPods(4)
		pass(11 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "4")
	})
}

// A CRD that is new, or whose server has just begun, answers so for a moment.
func TestRetryAfterOfDiscoveryIsHonoured(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		startPodcount(t, f)
		pass(time.Second)
		f.Inject(t, statusFault(fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}, 1, 429, "TooManyRequests", nil, "Retry-After", "60"))
		meetFaults(t, f)
		asked := discoveries(f)
		pass(59 * time.Second)
		wantNumber(t, "questions while the server wants none", discoveries(f)-asked, 0)
		pass(13 * time.Second) // a fifth more, by chance
		if discoveries(f) == asked {
			t.Error("it is not asked again")
		}
	})
}

func TestMomentOfA404OrA429StandsNothingDown(t *testing.T) {
	discovery := fakekube.Requests{Resource: "/apis/demo.mark8s.io/v1"}
	counts := fakekube.Requests{Resource: "counts"}
	text := map[string]string{"Content-Type": "text/plain; charset=utf-8"}
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":1}`)
		f.Inject(t, fakekube.Fault{On: counts, Times: 2, Do: fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"}})
		f.Inject(t, fakekube.Fault{On: counts, Times: 2, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Retry-After": "1"}, Body: `{"kind":"Status","reason":"TooManyRequests","message":"storage is (re)initializing","code":429}`}})
		p := startPodcount(t, f)
		pass(45 * time.Second)
		wantText(t, f.CountStatus("web"), "false 0 1")
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"}})
		pass(30 * time.Second)
		for _, code := range []int{500, 503, 429, 403} { // no answers
			f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Code: code, Body: "{}"}})
		}
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Code: 404, Header: text, Body: "404 page not found\n"}})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `{"kind":"Other"}`}})
		f.Inject(t, fakekube.Fault{On: discovery, Do: fakekube.Reply{Body: `garbage`}})
		pass(2 * time.Minute)
		f.AddPod("default", "a", "")
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "true 1 1")
		wantNumber(t, "stand-downs", strings.Count(p.Log.String(), "the resource is gone"), 0)
		wantNumber(t, "lists of Counts", len(f.Requests(isList("counts"))), 5)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The controller count

// countWrites are the patches of Counts.
func countWrites(f *fakekube.Server) (bodies []string) {
	for _, s := range f.Requests(func(s fakekube.Request) bool { return s.Method == "PATCH" && strings.Contains(s.Path, "/counts/") }) {
		bodies = append(bodies, strings.TrimPrefix(s.Path, "/apis/demo.mark8s.io/v1/namespaces/default/counts/")+" "+s.Body)
	}
	return bodies
}

// countEvents are the events on Counts, by reason and message, with how often each was posted.
func countEvents(f *fakekube.Server) string {
	var all []string
	for _, e := range f.All("events") {
		if about := e["involvedObject"].(fakekube.Object); fakekube.TextIn(about, "kind") == "Count" {
			all = append(all, fmt.Sprintf("%s %s %s (%v)", fakekube.TextIn(e, "type"), fakekube.TextIn(e, "reason"), fakekube.TextIn(e, "message"), e["count"]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func TestCountSaysWhetherAsManyPodsAreThereAsItWants(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		f.AddPodWithLabels("b", fakekube.Object{"run": "nginx", "app": "nginx", "app.kubernetes.io/name": "nginx"}) // once
		f.AddPodWithLabels("c", fakekube.Object{"app": "other"})
		f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": "kube-system", "name": "d", "labels": fakekube.Object{"app": "nginx"}}, "")) // elsewhere
		count := f.AddCount("web", `{"name":"nginx","count":3}`)
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "false 2 1")
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 3 pods of nginx, have 2 (1)")
		f.AddPodWithLabels("e", fakekube.Object{"app.kubernetes.io/name": "nginx"})
		pass(time.Second) // the first change at once, then one a second
		wantText(t, f.CountStatus("web"), "true 3 1")
		wantText(t, countEvents(f), "Normal CountMatched want 3 pods of nginx, have 3 (1); Normal Synced Count synced successfully (1);")

		finished := fakekube.Clone(f.Get("pods", at("default", "e"))) // finished and dying pods count
		finished["status"] = fakekube.Object{"phase": "Succeeded"}
		fakekube.MetaOf(finished)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.Put("pods", finished)
		pass(time.Minute)
		wantText(t, f.CountStatus("web"), "true 3 1")
		f.Remove("pods", at("default", "e"))
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "false 2 1")
		f.AddPodWithLabels("a", fakekube.Object{"app": "other"}) // a pod that changes sides
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "false 1 1")

		f.AddCount("web", `{"name":"nginx","count":1}`)
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "true 1 2")
		wantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.AddCount("web", `{"name":"nginx","count":1,"note":"another spec, that means the same"}`)
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "true 1 3")
		wantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.AddCount("web", `{"name":"other","count":1}`)
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "false 2 4")
		writes := len(countWrites(f))
		pass(time.Hour)
		wantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
		uid := fakekube.TextIn(fakekube.MetaOf(count), "uid")
		for i, body := range countWrites(f) {
			if !strings.HasPrefix(body, "web/status {") || !strings.Contains(body, `"uid":"`+uid+`"`) || strings.Contains(body, "resourceVersion") {
				t.Errorf("write %d: %s", i, body)
			}
		}
		f.Remove("counts", at("default", "web"))
		pass(time.Minute)
		wantNumber(t, "words on the deletion", strings.Count(p.Log.String(), `msg="a Count is gone" count=default/web`), 1)
		f.AddCount("web", `{"name":"other","count":2}`)
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "true 2 1")
	})
}

func TestStatusIsWrittenAtOnceThenOnceASecondAndTheLastStateAlways(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"nginx","count":50}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		writes := len(countWrites(f))
		for i := range 50 { // in five seconds
			f.AddPodWithLabels(fmt.Sprint("p", i), fakekube.Object{"app": "nginx"})
			if synctest.Wait(); i == 0 {
				wantText(t, f.CountStatus("web"), "false 1 1")
			}
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "true 50 1")
		wantNumber(t, "writes", len(countWrites(f))-writes, 6)
	})
}

// The watch is late: it has not told yet that the object was made anew, or is gone.
func TestWriteThatFindsAnotherObjectIsNotTriedAgainWithEachPod(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddCount("web", `{"name":"web","count":1}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		catchUp := f.Lag(fakekube.Requests{If: func(s fakekube.Request) bool { return !strings.HasSuffix(s.Path, "/pods") }}, 0)
		pass(time.Second)
		f.Remove("nodes", fakekube.Key{Name: "cp"})
		f.AddNode("cp", controlPlane)
		f.Remove("counts", at("default", "web"))
		before := len(f.Requests(fakekube.IsWrite))
		for i := range 100 { // ten seconds
			f.AddPod("default", fmt.Sprint("p", i), "")
			pass(100 * time.Millisecond)
		}
		if n := len(f.Requests(fakekube.IsWrite)) - before; n < 2 || n > 4 {
			t.Errorf("%d writes, of one an interval to the node and to the Count", n)
		}
		catchUp()
		wantPeace(t, f)
	})
}

// No watch will tell it before the list of the hour.
func TestCountWhoseDeletionIsLostIsWrittenToOnceAnInterval(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":1}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		f.LoseEvents(1)
		f.Remove("counts", at("default", "web"))
		f.AddPod("default", "a", "")
		before := len(f.Requests(fakekube.IsWrite))
		pass(10 * time.Minute)
		if n := len(f.Requests(fakekube.IsWrite)) - before; n < 1 || n > 61 {
			t.Errorf("%d writes in ten minutes", n)
		}
		pass(time.Hour)
		before = len(f.Requests(fakekube.IsWrite))
		pass(10 * time.Minute)
		wantNumber(t, "writes then", len(f.Requests(fakekube.IsWrite))-before, 0)
	})
}

func TestPodsChangeConcernsItsCountsAlone(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		for i := range 300 {
			f.AddCount(fmt.Sprintf("c%d", i), fmt.Sprintf(`{"name":"n%d","count":1}`, i/2))
		}
		p := startPodcount(t, f, "-v", "4", "-qps", "1000")
		pass(time.Minute)
		before := strings.Count(p.Log.String(), `"queue: get" controller=count`)
		f.AddPodWithLabels("a", fakekube.Object{"app": "n7"})
		synctest.Wait()
		wantText(t, f.CountStatus("c14"), "true 1 1")
		wantText(t, f.CountStatus("c15"), "true 1 1")
		after := strings.Count(p.Log.String(), `"queue: get" controller=count`)
		if n := after - before; n < 2 || n > 4 {
			t.Errorf("a pod and two writes made %d keys", n)
		}
		f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": "default", "name": "a", "labels": fakekube.Object{"app": "n7", "x": "y"}}, "n1"))
		synctest.Wait()
		wantNumber(t, "keys after a change that concerns no Count", strings.Count(p.Log.String(), `"queue: get" controller=count`)-after, 0)
	})
}

func TestInvalidCountGetsAWarningAndDisturbsNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		for spec, want := range map[string]string{
			`{"count":3}`:                           "spec.name is missing, and must be the name of an app",
			`{"name":"","count":3}`:                 `spec.name is "", and must be`,
			`{"name":5,"count":3}`:                  "spec.name is 5, and must be",
			`{"name":["x"],"count":3}`:              `spec.name is ["x"], and must be`,
			`{"name":"x"}`:                          "spec.count is missing, and must be a whole number, 0 or more",
			`{"name":"x","count":null}`:             "spec.count is missing",
			`{"name":"x","count":-1}`:               "spec.count is -1, and must be",
			`{"name":"x","count":"3"}`:              `spec.count is "3", and must be`,
			`{"name":"x","count":1.5}`:              "spec.count is 1.5, and must be",
			`{"name":"x","count":1e300}`:            "spec.count is 1e+300, and must be",
			`{"name":"x","count":{"a":1}}`:          `spec.count is {"a":1}, and must be`,
			`"hello"`:                               "spec.name is missing",
			`null`:                                  "spec.name is missing",
			`[1]`:                                   "spec.name is missing",
			`{"name":"x","count":99999999999999e9}`: "spec.count is 9.9999999999999e+22, and must be",
		} {
			f.AddCount("bad", spec)
			pass(time.Second)
			if events := countEvents(f); !strings.Contains(events, "Warning InvalidCount "+want) {
				t.Errorf("%s: no %q in %s", spec, want, events)
			}
			f.Remove("counts", at("default", "bad"))
			pass(10 * time.Second)
			for _, e := range f.All("events") {
				f.Remove("events", fakekube.KeyOf(e))
			}
		}
		wantNumber(t, "writes", len(countWrites(f)), 0)
		f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"odd"},"spec":{"name":"nginx","count":1,"nodeName":5},"status":"hello"}`)
		f.AddCount("good", `{"name":"nginx","count":1}`)
		pass(time.Second)
		wantText(t, f.CountStatus("good"), "true 1 1")
		wantText(t, f.CountStatus("odd"), "true 1 1")
		f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"good"},"spec":{"name":"nginx","count":"1"},"status":{"healthy":true,"count":1,"observedGeneration":1}}`)
		pass(time.Second)
		wantText(t, f.CountStatus("good"), "false 1 1") // what it says was said of another spec
		f.AddCount("good", `{"name":"nginx","count":2}`)
		pass(time.Second)
		wantText(t, f.CountStatus("good"), "false 1 3")
		f.EndWatches(false)
		f.Compact() // what is invalid stands in lists, too
		f.AddCount("bad", `"hello"`)
		f.Compact()
		pass(time.Minute)
		f.AddPodWithLabels("b", fakekube.Object{"app": "nginx"})
		pass(time.Second)
		wantText(t, f.CountStatus("good"), "true 2 3")
		wantText(t, f.CountStatus("odd"), "false 2 1")
		wantNumber(t, "complaints", strings.Count(p.Log.String(), "undecodable"), 0)
	})
}

func TestWithoutAStatusSubresourceTheObjectIsPatchedAndGenerationSaysNothing(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{})
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		f.AddCount("web", `{"name":"nginx","count":2}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Hour)
		uid := fakekube.TextIn(fakekube.MetaOf(f.Get("counts", at("default", "web"))), "uid")
		write := func(healthy bool, n int) string {
			return fmt.Sprintf(`web {"metadata":{"uid":"%s"},"status":{"healthy":%v,"count":%d}}`, uid, healthy, n)
		}
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1)}) {
			t.Errorf("writes: %q", got)
		}
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of nginx, have 1 (1)")
		f.AddPodWithLabels("b", fakekube.Object{"app": "nginx"})
		pass(time.Hour)
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1), write(true, 2)}) {
			t.Errorf("writes: %q", got)
		}
		wantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":3},"status":{"healthy":true,"count":2}}`)
		pass(time.Hour)
		wantNumber(t, "writes", len(countWrites(f)), 3)
		wantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":5},"status":{"healthy":false,"count":2}}`)
		pass(time.Hour) // not a write, but news
		wantNumber(t, "writes", len(countWrites(f)), 3)
		wantText(t, countEvents(f), "want 5 pods of nginx, have 2 (1)")
		wantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.InstallCRD(&fakekube.CRD{HasStatus: true}) // somebody adds the subresource
		pass(time.Minute)
		wantText(t, f.CountStatus("web"), "false 2 6")
		if got := countWrites(f); len(got) != 4 || !strings.HasPrefix(got[3], "web/status ") {
			t.Errorf("writes: %q", got)
		}
		f.InstallCRD(&fakekube.CRD{}) // and removes it
		pass(time.Minute)
		f.Remove("pods", at("default", "b"))
		pass(time.Minute)
		if got := countWrites(f); len(got) != 5 || got[4] != write(false, 1) {
			t.Errorf("writes: %q", got)
		}
	})
}

func TestSchemaThatDropsTheStatusIsFoundInTheFirstAnswer(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status, DropsStatus: true})
			for i := range 20 {
				f.AddCount(fmt.Sprintf("c%d", i), `{"name":"nginx","count":1}`)
			}
			p := startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			writes := len(countWrites(f))
			if writes < 1 || writes > 4 { // -workers, that had begun when the first answer came
				t.Errorf("%d writes", writes)
			}
			f.AddCount("c0", `{"name":"nginx","count":2}`)
			synctest.Wait()
			f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
			pass(time.Hour)
			if more := len(countWrites(f)) - writes; more < 5 || more > 6*4 {
				t.Errorf("%d more writes in an hour, want one or, by the workers, a few in ten minutes", more)
			}
			wantNumber(t, "words on it", strings.Count(p.Log.String(), "statuses do not stay"), 1)
			for want, n := range map[string]int{"Synced": 20, "CountMatched": 19} { // events tell, still
				reasons := 0
				for _, e := range f.All("events") {
					if fakekube.TextIn(e, "reason") == want {
						reasons++
					}
				}
				wantNumber(t, want, reasons, n)
			}
			wantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
			f.InstallCRD(nil)
			pass(time.Minute)
			f.InstallCRD(&fakekube.CRD{HasStatus: status}) // mended
			f.AddCount("web", `{"name":"nginx","count":1}`)
			pass(time.Minute)
			wantText(t, f.CountStatus("web"), "true 1 ")
		})
	}
}

func TestRestartSaysNothingOfCountsAgain(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status})
			f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
			f.AddCount("good", `{"name":"nginx","count":1}`)
			f.AddCount("bad", `{"name":"nginx","count":2}`)
			startPodcount(t, f, "-pod-events", "off").Stop()
			startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			before, writes := countEvents(f), len(countWrites(f))
			startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			if after := countEvents(f); after != before || len(countWrites(f)) != writes {
				t.Errorf("events before %s, after %s; %d writes, then %d", before, after, writes, len(countWrites(f)))
			}
		})
	}
}

func TestStatusOfACountThatFailedOrWasChangedByAnotherIsWrittenAgain(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.Inject(t, statusFault(fakekube.Requests{Resource: "counts/status"}, 3, 500, "InternalError", nil))
		f.AddCount("web", `{"name":"nginx","count":0}`)
		f.AddCount("other", `{"name":"other","count":0}`)
		p := startPodcount(t, f)
		pass(time.Minute)
		wantText(t, f.CountStatus("web"), "true 0 1")
		wantText(t, f.CountStatus("other"), "true 0 1")
		wantText(t, p.Log.String(), `msg="cannot reconcile" controller=count key=default/`)
		f.PutJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":0},"status":{"healthy":false,"count":7}}`)
		pass(10 * time.Second)
		wantText(t, f.CountStatus("web"), "true 0 1")
		wantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.Script(t, "patch counts/status: drop request") // did not arrive
		f.Script(t, "patch counts/status: drop answer")  // did, but the answer was lost
		f.AddPodWithLabels("a", fakekube.Object{"app": "nginx"})
		pass(time.Minute)
		wantText(t, f.CountStatus("web"), "false 1 1")
		writes := len(countWrites(f))
		pass(time.Hour)
		wantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
	})
}

// The answer to our write brings what others have written before it.
func TestChangeOfACountThatComesWithTheAnswerToOurWriteIsNotLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddCount("web", `{"name":"web","count":2}`)
		startPodcount(t, f)
		pass(time.Second)
		wantText(t, f.CountStatus("web"), "false 0 1")
		f.Script(t, "watch counts: delay 5s")
		f.EndWatches(false)
		pass(time.Second)
		f.AddCount("web", `{"name":"web","count":1}`) // no watch tells it yet
		f.AddPodWithLabels("a", fakekube.Object{"app": "web"})
		pass(time.Hour)
		wantText(t, f.CountStatus("web"), "true 1 2")
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
	})
}

func TestEventsOfACountArePostedThoughTheAnswerToItsFirstWriteIsLost(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: status})
			f.AddCount("web", `{"name":"web","count":2}`)
			f.Script(t, "patch counts*: drop answer")
			startPodcount(t, f)
			pass(time.Minute)
			wantText(t, f.CountStatus("web"), "false 0 ")
			wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of web, have 0 (1)")
		})
	}
}

func TestFirstWriteThatHangsHoldsUpNoOtherCount(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		for i := range 10 {
			f.AddCount(fmt.Sprintf("c%d", i), `{"name":"web","count":0}`)
		}
		f.Script(t, "patch counts*: stall")
		p := startPodcount(t, f)
		pass(3 * time.Second)
		right := 0
		for i := range 10 {
			if strings.HasPrefix(f.CountStatus(fmt.Sprintf("c%d", i)), "true 0 ") {
				right++
			}
		}
		wantNumber(t, "Counts with a status beside the one that hangs", right, 9)
		stopped := time.Now()
		p.Stop()
		if took := time.Since(stopped); took > drainTimeout+eventsTimeout {
			t.Errorf("it stopped after %v", took)
		}
	})
}

func TestPodPrinterPrints(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddPod("default", "a", "")
		p := startPodcount(t, f, "-controllers", "pod-printer")
		pass(time.Second)
		f.AddPod("default", "b", "")
		synctest.Wait()
		f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": "default", "name": "b", "labels": fakekube.Object{"app": "web", "new": "label"}}, ""))
		synctest.Wait()
		f.Remove("pods", at("default", "a"))
		synctest.Wait()
		// The deletion shows first as a change of the pod: it is looked at once for both, or twice.
		const come, gone = "Sync/Add/Update for Pod default/%s\n", "Pod default/a does not exist anymore\n"
		a, b := fmt.Sprintf(come, "a"), fmt.Sprintf(come, "b")
		if !regexp.MustCompile("^" + a + b + b + "(" + a + ")?(" + gone + "){1,2}$").MatchString(p.Out.String()) {
			t.Errorf("printed:\n%s", p.Out)
		}
		wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 0)
	})
}

// The bytes in the tour are those of the recording, which is what the tour says it is.
func TestTourShowsRealBytes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	frame := recording(t, "watch-added.pb")
	var shown []byte
	for _, m := range regexp.MustCompile(`(?m)^    00[0-9a-f]0  ((?:[0-9a-f]{2} +)+)`).FindAllStringSubmatch(string(readme), -1) {
		line, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, line...)
	}
	if len(shown) < 160 || !bytes.HasPrefix(frame, shown) {
		t.Errorf("%d bytes are shown; the recording has % x", len(shown), frame[:160])
	}
	wantText(t, string(readme), fmt.Sprintf("%d bytes more come out of it", len(frame)))
	kind := podKind()
	kind.Labels = []string{"app"}
	events := 0
	err = newDecoder(kind).events(bytes.NewReader(frame), true, func(ev WatchEvent[*Pod]) error {
		events++
		p := ev.Object
		if ev.Type != "ADDED" || p.Key().String() != "default/web-0" || p.UID() != "cc0c67d4-f651-49fc-b1ea-6eb2223f16f7" || p.ResourceVersion() != "432" || labelsOf(&p.Meta)["app"] != "web" {
			t.Errorf("%+v", ev)
		}
		return nil
	})
	if err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

// The text in the README is compiled into podcount, and run.
func TestControllerOfTheReadmeRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(readme), "## Write your own controller")
	_, text, _ = strings.Cut(text, "```go\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("the README shows no controller")
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("the README's controller has %d lines", n)
	}
	dir := t.TempDir()
	for _, file := range []string{"main.go", "watch.go", "cache.go", "queue.go", "go.mod"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFiles(t, dir, map[string]string{file: string(code)})
	}
	for _, folder := range []string{"deploy", "internal"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	_, metric, found := strings.Cut(string(readme), "In a file of your own, register it there instead:\n\n```go\n")
	metric, _, closed = strings.Cut(metric, "```")
	if !found || !closed {
		t.Fatal("the README shows no metric")
	}
	writeFiles(t, dir, map[string]string{
		"crowded.go": text,
		"metric.go":  "package main\n\nimport \"podcount/internal/metrics\"\n\n" + metric,
	})
	build := exec.Command("go", "build", "-o", "podcount", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f := fakekube.New()
	server, ca := f.ServeTLSFor(t)
	f.Allow("me")
	f.AddNode("n1")
	f.AddNode("n2")
	for i := range 101 {
		f.AddPod("default", fmt.Sprintf("web-%d", i), "n1")
	}
	writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: me")})
	cmd := exec.Command(filepath.Join(dir, "podcount"), "-kubeconfig", filepath.Join(dir, "config"), "-controllers", "crowded", "-log-format", "json")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	f.Await(t, "the event", func() bool { return len(eventsOf(f, "Crowded")) > 0 })
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if got := eventsOf(f, "Crowded"); len(got) != 1 || !strings.Contains(got[0], "n1") {
		t.Errorf("events: %q", got)
	}
	wantNumber(t, "writes", len(f.Requests(fakekube.IsWrite)), 0)
}

// ---------------------------------------------------------------------------------------------------------------------
// Leader election

// leaderAt is the replica that has sent the newest write.
func leaderAt(f *fakekube.Server) string {
	writes := f.Requests(func(s fakekube.Request) bool { return s.Method != "GET" && !strings.Contains(s.Path, "/leases/") })
	if len(writes) == 0 {
		return "nobody"
	}
	return strings.TrimSuffix(writes[len(writes)-1].Host, ":1")
}

// wantOneLeader fails the test if a write was sent by somebody who did not hold the lease then, by the server's own history.
func wantOneLeader(t *testing.T, f *fakekube.Server) {
	t.Helper()
	type span struct {
		host string
		at   time.Time
	}
	var renewed []span            // each PUT of the lease that the server took, by whom
	holder := map[string]string{} // identity by host
	for _, s := range f.Requests(func(fakekube.Request) bool { return true }) {
		if s.Method == "PUT" && s.Path == leasePath {
			var l struct {
				Spec struct{ HolderIdentity, RenewTime string }
			}
			json.Unmarshal([]byte(s.Body), &l)
			if l.Spec.HolderIdentity != "" {
				holder[s.Host] = l.Spec.HolderIdentity
			}
			for _, e := range f.Changes() {
				if spec, _ := e.New["spec"].(fakekube.Object); e.Resource == "leases" && fakekube.TextIn(spec, "renewTime") == l.Spec.RenewTime && fakekube.TextIn(spec, "holderIdentity") == holder[s.Host] {
					renewed = append(renewed, span{s.Host, s.At})
				}
			}
		}
		if s.Method == "GET" || strings.Contains(s.Path, "/leases/") {
			continue
		}
		if len(renewed) == 0 || renewed[len(renewed)-1].host != s.Host || s.At.Sub(renewed[len(renewed)-1].at) >= 10*time.Second {
			t.Errorf("%s wrote %s at %s; the lease was renewed by %v", s.Host, s.Path, s.At.Format("15:04:05.000"), renewed[max(0, len(renewed)-1):])
		}
	}
}

func TestOneOfThreeReplicasWritesAndTheOthersKeepTheirCachesWarm(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddCount("web", `{"name":"web","count":1}`)
		replicas := map[string]*program{}
		for _, name := range []string{"a", "b", "c"} {
			replicas[name] = startReplica(t, f, name)
		}
		pass(time.Minute)
		first := leaderAt(f)
		for range 30 {
			f.AddPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(2 * time.Second)
		}
		wantLabel(t, f, "cp", podCountLabel, "30")
		wantText(t, f.CountStatus("web"), "false 30 1")
		if leaderAt(f) != first {
			t.Errorf("%s led, then %s", first, leaderAt(f))
		}
		for name, p := range replicas {
			wantNumber(t, name+"'s lists of pods", len(f.Requests(func(s fakekube.Request) bool { return s.Host == name+":1" && isList("pods")(s) })), 1)
			wantNumber(t, "mentions of the holder by "+name, strings.Count(p.Log.String(), "standing by"), map[bool]int{true: 0, false: 1}[name == first])
		}
		stopped := time.Now()
		if err := replicas[first].Stop(); err != nil {
			t.Error(err)
		}
		wantText(t, replicas[first].Log.String(), "the lease is released")
		if fakekube.TextIn(leaseNow(f), "holderIdentity") != "" || leaseNow(f)["leaseDurationSeconds"] != 1.0 {
			t.Errorf("after the release: %v", leaseNow(f))
		}
		f.AddPod("default", "last", "")
		for f.Label("cp", podCountLabel) != "31" {
			pass(100 * time.Millisecond)
			if time.Since(stopped) > 5*time.Second {
				t.Fatal("no other replica has taken over within 5 s")
			}
		}
		second := leaderAt(f)
		won, _ := time.Parse(time.RFC3339, fakekube.TextIn(leaseNow(f), "acquireTime"))
		writes := f.Requests(func(s fakekube.Request) bool { return s.Host == second+":1" && isWriteOf("nodes")(s) })
		if took := writes[0].At.Sub(won); took > time.Second {
			t.Errorf("the new leader first wrote %v after it was elected", took)
		}
		if second == first || leaseNow(f)["leaseTransitions"] != 1.0 {
			t.Errorf("%s follows %s: %v", second, first, leaseNow(f))
		}
		wantOneLeader(t, f)
	})
}

// As when a machine comes back, or a whole deployment is scaled up.
func TestTwentyReplicasThatStartTogetherDoNotAskTogether(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		start := time.Now()
		for i := range 20 {
			startReplica(t, f, fmt.Sprint("r", i))
		}
		pass(2 * time.Second)
		first := map[string]time.Time{}
		for _, s := range f.Requests(func(fakekube.Request) bool { return true }) {
			if first[s.Host].IsZero() {
				first[s.Host] = s.At
			}
		}
		at := slices.SortedFunc(maps.Values(first), time.Time.Compare)
		wantNumber(t, "replicas that have begun", len(at), 20)
		for i, a := range at {
			if i+10 < len(at) && at[i+10].Sub(a) < 100*time.Millisecond { // would be chance once in 10,000 times
				t.Fatalf("half of them ask within 100 ms: %v", at)
			}
		}
		if at[0].Sub(start) > 500*time.Millisecond || at[19].Sub(start) > time.Second || at[19].Sub(at[0]) < 500*time.Millisecond {
			t.Errorf("they first ask from %v to %v after the start", at[0].Sub(start), at[19].Sub(start))
		}
		wantPeace(t, f, "-interval", "1s")
		wantOneLeader(t, f)
	})
}

func TestLeaseIsWrittenAsClientGoDoes(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := startReplica(t, f, "a")
		pass(time.Second)
		made := leaseNow(f)
		host, _ := os.Hostname()
		if id := fakekube.TextIn(made, "holderIdentity"); !regexp.MustCompile("^" + regexp.QuoteMeta(host) + "_[0-9a-f]{16}$").MatchString(id) {
			t.Errorf("the identity is %s", id)
		}
		if made["leaseDurationSeconds"] != 15.0 || made["leaseTransitions"] != 0.0 || !regexp.MustCompile(`^2000-01-01T00:00:00\.[0-9]{6}Z$`).MatchString(fakekube.TextIn(made, "acquireTime")) || made["renewTime"] != made["acquireTime"] {
			t.Errorf("the lease was made as %v", made)
		}
		metaOf := fakekube.Object{"metadata": fakekube.Object{"namespace": "kube-system", "name": "podcount", "labels": fakekube.Object{"theirs": "stays"}}, "spec": made}
		f.Put("leases", metaOf) // somebody labels it: a conflict, and no reason to do more than look again
		pass(8 * time.Second)
		if now := leaseNow(f); now["acquireTime"] != made["acquireTime"] || now["renewTime"] == made["renewTime"] || now["leaseTransitions"] != 0.0 {
			t.Errorf("renewed, it is %v", now)
		}
		labels, _ := f.Get("leases", leaseKey)["metadata"].(fakekube.Object)["labels"].(fakekube.Object)
		if labels["theirs"] != "stays" {
			t.Errorf("its labels are %v", labels)
		}
		var asked []string
		for _, s := range f.Requests(func(s fakekube.Request) bool { return s.Path == leasePath }) {
			asked = append(asked, s.Method)
		}
		if got := strings.Join(asked, " "); got != "GET PUT PUT GET PUT PUT PUT PUT" { // made, conflict, looked, renewed …
			t.Errorf("requests: %s", got)
		}
		f.Remove("leases", leaseKey) // and somebody removes it
		pass(10 * time.Second)
		if fakekube.TextIn(leaseNow(f), "holderIdentity") != fakekube.TextIn(made, "holderIdentity") {
			t.Errorf("it was not made again: %v", leaseNow(f))
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "POSTs", len(f.Requests(func(s fakekube.Request) bool { return s.Method == "POST" && strings.Contains(s.Path, "leases") })), 0)
	})
}

func TestLeaseOfAnotherIsTakenOnceItHasNotChangedForItsDurationWhateverItsTimesSay(t *testing.T) {
	lease := func(at time.Time) fakekube.Object {
		text := at.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		return fakekube.Object{"holderIdentity": "other", "leaseDurationSeconds": 20, "acquireTime": text, "renewTime": text, "leaseTransitions": 4}
	}
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			put := func() {
				f.Put("leases", fakekube.Object{"metadata": fakekube.Object{"namespace": "kube-system", "name": "podcount"}, "spec": lease(time.Now().Add(skew))})
			}
			put()
			p := startReplica(t, f, "a")
			for range 30 { // it is alive
				pass(2 * time.Second)
				put()
			}
			o := fakekube.Clone(f.Get("leases", leaseKey)) // now it is dead; others may still touch its Lease
			for range 9 {
				pass(2 * time.Second)
				fakekube.MetaOf(o)["annotations"] = fakekube.Object{"touched": time.Now().String()}
				f.Put("leases", o)
			}
			if leaderAt(f) != "nobody" || fakekube.TextIn(leaseNow(f), "holderIdentity") != "other" {
				t.Errorf("skew %v: taken from its holder: %v", skew, leaseNow(f))
			}
			pass(11 * time.Second) // 20 s from when it was seen, which may be 4.4 s late, and 4.4 s until the next look
			wantLabel(t, f, "cp", podCountLabel, "0")
			if now := leaseNow(f); now["leaseTransitions"] != 5.0 || now["acquireTime"] == o["spec"].(fakekube.Object)["acquireTime"] || now["leaseDurationSeconds"] != 15.0 {
				t.Errorf("skew %v: it was taken as %v", skew, now)
			}
			wantNumber(t, "words on its holder", strings.Count(p.Log.String(), "standing by"), 1)
		})
	}
}

func TestOddLeasesAreTakenAsByClientGo(t *testing.T) {
	for text, takes := range map[string]time.Duration{ // and how long that may take
		`{}`: time.Second,
		`{"holderIdentity":null,"leaseDurationSeconds":null,"acquireTime":null,"renewTime":null,"leaseTransitions":null}`: time.Second,
		`{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":3}`:                                             time.Second,
		`{"leaseDurationSeconds":3600}`:                          time.Second,
		`{"holderIdentity":"x"}`:                                 5 * time.Second, // at the second look
		`{"holderIdentity":"x","leaseDurationSeconds":-5}`:       5 * time.Second,
		`{"holderIdentity":"x","leaseDurationSeconds":10}`:       16 * time.Second,
		`{"holderIdentity":"x","strategy":"y","future":{"a":1}}`: 5 * time.Second,
	} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			f.PutJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":`+text+`}`)
			startReplica(t, f, "a")
			start := time.Now()
			for f.Label("cp", podCountLabel) == "-" && time.Since(start) < time.Minute {
				pass(100 * time.Millisecond)
			}
			took := time.Since(start)
			if took > takes+time.Second || took < takes/4 && takes > time.Second {
				t.Errorf("%s was taken after %v, want %v", text, took, takes)
			}
		})
	}
}

func TestLeaderThatCannotRenewStopsWritingAtItsDeadlineAndExits1AndAnotherTakesOver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		replicas := map[string]*program{"a": startReplica(t, f, "a"), "b": startReplica(t, f, "b")}
		pass(30 * time.Second)
		first := leaderAt(f)
		cut := time.Now()
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Host: first + ":1", Verb: "update"}, Do: fakekube.Stall{}})
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Host: first + ":1", Resource: "leases"}, Do: fakekube.Reply{Code: 500, Body: "{}"}})
		for range 12 {
			f.AddPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(time.Second)
		}
		f.CutOff(first+":1", true)
		for leaderAt(f) == first {
			f.AddPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(200 * time.Millisecond)
			if time.Since(cut) > 40*time.Second {
				t.Fatal("nobody has taken over")
			}
		}
		err := replicas[first].Stop()
		if err == nil || errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), "the lease is lost: ") {
			t.Errorf("the old leader ended with %v", err)
		}
		if strings.Contains(replicas[first].Log.String(), "the lease is released") {
			t.Error("it released what it had lost")
		}
		wantOneLeader(t, f)
	})
}

func TestKilledLeaderIsFollowedWithin24Seconds(t *testing.T) {
	for range 10 {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			startReplica(t, f, "a")
			startReplica(t, f, "b")
			pass(30*time.Second + rand.N(10*time.Second))
			first := leaderAt(f)
			f.CutOff(first+":1", true)
			killed := time.Now()
			f.AddPod("default", "p", "")
			for f.Label("cp", podCountLabel) != "1" {
				pass(50 * time.Millisecond)
				if time.Since(killed) > 24*time.Second {
					t.Fatal("nobody has taken over")
				}
			}
			if leaderAt(f) == first {
				t.Error("the dead one has written")
			}
			wantOneLeader(t, f)
		})
	}
}

func TestLeaderWhoseLeaseIsTakenStopsAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.PutJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`)
		pass(5 * time.Second)
		f.AddPods(3)
		pass(10 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		if err := p.Stop(); err == nil || !strings.Contains(err.Error(), `the lease is lost: it is held by "other"`) {
			t.Errorf("it ended with %v", err)
		}
		if fakekube.TextIn(leaseNow(f), "holderIdentity") != "other" {
			t.Error("the other's lease was touched")
		}
	})
}

// A write in hand is cut when the lease is lost, and events are not sent, either.
func TestNothingIsSentWithoutTheLease(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p := startReplica(t, f, "a", "-pod-events", "on")
		pass(10 * time.Second)
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "write", Resource: "nodes"}, Met: func(fakekube.Request) { met <- struct{}{} }, Do: fakekube.Stall{}})
		f.AddPods(1)
		<-met // a write hangs
		f.Script(t, `* leases, 4 times: reply 503 body "{}"`)
		hung := time.Now()
		for !strings.Contains(p.Log.String(), "podcount stopped") {
			f.AddPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(100 * time.Millisecond)
		}
		if took := time.Since(hung); took > 11*time.Second {
			t.Errorf("it ended %v after it could not renew its lease", took)
		}
		wantOneLeader(t, f)
	})
}

// Another replica's patience begins when the server has the lease, which may be long before its answer arrives.
func TestTermIsCountedFromBeforeTheLeaseWasSent(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		renewals := func() []fakekube.Request {
			return f.Requests(func(s fakekube.Request) bool { return s.Method == "PUT" && s.Path == leasePath })
		}
		slow := f.Script(t, "update leases, always: delay 4s")[0]
		before := len(renewals())
		for start := time.Now(); len(renewals()) == before; pass(100 * time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatal("it does not renew its lease")
			}
		}
		sent := renewals()[before].At
		pass(4500 * time.Millisecond) // it is answered
		slow.Lift()
		f.Script(t, "* leases, always: stall")
		for !strings.Contains(p.Log.String(), "podcount stopped") {
			f.AddPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(100 * time.Millisecond)
			if time.Since(sent) > time.Minute {
				t.Fatal("it leads on")
			}
		}
		writes := f.Requests(isWriteOf("nodes"))
		if last := writes[len(writes)-1].At.Sub(sent); last >= 10*time.Second || last < 8*time.Second {
			t.Errorf("the last write came %v after the last renewal that the server took was sent", last)
		}
		wantOneLeader(t, f)
	})
}

// A renewal moves the deadline of the writes that are under way: one may take longer than a term.
func TestWriteMayTakeLongerThanATermThatIsRenewed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Script(t, "write nodes: delay 25s")
		startReplica(t, f, "a")
		pass(28 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "writes", len(f.Requests(isWriteOf("nodes"))), 1)
	})
}

func TestTransitionsOfALeaseStayAtTheLargestNumberThatTheAPIHas(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.PutJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":2147483647}}`)
		startReplica(t, f, "a")
		pass(5 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		if leaseNow(f)["leaseTransitions"] != 2147483647.0 {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLeaderReleasesItsLeaseAfterItsLastWrite(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p := startReplica(t, f, "a", "-pod-events", "on")
		pass(10 * time.Second)
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "write", Resource: "nodes"}, Delay: 8 * time.Second, Met: func(fakekube.Request) { met <- struct{}{} }}) // longer than a renewal
		f.AddPods(5)
		<-met
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if f.Label("cp", podCountLabel) == "0" {
			t.Error("the write in hand was not finished")
		}
		all := f.Requests(func(fakekube.Request) bool { return true })
		if last := all[len(all)-1]; last.Method != "PUT" || !strings.Contains(last.Body, `"holderIdentity":""`) {
			t.Errorf("the last request was %v", last)
		}
		wantOneLeader(t, f)
	})
}

func TestStandbyStopsAtOnceAndLeavesTheLeaseAlone(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		startReplica(t, f, "a")
		pass(time.Second)
		holder := fakekube.TextIn(leaseNow(f), "holderIdentity")
		b := startReplica(t, f, "b")
		pass(time.Minute)
		stopped := time.Now()
		if err := b.Stop(); err != nil || time.Since(stopped) > 0 {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
		wantNumber(t, "the standby's writes", len(f.Requests(func(s fakekube.Request) bool { return s.Host == "b:1" && s.Method != "GET" })), 0)
		if fakekube.TextIn(leaseNow(f), "holderIdentity") != holder {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLeaseThatWasAskedForIsReleasedEvenIfTheAnswerWasLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "update"}, Met: func(fakekube.Request) { met <- struct{}{} }, Do: fakekube.DropAnswer{}})
		p := startReplica(t, f, "a")
		<-met
		synctest.Wait()
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		if leaseNow(f) == nil || fakekube.TextIn(leaseNow(f), "holderIdentity") != "" {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
	simulate(t, func(t *testing.T, f *fakekube.Server) { // and one that goes on leads
		f.AddNode("cp", controlPlane)
		f.Script(t, "update: drop answer")
		startReplica(t, f, "a")
		pass(6 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		f.Script(t, "update: drop answer") // of a renewal
		pass(time.Minute)
		if leaseNow(f)["leaseTransitions"] != 0.0 {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLostRaceForTheLeaseIsNoTrouble(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		met := make(chan struct{}, 1)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "update", Host: "a:1"}, Delay: 2 * time.Second, Met: func(fakekube.Request) { met <- struct{}{} }})
		a := startReplica(t, f, "a")
		<-met // it has seen that there is no lease, and asks for it
		b := startReplica(t, f, "b")
		pass(3 * time.Second)
		wantText(t, a.Log.String(), "standing by")
		wantText(t, b.Log.String(), "elected")
		wantNumber(t, "warnings", strings.Count(a.Log.String()+b.Log.String(), "level=WARN msg=\"cannot"), 0)
		a.Stop()
		wantNumber(t, "words on a release", strings.Count(a.Log.String(), "released"), 0)
		if fakekube.TextIn(leaseNow(f), "holderIdentity") == "" {
			t.Error("it released what was another's")
		}
	})
}

func TestReleaseIsTriedAgainWhileThereIsTime(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.CutOff("a:1", true)
		back := time.AfterFunc(3*time.Second, func() { f.CutOff("a:1", false) })
		defer back.Stop()
		stopped := time.Now()
		if err := p.Stop(); err != nil || time.Since(stopped) > 4*time.Second {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
		if fakekube.TextIn(leaseNow(f), "holderIdentity") != "" {
			t.Errorf("the lease is %v", leaseNow(f))
		}
		wantNumber(t, "words on the release", strings.Count(p.Log.String(), "released"), 1)
	})
	simulate(t, func(t *testing.T, f *fakekube.Server) { // and not for ever
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.CutOff("a:1", true)
		stopped := time.Now()
		if err := p.Stop(); err != nil || time.Since(stopped) > 6*time.Second {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
	})
}

func TestLeasesRightsThatAreMissingAreSaidAndRecovered(t *testing.T) {
	for verb, rule := range map[string]string{"get": "get", "update": "update"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", controlPlane)
			f.Forbid(verb+" leases", true)
			p := startReplica(t, f, "a")
			pass(10 * time.Minute)
			wantNumber(t, "warnings", strings.Count(p.Log.String(), "level=WARN msg=\"cannot get the lease\""), 1)
			wantText(t, p.Log.String(), `apiGroups [\"coordination.k8s.io\"], resources [\"leases\"], verbs [\"`+rule+`\"]`)
			wantLabel(t, f, "cp", podCountLabel, "-")
			f.Forbid(verb+" leases", false)
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "0")
		})
	}
}

func TestLeaseIsWhereTheFlagsSay(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		startReplica(t, f, "a", "-leader-elect-resource-name", "team-a.podcount", "-leader-elect-resource-namespace", "default",
			"-leader-elect-lease-duration", "60s", "-leader-elect-renew-deadline", "40s", "-leader-elect-retry-period", "15s")
		pass(46 * time.Second)
		spec, _ := f.Get("leases", at("default", "team-a.podcount"))["spec"].(fakekube.Object)
		if spec["leaseDurationSeconds"] != 60.0 || !strings.HasPrefix(fakekube.TextIn(spec, "renewTime"), "2000-01-01T00:00:45.") {
			t.Errorf("the lease is %v", spec)
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// What several tests need; selectors, Events, clocks

func TestSelectorThatNoServerTakesIsWrongUsageBeforeAnyIsAsked(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for args, want := range map[string]string{
			"-pod-selector=a in b":                       `-pod-selector: requirement 1 "a in b"`,
			"-pod-selector=a=b,c>d":                      `-pod-selector: requirement 2 "c>d"`,
			"-pod-selector=a=" + strings.Repeat("b", 64): "-pod-selector: ",
			"-field-selector=spec.nonsense=1":            `-field-selector: field label not supported: "spec.nonsense"`,
			"-field-selector=metadata.name":              `-field-selector: "metadata.name" needs an operator`,
			"-field-selector=metadata.name=a=b":          "-field-selector: ",
		} {
			p := startPodcount(t, f, args)
			synctest.Wait()
			if err := p.Stop(); !errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		}
		wantNumber(t, "requests", len(f.Requests(func(fakekube.Request) bool { return true })), 0)
	})
}

// A time that went through UTC, a text or a number, has lost its monotonic reading: whoever compares it goes wrong when the
// clock is set. So this is all that may be done with one: where it is told to others, and where they have told theirs.
func TestNoWaitAndNoDeadlineDependsOnTheWallClock(t *testing.T) {
	wall := regexp.MustCompile(`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)
	may := []string{
		`now.UTC().Format(microTime)`,                   // what a Lease says; nobody compares it
		`time.Now().UTC().Format(time.RFC3339)}`,        // what an Event says
		`r.stamp = max(time.Now().UnixNano(), r.stamp`,  // its name: never the same again, whatever the clock
		`pair.Leaf.NotAfter`,                            // a certificate's end, which is only told
		`ExpirationTimestamp                         *`, // a credential's: one that is taken for good too long
		`expires := `,                   // is refused, and that renews it, too
		`"process_start_time_seconds")`, // what a metric says
	}
	files, _ := filepath.Glob("*.go")
	below, _ := filepath.Glob("internal/*/*.go")
	shown := regexp.MustCompile(`^internal/(fakekube|playground|sim|suite|testkit|behaviours)/`) // not a part of podcount
	for _, file := range slices.Concat(files, below) {
		if strings.HasSuffix(file, "_test.go") || shown.MatchString(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if wall.MatchString(line) && !slices.ContainsFunc(may, func(known string) bool { return strings.Contains(line, known) }) {
				t.Errorf("%s:%d: does this compare times of the wall clock? %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The way in: kubeconfigs, credentials, TLS

func TestKubectlProxyServesBesideTheKubeconfigOfAnotherCluster(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Allow("of-this-cluster")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig("https://another", nil, "token: of-another")})
		n := fakekube.ServeHandlerIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// As kubectl proxy does: what a client says of itself comes first.
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer of-this-cluster")
			}
			f.ServeHTTP(w, r)
		}))
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-master", "http://127.0.0.1:8001", "-once")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

func TestMainJobOverTLSAndHTTP2WithATokenAndWithAClientCertificate(t *testing.T) {
	ca1 := fakekube.NewAuthority(t, "clients")
	cert, key := ca1.Issue(t, "me", fakekube.AsAdmin)
	f := fakekube.New()
	f.Allow("good")
	f.ClientCA = ca1.Pool()
	f.AddNode("cp", controlPlane)
	f.AddPods(3000) // enough for gzip
	server, ca := f.ServeTLSFor(t)
	for name, user := range map[string]string{
		"token":              "token: good",
		"client certificate": "client-certificate-data: " + base64.StdEncoding.EncodeToString(cert) + "\n    client-key-data: " + base64.StdEncoding.EncodeToString(key),
	} {
		f.SetLabel("cp", podCountLabel, nil)
		file := filepath.Join(t.TempDir(), "config")
		os.WriteFile(file, []byte(fakekube.Kubeconfig(server, ca, user)), 0o600)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		log := &logBuffer{}
		go func() {
			ended <- run(ctx, []string{"-kubeconfig", file}, func(string) string { return "" }, io.Discard, log, nil)
		}()
		f.Await(t, "the right label, by "+name, func() bool { return f.Label("cp", podCountLabel) == "3000" })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
	}
	for _, s := range f.Requests(func(s fakekube.Request) bool { return !s.HTTP2 }) {
		t.Errorf("not over HTTP/2: %s", s)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "pods"}, Do: fakekube.Reply{Code: 307, Header: map[string]string{"Location": "http://127.0.0.1:1/elsewhere"}, Body: "moved"}})
		p := startPodcount(t, f)
		synctest.Wait()
		wantText(t, p.Log.String(), "list pods: 307 Temporary Redirect")
		wantNumber(t, "requests elsewhere", len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/elsewhere" })), 0)
	})
}

func TestTokenFileIsReadAgainEveryMinuteAndAfterA401AndAGapIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) { writeFiles(t, dir, map[string]string{"token": text}) }
	write("one\n")
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Allow("one", "two", "three")
		n := f.ServeAs(t, dir, "tokenFile: token\n    token: the-file-wins")
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		users := func(want string) { // of the writes so far
			t.Helper()
			var got []string
			for _, s := range f.Requests(fakekube.IsWrite) {
				got = append(got, s.Token)
			}
			if users := strings.Join(got, " "); users != want {
				t.Errorf("written by %s, want %s", users, want)
			}
		}
		addPod := func() {
			f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
			pass(2 * time.Second)
		}
		users("one")
		write("two")
		addPod()
		users("one one")
		pass(time.Minute)
		addPod()
		users("one one two")
		write("three\n")
		f.Allow("three")
		addPod()
		users("one one two two three") // refused, and sent again at once
		for _, gap := range []func(){
			func() { write(" \n") },
			func() { write("half of one\n") },
			func() { os.Remove(filepath.Join(dir, "token")) },
		} {
			gap()
			pass(10 * time.Minute)
			addPod()
			pass(10 * time.Minute)
		}
		users("one one two two three three three three")
		wantNumber(t, "words on the gap", strings.Count(p.Log.String(), "going on with what there was"), 1)
		write("four")
		f.Allow("four")
		addPod()
		if writes := f.Requests(fakekube.IsWrite); writes[len(writes)-1].Token != "four" {
			t.Errorf("written by %s, want four", writes[len(writes)-1].Token)
		}
		wantNumber(t, "words on its end", strings.Count(p.Log.String(), "the credential can be read again"), 1)
	})
}

func TestWrongTokenIsTriedOnceAndNamedByItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("another")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"token": "s3cret"})
		p := startPodcountOn(t, f.ServeAs(t, dir, "tokenFile: token"), "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantNumber(t, "tries", len(f.Requests(func(fakekube.Request) bool { return true })), 3) // of each list, and of discovery, one
		wantText(t, p.Log.String(), "list pods: 401 Unauthorized: Unauthorized (what was not accepted: the token of "+dir+"/token)")
		if strings.Contains(p.Log.String(), "s3cret") {
			t.Error("the token is in the log")
		}
		f.Allow("s3cret")
		f.AddNode("cp", controlPlane)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A kubelet keeps a volume's files behind a link ..data, which it replaces.
func TestCertificatesThatChangeAreUsedByTheNextRequestWhileWatchesGoOn(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		old, recent, clients := fakekube.NewAuthority(t, "old CA"), fakekube.NewAuthority(t, "recent CA"), fakekube.NewAuthority(t, "clients")
		var server atomic.Pointer[tls.Certificate]
		serveWith := func(ca *fakekube.Authority) {
			certPEM, keyPEM := ca.Issue(t, "server", nil)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			server.Store(&pair)
		}
		dir := t.TempDir()
		swap := func(version, user string, cas ...*fakekube.Authority) {
			cert, key := clients.Issue(t, user, fakekube.AsAdmin)
			bundle := ""
			for _, ca := range cas {
				bundle += string(ca.PEM())
			}
			writeFiles(t, dir, map[string]string{version + "/ca.crt": bundle, version + "/tls.crt": string(cert), version + "/tls.key": string(key)})
			os.Symlink(version, filepath.Join(dir, "..tmp"))
			if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		swap("v1", "one", old)
		for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
			os.Symlink("..data/"+name, filepath.Join(dir, name))
		}
		config := strings.Replace(fakekube.Kubeconfig("https://127.0.0.1:1", nil, "client-certificate: tls.crt\n    client-key: tls.key"), "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		writeFiles(t, dir, map[string]string{"config": config})
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", controlPlane)
		serveWith(old)
		n := f.ServeIn(t, server.Load)
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		connections := n.Dialed()

		swap("v2", "two", old, recent)
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "connections, one of them new", n.Dialed(), connections+1)
		last := func(match func(fakekube.Request) bool) string {
			found := f.Requests(match)
			return found[len(found)-1].User
		}
		if last(fakekube.IsWrite) != "two" || last(fakekube.IsWatch("pods")) != "one" {
			t.Errorf("written by %s, watched by %s", last(fakekube.IsWrite), last(fakekube.IsWatch("pods")))
		}
		wantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 1)

		// The key of another certificate, a CA that is none, and nothing at all: the old ones stay.
		good, _ := os.ReadFile(dir + "/v2/tls.key")
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key"})
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		writeFiles(t, dir, map[string]string{"v2/tls.key": string(good)})
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantNumber(t, "words on the end of what did not fit", strings.Count(p.Log.String(), "can be read again"), 1)
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key", "v2/ca.crt": "no CA"})
		os.Remove(filepath.Join(dir, "v2/tls.crt"))
		pass(2 * time.Second)
		for range 3 {
			f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
			pass(time.Minute) // all in all less than 5, when watches may begin to end
		}
		wantLabel(t, f, "cp", podCountLabel, "6")
		wantNumber(t, "words on what is missing, and does not fit, once each time", strings.Count(p.Log.String(), "going on with what there was"), 2)

		serveWith(recent)
		swap("v3", "three", recent)
		pass(2 * time.Second) // a discovery may just have read the files
		f.EndWatches(true)
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "7")
		if last(fakekube.IsWrite) != "three" || last(fakekube.IsWatch("pods")) != "three" {
			t.Errorf("written by %s, watched by %s", last(fakekube.IsWrite), last(fakekube.IsWatch("pods")))
		}
		wantNumber(t, "lists of pods", len(f.Requests(isList("pods"))), 1)
		wantPeace(t, f, "-interval", "1s")
	})
}

func TestExecCredentialIsKeptUntilItExpiresOrIsRefused(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("starts dozens of processes, each half a second under the race detector, and one after the other")
	}
	dir := t.TempDir()
	runs := func() []string {
		text, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	answer := func(token string, expires time.Time) {
		status := fakekube.Object{"token": token}
		if !expires.IsZero() {
			status["expirationTimestamp"] = expires.UTC().Format(time.RFC3339)
		}
		writeFiles(t, dir, map[string]string{"answer": fakekube.ExecCredential("v1beta1", status)})
	}
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("one", "two")
		f.AddNode("cp", controlPlane)
		answer("one", time.Now().Add(10*time.Minute))
		n := f.ServeAs(t, dir, fakekube.ExecUser(t, dir, "v1beta1", ", interactiveMode: IfAvailable, provideClusterInfo: false"))
		config, _ := os.ReadFile(filepath.Join(dir, "config"))
		more := "    tls-server-name: 127.0.0.1\n    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: us}}, {name: else, extension: 1}]\n"
		writeFiles(t, dir, map[string]string{"config": strings.Replace(string(config), "    certificate-authority-data: ", more+"    certificate-authority-data: ", 1)})
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "runs, for all requests at the start", len(runs()), 1)
		want := `["get" "a token"] stdin="" REGION=eu {"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}`
		if runs()[0] != want {
			t.Errorf("it ran as\n%s, want\n%s", runs()[0], want)
		}

		answer("two", time.Time{})
		pass(11 * time.Minute)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "runs once it has expired", len(runs()), 2)
		pass(24 * time.Hour)
		wantNumber(t, "runs of what does not expire", len(runs()), 2)

		answer("three", time.Time{})
		f.Allow("three")
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantNumber(t, "runs once it was refused", len(runs()), 3)

		// A program that fails, and a server that refuses what it gives, cost a run each 5 s at most.
		writeFiles(t, dir, map[string]string{"answer": "exit the server of tokens is down"})
		f.Allow("four")
		f.EndWatches(false)
		pass(time.Minute)
		if n := len(runs()) - 3; n < 3 || n > 13 {
			t.Errorf("%d runs in a minute of failure", n)
		}
		wantText(t, p.Log.String(), `exit status 1, saying \"the server of tokens is down\"`)
		answer("wrong", time.Time{})
		pass(2 * time.Minute)
		before := len(runs())
		pass(time.Minute)
		if n := len(runs()) - before; n > 13 {
			t.Errorf("%d runs in a minute of refusals", n)
		}
		answer("four", time.Time{})
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, token := range []string{"\"one\"", "\"two\"", "=four", "\"four\"", "wrong"} {
			if strings.Contains(p.Log.String(), token) {
				t.Errorf("%s is in the log", token)
			}
		}
	})
}

func TestLabelsEqualTheTruthWhateverBecomesOfCredentials(t *testing.T) {
	token := "tokenFile: token"
	for name, c := range map[string]struct {
		from    string // in the kubeconfig; "" is an exec program
		happens func(f *fakekube.Server, write func(token string), pause func(seconds int))
	}{
		"a token is renewed in time": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("one", "two")
			write("two")
			pause(61)
			f.Allow("two")
			f.EndWatches(true)
		}},
		"a token is refused before there is another": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("two")
			f.EndWatches(true)
			pause(45)
			write("two")
		}},
		"a token's file is empty, then gone": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			write("")
			pause(61)
			f.Allow("two")
			f.EndWatches(true)
			write("-")
			pause(30)
			write("two")
		}},
		"a token's file has a wrong one first": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("two")
			write("stranger")
			f.EndWatches(true)
			pause(30)
			write("two")
		}},
		"nobody is known to the server for a while": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow()
			f.EndWatches(true)
			pause(45)
			f.Allow("one")
		}},
		"a program's token is refused": {"", func(f *fakekube.Server, write func(string), pause func(int)) {
			write("two")
			f.Allow("two")
		}},
		"a program fails just when it is needed": {"", func(f *fakekube.Server, write func(string), pause func(int)) {
			write("exit 1")
			f.Allow("two")
			f.EndWatches(true)
			pause(30)
			write("two")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(token string) {
				switch {
				case token == "-":
					os.Remove(filepath.Join(dir, "token"))
				case strings.HasPrefix(token, "exit"):
					writeFiles(t, dir, map[string]string{"answer": token})
				default:
					writeFiles(t, dir, map[string]string{"token": token, "answer": fakekube.ExecCredential("v1", fakekube.Object{"token": token})})
				}
			}
			from := c.from
			if from == "" {
				from = fakekube.ExecUser(t, dir, "v1", ", interactiveMode: Never")
			}
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				write("one")
				f.Allow("one")
				n := f.ServeAs(t, dir, from)
				start := func(args ...string) *program {
					return startPodcountOn(t, n, append(args, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")...)
				}
				surviveFrom(t, f, start, func(*program) {
					c.happens(f, write, func(seconds int) { retry.Sleep(t.Context(), time.Duration(seconds)*time.Second) })
				})
				if f.KnowsToken("two") && len(f.Requests(func(s fakekube.Request) bool { return s.Token == "two" })) == 0 {
					t.Error("the new token was not used")
				}
			})
		})
	}
}

func TestExecProgramMayGiveAClientCertificate(t *testing.T) {
	dir := t.TempDir()
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		servers, clients := fakekube.NewAuthority(t, "servers"), fakekube.NewAuthority(t, "clients")
		certPEM, keyPEM := servers.Issue(t, "server", nil)
		server, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		answer := func(name string, expires time.Time) {
			cert, key := clients.Issue(t, name, fakekube.AsAdmin)
			writeFiles(t, dir, map[string]string{"answer": fakekube.ExecCredential("v1", fakekube.Object{"clientCertificateData": string(cert), "clientKeyData": string(key), "expirationTimestamp": expires})})
		}
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", controlPlane)
		answer("one", time.Now().Add(time.Minute))
		writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig("https://127.0.0.1:1", servers.PEM(), fakekube.ExecUser(t, dir, "v1", ", interactiveMode: Never"))})
		startPodcountOn(t, f.ServeIn(t, func() *tls.Certificate { return &server }), "-kubeconfig", filepath.Join(dir, "config"))
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		answer("two", time.Now().Add(time.Hour))
		pass(time.Minute)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		writes := f.Requests(fakekube.IsWrite)
		if len(writes) != 2 || writes[0].User != "one" || writes[1].User != "two" {
			t.Errorf("written by %v", writes)
		}
		wantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 1)
	})
}

func TestStopEndsAStartThatWaitsForAFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, lines := process(t, nil, "-kubeconfig", dir+"/pipe")
		pipe, err := os.OpenFile(dir+"/pipe", os.O_WRONLY, 0) // waits until podcount has opened it to read
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		cmd.Process.Signal(sig)
		for line := range lines {
			t.Errorf("it says %s", line)
		}
		cmd.Wait()
		pipe.Close()
		if code := cmd.ProcessState.ExitCode(); code != 0 || time.Since(start) > 3*time.Second {
			t.Errorf("%v: exit code %d after %v", sig, code, time.Since(start))
		}
	}
}

// What a person sees on stderr who has this wrong: what was tried, and the next step.
func TestWhatIsWrongWithTheWayInIsSaidWithWhatWasTriedAndTheNextStep(t *testing.T) {
	ca, other := fakekube.NewAuthority(t, "the CA"), fakekube.NewAuthority(t, "another CA")
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	dialing := func(to string, err error) kube.Dialer {
		return func(context.Context, string, string) (net.Conn, error) {
			failed := &net.OpError{Op: "dial", Net: "tcp", Err: err}
			if ip, err := netip.ParseAddrPort(to); err == nil {
				failed.Addr = net.TCPAddrFromAddrPort(ip)
			}
			return nil, failed
		}
	}
	inSilence := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		config [2]string // of the kubeconfig, this in place of that
		args   string    // more of them
		dial   kube.Dialer
		issuer *fakekube.Authority // of the server's certificate, if not ca
		set    func(f *fakekube.Server)
		want   []string
	}{
		"no server": {dial: dialing("127.0.0.1:1", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: dial tcp 127.0.0.1:1: connect: connection refused (is the API server running, and is this its address?)"}},
		"no server, by -master": {args: "-master https://10.0.0.1", dial: dialing("10.0.0.1:443", refused),
			want: []string{": https://10.0.0.1, from -master, CONFIG, context fake: dial tcp 10.0.0.1:443: connect: connection refused (is the API server running, and is this its address?)"}},
		"no such host": {config: [2]string{"https://127.0.0.1:1", "https://nowhere"}, dial: dialing("", &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}),
			want: []string{": https://nowhere, from CONFIG, context fake: dial tcp: lookup nowhere: no such host (is the API server running, and is this its address?)"}},
		"no answer": {args: "-leader-elect", dial: inSilence,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: context deadline exceeded (is the API server running, and is this its address?)"}},
		"wrong CA": {issuer: other,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=another CA")`}},
		"self-signed certificate": {issuer: &fakekube.Authority{},
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=server")`}},
		"expired token": {set: func(f *fakekube.Server) { f.Allow("fresh") },
			want: []string{": 401 Unauthorized: Unauthorized (what was not accepted: the token of CONFIG, context fake): give one that has not expired, and is of this cluster"}},
		"missing right": {
			set: func(f *fakekube.Server) {
				f.AddUser("s3cret", "system:serviceaccount:kube-system:podcount", "system:masters")
				f.Forbid("list nodes", true)
			},
			want: []string{`list nodes: 403 Forbidden: nodes is forbidden: User "system:serviceaccount:kube-system:podcount" cannot list resource "nodes" in API group "" at the cluster scope`,
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["list"])`}},
		"missing right to write": {set: func(f *fakekube.Server) { f.Forbid("patch nodes", true) },
			want: []string{"patch nodes/cp: 403 Forbidden: ", `(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["patch"])`}},
		"wrong context": {args: "-context other", want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"wrong current-context": {config: [2]string{"current-context: fake", "current-context: other"},
			want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"unreachable proxy": {config: [2]string{"    server:", "    proxy-url: http://10.0.0.9:3128\n    server:"}, dial: dialing("10.0.0.9:3128", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused " +
				"(this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?)"}},
		"unreachable SOCKS proxy": {config: [2]string{"    server:", "    proxy-url: socks5://10.0.0.9:1080\n    server:"}, dial: dialing("10.0.0.9:1080", refused),
			want: []string{"proxyconnect tcp: dial tcp 10.0.0.9:1080: connect: connection refused (this is the proxy of"}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				if c.set != nil {
					c.set(f)
				}
				cert, key := cmp.Or(c.issuer, ca).Issue(t, "server", nil)
				pair, err := tls.X509KeyPair(cert, key)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				config := filepath.Join(dir, "config")
				writeFiles(t, dir, map[string]string{"config": strings.Replace(fakekube.Kubeconfig("https://127.0.0.1:1", ca.PEM(), "token: s3cret"), c.config[0], c.config[1], 1)})
				n := f.ServeIn(t, func() *tls.Certificate { return &pair })
				p := startPodcountWith(t, n, wiring{Dial: c.dial}, append([]string{"-kubeconfig", config, "-log-format", "json"}, strings.Fields(c.args)...)...)
				pass(10 * time.Second)
				said := ""
				for line := range strings.Lines(p.Log.String()) {
					var fields fakekube.Object
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					said += fakekube.TextIn(fields, "err") + "\n"
				}
				if err := p.Stop(); err != nil {
					said += "podcount: " + err.Error() + "\n"
				}
				for _, want := range c.want {
					wantText(t, said, strings.ReplaceAll(want, "CONFIG", config))
				}
				if strings.Contains(p.Log.String(), "s3cret") {
					t.Error("the token is in the log")
				}
			})
		})
	}
}

func TestUnreachableProxyOfTheEnvironmentIsNamed(t *testing.T) {
	cmd, lines := process(t, []string{"HTTPS_PROXY=http://127.0.0.1:1"}, "-master", "https://0.0.0.0:1")
	for line := range lines {
		if strings.Contains(line, "cannot") {
			wantText(t, line, "https://0.0.0.0:1, from -master: proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused (this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running")
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
}

func TestProxyOfTheEnvironmentIsUsedButForWhatItExcepts(t *testing.T) {
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	for except, want := range map[string]string{"": "CONNECT 0.0.0.0:1", "0.0.0.0": ""} { // not 127.0.0.1, which never goes to a proxy
		cmd, lines := process(t, []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=" + except}, "-master", "https://0.0.0.0:1")
		for line := range lines {
			if strings.Contains(line, "cannot ") {
				break
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		got := ""
		select {
		case got = <-asked:
		default:
		}
		if got != want {
			t.Errorf("NO_PROXY=%s: the proxy was asked %q, want %q", except, got, want)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The command line, and the program as a process

func TestKubeconfigThatCannotBeUsedIsWrongUsage(t *testing.T) {
	for args, want := range map[string]string{
		"-kubeconfig=/does/not/exist": "/does/not/exist: no such file",
		"-master=ftp://x":             "-master: the server's address (ftp://x) must be",
	} {
		err := run(t.Context(), []string{args}, func(string) string { return "" }, io.Discard, io.Discard, nil)
		if !errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// process starts this test binary as podcount and returns its lines of stderr.
func process(t *testing.T, env []string, args ...string) (*exec.Cmd, <-chan string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"PODCOUNT_TEST_MAIN=1"}, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	return cmd, lines
}

func TestExitCodes(t *testing.T) {
	cmd, lines := process(t, nil, "-nonsense")
	var all []string
	for line := range lines {
		all = append(all, line)
	}
	cmd.Wait()
	if len(all) != 1 || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("wrong usage: exit code %d, stderr %q", cmd.ProcessState.ExitCode(), all)
	}

	f := fakekube.New()
	f.AddNode("cp", controlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(fakekube.Kubeconfig(server, ca, "token: t")), 0o600)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		f.SetLabel("cp", podCountLabel, nil)
		cmd, lines := process(t, nil, "-kubeconfig", file)
		f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == "0" })
		cmd.Process.Signal(sig)
		last := ""
		for line := range lines {
			last = line
		}
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 0 || !strings.Contains(last, "podcount stopped") {
			t.Errorf("%v: exit code %d, last line %q", sig, cmd.ProcessState.ExitCode(), last)
		}
	}

	f.SetLabel("cp", podCountLabel, nil)
	met := make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Met: func(fakekube.Request) { met <- struct{}{} }, Do: fakekube.Stall{}})
	cmd, lines = process(t, nil, "-kubeconfig", file)
	<-met // a write hangs
	start := time.Now()
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(os.Interrupt) })
	defer again.Stop()
	for range lines {
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || time.Since(start) > 5*time.Second {
		t.Errorf("second signal: exit code %d after %v", cmd.ProcessState.ExitCode(), time.Since(start))
	}
}

// fullPipe returns the writing end of a pipe that is full, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reader.Close()
		writer.Close()
	})
	writer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = writer.Write(make([]byte, 4096))
	}
	return writer
}

// startOn starts this test binary as podcount, on the outputs given.
func startOn(t *testing.T, stdout, stderr *os.File, args ...string) (cmd *exec.Cmd, ended <-chan struct{}) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = []string{"PODCOUNT_TEST_MAIN=1"}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, background.Go(func() { cmd.Wait() })
}

// wantExit waits for the process to end; machines are slow.
func wantExit(t *testing.T, what string, cmd *exec.Cmd, ended <-chan struct{}, code int) {
	t.Helper()
	select {
	case <-ended:
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d", what, got, code)
		}
	case <-time.After(15 * time.Second):
		t.Errorf("%s: it has not ended", what)
	}
}

// A stuck log collector must keep no process: neither at a wrong flag, nor at a stop, nor at a second signal.
func TestProcessWhoseStderrIsFullEndsWithItsCode(t *testing.T) {
	full := fullPipe(t)
	cmd, ended := startOn(t, nil, full, "-nonsense")
	wantExit(t, "wrong usage", cmd, ended, 2)

	f := fakekube.New()
	f.AddNode("cp", controlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	writeFiles(t, filepath.Dir(file), map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: t")})
	for _, verbosity := range []string{"0", "6"} {
		f.SetLabel("cp", podCountLabel, nil)
		cmd, ended = startOn(t, full, full, "-kubeconfig", file, "-v", verbosity, "-leader-elect")
		f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == "0" })
		cmd.Process.Signal(syscall.SIGTERM)
		wantExit(t, "SIGTERM at -v "+verbosity, cmd, ended, 0)
	}

	f.SetLabel("cp", podCountLabel, nil)
	met := make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Met: func(fakekube.Request) { met <- struct{}{} }, Do: fakekube.Stall{}})
	cmd, ended = startOn(t, full, full, "-kubeconfig", file)
	<-met // a write hangs
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer again.Stop()
	wantExit(t, "a second signal", cmd, ended, 1)
}

// As in `podcount 2>&1 | head -1`.
func TestReaderOfTheOutputThatGoesAwayEndsNothing(t *testing.T) {
	f := fakekube.New()
	f.AddNode("cp", controlPlane)
	server, ca := f.ServeTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	writeFiles(t, filepath.Dir(file), map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: t")})
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, ended := startOn(t, writer, writer, "-kubeconfig", file, "-v", "6", "-interval", "10ms", "-controllers", "*,pod-printer")
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	for n := range 3 {
		f.AddPod("default", fmt.Sprint("p", n), "")
		f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == fmt.Sprint(n+1) })
	}
	cmd.Process.Signal(syscall.SIGTERM)
	wantExit(t, "SIGTERM", cmd, ended, 0)
}

// ---------------------------------------------------------------------------------------------------------------------
// Once, dry and pruned

func TestOnceWritesWhatIsWrongAndExits(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddNode("n1")
		f.AddNode("left", podCountLabel+"=7")
		f.AddPod("default", "p1", "n1")
		f.AddPodWithLabels("p2", fakekube.Object{"app": "nginx"})
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		start := time.Now()
		if err := startPodcount(t, f, "-once", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantLabel(t, f, "n1", "x.y/pods", "1")
		wantLabel(t, f, "left", podCountLabel, "-")
		wantText(t, f.CountStatus("nginx"), "true 1 1")
		wantNumber(t, "events of changed labels", len(eventsOf(f, "PodCountChanged")), 5)
		before := len(writesAt(f))
		if err := startPodcount(t, f, "-once", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "writes of a second run", len(writesAt(f))-before, 0)
	})
}

// A cluster is never quiet: what changes meanwhile is for the next run.
// What -once prints is its product: a reader that is slow gets all of it, and one that does not read is not taken for one.
func TestOnceWaitsForASlowReaderAndFailsWhereNobodyReads(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		reads bool
		want  string // of the error
	}{
		"a slow reader":                  {[]string{"-dry-run"}, true, ""},
		"nobody reads a dry run":         {[]string{"-dry-run"}, false, "lines of its output were lost, because nobody read them"},
		"nobody reads the log of writes": {nil, false, ""},
		"nobody reads what is printed":   {[]string{"-controllers", "pod-printer"}, false, "lines of its output were lost"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 500 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(3)
				n, reading := f.ServeIn(t), make(chan struct{}, 1)
				slow := func(w io.Writer) io.Writer {
					return writerFunc(func(line []byte) (int, error) {
						if !c.reads {
							<-reading
						}
						<-time.After(10 * time.Millisecond)
						return w.Write(line)
					})
				}
				args := []string{"-master", "http://127.0.0.1:1", "-once", "-total-nodes", "", "-qps", "1000", "-burst", "1000"}
				p := startPodcountWith(t, n, wiring{Pipe: slow}, append(args, c.args...)...)
				err := p.Finish()
				close(reading)
				pass(time.Minute) // for what still waits
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("it ended with %v, want %q", err, c.want)
				}
				if c.reads {
					wantNumber(t, "lines", strings.Count(p.Log.String(), "would write node "), 500)
				}
			})
		})
	}
}

func TestOnceEndsWhileEverythingChanges(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		p := startPodcount(t, f, "-once", "-controllers", "*,pod-printer")
		go churn(f, 60)
		start := time.Now()
		if err := p.Finish(); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		<-time.After(time.Minute)
	})
}

func TestOnceFailsWhenSomethingCannotBeWrittenAndWritesTheRest(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("a", controlPlane)
		f.AddNode("b", controlPlane)
		f.Inject(t, statusFault(fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}, fakekube.Always, 500, "InternalError", nil))
		err := startPodcount(t, f, "-once").Finish()
		if err == nil || err.Error() != "-once: pod-count could not make 1 object right (a): the log says why" || errors.As(err, new(options.UsageError)) {
			t.Error(err)
		}
		wantLabel(t, f, "b", podCountLabel, "0")
		wantNumber(t, "tries", len(f.Requests(func(s fakekube.Request) bool { return strings.HasSuffix(s.Path, "/nodes/a") })), onceTries)
	})
}

func TestOnceGivesUpWhenTheServerIsAway(t *testing.T) {
	for kind, path := range map[string]string{"Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "Count": "/apis/demo.mark8s.io/v1"} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.InstallCRD(&fakekube.CRD{HasStatus: true})
			f.AddNode("cp", controlPlane)
			f.Inject(t, statusFault(fakekube.Requests{Resource: path}, fakekube.Always, 503, "ServiceUnavailable", nil))
			start := time.Now()
			err := startPodcount(t, f, "-once").Finish()
			if err == nil || err.Error() != "-once: after 2m0s there is no complete list of "+kind || time.Since(start) > onceListTimeout+time.Second {
				t.Errorf("%s, after %v: %v", kind, time.Since(start), err)
			}
			if kind != "Count" {
				wantNumber(t, "writes of labels", len(writesAt(f)), 0)
			}
		})
	}
}

func TestDryRunSaysWhatItWouldWriteAndWritesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		p := startPodcount(t, f, "-dry-run", "-leader-elect", "-v", "2")
		pass(5 * time.Minute)
		says := func(line string, times int) {
			t.Helper()
			wantNumber(t, line, strings.Count(p.Log.String(), line), times)
		}
		says(`msg="would write node cp: hopegi/pod-count none → 2"`, 1) // once, though it stays wrong
		says(`msg="would write count default/nginx: status none → 0 unhealthy"`, 1)
		f.AddPod("default", "one-more", "")
		pass(time.Minute)
		says(`msg="would write node cp: hopegi/pod-count none → 3"`, 1)
		says(`msg="would post an Event on pod default/one-more: PodCounted: pod count is 3"`, 1)
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		says("1 node: 1 would be written, 0 right, 0 failed, in 360.", 1)
		says("1 count: 1 would be written, 0 right, 0 failed, in 360.", 1)
		wantNumber(t, "requests that are not GET", len(f.Requests(func(s fakekube.Request) bool { return s.Method != "GET" })), 0)
		p = startPodcount(t, f, "-dry-run", "-once", "-v", "0")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.Log.String(), "1 node: 1 would be written, 0 right, 0 failed, in 0.")
		wantNumber(t, "requests that are not GET", len(f.Requests(func(s fakekube.Request) bool { return s.Method != "GET" })), 0)
	})
}

// Nothing is sent, so there is no reason to spread it over time.
func TestDryRunIsNotPacedByQPS(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 500 {
			f.AddNode(fmt.Sprint("n", i))
		}
		f.AddPods(3)
		p := startPodcount(t, f, "-dry-run", "-once", "-total-nodes", "", "-qps", "1", "-burst", "1")
		start := time.Now()
		if err := p.Finish(); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		wantNumber(t, "nodes that are said", strings.Count(p.Log.String(), "would write node "), 500)
		wantText(t, p.Log.String(), "500 nodes: 500 would be written, 0 right, 0 failed, in 0.")
	})
}

func TestOnceFailsWhereTheSchemaDropsTheStatus(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true, DropsStatus: true})
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		p := startPodcount(t, f, "-once")
		err := p.Finish()
		if err == nil || !strings.Contains(err.Error(), "count could not make 1 object right (default/nginx)") {
			t.Error(err)
		}
		wantText(t, p.Log.String(), "1 count: 0 written, 0 right, 1 failed, in ")
	})
}

// The total comes first. But where the nodes that show it can use up -qps, the others have to have a share.
func TestUrgentLabelsLeaveTheOthersAShare(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 60 {
			f.AddNode(fmt.Sprint("t", i), "show=1")
		}
		f.AddNode("plain")
		startPodcount(t, f, "-total-nodes", "show", "-node-label", ownPodsLabel, "-qps", "5", "-burst", "5", "-pod-events", "off")
		pass(time.Minute)
		for second := range 120 {
			f.AddPod("default", fmt.Sprint("p", second), "t1")
			if second == 60 { // all the writes that -qps allows are the total's by now
				f.AddPod("default", "mine", "plain")
			}
			pass(time.Second)
		}
		wantLabel(t, f, "plain", ownPodsLabel, "1")
	})
}

// Each object is written once at most: what changes meanwhile is for the next run.
func TestOnceOfAManyNodesEndsWhilePodsComeAllTheTime(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 400 {
			f.AddNode(fmt.Sprint("n", i))
		}
		p := startPodcount(t, f, "-once", "-total-nodes", "", "-controllers", "pod-count")
		for i := range 60 {
			f.AddPod("default", fmt.Sprint("p", i), "")
			pass(time.Second)
		}
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.Log.String(), "400 nodes: 400 written, 0 right, 0 failed, in ")
		wantNumber(t, "writes", len(writesAt(f)), 400)
	})
}

func TestNumbersOfASummaryAddUpWhateverChangesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fakekube.Server, p *program)
		want   string
		err    string
	}{
		"nodes that were written are removed": {func(f *fakekube.Server, _ *program) {
			for i := range 10 {
				if f.Label(fmt.Sprint("n", i), podCountLabel) == "2" {
					f.Remove("nodes", at("", fmt.Sprint("n", i)))
				}
			}
		}, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"nodes are added": {func(f *fakekube.Server, _ *program) { f.AddNode("new") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a pod is added":  {func(f *fakekube.Server, _ *program) { f.AddPod("default", "new", "") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a stop": {func(_ *fakekube.Server, p *program) { p.Stop() }, "10 nodes: 6 written, 0 right, 0 failed, 4 not done, in ",
			"-once: stopped before all was done"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				for i := range 10 {
					f.AddNode(fmt.Sprint("n", i))
				}
				f.AddPods(2)
				p := startPodcount(t, f, "-once", "-total-nodes", "", "-qps", "1", "-burst", "1", "-workers", "1")
				pass(5500 * time.Millisecond)
				c.change(f, p)
				err := p.Finish()
				if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
					t.Errorf("it ended with %v, want %q", err, c.err)
				}
				wantText(t, p.Log.String(), c.want)
			})
		})
	}
}

func TestOnceNamesWhatIsLeftOfEachController(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddNode("cp", controlPlane)
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		f.Inject(t, statusFault(fakekube.Requests{If: fakekube.IsWrite}, fakekube.Always, 500, "InternalError", nil))
		err := startPodcount(t, f, "-once").Finish()
		want := "-once: pod-count could not make 1 object right (cp); count could not make 1 object right (default/nginx): the log says why"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		err = startPodcount(t, f, "-prune").Finish()
		if err != nil { // no label is there
			t.Error(err)
		}
	})
}

func TestOnceTriesAgainWhatAControllerPanickedAbout(t *testing.T) {
	var asked atomic.Bool
	var reconciled atomic.Int32
	withController(t, Controller{Name: "flaky", Setup: func(m *manager, c *Controller) {
		Watch(c, m.nodes, func(d Delta[*Node]) []Key {
			if !asked.Swap(true) {
				panic("once")
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("n1")
		f.AddNode("n2")
		if err := startPodcount(t, f, "-once", "-controllers", "flaky").Finish(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "nodes that were reconciled", int(reconciled.Load()), 2)
	})
}

func TestControllerWhoseNumbersOrTicksPanicEndsNothingElse(t *testing.T) {
	withController(t, Controller{Name: "odd", Setup: func(m *manager, c *Controller) {
		Watch(c, m.nodes, func(Delta[*Node]) []Key { return nil })
		c.Totals = func() Totals { panic("numbers") }
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		if err := startPodcount(t, f, "-once", "-controllers", "pod-count,odd").Finish(); err == nil ||
			!strings.Contains(err.Error(), "-once: odd cannot name the objects that need work: panic: tick") {
			t.Errorf("-once ended with %v", err)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
		f.AddPods(3)
		p := startPodcount(t, f, "-controllers", "pod-count,odd")
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestDryRunSaysAgainWhatHasBeenRightMeanwhile(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		p := startPodcount(t, f, "-dry-run", "-interval", "1s")
		pass(5 * time.Second)
		for _, label := range []string{"3", "77"} {
			f.SetLabel("cp", podCountLabel, label)
			pass(5 * time.Second)
		}
		wantNumber(t, "none → 3", strings.Count(p.Log.String(), `"would write node cp: hopegi/pod-count none → 3"`), 1)
		wantNumber(t, "77 → 3", strings.Count(p.Log.String(), `"would write node cp: hopegi/pod-count 77 → 3"`), 1)
	})
}

func TestOnceEndsWithASummary(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		f.AddPods(2)
		for i := range 47 {
			f.AddNode(fmt.Sprint("n", i), podCountLabel+"=2")
		}
		f.AddNode("refused")
		f.AddNode("cp-1")
		f.AddNode("cp-2")
		f.AddCount("nginx", `{"name":"nginx","count":1}`)
		isRefused := func(s fakekube.Request) bool {
			return s.Method == "PATCH" && strings.HasSuffix(s.Path, "/nodes/refused")
		}
		f.Inject(t, statusFault(fakekube.Requests{If: isRefused}, fakekube.Always, 500, "InternalError", nil))
		p := startPodcount(t, f, "-once", "-total-nodes", "")
		if err := p.Finish(); err == nil {
			t.Error("it ended well")
		}
		wantText(t, p.Log.String(), "50 nodes: 2 written, 47 right, 1 failed, in ")
		wantText(t, p.Log.String(), "1 count: 1 written, 0 right, 0 failed, in ")
		p = startPodcount(t, f, "-prune")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.Log.String(), "50 nodes: 49 written, 1 right, 0 failed, in ")
	})
}

// A server may ask for an hour's patience with each answer, and -once would wait ten times.
func TestOnceEndsWithinItsTimeoutAndNamesWhatIsLeft(t *testing.T) {
	for timeout, args := range map[time.Duration][]string{10 * time.Minute: nil, 30 * time.Second: {"-once-timeout", "30s"}} {
		simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("a", controlPlane)
			f.AddNode("b", controlPlane)
			busy := statusFault(fakekube.Requests{Verb: "patch", Resource: "nodes", Name: "a"}, 1,
				429, "TooManyRequests", nil, "Retry-After", "3600")
			f.Inject(t, busy)
			start := time.Now()
			p := startPodcount(t, f, append(args, "-once")...)
			err := p.Finish()
			want := fmt.Sprintf("-once: pod-count could not make 1 object right (a) after %v: the log says why", timeout)
			if err == nil || err.Error() != want || time.Since(start).Round(5*time.Second) != timeout {
				t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
			}
			wantText(t, p.Log.String(), "2 nodes: 1 written, 0 right, 1 failed, in ")
			wantLabel(t, f, "b", podCountLabel, "0")
		})
	}
}

func TestPruneRemovesItsLabelsFromAllNodesAndNothingElse(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane, podCountLabel+"=3", "x.y/pods=3", "z/other=1")
		f.AddNode("n1", podCountLabel+"=3", "x.y/pods=1")
		f.AddNode("n2")
		f.AddPods(3)
		if err := startPodcount(t, f, "-prune", "-dry-run", "-node-label", "x.y/pods").Finish(); err != nil {
			t.Error(err)
		}
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, selectors := range [][]string{{"-total-nodes", "none"}, {"-node-label", "x.y/pods", "-namespace", "a", "-pod-selector", "b=c", "-field-selector", "spec.nodeName=d"}} {
			if err := startPodcount(t, f, append(selectors, "-prune")...).Finish(); err != nil {
				t.Error(err)
			}
			wantLabel(t, f, "cp", podCountLabel, "-")
			wantLabel(t, f, "n1", podCountLabel, "-")
			if selectors[0] == "-total-nodes" {
				wantLabel(t, f, "n1", "x.y/pods", "1")
			}
		}
		wantLabel(t, f, "cp", "x.y/pods", "-")
		wantLabel(t, f, "n1", "x.y/pods", "-")
		wantLabel(t, f, "cp", "z/other", "1")
		wantLabel(t, f, "cp", controlPlane, "")
		wantNumber(t, "writes", len(writesAt(f)), 4)
		wantNumber(t, "events", len(f.All("events")), 0)
		wantNumber(t, "lists of pods", len(f.Requests(func(s fakekube.Request) bool { return strings.Contains(s.Path, "pods") })), 0)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Health, metrics and state

// startListening runs the whole program in real time, with -listen, and returns how to ask it.
func startListening(t *testing.T, f *fakekube.Server, args ...string) (get func(path string) (code int, text string)) {
	t.Helper()
	return asking(t, startListeningAt(t, f, args...))
}

// startListeningAt runs the whole program in real time, with -listen, and returns the address of that.
func startListeningAt(t *testing.T, f *fakekube.Server, args ...string) (address string) {
	t.Helper()
	server, ca := f.ServeTLSFor(t)
	f.Allow("secret-token")
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: secret-token")})
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := &logBuffer{}, make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-listen", "127.0.0.1:0"}, args...), func(string) string { return "" }, io.Discard, log, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.Await(t, "a request", func() bool { return len(f.Requests(func(fakekube.Request) bool { return true })) > 0 })
	_, address, _ = strings.Cut(log.String(), "msg=listening on=")
	address, _, _ = strings.Cut(address, "\n")
	return address
}

// asking returns how to ask the server of that address for a page.
func asking(t *testing.T, address string) (get func(path string) (code int, text string)) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(text)
	}
}

func TestReadySaysWhichCacheIsNotAndLiveDoesNotCare(t *testing.T) {
	f := fakekube.New()
	f.AddNode("cp", controlPlane)
	release, met := make(chan struct{}), make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "pods"}, Met: func(fakekube.Request) { met <- struct{}{} }, Do: fakekube.Handle(func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "not now", http.StatusServiceUnavailable)
	})})
	get := startListening(t, f, "-leader-elect")
	<-met
	f.Await(t, "the nodes' watch", func() bool {
		return len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/api/v1/nodes" && s.Query.Get("watch") != "" })) > 0
	})
	want := func(path string, code int, text string) {
		t.Helper()
		if c, got := get(path); c != code || got != text {
			t.Errorf("%s: %d %q, want %d %q", path, c, got, code, text)
		}
	}
	want("/readyz", 503, "there is no complete list yet of: Pod\n")
	want("/livez", 200, "ok\n")
	want("/healthz", 200, "ok\n")
	close(release)
	f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == "0" })
	want("/readyz", 200, "ok\n")
	f.CutOff("", true) // the server is away: we are as ready as before, and alive
	want("/readyz", 200, "ok\n")
	want("/livez", 200, "ok\n")
	want("/nothing", 404, "404 page not found\n")
}

func TestRootOfListenNamesEachPathThatAnswers(t *testing.T) {
	f := fakekube.New()
	get := startListening(t, f)
	f.Await(t, "both watches", func() bool {
		return len(f.Requests(func(s fakekube.Request) bool { return s.Query.Get("watch") != "" })) >= 2
	})
	code, text := get("/")
	wantNumber(t, "the code", code, 200)
	paths := regexp.MustCompile(`(?m)(?:^| )(/[a-z/]+)`).FindAllStringSubmatch(text, -1)
	wantNumber(t, "paths", len(paths), 5)
	for _, path := range paths {
		if code, _ := get(path[1]); code != 200 {
			t.Errorf("%s answers %d", path[1], code)
		}
	}
}

func TestLiveTellsAWorkerThatHangs(t *testing.T) {
	var m *manager
	hang := make(chan struct{})
	withController(t, Controller{Name: "hangs", Setup: func(of *manager, c *Controller) {
		m = of
		Watch(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
		c.Reconcile = func(context.Context, Key) (Result, error) {
			<-hang
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		hang = make(chan struct{})
		f.AddNode("cp", controlPlane)
		startPodcount(t, f, "-qps", "0.1", "-workers", "2")
		live := func() (code int, text string) {
			answer := httptest.NewRecorder()
			m.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/livez", nil))
			return answer.Code, answer.Body.String()
		}
		limit := 2*kube.RequestTimeout + 20*time.Second // two workers may have to wait for a token of -qps each
		pass(limit - time.Second)
		if code, text := live(); code != 200 {
			t.Errorf("before the limit: %d %s", code, text)
		}
		pass(2 * time.Second)
		if code, text := live(); code != 503 || text != "does not move: hangs: a worker has been processing cp for 2m31s\n" {
			t.Errorf("after the limit: %d %q", code, text)
		}
		close(hang)
		pass(time.Second)
		if code, text := live(); code != 200 || text != "ok\n" {
			t.Errorf("when it is over: %d %q", code, text)
		}
	})
}

// The text is what Prometheus reads: a family's lines together, labels in quotes, buckets that grow up to the count.
func TestMetricsSayWhatWasDoneAndNothingSecret(t *testing.T) {
	f := fakekube.New()
	f.InstallCRD(&fakekube.CRD{HasStatus: true})
	f.AddNode("cp", controlPlane)
	f.AddPods(3)
	f.AddCount("nginx", `{"name":"nginx","count":1}`)
	get := startListening(t, f, "-leader-elect", "-interval", "10ms")
	f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == "3" })
	f.AddPod("default", "one-more", "")
	f.Await(t, "the label", func() bool { return f.Label("cp", podCountLabel) == "4" })
	f.Await(t, "the status", func() bool { return strings.HasPrefix(f.CountStatus("nginx"), "false") })
	f.Await(t, "the events", func() bool {
		return len(eventsOf(f, "PodCountChanged")) == 2 && len(eventsOf(f, "PodCounted")) == 1 && len(eventsOf(f, "Synced")) == 1
	})
	code, text := get("/metrics")
	if code != 200 || strings.Contains(text, "secret-token") {
		t.Errorf("%d, or a secret in %s", code, text)
	}
	for _, want := range []string{
		`podcount_lines_dropped_total{stream="stderr"} 0` + "\n", `podcount_lines_dropped_total{stream="stdout"} 0` + "\n",
		"podcount_pods 4\n", `podcount_cache_objects{kind="Node"} 1` + "\n", `podcount_watch_events_total{kind="Pod",type="ADDED"} 1` + "\n",
		`podcount_relists_total{kind="Pod",reason="start"} 1` + "\n", `podcount_label_patches_total{result="written"} 2` + "\n",
		`podcount_status_patches_total{result="written"} 1` + "\n", `podcount_build_info{version="dev",goversion="go`, `leader_election_master_status{name="podcount"} 1` + "\n",
		`workqueue_depth{name="pod-count"} 0` + "\n", `workqueue_work_duration_seconds_bucket{name="pod-count",le="+Inf"} `, "go_goroutines ",
		`rest_client_requests_total{code="200",method="PATCH",host="127.0.0.1:`, `rest_client_request_duration_seconds_count{verb="GET",host="127.0.0.1:`,
		`podcount_events_total{result="posted"} `, "# TYPE workqueue_queue_duration_seconds histogram\n", "# TYPE workqueue_adds_total counter\n",
		"process_start_time_seconds ",
	} {
		wantText(t, text, want)
	}
	wantPrometheus(t, text)
	for _, absent := range []string{"podcount_pods 0", "process_cpu_seconds_total 0\n"} {
		if runtime.GOOS == "linux" && strings.Contains(text, absent) {
			t.Errorf("it says %s", absent)
		}
	}

	var state struct {
		Version string
		Lease   struct {
			Identity string
			IsOurs   bool
		}
		Caches map[string]struct {
			Objects           int
			Ready             bool
			ResourceVersion   string
			SecondsSinceHeard float64
		}
		Controllers map[string]struct{ Ready, Keys int }
	}
	_, text = get("/debug/state")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	pods := state.Caches["Pod"]
	if state.Version != version || !state.Lease.IsOurs || state.Lease.Identity == "" || pods.Objects != 4 || !pods.Ready || pods.ResourceVersion == "" || len(state.Controllers) != 2 {
		t.Errorf("the state is %s", text)
	}
}

// wantPrometheus holds a page of metrics against the text format.
func wantPrometheus(t *testing.T, text string) {
	t.Helper()
	sample := regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*")(?:,[a-z]+="[^"\\\n]*")*)\})? (\S+)$`)
	kinds, family, last, below := map[string]string{}, "", "", 0.0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, meaning, _ := strings.Cut(help, " ")
			if kinds[name] != "" || meaning == "" {
				t.Errorf("%s is there twice, or says nothing", name)
			}
			family, last = name, ""
			continue
		} else if kind, ok := strings.CutPrefix(line, "# TYPE "+family+" "); ok {
			kinds[family] = kind
			if strings.HasSuffix(family, "_total") != (kind == "counter") {
				t.Errorf("%s is a %s", family, kind)
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%q is no sample", line)
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		name := m[1]
		if kinds[family] == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
			switch of, _, _ := strings.Cut(m[2], "le="); {
			case strings.HasSuffix(m[1], "_bucket") && value < below && of == last:
				t.Errorf("a bucket is smaller than the one before: %s", line)
			case strings.HasSuffix(m[1], "_bucket"):
				last, below = of, value
			case strings.HasSuffix(m[1], "_count") && value != below:
				t.Errorf("the last bucket has %v: %s", below, line)
			}
		}
		if err != nil || name != family || kinds[name] == "" || value < 0 {
			t.Errorf("%q in the family %q of type %q", line, family, kinds[name])
		}
	}
}

// Whoever graphs a number must not see a 0 where nobody has counted, or what has been removed.
func TestGaugesOfWhatIsNotThereAreAbsent(t *testing.T) {
	var m *manager
	withController(t, Controller{Name: "looks", Setup: func(of *manager, c *Controller) {
		m = of
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		metrics := func() string {
			answer := httptest.NewRecorder()
			m.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			return answer.Body.String()
		}
		wantGauges := func(when string, present bool, names ...string) {
			t.Helper()
			text := metrics()
			for _, name := range names {
				if strings.Contains(text, "\n"+name+" ") != present {
					t.Errorf("%s: is there a %s? want %v", when, name, present)
				}
			}
		}
		ofCounts := []string{
			`podcount_cache_objects{kind="Count"}`, `podcount_watch_age_seconds{kind="Count"}`,
		}
		ofQueue := func(name string) []string {
			return []string{
				`workqueue_depth{name="` + name + `"}`,
				`workqueue_unfinished_work_seconds{name="` + name + `"}`,
				`workqueue_longest_running_processor_seconds{name="` + name + `"}`,
			}
		}
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Resource: "/api/v1/pods"}, Do: fakekube.Reply{Code: 503, Body: "{}"}})
		startPodcount(t, f, "-controllers", "*,looks")
		synctest.Wait()
		wantGauges("before the lists", false, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("before the lists", false, ofQueue("pod-count")...)
		wantGauges("before the lists", true, `podcount_watch_age_seconds{kind="Pod"}`)
		pass(time.Minute)
		wantGauges("at work", true, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("at work", true, ofQueue("pod-count")...)
		wantGauges("without a CRD", false, ofCounts...)
		wantGauges("without a CRD", false, ofQueue("count")...)
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		pass(time.Minute)
		wantGauges("with the CRD", true, ofCounts...)
		wantGauges("with the CRD", true, ofQueue("count")...)
		f.InstallCRD(nil)
		pass(time.Minute)
		wantGauges("when the CRD is gone", false, ofCounts...)
	})
}

func TestTakenPortIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = run(t.Context(), []string{"-master", "http://127.0.0.1:1", "-listen", taken.Addr().String()}, func(string) string { return "" }, io.Discard, io.Discard, nil)
	if err == nil || errors.As(err, new(options.UsageError)) || !strings.Contains(err.Error(), "-listen "+taken.Addr().String()+": ") {
		t.Error(err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The manifest

func manifest(t *testing.T, args ...string) string {
	t.Helper()
	out := &logBuffer{}
	if err := run(t.Context(), args, func(string) string { return "" }, out, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestManifestIsWhatDeployHas(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("deploy/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for args, want := range map[string]string{
		"-manifest":                             read("podcount") + "---\n" + read("policy"),
		"-manifest=podcount":                    read("podcount"),
		"-manifest=count-crd":                   read("count-crd"),
		"-manifest=network-policy,count-sample": read("network-policy") + "---\n" + read("count-sample"),
	} {
		if got := manifest(t, args); got != want {
			t.Errorf("%s:\n%s", args, got)
		}
	}
}

// right is one that RBAC grants, or that a request needs.
type right struct {
	verb, group, resource string
	namespace             string // "": of the cluster, or every namespace
	name                  string // the one object; "": any
}

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s in %q %s", r.verb, r.resource, r.group, r.namespace, r.name))
}

// covers reports whether who has r may do what needs another right.
func (r right) covers(needed right) bool {
	return r.verb == needed.verb && r.group == needed.group && r.resource == needed.resource &&
		(r.namespace == "" || r.namespace == needed.namespace) && (r.name == "" || r.name == needed.name)
}

// rightsNeeded are the rights that a request needs.
func rightsNeeded(s fakekube.Request) []right {
	if strings.HasPrefix(s.Path, "/apis/") && strings.Count(s.Path, "/") == 3 { // discovery, which is everybody's
		return nil
	}
	r := right{verb: s.Verb, group: s.Group, resource: strings.TrimSuffix(s.Resource+"/"+s.Subresource, "/"), name: s.Name}
	if _, rest, ok := strings.Cut(s.Path, "/namespaces/"); ok {
		r.namespace, _, _ = strings.Cut(rest, "/")
	}
	if s.Method == "PUT" && !strings.Contains(s.Body, `"resourceVersion"`) { // this makes the object
		create := r
		create.verb = "create"
		return []right{r, create}
	}
	return []right{r}
}

// rightsOf are the rights that a manifest grants, by its roles and bindings.
func rightsOf(t *testing.T, manifest string) (rights []right) {
	roles := map[string][]any{} // the rules, by kind, namespace and name
	var bindings []fakekube.Object
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		o := tree.(fakekube.Object)
		switch kind := fakekube.TextIn(o, "kind"); kind {
		case "ClusterRole", "Role":
			roles[kind+" "+fakekube.TextIn(fakekube.MetaOf(o), "namespace")+" "+fakekube.TextIn(fakekube.MetaOf(o), "name")] = o["rules"].([]any)
		case "ClusterRoleBinding", "RoleBinding":
			bindings = append(bindings, o)
		}
	}
	bound := map[string]bool{}
	for _, b := range bindings {
		namespace := fakekube.TextIn(fakekube.MetaOf(b), "namespace")
		ref := b["roleRef"].(fakekube.Object)
		role := fakekube.TextIn(ref, "kind") + "  " + fakekube.TextIn(ref, "name")
		if fakekube.TextIn(ref, "kind") == "Role" {
			role = "Role " + namespace + " " + fakekube.TextIn(ref, "name")
		}
		bound[role] = true
		for _, rule := range roles[role] {
			names, _ := rule.(fakekube.Object)["resourceNames"].([]any)
			if names == nil {
				names = []any{""}
			}
			for _, group := range rule.(fakekube.Object)["apiGroups"].([]any) {
				for _, resource := range rule.(fakekube.Object)["resources"].([]any) {
					for _, verb := range rule.(fakekube.Object)["verbs"].([]any) {
						for _, name := range names {
							rights = append(rights, right{verb.(string), group.(string), resource.(string), namespace, name.(string)})
						}
					}
				}
			}
		}
	}
	for role := range roles {
		if !bound[role] {
			t.Errorf("nobody has the role %s", role)
		}
	}
	return rights
}

// argsOf are the arguments that the Deployment or CronJob of a manifest gives to podcount.
func argsOf(t *testing.T, manifest string) (args []string) {
	_, rest, _ := strings.Cut(manifest, " args:\n")
	for line := range strings.Lines(rest) {
		quoted, isArg := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !isArg {
			break
		}
		var arg string
		if err := json.Unmarshal([]byte(quoted), &arg); err != nil {
			t.Fatal(err)
		}
		args = append(args, arg)
	}
	return args
}

// The limits of deploy/alerts.yaml are those of the default flags. That it looks back a day, to know a podcount, is none.
func TestManifestOfOnceIsACronJobThatDoesItsWorkAndEnds(t *testing.T) {
	text := manifest(t, "-manifest", "-once", "-leader-elect-resource-name", "podcount-a", "-manifest-namespace", "ops", "-image", "r.example/p:v1")
	for _, absent := range []string{"Deployment", "PodDisruptionBudget", "Lease", "leases", "Probe", "containerPort", "prometheus.io", "replica", "affinity"} {
		if strings.Contains(text, absent) {
			t.Errorf("%q is in\n%s", absent, text)
		}
	}
	wantText(t, text, "kind: CronJob\nmetadata:\n  name: podcount-a\n  namespace: ops\n")
	wantText(t, text, "image: r.example/p:v1\n")
	wantText(t, text, "kind: ValidatingAdmissionPolicy\n")
	args := argsOf(t, text)
	if want := []string{"-leader-elect-resource-name=podcount-a", "-once=true", "-pod-events=off"}; !slices.Equal(args, want) {
		t.Errorf("its arguments are %q, want %q", args, want)
	}
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		p := startPodcount(t, f, args...)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		select {
		case <-p.Done:
		default:
			t.Error("it goes on")
		}
	})
}

// What podcount does with the arguments of its own manifest, it may do by the rights in it, and it has no right that it does
// not use: whatever the flags are.
func TestRightsOfTheManifestAreThoseThatAreUsed(t *testing.T) {
	for _, flags := range []string{
		"",
		"-pod-events on",
		"-node-label x.y/own",
		"-namespace default",
		"-namespace a",
		"-namespace a -pod-events on",
		"-namespace default -pod-events on",
		"-leader-elect=false",
		"-leader-elect-resource-namespace leases -leader-elect-resource-name podcount-b",
		"-dry-run",
		"-dry-run -namespace a",
		"-controllers pod-count",
		"-controllers pod-count -pod-events on",
		"-controllers pod-count -namespace a",
		"-controllers pod-count -namespace a -pod-events on",
		"-controllers pod-count -namespace default -pod-events on",
		"-controllers pod-count -namespace default",
		"-controllers pod-count -leader-elect=false",
		"-controllers pod-count -dry-run",
		"-controllers count",
		"-controllers count -namespace a",
		"-controllers count -dry-run",
		"-controllers pod-printer",
		"-controllers pod-printer -namespace a -leader-elect=false",
		"-once",
		"-once -dry-run",
		"-controllers *,pod-printer",
	} {
		t.Run(flags, func(t *testing.T) {
			text := manifest(t, append([]string{"-manifest=podcount"}, strings.Fields(flags)...)...)
			granted := rightsOf(t, text)
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.InstallCRD(&fakekube.CRD{HasStatus: true})
				f.AddNode("cp", controlPlane)
				for _, ns := range []string{"a", "leases"} {
					f.Put("namespaces", fakekube.Object{"metadata": fakekube.Object{"name": ns}})
				}
				for _, ns := range []string{"default", "a"} {
					f.PutJSON("counts", fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"web"},"spec":{"name":"web","count":1}}`, ns))
				}
				args := append(argsOf(t, text), "-listen=", "-pod-selector=app")
				startPodcount(t, f, args...)
				pass(time.Minute)
				// A pod that comes, goes out of sight, and comes back makes each event happen twice.
				for range 2 {
					for _, app := range []string{"web", ""} {
						for _, ns := range []string{"default", "a"} {
							labels := fakekube.Object{"app": app}
							if app == "" {
								labels = nil
							}
							f.Put("pods", fakekube.PodOn(fakekube.Object{"namespace": ns, "name": "p", "labels": labels}, "cp"))
							pass(time.Minute)
						}
					}
				}
				for _, lease := range f.All("leases") { // somebody removes it
					f.Remove("leases", fakekube.KeyOf(lease))
				}
				pass(time.Minute)

				var used []right
				for _, s := range f.Requests(func(fakekube.Request) bool { return true }) {
					for _, needed := range rightsNeeded(s) {
						used = append(used, needed)
						if !slices.ContainsFunc(granted, func(g right) bool { return g.covers(needed) }) {
							t.Errorf("the manifest does not allow: %s", needed)
						}
					}
				}
				for _, g := range granted {
					if !slices.ContainsFunc(used, g.covers) {
						t.Errorf("the manifest allows what is not used: %s", g)
					}
				}
			})
		})
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Simulated time: a seed chooses a cluster's life and its faults

// podcountSimulated is what the simulation has to know of podcount.
func podcountSimulated(seed uint64) sim.Options {
	return sim.Options{
		Program: func(
			ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
			dial func(ctx context.Context, network, addr string) (net.Conn, error),
		) error {
			return run(ctx, args, getenv, stdout, stderr, dial)
		},
		Name: "podcount",
		Rerun: func(seed uint64) string {
			return fmt.Sprintf("make sim SEEDS=%d-%d runs the same life and faults; STORY=all shows the whole story", seed, seed)
		},
		Seed:              seed,
		WholeStory:        os.Getenv("STORY") == "all",
		TotalLabel:        podCountLabel,
		OwnPodsLabel:      "hopegi/here",
		ControlPlaneLabel: controlPlane,
		LeaseNamespace:    leaseKey.Namespace,
		LeaseName:         leaseKey.Name,
		LeaseLost:         "the lease is lost",
		LongestBackoff:    time.Minute,
		LongestDiscovery:  discoveryInterval * 6 / 5,
		Silence:           kube.Silence,
		LongestUnlisted:   75 * time.Minute,
		StatusRest:        time.Second,
	}
}

// Without SEEDS this runs as many seeds as fit in 20 s, five with the race detector; with SEEDS=N those up to N, with
// SEEDS=A-B those from A to B.
func TestSimulation(t *testing.T) {
	seeds := sim.Seeds{First: 1, Last: math.MaxInt64, Limit: 20 * time.Second}
	if fewer(1) == 0 {
		seeds.Last = 5
		seeds.Limit = time.Hour
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		seeds, err = sim.ParseSeeds(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(800)) // speed
	}
	sim.RunSeeds(t, podcountSimulated(0), seeds)
}

// rewriter writes text with words replaced.
type rewriter struct {
	to    io.Writer
	words *strings.Replacer
}

func (w *rewriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.to, w.words.Replace(string(text)))
	return len(text), err
}

// The simulation reads of the log what each process has heard. If the log has other words some day, it must not go on
// as if nothing had been said.
func TestSimulationFailsIfItDoesNotUnderstandTheLog(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no JSON", `{"time"`, `time`, "logs a line that cannot be read"},
		{"no list", `"msg":"listed"`, `"msg":"it lists"`, "that it has listed pods"},
		{"no watch", `"msg":"watching"`, `"msg":"it watches"`, "that it watches pods"},
		{"no discovery", `"msg":"discovered"`, `"msg":"found"`, "that it has discovered counts"},
		{"other version", `watching","kind":"Pod","rv":"`, `watching","kind":"Pod","rv":"1`, "it has not asked for"},
		{"no version", `"rv":`, `"version":`, "logs a line that lacks rv"},
		{"version that is none", `"rv":"`, `"rv":"v`, "logs a line whose rv is no version"},
		{"other kind", `"kind":"Pod"`, `"kind":"pods"`, "should name a kind that it watches"},
		{"no stale", `"stale":`, `"old":`, "logs an event that lacks stale"},
		{"other type", `"msg":"MODIFIED `, `"msg":"CHANGED `, "logs an event of an unknown type"},
		{"no key", `"msg":"MODIFIED Node `, `"msg":"MODIFIED Node", "key":"`, "logs an event without a kind or a key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := podcountSimulated(3)
			podcount := o.Program
			o.Program = func(
				ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
				dial func(ctx context.Context, network, addr string) (net.Conn, error),
			) error {
				log := &rewriter{to: stderr, words: strings.NewReplacer(c.from, c.to)}
				return podcount(ctx, args, getenv, stdout, log, dial)
			}
			result := sim.Simulate(t, o)
			wantText(t, strings.Join(result.Broken, "\n"), c.want)
		})
	}
}

func TestSameSeedBringsTheSameLifeAndFaults(t *testing.T) {
	var scripts [3]string
	for i, seed := range []uint64{13, 13, 15} {
		scripts[i] = strings.Join(sim.Run(t, podcountSimulated(seed)).Script, "\n")
	}
	if scripts[0] != scripts[1] || scripts[0] == scripts[2] || len(scripts[0]) < 1000 {
		t.Errorf("seed 13 was\n%s\n\nand then\n%s", scripts[0], scripts[1])
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Behaviours: what holds on the fake holds on a real cluster

func TestBehavioursOnTheFake(t *testing.T) {
	f := fakekube.New()
	server, ca := f.ServeTLSFor(t)
	f.Allow("admin")
	f.Compact()
	file := filepath.Join(t.TempDir(), "config")
	config := fakekube.Kubeconfig(server, ca, "token: admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o := podcountBehaviours()
	o.Fake = f
	o.Kubeconfig = file
	behaviours.Show(t, o)
}

// TestBehavioursOnARealCluster is what `make e2e KUBECONFIG=FILE` runs.
func TestBehavioursOnARealCluster(t *testing.T) {
	if os.Getenv("PODCOUNT_E2E") == "" {
		t.Skip("needs a cluster: make e2e KUBECONFIG=FILE")
	}
	o := podcountBehaviours()
	o.Kubeconfig = os.Getenv("KUBECONFIG")
	o.Context = os.Getenv("CONTEXT")
	behaviours.Show(t, o)
}

// podcountBehaviours returns the parts of podcount that the behaviours need.
func podcountBehaviours() behaviours.Options {
	return behaviours.Options{
		Program:      run,
		NewReflector: newPodReflector,
		DecodePods: func(list io.Reader, isProtobuf, isMetadataOnly bool) (pods []string, err error) {
			kind := Kind[*Pod]{
				Name:         "Pod",
				MetadataOnly: isMetadataOnly,
				Labels:       []string{"row"},
				New:          func() *Pod { return new(Pod) },
			}
			_, err = newDecoder(&kind).list(list, isProtobuf, func(p *Pod, text []byte) (bool, error) {
				p.text = string(text)
				pods = append(pods, describe(&Pod{p.Meta, ""}))
				return true, nil
			})
			return pods, err
		},
	}
}

// podReflector is podcount's Reflector of pods, as the behaviours use it.
type podReflector struct {
	*Reflector[*Pod]
	client *kube.Client
}

func newPodReflector(o behaviours.ReflectorOptions) behaviours.Reflector {
	log := newLog(o.Log, &options.Options{Verbosity: 4})
	client := newClient(&options.Options{}, o.Config, o.Dial, log)
	kind := Kind[*Pod]{
		Name:      "Pod",
		API:       "/api/v1",
		Resource:  "pods",
		Namespace: o.Namespace,
		Protobuf:  true,
		Selector:  o.LabelSelector,
		Fields:    o.FieldSelector,
		New:       func() *Pod { return new(Pod) },
	}
	r := newReflector(&options.Options{}, client, log, kind)
	r.Subscribe(func(Delta[*Pod]) { o.Changed() })
	if o.Version != "" {
		r.version = o.Version
		r.relistAt = time.Now().Add(time.Hour)
	}
	return &podReflector{r, client}
}

func (r *podReflector) Run(ctx context.Context) {
	defer r.client.Close()
	r.Reflector.Run(ctx)
}

func (r *podReflector) Names() []string {
	var names []string
	for _, p := range r.Store.All() {
		names = append(names, p.Key().Name)
	}
	slices.Sort(names)
	return names
}

// ---------------------------------------------------------------------------------------------------------------------
// Benchmarks

// crowd is an API server with as many pods and nodes as one likes: they are made as they are sent, and not stored. Its
// watches are silent, and its nodes know only what was patched last.
type crowd struct {
	pods, nodes int
	labels      fakekube.Object // of each pod, in place of crowdPod's
	patched     chan string     // the number on the first node, when it is written
}

// pod is a pod of this crowd, with places for numbers as in crowdPod.
func (c *crowd) pod() fakekube.Object {
	if c.labels == nil {
		return crowdPod
	}
	pod, meta := maps.Clone(crowdPod), maps.Clone(fakekube.MetaOf(crowdPod))
	meta["labels"] = c.labels
	pod["metadata"] = meta
	return pod
}

// An object of the crowd, with its number in place of ######, and in place of @@@@@ that of a node.
var crowdPod = fakekube.Object{
	"kind": "Pod", "apiVersion": "v1",
	"metadata": fakekube.Object{"name": "web-5d4f8c7b9-######", "namespace": "team-7", "uid": "5a2b7c1e-93d4-4f6a-8b1c-000000######", "resourceVersion": "1######",
		"creationTimestamp": "2026-01-02T03:04:05Z", "labels": fakekube.Object{"app": "web", "pod-template-hash": "5d4f8c7b9"},
		"annotations": fakekube.Object{"example.com/filler": strings.Repeat("what nobody reads ", 60)}},
	"spec":   fakekube.Object{"nodeName": "node-@@@@@", "containers": []any{fakekube.Object{"name": "web", "image": "registry.example.com/team-7/web:v1.2.3"}}},
	"status": fakekube.Object{"phase": "Running"},
}

var crowdNode = fakekube.Object{
	"kind": "Node", "apiVersion": "v1",
	"metadata": fakekube.Object{"name": "node-@@@@@", "uid": "7f1d0a52-0c3e-4e0b-9a55-000000######", "resourceVersion": "1######",
		"labels": fakekube.Object{"kubernetes.io/hostname": "node-@@@@@", "kubernetes.io/os": "linux"}},
}

// item is the bytes of object i.
func (c *crowd) item(template []byte, i int) []byte {
	b := bytes.ReplaceAll(template, []byte("######"), fmt.Appendf(nil, "%06d", i))
	return bytes.ReplaceAll(b, []byte("@@@@@"), fmt.Appendf(nil, "%05d", i%c.nodes))
}

// list writes n objects like o. Without whole, they are their metadata alone.
func (c *crowd) list(w io.Writer, o fakekube.Object, n int, isProtobuf, whole bool) {
	if !whole {
		o = fakekube.Object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	defer out.Flush()
	if !isProtobuf {
		template, _ := json.Marshal(o)
		fmt.Fprintf(out, `{"kind":"%vList","apiVersion":"%v","metadata":{"resourceVersion":"2000000"},"items":[`, o["kind"], o["apiVersion"])
		for i := range n {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(c.item(template, i))
		}
		out.WriteString("]}")
		return
	}
	var meta, types, template fakekube.ProtobufMessage
	meta.Bytes(1, []byte("\x12\x072000000"))
	types.Text(1, fakekube.TextIn(o, "apiVersion"))
	types.Text(2, fakekube.TextIn(o, "kind")+"List")
	template.Bytes(2, fakekube.ProtobufObject(o))
	out.WriteString("k8s\x00")
	var head fakekube.ProtobufMessage
	head.Bytes(1, types)
	head = binary.AppendUvarint(append(head, 2<<3|2), uint64(len(meta)+n*len(template)))
	out.Write(append(head, meta...))
	for i := range n {
		out.Write(c.item(template, i))
	}
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	isProtobuf := strings.Contains(accept, wire.Protobuf)
	w.Header().Set("Content-Type", map[bool]string{true: wire.Protobuf, false: wire.JSON}[isProtobuf])
	switch {
	case r.URL.Query().Has("watch"):
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/pods":
		c.list(w, c.pod(), c.pods, isProtobuf, !strings.Contains(accept, "PartialObjectMetadata"))
	case r.URL.Path == "/api/v1/nodes":
		c.list(w, crowdNode, c.nodes, isProtobuf, false)
	case r.Method == http.MethodPatch:
		var patch fakekube.Object
		json.NewDecoder(r.Body).Decode(&patch)
		name := path.Base(r.URL.Path)
		labels := fakekube.MetaOf(patch)["labels"].(fakekube.Object)
		json.NewEncoder(w).Encode(fakekube.Object{"metadata": fakekube.Object{"name": name, "uid": fakekube.MetaOf(patch)["uid"], "resourceVersion": "2000001", "labels": labels}})
		if name == "node-00000" {
			c.patched <- fakekube.TextIn(labels, podCountLabel)
		}
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// serve returns the arguments that lead podcount to the crowd, over TLS and HTTP/2.
func (c *crowd) serve(t testing.TB) (args []string) {
	c.patched = make(chan string, 1000)
	srv := httptest.NewUnstartedServer(c)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(fakekube.Kubeconfig(srv.URL, ca, "token: t")), 0o600)
	return []string{"-kubeconfig", file, "-pod-events", "off", "-total-nodes", "kubernetes.io/hostname=node-00000"}
}

// The limits of Kubernetes itself: https://kubernetes.io/docs/setup/best-practices/cluster-large/
func TestAtTheLimitsOfKubernetesMemoryStaysUnder60MB(t *testing.T) {
	if runtime.GOOS != "linux" || fewer(1) == 0 {
		t.Skip("memory is read from /proc, and is another with the race detector")
	}
	program := filepath.Join(t.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, more := range [][]string{{}, {"-wire", "json"}, {"-node-label", "example.com/n"}} {
		c := &crowd{pods: 150000, nodes: 5000}
		cmd := exec.Command(program, append(c.serve(t), more...)...)
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		select {
		case total := <-c.patched:
			if total != "150000" {
				t.Errorf("%q: the label is %s", more, total)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q: no label", more)
		}
		took := time.Since(start).Round(10 * time.Millisecond)
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
		if kB, err := strconv.Atoi(string(peak[1])); err != nil || kB > 60<<10 {
			t.Errorf("%q: %d kB, %v", more, kB, err)
		} else {
			t.Logf("%q: %d kB, the label after %v", more, kB, took)
		}
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", more, err)
		}
	}
}

// body is a list of the crowd.
func (c *crowd) body(isProtobuf, whole bool) []byte {
	var b bytes.Buffer
	c.list(&b, c.pod(), c.pods, isProtobuf, whole)
	return b.Bytes()
}

func BenchmarkStartToLabel(b *testing.B) {
	for _, pods := range []int{10000, 100000} {
		for _, wire := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", wire, pods), func(b *testing.B) {
				c := &crowd{pods: pods, nodes: 1000}
				args := append(c.serve(b), "-wire", wire)
				b.ReportAllocs()
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					done := make(chan error)
					go func() { done <- run(ctx, args, func(string) string { return "" }, io.Discard, io.Discard, nil) }()
					if total := <-c.patched; total != strconv.Itoa(pods) {
						b.Fatal(total)
					}
					cancel()
					<-done
				}
			})
		}
	}
}

// The most memory that the program has had, with 400,000 pods.
func BenchmarkPeakMemory(b *testing.B) {
	program := filepath.Join(b.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				big := &crowd{pods: 400000, nodes: 1000, labels: c.labels}
				cmd := exec.Command(program, big.serve(b)...)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				if total := <-big.patched; total != "400000" {
					b.Fatal(total)
				}
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				cmd.Process.Kill()
				cmd.Wait()
				peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
				if peak == nil {
					b.Skip("memory is read from /proc")
				}
				kB, _ := strconv.Atoi(string(peak[1]))
				b.ReportMetric(float64(kB)/1000, "MB")
			}
		})
	}
}

// writerFunc is a Writer that is a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestWhatIsPrintedAndNotReadIsSaidInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		isBroken := true
		out := newOutputs(&options.Options{}, writerFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return len(b), nil
		}), log)
		fmt.Fprintln(out.printed, "one")
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(out.printed, "two")
		out.flush(t.Context())
		wantText(t, log.String(), `msg="printed lines were dropped, because stdout was not read, or failed" lines=1`)
	})
}

// At 20 writes a second the labels of 1,000 nodes take 50 s.
func TestTotalThatChangesDoesNotWaitBehindTheNodesOwnLabels(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 1000 {
			f.AddNode("n" + strconv.Itoa(i))
		}
		f.AddNode("cp", controlPlane)
		f.AddPods(3)
		startPodcount(t, f, "-node-label", "example.com/n")
		pass(15 * time.Second) // the total's own node has rested since its first label
		before := len(writesAt(f))
		for total := 4; total < 7; total++ {
			f.AddPod("default", "more-"+strconv.Itoa(total), "n999")
			pass(1500 * time.Millisecond) // the total is looked at once a second
			wantLabel(t, f, "cp", podCountLabel, strconv.Itoa(total))
			pass(10 * time.Second)
		}
		if n := len(writesAt(f)) - before; n < 500 || n > 1000 {
			t.Errorf("%d writes in 34 s, which should have been busy ones", n)
		}
		wantPeace(t, f, "-node-label", "example.com/n")
	})
}

// panicky is a controller whose function for the keys of pods panics while isBroken says so. It tells what it read.
func panicky(t *testing.T, isBroken func(Delta[*Pod]) bool) (keys *[]string, tries *atomic.Int64) {
	keys = new([]string)
	tries = new(atomic.Int64)
	withController(t, Controller{Name: "panicky", Setup: func(m *manager, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) []Key {
			tries.Add(1)
			if isBroken(d) {
				panic("no keys of " + d.Key().Name)
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(_ context.Context, key Key) (Result, error) {
			*keys = append(*keys, key.Name)
			return Result{}, nil
		}
	}})
	return keys, tries
}

func TestKeysOfAChangeWhoseFunctionPanicsAreNotLost(t *testing.T) {
	var isBroken atomic.Bool
	keys, _ := panicky(t, func(d Delta[*Pod]) bool { return isBroken.Load() && d.Key().Name != "good" })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		startPodcount(t, f, "-workers", "1")
		pass(time.Second)
		isBroken.Store(true)
		f.AddPod("default", "bad", "")
		f.AddPod("default", "gone", "")
		f.Remove("pods", at("default", "gone"))
		f.AddPod("default", "good", "")
		pass(time.Minute)
		if got := strings.Join(*keys, " "); got != "good" {
			t.Errorf("while it panics, keys came of: %s", got)
		}
		isBroken.Store(false)
		pass(2 * time.Minute) // the longest backoff, and its jitter
		slices.Sort(*keys)
		if got := strings.Join(slices.Compact(*keys), " "); got != "bad gone good" {
			t.Errorf("in the end, keys came of: %s", got)
		}
	})
}

func TestControllerThatPanicsForEverIsSaidOnceAMinuteAndCostsLittle(t *testing.T) {
	_, tries := panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(1)
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		for i := range 1000 { // one object that changes, again and again
			f.AddPodWithLabels("changing", fakekube.Object{"n": strconv.Itoa(i)})
		}
		pass(10 * time.Minute)
		log := p.Log.String()
		wantNumber(t, "stacks", strings.Count(log, "main_test.go"), 1)
		if n := strings.Count(log, "a controller panics again"); n < 5 || n > 10 {
			t.Errorf("%d more lines in 10 minutes", n)
		}
		wantText(t, log, `msg="a controller panics again" controller=panicky err="panic: no keys of changing" times=`)
		before := tries.Load()
		pass(time.Hour)
		if n := tries.Load() - before; n < 60 || n > 60*(1+8) {
			t.Errorf("%d tries in an hour", n)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}

func TestOnceFailsWhereAFunctionThatPanicsCouldNotSayItsKeys(t *testing.T) {
	panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f, "-once")
		<-p.Done
		wantText(t, fmt.Sprint(p.Stop()), "-once: panicky could not make 2 objects right")
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}
