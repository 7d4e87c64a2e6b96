package suite

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/retry"
	"podcount/internal/testkit"
)

// Writes shows what podcount sends to change a label, and what it does when that fails.
var Writes = Topic{
	{"nothing is written before both lists are complete", nothingBeforeTheLists},
	{"a patch carries the uid and no resourceVersion", patch},
	{"a refused write is retried, unless the node was recreated", refusedWrites},
	{"labels equal the truth whatever a write meets", whateverAWriteMeets},
	{"the Retry-After of a write is honoured", retryAfter},
	{"writes that were refused together do not come back together", retriesSpread},
	{"-qps and -burst limit writes", qps},
}

func nothingBeforeTheLists(t *testing.T, podcount Program) {
	for _, resource := range []string{"pods", "nodes"} {
		Simulate(t, func(t *testing.T, f *fakekube.Server) {
			f.AddNode("cp", ControlPlane, TotalLabel+"=500")
			f.AddNode("worker", TotalLabel+"=500")
			f.AddPods(500)
			f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: resource}, Times: 3, Do: fakekube.Cut{After: 300}})
			podcount.Start(t, f)
			testkit.Pass(time.Second)
			testkit.WantNumber(t, "writes while "+resource+" are not listed", len(WritesTo(f)), 0)
			testkit.Pass(time.Minute)
			WantLabel(t, f, "worker", TotalLabel, "-") // then it works
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
		if got, want := writes[0].Body, fmt.Sprintf(`{"metadata":{"labels":{"hopegi/pod-count":"0"},"uid":%q}}`, fakekube.TextIn(fakekube.MetaOf(node), "uid")); got != want {
			t.Errorf("patch %s, want %s", got, want)
		}
		if got := writes[0].Query.Get("fieldManager"); got != "podcount" {
			t.Errorf("fieldManager %q", got)
		}
	})
}

func refusedWrites(t *testing.T, podcount Program) {
	uid := fakekube.Object{"causes": []any{fakekube.Object{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}}}
	policy := fakekube.Object{"causes": []any{fakekube.Object{"message": "denied request"}}}
	for _, c := range []struct {
		name    string
		fault   fakekube.Fault
		retried bool // soon, by backoff; else the next tick brings it
		log     string
	}{
		{"422 for the uid: the node was recreated", StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 422, "Invalid", uid), false, ""},
		{"404", StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 404, "NotFound", nil), false, ""},
		{"422 of a policy", StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 422, "Invalid", policy), true, "as scripted"},
		{"409", StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 1, 409, "Conflict", nil), true, "409 Conflict"},
		{"500", StatusFault(fakekube.Requests{If: fakekube.IsWrite}, 2, 500, "InternalError", nil), true, "500 InternalError"},
		{"403", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 403, Body: `{"code":403,"reason":"Forbidden","message":"User \"x\" cannot patch resource \"nodes\""}`}}, true, `the RBAC rule that allows it: apiGroups [\"\"], resources [\"nodes\"], verbs [\"patch\"]`},
		{"a proxy's page", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 502, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>\n<h1>Bad Gateway"}}, true, "patch nodes/cp: 502 Bad Gateway"},
		{"a proxy's 404", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 404, Header: map[string]string{"Content-Type": "text/html"}, Body: "<html>"}}, true, "patch nodes/cp: 404 Not Found"},
		{"applied, then the connection broke", fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.DropAnswer{}}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", ControlPlane)
				f.AddNode("other", ControlPlane)
				f.AddPods(2)
				ft := c.fault
				ft.On.Name = "cp"
				f.Inject(t, ft)
				p := podcount.Start(t, f)
				synctest.Wait()
				WantLabel(t, f, "other", TotalLabel, "2") // one key's failure holds back no other
				testkit.Pass(time.Second)
				if c.retried {
					WantLabel(t, f, "cp", TotalLabel, "2")
				} else {
					WantLabel(t, f, "cp", TotalLabel, "-")
					testkit.WantNumber(t, "complaints", p.Logged("cannot reconcile"), 0)
				}
				testkit.Pass(10 * time.Second)
				WantLabel(t, f, "cp", TotalLabel, "2")
				testkit.WantText(t, p.Log.String(), c.log)
			})
		})
	}
}

func whateverAWriteMeets(t *testing.T, podcount Program) {
	type prey struct { // that which meets the fault
		path  string
		spoil func(f *fakekube.Server, v any) // by another writer
		again func(f *fakekube.Server)        // makes it anew
	}
	node := prey{"/api/v1/nodes/cp", func(f *fakekube.Server, v any) { f.SetLabel("cp", TotalLabel, v) }, func(f *fakekube.Server) {
		f.Remove("nodes", At("", "cp"))
		f.AddNode("cp", ControlPlane)
	}}
	count := prey{"/apis/demo.mark8s.io/v1/namespaces/default/counts/web/status", func(f *fakekube.Server, v any) {
		o := fakekube.Clone(f.Get("counts", At("default", "web")))
		o["status"] = fakekube.Object{"healthy": v == nil, "count": 7}
		f.Put("counts", o)
	}, func(f *fakekube.Server) {
		f.Remove("counts", At("default", "web"))
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
		return meets(StatusFault(fakekube.Requests{}, times, code, reason, details, header...))
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
				Simulate(t, func(t *testing.T, f *fakekube.Server) {
					start := time.Now()
					podcount.Survive(t, f, func(*Process) {
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
						testkit.WantNumber(t, "writes to "+path, len(writes), 4)
					}
				})
			})
		}
	}
}

func retryAfter(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{If: fakekube.IsWrite}, Do: fakekube.Reply{Code: 429, Header: map[string]string{"Retry-After": "7", "Content-Type": "text/plain"}, Body: "Too many requests, please try again later."}})
		podcount.Start(t, f)
		testkit.Pass(6900 * time.Millisecond)
		testkit.WantNumber(t, "writes within 6.9 s", len(WritesTo(f)), 1)
		testkit.Pass(1600 * time.Millisecond) // a fifth more, by chance
		testkit.WantNumber(t, "writes within 8.5 s", len(WritesTo(f)), 2)
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

// A server that is busy tells all the same, and would be as busy when all came back at that moment.
func retriesSpread(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		for i := range 40 {
			f.AddNode(fmt.Sprint("n", i))
		}
		f.Inject(t, StatusFault(fakekube.Requests{Verb: "write", Resource: "nodes"}, 40, 429, "TooManyRequests", nil, "Retry-After", "1"))
		podcount.Start(t, f, "-total-nodes", "", "-workers", "40", "-burst", "100")
		testkit.Pass(900 * time.Millisecond)
		testkit.WantNumber(t, "writes that were refused", len(f.Requests(IsWriteOf("nodes"))), 40)
		testkit.Pass(1200 * time.Millisecond)
		again := f.Requests(IsWriteOf("nodes"))[40:]
		testkit.WantNumber(t, "writes that came back", len(again), 40)
		first, last := again[0].At, again[len(again)-1].At
		if last.Sub(first) < 500*time.Millisecond { // would be chance once in 10^11 times
			t.Errorf("all came back within %v", last.Sub(first))
		}
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
