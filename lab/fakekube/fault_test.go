package fakekube

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestInjectedFaultMustBeMetUnlessRemoved(t *testing.T) {
	lists := func(n int) func(*Server) {
		return func(f *Server) {
			for range n {
				ask(t, f, "GET", "/api/v1/pods", "")
			}
		}
	}
	for name, c := range map[string]struct {
		fault  string
		change func(*Server)
		fails  bool
	}{
		"not met":                    {"list pods: drop request", lists(0), true},
		"healed":                     {"list pods: drop request", (*Server).Heal, false},
		"lifted with all":            {"list pods: drop request", (*Server).LiftFaults, false},
		"met":                        {"list pods: drop request", lists(1), false},
		"met too seldom":             {"list pods, 3 times: drop request", lists(2), true},
		"met more often than wanted": {"list pods, 3 times: drop request", lists(4), false},
		"always, but not met":        {"list pods, always: drop request", lists(0), true},
		"always, and met":            {"list pods, always: drop request", lists(3), false},
		"another is sent":            {"list nodes: drop request", lists(1), true},
		"too short to be cut":        {"list pods: cut after 100000 bytes", lists(1), true},
		"fewer frames than that":     {"list pods: cut after frame 3", lists(1), true},
		"long enough to be cut":      {"list pods: cut after 10 bytes", lists(1), false},
		"always too short":           {"list pods, always: hang after 100000 bytes", lists(2), true},
	} {
		t.Run(name, func(t *testing.T) {
			f := New()
			v := &fakeTB{TB: t}
			f.Script(v, c.fault)
			c.change(f)
			if fails := v.finish(); fails != c.fails {
				t.Errorf("the test fails: %v: %q", fails, v.errors)
			}
		})
	}
}

func TestUnmetLiftedFaultFailsTheTestOnce(t *testing.T) {
	f := New()
	v := &fakeTB{TB: t}
	injection := f.Script(v, "list pods, always: refuse 500")[0]
	unmet := f.Script(v, "watch pods, always: refuse 500")[0]
	wantAnswer(t, f, "GET /api/v1/pods", "", 500, "InternalError")
	injection.Lift()
	testkit.WantNumber(t, "errors after the fault that was met", len(v.errors), 0)
	wantAnswer(t, f, "GET /api/v1/pods", "", 200, "PodList")
	testkit.WantNumber(t, "its requests", injection.Used(), 1)
	unmet.Lift()
	v.finish()
	testkit.WantNumber(t, "errors", len(v.errors), 1)
}

func TestUnmetFaultOfAHostIsReportedWithTheHosts(t *testing.T) {
	f := New()
	v := &fakeTB{TB: t}
	f.Script(v, "list pods at a:80: refuse 503")
	ask(t, f, "GET", "http://a/api/v1/pods", "")
	v.finish()
	testkit.WantText(t, strings.Join(v.errors, "\n"), `there came "list pods at a" once`)
}

func TestInvalidFaultFailsTheTest(t *testing.T) {
	v := &fakeTB{TB: t}
	wantPanic(t, "the test has ended", func() { New().Inject(v, Fault{Do: Refuse{Code: 200}}) })
	testkit.WantText(t, strings.Join(v.errors, "\n"), `the fault "*: refuse 200": `)
}

