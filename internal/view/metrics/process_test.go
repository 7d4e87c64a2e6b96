package metrics

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"podcount/lab/testkit"
)

// sample returns the number of a metric without labels in a Registry's text; -1 if there is none.
func sample(t *testing.T, text, name string) float64 {
	t.Helper()
	found := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindStringSubmatch(text)
	if found == nil {
		return -1
	}
	value, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

func TestSetProcessSetsItsMetrics(t *testing.T) {
	r := NewRegistry()
	SetProcess(r, time.Unix(1_700_000_000, 250e6))
	text := r.Text()
	testkit.WantEqual(t, "process_start_time_seconds", sample(t, text, "process_start_time_seconds"), 1_700_000_000.25)
	positive := []string{
		"go_goroutines", "go_memstats_alloc_bytes", "go_memstats_alloc_bytes_total", "go_memstats_sys_bytes",
	}
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		positive = append(positive, "process_virtual_memory_bytes", "process_resident_memory_bytes")
	}
	for _, name := range positive {
		if got := sample(t, text, name); got <= 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
}

func TestStatIsReadWhateverTheProgramIsCalled(t *testing.T) {
	const rest = " S 1 2 3 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 12345 1048576 10 18446744073709551615 1 1\n"
	want := usage{cpuSeconds: 3, virtualBytes: 1 << 20, residentBytes: 10 * float64(os.Getpagesize())}
	for _, name := range []string{"podcount", "pod count", "a) S 1 (b", ""} {
		t.Run(name, func(t *testing.T) {
			got, err := parseStat([]byte("4711 (" + name + ")" + rest))
			if err != nil {
				t.Fatal(err)
			}
			testkit.WantEqual(t, "the usage", got, want)
		})
	}
}

func TestBrokenStatIsAnError(t *testing.T) {
	rows := []struct{ name, text string }{
		{"nothing", ""},
		{"only a name", "1 (podcount)"},
		{"too few fields", "1 (podcount) S 1 2"},
		{"one field too few", "1 (podcount)" + strings.Repeat(" 1", 21)},
		{"no numbers", "1 (podcount)" + strings.Repeat(" x", 30)},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			got, err := parseStat([]byte(row.text))
			if err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	}
}
