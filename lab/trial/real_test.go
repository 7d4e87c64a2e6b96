package trial

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
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

func TestRowRemovesNothingButItsOwnFromACluster(t *testing.T) {
	f := fakekube.New()
	f.AddNode("somebody")
	fixture.AddPods(f, 1)
	f.Allow("token")
	url, ca := fixture.Listen(t, f)
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"config": fakekube.Kubeconfig(url, ca, "token: token")})
	c, err := openRealCluster(t.Context(), filepath.Join(dir, "config"), "")
	testkit.WantError(t, "the cluster", err, "")
	defer c.close()

	before := objectsIn(f)
	own := &realRow{realCluster: c, name: "trial-1", label: "l"}
	other := &realRow{realCluster: c, name: "trial-2", label: "l"}
	other.addNode("trial-2-cp-1", true)
	other.addPod("trial-2-1")
	withOther := objectsIn(f)
	own.addNode("trial-1-cp-1", true)
	own.addPod("trial-1-1")
	own.hold("somebody else")
	own.remove()
	testkit.WantEqual(t, "what is left of all", objectsIn(f), withOther)
	other.remove()
	testkit.WantEqual(t, "what is left at the end", objectsIn(f), before)
}

// objectsIn returns the keys of the nodes, pods and Leases in a cluster.
func objectsIn(f *fakekube.Server) (keys []string) {
	for _, resource := range []string{"nodes", "pods", "leases"} {
		for _, o := range f.All(resource) {
			keys = append(keys, resource+" "+fakekube.KeyOf(o).String())
		}
	}
	slices.Sort(keys)
	return keys
}
