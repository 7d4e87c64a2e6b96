package suite

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/retry"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Writes shows what podcount sends to change a label, and what it does when that fails.
var Writes = Topic{
	{"nothing is written before both lists are complete", nothingBeforeTheLists},
	{"a patch carries the uid and no resourceVersion", patch},
	{"a refused write is retried, unless the node was recreated", refusedWrites},
	{"labels equal the truth after whatever disturbs a write", disturbedWrites},
	{"the Retry-After of a write is honoured", retryAfter},
	{"writes that were refused together do not come back together", retriesSpread},
	{"-qps and -burst limit writes", qps},
	{"what became right during the wait for -qps is not written", rightAfterTheWait},
	{"the newest number is written after the wait for -qps", newestAfterTheWait},
}

func nothingBeforeTheLists(t *testing.T, podcount Program) {
	for _, resource := range []string{"pods", "nodes"} {
		t.Run("while "+resource+" are not listed", func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane, TotalLabel+"=500")
				f.AddNode("worker", TotalLabel+"=500")
				fixture.AddPods(f, 500)
				f.Inject(t, fakekube.Fault{
					On:    fakekube.Requests{Verb: "list", Resource: resource},
					Times: 3,
					Do:    fakekube.Cut{After: 300},
				})
				podcount.Start(t, f)
				testkit.Pass(time.Second)
				testkit.WantNumber(t, "writes before the lists", len(WritesTo(f)), 0)
				testkit.Pass(time.Minute)
				WantLabel(t, f, "worker", TotalLabel, "-")
				testkit.WantNumber(t, "writes", len(WritesTo(f)), 1)
			})
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
		t.Run(row.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				log := podcount.retryWrite(t, f, row.fault, row.again)
				testkit.WantText(t, log, row.log)
			})
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

func disturbedWrites(t *testing.T, podcount Program) {
	plainText := fakekube.Reply{
		Code:   429,
		Header: map[string]string{"Content-Type": "text/plain"},
		Body:   "Too many requests",
	}
	change := func(value any) disturbance {
		return fiveTimes(func(f *fakekube.Server, to target) { to.change(f, value) })
	}
	recreate := fiveTimes(func(f *fakekube.Server, to target) { to.recreate(f) })
	for _, row := range []struct {
		name    string
		disturb disturbance
		isTwice bool // it also disturbs the write for the last change of the pods
	}{
		{"409", refusal(8, 409, "Conflict", nil), true},
		{"422, it was recreated", refusal(2, 422, "Invalid", uidIsImmutable), true},
		{"422 of a policy", refusal(8, 422, "Invalid", deniedByPolicy), true},
		{"404", refusal(2, 404, "NotFound", nil), true},
		{"403, then the right is granted", refusal(7, 403, "Forbidden", nil), true},
		{"429", refusal(6, 429, "TooManyRequests", nil, "Retry-After", "2"), true},
		{"429 in plain text", fault(fakekube.Fault{Times: 6, Do: plainText}), true},
		{"500", refusal(8, 500, "InternalError", nil), true},
		{"503", refusal(6, 503, "ServiceUnavailable", nil, "Retry-After", "2"), true},
		{"a reset", fault(fakekube.Fault{Times: 8, Do: fakekube.DropRequest{}}), true},
		{"a reset after it was applied", fault(fakekube.Fault{Do: fakekube.DropAnswer{}}), true},
		{"half an answer", fault(fakekube.Fault{Do: fakekube.Cut{After: 40}}), true},
		{"no answer", noAnswer, false},
		{"a webhook that takes 20 s", fault(fakekube.Fault{Delay: 20 * time.Second}), true},
		{"another writer that changes it", change("999"), true},
		{"another writer that removes it", change(nil), true},
		{"an object that is recreated repeatedly", recreate, true},
		{"an object that is recreated during the write", recreatedDuringWrites, true},
	} {
		for _, to := range []target{nodeTarget, countTarget} {
			t.Run(to.name+" meets "+row.name, func(t *testing.T) {
				Simulate(t, func(t *testing.T, f *fakekube.Server) {
					podcount.surviveDisturbance(t, f, to, row.disturb, row.isTwice)
				})
			})
		}
	}
}

// surviveDisturbance disturbs the writes to one target, and shows that those to the other nodes continue as usual.
func (podcount Program) surviveDisturbance(
	t *testing.T, f *fakekube.Server, to target, disturb disturbance, isTwice bool,
) {
	t.Helper()
	start := time.Now()
	podcount.Survive(t, f, func(*Process) {
		disturb(t, f, to)
		if isTwice {
			// Survive changes the pods for the last time 20 s after it has called this function.
			retry.Sleep(t.Context(), 17500*time.Millisecond)
			disturb(t, f, to)
		}
	})
	wantUndisturbed(t, f, "other", start)
	wantUndisturbed(t, f, "worker", start)
}

