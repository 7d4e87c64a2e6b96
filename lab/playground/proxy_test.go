package main

import (
	"net/http"
	"testing"

	"podcount/lab/testkit"
)

func TestPageIsOnlyForThisMachine(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	foreign := []string{
		"evil.example", "evil.example:8081", "192.0.2.1:8081", "localhost.evil.example", "localhost:8081.evil.example", "::2",
	}
	for _, host := range foreign {
		g.wantAnswer(http.StatusForbidden, "only for this machine", "GET", "/", "Host", host)
		g.wantAnswer(http.StatusForbidden, "only for this machine", "POST", "/playground/pod-more", "Host", host)
	}
	for _, host := range []string{"localhost", "localhost:9000", "127.0.0.1:1", "[::1]:8081", "127.0.0.1"} {
		g.wantAnswer(http.StatusOK, "<title>podcount</title>", "GET", "/", "Host", host)
	}
	for _, header := range [][]string{
		{"Origin", "https://evil.example"},
		{"Origin", "http://127.0.0.1:1"},
		{"Origin", "null"},
		{"Sec-Fetch-Site", "cross-site"},
		{"Sec-Fetch-Site", "same-site"},
	} {
		g.wantAnswer(http.StatusForbidden, "cross-origin", "POST", "/playground/pod-more", header...)
	}
	g.wantAnswer(http.StatusNotFound, "no such button", "POST", "/playground/nothing", "Origin", g.page)
	g.wantAnswer(http.StatusNotFound, "no such button", "POST", "/playground/nothing", "Sec-Fetch-Site", "same-origin")
	testkit.WantNumber(t, "presses", g.presses.last, 0)
}

func TestPageSaysThatPodcountIsAway(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	if err := g.replicas.stop(g.replicas.list()[0]); err != nil {
		t.Fatal(err)
	}
	g.wantAnswer(http.StatusBadGateway, "podcount does not answer now.", "GET", "/statusz")
	g.wantAnswer(http.StatusOK, "<title>podcount</title>", "GET", "/")
	g.wantAnswer(http.StatusOK, `"name":"pod-more"`, "GET", "/playground")
}

func TestAddressOfThePageLeadsToTheAPIServer(t *testing.T) {
	t.Parallel()
	g := startGround(t)
	g.wantAnswer(http.StatusOK, `"kind":"Node"`, "GET", "/api/v1/nodes/"+controlPlaneNode)
	g.wantAnswer(http.StatusOK, `"kind":"LeaseList"`, "GET", "/apis/coordination.k8s.io/v1/leases")
	g.wantAnswer(http.StatusForbidden, "only for this machine", "GET", "/api/v1/nodes", "Host", "evil.example")
	g.wantAnswer(http.StatusForbidden, "cross-origin", "PATCH", "/api/v1/nodes/"+controlPlaneNode, "Origin", "null")
	g.endpoint.Kill()
	g.wantAnswer(http.StatusBadGateway, "", "GET", "/api/v1/nodes")
	g.endpoint.Restore()
}

func TestEveryButtonSaysWhatToExpect(t *testing.T) {
	p := newPlayground("", nil, usualPauses, &testkit.Buffer{}, nil)
	defer p.close()
	names := map[string]bool{}
	for _, b := range p.shownButtons().Buttons {
		if names[b.Name] || b.Label == "" || b.Expect == "" {
			t.Errorf("the button %+v lacks something, or its name is not its own", b)
		}
		names[b.Name] = true
	}
	testkit.WantNumber(t, "buttons", len(names), 13)
}
