package fakekube

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// apiAudience is whom a token must be meant for, so that the API server takes it.
const apiAudience = "https://kubernetes.default.svc"

// minTokenLife is the shortest time for which a token can be had.
const minTokenLife = 600 // seconds

// issue answers a TokenRequest: it makes a token for a service account. Its text says whose it is, and is no JWT.
// https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-request-v1/
func (s *Server) issue(r *request) {
	var asked struct {
		Spec struct {
			Audiences         []string
			ExpirationSeconds *int
		}
	}
	if !r.isReadable() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	account := s.objects["serviceaccounts"][r.key]
	if account == nil {
		r.notFound()
		return
	}
	if err := json.Unmarshal(r.body, &asked); err != nil && len(r.body) > 0 {
		r.badRequest("couldn't get version/kind; json parse error: " + err.Error())
		return
	}
	seconds := 3600
	if asked.Spec.ExpirationSeconds != nil {
		seconds = *asked.Spec.ExpirationSeconds
	}
	if seconds < minTokenLife {
		why := "may not specify a duration less than 10 minutes"
		r.refuseAs("TokenRequest", "authentication.k8s.io", "",
			[]cause{invalidValue("spec.expirationSeconds", seconds, why)})
		return
	}
	if len(asked.Spec.Audiences) == 0 {
		asked.Spec.Audiences = []string{apiAudience}
	}
	now := time.Now()
	ends := now.Add(time.Duration(seconds) * time.Second)
	meta := MetaOf(account)
	token := fmt.Sprintf("serviceaccount:%s:%s:%x", r.key.Namespace, r.key.Name, rand.Uint64())
	if slices.Contains(asked.Spec.Audiences, apiAudience) {
		user := accountUser(r.key, TextIn(meta, "uid"))
		s.tokens[token] = credential{user: user, account: r.key, ends: ends}
	}
	r.answer(201, Object{
		"kind":       "TokenRequest",
		"apiVersion": "authentication.k8s.io/v1",
		"metadata": Object{
			"name":              r.key.Name,
			"namespace":         r.key.Namespace,
			"uid":               meta["uid"],
			"creationTimestamp": now.UTC().Format(time.RFC3339),
		},
		"spec": Object{
			"audiences":         asked.Spec.Audiences,
			"expirationSeconds": seconds,
			"boundObjectRef":    nil,
		},
		"status": Object{"token": token, "expirationTimestamp": ends.UTC().Format(time.RFC3339)},
	})
}
