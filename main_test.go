package main

// main_test.go shows what the whole program does, most of it against internal/fakekube in virtual time (testing/synctest),
// and some of it on a real cluster (make e2e). What one of the other files does alone is shown beside that file.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/behaviours"
	"podcount/internal/fakekube"
	"podcount/internal/kube"
	"podcount/internal/kubeconfig"
	"podcount/internal/options"
	"podcount/internal/retry"
	"podcount/internal/sim"
	"podcount/internal/suite"
	"podcount/internal/testkit"
)

func TestMain(m *testing.M) {
	switch {
	case os.Getenv(fakekube.ExecPluginDir) != "":
		os.Exit(fakekube.RunExecPlugin(os.Getenv(fakekube.ExecPluginDir)))
	case os.Getenv("PODCOUNT_TEST_MAIN") != "":
		main() // the program itself, for tests of signals and exit codes
		os.Exit(0)
	}
	controllers = slices.DeleteFunc(controllers, isNotBuiltIn)
	os.Exit(fakekube.RunTests(m))
}

// isNotBuiltIn finds the controllers that somebody has added in a file of their own. The tests here are about the
// requests and the output of the others.
func isNotBuiltIn(c Controller) bool {
	return !slices.Contains([]string{"pod-count", "count", "pod-printer"}, c.Name)
}

// ---------------------------------------------------------------------------------------------------------------------
// Test harness

// podcount is the program that the suite runs.
var podcount suite.Program = run

// The harness, by the names that these tests have for it.
type (
	logBuffer = testkit.Buffer
	program   = suite.Process
	wiring    = suite.Wiring
)

const (
	podCountLabel = suite.TotalLabel
	ownPodsLabel  = suite.OwnPodsLabel
	leasePath     = suite.LeasePath
)

var (
	startPodcount     = podcount.Start
	startOverTLS      = podcount.StartOverTLS
	startPodcountOn   = podcount.StartOn
	startPodcountWith = podcount.StartWith
	startReplica      = podcount.StartReplica

	at          = suite.At
	fewer       = testkit.Fewer
	isList      = suite.IsList
	leaseKey    = suite.LeaseKey
	leaseNow    = suite.LeaseNow
	meetFaults  = suite.MeetFaults
	pass        = testkit.Pass
	simulate    = suite.Simulate
	statusFault = suite.StatusFault
	surviveFrom = suite.SurviveFrom
	wantLabel   = suite.WantLabel
	wantNumber  = testkit.WantNumber
	wantPeace   = suite.WantPeace
	wantText    = testkit.WantText
	writeFiles  = testkit.WriteFiles
	process     = suite.RunBinary
)

func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

const (
	controlPlane    = "node-role.kubernetes.io/control-plane"
	oldControlPlane = "node-role.kubernetes.io/master"
)

func quietLog() *Log { return newLog(io.Discard, &options.Options{}) }

func TestLabels(t *testing.T)        { suite.Labels.Run(t, run) }
func TestFormats(t *testing.T)       { suite.Formats.Run(t, run) }
func TestEvents(t *testing.T)        { suite.Events.Run(t, run) }
func TestWrites(t *testing.T)        { suite.Writes.Run(t, run) }
func TestDroppedLabels(t *testing.T) { suite.DroppedLabels.Run(t, run) }
func TestOutages(t *testing.T)       { suite.Outages.Run(t, run) }
func TestSurvival(t *testing.T)      { suite.Survival.Run(t, run) }
func TestScale(t *testing.T)         { suite.Scale.Run(t, run) }
func TestStop(t *testing.T)          { suite.Stop.Run(t, run) }
func TestOutput(t *testing.T)        { suite.Output.Run(t, run) }
func TestUsage(t *testing.T)         { suite.Usage.Run(t, run) }
func TestProcesses(t *testing.T)     { suite.Processes.Run(t, run) }
func TestControllers(t *testing.T)   { suite.Controllers.Run(t, run) }
func TestCounts(t *testing.T)        { suite.Counts.Run(t, run) }
func TestOddCounts(t *testing.T)     { suite.OddCounts.Run(t, run) }
func TestOnce(t *testing.T)          { suite.Once.Run(t, run) }
func TestDryRun(t *testing.T)        { suite.DryRun.Run(t, run) }
func TestListen(t *testing.T)        { suite.Listen.Run(t, run) }
func TestManifests(t *testing.T)     { suite.Manifests.Run(t, run) }
func TestRights(t *testing.T)        { suite.Rights.Run(t, run) }
func TestSources(t *testing.T)       { suite.Sources.Run(t, run) }
func TestElection(t *testing.T)      { suite.Election.Run(t, run) }

// Topics end here.

func TestControllerThatHangsKeepsNeitherTheProcessNorTheLease(t *testing.T) {
	for where, goroutine := range map[string]string{"reconcile": "worker of hangs", "tick": "controller hangs"} {
		t.Run(where, func(t *testing.T) {
			hang := make(chan struct{})
			waitIn := func(place string) { // whatever a context says
				if place == where {
					<-hang
				}
			}
			withController(t, Controller{Name: "hangs", Setup: func(m *manager, c *Controller) {
				Watch(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
				c.Resync = func() []Key {
					waitIn("tick")
					return nil
				}
				c.Reconcile = func(context.Context, Key) (Result, error) {
					waitIn("reconcile")
					return Result{}, nil
				}
			}})
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				hang = make(chan struct{})
				defer close(hang)
				f.AddNode("cp", controlPlane)
				p := startReplica(t, f, "a")
				pass(10 * time.Second)
				wantLabel(t, f, "cp", podCountLabel, "0")
				stopped := time.Now()
				if err := p.Stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > drainTimeout+hangTimeout {
					t.Errorf("it took %v to stop", took)
				}
				wantText(t, p.Log.String(), "something hangs: podcount ends without it")
				wantText(t, p.Log.String(), goroutine)
				if fakekube.TextIn(leaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", leaseNow(f))
				}
			})
		})
	}
}

