package main

// watch.go owns everything that is spoken to the API server: kubeconfigs and credentials, requests and their errors, lists,
// watches, and the reflector that keeps a store equal to the server. It counts nothing and decides nothing.

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
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"podcount/internal/kubeconfig"
	"podcount/internal/logging"
	"podcount/internal/wire"
)

// StatusError is the error that the API server answers, or what an answer without one amounts to: the API's own Status,
// and what it was answered to.
type StatusError struct {
	wire.Status

	call  call   // what was asked
	tried string // with a 401: what was not accepted
}

func (s *StatusError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("%d %s", s.Code, cmp.Or(s.Reason, http.StatusText(s.Code)))) + ": " + s.Message
	switch {
	case s.Code == http.StatusUnauthorized && s.tried != "":
		text += " (what was not accepted: " + s.tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && strings.Contains(s.Message, `"system:anonymous"`):
		text += " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		// An update that makes a Lease may lack the right to create it. An admission plugin's refusal is no question of rights.
		for _, verb := range slices.Compact([]string{s.call.verb, strings.Replace(s.call.verb, "update", "create", 1)}) {
			if strings.Contains(s.Message, " cannot "+verb+" ") {
				text += fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])", s.call.group, s.call.resource, verb)
			}
		}
	}
	return text
}

// retryAfter is how long to wait because the server has asked for it with an error (429, 503), with jitter on top. It
// is 0 where the server did not ask.
func retryAfter(err error) time.Duration {
	seconds := min(max(statusIn(err).Details.RetryAfterSeconds, 0), 3600)
	return withJitter(time.Duration(seconds) * time.Second)
}

// withJitter is the wait that a server has asked for (Retry-After), and by chance up to a fifth more, or up to a second
// more if that is longer: clients refused at the same moment got the same answer. 0, for no wish, stays 0.
func withJitter(asked time.Duration) time.Duration {
	if asked <= 0 {
		return 0
	}
	return asked + rand.N(max(asked/5, time.Second))
}

// statusIn returns the Status that err is or wraps; one with the Code 0 where the server did not answer.
func statusIn(err error) StatusError {
	s := &StatusError{}
	errors.As(err, &s)
	return *s
}

// outagePause is the time between two lines about an outage with this error. It is longer where somebody has to grant
// or install something first.
func outagePause(err error) time.Duration {
	switch statusIn(err).Code {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		return 10 * time.Minute
	}
	return time.Minute
}

// hasCause reports whether one of the causes that the Status details has this reason or is about this field.
func (s StatusError) hasCause(reasonOrField string) bool {
	return slices.ContainsFunc(s.Details.Causes, func(c struct{ Reason, Field string }) bool {
		return c.Reason == reasonOrField || c.Field == reasonOrField
	})
}

// call is a request in the words of RBAC and of error messages.
type call struct{ verb, group, resource, object string }

func (c call) String() string {
	return strings.TrimSpace(c.verb + " " + strings.TrimSuffix(c.resource+"/"+c.object, "/"))
}

