package presence

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/retry"
	"podcount/internal/view/logging"
	"podcount/internal/view/metrics"
	"podcount/internal/view/observe"
	"podcount/internal/watch/ending"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// testPresence is the Presence of Counts.
type testPresence struct {
	*Presence
	done  chan string // what it has done since the last look
	stop  context.CancelFunc
	ended chan error
}

// run starts a Presence, which is stopped at the end of the test.
func run(t *testing.T, f *fakekube.Server, once bool) *testPresence {
	p := &testPresence{done: make(chan string, 10), ended: make(chan error, 1)}
	log := slog.New(slog.DiscardHandler)
	client := kube.NewClient(&kubeconfig.Config{
		Server: &url.URL{Scheme: "http", Host: "127.0.0.1:1"},
		Credential: func(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
			return &kubeconfig.Credential{}, nil
		},
	}, kube.Options{Dial: fixture.Network(t, f).Dial})
	backoffs := retry.NewShared(retry.SharedOptions{
		Base:      ending.InitialBackoff,
		Limit:     ending.MaxBackoff,
		OnFailure: func(error) {},
		OnOver:    func() {},
	})
	report := observe.NewCacheReport(observe.CacheOptions{
		Sinks:        observe.Sinks{Log: log, Metrics: metrics.NewRegistry()},
		Kind:         "Count",
		ServerOutage: logging.NewServerOutage(log, kube.IsUnanswered, nil),
		Pause:        kube.PauseBetweenComplaints,
	})
	does := func(what string) func() { return func() { p.done <- what } }
	p.Presence = New(Options{
		Client:      client,
		API:         "/apis/demo.mark8s.io/v1",
		Resource:    "counts",
		Backoff:     backoffs.Join(),
		Report:      report,
		OnInstalled: func() { does(fmt.Sprint("changed to ", *p.Installed()))() },
		OnMissing:   does("missing"),
		OnRemoved:   does("removed"),
		Once:        once,
		Serve: func(ctx context.Context) {
			does("serve")()
			<-ctx.Done()
			does("end")()
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	p.stop = stop
	go func() { p.ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		synctest.Wait()
		report.End()
		client.Close()
	})
	synctest.Wait()
	return p
}

func (p *testPresence) want(t *testing.T, when string, isInstalled, isMissing bool, done ...string) {
	t.Helper()
	testkit.WantEqual(t, "installed "+when, p.Installed() != nil, isInstalled)
	testkit.WantEqual(t, "missing "+when, p.IsMissing(), isMissing)
	var got []string
	for len(p.done) > 0 {
		got = append(got, <-p.done)
	}
	testkit.WantEqual(t, "done "+when, got, done)
}

func TestResourceIsServedWhileItIsInstalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := fakekube.New()
		f.Script(t, "*: refuse 503")
		p := run(t, f, false)
		p.want(t, "before an answer", false, false)
		testkit.Pass(2 * ending.InitialBackoff)
		p.want(t, "without a CRD", false, true, "missing")

		fixture.InstallCRD(f, &fixture.CRD{})
		testkit.Pass(Interval * 6 / 5)
		p.want(t, "with a CRD", true, false, "changed to {false}", "serve")
		first := p.Installed()
		testkit.Pass(time.Minute)
		testkit.WantEqual(t, "another installation", p.Installed() != first, false)

		fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
		testkit.Pass(Interval * 6 / 5)
		p.want(t, "with another CRD", true, false, "changed to {true}")

		f.Script(t, "*: refuse 404")
		f.Script(t, "*: refuse 500")
		testkit.Pass(time.Minute)
		p.want(t, "after a single 404", true, false)

		fixture.InstallCRD(f, nil)
		testkit.Pass(Interval * 2 * 6 / 5)
		p.want(t, "after the removal", false, true, "end", "removed")

		fixture.InstallCRD(f, &fixture.CRD{})
		testkit.Pass(Interval * 6 / 5)
		p.want(t, "after the return", true, false, "changed to {false}", "serve")
		p.stop()
		synctest.Wait()
		p.want(t, "at the end", true, false, "end")
		testkit.WantError(t, "Run", <-p.ended, "")
	})
}

func TestOnceEndsWithoutTheResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := run(t, fakekube.New(), true)
		p.want(t, "at the end", false, true, "missing")
		testkit.WantError(t, "Run", <-p.ended, "")
	})
}
