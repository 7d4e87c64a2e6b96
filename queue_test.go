package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// writerFunc is a Writer that is a function.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// reportOf is a report that is a line of its own.
func reportOf(missing int) []byte { return fmt.Appendf(nil, "%d missing\n", missing) }

func TestOutputWritesEachLineInOrderAndAllOfThemBeforeItCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines []string
		o := NewOutput(writerFunc(func(b []byte) (int, error) {
			lines = append(lines, string(b))
			return len(b), nil
		}), reportOf)
		for i := range 1000 {
			fmt.Fprintf(o, "line %d\n", i)
		}
		o.Close()
		if len(lines) != 1000 || lines[0] != "line 0\n" || lines[999] != "line 999\n" || o.Lost() != 0 {
			t.Errorf("%d lines, %d lost", len(lines), o.Lost())
		}
	})
}

func TestOutputThatNobodyReadsDropsWhatDoesNotFitAndReportsItInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		var read bytes.Buffer
		o := NewOutput(writerFunc(func(b []byte) (int, error) {
			<-reading
			return read.Write(b)
		}), reportOf)
		defer o.Close()
		line := []byte(strings.Repeat("x", 1023) + "\n")
		o.Write(line)
		synctest.Wait() // it is being written
		fits := outputLimit / len(line)
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
		want := strings.Repeat(string(line), fits+1) + "412 missing\nafterwards\n"
		if read.String() != want {
			t.Errorf("%d bytes were read, want %d; the end is %q", read.Len(), len(want), read.Bytes()[max(0, read.Len()-100):])
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
		}), reportOf)
		defer o.Close()
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

func TestOutputThatNobodyReadsIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reading := make(chan struct{})
		defer close(reading)
		o := NewOutput(writerFunc(func(b []byte) (int, error) {
			<-reading
			return len(b), nil
		}), reportOf)
		o.Write([]byte("a line\n"))
		start := time.Now()
		o.Close()
		if took := time.Since(start); took != flushTime {
			t.Errorf("Close took %v", took)
		}
	})
}

func TestQueueTellsAKeyThatAWorkerDoesNotGiveBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		wantReady(t, q, "a")
		pass(time.Minute)
		q.Done("a", Result{}, nil)
		wantReady(t, q, "b")
		pass(time.Minute)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after a minute: %s", got)
		}
		pass(time.Second)
		if got, want := q.Stuck(time.Minute), "a worker has had b for 1m1s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		q.Done("b", Result{}, nil)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after it was given back: %s", got)
		}
	})
}

func TestQueueTellsThatNoWorkerTakesWhatIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		pass(time.Hour)
		q.Add("a", "b", "c")
		pass(time.Minute)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after a minute: %s", got)
		}
		pass(time.Second)
		if got, want := q.Stuck(time.Minute), "3 keys are ready, and no worker has taken one for 1m1s"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		wantReady(t, q, "a") // one is taken: the others may wait for their turn
		q.Done("a", Result{}, nil)
		if got := q.Stuck(time.Minute); got != "" {
			t.Errorf("after one was taken: %s", got)
		}
	})
}

func TestWhatAServerAskedForIsWaitedForAndALittleMoreByChance(t *testing.T) {
	for asked, most := range map[time.Duration]time.Duration{
		time.Second: 2 * time.Second,
		time.Minute: 72 * time.Second,
		time.Hour:   72 * time.Minute,
	} {
		least, longest := time.Duration(1<<62), time.Duration(0)
		for range 1000 {
			wait := withJitter(asked)
			least, longest = min(least, wait), max(longest, wait)
		}
		if spread := most - asked; least < asked || longest >= most || longest-least < spread*9/10 {
			t.Errorf("asked for %v: waits from %v to %v", asked, least, longest)
		}
	}
	if got := withJitter(0); got != 0 {
		t.Errorf("asked for nothing: %v", got)
	}
}
