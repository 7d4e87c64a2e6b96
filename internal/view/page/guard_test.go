package page

import (
	"encoding/base64"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/testkit"
)

// allPaths are the paths that answer at once.
var allPaths = []string{"/", "/debug/state", "/statusz", "/flagz", "/playground", "/nothing"}

func TestPageOnLoopbackAnswersOnlyToItsNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		for _, host := range []string{"localhost:8081", "127.0.0.1:8081", "[::1]:8081", "127.0.0.1"} {
			testkit.WantNumber(t, "the code for "+host, f.get(t, "/statusz", "Host", host).code, 200)
		}
		for _, host := range []string{
			"podcount.example:8081", "10.0.0.1", "127.0.0.1.podcount.example", "a-localhost",
		} {
			for _, path := range append(allPaths, "/events") {
				got := f.get(t, path, "Host", host)
				testkit.WantNumber(t, "the code of "+path+" for "+host, got.code, 403)
				testkit.WantText(t, got.text, "DNS rebinding")
			}
		}
		testkit.WantNumber(t, "states read for them", int(f.states.Load()), 0)
	})
}

// startWithToken runs a Page beyond loopback, whose token file has this text.
func startWithToken(t *testing.T, text string) (f *fixture, file string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "token")
	write(t, file, text)
	f = start(t, func(o *Options) {
		o.TokenFile = file
	})
	return f, file
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func TestTokenIsNeededForEveryPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _ := startWithToken(t, "\n s3cret \n")
		rows := []struct {
			name, authorization string
			code                int
		}{
			{"no token", "", 401},
			{"the password of any user", basic("anybody", "s3cret"), 200},
			{"the password of no user", basic("", "s3cret"), 200},
			{"a bearer token", "Bearer s3cret", 200},
			{"a bearer token in lower case", "bearer s3cret", 200},
			{"a wrong password", basic("anybody", "s3cre"), 401},
			{"the password in capitals", basic("anybody", "S3CRET"), 401},
			{"the token as the user", basic("s3cret", ""), 401},
			{"a wrong bearer token", "Bearer s3cretx", 401},
			{"an empty bearer token", "Bearer ", 401},
			{"another scheme", "Digest s3cret", 401},
		}
		for _, row := range rows {
			t.Log(row.name)
			got := f.get(t, "/flagz", "Authorization", row.authorization, "Host", "podcount.example")
			testkit.WantNumber(t, "the code", got.code, row.code)
			wantChallenge := ""
			if row.code == 401 {
				wantChallenge = `Basic realm="podcount"`
			}
			testkit.WantEqual(t, "the challenge", got.header.Get("WWW-Authenticate"), wantChallenge)
		}
		for _, path := range append(allPaths, "/events") {
			got := f.get(t, path)
			testkit.WantNumber(t, "the code of "+path, got.code, 401)
			if strings.Contains(got.text, "s3cret") {
				t.Errorf("%s shows the token", path)
			}
		}
		testkit.WantEqual(t, "the log", f.log.String(), "")
	})
}

func TestTokenFileIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, file := startWithToken(t, "first")
		testkit.WantNumber(t, "the code of the first", f.get(t, "/flagz", "Authorization", "Bearer first").code, 200)
		write(t, file, "second\n")
		testkit.WantNumber(t, "the code of the old one", f.get(t, "/flagz", "Authorization", "Bearer first").code, 401)
		testkit.WantNumber(t, "the code of the new one", f.get(t, "/flagz", "Authorization", "Bearer second").code, 200)
	})
}

func TestWithoutAReadableTokenNobodySeesAnything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, file := startWithToken(t, " \n")
		testkit.Pass(time.Second)
		testkit.WantText(t, f.log.String(),
			"-page-token-file: nobody can see the page", file+" must have one word, the token, but has 0")
		for _, authorization := range []string{"", "Bearer ", basic("anybody", "")} {
			got := f.get(t, "/flagz", "Authorization", authorization)
			testkit.WantNumber(t, "the code", got.code, 503)
			testkit.WantText(t, got.text, "its log says why")
			if strings.Contains(got.text, file) {
				t.Error("the answer names the file")
			}
		}
		testkit.WantNumber(t, "lines of the log", strings.Count(f.log.String(), "\n"), 1)

		os.Remove(file)
		testkit.WantNumber(t, "the code without a file", f.get(t, "/flagz").code, 503)
		testkit.WantText(t, f.log.String(), "no such file")

		write(t, file, "token")
		testkit.WantNumber(t, "the code with a token", f.get(t, "/flagz", "Authorization", "Bearer token").code, 200)
		testkit.WantNumber(t, "lines of the log", strings.Count(f.log.String(), "\n"), 2)
	})
}

