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
)

var (
	recordFrom = flag.String("record", "", "the `URL` of a real API server that lets in the token admin: its answers "+
		"take the place of those in testdata/exchanges")
	recordEtcd = flag.String("etcd", "", "the `URL` of that server's etcd, for conversations that compact it")
)

// difference is a field in which answers of the fake differ from a real server's everywhere. It is not compared.
type difference struct {
	field string // its last name, wherever it stands
	why   string
}

// differences are all that the comparison passes over. The package's doc comment names them, too.
var differences = []difference{
	{"managedFields", "the fake does not keep track of who owns which field"},
	{"storageVersionHash", "clients that migrate stored objects read it, and nobody else"},
}

// TestExchanges holds each conversation with a real API server, as it is recorded in testdata/exchanges, against the
// fake: what the real server answered then, the fake answers now. See docs/testing.md for how to record one.
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
			synctest.Test(t, func(t *testing.T) { replay(t, steps) })
		})
	}
}

// step is one step of a conversation: a request with its answer, or a line by itself.
type step struct {
	line int    // where it stands in the file
	text string // of a line by itself: a comment, a blank, "= NAME PATH", "= NAME HEADER" or "!compact"

	method string // "" in a line by itself
	target string
	header []string // lines, as in "Accept: application/json"
	body   string
	known  string // what is known to differ: "CODE REASON: why", or ""
	answer *reply // as recorded; nil: not yet
}

// reply is an answer, masked: of what changes from one run to the next, no more than a sign is left.
type reply struct {
	code   int
	media  string   // the Content-Type, "-" where there is none
	header []string // the lines of headersToCompare
	body   string   // lines, or ""
}

// headersToCompare are the headers that clients act on.
var headersToCompare = []string{"Warning", "Retry-After", "Allow", "Location", "ETag"}

// readConversation reads a file of testdata/exchanges. docs/testing.md describes its form.
func readConversation(t *testing.T, file string) (steps []*step) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var now *step // the exchange that is being read; nil between two
	for i, line := range strings.Split(strings.TrimRight(string(text), "\n"), "\n") {
		mark, rest, _ := strings.Cut(line, " ")
		isAlone := line == "" || mark == "#" || mark == "=" || mark == "!compact"
		switch {
		case isAlone && (now == nil || line == "" || mark != "#"):
			now = nil
			steps = append(steps, &step{line: i + 1, text: line})
		case mark == ">" && now == nil:
			now = &step{line: i + 1}
			now.method, now.target, _ = strings.Cut(rest, " ")
			steps = append(steps, now)
		case now == nil:
			t.Fatalf("%s:%d: %q is outside an exchange, which begins with a line \"> METHOD TARGET\"", file, i+1, line)
		case mark == ">":
			now.header = append(now.header, rest)
		case mark == "~":
			now.known = rest
		case mark == "<" && now.answer == nil:
			code, media, _ := strings.Cut(rest, " ")
			now.answer = &reply{media: media}
			now.answer.code, err = strconv.Atoi(code)
			if err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
		case mark == "<":
			now.answer.header = append(now.answer.header, rest)
		case now.answer != nil:
			now.answer.body += line + "\n"
		default:
			now.body += line + "\n"
		}
	}
	return steps
}

// writeConversation writes a conversation as readConversation reads it.
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

// talk is a conversation as it goes on with a server.
type talk struct {
	t      *testing.T
	server http.RoundTripper
	base   string            // the server's URL
	vars   map[string]string // by name, without the dollar sign
	last   []any             // the JSON values in the body of the last answer: one, or the events of a stream

	lastHeader http.Header
}

// newTalk begins a conversation by making its namespace.
func newTalk(t *testing.T, server http.RoundTripper, base string) *talk {
	t.Helper()
	name := fmt.Sprintf("exchange-%07x", rand.Uint32N(1<<28))
	k := &talk{t: t, server: server, base: base, vars: map[string]string{"ns": name}}
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

// record asks a real server, and keeps what it answers.
func record(t *testing.T, steps []*step) {
	// The server is on this machine, and made for tests.
	transport := &http.Transport{
		TLSClientConfig:    &tls.Config{InsecureSkipVerify: true},
		DisableCompression: true,
		ForceAttemptHTTP2:  true,
	}
	defer transport.CloseIdleConnections()
	k := newTalk(t, transport, *recordFrom)
	for _, s := range steps {
		switch {
		case s.method != "":
			s.answer = k.ask(s)
		case s.text == "!compact":
			compactEtcd(t, *recordEtcd)
		default:
			k.let(s)
		}
	}
}

// replay asks the fake, and compares what it answers with what is recorded. It runs in a bubble.
func replay(t *testing.T, steps []*step) {
	fake := New()
	fake.Allow("admin")
	fake.NoControllers = true // none ran beside the real server
	k := newTalk(t, inProcess{fake}, "https://fake")
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
			k.let(s)
		}
	}
}

// inProcess asks the fake without a connection.
type inProcess struct{ fake *Server }

// RoundTrip serves a request. An answer that breaks off is an error.
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

// compactEtcd compacts all of etcd's history, by the gateway to its API.
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

// variable finds what stands for a value that is known while the conversation goes on only.
var variable = regexp.MustCompile(`\$[A-Za-z0-9]+`)

// filled is a text with the values of its variables. What is no variable, such as "$patch", stays.
func (k *talk) filled(text string) string {
	return variable.ReplaceAllStringFunc(text, func(name string) string {
		if value, isKnown := k.vars[name[1:]]; isKnown {
			return value
		}
		return name
	})
}

