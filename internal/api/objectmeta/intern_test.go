package objectmeta

import (
	"fmt"
	"testing"
	"unsafe"

	"podcount/lab/testkit"
)

func TestInternReturnsTheSameString(t *testing.T) {
	in := Interner{}
	first := in.Intern([]byte("node-1"))
	again := in.Intern([]byte("node-1"))
	other := in.Intern([]byte("node-2"))
	testkit.WantEqual(t, "strings", []string{first, again, other}, []string{"node-1", "node-1", "node-2"})
	if unsafe.StringData(first) != unsafe.StringData(again) {
		t.Error("equal texts became different strings")
	}
	text := []byte("node-1")
	allocations := testing.AllocsPerRun(100, func() { in.Intern(text) })
	testkit.WantNumber(t, "allocations for a known text", int(allocations), 0)
}

func TestInternerForgetsStrings(t *testing.T) {
	in := Interner{}
	most := 0
	for i := range maxEntries + 100 {
		want := fmt.Sprint("node-", i)
		first := in.Intern([]byte(want))
		again := in.Intern([]byte(want))
		if first != want || again != want {
			t.Fatalf("got %q, then %q, want %q", first, again, want)
		}
		most = max(most, len(in))
	}
	testkit.WantNumber(t, "strings kept at most", most, maxEntries)
}
