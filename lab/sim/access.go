package sim

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"podcount/lab/fakekube"
)

// access is how the processes of a seed reach the server, and how they prove who they are. All processes share the same
// credential, as replicas do that mount the same volume.
//
// The goroutine that holds mu may lock the fake or the simulation, but not the other way round.
type access struct {
	t    testing.TB
	dice *rand.Rand // draws how credentials are renewed

	// What the seed draws.
	isTLS    bool
	isHTTP2  bool           // the server offers HTTP/2
	kind     credentialKind // what the kubeconfig has
	lifetime time.Duration  // of a credential

	isUnchecked bool // the rules of accesschecks.go do not apply to requests

	dir     string              // of the kubeconfigs, and of the files that they name
	clients *fakekube.Authority // issues the client certificates

	shedding shedding

	// mu guards dice, and all fields below.
	mu sync.Mutex

	// The server.
	serverCA *fakekube.Authority         // issues the server's certificates
	nextCA   *fakekube.Authority         // replaces serverCA with the next renewal; nil if no other CA is planned
	served   map[string]*tls.Certificate // the server's certificates, by the name that a client calls
	accepted []*credential               // the tokens that the server accepts

	// The credential, and the files.
	issued    int                   // the number of credentials so far
	current   *credential           // the newest one
	isRefused bool                  // the server refuses the current credential before its time
	lateness  time.Duration         // how long the next credential comes after the end of this one; 0 if in time
	fileCAs   []*fakekube.Authority // are in the files
	damage    damage                // is done to the files whenever they are written; nil for none
	versions  int                   // how often the files were written
}

// credentialKind is the kind of credential that a kubeconfig has.
type credentialKind string

// The kinds of credentials, as the story shows them.
const (
	noCredential      credentialKind = "no credential"
	tokenInFile       credentialKind = "a token in a file"
	certificateInFile credentialKind = "a client certificate"
	tokenOfProgram    credentialKind = "a program that prints a token"
)

// newAccess draws how the processes of a seed reach the server. It has dice of its own, so that it does not change what
// else the seed draws.
func newAccess(t testing.TB, seed uint64) *access {
	dice := rand.New(rand.NewPCG(seed, 1))
	a := &access{t: t, dice: dice, dir: t.TempDir(), served: map[string]*tls.Certificate{}}
	switch dice.IntN(8) {
	case 0: // plain HTTP, without a kubeconfig
		a.kind = noCredential
		return a
	case 1: // plain HTTP, with a kubeconfig: its credential must not be sent
	case 2, 3:
		a.isTLS = true
	default:
		a.isTLS = true
		a.isHTTP2 = true
	}
	a.kind = pick(dice, tokenInFile, tokenInFile, tokenInFile, certificateInFile, certificateInFile, tokenOfProgram)
	a.lifetime = pick(dice, 3*time.Minute, 10*time.Minute, 10*time.Minute, 20*time.Minute)
	a.serverCA = fakekube.NewAuthority("servers")
	a.fileCAs = []*fakekube.Authority{a.serverCA}
	a.clients = fakekube.NewAuthority("clients")
	a.linkFiles()
	return a
}

// plainAccess is plain HTTP, without a kubeconfig.
func plainAccess(t testing.TB) *access { return &access{t: t, kind: noCredential} }

// sweptAccess is TLS and HTTP/2, with a token in a file. The sweep itself writes the files, and decides which token the
// server accepts. The rules for credentials know nothing of that, so they do not apply.
func sweptAccess(t testing.TB) *access {
	return &access{
		t:           t,
		isTLS:       true,
		isHTTP2:     true,
		kind:        tokenInFile,
		isUnchecked: true,
		dir:         t.TempDir(),
		serverCA:    fakekube.NewAuthority("servers"),
		served:      map[string]*tls.Certificate{},
	}
}

// sendsCredential reports whether each request must have a credential.
func (a *access) sendsCredential() bool { return a.isTLS }

// String describes the access for the story.
func (a *access) String() string {
	protocol := "plain HTTP"
	if a.isTLS {
		protocol = "HTTP/1.1 over TLS"
	}
	if a.isHTTP2 {
		protocol = "HTTP/2 over TLS"
	}
	if a.kind == noCredential {
		return protocol
	}
	return fmt.Sprintf("%s, with %s for %v", protocol, a.kind, a.lifetime)
}

// serve serves the fake as the seed's access demands, and issues the first credential.
func (s *sim) serve() {
	a := s.access
	if !a.isTLS {
		s.net = fakekube.NewNetwork(&http.Server{Handler: http.HandlerFunc(s.serveRequest)})
	} else {
		s.fake.ClientCA = a.clients.Pool()
		s.fake.Allow()
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		protocols.SetHTTP2(a.isHTTP2)
		s.net = fakekube.NewNetwork(&http.Server{
			Handler:   http.HandlerFunc(s.serveRequest),
			Protocols: protocols,
			TLSConfig: &tls.Config{GetCertificate: a.serverCertificate},
		})
	}
	s.t.Cleanup(s.net.Close)
	if a.kind != noCredential {
		s.renewCredential()
	}
}

// serveRequest serves a request. It notes when a client has given up a request, for example by resetting a stream of
// HTTP/2: what the server has sent at that moment may be lost, although the connection continues.
func (s *sim) serveRequest(w http.ResponseWriter, r *http.Request) {
	defer func() {
		hasGivenUp := r.Context().Err() != nil
		p := s.processAt(r.Host)
		if hasGivenUp && p != nil {
			s.forgetInFlight(p)
		}
	}()
	if s.access.shedding.isActive() {
		w.Header().Set("Connection", "close")
	}
	s.fake.ServeHTTP(w, r)
}

// processAt returns the process that calls the server by this name, or nil.
func (s *sim) processAt(host string) *proc {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byHost[host]
}

// serverCertificate returns the server's certificate for the name that a client calls. It issues one if necessary.
func (a *access) serverCertificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name := hello.ServerName
	if a.served[name] == nil {
		certificate, key := a.serverCA.Issue(name, func(c *x509.Certificate) { c.DNSNames = []string{name} })
		pair, err := tls.X509KeyPair(certificate, key)
		must(err)
		a.served[name] = &pair
	}
	return a.served[name], nil
}

// argsFor returns the flags that lead a process to the server, which the process calls by the name host. It writes the
// process's kubeconfig.
func (a *access) argsFor(host string) []string {
	if a.kind == noCredential {
		return []string{"-master", "http://" + host}
	}
	config := kubeconfig{server: "http://" + host}
	if a.isTLS {
		config.server = "https://" + host
		config.ca = caFile
	}
	switch a.kind {
	case tokenInFile:
		config.token = tokenFile
	case certificateInFile:
		config.certificate = certificateFile
		config.key = keyFile
	case tokenOfProgram:
		config.printed = filepath.Join(a.dir, answerFile)
	}
	name, _, _ := net.SplitHostPort(host)
	file := filepath.Join(a.dir, "config-"+name)
	config.write(a.t, file)
	return []string{"-kubeconfig", file}
}

// pemOf returns the certificates of CAs in PEM.
func pemOf(cas []*fakekube.Authority) string {
	var all strings.Builder
	for _, ca := range cas {
		all.Write(ca.PEM())
	}
	return all.String()
}
