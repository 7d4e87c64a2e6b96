package labels

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Selector is a label selector: all its requirements must hold, as with kubectl's -l. One without requirements, nil as
// well, matches everything. Parse and HasKey make one; it is not modified then.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type Selector []requirement

// Parse reads a selector: "k", "!k", "k=v", "k==v", "k!=v", "k in (a,b)", "k notin (a,b)", "k>1" and "k<1", joined by
// commas. It accepts what the API server would accept. An empty text is the selector that matches everything. Errors
// name the requirement.
func Parse(text string) (Selector, error) {
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

// HasKey is the selector of what has a label with this key, whatever its value. It does not check the key.
func HasKey(key string) Selector { return Selector{{key: key}} }

// Matches reports whether labels meet all requirements. label returns the value of a key, and whether it is there.
func (s Selector) Matches(label func(key string) (value string, ok bool)) bool {
	for _, r := range s {
		value, has := label(r.key)
		if !r.matches(value, has) {
			return false
		}
	}
	return true
}

// Keys returns the keys that the selector looks at, in its order; a key may be there more than once.
func (s Selector) Keys() (keys []string) {
	for _, r := range s {
		keys = append(keys, r.key)
	}
	return keys
}

// requirement is one part of a Selector, about one key. Where side is set, the label's value is compared with bound.
// Otherwise it is looked for among values; or, where they are nil, the key alone counts.
type requirement struct {
	key    string
	not    bool     // the value is none of values, or the key is not there; a missing key has none of them
	values []string // nil: any value will do
	side   byte     // '>' or '<': the value is an integer on this side of bound
	bound  int64
}

func (r requirement) matches(value string, has bool) bool {
	if r.side != 0 {
		return r.isOnSide(value)
	}
	if r.values == nil {
		return has != r.not
	}
	isOneOf := has && slices.Contains(r.values, value)
	return isOneOf != r.not
}

// isOnSide reports whether value is an integer beyond bound. A missing label's value is "", which is none.
func (r requirement) isOnSide(value string) bool {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return false
	}
	if r.side == '>' {
		return n > r.bound
	}
	return n < r.bound
}

// blanks are what the API server takes for a blank, and nothing else.
const blanks = " \t\r\n"

// splitRequirements splits at each comma but those in parentheses, which separate values.
func splitRequirements(text string) (parts []string) {
	start := 0
	isInside := false
	for i, c := range text {
		switch {
		case c == '(':
			isInside = true
		case c == ')':
			isInside = false
		case c == ',' && !isInside:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

// operators are in an order in which none comes after one that it begins with.
var operators = []string{"==", "=", "!=", "in", "notin", ">", "<"}

func parseRequirement(text string) (requirement, error) {
	key, isNot := strings.CutPrefix(text, "!")
	rest := ""
	if end := strings.IndexAny(text, blanks+"=!<>("); end > 0 {
		key = text[:end]
		rest = strings.Trim(text[end:], blanks)
	}
	r := requirement{key: strings.Trim(key, blanks), not: isNot}
	if err := CheckKey(r.key); err != nil {
		return r, err
	}
	if rest == "" {
		return r, nil
	}
	i := slices.IndexFunc(operators, func(operator string) bool { return strings.HasPrefix(rest, operator) })
	if i < 0 {
		word := rest
		if end := strings.IndexAny(rest, blanks); end >= 0 {
			word = rest[:end]
		}
		return r, fmt.Errorf("%q is no operator: use =, !=, >, <, in (a,b) or notin (a,b)", word)
	}
	operator := operators[i]
	value := strings.Trim(rest[len(operator):], blanks)
	err := r.readValue(operator, value)
	return r, err
}

// readValue reads what stands after an operator.
func (r *requirement) readValue(operator, value string) (err error) {
	switch operator {
	case "==", "=", "!=":
		r.not = operator == "!="
		r.values = []string{value}
	case "in", "notin":
		r.not = operator == "notin"
		list, ok := cutParentheses(value)
		if !ok {
			return fmt.Errorf("%s needs values in parentheses: %s %[1]s (a,b)", operator, r.key)
		}
		for v := range strings.SplitSeq(list, ",") {
			r.values = append(r.values, strings.Trim(v, blanks))
		}
	case ">", "<":
		r.side = operator[0]
		r.bound, err = strconv.ParseInt(value, 10, 64)
		if err != nil || checkValue(value) != nil { // no label's value has a sign
			return fmt.Errorf("%s needs a whole number without a sign, and not %q", operator, value)
		}
	}
	for _, v := range r.values {
		if err := checkValue(v); err != nil {
			return err
		}
	}
	return nil
}

// cutParentheses returns what stands between the parentheses that value begins and ends with.
func cutParentheses(value string) (inside string, ok bool) {
	inside, isOpened := strings.CutPrefix(value, "(")
	inside, isClosed := strings.CutSuffix(inside, ")")
	return inside, isOpened && isClosed
}
