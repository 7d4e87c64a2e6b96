package sim

import (
	"context"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// idler returns a Program that sends nothing. Once it is asked to stop, it needs so long to end.
func idler(drain time.Duration) Program {
	return func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
		dial func(ctx context.Context, network, addr string) (net.Conn, error),
	) error {
		<-ctx.Done()
		<-time.After(drain)
		return nil
	}
}

// onlyStart is the plan of a life in which the process starts, and nothing else happens.
func onlyStart() lifePlan {
	launch := func(w *sweptLife) { w.launch(0) }
	return lifePlan{stages: []stage{{name: "start", steps: []sweptStep{launch}}}}
}

func sweptOptions(program Program) Options {
	o := optionsFor(doNothing)
	o.Program = program
	return o
}

func TestSweptLifeNeedsAProgramThatWorks(t *testing.T) {
	_, result := runLife(t, sweptOptions(idler(0)), mainLife(), nil)
	testkit.WantText(t, strings.Join(result.Broken, "\n"), `after stage "start", n0 total is "" and should be "4"`)
}

func TestSweptLifeNeedsAnOrderlyStop(t *testing.T) {
	_, result := runLife(t, sweptOptions(idler(gracePeriod)), onlyStart(), nil)
	broken := strings.Join(result.Broken, "\n")
	testkit.WantText(t, broken, "has not logged") // The rules that come right before the stop were checked.
	if strings.Contains(broken, "to stop") {
		t.Errorf("a stop within the grace period breaks a rule: %s", broken)
	}
	_, result = runLife(t, sweptOptions(idler(gracePeriod+time.Second)), onlyStart(), nil)
	testkit.WantText(t, strings.Join(result.Broken, "\n"), "it took 31s to stop")
}

func TestSweptFaultMustStrike(t *testing.T) {
	c := &sweptCase{place: place{"start", "list pods", 1}, fault: wholeFaults()[0]}
	_, result := runLife(t, sweptOptions(idler(0)), onlyStart(), c)
	testkit.WantText(t, strings.Join(result.Broken, "\n"), "the fault was met by no request; there came none")
}

func TestEveryRequestMeetsEveryFault(t *testing.T) {
	recording := []recordedRequest{
		{place: place{"pods", "watch pods", 1}, frames: 2},
		{place: place{"start", "list pods", 2}, frames: 1},
		{place: place{"start", "list pods", 1}, frames: 1},
	}
	count := map[place]int{}
	names := map[string]bool{}
	cases := casesOf(mainLife(), recording)
	for _, c := range cases {
		count[c.place]++
		names[c.String()] = true
	}
	testkit.WantEqual(t, "the first case", cases[0].String(), "start: list pods 1: connection refused")
	testkit.WantNumber(t, "different names", len(names), len(cases))
	const cutsOfOneFrame = 4 // after no byte, after 1, before the last one, after all
	list := len(wholeFaults()) + cutsOfOneFrame
	testkit.WantNumber(t, "cases of a list with one frame", count[place{"start", "list pods", 1}], list)
	testkit.WantNumber(t, "cases of the next one", count[place{"start", "list pods", 2}], list)
	const cutsOfNextFrame = 3             // after the first frame and 1 byte, before the last byte, after all
	const faultsAfterWatchesHaveActed = 2 // which never happens
	testkit.WantNumber(t, "cases of a watch with two frames", count[place{"pods", "watch pods", 1}],
		list+cutsOfNextFrame-faultsAfterWatchesHaveActed)

	for _, name := range []string{
		"start: list pods 1: cut after frame 0",
		"start: list pods 1: cut after frame 0 plus 1 byte",
		"start: list pods 1: cut after frame 1 minus 1 byte",
		"start: list pods 1: cut after frame 1",
		"pods: watch pods 1: cut after frame 1 plus 1 byte",
		"start: list pods 2: reset after acting",
	} {
		if !names[name] {
			t.Errorf("there is no case %q", name)
		}
	}
	if names["pods: watch pods 1: reset after acting"] {
		t.Error("a watch fails after it has acted, which never ends")
	}
}

func TestEveryFaultHasARowInTheTable(t *testing.T) {
	kinds := faultKinds()
	queue := &caseQueue{results: map[string]*kindResult{}}
	for _, c := range casesOf(mainLife(), []recordedRequest{{place: place{"start", "list pods", 1}, frames: 2}}) {
		queue.add(c, time.Minute, false)
	}
	testkit.WantNumber(t, "rows", len(queue.results), len(kinds))
	for _, kind := range kinds {
		testkit.WantText(t, queue.table(), "\n"+kind+" ")
	}
}

func TestCasesAreChosenByNameOrTextOrAsASample(t *testing.T) {
	all := casesOf(mainLife(), []recordedRequest{{place: place{"start", "list pods", 1}, frames: 100}})
	for only, want := range map[string]int{
		"":                                      len(all),
		": 50":                                  3, // 500, 503 and 504
		"cut after frame 1 minus":               1,
		"start: list pods 1: cut after frame 1": 1,
		"none":                                  0,
	} {
		testkit.WantNumber(t, "cases for "+only, len(Sweep{Only: only}.choose(all)), want)
	}
	sample := Sweep{Every: 10}.choose(all)
	testkit.WantBetween(t, "cases in a sample of a tenth", len(sample), len(all)/20, len(all)/5)
	others := Sweep{Every: 10}.choose(all[len(all)/2:])
	for _, c := range others {
		isSame := slices.ContainsFunc(sample, func(s sweptCase) bool { return s.String() == c.String() })
		if !isSame {
			t.Errorf("without some other cases, the sample has %q, too", c)
		}
	}
}

func TestClassOfARequest(t *testing.T) {
	for target, want := range map[string]string{
		"GET /api/v1/pods":                                                        "list pods",
		"GET /api/v1/pods?limit=1":                                                "list pods for-its-version",
		"GET /api/v1/pods?watch=1&resourceVersion=1":                              "watch pods",
		"PATCH /api/v1/nodes/n1":                                                  "patch nodes n1",
		"GET /apis/demo.mark8s.io/v1":                                             "get /apis/demo.mark8s.io/v1",
		"PATCH /api/v1/namespaces/default/events/n.1":                             "patch events",
		"GET /api/v1/pods?resourceVersion=9&resourceVersionMatch=Exact":           "list pods at-a-version",
		"PATCH /apis/demo.mark8s.io/v1/namespaces/default/counts/c0/status":       "patch counts/status c0",
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount": "update leases podcount",
	} {
		method, url, _ := strings.Cut(target, " ")
		got := classOf(fixture.RequestOf(method, url))
		testkit.WantEqual(t, "the class of "+target, got, want)
	}
}
