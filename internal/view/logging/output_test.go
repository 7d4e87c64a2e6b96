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

	"podcount/lab/testkit"
)

func TestOutputWritesAllLinesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got, want bytes.Buffer
		o := NewOutput(&got, OutputLimit, reportMissing)
		for i := range 1000 {
			fmt.Fprintf(o, "line %d\n", i)
			fmt.Fprintf(&want, "line %d\n", i)
		}
		o.Close(endedContext(t), time.Minute, time.Second)
		testkit.WantEqual(t, "lines", got.String(), want.String())
		wantLost(t, o, 0)
	})
}

// reportMissing is the line with which these Outputs report dropped lines.
func reportMissing(missing int) []byte { return fmt.Appendf(nil, "%d missing\n", missing) }

// endedContext returns a context that has ended.
func endedContext(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func wantLost(t *testing.T, o *Output, want int) {
	t.Helper()
	testkit.WantNumber(t, "lines lost", int(o.Lost()), want)
}

func TestOutputReportsLinesThatDidNotFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		reading := make(chan struct{})
		o := NewOutput(&stuckPipe{&read, reading}, OutputLimit, reportMissing)
		defer o.Close(endedContext(t), time.Minute, time.Second)
		line := strings.Repeat("x", 1023) + "\n"
		fits := OutputLimit / len(line)
		for range fits + 412 {
			fmt.Fprint(o, line)
		}
		wantLost(t, o, 412)
		close(reading)
		synctest.Wait()
		fmt.Fprintln(o, "later")
		synctest.Wait()
		want := strings.Repeat(line, fits) + "412 missing\nlater\n"
		testkit.WantEqual(t, "lines", read.String(), want)
	})
}

// stuckPipe is a pipe whose reader reads once for each value from reading, and without limit once reading is closed.
type stuckPipe struct {
	to      io.Writer
	reading chan struct{}
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.reading
	return p.to.Write(b)
}

func TestFullOutputDropsShortLinesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		reading := make(chan struct{})
		o := NewOutput(&stuckPipe{&read, reading}, 100, reportMissing)
		defer o.Close(endedContext(t), time.Minute, time.Second)
		synctest.Wait() // The Output waits for a line. If Write wrote it, this would be a deadlock.
		long := strings.Repeat("x", 39) + "\n"
		short := "short\n"
		fmt.Fprint(o, long)
		fmt.Fprint(o, long)
		fmt.Fprint(o, long)  // This line does not fit.
		fmt.Fprint(o, short) // This line fits, but a line before it was dropped.
		reading <- struct{}{}
		synctest.Wait()
		fmt.Fprint(o, short) // Only 40 bytes are in the buffer now.
		close(reading)
		synctest.Wait()
		testkit.WantEqual(t, "lines", read.String(), long+long+"2 missing\n"+short)
	})
}

func TestOutputReportsLinesThatTheFileRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		isBroken := true
		file := testkit.WriterFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return read.Write(b)
		})
		o := NewOutput(file, OutputLimit, reportMissing)
		defer o.Close(endedContext(t), time.Minute, time.Second)
		for i := range 3 {
			fmt.Fprintf(o, "line %d\n", i)
		}
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(o, "line 3")
		synctest.Wait()
		fmt.Fprintln(o, "line 4")
		synctest.Wait()
		testkit.WantEqual(t, "lines", read.String(), "line 3\n3 missing\nline 4\n")
		wantLost(t, o, 3)
	})
}

func TestClosedOutputDropsLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var read bytes.Buffer
		o := NewOutput(&read, OutputLimit, reportMissing)
		fmt.Fprintln(o, "in time")
		o.Close(t.Context(), time.Minute, time.Second)
		fmt.Fprintln(o, "too late")
		testkit.WantEqual(t, "lines", read.String(), "in time\n")
		wantLost(t, o, 1)
	})
}

func TestOutputForgetsLinesThatAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		goOn := make(chan struct{})
		file := testkit.WriterFunc(func(b []byte) (int, error) {
			<-goOn
			return len(b), nil
		})
		o := NewOutput(file, OutputLimit, reportMissing)
		defer o.Close(t.Context(), time.Minute, time.Second)
		for i := range 10 {
			fmt.Fprintln(o, i)
		}
		array := o.buffer

		goOn <- struct{}{}
		synctest.Wait()
		if array[0] != nil {
			t.Errorf("the array of the buffer still has the line %q", array[0])
		}
		close(goOn)
		synctest.Wait()
		if o.buffer != nil {
			t.Errorf("an empty buffer has an array for %d lines", cap(o.buffer))
		}
	})
}

func TestCloseWaitsWhileLinesAreRead(t *testing.T) {
	liveContext := (*testing.T).Context
	for _, row := range []struct {
		name     string
		ctx      func(*testing.T) context.Context
		perLine  time.Duration // how long the reader takes for each of ten lines
		wantTime time.Duration // that Close takes
		wantLost int
	}{
		{"slow reader", liveContext, 59 * time.Second, 10 * 59 * time.Second, 0},
		{"no reader", liveContext, time.Hour, time.Minute, 10},
		{"slow reader after a stop", endedContext, 300 * time.Millisecond, time.Second, 7},
		{"quick reader after a stop", endedContext, 10 * time.Millisecond, 100 * time.Millisecond, 0},
		{"no reader after a stop", endedContext, time.Hour, time.Second, 10},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				file := testkit.WriterFunc(func(b []byte) (int, error) {
					<-time.After(row.perLine)
					return len(b), nil
				})
				o := NewOutput(file, OutputLimit, reportMissing)
				for i := range 10 {
					fmt.Fprintln(o, i)
				}
				start := time.Now()
				o.Close(row.ctx(t), time.Minute, time.Second)
				testkit.WantEqual(t, "time that Close took", time.Since(start), row.wantTime)
				wantLost(t, o, row.wantLost)
				<-o.ended
			})
		})
	}
}
