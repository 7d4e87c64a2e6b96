// This is a Kubernetes controller in one file, of Go's standard library alone. It keeps a label of each control-plane
// node equal to the number of pods in the cluster, and another label of every node equal to the number of its own pods.
// Of several replicas, one writes.
//
// Copy it, and make your own controller of it: what it counts and writes is in run and wrongLabels. It passes 48 of the
// 49 rows of podcount's trial. It does not notice that a watch has lost an event: podcount compares its caches with a
// list once an hour. What else podcount does, and why, is in learn/12-one-of-two/README.md.
//
// It reads the kubeconfig $KUBECONFIG, which must be JSON: `kubectl config view --raw --minify -o json` prints one. In
// a pod, it needs none. $LABEL and $NODE_LABEL are the keys of the labels. $LEASE is the NAMESPACE/NAME of the Lease;
// without it, there must be no other replica. $IDENTITY is the name of this one.
package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second signal ends the program at once.
	if err := start(ctx, os.Getenv, http.DefaultTransport.(*http.Transport).Clone()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// start connects, and keeps the labels right while it leads, until ctx ends.
func start(ctx context.Context, getenv func(string) string, transport *http.Transport) error {
	c, err := connect(getenv, transport)
	if err != nil {
		return err
	}
	l := labels{
		total: cmp.Or(getenv("LABEL"), "example.com/pods"),
		own:   cmp.Or(getenv("NODE_LABEL"), "example.com/pods-here"),
	}
	identity := cmp.Or(getenv("IDENTITY"), fmt.Sprintf("%s_%x", getenv("HOSTNAME"), rand.Uint64()))
	e := &election{cluster: c, lease: getenv("LEASE"), identity: identity}
	return e.lead(ctx, func(ctx context.Context) { run(ctx, c, e, l) })
}

// labels are the keys of the labels that we write.
type labels struct {
	total string // of control-plane nodes: how many pods there are
	own   string // of all nodes: how many pods are on this one
}

// connect finds the API server, and who we are there: as $KUBECONFIG says, or as a pod. It completes the transport.
func connect(getenv func(string) string, transport *http.Transport) (cluster, error) {
	find := inCluster
	if getenv("KUBECONFIG") != "" {
		find = readKubeconfig
	}
	s, u, err := find(getenv)
	if err != nil {
		return cluster{}, err
	}
	transport.ForceAttemptHTTP2 = true // With a TLS configuration of our own, net/http would speak HTTP/1.1.
	// Pings find out that a connection is dead, long before a watch is given up.
	transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}
	transport.TLSClientConfig, err = tlsConfig(s, u)
	return cluster{url: s.URL, client: &http.Client{Transport: bearer{transport, u}}}, err
}

// server is the part of a cluster in a kubeconfig that we need. encoding/json decodes base64 into bytes.
// https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/
type server struct {
	URL           string `json:"server"`
	Authorities   []byte `json:"certificate-authority-data"` // who may sign its certificate; nil means: as on this machine
	AuthorityFile string `json:"certificate-authority"`
}

// user says who we are: by a certificate, a token, or a file with a token that changes.
type user struct {
	Certificate     []byte `json:"client-certificate-data"`
	CertificateFile string `json:"client-certificate"`
	Key             []byte `json:"client-key-data"`
	KeyFile         string `json:"client-key"`
	Token           string
	TokenFile       string
	Exec            *struct{ Command string }
}

