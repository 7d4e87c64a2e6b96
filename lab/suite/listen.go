package suite

import (
	"context"
	"io"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Listen shows the pages of -listen.
var Listen = Topic{
	{"readyz names the caches that are not ready", ready},
	{"metrics show what was done, and no secret", metricsPage},
}

// listenMark is what podcount logs before the address of -listen.
const listenMark = "msg=listening on="

func ready(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	listRequested := make(chan struct{}, 1)
	answer := make(chan struct{})
	f.Inject(t, fakekube.Fault{
		On:  fakekube.Requests{Verb: "list", Resource: "pods"},
		Met: func(fakekube.Request) { listRequested <- struct{}{} },
		Do: fakekube.Handle(func(w http.ResponseWriter, _ *http.Request) {
			<-answer
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}),
	})
	get := podcount.startListening(t, f, "-leader-elect")
	<-listRequested
	f.Await(t, "the nodes' watch", func() bool { return len(fixture.Requests(f, fixture.IsWatch("nodes"))) > 0 })
	want := func(path string, code int, text string) {
		t.Helper()
		gotCode, gotText := get(path)
		testkit.WantNumber(t, "the code of "+path, gotCode, code)
		testkit.WantEqual(t, path, gotText, text)
	}
	f.Await(t, "discovery's answer", func() bool {
		_, text := get("/readyz")
		return !strings.Contains(text, "Count")
	})
	want("/readyz", 503, "waiting for the first complete list of: Pod\n")
	want("/livez", 200, "ok\n")
	want("/healthz", 200, "ok\n")

	close(answer)
	f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "0" })
	want("/readyz", 200, "ok\n")

	// Without the server, podcount is alive, and as ready as before.
	f.CutOff("")
	want("/readyz", 200, "ok\n")
	want("/livez", 200, "ok\n")
	want("/nothing", 404, "404 page not found\n")
}

// getPage gets one of podcount's pages.
type getPage func(path string) (code int, text string)

// startSettled runs podcount on a node, four pods and a Count, and waits until it has written and posted everything
// that they need. start is startListening or startPage.
func startSettled(t *testing.T, start func(*testing.T, *fakekube.Server, ...string) getPage) getPage {
	t.Helper()
	f := fakekube.New()
	fixture.InstallCRD(f, &fixture.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	fixture.AddPods(f, 3)
	fixture.AddCount(f, "nginx", `{"name":"nginx","count":1}`)
	get := start(t, f, "-leader-elect", "-interval", "10ms")
	f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "3" })
	f.AddPod("default", "one-more", "")
	f.Await(t, "the label", func() bool { return fixture.Label(f, "cp", TotalLabel) == "4" })
	f.Await(t, "the status", func() bool { return strings.HasPrefix(fixture.CountStatus(f, "nginx"), "false") })
	f.Await(t, "two Events on the node", func() bool { return len(EventsOf(f, "PodCountChanged")) == 2 })
	f.Await(t, "an Event on the new pod", func() bool { return len(EventsOf(f, "PodCounted")) == 1 })
	f.Await(t, "an Event on the Count", func() bool { return len(EventsOf(f, "Synced")) == 1 })
	return get
}

func metricsPage(t *testing.T, podcount Program) {
	get := startSettled(t, podcount.startListening)
	code, text := get("/metrics")
	testkit.WantNumber(t, "the code", code, 200)
	testkit.WantText(t, text,
		`podcount_lines_dropped_total{stream="stderr"} 0`+"\n",
		`podcount_lines_dropped_total{stream="stdout"} 0`+"\n",
		"podcount_pods 4\n",
		`podcount_cache_objects{kind="Node"} 1`+"\n",
		`podcount_watch_events_total{kind="Pod",type="ADDED"} 1`+"\n",
		`podcount_relists_total{kind="Pod",reason="start"} 1`+"\n",
		`podcount_label_patches_total{result="written"} 2`+"\n",
		`podcount_status_patches_total{result="written"} 1`+"\n",
		`podcount_events_total{result="posted"} `,
		`podcount_build_info{version="dev",goversion="go`,
		`leader_election_master_status{name="podcount"} 1`+"\n",
		`workqueue_depth{name="pod-count"} `,
		`workqueue_work_duration_seconds_bucket{name="pod-count",le="+Inf"} `,
		"# TYPE workqueue_queue_duration_seconds histogram\n",
		"# TYPE workqueue_adds_total counter\n",
		`rest_client_requests_total{code="200",method="PATCH",host="127.0.0.1:`,
		`rest_client_request_duration_seconds_count{verb="GET",host="127.0.0.1:`,
		"go_goroutines ",
		"process_start_time_seconds ")
	unwanted := []string{"secret-token"}
	if runtime.GOOS == "linux" {
		unwanted = append(unwanted, "podcount_pods 0", "process_cpu_seconds_total 0\n")
	}
	for _, sample := range unwanted {
		if strings.Contains(text, sample) {
			t.Errorf("the page has %q", sample)
		}
	}

}

// startListening runs podcount in real time with -listen, and returns a function that gets one of its pages.
func (podcount Program) startListening(t *testing.T, f *fakekube.Server, args ...string) getPage {
	t.Helper()
	args = append([]string{"-listen", "127.0.0.1:0"}, args...)
	return pagesAt(t, podcount.startServing(t, f, listenMark, args...))
}

// pagesAt returns a function that gets a page at an address.
func pagesAt(t *testing.T, address string) getPage {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(text)
	}
}

// startServing runs podcount in real time until the test ends. It returns the address that podcount logs after mark.
func (podcount Program) startServing(t *testing.T, f *fakekube.Server, mark string, args ...string) (address string) {
	t.Helper()
	server, ca := fixture.Listen(t, f)
	f.Allow("secret-token")
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: secret-token")})
	ctx, cancel := context.WithCancel(t.Context())
	log := &testkit.Buffer{}
	ended := make(chan error, 1)
	given := append([]string{"-kubeconfig", filepath.Join(dir, "config")}, args...)
	go func() { ended <- podcount(ctx, given, NoEnv, io.Discard, log, nil) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	})
	return awaitAddress(t, f, log, mark)
}

// awaitAddress waits until podcount has logged mark and an address, and returns the address.
func awaitAddress(t *testing.T, f *fakekube.Server, log *testkit.Buffer, mark string) (address string) {
	t.Helper()
	f.Await(t, "a log line with "+mark, func() bool {
		_, rest, _ := strings.Cut(log.String(), mark)
		var isWhole bool
		address, _, isWhole = strings.Cut(rest, "\n")
		return isWhole
	})
	return address
}