// callOf reads a call from a request: /api/v1/… or /apis/GROUP/VERSION/…, then [namespaces/NS/]RESOURCE[/NAME[/SUB]].
func callOf(method, path string, query url.Values) (c call) {
	p := append(strings.Split(strings.Trim(path, "/"), "/"), make([]string, 7)...) // what is not there is ""
	if p[0] == "apis" {
		c.group, p = p[1], p[1:]
	}
	namespace := ""
	if p = p[2:]; p[0] == "" {
		return call{verb: "get", resource: strings.TrimPrefix(path, "/apis/")} // discovery
	} else if p[0] == "namespaces" && p[2] != "" {
		namespace, p = p[1]+"/", p[2:]
	}
	c.resource = strings.TrimSuffix(p[0]+"/"+p[2], "/")
	c.verb = map[string]string{"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]
	if p[1] != "" {
		c.object = namespace + p[1]
	} else if method == http.MethodGet {
		c.verb = "list"
	}
	if query.Get("watch") != "" {
		c.verb = "watch"
	}
	return c
}

const (
	requestTimeout = 65 * time.Second  // of all but lists and watches: what the API server itself allows, and a little
	silence        = 150 * time.Second // of a list or a watch, which has a bookmark a minute, two after a server's restart
	answerLimit    = 64 << 20          // bytes of an answer that is held whole
)

var errSilent = fmt.Errorf("nothing was heard for %v", silence)

// Client speaks to one API server, as one user. Safe for concurrent use.
type Client struct {
	cfg     *kubeconfig.Config
	options ClientOptions
	permit  permit // to write; nil: always

	mu   sync.Mutex // guards all below
	tls  *tls.Config
	conn *http.Transport // of tls
}

// permit is what a leader has, and may lose at any moment.
type permit interface {
	// mayWrite returns an error unless a write may be sent now.
	mayWrite() error
	// whileLeading returns a context that ends with ctx, and with the permit.
	whileLeading(ctx context.Context) (context.Context, context.CancelFunc)
}

// Dialer opens connections; nil stands for the net package's.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// ClientOptions are what a Client may be told.
type ClientOptions struct {
	Dial         Dialer
	UserAgent    string // of each request
	FieldManager string // in whose name objects are written
	DryRun       bool   // nothing is written: such requests fail, and are not sent
	// Observe hears of each request, once it is answered or has failed. It must not block. nil: nobody hears of them.
	Observe func(ctx context.Context, e Exchange)
}

// Exchange is a request that was sent, and what came of it.
type Exchange struct {
	Method, URI string // URI has no host
	Host        string
	Status      string // 200 OK; or <error>, where there is no answer
	Code        string // the first word of Status
	Start       time.Time
}

// NewClient makes a client for what cfg says. It sends nothing yet.
func NewClient(cfg *kubeconfig.Config, o ClientOptions) *Client {
	conn := http.DefaultTransport.(*http.Transport).Clone() // so HTTP/2 is asked for, which with a TLS of one's own is else off
	conn.Proxy = cfg.Proxy
	conn.OnProxyConnectResponse = checkProxyAnswer
	if o.Dial != nil {
		conn.DialContext = o.Dial
	}
	// Pings notice a broken connection well before silence does. A buffer of 1 MB, not of 4, still fills 80 Mbit/s at 100 ms.
	conn.HTTP2 = &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: 1 << 20}
	// The TLS configuration is nobody's: the first credential brings its own.
	return &Client{cfg: cfg, options: o, conn: conn, tls: &tls.Config{}}
}

// SetPermit has each write ask p whether it may be sent. It must be called before the first request.
func (c *Client) SetPermit(p permit) { c.permit = p }

// proxyRefusal is the error of a proxy that opens no way to the server. Without it, net/http says no more than
// "Forbidden", which looks like the API server's own answer.
type proxyRefusal struct {
	proxy  string
	status string
	code   int
}

func (r *proxyRefusal) Error() string {
	return fmt.Sprintf("the proxy %s refuses the connection: %s", r.proxy, r.status)
}

// checkProxyAnswer is http.Transport's OnProxyConnectResponse.
func checkProxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	return &proxyRefusal{proxy: proxy.Redacted(), status: answer.Status, code: answer.StatusCode}
}

// transport returns the connections for a credential: new ones if its TLS is another. Watches go on on the old ones.
func (c *Client) transport(cred *kubeconfig.Credential) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls != cred.TLS {
		c.conn.CloseIdleConnections()
		c.tls, c.conn = cred.TLS, c.conn.Clone()
		c.conn.TLSClientConfig = cred.TLS.Clone()
	}
	return c.conn
}

// Close closes the connections that are not in use.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.CloseIdleConnections()
}

type request struct {
	method, path string
	query        url.Values
	body         any           // as JSON; a PATCH is a merge patch
	accept       string        // JSON where it is empty
	needsNone    bool          // permit: this may be written without one
	limit        time.Duration // of Send; 0: requestTimeout
}

// needsPermit reports whether a request is sent only while this process may write.
func (c *Client) needsPermit(r request) bool {
	isWrite := r.method != http.MethodGet
	return isWrite && c.permit != nil && !r.needsNone
}

// failed says of an error, unless it is nil, which request it is about.
func (r request) failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", callOf(r.method, r.path, r.query), err)
	}
	return err
}

// do sends one request and returns a 2xx answer, whose body the caller closes; anything else is an error, a *StatusError where
// the server answered. It tries again once, after a 401: the loops above it have their backoffs, and honour retryAfter.
func (c *Client) do(ctx context.Context, r request) (resp *http.Response, err error) {
	cred, err := c.cfg.Credential(ctx, nil)
	if err == nil {
		resp, err = c.send(ctx, r, cred)
	}
	if statusIn(err).Code == http.StatusUnauthorized {
		fresh, renewal := c.cfg.Credential(ctx, cred)
		if renewal != nil {
			err = fmt.Errorf("%w; and then: %w", err, renewal)
		} else if fresh != cred {
			resp, err = c.send(ctx, r, fresh)
		}
	}
	return resp, r.failed(err)
}

