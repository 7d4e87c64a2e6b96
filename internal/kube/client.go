// Package kube speaks to one API server, as one user: requests with their answers, streams, and the API's own errors. A
// request is sent again only after a 401, with fresh credentials; all else goes back to the caller, who knows how long to
// wait (RetryAfter). No redirect is followed, nothing is sent without a Permit where one is needed, and no token is in
// any error.
//
// It knows no kind of objects, keeps nothing of what it has sent, and writes no log: Options.Observe hears of each
// request.
package kube

import (
	"bytes"
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

const (
	RequestTimeout = 65 * time.Second // of all but lists and watches: what the API server itself allows, and a little
	answerLimit    = 64 << 20         // bytes of an answer that is held whole
)

// Client speaks to one API server, as one user. Safe for concurrent use.
type Client struct {
	cfg     *kubeconfig.Config
	options Options
	permit  Permit // to write; nil: always

	mu   sync.Mutex // guards all below
	tls  *tls.Config
	conn *http.Transport // of tls
}

// Permit is what a leader has, and may lose at any moment.
type Permit interface {
	// MayWrite returns an error unless a write may be sent now.
	MayWrite() error
	// WhileLeading returns a context that ends with ctx, and with the permit.
	WhileLeading(ctx context.Context) (context.Context, context.CancelFunc)
}

// Dialer opens connections; nil stands for the net package's.
type Dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// Options are what a Client may be told.
type Options struct {
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
func NewClient(cfg *kubeconfig.Config, o Options) *Client {
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
func (c *Client) SetPermit(p Permit) { c.permit = p }

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

type Request struct {
	Method, Path  string
	Query         url.Values
	Body          any           // as JSON; a PATCH is a merge patch
	Accept        string        // JSON where it is empty
	WithoutPermit bool          // permit: this may be written without one
	Timeout       time.Duration // of Send; 0: requestTimeout
}

// needsPermit reports whether a request is sent only while this process may write.
func (c *Client) needsPermit(r Request) bool {
	isWrite := r.Method != http.MethodGet
	return isWrite && c.permit != nil && !r.WithoutPermit
}

// Failed says of an error, unless it is nil, which request it is about.
func (r Request) Failed(err error) error {
	if err != nil {
		err = fmt.Errorf("%s: %w", CallOf(r.Method, r.Path, r.Query), err)
	}
	return err
}

// Do sends one request and returns a 2xx answer, whose body the caller closes; anything else is an error, a *StatusError where
// the server answered. It tries again once, after a 401: the loops above it have their backoffs, and honour retryAfter.
func (c *Client) Do(ctx context.Context, r Request) (resp *http.Response, err error) {
	cred, err := c.cfg.Credential(ctx, nil)
	if err == nil {
		resp, err = c.send(ctx, r, cred)
	}
	if StatusOf(err).Code == http.StatusUnauthorized {
		fresh, renewal := c.cfg.Credential(ctx, cred)
		if renewal != nil {
			err = fmt.Errorf("%w; and then: %w", err, renewal)
		} else if fresh != cred {
			resp, err = c.send(ctx, r, fresh)
		}
	}
	return resp, r.Failed(err)
}

// send makes one exchange.
func (c *Client) send(ctx context.Context, r Request, cred *kubeconfig.Credential) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = json.Marshal(r.Body); err != nil {
			return nil, err
		}
	}
	u := *c.cfg.Server
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+r.Path, r.Query.Encode()
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if c.needsPermit(r) {
		if err := c.permit.MayWrite(); err != nil {
			return nil, err
		}
		guardBody(req, body, c.permit)
	}
	req.Header.Set("Accept", cmp.Or(r.Accept, wire.JSON))
	req.Header.Set("User-Agent", c.options.UserAgent)
	if body != nil {
		contentType := wire.JSON
		if r.Method == http.MethodPatch {
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
		c.options.Observe(ctx, Exchange{r.Method, u.RequestURI(), u.Host, status, code, start})
	}
	if err != nil {
		return nil, c.explain(err)
	} else if resp.StatusCode/100 != 2 {
		refusal := readStatus(resp, CallOf(r.Method, r.Path, r.Query))
		refusal.tried = cred.Tried
		return nil, refusal
	}
	return resp, nil
}

// ErrDryRun is the last guard of a dry run. What would be written is said by those who know what it means.
var ErrDryRun = errors.New("not sent, as this is a dry run")

// Send makes one request of a small answer, which it decodes into answer unless that is nil. It takes requestTimeout at most.
func (c *Client) Send(ctx context.Context, r Request, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(r.Timeout, RequestTimeout))
	defer cancel()
	if c.needsPermit(r) {
		var release context.CancelFunc
		ctx, release = c.permit.WhileLeading(ctx)
		defer release()
	}
	if r.Body != nil {
		r.Query = url.Values{"fieldManager": {c.options.FieldManager}}
	}
	if c.options.DryRun && r.Method != http.MethodGet {
		return r.Failed(ErrDryRun)
	}
	resp, err := c.Do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	defer io.CopyN(io.Discard, resp.Body, 2<<10) // what little is left, so that the connection can be used again
	if _, err = wireOf(resp); err == nil && answer != nil {
		err = json.NewDecoder(wire.Limited(resp.Body, answerLimit)).Decode(answer)
	}
	return r.Failed(err)
}

// Stream opens a list or a watch. The body ends with errSilent when nothing has arrived for so long.
func (c *Client) Stream(ctx context.Context, r Request) (*Stream, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	b := &Stream{ReadCloser: http.NoBody, ctx: ctx, cancel: cancel, timer: time.AfterFunc(Silence, func() { cancel(ErrSilent) })}
	resp, err := c.Do(ctx, r)
	if err == nil {
		b.ReadCloser = resp.Body
		b.IsProtobuf, err = wireOf(resp)
		err = r.Failed(err)
	}
	if err != nil {
		defer b.Close() // which is a cause, too
		return nil, cmp.Or(r.Failed(context.Cause(ctx)), err)
	}
	return b, nil
}
