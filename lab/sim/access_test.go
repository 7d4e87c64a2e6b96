package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// connection is what a program of these tests knows about the server.
type connection struct {
	ctx    context.Context
	url    string
	client *http.Client
	dir    string // of the kubeconfig
	stderr io.Writer
}

// connect reads the flags of a program. The returned connection uses HTTP/2 if the server offers it.
func connect(t *testing.T, ctx context.Context, args []string, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) *connection {
	transport := &http.Transport{DialContext: dial, ForceAttemptHTTP2: true}
	c := &connection{ctx: ctx, client: &http.Client{Transport: transport}, stderr: stderr}
	hasMaster := args[0] == "-master"
	if hasMaster {
		c.url = args[1]
		return c
	}
	kubeconfigFile := args[1] // the value of -kubeconfig, which is the first flag without -master
	text, err := os.ReadFile(kubeconfigFile)
	if err != nil {
		t.Error(err)
	}
	c.url = regexp.MustCompile(`server: "([^"]*)"`).FindStringSubmatch(string(text))[1]
	c.dir = filepath.Dir(kubeconfigFile)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(c.file(caFile)))
	transport.TLSClientConfig = &tls.Config{RootCAs: pool}
	return c
}

// file returns the content of a file that the kubeconfig names, or "".
func (c *connection) file(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, name))
	return strings.TrimSpace(string(text))
}

// list lists nodes, with this token unless it is "". A fault may keep it from getting an answer.
func (c *connection) list(token, query string) {
	request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.url+"/api/v1/nodes"+query, nil)
	if err != nil {
		panic(err)
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := c.client.Do(request)
	if err != nil {
		return
	}
	io.Copy(io.Discard, answer.Body)
	answer.Body.Close()
}

func isPlain(a *access) bool        { return !a.isTLS }
func offersHTTP2(a *access) bool    { return a.isHTTP2 && a.kind == tokenInFile }
func offersNoHTTP2(a *access) bool  { return a.isTLS && !a.isHTTP2 && a.kind == tokenInFile }
func expiresSoon(a *access) bool    { return offersHTTP2(a) && a.lifetime < 5*time.Minute }
func hasCertificate(a *access) bool { return a.isTLS && a.kind == certificateInFile }

// seedWith returns the first seed with such an access.
func seedWith(t *testing.T, isWanted func(*access) bool) uint64 {
	t.Helper()
	for seed := range uint64(1000) {
		if isWanted(newAccess(t, seed)) {
			return seed
		}
	}
	t.Fatal("no seed has such an access")
	return 0
}

func TestBrokenRulesOfTheAccessAreFound(t *testing.T) {
	for _, row := range []struct {
		name   string
		access func(*access) bool
		do     func(c *connection)
		want   string
	}{
		{"HTTP/1.1 where HTTP/2 is offered", offersHTTP2, func(c *connection) {
			c.client.Transport.(*http.Transport).ForceAttemptHTTP2 = false
			c.list(c.file(tokenFile), "")
		}, "uses HTTP/2: false; the server offers it: true: GET /api/v1/nodes"},
		{"a token over plain HTTP", isPlain, func(c *connection) {
			c.list("any", "")
		}, "sends a credential over plain HTTP: GET /api/v1/nodes"},
		{"no token", offersNoHTTP2, func(c *connection) {
			c.list("", "")
		}, "sends no credential: GET /api/v1/nodes"},
		{"no certificate", hasCertificate, func(c *connection) {
			c.list("", "")
		}, "sends no credential: GET /api/v1/nodes"},
		{"an old token", expiresSoon, func(c *connection) {
			token := c.file(tokenFile)
			<-time.After(4*time.Minute + 30*time.Second) // The next token comes after 2:24, and another one after 4:48.
			c.list(token, "")
		}, "uses an old credential, though there has been a new one for"},
		{"a token in the URL", offersHTTP2, func(c *connection) {
			c.list(c.file(tokenFile), "?token="+c.file(tokenFile))
		}, "sends a token in the URL or the body of GET /api/v1/nodes"},
		{"a token in the log", offersHTTP2, func(c *connection) {
			fmt.Fprintf(c.stderr, "{\"level\":\"INFO\",\"msg\":\"hello\",\"header\":%q}\n", c.file(tokenFile))
		}, `logs a secret: {"level":"INFO","msg":"hello","header":"never-show-this-token-1"}`},
		{"a key in the log", hasCertificate, func(c *connection) {
			fmt.Fprintf(c.stderr, "{\"level\":\"INFO\",\"msg\":\"hello\",\"key\":%q}\n", c.file(keyFile))
		}, `logs a secret: {"level":"INFO","msg":"hello","key":"-----BEGIN PRIVATE KEY`},
		{"a refused token once more", offersHTTP2, func(c *connection) {
			c.list("wrong", "")
			c.list("wrong", "")
		}, "sends again at once, with the same credential, what got a 401: GET /api/v1/nodes"},
		{"a third token", offersHTTP2, func(c *connection) {
			c.list("wrong", "")
			c.list("also wrong", "")
			c.list("wrong again", "")
		}, "sends again at once, for the second time, what got a 401: GET /api/v1/nodes"},
	} {
		t.Run(row.name, func(t *testing.T) {
			o := optionsFor(doNothing)
			o.Seed = seedWith(t, row.access)
			o.Only = Steps{1_000_000: true} // none of the steps of a seed
			o.Program = func(
				ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
				dial func(ctx context.Context, network, addr string) (net.Conn, error),
			) error {
				c := connect(t, ctx, args, stderr, dial)
				defer c.client.CloseIdleConnections()
				row.do(c)
				<-ctx.Done()
				return nil
			}
			testkit.WantText(t, strings.Join(Simulate(t, o).Broken, "\n"), row.want)
		})
	}
}

