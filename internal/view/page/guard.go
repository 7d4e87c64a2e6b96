package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"net/http"
	"strings"
	"sync"

	"podcount/internal/view/listen"
)

// guard decides who may see the page.
type guard struct {
	tokenFile *tokenFile // nil lets everybody see the page who opens it by a name that this machine has for itself
	log       *slog.Logger

	mu      sync.Mutex // guards problem
	problem string     // why the token cannot be read; "" if it can
}

func newGuard(o Options) *guard {
	g := &guard{log: o.Log}
	if o.TokenFile != "" {
		g.tokenFile = &tokenFile{name: o.TokenFile}
	}
	return g
}

// protect returns a handler that passes on only the requests of those who may see the page.
func (g *guard) protect(next http.Handler) http.Handler {
	if g.tokenFile == nil {
		return listen.LoopbackOnly(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.checkToken(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// checkToken reports whether a request has the token. If not, it has answered the request.
func (g *guard) checkToken(w http.ResponseWriter, r *http.Request) bool {
	isAllowed, err := g.allows(r)
	if err != nil {
		http.Error(w, "podcount cannot read the token of its page; its log says why", http.StatusServiceUnavailable)
		return false
	}
	if !isAllowed {
		w.Header().Set("WWW-Authenticate", `Basic realm="podcount"`)
		http.Error(w, "podcount's page needs its token: as the password, with any user name, or as a Bearer token",
			http.StatusUnauthorized)
		return false
	}
	return true
}

// allows reports whether a request has the token that is in the file now. Without a file, each request is allowed.
func (g *guard) allows(r *http.Request) (bool, error) {
	if g.tokenFile == nil {
		return true, nil
	}
	want, err := g.readToken()
	if err != nil {
		return false, err
	}
	return isSame(tokenOf(r), want), nil
}

// readToken reads the token. A problem is logged when it begins.
func (g *guard) readToken() (string, error) {
	token, err := g.tokenFile.read()
	g.logChange(err)
	return token, err
}

// logUnreadable logs at once if nobody will be let in.
func (g *guard) logUnreadable() {
	if g.tokenFile != nil {
		g.readToken()
	}
}

// logChange logs a problem with the token file, unless it is the same as before.
func (g *guard) logChange(err error) {
	problem := ""
	if err != nil {
		problem = err.Error()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if problem != "" && problem != g.problem {
		g.log.Warn("-page-token-file: nobody can see the page", "err", problem)
	}
	g.problem = problem
}

// tokenOf returns the token of a request: its password, or its Bearer token. Without any, it returns "".
func tokenOf(r *http.Request) string {
	if _, password, isBasic := r.BasicAuth(); isBasic {
		return password
	}
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return ""
}

// isSame compares two texts in a time that tells nothing about either, not even a length.
func isSame(a, b string) bool {
	hashOfA := sha256.Sum256([]byte(a))
	hashOfB := sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(hashOfA[:], hashOfB[:]) == 1
}