// send makes one exchange.
func (c *Client) send(ctx context.Context, r request, cred *kubeconfig.Credential) (*http.Response, error) {
	var body []byte
	if r.body != nil {
		var err error
		if body, err = json.Marshal(r.body); err != nil {
			return nil, err
		}
	}
	u := *c.cfg.Server
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+r.path, r.query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.needsPermit(r) {
		if err := c.permit.mayWrite(); err != nil {
			return nil, err
		}
		guardBody(req, body, c.permit)
	}
	req.Header.Set("Accept", cmp.Or(r.accept, wire.JSON))
	req.Header.Set("User-Agent", c.options.UserAgent)
	if body != nil {
		contentType := wire.JSON
		if r.method == http.MethodPatch {
			contentType = "application/merge-patch+json"
		}
		req.Header.Set("Content-Type", contentType)
	}
	if cred.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cred.Token)
	}
	start := time.Now()
	// Not by an http.Client: that would follow a redirect, which could lead a token elsewhere, and no API server sends one.
	resp, err := c.transport(cred).RoundTrip(req)
	status := cmp.Or(resp, &http.Response{Status: "<error>"}).Status
	code, _, _ := strings.Cut(status, " ")
	if c.options.Observe != nil {
		c.options.Observe(ctx, Exchange{r.method, u.RequestURI(), u.Host, status, code, start})
	}
	if err != nil {
		return nil, c.explain(err)
	} else if resp.StatusCode/100 != 2 {
		refusal := statusOf(resp, callOf(r.method, r.path, r.query))
		refusal.tried = cred.Tried
		return nil, refusal
	}
	return resp, nil
}

// guardBody makes a request read its body through a permittedBody.
func guardBody(req *http.Request, body []byte, permit permit) {
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(&permittedBody{bytes.NewReader(body), permit}), nil
	}
	req.Body, _ = open()
	req.GetBody = open // lets the transport send the request again when the connection closed before it had begun
	req.ContentLength = int64(len(body))
}

// permittedBody is the body of a write, which fails without a permit. The transport reads it after the dial, the
// handshake and the headers, right before it sends it: that may be long after the request was made, as the process may
// have been frozen meanwhile. A server acts on no request whose body is cut short.
type permittedBody struct {
	io.Reader
	permit permit
}

func (b *permittedBody) Read(p []byte) (int, error) {
	if err := b.permit.mayWrite(); err != nil {
		return 0, err
	}
	return b.Reader.Read(p)
}

// explain adds to an error of the network, or of TLS, what was tried and what to do.
func (c *Client) explain(err error) error {
	unknown, invalid, op, hint := x509.UnknownAuthorityError{}, x509.CertificateInvalidError{}, &net.OpError{}, ""
	var refusal *proxyRefusal
	switch {
	case errors.As(err, &refusal) && refusal.code == http.StatusProxyAuthRequired:
		hint = "give its user and password in the kubeconfig's proxy-url, or in HTTPS_PROXY: http://USER:PASSWORD@HOST"
	case errors.As(err, &refusal):
		hint = "allow the way to the API server there, or go without: remove the kubeconfig's proxy-url, or set NO_PROXY"
	case errors.As(err, &unknown):
		hint = fmt.Sprintf("give the CA of this cluster as certificate-authority; the server's certificate was issued by %q", unknown.Cert.Issuer)
	case errors.As(err, new(x509.HostnameError)):
		hint = "give one of these names as tls-server-name, or in the server's address"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		hint = "renew the server's certificate, or set the clock of this machine"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		hint = "give the server a certificate for servers, and podcount the CA that issued it, as certificate-authority"
	case errors.As(err, new(tls.RecordHeaderError)):
		hint = "it does not speak TLS: is its address that of an API server, and should it begin with http://?"
	case errors.As(err, &op) && op.Op == "proxyconnect":
		hint = "this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?"
	case op.Op == "dial" || os.IsTimeout(err):
		hint = "is the API server running, and is this its address?"
	case op.Op == "remote error": // what TLS calls an alert
		hint = "podcount speaks TLS 1.2 and 1.3; if a client certificate is wanted, give one that is known there, and valid"
	default:
		return err
	}
	return fmt.Errorf("%s, from %s: %w (%s)", c.cfg.Server.Redacted(), c.cfg.Source, err, hint)
}

// statusOf makes a Status of an answer that is not 2xx, be it a Status, plain text or some proxy's page, and closes it.
func statusOf(resp *http.Response, what call) *StatusError {
	defer resp.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	isProtobuf, _ := wireOf(resp)
	s := &StatusError{Status: wire.ParseStatus(body, isProtobuf), call: what}
	if s.Code == 0 {
		s.Status = wire.Status{Message: strconv.Quote(oneLine(body, 200))}
	}
	s.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After")) // never a date here
	s.Details.RetryAfterSeconds = max(s.Details.RetryAfterSeconds, seconds)
	return s
}

// oneLine returns the beginning of an answer, on one line.
func oneLine(answer []byte, limit int) string {
	line := strings.Join(strings.Fields(string(answer)), " ")
	return line[:min(len(line), limit)]
}

