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

// errNoPermit is the error of a permit that has ended.
var errNoPermit = errors.New("no permit")

// credentialSource is the type of Config.Credential.
type credentialSource func(ctx context.Context, refused *kubeconfig.Credential) (*kubeconfig.Credential, error)

// simulate runs a test in virtual time, with a new fake API server.
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

// noCredential is the credentialSource of an anonymous client.
func noCredential(context.Context, *kubeconfig.Credential) (*kubeconfig.Credential, error) {
	return &kubeconfig.Credential{}, nil
}

// all returns all requests that the fake has received.
func all(f *fakekube.Server) []fakekube.Request {
	return f.Requests(func(fakekube.Request) bool { return true })
}