func TestOddTokenFilesLetNobodyIn(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	long := filepath.Join(t.TempDir(), "long")
	write(t, long, strings.Repeat("x", tokenLimit+1))
	words := filepath.Join(t.TempDir(), "words")
	write(t, words, "two words")
	for file, problem := range map[string]string{
		pipe:        "is not a regular file",
		"/dev/zero": "is not a regular file",
		t.TempDir(): "is not a regular file",
		long:        "has more than 1024 bytes",
		words:       "must have one word, the token, but has 2",
	} {
		_, err := readTokenFile(file)
		testkit.WantError(t, file, err, file+" "+problem)
	}
}

func TestByteOrderMarkIsNotPartOfTheToken(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	write(t, file, "\ufeffs3cret\r\n")
	token, err := readTokenFile(file)
	testkit.WantError(t, "readTokenFile", err, "")
	testkit.WantEqual(t, "the token", token, "s3cret")
}

func TestWhileTheReadingOfTheTokenHangsNoOtherBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		finish := make(chan struct{})
		defer close(finish)
		g := newGuard(Options{TokenFile: "hung", Log: slog.New(slog.DiscardHandler)})
		g.token.Read = func() tokenResult {
			reads++
			<-finish
			return tokenResult{}
		}
		for range 3 {
			start := time.Now()
			_, err := g.readToken()
			testkit.WantError(t, "readToken", err, "hung could not be read within 1s")
			testkit.WantEqual(t, "the time that it took", time.Since(start), tokenTimeout)
		}
		synctest.Wait()
		testkit.WantNumber(t, "readings", reads, 1)
	})
}

func TestStreamEndsWhenItsTokenIsWithdrawn(t *testing.T) {
	for name, withdraw := range map[string]func(t *testing.T, file string){
		"another token": func(t *testing.T, file string) { write(t, file, "second") },
		"no file":       func(_ *testing.T, file string) { os.Remove(file) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, file := startWithToken(t, "first")
				resp := f.request(t, "/events", "Authorization", "Bearer first")
				defer resp.Body.Close()
				testkit.WantNumber(t, "the code", resp.StatusCode, 200)
				ended := make(chan struct{})
				go func() {
					io.Copy(io.Discard, resp.Body)
					close(ended)
				}()
				testkit.Pass(time.Minute)
				testkit.WantNumber(t, "viewers", f.viewers(), 1)
				withdraw(t, file)
				testkit.Pass(2 * time.Second)
				testkit.WantNumber(t, "viewers two seconds later", f.viewers(), 0)
				resp.Body.Close()
				<-ended
			})
		})
	}
}

// Another site could not read the answer, but its scripts could take the places of all viewers.
func TestOtherSitesGetNoStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		for _, row := range []struct {
			header, value string
			code          int
		}{
			{"Origin", "http://evil.example", 403},
			{"Origin", "null", 403},
			{"Origin", "http://localhost:9999", 403},
			{"Origin", "http://localhost:8081.evil.example", 403},
			{"Origin", "http://localhost:8081", 200},
			{"Sec-Fetch-Site", "cross-site", 403},
			{"Sec-Fetch-Site", "same-site", 403},
			{"Sec-Fetch-Site", "same-origin", 200},
			{"Sec-Fetch-Site", "none", 200},
		} {
			resp := f.request(t, "/events", "Host", "localhost:8081", row.header, row.value)
			resp.Body.Close()
			testkit.WantNumber(t, "the code for "+row.value, resp.StatusCode, row.code)
		}
		testkit.Pass(2 * time.Second)
	})
}
