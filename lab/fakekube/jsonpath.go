package fakekube

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// jsonPath is a parsed JSONPath. It supports the parts of kubectl's JSONPath that columns of custom resources use:
// .name, ['name'], .a\.b, ['a\.b'], [0], [-1], [*], .*, [?(@.name=="text")], [?(@.name!="text")] and [?(@.name)].
// https://kubernetes.io/docs/reference/kubectl/jsonpath/
type jsonPath []pathStep

// pathStep returns the values that one step reaches from a value.
type pathStep func(v any) []any

// find returns all values that the path reaches.
func (p jsonPath) find(v any) []any {
	found := []any{v}
	for _, step := range p {
		var next []any
		for _, at := range found {
			next = append(next, step(at)...)
		}
		found = next
	}
	return found
}

// parseJSONPath parses a path. The error names the unsupported part.
func parseJSONPath(text string) (jsonPath, error) {
	var path jsonPath
	rest := text
	for rest != "" {
		var step pathStep
		var err error
		switch {
		case strings.HasPrefix(rest, ".."):
			err = errors.New("the fake does not know the two dots, which search all levels")
		case rest[0] == '.':
			step, rest = cutField(rest[1:])
		case rest[0] == '[':
			step, rest, err = cutBrackets(rest)
		default:
			err = fmt.Errorf("%q does not begin with a dot or a bracket", rest)
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read the JSONPath %q: %w", text, err)
		}
		path = append(path, step)
	}
	return path, nil
}

// cutField parses a name up to the next dot or bracket. A backslash escapes the next character.
func cutField(text string) (step pathStep, rest string) {
	var name strings.Builder
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == '\\' && i+1 < len(text):
			i++
			name.WriteByte(text[i])
		case text[i] == '.' || text[i] == '[':
			return fieldStep(name.String()), text[i:]
		default:
			name.WriteByte(text[i])
		}
	}
	return fieldStep(name.String()), ""
}

func fieldStep(name string) pathStep {
	if name == "*" {
		return allStep
	}
	if name == "" {
		return func(v any) []any { return []any{v} } // a single dot is the object itself
	}
	return func(v any) []any {
		o, _ := v.(Object)
		value, isThere := o[name]
		if !isThere {
			return nil
		}
		return []any{value}
	}
}

// allStep reaches each item of a list, or each value of an object in the order of the keys.
func allStep(v any) []any {
	switch v := v.(type) {
	case []any:
		return v
	case Object:
		var values []any
		for _, key := range slices.Sorted(maps.Keys(v)) {
			values = append(values, v[key])
		}
		return values
	}
	return nil
}

// cutBrackets parses a step in brackets.
func cutBrackets(text string) (step pathStep, rest string, err error) {
	inside, rest, isClosed := strings.Cut(text[1:], "]")
	if filter, isFilter := strings.CutPrefix(inside, "?("); isFilter {
		condition, isWhole := strings.CutSuffix(filter, ")")
		if !isClosed || !isWhole {
			return nil, "", fmt.Errorf("%q: the bracket is not closed", text)
		}
		step, err = filterStep(condition)
		return step, rest, err
	}
	if !isClosed {
		return nil, "", fmt.Errorf("%q: the bracket is not closed", text)
	}
	if inside == "*" {
		return allStep, rest, nil
	}
	if name, isName := unquoted(inside); isName {
		if strings.ContainsAny(name, `'"`) {
			return nil, "", fmt.Errorf("[%s] has more than one name", inside)
		}
		return fieldStep(strings.ReplaceAll(name, `\`, "")), rest, nil
	}
	index, err := strconv.Atoi(inside)
	if err != nil {
		return nil, "", fmt.Errorf("[%s] is no index", inside)
	}
	return indexStep(index), rest, nil
}

// unquoted returns the text within single or double quotes.
func unquoted(text string) (inner string, isQuoted bool) {
	for _, quote := range []string{"'", `"`} {
		inner, begins := strings.CutPrefix(text, quote)
		inner, ends := strings.CutSuffix(inner, quote)
		if begins && ends {
			return inner, true
		}
	}
	return "", false
}

// indexStep returns the step to one item of a list. A negative index counts from the end.
func indexStep(index int) pathStep {
	return func(v any) []any {
		list, _ := v.([]any)
		i := index
		if i < 0 {
			i += len(list)
		}
		if i < 0 || i >= len(list) {
			return nil
		}
		return list[i : i+1]
	}
}

// cutCondition splits a condition at its operator, "==" or "!=". operator and right are "" if there is none.
func cutCondition(condition string) (left, operator, right string) {
	for _, operator := range []string{"==", "!="} {
		left, right, isFound := strings.Cut(condition, operator)
		if !isFound {
			continue
		}
		right = strings.TrimSpace(right)
		if text, isQuoted := unquoted(right); isQuoted {
			right = text
		}
		return left, operator, right
	}
	return condition, "", ""
}

// filterStep returns the step to the items of a list that satisfy a condition.
func filterStep(condition string) (pathStep, error) {
	left, operator, right := cutCondition(condition)
	path, isRelative := strings.CutPrefix(strings.TrimSpace(left), "@")
	if !isRelative || strings.ContainsAny(path, "<>&|=") {
		return nil, fmt.Errorf("the fake does not know the condition %q", condition)
	}
	below, err := parseJSONPath(path)
	if err != nil {
		return nil, err
	}
	satisfies := func(v any) bool {
		found := below.find(v)
		if operator == "" {
			return len(found) > 0
		}
		isEqual := len(found) > 0 && textOf(found[0]) == right
		return len(found) > 0 && isEqual == (operator == "==")
	}
	return func(v any) []any {
		list, _ := v.([]any)
		var kept []any
		for _, item := range list {
			if satisfies(item) {
				kept = append(kept, item)
			}
		}
		return kept
	}, nil
}