// readKubeconfig reads a kubeconfig of one cluster and one user.
func readKubeconfig(getenv func(string) string) (server, user, error) {
	file := getenv("KUBECONFIG")
	text, err := os.ReadFile(file)
	if err != nil {
		return server{}, user{}, err
	}
	var config struct {
		Clusters []struct{ Cluster server }
		Users    []struct{ User user }
	}
	if json.Unmarshal(text, &config) != nil || len(config.Clusters) != 1 || len(config.Users) != 1 {
		return server{}, user{}, fmt.Errorf("%s must be JSON with one cluster and one user, "+
			"as kubectl config view --raw --minify -o json prints it", file)
	}
	s, u := config.Clusters[0].Cluster, config.Users[0].User
	if u.Exec != nil {
		return s, u, fmt.Errorf("%s: the credential comes from the program %q, which is not supported: "+
			"put a token there, as of kubectl create token", file, u.Exec.Command)
	}
	for _, part := range []struct {
		file string
		data *[]byte
	}{{s.AuthorityFile, &s.Authorities}, {u.CertificateFile, &u.Certificate}, {u.KeyFile, &u.Key}} {
		if part.file != "" && err == nil {
			*part.data, err = os.ReadFile(part.file)
		}
	}
	return s, u, err
}

// serviceAccount is where the kubelet puts what a pod needs to reach the API server. It puts a new token there in time.
// https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// inCluster returns the API server of the pod that this program runs in, and who the pod is.
func inCluster(getenv func(string) string) (server, user, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" {
		return server{}, user{}, errors.New("this is no pod, so set KUBECONFIG to a file that was made by: " +
			"kubectl config view --raw --minify -o json")
	}
	authorities, err := os.ReadFile(serviceAccount + "ca.crt")
	return server{URL: "https://" + net.JoinHostPort(host, port), Authorities: authorities},
		user{TokenFile: serviceAccount + "token"}, err
}

