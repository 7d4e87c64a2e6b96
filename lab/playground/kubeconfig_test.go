package main

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"podcount/lab/fakekube"
)

func TestEachPlaygroundHasItsOwnKubeconfig(t *testing.T) {
	dir := t.TempDir()
	want := func(server *httptest.Server, name string) {
		t.Helper()
		text := fakekube.KubeconfigJSON(server.URL, nil, object{"token": token})
		file, err := writeOwnKubeconfig(dir, text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || filepath.Base(file) != name || string(got) != string(text) {
			t.Errorf("the file is %s, want %s; %v\n%s", file, name, err, got)
		}
	}
	var servers []*httptest.Server
	for range 4 {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		defer server.Close()
		servers = append(servers, server)
	}
	want(servers[0], "playground.kubeconfig")
	want(servers[1], "playground-2.kubeconfig")
	want(servers[2], "playground-3.kubeconfig")
	servers[1].Close() // as if it had been killed, so that its file is still there
	want(servers[3], "playground-2.kubeconfig")
	files, err := filepath.Glob(filepath.Join(dir, "*.kubeconfig"))
	if err != nil || len(files) != 3 {
		t.Errorf("there are the files %q (%v), want 3", files, err)
	}
}
