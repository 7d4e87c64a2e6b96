package suite

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/execplugin"
	"podcount/lab/fakekube"
	"podcount/lab/fixture"
	"podcount/lab/testkit"
)

// Credentials shows how podcount follows credentials that change while it runs.
var Credentials = Topic{
	{"a token file is read every minute and after a 401", tokenFile},
	{"a wrong token is tried once, and named by its file", wrongToken},
	{"new certificates are used while old watches continue", newCertificates},
	{"an exec credential is kept until it expires or fails", execCredential},
	{"an exec program may give a client certificate", execCertificate},
}

// addPodOnCP adds a pod to the node cp and lets d pass.
func addPodOnCP(f *fakekube.Server, d time.Duration) {
	f.AddPod("default", fmt.Sprint("p", len(f.All("pods"))), "cp")
	testkit.Pass(d)
}

// startIn runs podcount with the kubeconfig in dir.
func (podcount Program) startIn(t *testing.T, n *fakekube.Network, dir string, args ...string) *Process {
	t.Helper()
	return podcount.StartOn(t, n, append([]string{"-kubeconfig", filepath.Join(dir, "config")}, args...)...)
}

func writeText(t *testing.T, dir, name, text string) {
	t.Helper()
	testkit.WriteFiles(t, dir, map[string]string{name: text})
}

// wantTimes fails the test unless podcount has logged text this many times.
func wantTimes(t *testing.T, p *Process, text string, want int) {
	t.Helper()
	testkit.WantNumber(t, "log lines with "+text, strings.Count(p.Log.String(), text), want)
}

// wantWritesBy fails the test unless the writes so far were sent with these tokens.
func wantWritesBy(t *testing.T, f *fakekube.Server, tokens ...string) {
	t.Helper()
	var got []string
	for _, r := range WritesTo(f) {
		got = append(got, r.Token)
	}
	testkit.WantEqual(t, "the tokens of the writes", got, tokens)
}

// What podcount logs when it cannot renew a credential, and when it can again.
const (
	renewalFails = "so the previous one stays in use"
	renewalWorks = "the credential can be renewed again"
)

func tokenFile(t *testing.T, podcount Program) {
	dir := t.TempDir()
	write := func(token string) { writeText(t, dir, "token", token) }
	write("one\n")
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.AddNode("cp", ControlPlane)
		f.Allow("one", "two", "three")
		n := fixture.NetworkAs(t, f, dir, "tokenFile: token\n    token: the-file-wins")
		p := podcount.startIn(t, n, dir, "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		wantWritesBy(t, f, "one")

		write("two")
		addPodOnCP(f, 2*time.Second)
		wantWritesBy(t, f, "one", "one")
		testkit.Pass(time.Minute)
		addPodOnCP(f, 2*time.Second)
		wantWritesBy(t, f, "one", "one", "two")

		// The second "two" is refused, and the write is sent again at once.
		write("three\n")
		f.Allow("three")
		addPodOnCP(f, 2*time.Second)
		wantWritesBy(t, f, "one", "one", "two", "two", "three")

		// While the file has no token, the old one stays in use.
		for _, breakFile := range []func(){
			func() { write(" \n") },
			func() { write("half of one\n") },
			func() { os.Remove(filepath.Join(dir, "token")) },
		} {
			breakFile()
			testkit.Pass(10 * time.Minute)
			addPodOnCP(f, 2*time.Second)
			testkit.Pass(10 * time.Minute)
		}
		wantWritesBy(t, f, "one", "one", "two", "two", "three", "three", "three", "three")
		wantTimes(t, p, renewalFails, 1)

		write("four")
		f.Allow("four")
		addPodOnCP(f, 2*time.Second)
		writes := WritesTo(f)
		testkit.WantEqual(t, "the newest token", writes[len(writes)-1].Token, "four")
		wantTimes(t, p, renewalWorks, 1)
	})
}

