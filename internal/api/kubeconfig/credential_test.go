package kubeconfig

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/lab/fakekube"
	"podcount/lab/testkit"
)

// A renewal that is running may have read the token's file before the server refused that token, or not at all.
func TestRefusedCredentialIsReadAgainDuringARenewal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		cfg := loadTokenFile(t, dir, io.Discard)
		a := cfg.access
		a.turn <- struct{}{} // A renewal is running.
		var callers []*call[*Credential]
		for range 3 {
			callers = append(callers, beginCredential(t.Context(), cfg, a.current))
		}
		synctest.Wait()
		testkit.WriteFiles(t, dir, map[string]string{"token": "two"})
		<-a.turn
		for _, c := range callers {
			wantTokenOf(t, c, "two")
		}
	})
}

// A CA is read again every second, and a token every minute. So a new CA may come together with an old token.
func TestRefusedTokenIsReadAgainAfterTheCAHasChanged(t *testing.T) {
	dir := t.TempDir()
	first := fakekube.NewAuthority("the first CA").PEM()
	second := fakekube.NewAuthority("the second CA").PEM()
	synctest.Test(t, func(t *testing.T) {
		config := fakekube.Kubeconfig("https://h", nil, "tokenFile: token")
		config = strings.Replace(config, "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		testkit.WriteFiles(t, dir, map[string]string{"config": config, "token": "one", "ca.crt": string(first)})
		cfg := mustLoad(t, dir+"/config", io.Discard)
		sent := mustCredential(t, cfg)
		testkit.WriteFiles(t, dir, map[string]string{"token": "two", "ca.crt": string(second)})
		testkit.Pass(2 * time.Second)
		wantToken(t, cfg, "one")
		if mustCredential(t, cfg).TLS == sent.TLS {
			t.Error("the new CA is not used")
		}
		fresh, err := cfg.Credential(t.Context(), sent)
		if err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "the token after the server has refused the first one", fresh.Token, "two")
	})
}

// A server that has refused one certificate may accept another.
func TestAnotherCertificateIsAnotherIdentity(t *testing.T) {
	dir := t.TempDir()
	ca := fakekube.NewAuthority("CA")
	swap := func() {
		cert, key := ca.Issue("me", nil)
		testkit.WriteFiles(t, dir, map[string]string{"tls.crt": string(cert), "tls.key": string(key)})
	}
	synctest.Test(t, func(t *testing.T) {
		config := fakekube.Kubeconfig("https://h", nil, "client-certificate: tls.crt\n    client-key: tls.key")
		testkit.WriteFiles(t, dir, map[string]string{"config": config})
		swap()
		cfg := mustLoad(t, dir+"/config", io.Discard)
		refused := mustCredential(t, cfg)
		swap()
		fresh, err := cfg.Credential(t.Context(), refused)
		testkit.WantError(t, "Credential", err, "")
		testkit.WantEqual(t, "they have the same identity", fresh.HasIdentityOf(refused), false)
	})
}

// A renewal is due every second, because the CA is in a file.
func TestUnusableCAIsWarnedOfUntilThereIsAnother(t *testing.T) {
	dir := t.TempDir()
	ca := fakekube.NewAuthority("a CA").PEM()
	synctest.Test(t, func(t *testing.T) {
		config := fakekube.Kubeconfig("https://h", nil, "token: one")
		config = strings.Replace(config, "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		testkit.WriteFiles(t, dir, map[string]string{"config": config, "ca.crt": string(ca)})
		log := &testkit.Buffer{}
		cfg := mustLoad(t, dir+"/config", log)
		renewals := func() {
			for range 3 {
				testkit.Pass(2 * time.Second)
				mustCredential(t, cfg)
			}
		}
		testkit.WriteFiles(t, dir, map[string]string{"ca.crt": "half of a CA"})
		renewals()
		testkit.WantNumber(t, "warnings", strings.Count(log.String(), "cannot renew the credential"), 1)
		testkit.WantNumber(t, "ends of the problem", strings.Count(log.String(), "can be renewed again"), 0)
		testkit.WriteFiles(t, dir, map[string]string{"ca.crt": string(ca)})
		renewals()
		testkit.WantNumber(t, "ends of the problem", strings.Count(log.String(), "can be renewed again"), 1)
	})
}

// Close ends a reading that is running. Nobody needs to know about that.
func TestRenewalDuringCloseLogsNothing(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{
		"token":  "one",
		"config": fakekube.Kubeconfig("https://h", nil, "tokenFile: token"),
	})
	for range 20 { // because a reading may be done at once
		log := &testkit.Buffer{}
		cfg := mustLoad(t, dir+"/config", log)
		cfg.Close()
		cfg.Credential(t.Context(), cfg.access.current)
		if log.String() != "" {
			t.Fatal(log)
		}
	}
}

func TestTokenThatFitsNoHeaderIsRefused(t *testing.T) {
	dir := t.TempDir()
	testkit.WriteFiles(t, dir, map[string]string{"lines": "a\nb", "control": "a\x01b"})
	rows := []struct{ name, user, want string }{
		{"two words in the kubeconfig", `token: "a b"`, "has more than one line, or contains a space"},
		{"a control character in the kubeconfig", `token: "a\x01b"`, "contains a space or a control character"},
		{"two lines in a file", "tokenFile: " + dir + "/lines", "lines has more than one line, or contains a space"},
		{"a control character in a file", "tokenFile: " + dir + "/control", "control has more than one line, or contains a space or a control"},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "config")
			testkit.WriteFiles(t, filepath.Dir(file), map[string]string{
				"config": fakekube.Kubeconfig("https://h", nil, row.user),
			})
			_, err := Load(t.Context(), Options{Kubeconfig: file, Getenv: noEnv, Log: logTo(&testkit.Buffer{})})
			testkit.WantError(t, "loading", err, row.want)
		})
	}
}
