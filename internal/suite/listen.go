package suite

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// Listen shows the pages of -listen.
var Listen = Topic{
	{"readyz names the caches that are not ready", ready},
	{"the root names each path that answers", root},
	{"metrics show what was done, and no secret", metricsPage},
}

func ready(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.AddNode("cp", ControlPlane)
	release, met := make(chan struct{}), make(chan struct{}, 1)
	f.Inject(t, fakekube.Fault{
		On:  fakekube.Requests{Verb: "list", Resource: "pods"},
		Met: func(fakekube.Request) { met <- struct{}{} },
		Do: fakekube.Handle(func(w http.ResponseWriter, _ *http.Request) {
			<-release
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}),
	})
	get := podcount.startListening(t, f, "-leader-elect")
	<-met
	f.Await(t, "the nodes' watch", func() bool {
		return len(f.Requests(
			func(s fakekube.Request) bool { return s.Path == "/api/v1/nodes" && s.Query.Get("watch") != "" })) > 0
	})
	want := func(path string, code int, text string) {
		t.Helper()
		if c, got := get(path); c != code || got != text {
			t.Errorf("%s: %d %q, want %d %q", path, c, got, code, text)
		}
	}
	want("/readyz", 503, "there is no complete list yet of: Pod\n")
	want("/livez", 200, "ok\n")
	want("/healthz", 200, "ok\n")
	close(release)
	f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == "0" })
	want("/readyz", 200, "ok\n")
	f.CutOff("", true) // the server is away: we are as ready as before, and alive
	want("/readyz", 200, "ok\n")
	want("/livez", 200, "ok\n")
	want("/nothing", 404, "404 page not found\n")
}

func root(t *testing.T, podcount Program) {
	f := fakekube.New()
	get := podcount.startListening(t, f)
	f.Await(t, "both watches", func() bool {
		return len(f.Requests(func(s fakekube.Request) bool { return s.Query.Get("watch") != "" })) >= 2
	})
	code, text := get("/")
	testkit.WantNumber(t, "the code", code, 200)
	paths := regexp.MustCompile(`(?m)(?:^| )(/[a-z/]+)`).FindAllStringSubmatch(text, -1)
	testkit.WantNumber(t, "paths", len(paths), 5)
	for _, path := range paths {
		if code, _ := get(path[1]); code != 200 {
			t.Errorf("%s answers %d", path[1], code)
		}
	}
}

// metricsPage: the page must also be one that Prometheus can read.
func metricsPage(t *testing.T, podcount Program) {
	f := fakekube.New()
	f.InstallCRD(&fakekube.CRD{HasStatus: true})
	f.AddNode("cp", ControlPlane)
	f.AddPods(3)
	f.AddCount("nginx", `{"name":"nginx","count":1}`)
	get := podcount.startListening(t, f, "-leader-elect", "-interval", "10ms")
	f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == "3" })
	f.AddPod("default", "one-more", "")
	f.Await(t, "the label", func() bool { return f.Label("cp", TotalLabel) == "4" })
	f.Await(t, "the status", func() bool { return strings.HasPrefix(f.CountStatus("nginx"), "false") })
	f.Await(t, "the events", func() bool {
		return len(EventsOf(f, "PodCountChanged")) == 2 && len(EventsOf(f, "PodCounted")) == 1 &&
			len(EventsOf(f, "Synced")) == 1
	})
	code, text := get("/metrics")
	if code != 200 || strings.Contains(text, "secret-token") {
		t.Errorf("%d, or a secret in %s", code, text)
	}
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
		`workqueue_depth{name="pod-count"} 0`+"\n",
		`workqueue_work_duration_seconds_bucket{name="pod-count",le="+Inf"} `,
		"# TYPE workqueue_queue_duration_seconds histogram\n",
		"# TYPE workqueue_adds_total counter\n",
		`rest_client_requests_total{code="200",method="PATCH",host="127.0.0.1:`,
		`rest_client_request_duration_seconds_count{verb="GET",host="127.0.0.1:`,
		"go_goroutines ",
		"process_start_time_seconds ")
	wantPrometheus(t, text)
	for _, absent := range []string{"podcount_pods 0", "process_cpu_seconds_total 0\n"} {
		if runtime.GOOS == "linux" && strings.Contains(text, absent) {
			t.Errorf("the page has %q", absent)
		}
	}

	var state struct {
		Version string
		Lease   struct {
			Identity string
			IsOurs   bool
		}
		Caches map[string]struct {
			Objects           int
			Ready             bool
			ResourceVersion   string
			SecondsSinceHeard float64
		}
		Controllers map[string]struct{ Ready, Keys int }
	}
	_, text = get("/debug/state")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	pods := state.Caches["Pod"]
	if state.Version != "dev" || !state.Lease.IsOurs || state.Lease.Identity == "" || pods.Objects != 4 ||
		!pods.Ready ||
		pods.ResourceVersion == "" ||
		len(state.Controllers) != 2 {
		t.Errorf("the state is %s", text)
	}
}

