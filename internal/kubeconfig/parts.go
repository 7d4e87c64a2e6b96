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

// part is a piece of a credential: the CA, the certificate, the key, or the token.
type part struct {
	field      string             // of the kubeconfig, or what stands for one in an error
	file       string             // "": it has none
	data       []byte             // what was given, or what the file held when it was last read
	kubeconfig string             // that data stands in; "": in none
	age        time.Duration      // after which the file is read again
	readAt     time.Time          // when it was last read, or that was tried
	from       string             // the file, once something was read of it; or the program
	err        error              // of the last reading
	check      func([]byte) error // of what is in the file; nil: none
	reading    *task[[]byte]      // the one that goes on; nil: none does
	isHanging  bool               // reading was waited for in vain: from now on it is just looked at
}

func (p *part) given() bool { return p.file != "" || len(p.data) > 0 }

func (p *part) String() string { return strings.TrimSpace(p.field + " " + p.file) }

// dueAt returns when the file is to be looked at again. A reading that hangs is looked at on every call: that costs
// nothing.
func (p *part) dueAt() time.Time {
	if p.isHanging {
		return p.readAt
	}
	return p.readAt.Add(p.age)
}

// startReading starts to read the file if that is due, or now. While one reading hangs, no second one is started.
func (p *part) startReading(now bool) {
	isDue := now || !time.Now().Before(p.dueAt())
	if p.reading != nil && now && p.reading.isDone() {
		p.reading = nil // it was begun too early to be of use now
		p.isHanging = false
	}
	if p.file == "" || p.reading != nil || !isDue {
		return
	}
	file := p.file
	p.reading = startTask(func() ([]byte, error) { return readRegular(file) })
}

// endReading takes what was read. Where nothing can be read, or not until ctx ends, the part stays what it was.
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
	if err == nil && len(bytes.TrimSpace(data)) == 0 {
		err = fmt.Errorf("%s is empty", p.file)
	}
	if err == nil && p.check != nil && p.check(data) != nil {
		err = fmt.Errorf("%s %w", p.file, p.check(data))
	}
	p.err = err
	if err == nil {
		p.data = data
		p.from = p.file
	}
}

// errNotInTime is the error for a file whose file system does not answer, or for a pipe to which nobody writes. Calls
// that open or read a file take no context: each is made in a goroutine of its own, which may be left to hang.
var errNotInTime = errors.New("it could not be read in time")

// inTime is ctx with a limit, which ends it with errNotInTime.
func inTime(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%w (%v)", errNotInTime, limit))
}

// within returns what f returns of the file, unless that takes longer than limit, or ctx ends.
func within[T any](ctx context.Context, limit time.Duration, file string, f func(file string) (T, error)) (T, error) {
	ctx, cancel := inTime(ctx, limit)
	defer cancel()
	look := startTask(func() (T, error) { return f(file) })
	if err := look.wait(ctx); err != nil {
		return *new(T), fmt.Errorf("%s: %w", file, err)
	}
	return look.value, look.err
}

// readKubeconfig reads a file of any kind, as it is read only once. A pipe (-kubeconfig <(command)) may take as long as
// an exec program: what writes to it is a program, too.
func readKubeconfig(ctx context.Context, name string) ([]byte, error) {
	info, err := within(ctx, fileTime, name, os.Stat)
	if err != nil {
		return nil, err
	}
	limit := fileTime
	if !info.Mode().IsRegular() {
		limit = execTime
	}
	return within(ctx, limit, name, readFile)
}

// readRegular reads a file that will be read again. A pipe gives its contents once, and a device may never end.
func readRegular(name string) ([]byte, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", name)
	}
	return readFile(name)
}

// readFile reads a file of fileSize at most.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, fileSize+1))
	if err == nil && len(data) > fileSize {
		err = fmt.Errorf("%s has more than %d MB", name, fileSize>>20)
	}
	if err != nil {
		return nil, err
	}
	return data, nil
}
