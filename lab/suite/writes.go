package suite

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Writes shows what podcount sends to change a label, and what it does when that fails.
var Writes = Topic{
	{"nothing is written before both lists are complete", nothingBeforeTheLists},
	{"a patch carries the uid and no resourceVersion", patch},
	{"a refused write is retried, unless the node was recreated", refusedWrites},
	{"writes that were refused together do not come back together", retriesSpread},
	{"-qps and -burst limit writes", qps},
	{"what became right during the wait for -qps is not written", rightAfterTheWait},
	{"the newest number is written after the wait for -qps", newestAfterTheWait},
}

func nothingBeforeTheLists(t *testing.T, podcount Program) {
	for _, resource := range []string{"pods", "nodes"} {
		SimulateCase(t, "while "+resource+" are not listed", func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane, TotalLabel+"=500")
			f.AddNode("worker", TotalLabel+"=500")
			fixture.AddPods(f, 500)
			f.Script(t, "list "+resource+", 3 times: cut after 300 bytes")
			podcount.Start(t, f)
			testkit.Pass(time.Second)
			testkit.WantNumber(t, "writes before the lists", len(WritesTo(f)), 0)
			testkit.Pass(time.Minute)
			WantLabel(t, f, "worker", TotalLabel, "-")
			testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
		})
	}
}

func patch(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		node := f.AddNode("cp", ControlPlane)
		podcount.Start(t, f)
		synctest.Wait()
		writes := WritesTo(f)
		testkit.WantNumber(t, "writes", len(writes), 1)
		uid := fakekube.TextIn(fakekube.MetaOf(node), "uid")
		want := fmt.Sprintf(`{"metadata":{"labels":{"hopegi/pod-count":"0"},"uid":%q}}`, uid)
		testkit.WantEqual(t, "the patch", writes[0].Body, want)
		testkit.WantEqual(t, "its fieldManager", writes[0].Query.Get("fieldManager"), "podcount")
	})
}

// Details of refusals with the code 422.
var (
	// uidIsImmutable means that the patch has the uid of a deleted object, and that another one has its name now.
	uidIsImmutable = fakekube.Object{"causes": []any{
		fakekube.Object{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"},
	}}
	deniedByPolicy = fakekube.Object{"causes": []any{fakekube.Object{"message": "denied request"}}}
)

// When podcount tries a refused write again.
const (
	afterBackoff = "after a backoff of less than a second"
	afterTick    = "at the next tick"
)

func refusedWrites(t *testing.T, podcount Program) {
	status := func(times, code int, reason string, details any) fakekube.Fault {
		return StatusFault(fakekube.Requests{}, times, code, reason, details)
	}
	page := func(code int, text string) fakekube.Fault {
		header := map[string]string{"Content-Type": "text/html"}
		return fakekube.Fault{Do: fakekube.Reply{Code: code, Header: header, Body: text}}
	}
	forbidden := fakekube.Reply{
		Code: 403,
		Body: `{"code":403,"reason":"Forbidden","message":"User \"x\" cannot patch resource \"nodes\""}`,
	}
	rule := `the RBAC rule that allows it: apiGroups [\"\"], resources [\"nodes\"], verbs [\"patch\"]`
	for _, row := range []struct {
		name  string
		fault fakekube.Fault
		again string
		log   string
	}{
		{"422, the node was recreated", status(1, 422, "Invalid", uidIsImmutable), afterTick, ""},
		{"404", status(1, 404, "NotFound", nil), afterTick, ""},
		{"422 of a policy", status(1, 422, "Invalid", deniedByPolicy), afterBackoff, "as scripted"},
		{"409", status(1, 409, "Conflict", nil), afterBackoff, "409 Conflict"},
		{"500", status(2, 500, "InternalError", nil), afterBackoff, "500 InternalError"},
		{"403", fakekube.Fault{Do: forbidden}, afterBackoff, rule},
		{"a proxy's page", page(502, "<html>\n<h1>Bad Gateway"), afterBackoff, "patch nodes/cp: 502 Bad Gateway"},
		{"a proxy's 404", page(404, "<html>"), afterBackoff, "patch nodes/cp: 404 Not Found"},
		{"applied, but the answer is lost", fakekube.Fault{Do: fakekube.DropAnswer{}}, afterBackoff, ""},
	} {
		SimulateCase(t, row.name, func(t *testing.T, f *fakekube.Server) {
			log := podcount.retryWrite(t, f, row.fault, row.again)
			testkit.WantText(t, log, row.log)
		})
	}
}

// retryWrite lets the first writes to the node cp meet a fault, and shows that podcount tries again, either
// afterBackoff or afterTick. It returns the log.
func (podcount Program) retryWrite(t *testing.T, f *fakekube.Server, ft fakekube.Fault, again string) (log string) {
	t.Helper()
	f.AddNode("cp", ControlPlane)
	f.AddNode("other", ControlPlane)
	fixture.AddPods(f, 2)
	ft.On = fakekube.Requests{If: fixture.IsWrite, Name: "cp"}
	f.Inject(t, ft)
	p := podcount.Start(t, f)
	synctest.Wait()
	WantLabel(t, f, "other", TotalLabel, "2") // one key's failure delays no other
	testkit.Pass(time.Second)
	switch again {
	case afterBackoff:
		WantLabel(t, f, "cp", TotalLabel, "2")
	case afterTick:
		WantLabel(t, f, "cp", TotalLabel, "-")
		testkit.WantNumber(t, "reports of failures", p.Logged("cannot reconcile"), 0)
	}
	testkit.Pass(10 * time.Second)
	WantLabel(t, f, "cp", TotalLabel, "2")
	return p.Log.String()
}

// retriesSpread meets a busy server, which gives every client the same Retry-After. If all of them came back after
// exactly that time, it would be just as busy again.
func retriesSpread(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 40 {
			f.AddNode(fmt.Sprint("n", i))
		}
		writes := fakekube.Requests{Verb: "write", Resource: "nodes"}
		f.Inject(t, StatusFault(writes, 40, 429, "TooManyRequests", nil, "Retry-After", "1"))
		podcount.Start(t, f, "-total-nodes", "", "-workers", "40", "-burst", "100")
		testkit.Pass(900 * time.Millisecond)
		testkit.WantNumber(t, "writes that were refused", len(fixture.Requests(f, IsWriteOf("nodes"))), 40)
		testkit.Pass(1200 * time.Millisecond)
		again := fixture.Requests(f, IsWriteOf("nodes"))[40:]
		testkit.WantNumber(t, "writes that came back", len(again), 40)
		// Random times would be closer together than half a second in only one of 10^11 runs.
		spread := again[len(again)-1].At.Sub(again[0].At)
		testkit.WantBetween(t, "time between the first and the last of them", spread, time.Second/2, 1200*time.Millisecond)
	})
}

