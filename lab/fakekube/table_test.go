package fakekube

import (
	"strings"
	"testing"
	"time"
)

func TestShortDuration(t *testing.T) {
	const day = 24 * time.Hour
	for age, want := range map[time.Duration]string{
		-time.Hour:                      "<invalid>",
		-time.Second:                    "0s",
		0:                               "0s",
		119 * time.Second:               "119s",
		2 * time.Minute:                 "2m",
		9*time.Minute + 59*time.Second:  "9m59s",
		10*time.Minute + 59*time.Second: "10m",
		3 * time.Hour:                   "3h",
		7*time.Hour + 59*time.Minute:    "7h59m",
		47*time.Hour + 59*time.Minute:   "47h",
		2*day + time.Hour:               "2d1h",
		8*day + time.Hour:               "8d",
		729 * day:                       "729d",
		730 * day:                       "2y",
		3*365*day + 5*day:               "3y5d",
		8*365*day + 5*day:               "8y",
	} {
		if got := shortDuration(age); got != want {
			t.Errorf("%v is %s, want %s", age, got, want)
		}
	}
}

func TestUnsupportedJSONPathNamesTheReason(t *testing.T) {
	for path, want := range map[string]string{
		"spec":              "does not begin with a dot or a bracket",
		".a[0":              "the bracket is not closed",
		".a[?(@.b==1]":      "the bracket is not closed",
		".a[0:2]":           "is no index",
		".a[?(@.b>1)]":      "does not know the condition",
		`.a[?(.b=="c")]`:    "does not know the condition",
		`.a[?(@.b[0)].c]`:   "the bracket is not closed",
		".a[?(@.b)].c[x].d": "[x] is no index",
		".a..b":             "does not know the two dots",
		".a['b','c']":       "has more than one name",
	} {
		_, err := parseJSONPath(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

func TestJSONPathFindsValues(t *testing.T) {
	o := parsed(`{"a":[{"n":"x","v":1},{"n":"y","v":2}],"b":{"k":"1","c.d":"e"},"":0}`)
	for path, want := range map[string]string{
		".a[*].v":             "[1,2]",
		".a[-1].n":            `["y"]`,
		".a[2].n":             "null",
		`.a[?(@.n=='y')].v`:   "[2]",
		`.a[?(@.n != "y")].v`: "[1]",
		".a[?(@.v==2)].n":     `["y"]`,
		".a[?(@.w)].n":        "null",
		".b.*":                `["e","1"]`,
		`.b.c\.d`:             `["e"]`,
		".b.k.deeper":         "null",
		".":                   "[" + textOf(o) + "]",
	} {
		steps, err := parseJSONPath(path)
		if err != nil {
			t.Error(err)
			continue
		}
		var found any
		if all := steps.find(o); all != nil {
			found = all
		}
		if got := strings.ReplaceAll(textOf(found), "<no value>", "null"); got != want {
			t.Errorf("%s finds %s, want %s", path, got, want)
		}
	}
}
