package fakekube

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// transcript is a request to a real API server and its answer, as stored in testdata/transcripts:
//
//	> METHOD TARGET
//	> Content-Type: TYPE
//	> Accept: TYPES
//	> BODY
//	HTTP/2 CODE
//	content-type: TYPE
//
//	ANSWER
//
// Optional lines may be missing. Other headers of the answer are ignored.
type transcript struct {
	name string // of the file, without its extension

	method string
	target string
	header http.Header
	body   string

	code   int
	media  string
	answer string
}

func readTranscript(t *testing.T, file string) transcript {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, answer, _ := strings.Cut(string(text), "\n\n")
	rec := transcript{
		name:   strings.TrimSuffix(filepath.Base(file), ".txt"),
		header: http.Header{"Authorization": {"Bearer recorder"}},
		answer: answer,
	}
	for line := range strings.Lines(head) {
		line = strings.TrimSpace(line)
		sent, isSent := strings.CutPrefix(line, "> ")
		name, value, _ := strings.Cut(sent, ": ")
		status, isStatus := strings.CutPrefix(line, "HTTP/2 ")
		switch {
		case isSent && rec.method == "":
			rec.method, rec.target, _ = strings.Cut(sent, " ")
		case isSent && (name == "Content-Type" || name == "Accept"):
			rec.header.Set(name, value)
		case isSent:
			rec.body = sent
		case isStatus:
			rec.code, err = strconv.Atoi(status)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
		case name == "content-type":
			rec.media = value
		}
	}
	return rec
}

// ask sends the request of a transcript to the fake.
func (rec transcript) ask(f *Server) *httptest.ResponseRecorder {
	r := httptest.NewRequest(rec.method, rec.target, strings.NewReader(rec.body))
	r.Header = rec.header
	return serve(f, r)
}

func TestAnswersMatchTranscripts(t *testing.T) {
	files, err := filepath.Glob("../../testdata/transcripts/*.txt")
	if err != nil || len(files) < 39 {
		t.Fatalf("only %d recordings: %v", len(files), err)
	}
	for _, file := range files {
		rec := readTranscript(t, file)
		t.Run(rec.name, func(t *testing.T) {
			f := recordedCluster()
			if prepare := beforeTranscript[rec.name]; prepare != nil {
				prepare(f)
			}
			switch rec.name {
			case "list-page-2": // the recorded token is from another server
				rec.target = "/api/v1/pods?limit=2&continue=" + tokenOfFirstPage(t, f)
			case "watch-from-list": // the watch begins before the recorded changes
				from := fmt.Sprintf("resourceVersion=%d", f.Latest())
				rec.target = strings.Replace(rec.target, "resourceVersion=202", from, 1)
				f.AddPod("default", "p4", "cp-1")
				f.Remove("pods", Key{"default", "p4"})
			}
			rec.compareAnswer(t, rec.ask(f))
		})
	}
}

// recordedCluster returns a fake with the objects of the cluster in which the transcripts were recorded. A service
// account recorded them.
func recordedCluster() *Server {
	f := New()
	f.AddUser("recorder", "system:serviceaccount:kube-system:podcount", masters)
	f.AddNode("cp-1", controlPlane)
	for _, name := range []string{"p1", "p2", "p3"} {
		f.Put("pods", PodOn(Object{"namespace": "default", "name": name, "labels": Object{"app": "nginx"}}, "cp-1"))
	}
	return f
}

