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

	"podcount/internal/api/kubeconfig"
	"podcount/internal/api/wire"
)

// Request is a request to the API server. Method and Path are required.
type Request struct {
	// Method is the HTTP method. Every method except GET is a write.
	Method string

	// Path begins with /api or /apis. If the server's address has a path, Path is appended to that.
	Path string

	// Query is the part of the URL after the question mark. If there is a Body, Send replaces Query with the field
	// manager.
	Query url.Values

	// Body is sent as JSON, or as a JSON merge patch if the method is PATCH. nil means that there is no body.
	Body any

	// Accept lists the media types that the answer may have. The function Accept makes such a list. "" means JSON.
	Accept string

	// WithoutPermit lets a write be sent without the Client's Permit. The write that obtains the permit needs this.
	WithoutPermit bool

	// Timeout limits how long Send takes. 0 means RequestTimeout.
	Timeout time.Duration

	// NewConnection sends the request on a connection of its own, which is closed after the answer. Where several
	// replicas of the API server share an address, another replica may answer than for the other requests.
	NewConnection bool
}

// Failed adds the request to an error, as in "list pods: …", and cuts off what is too long. An error that is cut wraps
// nothing any more. Failed returns nil if err is nil. The Client does this for its own errors. Callers do it for errors
// that they find in an answer.
func (r Request) Failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r.call(), shortened(err, errorLimit))
}

func (r Request) call() call { return callOf(r.Method, r.Path, r.Query) }

func (r Request) isWrite() bool { return r.Method != http.MethodGet }

// urlAt returns the URL of the request at a server.
func (r Request) urlAt(server *url.URL) *url.URL {
	target := *server
	target.Path = strings.TrimSuffix(server.Path, "/") + r.Path
	target.RawQuery = r.Query.Encode()
	return &target
}

// newHTTPRequest makes the HTTP request. It fails if the request is a write that is not permitted now.
func (c *Client) newHTTPRequest(
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
	if body != nil {
		req.Header.Set("Content-Type", r.contentType())
	}
	if cred.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cred.Token)
	}
	return req, nil
}

// contentType returns the media type of the body.
func (r Request) contentType() string {
	if r.Method == http.MethodPatch {
		return "application/merge-patch+json"
	}
	return wire.JSON
}
