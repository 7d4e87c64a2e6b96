package labels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selector is a label selector: every requirement must hold, as with kubectl's -l. None holds always.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type Selector []requirement

type requirement struct {
	key    string
	not    bool     // turns the rest round, and holds for a missing key
	values []string // one of these; nil: the key is there
	side   byte     // '>' or '<': the value is an integer on this side of bound, whatever is said above
	bound  int64
}

// Matches reports whether labels meet all requirements. label returns the value of a key, if it is there: Meta.Label.
func (s Selector) Matches(label func(key string) (value string, ok bool)) bool {
	for _, r := range s {
		value, has := label(r.key)
		if !r.matches(value, has) {
			return false
		}
	}
	return true
}

func (r requirement) matches(value string, has bool) bool {
	if r.side != 0 {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		if r.side == '>' {
			return n > r.bound
		}
		return n < r.bound
	}
	if r.values == nil {
		return has != r.not
	}
	return (has && slices.Contains(r.values, value)) != r.not
}

// HasKey is the selector of what has a label with this key, whatever its value.
func HasKey(key string) Selector { return Selector{{key: key}} }

// Keys returns the keys that the selector looks at.
func (s Selector) Keys() (keys []string) {
	for _, r := range s {
		keys = append(keys, r.key)
	}
	return keys
}

const selectorSpace = " \t\r\n" // what the API server takes for a blank, and nothing else

// Parse reads "k", "!k", "k=v", "k==v", "k!=v", "k in (a,b)", "k notin (a,b)", "k>1" and "k<1", joined by
// commas: what the API server would accept. Errors name the requirement.
func Parse(text string) (s Selector, err error) {
	if strings.Trim(text, selectorSpace) == "" {
		return nil, nil
	}
	start := 0
	isInside := false // the parentheses, where a comma separates values
	for i, c := range text + "," {
		switch {
		case c == '(':
			isInside = true
		case c == ')':
			isInside = false
		case c == ',' && !isInside, i == len(text):
			part := strings.Trim(text[start:i], selectorSpace)
			r, err := parseRequirement(part)
			if err != nil {
				return nil, fmt.Errorf("requirement %d %q: %w", len(s)+1, part, err)
			}
			s = append(s, r)
			start = i + 1
		}
	}
	return s, nil
}

func parseRequirement(text string) (r requirement, err error) {
	key, isNot := strings.CutPrefix(text, "!")
	rest := ""
	if end := strings.IndexAny(text, selectorSpace+"=!<>("); end > 0 {
		key = text[:end]
		rest = strings.Trim(text[end:], selectorSpace)
	}
	r = requirement{key: strings.Trim(key, selectorSpace), not: isNot}
	if err := CheckKey(r.key); err != nil {
		return r, err
	}
	if rest == "" {
		return r, nil
	}
	operators := []string{"==", "=", "!=", "in", "notin", ">", "<"}
	i := slices.IndexFunc(operators, func(op string) bool { return strings.HasPrefix(rest, op) })
	if i < 0 {
		word := rest
		if end := strings.IndexAny(rest, selectorSpace); end >= 0 {
			word = rest[:end]
		}
		return r, fmt.Errorf("%q is no operator: use =, !=, >, <, in (a,b) or notin (a,b)", word)
	}
	op := operators[i]
	value := strings.Trim(rest[len(op):], selectorSpace)
	switch op {
	case "==", "=", "!=":
		r.not = op == "!="
		r.values = []string{value}
	case "in", "notin":
		if len(value) < 2 || value[0] != '(' || value[len(value)-1] != ')' {
			return r, fmt.Errorf("%s needs values in parentheses: %s %[1]s (a,b)", op, r.key)
		}
		r.not = op == "notin"
		for v := range strings.SplitSeq(value[1:len(value)-1], ",") {
			r.values = append(r.values, strings.Trim(v, selectorSpace))
		}
	case ">", "<":
		r.side = op[0]
		r.bound, err = strconv.ParseInt(value, 10, 64)
		if err != nil || CheckValue(value) != nil { // no label's value has a sign
			return r, fmt.Errorf("%s needs a whole number without a sign, and not %q", op, value)
		}
	}
	for _, v := range r.values {
		if err := CheckValue(v); err != nil {
			return r, err
		}
	}
	return r, nil
}