func TestSecondSignalExitsAndCopiesOfTheFirstDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		var stops, exits int
		go obeySignals(signals, func() { stops++ }, func(string) { exits++ })
		want := func(when string, wantStops, wantExits int) {
			t.Helper()
			synctest.Wait()
			if stops != wantStops || exits != wantExits {
				t.Errorf("%s: %d stops and %d exits, want %d and %d", when, stops, exits, wantStops, wantExits)
			}
		}
		want("before any signal", 0, 0)
		signals <- syscall.SIGTERM
		want("after the first", 1, 0)
		signals <- syscall.SIGTERM
		pass(signalCopyWindow - 1)
		signals <- syscall.SIGTERM
		want("after its copies", 1, 0)
		pass(1)
		signals <- os.Interrupt
		want("after the second", 1, 1)
	})
}

func TestStopThatTakesTooLongIsAnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		exits := make(chan string, 2)
		go obeySignals(signals, func() {}, func(why string) { exits <- why })
		signals <- syscall.SIGTERM
		pass(endTimeout - 1)
		wantNumber(t, "exits before its end", len(exits), 0)
		pass(1)
		wantNumber(t, "exits at its end", len(exits), 1)
		wantText(t, <-exits, "the shutdown hangs: it has not ended in 26s")
		close(signals)
	})
}

// Nothing but its own limits may end a wait: neither what never ends, nor what ends late.
func TestWhatDoesNotEndIsLeftBehindAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, never := &logBuffer{}, make(chan struct{})
		m := &manager{log: newLog(log, &options.Options{})}
		m.running.Go("worker of x", func() { <-never })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		m.awaitEnd("a controller", never, ctx)
		if took := time.Since(start); took != 5*time.Second+hangTimeout {
			t.Errorf("it was waited for %v", took)
		}
		wantText(t, log.String(), `what="a controller" running="worker of x"`)
		close(never)
		start = time.Now()
		m.awaitEnd("a controller", never, t.Context())
		if took := time.Since(start); took != 0 {
			t.Errorf("what had ended was waited for %v", took)
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The manager

func TestControllersHelpListsThem(t *testing.T) {
	out := &logBuffer{}
	if err := run(t.Context(), []string{"-controllers", "help"}, os.Getenv, out, out, nil); err != nil {
		t.Error(err)
	}
	wantNumber(t, "lines of help", strings.Count(out.String(), "\n"), len(controllers))
	wantText(t, out.String(), "pod-printer  off  prints the pods")
	wantText(t, out.String(), "pod-count    on   writes the numbers")
}

// withController adds a controller for the time of a test.
func withController(t *testing.T, c Controller) {
	before := controllers
	controllers = append(slices.Clip(controllers), c)
	t.Cleanup(func() { controllers = before })
}

func TestControllerThatPanicsTakesNobodyDownAndIsTriedAgain(t *testing.T) {
	var reconciled atomic.Int32
	withController(t, Controller{Name: "broken", Setup: func(m *manager, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) []Key {
			if d.Old == nil {
				panic("keys of a new pod")
			}
			return []Key{d.Key()}
		})
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			var nothing *Pod
			return Result{}, errors.New(nothing.NodeName)
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f)
		pass(20 * time.Second)
		f.AddPod("default", "more", "")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if n := reconciled.Load(); n < 10 || n > 40 { // two keys, each with a backoff from 5 ms on
			t.Errorf("tried %d times", n)
		}
		wantNumber(t, "stacks", strings.Count(p.Log.String(), "a controller panics"), 1)
		wantText(t, p.Log.String(), "level=ERROR msg=\"a controller panics\" controller=broken")
		wantText(t, p.Log.String(), "main_test.go")
		wantText(t, p.Log.String(), `msg="cannot reconcile" controller=broken`)
		wantPeace(t, f)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The controller count

// The bytes in the tour are those of the recording, which is what the tour says it is.
func TestTourShowsRealBytes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	frame := recording(t, "watch-added.pb")
	var shown []byte
	for _, m := range regexp.MustCompile(`(?m)^    00[0-9a-f]0  ((?:[0-9a-f]{2} +)+)`).FindAllStringSubmatch(string(readme), -1) {
		line, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, line...)
	}
	if len(shown) < 160 || !bytes.HasPrefix(frame, shown) {
		t.Errorf("%d bytes are shown; the recording has % x", len(shown), frame[:160])
	}
	wantText(t, string(readme), fmt.Sprintf("%d bytes more come out of it", len(frame)))
	kind := podKind()
	kind.Labels = []string{"app"}
	events := 0
	err = newDecoder(kind).events(bytes.NewReader(frame), true, func(ev WatchEvent[*Pod]) error {
		events++
		p := ev.Object
		if ev.Type != "ADDED" || p.Key().String() != "default/web-0" || p.UID() != "cc0c67d4-f651-49fc-b1ea-6eb2223f16f7" || p.ResourceVersion() != "432" || labelsOf(&p.Meta)["app"] != "web" {
			t.Errorf("%+v", ev)
		}
		return nil
	})
	if err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// What several tests need; selectors, Events, clocks

// ---------------------------------------------------------------------------------------------------------------------
// The way in: kubeconfigs, credentials, TLS

func TestKubectlProxyServesBesideTheKubeconfigOfAnotherCluster(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Allow("of-this-cluster")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig("https://another", nil, "token: of-another")})
		n := fakekube.ServeHandlerIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// As kubectl proxy does: what a client says of itself comes first.
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer of-this-cluster")
			}
			f.ServeHTTP(w, r)
		}))
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-master", "http://127.0.0.1:8001", "-once")
		if err := p.Finish(); err != nil {
			t.Error(err)
		}
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

func TestMainJobOverTLSAndHTTP2WithATokenAndWithAClientCertificate(t *testing.T) {
	ca1 := fakekube.NewAuthority(t, "clients")
	cert, key := ca1.Issue(t, "me", fakekube.AsAdmin)
	f := fakekube.New()
	f.Allow("good")
	f.ClientCA = ca1.Pool()
	f.AddNode("cp", controlPlane)
	f.AddPods(3000) // enough for gzip
	server, ca := f.ServeTLSFor(t)
	for name, user := range map[string]string{
		"token":              "token: good",
		"client certificate": "client-certificate-data: " + base64.StdEncoding.EncodeToString(cert) + "\n    client-key-data: " + base64.StdEncoding.EncodeToString(key),
	} {
		f.SetLabel("cp", podCountLabel, nil)
		file := filepath.Join(t.TempDir(), "config")
		os.WriteFile(file, []byte(fakekube.Kubeconfig(server, ca, user)), 0o600)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		log := &logBuffer{}
		go func() {
			ended <- run(ctx, []string{"-kubeconfig", file}, func(string) string { return "" }, io.Discard, log, nil)
		}()
		f.Await(t, "the right label, by "+name, func() bool { return f.Label("cp", podCountLabel) == "3000" })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
	}
	for _, s := range f.Requests(func(s fakekube.Request) bool { return !s.HTTP2 }) {
		t.Errorf("not over HTTP/2: %s", s)
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Verb: "list", Resource: "pods"}, Do: fakekube.Reply{Code: 307, Header: map[string]string{"Location": "http://127.0.0.1:1/elsewhere"}, Body: "moved"}})
		p := startPodcount(t, f)
		synctest.Wait()
		wantText(t, p.Log.String(), "list pods: 307 Temporary Redirect")
		wantNumber(t, "requests elsewhere", len(f.Requests(func(s fakekube.Request) bool { return s.Path == "/elsewhere" })), 0)
	})
}