// errDryRun is the last guard of a dry run. What would be written is said by those who know what it means.
var errDryRun = errors.New("not sent, as this is a dry run")

// Send makes one request of a small answer, which it decodes into answer unless that is nil. It takes requestTimeout at most.
func (c *Client) Send(ctx context.Context, r request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.limit, requestTimeout))
	defer cancel()
	if c.needsPermit(r) {
		var release context.CancelFunc
		ctx, release = c.permit.whileLeading(ctx)
		defer release()
	}
	if r.body != nil {
		r.query = url.Values{"fieldManager": {c.options.FieldManager}}
	}
	if c.options.DryRun && r.method != http.MethodGet {
		return r.failed(errDryRun)
	}
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer io.CopyN(io.Discard, resp.Body, 2<<10) // what little is left, so that the connection can be used again
	if _, err = wireOf(resp); err == nil && answer != nil {
		err = json.NewDecoder(wire.Limited(resp.Body, answerLimit)).Decode(answer)
	}
	return r.failed(err)
}

// accept lists media types, the best first; if metadataOnly, of objects as this kind, though a server may send whole ones.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#metadata-only-fetches
func accept(metadataOnly bool, as string, types ...string) string {
	for i, t := range types {
		if metadataOnly {
			types[i] = t + ";as=" + as + ";g=meta.k8s.io;v=v1, " + t
		}
	}
	return strings.Join(types, ", ")
}

// wireOf tells in which form an answer is.
func wireOf(resp *http.Response) (isProtobuf bool, err error) {
	kind, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if kind = strings.TrimSpace(kind); kind != wire.JSON && kind != wire.Protobuf {
		err = fmt.Errorf("the answer is %q, neither JSON nor protobuf: is this the API server?", kind)
	}
	return kind == wire.Protobuf, err
}

// stream opens a list or a watch. The body ends with errSilent when nothing has arrived for so long.
func (c *Client) stream(ctx context.Context, r request) (*liveBody, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &liveBody{ReadCloser: http.NoBody, ctx: ctx, cancel: cancel, timer: time.AfterFunc(silence, func() { cancel(errSilent) })}
	resp, err := c.do(ctx, r)
	if err == nil {
		b.ReadCloser = resp.Body
		b.isProtobuf, err = wireOf(resp)
		err = r.failed(err)
	}
	if err != nil {
		defer b.Close() // which is a cause, too
		return nil, cmp.Or(r.failed(context.Cause(ctx)), err)
	}
	return b, nil
}

// liveBody is a body that must keep talking. Where our own context has ended, its error says why.
type liveBody struct {
	io.ReadCloser
	isProtobuf bool
	ctx        context.Context
	cancel     context.CancelCauseFunc
	timer      *time.Timer
}

func (b *liveBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.timer.Reset(silence)
	}
	if err != nil && err != io.EOF {
		err = cmp.Or(context.Cause(b.ctx), err)
	}
	return n, err
}

func (b *liveBody) Close() error {
	b.timer.Stop()
	b.cancel(nil)
	return b.ReadCloser.Close()
}

// The reflector's numbers, as in client-go where not explained here.
const (
	reflectorBackoff = 800 * time.Millisecond
	reflectorLimit   = 30 * time.Second
	healthy          = 2 * time.Minute // without a failure, after which the backoff begins anew
	relistEvery      = time.Hour       // guards against a server that has lost an event
	shortWatch       = time.Second
	pageLimit        = 2000             // objects a page, once whole lists have failed
	listTime         = 10 * time.Minute // how long a list may take
	slowList         = 2 * time.Second
	discoverEvery    = 10 * time.Second // ± 20 %
)

var errRelist = errors.New("time for a full list")

// Reflector keeps a store equal to what the server has: it lists, then watches from the list's resourceVersion, and
// resumes from the last version that it saw. https://kubernetes.io/docs/reference/using-api/api-concepts/
type Reflector[T Object[T]] struct {
	*Store[T]
	client    *Client
	kind      Kind[T]          // may be changed until Run, as may
	handlers  []func(Delta[T]) // who hears every change but the first list's; they must not block for long
	log       *Log
	outage    *logging.Outage          // of lists and watches
	discovery *logging.Outage          // of a resource under /apis/
	synced    context.Context          // done after the first list, by
	listed    func()                   // this
	found     atomic.Pointer[presence] // what discovery says of a resource under /apis/
	once      bool                     // what is not there, and what changes, is no business of ours

	state   sync.Mutex // guards both, which Run alone changes
	version string     // where the next watch starts; "": list first
	heard   time.Time  // when the server last told anything

	// Owned by Run, alone.
	decoder  *decoder[T]
	why      string    // the next list is due, if not to time
	relistAt time.Time // when the list is due in any case
	paged    bool      // whole lists have failed: list in pages
	lost     int       // whole lists that failed in a row
	vain     int       // watches in a row that came to nothing: ended at once, in garbage, or were silent
	expired  int       // whose version was too old
	failures int
	failedAt time.Time
	away     bool // the server was: it may come back with another past
}

