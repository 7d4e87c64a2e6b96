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

// Request is a request to the API server. Method and API are required. A request without a Resource is about the API
// itself.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris
type Request struct {
	// Method is the HTTP method. Every method except GET is a write.
	Method string

	API         string // /api/v1, or /apis/GROUP/VERSION
	Namespace   string // "" is every namespace, or none if the resource has none
	Resource    string // such as "pods"
	Name        string // the name of an object; "" is the whole collection
	Subresource string // of that object, such as "status"; "" is the object itself

	// Query is the part of the URL after the question mark. If there is a Body, Send adds the field manager.
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

// Path returns the path of the URL, without that of the server's address.
func (r Request) Path() string {
	path := r.API
	if r.Namespace != "" {
		path += "/namespaces/" + r.Namespace
	}
	for _, part := range []string{r.Resource, r.Name, r.Subresource} {
		if part != "" {
			path += "/" + part
		}
	}
	return path
}

// String describes the request in the terms of RBAC, as in "patch counts/status/default/web".
func (r Request) String() string {
	if r.Resource == "" {
		return r.verb() + " " + strings.TrimPrefix(r.API, "/apis/")
	}
	text := r.verb() + " " + r.resource()
	if r.Name == "" {
		return text
	}
	if r.Namespace != "" {
		text += "/" + r.Namespace
	}
	return text + "/" + r.Name
}

// verb returns the RBAC verb.
// https://kubernetes.io/docs/reference/access-authn-authz/authorization/#request-verb-resource
func (r Request) verb() string {
	switch {
	case r.Query.Get("watch") != "":
		return "watch"
	case r.Method == http.MethodGet && r.Resource != "" && r.Name == "":
		return "list"
	case r.Method == http.MethodPost:
		return "create"
	case r.Method == http.MethodPut:
		return "update"
	default:
		return strings.ToLower(r.Method)
	}
}

// group returns the API group. It is "" for the core group.
func (r Request) group() string {
	version, isNamed := strings.CutPrefix(r.API, "/apis/")
	if !isNamed {
		return ""
	}
	group, _, _ := strings.Cut(version, "/")
	return group
}

// resource returns the resource with its subresource, such as "counts/status".
func (r Request) resource() string { return strings.TrimSuffix(r.Resource+"/"+r.Subresource, "/") }

// Wrap adds the request to an error, as in "list pods: …", and cuts off what is too long. An error that is cut wraps
// nothing any more. Wrap returns nil if err is nil. The Client does this for its own errors. Callers do it for errors
// that they find in an answer.
func (r Request) Wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r, shortened(err, errorLimit))
}

func (r Request) isWrite() bool { return r.Method != http.MethodGet }

// newHTTPRequest makes the HTTP request. It fails if the request is a write that is not permitted now.
func (c *Client) newHTTPRequest(ctx context.Context, r Request, cred *kubeconfig.Credential) (*http.Request, error) {
	var body []byte
	if r.Body != nil {
		var err error
		body, err = json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
	}
	target := *c.cfg.Server
	target.Path = strings.TrimSuffix(target.Path, "/") + r.Path()
	target.RawQuery = r.Query.Encode()
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
	if body != nil && r.Method == http.MethodPatch {
		req.Header.Set("Content-Type", "application/merge-patch+json")
	} else if body != nil {
		req.Header.Set("Content-Type", wire.JSON)
	}
	if cred.Token != "" {
		req.Header.Set("Authorization", "Bearer "+cred.Token)
	}
	return req, nil
}
