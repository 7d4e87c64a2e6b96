package fakekube

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"podcount/lab/testkit"
)

var (
	recordFrom = flag.String("record", "", "the `URL` of a real API server that lets in the token admin: its answers "+
		"take the place of those in testdata/exchanges")
	recordEtcd = flag.String("etcd", "", "the `URL` of that server's etcd, for conversations that compact it")
)

// knownDifference is a field in which the fake always differs from a real server. It is not compared.
type knownDifference struct {
	field string // last name of the field, in any object
	why   string
}

// knownDifferences are the fields that the comparison ignores. The package's doc comment mentions them.
var knownDifferences = []knownDifference{
	{"managedFields", "the fake does not keep track of who owns which field"},
	{"storageVersionHash", "only clients that migrate stored objects read it"},
}

// TestExchanges replays the recorded conversations with a real API server in testdata/exchanges, and compares the
// fake's answers. The README.md there says how to record one.
func TestExchanges(t *testing.T) {
	files, err := filepath.Glob("../../testdata/exchanges/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no conversations: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			steps := readConversation(t, file)
			if *recordFrom != "" {
				record(t, steps)
				writeConversation(t, file, steps)
				return
			}
			synctest.Test(t, func(t *testing.T) { replay(t, steps, strings.HasPrefix(filepath.Base(file), "added-")) })
		})
	}
}

// step is a step of a conversation: a request with its answer, or a single line.
type step struct {
	line int    // in the file
	text string // of a single line: a comment, a blank, "= NAME PATH", "= NAME HEADER" or "!compact"

	method string // "" for a single line
	target string
	header []string // lines such as "Accept: application/json"
	body   string
	known  string          // known difference: "CODE REASON: why", or ""
	answer *recordedAnswer // nil if not recorded yet
}

// recordedAnswer is an answer in which values that change between runs are masked.
type recordedAnswer struct {
	code   int
	media  string   // Content-Type, or "-"
	header []string // lines of headersToCompare
	body   string   // lines, or ""
}

// headersToCompare are the headers that affect clients.
var headersToCompare = []string{"Warning", "Retry-After", "Allow", "Location", "ETag"}

// readConversation parses a file of testdata/exchanges. The README.md there describes the format.
func readConversation(t *testing.T, file string) (steps []*step) {
	t.Helper()
	text := testkit.ReadFile(t, file)
	var current *step // the exchange that is being parsed; nil outside of one
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		isAlone := line == "" || mark == "#" || mark == "=" || mark == "!compact"
		switch {
		case isAlone && (current == nil || line == "" || mark != "#"):
			current = nil
			steps = append(steps, &step{line: i + 1, text: line})
		case mark == ">" && current == nil:
			current = &step{line: i + 1}
			current.method, current.target, _ = strings.Cut(rest, " ")
			steps = append(steps, current)
		case current == nil:
			t.Fatalf("%s:%d: %q is outside an exchange, which begins with a line \"> METHOD TARGET\"", file, i+1, line)
		case mark == ">":
			current.header = append(current.header, rest)
		case mark == "~":
			current.known = rest
		case mark == "<" && current.answer == nil:
			code, media, _ := strings.Cut(rest, " ")
			number, err := strconv.Atoi(code)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
			current.answer = &recordedAnswer{code: number, media: media}
		case mark == "<":
			current.answer.header = append(current.answer.header, rest)
		case current.answer != nil:
			current.answer.body += line + "\n"
		default:
			current.body += line + "\n"
		}
	}
	return steps
}

