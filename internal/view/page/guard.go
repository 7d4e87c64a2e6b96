package page

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"podcount/internal/view/listen"
)

// guard decides who may see the page.
type guard struct {
	tokenFile string // "" lets everybody see the page who opens it by a name that this machine has for itself
	log       *slog.Logger

	// token reads the file, for each request. Anybody can cause that, so while a reading hangs, as on a file system
	// whose server is away, no other begins.
	token listen.Shared[tokenResult]

	lastError atomic.Value // the text of the error of the newest reading
}

// tokenResult is what a reading of the token file has returned.
type tokenResult struct {
	token string
	err   error
}

func newGuard(o Options) *guard {
	g := &guard{tokenFile: o.TokenFile, log: o.Log}
	g.token.Read = func() (r tokenResult) {
		r.token, r.err = readTokenFile(o.TokenFile)
		return r
	}
	return g
}

// protect returns a handler that passes on only the requests of those who may see the page.
func (g *guard) protect(next http.Handler) http.Handler {
	if g.tokenFile == "" {
		return listen.LoopbackOnly(next)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isAllowed, err := g.allows(r)
		switch {
		case err != nil:
			http.Error(w, "podcount cannot read the token of its page; its log says why", http.StatusServiceUnavailable)
		case !isAllowed:
			w.Header().Set("WWW-Authenticate", `Basic realm="podcount"`)
			http.Error(w, "podcount's page needs its token: as the password, with any user name, or as a Bearer token",
				http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// allows reports whether a request has the token that is in the file now. Without a file, each request is allowed.
func (g *guard) allows(r *http.Request) (bool, error) {
	if g.tokenFile == "" {
		return true, nil
	}
	want, err := g.readToken()
	if err != nil {
		return false, err
	}
	return isSame(tokenOf(r), want), nil
}

// readToken reads the token. It logs a problem, unless that is the same as before.
func (g *guard) readToken() (string, error) {
	result, isRead := g.token.Within(tokenTimeout)
	if !isRead {
		result.err = fmt.Errorf("%s could not be read within %v", g.tokenFile, tokenTimeout)
	}
	text := fmt.Sprint(result.err)
	if isNew := g.lastError.Swap(text) != text; isNew && result.err != nil {
		g.log.Warn("-page-token-file: nobody can see the page", "err", result.err)
	}
	return result.token, result.err
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

const (
	tokenTimeout = time.Second // for the reading of the token
	tokenLimit   = 1 << 10     // bytes of the file; a longer token would not fit the headers of a request
)

// readTokenFile reads the token of the page. The file must be a regular one: a pipe can be read only once, and a device
// may have no end.
func readTokenFile(name string) (string, error) {
	info, err := os.Stat(name)
	if err != nil {
		return "", err
	}
	switch {
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is not a regular file", name)
	case info.Size() > tokenLimit:
		return "", fmt.Errorf("%s has more than %d bytes", name, tokenLimit)
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return "", err
	}
	isBetween := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	words := strings.FieldsFunc(strings.TrimPrefix(string(text), "\ufeff"), isBetween) // some editors begin with it
	if len(words) != 1 {
		return "", fmt.Errorf("%s must have one word, the token, but has %d", name, len(words))
	}
	return words[0], nil
}
