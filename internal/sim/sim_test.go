package sim

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/internal/testkit"
)

// dialer connects a program to the server.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// program returns a Program that calls do once and then waits until it is stopped.
func program(do func(ctx context.Context, master string, client *http.Client) error) Program {
	return func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer, dial dialer,
	) error {
		transport := &http.Transport{DialContext: dial}
		defer transport.CloseIdleConnections()
		master := args[slices.Index(args, "-master")+1]
		if err := do(ctx, master, &http.Client{Transport: transport}); err != nil {
			return err
		}
		<-ctx.Done()
		return nil
	}
}

// send sends a request and discards the answer.
func send(ctx context.Context, client *http.Client, method, url, body string) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := client.Do(request)
	if err != nil {
		return // a fault has struck
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// optionsFor returns options for a program that does nothing useful.
func optionsFor(p Program) Options {
	return Options{
		Program:           p,
		Name:              "program",
		Rerun:             func(uint64) string { return "run it once more" },
		Seed:              1,
		TotalLabel:        "example.com/pods",
		OwnPodsLabel:      "example.com/here",
		ControlPlaneLabel: "example.com/control-plane",
		LeaseNamespace:    "default",
		LeaseName:         "lease",
		LeaseLost:         "the lease is lost",
		LongestBackoff:    time.Minute,
		LongestDiscovery:  time.Minute,
		Silence:           time.Minute,
		LongestUnlisted:   time.Minute,
		MinStatusInterval: time.Second,
	}
}

func TestBrokenRulesAreFound(t *testing.T) {
	get := func(path string) func(context.Context, string, *http.Client) error {
		return func(ctx context.Context, master string, client *http.Client) error {
			send(ctx, client, http.MethodGet, master+path, "")
			return nil
		}
	}
	patch := func(body string) func(context.Context, string, *http.Client) error {
		return func(ctx context.Context, master string, client *http.Client) error {
			send(ctx, client, http.MethodPatch, master+"/api/v1/nodes/n0", body)
			return nil
		}
	}
	repeat := func(ctx context.Context, master string, client *http.Client) error {
		for range 2 * maxRepeats {
			send(ctx, client, http.MethodGet, master+"/api/v1/nodes", "")
		}
		return nil
	}
	doNothing := func(context.Context, string, *http.Client) error { return nil }
	fail := func(context.Context, string, *http.Client) error { return errors.New("it is broken") }
	for _, row := range []struct {
		name string
		do   func(ctx context.Context, master string, client *http.Client) error
		want string
	}{
		{"does nothing", doNothing, `is "" and should be`},
		{"ends with an error", fail, "ended with it is broken"},
		{"repeats a request", repeat, "repeats a request too often: GET /api/v1/nodes"},
		{
			"watches something else", get("/api/v1/namespaces?watch=true&timeoutSeconds=1"),
			"watches a resource that none of its controllers reads",
		},
		{"writes before it has listed", patch(`{"metadata":{"uid":"x"}}`), "writes before its caches are complete"},
		{
			"writes without a uid", patch(`{"metadata":{"labels":{"a":"b"}}}`),
			"does not write by a patch with a uid and without a version",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			result := Simulate(t, optionsFor(program(row.do)))
			testkit.WantText(t, strings.Join(result.Broken, "\n"), row.want)
			testkit.WantText(t, result.Story, "r0-0:1 starts")
		})
	}
}

func TestSameSeedSameScript(t *testing.T) {
	idle := optionsFor(program(func(context.Context, string, *http.Client) error { return nil }))
	script := func(seed uint64) string {
		o := idle
		o.Seed = seed
		return strings.Join(Simulate(t, o).Script, "\n")
	}
	first := script(1)
	if len(first) < 100 || script(1) != first {
		t.Errorf("seed 1 is too short, or differs from one run to the next:\n%s", first)
	}
	if script(2) == first {
		t.Error("seeds 1 and 2 are the same")
	}
}

