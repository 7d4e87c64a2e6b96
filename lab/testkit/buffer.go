package testkit

import (
	"bytes"
	"sync"
)

// Buffer keeps what a program writes, for example its log. It is safe for concurrent use.
type Buffer struct {
	// Wrote, if set, gets a value after each Write, unless it is full.
	Wrote chan struct{}

	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write appends to the buffer. It never fails.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, err := b.text.Write(p)
	select {
	case b.Wrote <- struct{}{}:
	default:
	}
	return n, err
}

// String returns all that was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// WriterFunc is an io.Writer that calls a function.
type WriterFunc func(p []byte) (int, error)

// Write calls the function.
func (f WriterFunc) Write(p []byte) (int, error) { return f(p) }
