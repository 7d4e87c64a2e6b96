package fakekube

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestSelectors(t *testing.T) {
	f := New()
	for name, labels := range map[string]Object{
		"none":  {},
		"empty": {"app": ""},
		"web":   {"app": "web", "x.y/tier": "7"},
		"in":    {"app": "in", "in": "notin"},
	} {
		f.Put("pods", PodOn(Object{"namespace": "default", "name": name, "labels": labels}, "node-"+name))
	}
	type selectors struct{ label, field string }
	for given, want := range map[selectors]string{
		{}:                                   "empty in none web",
		{label: " \t "}:                      "empty in none web",
		{label: "app"}:                       "empty in web",
		{label: "!app"}:                      "none",
		{label: "! app"}:                     "none",
		{label: "app="}:                      "empty",
		{label: "app=,!x"}:                   "empty",
		{label: "app==web"}:                  "web",
		{label: "app != web"}:                "empty in none",
		{label: "app in (web,in)"}:           "in web",
		{label: "app in(in)"}:                "in",
		{label: "app in ()"}:                 "empty",
		{label: "app in (,web)"}:             "empty web",
		{label: "app notin (web, in)"}:       "empty none",
		{label: "in in (in,notin)"}:          "in",
		{label: "in"}:                        "in",
		{label: "x.y/tier>6"}:                "web",
		{label: "x.y/tier > 7"}:              "",
		{label: "x.y/tier<8,app"}:            "web",
		{label: "app>1"}:                     "",
		{field: "metadata.name=web"}:         "web",
		{field: "metadata.name==web,"}:       "web",
		{field: "metadata.name!=web"}:        "empty in none",
		{field: "spec.nodeName=node-in"}:     "in",
		{field: `metadata.name!=a\,b\=c\\d`}: "empty in none web",
		{label: "app", field: "metadata.name!=web,metadata.namespace=default"}: "empty in",
		{field: "metadata.namespace=other"}:                                    "",
	} {
		var names []string
		for _, o := range f.Selected("pods", "", given.label, given.field) {
			names = append(names, KeyOf(o).Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v selects %q, want %q", given, got, want)
		}
	}
}

// spyLog is a spy that records its calls.
type spyLog struct{ lines []string }

func (n *spyLog) Asked(q Request) { n.lines = append(n.lines, "asked "+q.Route.String()) }

func (n *spyLog) Told(a Answer, event string, o Object) {
	n.lines = append(n.lines, fmt.Sprintf("told %s %s %s, cut: %v", a.Request.Route, event, KeyOf(o), a.IsCut))
}

func (n *spyLog) Answered(a Answer) {
	n.lines = append(n.lines, fmt.Sprintf("answered %s %d, %d items, more: %v, cut: %v",
		a.Request.Route, a.Code, len(a.Items), a.HasMore, a.IsCut))
}

func (n *spyLog) Changed(c Change) {
	n.lines = append(n.lines, fmt.Sprintf("changed %s %s, lost: %v", c.Resource, c.Key(), c.Lost))
}

func TestSpySeesRequestsAnswersAndChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		n := &spyLog{}
		f.Spy = n
		addPods(f, 2)
		f.LoseEvents(1)
		f.AddNode("n")
		client := &http.Client{Transport: &http.Transport{DialContext: networkOf(t, f).Dial}}
		ask := func(method, path, body string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, method, "http://fake"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/merge-patch+json")
			answer, err := client.Do(r)
			if err != nil {
				return // a fault broke the connection
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		ask("GET", "/api/v1/pods?limit=1", "")
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"b"}}}`)
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"-"}}}`)
		f.Script(t, "list nodes: cut after 10 bytes")
		ask("GET", "/api/v1/nodes", "")
		f.Script(t, "write: drop answer")
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"c"}}}`)
		f.Script(t, "list nodes: refuse 500")
		ask("GET", "/api/v1/nodes", "")
		ask("GET", "/api/v1/nodes?watch=1&resourceVersion=205&timeoutSeconds=1", "")
		ask("GET", "/nothing", "")
		client.CloseIdleConnections()
		want := `
changed pods default/web-0, lost: false
changed pods default/web-1, lost: false
changed nodes n, lost: true
asked list pods
answered list pods 200, 1 items, more: true, cut: false
asked patch nodes/n
changed nodes n, lost: false
answered patch nodes/n 200, 0 items, more: false, cut: false
asked patch nodes/n
answered patch nodes/n 422, 0 items, more: false, cut: false
asked list nodes
answered list nodes 200, 1 items, more: false, cut: true
asked patch nodes/n
changed nodes n, lost: false
asked list nodes
asked watch nodes
told watch nodes MODIFIED n, cut: false
told watch nodes MODIFIED n, cut: false
asked get`
		synctest.Wait()
		got := "\n" + strings.TrimSpace(strings.Join(n.lines, "\n"))
		if got != want {
			t.Errorf("the spy heard:%s\nwant:%s", got, want)
		}
	})
}

// endless is an infinite body that counts how much of it is read.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func (e *endless) Close() error { return nil }

func TestBodyIsReadOnlyUpToTheLimit(t *testing.T) {
	f := New()
	body := &endless{}
	r := newRequest("POST", "/api/v1/namespaces/default/configmaps", "")
	r.Body = body
	if w := serve(f, r); w.Code != 413 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if body.read > maxBody+1 {
		t.Errorf("%d bytes were read", body.read)
	}
}