// presence is a resource's time on the server: another pointer whenever it has come, or come back, or become another.
type presence struct{ status bool } // there is a subresource of this name

// NewReflector makes a reflector that fills store.
func NewReflector[T Object[T]](client *Client, kind Kind[T], store *Store[T], log *Log) *Reflector[T] {
	r := &Reflector[T]{Store: store, client: client, kind: kind, log: log, why: "start", heard: time.Now()}
	r.synced, r.listed = context.WithCancel(context.Background())
	r.decoder = newDecoder(&r.kind)
	r.outage = log.NewOutage(kind.Name, "watching again", "kind", kind.Name)
	r.discovery = log.NewOutage(kind.Name, "discovery answers again", "kind", kind.Name)
	return r
}

func (r *Reflector[T]) tell(changes ...Delta[T]) {
	for _, d := range changes {
		for _, f := range r.handlers {
			f(d)
		}
	}
}

// Reference names an object to the event recorder.
func (r *Reflector[T]) Reference(obj T) ObjectReference {
	_, version, _ := strings.Cut(r.kind.API[1:], "/")
	return ObjectReference{version, r.kind.Name, obj.meta().Key().Namespace, obj.meta().Key().Name, obj.meta().UID()}
}

// Synced is closed once the first list is complete.
func (r *Reflector[T]) Synced() <-chan struct{} { return r.synced.Done() }

// State is for people, and for gauges. A store is ready if complete; that of a resource that the server does not have is.
func (r *Reflector[T]) State() (kind string, isReady bool, state map[string]any) {
	r.state.Lock()
	version, silent := r.version, time.Since(r.heard).Seconds()
	r.state.Unlock()
	absent := !r.once && strings.HasPrefix(r.kind.API, "/apis/") && r.found.Load() == nil
	if isReady = absent || r.synced.Err() != nil; absent {
		silent = 0 // as it should be
	}
	if absent {
		r.log.Remove("podcount_watch_age_seconds", r.kind.Name)
	} else {
		r.log.Set(silent, "podcount_watch_age_seconds", r.kind.Name)
	}
	if absent || r.synced.Err() == nil { // nobody knows how many there are
		r.log.Remove("podcount_cache_objects", r.kind.Name)
	} else {
		r.log.Set(float64(r.Len()), "podcount_cache_objects", r.kind.Name)
	}
	return r.kind.Name, isReady, map[string]any{"objects": r.Len(), "ready": isReady, "resourceVersion": version, "secondsSinceHeard": silent}
}

// move sets where the next watch starts, as the server has just told; or, by "", says why a list is due.
func (r *Reflector[T]) move(version, why string) {
	r.state.Lock()
	defer r.state.Unlock()
	if r.version, r.why = version, why; version != "" {
		r.heard = time.Now()
	}
}

// errStripped is why an object is not right although the server has accepted what was written.
var errStripped = errors.New("the server accepted the write, but not what it says: " +
	"a mutating webhook, a MutatingAdmissionPolicy or a schema takes that away")

// Patch sends a merge patch of obj, or of its subresource sub, and takes the answer into the store. It returns the object
// as it is now; nil if it is gone, or was made again under its name, as the watch will tell. kept reports whether the
// object in the answer has what was written: if not, the error is errStripped, and the object is returned beside it.
//
// The patch goes without resourceVersion, so that other writers cannot hold us up, but with the uid, so that an object
// that was made again does not get what was meant for the one before it.
func (r *Reflector[T]) Patch(
	ctx context.Context, obj T, sub string, patch map[string]any, kept func(now T) bool,
) (now T, err error) {
	now, err = r.patch(ctx, obj, sub, patch)
	var none T
	switch {
	case err != nil:
		r.log.Count(r.kind.Patches, "failed")
		return none, err
	case now == none:
		r.log.Count(r.kind.Patches, "gone")
		return none, nil
	}
	if !kept(now) {
		r.log.Count(r.kind.Patches, "stripped")
		err = fmt.Errorf("patch %s/%s: %w", r.kind.Resource, now.meta().Key(), errStripped)
	} else {
		r.log.Count(r.kind.Patches, "written")
	}
	r.tell(r.Apply("WRITTEN", now)...)
	return now, err
}

