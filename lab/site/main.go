// Site writes podcount's page as static files, which run podcount and a fake API server in a tab of a browser:
//
//	site [-serve HOST:PORT] [-version VERSION] DIRECTORY
//
// It must run in the top directory of a checkout. With -serve, it then serves the files until it is stopped.
//
// The exit code is 0 if the files are written, or if serving them was stopped. It is 1 if something fails, and 2 if the
// arguments are wrong.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"podcount/internal/view/page"
	"podcount/lab/replay"
	"podcount/lab/tour"
)

// podcountFlags are the flags with which podcount runs in the tab.
const podcountFlags = "-v 2 -interval 3s"

var (
	//go:embed films
	films embed.FS

	//go:embed site.js
	siteScript []byte

	//go:embed worker.js
	workerScript []byte

	//go:embed offline.js
	offlineTemplate string
)

func main() {
	address := flag.String("serve", "", "serve the files at this HOST:PORT")
	version := flag.String("version", "dev", "the version that podcount shows")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: site [-serve HOST:PORT] [-version VERSION] DIRECTORY")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, flag.Arg(0), *address, *version, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "site:", err)
		os.Exit(1)
	}
}

// run writes the site to a directory, and serves it if an address is given. Beside each file that is not compressed, it
// writes one that is, for web servers that send such files.
func run(ctx context.Context, dir, address, version string, out io.Writer) error {
	fmt.Fprintln(out, "compiling podcount and the playground for the browser")
	files, err := makeFiles(version)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "films"), 0o755); err != nil {
		return err
	}
	size := 0
	for name, content := range files {
		packed := name
		if path.Ext(name) != ".gz" {
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
				return err
			}
			packed, content = name+".gz", compress(content)
		}
		if err := os.WriteFile(filepath.Join(dir, packed), content, 0o644); err != nil {
			return err
		}
		size += len(content)
	}
	fmt.Fprintf(out, "%s has the site: %.1f MB, compressed\n", dir, float64(size)/1e6)
	if address == "" {
		return nil
	}
	return serve(ctx, dir, address, out)
}

// serve serves the files of a directory until ctx ends.
func serve(ctx context.Context, dir, address string, out io.Writer) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("-serve %s: %w", address, err)
	}
	server := &http.Server{Handler: http.FileServer(http.Dir(dir)), ReadHeaderTimeout: 10 * time.Second}
	context.AfterFunc(ctx, func() { server.Close() })
	fmt.Fprintf(out, "open http://%s/; Ctrl-C stops serving it\n", listener.Addr())
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// compile returns a program for the browser, compressed. Without inlining, it is an eighth smaller.
func compile(source, version string) ([]byte, error) {
	scratch, err := os.CreateTemp("", "podcount-site-")
	if err != nil {
		return nil, err
	}
	scratch.Close()
	defer os.Remove(scratch.Name())
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-pgo=off", "-gcflags=all=-l",
		"-ldflags=-s -w -X podcount/internal/run/process.Version="+version, "-o", scratch.Name(), source)
	build.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, output)
	}
	program, err := os.ReadFile(scratch.Name())
	return compress(program), err
}

// compress returns data in gzip's format.
func compress(data []byte) []byte {
	var packed bytes.Buffer
	w, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // The level exists, and a buffer takes all.
	w.Write(data)
	w.Close()
	return packed.Bytes()
}

// makeFiles makes the files of the site, by their names.
func makeFiles(version string) (map[string][]byte, error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return nil, err
	}
	ofGo := os.DirFS(strings.TrimSpace(string(root)))
	files := map[string][]byte{"site.js": siteScript}
	var errs [6]error
	files["podcount.wasm.gz"], errs[0] = compile(".", version)
	files["playground.wasm.gz"], errs[1] = compile("./lab/playground", version)
	files["tour.json"], errs[2] = tour.Content(os.DirFS("."))
	files["worker.js"], errs[3] = fs.ReadFile(ofGo, "lib/wasm/wasm_exec.js") // Go's support for WebAssembly
	files["LICENSE-go"], errs[4] = fs.ReadFile(ofGo, "LICENSE")
	files["LICENSE"], errs[5] = os.ReadFile("LICENSE")
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	files["worker.js"] = append(files["worker.js"], workerScript...)
	names, _ := fs.Glob(films, "films/*.json") // The pattern is no wrong one.
	for _, name := range names {
		files[name], _ = films.ReadFile(name) // It is embedded.
	}
	tag := tagOf(files)
	files["offline.js"] = offlineScript(append(names, "./", "tour.json", "site.js?"+tag, "worker.js?"+tag,
		"podcount.wasm.gz?"+tag, "playground.wasm.gz?"+tag), tag)
	html, err := pageOf(tag, len(files["podcount.wasm.gz"])+len(files["playground.wasm.gz"]))
	files["index.html"] = []byte(html)
	return files, err
}

// tagOf returns a short hash of files. It is a part of their addresses, so that a browser never mixes two versions.
func tagOf(files map[string][]byte) string {
	hash := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintln(hash, name, len(files[name]))
		hash.Write(files[name])
	}
	return hex.EncodeToString(hash.Sum(nil)[:4])
}

// offlineScript returns the script of the service worker that keeps the files with these addresses.
func offlineScript(addresses []string, tag string) []byte {
	list, _ := json.Marshal(addresses) // Texts can be JSON.
	return []byte(strings.NewReplacer("VERSION", "podcount-"+tag, "FILES", string(list)).Replace(offlineTemplate))
}

// welcome is what the page shows above podcount's own: how far it has loaded, and in the first view what it is.
const welcome = `<div id="loading" class="welcome" role="status">
<p>podcount and a fake API server come to this tab …</p>
<progress aria-label="Loading"></progress></div>
<div id="welcome" class="welcome">
<p>podcount is a small Kubernetes controller: it counts pods, and writes the number to a label of a node. Here it runs
in your browser, and so does a cluster that is made up, in which pods come and go. Nothing of what you do leaves this
tab.</p>
<p><a href="#steps">Take the guided tour</a> to see how a controller works inside.</p></div>
<noscript><p class="welcome">This page runs podcount in your browser, and needs JavaScript for that.</p></noscript>
`

// style hides the links to pages that only a server has.
const style = `<style>
.welcome { padding: 12px max(var(--gap), calc((100% - 1320px) / 2)); background: var(--accent-soft); }
.welcome p { max-width: 100ch; }
#loading progress { width: min(100%, 480px); accent-color: var(--accent); }
body:has(#cluster[hidden]) #welcome, #cluster footer { display: none; }
</style>
`

// pageOf returns podcount's page with the tour, the films and what a site needs. The programs have so many bytes as
// they are sent.
func pageOf(tag string, size int) (string, error) {
	html, err := replay.WithFilms(tour.Page())
	if err != nil {
		return "", err
	}
	script := fmt.Sprintf(`<script src="site.js?%s" data-version="%[1]s" data-bytes="%d" data-args="%s"></script>`+"\n",
		tag, size, podcountFlags)
	// Nothing can be fetched but from the address of the site.
	policy := page.PolicyInFile(html+style, "'self'", "'wasm-unsafe-eval'") + "; worker-src 'self' blob:"
	return replay.Insert(html,
		"</head>", style,
		"<main", welcome,
		"<script", script,
		"<title>", fmt.Sprintf("<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n", policy))
}
