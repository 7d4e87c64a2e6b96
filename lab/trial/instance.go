package trial

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"podcount/lab/fakekube"
)

// Program is a controller on trial.
type Program struct {
	// Run runs the controller until ctx ends, and returns nil then. An error means that it has failed. Several may run
	// at once. In a bubble, all goroutines of the controller must have ended when Run returns.
	Run func(ctx context.Context, c Cluster) error

	// Elects says that replicas of the program elect a leader if Cluster names a Lease.
	Elects bool

	// UsesKubeconfig says that the program takes its credential from Cluster.Kubeconfig, and so can lose it.
	UsesKubeconfig bool

	// IsProxied says that the program reaches the server as through `kubectl proxy`: in plain HTTP, without a credential.
	IsProxied bool

	// Job is what the program does. nil means that it counts pods, as the package says.
	Job *Job

	// KnownFailures are rows that the program is known to fail, by their names, each with the reason. They are skipped.
	KnownFailures map[string]string

	command string // if set, the program is a process: see Command
}

// Cluster is the API server as one program sees it. All ways to it lead through the same network.
type Cluster struct {
	URL string // such as "https://127.0.0.1:6443"

	// Transport sends requests with a valid token, over Dial. It is for programs that do not read a kubeconfig. As in
	// client-go, HTTP/2 pings find out that a connection is dead.
	Transport http.RoundTripper

	// Dial connects to the server, whatever the address.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Kubeconfig is a file. Its user has a token, and a tokenFile with the same token.
	Kubeconfig string

	// Label is the key of the label to keep. NodeLabel is that of a label for the number of a node's own pods, which only
	// the rows of Steps look at.
	Label, NodeLabel string

	// Lease is the NAMESPACE/NAME of the Lease to elect a leader by. If it is "", the program must not elect one: a
	// leader that cannot renew its Lease ends, and the row would show nothing else.
	Lease string

	// Identity is unique among the programs of a row.
	Identity string

	// Output takes what the program prints.
	Output io.Writer
}

// Job is another job than to count pods.
type Job struct {
	// Setup creates the objects that are there at first.
	Setup func(f *fakekube.Server)

	// Change changes what the controller reads, in another way each time: n is 1, 2, 3 and so on. What is right after a
	// change must never have been right before.
	Change func(f *fakekube.Server, n int)

	// Right returns nil if the controller has done what it has to do, and otherwise an error that says what is wrong.
	Right func(f *fakekube.Server) error

	// Reads and Writes select the requests that a fault in reading or writing affects, in the words of
	// fakekube.Requests.Resource: "widgets", "configmaps|secrets", "widgets/status".
	Reads, Writes string
}

// instance is a running program, with its own way to the API server.
type instance struct {
	Cluster
	who       string
	host      string // by which the program calls the server, and which is its own
	net       *fakekube.Network
	recorder  *recorder
	transport *http.Transport
	process   process
	isGone    bool // the timeline says that the program has ended by itself
}

// process is a program that has been started. Its methods may be called at any time.
type process interface {
	terminate()            // asks it to stop, as SIGTERM does
	kill()                 // ends it at once
	freeze()               // stops its work, as SIGSTOP does
	thaw()                 // lets a frozen one work on
	done() <-chan struct{} // is closed when it has ended
	ending() string        // how it has ended; "" if it stopped when it was asked to
	code() int             // the exit code, when it has ended; -1 if a signal has ended it
	output() string        // the end of what it has printed
	peak() float64         // the most memory that it took, in MiB; 0 if that is not known
}