// patch sends the patch, and returns the object of the answer; nil if obj is gone.
func (r *Reflector[T]) patch(ctx context.Context, obj T, sub string, patch map[string]any) (now T, err error) {
	meta := map[string]any{"uid": obj.meta().UID()}
	given, _ := patch["metadata"].(map[string]any)
	maps.Copy(meta, given)
	patch["metadata"] = meta
	key := obj.meta().Key()
	req := request{
		method: http.MethodPatch,
		path:   strings.TrimSuffix(r.kind.path(key.Namespace)+"/"+key.Name+"/"+sub, "/"),
		body:   patch,
		accept: accept(r.kind.MetadataOnly, "PartialObjectMetadata", wire.JSON),
	}
	var answer json.RawMessage
	err = r.client.Send(ctx, req, &answer)
	status := statusIn(err)
	var none T
	isGone := status.Reason == "NotFound"
	isAnother := status.Reason == "Invalid" && status.hasCause("metadata.uid")
	if isGone || isAnother {
		return none, nil
	}
	if err != nil {
		return none, err
	}
	now, err = newDecoder(&r.kind).parse(answer)
	if err != nil {
		return none, err
	}
	if now.meta().UID() != obj.meta().UID() {
		return none, nil // of a subresource's patch, the server does not check it
	}
	return now, nil
}

// Run keeps the store equal to the server until ctx ends. It returns early, with a *StatusError, only when the server says that
// the very first list is a bad request: then a selector is wrong, and no patience will mend it.
func (r *Reflector[T]) Run(ctx context.Context) error {
	defer r.outage.Stop()
	defer r.discovery.Stop()
	if !strings.HasPrefix(r.kind.API, "/apis/") {
		return r.run(ctx)
	}
	// No single 404, of a list or of discovery, says that the resource is gone: one that is new may be answered so for a moment.
	var running sync.WaitGroup
	stop, err := func() {}, error(nil)
	for lacks := 0; ctx.Err() == nil; sleep(ctx, max(retryAfter(err), discoverEvery*4/5+rand.N(discoverEvery*2/5))) {
		here, news := r.found.Load(), (*presence)(nil)
		news, err = r.discover(ctx)
		if news != nil {
			lacks = 0
		} else if err == nil {
			lacks++
		}
		if err == nil {
			r.discovery.Worked("discovery")
		}
		switch {
		case err != nil && ctx.Err() == nil:
			r.discovery.Failed("discovery", "cannot discover", outagePause(err), "err", err)
		case news == nil && here == nil && lacks == 1:
			r.log.Info("waiting for a resource that the server does not have: is its CRD installed?", "resource", r.kind.Resource, "in", r.kind.API)
			if r.once {
				r.listed()
				stop()
				return nil
			}
		case news == nil && here != nil && lacks == 2:
			r.log.Info("the resource is gone: waiting for it to come back", "resource", r.kind.Resource, "in", r.kind.API)
			stop()
			running.Wait()
			r.outage.Forget("watch")
			r.found.Store(nil)
			r.failures = 0
			r.move("", "return")
			r.tell(r.List().Commit()...)
		case news != nil && (here == nil || *news != *here):
			r.log.Info("discovered", "resource", r.kind.Resource, "in", r.kind.API, "status", news.status)
			r.found.Store(news)
			for _, obj := range r.All() { // none, where it has just come
				r.tell(Delta[T]{obj, obj})
			}
			if here == nil {
				var alive context.Context
				alive, stop = context.WithCancel(ctx)
				running.Go(func() { r.run(alive) })
			}
		}
	}
	stop()
	running.Wait()
	return nil
}

// discover asks whether the server has the resource; nil: no. https://kubernetes.io/docs/concepts/overview/kubernetes-api/#discovery-api
func (r *Reflector[T]) discover(ctx context.Context) (found *presence, err error) {
	var answer struct {
		Kind      string
		Resources []struct{ Name string }
	}
	err = r.client.Send(ctx, request{method: http.MethodGet, path: r.kind.API}, &answer)
	if statusIn(err).Code == http.StatusNotFound {
		return nil, nil // nothing at all of this group and version
	} else if err == nil && answer.Kind != "APIResourceList" {
		err = fmt.Errorf("%s: the answer is of kind %q, not APIResourceList", r.kind.API, answer.Kind)
	}
	has := func(name string) bool { return slices.Contains(answer.Resources, struct{ Name string }{name}) }
	if has(r.kind.Resource) {
		found = &presence{has(r.kind.Resource + "/status")}
	}
	return found, err
}

// run lists and watches until ctx ends, or as Run says.
func (r *Reflector[T]) run(ctx context.Context) error {
	for ctx.Err() == nil {
		var wait time.Duration
		if r.version != "" && time.Now().Before(r.relistAt) {
			wait = r.watch(ctx)
		} else if err := r.list(ctx); err != nil && ctx.Err() == nil {
			if r.synced.Err() == nil && r.found.Load() == nil && statusIn(err).Reason == "BadRequest" {
				return err
			}
			wait = r.afterFailure("cannot list", err)
		}
		sleep(ctx, wait)
	}
	return nil
}

