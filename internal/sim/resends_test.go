package sim

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

func TestGETThatNetHTTPSendsAgainMayBeAsOldAsTheSilenceBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, client := newLink(t)
		s := &sim{Options: Options{Silence: 150 * time.Second}, access: &access{}}
		p := &proc{link: l}
		get := requestTo("/api/v1/nodes")
		wantResend := func(when string, q fakekube.Request, want time.Duration) {
			t.Helper()
			testkit.WantEqual(t, "the age "+when, s.longestResendLocked(p, q), want)
		}
		ask := func() {
			answer, err := client.Get("http://fake/readyz")
			if err != nil {
				t.Fatal(err)
			}
			io.Copy(io.Discard, answer.Body) // so that the connection is kept
			answer.Body.Close()
		}
		ask()
		wantResend("on a whole connection", get, 0)
		l.cut()
		synctest.Wait()
		ask()
		wantResend("after a cut", get, 150*time.Second)
		wantResend("of a patch after a cut", fakekube.Request{Method: http.MethodPatch}, 0)
		<-time.After(connectTime + time.Second)
		wantResend("long after a cut", get, 0)
		client.CloseIdleConnections()
		synctest.Wait()
		ask()
		wantResend("after the process itself has closed its connection", get, 0)
	})
}

func TestRequestThatNetHTTPSendsAgainWhileConnectionsAreShedMayBeAsOldAsThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f shedding
		wantResend := func(when string, want time.Duration) {
			t.Helper()
			testkit.WantEqual(t, "the age "+when, f.longestResend(), want)
		}
		wantResend("before connections are shed", 0)
		f.set(true)
		<-time.After(8 * time.Second)
		wantResend("while connections are shed", 8*time.Second)
		f.set(true)
		f.set(false)
		f.set(false)
		<-time.After(9 * time.Second)
		wantResend("during the last wait of net/http", 17*time.Second)
		f.set(true)
		f.set(false)
		wantResend("when connections are shed again meanwhile", 17*time.Second)
		<-time.After(18*time.Second + time.Nanosecond)
		wantResend("after the last wait", 0)
		f.set(true)
		<-time.After(time.Second)
		wantResend("when connections are shed again later", time.Second)
	})
}
