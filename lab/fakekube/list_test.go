package fakekube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// namesIn returns the names of the items in a list.
func namesIn(t *testing.T, answer string) string {
	t.Helper()
	list, _ := parsed(answer).(Object)
	var names []string
	for _, item := range list["items"].([]any) {
		names = append(names, KeyOf(item.(Object)).Name)
	}
	return strings.Join(names, " ")
}

func TestListAtAnExactVersionUndoesLaterChanges(t *testing.T) {
	f := New()
	f.AddPod("default", "changed", "n1")
	f.AddPod("default", "removed", "n1")
	then := f.Latest()
	f.AddPod("default", "changed", "n2")
	f.Remove("pods", Key{"default", "removed"})
	f.AddPod("default", "removed", "n3")
	f.AddPod("default", "added", "n1")

	_, answer := ask(t, f, "GET", fmt.Sprintf("/api/v1/pods?resourceVersionMatch=Exact&resourceVersion=%d", then), "")
	if got := namesIn(t, answer); got != "changed removed" {
		t.Errorf("then there were %q", got)
	}
	if got := strings.Count(answer, `"nodeName":"n1"`); got != 2 {
		t.Errorf("then %d pods were on the node: %s", got, answer)
	}
	_, answer = ask(t, f, "GET", "/api/v1/pods", "")
	if got := namesIn(t, answer); got != "added changed removed" {
		t.Errorf("now there are %q", got)
	}
}

func TestListAtACompactedVersionIsGone(t *testing.T) {
	f := New()
	f.AddPod("default", "p", "")
	then := f.Latest()
	f.AddPod("default", "q", "")
	f.Compact()
	exactly := "GET /api/v1/pods?resourceVersionMatch=Exact&resourceVersion="
	wantAnswer(t, f, exactly+fmt.Sprint(then), "", 410, "The resourceVersion for the provided list is too old.")
	wantAnswer(t, f, exactly+fmt.Sprint(then+1), "", 200, `"name":"q"`)
}

func TestPagesShareOneVersion(t *testing.T) {
	f := New()
	addPods(f, 5)
	var names []string
	token := ""
	for page := 0; ; page++ {
		_, answer := ask(t, f, "GET", "/api/v1/pods?limit=2&continue="+token, "")
		names = append(names, namesIn(t, answer))
		token = TextIn(MetaOf(parsed(answer).(Object)), "continue")
		if token == "" {
			break
		}
		f.Remove("pods", Key{"default", "web-4"})
		f.AddPod("default", fmt.Sprint("web-3-", page), "")
	}
	if got := strings.Join(names, ", "); got != "web-0 web-1, web-2 web-3, web-4" {
		t.Errorf("the pages have %s", got)
	}
}

func TestListIsSortedByKey(t *testing.T) {
	f := New()
	f.AddPod("a", "x", "")
	f.AddPod("a-b", "x", "") // "/" sorts after "-"
	f.AddPod("a", "b", "")
	_, answer := ask(t, f, "GET", "/api/v1/pods", "")
	var keys []string
	for _, item := range parsed(answer).(Object)["items"].([]any) {
		keys = append(keys, KeyOf(item.(Object)).String())
	}
	if want := []string{"a-b/x", "a/b", "a/x"}; !slices.Equal(keys, want) {
		t.Errorf("the keys are in the order %q, want %q", keys, want)
	}
}

func TestLastBookmarkPrecedesTheTimeout(t *testing.T) {
	for name, c := range map[string]struct {
		timeout   int
		isChanged bool
		want      int // number of bookmarks
	}{
		"of a watch that has heard of a change":         {10, true, 1},
		"of a watch that has heard of nothing":          {10, false, 0},
		"not of a watch that is shorter than that":      {2, true, 0},
		"and after those that come every minute anyway": {90, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := New()
				from := f.Latest()
				if c.isChanged {
					f.AddPod("default", "p", "")
				}
				_, answer := ask(t, f, "GET", fmt.Sprintf(
					"/api/v1/pods?watch=1&allowWatchBookmarks=true"+
						"&resourceVersion=%d&timeoutSeconds=%d", from, c.timeout), "")
				if got := strings.Count(answer, "BOOKMARK"); got != c.want {
					t.Errorf("%d bookmarks, want %d: %s", got, c.want, answer)
				}
			})
		})
	}
}
