package fakekube

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCertificateHasAnotherNameThanItsCA(t *testing.T) {
	url, caPEM := listen(t, New())
	leaf := servedCertificate(t, url, caPEM)
	block, _ := pem.Decode(caPEM)
	ca, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(leaf.RawSubject, ca.RawSubject) {
		t.Errorf("the server and its CA are both %s", leaf.Subject)
	}
	if !bytes.Equal(leaf.AuthorityKeyId, ca.SubjectKeyId) || len(ca.SubjectKeyId) == 0 {
		t.Errorf("the certificate says that the key %x signed it, but the CA's is %x", leaf.AuthorityKeyId, ca.SubjectKeyId)
	}
	wantPanic(t, "must have another name than its CA", func() { NewAuthority("me").Issue("me", nil) })
}

func TestOpenSSLFindsTheCertificatesValid(t *testing.T) {
	openssl := programOrSkip(t, "openssl")
	url, caPEM := listen(t, New())
	clients := NewAuthority("clients")
	clientPEM, _ := clients.Issue("me", asAdmin)
	server := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: servedCertificate(t, url, caPEM).Raw})
	for _, c := range []struct {
		purpose  string
		ca, leaf []byte
	}{
		{"sslserver", caPEM, server},
		{"sslclient", clients.PEM(), clientPEM},
	} {
		dir := t.TempDir()
		ca, leaf := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "leaf.crt")
		os.WriteFile(ca, c.ca, 0o600)
		os.WriteFile(leaf, c.leaf, 0o600)
		// With -x509_strict, as Python does since 3.13, OpenSSL also demands what RFC 5280 says about extensions.
		cmd := exec.Command(openssl, "verify", "-x509_strict", "-purpose", c.purpose, "-CAfile", ca, leaf)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", cmd, err, out)
		}
	}
}

// programOrSkip returns the path of a program. It skips the test if the program is not installed.
func programOrSkip(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skip(name + " is not installed")
	}
	return path
}

// servedCertificate returns the certificate that a server shows.
func servedCertificate(t *testing.T, url string, ca []byte) *x509.Certificate {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	conn, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.ConnectionState().PeerCertificates[0]
}
