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
)

// dialer is how a program reaches the server.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// program makes a Program of a function that is called once, and then waits for the end.
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

// send makes a request, whose answer is of no interest.
func send(ctx context.Context, client *http.Client, method, url, body string) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := client.Do(request)
	if err != nil {
		return // a fault
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// optionsFor are options for a program that does nothing useful.
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
		StatusRest:        time.Second,
	}
}

func TestProgramThatBreaksARuleIsFoundOut(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(ctx context.Context, master string, client *http.Client) error
		want string
	}{
		{"does nothing", func(context.Context, string, *http.Client) error {
			return nil
		}, `is "" and should be`},
		{"ends with an error", func(context.Context, string, *http.Client) error {
			return errors.New("it is broken")
		}, "ended with it is broken"},
		{"asks again and again", func(ctx context.Context, master string, client *http.Client) error {
			for range 2 * mostCalls {
				send(ctx, client, http.MethodGet, master+"/api/v1/nodes", "")
			}
			return nil
		}, "asks again and again: GET /api/v1/nodes"},
		{"watches what it does not read", func(ctx context.Context, master string, client *http.Client) error {
			send(ctx, client, http.MethodGet, master+"/api/v1/namespaces?watch=true&timeoutSeconds=1", "")
			return nil
		}, "watches what none of its controllers reads"},
		{"writes before it has listed", func(ctx context.Context, master string, client *http.Client) error {
			send(ctx, client, http.MethodPatch, master+"/api/v1/nodes/n0", `{"metadata":{"uid":"x"}}`)
			return nil
		}, "writes before its caches are complete"},
		{"writes without a uid", func(ctx context.Context, master string, client *http.Client) error {
			send(ctx, client, http.MethodPatch, master+"/api/v1/nodes/n0", `{"metadata":{"labels":{"a":"b"}}}`)
			return nil
		}, "writes without a uid, or with a version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			result := Simulate(t, optionsFor(program(c.do)))
			broken := strings.Join(result.Broken, "\n")
			if !strings.Contains(broken, c.want) {
				t.Errorf("what is broken:\n%s\nwant %q", broken, c.want)
			}
			if !strings.Contains(result.Story, "r0-0:1 starts") {
				t.Errorf("the story does not begin with the process:\n%s", result.Story)
			}
		})
	}
}

func TestSeedsDifferInLifeAndFaultsAndOneSeedDoesNot(t *testing.T) {
	idle := optionsFor(program(func(context.Context, string, *http.Client) error { return nil }))
	script := func(seed uint64) string {
		o := idle
		o.Seed = seed
		return strings.Join(Simulate(t, o).Script, "\n")
	}
	first := script(1)
	if len(first) < 100 || script(1) != first {
		t.Errorf("seed 1 is not the same when it comes again:\n%s", first)
	}
	if script(2) == first {
		t.Error("seeds 1 and 2 are the same")
	}
}

// An option that is empty would let a check pass whatever happens: each error contains "".
func TestOptionThatIsMissingIsNamed(t *testing.T) {
	o := optionsFor(program(func(context.Context, string, *http.Client) error { return nil }))
	o.Seed = 0
	if missing := o.missing(); len(missing) > 0 {
		t.Errorf("nothing is missing, but %q", missing)
	}
	o.LeaseLost = ""
	o.Silence = 0
	o.Rerun = nil
	if missing := o.missing(); !slices.Equal(missing, []string{"Rerun", "LeaseLost", "Silence"}) {
		t.Errorf("it says that %q are missing", missing)
	}
	defer func() {
		if wrong := recover(); wrong != "sim.Options lacks Rerun, LeaseLost, Silence" {
			t.Errorf("the simulation panics with %v", wrong)
		}
	}()
	Simulate(t, o)
}

func TestNoMoreSeedsAreBegunAfterOneHasFailedUnlessTheyWereChosen(t *testing.T) {
	for _, areChosen := range []bool{false, true} {
		q := &seedQueue{Seeds: Seeds{First: 1, Last: 3, areChosen: areChosen}, next: 1, said: time.Now()}
		_, first := q.take()
		q.noteFailure()
		_, second := q.take()
		if !first || second != areChosen {
			t.Errorf("chosen %v: the first is run: %v, the one after a failure: %v", areChosen, first, second)
		}
	}
}

func TestSeedsAreReadAsANumberOrARange(t *testing.T) {
	for text, want := range map[string]Seeds{
		"200":   {First: 1, Last: 200, areChosen: true},
		"17-17": {First: 17, Last: 17, areChosen: true},
	} {
		got, err := ParseSeeds(text)
		if got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1-", "-1", "1-2-3"} {
		_, err := ParseSeeds(text)
		if err == nil || !strings.Contains(err.Error(), "seeds \""+text+"\"") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDurationsAreDrawnFromTheirSpan(t *testing.T) {
	s := &sim{dice: rand.New(rand.NewPCG(1, 0))}
	of := span{time.Second, 100 * time.Second}
	short := 0
	for range 1000 {
		d := s.some(of)
		if d < of.shortest || d > of.longest {
			t.Fatalf("%v is not from %v to %v", d, of.shortest, of.longest)
		}
		if d < 10*time.Second {
			short++
		}
	}
	if short < 400 || short > 600 {
		t.Errorf("%d of 1000 are shorter than 10 s, want about half", short)
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
		s.step(steps)
	}
	if drawn["never"] > 0 || drawn["seldom"] < 50 || drawn["seldom"] > 150 {
		t.Errorf("of 1000: %v", drawn)
	}
}

func TestEveryStepHasANameAndAWeight(t *testing.T) {
	names := map[string]bool{}
	for _, step := range append(faultSteps(), lifeSteps...) {
		if step.name == "" || step.weight <= 0 || step.do == nil {
			t.Errorf("%+v", step)
		}
		if strings.ContainsAny(step.name, "{<\"") {
			t.Errorf("a name should be in words, not %s", step.name)
		}
		names[step.name] = true
	}
	if len(names) < 100 {
		t.Errorf("only %d steps", len(names))
	}
}