// ask sends a request, and returns the answer, masked.
func (k *talk) ask(s *step) *reply {
	k.t.Helper()
	r, err := http.NewRequest(s.method, k.base+k.filled(s.target), strings.NewReader(k.filled(s.body)))
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
		r.Header.Set(name, k.filled(value))
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
	got := &reply{code: answer.StatusCode, media: cmp.Or(answer.Header.Get("Content-Type"), "-")}
	for _, name := range headersToCompare {
		for _, value := range answer.Header.Values(name) {
			got.header = append(got.header, name+": "+k.maskedText(value))
		}
	}
	got.body = k.read(body, got.media)
	return got
}

// read keeps the values of an answer's body for let, and returns them as text, masked.
func (k *talk) read(body []byte, media string) string {
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
		return k.maskedText(text) + "\n"
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
		if err := encoder.Encode(k.masked(value)); err != nil {
			k.t.Fatal(err)
		}
	}
	return text.String()
}

// let keeps a value of the last answer under a name: "= NAME PATH", where the path leads to a text in the body, or
// "= NAME HEADER". Other lines do nothing.
func (k *talk) let(s *step) {
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

// pathSteps finds the fields and the indexes in a path such as .[2].object.items[0].name.
var pathSteps = regexp.MustCompile(`[^.\[\]]+`)

// textAt is the text to which a path leads in the body of the last answer, "" where there is none. In a stream, the
// path begins with the number of an event.
func (k *talk) textAt(path string) string {
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

// masked is a value without what changes from one run to the next.
func (k *talk) masked(v any) any {
	switch v := v.(type) {
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = k.masked(v[i])
		}
		return list
	case map[string]any:
		return k.maskedObject(v)
	case string:
		return k.maskedText(v)
	}
	return v
}

// maskedText has the names of variables in place of their values.
func (k *talk) maskedText(text string) string {
	names := slices.SortedFunc(maps.Keys(k.vars), func(a, b string) int {
		longestFirst := len(k.vars[b]) - len(k.vars[a])
		return cmp.Or(longestFirst, strings.Compare(a, b))
	})
	for _, name := range names {
		isNumber := versionSyntax.MatchString(k.vars[name]) // which would be found in longer ones, too
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

// maskedObject masks the fields of an object, by their names.
func (k *talk) maskedObject(o map[string]any) map[string]any {
	kept := map[string]any{}
	for name, value := range o {
		text, _ := value.(string)
		switch {
		case slices.ContainsFunc(differences, func(d difference) bool { return d.field == name }):
		case name == "resourceVersion" && versionSyntax.MatchString(text):
			kept[name] = "<version>"
		case name == "uid" && text != "" || name == "continue" && text != "" || name == "token" && text != "":
			kept[name] = "<" + name + ">"
		case name == "causes":
			kept[name] = onceEach(k.masked(value))
		case name == "cells":
			kept[name] = k.maskedCells(value)
		default:
			kept[name] = k.masked(value)
		}
	}
	prefix, isGenerated := o["generateName"].(string)
	if isGenerated {
		kept["name"] = prefix + "<random>"
	}
	return kept
}

// onceEach is a list without what it has said already. The real server checks some fields several times.
func onceEach(list any) []any {
	var once []any
	items, _ := list.([]any)
	for _, item := range items {
		if !slices.ContainsFunc(once, func(other any) bool { return reflect.DeepEqual(other, item) }) {
			once = append(once, item)
		}
	}
	return once
}

// maskedCells masks ages in the cells of a table's row.
func (k *talk) maskedCells(cells any) any {
	list, _ := k.masked(cells).([]any)
	for i := range list {
		if text, isText := list[i].(string); isText {
			list[i] = ageSyntax.ReplaceAllString(text, "<age>")
		}
	}
	return list
}

// compare says where an answer of the fake differs from the recorded one.
func compare(t *testing.T, s *step, got *reply) {
	t.Helper()
	want := s.answer
	isSame := got.code == want.code && got.media == want.media && slices.Equal(got.header, want.header) &&
		got.body == want.body
	if s.known == "" {
		if !isSame {
			t.Errorf("line %d: %s %s\n%s", s.line, s.method, s.target, diff(want.lines(), got.lines()))
		}
		return
	}
	if isSame {
		t.Errorf("line %d: the fake differs no more: %s", s.line, s.known)
	}
	var status struct{ Reason string }
	_ = json.Unmarshal([]byte(got.body), &status) // what is no Status has no reason
	difference := fmt.Sprintf("%d %s: ", got.code, status.Reason)
	if !strings.HasPrefix(s.known, difference) {
		t.Errorf("line %d: the fake answers %s %s, and not %s", s.line, difference, got.body, s.known)
	}
}

// lines are the answer as it stands in a file.
func (r *reply) lines() []string {
	head := append([]string{fmt.Sprintf("%d %s", r.code, r.media)}, r.header...)
	return append(head, strings.Split(r.body, "\n")...)
}

// diff shows how two texts differ: lines of the first alone with a minus, of the second alone with a plus.
func diff(want, got []string) string {
	// common[i][j] is how many lines want[i:] and got[j:] have in common, in their order.
	common := make([][]int, len(want)+1)
	for i := range common {
		common[i] = make([]int, len(got)+1)
	}
	for i := len(want) - 1; i >= 0; i-- {
		for j := len(got) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if want[i] == got[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var out strings.Builder
	i := 0
	j := 0
	for i < len(want) || j < len(got) {
		switch {
		case i < len(want) && j < len(got) && want[i] == got[j]:
			i++
			j++
		case j == len(got) || i < len(want) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&out, "  recorded - %s\n", want[i])
			i++
		default:
			fmt.Fprintf(&out, "  fake     + %s\n", got[j])
			j++
		}
	}
	return out.String()
}
