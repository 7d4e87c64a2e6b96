package sim

import (
	"strings"
	"testing"
)

func TestSimulationFailsIfItHearsFewerEventsThanWereTold(t *testing.T) {
	all := hearingTotals{watchesAsked: 9, watchesRefused: 1, watchesSaid: 8, eventsTold: 9, eventsSaid: 9}
	for _, c := range []struct {
		name   string
		change func(*hearingTotals)
		want   string
	}{
		{"all", func(h *hearingTotals) {}, ""},
		{"half of the watches", func(h *hearingTotals) { h.watchesSaid = 4 }, ""},
		{"too few watches", func(h *hearingTotals) { h.watchesSaid = 3 }, "served 8 watches"},
		{"too many watches", func(h *hearingTotals) { h.watchesSaid = 9 }, "served 8 watches"},
		{"half of the events", func(h *hearingTotals) { h.eventsSaid = 5 }, ""},
		{"too few events", func(h *hearingTotals) { h.eventsSaid = 4 }, "told 9 events"},
		{"too many events", func(h *hearingTotals) { h.eventsSaid = 10 }, "told 9 events"},
		{"no events at all", func(h *hearingTotals) { h.eventsTold, h.eventsSaid = 0, 0 }, "told 0 events"},
	} {
		totals := all
		c.change(&totals)
		s := &sim{heard: totals}
		s.checkTotalsLocked()
		broken := strings.Join(s.wrong, "\n")
		if (broken == "") != (c.want == "") || !strings.Contains(broken, c.want) {
			t.Errorf("%s: %q, want %q", c.name, broken, c.want)
		}
	}
}
