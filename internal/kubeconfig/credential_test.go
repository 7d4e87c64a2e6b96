package kubeconfig

import (
	"testing"
	"testing/synctest"

	"podcount/internal/fakekube"
	"podcount/internal/testkit"
)

// A renewal that is running may have read the token's file before the server refused that token, or not at all.
func TestRefusedCredentialIsReadAgainDuringARenewal(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		testkit.WriteFiles(t, dir, map[string]string{
			"token":  "one",
			"config": fakekube.Kubeconfig("https://h", nil, "tokenFile: token"),
		})
		cfg, err := Load(t.Context(), Options{Kubeconfig: dir + "/config", Getenv: noEnv})
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		a := cfg.access
		refused := a.current
		finish := make(chan struct{})
		a.renewal = &renewal{task: startTask(func() (*Credential, error) {
			<-finish
			return a.renew(false)
		})}
		testkit.WriteFiles(t, dir, map[string]string{"token": "two"})
		var callers []*task[*Credential]
		for range 3 {
			callers = append(callers, startTask(func() (*Credential, error) { return cfg.Credential(t.Context(), refused) }))
		}
		synctest.Wait()
		close(finish)
		for _, c := range callers {
			wantTokenOf(t, c, "two")
		}
	})
}
