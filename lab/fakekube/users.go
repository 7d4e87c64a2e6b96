package fakekube

import (
	"crypto/x509"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// userInfo is the sender of requests: a person, a service account, or an anonymous client.
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/
type userInfo struct {
	Name   string
	UID    string // "" for none
	Groups []string
}

// Names of users and groups that the server assigns itself.
const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
	masters         = "system:masters" // its members may do everything
	accountPrefix   = "system:serviceaccount:"
)

// credential is what a token stands for: a user, and until when.
type credential struct {
	user    userInfo
	account Key       // service account that owns the token; the zero Key for other users
	expires time.Time // the zero time for never
}

// Allow requires credentials from now on, and accepts these tokens. They stand for the user admin of the group
// system:masters, who may do everything. AddUser, the tokens of service accounts, and client certificates signed by
// ClientCA let in other users. A request without a credential comes from system:anonymous, who may read little more
// than the version and the health checks. A wrong token gets a 401.
//
// Allow replaces all earlier tokens, including those of AddUser and of service accounts. Before the first call, a
// request without a known token is treated as one from admin.
func (s *Server) Allow(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.requiresCredential = true
	s.tokens = map[string]credential{}
	for _, token := range tokens {
		s.tokens[token] = credential{user: admin}
	}
}

// admin is the user who may do everything.
var admin = userInfo{Name: "admin", UID: "1", Groups: []string{masters, authenticated}}

// AddUser accepts a token for a user. The user has the permissions of the roles that are bound to the name or to one
// of the groups, which always include system:authenticated.
func (s *Server) AddUser(token, name string, groups ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens[token] = credential{user: userInfo{Name: name, Groups: withAuthenticated(groups)}}
}

// withAuthenticated adds the group of all authenticated users.
func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return slices.Clone(groups)
	}
	return append(slices.Clone(groups), authenticated)
}

// accountUser returns the user that a service account authenticates as.
func accountUser(account Key, uid string) userInfo {
	return userInfo{
		Name:   accountPrefix + account.Namespace + ":" + account.Name,
		UID:    uid,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + account.Namespace, authenticated},
	}
}