// tlsConfig says whom we believe, and who we are if a certificate says so.
func tlsConfig(s server, u user) (*tls.Config, error) {
	config := &tls.Config{}
	if s.Authorities != nil {
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(s.Authorities)
	}
	if u.Certificate != nil {
		certificate, err := tls.X509KeyPair(u.Certificate, u.Key)
		if err != nil {
			return nil, fmt.Errorf("the client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	return config, nil
}

// bearer adds our token to each request.
type bearer struct {
	http.RoundTripper
	user user
}

// RoundTrip implements http.RoundTripper.
func (b bearer) RoundTrip(request *http.Request) (*http.Response, error) {
	token := b.user.Token
	// The file is read each time, because others replace it before the token in it expires.
	if text, err := os.ReadFile(b.user.TokenFile); err == nil && len(text) > 0 {
		token = string(bytes.TrimSpace(text))
	}
	// Others could read a token that is sent without TLS, or after a redirect.
	if token != "" && request.URL.Scheme == "https" && request.Response == nil {
		request = request.Clone(request.Context())
		request.Header.Set("Authorization", "Bearer "+token)
	}
	return b.RoundTripper.RoundTrip(request)
}

// controlPlane is the key of a label that each control-plane node has.
const controlPlane = "node-role.kubernetes.io/control-plane"

const (
	pause   = time.Second // A key waits that long for more changes, so that a hundred of them are one write.
	resync  = time.Minute // how often all nodes are looked at, in case a key was lost; that costs no request
	workers = 4
	allKey  = "(all)" // stands for all nodes that show the number of all pods
)

// run keeps the labels right, from the first whole lists of both kinds on. When ctx ends, it waits for the writes that
// have begun.
func run(ctx context.Context, c cluster, e *election, l labels) {
	q := &queue{stopped: ctx.Done(), ready: make(chan string), states: map[string]state{}, failures: map[string]backoff{}}
	pods := &cache{path: "/api/v1/pods", listed: make(chan struct{})}
	pods.onChange = func(before, after *object) {
		for _, pod := range []*object{before, after} {
			if pod != nil && pod.Spec.NodeName != "" {
				q.add(pod.Spec.NodeName, pause)
			}
		}
		if before == nil || after == nil {
			q.add(allKey, pause)
		}
	}
	nodes := &cache{path: "/api/v1/nodes", listed: make(chan struct{})}
	nodes.onChange = func(_, after *object) {
		if after != nil {
			q.add(after.Metadata.Name, pause)
		}
	}
	for _, cached := range []*cache{pods, nodes} {
		go follow(ctx, c, cached)
		select {
		case <-cached.listed:
		case <-ctx.Done():
			return
		}
	}
	events := &recorder{cluster: c}
	defer events.posting.Wait()
	var running sync.WaitGroup
	defer running.Wait()
	r := reconciler{cluster: c, election: e, labels: l, pods: pods, nodes: nodes, queue: q, events: events}
	for range workers {
		running.Go(func() { r.work(ctx) })
	}
	for ctx.Err() == nil {
		for _, node := range nodes.all() {
			q.add(node.Metadata.Name, 0)
		}
		sleep(ctx, resync)
	}
}

// reconciler makes the labels of nodes right.
type reconciler struct {
	cluster
	election *election
	labels
	pods, nodes *cache
	queue       *queue
	events      *recorder
}

// work takes keys from the queue until ctx ends.
func (r reconciler) work(ctx context.Context) {
	for {
		key, isThere := r.queue.take(ctx)
		if !isThere {
			return
		}
		err := r.reconcile(ctx, key)
		if wait := r.queue.done(key, err); err != nil {
			log.Printf("%v; next try in %s", err, wait)
		}
	}
}

// reconcile makes the labels of a node right. It compares what is with what should be, and does not care how it came
// about. So it also mends what others have changed, and what no watch has told.
func (r reconciler) reconcile(ctx context.Context, key string) error {
	if key == allKey {
		for _, node := range r.nodes.all() {
			if node.isControlPlane() {
				r.queue.add(node.Metadata.Name, 0)
			}
		}
		return nil
	}
	node := r.nodes.get(key)
	if node == nil {
		return nil // Its labels have gone with it.
	}
	wrong := r.wrongLabels(node)
	if len(wrong) == 0 {
		return nil
	}
	if !r.election.mayWrite() {
		return errors.New("another replica may lead by now")
	}
	// A write that has begun is not cut off by a stop: nobody would know what it has done. It has a deadline of its own.
	err := r.setLabels(context.WithoutCancel(ctx), node, wrong)
	if isGone(err) {
		return nil
	}
	if err == nil {
		r.events.report(node, fmt.Sprintf("labels written: %v", wrong))
	}
	return err
}

// wrongLabels returns the labels of a node that should have other values, with these values. nil means that it should
// not have the label, as null does in a merge patch.
func (r reconciler) wrongLabels(node *object) map[string]any {
	all, own := r.pods.count(node.Metadata.Name)
	want := map[string]any{r.labels.own: strconv.Itoa(own), r.labels.total: nil}
	if node.isControlPlane() {
		want[r.labels.total] = strconv.Itoa(all)
	}
	maps.DeleteFunc(want, func(key string, value any) bool {
		have, isThere := node.Metadata.Labels[key]
		return isThere && value == have || !isThere && value == nil
	})
	return want
}

// queue holds the keys of the nodes to look at. A key says where to look, and not what has happened: whatever has
// happened meanwhile, one look is enough. No key is ever with two workers. Several goroutines may use a queue.
type queue struct {
	stopped <-chan struct{} // is closed at the end
	ready   chan string     // the keys whose time has come

	mu       sync.Mutex         // guards the fields below
	states   map[string]state   // of keys that were added and are not done
	failures map[string]backoff // of keys that have failed, and not succeeded since
}

// state is what happens to a key.
type state int

const (
	idle    state = iota // It is not here.
	waiting              // It is ready, or will be.
	working              // A worker has it.
	dirty                // A worker has it, and it was added since: it must come again.
)

// add lets a worker look at a key after a while. A key that waits already does not wait twice.
func (q *queue) add(key string, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addLocked(key, wait)
}

func (q *queue) addLocked(key string, wait time.Duration) {
	switch q.states[key] {
	case working:
		q.states[key] = dirty
	case idle:
		q.states[key] = waiting
		time.AfterFunc(wait, func() {
			select {
			case q.ready <- key:
			case <-q.stopped:
			}
		})
	}
}

// take returns the next key, which the caller must give back with done. It returns false when ctx has ended.
func (q *queue) take(ctx context.Context) (key string, isThere bool) {
	select {
	case <-ctx.Done():
		return "", false
	case key := <-q.ready:
		q.mu.Lock()
		defer q.mu.Unlock()
		q.states[key] = working
		return key, true
	}
}

// done says that the work on a key has ended. If it has failed, the key comes again, and done returns when. Meanwhile,
// it waits, whoever adds it, and no other key waits with it.
func (q *queue) done(key string, err error) (wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	mustComeAgain := q.states[key] == dirty
	delete(q.states, key)
	if err != nil {
		failures := q.failures[key]
		wait = failures.next(err)
		q.failures[key] = failures
		q.addLocked(key, wait)
		return wait
	}
	delete(q.failures, key)
	if mustComeAgain {
		q.addLocked(key, pause)
	}
	return 0
}

// backoff is how many failures there were since the last success. The more, the longer to wait.
type backoff int

// next returns how long to wait after a failure. If the server says how long, that counts.
func (b *backoff) next(err error) time.Duration {
	wait := min(time.Second<<min(*b, 10), longestWait)
	if asked := refusal(err).retryAfter; asked > 0 {
		wait = asked
	} else {
		*b++
	}
	// Jitter: those who have failed together do not come again together.
	return wait + rand.N(wait/2)
}

// cache is what is known of the objects of a kind. Several goroutines may use it.
type cache struct {
	path     string                      // of the list
	onChange func(before, after *object) // nil stands for no object; called with the lock, and must not use the cache
	listed   chan struct{}               // is closed when there is a whole list: before, what is missing may be unknown

	mu      sync.Mutex         // guards the fields below
	objects map[string]*object // by their keys
	onNode  map[string]int     // an index: how many of the objects are on each node
}

// all returns the objects.
func (c *cache) all() []*object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.objects))
}

