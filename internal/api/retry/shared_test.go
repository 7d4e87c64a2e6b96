package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

const (
	testBase  = time.Second
	testLimit = 16 * time.Second
)

var errAway = errors.New("the server is away")

// sharedTest is a Shared that counts.
type sharedTest struct {
	*Shared
	failed int // calls of OnFailure
	ended  int // calls of OnOver
}

// testShared runs a test in virtual time.
func testShared(t *testing.T, test func(t *testing.T, s *sharedTest)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sharedTest{}
		s.Shared = NewShared(SharedOptions{
			Base:      testBase,
			Limit:     testLimit,
			OnFailure: func(error) { s.failed++ },
			OnOver:    func() { s.ended++ },
		})
		test(t, s)
	})
}

// fail lets the tries of a loop fail, and waits after each but the last. It returns the last wait.
func fail(t *testing.T, m *Member, times int) (wait time.Duration) {
	for range times {
		m.Sleep(t.Context(), wait)
		wait = try(m)
	}
	return wait
}

// try is a try of a loop that is not answered.
func try(m *Member) (wait time.Duration) {
	m.BeginTry()
	return m.Unanswered(errAway)
}

// sleeping returns a function that waits until a loop has slept for d, and returns how long it has slept.
func sleeping(t *testing.T, m *Member, d time.Duration) (slept func() time.Duration) {
	start := time.Now()
	took := make(chan time.Duration, 1)
	go func() {
		m.Sleep(t.Context(), d)
		took <- time.Since(start)
	}()
	synctest.Wait()
	return func() time.Duration { return <-took }
}

func TestLoopWithoutAnAnswerBacksOff(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		m := s.Join()
		for failure := range 6 {
			shortest := min(testBase<<failure, testLimit)
			wait := try(m)
			testkit.WantBetween(t, "the wait", wait, shortest, 2*shortest)
			slept := sleeping(t, m, wait)
			testkit.WantEqual(t, "the next try", time.Until(s.NextTry()), wait)
			testkit.WantEqual(t, "the sleep", slept(), wait)
			testkit.WantEqual(t, "there is a next try while the loop tries", s.NextTry().IsZero(), true)
		}
		testkit.WantNumber(t, "failures", s.failed, 6)
		m.Answered()
		testkit.WantEqual(t, "there is no next try", s.NextTry().IsZero(), true)
	})
}

func TestFirstAnswerWakesAll(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		first, second := s.Join(), s.Join()
		fail(t, second, 5)
		fail(t, first, 1)
		slept := sleeping(t, second, time.Minute)
		testkit.Pass(3 * time.Second)
		first.Answered()
		testkit.WantBetween(t, "the sleep", slept(), 3*time.Second, 3*time.Second+maxWakePause)
		testkit.WantNumber(t, "outages that are over", s.ended, 1)
	})
}

// A server that answers, but does not do what it is asked for, gets no more requests for its answers.
func TestOnlyWorkThatIsDoneResetsTheBackoffs(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		first, second := s.Join(), s.Join()
		fail(t, first, 5)
		fail(t, second, 5)
		first.Answered()
		testkit.WantBetween(t, "the wait after an answer", try(first), testLimit, 2*testLimit)
		first.Succeeded()
		testkit.WantBetween(t, "the wait after work", try(first), testBase, 2*testBase)
		testkit.WantBetween(t, "that of the other loop", try(second), testBase, 2*testBase)
	})
}

// A loop may have begun its try before the server was back, and fail after that.
func TestLateFailureBeginsNoOutageAndIsWokenAgain(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		first, late, newcomer := s.Join(), s.Join(), s.Join()
		fail(t, first, 5)
		fail(t, late, 5)
		late.BeginTry()
		newcomer.BeginTry()
		testkit.Pass(time.Second)
		first.Answered()
		failed := s.failed
		newcomer.Unanswered(errAway)
		slept := sleeping(t, late, late.Unanswered(errAway))
		testkit.WantNumber(t, "failures of the next outage", s.failed-failed, 0)
		testkit.Pass(time.Second)
		first.Succeeded()
		testkit.WantBetween(t, "the sleep", slept(), time.Second, time.Second+maxWakePause)
	})
}

