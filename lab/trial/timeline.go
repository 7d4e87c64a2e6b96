package trial

import (
	"fmt"
	"sync"
	"time"
)

// Entry is a line of a row's timeline.
type Entry struct {
	Second float64 // since the beginning of the row
	Who    string  // who did it: trial, server or program; with several programs also program 2
	Text   string
	Times  int // how often it happened in succession
}

// maxEntries keeps the timeline of a program that asks all the time from growing for ever.
const maxEntries = 2000

// timeline collects entries. It may be used by several goroutines.
type timeline struct {
	began time.Time

	mu      sync.Mutex // guards the fields below
	entries []Entry
	lost    int // how many did not fit
}

// add adds an entry for now. One that repeats one of the last few is only counted there: who asks again and again often
// asks for two kinds in turn.
func (t *timeline) add(who, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := max(0, len(t.entries)-4); i < len(t.entries); i++ {
		if t.entries[i].Who == who && t.entries[i].Text == text {
			t.entries[i].Times++
			return
		}
	}
	if len(t.entries) >= maxEntries && who != "trial" {
		t.lost++
		return
	}
	t.entries = append(t.entries, Entry{Second: time.Since(t.began).Seconds(), Who: who, Text: text, Times: 1})
}

// all returns the entries so far.
func (t *timeline) all() []Entry {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := append([]Entry{}, t.entries...)
	if t.lost > 0 {
		all = append(all, Entry{Second: time.Since(t.began).Seconds(), Who: "trial",
			Text: fmt.Sprintf("%d more entries do not fit here", t.lost), Times: 1})
	}
	return all
}
