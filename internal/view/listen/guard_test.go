package listen

import (
	"fmt"
	"io"
	"log/slog"
	"net"
	"testing"

	"podcount/lab/testkit"
)

// codesOf serves Pages at an address, and returns the first line of the answer to /metrics for each Host.
func codesOf(t *testing.T, address string, hosts []string) map[string]string {
	t.Helper()
	pages := pagesWith(func() string { return "secret_number 1\n" })
	server, err := Listen(t.Context(), address, pages, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve() }()
	defer func() {
		server.Close()
		<-ended
	}()
	_, port, _ := net.SplitHostPort(server.Addr().String())
	codes := map[string]string{}
	for _, host := range hosts {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "GET /metrics HTTP/1.1\r\nHost: %s\r\n\r\n", host)
		text, _ := io.ReadAll(conn)
		conn.Close()
		codes[host] = string(text[:min(len(text), len("HTTP/1.1 200"))])
	}
	return codes
}

func TestLoopbackAnswersOnlyToItsNames(t *testing.T) {
	own := []string{"localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST", "127.0.0.1"}
	foreign := []string{
		"evil.example:8080", "localhost:8080.evil.example", "127.0.0.1.evil.example", "localhost.", "10.0.0.1:8080",
		"podcount.example", "", "user@localhost", "[::1%25evil]:8080",
	}
	codes := codesOf(t, "127.0.0.1:0", append(own, foreign...))
	for _, host := range own {
		testkit.WantEqual(t, "the code for "+host, codes[host], "HTTP/1.1 200")
	}
	for _, host := range foreign {
		if codes[host] != "HTTP/1.1 403" && codes[host] != "HTTP/1.1 400" {
			t.Errorf("the code for %q is %s", host, codes[host])
		}
	}
}

// A name of one's own may lead to the loopback. It is asked for, so it is no other site's.
func TestLoopbackAnswersToTheNameThatItIsAskedFor(t *testing.T) {
	l := &cappedListener{host: "Podcount.example"}
	for host, want := range map[string]bool{
		"podcount.example:8080": true,
		"PODCOUNT.EXAMPLE":      true,
		"evil.example:8080":     false,
		"":                      false,
	} {
		testkit.WantEqual(t, host, l.isAskedFor(host), want)
	}
	all := &cappedListener{}
	testkit.WantEqual(t, "no name", all.isAskedFor(""), false)
}

// The kubelet sends the address of the pod, and Prometheus any name.
func TestPortThatIsOpenToOthersAnswersToAnyName(t *testing.T) {
	hosts := []string{"10.0.0.1:8080", "podcount.example:8080", "localhost:8080"}
	for host, code := range codesOf(t, "0.0.0.0:0", hosts) {
		testkit.WantEqual(t, "the code for "+host, code, "HTTP/1.1 200")
	}
}
