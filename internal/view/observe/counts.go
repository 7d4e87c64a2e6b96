package observe

import (
	"maps"
	"sync"
)

// Counter counts what happens, by a word that says what it was. The zero value has counted nothing. It is safe for
// concurrent use.
type Counter struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// Count adds one.
func (c *Counter) Count(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = map[string]int{}
	}
	c.counts[word]++
}

// Counts returns a copy of the numbers so far, by word.
func (c *Counter) Counts() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.counts)
}

// Total returns how much was counted so far, whatever the words.
func (c *Counter) Total() (total int) {
	for _, count := range c.Counts() {
		total += count
	}
	return total
}

// CacheCounts are what has happened to a cache since the start, for the page. The metrics have the same numbers.
type CacheCounts struct {
	WatchEvents Counter // by type, including bookmarks
	Relists     Counter // complete lists, by reason
	Audits      Counter // by result: clean, drift, skipped, failed
	Drift       Counter // objects in which an audit found the cache to differ from the API server; the word is ""
	Patches     Counter // by result: written, failed, stripped, gone
}
