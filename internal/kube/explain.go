package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
)

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
