package page

import (
	"slices"
	"sync"
	"time"
)

// AddNode tells whether a node should show the label, and whether it is wrong there.
func (l *Label) AddNode(name string, shows, isWrong bool) {
	if shows {
		l.NodeCount++
		l.Nodes = addName(l.Nodes, name)
	}
	if isWrong {
		l.WrongCount++
		l.Wrong = addName(l.Wrong, name)
	}
}

// maxNamed is how many nodes of a label the page names.
const maxNamed = 10

// addName adds a name to those that come first, of which it keeps maxNamed.
func addName(first []string, name string) []string {
	at, _ := slices.BinarySearch(first, name)
	first = slices.Insert(first, at, name)
	return first[:min(len(first), maxNamed)]
}

// LabelHistory is what has happened to a label on all its nodes. The zero value is that of a label that was never
// looked at. It is safe for concurrent use.
type LabelHistory struct {
	mu         sync.Mutex // guards the fields below
	rightSince time.Time  // when it was found right on all nodes; zero while it is wrong on one
	writtenAt  time.Time  // when podcount last wrote it; zero if it has not
}

// Wrote tells that podcount has written the label on a node.
func (h *LabelHistory) Wrote() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.writtenAt = time.Now()
}

// Describe sets the times of a label. Its other fields say whether it is right now. Call it once a second, because
// nothing else tells when the label becomes right or wrong.
func (h *LabelHistory) Describe(l *Label) {
	h.mu.Lock()
	defer h.mu.Unlock()
	isRight := l.IsKnown && l.WrongCount == 0
	switch {
	case !isRight:
		h.rightSince = time.Time{}
	case h.rightSince.IsZero():
		h.rightSince = time.Now()
	case h.writtenAt.After(h.rightSince):
		h.rightSince = h.writtenAt // It was wrong for less than a second.
	}
	l.SecondsRight = SecondsSince(h.rightSince)
	l.SecondsSinceWrite = SecondsSince(h.writtenAt)
}

// SecondsSince returns the seconds since a time, or nil if the time is zero.
func SecondsSince(at time.Time) *float64 {
	if at.IsZero() {
		return nil
	}
	seconds := time.Since(at).Seconds()
	return &seconds
}
