package suite

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

// Sources shows what holds for podcount's source code, and for the code in its documentation.
var Sources = Topic{
	{"no wait and no deadline depends on the wall clock", noWallClock},
	{"the controller in the documentation works", documentedController},
}

// usesWallClock matches code that gets a time without a monotonic clock reading, because it has gone through UTC, a
// text or a number.
var usesWallClock = regexp.MustCompile(`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|` +
	`time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)

// harmlessUses are the lines that may use the wall clock, because no wait and no deadline depends on them.
var harmlessUses = []string{
	// podcount only shows these times: in a Lease, in an Event and its name, in the log, in a metric, and in /statusz.
	`now.UTC().Format(microTime)`,
	`at.UTC().Format(time.RFC3339)`,
	`r.newestStamp = max(time.Now().UnixNano`,
	`expires := pair.Leaf.NotAfter`,
	`"process_start_time_seconds")`,
	`p.options.Started.UTC().Format(time.UnixDate)`,

	// When a credential expires. If podcount uses one for too long, because somebody has set the clock, the server
	// refuses it. Then podcount renews it.
	`ExpirationTimestamp   *time.Time`,
	`expires := s.ExpirationTimestamp`,
	`expires := e.result.ExpirationTimestamp`,
}

// noWallClock searches the sources for uses of the wall clock. A wait that depends on it goes wrong when somebody sets
// the clock.
func noWallClock(t *testing.T, podcount Program) {
	for _, file := range productFiles(t) {
		for i, line := range strings.Split(testkit.ReadFile(t, file), "\n") {
			isHarmless := slices.ContainsFunc(harmlessUses, func(use string) bool { return strings.Contains(line, use) })
			if usesWallClock.MatchString(line) && !isHarmless {
				t.Errorf("%s:%d: does a wait depend on this wall clock time? %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

// productFiles returns the paths of podcount's source files without tests. It also leaves out controllers that users
// have added beside main.go.
func productFiles(t *testing.T) []string {
	t.Helper()
	below, err := filepath.Glob("internal/*/*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	isTest := func(file string) bool { return strings.HasSuffix(file, "_test.go") }
	return append([]string{"main.go", "watch.go", "cache.go", "queue.go"}, slices.DeleteFunc(below, isTest)...)
}
