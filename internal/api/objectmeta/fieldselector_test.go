package objectmeta

import (
	"strings"
	"testing"
)

var eventFields = []string{"metadata.name", "type"}

func TestValidFieldSelectorsAreAccepted(t *testing.T) {
	for _, text := range []string{
		"", ",", "type=", "type==Normal", "type!=Normal", "type=a,metadata.name!=b", ",type=a,,",
		`type=a\,b`, `type=a\=b`, `type=a\\`, `type=a\\,type=b`, "type=!a",
	} {
		if err := CheckFieldSelector(text, "events", eventFields); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestBadFieldSelectorsAreRefusedWithAReason(t *testing.T) {
	for text, want := range map[string]string{
		"type":         `"type" needs an operator: use =, == or !=`,
		"type=a,b":     `"b" needs an operator: use =, == or !=`,
		"type!":        `"type!" needs an operator: use =, == or !=`,
		"type>a":       `"type>a" needs an operator: use =, == or !=`,
		"!type=a":      `"!type=a" needs an operator: use =, == or !=`,
		"reason=a":     `field label not supported: "reason"; events can be selected by metadata.name, type`,
		" type=a":      `field label not supported: " type"; events can be selected by metadata.name, type`,
		"=a":           `field label not supported: ""; events can be selected by metadata.name, type`,
		"type=a=b":     `"type=a=b": write \= for = and \\ for \ in a value`,
		"type!==a":     `"type!==a": write \= for = and \\ for \ in a value`,
		`type=a\b`:     `"type=a\\b": write \= for = and \\ for \ in a value`,
		`type=a\,b\`:   `"type=a\\,b\\": write \= for = and \\ for \ in a value`,
		`type=a\\\\\b`: `"type=a\\\\\\\\\\b": write \= for = and \\ for \ in a value`,
	} {
		err := CheckFieldSelector(text, "events", eventFields)
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// A term ends at each comma without a backslash, and only there: no term is lost, and none hides the next.
func FuzzCheckFieldSelector(f *testing.F) {
	for _, text := range []string{"", ",", "type=a", `type=a\,b`, `type=a\\,type!=b`, "type==a=b", "type!", `\`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		terms := splitFieldTerms(text)
		if strings.Join(terms, ",") != text {
			t.Fatalf("%q is split into %q", text, terms)
		}
		isGood := CheckFieldSelector(text, "events", eventFields) == nil
		for _, term := range terms {
			if CheckFieldSelector(term, "events", eventFields) != nil && isGood {
				t.Fatalf("%q is accepted, but its term %q is not", text, term)
			}
		}
		if isGood && CheckFieldSelector(text+",reason=a", "events", eventFields) == nil {
			t.Fatalf("%q hides what follows it", text)
		}
	})
}
