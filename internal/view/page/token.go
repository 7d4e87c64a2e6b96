package page

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	tokenTimeout = time.Second // for the reading of the token
	tokenLimit   = 1 << 10     // bytes of the file; a longer token would not fit the headers of a request
)

// tokenFile is the file that has the token of the page. It is read for each request. Anybody can cause that, so while a
// reading hangs, as on a file system whose server is away, no other begins.
type tokenFile struct {
	name string

	mu      sync.Mutex    // guards running
	running *tokenReading // nil while no reading runs
}

// tokenReading is one reading of the file, for all who wait for it.
type tokenReading struct {
	done  chan struct{} // closed when token and err are set
	token string
	err   error
}

// read returns the token. It waits for at most tokenTimeout.
func (f *tokenFile) read() (token string, err error) {
	reading := f.begin()
	select {
	case <-reading.done:
		return reading.token, reading.err
	case <-time.After(tokenTimeout):
		return "", fmt.Errorf("%s could not be read within %v", f.name, tokenTimeout)
	}
}

// begin returns the reading that runs, or begins one.
func (f *tokenFile) begin() *tokenReading {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.running == nil {
		f.running = &tokenReading{done: make(chan struct{})}
		go f.finish(f.running)
	}
	return f.running
}

// finish reads the file for a reading.
func (f *tokenFile) finish(reading *tokenReading) {
	reading.token, reading.err = readToken(f.name)
	f.mu.Lock()
	f.running = nil
	f.mu.Unlock()
	close(reading.done)
}

// readToken reads a token from a file. It must be a regular file: a pipe can be read only once, and a device may have
// no end.
func readToken(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, tokenLimit+1))
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(strings.TrimPrefix(string(text), "\ufeff")) // some editors write a byte order mark
	isOdd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	switch {
	case len(text) > tokenLimit:
		return "", fmt.Errorf("%s has more than %d bytes", name, tokenLimit)
	case token == "":
		return "", fmt.Errorf("%s is empty", name)
	case strings.ContainsFunc(token, isOdd):
		return "", fmt.Errorf("%s has more than one word: write only the token into it", name)
	}
	return token, nil
}
