package page

import (
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"time"
)

// /statusz and /flagz have the text that the components of Kubernetes v1.35 serve under these names: see KEP-4827 and
// KEP-4828. There they also have a form for programs, for which podcount has /metrics and /debug/state.

const zpagesWarning = "Warning: This endpoint is not meant to be machine parseable, " +
	"has no formatting compatibility guarantees and is for debugging purposes only.\n"

func (p *Page) serveStatusz(w http.ResponseWriter, _ *http.Request) {
	up := int(time.Since(p.options.Started).Seconds())
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "\npodcount statusz\n%s\n", zpagesWarning)
	fmt.Fprintf(w, "Started: %s\n", p.options.Started.UTC().Format(time.UnixDate))
	fmt.Fprintf(w, "Up: %d hr %02d min %02d sec\n", up/3600, up/60%60, up%60)
	fmt.Fprintf(w, "Go version: %s\n", runtime.Version())
	fmt.Fprintf(w, "Binary version: %s\n", p.options.Version)
	fmt.Fprintf(w, "Paths: %s\n", strings.Join(paths, " "))
}

func (p *Page) serveFlagz(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintf(w, "\npodcount flagz\n%s", zpagesWarning)
	for _, flag := range p.options.Flags {
		fmt.Fprintf(w, "%s=%s\n", flag.Name, flag.Value)
	}
}