func wrongToken(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("another")
		dir := t.TempDir()
		writeText(t, dir, "token", "s3cret")
		p := podcount.startIn(t, fixture.NetworkAs(t, f, dir, "tokenFile: token"), dir, "-v", "6")
		synctest.Wait()
		testkit.WantNumber(t, "requests: two lists and one discovery", len(f.Received(fakekube.Requests{})), 3)
		testkit.WantText(t, p.Log.String(),
			"list pods: 401 Unauthorized: Unauthorized (what was not accepted: the token of "+dir+"/token)")
		wantTimes(t, p, "s3cret", 0)

		f.Allow("s3cret")
		f.AddNode("cp", ControlPlane)
		testkit.Pass(time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "0")
	})
}

// certificateVolume is a directory with a client certificate and a CA. As in a volume that a kubelet mounts, the files
// of each version are in a directory of their own, and the link ..data leads to the current one.
type certificateVolume struct {
	dir     string
	clients *fakekube.Authority
}

// newCertificateVolume creates a volume whose files do not exist yet, and a kubeconfig in it that names them.
func newCertificateVolume(t *testing.T, clients *fakekube.Authority) *certificateVolume {
	v := &certificateVolume{t.TempDir(), clients}
	for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if err := os.Symlink("..data/"+name, filepath.Join(v.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	user := "client-certificate: tls.crt\n    client-key: tls.key"
	config := fakekube.Kubeconfig("https://127.0.0.1:1", nil, user)
	config = strings.Replace(config, "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
	writeText(t, v.dir, "config", config)
	return v
}

// swap replaces all files at once by those of a new version: a new certificate for user, and a bundle of CAs.
func (v *certificateVolume) swap(t *testing.T, version, user string, cas ...*fakekube.Authority) {
	t.Helper()
	certificate, key := v.clients.Issue(user, fixture.AsAdmin)
	bundle := ""
	for _, ca := range cas {
		bundle += string(ca.PEM())
	}
	testkit.WriteFiles(t, v.dir, map[string]string{
		version + "/ca.crt":  bundle,
		version + "/tls.crt": string(certificate),
		version + "/tls.key": string(key),
	})
	next := filepath.Join(v.dir, "..tmp")
	err := os.Symlink(version, next)
	if err == nil {
		err = os.Rename(next, filepath.Join(v.dir, "..data"))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// pairFrom returns a new server certificate that ca has signed, with its key.
func pairFrom(t *testing.T, ca *fakekube.Authority) *tls.Certificate {
	t.Helper()
	certificate, key := ca.Issue("server", nil)
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	return &pair
}

// wantUsers fails the test unless the newest write and the newest watch of pods were sent by these users.
func wantUsers(t *testing.T, f *fakekube.Server, writer, watcher string) {
	t.Helper()
	writes := WritesTo(f)
	watches := fixture.Requests(f, fixture.IsWatch("pods"))
	testkit.WantEqual(t, "the user of the newest write", writes[len(writes)-1].User, writer)
	testkit.WantEqual(t, "the user of the newest watch", watches[len(watches)-1].User, watcher)
}

func newCertificates(t *testing.T, podcount Program) {
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		oldCA := fakekube.NewAuthority("old CA")
		newCA := fakekube.NewAuthority("new CA")
		clients := fakekube.NewAuthority("clients")
		var server atomic.Pointer[tls.Certificate]
		server.Store(pairFrom(t, oldCA))
		volume := newCertificateVolume(t, clients)
		volume.swap(t, "v1", "one", oldCA)
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", ControlPlane)
		n := fixture.Network(t, f, server.Load)
		p := podcount.startIn(t, n, volume.dir, "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "0")
		connections := n.Dialed()

		// The next write uses the new certificate, on a new connection. The watch continues on the old one.
		volume.swap(t, "v2", "two", oldCA, newCA)
		testkit.Pass(2 * time.Second)
		addPodOnCP(f, 2*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "1")
		testkit.WantNumber(t, "connections", n.Dialed(), connections+1)
		wantUsers(t, f, "two", "one")
		testkit.WantNumber(t, "watches", len(fixture.Requests(f, fixture.IsWatch("pods"))), 1)

		volume.showBrokenFiles(t, f, p, "v2")
		WantLabel(t, f, "cp", TotalLabel, "6")

		// When the old CA is gone and the watches have ended, everything uses the new files.
		server.Store(pairFrom(t, newCA))
		volume.swap(t, "v3", "three", newCA)
		testkit.Pass(2 * time.Second) // podcount reads certificate files at most once a second
		f.BreakWatches()
		testkit.Pass(2 * time.Second)
		addPodOnCP(f, 2*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "7")
		wantUsers(t, f, "three", "three")
		testkit.WantNumber(t, "lists of pods", len(fixture.Requests(f, IsList("pods"))), 1)
		WantPeace(t, f, "-interval", "1s")
	})
}

// showBrokenFiles breaks the files of a version and shows that podcount keeps using what it has read before. It adds
// five pods.
func (v *certificateVolume) showBrokenFiles(t *testing.T, f *fakekube.Server, p *Process, version string) {
	t.Helper()
	keyFile := version + "/tls.key"
	key := testkit.ReadFile(t, filepath.Join(v.dir, keyFile))
	writeText(t, v.dir, keyFile, "no key")
	testkit.Pass(2 * time.Second)
	addPodOnCP(f, 2*time.Second)
	writeText(t, v.dir, keyFile, key)
	testkit.Pass(2 * time.Second)
	addPodOnCP(f, 2*time.Second)
	wantTimes(t, p, renewalWorks, 1)

	writeText(t, v.dir, keyFile, "no key")
	writeText(t, v.dir, version+"/ca.crt", "no CA")
	if err := os.Remove(filepath.Join(v.dir, version, "tls.crt")); err != nil {
		t.Fatal(err)
	}
	testkit.Pass(2 * time.Second)
	for range 3 {
		addPodOnCP(f, time.Minute) // this takes less than five minutes, after which watches may end
	}
	wantTimes(t, p, renewalFails, 2)
}

// execProgram is a directory with an exec program, its answer and a record of its runs.
type execProgram struct{ dir string }

func (e execProgram) answer(t *testing.T, version string, status fakekube.Object) {
	t.Helper()
	writeText(t, e.dir, "answer", execplugin.Credential(version, status))
}

// runs returns a line for each run: the arguments, stdin and the environment that the program was given.
func (e execProgram) runs() []string {
	text, _ := os.ReadFile(filepath.Join(e.dir, "runs"))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

func execCredential(t *testing.T, podcount Program) {
	if testkit.IsRaced() {
		t.Skip("under the race detector, each of the dozens of processes takes half a second to start")
	}
	program := execProgram{t.TempDir()}
	answer := func(token string) {
		t.Helper()
		program.answer(t, "v1beta1", fakekube.Object{"token": token})
	}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		f.Allow("one", "two")
		f.AddNode("cp", ControlPlane)
		expires := time.Now().Add(10 * time.Minute).UTC().Format(time.RFC3339)
		program.answer(t, "v1beta1", fakekube.Object{"token": "one", "expirationTimestamp": expires})
		n := program.serve(t, f)
		p := podcount.startIn(t, n, program.dir, "-v", "6")
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "0")
		testkit.WantEqual(t, "the runs at the start", program.runs(), []string{
			`["get" "a token"] stdin="" REGION=eu {"apiVersion":"client.authentication.k8s.io/v1beta1",` +
				`"kind":"ExecCredential","spec":{"interactive":false}}`,
		})

		answer("two")
		testkit.Pass(11 * time.Minute)
		addPodOnCP(f, 20*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "1")
		testkit.WantNumber(t, "runs after the credential has expired", len(program.runs()), 2)
		testkit.Pass(24 * time.Hour)
		testkit.WantNumber(t, "runs a day later, as the second one does not expire", len(program.runs()), 2)

		answer("three")
		f.Allow("three")
		addPodOnCP(f, 20*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "2")
		testkit.WantNumber(t, "runs after the credential was refused", len(program.runs()), 3)

		program.showFailures(t, f, p)
		answer("four")
		addPodOnCP(f, 2*time.Minute)
		WantLabel(t, f, "cp", TotalLabel, "3")
		for _, token := range []string{`"one"`, `"two"`, "=four", `"four"`, "wrong"} {
			wantTimes(t, p, token, 0)
		}
	})
}

// serve serves f. The kubeconfig that it writes names the exec program, and has extensions as clusters use them.
func (e execProgram) serve(t *testing.T, f *fakekube.Server) *fakekube.Network {
	t.Helper()
	user := execplugin.User(t, e.dir, "v1beta1", ", interactiveMode: IfAvailable, provideClusterInfo: false")
	n := fixture.NetworkAs(t, f, e.dir, user)
	config := testkit.ReadFile(t, filepath.Join(e.dir, "config"))
	const authority = "    certificate-authority-data: "
	const more = "    tls-server-name: 127.0.0.1\n" +
		"    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: us}}, " +
		"{name: else, extension: 1}]\n"
	writeText(t, e.dir, "config", strings.Replace(config, authority, more+authority, 1))
	return n
}

// showFailures shows that podcount runs the program at most once every 5 s, even if the program fails, or the server
// refuses its token.
func (e execProgram) showFailures(t *testing.T, f *fakekube.Server, p *Process) {
	t.Helper()
	before := len(e.runs())
	writeText(t, e.dir, "answer", "exit the server of tokens is down")
	f.Allow("four")
	f.EndWatches()
	testkit.Pass(time.Minute)
	testkit.WantBetween(t, "runs in a minute of failures", len(e.runs())-before, 3, 13)
	testkit.WantText(t, p.Log.String(), `exit status 1; it printed \"the server of tokens is down\"`)

	e.answer(t, "v1beta1", fakekube.Object{"token": "wrong"})
	testkit.Pass(2 * time.Minute)
	before = len(e.runs())
	testkit.Pass(time.Minute)
	testkit.WantBetween(t, "runs in a minute of refusals", len(e.runs())-before, 0, 13)
}

func execCertificate(t *testing.T, podcount Program) {
	program := execProgram{t.TempDir()}
	Simulate(t, func(t *testing.T, f *fakekube.Server) {
		servers := fakekube.NewAuthority("servers")
		clients := fakekube.NewAuthority("clients")
		answer := func(user string, expires time.Time) {
			certificate, key := clients.Issue(user, fixture.AsAdmin)
			program.answer(t, "v1", fakekube.Object{
				"clientCertificateData": string(certificate),
				"clientKeyData":         string(key),
				"expirationTimestamp":   expires,
			})
		}
		f.Allow()
		f.ClientCA = clients.Pool()
		f.AddNode("cp", ControlPlane)
		user := execplugin.User(t, program.dir, "v1", ", interactiveMode: Never")
		writeText(t, program.dir, "config", fakekube.Kubeconfig("https://127.0.0.1:1", servers.PEM(), user))
		answer("one", time.Now().Add(time.Minute))
		pair := pairFrom(t, servers)
		podcount.startIn(t, fixture.Network(t, f, func() *tls.Certificate { return pair }), program.dir)
		synctest.Wait()
		WantLabel(t, f, "cp", TotalLabel, "0")

		answer("two", time.Now().Add(time.Hour))
		testkit.Pass(time.Minute)
		addPodOnCP(f, 20*time.Second)
		WantLabel(t, f, "cp", TotalLabel, "1")
		var users []string
		for _, r := range WritesTo(f) {
			users = append(users, r.User)
		}
		testkit.WantEqual(t, "the users of the writes", users, []string{"one", "two"})
		testkit.WantNumber(t, "watches", len(fixture.Requests(f, fixture.IsWatch("pods"))), 1)
	})
}