func TestTokenFileIsReadAgainEveryMinuteAndAfterA401AndAGapIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) { writeFiles(t, dir, map[string]string{"token": text}) }
	write("one\n")
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.Allow("one", "two", "three")
		n := f.ServeAs(t, dir, "tokenFile: token\n    token: the-file-wins")
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		users := func(want string) { // of the writes so far
			t.Helper()
			var got []string
			for _, s := range f.Requests(fakekube.IsWrite) {
				got = append(got, s.Token)
			}
			if users := strings.Join(got, " "); users != want {
				t.Errorf("written by %s, want %s", users, want)
			}
		}
		addPod := func() {
			f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
			pass(2 * time.Second)
		}
		users("one")
		write("two")
		addPod()
		users("one one")
		pass(time.Minute)
		addPod()
		users("one one two")
		write("three\n")
		f.Allow("three")
		addPod()
		users("one one two two three") // refused, and sent again at once
		for _, gap := range []func(){
			func() { write(" \n") },
			func() { write("half of one\n") },
			func() { os.Remove(filepath.Join(dir, "token")) },
		} {
			gap()
			pass(10 * time.Minute)
			addPod()
			pass(10 * time.Minute)
		}
		users("one one two two three three three three")
		wantNumber(t, "words on the gap", strings.Count(p.Log.String(), "going on with what there was"), 1)
		write("four")
		f.Allow("four")
		addPod()
		if writes := f.Requests(fakekube.IsWrite); writes[len(writes)-1].Token != "four" {
			t.Errorf("written by %s, want four", writes[len(writes)-1].Token)
		}
		wantNumber(t, "words on its end", strings.Count(p.Log.String(), "the credential can be read again"), 1)
	})
}

func TestWrongTokenIsTriedOnceAndNamedByItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("another")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"token": "s3cret"})
		p := startPodcountOn(t, f.ServeAs(t, dir, "tokenFile: token"), "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantNumber(t, "tries", len(f.Requests(func(fakekube.Request) bool { return true })), 3) // of each list, and of discovery, one
		wantText(t, p.Log.String(), "list pods: 401 Unauthorized: Unauthorized (what was not accepted: the token of "+dir+"/token)")
		if strings.Contains(p.Log.String(), "s3cret") {
			t.Error("the token is in the log")
		}
		f.Allow("s3cret")
		f.AddNode("cp", controlPlane)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A kubelet keeps a volume's files behind a link ..data, which it replaces.
func TestCertificatesThatChangeAreUsedByTheNextRequestWhileWatchesGoOn(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		old, recent, clients := fakekube.NewAuthority(t, "old CA"), fakekube.NewAuthority(t, "recent CA"), fakekube.NewAuthority(t, "clients")
		var server atomic.Pointer[tls.Certificate]
		serveWith := func(ca *fakekube.Authority) {
			certPEM, keyPEM := ca.Issue(t, "server", nil)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			server.Store(&pair)
		}
		dir := t.TempDir()
		swap := func(version, user string, cas ...*fakekube.Authority) {
			cert, key := clients.Issue(t, user, fakekube.AsAdmin)
			bundle := ""
			for _, ca := range cas {
				bundle += string(ca.PEM())
			}
			writeFiles(t, dir, map[string]string{version + "/ca.crt": bundle, version + "/tls.crt": string(cert), version + "/tls.key": string(key)})
			os.Symlink(version, filepath.Join(dir, "..tmp"))
			if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		swap("v1", "one", old)
		for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
			os.Symlink("..data/"+name, filepath.Join(dir, name))
		}
		config := strings.Replace(fakekube.Kubeconfig("https://127.0.0.1:1", nil, "client-certificate: tls.crt\n    client-key: tls.key"), "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		writeFiles(t, dir, map[string]string{"config": config})
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", controlPlane)
		serveWith(old)
		n := f.ServeIn(t, server.Load)
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		connections := n.Dialed()

		swap("v2", "two", old, recent)
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "connections, one of them new", n.Dialed(), connections+1)
		last := func(match func(fakekube.Request) bool) string {
			found := f.Requests(match)
			return found[len(found)-1].User
		}
		if last(fakekube.IsWrite) != "two" || last(fakekube.IsWatch("pods")) != "one" {
			t.Errorf("written by %s, watched by %s", last(fakekube.IsWrite), last(fakekube.IsWatch("pods")))
		}
		wantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 1)

		// The key of another certificate, a CA that is none, and nothing at all: the old ones stay.
		good, _ := os.ReadFile(dir + "/v2/tls.key")
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key"})
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		writeFiles(t, dir, map[string]string{"v2/tls.key": string(good)})
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantNumber(t, "words on the end of what did not fit", strings.Count(p.Log.String(), "can be read again"), 1)
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key", "v2/ca.crt": "no CA"})
		os.Remove(filepath.Join(dir, "v2/tls.crt"))
		pass(2 * time.Second)
		for range 3 {
			f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
			pass(time.Minute) // all in all less than 5, when watches may begin to end
		}
		wantLabel(t, f, "cp", podCountLabel, "6")
		wantNumber(t, "words on what is missing, and does not fit, once each time", strings.Count(p.Log.String(), "going on with what there was"), 2)

		serveWith(recent)
		swap("v3", "three", recent)
		pass(2 * time.Second) // a discovery may just have read the files
		f.EndWatches(true)
		pass(2 * time.Second)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "7")
		if last(fakekube.IsWrite) != "three" || last(fakekube.IsWatch("pods")) != "three" {
			t.Errorf("written by %s, watched by %s", last(fakekube.IsWrite), last(fakekube.IsWatch("pods")))
		}
		wantNumber(t, "lists of pods", len(f.Requests(isList("pods"))), 1)
		wantPeace(t, f, "-interval", "1s")
	})
}