func TestCalmEndsTheFaultsOfTheAccess(t *testing.T) {
	for _, fault := range accessFaults() {
		t.Run(fault.name, func(t *testing.T) {
			o := optionsFor(doNothing)
			o.Seed = seedWith(t, offersHTTP2)
			synctest.Test(t, func(t *testing.T) {
				s := newSim(t, o)
				for i := range s.slots {
					s.launch(i)
				}
				s.target = s.drawTarget(fault)
				if fault.do(s) == "" {
					t.Error("the fault does nothing")
				}
				if len(s.accessProblems()) == 0 {
					t.Error("the fault has no effect")
				}
				s.endFaults()
				problems := s.accessProblems()
				if len(problems) > 0 {
					t.Errorf("in the calm: %s", strings.Join(problems, ", "))
				}
				s.end()
			})
		})
	}
}

// accessProblems says what the faults of the access have left behind.
func (s *sim) accessProblems() (problems []string) {
	s.access.mu.Lock()
	defer s.access.mu.Unlock()
	if !s.access.isHealthyLocked() {
		problems = append(problems, "a credential, a file or a CA is wrong")
	}
	if slices.ContainsFunc(s.slots, isMute) {
		problems = append(problems, "new connections are silent")
	}
	if s.access.shedding.isActive() {
		problems = append(problems, "connections are shed")
	}
	return problems
}

// isMute reports whether new connections of a process are silent.
func isMute(p *proc) bool { return p.link.isMute }

func TestProcessMayEndOnlyAtItsStartAndOnlyForDamagedFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{access: &access{isTLS: true}}
		wantMayEnd := func(when string, p *proc, want bool) {
			t.Helper()
			if s.mayRefuseFilesLocked(p) != want {
				t.Errorf("%s, a process may end: %v", when, !want)
			}
		}
		s.files.note("one", false)
		early := &proc{began: time.Now()}
		<-time.After(time.Minute)
		wantMayEnd("while the files are whole", &proc{began: time.Now()}, false)
		s.files.note("one", true)
		wantMayEnd("while the files are damaged", &proc{began: time.Now()}, true)
		wantMayEnd("long after its start", early, false)
		during := &proc{began: time.Now()}
		s.files.note("one", false)
		wantMayEnd("at the moment of the repair", during, true)
		<-time.After(time.Second)
		wantMayEnd("after the repair", &proc{began: time.Now()}, false)
	})
}

func TestQuestionForTheNewestVersionIsNoRepetitionAfterAnotherWatch(t *testing.T) {
	const question = "/api/v1/nodes?limit=1"
	for _, row := range []struct {
		name    string
		refused string
		watch   string
		want    bool // the refused request is a repetition if it is sent again now
	}{
		{"another watch", question, "/api/v1/nodes?watch=1", false},
		{"a watch of another resource", question, "/api/v1/pods?watch=1", true},
		{"a list, which is no question", "/api/v1/nodes", "/api/v1/nodes?watch=1", true},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &proc{
					refused:          map[string]*unauthorized{},
					requestsInSecond: map[string]int{},
				}
				refused := requestTo(row.refused)
				watch := requestTo(row.watch)
				s := &sim{
					fake:   fakekube.New(),
					access: &access{isUnchecked: true},
					byHost: map[string]*proc{watch.Host: p},
				}
				p.noteRefusal(refused)
				s.Asked(watch)
				isRepetition := p.refusedNow(refused) != nil
				testkit.WantEqual(t, "a request is a repetition", isRepetition, row.want)
			})
		})
	}
}

// requestTo returns a GET request that arrives now.
func requestTo(path string) fakekube.Request {
	return fixture.RequestOf(http.MethodGet, path)
}