// writeConversation writes a conversation in the format of readConversation.
func writeConversation(t *testing.T, file string, steps []*step) {
	t.Helper()
	var text strings.Builder
	for _, s := range steps {
		if s.method == "" {
			fmt.Fprintln(&text, s.text)
			continue
		}
		fmt.Fprintf(&text, "> %s %s\n", s.method, s.target)
		for _, line := range s.header {
			fmt.Fprintf(&text, "> %s\n", line)
		}
		text.WriteString(s.body)
		if s.known != "" {
			fmt.Fprintf(&text, "~ %s\n", s.known)
		}
		fmt.Fprintf(&text, "< %d %s\n", s.answer.code, s.answer.media)
		for _, line := range s.answer.header {
			fmt.Fprintf(&text, "< %s\n", line)
		}
		text.WriteString(s.answer.body)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// conversation is a running conversation with a server.
type conversation struct {
	t      *testing.T
	server http.RoundTripper
	base   string            // URL of the server
	vars   map[string]string // values by name, without the dollar sign
	last   []any             // JSON values in the last answer: one, or the events of a stream

	lastHeader http.Header
}

// newConversation starts a conversation by creating its namespace.
func newConversation(t *testing.T, server http.RoundTripper, base string) *conversation {
	t.Helper()
	name := fmt.Sprintf("exchange-%07x", rand.Uint32N(1<<28))
	k := &conversation{t: t, server: server, base: base, vars: map[string]string{"ns": name}}
	made := k.ask(&step{
		method: http.MethodPost,
		target: "/api/v1/namespaces",
		body:   `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"$ns"}}`,
	})
	if made.code != http.StatusCreated {
		t.Fatalf("cannot make the namespace: %d %s", made.code, made.body)
	}
	return k
}

// record sends the requests to a real server and stores its answers.
func record(t *testing.T, steps []*step) {
	// The certificate is not verified, because the server runs locally, for tests only.
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
	}
	defer transport.CloseIdleConnections()
	k := newConversation(t, transport, *recordFrom)
	for _, s := range steps {
		switch {
		case s.method != "":
			s.answer = k.ask(s)
		case s.text == "!compact":
			compactEtcd(t, *recordEtcd)
		default:
			k.setVariable(s)
		}
	}
}

// replay sends the requests to the fake and compares its answers with the recorded ones. withAddedKinds lets the fake
// serve more kinds than it knows. It runs in a bubble.
func replay(t *testing.T, steps []*step, withAddedKinds bool) {
	fake := New()
	if withAddedKinds {
		fake.Serve(deployments, Kind{
			Group: "networking.k8s.io", Resource: "ingressclasses", Kind: "IngressClass",
			ClusterScoped: true, WithoutStatus: true,
		})
	}
	fake.Allow("admin")
	fake.NoControllers = true // like the real server
	k := newConversation(t, inProcess{fake}, "https://fake")
	for _, s := range steps {
		switch {
		case s.method != "":
			got := k.ask(s)
			if s.answer == nil {
				t.Errorf("line %d: nothing is recorded; the fake answers %d\n%s", s.line, got.code, got.body)
				continue
			}
			compare(t, s, got)
		case s.text == "!compact":
			fake.Compact()
		default:
			k.setVariable(s)
		}
	}
}

// inProcess is a RoundTripper that calls the fake directly.
type inProcess struct{ fake *Server }

// RoundTrip serves a request. It returns an error if the answer breaks off.
func (p inProcess) RoundTrip(r *http.Request) (answer *http.Response, err error) {
	w := httptest.NewRecorder()
	defer func() {
		if problem := recover(); problem == http.ErrAbortHandler {
			err = fmt.Errorf("the connection broke after %d %s", w.Code, w.Body)
		} else if problem != nil {
			panic(problem)
		}
	}()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	p.fake.ServeHTTP(w, r)
	return w.Result(), nil
}

// compactEtcd compacts etcd's entire history through the HTTP gateway of its API.
func compactEtcd(t *testing.T, etcd string) {
	t.Helper()
	if etcd == "" {
		t.Fatal("the conversation compacts etcd: say where that is, with -etcd")
	}
	call := func(method, body string) []byte {
		answer, err := http.Post(etcd+"/v3/kv/"+method, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("etcd: %s: %v %s", method, err, text)
		}
		return text
	}
	var found struct{ Header struct{ Revision string } }
	if err := json.Unmarshal(call("range", `{"key":"YQ=="}`), &found); err != nil {
		t.Fatal(err)
	}
	call("compaction", fmt.Sprintf(`{"revision":%q}`, found.Header.Revision))
	http.DefaultClient.CloseIdleConnections()
}

// variable matches a reference to a value that only becomes known during the conversation.
var variable = regexp.MustCompile(`\$[A-Za-z0-9]+`)

// substitute replaces the variables in a text by their values. Other words with a dollar sign, such as "$patch",
// stay.
func (k *conversation) substitute(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		if value, isKnown := k.vars[name[1:]]; isKnown {
			return value
		}
		return name
	})
}