func TestExecCredentialIsKeptUntilItExpiresOrIsRefused(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("starts dozens of processes, each half a second under the race detector, and one after the other")
	}
	dir := t.TempDir()
	runs := func() []string {
		text, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	answer := func(token string, expires time.Time) {
		status := fakekube.Object{"token": token}
		if !expires.IsZero() {
			status["expirationTimestamp"] = expires.UTC().Format(time.RFC3339)
		}
		writeFiles(t, dir, map[string]string{"answer": fakekube.ExecCredential("v1beta1", status)})
	}
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("one", "two")
		f.AddNode("cp", controlPlane)
		answer("one", time.Now().Add(10*time.Minute))
		n := f.ServeAs(t, dir, fakekube.ExecUser(t, dir, "v1beta1", ", interactiveMode: IfAvailable, provideClusterInfo: false"))
		config, _ := os.ReadFile(filepath.Join(dir, "config"))
		more := "    tls-server-name: 127.0.0.1\n    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: us}}, {name: else, extension: 1}]\n"
		writeFiles(t, dir, map[string]string{"config": strings.Replace(string(config), "    certificate-authority-data: ", more+"    certificate-authority-data: ", 1)})
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "runs, for all requests at the start", len(runs()), 1)
		want := `["get" "a token"] stdin="" REGION=eu {"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}`
		if runs()[0] != want {
			t.Errorf("it ran as\n%s, want\n%s", runs()[0], want)
		}

		answer("two", time.Time{})
		pass(11 * time.Minute)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "runs once it has expired", len(runs()), 2)
		pass(24 * time.Hour)
		wantNumber(t, "runs of what does not expire", len(runs()), 2)

		answer("three", time.Time{})
		f.Allow("three")
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantNumber(t, "runs once it was refused", len(runs()), 3)

		// A program that fails, and a server that refuses what it gives, cost a run each 5 s at most.
		writeFiles(t, dir, map[string]string{"answer": "exit the server of tokens is down"})
		f.Allow("four")
		f.EndWatches(false)
		pass(time.Minute)
		if n := len(runs()) - 3; n < 3 || n > 13 {
			t.Errorf("%d runs in a minute of failure", n)
		}
		wantText(t, p.Log.String(), `exit status 1, saying \"the server of tokens is down\"`)
		answer("wrong", time.Time{})
		pass(2 * time.Minute)
		before := len(runs())
		pass(time.Minute)
		if n := len(runs()) - before; n > 13 {
			t.Errorf("%d runs in a minute of refusals", n)
		}
		answer("four", time.Time{})
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(2 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, token := range []string{"\"one\"", "\"two\"", "=four", "\"four\"", "wrong"} {
			if strings.Contains(p.Log.String(), token) {
				t.Errorf("%s is in the log", token)
			}
		}
	})
}

func TestLabelsEqualTheTruthWhateverBecomesOfCredentials(t *testing.T) {
	token := "tokenFile: token"
	for name, c := range map[string]struct {
		from    string // in the kubeconfig; "" is an exec program
		happens func(f *fakekube.Server, write func(token string), pause func(seconds int))
	}{
		"a token is renewed in time": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("one", "two")
			write("two")
			pause(61)
			f.Allow("two")
			f.EndWatches(true)
		}},
		"a token is refused before there is another": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("two")
			f.EndWatches(true)
			pause(45)
			write("two")
		}},
		"a token's file is empty, then gone": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			write("")
			pause(61)
			f.Allow("two")
			f.EndWatches(true)
			write("-")
			pause(30)
			write("two")
		}},
		"a token's file has a wrong one first": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow("two")
			write("stranger")
			f.EndWatches(true)
			pause(30)
			write("two")
		}},
		"nobody is known to the server for a while": {token, func(f *fakekube.Server, write func(string), pause func(int)) {
			f.Allow()
			f.EndWatches(true)
			pause(45)
			f.Allow("one")
		}},
		"a program's token is refused": {"", func(f *fakekube.Server, write func(string), pause func(int)) {
			write("two")
			f.Allow("two")
		}},
		"a program fails just when it is needed": {"", func(f *fakekube.Server, write func(string), pause func(int)) {
			write("exit 1")
			f.Allow("two")
			f.EndWatches(true)
			pause(30)
			write("two")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(token string) {
				switch {
				case token == "-":
					os.Remove(filepath.Join(dir, "token"))
				case strings.HasPrefix(token, "exit"):
					writeFiles(t, dir, map[string]string{"answer": token})
				default:
					writeFiles(t, dir, map[string]string{"token": token, "answer": fakekube.ExecCredential("v1", fakekube.Object{"token": token})})
				}
			}
			from := c.from
			if from == "" {
				from = fakekube.ExecUser(t, dir, "v1", ", interactiveMode: Never")
			}
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				write("one")
				f.Allow("one")
				n := f.ServeAs(t, dir, from)
				start := func(args ...string) *program {
					return startPodcountOn(t, n, append(args, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")...)
				}
				surviveFrom(t, f, start, func(*program) {
					c.happens(f, write, func(seconds int) { retry.Sleep(t.Context(), time.Duration(seconds)*time.Second) })
				})
				if f.KnowsToken("two") && len(f.Requests(func(s fakekube.Request) bool { return s.Token == "two" })) == 0 {
					t.Error("the new token was not used")
				}
			})
		})
	}
}

