package retry

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/testkit"
)

const (
	testBase  = time.Second
	testLimit = 16 * time.Second
)

// testShared runs a test in virtual time. ended counts the outages that are over.
func testShared(t *testing.T, test func(t *testing.T, s *Shared, ended *int)) {
	synctest.Test(t, func(t *testing.T) {
		ended := 0
		test(t, NewShared(testBase, testLimit, func() { ended++ }), &ended)
	})
}

func TestLoopsThatFailTogetherWaitTogether(t *testing.T) {
	testShared(t, func(t *testing.T, s *Shared, _ *int) {
		first, second, third := s.Join(), s.Join(), s.Join()
		for failure := range 4 {
			wait := first.Unanswered()
			shortest := testBase << failure
			testkit.WantBetween(t, "the wait of the first loop", wait, shortest, 2*shortest)
			testkit.Pass(10 * time.Millisecond)
			for _, m := range []*Member{second, third} {
				testkit.WantEqual(t, "the wait of another loop", m.Unanswered(), wait-10*time.Millisecond)
			}
			testkit.Pass(time.Until(s.NextTry()))
		}
	})
}

func TestOutageEndsForAllLoopsWithTheFirstAnswer(t *testing.T) {
	testShared(t, func(t *testing.T, s *Shared, ended *int) {
		first, second := s.Join(), s.Join()
		for range 5 {
			first.Unanswered()
			second.Unanswered()
			testkit.Pass(time.Until(s.NextTry()))
		}
		second.Unanswered()
		start := time.Now()
		go func() {
			testkit.Pass(3 * time.Second)
			first.Answered()
		}()
		second.Sleep(t.Context(), time.Minute)
		testkit.WantBetween(t, "the second loop waits", time.Since(start), 3*time.Second, 3*time.Second+maxWakePause)
		testkit.WantNumber(t, "outages that are over", *ended, 1)
		second.Answered()
		testkit.WantNumber(t, "outages that are over after the second answer", *ended, 1)
		testkit.WantEqual(t, "a time of the next try", s.NextTry().IsZero(), true)
		testkit.WantBetween(t, "the first wait of the next outage", first.Unanswered(), testBase, 2*testBase)
	})
}

// One loop may be answered all the time, while another one is not.
func TestAnswersToOthersEndNoOutage(t *testing.T) {
	testShared(t, func(t *testing.T, s *Shared, ended *int) {
		failing, working := s.Join(), s.Join()
		for failure := range 4 {
			working.Answered()
			shortest := testBase << failure
			testkit.WantBetween(t, "the wait", failing.Unanswered(), shortest, 2*shortest)
			testkit.Pass(time.Until(s.NextTry()))
		}
		testkit.WantNumber(t, "outages that are over", *ended, 0)
	})
}

// A loop that the server refuses waits as long as it wants to, whatever happens to the others.
func TestAnsweredLoopIsNotWoken(t *testing.T) {
	testShared(t, func(t *testing.T, s *Shared, _ *int) {
		refused, failing := s.Join(), s.Join()
		failing.Unanswered()
		go func() {
			testkit.Pass(time.Second)
			failing.Answered()
		}()
		start := time.Now()
		refused.Sleep(t.Context(), time.Minute)
		testkit.WantEqual(t, "the wait", time.Since(start), time.Minute)
	})
}

func TestSharedSleepEndsWithItsContext(t *testing.T) {
	testShared(t, func(t *testing.T, s *Shared, _ *int) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m := s.Join()
		m.Unanswered()
		start := time.Now()
		m.Sleep(ctx, time.Hour)
		testkit.WantEqual(t, "the wait", time.Since(start), time.Second)
	})
}
