package objectmeta

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func TestSelectorMatches(t *testing.T) {
	set := map[string]string{
		"app":       "web",
		"empty":     "",
		"x.io/tier": "front",
		"size":      "12",
		"huge":      "9223372036854775808",
	}
	for text, want := range map[string]bool{
		"":                                   true,
		"app":                                true,
		"!app":                               false,
		"none":                               false,
		"!none":                              true,
		"app=web":                            true,
		"app==web":                           true,
		"app = web":                          true,
		"app=db":                             false,
		"app!=db":                            true,
		"none!=x":                            true,
		"app!=web":                           false,
		"app in (web,db)":                    true,
		"app in(db, api)":                    false,
		"none in (a)":                        false,
		"app notin (db)":                     true,
		"none notin (a)":                     true,
		"app notin (web)":                    false,
		"empty=":                             true,
		"empty":                              true,
		"empty in ()":                        true,
		"app in ()":                          false,
		"x.io/tier=front,app in (web),!none": true,
		"x.io/tier=front,app in (db),!none":  false,
		"size>11":                            true,
		"size > 12":                          false,
		"size<13":                            true,
		"size<12":                            false,
		"size>9":                             true,
		"size>011":                           true,
		"size>2,size<20,app":                 true,

		// A value that is not a number of 64 bits is neither greater nor less than any.
		"app>1":   false,
		"app<1":   false,
		"none>1":  false,
		"none<1":  false,
		"empty<1": false,
		"huge>1":  false,
		"huge<1":  false,
	} {
		s, err := ParseSelector(text)
		if err != nil || s.Matches(labelsIn(set)) != want {
			t.Errorf("%q: %v, %v", text, s.Matches(labelsIn(set)), err)
		}
	}
}

func TestBadSelectorsAreRefusedWithAReason(t *testing.T) {
	for text, want := range map[string]string{
		"app in web":            `"in" needs values in parentheses: app in (a,b)`,
		"app notin (a":          `"notin" needs values in parentheses: app notin (a,b)`,
		"app in (":              `"in" needs values in parentheses`,
		"app like web":          `"like" is not an operator`,
		"app\nlike\nweb":        `"like" is not an operator`,
		"a=b,,c":                `requirement 2 ""`,
		"=v":                    "label key",
		"app=not valid":         "label value",
		"-app":                  "label key",
		"a/b/c":                 "label key",
		"UPPER.io/x":            "prefix",
		"!a=b":                  "label key",
		"app>x":                 "> needs a whole number",
		"app<":                  "< needs a whole number",
		"app>-1":                `not "-1"`,
		"x in (a":               "parentheses",
		strings.Repeat("a", 64): "63",
	} {
		if _, err := ParseSelector(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: the error is %v, want %s", text, err, want)
		}
	}
}

func TestSelectorListsItsKeys(t *testing.T) {
	for text, want := range map[string][]string{
		"":                           nil,
		"a":                          {"a"},
		"!b,a=1,x.io/c in (d),a < 3": {"b", "a", "x.io/c", "a"},
	} {
		s, err := ParseSelector(text)
		if err != nil || !slices.Equal(s.Keys(), want) {
			t.Errorf("%q looks at %q, want %q (%v)", text, s.Keys(), want, err)
		}
	}
}

func TestSelectorsAreAcceptedAsByTheServer(t *testing.T) {
	accepted, refused := readSelectors(t)
	for _, text := range accepted {
		if _, err := ParseSelector(text); err != nil {
			t.Errorf("label selector %q: %v", text, err)
		}
	}
	for _, text := range refused {
		if _, err := ParseSelector(text); err == nil {
			t.Errorf("label selector %q is accepted", text)
		}
	}
}

// A selector that is accepted reads the same when it is written another way, and matches according to its operators.
func FuzzSelector(f *testing.F) {
	for _, text := range []string{
		"a", "!a", "a=b", "a!=b", "a in (b, c)", "a notin (b,)", "x.io/a == b,!c", " ", "a=,b", "x.io/a>0", "x.io/a < 07",
	} {
		f.Add(text, "a=b,x.io/a=1")
	}
	f.Fuzz(func(t *testing.T, text, set string) {
		selector, err := ParseSelector(text)
		if err != nil {
			return
		}
		given := map[string]string{}
		for pair := range strings.SplitSeq(set, ",") {
			k, v, _ := strings.Cut(pair, "=")
			given[k] = v
		}
		var parts []string
		want := true
		for _, r := range selector {
			v, has := given[r.key]
			part, isMet := restate(r, v, has)
			parts = append(parts, part)
			want = want && isMet
		}
		again, err := ParseSelector(strings.Join(parts, " , "))
		if err != nil || !reflect.DeepEqual(again, selector) {
			t.Fatalf("%q is read as %v, and that as %v, %v", text, parts, again, err)
		}
		if selector.Matches(labelsIn(given)) != want {
			t.Fatalf("%q selects %v: %v, want %v", text, given, !want, want)
		}
	})
}

// restate writes a requirement in another way, and reports whether the value of a label meets it.
func restate(r requirement, value string, has bool) (text string, isMet bool) {
	list := strings.Join(r.values, ", ")
	isOneOf := has && slices.Contains(r.values, value)
	switch r.symbol {
	case "":
		return r.key, has
	case "!":
		return "! " + r.key, !has
	case "=", "==":
		return r.key + " " + r.symbol + "\t" + list, isOneOf
	case "!=":
		return r.key + " !=\t" + list, !isOneOf
	case "in":
		return r.key + " in(" + list + ")", isOneOf
	case "notin":
		return r.key + " notin(" + list + ")", !isOneOf
	default:
		n, err := strconv.ParseInt(value, 10, 64)
		isGreater := r.symbol == ">"
		return fmt.Sprintf("%s %s %d", r.key, r.symbol, r.bound), err == nil && n != r.bound && (n > r.bound) == isGreater
	}
}

// labelsIn looks labels up in a map.
func labelsIn(labels map[string]string) func(key string) (value string, ok bool) {
	return func(key string) (string, bool) {
		value, ok := labels[key]
		return value, ok
	}
}

// readSelectors returns selectors that a real API server (v1.35) accepts, and others that it answers with a 400.
func readSelectors(t *testing.T) (accepted, refused []string) {
	t.Helper()
	var file struct{ LabelSelectorsAccepted, LabelSelectorsRefused []string }
	text, err := os.ReadFile("../../../testdata/selectors.json")
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil || len(file.LabelSelectorsAccepted) == 0 || len(file.LabelSelectorsRefused) == 0 {
		t.Fatalf("%+v, %v", file, err)
	}
	return file.LabelSelectorsAccepted, file.LabelSelectorsRefused
}
