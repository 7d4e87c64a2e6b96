package kube

import (
	"context"
	"crypto/fips140"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
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
	hint := hintFor(err)
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

// ruleOfFIPS says what Go's TLS accepts in FIPS 140-3 mode, and the way out.
const ruleOfFIPS = "FIPS 140-3 mode is on: use RSA keys of 2048 bits or more, Ed25519, or P-256, P-384 or P-521, " +
	"and TLS 1.3, or TLS 1.2 with ECDHE, AES-GCM and Extended Master Secret; or set GODEBUG=fips140=off"

// hintFor says what to do about an error of a proxy, of TLS or of the network. It is "" for other errors.
func hintFor(err error) string {
	text := err.Error()
	isOfFIPS := strings.Contains(text, "FIPS 140-only mode") || strings.Contains(text, "tls: FIPS 140-3 requires") ||
		strings.Contains(text, "tls: no FIPS compatible certificate")
	var refusal *proxyRefusal
	var unknown x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	network := new(net.OpError)
	errors.As(err, &network)
	switch {
	case errors.As(err, &refusal) && refusal.code == http.StatusProxyAuthRequired:
		return "give its user and password in the kubeconfig's proxy-url, or in HTTPS_PROXY: http://USER:PASSWORD@HOST"
	case refusal != nil:
		return "allow connections to the API server there, or go without the proxy: " +
			"remove the kubeconfig's proxy-url, or set NO_PROXY"
	case isOfFIPS:
		return ruleOfFIPS
	case errors.As(err, &unknown):
		return fmt.Sprintf("give the CA of this cluster as certificate-authority; "+
			"the server's certificate was issued by %q", wire.Shorten(unknown.Cert.Issuer.String(), quoteLimit))
	case errors.As(err, new(x509.HostnameError)):
		return "give one of these names as tls-server-name, or in the server's address"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "renew the server's certificate, or set the clock of this machine"
	case errors.As(err, new(*tls.CertificateVerificationError)):
		return "give the server a certificate for servers, and give the CA that issued it as certificate-authority"
	case errors.As(err, new(tls.RecordHeaderError)):
		return "it does not use TLS: is this the address of an API server, and should it begin with http://?"
	case network.Op == "proxyconnect":
		return "this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: " +
			"is it running, and is its address right?"
	case network.Op == "dial" || os.IsTimeout(err):
		return "is the API server running, and is this its address?"
	case network.Op == "remote error": // the server has sent a TLS alert
		hint := "this client supports TLS 1.2 and 1.3; " +
			"if the server requires a client certificate, give a valid one that it knows"
		if fips140.Enabled() {
			hint += "; " + ruleOfFIPS
		}
		return hint
	}
	return ""
}

// adviceOnRefusal says what to do if the server does not accept the credential, or if a permission is missing. It is ""
// for other errors. tried describes the credential.
func adviceOnRefusal(r Request, s *Status, tried string) string {
	why, isNothing := strings.CutPrefix(tried, "nothing, ")
	isAnonymous := strings.Contains(s.Message, `"system:anonymous"`)
	switch {
	case s.Code == http.StatusUnauthorized && isNothing:
		return " (no credential was sent, " + why + ")"
	case s.Code == http.StatusUnauthorized && tried != "":
		return " (what was not accepted: " + tried + "): give one that has not expired, and is of this cluster"
	case s.Code == http.StatusForbidden && isAnonymous:
		return " (no credential was sent: give the kubeconfig's user a token, tokenFile, client-certificate or exec)"
	case s.Code == http.StatusForbidden:
		return missingRule(r, s.Message)
	default:
		return ""
	}
}

// missingRule names the RBAC rule that would allow the request. It is "" unless the server's message says "cannot
// VERB": any other request was forbidden by an admission plugin, and no rule would allow it.
func missingRule(r Request, message string) string {
	verbs := []string{r.verb()}
	if r.verb() == "update" {
		verbs = append(verbs, "create") // an update of an object that does not exist creates it
	}
	for _, verb := range verbs {
		if strings.Contains(message, " cannot "+verb+" ") {
			return fmt.Sprintf(" (the RBAC rule that allows it: apiGroups [%q], resources [%q], verbs [%q])",
				r.group(), r.resource(), verb)
		}
	}
	return ""
}

// Advice says, in a sentence or two, what a person can do about the error of a request. Errors name missing permissions
// and the like themselves, so the advice only says where to look. Without an error, it is "".
func Advice(err error) string {
	status := StatusOf(err)
	switch {
	case err == nil:
		return ""
	case errors.Is(err, io.EOF) || errors.As(err, new(wire.GarbageError)):
		return "Find out what ends or garbles the connection: a proxy, or the API server. The request is repeated by itself."
	case status.Code == http.StatusUnauthorized:
		return "Give a credential that this cluster accepts. Files that change are read by themselves."
	case status.Code == http.StatusForbidden:
		return "Grant the permission that the error names, or change the policy that forbids the request."
	case status.Code == http.StatusNotFound:
		return "Install what is missing, or check the flags. Once it is there, all goes on by itself."
	case status.Code == http.StatusBadRequest || status.Code == http.StatusUnprocessableEntity:
		return "The server rejects the request itself: check the flags, and the cluster's admission policies."
	case status.Code == http.StatusTooManyRequests:
		return "Nothing: the server asks for patience, and gets it. If it lasts, see who loads the server."
	case status.Code != 0:
		return "Look at the API server's own log. The request is repeated by itself."
	}
	return "Check that the API server runs and that the network reaches it. The request is repeated by itself."
}
