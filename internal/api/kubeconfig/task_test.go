package kubeconfig

import (
	"context"
	"testing"
)

func TestFinishedTaskIsSeenAfterTheDeadline(t *testing.T) {
	done := startTask(func() (int, error) { return 1, nil })
	<-done.done
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 { // A select would choose at random.
		if err := done.wait(over); err != nil {
			t.Fatal(err)
		}
	}
}
