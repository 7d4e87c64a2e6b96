package options

import (
	"errors"
	"flag"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// testProgram is a program with controllers that are called as podcount's.
var testProgram = Program{
	Version: "v1",
	Controllers: []Controller{
		{Name: "pod-count", About: "counts"},
		{Name: "count", About: "compares"},
		{Name: "pod-printer", About: "prints", Off: true},
	},
	PodFields: []string{"metadata.namespace", "spec.nodeName"},
}

func TestControllersAreChosenAsInKubeControllerManager(t *testing.T) {
	for text, want := range map[string]string{
		"*": "pod-count count", "pod-count": "pod-count", "*,-count": "pod-count", "-count,*": "pod-count", "*,pod-printer": "pod-count count pod-printer",
		"pod-printer": "pod-printer", "pod-count,-pod-count": "pod-count", "*,-pod-count,pod-count": "count",
	} {
		o, err := Parse([]string{"-controllers", text}, io.Discard, testProgram)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := strings.Join(o.Controllers, " "); got != want {
			t.Errorf("-controllers %s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"pods":                    `there is no "pods"; there are pod-count, count, pod-printer`,
		"*,-nothing":              `there is no "-nothing"; there are`,
		"":                        `there is no ""; there are`,
		"*,-pod-count,-count":     "leaves none to run",
		"-pod-count":              "leaves none to run",
		"pod-count, count":        `there is no " count"`,
		"pod-count,,pod-printer":  `there is no ""`,
		"--pod-count,pod-printer": `there is no "--pod-count"`,
	} {
		_, err := Parse([]string{"-controllers", text}, io.Discard, testProgram)
		if usage := (UsageError{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("-controllers %q: %v, want %q", text, err, want)
		}
	}
}

func TestHelpNamesEveryFlag(t *testing.T) {
	out := &strings.Builder{}
	if o, err := Parse([]string{"-h"}, out, testProgram); o != nil || err != nil {
		t.Error(o, err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 101 {
			t.Errorf("%d columns: %s", n-1, line)
		}
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if page := "```text\n" + out.String() + "```\n"; !strings.Contains(string(readme), page) {
		t.Errorf("README.md should show this as the help:\n%s", out)
	}
	_, fs, _ := newFlags()
	flags := 0
	defaults := map[string]string{"leader-elect-resource-name": "podcount", "image": "podcount:latest", "manifest-namespace": "kube-system",
		"controllers": "*", "wire": "protobuf", "log-format": "auto", "once-timeout": "10m", "total-label": "hopegi/pod-count", "pod-events": "on", "interval": "10s", "workers": "4",
		"qps": "20 and 40", "v": "0", "leader-elect-lease-duration": "15s", "leader-elect-renew-deadline": "10s", "leader-elect-retry-period": "2s"}
	fs.VisitAll(func(f *flag.Flag) {
		flags++
		name := f.Name
		about, there := "", false
		if at := regexp.MustCompile(`(?m)^  (-qps N, )?-` + name + `[ ,]`).FindStringIndex(out.String()); at != nil {
			about, _, _ = strings.Cut(out.String()[at[1]:], "\n  -") // the next flag
			there = true
		}
		want, has := defaults[name]
		if !there || has && !strings.Contains(about, "(default "+want+")") {
			t.Errorf("-%s: not in the help, or with another default than %q: %s", name, want, about)
		}
		want, _, _ = strings.Cut(want, " and ")          // -burst shares the line of -qps
		is := strings.ReplaceAll(f.DefValue, "m0s", "m") // as a duration of 10m is printed as 10m0s
		if has && is != want {
			t.Errorf("-%s is %q by default, and the help says %q", name, is, want)
		}
	})
	if is := fs.Lookup("burst").DefValue; is != "40" {
		t.Errorf("-burst is %q by default", is)
	}
	if flags < 30 {
		t.Errorf("there are %d flags", flags)
	}
}
