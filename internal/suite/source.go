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

// A time that went through UTC, a text or a number, has lost its monotonic reading: whoever compares it goes wrong when the
// clock is set. So this is all that may be done with one: where it is told to others, and where they have told theirs.
func noWallClock(t *testing.T, podcount Program) {
	wall := regexp.MustCompile(
		`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)
	may := []string{
		`now.UTC().Format(microTime)`,             // what a Lease shows to others; nobody compares it
		`at.UTC().Format(time.RFC3339)`,           // what an Event shows to others
		`r.newestStamp = max(time.Now().UnixNano`, // an Event's name, which differs whatever the clock does
		`expires := pair.Leaf.NotAfter`,           // a certificate's end, which is only logged
		`"process_start_time_seconds")`,           // a metric
		`ExpirationTimestamp   *time.Time`,        // a credential's end. If podcount takes one for valid for too
		`expires := s.ExpirationTimestamp`,        // long, because the clock was set, the server refuses it, and
		`expiration := e.got.ExpirationTimestamp`, // then podcount renews it.
	}
	files, _ := filepath.Glob("*.go")
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