const (
	recordedEvent = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"p1.17b1","namespace":"default"},` +
		`"involvedObject":{"kind":"Pod","name":"p1","namespace":"default","uid":"u"},"count":1,` +
		`"firstTimestamp":"2026-01-02T03:04:05Z"}`

	recordedLease = `{"metadata":{"name":"podcount","namespace":"kube-system"},"spec":{"holderIdentity":"a"}}`

	recordedPolicy = `{"metadata":{"name":"no-pod-count"},"spec":{` +
		`"matchConditions":[{"expression":"object.metadata.name == 'cp-1'"}],` +
		`"validations":[{"expression":"!('hopegi/pod-count' in object.metadata.labels)",` +
		`"message":"thirteen is not allowed here"}]}}`

	recordedPolicyBinding = `{"metadata":{"name":"no-pod-count"},"spec":{"policyName":"no-pod-count"}}`
)

// beforeTranscript holds, by name, what happened before a transcript. Forbid stands for the limits of the recorder's
// roles.
var beforeTranscript = map[string]func(*Server){
	"list-expired-continue": compactAll,
	"watch-expired":         compactAll,
	"node-patch-refused-by-policy": func(f *Server) {
		f.PutJSON("validatingadmissionpolicies", recordedPolicy)
		f.PutJSON("validatingadmissionpolicybindings", recordedPolicyBinding)
	},
	"discovery-group":        func(f *Server) { defineCounts(f, crd{}) },
	"discovery-group-status": func(f *Server) { defineCounts(f, crd{hasStatus: true}) },
	"unauthorized":           func(f *Server) { f.Allow("x") },
	"forbidden-list":         func(f *Server) { f.Forbid("list pods") },
	"forbidden-patch":        func(f *Server) { f.Forbid("patch nodes") },
	"event-count-patch":      func(f *Server) { f.PutJSON("events", recordedEvent) },
	"event-duplicate-name":   func(f *Server) { f.PutJSON("events", recordedEvent) },
	"lease-create-exists":    func(f *Server) { f.PutJSON("leases", recordedLease) },
	"lease-update-conflict":  func(f *Server) { f.PutJSON("leases", recordedLease) },
	"lease-update": func(f *Server) {
		f.SetVersion(211)
		f.PutJSON("leases", recordedLease)
	},
	"lease-put-exists-without-rv": func(f *Server) {
		f.PutJSON("leases", strings.ReplaceAll(recordedLease, "podcount", "podcount-put"))
	},
	"count-no-subresource-patch":        addCountOf(crd{}),
	"count-no-subresource-patch-status": addCountOf(crd{}),
	"count-prune-patch":                 addCountOf(crd{dropsStatus: true}),
	"count-prune-patch-status":          addCountOf(crd{dropsStatus: true}),
	"count-subresource-patch":           addCountOf(crd{hasStatus: true}),
	"count-subresource-patch-status":    addCountOf(crd{hasStatus: true}),
}

// compactAll compacts all versions of the recording.
func compactAll(f *Server) {
	f.SetVersion(f.Latest() + 1000)
	f.Compact()
}

// addCountOf adds a Count after the definition of its kind.
func addCountOf(c crd) func(*Server) {
	return func(f *Server) {
		defineCounts(f, c)
		f.PutJSON("counts",
			`{"metadata":{"namespace":"default","name":"test-count"},"spec":{"name":"nginx","count":3}}`)
	}
}

// defineCounts makes the fake serve the custom resource of the recordings.
func defineCounts(f *Server, c crd) {
	f.Put(definitions, c.definition("demo.mark8s.io", "counts", "Count"))
}

// tokenOfFirstPage returns the continue token of the first page of the pods.
func tokenOfFirstPage(t *testing.T, f *Server) string {
	t.Helper()
	_, answer := ask(t, f, "GET", "/api/v1/pods?limit=2", "")
	return TextIn(MetaOf(parsed(answer).(Object)), "continue")
}

// compareAnswer reports the differences between the fake's answer and the recorded one.
func (rec transcript) compareAnswer(t *testing.T, got *httptest.ResponseRecorder) {
	t.Helper()
	if media := got.Header().Get("Content-Type"); got.Code != rec.code || media != rec.media {
		t.Errorf("%d %s, recorded: %d %s", got.Code, media, rec.code, rec.media)
	}
	if strings.HasPrefix(rec.name, "count-") {
		gotFields := fieldsOfCount(got.Body.String())
		wantFields := fieldsOfCount(rec.answer)
		if !slices.Equal(gotFields, wantFields) {
			t.Errorf("%q, recorded: %q", gotFields, wantFields)
		}
	}

	// A watch has one event per line; any other JSON answer is a single line.
	gotLines := strings.Split(strings.TrimSpace(got.Body.String()), "\n")
	wantLines := strings.Split(strings.TrimSpace(rec.answer), "\n")
	if len(gotLines) != len(wantLines) {
		t.Errorf("%d lines, recorded: %d", len(gotLines), len(wantLines))
		return
	}
	for i := range gotLines {
		var gotValue, wantValue any
		isJSON := json.Unmarshal([]byte(gotLines[i]), &gotValue) == nil &&
			json.Unmarshal([]byte(wantLines[i]), &wantValue) == nil
		switch {
		case isJSON:
			wantShape(t, rec.name, gotValue, wantValue)
		case gotLines[i] != wantLines[i]:
			t.Errorf("%q, recorded: %q", gotLines[i], wantLines[i])
		}
	}
}

// fieldsOfCount lists the fields of a Count that a patch has changed or that were dropped, and its generation, in
// sorted order.
func fieldsOfCount(answer string) []string {
	found := regexp.MustCompile(`"generation":\d+|"(healthy|count)":\w+`).FindAllString(answer, -1)
	slices.Sort(found)
	return found
}

// exactFields are the fields on which clients base decisions.
var exactFields = []string{
	"kind", "apiVersion", "type", "status", "reason", "code", "field", "retryAfterSeconds", "name", "namespace",
	"group",
	"count", "holderIdentity",
}

// optionalFields are fields of real objects that the fake may lack.
var optionalFields = []string{
	"spec", "status", "eventTime", "reportingComponent", "reportingInstance", "firstTimestamp", "lastTimestamp",
	"source",
	"message", "reason", "type",
}

// wantShape compares values at a path. exactFields must be equal, and all fields of the fake must have the same type
// as the recorded ones. A real object may have more fields.
func wantShape(t *testing.T, at string, got, want any) {
	t.Helper()
	switch got := got.(type) {
	case Object:
		wanted, isObject := want.(Object)
		if !isObject {
			t.Errorf("%s is an object, recorded: %v", at, want)
			return
		}
		wantFields(t, at, got, wanted)
	case []any:
		wanted, isList := want.([]any)
		if !isList {
			t.Errorf("%s is a list, recorded: %v", at, want)
			return
		}
		if strings.HasSuffix(at, ".items") && len(got) != len(wanted) {
			t.Errorf("%s: %d items, recorded: %d", at, len(got), len(wanted))
		}
		for i := range min(len(got), len(wanted)) {
			wantShape(t, at, got[i], wanted[i])
		}
	default:
		name := at[strings.LastIndex(at, ".")+1:]
		isOfSameType := fmt.Sprintf("%T", got) == fmt.Sprintf("%T", want)
		if !isOfSameType || slices.Contains(exactFields, name) && got != want {
			t.Errorf("%s is %v, recorded: %v", at, got, want)
		}
	}
}

// wantFields is wantShape for objects.
func wantFields(t *testing.T, at string, got, want Object) {
	t.Helper()
	isWhole := want["kind"] == "Status" || want["metadata"] != nil // rather than a part of an object
	for name := range want {
		_, isThere := got[name]
		if isWhole && !isThere && !slices.Contains(optionalFields, name) {
			t.Errorf("%s.%s is missing", at, name)
		}
	}
	for name, value := range got {
		if wanted, isThere := want[name]; isThere {
			wantShape(t, at+"."+name, value, wanted)
		}
	}
}

// The list was recorded twice, in JSON and in protobuf, and managedFields changed in between.
func TestProtobufMetadataMatchesTranscript(t *testing.T) {
	const managedFields = ".2.2.1.17"
	const remainingItemCount = ".2.1.4="
	fields := func(message []byte) []string {
		wantMagic(t, message)
		return slices.DeleteFunc(fieldsIn(message[4:], ""), func(line string) bool {
			return strings.HasPrefix(line, managedFields) || strings.HasPrefix(line, remainingItemCount)
		})
	}
	got := fields(Protobuf(recording(t, "list-metadata.txt")))
	want := fields(recording(t, "list-metadata.pb"))
	if !slices.Equal(got, want) {
		t.Errorf("the fields differ:\n%s", diff(want, got))
	}
}

func TestProtobufStatusMatchesTranscript(t *testing.T) {
	got := Protobuf(recording(t, "unauthorized.txt"))
	want := recording(t, "unauthorized.pb")
	wantMagic(t, got)
	wantMagic(t, want)
	gotFields := fieldsIn(got[4:], "")
	wantFields := fieldsIn(want[4:], "")
	if !slices.Equal(gotFields, wantFields) {
		t.Errorf("the fields differ:\n%s", diff(wantFields, gotFields))
	}
}

// wantMagic fails the test if a message lacks the prefix of the API's protobuf bodies.
func wantMagic(t *testing.T, message []byte) {
	t.Helper()
	if !strings.HasPrefix(string(message), protobufMagic) {
		t.Fatalf("the message begins with %q", message[:min(4, len(message))])
	}
}
