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

// SetProcess sets the metrics of the process and its heap, whose names begin with process_ and go_. The parameter
// started is the time at which the process started. Some of the metrics exist only on Linux. Reading the heap's numbers
// stops all goroutines for a moment: call SetProcess only when a client requests the metrics.
func SetProcess(r *Registry, started time.Time) {
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	r.Set(float64(runtime.NumGoroutine()), "go_goroutines")
	r.Set(float64(mem.Alloc), "go_memstats_alloc_bytes")
	r.Set(float64(mem.TotalAlloc), "go_memstats_alloc_bytes_total")
	r.Set(float64(mem.Sys), "go_memstats_sys_bytes")
	r.Set(float64(started.UnixMilli())/1000, "process_start_time_seconds")

	stat, err := os.ReadFile("/proc/self/stat") // only Linux has this file
	if err != nil {
		return
	}
	usage, err := parseStat(stat)
	if err != nil {
		return
	}
	r.Set(usage.cpuSeconds, "process_cpu_seconds_total")
	r.Set(usage.virtualBytes, "process_virtual_memory_bytes")
	r.Set(usage.residentBytes, "process_resident_memory_bytes")
}

// usage holds what the kernel reports about this process.
type usage struct {
	cpuSeconds    float64
	virtualBytes  float64
	residentBytes float64
}

// The fields of /proc/self/stat that are read, with the numbers that the manual gives them.
// https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
const (
	userTime     = 14 // in ticks
	systemTime   = 15 // in ticks
	virtualSize  = 23 // in bytes
	residentSize = 24 // in pages
)

const ticksPerSecond = 100

// parseStat reads the content of /proc/self/stat.
func parseStat(stat []byte) (usage, error) {
	// The second field is the program's name in parentheses. The name may itself contain blanks and parentheses, so look
	// for the last one.
	nameEnd := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[nameEnd+1:]))
	const firstField = 3
	if len(fields) <= residentSize-firstField {
		return usage{}, fmt.Errorf("/proc/self/stat has only %d fields after the name", len(fields))
	}
	values := map[int]float64{}
	for _, field := range []int{userTime, systemTime, virtualSize, residentSize} {
		value, err := strconv.ParseFloat(fields[field-firstField], 64)
		if err != nil {
			return usage{}, fmt.Errorf("field %d of /proc/self/stat: %w", field, err)
		}
		values[field] = value
	}
	return usage{
		cpuSeconds:    (values[userTime] + values[systemTime]) / ticksPerSecond,
		virtualBytes:  values[virtualSize],
		residentBytes: values[residentSize] * float64(os.Getpagesize()),
	}, nil
}