func TestExecProgramMayGiveAClientCertificate(t *testing.T) {
	dir := t.TempDir()
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		servers, clients := fakekube.NewAuthority(t, "servers"), fakekube.NewAuthority(t, "clients")
		certPEM, keyPEM := servers.Issue(t, "server", nil)
		server, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		answer := func(name string, expires time.Time) {
			cert, key := clients.Issue(t, name, fakekube.AsAdmin)
			writeFiles(t, dir, map[string]string{"answer": fakekube.ExecCredential("v1", fakekube.Object{"clientCertificateData": string(cert), "clientKeyData": string(key), "expirationTimestamp": expires})})
		}
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", controlPlane)
		answer("one", time.Now().Add(time.Minute))
		writeFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig("https://127.0.0.1:1", servers.PEM(), fakekube.ExecUser(t, dir, "v1", ", interactiveMode: Never"))})
		startPodcountOn(t, f.ServeIn(t, func() *tls.Certificate { return &server }), "-kubeconfig", filepath.Join(dir, "config"))
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		answer("two", time.Now().Add(time.Hour))
		pass(time.Minute)
		f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		writes := f.Requests(fakekube.IsWrite)
		if len(writes) != 2 || writes[0].User != "one" || writes[1].User != "two" {
			t.Errorf("written by %v", writes)
		}
		wantNumber(t, "watches", len(f.Requests(fakekube.IsWatch("pods"))), 1)
	})
}

func TestStopEndsAStartThatWaitsForAFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, lines := process(t, nil, "-kubeconfig", dir+"/pipe")
		pipe, err := os.OpenFile(dir+"/pipe", os.O_WRONLY, 0) // waits until podcount has opened it to read
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		cmd.Process.Signal(sig)
		for line := range lines {
			t.Errorf("it says %s", line)
		}
		cmd.Wait()
		pipe.Close()
		if code := cmd.ProcessState.ExitCode(); code != 0 || time.Since(start) > 3*time.Second {
			t.Errorf("%v: exit code %d after %v", sig, code, time.Since(start))
		}
	}
}

