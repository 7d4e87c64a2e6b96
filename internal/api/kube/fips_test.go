package kube

import (
	"bufio"
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"podcount/internal/api/kubeconfig"
	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// The keys of certificates in fipsCases.
const (
	goodKey    = "P-256"
	ed25519Key = "Ed25519"
	smallKey   = "RSA of 1024 bits"
)

// fipsCase is a server, and what a client with FIPS 140-3 enforced says about it.
type fipsCase struct {
	name       string
	ca         string // the key of the CA, if it is not goodKey
	server     string // the key of the server's certificate, if it is not goodKey
	client     string // the key of the client's certificate; "" if it has none
	change     func(*tls.Config)
	wantErrors []string // none if the client must get an answer
}

var fipsCases = []fipsCase{
	{name: "all good", client: goodKey},
	{name: "Ed25519", ca: ed25519Key, server: ed25519Key, client: ed25519Key},
	{
		name:       "the server has a small key",
		server:     smallKey,
		wantErrors: []string{"no FIPS compatible certificate chains found (" + ruleOfFIPS + ")"},
	},
	{
		name: "the CA has a small key",
		ca:   smallKey,
		wantErrors: []string{
			"x509: certificate signed by unknown authority",
			"crypto/rsa: use of keys smaller than 2048 bits is not allowed in FIPS 140-only mode",
			"(" + ruleOfFIPS + ")",
		},
	},
	{
		name:   "the client has a small key",
		client: smallKey,
		wantErrors: []string{
			"failed to sign handshake: crypto/rsa: use of keys smaller than 2048 bits is not allowed",
			"(" + ruleOfFIPS + ")",
		},
	},
	{
		name:       "the server knows only X25519",
		change:     func(c *tls.Config) { c.CurvePreferences = []tls.CurveID{tls.X25519} },
		wantErrors: []string{"tls: handshake failure (this client supports TLS 1.2 and 1.3; ", "; " + ruleOfFIPS + ")"},
	},
	{
		name: "the server knows only ChaCha20",
		change: func(c *tls.Config) {
			c.MaxVersion = tls.VersionTLS12
			c.CipherSuites = []uint16{tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256}
		},
		wantErrors: []string{"tls: handshake failure (this client supports TLS 1.2 and 1.3; ", "; " + ruleOfFIPS + ")"},
	},
}

// The environment variables of the test's two other processes. The servers run with FIPS 140-3 off, because otherwise
// Go would not let them use such keys. The client runs with FIPS 140-3 enforced.
const (
	fipsRole = "PODCOUNT_FIPS_ROLE"
	fipsDir  = "PODCOUNT_FIPS_DIR"
)

func TestFIPSErrorsSayWhatToDo(t *testing.T) {
	dir := os.Getenv(fipsDir)
	switch os.Getenv(fipsRole) {
	case "servers":
		serveFIPSCases(t, dir)
		return
	case "client":
		askFIPSCases(t, dir)
		return
	}
	dir = t.TempDir()
	servers := fipsProcess(t, "servers", dir, "fips140=off,rsa1024min=0")
	stop, err := servers.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := servers.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := servers.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "serving\n" {
		t.Fatalf("the servers do not start: %q %v", line, err)
	}
	if out, err := fipsProcess(t, "client", dir, "fips140=only").CombinedOutput(); err != nil {
		t.Errorf("the client: %v: %s", err, out)
	}
	stop.Close()
	testkit.WantError(t, "the servers", servers.Wait(), "")
	for _, c := range fipsCases {
		t.Run(c.name, func(t *testing.T) {
			got := testkit.ReadFile(t, filepath.Join(dir, c.name+".answer"))
			if c.wantErrors == nil {
				testkit.WantEqual(t, "the error", got, "")
			}
			testkit.WantText(t, got, c.wantErrors...)
		})
	}
}

// fipsProcess makes a command that runs the test in a process of its own.
func fipsProcess(t *testing.T, role, dir, godebug string) *exec.Cmd {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFIPSErrorsSayWhatToDo$")
	cmd.Env = append(os.Environ(), fipsRole+"="+role, fipsDir+"="+dir, "GODEBUG="+godebug)
	return cmd
}

// serveFIPSCases serves all cases until its standard input ends. It writes a kubeconfig for each into dir.
func serveFIPSCases(t *testing.T, dir string) {
	for _, c := range fipsCases {
		ca := issueFIPS(t, "the CA", cmp.Or(c.ca, goodKey), nil)
		pair := issueFIPS(t, "the server", cmp.Or(c.server, goodKey), ca)
		srv := httptest.NewUnstartedServer(fakekube.New())
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{*pair}, ClientAuth: tls.RequestClientCert}
		if c.change != nil {
			c.change(srv.TLS)
		}
		srv.StartTLS()
		defer srv.Close()
		user := "token: t"
		if c.client != "" {
			certPEM, keyPEM := pemOf(t, issueFIPS(t, "the client", c.client, ca))
			user = "client-certificate-data: " + base64.StdEncoding.EncodeToString(certPEM) +
				"\n    client-key-data: " + base64.StdEncoding.EncodeToString(keyPEM)
		}
		caPEM, _ := pemOf(t, ca)
		testkit.WriteFiles(t, dir, map[string]string{c.name: fakekube.Kubeconfig(srv.URL, caPEM, user)})
	}
	fmt.Println("serving")
	io.Copy(io.Discard, os.Stdin)
}

// askFIPSCases sends one request to each server, and writes its error, or nothing, into dir.
func askFIPSCases(t *testing.T, dir string) {
	nothing := func(string) string { return "" }
	for _, c := range fipsCases {
		o := kubeconfig.Options{Kubeconfig: filepath.Join(dir, c.name), Getenv: nothing}
		cfg, err := kubeconfig.Load(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		client := NewClient(cfg, Options{})
		defer client.Close()
		answer := ""
		if err := client.Send(t.Context(), listNodes, nil); err != nil {
			answer = err.Error()
		}
		testkit.WriteFiles(t, dir, map[string]string{c.name + ".answer": answer})
	}
}

// issueFIPS issues a certificate for a new key. If ca is nil, the certificate is that of a CA.
func issueFIPS(t *testing.T, name, kind string, ca *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := newFIPSKey(kind)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
		IsCA:                  ca == nil,
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if ca == nil {
		ca = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.Leaf, key.Public(), ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, Leaf: leaf, PrivateKey: key}
}

func newFIPSKey(kind string) (crypto.Signer, error) {
	switch kind {
	case ed25519Key:
		_, key, err := ed25519.GenerateKey(rand.Reader)
		return key, err
	case smallKey:
		return rsa.GenerateKey(rand.Reader, 1024)
	default:
		return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	}
}

// pemOf returns a certificate and its key in PEM.
func pemOf(t *testing.T, pair *tls.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Leaf.Raw})
	return certPEM, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}
