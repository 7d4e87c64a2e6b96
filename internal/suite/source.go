package suite

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Sources shows what holds for podcount's sources and documents.
var Sources = Topic{
	{"no wait and no deadline depends on the wall clock", noWallClock},
	{"the README's own controller keeps its promises", readmeController},
}

// noWallClock: a time loses its monotonic reading when it goes through UTC, a text or a number. If podcount compared
// such a time, it would go wrong when the clock is set. So it may only show times to others, and show those of others.
func noWallClock(t *testing.T, podcount Program) {
	wall := regexp.MustCompile(`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|` +
		`time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)
	may := []string{
		// Times that podcount shows: in a Lease, in an Event and in its name, in the log, and in a metric.
		`now.UTC().Format(microTime)`,
		`at.UTC().Format(time.RFC3339)`,
		`r.newestStamp = max(time.Now().UnixNano`,
		`expires := pair.Leaf.NotAfter`,
		`"process_start_time_seconds")`,

		// The end of a credential. If podcount uses one too long, because the clock was set, the server refuses it,
		// and podcount renews it then.
		`ExpirationTimestamp   *time.Time`,
		`expires := s.ExpirationTimestamp`,
		`expiration := e.result.ExpirationTimestamp`,
	}
	files := []string{"main.go", "watch.go", "cache.go", "queue.go"} // not those of controllers of one's own
	below, _ := filepath.Glob("internal/*/*.go")
	shown := regexp.MustCompile(
		`^internal/(fakekube|playground|sim|suite|testkit|behaviours)/`) // not a part of podcount
	for _, file := range slices.Concat(files, below) {
		if strings.HasSuffix(file, "_test.go") || shown.MatchString(file) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if wall.MatchString(line) &&
				!slices.ContainsFunc(may, func(known string) bool { return strings.Contains(line, known) }) {
				t.Errorf("%s:%d: does this compare times of the wall clock? %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}
