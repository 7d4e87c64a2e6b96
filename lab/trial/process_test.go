package trial

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestMain makes this binary the program on trial if it was started by one.
func TestMain(m *testing.M) {
	if os.Getenv("TRIAL_LABEL") == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fmt.Println("the program runs")
	c, err := clusterOf(os.Getenv)
	if err == nil {
		err = poller{}.run(ctx, c)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	os.Exit(0)
}

// clusterOf returns the cluster that the environment of a program describes.
func clusterOf(getenv func(string) string) (Cluster, error) {
	text, err := os.ReadFile(getenv("KUBECONFIG"))
	if err != nil {
		return Cluster{}, err
	}
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct{ Token, TokenFile string }
		}
	}
	if err := json.Unmarshal(text, &config); err != nil {
		return Cluster{}, err
	}
	user := config.Users[0].User
	token, err := os.ReadFile(user.TokenFile)
	if err == nil && string(token) != user.Token {
		err = errors.New("the token is not that of the tokenFile")
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	return Cluster{
		URL:       config.Clusters[0].Cluster.Server,
		Transport: withToken{transport, string(token)},
		Label:     getenv("TRIAL_LABEL"),
		Lease:     getenv("TRIAL_LEASE"),
		Identity:  getenv("TRIAL_IDENTITY"),
	}, err
}

// tryInRealTime puts a line for a shell on trial.
func tryInRealTime(t *testing.T, ctx context.Context, line string, words ...string) (results []Result, began int) {
	t.Helper()
	p := Command(line)
	p.Elects = true
	results, err := All(ctx, p, Options{
		Words: words,
		Began: func(Row) { began++ },
		Ended: func(Result) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	return results, began
}

func TestProcessPassesRowsInRealTime(t *testing.T) {
	results, _ := tryInRealTime(t, t.Context(), os.Args[0], "killed", "stop at the start")
	if len(results) != 2 {
		t.Errorf("%d rows ran, want 2", len(results))
	}
	for _, r := range results {
		if r.Verdict != Right || r.Peak == 0 || !strings.Contains(r.Output, "the program runs") {
			t.Errorf("%s, %.0f MiB, %q\n%s", r.Verdict, r.Peak, r.Output, r.Story())
		}
	}
}

func TestProcessThatExitsIsQuoted(t *testing.T) {
	results, began := tryInRealTime(t, t.Context(), "echo not today; exit 3", "counts")
	r := results[0]
	isQuoted := strings.Contains(r.Story(), "| not today")
	if r.Verdict != Exited || !strings.Contains(r.Detail, "exit status 3") || !isQuoted {
		t.Error(r.Story())
	}
	if began != 1 {
		t.Errorf("%d rows have begun, want 1", began)
	}
}

func TestNothingElseRunsIfTheProgramCannotCount(t *testing.T) {
	results, began := tryInRealTime(t, t.Context(), "exit 3")
	last := results[len(results)-1]
	if began != 1 || last.Verdict != Skipped || last.Detail != "it has failed the row counts" {
		t.Errorf("%d rows have begun, and the last one was %q: %s", began, last.Verdict, last.Detail)
	}
}

func TestTrialEndsWhenItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	time.AfterFunc(time.Second, stop)
	results, _ := tryInRealTime(t, ctx, os.Args[0], "list unanswered", "event lost")
	if results[0].Verdict != Interrupted || results[1].Verdict != Skipped {
		t.Errorf("the verdicts are %q and %q", results[0].Verdict, results[1].Verdict)
	}
	if got := Count(results); got != "0 rows passed, 0 failed, 2 skipped or interrupted" {
		t.Error(got)
	}
}

func TestUnknownRowIsAnError(t *testing.T) {
	_, err := All(t.Context(), Command("true"), Options{Words: []string{"no such row"}})
	if err == nil || !strings.Contains(err.Error(), "no such row") {
		t.Errorf("the error is %v", err)
	}
}
