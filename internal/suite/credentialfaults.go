package suite

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"podcount/internal/fakekube"
	"podcount/internal/retry"
	"podcount/internal/testkit"
)

// tokenSource is where a podcount gets its token while faults happen: a file, or an exec program.
type tokenSource struct {
	t   *testing.T
	f   *fakekube.Server
	dir string
}

// give makes token the one that the file and the exec program have.
func (s *tokenSource) give(token string) {
	testkit.WriteFiles(s.t, s.dir, map[string]string{
		"token":  token,
		"answer": fakekube.ExecCredential("v1", fakekube.Object{"token": token}),
	})
}

func (s *tokenSource) failExec() {
	testkit.WriteFiles(s.t, s.dir, map[string]string{"answer": "exit 1"})
}

func (s *tokenSource) removeFile() { os.Remove(filepath.Join(s.dir, "token")) }

func (s *tokenSource) wait(seconds int) {
	retry.Sleep(s.t.Context(), time.Duration(seconds)*time.Second)
}

func credentialFaults(t *testing.T, podcount Program) {
	for _, row := range []struct {
		name   string
		isExec bool
		happen func(s *tokenSource)
	}{
		{"a token is renewed in time", false, func(s *tokenSource) {
			s.f.Allow("one", "two")
			s.give("two")
			s.wait(61)
			s.f.Allow("two")
			s.f.EndWatches(true)
		}},
		{"a token is refused before there is another", false, func(s *tokenSource) {
			s.f.Allow("two")
			s.f.EndWatches(true)
			s.wait(45)
			s.give("two")
		}},
		{"a token's file is empty, then gone", false, func(s *tokenSource) {
			s.give("")
			s.wait(61)
			s.f.Allow("two")
			s.f.EndWatches(true)
			s.removeFile()
			s.wait(30)
			s.give("two")
		}},
		{"a token's file has a wrong one first", false, func(s *tokenSource) {
			s.f.Allow("two")
			s.give("stranger")
			s.f.EndWatches(true)
			s.wait(30)
			s.give("two")
		}},
		{"the server refuses everybody for a while", false, func(s *tokenSource) {
			s.f.Allow()
			s.f.EndWatches(true)
			s.wait(45)
			s.f.Allow("one")
		}},
		{"a program's token is refused", true, func(s *tokenSource) {
			s.give("two")
			s.f.Allow("two")
		}},
		{"a program fails just when it is needed", true, func(s *tokenSource) {
			s.failExec()
			s.f.Allow("two")
			s.f.EndWatches(true)
			s.wait(30)
			s.give("two")
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			dir := t.TempDir()
			user := "tokenFile: token"
			if row.isExec {
				user = fakekube.ExecUser(t, dir, "v1", ", interactiveMode: Never")
			}
			Simulate(t, func(t *testing.T, f *fakekube.Server) {
				source := &tokenSource{t, f, dir}
				source.give("one")
				f.Allow("one")
				n := f.ServeAs(t, dir, user)
				start := func(args ...string) *Process {
					return podcount.startIn(t, n, dir, append(args, "-v", "6")...)
				}
				SurviveFrom(t, f, start, func(*Process) { row.happen(source) })
				withNewToken := f.Requests(func(r fakekube.Request) bool { return r.Token == "two" })
				if f.KnowsToken("two") && len(withNewToken) == 0 {
					t.Error("the new token was not used")
				}
			})
		})
	}
}
