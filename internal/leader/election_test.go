package leader

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
)

// leadingAt returns an election whose lease was just won, at a server of its own; lost gets why it ends.
func leadingAt(t *testing.T, f *fakekube.Server, credential func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error)) (e *Election, lost <-chan error) {
	base, _ := url.Parse("http://127.0.0.1:1")
	cfg := &kubeconfig.Config{Server: base, Credential: credential}
	client := kube.NewClient(cfg, kube.Options{Dial: f.ServeIn(t).Dial})
	reasons, won := make(chan error, 1), make(chan struct{})
	e = New(client, Options{
		Namespace:     "kube-system",
		Name:          "podcount",
		Host:          "a",
		LeaseDuration: 15 * time.Second,
		RenewDeadline: 10 * time.Second,
		RetryPeriod:   2 * time.Second,
		ReleaseLimit:  4 * time.Second,
		OnLost:        func(err error) { reasons <- err },
		Log:           slog.New(slog.DiscardHandler),
	})
	client.SetPermit(e)
	stop, end := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.Run(stop, stop, func() { close(won) })
	}()
	t.Cleanup(func() {
		end()
		<-ended
		client.Close()
	})
	<-won
	return e, reasons
}

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
		f.Inject(t, fakekube.Fault{Match: fakekube.Matching(isWriteOf("nodes")), Stall: true})
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
