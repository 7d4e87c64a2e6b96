package fakekube

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

var podNames = regexp.MustCompile(`"name":"(web-\d+)"`)

// podsIn returns the names of the pods in an answer.
func podsIn(answer string) string {
	var names []string
	for _, found := range podNames.FindAllStringSubmatch(answer, -1) {
		names = append(names, found[1])
	}
	return strings.Join(names, " ")
}

func wantPods(t *testing.T, f *Server, query, want string) {
	t.Helper()
	_, answer := ask(t, f, "GET", "/api/v1/pods?"+query, "")
	if got := podsIn(answer); got != want {
		t.Errorf("pods?%s has %q, want %q", query, got, want)
	}
}

func TestLieLeavesExactVersionsCorrect(t *testing.T) {
	synctest.Test(t, lieOfTheCache)
}

func lieOfTheCache(t *testing.T) {
	f := New()
	addPods(f, 2)
	lie := f.Script(t, "* pods: lie about 3 changes")[0]
	f.AddNode("not-a-pod")
	f.Remove("pods", Key{"default", "web-0"}) // two changes
	f.AddPod("default", "web-7", "")
	f.AddPod("default", "web-8", "")
	now := fmt.Sprint(f.Latest())
	const truth = "web-1 web-7 web-8"
	for query, want := range map[string]string{
		"":                  "web-0 web-1 web-8",
		"limit=2":           "web-0 web-1",
		"resourceVersion=0": "web-0 web-1 web-8",
		"resourceVersionMatch=NotOlderThan&resourceVersion=" + now:                 "web-0 web-1 web-8",
		"resourceVersionMatch=Exact&resourceVersion=" + now:                        truth,
		"watch=true&timeoutSeconds=1&resourceVersion=0":                            "web-0 web-1 web-8",
		"watch=true&timeoutSeconds=1&resourceVersion=204":                          "web-8",
		"watch=true&timeoutSeconds=1&labelSelector=app%3Dx&resourceVersion=" + now: "",
	} {
		wantPods(t, f, query, want)
	}
	wantAnswer(t, f, "GET /api/v1/namespaces/default/pods/web-0", "", 404, "not found")
	f.AddPod("default", "web-7", "") // a later change corrects the cached object
	wantPods(t, f, "", "web-0 web-1 web-7 web-8")
	if lie.Used() == 0 {
		t.Error("no use of the lie was counted")
	}
	lie.Lift()
	wantPods(t, f, "", truth)
}

func TestLieAffectsOnlySelectedClients(t *testing.T) {
	f := New()
	lie := f.Script(t, "list pods web-1 in default at a:1: lie about 1 change")[0]
	addPods(f, 3)
	wantAnswer(t, f, "GET http://b:1/api/v1/pods", "", 200, "web-1")
	testkit.WantNumber(t, "lies to another server's clients", lie.Used(), 0)
	_, answer := ask(t, f, "GET", "http://a:1/api/v1/pods", "")
	if got := podsIn(answer); got != "web-0 web-2" {
		t.Errorf("%q", got)
	}
	testkit.WantNumber(t, "lies", lie.Used(), 1)
}

func TestRunningWatchMissesALostChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		answer, _ := startWatch(t, f, "&timeoutSeconds=10&resourceVersion=202")
		synctest.Wait()
		f.Script(t, "watch pods: lie about 1 change")
		addPods(f, 2)
		<-time.After(time.Minute)
		synctest.Wait()
		if got := podsIn(answer.Body.String()); got != "web-1" {
			t.Errorf("it heard of %q", got)
		}
	})
}

func TestLieForgetsReassignedVersions(t *testing.T) {
	for name, goBack := range map[string]func(f *Server) func(){
		"checkpoint": (*Server).Checkpoint,
		"version":    func(f *Server) func() { v := f.Latest(); return func() { f.SetVersion(v) } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New()
				f.Script(t, "* pods: lie about 1 change")
				back := goBack(f)
				version := f.Latest()
				f.AddPod("default", "web-0", "")
				back()
				f.AddPod("default", "web-1", "")
				wantPods(t, f, "watch=true&timeoutSeconds=1&resourceVersion="+fmt.Sprint(version), "web-1")
				wantPods(t, f, "", "web-1")
			})
		})
	}
}

func TestRestoringASnapshotCorrectsLies(t *testing.T) {
	f := New()
	lie := f.Script(t, "* pods: lie about 1 change")[0]
	f.AddPod("default", "web-0", "")
	wantPods(t, f, "", "")
	f.Snapshot()()
	wantPods(t, f, "", "web-0")
	testkit.WantNumber(t, "lies", lie.Used(), 1)
}

func TestLieAboutNothingFailsTheTest(t *testing.T) {
	for _, pods := range []int{0, 1} {
		f := New()
		v := &fakeTB{TB: t}
		f.Script(v, "* pods: lie about 1 change")
		addPods(f, pods)
		v.finish()
		want := []string{
			"had nothing to lie about: changes that were still to happen: 1",
			"was met by no request; there came none",
		}[pods]
		testkit.WantText(t, strings.Join(v.errors, "\n"), want)
	}
}

func TestCutCountsCompressedBytes(t *testing.T) {
	f := New()
	addPods(f, 2000)
	n := &spyLog{}
	f.Spy = n
	for bytes, isCut := range map[string]bool{"1000": true, "300000": false} {
		n.lines = nil
		f.InjectUnchecked(must(ParseFault("list pods: cut after " + bytes + " bytes")))
		r := newRequest("GET", "/api/v1/pods", "")
		r.Header.Set("Accept-Encoding", "gzip")
		func() {
			defer func() { recover() }()
			serve(f, r)
		}()
		testkit.WantText(t, strings.Join(n.lines, "\n"), fmt.Sprintf("cut: %v", isCut))
	}
}

func must(ft Fault, err error) Fault {
	if err != nil {
		panic(err)
	}
	return ft
}
