package fakekube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"math/rand/v2"
	"net"
	"time"
)

// Authority is a CA for tests. Its certificates are valid from 1990 to 2100, which includes the start of virtual time
// in 2000. The zero Authority has no certificate itself, so each certificate that it issues is self-signed.
type Authority struct {
	cert *x509.Certificate // nil until its own certificate, which it signs itself, exists
	key  *ecdsa.PrivateKey
}

// NewAuthority creates a CA with this name.
func NewAuthority(name string) *Authority {
	ca := &Authority{}
	certPEM, keyPEM := ca.Issue(name, func(c *x509.Certificate) {
		c.IsCA = true
		c.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		c.ExtKeyUsage = nil
		c.DNSNames = nil
		c.IPAddresses = nil
	})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		panic(err)
	}
	ca.cert = pair.Leaf
	ca.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	return ca
}

// Issue returns a new certificate with this name, and its key, in PEM. It suits clients, and servers at 127.0.0.1 and
// localhost.
//
// change may modify the certificate before it is signed, or be nil. Its DNSNames are more names of a server, such as
// "fake". The Organization of its Subject is the groups of a client, and members of system:masters may do everything.
// Issue panics if the name is the CA's, or if change has made the certificate invalid.
func (ca *Authority) Issue(name string, change func(*x509.Certificate)) (certPEM, keyPEM []byte) {
	certPEM, keyPEM, err := ca.issue(name, change)
	if err != nil {
		panic(fmt.Sprintf("no certificate for %q: %v", name, err))
	}
	return certPEM, keyPEM
}

func (ca *Authority) issue(name string, change func(*x509.Certificate)) (certPEM, keyPEM []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return nil, nil, err
	}
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(rand.Int64()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(c)
	}
	parent := ca.cert
	signer := ca.key
	if parent == nil {
		parent = c
		signer = key
	} else if c.Subject.String() == parent.Subject.String() {
		// To OpenSSL, and so to curl, Python and Node, a certificate whose issuer has its own name signs itself. Go does
		// not refuse it, but leaves out who has signed it.
		return nil, nil, fmt.Errorf("the certificate %s must have another name than its CA", c.Subject)
	}
	der, err := x509.CreateCertificate(crand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return certPEM, keyPEM, nil
}

// PEM returns the CA's certificate in PEM.
func (ca *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Pool returns a pool with only the CA's certificate, for tls.Config and Server.ClientCA.
func (ca *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}
