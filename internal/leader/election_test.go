package leader

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
)

// A renewal that hangs, for a credential or in a dial that obeys no context, must not keep the term open.
func TestTermEndsAtItsDeadlineThoughARenewalHangs(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		start := time.Now()
		e, lost := leadingAt(t, f, func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			if time.Since(start) > 0 {
				<-time.After(time.Minute) // whatever the context says
			}
			return &kubeconfig.Credential{}, nil
		})
		f.AddNode("n")
		f.Script(t, "write nodes: stall")
		written := make(chan error, 1)
		go func() {
			patch := kube.Request{Method: "PATCH", Path: "/api/v1/nodes/n", Body: fakekube.Object{}}
			written <- e.client.Send(t.Context(), patch, nil)
		}()
		pass(10*time.Second - 1)
		if err := e.MayWrite(); err != nil || len(written) > 0 {
			t.Errorf("before the deadline: %v, %d writes have ended", err, len(written))
		}
		pass(1)
		if err := e.MayWrite(); err == nil || len(written) == 0 {
			t.Errorf("at the deadline: %v, %d writes have ended", err, len(written))
		}
		if err := <-written; err == nil || !strings.Contains(err.Error(), errCutOff.Error()) {
			t.Errorf("the write in hand ended with %v", err)
		}
		select {
		case err := <-lost:
			wantText(t, err.Error(), "the lease is lost: it could not be renewed for 10s")
		default:
			t.Error("nobody was told")
		}
	})
}

// A process that was frozen may go on with a write before its timers have fired.
func TestMayWriteAsksTheClockAndNotJustTheTimer(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		e, _ := leadingAt(t, f, noCredential)
		e.mu.Lock()
		e.guard.Stop()
		e.deadline = time.Now().Add(time.Second)
		e.mu.Unlock()
		pass(time.Second - 1)
		if err := e.MayWrite(); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		pass(1)
		if err := e.MayWrite(); err == nil {
			t.Error("at the deadline it may write")
		}
	})
}

func TestTermThatHasEndedIsNotBegunAgainByALateRenewal(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		e, lost := leadingAt(t, f, noCredential)
		e.loseTerm(errHeld)
		e.noteRenewal(time.Now().Add(time.Minute), nil)
		if err := e.MayWrite(); err == nil {
			t.Error("it may write")
		}
		synctest.Wait()
		wantNumber(t, "reasons", len(lost), 1)
	})
}