// afterFailure says what failed, and how long to wait.
func (r *Reflector[T]) afterFailure(what string, err error) time.Duration {
	if time.Since(r.failedAt) > healthy {
		r.failures = 0
	}
	r.failures++
	r.failedAt = time.Now()
	wait := max(backoff(r.failures, reflectorBackoff, reflectorLimit), retryAfter(err))
	r.outage.Failed("watch", what, outagePause(err), "err", err)
	return wait
}

// request begins a list or a watch, whose objects come as this type where metadata alone is asked for.
func (r *Reflector[T]) request(as string) request {
	q := url.Values{"labelSelector": {r.kind.Selector}, "fieldSelector": {r.kind.Fields}}
	maps.DeleteFunc(q, func(_ string, values []string) bool { return values[0] == "" })
	types := []string{wire.Protobuf, wire.JSON}
	if !r.kind.Protobuf {
		types = types[1:]
	}
	return request{method: http.MethodGet, path: r.kind.path(r.kind.Namespace), query: q, accept: accept(r.kind.MetadataOnly, as, types...)}
}

// list makes the store equal to one complete list: the most recent state, which an unset resourceVersion asks for.
func (r *Reflector[T]) list(ctx context.Context) error {
	start, listing := time.Now(), r.List()
	meta, err := r.pages(ctx, listing)
	if err != nil {
		if code := statusIn(err).Code; listing.n > 0 || errors.Is(err, errSilent) || code == http.StatusInternalServerError || code == http.StatusGatewayTimeout {
			r.lost++ // too much for this server, or for the way to it? Pages are smaller
			r.paged = r.paged || r.lost >= 2
		}
		// The hourly list can wait; what the watch brings cannot.
		r.relistAt, r.away = time.Now().Add(relistEvery/12+rand.N(relistEvery/12)), r.away || statusIn(err).Code/100 != 4
		return err
	}
	isFirst := r.synced.Err() == nil
	changes := listing.Commit() // of the first list, none
	r.tell(changes...)
	changed := len(changes)
	if isFirst {
		changed = r.Len()
	}
	r.log.Info("listed", "kind", r.kind.Name, "objects", r.Len(), "rv", meta.ResourceVersion, "changes", changed,
		"took", time.Since(start).Round(time.Millisecond))
	r.log.Count("podcount_relists_total", r.kind.Name, cmp.Or(r.why, "hour"))
	r.move(meta.ResourceVersion, "")
	r.lost, r.vain, r.away = 0, 0, false
	r.relistAt = time.Now().Add(relistEvery + rand.N(relistEvery/5) - relistEvery/10)
	r.listed()
	return nil
}

// pages reads a list: whole, in one answer, which is half the work for both sides; or in pages.
func (r *Reflector[T]) pages(ctx context.Context, listing *Listing[T]) (meta wire.ListMeta, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTime, fmt.Errorf("the list has not ended after %v", listTime))
	defer cancel()
	start, slow, req := time.Now(), slowList, r.request("PartialObjectMetadataList")
	if r.paged {
		req.query.Set("limit", strconv.Itoa(pageLimit))
	}
	for range listLimit/pageLimit + 1 {
		body, err := r.client.stream(ctx, req)
		if err != nil {
			return meta, err
		}
		meta, err = r.decoder.list(body, body.isProtobuf, func(obj T, text []byte) (kept bool, err error) {
			if listing.n%256 == 0 && time.Since(start) > slow {
				r.log.Info("still listing", "kind", r.kind.Name, "objects", listing.n, "for", time.Since(start).Round(time.Second))
				slow = 2 * time.Since(start)
			}
			return listing.Add(obj, text)
		})
		body.Close()
		if err != nil || meta.Continue == "" {
			return meta, req.failed(err)
		}
		req.query.Set("continue", meta.Continue)
	}
	return meta, req.failed(fmt.Errorf("the list has not ended after %d pages", listLimit/pageLimit))
}

