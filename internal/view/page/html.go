package page

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"io"
	"net/http"
	"strings"
)

// HTML is the whole page, with its style and its scripts inside. Nothing is fetched from elsewhere.
//
//go:embed page.html
var HTML string

// PolicyOf returns the Content-Security-Policy of a page: each block of style or script is allowed by its hash, so the
// browser runs and applies only what is in the page. It connects only to where the page comes from.
func PolicyOf(html string) string { return PolicyInFile(html) + "; frame-ancestors 'none'" }

// PolicyInFile returns the policy for a page that is a file. Such a page has no headers, and only there can a policy
// say who may show the page in a frame. Scripts may also come from these sources.
func PolicyInFile(html string, scriptSources ...string) string {
	return strings.Join([]string{
		"default-src 'none'",
		"connect-src 'self'",
		"img-src data:",
		"style-src " + strings.Join(hashesOf(html, "style"), " "),
		"script-src " + strings.Join(append(scriptSources, hashesOf(html, "script")...), " "),
		"base-uri 'none'",
		"form-action 'none'",
	}, "; ")
}

// hashesOf returns the sources, as a policy names them, of the blocks with this tag.
func hashesOf(html, tag string) (hashes []string) {
	for {
		_, fromTag, hasMore := strings.Cut(html, "<"+tag)
		if !hasMore {
			return hashes
		}
		_, fromBlock, _ := strings.Cut(fromTag, ">")
		block, rest, _ := strings.Cut(fromBlock, "</"+tag+">")
		hash := sha256.Sum256([]byte(block))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
		html = rest
	}
}

// Serve returns a handler that answers with a page, which may be HTML with additions.
func Serve(html string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, html)
	})
}
