package kubeconfig

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
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

	// The reading that is running.
	reading   *task[[]byte] // nil if there is none
	isHanging bool          // it has taken too long, so endReading does not wait for it any more
}

// isGiven reports whether the part has data, or a file to read it from.
func (p *part) isGiven() bool { return p.file != "" || len(p.data) > 0 }

func (p *part) String() string { return strings.TrimSpace(p.field + " " + p.file) }

// rereadAt returns when to look at the file again. A hanging reading is due at any time, because it costs nothing to
// see whether it is done.
func (p *part) rereadAt() time.Time {
	if p.isHanging {
		return p.readAt
	}
	return p.readAt.Add(p.maxAge)
}

// startReading starts to read the file, if that is due or isForced. It starts only one reading at a time: if one hangs,
// the next would hang as well.
func (p *part) startReading(isForced bool) {
	isOutdated := isForced && p.reading != nil && p.reading.isDone()
	if isOutdated {
		p.reading = nil // it may have read the content that the server has refused
		p.isHanging = false
	}
	isDue := isForced || !time.Now().Before(p.rereadAt())
	if p.file == "" || p.reading != nil || !isDue {
		return
	}
	file := p.file
	p.reading = startTask(func() ([]byte, error) { return readRegular(file) })
}

// endReading waits for the reading until ctx ends, and takes its result. If it fails, the part keeps its data.
func (p *part) endReading(ctx context.Context) {
	if p.reading == nil {
		return
	}
	if p.isHanging && !p.reading.isDone() {
		return
	}
	p.readAt = time.Now()
	if err := p.reading.wait(ctx); err != nil {
		p.isHanging = true
		p.err = fmt.Errorf("%s: %w", p.file, err)
		return
	}
	data, err := p.reading.value, p.reading.err
	p.reading = nil
	p.isHanging = false
	if err == nil {
		err = p.checkFile(data)
	}
	p.err = err
	if err == nil {
		p.data = data
		p.from = p.file
	}
}

// checkFile returns an error if the file's content cannot be used.
func (p *part) checkFile(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%s is empty", p.file)
	}
	if p.check == nil {
		return nil
	}
	if err := p.check(data); err != nil {
		return fmt.Errorf("%s %w", p.file, err)
	}
	return nil
}

// errNotInTime is the error for a file whose file system does not answer, or for a pipe without a writer. The functions
// that open or read a file take no context. Therefore each runs in a goroutine, which is abandoned if it hangs.
var errNotInTime = errors.New("it could not be read in time")

// inTime returns a context that ends with ctx, or after a limit with errNotInTime.
func inTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errNotInTime, limit))
}

// within calls f with a file, and returns its results. It fails if f takes longer than the limit, or if ctx ends.
func within[T any](ctx context.Context, limit time.Duration, file string, f func(file string) (T, error)) (T, error) {
	ctx, cancel := inTime(ctx, limit)
	defer cancel()
	call := startTask(func() (T, error) { return f(file) })
	if err := call.wait(ctx); err != nil {
		return *new(T), fmt.Errorf("%s: %w", file, err)
	}
	return call.value, call.err
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
