package kube

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// errNoPermit is the error of a permit that has ended.
var errNoPermit = errors.New("no permit")

// credentialSource is the type of Config.Credential.
type credentialSource func(ctx context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error)

// server is a fake API server, and the way to it.
type server struct {
	*fakekube.Server
	line fixture.Line
}

// simulate runs a test in virtual time, with a new fake API server: once over HTTP/1.1, and once over HTTP/2.
func simulate(t *testing.T, test func(t *testing.T, f server)) {
	t.Helper()
	for _, protocol := range fixture.Protocols {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := fakekube.New()
				test(t, server{f, fixture.NetworkOver(t, f, protocol)})
			})
		})
	}
}

// clientOf makes a client of the fake until the test ends. Options.Dial may replace the dialer of its line.
func clientOf(t *testing.T, f server, credential credentialSource, o Options) *Client {
	base, _ := url.Parse(f.line.Scheme + "://127.0.0.1:1")
	if o.Dial == nil {
		o.Dial = f.line.Dial
	}
	withTLS := func(ctx context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error) {
		cred, err := credential(ctx, refused)
		if cred != nil && cred.TLS == nil {
			cred.TLS = f.line.TLS
		}
		return cred, err
	}
	client := NewClient(&kubeconfig.Config{Server: base, Source: "a test", Credential: withTLS}, o)
	t.Cleanup(client.Close)
	return client
}

// noCredential is the credentialSource of an anonymous client.
func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// all returns all requests that the fake has received.
func all(f *fakekube.Server) []fakekube.Request {
	return fixture.Requests(f, func(fakekube.Request) bool { return true })
}
