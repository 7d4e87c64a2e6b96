package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestStepsComeInTheOrderOfTheirTimes(t *testing.T) {
	s, err := parseScript(
		"\n  6s: scale web 5\n0s: nodes 3\n6s: press wave\n\n1.5s: fault patch nodes, once: refuse 500\n")
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, next := range s {
		texts = append(texts, seconds(next.at)+": "+next.text)
	}
	testkit.WantEqual(t, "the steps", strings.Join(texts, "\n"),
		"0 s: nodes 3\n1.5 s: fault patch nodes, once: refuse 500\n6 s: scale web 5\n6 s: press wave")
}

func TestErrorOfAScriptNamesTheLine(t *testing.T) {
	for _, row := range []struct{ script, want string }{
		{"5s: press wave\nsoon: press wave", `line 2 of the script: "soon" is no time such as 5s`},
		{"-5s: press wave", "is no time"},
		{"5s: push wave", "push wave: there is no such verb"},
		{"5s: press waves", "press waves: there is no such button"},
		{"0s: press wave", "press wave: podcount does not run yet at 0s"},
		{"5s: scale web many", "scale web many: "},
		{"5s: fault patch nodes: refuse", "fault patch nodes: refuse: column "},
		{"5s: send PATCH /api {", "send PATCH /api {: "},
		{"5s: take-away long", "take-away long: "},
	} {
		_, err := parseScript(row.script)
		testkit.WantError(t, row.script, err, row.want)
	}
	var stderr bytes.Buffer
	code := run([]string{"-script", "5s: push", "podcount", t.TempDir()}, nil, &stderr)
	testkit.WantNumber(t, "the exit code", code, 2)
	testkit.WantText(t, stderr.String(), "playground: line 1 of the script: push: there is no such verb\n")
}

func TestScriptDoesItsStepsAndTellsWhatHappens(t *testing.T) {
	todo, err := parseScript(`
		0s: nodes 2
		0s: fault list pods, once: refuse 500
		0s: send PATCH /api/v1/nodes/worker-1 {"metadata": {"labels": {"mine": "yes"}}}
		4s: scale cart 6
		4s: scale carts 6
		4s: press pod-more
		7s: break-watches
		7s: take-away 300ms
		7s: strip hopegi/pod-count
		7.5s: show /metrics podcount_pods
		7.5s: ask /metrics evil.example
		7.5s: events pod count is
	`)
	if err != nil {
		t.Fatal(err)
	}
	out := &testkit.Buffer{}
	podcountFlags := flags{"-interval", "200ms", "-log-format", "text", "-listen", freeAddress()}
	p := newPlayground(podcountProgram(t), podcountFlags, shortPauses, out, out)
	p.script = todo
	stops := make(chan os.Signal, 1)
	ended := make(chan error, 1)
	go func() {
		err := p.run(t.TempDir(), stops, nil)
		p.close()
		ended <- err
	}()
	isDone := func() bool { // The last three steps ask at once, so any of their answers may be the last.
		all := out.String()
		return strings.Contains(all, "playground:   podcount_pods") &&
			strings.Contains(all, "GET /metrics: 403") && strings.Contains(all, "Events of podcount")
	}
	if isMet, err := p.await(shortPauses.giveUp, isDone); err != nil || !isMet {
		t.Fatalf("the script has not come to its end: %v\n%s", err, out.String())
	}
	stops <- os.Interrupt
	if err := <-ended; err != nil {
		t.Error(err)
	}
	testkit.WantText(t, out.String(),
		"list pods: 500 InternalError",
		"playground: 4 s: scale cart 6\n",
		"playground: 4 s: scale carts 6\n", // podcount's own lines may come between two of these
		"playground: that has failed: there is no such workload\n",
		"pods, and the label says 3",
		"; in 0.5 s, podcount sent ",
		"playground: the server is gone\n",
		"playground: GET /metrics: 200 OK\n",
		"playground:   podcount_pods 3",
		"playground: GET /metrics: 403 Forbidden\n",
		" Event about Pod cart-",
		": pod count is 3",
	)
}
