package sim

import (
	"fmt"
	"strings"
	"time"

	"podcount/lab/fakekube"
)

// accessFaults returns the faults of credentials, of CAs, and of the way to the server. Those of credentials and CAs do
// nothing to a seed that uses plain HTTP.
func accessFaults() []step {
	return []step{
		{name: "credential refused early", weight: 4, do: credentialRefused{
			until: span{100 * time.Millisecond, 3 * time.Minute},
		}.strike},
		{name: "next credential late", weight: 4, do: credentialLate{by: span{time.Second, 3 * time.Minute}}.strike},
		{name: "files damaged", weight: 6, do: filesDamaged{
			lasts: span{100 * time.Millisecond, 2 * time.Minute},
		}.strike},
		{name: "CA replaced too early", weight: 4, do: caReplaced{
			until: span{100 * time.Millisecond, 2 * time.Minute},
		}.strike},
		{name: "connections shed", weight: 2, do: connectionsShed{
			lasts: span{time.Second, time.Minute},
		}.strike},
		{name: "new connections silent", weight: 4, do: newConnectionsSilent{
			lasts: span{time.Second, 2 * time.Minute},
		}.strike, reach: oneProcess},
	}
}

// credentialRefused makes the server refuse the current credential before its time, as when a service account was
// deleted and created again. The next credential comes later.
type credentialRefused struct {
	until span // how long it takes until the next credential comes
}

func (f credentialRefused) strike(s *sim) string {
	if !s.access.sendsCredential() {
		return ""
	}
	d := s.drawAndNoteLength(f.until)
	refused := s.refuseCredential()
	s.later(d, func() { s.replaceCredential(refused) })
	return fmt.Sprintf("THE CREDENTIAL IS REFUSED, another comes in %v", d)
}

// refuseCredential makes the server refuse the current credential, and returns it.
func (s *sim) refuseCredential() *credential {
	a := s.access
	a.mu.Lock()
	a.isRefused = true
	refused := a.current
	a.mu.Unlock()
	fault := refusal(401, "Unauthorized", nil)
	fault.On.If = func(q fakekube.Request) bool { return credentialIn(q) == refused.name }
	fault.Times = fakekube.Always
	fault.Met = s.noteRefusal
	s.fake.InjectUnchecked(fault)
	return refused
}

// replaceCredential replaces a credential, unless that has happened already.
func (s *sim) replaceCredential(old *credential) {
	if s.hasEnded() {
		return
	}
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	if s.access.current == old {
		s.renewCredentialLocked()
	}
}

// credentialLate makes the next credential come after the end of the current one.
type credentialLate struct {
	by span
}

func (f credentialLate) strike(s *sim) string {
	if !s.access.sendsCredential() {
		return ""
	}
	d := s.drawDuration(f.by)
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	s.access.lateness = d
	return fmt.Sprintf("THE NEXT CREDENTIAL COMES %v AFTER THE END of this one", d)
}

// filesDamaged damages a file that the kubeconfig names for a while, as a tool does that does not replace files at
// once.
type filesDamaged struct {
	lasts span
}

func (f filesDamaged) strike(s *sim) string {
	if !s.access.sendsCredential() {
		return ""
	}
	file := pick(s.dice, s.access.fileNames()...)
	damaged := pick(s.dice, damages()...)
	d := s.drawAndNoteLength(f.lasts)
	s.damageFiles(func(files map[string]string) { damaged.do(files, file) })
	s.later(d, func() { s.damageFiles(nil) })
	return fmt.Sprintf("THE FILE %s IS %s for %v", file, strings.ToUpper(damaged.name), d)
}

// damage changes files, by their names, before they are written.
type damage func(files map[string]string)

// namedDamage is damage to one file, with its name in the story.
type namedDamage struct {
	name string
	do   func(files map[string]string, file string)
}

func damages() []namedDamage {
	return []namedDamage{
		{"empty", func(files map[string]string, file string) { files[file] = "" }},
		{"missing", func(files map[string]string, file string) { delete(files, file) }},
		{"half written", func(files map[string]string, file string) {
			whole := files[file]
			files[file] = whole[:len(whole)/2]
		}},
	}
}

// fileNames returns the files that the kubeconfigs name.
func (a *access) fileNames() []string {
	switch a.kind {
	case tokenInFile:
		return []string{tokenFile, caFile}
	case certificateInFile:
		return []string{certificateFile, keyFile, caFile}
	case tokenOfProgram:
		return []string{answerFile, caFile}
	}
	return nil
}

// damageFiles writes the files again, with this damage, or without any if it is nil.
func (s *sim) damageFiles(how damage) {
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	s.access.damage = how
	s.writeFilesLocked()
}

// caReplaced gives the server certificates of another CA, although the CA is not in the files yet. All connections may
// break, as when the server restarts with the new certificates.
type caReplaced struct {
	until span // how long it takes until the CA is in the files
}

func (f caReplaced) strike(s *sim) string {
	if !s.access.isTLS {
		return ""
	}
	d := s.drawAndNoteLength(f.until)
	isRestarted := s.flipCoin()
	s.access.replaceCA()
	if isRestarted {
		s.killServer()
		s.restoreServer()
	}
	s.later(d, s.trustServer)
	return fmt.Sprintf("THE SERVER HAS A NEW CA, in the files only in %v, restarted: %v", d, isRestarted)
}

// replaceCA gives the server certificates of a new CA. It changes no existing connection.
func (a *access) replaceCA() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.serverCA = fakekube.NewAuthority("servers")
	a.nextCA = nil
	clear(a.served)
}

// trustServer writes the server's CA to the files.
func (s *sim) trustServer() {
	a := s.access
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nextCA = nil
	a.fileCAs = []*fakekube.Authority{a.serverCA}
	s.writeFilesLocked()
}

// connectionsShed makes the server ask its clients to close their connections after each request, as a server does
// that runs with --goaway-chance. Requests in flight continue.
type connectionsShed struct {
	lasts span
}

func (f connectionsShed) strike(s *sim) string {
	d := s.drawAndNoteLength(f.lasts)
	s.access.shedding.set(true)
	s.later(d, func() { s.access.shedding.set(false) })
	return fmt.Sprintf("CONNECTIONS ARE SHED for %v", d)
}

// newConnectionsSilent accepts the connections of one process, and then loses all that is sent on them, as a proxy does
// whose server hangs. Existing connections continue.
type newConnectionsSilent struct {
	lasts span
}

func (f newConnectionsSilent) strike(s *sim) string {
	p := s.target.p
	d := s.drawAndNoteLength(f.lasts)
	s.disturb(p, func(l *link) { l.setMute(true) })
	s.extendBoundForSilentConnection()
	s.later(d, func() { p.link.setMute(false) })
	return fmt.Sprintf("NEW CONNECTIONS OF r%d ARE SILENT for %v", p.slot, d)
}

// healAccess ends the faults of the access. If that needs another credential, it comes at once.
func (s *sim) healAccess() {
	a := s.access
	a.shedding.set(false)
	if a.kind == noCredential {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isHealthyLocked() {
		return
	}
	a.damage = nil
	s.renewCredentialLocked()
}

// isHealthyLocked reports whether no fault of the access is left.
func (a *access) isHealthyLocked() bool {
	isValid := !a.isRefused && a.lateness == 0 && time.Now().Before(a.current.expires)
	return isValid && a.damage == nil && a.trustsServerLocked()
}
