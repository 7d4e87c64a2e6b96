package logging

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writerFunc is a Writer that is a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// stuckPipe is a pipe whose reader reads only while it is open.
type stuckPipe struct {
	to   io.Writer
	open chan struct{} // closed: everything gets through
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.open
	return p.to.Write(b)
}

// reportOf is a report that is a line of its own.
func reportOf(missing int) []byte { return fmt.Appendf(nil, "%d missing\n", missing) }

func TestOutputWritesEachLineInOrderAndAllOfThemBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		o := NewOutput(writerFunc(func(b []byte) (int, error) {
			lines = append(lines, string(b))
			return len(b), nil
		}), OutputLimit, reportOf)
		for i := range 1000 {
			fmt.Fprintf(o, "line %d\n", i)
		}
		o.Close(ended(t), time.Minute, time.Second)
		if len(lines) != 1000 || lines[0] != "line 0\n" || lines[999] != "line 999\n" || o.Lost() != 0 {
			t.Errorf("%d lines, %d lost", len(lines), o.Lost())
		}
	})
}

func TestOutputThatNobodyReadsDropsWhatDoesNotFitAndReportsItInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		var read bytes.Buffer
		o := NewOutput(&stuckPipe{&read, reading}, OutputLimit, reportOf)
		defer o.Close(ended(t), time.Minute, time.Second)
		line := []byte(strings.Repeat("x", 1023) + "\n")
		fits := OutputLimit / len(line)
		for range fits + 412 {
			o.Write(line)
		}
		if o.Lost() != 412 {
			t.Errorf("lost: %d", o.Lost())
		}
		close(reading)
		synctest.Wait()
		o.Write([]byte("afterwards\n"))
		synctest.Wait()
		want := strings.Repeat(string(line), fits) + "412 missing\nafterwards\n"
		if read.String() != want {
			t.Errorf("%d bytes were read, want %d; the end is %q", read.Len(), len(want), read.Bytes()[max(0, read.Len()-100):])
		}
	})
}

// Else short lines would stand one by one among many small gaps.
func TestOutputThatIsFullDropsShortLinesTooUntilThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		var read bytes.Buffer
		o := NewOutput(&stuckPipe{&read, reading}, 100, reportOf)
		defer o.Close(ended(t), time.Minute, time.Second)
		long, short := strings.Repeat("x", 39)+"\n", "short\n"
		for _, line := range []string{long, long, long, short} { // the third does not fit, the fourth would
			fmt.Fprint(o, line)
		}
		reading <- struct{}{} // 40 bytes are left
		synctest.Wait()
		fmt.Fprint(o, short)
		close(reading)
		synctest.Wait()
		if want := long + long + "2 missing\n" + short; read.String() != want {
			t.Errorf("%q was read, want %q", read.String(), want)
		}
	})
}

func TestOutputReportsLinesThatCouldNotBeWrittenAfterOneThatCould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		broken := true
		o := NewOutput(writerFunc(func(b []byte) (int, error) {
			if broken {
				return 0, errors.New("broken pipe")
			}
			return read.Write(b)
		}), OutputLimit, reportOf)
		defer o.Close(ended(t), time.Minute, time.Second)
		for i := range 3 {
			fmt.Fprintf(o, "line %d\n", i)
		}
		synctest.Wait()
		broken = false
		fmt.Fprintln(o, "line 3")
		fmt.Fprintln(o, "line 4")
		synctest.Wait()
		if want := "line 3\n3 missing\nline 4\n"; read.String() != want || o.Lost() != 3 {
			t.Errorf("%q was read, want %q; %d lost", read.String(), want, o.Lost())
		}
	})
}

func TestClosedOutputDropsAndCountsLinesThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		o := NewOutput(&read, OutputLimit, reportOf)
		fmt.Fprintln(o, "in time")
		o.Close(t.Context(), time.Minute, time.Second)
		fmt.Fprintln(o, "too late")
		if read.String() != "in time\n" || o.Lost() != 1 {
			t.Errorf("%q was read, %d lost", read.String(), o.Lost())
		}
	})
}

func TestOutputIsWaitedForWhileLinesGetThroughAndNotForLongAfterAStop(t *testing.T) {
	for name, c := range map[string]struct {
		ctx   func(*testing.T) context.Context
		pause time.Duration // of the reader, before each line
		takes time.Duration
		lost  int64
	}{
		"a slow reader":                {(*testing.T).Context, 59 * time.Second, 10 * 59 * time.Second, 0},
		"nobody reads":                 {(*testing.T).Context, time.Hour, time.Minute, 10},
		"a slow reader after a stop":   {ended, 300 * time.Millisecond, time.Second, 7},
		"a quick reader after a stop":  {ended, 10 * time.Millisecond, 100 * time.Millisecond, 0},
		"nobody reads, and it is over": {ended, time.Hour, time.Second, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := NewOutput(writerFunc(func(b []byte) (int, error) {
				<-time.After(c.pause)
				return len(b), nil
			}), OutputLimit, reportOf)
			for i := range 10 {
				fmt.Fprintln(o, i)
			}
			start := time.Now()
			o.Close(c.ctx(t), time.Minute, time.Second)
			if took := time.Since(start); took != c.takes || o.Lost() != c.lost {
				t.Errorf("%s: Close took %v and %d lines were lost, want %v and %d", name, took, o.Lost(), c.takes, c.lost)
			}
			<-o.ended
		})
	}
}

// ended is a context that has ended.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}