func qps(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 100 {
			f.AddNode(fmt.Sprintf("cp-%d", i), ControlPlane)
		}
		podcount.Start(t, f, "-qps", "10", "-burst", "20")
		synctest.Wait()
		testkit.WantNumber(t, "writes at once", len(WritesTo(f)), 20)
		testkit.Pass(4*time.Second + 50*time.Millisecond)
		testkit.WantNumber(t, "writes after 4 s", len(WritesTo(f)), 60)
		testkit.Pass(5 * time.Second)
		testkit.WantNumber(t, "writes after 9 s", len(WritesTo(f)), 100)
	})
}

// slowly are flags with which podcount may write once, and then once in ten seconds.
var slowly = []string{"-qps", "0.1", "-burst", "1", "-pod-events", "off"}

func rightAfterTheWait(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		podcount.Start(t, f, slowly...)
		testkit.Pass(time.Minute)
		before := len(WritesTo(f))
		f.AddPod("default", "a", "")
		testkit.Pass(3 * time.Second)
		testkit.WantNumber(t, "writes at once", len(WritesTo(f))-before, 1)
		f.Remove("pods", At("default", "a")) // The number on the other node is right now.
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp-1", TotalLabel, "0")
		WantLabel(t, f, "cp-2", TotalLabel, "0")
		testkit.WantNumber(t, "writes", len(WritesTo(f))-before, 2)
	})
}

func newestAfterTheWait(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp-1", ControlPlane)
		f.AddNode("cp-2", ControlPlane)
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		podcount.Start(t, f, slowly...)
		testkit.Pass(time.Minute)
		before := len(fixture.Requests(f, IsWriteOf("nodes")))
		fixture.AddPods(f, 1)
		testkit.Pass(time.Second)
		testkit.WantNumber(t, "writes to nodes at once", len(fixture.Requests(f, IsWriteOf("nodes")))-before, 1)
		fixture.AddCount(f, "first", `{"name":"a","count":1}`)
		testkit.Pass(time.Second)
		fixture.AddCount(f, "second", `{"name":"b","count":1}`)
		testkit.Pass(time.Second)
		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "b"})
		testkit.Pass(10 * time.Second)
		wantStatus(t, f, "first", "false 0 1")
		wantStatus(t, f, "second", "true 1 1")
		writes := fixture.Requests(f, IsWriteOf("nodes"))[before:]
		testkit.WantNumber(t, "writes to nodes", len(writes), 2)
		testkit.WantText(t, writes[1].Body, `"hopegi/pod-count":"2"`)
	})
}
