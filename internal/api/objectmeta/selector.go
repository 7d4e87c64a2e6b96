package objectmeta

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selector is a label selector, as for kubectl's flag -l. It matches labels that meet all its requirements. A selector
// without requirements, such as nil, matches everything. A Selector is immutable.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type Selector []requirement

// ParseSelector reads a label selector: any of "k", "!k", "k=v", "k==v", "k!=v", "k in (a,b)", "k notin (a,b)", "k>1"
// and "k<1", separated by commas. It accepts what the API server accepts. From an empty text, it makes a selector that
// matches everything. An error names the requirement that is wrong.
func ParseSelector(text string) (Selector, error) {
	if strings.Trim(text, blanks) == "" {
		return nil, nil
	}
	var s Selector
	for _, part := range splitRequirements(text) {
		part = strings.Trim(part, blanks)
		r, err := parseRequirement(part)
		if err != nil {
			return nil, fmt.Errorf("requirement %d %q: %w", len(s)+1, part, err)
		}
		s = append(s, r)
	}
	return s, nil
}

// SelectorForKey returns a selector for labels that have this key, with any value. It does not check the key.
func SelectorForKey(key string) Selector {
	return Selector{{key: key, operator: exists}}
}

// Matches reports whether an object's labels meet all requirements. The function label returns the value of the label
// with this key, and whether the object has it.
func (s Selector) Matches(label func(key string) (value string, ok bool)) bool {
	for _, r := range s {
		value, ok := label(r.key)
		if !r.matches(value, ok) {
			return false
		}
	}
	return true
}

// Keys returns the key of each requirement, in their order. A key may occur more than once.
func (s Selector) Keys() (keys []string) {
	for _, r := range s {
		keys = append(keys, r.key)
	}
	return keys
}

// requirement is one condition of a Selector. It is about the label with one key.
type requirement struct {
	key      string
	operator operator
	values   []string // for in and notIn
	bound    int64    // for greaterThan and lessThan
}

type operator string

const (
	exists       operator = "exists"
	doesNotExist operator = "does not exist"
	in           operator = "in" // also for = and ==, with one value
	notIn        operator = "not in"
	greaterThan  operator = ">"
	lessThan     operator = "<"
)

// matches reports whether the label with the requirement's key meets it. isThere is false if there is no such label.
func (r requirement) matches(value string, isThere bool) bool {
	switch r.operator {
	case exists:
		return isThere
	case doesNotExist:
		return !isThere
	case in:
		return isThere && slices.Contains(r.values, value)
	case notIn:
		return !isThere || !slices.Contains(r.values, value)
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil { // the label is missing, or its value is not a number
		return false
	}
	if r.operator == greaterThan {
		return number > r.bound
	}
	return number < r.bound
}

// blanks are the characters that the API server treats as white space.
const blanks = " \t\r\n"

// splitRequirements splits at each comma, except within parentheses, where commas separate values.
func splitRequirements(text string) (parts []string) {
	start := 0
	isInParentheses := false
	for i, c := range text {
		switch {
		case c == '(':
			isInParentheses = true
		case c == ')':
			isInParentheses = false
		case c == ',' && !isInParentheses:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// parseRequirement reads one requirement, such as "app in (web,db)".
func parseRequirement(text string) (requirement, error) {
	if key, isNegated := strings.CutPrefix(text, "!"); isNegated {
		key = strings.Trim(key, blanks)
		return requirement{key: key, operator: doesNotExist}, CheckLabelKey(key)
	}
	key, rest := cutKey(text)
	if err := CheckLabelKey(key); err != nil {
		return requirement{}, err
	}
	if rest == "" {
		return requirement{key: key, operator: exists}, nil
	}
	symbol, value, err := cutSymbol(rest)
	if err != nil {
		return requirement{}, err
	}
	return newRequirement(key, symbol, value)
}

// cutKey splits a requirement into its key and the rest: the symbol and the value. Without a symbol, or with nothing
// before it, the whole text is the key. CheckLabelKey refuses it if it is none.
func cutKey(text string) (key, rest string) {
	end := strings.IndexAny(text, blanks+"=!<>(")
	if end <= 0 {
		return text, ""
	}
	return text[:end], strings.Trim(text[end:], blanks)
}

// symbols are the ways to write an operator that takes a value. "==" must precede "=", because it begins with it.
var symbols = []string{"==", "=", "!=", "in", "notin", ">", "<"}

// cutSymbol splits the text that follows a key into the symbol and the value.
func cutSymbol(text string) (symbol, value string, err error) {
	for _, symbol := range symbols {
		if value, ok := strings.CutPrefix(text, symbol); ok {
			return symbol, strings.Trim(value, blanks), nil
		}
	}
	word := text
	if end := strings.IndexAny(text, blanks); end >= 0 {
		word = text[:end]
	}
	return "", "", fmt.Errorf("%q is not an operator: use =, !=, >, <, in (a,b) or notin (a,b)", word)
}

// newRequirement returns the requirement that a key, one of symbols, and a value stand for.
func newRequirement(key, symbol, value string) (requirement, error) {
	switch symbol {
	case "=", "==":
		return requirement{key: key, operator: in, values: []string{value}}, CheckLabelValue(value)
	case "!=":
		return requirement{key: key, operator: notIn, values: []string{value}}, CheckLabelValue(value)
	case "in", "notin":
		return newSetRequirement(key, symbol, value)
	case ">":
		bound, err := parseBound(symbol, value)
		return requirement{key: key, operator: greaterThan, bound: bound}, err
	default:
		bound, err := parseBound(symbol, value)
		return requirement{key: key, operator: lessThan, bound: bound}, err
	}
}

// newSetRequirement returns a requirement with the symbol in or notin, whose values are written in parentheses.
func newSetRequirement(key, symbol, value string) (requirement, error) {
	list, isOpened := strings.CutPrefix(value, "(")
	list, isClosed := strings.CutSuffix(list, ")")
	if !isOpened || !isClosed {
		return requirement{}, fmt.Errorf("%q needs values in parentheses: %s %s (a,b)", symbol, key, symbol)
	}
	r := requirement{key: key, operator: in}
	if symbol == "notin" {
		r.operator = notIn
	}
	for v := range strings.SplitSeq(list, ",") {
		v = strings.Trim(v, blanks)
		if err := CheckLabelValue(v); err != nil {
			return requirement{}, err
		}
		r.values = append(r.values, v)
	}
	return r, nil
}

// parseBound reads the number after > or <. Like the value of a label, it must not begin with + or -.
func parseBound(symbol, value string) (int64, error) {
	bound, err := strconv.ParseInt(value, 10, 64)
	if err != nil || CheckLabelValue(value) != nil {
		return 0, fmt.Errorf("%s needs a whole number without a sign, not %q", symbol, value)
	}
	return bound, nil
}
