package page

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"
)

// /statusz and /flagz are what the components of Kubernetes v1.35 serve under these names: see KEP-4827 and KEP-4828.

const (
	componentName = "podcount"
	zpagesGroup   = "config.k8s.io"
	zpagesVersion = "v1alpha1"
)

const zpagesWarning = "Warning: This endpoint is not meant to be machine parseable, " +
	"has no formatting compatibility guarantees and is for debugging purposes only.\n"

// objectHead is how an object of Kubernetes begins.
type objectHead struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
}

// statusz is the JSON of /statusz.
type statusz struct {
	objectHead
	StartTime     time.Time `json:"startTime"`
	UptimeSeconds int64     `json:"uptimeSeconds"`
	GoVersion     string    `json:"goVersion"`
	BinaryVersion string    `json:"binaryVersion"`
	Paths         []string  `json:"paths"`
}

// flagz is the JSON of /flagz.
type flagz struct {
	objectHead
	Flags map[string]string `json:"flags"`
}

func headOf(kind string) objectHead {
	head := objectHead{Kind: kind, APIVersion: zpagesGroup + "/" + zpagesVersion}
	head.Metadata.Name = componentName
	return head
}

func (p *Page) serveStatusz(w http.ResponseWriter, r *http.Request) {
	s := statusz{
		objectHead:    headOf("Statusz"),
		StartTime:     p.options.Started.UTC().Truncate(time.Second),
		UptimeSeconds: int64(time.Since(p.options.Started).Seconds()),
		GoVersion:     runtime.Version(),
		BinaryVersion: p.options.Version,
		Paths:         paths,
	}
	answerZpage(w, r, s.Kind, s, s.text())
}

// text returns /statusz for people.
func (s statusz) text() string {
	hours := s.UptimeSeconds / 3600
	minutes := s.UptimeSeconds / 60 % 60
	seconds := s.UptimeSeconds % 60
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s statusz\n%s\n", componentName, zpagesWarning)
	fmt.Fprintf(&text, "Started: %s\n", s.StartTime.Format(time.UnixDate))
	fmt.Fprintf(&text, "Up: %d hr %02d min %02d sec\n", hours, minutes, seconds)
	fmt.Fprintf(&text, "Go version: %s\n", s.GoVersion)
	fmt.Fprintf(&text, "Binary version: %s\n", s.BinaryVersion)
	fmt.Fprintf(&text, "Paths: %s\n", strings.Join(s.Paths, " "))
	return text.String()
}

func (p *Page) serveFlagz(w http.ResponseWriter, r *http.Request) {
	f := flagz{headOf("Flagz"), map[string]string{}}
	for _, flag := range p.options.Flags {
		f.Flags[flag.Name] = flag.Value
	}
	answerZpage(w, r, f.Kind, f, f.text())
}

// text returns /flagz for people.
func (f flagz) text() string {
	var text strings.Builder
	fmt.Fprintf(&text, "\n%s flagz\n%s", componentName, zpagesWarning)
	for _, name := range slices.Sorted(maps.Keys(f.Flags)) {
		fmt.Fprintf(&text, "%s=%s\n", name, f.Flags[name])
	}
	return text.String()
}

// answerZpage answers with the text, or with the object if the request asks for that. It ignores the weights in Accept:
// it takes the first form that the page has.
func answerZpage(w http.ResponseWriter, r *http.Request, kind string, object any, text string) {
	accept := r.Header.Get("Accept")
	if accept == "" {
		accept = "*/*"
	}
	for _, form := range strings.Split(accept, ",") {
		mediaType, parameters, err := mime.ParseMediaType(form)
		switch {
		case err != nil:
			// This is no media type. The next form may be one.
		case mediaType == "text/plain" || mediaType == "text/*" || mediaType == "*/*":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			io.WriteString(w, text)
			return
		case mediaType == "application/json" && asksFor(parameters, kind):
			contentType := fmt.Sprintf("application/json;g=%s;v=%s;as=%s", zpagesGroup, zpagesVersion, kind)
			answerObject(w, http.StatusOK, contentType, object)
			return
		}
	}
	refuseForms(w, kind)
}

// asksFor reports whether the parameters of a media type name this kind.
func asksFor(parameters map[string]string, kind string) bool {
	return parameters["g"] == zpagesGroup && parameters["v"] == zpagesVersion && parameters["as"] == kind
}

// refuseForms answers, as an API server does, that a page has none of the forms that the request accepts.
func refuseForms(w http.ResponseWriter, kind string) {
	answerObject(w, http.StatusNotAcceptable, "application/json", map[string]any{
		"kind":       "Status",
		"apiVersion": "v1",
		"metadata":   map[string]any{},
		"status":     "Failure",
		"message": fmt.Sprintf("only the following media types are accepted: text/plain, application/json;g=%s;v=%s;as=%s",
			zpagesGroup, zpagesVersion, kind),
		"reason": "NotAcceptable",
		"code":   http.StatusNotAcceptable,
	})
}

// answerObject answers with an object as JSON.
func answerObject(w http.ResponseWriter, code int, contentType string, object any) {
	text, err := json.MarshalIndent(object, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(code)
	w.Write(append(text, '\n'))
}