// get returns the object with a key; nil if there is none.
func (c *cache) get(key string) *object {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.objects[key]
}

// count returns how many objects there are, and how many of them are on a node.
func (c *cache) count(node string) (all, onNode int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects), c.onNode[node]
}

// replace takes a whole list for the truth. What it does not contain is gone, though no watch has said so.
func (c *cache) replace(all []*object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		c.objects = map[string]*object{}
		c.onNode = map[string]int{}
		defer close(c.listed)
	}
	isListed := map[string]bool{}
	for _, o := range all {
		isListed[o.key()] = true
		c.putLocked(o.key(), o)
	}
	for key := range c.objects {
		if !isListed[key] {
			c.putLocked(key, nil)
		}
	}
	log.Printf("%s: %d objects", c.path, len(all))
}

// apply takes a change from a watch.
func (c *cache) apply(eventType string, o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch eventType {
	case "ADDED", "MODIFIED":
		c.putLocked(o.key(), o)
	case "DELETED":
		c.putLocked(o.key(), nil)
	} // A BOOKMARK changes nothing but the version.
}

// putLocked sets the object with a key, or removes it if o is nil. The index changes under the same lock, from the old
// object and the new one, so that it is never wrong.
func (c *cache) putLocked(key string, o *object) {
	old := c.objects[key]
	if old != nil {
		c.onNode[old.Spec.NodeName]--
		if c.onNode[old.Spec.NodeName] == 0 {
			delete(c.onNode, old.Spec.NodeName)
		}
	}
	if o == nil {
		delete(c.objects, key)
	} else {
		c.objects[key] = o
		c.onNode[o.Spec.NodeName]++
	}
	c.onChange(old, o)
}

// Nothing may take for ever, because a connection can die without a sign.
const (
	longestWait   = 30 * time.Second // after a failure, without its jitter
	listDeadline  = 90 * time.Second
	writeDeadline = 22 * time.Second // A webhook may take long, and a pod has 30 s to stop.
	watchTime     = time.Minute      // up to double, so that not all clients begin their next watch at once
	watchGrace    = 15 * time.Second // after which a watch that the server does not end is dead
	shortWatch    = time.Second      // A shorter one is a failure, however it ends: beginning anew would be a hot loop.
)

