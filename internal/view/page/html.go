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

// contentSecurityPolicy lets the browser run and apply only what is in HTML, and connect only to podcount.
var contentSecurityPolicy = policyOf(HTML)

// policyOf returns the Content-Security-Policy of a page: each block of style or script is allowed by its hash.
func policyOf(html string) string {
	return strings.Join([]string{
		"default-src 'none'",
		"connect-src 'self'",
		"img-src data:",
		"style-src " + hashesOf(html, "style"),
		"script-src " + hashesOf(html, "script"),
		"base-uri 'none'",
		"form-action 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// hashesOf returns the sources, as a policy names them, of the blocks with this tag.
func hashesOf(html, tag string) string {
	var hashes []string
	for {
		_, fromTag, hasMore := strings.Cut(html, "<"+tag)
		if !hasMore {
			return strings.Join(hashes, " ")
		}
		_, fromBlock, _ := strings.Cut(fromTag, ">")
		block, rest, _ := strings.Cut(fromBlock, "</"+tag+">")
		hash := sha256.Sum256([]byte(block))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(hash[:])+"'")
		html = rest
	}
}

func (p *Page) serveHTML(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	io.WriteString(w, HTML)
}