func TestUnmetFaultIsReportedWithTheRequests(t *testing.T) {
	f := New()
	v := &fakeTB{TB: t}
	ask(t, f, "GET", "/api/v1/nodes/before", "")
	on := Requests{Verb: "patch", Resource: "nodes", Name: "worker-1"}
	f.Inject(v, Fault{On: on, Times: 2, Do: Refuse{Code: 503}})
	ask(t, f, "GET", "/api/v1/nodes", "")
	ask(t, f, "GET", "/api/v1/nodes", "")
	ask(t, f, "PATCH", "/api/v1/nodes/worker-1", "{}")
	ask(t, f, "PATCH", "/api/v1/namespaces/default/pods/web-0/status", "{}")
	ask(t, f, "GET", "/version", "")
	v.finish()
	want := `the fault "patch nodes worker-1, 2 times: refuse 503" was met once, not 2 times; there came ` +
		`"list nodes" 2 times, "patch nodes worker-1" once, "patch pods/status web-0 in default" once, ` +
		`"get /version" once`
	if got := strings.Join(v.errors, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestRequestsMatchByAllFields(t *testing.T) {
	const patch = "PATCH /api/v1/namespaces/default/pods/web-0"
	for _, c := range []struct {
		on      Requests
		request string
		want    bool
	}{
		{Requests{}, patch, true},
		{Requests{Verb: "patch"}, patch, true},
		{Requests{Verb: "write"}, patch, true},
		{Requests{Verb: "get|write"}, patch, true},
		{Requests{Verb: "write"}, "GET /api/v1/pods", false},
		{Requests{Verb: "list"}, "GET /api/v1/pods?watch=true", false},
		{Requests{Verb: "watch"}, "GET /api/v1/pods?watch=true", true},
		{Requests{Resource: "pods"}, patch, true},
		{Requests{Resource: "pods"}, patch + "/status", false},
		{Requests{Resource: "pods/status"}, patch + "/status", true},
		{Requests{Resource: "pods*"}, patch + "/status", true},
		{Requests{Resource: "nodes|pods"}, patch, true},
		{Requests{Resource: "/version"}, "GET /version", true},
		{Requests{Resource: "/api/v1/*"}, patch, true},
		{Requests{Resource: "leases.coordination.k8s.io"}, "GET /apis/coordination.k8s.io/v1/leases", true},
		{Requests{Resource: "leases.k8s.io"}, "GET /apis/coordination.k8s.io/v1/leases", false},
		{Requests{Resource: "widgets.a.io/status"}, "GET /apis/a.io/v1/namespaces/n/widgets/w/status", true},
		{Requests{Resource: "widgets.a.io"}, "GET /apis/a.io/v1/namespaces/n/widgets/w/status", false},
		{Requests{Namespace: "kube-system"}, patch, false},
		{Requests{Namespace: "default", Name: "web-*"}, patch, true},
		{Requests{Name: "web"}, patch, false},
		{Requests{User: "alice"}, patch, true},
		{Requests{User: "bob"}, patch, false},
		{Requests{Host: "a:1"}, patch, true},
		{Requests{Host: "b:1"}, patch, false},
		{Requests{Verb: "patch", If: func(q Request) bool { return q.Body == "{}" }}, patch, true},
		{Requests{Verb: "get", If: func(Request) bool { return true }}, patch, false},
	} {
		method, target, _ := strings.Cut(c.request, " ")
		q := requestOf(httptest.NewRequest(method, target, nil))
		q.User = "alice"
		q.Host = "a:1"
		q.Body = "{}"
		if got := c.on.matches(q); got != c.want {
			t.Errorf("%s is one of %q: %v", c.request, c.on, got)
		}
	}
}

func TestRelistIsAnyRequestForAllObjects(t *testing.T) {
	for request, want := range map[string]bool{
		"GET /api/v1/pods": true,
		"GET /api/v1/namespaces/default/pods?labelSelector=a":                               true,
		"GET /api/v1/pods?resourceVersion=0":                                                true,
		"GET /api/v1/pods?resourceVersion=42&resourceVersionMatch=Exact":                    true,
		"GET /api/v1/pods?limit=500":                                                        true,
		"GET /api/v1/pods?limit=500&continue=next":                                          true,
		"GET /api/v1/pods?limit=1&continue=next":                                            true,
		"GET /api/v1/pods?limit=1":                                                          false,
		"GET /api/v1/pods?limit=1&continue=":                                                false,
		"GET /api/v1/pods?watch=true":                                                       true,
		"GET /api/v1/pods?watch=true&resourceVersion=0":                                     true,
		"GET /api/v1/watch/pods":                                                            true,
		"GET /api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan": true,
		"GET /api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&resourceVersion=42": true,
		"GET /api/v1/pods?watch=1&sendInitialEvents=false&resourceVersionMatch=NotOlderThan":                   false,
		"GET /api/v1/pods?watch=1&resourceVersion=42&allowWatchBookmarks=true":                                 false,
		"GET /api/v1/watch/pods?resourceVersion=42":                                                            false,
		"GET /api/v1/watch/namespaces/default/pods/web":                                                        false,
		"GET /api/v1/namespaces/default/pods/web":                                                              false,
		"DELETE /api/v1/namespaces/default/pods":                                                               false,
		"GET /version":                                                                                         false,
	} {
		method, target, _ := strings.Cut(request, " ")
		q := requestOf(httptest.NewRequest(method, target, nil))
		for _, verb := range []string{"relist", "create|relist"} {
			if got := (Requests{Verb: verb}).matches(q); got != want {
				t.Errorf("%s is one of %s: %v", request, verb, got)
			}
		}
	}
}

func TestCountsSelectRequests(t *testing.T) {
	for counts, want := range map[string]string{
		"once":                      "x.........",
		"3 times":                   "xxx.......",
		"always":                    "xxxxxxxxxx",
		"skip 2, 3 times":           "..xxx.....",
		"every 3rd, always":         "..x..x..x.",
		"skip 2, every 3rd, once":   "....x.....",
		"at rate 0.5, always":       "..xxx.....",
		"at rate 0.5, seed 7, once": "..x.......",
	} {
		t.Run(counts, func(t *testing.T) {
			for run := range 2 {
				f := New()
				f.Script(t, "list pods, "+counts+": refuse 500")
				got := ""
				for range 10 {
					ask(t, f, "GET", "/api/v1/nodes", "") // not selected, so not counted
					code, _ := ask(t, f, "GET", "/api/v1/pods", "")
					got += map[int]string{500: "x", 200: "."}[code]
				}
				if got != want {
					t.Errorf("run %d: %s, want %s", run, got, want)
				}
			}
		})
	}
}

func TestOnlyTheFirstMatchingFaultApplies(t *testing.T) {
	f := New()
	f.InjectUnchecked(Fault{Do: Refuse{Code: 500}, Times: 2})
	f.InjectUnchecked(Fault{Do: Refuse{Code: 501}})
	for _, want := range []int{500, 500, 501, 200} {
		wantAnswer(t, f, "GET /api/v1/pods", "", want, "")
	}
	if f.FaultsLeft() {
		t.Error("there are faults left")
	}
}

func TestEffects(t *testing.T) {
	for effect, want := range map[string]struct {
		code int
		body string // or its beginning
	}{
		"drop request":                     {0, ""},
		"drop answer":                      {0, ""},
		"cut after 8 bytes":                {0, `{"`},
		"cut after frame 0":                {0, ""},
		"cut after frame 0 plus 8 bytes":   {0, `{"`},
		"cut after frame 1":                {0, `{"`},
		"truncate":                         {200, `{"`},
		"reset before acting":              {0, ""},
		"reset after acting":               {0, ""},
		"reply 200":                        {200, ""},
		"reply 502 header A b body <html>": {502, "<html>"},
		"refuse 418": {418, `{"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure"`},
		"refuse 429 message slow retry-after 2s": {429, `{"kind":"Status",`},
	} {
		t.Run(effect, func(t *testing.T) {
			f := New()
			f.AddNode("n")
			f.Script(t, "patch: "+effect)
			code, body := ask(t, f, "PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"b"}}}`)
			if code != want.code || !strings.HasPrefix(body, want.body) {
				t.Errorf("%d %q, want %d %q", code, body, want.code, want.body)
			}
			hasActed := labelOf(f, "n", "a") == "b"
			acts := effect == "drop answer" || effect == "reset after acting" || effect == "truncate" ||
				strings.HasPrefix(effect, "cut")
			if hasActed != acts {
				t.Errorf("it has acted: %v", hasActed)
			}
		})
	}
}

func TestRefusalHasTheServersWording(t *testing.T) {
	for code, want := range map[string]string{
		"401": `"message":"Unauthorized","reason":"Unauthorized"`,
		"403": `User \"admin\" cannot patch resource \"nodes\" in API group \"\" at the cluster scope",` +
			`"reason":"Forbidden"`,
		"404": `"message":"nodes \"n\" not found","reason":"NotFound","details":{"kind":"nodes","name":"n"},"code":404`,
		"409": `"message":"Operation cannot be fulfilled on nodes \"n\": the object has been modified; please apply`,
		"429 retry-after 1500ms": `"message":"storage is (re)initializing","reason":"TooManyRequests",` +
			`"details":{"retryAfterSeconds":2},"code":429`,
		"500 reason Odd message why": `"message":"why","reason":"Odd"`,
	} {
		f := New()
		f.Script(t, "patch nodes n: refuse "+code)
		_, body := ask(t, f, "PATCH", "/api/v1/nodes/n", "{}")
		testkit.WantText(t, body, want)
	}
	f := New()
	f.Script(t, "*: refuse 503 retry-after 7s")
	w := serve(f, newRequest("GET", "/api/v1/pods", ""))
	if got := w.Header().Get("Retry-After"); got != "7" {
		t.Errorf("Retry-After: %s", got)
	}
}

func TestFaultMessagesHideTokens(t *testing.T) {
	f := New()
	f.Allow("secret-admin")
	f.AddUser("secret-alice", "alice")
	f.Script(t, "patch nodes, 3 times: refuse 403")
	v := &fakeTB{TB: t}
	f.Script(v, "watch nodes by alice|secret-admin: stall")
	for token, name := range map[string]string{
		"secret-admin":    "admin",
		"secret-alice":    "alice",
		"secret-stranger": "system:anonymous",
	} {
		answer := serve(f, newRequest("PATCH", "/api/v1/nodes/n", token)).Body.String()
		testkit.WantText(t, answer,
			`nodes \"n\" is forbidden: User \"`+name+`\" cannot patch resource \"nodes\" in API group`)
	}
	v.finish()
	message := strings.Join(v.errors, "\n")
	for _, want := range []string{"watch nodes by alice|TOKEN", "patch nodes n by admin", "patch nodes n by alice"} {
		testkit.WantText(t, message, want)
	}
	if strings.Contains(message, "secret") {
		t.Errorf("a token is shown: %s", message)
	}
}

func TestMetIsCalledBeforeTheHandler(t *testing.T) {
	f := New()
	heard := ""
	f.Inject(t, Fault{
		Met: func(q Request) { heard = q.Route.String() },
		Do:  Handle(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(heard)) }),
	})
	wantAnswer(t, f, "GET /api/v1/nodes/n", "", 200, "get nodes/n")
}

func TestDelayPrecedesTheEffectAndEndsWithTheClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.Script(t, "list, 2 times: delay 2s, refuse 503")
		start := time.Now()
		wantAnswer(t, f, "GET /api/v1/pods", "", 503, "")
		if passed := time.Since(start); passed != 2*time.Second {
			t.Errorf("refused after %v", passed)
		}
		network := networkOf(t, f)
		if err := get(network, time.Second); err == nil || time.Since(start) != 3*time.Second {
			t.Errorf("a client that waits for a second gets %v after %v", err, time.Since(start))
		}
	})
}

