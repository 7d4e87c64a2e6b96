package fakekube

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// leaves are the fields of a protobuf message, by their path, as far as descend leads.
func leaves(t *testing.T, m []byte, path string, descend []string) (all []string) {
	for len(m) > 0 {
		tag, n := binary.Uvarint(m)
		v, k := binary.Uvarint(m[n:])
		m = m[n+k:]
		at := path + "." + strconv.Itoa(int(tag>>3))
		switch {
		case tag&7 == 0:
			all = append(all, fmt.Sprintf("%s=%d", at, v))
			continue
		case tag&7 != 2 || v > uint64(len(m)):
			t.Fatalf("%s: wire type %d, length %d", at, tag&7, v)
		case slices.Contains(descend, at):
			all = append(append(all, at), leaves(t, m[:v], at, descend)...)
		default:
			all = append(all, fmt.Sprintf("%s=%q", at, m[:v]))
		}
		m = m[v:]
	}
	return all
}

// The recorded metadata list in JSON, made protobuf by the fake, is the recorded protobuf, field by field.
func TestAnswersInProtobufAreAsARealServers(t *testing.T) {
	descend := []string{".1", ".2", ".2.1", ".2.2", ".2.2.1", ".2.2.1.8", ".2.2.1.11"}
	read := func(body []byte, descend []string) (all []string) {
		if string(body[:4]) != "k8s\x00" {
			t.Fatalf("%q", body[:4])
		}
		for _, leaf := range leaves(t, body[4:], "", descend) {
			isManagedFields := strings.HasPrefix(leaf, ".2.2.1.17=")
			isRemainingItemCount := strings.HasPrefix(leaf, ".2.1.4=")
			if !isManagedFields && !isRemainingItemCount {
				all = append(all, leaf)
			}
		}
		return all
	}
	got := read(Protobuf(recording(t, "list-metadata.txt")), descend)
	want := read(recording(t, "list-metadata.pb"), descend)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nrecorded: %q", got, want)
	}
	descend = []string{".1", ".2"}
	got = read(Protobuf(recording(t, "unauthorized.txt")), descend)
	want = read(recording(t, "unauthorized.pb"), descend)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nrecorded: %q", got, want)
	}
}

