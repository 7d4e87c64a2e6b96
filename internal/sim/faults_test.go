package sim

import (
	"testing"
	"time"

	"podcount/internal/fakekube"
)

func TestRestoredBackupUndoesLaterVersionsAndShortensNoBound(t *testing.T) {
	h := &hearing{upTo: 8, told: 8, watches: true}
	s := &sim{
		Options: Options{LongestUnlisted: time.Minute},
		newest:  9,
		history: map[string][]fakekube.Change{"pods": {{Version: 4}, {Version: 5}, {Version: 6}, {Version: 9}}},
		byHost:  map[string]*proc{"r0": {hearings: map[string]*hearing{"pods": h}, isBlind: map[string]bool{}}},
	}
	s.needs(time.Hour) // for another fault
	s.forgetSince(5)
	if len(s.history["pods"]) != 2 || s.newest != 5 {
		t.Errorf("of the history, %+v is left, up to %d", s.history["pods"], s.newest)
	}
	if h.upTo != 0 || h.told != 0 {
		t.Errorf("the process is taken to have heard up to %d, and to have been told of %d", h.upTo, h.told)
	}
	if s.patience != time.Hour {
		t.Errorf("the bound is longer by %v, and another fault needed an hour", s.patience)
	}
}