// What a person sees on stderr who has this wrong: what was tried, and the next step.
func TestWhatIsWrongWithTheWayInIsSaidWithWhatWasTriedAndTheNextStep(t *testing.T) {
	ca, other := fakekube.NewAuthority(t, "the CA"), fakekube.NewAuthority(t, "another CA")
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	dialing := func(to string, err error) kube.Dialer {
		return func(context.Context, string, string) (net.Conn, error) {
			failed := &net.OpError{Op: "dial", Net: "tcp", Err: err}
			if ip, err := netip.ParseAddrPort(to); err == nil {
				failed.Addr = net.TCPAddrFromAddrPort(ip)
			}
			return nil, failed
		}
	}
	inSilence := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		config [2]string // of the kubeconfig, this in place of that
		args   string    // more of them
		dial   kube.Dialer
		issuer *fakekube.Authority // of the server's certificate, if not ca
		set    func(f *fakekube.Server)
		want   []string
	}{
		"no server": {dial: dialing("127.0.0.1:1", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: dial tcp 127.0.0.1:1: connect: connection refused (is the API server running, and is this its address?)"}},
		"no server, by -master": {args: "-master https://10.0.0.1", dial: dialing("10.0.0.1:443", refused),
			want: []string{": https://10.0.0.1, from -master, CONFIG, context fake: dial tcp 10.0.0.1:443: connect: connection refused (is the API server running, and is this its address?)"}},
		"no such host": {config: [2]string{"https://127.0.0.1:1", "https://nowhere"}, dial: dialing("", &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}),
			want: []string{": https://nowhere, from CONFIG, context fake: dial tcp: lookup nowhere: no such host (is the API server running, and is this its address?)"}},
		"no answer": {args: "-leader-elect", dial: inSilence,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: context deadline exceeded (is the API server running, and is this its address?)"}},
		"wrong CA": {issuer: other,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=another CA")`}},
		"self-signed certificate": {issuer: &fakekube.Authority{},
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=server")`}},
		"expired token": {set: func(f *fakekube.Server) { f.Allow("fresh") },
			want: []string{": 401 Unauthorized: Unauthorized (what was not accepted: the token of CONFIG, context fake): give one that has not expired, and is of this cluster"}},
		"missing right": {
			set: func(f *fakekube.Server) {
				f.AddUser("s3cret", "system:serviceaccount:kube-system:podcount", "system:masters")
				f.Forbid("list nodes", true)
			},
			want: []string{`list nodes: 403 Forbidden: nodes is forbidden: User "system:serviceaccount:kube-system:podcount" cannot list resource "nodes" in API group "" at the cluster scope`,
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["list"])`}},
		"missing right to write": {set: func(f *fakekube.Server) { f.Forbid("patch nodes", true) },
			want: []string{"patch nodes/cp: 403 Forbidden: ", `(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["patch"])`}},
		"wrong context": {args: "-context other", want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"wrong current-context": {config: [2]string{"current-context: fake", "current-context: other"},
			want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"unreachable proxy": {config: [2]string{"    server:", "    proxy-url: http://10.0.0.9:3128\n    server:"}, dial: dialing("10.0.0.9:3128", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused " +
				"(this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?)"}},
		"unreachable SOCKS proxy": {config: [2]string{"    server:", "    proxy-url: socks5://10.0.0.9:1080\n    server:"}, dial: dialing("10.0.0.9:1080", refused),
			want: []string{"proxyconnect tcp: dial tcp 10.0.0.9:1080: connect: connection refused (this is the proxy of"}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakekube.Server) {
				f.AddNode("cp", controlPlane)
				if c.set != nil {
					c.set(f)
				}
				cert, key := cmp.Or(c.issuer, ca).Issue(t, "server", nil)
				pair, err := tls.X509KeyPair(cert, key)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				config := filepath.Join(dir, "config")
				writeFiles(t, dir, map[string]string{"config": strings.Replace(fakekube.Kubeconfig("https://127.0.0.1:1", ca.PEM(), "token: s3cret"), c.config[0], c.config[1], 1)})
				n := f.ServeIn(t, func() *tls.Certificate { return &pair })
				p := startPodcountWith(t, n, wiring{Dial: c.dial}, append([]string{"-kubeconfig", config, "-log-format", "json"}, strings.Fields(c.args)...)...)
				pass(10 * time.Second)
				said := ""
				for line := range strings.Lines(p.Log.String()) {
					var fields fakekube.Object
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					said += fakekube.TextIn(fields, "err") + "\n"
				}
				if err := p.Stop(); err != nil {
					said += "podcount: " + err.Error() + "\n"
				}
				for _, want := range c.want {
					wantText(t, said, strings.ReplaceAll(want, "CONFIG", config))
				}
				if strings.Contains(p.Log.String(), "s3cret") {
					t.Error("the token is in the log")
				}
			})
		})
	}
}

func TestUnreachableProxyOfTheEnvironmentIsNamed(t *testing.T) {
	cmd, lines := process(t, []string{"HTTPS_PROXY=http://127.0.0.1:1"}, "-master", "https://0.0.0.0:1")
	for line := range lines {
		if strings.Contains(line, "cannot") {
			wantText(t, line, "https://0.0.0.0:1, from -master: proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused (this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running")
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
}

func TestProxyOfTheEnvironmentIsUsedButForWhatItExcepts(t *testing.T) {
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	for except, want := range map[string]string{"": "CONNECT 0.0.0.0:1", "0.0.0.0": ""} { // not 127.0.0.1, which never goes to a proxy
		cmd, lines := process(t, []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=" + except}, "-master", "https://0.0.0.0:1")
		for line := range lines {
			if strings.Contains(line, "cannot ") {
				break
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		got := ""
		select {
		case got = <-asked:
		default:
		}
		if got != want {
			t.Errorf("NO_PROXY=%s: the proxy was asked %q, want %q", except, got, want)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The command line, and the program as a process

func TestVersionIsPrinted(t *testing.T) {
	out := &logBuffer{}
	if err := run(t.Context(), []string{"-version"}, func(string) string { return "" }, out, io.Discard, nil); err != nil || !strings.HasPrefix(out.String(), "podcount "+version+" go1.") {
		t.Errorf("%q, %v", out, err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Once, dry and pruned

func TestOnceTriesAgainWhatAControllerPanickedAbout(t *testing.T) {
	var asked atomic.Bool
	var reconciled atomic.Int32
	withController(t, Controller{Name: "flaky", Setup: func(m *manager, c *Controller) {
		Watch(c, m.nodes, func(d Delta[*Node]) []Key {
			if !asked.Swap(true) {
				panic("once")
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("n1")
		f.AddNode("n2")
		if err := startPodcount(t, f, "-once", "-controllers", "flaky").Finish(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "nodes that were reconciled", int(reconciled.Load()), 2)
	})
}

func TestControllerWhoseNumbersOrTicksPanicEndsNothingElse(t *testing.T) {
	withController(t, Controller{Name: "odd", Setup: func(m *manager, c *Controller) {
		Watch(c, m.nodes, func(Delta[*Node]) []Key { return nil })
		c.Totals = func() Totals { panic("numbers") }
		c.Resync = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		if err := startPodcount(t, f, "-once", "-controllers", "pod-count,odd").Finish(); err == nil ||
			!strings.Contains(err.Error(), "-once: odd cannot name the objects that need work: panic: tick") {
			t.Errorf("-once ended with %v", err)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
		f.AddPods(3)
		p := startPodcount(t, f, "-controllers", "pod-count,odd")
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Health, metrics and state

func TestLiveTellsAWorkerThatHangs(t *testing.T) {
	var m *manager
	hang := make(chan struct{})
	withController(t, Controller{Name: "hangs", Setup: func(of *manager, c *Controller) {
		m = of
		Watch(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
		c.Reconcile = func(context.Context, Key) (Result, error) {
			<-hang
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		hang = make(chan struct{})
		f.AddNode("cp", controlPlane)
		startPodcount(t, f, "-qps", "0.1", "-workers", "2")
		live := func() (code int, text string) {
			answer := httptest.NewRecorder()
			m.pages().ServeHTTP(answer, httptest.NewRequest("GET", "/livez", nil))
			return answer.Code, answer.Body.String()
		}
		limit := 2*kube.RequestTimeout + 20*time.Second // two workers may have to wait for a token of -qps each
		pass(limit - time.Second)
		if code, text := live(); code != 200 {
			t.Errorf("before the limit: %d %s", code, text)
		}
		pass(2 * time.Second)
		if code, text := live(); code != 503 || text != "does not move: hangs: a worker has been processing cp for 2m31s\n" {
			t.Errorf("after the limit: %d %q", code, text)
		}
		close(hang)
		pass(time.Second)
		if code, text := live(); code != 200 || text != "ok\n" {
			t.Errorf("when it is over: %d %q", code, text)
		}
	})
}

// Whoever graphs a number must not see a 0 where nobody has counted, or what has been removed.
func TestGaugesOfWhatIsNotThereAreAbsent(t *testing.T) {
	var m *manager
	withController(t, Controller{Name: "looks", Setup: func(of *manager, c *Controller) {
		m = of
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		metrics := func() string {
			answer := httptest.NewRecorder()
			m.pages().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			return answer.Body.String()
		}
		wantGauges := func(when string, present bool, names ...string) {
			t.Helper()
			text := metrics()
			for _, name := range names {
				if strings.Contains(text, "\n"+name+" ") != present {
					t.Errorf("%s: is there a %s? want %v", when, name, present)
				}
			}
		}
		ofCounts := []string{
			`podcount_cache_objects{kind="Count"}`, `podcount_watch_age_seconds{kind="Count"}`,
		}
		ofQueue := func(name string) []string {
			return []string{
				`workqueue_depth{name="` + name + `"}`,
				`workqueue_unfinished_work_seconds{name="` + name + `"}`,
				`workqueue_longest_running_processor_seconds{name="` + name + `"}`,
			}
		}
		f.AddNode("cp", controlPlane)
		f.Inject(t, fakekube.Fault{On: fakekube.Requests{Resource: "/api/v1/pods"}, Do: fakekube.Reply{Code: 503, Body: "{}"}})
		startPodcount(t, f, "-controllers", "*,looks")
		synctest.Wait()
		wantGauges("before the lists", false, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("before the lists", false, ofQueue("pod-count")...)
		wantGauges("before the lists", true, `podcount_watch_age_seconds{kind="Pod"}`)
		pass(time.Minute)
		wantGauges("at work", true, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("at work", true, ofQueue("pod-count")...)
		wantGauges("without a CRD", false, ofCounts...)
		wantGauges("without a CRD", false, ofQueue("count")...)
		f.InstallCRD(&fakekube.CRD{HasStatus: true})
		pass(time.Minute)
		wantGauges("with the CRD", true, ofCounts...)
		wantGauges("with the CRD", true, ofQueue("count")...)
		f.InstallCRD(nil)
		pass(time.Minute)
		wantGauges("when the CRD is gone", false, ofCounts...)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The manifest

// ---------------------------------------------------------------------------------------------------------------------
// Simulated time: a seed chooses a cluster's life and its faults

// podcountSimulated is what the simulation has to know of podcount.
func podcountSimulated(seed uint64) sim.Options {
	return sim.Options{
		Program: func(
			ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
			dial func(ctx context.Context, network, addr string) (net.Conn, error),
		) error {
			return run(ctx, args, getenv, stdout, stderr, dial)
		},
		Name: "podcount",
		Rerun: func(seed uint64) string {
			return fmt.Sprintf("make sim SEEDS=%d-%d runs the same life and faults; STORY=all shows the whole story", seed, seed)
		},
		Seed:              seed,
		WholeStory:        os.Getenv("STORY") == "all",
		TotalLabel:        podCountLabel,
		OwnPodsLabel:      "hopegi/here",
		ControlPlaneLabel: controlPlane,
		LeaseNamespace:    leaseKey.Namespace,
		LeaseName:         leaseKey.Name,
		LeaseLost:         "the lease is lost",
		LongestBackoff:    time.Minute,
		LongestDiscovery:  discoveryInterval * 6 / 5,
		Silence:           kube.Silence,
		LongestUnlisted:   75 * time.Minute,
		StatusRest:        time.Second,
	}
}

// Without SEEDS this runs as many seeds as fit in 20 s, five with the race detector; with SEEDS=N those up to N, with
// SEEDS=A-B those from A to B.
func TestSimulation(t *testing.T) {
	seeds := sim.Seeds{First: 1, Last: math.MaxInt64, Limit: 20 * time.Second}
	if fewer(1) == 0 {
		seeds.Last = 5
		seeds.Limit = time.Hour
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		seeds, err = sim.ParseSeeds(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(800)) // speed
	}
	sim.RunSeeds(t, podcountSimulated(0), seeds)
}

// rewriter writes text with words replaced.
type rewriter struct {
	to    io.Writer
	words *strings.Replacer
}

func (w *rewriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.to, w.words.Replace(string(text)))
	return len(text), err
}

// The simulation reads of the log what each process has heard. If the log has other words some day, it must not go on
// as if nothing had been said.
func TestSimulationFailsIfItDoesNotUnderstandTheLog(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no JSON", `{"time"`, `time`, "logs a line that cannot be read"},
		{"no list", `"msg":"listed"`, `"msg":"it lists"`, "that it has listed pods"},
		{"no watch", `"msg":"watching"`, `"msg":"it watches"`, "that it watches pods"},
		{"no discovery", `"msg":"discovered"`, `"msg":"found"`, "that it has discovered counts"},
		{"other version", `watching","kind":"Pod","rv":"`, `watching","kind":"Pod","rv":"1`, "it has not asked for"},
		{"no version", `"rv":`, `"version":`, "logs a line that lacks rv"},
		{"version that is none", `"rv":"`, `"rv":"v`, "logs a line whose rv is no version"},
		{"other kind", `"kind":"Pod"`, `"kind":"pods"`, "should name a kind that it watches"},
		{"no stale", `"stale":`, `"old":`, "logs an event that lacks stale"},
		{"other type", `"msg":"MODIFIED `, `"msg":"CHANGED `, "logs an event of an unknown type"},
		{"no key", `"msg":"MODIFIED Node `, `"msg":"MODIFIED Node", "key":"`, "logs an event without a kind or a key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := podcountSimulated(3)
			podcount := o.Program
			o.Program = func(
				ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
				dial func(ctx context.Context, network, addr string) (net.Conn, error),
			) error {
				log := &rewriter{to: stderr, words: strings.NewReplacer(c.from, c.to)}
				return podcount(ctx, args, getenv, stdout, log, dial)
			}
			result := sim.Simulate(t, o)
			wantText(t, strings.Join(result.Broken, "\n"), c.want)
		})
	}
}

func TestSameSeedBringsTheSameLifeAndFaults(t *testing.T) {
	var scripts [3]string
	for i, seed := range []uint64{13, 13, 15} {
		scripts[i] = strings.Join(sim.Run(t, podcountSimulated(seed)).Script, "\n")
	}
	if scripts[0] != scripts[1] || scripts[0] == scripts[2] || len(scripts[0]) < 1000 {
		t.Errorf("seed 13 was\n%s\n\nand then\n%s", scripts[0], scripts[1])
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Behaviours: what holds on the fake holds on a real cluster

func TestBehavioursOnTheFake(t *testing.T) {
	f := fakekube.New()
	server, ca := f.ServeTLSFor(t)
	f.Allow("admin")
	f.Compact()
	file := filepath.Join(t.TempDir(), "config")
	config := fakekube.Kubeconfig(server, ca, "token: admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	o := podcountBehaviours()
	o.Fake = f
	o.Kubeconfig = file
	behaviours.Show(t, o)
}

// TestBehavioursOnARealCluster is what `make e2e KUBECONFIG=FILE` runs.
func TestBehavioursOnARealCluster(t *testing.T) {
	if os.Getenv("PODCOUNT_E2E") == "" {
		t.Skip("needs a cluster: make e2e KUBECONFIG=FILE")
	}
	o := podcountBehaviours()
	o.Kubeconfig = os.Getenv("KUBECONFIG")
	o.Context = os.Getenv("CONTEXT")
	behaviours.Show(t, o)
}

// podcountBehaviours returns the parts of podcount that the behaviours need.
func podcountBehaviours() behaviours.Options {
	return behaviours.Options{
		Program:      run,
		NewReflector: newPodReflector,
		DecodePods: func(list io.Reader, isProtobuf, isMetadataOnly bool) (pods []string, err error) {
			kind := Kind[*Pod]{
				Name:         "Pod",
				MetadataOnly: isMetadataOnly,
				Labels:       []string{"row"},
				New:          func() *Pod { return new(Pod) },
			}
			_, err = newDecoder(&kind).list(list, isProtobuf, func(p *Pod, text []byte) (bool, error) {
				p.text = string(text)
				pods = append(pods, describe(&Pod{p.Meta, ""}))
				return true, nil
			})
			return pods, err
		},
	}
}

// podReflector is podcount's Reflector of pods, as the behaviours use it.
type podReflector struct {
	*Reflector[*Pod]
	client *kube.Client
}

func newPodReflector(o behaviours.ReflectorOptions) behaviours.Reflector {
	log := newLog(o.Log, &options.Options{Verbosity: 4})
	client := newClient(&options.Options{}, o.Config, o.Dial, log)
	kind := Kind[*Pod]{
		Name:      "Pod",
		API:       "/api/v1",
		Resource:  "pods",
		Namespace: o.Namespace,
		Protobuf:  true,
		Selector:  o.LabelSelector,
		Fields:    o.FieldSelector,
		New:       func() *Pod { return new(Pod) },
	}
	r := newPodCache(client, log, kind)
	r.Subscribe(func(Delta[*Pod]) { o.Changed() })
	if o.Version != "" {
		r.version = o.Version
		r.relistAt = time.Now().Add(time.Hour)
	}
	return &podReflector{r, client}
}

func (r *podReflector) Run(ctx context.Context) {
	defer r.client.Close()
	r.Reflector.Run(ctx)
}

func (r *podReflector) Names() []string {
	var names []string
	for _, p := range r.Store.All() {
		names = append(names, p.Key().Name)
	}
	slices.Sort(names)
	return names
}

// ---------------------------------------------------------------------------------------------------------------------
// Benchmarks

func BenchmarkStartToLabel(b *testing.B) {
	for _, pods := range []int{10000, 100000} {
		for _, wire := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", wire, pods), func(b *testing.B) {
				c := &suite.Crowd{Pods: pods, Nodes: 1000}
				args := append(c.Serve(b), "-wire", wire)
				b.ReportAllocs()
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					done := make(chan error)
					go func() { done <- run(ctx, args, func(string) string { return "" }, io.Discard, io.Discard, nil) }()
					if total := <-c.Patched; total != strconv.Itoa(pods) {
						b.Fatal(total)
					}
					cancel()
					<-done
				}
			})
		}
	}
}

// The most memory that the program has had, with 400,000 pods.
func BenchmarkPeakMemory(b *testing.B) {
	program := filepath.Join(b.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	for _, c := range podLabels {
		b.Run(strings.ReplaceAll(c.name, " ", "-"), func(b *testing.B) {
			for b.Loop() {
				big := &suite.Crowd{Pods: 400000, Nodes: 1000, Labels: c.labels}
				cmd := exec.Command(program, big.Serve(b)...)
				if err := cmd.Start(); err != nil {
					b.Fatal(err)
				}
				if total := <-big.Patched; total != "400000" {
					b.Fatal(total)
				}
				status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
				cmd.Process.Kill()
				cmd.Wait()
				peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
				if peak == nil {
					b.Skip("memory is read from /proc")
				}
				kB, _ := strconv.Atoi(string(peak[1]))
				b.ReportMetric(float64(kB)/1000, "MB")
			}
		})
	}
}

func TestWhatIsPrintedAndNotReadIsSaidInTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logBuffer{}
		isBroken := true
		out := newOutputs(&options.Options{}, testkit.WriterFunc(func(b []byte) (int, error) {
			if isBroken {
				return 0, errors.New("broken pipe")
			}
			return len(b), nil
		}), log)
		fmt.Fprintln(out.printed, "one")
		synctest.Wait()
		isBroken = false
		fmt.Fprintln(out.printed, "two")
		out.flush(t.Context())
		wantText(t, log.String(), `msg="printed lines were dropped, because stdout was not read, or failed" lines=1`)
	})
}

// panicky is a controller whose function for the keys of pods panics while isBroken says so. It tells what it read.
func panicky(t *testing.T, isBroken func(Delta[*Pod]) bool) (keys *[]string, tries *atomic.Int64) {
	keys = new([]string)
	tries = new(atomic.Int64)
	withController(t, Controller{Name: "panicky", Setup: func(m *manager, c *Controller) {
		Watch(c, m.pods, func(d Delta[*Pod]) []Key {
			tries.Add(1)
			if isBroken(d) {
				panic("no keys of " + d.Key().Name)
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(_ context.Context, key Key) (Result, error) {
			*keys = append(*keys, key.Name)
			return Result{}, nil
		}
	}})
	return keys, tries
}

func TestKeysOfAChangeWhoseFunctionPanicsAreNotLost(t *testing.T) {
	var isBroken atomic.Bool
	keys, _ := panicky(t, func(d Delta[*Pod]) bool { return isBroken.Load() && d.Key().Name != "good" })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		startPodcount(t, f, "-workers", "1")
		pass(time.Second)
		isBroken.Store(true)
		f.AddPod("default", "bad", "")
		f.AddPod("default", "gone", "")
		f.Remove("pods", at("default", "gone"))
		f.AddPod("default", "good", "")
		pass(time.Minute)
		if got := strings.Join(*keys, " "); got != "good" {
			t.Errorf("while it panics, keys came of: %s", got)
		}
		isBroken.Store(false)
		pass(2 * time.Minute) // the longest backoff, and its jitter
		slices.Sort(*keys)
		if got := strings.Join(slices.Compact(*keys), " "); got != "bad gone good" {
			t.Errorf("in the end, keys came of: %s", got)
		}
	})
}

func TestControllerThatPanicsForEverIsSaidOnceAMinuteAndCostsLittle(t *testing.T) {
	_, tries := panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(1)
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		for i := range 1000 { // one object that changes, again and again
			f.AddPodWithLabels("changing", fakekube.Object{"n": strconv.Itoa(i)})
		}
		pass(10 * time.Minute)
		log := p.Log.String()
		wantNumber(t, "stacks", strings.Count(log, "main_test.go"), 1)
		if n := strings.Count(log, "a controller panics again"); n < 5 || n > 10 {
			t.Errorf("%d more lines in 10 minutes", n)
		}
		wantText(t, log, `msg="a controller panics again" controller=panicky err="panic: no keys of changing" times=`)
		before := tries.Load()
		pass(time.Hour)
		if n := tries.Load() - before; n < 60 || n > 60*(1+8) {
			t.Errorf("%d tries in an hour", n)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}

func TestOnceFailsWhereAFunctionThatPanicsCouldNotSayItsKeys(t *testing.T) {
	panicky(t, func(d Delta[*Pod]) bool { return true })
	simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", controlPlane)
		f.AddPods(2)
		p := startPodcount(t, f, "-once")
		<-p.Done
		wantText(t, fmt.Sprint(p.Stop()), "-once: panicky could not make 2 objects right")
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}
