package sim

import (
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// CheckMemory simulates a seed, and checks that at each calm the processes hold no more memory than at the first one,
// plus an allowance in bytes for each process. No other test may run at the same time.
func CheckMemory(t *testing.T, o Options, allowance int) {
	rate := runtime.MemProfileRate
	runtime.MemProfileRate = profileRate
	defer func() { runtime.MemProfileRate = rate }()

	var first memory
	calms := 0
	o.atCalm = func(processes int) {
		settle(longestWatch)
		calms++
		held := memoryOfProcesses()
		if first == nil {
			first = held
		}
		grown := held.sum() - first.sum()
		t.Logf("calm %d: %d bytes, %d more than at the first one", calms, held.sum(), grown)
		if grown > allowance*processes {
			t.Errorf("at calm %d, the processes hold %d bytes more than at the first one; the most by: %s",
				calms, grown, held.grownMost(first))
		}
	}
	Run(t, o)
	if calms < 2 {
		t.Errorf("there were only %d calms", calms)
	}
}

// callAtCalm calls Options.atCalm when all goroutines are blocked.
func (s *sim) callAtCalm() {
	if s.atCalm != nil {
		synctest.Wait()
		s.atCalm(len(s.slots))
	}
}

// profileRate is how many bytes are allocated for each allocation that the profile notes, on average. A larger one
// takes less time. But estimates from few allocations differ from run to run as much as a small leak.
const profileRate = 64

// longestWatch is longer than any watch lasts. A watch keeps a buffer for the largest object that it has read.
const longestWatch = 11 * time.Minute

// memory has the bytes that are in use, by the function of the program that has allocated them.
type memory map[string]int

// memoryOfProcesses returns the memory of all processes, without that of the simulation and the fake.
func memoryOfProcesses() memory {
	for range 2 { // A profile shows the state of up to two garbage collections ago.
		runtime.GC()
	}
	held := memory{}
	for _, record := range memoryProfile() {
		owner := ownerOf(record.Stack())
		if owner != "" {
			held[owner] += inUse(record)
		}
	}
	return held
}

// inUse estimates the bytes of a record that are in use, from those that the profile has noted. It ignores objects of
// up to 16 bytes. Go puts several of them into one block, which is in use as long as one of them is, perhaps one of the
// simulation's.
func inUse(record runtime.MemProfileRecord) int {
	objects := record.InUseObjects()
	if objects == 0 {
		return 0
	}
	size := float64(record.InUseBytes()) / float64(objects)
	if size <= 16 {
		return 0
	}
	probability := 1 - math.Exp(-size/profileRate) // that the profile notes an object of this size
	return int(float64(record.InUseBytes()) / probability)
}

// memoryProfile returns what is in use, by the stack that has allocated it.
func memoryProfile() []runtime.MemProfileRecord {
	records := []runtime.MemProfileRecord{}
	for {
		n, ok := runtime.MemProfile(records, false)
		if ok {
			return records[:n]
		}
		records = make([]runtime.MemProfileRecord, n+1000)
	}
}

// boundedOwners are what holds more for good reasons, up to a limit of its own: the recorder of Events remembers 4,096
// objects, and a decoder of JSON keeps a buffer of 1 MiB for the next object.
var boundedOwners = []string{"podcount/internal/api/events.", "podcount/internal/api/wire.(*Reader).readValue"}

// ownerOf returns the innermost function of a stack that belongs to the program, or to the connections of its HTTP
// client. It returns "" if there is none, if a function of the simulation or the fake is further inside, or if it is
// one of boundedOwners.
func ownerOf(stack []uintptr) string {
	excluded := append([]string{"podcount/lab/sim.", "podcount/lab/fakekube."}, boundedOwners...)
	frames := runtime.CallersFrames(stack)
	for {
		frame, hasMore := frames.Next()
		hasPrefix := func(prefix string) bool { return strings.HasPrefix(frame.Function, prefix) }
		switch {
		case slices.ContainsFunc(excluded, hasPrefix):
			return ""
		case hasPrefix("podcount"), hasPrefix("net/http.(*persistConn)"):
			return frame.Function
		}
		if !hasMore {
			return ""
		}
	}
}

func (m memory) sum() (bytes int) {
	for _, n := range m {
		bytes += n
	}
	return bytes
}

// grownMost returns the functions whose memory has grown most since then, in words.
func (m memory) grownMost(then memory) string {
	owners := slices.Collect(maps.Keys(m))
	slices.SortFunc(owners, func(a, b string) int { return (m[b] - then[b]) - (m[a] - then[a]) })
	text := ""
	for _, owner := range owners[:min(5, len(owners))] {
		text += fmt.Sprintf("\n%s: %d", owner, m[owner]-then[owner])
	}
	return text
}
