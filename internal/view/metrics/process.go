package metrics

import (
	"bytes"
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

	stat, _ := os.ReadFile("/proc/self/stat") // Only Linux has this file.
	setUsage(r, stat)
}

// The fields of /proc/self/stat that are read, with the numbers that the manual gives them.
// https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
const (
	firstField   = 3  // after the program's name
	userTime     = 14 // in ticks
	systemTime   = 15 // in ticks
	virtualSize  = 23 // in bytes
	residentSize = 24 // in pages
)

const ticksPerSecond = 100

// setUsage sets what the kernel reports about this process in /proc/self/stat, which is empty if there is none.
func setUsage(r *Registry, stat []byte) {
	// The second field is the program's name in parentheses. The name may itself contain blanks and parentheses, so look
	// for the last one.
	nameEnd := bytes.LastIndexByte(stat, ')')
	fields := strings.Fields(string(stat[nameEnd+1:]))
	if len(fields) <= residentSize-firstField {
		return
	}
	number := func(field int) float64 {
		value, _ := strconv.ParseFloat(fields[field-firstField], 64) // The kernel writes only numbers there.
		return value
	}
	r.Set((number(userTime)+number(systemTime))/ticksPerSecond, "process_cpu_seconds_total")
	r.Set(number(virtualSize), "process_virtual_memory_bytes")
	r.Set(number(residentSize)*float64(os.Getpagesize()), "process_resident_memory_bytes")
}
