// Package pages reads lists, whole or in pages.
package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
)

const (
	// Limit is the number of objects in a page.
	Limit = 2000

	// Timeout is the longest time that a list may take, with all its pages.
	Timeout = 10 * time.Minute
)

// Reader reads lists of one resource. It asks for all objects at once, which costs both sides half as much as pages. A
// list that breaks off or times out may be too large for the server or the network. After two of them without a
// complete list in between, lists come in pages. One goroutine may use a Reader.
type Reader struct {
	broken    int  // failed lists since the last complete one whose errors suggest that the list is too large
	UsesPages bool // lists come in pages
}

// Listing is what collects the objects of a list.
type Listing interface {
	Len() int     // the number of objects so far
	Rewind(n int) // expects the objects after the first n ones again
}

// Read reads a list with all its pages, at most so many objects. readPage must read the answer to one request into
// listing.
//
// A later page that breaks off is requested once more, at once, because the server has just sent the page before it. So
// a list may take longer than any connection lasts. The token of a page stands for a version, so the repeated page has
// the same objects. The first page has no token. Its repetition could have other objects, so it is not repeated.
func (r *Reader) Read(
	ctx context.Context, request kube.Request, listing Listing, maxObjects int,
	readPage func(context.Context, kube.Request) (wire.ListMeta, error),
) (meta wire.ListMeta, err error) {
	tooSlow := fmt.Errorf("the list has not ended after %v", Timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, Timeout, tooSlow)
	defer cancel()
	if r.UsesPages {
		request.Query.Set("limit", strconv.Itoa(Limit))
	}
	maxPages := maxObjects/Limit + 1
	mayRepeat := false
	for range maxPages {
		before := listing.Len()
		meta, err = readPage(ctx, request)
		hasBrokenOff := err != nil && kube.StatusOf(err).Code == 0 && ctx.Err() == nil
		if hasBrokenOff && mayRepeat {
			mayRepeat = false
			listing.Rewind(before)
			continue
		}
		if err != nil || meta.Continue == "" {
			return meta, err
		}
		mayRepeat = true
		// The token has the version of the first page. With the token, the server accepts no other version.
		request.Query.Set("continue", meta.Continue)
		request.Query.Del("resourceVersion")
		request.Query.Del("resourceVersionMatch")
	}
	return meta, request.Wrap(fmt.Errorf("the list has not ended after %d pages", maxPages))
}

// Succeeded notes that a list was complete.
func (r *Reader) Succeeded() { r.broken = 0 }

// Failed notes that a list has failed after so many objects.
func (r *Reader) Failed(objects int, err error) {
	code := kube.StatusOf(err).Code
	brokeOff := objects > 0 || errors.Is(err, kube.ErrSilent)
	serverGaveUp := code == http.StatusInternalServerError || code == http.StatusGatewayTimeout
	if brokeOff || serverGaveUp {
		r.broken++
	}
	if r.broken >= 2 {
		r.UsesPages = true
	}
}
