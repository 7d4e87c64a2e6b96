package kube

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
	"podcount/internal/kubeconfig"
)

// errNoPermit is what a permit that is not given says.
var errNoPermit = errors.New("no permit")

// credentialSource is Config.Credential.
type credentialSource func(ctx context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error)

// simulate runs a test in virtual time, with a fake of its own.
func simulate(t *testing.T, test func(t *testing.T, f *fakekube.Server)) {
	synctest.Test(t, func(t *testing.T) { test(t, fakekube.New()) })
}

// clientOf makes a client of the fake, over HTTP/1.1, until the test ends.
func clientOf(t *testing.T, f *fakekube.Server, credential credentialSource, o Options) *Client {
	base, _ := url.Parse("http://127.0.0.1:1")
	o.Dial = f.ServeIn(t).Dial
	client := NewClient(&kubeconfig.Config{Server: base, Source: "a test", Credential: credential}, o)
	t.Cleanup(client.Close)
	return client
}

// noCredential is what a client has that says nothing of itself.
func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// all are all requests that the fake has got.
func all(f *fakekube.Server) []fakekube.Request {
	return f.Requests(func(fakekube.Request) bool { return true })
}
