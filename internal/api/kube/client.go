// Package kube sends requests to one API server, as one user, and reads answers, streams, and the API's errors.
//
// It retries a request only after a 401, with another credential. (net/http also retries if a connection was closed
// before the request was sent.) All other errors go to the caller, which decides when to retry: see RetryAfter. The
// package follows no redirects. If a Permit is set, it sends no write without it. It never puts a token into an error.
//
// It knows no kind of object, and does not log: it passes each exchange to Options.Observe.
package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/wire"
	"podcount/internal/view/observe"
)

// RequestTimeout is how long Send waits for an answer. API servers end their own requests after 60 seconds.
const RequestTimeout = 65 * time.Second

const (
	headerLimit = 64 << 10 // the maximum size of an answer's headers, in bytes, with those of answers 1xx before it
	answerLimit = 4 << 20  // the maximum size of an answer that Send decodes, in bytes
	drainLimit  = 2 << 10  // how many bytes Send reads after the answer, to be able to reuse the connection
)

// errDryRun is the error of a write in a dry run. Callers should not attempt one: this is only the last safeguard.
var errDryRun = errors.New("not sent, because this is a dry run")

// Client sends requests to one API server, as one user. It is safe for concurrent use.
type Client struct {
	cfg     *kubeconfig.Config
	options Options
	permit  Permit // nil if writes need no permit

	mu        sync.Mutex      // guards tls and transport
	tls       *tls.Config     // of the newest credential
	transport *http.Transport // its connections use tls
}

// Dialer opens connections, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Options configure a Client. All of them are optional.
type Options struct {
	Dial         Dialer // opens connections; nil is the default of net/http
	UserAgent    string // the header User-Agent; "" sends none
	FieldManager string // the name under which the server records writes
	DryRun       bool   // writes fail, and are not sent

	// Observe is called after each exchange, with the context of the request, by the goroutine that sent it. It must
	// not wait. It may be nil.
	Observe func(ctx context.Context, e observe.Exchange)
}

// NewClient makes a client for the server and the user of cfg. It sends nothing. The caller must close the client, and
// after that cfg.
func NewClient(cfg *kubeconfig.Config, o Options) *Client {
	// The clone has ForceAttemptHTTP2 set. Without that, a Transport with its own TLS configuration uses HTTP/1.1.
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.Proxy = cfg.Proxy
	transport.OnProxyConnectResponse = checkProxyAnswer
	transport.MaxResponseHeaderBytes = headerLimit
	if o.Dial != nil {
		transport.DialContext = o.Dial
	}
	transport.HTTP2 = &http.HTTP2Config{
		// Pings detect a broken connection long before Silence does.
		SendPingTimeout: 30 * time.Second,
		PingTimeout:     15 * time.Second,
		// The default is 4 MB. With 1 MB, a stream still reaches 80 Mbit/s at a round-trip time of 100 ms.
		MaxReceiveBufferPerStream: 1 << 20,
	}
	return &Client{
		cfg:       cfg,
		options:   o,
		tls:       &tls.Config{}, // a placeholder, which transportFor replaces before the first request
		transport: transport,
	}
}

// SetPermit makes every write require the permit p, unless the request has WithoutPermit. It must be called before the
// first request.
func (c *Client) SetPermit(p Permit) { c.permit = p }

// Close closes idle connections. Requests in flight continue.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.transport.CloseIdleConnections()
}

// Send sends a request, and calls read with the answer, unless read is nil. The answer should be JSON, and has at most
// answerLimit bytes. The errors of Send, and those of read, name the request. They wrap a *Status if the server has
// refused it, and the cause if the end of a context has cut it off.
func (c *Client) Send(ctx context.Context, r Request, read func(answer io.Reader) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, RequestTimeout))
	defer cancel()
	if c.needsPermit(r) {
		var release context.CancelFunc
		ctx, release = c.permit.WhilePermitted(ctx)
		defer release()
	}
	if r.Body != nil {
		query := url.Values{"fieldManager": {c.options.FieldManager}}
		maps.Copy(query, r.Query)
		r.Query = query
	}
	resp, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer io.CopyN(io.Discard, resp.Body, drainLimit)
	// Even if the caller wants no answer, the HTML page of a proxy is no success.
	if _, err := formatOf(resp); err != nil {
		return r.Wrap(err)
	}
	if read == nil {
		return nil
	}
	return r.Wrap(read(wire.Limited(resp.Body, answerLimit)))
}

// Do sends a request, and returns an answer whose code is 2xx. The caller must close the answer's body. Any other
// outcome is an error, which names the request, and wraps a *Status if the server has refused it. If ctx ends, that
// error, or one of the body, wraps the cause. After a 401, Do sends the request once more if there is another token or
// client certificate.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	if c.options.DryRun && r.isWrite() {
		return nil, r.Wrap(errDryRun)
	}
	cred, err := c.cfg.Credential(ctx, nil)
	if err != nil {
		return nil, r.Wrap(err)
	}
	resp, err := c.exchange(ctx, r, cred)
	if StatusOf(err).Code != http.StatusUnauthorized {
		return resp, r.Wrap(err)
	}
	fresh, renewalErr := c.cfg.Credential(ctx, cred)
	if renewalErr != nil {
		return nil, r.Wrap(fmt.Errorf("%w; and then: %w", err, renewalErr))
	}
	if fresh.HasIdentityOf(cred) {
		return nil, r.Wrap(err)
	}
	resp, err = c.exchange(ctx, r, fresh)
	return resp, r.Wrap(err)
}

// exchange sends a request once. It does not use an http.Client, which would follow redirects, and could thereby send a
// token to another server. API servers send no redirects.
func (c *Client) exchange(ctx context.Context, r Request, cred *kubeconfig.Credential) (*http.Response, error) {
	req, err := c.newHTTPRequest(ctx, r, cred)
	if err != nil {
		return nil, err
	}
	start := time.Now()
	transport := c.transportFor(cred)
	if r.NewConnection {
		transport = transport.Clone() // It has no connections yet.
		transport.DisableKeepAlives = true
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		err = c.withoutAnswer(ctx, err)
		c.observe(req, "<error>", err.Error(), start)
		return nil, err
	}
	resp.Body = &answerBody{resp.Body, ctx}
	c.observe(req, describeCode(resp.StatusCode), "", start)
	if resp.StatusCode/100 != 2 {
		return nil, readStatus(resp, r, cred.Tried)
	}
	return resp, nil
}

// observe passes an exchange to the observer.
func (c *Client) observe(req *http.Request, status, problem string, start time.Time) {
	if c.options.Observe == nil {
		return
	}
	c.options.Observe(req.Context(), observe.Exchange{
		Method: req.Method,
		URI:    req.URL.RequestURI(),
		Host:   req.URL.Host,
		Status: status,
		Error:  problem,
		Start:  start,
	})
}

// describeCode returns the code of an answer with its usual name, whatever the server calls it. Each code becomes a
// label of a metric, and with HTTP/2 a server can send any number, so all that are no codes of HTTP share one label.
func describeCode(code int) string {
	if code < 100 || code > 599 {
		return "<invalid>"
	}
	return strings.TrimSpace(strconv.Itoa(code) + " " + http.StatusText(code))
}

// transportFor returns the transport for a credential: a new one if the credential has another TLS configuration than
// the previous credential. Requests in flight keep their connections.
func (c *Client) transportFor(cred *kubeconfig.Credential) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls != cred.TLS {
		c.transport.CloseIdleConnections()
		c.transport = c.transport.Clone()
		c.transport.TLSClientConfig = cred.TLS.Clone()
		c.tls = cred.TLS
	}
	return c.transport
}
