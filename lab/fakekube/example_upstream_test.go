package fakekube_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"

	"podcount/lab/fakekube"
)

// The fake is a proxy that lets faults happen. Instead of the real server, this example has another fake behind it.
func ExampleServer_upstream() {
	cluster := fakekube.New()
	cluster.AddNode("worker")
	behind := cluster.Listen("https")
	defer behind.Close()

	target, err := url.Parse(behind.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(behind.CA)
	proxy := fakekube.New()
	proxy.Upstream = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) {
			panic(http.ErrAbortHandler) // breaks the connection to the client, too
		},
	}
	server := proxy.Listen("http")
	defer server.Close()

	fault, err := fakekube.ParseFault("get nodes: refuse 503")
	if err != nil {
		fmt.Println(err)
		return
	}
	proxy.InjectUnchecked(fault)
	for range 2 {
		answer, err := http.Get(server.URL + "/api/v1/nodes/worker")
		if err != nil {
			fmt.Println(err)
			return
		}
		answer.Body.Close()
		fmt.Println(answer.StatusCode)
	}
	fmt.Println(len(proxy.Received(fakekube.Requests{})), len(cluster.Received(fakekube.Requests{})))
	// Output:
	// 503
	// 200
	// 2 1
}