// ask sends a request and returns the masked answer.
func (k *conversation) ask(s *step) *recordedAnswer {
	k.t.Helper()
	r, err := http.NewRequest(s.method, k.base+k.substitute(s.target), strings.NewReader(k.substitute(s.body)))
	if err != nil {
		k.t.Fatalf("line %d: %v", s.line, err)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Authorization", "Bearer admin")
	if s.body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, line := range s.header {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, k.substitute(value))
	}
	if r.Header.Get("Authorization") == "none" {
		r.Header.Del("Authorization")
	}
	answer, err := k.server.RoundTrip(r)
	if err != nil {
		k.t.Fatalf("line %d: %v", s.line, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		k.t.Fatalf("line %d: %v", s.line, err)
	}
	k.lastHeader = answer.Header
	got := &recordedAnswer{code: answer.StatusCode, media: cmp.Or(answer.Header.Get("Content-Type"), "-")}
	for _, name := range headersToCompare {
		for _, value := range answer.Header.Values(name) {
			got.header = append(got.header, name+": "+k.maskText(value))
		}
	}
	got.body = k.decode(body, got.media)
	return got
}

// decode stores the values in an answer's body for setVariable, and returns them as masked text.
func (k *conversation) decode(body []byte, media string) string {
	k.last = nil
	if len(body) == 0 {
		return ""
	}
	if strings.Contains(media, "protobuf") {
		return "(protobuf)\n"
	}
	if !strings.Contains(media, "json") {
		// A blank line would end the exchange in its file.
		text := strings.ReplaceAll(strings.TrimRight(string(body), "\n"), "\n\n", "\n \n")
		return k.maskText(text) + "\n"
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	decoder := json.NewDecoder(bytes.NewReader(body))
	for decoder.More() {
		var value any
		if err := decoder.Decode(&value); err != nil {
			k.t.Fatalf("%v in %s", err, body)
		}
		k.last = append(k.last, value)
		if err := encoder.Encode(k.mask(value)); err != nil {
			k.t.Fatal(err)
		}
	}
	return text.String()
}

// setVariable executes a line "= NAME PATH", which sets a variable to the text at a path in the last answer's body,
// or "= NAME HEADER". It ignores other lines.
func (k *conversation) setVariable(s *step) {
	k.t.Helper()
	rest, isAssignment := strings.CutPrefix(s.text, "= ")
	if !isAssignment {
		return
	}
	name, source, _ := strings.Cut(rest, " ")
	value := k.lastHeader.Get(source)
	if strings.HasPrefix(source, ".") {
		value = k.textAt(source)
	}
	if value == "" {
		k.t.Fatalf("line %d: the last answer has no text at %s", s.line, source)
	}
	k.vars[name] = value
}

// pathSteps matches the fields and indexes in a path such as .[2].object.items[0].name.
var pathSteps = regexp.MustCompile(`[^.\[\]]+`)

// textAt returns the text at a path in the body of the last answer, or "". For a stream, the path begins with the
// index of an event.
func (k *conversation) textAt(path string) string {
	var at any = k.last
	isOfStream := strings.HasPrefix(path, ".[")
	if !isOfStream && len(k.last) == 1 {
		at = k.last[0]
	}
	for _, step := range pathSteps.FindAllString(path, -1) {
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i >= len(v) {
				return ""
			}
			at = v[i]
		default:
			return ""
		}
	}
	text, _ := at.(string)
	return text
}

var (
	timeSyntax      = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	ageSyntax       = regexp.MustCompile(`\b(\d+(y|d|h|m|s))+\b`)
	versionSyntax   = regexp.MustCompile(`^[1-9]\d*$`)
	hashSyntax      = regexp.MustCompile(`\b[0-9A-F]{128}\b`)
	versionsInWords = regexp.MustCompile(`(resource version|current|revision): \d+( \(\d+\))?`)
)

// mask masks the parts of a value that change between runs.
func (k *conversation) mask(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = k.mask(v[i])
		}
		return list
	case map[string]any:
		return k.maskObject(v)
	case string:
		return k.maskText(v)
	}
	return v
}