// user authenticates a request by its client certificate or its token. isKnown is false if the credential is wrong.
// Like the real server, the fake accepts any client certificate in the TLS handshake and answers 401 to an unknown
// one.
func (s *Server) user(r *http.Request) (u userInfo, isKnown bool) {
	certificate := clientCertificate(r)
	judgesCertificate := certificate != nil && s.ClientCA != nil
	if judgesCertificate {
		u, isKnown = s.certificateUser(certificate)
		if isKnown {
			return u, true
		}
	}
	token, hasToken := bearerToken(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	found, isIssued := s.tokens[token]
	switch {
	case hasToken && isIssued && s.isValidLocked(found):
		return found.user, true
	case hasToken && isIssued, judgesCertificate:
		return userInfo{}, false
	case !s.requiresCredential && s.Upstream == nil:
		return admin, true
	case hasCredential(r):
		return userInfo{}, false
	}
	return userInfo{Name: anonymous, Groups: []string{unauthenticated}}, true
}

// bearerToken returns the token in a request's header. Like the server, it ignores a header in any other form.
func bearerToken(r *http.Request) (token string, isThere bool) {
	words := strings.Split(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if len(words) < 2 || !strings.EqualFold(words[0], "Bearer") {
		return "", false
	}
	return words[1], words[1] != ""
}

// warnOfExtraSpace warns the client if its token is ignored because of a second space before it.
func (r *request) warnOfExtraSpace() {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if strings.EqualFold(scheme, "Bearer") && strings.HasPrefix(rest, " ") {
		r.w.Header().Add("Warning", fmt.Sprintf("299 - %q",
			"the provided Authorization header contains extra space before the bearer token, and is ignored"))
	}
}

// clientCertificate returns the client's certificate from the TLS handshake, or nil.
func clientCertificate(r *http.Request) *x509.Certificate {
	if r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	return r.TLS.PeerCertificates[0]
}

// hasCredential reports whether a request has a token or a certificate, valid or not.
func hasCredential(r *http.Request) bool {
	_, hasToken := bearerToken(r)
	return hasToken || clientCertificate(r) != nil
}

// isValidLocked reports whether a token has not expired and its service account still exists.
func (s *Server) isValidLocked(c credential) bool {
	if !c.expires.IsZero() && time.Now().After(c.expires) {
		return false
	}
	isOfAccount := c.account != Key{}
	return !isOfAccount || TextIn(MetaOf(s.objects["serviceaccounts"][c.account]), "uid") == c.user.UID
}

// certificateUser returns the user that a client certificate names: its common name, in the groups of its
// organizations. isKnown reports whether ClientCA signed the certificate.
func (s *Server) certificateUser(c *x509.Certificate) (u userInfo, isKnown bool) {
	_, err := c.Verify(x509.VerifyOptions{
		Roots:     s.ClientCA,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return userInfo{Name: c.Subject.CommonName, Groups: withAuthenticated(c.Subject.Organization)}, err == nil
}

// impersonatedUser returns the user that a request impersonates, or its sender if it impersonates none. If the sender
// may not do that, or the headers are invalid, it answers so and isAnswered is true.
// https://kubernetes.io/docs/reference/access-authn-authz/user-impersonation/
func (s *Server) impersonatedUser(r *request, sender userInfo) (u userInfo, isAnswered bool) {
	name := r.Header.Get("Impersonate-User")
	groups := r.Header.Values("Impersonate-Group")
	uid := r.Header.Get("Impersonate-Uid")
	extras := extraAttributes(r.Header)
	if name == "" {
		if wanted := impersonationWithoutUser(groups, extras, uid); len(wanted) > 0 {
			r.badRequest(fmt.Sprintf("requested [%s] without impersonating a user", strings.Join(wanted, " ")))
			return sender, true
		}
		return sender, false
	}
	u = userInfo{Name: name, UID: uid, Groups: slices.Clone(groups)}
	for _, required := range impersonationAttributes(u, extras) {
		allowed, reason := s.authorize(sender, required)
		if !allowed {
			r.forbidden(sender, required, reason)
			return sender, true
		}
	}
	if account, isAccount := accountOf(name); isAccount && len(groups) == 0 {
		u.Groups = accountUser(account, "").Groups
	}
	if name == anonymous {
		u.Groups = append(u.Groups, unauthenticated)
		return u, false
	}
	if !slices.Contains(groups, unauthenticated) {
		u.Groups = withAuthenticated(u.Groups)
	}
	return u, false
}

// accountOf returns the service account that a user name stands for.
func accountOf(userName string) (account Key, isAccount bool) {
	rest, isAccount := strings.CutPrefix(userName, accountPrefix)
	namespace, name, _ := strings.Cut(rest, ":")
	return Key{namespace, name}, isAccount
}

// impersonationAttributes returns the permissions that impersonating a user requires, in the server's order.
func impersonationAttributes(u userInfo, extras []attributes) []attributes {
	required := []attributes{{verb: "impersonate", resource: "users", name: u.Name}}
	if account, isAccount := accountOf(u.Name); isAccount {
		required[0].resource = "serviceaccounts"
		required[0].namespace = account.Namespace
		required[0].name = account.Name
	}
	for _, group := range u.Groups {
		required = append(required, attributes{verb: "impersonate", resource: "groups", name: group})
	}
	required = append(required, extras...)
	if u.UID != "" {
		required = append(required, attributes{
			verb:     "impersonate",
			group:    "authentication.k8s.io",
			resource: "uids",
			name:     u.UID,
		})
	}
	return required
}

// extraAttributes returns the permissions that a request's Impersonate-Extra-KEY headers require, one per value, in
// the order of the keys. The values have no other effect in the fake.
func extraAttributes(header http.Header) []attributes {
	var extras []attributes
	for _, field := range slices.Sorted(maps.Keys(header)) {
		key, isExtra := strings.CutPrefix(field, "Impersonate-Extra-")
		if !isExtra {
			continue
		}
		for _, value := range header[field] {
			extras = append(extras, attributes{
				verb:        "impersonate",
				group:       "authentication.k8s.io",
				resource:    "userextras",
				subresource: strings.ToLower(key),
				name:        value,
			})
		}
	}
	return extras
}

// impersonationWithoutUser lists, in the server's form, what a request impersonates although it names no user.
func impersonationWithoutUser(groups []string, extras []attributes, uid string) []string {
	var wanted []string
	for _, group := range groups {
		wanted = append(wanted, fmt.Sprintf("{Group  %s    }", group))
	}
	for _, extra := range extras {
		wanted = append(wanted,
			fmt.Sprintf("{UserExtra  %s  authentication.k8s.io/v1  %s}", extra.name, extra.subresource))
	}
	if uid != "" {
		wanted = append(wanted, fmt.Sprintf("{UID  %s  authentication.k8s.io/v1  }", uid))
	}
	return wanted
}
