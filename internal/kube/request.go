package kube

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"podcount/internal/kubeconfig"
	"podcount/internal/wire"
)

// Request is what is asked of the API server. Its Method and its Path are needed.
type Request struct {
	Method string // as in HTTP. Each but GET is a write

	// Path begins with /api or /apis. That of the server's address, if it has one, goes before it.
	Path string

	// Query is the part after the question mark. Of a request with a Body, Send makes it the field manager alone.
	Query url.Values

	// Body is sent as JSON; of a PATCH, it is a merge patch. nil is no body.
	Body any

	// Accept lists the media types of the answer that are wanted, as the function Accept does. "" is JSON.
	Accept string

	// WithoutPermit lets a write be sent without the Client's Permit. It is for the one that is made to get the permit.
	WithoutPermit bool

	// Timeout is how long Send may take. 0 is RequestTimeout.
	Timeout time.Duration
}

// Failed adds to an error which request it is about, as in "list pods: …"; nil stays nil. The Client does so with each
// error that it returns; callers do with what they find wrong in an answer.
func (r Request) Failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r.call(), err)
}

func (r Request) call() call { return callOf(r.Method, r.Path, r.Query) }

func (r Request) isWrite() bool { return r.Method != http.MethodGet }

// at returns where a request goes at this server.
func (r Request) at(server *url.URL) *url.URL {
	target := *server
	target.Path = strings.TrimSuffix(server.Path, "/") + r.Path
	target.RawQuery = r.Query.Encode()
	return &target
}

// newHTTP makes a request of HTTP, unless it is a write that is not permitted now.
func (c *Client) newHTTP(
	ctx context.Context, r Request, target *url.URL, cred *kubeconfig.Credential,
) (*http.Request, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target.String(), bytes.NewReader(body))
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
	switch {
	case body == nil:
	case r.Method == http.MethodPatch:
		req.Header.Set("Content-Type", "application/merge-patch+json")
	default:
		req.Header.Set("Content-Type", wire.JSON)
	}
	if cred.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cred.Token)
	}
	return req, nil
}
