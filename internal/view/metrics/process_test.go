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
	for _, name := range []string{"podcount", "pod count", "a) S 1 (b", ""} {
		t.Run(name, func(t *testing.T) {
			r := NewRegistry()
			setUsage(r, []byte("4711 ("+name+")"+rest))
			text := r.Text()
			testkit.WantEqual(t, "seconds", sample(t, text, "process_cpu_seconds_total"), 3)
			testkit.WantEqual(t, "virtual bytes", sample(t, text, "process_virtual_memory_bytes"), 1<<20)
			resident := float64(10 * os.Getpagesize())
			testkit.WantEqual(t, "resident bytes", sample(t, text, "process_resident_memory_bytes"), resident)
		})
	}
}

func TestMissingStatSetsNothing(t *testing.T) {
	for _, stat := range []string{"", "1 (podcount)", "1 (podcount)" + strings.Repeat(" 1", 21)} {
		r := NewRegistry()
		setUsage(r, []byte(stat))
		testkit.WantEqual(t, "virtual bytes", sample(t, r.Text(), "process_virtual_memory_bytes"), -1)
	}
}
