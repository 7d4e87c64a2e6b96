package pages

import (
	"context"
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"podcount/internal/api/kube"
	"podcount/internal/api/wire"
	"podcount/lab/testkit"
)

var (
	errBroken = errors.New("the connection broke")
	refused   = &kube.Status{Status: wire.Status{Code: 410}}
)

func TestOnlyALaterPageThatBreaksOffIsRepeatedOnce(t *testing.T) {
	for _, row := range []struct {
		name    string
		answers []error // to each request; nil for a page, which is followed by another one
		want    string  // the pages that were requested; a ! marks those that are read again
	}{
		{"the first breaks off", []error{errBroken}, "first"},
		{"the second breaks off", []error{nil, errBroken, nil, nil}, "first p1! p1 p2 p3"},
		{"the second breaks off twice", []error{nil, errBroken, errBroken}, "first p1! p1"},
		{"each later one breaks off once", []error{nil, errBroken, nil, errBroken, nil}, "first p1! p1 p2! p2 p3"},
		{"the second is refused", []error{nil, refused}, "first p1"},
	} {
		l := &listing{}
		page := 0
		_, err := new(Reader).Read(t.Context(), newRequest(), l, 10*Limit,
			func(_ context.Context, request kube.Request) (wire.ListMeta, error) {
				name := "first"
				if token := request.Query.Get("continue"); token != "" {
					name = token
				}
				l.pages = append(l.pages, name)
				if len(l.pages) > len(row.answers) {
					return wire.ListMeta{}, nil // the last page
				}
				if err := row.answers[len(l.pages)-1]; err != nil {
					return wire.ListMeta{}, err
				}
				page++
				return wire.ListMeta{Continue: "p" + string(rune('0'+page))}, nil
			})
		testkit.WantEqual(t, row.name, strings.Join(l.pages, " "), row.want)
		last := row.answers[len(row.answers)-1]
		testkit.WantEqual(t, row.name+": the list fails", err != nil, last != nil)
	}
}

// listing has one object for each page. It marks those that are expected again.
type listing struct{ pages []string }

func (l *listing) Len() int { return len(l.pages) }

func (l *listing) Rewind(n int) {
	for i := n; i < len(l.pages); i++ {
		l.pages[i] += "!"
	}
}

func newRequest() kube.Request {
	return kube.Request{
		Method:   "GET",
		API:      "/api/v1",
		Resource: "pods",
		Query:    url.Values{"resourceVersion": {"7"}, "resourceVersionMatch": {"Exact"}},
	}
}

func TestLaterPagesHaveTheVersionOfTheirToken(t *testing.T) {
	var queries []string
	_, err := new(Reader).Read(t.Context(), newRequest(), &listing{}, 2*Limit,
		func(_ context.Context, request kube.Request) (wire.ListMeta, error) {
			queries = append(queries, request.Query.Encode())
			return wire.ListMeta{Continue: "token"}, nil
		})
	testkit.WantEqual(t, "the queries", queries,
		[]string{"resourceVersion=7&resourceVersionMatch=Exact", "continue=token", "continue=token"})
	testkit.WantError(t, "a list without end", err, "list pods: the list has not ended after 3 pages")
}

func TestListsComeInPagesAfterTwoThatMayBeTooLarge(t *testing.T) {
	for _, row := range []struct {
		name    string
		objects int
		err     error
		isLarge bool
	}{
		{"broken off in the middle", 5, io.ErrUnexpectedEOF, true},
		{"silent", 0, kube.ErrSilent, true},
		{"given up by the server", 0, &kube.Status{Status: wire.Status{Code: 504}}, true},
		{"not begun", 0, io.ErrUnexpectedEOF, false},
		{"refused", 0, refused, false},
		{"not possible now", 0, &kube.Status{Status: wire.Status{Code: 503}}, false},
	} {
		var r Reader
		r.Failed(row.objects, row.err)
		r.Succeeded()
		r.Failed(row.objects, row.err)
		testkit.WantEqual(t, row.name+": pages after one with a complete list before", r.UsesPages, false)
		r.Failed(row.objects, row.err)
		testkit.WantEqual(t, row.name+": pages after two", r.UsesPages, row.isLarge)
	}
}
