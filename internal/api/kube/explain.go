package kube

import (
	"cmp"
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"podcount/internal/api/wire"
)

// proxyRefusal is the error for a proxy that refuses to connect to the server. net/http would report only the
// proxy's answer, such as "Forbidden", which looks like an error of the API server.
type proxyRefusal struct {
	proxy  string
	status string
	code   int
}

func (r *proxyRefusal) Error() string {
	return fmt.Sprintf("the proxy %s refuses the connection: %s", r.proxy, r.status)
}

// checkProxyAnswer returns a proxyRefusal unless the proxy has connected to the server. It is for the field
// OnProxyConnectResponse of http.Transport.
func checkProxyAnswer(_ context.Context, proxy *url.URL, _ *http.Request, answer *http.Response) error {
	if answer.StatusCode == http.StatusOK {
		return nil
	}
	status := wire.Shorten(answer.Status, quoteLimit)
	return &proxyRefusal{proxy: proxy.Redacted(), status: status, code: answer.StatusCode}
}

// explain adds a hint to an error of the network or of TLS, together with the server's address and the source of that
// address. It only shortens other errors.
func (c *Client) explain(err error) error {
	hint := cmp.Or(hintForProxy(err), hintForFIPS(err), hintForTLS(err), hintForNetwork(err))
	err = shortened(err, errorLimit/2) // the rest is for the hint
	if hint == "" {
		return err
	}
	return fmt.Errorf("%s, from %s: %w (%s)", c.cfg.Server.Redacted(), c.cfg.Source, err, hint)
}

const (
	errorLimit = 2 << 10 // how many bytes of an error are kept
	quoteLimit = 200     // how many bytes of another text of a server an error quotes
)

// shortened returns an error that needs little memory, whatever a server has put into it: a line that is no header, a
// hundred names in a certificate, the reason for a GOAWAY. A Status is short already. Of another error that is long, or
// that has certificates, only the beginning of the text is left, and it wraps nothing.
func shortened(err error, limit int) error {
	if err == nil || StatusOf(err).Code != 0 {
		return err
	}
	text := err.Error()
	hasCertificates := errors.As(err, new(*tls.CertificateVerificationError))
	if len(text) <= limit && !hasCertificates {
		return err
	}
	return errors.New(wire.Shorten(text, limit))
}

// hintForProxy says what to do if a proxy has refused the connection.
func hintForProxy(err error) string {
	var refusal *proxyRefusal
	if !errors.As(err, &refusal) {
		return ""
	}
	if refusal.code == http.StatusProxyAuthRequired {
		return "give its user and password in the kubeconfig's proxy-url, or in HTTPS_PROXY: http://USER:PASSWORD@HOST"
	}
	return "allow connections to the API server there, or go without the proxy: " +
		"remove the kubeconfig's proxy-url, or set NO_PROXY"
}

// ruleOfFIPS says what Go's TLS accepts in FIPS 140-3 mode, and the way out.
const ruleOfFIPS = "FIPS 140-3 mode is on: use RSA keys of 2048 bits or more, Ed25519, or P-256, P-384 or P-521, " +
	"and TLS 1.3, or TLS 1.2 with ECDHE, AES-GCM and Extended Master Secret; or set GODEBUG=fips140=off"

// hintForFIPS says what to do if FIPS 140-3 mode forbids what the server, its CA or the client certificate needs.
func hintForFIPS(err error) string {
	text := err.Error()
	if strings.Contains(text, "FIPS 140-only mode") || strings.Contains(text, "tls: FIPS 140-3 requires") ||
		strings.Contains(text, "tls: no FIPS compatible certificate") {
		return ruleOfFIPS
	}
	return ""
}

// hintForTLS says what to do if client and server could not agree on TLS, or if the server's certificate is not valid.
func hintForTLS(err error) string {
	var unknown x509.UnknownAuthorityError
	if errors.As(err, &unknown) {
		return fmt.Sprintf("give the CA of this cluster as certificate-authority; "+
			"the server's certificate was issued by %q", wire.Shorten(unknown.Cert.Issuer.String(), quoteLimit))
	}
	var otherName x509.HostnameError
	if errors.As(err, &otherName) {
		return "give one of these names as tls-server-name, or in the server's address"
	}
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.Expired {
		return "renew the server's certificate, or set the clock of this machine"
	}
	var unverified *tls.CertificateVerificationError
	if errors.As(err, &unverified) {
		return "give the server a certificate for servers, and give the CA that issued it as certificate-authority"
	}
	var noTLS tls.RecordHeaderError
	if errors.As(err, &noTLS) {
		return "it does not use TLS: is this the address of an API server, and should it begin with http://?"
	}
	return ""
}

// hintForNetwork says what to do if the server could not be reached.
func hintForNetwork(err error) string {
	operation := ""
	var failed *net.OpError
	if errors.As(err, &failed) {
		operation = failed.Op
	}
	switch {
	case operation == "proxyconnect":
		return "this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: " +
			"is it running, and is its address right?"
	case operation == "dial" || os.IsTimeout(err):
		return "is the API server running, and is this its address?"
	case operation == "remote error": // the server has sent a TLS alert
		hint := "this client supports TLS 1.2 and 1.3; " +
			"if the server requires a client certificate, give a valid one that it knows"
		if fips140.Enabled() {
			hint += "; " + ruleOfFIPS
		}
		return hint
	default:
		return ""
	}
}
