package fakekube

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

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
