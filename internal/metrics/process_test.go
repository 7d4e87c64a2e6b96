package metrics

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
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

func TestProcessTellsOfItsHeapAndOnLinuxOfItsMemory(t *testing.T) {
	r := NewRegistry()
	started := time.Unix(1_700_000_000, 250e6)
	SetProcess(r, started)
	text := r.Text()
	if got := sample(t, text, "process_start_time_seconds"); got != 1_700_000_000.25 {
		t.Errorf("it was started at %v", got)
	}
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
	rest := " S 1 2 3 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 9 0 12345 1048576 10 18446744073709551615 1 1\n"
	for _, name := range []string{"podcount", "pod count", "a) S 1 (b", ""} {
		got, err := parseStat([]byte("4711 (" + name + ")" + rest))
		want := usage{cpuSeconds: 3, virtualBytes: 1 << 20, residentBytes: 10 * float64(os.Getpagesize())}
		if err != nil || got != want {
			t.Errorf("a program called %q: %+v and %v, want %+v", name, got, err, want)
		}
	}
}

func TestStatThatIsNoneIsAnError(t *testing.T) {
	for _, text := range []string{"", "1 (podcount)", "1 (podcount) S 1 2", "1 (podcount)" + strings.Repeat(" x", 30)} {
		if got, err := parseStat([]byte(text)); err == nil {
			t.Errorf("%q gives %+v", text, got)
		}
	}
}