func TestAnswersAreAsTheRealServerGaveThem(t *testing.T) {
	// The recordings were made by a service account, and what is forbidden there was so by its roles.
	const recorder = "system:serviceaccount:kube-system:podcount"
	setUp := func() *Server {
		f := New()
		f.AddUser("recorder", recorder, masters)
		f.AddNode("cp-1", controlPlane)
		for _, name := range []string{"p1", "p2", "p3"} {
			f.Put("pods", PodOn(Object{"namespace": "default", "name": name, "labels": Object{"app": "nginx"}}, "cp-1"))
		}
		return f
	}
	event := `{"apiVersion":"v1","kind":"Event","metadata":{"name":"p1.17b1","namespace":"default"},` +
		`"involvedObject":{"kind":"Pod","name":"p1","namespace":"default","uid":"u"},"count":1,` +
		`"firstTimestamp":"2026-01-02T03:04:05Z"}`
	lease := `{"metadata":{"name":"podcount","namespace":"kube-system"},"spec":{"holderIdentity":"a"}}`
	before := map[string]func(*Server){ // what had happened before the recording
		"list-expired-continue": func(f *Server) { f.SetVersion(f.Latest() + 1000); f.Compact() },
		"watch-expired":         func(f *Server) { f.SetVersion(f.Latest() + 1000); f.Compact() },
		"node-patch-refused-by-policy": func(f *Server) {
			f.PutJSON("validatingadmissionpolicies", `{"metadata":{"name":"no-pod-count"},"spec":{`+
				`"matchConditions":[{"expression":"object.metadata.name == 'cp-1'"}],`+
				`"validations":[{"expression":"!('hopegi/pod-count' in object.metadata.labels)",`+
				`"message":"thirteen is not allowed here"}]}}`)
			f.PutJSON("validatingadmissionpolicybindings",
				`{"metadata":{"name":"no-pod-count"},"spec":{"policyName":"no-pod-count"}}`)
		},
		"discovery-group":        func(f *Server) { f.InstallCRD(&CRD{}) },
		"discovery-group-status": func(f *Server) { f.InstallCRD(&CRD{HasStatus: true}) },
		"unauthorized":           func(f *Server) { f.Allow("x") },
		"forbidden-list":         func(f *Server) { f.Forbid("list pods", true) },
		"forbidden-patch":        func(f *Server) { f.Forbid("patch nodes", true) },
		"event-count-patch":      func(f *Server) { f.PutJSON("events", event) },
		"event-duplicate-name":   func(f *Server) { f.PutJSON("events", event) },
		"lease-create-exists":    func(f *Server) { f.PutJSON("leases", lease) },
		"lease-update-conflict":  func(f *Server) { f.PutJSON("leases", lease) },
		"lease-update":           func(f *Server) { f.SetVersion(211); f.PutJSON("leases", lease) },
		"lease-put-exists-without-rv": func(f *Server) {
			f.PutJSON("leases", strings.ReplaceAll(lease, "podcount", "podcount-put"))
		},
	}
	crds := map[string]CRD{"no-subresource": {}, "prune": {DropsStatus: true}, "subresource": {HasStatus: true}}
	for name, crd := range crds {
		for _, to := range []string{"-patch", "-patch-status"} {
			before["count-"+name+to] = func(f *Server) {
				f.InstallCRD(&crd)
				f.AddCount("test-count", `{"name":"nginx","count":3}`)
			}
		}
	}
	files, _ := filepath.Glob("../../testdata/transcripts/*.txt")
	if len(files) < 39 {
		t.Fatalf("only %d recordings", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		text, _ := os.ReadFile(file)
		var method, target, contentType, accept, body string
		head, want, _ := strings.Cut(string(text), "\n\n")
		lines := strings.Split(head, "\n")
		var code int
		mediaType := ""
		for i, line := range lines {
			sent, isSent := strings.CutPrefix(line, "> ")
			key, value, _ := strings.Cut(line, ": ")
			switch {
			case i == 0:
				method, target, _ = strings.Cut(sent, " ")
			case strings.HasPrefix(sent, "Content-Type: ") && isSent:
				contentType = sent[len("Content-Type: "):]
			case strings.HasPrefix(sent, "Accept: ") && isSent:
				accept = sent[len("Accept: "):]
			case isSent:
				body = sent
			case strings.HasPrefix(line, "HTTP/2 "):
				code, _ = strconv.Atoi(strings.TrimSpace(line[7:]))
			case key == "content-type":
				mediaType = value
			}
		}
		f := setUp()
		if change := before[name]; change != nil {
			change(f)
		}
		if name == "list-page-2" { // a token of this fake
			first := httptest.NewRecorder()
			f.ServeHTTP(first, httptest.NewRequest("GET", "/api/v1/pods?limit=2", nil))
			token := regexp.MustCompile(`"continue":"([^"]*)"`).FindStringSubmatch(first.Body.String())[1]
			target = "/api/v1/pods?limit=2&continue=" + token
		}
		if name == "watch-from-list" { // the events of the recording
			target = strings.Replace(target, "resourceVersion=202", "resourceVersion="+strconv.Itoa(f.Latest()), 1)
			f.AddPod("default", "p4", "cp-1")
			f.Remove("pods", Key{"default", "p4"})
		}
		req := httptest.NewRequest(method, target, strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", accept)
		req.Header.Set("Authorization", "Bearer recorder")
		got := httptest.NewRecorder()
		f.ServeHTTP(got, req)
		if got.Code != code || got.Header().Get("Content-Type") != mediaType {
			t.Errorf("%s: %d %s, recorded: %d %s", name, got.Code, got.Header().Get("Content-Type"), code, mediaType)
		}
		gotLines := strings.Split(strings.TrimSpace(got.Body.String()), "\n")
		wantLines := strings.Split(strings.TrimSpace(want), "\n")
		if len(gotLines) != len(wantLines) {
			t.Errorf("%s: %d lines, recorded: %d", name, len(gotLines), len(wantLines))
			continue
		}
		if strings.HasPrefix(name, "count-") { // what it kept, and what that did to the generation
			kept := regexp.MustCompile(`"generation":\d+|"(healthy|count)":\w+`)
			g, w := kept.FindAllString(got.Body.String(), -1), kept.FindAllString(want, -1)
			if slices.Sort(g); !slices.Equal(g, slices.Sorted(slices.Values(w))) {
				t.Errorf("%s: %q, recorded: %q", name, g, w)
			}
		}
		for i := range gotLines {
			var g, w any
			if json.Unmarshal([]byte(gotLines[i]), &g) != nil || json.Unmarshal([]byte(wantLines[i]), &w) != nil {
				if gotLines[i] != wantLines[i] {
					t.Errorf("%s: %q, recorded: %q", name, gotLines[i], wantLines[i])
				}
				continue
			}
			sameShape(t, name, g, w)
		}
	}
}

// sameShape compares what the fake answered with what was recorded: what a client decides by must be the same, and what
// the fake has at all must be of the same type. A real object has more fields.
func sameShape(t *testing.T, at string, got, want any) {
	t.Helper()
	exact := regexp.MustCompile(`\.(kind|apiVersion|type|status|reason|code|field|retryAfterSeconds|` +
		`name|namespace|group|count|holderIdentity)$`)
	switch g := got.(type) {
	case Object:
		w, ok := want.(Object)
		if !ok {
			t.Errorf("%s is an object, recorded: %v", at, want)
			return
		}
		mayBeMissing := []string{
			"spec", "status", "eventTime", "reportingComponent", "reportingInstance", "firstTimestamp", "lastTimestamp",
			"source", "message", "reason", "type",
		}
		isObject := w["kind"] == "Status" || w["metadata"] != nil
		for k := range w {
			_, isThere := g[k]
			if isObject && !isThere && !slices.Contains(mayBeMissing, k) {
				t.Errorf("%s.%s is missing", at, k)
			}
		}
		for k := range g {
			if wv, ok := w[k]; ok {
				sameShape(t, at+"."+k, g[k], wv)
			}
		}
	case []any:
		w, ok := want.([]any)
		if !ok {
			t.Errorf("%s is a list, recorded: %v", at, want)
			return
		}
		if strings.HasSuffix(at, ".items") && len(g) != len(w) {
			t.Errorf("%s: %d items, recorded: %d", at, len(g), len(w))
		}
		for i := range min(len(g), len(w)) {
			sameShape(t, at, g[i], w[i])
		}
	default:
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) || exact.MatchString(at) && got != want {
			t.Errorf("%s is %v, recorded: %v", at, got, want)
		}
	}
}