// follow keeps the cache equal to the API server.
func follow(ctx context.Context, c cluster, cached *cache) {
	version := "" // up to which the cache is true; "" if a list must say that
	var failures backoff
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		if version == "" {
			version, err = relist(ctx, c, cached)
		} else {
			version, err = watch(ctx, c, version, cached)
		}
		// 410: nobody knows any more what has changed since. No answer: whoever answers next may be a server that was
		// restored from a backup, where a version means something else.
		var noAnswer *url.Error
		if refusal(err).Code == http.StatusGone || errors.As(err, &noAnswer) {
			version = ""
		}
		hasLasted := version != "" && time.Since(began) > longestWait // so that a watch was no failure, however it ended
		if err == nil || hasLasted {
			failures = 0
		}
		if err != nil && ctx.Err() == nil {
			wait := failures.next(err)
			log.Printf("%v; next try in %s", err, wait)
			sleep(ctx, wait)
		}
	}
}

// sleep waits, but not longer than ctx lasts.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// relist asks for all objects of a kind, and returns the version of the answer. An answer that is not whole changes
// nothing.
func relist(ctx context.Context, c cluster, cached *cache) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	var all list
	if err := c.get(ctx, cached.path, &all); err != nil {
		return "", err
	}
	if !strings.HasSuffix(all.Kind, "List") || all.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("GET %s: the answer is no list, but a %q", cached.path, all.Kind)
	}
	cached.replace(all.Items)
	return all.Metadata.ResourceVersion, nil
}

// watch applies the changes after a version until the answer ends. It returns the version up to which it has come, and
// an error unless the server has ended the watch as usual.
func watch(ctx context.Context, c cluster, version string, cached *cache) (reached string, err error) {
	lasts := watchTime + rand.N(watchTime)
	// Without bookmarks, a watch of a quiet kind would keep a version that is too old soon.
	query := "?watch=1&allowWatchBookmarks=true&resourceVersion=" + version
	query += fmt.Sprintf("&timeoutSeconds=%.0f", lasts.Seconds())
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	began := time.Now()
	response, err := c.open(ctx, "GET", cached.path+query, nil)
	if err != nil {
		return version, err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var e event
		err := decoder.Decode(&e)
		if err == io.EOF && time.Since(began) > shortWatch {
			return version, nil
		}
		o := &object{}
		if err == nil && e.Type == "ERROR" {
			err = statusOf(e.Object)
		} else if err == nil {
			err = json.Unmarshal(e.Object, o)
		}
		if err != nil {
			return version, fmt.Errorf("the watch has ended at version %s: %w", version, err)
		}
		cached.apply(e.Type, o)
		version = o.Metadata.ResourceVersion
	}
}

// event is a change of an object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type event struct {
	Type   string          // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage // a status if the type is ERROR
}

// election decides which one of several replicas writes: the one whose identity stands in a Lease. It renews the Lease
// again and again. If it does not, another one takes it.
// https://kubernetes.io/docs/concepts/architecture/leases/
type election struct {
	cluster
	lease    string // NAMESPACE/NAME; "" if there is no other replica
	identity string
	seen     leaseSpec                 // what the Lease said when it was read last; only lead may use it
	seenAt   time.Time                 // since when it says that
	until    atomic.Pointer[time.Time] // until when this replica may write; nil if it may not
}

// leaseSpec is what a Lease says.
type leaseSpec struct {
	HolderIdentity       string `json:"holderIdentity"`
	LeaseDurationSeconds int    `json:"leaseDurationSeconds"`
	AcquireTime          string `json:"acquireTime,omitempty"`
	RenewTime            string `json:"renewTime,omitempty"`
	LeaseTransitions     int    `json:"leaseTransitions"`
}

const (
	leaseDuration = 15 * time.Second // after which others may take a Lease that nobody renews
	renewDeadline = 10 * time.Second // after which the leader stops: earlier, because it may be slow
	retryPeriod   = 2 * time.Second
)

