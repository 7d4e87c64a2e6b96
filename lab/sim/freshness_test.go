package sim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestStaleValuesAreFound(t *testing.T) {
	const never = ""
	for _, row := range []struct {
		name string
		do   func(*testedValue)
		want string // part of the broken rule
	}{
		{"a label follows within an interval and a second", func(v *testedValue) {
			v.now("5", "6")
			v.after(11*time.Second, "6", "6")
		}, never},
		{"a label does not follow", func(v *testedValue) {
			v.now("5", "6")
			v.after(12*time.Second, "6", "6")
		}, `is "5" and should be "6", for 12s`},
		{"what a label shows was right a moment ago, again and again", func(v *testedValue) {
			for range 20 {
				v.after(4*time.Second, "5", "6")
				v.after(4*time.Second, "5", "5")
			}
		}, never},
		{"a label changes without ever being right", func(v *testedValue) {
			v.now("5", "6")
			v.after(8*time.Second, "5", "7")
			v.after(8*time.Second, "5", "8")
		}, `is "5" and should be "7", for 16s`},
		{"a process writes what was right until a moment ago", func(v *testedValue) {
			v.now("5", "6")
			v.after(time.Second, "5", "7")
			v.after(10*time.Second, "6", "7")
			v.after(time.Second, "7", "7")
		}, never},
		{"a process writes what was right long ago", func(v *testedValue) {
			v.now("5", "6")
			v.after(time.Second, "6", "6")
			v.after(20*time.Second, "5", "6")
			v.after(time.Second, "6", "6")
		}, `is "5" and should be "6", for 22s`},
		{"another writer's value is corrected in time", func(v *testedValue) {
			v.after(time.Hour, "5", "5")
			v.overwrite("9", "5")
			v.after(11*time.Second, "5", "5")
		}, never},
		{"another writer's value is not corrected in time", func(v *testedValue) {
			v.overwrite("9", "5")
			v.after(12*time.Second, "5", "5")
		}, `is "9" and should be "5", for 12s`},
		{"another writer's value excuses no earlier delay", func(v *testedValue) {
			v.now("5", "6")
			v.after(10*time.Second, "5", "6")
			v.overwrite("9", "6")
			v.after(2*time.Second, "6", "6")
		}, `is "9" and should be "6", for 12s`},
		{"a status follows within two seconds", func(v *testedValue) {
			v.name = "default/c0"
			v.now("5", "6")
			v.after(3*time.Second, "6", "6")
		}, `is "5" and should be "6", for 3s, though 2s`},
		{"another writer's status is corrected in time", func(v *testedValue) {
			v.name = "default/c0"
			v.now("5", "5")
			v.overwrite("9", "5")
			v.after(11*time.Second, "5", "5")
		}, never},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &sim{Options: Options{MinStatusInterval: time.Second}, water: newWater(view{})}
				s.interval = 10 * time.Second
				v := &testedValue{sim: s, name: "n0 total"}
				v.now("5", "5")
				row.do(v)
				broken := strings.Join(s.broken, "\n")
				testkit.WantText(t, broken, row.want)
				if row.want == never && broken != "" {
					t.Error(broken)
				}
			})
		})
	}
}

// testedValue is a label or status that the test sets.
type testedValue struct {
	*sim
	name string
}

// now makes the label or status show a value while another one is right.
func (v *testedValue) now(shown, right string) {
	known := v.water.values[v.name]
	if known != nil {
		v.checkValueLocked(v.name, known)
	}
	v.water.update(map[string]string{v.name: right}, map[string]string{v.name: shown})
}

// after is now after a while.
func (v *testedValue) after(d time.Duration, shown, right string) {
	<-time.After(d)
	v.now(shown, right)
}

// overwrite is now for another writer's value.
func (v *testedValue) overwrite(shown, right string) {
	v.water.isOverwriting = true
	v.now(shown, right)
	v.water.isOverwriting = false
}

func TestDelaysAreSummedUp(t *testing.T) {
	var all, more delays
	testkit.WantEqual(t, "no delays", all.String(), "0, after 0s (median), 0s (99 %), 0s (the slowest)")
	for i := range 100 {
		all.add(time.Duration(i)*time.Second - time.Nanosecond)
	}
	more.add(time.Hour)
	all.addAll(more)
	testkit.WantEqual(t, "delays", all.String(), "101, after 50s (median), 1m39s (99 %), 1h0m0s (the slowest)")
}
