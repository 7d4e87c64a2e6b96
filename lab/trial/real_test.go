package trial

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestGuardLetsOnlyTheProgramUseTheCluster(t *testing.T) {
	passed := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	g := guard{passed, "secret", "trial-1"}
	for request, want := range map[string]int{
		"GET /api/v1/pods":                                                 200,
		"PATCH /api/v1/nodes/trial-1-cp-1":                                 200,
		"POST /api/v1/namespaces/default/events":                           200,
		"POST /apis/coordination.k8s.io/v1/namespaces/kube-system/leases":  200,
		"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":      200,
		"PATCH /api/v1/nodes/somebody":                                     403,
		"DELETE /api/v1/namespaces/default/pods/somebody":                  403,
		"PUT /apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x": 403,
	} {
		method, path, _ := strings.Cut(request, " ")
		for token, code := range map[string]int{"secret": want, "other": 401, "": 401} {
			q := httptest.NewRequest(method, path, nil)
			q.Header.Set("Authorization", "Bearer "+token)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, q)
			if w.Code != code {
				t.Errorf("%s with the token %q: %d, want %d", request, token, w.Code, code)
			}
		}
	}
}
