package fakekube

import (
	"bytes"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

const (
	coreEvents = "/api/v1/namespaces/default/events"
	newEvents  = "/apis/events.k8s.io/v1/namespaces/default/events"
)

// newEvent is an Event of events.k8s.io with this name, in JSON.
func newEvent(name string) string {
	return fmt.Sprintf(`{"metadata":{"name":%q},"eventTime":"2026-01-02T03:04:05.000006Z","reportingController":"c",`+
		`"reportingInstance":"i","action":"a","reason":"r","type":"Normal","note":"seen",`+
		`"regarding":{"kind":"Pod","namespace":"default","name":"web"}}`, name)
}

func TestScriptTellsTheGroupsOfEventsApart(t *testing.T) {
	f := New()
	f.Script(t, "create events.events.k8s.io: refuse 503")
	wantAnswer(t, f, "POST "+coreEvents, `{"metadata":{"name":"a"}}`, 201, "")
	wantAnswer(t, f, "POST "+newEvents, newEvent("b"), 503, "")
	testkit.WantNumber(t, "requests for Events", len(f.Received(Requests{Resource: "events"})), 2)
}

func TestWebhookAndTestSeeEventsAsTheCoreGroupShowsThem(t *testing.T) {
	f := New()
	f.Mutate("events", func(o Object) { o["message"] = o["message"].(string) + " twice" })
	wantAnswer(t, f, "POST "+newEvents, newEvent("a"), 201, `"note":"seen twice"`)
	testkit.WantText(t, TextIn(f.Get("events", Key{"default", "a"}), "message"), "seen twice")
	f.Edit("events", Key{"default", "a"}, func(o Object) { o["message"] = "gone" })
	wantAnswer(t, f, "GET "+newEvents+"/a", "", 200, `"note":"gone"`)
	testkit.WantNumber(t, "Events", len(f.Selected("events", "", "", "involvedObject.name=web")), 1)
}

func TestLieAboutEventsHoldsInBothGroups(t *testing.T) {
	for _, path := range []string{coreEvents, newEvents} {
		f := New()
		f.InjectUnchecked(Fault{On: Requests{Resource: "events"}, Do: Lie{Changes: 1}})
		wantAnswer(t, f, "POST "+newEvents, newEvent("a"), 201, "")
		wantAnswer(t, f, "POST "+newEvents, newEvent("b"), 201, "")
		for _, query := range []string{"", "?watch=1&timeoutSeconds=-1", "?watch=1&timeoutSeconds=-1&resourceVersion=202"} {
			code, body := ask(t, f, "GET", path+query, "")
			if code != 200 || strings.Contains(body, `"name":"a"`) || !strings.Contains(body, `"name":"b"`) {
				t.Errorf("%s%s: %d %s", path, query, code, body)
			}
		}
		wantAnswer(t, f, "GET "+path+"?resourceVersionMatch=Exact&resourceVersion=204", "", 200, `"name":"a"`)
	}
}

func TestListOfNewEventsIsTheSameInProtobuf(t *testing.T) {
	f := New()
	f.PutJSON("events", `{"metadata":{"name":"old","namespace":"default"},"count":3,"series":{}}`)
	wantAnswer(t, f, "POST "+newEvents, newEvent("a"), 201, "")
	_, inJSON := ask(t, f, "GET", newEvents, "")
	testkit.WantText(t, inJSON, `"series":{"count":0,"lastObservedTime":null}`)
	r := httptest.NewRequest("GET", newEvents, nil)
	r.Header.Set("Accept", mediaProtobuf)
	got := serve(f, r).Body.Bytes()
	if want := Protobuf([]byte(inJSON)); !bytes.Equal(got, want) {
		t.Error("the bytes differ")
		testkit.WantEqual(t, "the fields", fieldsIn(got[4:], ""), fieldsIn(want[4:], ""))
	}
}

func TestRightToEventsIsOfOneGroup(t *testing.T) {
	f := New()
	f.Allow("admin")
	f.AddUser("secret", "alice")
	f.PutJSON("clusterroles", `{"metadata":{"name":"r"},"rules":[{"apiGroups":["events.k8s.io"],"resources":["events"],`+
		`"verbs":["list"]}]}`)
	f.PutJSON("clusterrolebindings", `{"metadata":{"name":"b"},"roleRef":{"kind":"ClusterRole","name":"r"},`+
		`"subjects":[{"kind":"User","name":"alice"}]}`)
	for path, want := range map[string]int{coreEvents: 403, newEvents: 200} {
		testkit.WantNumber(t, "the code for "+path, serve(f, newRequest("GET", path, "secret")).Code, want)
	}
}

func TestNamespaceTakesEventsOfBothGroupsWithIt(t *testing.T) {
	f := New()
	f.PutJSON("namespaces", `{"metadata":{"name":"gone"}}`)
	path := strings.ReplaceAll(newEvents, "default", "gone")
	event := strings.ReplaceAll(newEvent("a"), `"namespace":"default"`, `"namespace":"gone"`)
	wantAnswer(t, f, "POST "+path, event, 201, "")
	wantAnswer(t, f, "DELETE /api/v1/namespaces/gone", "", 200, "")
	testkit.WantNumber(t, "Events", len(f.All("events")), 0)
	testkit.WantNumber(t, "namespaces", len(f.All("namespaces")), 2)
}