// Every error contains an empty LeaseLost, so that a check would always pass.
func TestMissingOptionIsNamed(t *testing.T) {
	o := optionsFor(program(func(context.Context, string, *http.Client) error { return nil }))
	o.Seed = 0
	testkit.WantNumber(t, "missing options", len(o.missing()), 0)
	o.LeaseLost = ""
	o.Silence = 0
	o.Rerun = nil
	testkit.WantEqual(t, "the missing options", o.missing(), []string{"Rerun", "LeaseLost", "Silence"})
	defer func() {
		const want = "sim.Options lacks Rerun, LeaseLost, Silence"
		testkit.WantEqual(t, "the panic", recover(), any(want))
	}()
	Simulate(t, o)
}

func TestOnlyChosenSeedsContinueAfterAFailure(t *testing.T) {
	for _, keepGoing := range []bool{false, true} {
		q := &seedQueue{Seeds: Seeds{First: 1, Last: 3, keepGoing: keepGoing}, next: 1, printedAt: time.Now()}
		_, first := q.take()
		q.noteFailure()
		_, second := q.take()
		if !first || second != keepGoing {
			t.Errorf("keepGoing %v: the first seed is run: %v, the second, after a failure: %v", keepGoing, first, second)
		}
	}
}

func TestParseSeeds(t *testing.T) {
	for _, row := range []struct {
		text string
		want Seeds
	}{
		{"200", Seeds{First: 1, Last: 200, keepGoing: true}},
		{"17-17", Seeds{First: 17, Last: 17, keepGoing: true}},
	} {
		t.Run(row.text, func(t *testing.T) {
			got, err := ParseSeeds(row.text)
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the seeds", got, row.want)
		})
	}
	for _, text := range []string{"", "x", "1-", "-1", "1-2-3"} {
		t.Run("wrong: "+text, func(t *testing.T) {
			_, err := ParseSeeds(text)
			if err == nil {
				t.Fatal("it was accepted")
			}
			testkit.WantText(t, err.Error(), `seeds "`+text+`"`)
		})
	}
}

func TestDurationsAreDrawnFromTheirSpan(t *testing.T) {
	s := &sim{dice: rand.New(rand.NewPCG(1, 0))}
	of := span{time.Second, 100 * time.Second}
	short := 0
	for range 1000 {
		d := s.drawDuration(of)
		if d < of.shortest || d > of.longest {
			t.Fatalf("%v is not between %v and %v", d, of.shortest, of.longest)
		}
		if d < 10*time.Second {
			short++
		}
	}
	if short < 400 || short > 600 {
		t.Errorf("%d of 1000 durations are shorter than 10 s, want about half", short)
	}
}

func TestStepsAreDrawnByTheirWeights(t *testing.T) {
	s := &sim{dice: rand.New(rand.NewPCG(1, 0))}
	drawn := map[string]int{}
	count := func(name string) func(*sim) string {
		return func(*sim) string {
			drawn[name]++
			return ""
		}
	}
	steps := []step{
		{name: "often", weight: 9, do: count("often")},
		{name: "never", weight: 0, do: count("never")},
		{name: "seldom", weight: 1, do: count("seldom")},
	}
	for range 1000 {
		s.takeStep(steps)
	}
	if drawn["never"] > 0 || drawn["seldom"] < 50 || drawn["seldom"] > 150 {
		t.Errorf("1000 steps were drawn as %v, want 9 often for 1 seldom, and no never", drawn)
	}
}

func TestEveryStepHasANameAndAWeight(t *testing.T) {
	names := map[string]bool{}
	for _, step := range append(faultSteps(), lifeSteps...) {
		if step.name == "" || step.weight <= 0 || step.do == nil {
			t.Errorf("the step %+v lacks a name, a weight or what it does", step)
		}
		if strings.ContainsAny(step.name, "{<\"") {
			t.Errorf("the name %s is not in words", step.name)
		}
		names[step.name] = true
	}
	if len(names) < 100 {
		t.Errorf("there are %d steps, want 100 or more", len(names))
	}
}
