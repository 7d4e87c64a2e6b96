package sim

import (
	"slices"
	"strings"
	"testing"

	"podcount/lab/testkit"
)

func TestImpossiblePairsAreLeftOut(t *testing.T) {
	for _, row := range []struct {
		one  pair
		want bool
	}{
		{pair{stateWatching, "server killed"}, true},
		{pair{stateAbsent, "discovery get 500: etcd has no leader"}, true},
		{pair{stateAbsent, "lists of counts get 500: etcd has no leader"}, false},
		{pair{stateAudit, "lists of nodes get 500: etcd has no leader"}, true},
		{pair{stateWatching, "lists of nodes get 500: etcd has no leader"}, false},
		{pair{stateResumingWatch, "watches of pods get a login page"}, true},
		{pair{stateFirstList, "patches of nodes get 500: etcd has no leader"}, false},
		{pair{stateStandingBy, "patches of nodes get 500: etcd has no leader"}, false},
		{pair{stateLeading, "patches of nodes get 500: etcd has no leader"}, true},
		{pair{stateNoElection, "lease deleted"}, false},
		{pair{stateReleasing, "lease deleted"}, true},
	} {
		if got := slices.Contains(possiblePairs(), row.one); got != row.want {
			t.Errorf("%v is possible: %v, want %v", row.one, got, row.want)
		}
	}
}

func TestUnmetPairsAreGroupedByRequests(t *testing.T) {
	stats := Stats{met: map[pair]bool{}}
	for _, one := range possiblePairs() {
		stats.met[one] = true
	}
	for _, fault := range []string{
		"leases get 500: etcd has no leader", "leases get 401: a token has expired", "lease deleted",
	} {
		delete(stats.met, pair{stateLeading, fault})
	}
	text := stats.unmetPairs()
	want := "- leading (3): lease deleted; leases get 401: a token has expired, or 500: etcd has no leader\n"
	testkit.WantText(t, text, want)
	testkit.WantNumber(t, "lines", strings.Count(text, "\n"), 2)
	for _, one := range possiblePairs() {
		if one.state == stateStandingBy {
			delete(stats.met, one)
		}
	}
	testkit.WantText(t, stats.unmetPairs(), "leases get anything;")
}
