package trial

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// Progress tells on a writer that a trial goes on, and of each row that ends. Its methods may be called by several
// goroutines.
type Progress struct {
	out    io.Writer
	start  time.Time
	closed chan struct{}
	ends   sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	running []string
	done    int
}

// reminder is how often a trial in which no row ends says what it waits for.
const reminder = 15 * time.Second

// NewProgress begins to tell. The caller must call Close.
func NewProgress(out io.Writer) *Progress {
	p := &Progress{out: out, start: time.Now(), closed: make(chan struct{})}
	p.ends.Go(p.remind)
	return p
}

func (p *Progress) remind() {
	ticker := time.NewTicker(reminder)
	defer ticker.Stop()
	for {
		select {
		case <-p.closed:
			return
		case <-ticker.C:
			p.mu.Lock()
			fmt.Fprintf(p.out, "%4.0f s  rows that are done: %d; these run: %s\n",
				time.Since(p.start).Seconds(), p.done, strings.Join(p.running, ", "))
			p.mu.Unlock()
		}
	}
}

// Began tells nothing yet: it is for Options.Began.
func (p *Progress) Began(r Row) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = append(p.running, r.Name)
}

// Ended tells how a row has ended: it is for Options.Ended.
func (p *Progress) Ended(r Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = slices.DeleteFunc(p.running, func(name string) bool { return name == r.Name })
	if r.Verdict != Skipped {
		p.done++
	}
	fmt.Fprintf(p.out, "%4.0f s  %s %s: %s: %s\n", time.Since(p.start).Seconds(), r.Mark(), r.Group, r.Name, r.Summary())
}

// Close ends the telling.
func (p *Progress) Close() {
	close(p.closed)
	p.ends.Wait()
}
