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
	key    string
	symbol string   // one of symbols; "" if the label must be there, "!" if it must not
	values []string // what follows the symbol, unless that is a number
	bound  int64    // the number that follows > or <
}

// symbols are the operators that a value follows. "==" must precede "=", because it begins with it.
var symbols = []string{"==", "=", "!=", "in", "notin", ">", "<"}

// matches reports whether the label with the requirement's key meets it. isThere is false if there is no such label.
func (r requirement) matches(value string, isThere bool) bool {
	switch r.symbol {
	case "":
		return isThere
	case "!":
		return !isThere
	case "=", "==", "in":
		return isThere && slices.Contains(r.values, value)
	case "!=", "notin":
		return !isThere || !slices.Contains(r.values, value)
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil { // the label is missing, or its value is not a number
		return false
	}
	if r.symbol == ">" {
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
		return requirement{key: key, symbol: "!"}, CheckLabelKey(key)
	}
	key, rest := cutKey(text)
	if err := CheckLabelKey(key); err != nil {
		return requirement{}, err
	}
	if rest == "" {
		return requirement{key: key}, nil
	}
	for _, symbol := range symbols {
		if value, ok := strings.CutPrefix(rest, symbol); ok {
			r := requirement{key: key, symbol: symbol}
			return r, r.setValue(strings.Trim(value, blanks))
		}
	}
	return requirement{}, fmt.Errorf("%q is not an operator: use =, !=, >, <, in (a,b) or notin (a,b)",
		strings.Fields(rest)[0])
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

// setValue reads the value that follows the symbol.
func (r *requirement) setValue(value string) (err error) {
	switch r.symbol {
	case ">", "<": // Like the value of a label, the number must not begin with + or -.
		r.bound, err = strconv.ParseInt(value, 10, 64)
		if err != nil || CheckLabelValue(value) != nil {
			return fmt.Errorf("%s needs a whole number without a sign, not %q", r.symbol, value)
		}
		return nil
	case "in", "notin":
		list, isOpened := strings.CutPrefix(value, "(")
		list, isClosed := strings.CutSuffix(list, ")")
		if !isOpened || !isClosed {
			return fmt.Errorf("%q needs values in parentheses: %s %s (a,b)", r.symbol, r.key, r.symbol)
		}
		r.values = strings.Split(list, ",")
	default:
		r.values = []string{value}
	}
	for i, v := range r.values {
		r.values[i] = strings.Trim(v, blanks)
		if err := CheckLabelValue(r.values[i]); err != nil {
			return err
		}
	}
	return nil
}
