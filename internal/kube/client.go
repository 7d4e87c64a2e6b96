// Package kube speaks to one API server, as one user: requests with their answers, streams, and the API's own errors. A
// request is sent again only after a 401, with fresh credentials (and by net/http, where a connection closed before the
// request had begun); all else goes back to the caller, who knows how long to wait (RetryAfter). No redirect is followed, nothing is sent without a Permit where one is needed, and no token is
// in any error.
//
// It knows no kind of objects, keeps nothing of what it has sent, and writes no log: Options.Observe hears of each
// exchange.
package kube

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"podcount/internal/kubeconfig"
	"podcount/internal/wire"
)

// RequestTimeout is how long Send waits for an answer: what the API server itself allows, and a little.
const RequestTimeout = 65 * time.Second

const (
	answerLimit = 64 << 20 // bytes of an answer that Send reads
	drainLimit  = 2 << 10  // bytes of the rest that it reads, so that the connection can be used again
)

// errDryRun is the last guard of a dry run: callers say what they would write, and do not come here.
var errDryRun = errors.New("not sent, as this is a dry run")

// Client speaks to one API server, as one user. Safe for concurrent use.
type Client struct {
	cfg     *kubeconfig.Config
	options Options
	permit  Permit // nil: each write may be sent

	mu   sync.Mutex // guards all below
	tls  *tls.Config
	conn *http.Transport // of tls
}

// Dialer opens connections, as net.Dialer.DialContext does.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Options are what a Client may be told. None of them is needed.
type Options struct {
	Dial         Dialer // nil is the network
	UserAgent    string // of each request; "" sends none
	FieldManager string // in whose name objects are written
	DryRun       bool   // no write is sent: each fails

	// Observe hears of each exchange, once it is answered or has failed. It is called by the goroutine that sent the
	// request, and must not wait. ctx is that of the request. nil: nobody hears of them.
	Observe func(ctx context.Context, e Exchange)
}

// Exchange is a request that was sent, and what came of it. A request that is sent again after a 401 is two.
type Exchange struct {
	Method string
	URI    string // path and query
	Host   string // of the server's address, with its port if it has one
	Status string // of the answer, such as "200 OK"; or "<error>", where there is none
	Code   string // the first word of Status
	Start  time.Time
}

// NewClient makes a client for the server and the user of cfg. It sends nothing yet. The caller closes it, and then
// cfg.
func NewClient(cfg *kubeconfig.Config, o Options) *Client {
	// The clone asks for HTTP/2, which is off in a Transport that is given a TLS configuration, unless that says so.
	conn := http.DefaultTransport.(*http.Transport).Clone()
	conn.Proxy = cfg.Proxy
	conn.OnProxyConnectResponse = checkProxyAnswer
	if o.Dial != nil {
		conn.DialContext = o.Dial
	}
	conn.HTTP2 = &http.HTTP2Config{
		// Pings notice a broken connection well before silence does.
		SendPingTimeout: 30 * time.Second,
		PingTimeout:     15 * time.Second,
		// 1 MB, not 4, still fills 80 Mbit/s at 100 ms.
		MaxReceiveBufferPerStream: 1 << 20,
	}
	// No credential has this TLS configuration: the first one brings its own.
	return &Client{cfg: cfg, options: o, conn: conn, tls: &tls.Config{}}
}

// SetPermit has each write ask p whether it may be sent, unless the Request says WithoutPermit. It must be called
// before the first request.
func (c *Client) SetPermit(p Permit) { c.permit = p }

// Close closes the connections that are not in use. Requests that are under way go on.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn.CloseIdleConnections()
}

// Send makes one request of a small answer in JSON, and decodes that into answer, unless answer is nil. Errors name the
// request. Where the server has refused it they are, or wrap, a *Status; an answer that cannot be understood is an error
// without one.
func (c *Client) Send(ctx context.Context, r Request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, RequestTimeout))
	defer cancel()
	if c.needsPermit(r) {
		var release context.CancelFunc
		ctx, release = c.permit.WhilePermitted(ctx)
		defer release()
	}
	if r.Body != nil {
		r.Query = url.Values{"fieldManager": {c.options.FieldManager}}
	}
	resp, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer io.CopyN(io.Discard, resp.Body, drainLimit)
	if _, err := formOf(resp); err != nil {
		return r.Failed(err)
	}
	if answer == nil {
		return nil
	}
	return r.Failed(json.NewDecoder(wire.Limited(resp.Body, answerLimit)).Decode(answer))
}

// Do makes one request, and returns an answer of success (2xx), whose body the caller closes. Anything else is an error
// that names the request; it is, or wraps, a *Status where the server has refused it. A request that gets a 401 is sent
// once more, if there is another credential now.
func (c *Client) Do(ctx context.Context, r Request) (*http.Response, error) {
	if c.options.DryRun && r.isWrite() {
		return nil, r.Failed(errDryRun)
	}
	cred, err := c.cfg.Credential(ctx, nil)
	if err != nil {
		return nil, r.Failed(err)
	}
	resp, err := c.exchange(ctx, r, cred)
	if StatusOf(err).Code != http.StatusUnauthorized {
		return resp, r.Failed(err)
	}
	fresh, renewalErr := c.cfg.Credential(ctx, cred)
	if renewalErr != nil {
		return nil, r.Failed(fmt.Errorf("%w; and then: %w", err, renewalErr))
	}
	if fresh == cred {
		return nil, r.Failed(err)
	}
	resp, err = c.exchange(ctx, r, fresh)
	return resp, r.Failed(err)
}

// exchange sends a request once.
func (c *Client) exchange(ctx context.Context, r Request, cred *kubeconfig.Credential) (*http.Response, error) {
	target := r.at(c.cfg.Server)
	req, err := c.newHTTP(ctx, r, target, cred)
	if err != nil {
		return nil, err
	}
	e := Exchange{Method: r.Method, URI: target.RequestURI(), Host: target.Host, Status: "<error>", Start: time.Now()}
	// Not by an http.Client: that would follow a redirect, which could lead a token elsewhere. No API server sends one.
	resp, err := c.transport(cred).RoundTrip(req)
	if err == nil {
		e.Status = resp.Status
	}
	e.Code, _, _ = strings.Cut(e.Status, " ")
	if c.options.Observe != nil {
		c.options.Observe(ctx, e)
	}
	if err != nil {
		return nil, c.explain(err)
	}
	if resp.StatusCode/100 != 2 {
		refusal := readStatus(resp, r.call())
		refusal.tried = cred.Tried
		return nil, refusal
	}
	return resp, nil
}

// transport returns the connections for a credential: new ones if its TLS is another. Watches that run stay on theirs.
func (c *Client) transport(cred *kubeconfig.Credential) *http.Transport {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tls != cred.TLS {
		c.conn.CloseIdleConnections()
		c.conn = c.conn.Clone()
		c.conn.TLSClientConfig = cred.TLS.Clone()
		c.tls = cred.TLS
	}
	return c.conn
}
