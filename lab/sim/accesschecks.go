package sim

import (
	"bytes"
	"maps"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// fileState is what the rules must know about the files with the credential.
type fileState struct {
	credential string    // the name of the credential in them
	since      time.Time // when that credential came into them, undamaged
	isDamaged  bool
	repairedAt time.Time // when they were last repaired
}

// note notes that the files were written.
func (f *fileState) note(credential string, isDamaged bool) {
	isRepaired := f.isDamaged && !isDamaged
	if isRepaired {
		f.repairedAt = time.Now()
	}
	if isRepaired || f.credential != credential {
		f.since = time.Now()
	}
	f.credential = credential
	f.isDamaged = isDamaged
}

// wereDamagedSince reports whether the files were damaged at any time since then.
func (f *fileState) wereDamagedSince(then time.Time) bool {
	return f.isDamaged || !f.repairedAt.Before(then)
}

// unauthorized is a request that got a 401.
type unauthorized struct {
	request    fakekube.Request
	at         time.Time // when it got the 401
	isRepeated bool      // the same request had already got a 401 at the same moment
}

// refusedNow returns the 401 that the same request got at this very moment, or nil. So a request that comes now is a
// repetition, because the process has not waited.
func (p *proc) refusedNow(q fakekube.Request) *unauthorized {
	last := p.refused[q.String()]
	if last == nil || !last.at.Equal(time.Now()) {
		return nil
	}
	return last
}

// forgetRefusedQuestion forgets a 401 for the question for the newest version of a resource, because the process begins
// another watch of that resource. Each watch may ask the question once, so the next question is no repetition.
func (p *proc) forgetRefusedQuestion(watch fakekube.Request) {
	maps.DeleteFunc(p.refused, func(_ string, last *unauthorized) bool {
		return isVersionQuestion(last.request) && last.request.Path == watch.Path
	})
}

// credentialIn returns the credential of a request: its token, or the common name in the client certificate.
func credentialIn(q fakekube.Request) string {
	if q.Token != "" {
		return q.Token
	}
	return q.Certificate
}

// connectTime is how long a request may need to reach the server, after its credential was chosen: the longest time to
// connect, and 15 s for the TLS handshake and all the rest.
const connectTime = lostDialTimeout + 15*time.Second

// checkAccessLocked checks how a request has reached the server.
func (s *sim) checkAccessLocked(p *proc, q fakekube.Request) {
	credential := credentialIn(q)
	switch {
	case q.HTTP2 != s.access.isHTTP2:
		s.breakRuleLocked(p, "uses HTTP/2: %v; the server offers it: %v: %s", q.HTTP2, s.access.isHTTP2, q)
	case !s.access.isTLS && (credential != "" || q.Header.Get("Authorization") != ""):
		s.breakRuleLocked(p, "sends a credential over plain HTTP: %s", q)
	case s.access.isTLS && credential == "":
		s.breakRuleLocked(p, "sends no credential: %s", q)
	case s.access.isTLS:
		s.checkNewCredentialIsUsedLocked(p, q)
	}
	s.checkSecretsLocked(p, q)
	s.checkRepeatedAfterRefusalLocked(p, q)
}

// checkNewCredentialIsUsedLocked checks that a process does not use an old credential for long.
func (s *sim) checkNewCredentialIsUsedLocked(p *proc, q fakekube.Request) {
	limit := s.LongestOldCredential + connectTime + s.maxAgeLocked(p, q)
	if s.access.kind == tokenOfProgram {
		limit += s.access.lifetime // The exec program runs again only when its last credential has expired.
	}
	isOld := credentialIn(q) != s.files.credential && !s.files.isDamaged
	elapsed := time.Since(s.files.since)
	if isOld && elapsed > limit {
		s.breakRuleLocked(p, "uses an old credential, though there has been a new one for %v: %s", elapsed, q)
	}
}

// checkSecretsLocked checks that a request has no token in its URL or its body, where others could read it.
func (s *sim) checkSecretsLocked(p *proc, q fakekube.Request) {
	if strings.Contains(q.String(), secretPrefix) {
		s.breakRuleLocked(p, "sends a token in the URL or the body of %s %s", q.Method, q.Path)
	}
}

// checkSecretsInLogLocked checks that a line of the log shows neither a token nor a key.
func (s *sim) checkSecretsInLogLocked(p *proc, line []byte) {
	if bytes.Contains(line, []byte(secretPrefix)) || bytes.Contains(line, []byte("PRIVATE KEY")) {
		s.breakRuleLocked(p, "logs a secret: %s", line)
	}
}

// checkRepeatedAfterRefusalLocked checks that a process that got a 401 sends the request again at once at most once,
// and then only with another credential.
func (s *sim) checkRepeatedAfterRefusalLocked(p *proc, q fakekube.Request) {
	last := p.refusedNow(q)
	if last == nil {
		return
	}
	if credentialIn(q) == credentialIn(last.request) {
		s.breakRuleLocked(p, "sends again at once, with the same credential, what got a 401: %s", q)
	}
	if last.isRepeated {
		s.breakRuleLocked(p, "sends again at once, for the second time, what got a 401: %s", q)
	}
}

// noteRefusal notes that a request got a 401. The simulation must not be locked.
func (s *sim) noteRefusal(q fakekube.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.recordLocked("%s %s gets 401", p.host, q.Route)
	if q.Verb == "watch" {
		s.totals.watchesRefused++
	}
	p.noteRefusal(q)
}

// noteRefusal notes that a request got a 401.
func (p *proc) noteRefusal(q fakekube.Request) {
	isRepeated := p.refusedNow(q) != nil
	p.refused[q.String()] = &unauthorized{request: q, at: time.Now(), isRepeated: isRepeated}
}

// mayRefuseFilesLocked reports whether a process may end with an error right after its start, because it found damaged
// files. In a real cluster, the kubelet starts it again.
func (s *sim) mayRefuseFilesLocked(p *proc) bool {
	const longestStart = 10 * time.Second
	return time.Since(p.began) < longestStart && s.access.isTLS && s.files.wereDamagedSince(p.began)
}
