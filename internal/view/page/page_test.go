package page

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"podcount/internal/view/trace"
	"podcount/lab/testkit"
)

func TestEveryAnswerHasTheHeadersThatProtectIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		for _, path := range allPaths {
			header := f.get(t, path).header
			testkit.WantEqual(t, "Cache-Control of "+path, header.Get("Cache-Control"), "no-store")
			testkit.WantEqual(t, "of "+path, header.Get("Content-Security-Policy"), PolicyOf(HTML))
			testkit.WantEqual(t, "of "+path, header.Get("Cross-Origin-Opener-Policy"), "same-origin")
			testkit.WantEqual(t, "of "+path, header.Get("Cross-Origin-Resource-Policy"), "same-origin")
			testkit.WantEqual(t, "of "+path, header.Get("Referrer-Policy"), "no-referrer")
			testkit.WantEqual(t, "of "+path, header.Get("X-Content-Type-Options"), "nosniff")
		}
	})
}

func TestPolicyAllowsTheBlocksOfThePageAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		got := f.get(t, "/")
		testkit.WantEqual(t, "the type", got.header.Get("Content-Type"), "text/html; charset=utf-8")
		directives := map[string][]string{}
		for directive := range strings.SplitSeq(got.header.Get("Content-Security-Policy"), "; ") {
			words := strings.Fields(directive)
			directives[words[0]] = words[1:]
		}
		blocks := regexp.MustCompile(`(?s)<(style|script)[^>]*>(.*?)</(?:style|script)>`)
		want := map[string][]string{
			"default-src":     {"'none'"},
			"connect-src":     {"'self'"},
			"img-src":         {"data:"},
			"base-uri":        {"'none'"},
			"form-action":     {"'none'"},
			"frame-ancestors": {"'none'"},
		}
		for _, block := range blocks.FindAllStringSubmatch(got.text, -1) {
			hash := sha256.Sum256([]byte(block[2]))
			source := "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
			want[block[1]+"-src"] = append(want[block[1]+"-src"], source)
		}
		testkit.WantEqual(t, "the policy", directives, want)
		testkit.WantBetween(t, "scripts", len(want["script-src"]), 1, 10)
		testkit.WantBetween(t, "styles", len(want["style-src"]), 1, 10)
	})
}

func TestPolicyOfAFileAllowsOtherScripts(t *testing.T) {
	got := PolicyInFile(HTML, "'self'", "b.js")
	want := strings.Replace(PolicyOf(HTML), "script-src ", "script-src 'self' b.js ", 1)
	testkit.WantEqual(t, "the policy", got, strings.TrimSuffix(want, "; frame-ancestors 'none'"))
}

// The policy forbids these, so that the browser would ignore them.
func TestPageHasNoStyleAndNoScriptOutsideItsBlocks(t *testing.T) {
	blocks := regexp.MustCompile(`(?s)(<(style|script)[^>]*>).*?(</(?:style|script)>)`)
	outside := blocks.ReplaceAllString(HTML, "$1$3")
	for _, pattern := range []string{`\sstyle=`, `\son[a-z]+=`, `javascript:`, `\ssrc=`, `https?://`} {
		found := regexp.MustCompile(pattern).FindString(outside)
		testkit.WantEqual(t, "found by "+pattern, found, "")
	}
}

// hostile is what somebody who may create pods could call one, if names could have such characters, or could put into
// an error.
const hostile = `</script><script>alert(1)</script>&"'`

func TestTextsCannotBecomeMarkup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, func(o *Options) {
			o.State = func() State {
				return State{Namespaces: []Crowd{{hostile, 1}}, Waiting: []string{hostile}}
			}
			o.Flags = []Flag{{"total-label", hostile}}
		})
		s := f.watch(t, "/events?steps=1")
		testkit.Pass(500 * time.Millisecond)
		f.trace.Emit(trace.Step{Point: trace.Change, Key: hostile, Text: "two\nlines\r\n\nevent: state\ndata: {}"})
		testkit.Pass(time.Second)
		messages := s.received()
		testkit.WantNumber(t, "steps", len(dataOf(messages, "step")), 1)
		for _, m := range messages {
			if strings.ContainsAny(m.data, "<>&") {
				t.Errorf("this could be markup: %s", m.data)
			}
		}
		var step trace.Step
		if err := json.Unmarshal([]byte(dataOf(messages, "step")[0]), &step); err != nil {
			t.Fatal(err)
		}
		testkit.WantEqual(t, "the key", step.Key, hostile)
		for _, path := range []string{"/debug/state", "/flagz", "/"} {
			got := f.get(t, path)
			isHTML := strings.HasPrefix(got.header.Get("Content-Type"), "text/html")
			testkit.WantEqual(t, path+" is HTML", isHTML, path == "/")
			if isHTML && strings.Contains(got.text, "alert(1)") {
				t.Errorf("%s has a text of the cluster", path)
			}
		}
	})
}

func TestStateIsIndentedJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		got := f.get(t, "/debug/state")
		testkit.WantEqual(t, "the type", got.header.Get("Content-Type"), "application/json")
		testkit.WantText(t, got.text, "{\n  \"version\": \"v1\",\n")
	})
}

func TestProgramItselfHasNoButtons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		testkit.WantEqual(t, "the answer", f.get(t, "/playground").text, "{\"buttons\": []}\n")
	})
}

func TestStatuszIsLikeThatOfKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		testkit.Pass(26*time.Hour + 3*time.Minute + 4*time.Second)
		const want = `
podcount statusz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.

Started: Sat Jan  1 00:00:00 UTC 2000
Up: 26 hr 03 min 04 sec
Go version: GO
Binary version: v1
Paths: / /debug/state /events /flagz /statusz
`
		got := f.get(t, "/statusz")
		text := regexp.MustCompile(`Go version: go1\S*`).ReplaceAllString(got.text, "Go version: GO")
		testkit.WantEqual(t, "/statusz", text, want)
		testkit.WantEqual(t, "the type", got.header.Get("Content-Type"), "text/plain; charset=utf-8")
	})
}

func TestEachPathInStatuszAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		testkit.WantEqual(t, "the paths are sorted", slices.IsSorted(paths), true)
		for _, path := range paths {
			resp := f.request(t, path)
			resp.Body.Close()
			testkit.WantNumber(t, "the code of "+path, resp.StatusCode, 200)
		}
		testkit.Pass(2 * time.Second)
	})
}

func TestFlagzIsLikeThatOfKubernetes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, nil)
		const want = `
podcount flagz
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
burst=40
qps=20
`
		testkit.WantEqual(t, "/flagz", f.get(t, "/flagz").text, want)
	})
}

func TestMostCrowdedAreTheTenWithTheMostPods(t *testing.T) {
	pods := map[string]int{}
	for i := range 30 {
		pods[fmt.Sprintf("n%02d", i)] = i / 2
	}
	var names []string
	for _, crowd := range MostCrowded(maps.All(pods)) {
		names = append(names, fmt.Sprintf("%s:%d", crowd.Name, crowd.Pods))
	}
	testkit.WantEqual(t, "the names", strings.Join(names, " "),
		"n28:14 n29:14 n26:13 n27:13 n24:12 n25:12 n22:11 n23:11 n20:10 n21:10")
	testkit.WantEqual(t, "without pods", MostCrowded(maps.All(map[string]int{})), []Crowd{})
}