// lead waits until this replica leads, lets it work, and gives the Lease back when ctx ends. It fails if the Lease is
// lost. Then the process should end, and start again as one that waits.
func (e *election) lead(ctx context.Context, work func(context.Context)) error {
	if e.lease == "" {
		work(ctx)
		return nil
	}
	if err := e.try(ctx, e.identity); err != nil {
		log.Println("standing by:", err)
	}
	for e.try(ctx, e.identity) != nil {
		if sleep(ctx, retryPeriod); ctx.Err() != nil {
			return nil
		}
	}
	log.Printf("%s leads", e.identity)
	term, end := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { work(term) })
	for e.mayWrite() && ctx.Err() == nil {
		if err := e.try(ctx, e.identity); err != nil {
			log.Println(err)
		}
		sleep(ctx, retryPeriod)
	}
	end()
	running.Wait()
	if ctx.Err() == nil {
		return errors.New("the Lease is lost")
	}
	// Nobody has to wait for the end of a Lease that has no holder.
	if err := e.try(context.WithoutCancel(ctx), ""); err != nil {
		log.Println(err)
	}
	return nil
}

// mayWrite reports whether this replica surely leads.
func (e *election) mayWrite() bool {
	end := e.until.Load()
	return e.lease == "" || end != nil && time.Now().Before(*end)
}

// try makes an identity the holder of the Lease. It fails if another one holds it.
func (e *election) try(ctx context.Context, holder string) error {
	ctx, cancel := context.WithTimeout(ctx, renewDeadline/2)
	defer cancel()
	namespace, name, _ := strings.Cut(e.lease, "/")
	path := "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases/" + name
	began := time.Now()
	var lease struct {
		Metadata map[string]any // is written back as it is
		Spec     leaseSpec
	}
	lease.Metadata = map[string]any{"namespace": namespace, "name": name}
	err := e.get(ctx, path, &lease)
	if err != nil && refusal(err).Code != http.StatusNotFound {
		return err
	}
	spec := &lease.Spec
	// The time in a Lease is that of another machine's clock. How long it has not changed is told by ours.
	if *spec != e.seen {
		e.seen, e.seenAt = *spec, time.Now()
	}
	isOver := time.Since(e.seenAt) > time.Duration(spec.LeaseDurationSeconds)*time.Second
	if spec.HolderIdentity != e.identity && spec.HolderIdentity != "" && !isOver {
		e.until.Store(nil)
		return fmt.Errorf("%s leads", spec.HolderIdentity)
	}
	now := began.UTC().Format("2006-01-02T15:04:05.000000Z")
	if spec.HolderIdentity != e.identity {
		spec.AcquireTime = now
		spec.LeaseTransitions++
	}
	spec.HolderIdentity, spec.RenewTime, spec.LeaseDurationSeconds = holder, now, int(leaseDuration.Seconds())
	// If another one has written the Lease since, it has another version now, and the server refuses this. A Lease that
	// is not there yet has none, and is created.
	err = e.send(ctx, "PUT", path, map[string]any{
		"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": lease.Metadata, "spec": spec,
	}, nil)
	if err == nil && holder != "" {
		end := began.Add(renewDeadline)
		e.until.Store(&end)
	}
	return err
}

// recorder posts Events about nodes. Nothing waits for it, except the end of the program.
type recorder struct {
	cluster
	posting sync.WaitGroup // the Events that are being posted
	count   atomic.Int32   // how many they are
}

// report posts an Event that says what was done to a node.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
func (r *recorder) report(node *object, message string) {
	if r.count.Add(1) > 100 {
		r.count.Add(-1)
		log.Printf("an Event of node %s is dropped: too many are being posted", node.Metadata.Name)
		return
	}
	name, uid, now := node.Metadata.Name, node.Metadata.UID, time.Now()
	event := map[string]any{
		"metadata":       map[string]any{"name": fmt.Sprintf("%.230s.%x", name, now.UnixNano())},
		"involvedObject": map[string]any{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid},
		"source":         map[string]any{"component": "pod-counter"},
		"type":           "Normal", "reason": "PodsCounted", "message": message,
		"count": 1, "firstTimestamp": now, "lastTimestamp": now,
	}
	r.posting.Go(func() {
		defer r.count.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		if err := r.send(ctx, "POST", "/api/v1/namespaces/default/events", event, nil); err != nil {
			log.Println(err)
		}
	})
}

