package fakekube

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

func TestScriptAndFaultAreEquivalent(t *testing.T) {
	for text, want := range map[string]Fault{
		"list pods: drop request": {On: Requests{Verb: "list", Resource: "pods"}, Do: DropRequest{}},
		"*: stall":                {Do: Stall{}},
		"* nodes|pods, always: drop answer": {
			On: Requests{Resource: "nodes|pods"}, Times: Always, Do: DropAnswer{},
		},
		"patch widgets/status web in default by alice at a:1, skip 2, 3 times: delay 2s, refuse 503 retry-after 5s": {
			On: Requests{
				Verb: "patch", Resource: "widgets/status", Name: "web",
				Namespace: "default", User: "alice", Host: "a:1",
			},
			Skip:  2,
			Times: 3,
			Delay: 2 * time.Second,
			Do:    Refuse{Code: 503, RetryAfter: 5 * time.Second},
		},
		`get nodes "in" in "by": delay 1m30s`: {
			On: Requests{Verb: "get", Resource: "nodes", Name: "in", Namespace: "by"}, Delay: 90 * time.Second,
		},
		"get /version, every 3rd, at rate 0.25, seed 7, once: refuse 403 reason Odd message \"not today\"": {
			On:    Requests{Verb: "get", Resource: "/version"},
			Every: 3,
			Rate:  0.25,
			Seed:  7,
			Times: 1,
			Do:    Refuse{Code: 403, Reason: "Odd", Message: "not today"},
		},
		`write, 2 times: reply 200 header Content-Type text/html header Retry-After 40 body "<html>\n"`: {
			On:    Requests{Verb: "write"},
			Times: 2,
			Do: Reply{
				Code:   200,
				Header: map[string]string{"Content-Type": "text/html", "Retry-After": "40"},
				Body:   "<html>\n",
			},
		},
		"watch: hang after 1 bytes": {On: Requests{Verb: "watch"}, Do: Hang{After: 1}},
		"list: cut after frame 3":   {On: Requests{Verb: "list"}, Do: CutFrame{Frame: 3}},
		"list: cut after frame 0 plus 1 byte": {
			On: Requests{Verb: "list"}, Do: CutFrame{Extra: 1},
		},
		"list: cut after frame 3 minus 2 bytes": {
			On: Requests{Verb: "list"}, Do: CutFrame{Frame: 3, Extra: -2},
		},
		"relist pods, 2 times: refuse 503": {
			On: Requests{Verb: "relist", Resource: "pods"}, Times: 2, Do: Refuse{Code: 503},
		},
		"list: truncate":                   {On: Requests{Verb: "list"}, Do: Truncate{}},
		"list: reset before acting":        {On: Requests{Verb: "list"}, Do: Reset{}},
		"list: reset after acting":         {On: Requests{Verb: "list"}, Do: Reset{ActsFirst: true}},
		"list: cut after 300 bytes":        {On: Requests{Verb: "list"}, Do: Cut{After: 300}},
		"list|watch: lie about 2 changes":  {On: Requests{Verb: "list|watch"}, Do: Lie{Changes: 2}},
		"* pods web-0: lie about 1 change": {On: Requests{Resource: "pods", Name: "web-0"}, Do: Lie{Changes: 1}},
	} {
		got, err := ParseFault(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis %#v\nwant %#v", text, got, want)
		}
		if want.String() != text {
			t.Errorf("%#v\nis said as %s\nwant %s", want, want, text)
		}
	}
}

func TestScriptHasOneFaultPerLine(t *testing.T) {
	f := New()
	injections := f.Script(t, `
		# The first list fails,
		list pods: refuse 503     # and
		list pods: refuse 500     # the second.
	`)
	testkit.WantNumber(t, "injections", len(injections), 2)
	for _, want := range []int{503, 500, 200} {
		wantAnswer(t, f, "GET /api/v1/pods", "", want, "")
	}
}