// wantUndisturbed fails the test unless a node was written to once an interval for the 30 s after start.
func wantUndisturbed(t *testing.T, f *fakekube.Server, node string, start time.Time) {
	t.Helper()
	writes := fixture.Requests(f, func(r fakekube.Request) bool {
		return fixture.IsWrite(r) && r.Path == "/api/v1/nodes/"+node && r.At.Sub(start) < 31*time.Second
	})
	testkit.WantNumber(t, "writes to "+node, len(writes), 4)
	for i := 1; i < len(writes); i++ {
		gap := writes[i].At.Sub(writes[i-1].At)
		testkit.WantBetween(t, "time between two writes to "+node, gap, 10*time.Second, 11*time.Second)
	}
}

// target is an object that podcount writes to.
type target struct {
	name string
	path string // of podcount's writes

	// change changes what podcount writes, as another writer would. nil removes it.
	change func(f *fakekube.Server, value any)

	// recreate deletes the object and creates it again.
	recreate func(f *fakekube.Server)
}

var nodeTarget = target{
	name: "a node",
	path: "/api/v1/nodes/cp",
	change: func(f *fakekube.Server, value any) {
		fixture.SetLabel(f, "cp", TotalLabel, value)
	},
	recreate: func(f *fakekube.Server) {
		f.Remove("nodes", At("", "cp"))
		f.AddNode("cp", ControlPlane)
	},
}

var countTarget = target{
	name: "a Count",
	path: "/apis/demo.mark8s.io/v1/namespaces/default/counts/web/status",
	change: func(f *fakekube.Server, value any) {
		o := fakekube.Clone(f.Get("counts", At("default", "web")))
		delete(o, "status")
		if value != nil {
			o["status"] = fakekube.Object{"healthy": false, "count": 7}
		}
		f.Put("counts", o)
	},
	recreate: func(f *fakekube.Server) {
		f.Remove("counts", At("default", "web"))
		fixture.AddCount(f, "web", `{"name":"web","count":18}`)
	},
}

// disturbance disturbs the writes to a target. The test's context ends its waits.
type disturbance func(t *testing.T, f *fakekube.Server, to target)

// fault lets writes to the target meet a fault.
func fault(ft fakekube.Fault) disturbance {
	return func(t *testing.T, f *fakekube.Server, to target) {
		scripted := ft
		scripted.On = fakekube.Requests{Verb: "write", Resource: to.path}
		f.Inject(t, scripted)
	}
}

// refusal refuses a number of writes to the target.
func refusal(times, code int, reason string, details any, header ...string) disturbance {
	return fault(StatusFault(fakekube.Requests{}, times, code, reason, details, header...))
}

// fiveTimes does something to the target five times, every three seconds.
func fiveTimes(do func(f *fakekube.Server, to target)) disturbance {
	return func(t *testing.T, f *fakekube.Server, to target) {
		for range 5 {
			do(f, to)
			retry.Sleep(t.Context(), 3*time.Second)
		}
	}
}

// recreatedDuringWrites delays two writes to the target, and recreates it while they are in flight.
func recreatedDuringWrites(t *testing.T, f *fakekube.Server, to target) {
	fault(fakekube.Fault{Times: 2, Delay: 5 * time.Second})(t, f, to)
	for range 5 {
		retry.Sleep(t.Context(), 3*time.Second)
		to.recreate(f)
	}
}

// noAnswer leaves a write to the target without an answer, and waits until podcount has given it up.
func noAnswer(t *testing.T, f *fakekube.Server, to target) {
	fault(fakekube.Fault{Do: fakekube.Stall{}})(t, f, to)
	retry.Sleep(t.Context(), kube.RequestTimeout+10*time.Second)
}

func retryAfter(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{
			On: fakekube.Requests{If: fixture.IsWrite},
			Do: fakekube.Reply{
				Code:   429,
				Header: map[string]string{"Retry-After": "7", "Content-Type": "text/plain"},
				Body:   "Too many requests, please try again later.",
			},
		})
		podcount.Start(t, f)
		testkit.Pass(6900 * time.Millisecond)
		testkit.WantNumber(t, "writes within 6.9 s", len(WritesTo(f)), 1)
		testkit.Pass(1600 * time.Millisecond) // jitter adds up to a fifth
		testkit.WantNumber(t, "writes within 8.5 s", len(WritesTo(f)), 2)
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
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
		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		podcount.Start(t, f, slowly...)
		testkit.Pass(time.Minute)
		fixture.AddCount(f, "first", `{"name":"a","count":1}`)
		testkit.Pass(time.Second)
		fixture.AddCount(f, "second", `{"name":"b","count":1}`)
		testkit.Pass(time.Second)
		fixture.AddPodWithLabels(f, "b", fakekube.Object{"app": "b"})
		testkit.Pass(10 * time.Second)
		wantStatus(t, f, "first", "false 0 1")
		wantStatus(t, f, "second", "true 1 1")
	})
}