// watch applies events until the watch ends. Then it decides how long to wait, and, by clearing version, whether to list.
func (r *Reflector[T]) watch(ctx context.Context) (wait time.Duration) {
	due, cancel := context.WithDeadlineCause(ctx, r.relistAt, errRelist)
	defer cancel()
	req := r.request("PartialObjectMetadata")
	maps.Copy(req.query, url.Values{"watch": {"1"}, "resourceVersion": {r.version}, "allowWatchBookmarks": {"true"},
		"timeoutSeconds": {strconv.Itoa(300 + rand.IntN(300))}}) // so that watches do not all end together
	body, err := r.client.stream(due, req)
	opened, from, start := err == nil, r.version, time.Now()
	events := 0 // frames that were understood, bookmarks too
	if opened {
		defer body.Close()
		if r.away && r.rewound(ctx) {
			return 0
		}
		start = time.Now()
		r.log.Log(ctx, levelFlow, "watching", "kind", r.kind.Name, "rv", from)
		// An idle watch says nothing for a while. One that was refused in truth ends at once.
		lives := time.AfterFunc(shortWatch, func() { r.outage.Worked("watch") })
		err = r.decoder.events(body, body.isProtobuf, func(ev WatchEvent[T]) error {
			if ev.Status != nil {
				status := &StatusError{Status: *ev.Status}
				status.Code = cmp.Or(status.Code, http.StatusInternalServerError)
				return req.failed(status)
			}
			events++
			r.log.Count("podcount_watch_events_total", r.kind.Name, ev.Type)
			r.apply(ev)
			if r.version != from {
				r.outage.Worked("watch")
			}
			return nil
		})
		lives.Stop()
	}
	status := statusIn(err)
	code := status.Code
	r.away = r.away || !opened && code/100 != 4
	silent := events == 0 && errors.Is(err, errSilent)
	short := opened && r.version == from && time.Since(start) < shortWatch
	if events > 0 && !short {
		r.vain, r.expired = 0, 0
	}
	enough, why, failed := 0, "", "" // that many watches in vain, one after the other, lead to a list; 0: this one was not
	switch {
	case errors.Is(err, errRelist) || ctx.Err() != nil:
		return 0
	case code == http.StatusGone || status.Reason == "Expired" || status.Reason == "Gone":
		// The version is too old, which is no fault: with a server's restart, history begins anew. A wait, but not an outage's.
		r.expired++
		enough, why, wait = 1, "expired", backoff(r.expired, reflectorBackoff, reflectorLimit)
	case code == http.StatusBadRequest || code == http.StatusUnprocessableEntity:
		enough, why, failed = 1, "refused", "cannot watch"
	case opened && code != 0 && code != http.StatusTooManyRequests: // an ERROR frame: for this version it may never end
		enough, why, failed = 2, "error", "cannot watch"
	case code != 0 || !opened && !silent:
		failed = "cannot watch"
	case errors.As(err, new(wire.GarbageError)):
		enough, why, failed = 2, "garbage", "watch ended in garbage"
	case silent: // Not even a bookmark. A version from the future, too, is answered so.
		enough, why = 2, "silence"
	case short:
		enough, why, failed = 3, "short", "watch ended at once"
	}
	err = cmp.Or(err, io.EOF)
	if failed != "" {
		wait = r.afterFailure(failed, err)
	} else {
		r.log.Log(ctx, levelFlow, "watch ended", "kind", r.kind.Name, "rv", r.version, "err", err)
	}
	if enough > 0 {
		if r.vain++; r.vain >= enough {
			r.move("", why)
			r.log.Info("listing anew", "kind", r.kind.Name, "after", err)
		}
	}
	return wait
}

// rewound asks for the newest version. It is older than what we have heard of if etcd was restored from a backup: then a
// list is due, and at once, as other changes will come under the same versions. Where that fails, the next watch asks.
func (r *Reflector[T]) rewound(ctx context.Context) bool {
	var page struct{ Metadata wire.ListMeta }
	req := r.request("")
	req.accept, req.limit = accept(true, "PartialObjectMetadataList", wire.JSON), shortWatch // as the watch waits
	req.query.Set("limit", "1")
	if r.client.Send(ctx, req, &page) != nil {
		return false
	}
	if r.away = false; newerVersion(r.version, page.Metadata.ResourceVersion) {
		r.log.Info("versions have gone back", "kind", r.kind.Name, "from", r.version, "to", page.Metadata.ResourceVersion)
		r.move("", "restored")
	}
	return r.version == ""
}

// apply takes one event and moves the resume point. A bookmark moves that only.
func (r *Reflector[T]) apply(ev WatchEvent[T]) {
	m := ev.Object.meta()
	stale := !newerVersion(m.ResourceVersion(), r.version) // it would turn back time
	if r.log.Enabled(context.Background(), slog.LevelDebug) {
		r.log.Debug(strings.TrimSpace(ev.Type+" "+r.kind.Name+" "+m.Key().String()), "rv", m.ResourceVersion(), "stale", stale)
	}
	if stale {
		return
	}
	r.move(m.ResourceVersion(), "")
	if ev.Type != "BOOKMARK" {
		r.tell(r.Apply(ev.Type, ev.Object)...)
	}
}
