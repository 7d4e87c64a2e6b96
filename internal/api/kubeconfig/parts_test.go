package kubeconfig

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

func TestCredentialFileMustBeRegular(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for field, user := range map[string]string{
		"tokenFile":          "tokenFile: FILE",
		"client-certificate": "client-certificate: FILE\n    client-key: FILE",
	} {
		for _, file := range []string{dir + "/pipe", "/dev/zero", dir} {
			config := fakekube.Kubeconfig("https://h", nil, strings.ReplaceAll(user, "FILE", file))
			testkit.WriteFiles(t, dir, map[string]string{"config": config})
			want := dir + "/config, context fake: " + field + ": " + file + " is not a regular file"
			_, err := Load(t.Context(), Options{Kubeconfig: dir + "/config", Getenv: noEnv})
			wantErrorText(t, err, want)
		}
	}
}

func TestEndlessFileIsRefused(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{
		"big":    "",
		"config": fakekube.Kubeconfig("https://h", nil, "tokenFile: big"),
	})
	os.Truncate(dir+"/big", maxFileSize+1)
	for file, want := range map[string]string{
		dir + "/config": dir + "/config, context fake: tokenFile: " + dir + "/big has more than 16 MB",
		"/dev/zero":     "/dev/zero has more than 16 MB",
	} {
		_, err := Load(t.Context(), Options{Kubeconfig: file, Getenv: noEnv})
		wantErrorText(t, err, want)
	}
}

func TestKubeconfigMayComeThroughAPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(dir+"/pipe", []byte(fakekube.Kubeconfig("https://h", nil, "token: good")), 0)
	cfg, err := Load(t.Context(), Options{Kubeconfig: dir + "/pipe", Getenv: noEnv})
	if err != nil {
		t.Fatal(err)
	}
	wantToken(t, cfg, "good")
}

func TestReadingThatHangsIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := make(chan struct{})
		defer close(end)
		start := time.Now()
		_, err := within(t.Context(), fileTimeout, "FILE", func(string) (bool, error) {
			<-end
			return true, nil
		})
		wantErrorText(t, err, "FILE: it could not be read in time (5s)")
		testkit.WantEqual(t, "time until the error", time.Since(start), fileTimeout)
	})
}

// On Linux, open() waits for a process that holds a lease of the file, just as it waits for a network file system whose
// server hangs.
func TestHangingFileIsWaitedForOnlyOnce(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs leases of files, as Linux has them")
	}
	t.Parallel()
	dir := t.TempDir()
	out := &testkit.Buffer{}
	cfg := loadTokenFile(t, dir, out)
	first := mustCredential(t, cfg)
	holder, err := os.OpenFile(dir+"/token", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const setLease, writeLease = 1024, 1
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, holder.Fd(), setLease, writeLease); errno != 0 {
		holder.Close()
		t.Skip("no leases on this file system: ", errno)
	}
	refuse := func() {
		cred, err := cfg.Credential(t.Context(), first)
		if err != nil || cred != first {
			t.Errorf("got the credential %p and the error %v, want the first credential, %p", cred, err, first)
		}
		testkit.WantEqual(t, "the first reading is running", cfg.access.token.isReading.Load(), true)
	}
	start := time.Now()
	refuse()
	testkit.WantBetween(t, "time until the credential", time.Since(start), rereadTimeout, rereadTimeout+5*time.Second)
	start = time.Now()
	for range 10 {
		refuse()
	}
	testkit.WantBetween(t, "time until ten more", time.Since(start), 0, 9*rereadTimeout)
	hurried, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start = time.Now()
	_, err = Load(hurried, Options{Kubeconfig: dir + "/config", Getenv: noEnv})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Load that is stopped: got the error %v, want %v", err, context.DeadlineExceeded)
	}
	testkit.WantBetween(t, "time until Load stopped", time.Since(start), 0, 3*time.Second)
	holder.WriteString("two")
	holder.Close()
	for cfg.access.token.isReading.Load() {
		runtime.Gosched()
	}
	wantToken(t, cfg, "two")
	testkit.WantNumber(t, "warnings", strings.Count(out.String(), "so the previous one stays in use"), 1)
	testkit.WantText(t, out.String(), "it could not be read in time (1s)")
	testkit.WantNumber(t, "lines about the end", strings.Count(out.String(), "the credential can be renewed again"), 1)
}

func TestTokenIsUsedUntilItsFileExists(t *testing.T) {
	config := fakekube.Kubeconfig("https://h", nil, "token: first\n    tokenFile: later")
	cfg, err := loadText(t, config)
	if err != nil {
		t.Fatal(err)
	}
	wantToken(t, cfg, "first")
	tried := mustCredential(t, cfg).Tried
	if !strings.HasSuffix(tried, "/config, context fake") {
		t.Errorf("the credential is %q, want the token of the kubeconfig", tried)
	}
}

func TestKeyMustMatchItsCertificate(t *testing.T) {
	ca := fakekube.NewAuthority("CA")
	cert, _ := ca.Issue("me", nil)
	_, key := ca.Issue("somebody else", nil)
	config := fakekube.Kubeconfig("https://h", nil, "client-certificate: tls.crt\n    client-key: tls.key")
	files := map[string]string{"config": config, "tls.crt": string(cert), "tls.key": string(key)}
	_, err := load(t, files, Options{Kubeconfig: "config"}, nil)
	testkit.WantError(t, "Load", err, "tls.key: tls: private key does not match public key")
	testkit.WantError(t, "Load", err, "client-certificate /")
}

// The old pair is still in use then, and a server that refuses it answers 401.
func TestRefusedCredentialNamesItsCertificate(t *testing.T) {
	ca := fakekube.NewAuthority("CA")
	cert, key := ca.Issue("me", nil)
	otherCert, _ := ca.Issue("somebody else", nil)
	dir := t.TempDir()
	user := "client-certificate: tls.crt\n    client-key: tls.key\n    tokenFile: token"
	testkit.WriteFiles(t, dir, map[string]string{
		"config":  fakekube.Kubeconfig("https://h", nil, user),
		"tls.crt": string(cert),
		"tls.key": string(key),
		"token":   "one",
	})
	cfg := mustLoad(t, dir+"/config", io.Discard)
	first := mustCredential(t, cfg)

	testkit.WriteFiles(t, dir, map[string]string{"tls.crt": string(otherCert), "token": "two"})
	second, err := cfg.Credential(t.Context(), first)
	if err != nil || second.Token != "two" || second.TLS != first.TLS {
		t.Fatalf("the second credential is %+v, %v; want the new token, and the TLS of the first", second, err)
	}
	testkit.WantText(t, first.Tried, "the client certificate of CN=me")
	testkit.WantText(t, second.Tried, "the client certificate of CN=me")
}