// A try may end in another way than with a missing answer, such as with an error of the credential.
func TestLoopIsWokenOnceForEachMissingAnswer(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		first, second := s.Join(), s.Join()
		fail(t, first, 1)
		fail(t, second, 1)
		slept := sleeping(t, second, time.Minute)
		first.Succeeded()
		testkit.WantBetween(t, "the first sleep", slept(), 0, maxWakePause)
		testkit.WantEqual(t, "the second one", sleeping(t, second, time.Minute)(), time.Minute)
	})
}

// A fault of one loop is not that of the server, and must not count as one.
func TestLoopThatIsAloneBeginsNoOutage(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		sick, healthy := s.Join(), s.Join()
		try(sick)
		testkit.WantNumber(t, "failures of an outage", s.failed, 1)
		testkit.Pass(time.Second)
		healthy.Answered()
		testkit.WantNumber(t, "outages that are over", s.ended, 1)
		testkit.Pass(time.Second)
		for range 10 {
			try(sick)
			testkit.Pass(time.Second)
			healthy.Answered()
		}
		testkit.WantNumber(t, "failures of an outage", s.failed, 1)
		testkit.WantNumber(t, "outages that are over", s.ended, 1)

		try(healthy)
		testkit.WantNumber(t, "failures when the server is away", s.failed, 2)
		sick.Succeeded()
		testkit.WantNumber(t, "outages that are over then", s.ended, 2)
		testkit.Pass(time.Second)
		try(sick)
		testkit.WantNumber(t, "failures of the next outage", s.failed, 3)
	})
}

// The end of an outage between a failure and the sleep after it must not be missed.
func TestWakeBeforeTheSleepIsNoticed(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		first, second := s.Join(), s.Join()
		fail(t, first, 1)
		fail(t, second, 5)
		first.Answered()
		testkit.WantBetween(t, "the sleep", sleeping(t, second, time.Minute)(), 0, maxWakePause)
	})
}

// One loop may be answered all the time, and another one never.
func TestAnswersToOthersDoNotHurryALoopThatGetsNone(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		flapping, never := s.Join(), s.Join()
		tries := 0
		start := time.Now()
		go func() {
			for time.Since(start) < 10*time.Minute {
				tries++
				never.Sleep(t.Context(), try(never))
			}
		}()
		for time.Since(start) < 10*time.Minute {
			try(flapping)
			flapping.Succeeded()
			testkit.Pass(5 * time.Second)
		}
		testkit.Pass(time.Minute)
		testkit.WantBetween(t, "tries in ten minutes", tries, 20, 50)
	})
}

func TestLoopWithoutAnOutageResetsNoBackoff(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		failing, working := s.Join(), s.Join()
		fail(t, failing, 4)
		working.Succeeded()
		testkit.WantBetween(t, "the wait", try(failing), testLimit, 2*testLimit)
	})
}

// A loop that the server refuses waits as long as it wants to, whatever happens to the others.
func TestAnsweredLoopIsNotWoken(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		refused, failing := s.Join(), s.Join()
		fail(t, refused, 1)
		fail(t, failing, 1)
		failing.Answered()
		refused.Answered()
		slept := sleeping(t, refused, time.Minute)
		try(failing)
		failing.Succeeded()
		testkit.WantEqual(t, "the sleep", slept(), time.Minute)
	})
}

func TestSharedSleepEndsWithItsContext(t *testing.T) {
	testShared(t, func(t *testing.T, s *sharedTest) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m := s.Join()
		try(m)
		start := time.Now()
		m.Sleep(ctx, time.Hour)
		testkit.WantEqual(t, "the sleep", time.Since(start), time.Second)
	})
}