// startListening runs podcount in real time with -listen, and returns a function that gets one of its pages.
func (podcount Program) startListening(
	t *testing.T,
	f *fakekube.Server,
	args ...string,
) (get func(path string) (code int, text string)) {
	t.Helper()
	return asking(t, podcount.startListeningAt(t, f, args...))
}

// startListeningAt runs podcount in real time with -listen, and returns the address that it listens on.
func (podcount Program) startListeningAt(t *testing.T, f *fakekube.Server, args ...string) (address string) {
	t.Helper()
	server, ca := f.ServeTLSFor(t)
	f.Allow("secret-token")
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(server, ca, "token: secret-token")})
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := &testkit.Buffer{}, make(chan error, 1)
	go func() {
		given := append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-listen", "127.0.0.1:0"}, args...)
		ended <- podcount(ctx, given, NoEnv, io.Discard, log, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.Await(t, "a request", func() bool { return len(f.Requests(All)) > 0 })
	_, address, _ = strings.Cut(log.String(), "msg=listening on=")
	address, _, _ = strings.Cut(address, "\n")
	return address
}

// asking returns a function that gets a page of the server at an address.
func asking(t *testing.T, address string) (get func(path string) (code int, text string)) {
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

// wantPrometheus checks a page of metrics against the text format: the lines of a family stand together, labels are in
// quotes, and buckets grow up to the count.
func wantPrometheus(t *testing.T, text string) {
	t.Helper()
	const name, label = `[a-z_][a-z0-9_]*`, `[a-z_][a-z0-9_]*="[^"\\\n]*"`
	sample := regexp.MustCompile(`^(` + name + `)(?:\{(` + label + `(?:,` + label + `)*)\})? (\S+)$`)
	kinds, family, last, below := map[string]string{}, "", "", 0.0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, meaning, _ := strings.Cut(help, " ")
			if kinds[name] != "" || meaning == "" {
				t.Errorf("%s is there twice, or has no help", name)
			}
			family, last = name, ""
			continue
		} else if kind, ok := strings.CutPrefix(line, "# TYPE "+family+" "); ok {
			kinds[family] = kind
			if strings.HasSuffix(family, "_total") != (kind == "counter") {
				t.Errorf("%s is a %s", family, kind)
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%q is no sample", line)
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		name := m[1]
		if kinds[family] == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
			switch of, _, _ := strings.Cut(m[2], "le="); {
			case strings.HasSuffix(m[1], "_bucket") && value < below && of == last:
				t.Errorf("a bucket is smaller than the one before: %s", line)
			case strings.HasSuffix(m[1], "_bucket"):
				last, below = of, value
			case strings.HasSuffix(m[1], "_count") && value != below:
				t.Errorf("the last bucket has %v: %s", below, line)
			}
		}
		if err != nil || name != family || kinds[name] == "" || value < 0 {
			t.Errorf("%q in the family %q of type %q", line, family, kinds[name])
		}
	}
}
