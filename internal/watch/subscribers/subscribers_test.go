package subscribers

import (
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

func TestFunctionThatHangsIsNoticed(t *testing.T) {
	for _, from := range []Source{Watches, Discovery, Patches} {
		synctest.Test(t, func(t *testing.T) {
			var s Subscribers[int]
			release := make(chan struct{})
			s.Subscribe(func(change int) {
				if change == 2 {
					<-release
				}
			})
			go func() {
				s.Publish(from, 1)
				s.Publish(from, 2)
			}()
			testkit.Pass(time.Minute)
			testkit.WantEqual(t, "after a minute", s.Stuck(time.Minute), "")
			testkit.Pass(time.Minute)
			testkit.WantEqual(t, "after two minutes", s.Stuck(time.Minute), "a change has not been taken for 2m0s")
			close(release)
			synctest.Wait()
			testkit.WantEqual(t, "when it has returned", s.Stuck(0), "")
		})
	}
}
