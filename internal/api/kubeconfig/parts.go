package kubeconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// part is one part of a credential: the CA, the certificate, the key, or the token.
type part struct {
	// The source of the part. This does not change.
	field      string             // the field of the kubeconfig, for error messages
	file       string             // the file that has the data, or ""
	maxAge     time.Duration      // the file is read again after this time
	check      func([]byte) error // checks the content of the file; nil accepts any
	kubeconfig string             // the kubeconfig that has the data itself, or ""

	// The result of reading the file.
	data   []byte    // the newest content that could be read
	from   string    // the file or program that data comes from; "" if it comes from the kubeconfig
	readAt time.Time // when the file was last read, with or without success
	err    error     // of the last reading

	isReading atomic.Bool // a reading is running; it may be one that hangs, for which nobody waits any more
}

// isGiven reports whether the part has data, or a file to read it from.
func (p *part) isGiven() bool { return p.file != "" || len(p.data) > 0 }

func (p *part) String() string { return strings.TrimSpace(p.field + " " + p.file) }

// read reads the file, if that is due or isRefused. If that fails, or takes longer than the limit, the part keeps its
// data. While an earlier reading hangs, read does nothing: another one would hang as well. As soon as it has ended, the
// next one is due.
func (p *part) read(ctx context.Context, limit time.Duration, isRefused bool) {
	isDue := isRefused || time.Since(p.readAt) >= p.maxAge || errors.Is(p.err, errNotInTime)
	if p.file == "" || !isDue || p.isReading.Load() {
		return
	}
	p.isReading.Store(true)
	data, err := within(ctx, limit, p.file, func(file string) ([]byte, error) {
		defer p.isReading.Store(false)
		return readRegular(file)
	})
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("%s is empty", p.file)
	}
	if err == nil && p.check != nil {
		if fault := p.check(data); fault != nil {
			err = fmt.Errorf("%s %w", p.file, fault)
		}
	}
	p.readAt = time.Now()
	p.err = err
	if err == nil {
		p.data = data
		p.from = p.file
	}
}

// errNotInTime is the error for a file whose file system does not answer, or for a pipe without a writer. The functions
// that open or read a file take no context. Therefore each runs in a goroutine, which is abandoned if it hangs.
var errNotInTime = errors.New("it could not be read in time")

// within calls f with a file, and returns its results. It fails if f takes longer than the limit, or if ctx ends.
func within[T any](ctx context.Context, limit time.Duration, file string, f func(file string) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errNotInTime, limit))
	defer cancel()
	return await(ctx, func() (T, error) { return f(file) }, file)
}

// await calls f, and returns its results. If ctx ends first, it does not wait any longer, and its error begins with
// what was awaited.
func await[T any](ctx context.Context, f func() (T, error), what string) (T, error) {
	var value T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		value, err = f()
	}()
	select {
	case <-done:
		return value, err
	case <-ctx.Done():
		return *new(T), fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
}

// readKubeconfig reads a kubeconfig. It is read only once, and may therefore be a pipe. A program writes to the pipe,
// so reading it may take as long as an exec program.
func readKubeconfig(ctx context.Context, name string) ([]byte, error) {
	info, err := within(ctx, fileTimeout, name, os.Stat)
	if err != nil {
		return nil, err
	}
	limit := fileTimeout
	if !info.Mode().IsRegular() {
		limit = execTimeout
	}
	return within(ctx, limit, name, readFile)
}

// readRegular reads a file that will be read again. It must be a regular file: a pipe can be read only once, and a
// device may have no end.
func readRegular(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", name)
	}
	return readFile(name)
}

// readFile reads a file. It fails if the file is larger than maxFileSize.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxFileSize {
		return nil, fmt.Errorf("%s has more than %d MB", name, maxFileSize>>20)
	}
	return data, nil
}
