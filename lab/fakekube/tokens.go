package fakekube

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// apiAudience is the audience of tokens for the API server.
const apiAudience = "https://kubernetes.default.svc"

// The shortest, longest and default lifetime of a token in seconds.
const (
	minTokenSeconds     = 600
	maxTokenSeconds     = 1 << 32
	defaultTokenSeconds = 3600
)

// tokenRequests is the kind of the body for the subresource token. It is not a resource.
// https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
var tokenRequests = kind{group: "authentication.k8s.io", version: "v1", kind: "TokenRequest"}

// createToken answers a TokenRequest with a token for a service account. The token is not a JWT; its text names the
// service account. Like the server, the fake ignores dry run here.
func (s *Server) createToken(r *request) {
	if !r.convertBodyToJSON() || !r.readOptions("CreateOptions") {
		return
	}
	tokenRequest := r.decodeObjectAs(tokenRequests)
	if tokenRequest == nil {
		return
	}
	if name := TextIn(MetaOf(tokenRequest), "name"); name != "" && name != r.key.Name {
		r.refuseAs("TokenRequest", tokenRequests.group, r.key.Name,
			[]cause{invalidValue("metadata.name", name, "must match the service account name if specified")})
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	seconds, audiences := tokenSpec(objectIn(tokenRequest, "spec"))
	account := s.objects["serviceaccounts"][r.key]
	if account == nil {
		r.notFound()
		return
	}
	if causes := validateTokenLifetime(seconds); len(causes) > 0 {
		r.refuseAs("TokenRequest", tokenRequests.group, "", causes)
		return
	}
	now := time.Now()
	expires := now.Add(time.Duration(seconds) * time.Second)
	r.answer(201, Object{
		"kind":       "TokenRequest",
		"apiVersion": tokenRequests.apiVersion(),
		"metadata": Object{
			"name":              r.key.Name,
			"namespace":         r.key.Namespace,
			"uid":               MetaOf(account)["uid"],
			"creationTimestamp": now.UTC().Format(time.RFC3339),
		},
		"spec": Object{
			"audiences":         audiences,
			"expirationSeconds": seconds,
			"boundObjectRef":    objectIn(tokenRequest, "spec")["boundObjectRef"],
		},
		"status": Object{
			"token":               s.newTokenLocked(r.key, account, audiences, expires),
			"expirationTimestamp": expires.UTC().Format(time.RFC3339),
		},
	})
}

// tokenSpec returns the lifetime in seconds and the audiences in the spec of a TokenRequest, or their defaults.
func tokenSpec(spec Object) (seconds float64, audiences []string) {
	seconds, hasSeconds := spec["expirationSeconds"].(float64)
	if !hasSeconds {
		seconds = defaultTokenSeconds
	}
	audiences = textsIn(spec["audiences"])
	if len(audiences) == 0 {
		audiences = []string{apiAudience}
	}
	return seconds, audiences
}

// validateTokenLifetime validates the requested lifetime of a token.
func validateTokenLifetime(seconds float64) []cause {
	reason := ""
	switch {
	case seconds < minTokenSeconds:
		reason = "may not specify a duration less than 10 minutes"
	case seconds > maxTokenSeconds:
		reason = "may not specify a duration larger than 2^32 seconds"
	default:
		return nil
	}
	return []cause{invalidValue("spec.expirationSeconds", int64(seconds), reason)}
}

// newTokenLocked creates a token for a service account. The fake does not accept a token for another audience than
// the API server. It also forgets invalid tokens, so they do not accumulate.
func (s *Server) newTokenLocked(key Key, account Object, audiences []string, expires time.Time) string {
	maps.DeleteFunc(s.tokens, func(_ string, c credential) bool { return !s.isValidLocked(c) })
	token := fmt.Sprintf("serviceaccount:%s:%s:%x", key.Namespace, key.Name, rand.Uint64())
	if slices.Contains(audiences, apiAudience) {
		user := accountUser(key, TextIn(MetaOf(account), "uid"))
		s.tokens[token] = credential{user: user, account: key, expires: expires}
	}
	return token
}