func TestScriptErrorsNameTheColumnAndTheRemedy(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    `column 1: there is no fault, such as "list pods: refuse 503"`,
		"list pods":                           `column 10: the line ends, not : or ,`,
		": stall":                             `column 1: there is ":", not a verb, such as list, write or *`,
		"read pods: stall":                    `column 1: "read" is no verb: list, watch, relist, get, create`,
		"patch nodes/worker-1: stall":         `a name stands after a blank, as in "nodes worker-1"`,
		"patch nodes a b: stall":              `column 15: there is "b": after the verb come the resource, the name`,
		"list pods by a in b: stall":          `column 16: there is "in": after the verb`,
		"list pods, thrice: stall":            `column 12: there is "thrice", not one of: skip N, every Nth, at rate R`,
		"list pods, 3: stall":                 `column 13: there is ":", not times`,
		"list pods, 0 times: stall":           `0 times means never`,
		"list pods, at noon: stall":           `there is "noon", not rate`,
		"list pods, at rate x: stall":         `there is "x", not a rate such as 0.1`,
		"list pods, at rate NaN: stall":       `the rate is not between 0 and 1`,
		"list pods, every 3rd: stall":         `it does not say how often: give a number of times, or always`,
		"list pods, every third: stall":       `column 18: there is "third", not which of them, such as 3rd`,
		"list pods, once, 2 times: stall":     `column 18: there is "2", which says how many times a second time`,
		"list pods: explode":                  `there is "explode", not refuse or reply or cut or hang or drop`,
		"list pods: drop everything":          `there is "everything", not request or answer`,
		"list pods: cut after a while":        `there is "a", not a number of bytes`,
		"list pods: delay soon":               `there is "soon", not a duration such as 2s or 1m30s`,
		"list pods: refuse 503, delay 2s":     `there is "," after the effect: a fault has one, and a delay before it`,
		"list pods: refuse 7":                 `7 is no code to refuse with`,
		`list pods: refuse 503 message "a`:    `column 31: a quoted text does not end`,
		"patch nodes: lie about 1 change":     `lists and watches can lie, and no other verb`,
		"list pods, once: lie about 1 change": `a lie goes on until it is lifted`,
	} {
		_, err := ParseFault(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestInvalidScriptEndsTheTest(t *testing.T) {
	v := &fakeTB{TB: t}
	func() {
		defer func() { recover() }()
		New().Script(v, "list pods: stall\nlist nodes: vanish")
	}()
	want := `line 2, column 13: there is "vanish"`
	if len(v.errors) != 1 || !strings.HasPrefix(v.errors[0], want) {
		t.Errorf("%q, want %s", v.errors, want)
	}
}

// FuzzScript looks for scripts that cause a panic, and for faults that change when they are printed and parsed.
func FuzzScript(f *testing.F) {
	for _, text := range []string{
		"patch nodes worker-1 by alice, skip 2, 3 times: delay 2s, refuse 503 reason A message \"b c\" retry-after 5s",
		"*, every 3rd, at rate 0.5, seed 7, always: reply 200 header A b body \"\\x00\"",
		"list|watch pods in default at a:1: lie about 2 changes # why",
		"get /version: cut after 1 byte",
		`get "in" "" in "a,": drop answer`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ParseFault(text)
		if err != nil {
			return
		}
		again, err := ParseFault(read.String())
		if err != nil || again.String() != read.String() {
			t.Errorf("%s is printed as\n%s, and read back as\n%s: %v", text, read, again, err)
		}
	})
}

func TestDocumentedScriptsParse(t *testing.T) {
	text := testkit.ReadFile(t, "../../docs/build/fake.md")
	_, section, _ := strings.Cut(text, "\n## Faults in words\n")
	_, rest, _ := strings.Cut(section, "```text\n")
	script, _, _ := strings.Cut(rest, "```")
	read := 0
	for line := range strings.SplitSeq(strings.TrimSpace(script), "\n") {
		read++
		if _, err := ParseFault(line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if read < 9 {
		t.Errorf("there are %d", read)
	}
}
