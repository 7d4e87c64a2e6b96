package fakekube

import (
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"
)

// issue answers a TokenRequest, in the one form that the fake's tokens of service accounts have.
func (s *Server) issue(r *request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects["serviceaccounts"][r.key] == nil {
		r.notFound()
		return
	}
	token := fmt.Sprintf("%s%s:%s:%x", accountPrefix, r.key.Namespace, r.key.Name, rand.Uint64())
	if s.tokens == nil {
		s.tokens = map[string]bool{"": true} // everybody still may come
	}
	s.tokens[token] = true
	r.answer(201, Object{
		"kind":       "TokenRequest",
		"apiVersion": "authentication.k8s.io/v1",
		"metadata":   Object{"name": r.key.Name},
		"status": Object{
			"token":               token,
			"expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	})
}

// accountPrefix begins the tokens of service accounts: serviceaccount:NAMESPACE:NAME:RANDOM.
const accountPrefix = "serviceaccount:"

// otherAccount is how refusals name whoever is no service account of the fake. The recordings, which the answers are
// held against, were made by podcount.
const otherAccount = "system:serviceaccount:kube-system:podcount"

// accountOf is the service account that a token is of. It has no name where the token is another one.
func accountOf(token string) Key {
	rest, isAccount := strings.CutPrefix(token, accountPrefix)
	if !isAccount {
		return Key{}
	}
	namespace, rest, _ := strings.Cut(rest, ":")
	name, _, _ := strings.Cut(rest, ":")
	return Key{namespace, name}
}

// may reports whether a user has a right: a service account those of its cluster roles, everybody else all. What a test
// has forbidden, nobody may.
func (s *Server) may(user string, rt Route) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isForbidden[rt.Verb+" "+rt.fullResource()] {
		return false
	}
	if !strings.HasPrefix(user, accountPrefix) {
		return true
	}
	account := accountOf(user)
	for _, binding := range s.objectsLocked("clusterrolebindings") {
		if !binds(binding, account) {
			continue
		}
		ref, _ := binding["roleRef"].(Object)
		role := s.objectsLocked("clusterroles")[Key{Name: TextIn(ref, "name")}]
		rules, _ := role["rules"].([]any)
		for _, one := range rules {
			rule, _ := one.(Object)
			if allows(rule, rt) {
				return true
			}
		}
	}
	return false
}

// binds reports whether a service account is among the subjects of a ClusterRoleBinding.
func binds(binding Object, account Key) bool {
	subjects, _ := binding["subjects"].([]any)
	return slices.ContainsFunc(subjects, func(one any) bool {
		subject, _ := one.(Object)
		return TextIn(subject, "kind") == "ServiceAccount" &&
			TextIn(subject, "namespace") == account.Namespace &&
			TextIn(subject, "name") == account.Name
	})
}

// allows reports whether a rule of a ClusterRole covers a request. The fake knows no wildcards and no resourceNames.
func allows(rule Object, rt Route) bool {
	has := func(field, value string) bool {
		list, _ := rule[field].([]any)
		return slices.Contains(list, any(value))
	}
	return has("apiGroups", rt.Group) && has("resources", rt.fullResource()) && has("verbs", rt.Verb)
}

// forbidden refuses what a user has no right to.
func (r *request) forbidden(user string) {
	account := otherAccount
	if strings.HasPrefix(user, accountPrefix) {
		k := accountOf(user)
		account = "system:serviceaccount:" + k.Namespace + ":" + k.Name
	}
	named := r.kind.resource
	if r.key.Name != "" {
		named += fmt.Sprintf(" %q", r.key.Name)
	}
	scope := "at the cluster scope"
	if r.key.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", r.key.Namespace)
	}
	message := fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q %s",
		named, account, r.asked.Verb, r.asked.fullResource(), r.kind.group, scope)
	r.fail(403, "Forbidden", message, r.details())
}

// Allow lets in whoever has one of these tokens, and nobody else but by a client certificate that ClientCA has signed.
// It takes the place of an earlier Allow, and of the tokens that the fake has given to service accounts. Before it is
// called, everybody may come.
func (s *Server) Allow(tokens ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = map[string]bool{}
	for _, token := range tokens {
		s.tokens[token] = true
	}
}

// Lets reports whether Allow has let this token in, or the fake has given it to a service account.
func (s *Server) Lets(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tokens[token]
}

// user is whoever sends a request, by token or client certificate, and whether the fake knows them. Like the real
// server, the fake takes any client certificate in the handshake, and answers 401 to one that it does not know.
func (s *Server) user(r *http.Request) (name string, isKnown bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.tokens == nil {
		return token, true
	}
	if s.tokens[token] {
		isOfAccount := strings.HasPrefix(token, accountPrefix)
		if !isOfAccount || s.objects["serviceaccounts"][accountOf(token)] != nil {
			return token, true
		}
	}
	if s.ClientCA == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return token, false
	}
	certificate := r.TLS.PeerCertificates[0]
	_, err := certificate.Verify(x509.VerifyOptions{
		Roots:     s.ClientCA,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return certificate.Subject.CommonName, err == nil
}

// Forbid makes a verb on a resource, such as "patch nodes" or "patch counts/status", be answered 403 whoever asks, or
// not any more. The message names a service account's own name, or else that of podcount.
func (s *Server) Forbid(what string, isForbidden bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isForbidden[what] = isForbidden
}