// connect makes a way to the API server for the next program of the row.
func (s *scene) connect() *instance {
	n := len(s.instances) + 1
	p := &instance{who: "program"}
	if n > 1 {
		p.who = fmt.Sprintf("program %d", n)
	}
	p.recorder = &recorder{api: s.api, timeline: s.timeline, who: p.who}
	p.recorder.answered = func(rt fakekube.Route, code int) { s.answered(p, rt, code) }
	server := &http.Server{Handler: p.recorder}
	scheme := "http://"
	if s.trial.program.IsProxied {
		server.Handler = proxy{p.recorder, s.token}
	} else {
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{s.trial.certificate}}
		scheme = "https://"
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		pass(ctx, p.recorder.delay)
		return p.net.Dial(ctx, network, address)
	}
	if s.isVirtual {
		p.recorder.delay = virtualDelay
		p.net = fakekube.NewNetwork(server)
		p.host = fmt.Sprintf("127.0.0.1:%d", 6443+n)
	} else {
		p.net = fakekube.NewTCPNetwork("127.0.0.1:0", server)
		p.host = p.net.Addr()
	}
	dir := filepath.Join(s.dir, fmt.Sprint(n))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		panic(err)
	}
	p.transport = &http.Transport{
		DialContext:       dial,
		TLSClientConfig:   &tls.Config{RootCAs: s.trial.authority.Pool()},
		ForceAttemptHTTP2: true,
		IdleConnTimeout:   90 * time.Second, // as in http.DefaultTransport
		HTTP2:             &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	p.Cluster = Cluster{
		URL:        scheme + p.host,
		Transport:  withToken{p.transport, s.token},
		Dial:       dial,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		Label:      s.label,
		NodeLabel:  s.label + "-here",
		Identity:   fmt.Sprintf("trial-%d", n),
	}
	if s.row.needs&needsElection != 0 {
		p.Lease = leaseNamespace + "/" + s.prefix + leaseName
	}
	p.writeCredential(s, s.token)
	s.instances = append(s.instances, p)
	if s.counting != nil {
		s.counting.know()
	}
	return p
}

// virtualDelay is how long it takes in virtual time to connect, and to answer. Without it, a program that asks again at
// once would do so for ever at the same moment, and no time would pass.
const virtualDelay = 5 * time.Millisecond

// pass lets some time pass, but not longer than ctx lasts.
func pass(ctx context.Context, d time.Duration) {
	if d == 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// writeCredential lets the program's kubeconfig and its file hold a token.
func (p *instance) writeCredential(s *scene, token string) {
	file := filepath.Join(filepath.Dir(p.Kubeconfig), "token")
	user := fakekube.Object{"token": token, "tokenFile": file}
	err := errors.Join(
		replaceFile(file, []byte(token)),
		replaceFile(p.Kubeconfig, fakekube.KubeconfigJSON(p.URL, s.trial.authority.PEM(), user)),
	)
	if err != nil {
		panic(err)
	}
}

// replaceFile writes a file at once. One that is written in place would be empty for a moment.
func replaceFile(name string, text []byte) error {
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// proxy adds a token to requests, as `kubectl proxy` does.
type proxy struct {
	api   http.Handler
	token string
}

func (p proxy) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	q.Header.Set("Authorization", "Bearer "+p.token)
	p.api.ServeHTTP(w, q)
}

// withToken sends requests with a token.
type withToken struct {
	http.RoundTripper
	token string
}

func (t withToken) RoundTrip(q *http.Request) (*http.Response, error) {
	q = q.Clone(q.Context())
	q.Header.Set("Authorization", "Bearer "+t.token)
	return t.RoundTripper.RoundTrip(q)
}

// CloseIdleConnections lets http.Client and client-go close the connections below.
func (t withToken) CloseIdleConnections() { t.RoundTripper.(*http.Transport).CloseIdleConnections() }

// start starts the program of an instance.
func (p *instance) start(s *scene) {
	s.say("starts the %s", p.who)
	if s.trial.program.command != "" {
		p.process = startCommand(s.trial.program.command, p.Cluster)
	} else {
		p.process = startFunction(s.trial.program.Run, p.Cluster, p.net)
	}
}

// hasEnded reports whether the program was started, and has ended.
func (p *instance) hasEnded() bool {
	if p.process == nil {
		return false
	}
	select {
	case <-p.process.done():
		return true
	default:
		return false
	}
}

// close ends the program and its network.
func (p *instance) close() {
	if p.process != nil {
		p.process.kill()
		<-p.process.done()
	}
	p.transport.CloseIdleConnections()
	p.net.Close()
	// The transport may still be connecting for a request that has ended. In virtual time, it must come to its end.
	pass(context.Background(), p.recorder.delay)
}
