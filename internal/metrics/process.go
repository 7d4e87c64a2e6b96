package metrics

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// SetProcess sets the metrics of the process and of its heap: those that begin with process_ and go_. started is when
// the process began its work. What only Linux tells is left out elsewhere. Reading the heap's numbers stops the whole
// program for a moment, so call it only when somebody asks for them.
func SetProcess(r *Registry, started time.Time) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	r.Set(float64(runtime.NumGoroutine()), "go_goroutines")
	r.Set(float64(mem.Alloc), "go_memstats_alloc_bytes")
	r.Set(float64(mem.TotalAlloc), "go_memstats_alloc_bytes_total")
	r.Set(float64(mem.Sys), "go_memstats_sys_bytes")
	r.Set(float64(started.UnixMilli())/1000, "process_start_time_seconds")
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return // not on Linux
	}
	usage, err := parseStat(stat)
	if err != nil {
		return
	}
	r.Set(usage.cpuSeconds, "process_cpu_seconds_total")
	r.Set(usage.virtualBytes, "process_virtual_memory_bytes")
	r.Set(usage.residentBytes, "process_resident_memory_bytes")
}

// usage is what the kernel says of this process.
type usage struct {
	cpuSeconds    float64
	virtualBytes  float64
	residentBytes float64
}

// parseStat reads https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html, which only Linux has.
func parseStat(stat []byte) (usage, error) {
	// The second field is the program's name in parentheses, which may contain blanks. So count from the third field on.
	name := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[name+1:]))
	if len(fields) < 22 {
		return usage{}, fmt.Errorf("/proc/self/stat has %d fields after the name", len(fields))
	}
	var values [4]float64
	for i, field := range []int{14, 15, 23, 24} { // utime, stime, vsize and rss, as the manual numbers them
		value, err := strconv.ParseFloat(fields[field-3], 64)
		if err != nil {
			return usage{}, fmt.Errorf("field %d of /proc/self/stat: %w", field, err)
		}
		values[i] = value
	}
	const ticksPerSecond = 100
	return usage{
		cpuSeconds:    (values[0] + values[1]) / ticksPerSecond,
		virtualBytes:  values[2],
		residentBytes: values[3] * float64(os.Getpagesize()),
	}, nil
}
