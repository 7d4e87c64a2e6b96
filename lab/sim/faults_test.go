package sim

import (
	"testing"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestRestoredBackupUndoesLaterVersions(t *testing.T) {
	pods := &progress{upTo: 8, sent: 8, isWatching: true}
	s := &sim{
		mayDrift: map[string]bool{},
		Options:  Options{LongestUnlisted: time.Minute},
		newest:   9,
		history:  map[string][]fakekube.Change{"pods": {{Version: 4}, {Version: 5}, {Version: 6}, {Version: 9}}},
		byHost: map[string]*proc{
			"r0": {progress: map[string]*progress{"pods": pods}, mayBeStale: map[string]bool{}},
		},
	}
	s.extendBound(time.Hour) // for another fault
	s.forgetAfter(5)
	testkit.WantNumber(t, "changes that are left", len(s.history["pods"]), 2)
	testkit.WantNumber(t, "the newest version", s.newest, 5)
	testkit.WantNumber(t, "the version that the process has read up to", pods.upTo, 0)
	testkit.WantNumber(t, "the version that was sent to the process", pods.sent, 0)
	testkit.WantEqual(t, "what extends the bound", s.extraBound, time.Hour)
}