// cluster is an API server, and the way to it.
type cluster struct {
	url    string
	client *http.Client
}

// list is what the API server answers to a list. It has many more fields, which encoding/json skips.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodList
type list struct {
	Kind     string // such as "PodList"
	Metadata struct {
		ResourceVersion string // at which moment the list was true; a watch goes on from there
	}
	Items []*object
}

// object is a pod or a node.
type object struct {
	Metadata struct {
		Namespace       string // "" for a node
		Name            string
		UID             string // tells this object from a later one of the same name
		Labels          map[string]string
		ResourceVersion string // of the last change of this object
	}
	Spec struct {
		NodeName string // where a pod runs; "" if it has no place yet, and for a node
	}
}

// key names an object among those of its kind.
func (o object) key() string {
	return strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
}

func (o object) isControlPlane() bool {
	_, isThere := o.Metadata.Labels[controlPlane]
	return isThere
}

// setLabels writes labels of a node, and removes those that are nil.
func (c cluster) setLabels(ctx context.Context, node *object, values map[string]any) error {
	// A merge patch names only what changes, so that it undoes nothing that others write meanwhile. A uid cannot be
	// changed: the server refuses the patch if the node has another one by now, for which it was not meant.
	patch := map[string]any{"metadata": map[string]any{"uid": node.Metadata.UID, "labels": values}}
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	err := c.send(ctx, "PATCH", "/api/v1/nodes/"+node.Metadata.Name, patch, nil)
	if err == nil {
		log.Printf("node %s: %v", node.Metadata.Name, values)
	}
	return err
}

// get asks for a path, and decodes the answer.
func (c cluster) get(ctx context.Context, path string, answer any) error {
	return c.send(ctx, "GET", path, nil, answer)
}

// send sends a request, and decodes the answer, unless answer is nil.
func (c cluster) send(ctx context.Context, method, path string, body, answer any) error {
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer == nil {
		answer = &struct{}{} // The connection can be used again when all has been read.
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// open sends a request whose body is JSON, or none if body is nil. It returns the beginning of the answer, whose Body
// the caller must close. The error is a *status if the server has refused the request.
func (c cluster) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return nil, err
	}
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, fmt.Errorf("%s %s: %w", method, path, readStatus(response))
	}
	return response, nil
}

// status is how the API server says why it has refused a request.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type status struct {
	Code    int
	Message string
	Details struct{ Causes []cause }

	retryAfter time.Duration // how long the server asks to wait
}

// cause is one of the reasons for a refusal: what is wrong with a field.
type cause struct{ Field string }

func (s *status) Error() string { return fmt.Sprintf("%d: %s", s.Code, s.Message) }

// readStatus reads why a request was refused. A proxy may have done that, in any words and at any length.
func readStatus(response *http.Response) *status {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	s := statusOf(text)
	if s.Message == "" {
		s.Message = response.Status
	}
	s.Code = response.StatusCode
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	s.retryAfter = time.Duration(min(seconds, 300)) * time.Second
	return s
}

// statusOf decodes a status. What is none has no message.
func statusOf(text []byte) *status {
	s := &status{}
	_ = json.Unmarshal(text, s)
	return s
}

// refusal returns why the server has refused a request. It is empty if the error means something else.
func refusal(err error) *status {
	s := &status{}
	errors.As(err, &s)
	return s
}

// isGone reports whether a node was not written because there is none of that name, or another one.
func isGone(err error) bool {
	s := refusal(err)
	return s.Code == http.StatusNotFound || slices.Contains(s.Details.Causes, cause{"metadata.uid"})
}
