package sim

import (
	"crypto/x509"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
)

// credential is a token, or a client certificate.
type credential struct {
	name    string            // the token itself, or the common name in the certificate
	files   map[string]string // their contents, by name
	expires time.Time
}

// The files that a kubeconfig names, all in the directory of the access.
const (
	caFile          = "ca.crt"
	tokenFile       = "token"
	certificateFile = "tls.crt"
	keyFile         = "tls.key"
	answerFile      = "answer" // what the exec program prints
)

// secretPrefix is the beginning of every token. No process may log it, or send it anywhere but as its credential.
const secretPrefix = "never-show-this-token-"

// renewalShare is the share of a credential's lifetime after which the next one comes. The kubelet has the same rule
// for the tokens of service accounts.
const renewalShare = 0.8

// issueLocked issues a new credential.
func (a *access) issueLocked() *credential {
	a.issued++
	c := &credential{expires: time.Now().Add(a.lifetime)}
	switch a.kind {
	case tokenInFile:
		c.name = fmt.Sprint(secretPrefix, a.issued)
		c.files = map[string]string{tokenFile: c.name + "\n"}
	case certificateInFile:
		c.name = fmt.Sprint("client-", a.issued)
		certificate, key := a.clients.Issue(c.name, func(x *x509.Certificate) {
			fixture.AsAdmin(x)
			x.NotAfter = c.expires
		})
		c.files = map[string]string{certificateFile: string(certificate), keyFile: string(key)}
	case tokenOfProgram:
		c.name = fmt.Sprint(secretPrefix, a.issued)
		answer := fakekube.Object{"token": c.name, "expirationTimestamp": c.expires.UTC().Format(time.RFC3339)}
		c.files = map[string]string{answerFile: execplugin.Credential("v1", answer)}
	}
	return c
}

// renewCredential issues a new credential, and writes it to the files. It plans the next renewal.
func (s *sim) renewCredential() {
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	s.renewCredentialLocked()
}

// renewCredentialLocked is renewCredential for callers that have locked access.mu, but not the simulation.
func (s *sim) renewCredentialLocked() {
	a := s.access
	a.current = a.issueLocked()
	a.isRefused = false
	a.lateness = 0
	a.renewServerCertificatesLocked()
	s.acceptLocked(a.current)
	s.writeFilesLocked()
	s.recordPhase("credential %d comes", a.issued)
	renewed := a.current
	untilNext := time.Duration(renewalShare * float64(a.lifetime))
	s.later(untilNext, func() { s.renewIfDue(renewed) })
}

// renewIfDue replaces a credential whose time has come, unless that has happened already. If a fault demands it, the
// renewal is late.
func (s *sim) renewIfDue(due *credential) {
	if s.hasEnded() {
		return
	}
	a := s.access
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.current != due {
		return
	}
	wait := time.Until(due.expires.Add(a.lateness))
	isLate := a.lateness > 0 && wait > 0
	if isLate {
		s.later(wait, func() { s.renewIfDue(due) })
		return
	}
	s.renewCredentialLocked()
}

// hasEnded reports whether the simulation is over.
func (s *sim) hasEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isOver
}

// acceptLocked makes the server accept a new token until it expires. The server itself knows when a certificate
// expires.
func (s *sim) acceptLocked(c *credential) {
	a := s.access
	if !a.isTLS || a.kind == certificateInFile {
		return
	}
	a.accepted = append(a.accepted, c)
	s.dropExpiredLocked()
	s.later(a.lifetime, func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		s.dropExpiredLocked()
	})
}

// dropExpiredLocked makes the server refuse the tokens that have expired.
func (s *sim) dropExpiredLocked() {
	a := s.access
	a.accepted = slices.DeleteFunc(a.accepted, func(c *credential) bool { return !time.Now().Before(c.expires) })
	var tokens []string
	for _, c := range a.accepted {
		tokens = append(tokens, c.name)
	}
	s.fake.Allow(tokens...)
}

// renewServerCertificatesLocked gives the server new certificates. Now and then, it replaces the CA, as an
// administrator should: first, the files get both CAs; with the next renewal, the server changes; with the one after
// that, the old CA leaves the files.
func (a *access) renewServerCertificatesLocked() {
	switch {
	case a.nextCA != nil:
		a.serverCA = a.nextCA
		a.nextCA = nil
	case a.dice.IntN(3) == 0:
		a.nextCA = fakekube.NewAuthority("servers")
		a.fileCAs = []*fakekube.Authority{a.serverCA, a.nextCA}
	default:
		a.fileCAs = []*fakekube.Authority{a.serverCA}
	}
	clear(a.served)
}

// linkFiles creates the names of all files. As in a volume that the kubelet mounts, they lead through the link ..data
// to the current version of the files, which do not exist yet.
func (a *access) linkFiles() {
	for _, name := range []string{caFile, tokenFile, certificateFile, keyFile, answerFile} {
		must(os.Symlink(filepath.Join("..data", name), filepath.Join(a.dir, name)))
	}
}

// writeFilesLocked replaces all files at once by the current credential and CAs, with the damage that a fault has
// ordered.
func (s *sim) writeFilesLocked() {
	a := s.access
	files := maps.Clone(a.current.files)
	files[caFile] = pemOf(a.fileCAs)
	if a.damage != nil {
		a.damage(files)
	}
	a.versions++
	version := fmt.Sprint("v", a.versions)
	must(os.Mkdir(filepath.Join(a.dir, version), 0o700))
	for name, text := range files {
		must(os.WriteFile(filepath.Join(a.dir, version, name), []byte(text), 0o600))
	}
	newLink := filepath.Join(a.dir, "..new")
	must(os.Symlink(version, newLink))
	must(os.Rename(newLink, filepath.Join(a.dir, "..data")))

	s.mu.Lock()
	defer s.mu.Unlock()
	s.files.note(a.current.name, a.damage != nil)
}

// must panics if something fails that never should, such as writing a file. It suits all goroutines, unlike t.Fatal.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// trustsServerLocked reports whether the files have the server's CA.
func (a *access) trustsServerLocked() bool { return slices.Contains(a.fileCAs, a.serverCA) }