func TestStallLastsUntilTheClientIsGone(t *testing.T) {
	for _, effect := range []string{"stall", "hang after 10 bytes"} {
		synctest.Test(t, func(t *testing.T) {
			f := New()
			f.Script(t, "list: "+effect)
			start := time.Now()
			if err := get(networkOf(t, f), time.Hour); err == nil || time.Since(start) != time.Hour {
				t.Errorf("%s: %v after %v", effect, err, time.Since(start))
			}
		})
	}
}

func TestInvalidFaultPanicsWithTheReason(t *testing.T) {
	stall := Stall{}
	for want, ft := range map[string]Fault{
		"nothing happens":         {},
		"no code to refuse with":  {Do: Refuse{Code: 200}},
		"no code to reply with":   {Do: Reply{Code: 700}},
		"at least 1 byte":         {Do: Cut{}},
		"frame 0 ends":            {Do: CutFrame{Extra: -1}},
		"no such frame":           {Do: CutFrame{Frame: -1}},
		"nobody gets":             {Do: Record{}},
		"less than 0":             {Do: stall, Times: -2},
		"not between 0 and 1":     {Do: stall, Rate: 1.5},
		"how often":               {Do: stall, Every: 3},
		"a seed needs a rate":     {Do: stall, Seed: 3},
		"is no verb":              {Do: stall, On: Requests{Verb: "read"}},
		"a name stands after":     {Do: stall, On: Requests{Resource: "nodes/worker-1"}},
		"neither name nor":        {Do: stall, On: Requests{Resource: "/version", Name: "n"}},
		"until it is lifted":      {Do: Lie{Changes: 1}, Times: 3},
		"and no other verb":       {Do: Lie{Changes: 1}, On: Requests{Verb: "patch"}},
		"needs changes":           {Do: Lie{}},
		"there is no handler":     {Do: Handle(nil)},
		"Retry-After is less":     {Do: Refuse{Code: 500, RetryAfter: -1}},
		"an answer lets at least": {Do: Hang{After: -1}},
	} {
		func() {
			defer func() {
				problem, _ := recover().(string)
				testkit.WantText(t, problem, want)
			}()
			New().InjectUnchecked(ft)
		}()
	}
}
