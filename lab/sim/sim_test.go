package sim

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

func TestBrokenRulesAreFound(t *testing.T) {
	for _, row := range []struct {
		name string
		do   action
		want string
	}{
		{"does nothing", doNothing, `is "" and should be`},
		{"ends with an error", fail, "ended with it is broken"},
		{"repeats a request", repeatList, "repeats a request too often: GET /api/v1/nodes"},
		{
			"watches something else", get("/api/v1/namespaces?watch=true&timeoutSeconds=1"),
			"watches a resource that none of its controllers reads",
		},
		{"writes before it has listed", patchNode(`{"metadata":{"uid":"x"}}`), "writes before its caches are complete"},
		{
			"writes without a uid", patchNode(`{"metadata":{"labels":{"a":"b"}}}`),
			"does not write by a patch with a uid and without a version",
		},
	} {
		t.Run(row.name, func(t *testing.T) {
			result := Simulate(t, optionsFor(row.do))
			testkit.WantText(t, strings.Join(result.Broken, "\n"), row.want)
			testkit.WantText(t, result.Story, "r0-0:1 starts")
		})
	}
}

// action is what a program does right after its start. master is the URL of the server, over plain HTTP.
type action func(ctx context.Context, master string, client *http.Client) error

func doNothing(context.Context, string, *http.Client) error { return nil }

func fail(context.Context, string, *http.Client) error { return errors.New("it is broken") }

func repeatList(ctx context.Context, master string, client *http.Client) error {
	for range 2 * maxRepeats {
		send(ctx, client, http.MethodGet, master+"/api/v1/nodes", "")
	}
	return nil
}

func get(path string) action {
	return func(ctx context.Context, master string, client *http.Client) error {
		send(ctx, client, http.MethodGet, master+path, "")
		return nil
	}
}

func patchNode(body string) action {
	return func(ctx context.Context, master string, client *http.Client) error {
		send(ctx, client, http.MethodPatch, master+"/api/v1/nodes/n0", body)
		return nil
	}
}

// send sends a request and discards the answer. A fault may keep it from getting one.
func send(ctx context.Context, client *http.Client, method, url, body string) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		panic(err)
	}
	request.Header.Set("Content-Type", "application/merge-patch+json")
	answer, err := client.Do(request)
	if err != nil {
		return
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

// optionsFor returns the options to simulate a program that does this and then waits until it is stopped. With their
// seed, the program reaches the server over plain HTTP.
func optionsFor(do action) Options {
	return Options{
		Program:              program(do),
		Name:                 "program",
		Rerun:                func(uint64, Steps) string { return "run it again" },
		Seed:                 1,
		TotalLabel:           "example.com/pods",
		OwnPodsLabel:         "example.com/here",
		ControlPlaneLabel:    "example.com/control-plane",
		LeaseNamespace:       "default",
		LeaseName:            "lease",
		LeaseLost:            "the lease is lost",
		LongestBackoff:       time.Minute,
		LongestDiscovery:     time.Minute,
		Silence:              time.Minute,
		HTTP2Silence:         time.Minute,
		LongestOldCredential: time.Minute,
		LongestUnlisted:      time.Minute,
		MinStatusInterval:    time.Second,
		LongestQuestion:      time.Second,
	}
}

// program returns a Program that does this and then waits until it is stopped.
func program(do action) Program {
	return func(
		ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
		dial func(ctx context.Context, network, addr string) (net.Conn, error),
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

func TestSeedDeterminesTheScript(t *testing.T) {
	script := func(seed uint64) string {
		o := optionsFor(doNothing)
		o.Seed = seed
		return strings.Join(Simulate(t, o).Script, "\n")
	}
	first := script(1)
	testkit.WantBetween(t, "bytes of the script", len(first), 100, 1_000_000)
	testkit.WantEqual(t, "the script of the same seed", script(1), first)
	if script(3) == first {
		t.Error("seeds 1 and 3 have the same script")
	}
}

// A check would always pass without its option. For example, every error contains an empty LeaseLost.
func TestMissingOptionIsNamed(t *testing.T) {
	o := optionsFor(doNothing)
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
