package sim

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

// failAfterTwoFaults lists nodes and pods every minute. It fails once the server has failed at both.
func failAfterTwoFaults(ctx context.Context, master string, client *http.Client) error {
	hasFailed := map[string]bool{}
	for ctx.Err() == nil {
		for _, resource := range []string{"nodes", "pods"} {
			// A 429 would not do: one fault refuses half of all requests with it, and which half depends on the others.
			if statusOf(ctx, client, master+"/api/v1/"+resource) >= 500 {
				hasFailed[resource] = true
			}
		}
		if len(hasFailed) == 2 {
			return errors.New("it is broken")
		}
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	}
	return nil
}

// statusOf returns the code of the answer to a GET, or 0 without an answer.
func statusOf(ctx context.Context, client *http.Client, url string) int {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		panic(err)
	}
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func TestShortestStoryHasOnlyTheStepsThatBreakTheRule(t *testing.T) {
	o := optionsFor(failAfterTwoFaults)
	o.Rerun = func(_ uint64, only Steps) string { return "ONLY=" + only.String() }
	seed, failed := firstFailure(t, o, "ended with it is broken")
	o.Seed = seed
	testkit.WantBetween(t, "steps of the whole story", len(failed.taken), 20, 1000)

	report := shortestStory(t, o, failed, time.Minute)
	testkit.WantText(t, report, fmt.Sprintf("seed %d: 2 of its ", o.Seed))
	_, text, _ := strings.Cut(report, "ONLY=")
	only, err := ParseSteps(text)
	if err != nil {
		t.Fatal(err)
	}
	o.Only = only
	again := Simulate(t, o)
	testkit.WantText(t, strings.Join(again.Broken, "\n"), "ended with it is broken")
	testkit.WantNumber(t, "lines of its script", len(again.Script), 2)
}

// firstFailure simulates one seed after the other until one breaks this rule before any other.
func firstFailure(t *testing.T, o Options, rule string) (seed uint64, result Result) {
	t.Helper()
	const last = 1000
	for seed := uint64(1); seed <= last; seed++ {
		if newAccess(t, seed).kind != noCredential {
			continue // The programs of these tests read no kubeconfig.
		}
		o.Seed = seed
		result := Simulate(t, o)
		if len(result.Broken) > 0 && strings.Contains(result.Broken[0], rule) {
			return seed, result
		}
	}
	t.Fatalf("no seed up to %d breaks the rule %q first", last, rule)
	return 0, Result{}
}

func TestStoryThatDoesNotRepeatIsNotMadeShorter(t *testing.T) {
	o := optionsFor(doNothing)
	failed := Result{rules: []string{"is never broken"}, taken: []takenStep{{number: 1}}}
	testkit.WantText(t, shortestStory(t, o, failed, time.Minute), "did not break the same rule in 3 more tries")
}