// maskText replaces the values of variables by their names.
func (k *conversation) maskText(text string) string {
	names := slices.SortedFunc(maps.Keys(k.vars), func(a, b string) int {
		longestFirst := len(k.vars[b]) - len(k.vars[a])
		return cmp.Or(longestFirst, strings.Compare(a, b))
	})
	for _, name := range names {
		isNumber := versionSyntax.MatchString(k.vars[name]) // could match part of a longer number
		if !isNumber || text == k.vars[name] {
			text = strings.ReplaceAll(text, k.vars[name], "$"+name)
		}
	}
	if timeSyntax.MatchString(text) {
		return "<time>"
	}
	text = hashSyntax.ReplaceAllString(text, "<hash>")
	return versionsInWords.ReplaceAllString(text, "$1: <version>")
}

// maskObject masks the fields of an object by their names.
func (k *conversation) maskObject(o map[string]any) map[string]any {
	kept := map[string]any{}
	for name, value := range o {
		text, _ := value.(string)
		switch {
		case slices.ContainsFunc(knownDifferences, func(d knownDifference) bool { return d.field == name }):
		case name == "resourceVersion" && versionSyntax.MatchString(text):
			kept[name] = "<version>"
		case name == "uid" && text != "" || name == "continue" && text != "" || name == "token" && text != "":
			kept[name] = "<" + name + ">"
		case name == "causes":
			kept[name] = withoutDuplicates(k.mask(value))
		case name == "cells":
			kept[name] = k.maskCells(value)
		default:
			kept[name] = k.mask(value)
		}
	}
	prefix, isGenerated := o["generateName"].(string)
	if isGenerated {
		kept["name"] = prefix + "<random>"
	}
	return kept
}

// withoutDuplicates removes repeated items. The real server reports some causes several times.
func withoutDuplicates(list any) []any {
	var once []any
	items, _ := list.([]any)
	for _, item := range items {
		if !slices.ContainsFunc(once, func(other any) bool { return reflect.DeepEqual(other, item) }) {
			once = append(once, item)
		}
	}
	return once
}

// maskCells masks the ages in a table row.
func (k *conversation) maskCells(cells any) any {
	list, _ := k.mask(cells).([]any)
	for i := range list {
		if text, isText := list[i].(string); isText {
			list[i] = ageSyntax.ReplaceAllString(text, "<age>")
		}
	}
	return list
}

// compare reports the differences between the fake's answer and the recorded one.
func compare(t *testing.T, s *step, got *recordedAnswer) {
	t.Helper()
	if s.known == "" {
		what := fmt.Sprintf("line %d: the fake's answer to %s %s", s.line, s.method, s.target)
		testkit.WantEqual(t, what, got.lines(), s.answer.lines())
		return
	}
	if slices.Equal(got.lines(), s.answer.lines()) {
		t.Errorf("line %d: the fake differs no more: %s", s.line, s.known)
	}
	var status struct{ Reason string }
	_ = json.Unmarshal([]byte(got.body), &status) // an answer that is not a Status has no reason
	difference := fmt.Sprintf("%d %s: ", got.code, status.Reason)
	if !strings.HasPrefix(s.known, difference) {
		t.Errorf("line %d: the fake answers %s %s, and not %s", s.line, difference, got.body, s.known)
	}
}

// lines returns the answer in the format of the file.
func (r *recordedAnswer) lines() []string {
	head := append([]string{fmt.Sprintf("%d %s", r.code, r.media)}, r.header...)
	return append(head, strings.Split(r.body, "\n")...)
}
