package suite

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"podcount/internal/api/retry"
	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

func credentialFaults(t *testing.T, podcount Program) {
	for _, row := range tokenFaults {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			user := "tokenFile: token"
			if row.isExec {
				user = execplugin.User(t, dir, "v1", ", interactiveMode: Never")
			}
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				source := &tokenSource{t, f, dir}
				source.setToken("one")
				f.Allow("one")
				n := fixture.NetworkAs(t, f, dir, user)
				start := func(args ...string) *Process {
					return podcount.startIn(t, n, dir, append(args, "-v", "6")...)
				}
				SurviveFrom(t, f, start, func(*Process) { row.disturb(source) })
				withNewToken := fixture.Requests(f, func(r fakekube.Request) bool { return r.Token == "two" })
				if len(withNewToken) == 0 && accepts(f, "two") {
					t.Error("podcount has not used the new token")
				}
			})
		})
	}
}

// accepts reports whether a fake accepts a token.
func accepts(f *fakekube.Server, token string) bool {
	r := httptest.NewRequest(http.MethodGet, "/version", nil)
	r.Header.Set("Authorization", "Bearer "+token)
	answer := httptest.NewRecorder()
	f.ServeHTTP(answer, r)
	return answer.Code != http.StatusUnauthorized
}

// tokenFaults are what can happen to a token while podcount runs. The first token is "one", and the next is "two".
var tokenFaults = []struct {
	name    string
	isExec  bool // podcount gets the token from the exec program, not from the file
	disturb func(s *tokenSource)
}{
	{"a token is renewed in time", false, func(s *tokenSource) {
		s.f.Allow("one", "two")
		s.setToken("two")
		s.wait(61)
		s.f.Allow("two")
		s.f.BreakWatches()
	}},
	{"a token is refused before there is another", false, func(s *tokenSource) {
		s.f.Allow("two")
		s.f.BreakWatches()
		s.wait(45)
		s.setToken("two")
	}},
	{"a token's file is empty, then gone", false, func(s *tokenSource) {
		s.setToken("")
		s.wait(61)
		s.f.Allow("two")
		s.f.BreakWatches()
		s.removeFile()
		s.wait(30)
		s.setToken("two")
	}},
	{"a token's file has a wrong token first", false, func(s *tokenSource) {
		s.f.Allow("two")
		s.setToken("wrong")
		s.f.BreakWatches()
		s.wait(30)
		s.setToken("two")
	}},
	{"the server refuses every token for a while", false, func(s *tokenSource) {
		s.f.Allow()
		s.f.BreakWatches()
		s.wait(45)
		s.f.Allow("one")
	}},
	{"a program's token is refused", true, func(s *tokenSource) {
		s.setToken("two")
		s.f.Allow("two")
	}},
	{"a program fails when its token is refused", true, func(s *tokenSource) {
		s.failExec()
		s.f.Allow("two")
		s.f.BreakWatches()
		s.wait(30)
		s.setToken("two")
	}},
}

// tokenSource is where podcount gets its token from: a file and an exec program in dir, which both have the same token.
// f is the server that accepts or refuses it.
type tokenSource struct {
	t   *testing.T
	f   *fakekube.Server
	dir string
}

func (s *tokenSource) setToken(token string) {
	testkit.WriteFiles(s.t, s.dir, map[string]string{
		"token":  token,
		"answer": execplugin.Credential("v1", fakekube.Object{"token": token}),
	})
}

func (s *tokenSource) failExec() {
	testkit.WriteFiles(s.t, s.dir, map[string]string{"answer": "exit 1"})
}

func (s *tokenSource) removeFile() { os.Remove(filepath.Join(s.dir, "token")) }

func (s *tokenSource) wait(seconds int) {
	retry.Sleep(s.t.Context(), time.Duration(seconds)*time.Second)
}
