package fakekube

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// healthEndpoints are the paths of the health checks, and healthChecks their names. The fake is always healthy.
// https://kubernetes.io/docs/reference/using-api/health-checks/
var (
	healthEndpoints = []string{"healthz", "livez", "readyz"}
	healthChecks    = []string{"ping", "log", "etcd"}
)

// checkHealth answers a health check, and reports whether the request was one.
func (s *Server) checkHealth(r *request, path string) bool {
	endpoint, check, isOne := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !slices.Contains(healthEndpoints, endpoint) || isOne && !slices.Contains(healthChecks, check) {
		return false
	}
	r.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	r.w.Header().Set("X-Content-Type-Options", "nosniff")
	if isOne || !r.query.Has("verbose") {
		io.WriteString(r.w, "ok")
		return true
	}
	excluded := slices.Clone(r.query["exclude"])
	for _, check := range healthChecks {
		if slices.Contains(excluded, check) {
			fmt.Fprintf(r.w, "[+]%s excluded: ok\n", check)
			continue
		}
		fmt.Fprintf(r.w, "[+]%s ok\n", check)
	}
	unknown := slices.DeleteFunc(excluded, func(name string) bool { return slices.Contains(healthChecks, name) })
	if len(unknown) > 0 {
		fmt.Fprintf(r.w, "warn: some health checks cannot be excluded: no matches for %q\n",
			strings.Join(unknown, `","`))
	}
	fmt.Fprintf(r.w, "%s check passed\n", endpoint)
	return true
}
