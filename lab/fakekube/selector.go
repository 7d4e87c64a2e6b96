package fakekube

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// selector returns the selector of the request. If it is invalid, it answers 400 and returns nil.
func (r *request) selector() func(Object) bool {
	selects, err := newSelector(r.kind, r.key.Namespace, r.query.Get("labelSelector"), r.query.Get("fieldSelector"))
	if err != nil {
		r.badRequest(err.Error())
		return nil
	}
	return selects
}

// newSelector returns a function that reports whether an object of the kind is in the namespace and matches both
// selectors. An empty namespace means all namespaces, and an empty selector matches everything. Errors have the
// server's wording.
func newSelector(k kind, namespace, labelSelector, fieldSelector string) (func(Object) bool, error) {
	labels, err := parseLabelSelector(labelSelector)
	if err != nil {
		return nil, err
	}
	fields, err := parseFieldSelector(fieldSelector)
	if err != nil {
		return nil, err
	}
	for i, term := range fields {
		if !k.isSelectableBy(term.field) {
			return nil, errors.New(k.unknownField(term.field))
		}
		fields[i].field = k.storedField(term.field)
	}
	return func(o Object) bool {
		if namespace != "" && TextIn(MetaOf(o), "namespace") != namespace {
			return false
		}
		has, _ := MetaOf(o)["labels"].(Object)
		for _, r := range labels {
			if !r.matches(has) {
				return false
			}
		}
		for _, term := range fields {
			if !term.matches(o) {
				return false
			}
		}
		return true
	}, nil
}

// labelRequirement is one requirement of a label selector.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type labelRequirement struct {
	key string

	// operator is exists, !exists, in, notin, > or <. The parser turns = and != into in and notin.
	operator string

	// values are the operands of in and notin.
	values []string

	// bound is the operand of > and <.
	bound int64
}

// matches reports whether labels satisfy the requirement. If the label is missing, only notin and !exists do.
func (r labelRequirement) matches(labels Object) bool {
	value, isThere := labels[r.key].(string)
	if !isThere {
		return r.operator == "notin" || r.operator == "!exists"
	}
	switch r.operator {
	case "exists":
		return true
	case "in":
		return slices.Contains(r.values, value)
	case "notin":
		return !slices.Contains(r.values, value)
	case ">", "<":
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		if r.operator == ">" {
			return number > r.bound
		}
		return number < r.bound
	}
	return false
}

// selectorToken matches a word or an operator of a label selector.
var selectorToken = regexp.MustCompile(`==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+`)

// labelParser parses the tokens of a label selector.
type labelParser struct {
	tokens []string // not yet consumed
}

// peek returns the next token without consuming it, or "" at the end.
func (p *labelParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

// next consumes and returns the next token, or "" at the end.
func (p *labelParser) next() string {
	token := p.peek()
	if token != "" {
		p.tokens = p.tokens[1:]
	}
	return token
}

// isWord reports whether a token is a key, a value or an operator made of letters.
func isWord(token string) bool {
	return token != "" && !strings.ContainsAny(token, "=!(),<>")
}

// parseLabelSelector parses requirements separated by commas.
func parseLabelSelector(text string) ([]labelRequirement, error) {
	p := &labelParser{tokens: selectorToken.FindAllString(text, -1)}
	if p.peek() == "" {
		return nil, nil
	}
	if !isWord(p.peek()) && p.peek() != "!" {
		return nil, fmt.Errorf("found '%s', expected: !, identifier, or 'end of string'", p.peek())
	}
	var all []labelRequirement
	for {
		r, err := p.requirement()
		if err != nil {
			return nil, fmt.Errorf("unable to parse requirement: %w", err)
		}
		all = append(all, r)
		token := p.next()
		if token == "" {
			return all, nil
		}
		if token != "," {
			return nil, fmt.Errorf("found '%s', expected: ',' or 'end of string'", token)
		}
		if !isWord(p.peek()) && p.peek() != "!" {
			return nil, fmt.Errorf("found '%s', expected: identifier after ','", p.peek())
		}
	}
}

// requirement parses KEY, !KEY, or KEY with an operator and its values.
func (p *labelParser) requirement() (labelRequirement, error) {
	isNot := p.peek() == "!"
	if isNot {
		p.next()
	}
	r := labelRequirement{key: p.next()}
	if !isWord(r.key) {
		return r, fmt.Errorf("found '%s', expected: identifier", r.key)
	}
	if problem := labelKeyProblem(r.key); problem != "" {
		return r, fmt.Errorf("<nil>: Invalid value: %q: %s", r.key, problem)
	}
	if isNot {
		r.operator = "!exists"
		return r, nil
	}
	if p.peek() == "" || p.peek() == "," {
		r.operator = "exists"
		return r, nil
	}
	if err := p.comparison(&r); err != nil {
		return r, err
	}
	return r, r.checkValues()
}

// comparison parses an operator and its values into r.
func (p *labelParser) comparison(r *labelRequirement) (err error) {
	operator := p.next()
	r.operator = operator
	switch operator {
	case "=", "==":
		r.operator = "in"
		r.values, err = p.oneValue()
	case "!=":
		r.operator = "notin"
		r.values, err = p.oneValue()
	case "in", "notin":
		r.values, err = p.values()
	case ">", "<":
		r.values, err = p.oneValue()
	default:
		err = fmt.Errorf("found '%s', expected: in, notin, =, ==, !=, gt, lt", operator)
	}
	return err
}

// checkValues validates the values in sorted order, as the server does, and sets the bound.
func (r *labelRequirement) checkValues() error {
	var problems []string
	if r.operator == ">" || r.operator == "<" {
		bound, err := strconv.ParseInt(r.values[0], 10, 64)
		if err != nil {
			problems = append(problems, fmt.Sprintf("values[0]: Invalid value: %q: "+
				"for 'Gt', 'Lt' operators, the value must be an integer", r.values[0]))
		}
		r.bound = bound
	}
	inOrder := slices.Compact(slices.Sorted(slices.Values(r.values)))
	for i, value := range inOrder {
		if problem := labelValueProblem(value); problem != "" {
			problems = append(problems, fmt.Sprintf("values[%d][%s]: Invalid value: %q: %s", i, r.key, value, problem))
		}
	}
	switch len(problems) {
	case 0:
		return nil
	case 1:
		return errors.New(problems[0])
	}
	return errors.New("[" + strings.Join(problems, ", ") + "]")
}

// oneValue parses the value after an operator such as =. It may be missing, which means the empty value.
func (p *labelParser) oneValue() ([]string, error) {
	if p.peek() == "" || p.peek() == "," {
		return []string{""}, nil
	}
	value := p.next()
	if !isWord(value) {
		return nil, fmt.Errorf("found '%s', expected: identifier", value)
	}
	return []string{value}, nil
}

// values parses values in parentheses. Each may be missing, which means the empty value.
func (p *labelParser) values() ([]string, error) {
	token := p.next()
	if token != "(" {
		return nil, fmt.Errorf("found '%s' expected: '('", token)
	}
	var all []string
	for {
		value := ""
		if isWord(p.peek()) {
			value = p.next()
		}
		all = append(all, value)
		token := p.next()
		if token == ")" {
			return all, nil
		}
		if token != "," {
			return nil, fmt.Errorf("found '%s', expected: ',' or ')'", token)
		}
	}
}

// selectableFields lists, by resource, the fields that a field selector may name. Other resources have only the name
// and the namespace.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/#list-of-supported-fields
var selectableFields = map[string][]string{
	"pods": {
		"metadata.name", "metadata.namespace",
		"spec.host", "spec.hostNetwork", "spec.nodeName", "spec.restartPolicy", "spec.schedulerName",
		"spec.serviceAccountName", "status.nominatedNodeName", "status.phase", "status.podIP", "status.podIPs",
	},
	"nodes":      {"metadata.name", "spec.unschedulable"},
	"namespaces": {"metadata.name", "status.phase"},
	"secrets":    {"metadata.name", "metadata.namespace", "type"},
	"events": {
		"metadata.name", "metadata.namespace",
		"involvedObject.apiVersion", "involvedObject.fieldPath", "involvedObject.kind", "involvedObject.name",
		"involvedObject.namespace", "involvedObject.resourceVersion", "involvedObject.uid",
		"reason", "reportingComponent", "source", "type",
	},
	"events.events.k8s.io": {
		"metadata.name", "metadata.namespace",
		"regarding.apiVersion", "regarding.fieldPath", "regarding.kind", "regarding.name", "regarding.namespace",
		"regarding.resourceVersion", "regarding.uid",
		"reason", "reportingController", "type",
	},
}

// isSelectableBy reports whether a field selector may name the field. The definition of a custom resource may add
// fields.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#crd-selectable-fields
func (k kind) isSelectableBy(field string) bool {
	if k.isCustom() && field == "metadata.namespace" {
		return k.isNamespaced
	}
	for _, selectable := range objectsIn(k.crd["selectableFields"]) {
		if TextIn(selectable, "jsonPath") == "."+field {
			return true
		}
	}
	fields, hasOwn := selectableFields[k.qualified()]
	if !hasOwn {
		return field == "metadata.name" || field == "metadata.namespace"
	}
	return slices.Contains(fields, field)
}

// unknownField is the server's message for a field that a selector may not name. Its wording depends on the kind.
func (k kind) unknownField(field string) string {
	_, hasOwn := selectableFields[k.qualified()]
	if hasOwn || k.isCustom() {
		return "field label not supported: " + field
	}
	return fmt.Sprintf("%q is not a known field selector: only \"metadata.name\", \"metadata.namespace\"", field)
}

// fieldTerm is one term of a field selector: FIELD=VALUE, FIELD==VALUE or FIELD!=VALUE.
type fieldTerm struct {
	field string
	value string
	isNot bool
}

// matches reports whether an object satisfies the term. A missing field equals "".
func (t fieldTerm) matches(o Object) bool {
	isEqual := fieldOf(o, t.field) == t.value
	return isEqual != t.isNot
}

// fieldOf returns the value of a field as selectors see it.
func fieldOf(o Object, field string) string {
	switch field {
	case "spec.host": // an old name of the field
		field = "spec.nodeName"
	case "source":
		return cmp.Or(TextIn(o, "source", "component"), TextIn(o, "reportingComponent"))
	}
	path := strings.Split(field, ".")
	last := len(path) - 1
	for _, step := range path[:last] {
		o, _ = o[step].(Object)
	}
	switch value := o[path[last]].(type) {
	case nil:
		if field == "spec.hostNetwork" || field == "spec.unschedulable" {
			return "false"
		}
		return ""
	case Object, []any: // such as status.podIPs, which selectors may name but cannot read
		return ""
	default:
		return textOf(value)
	}
}

// parseFieldSelector parses terms separated by commas, and ignores empty ones. In a value, commas, equals signs and
// backslashes are escaped by a backslash.
func parseFieldSelector(text string) ([]fieldTerm, error) {
	var all []fieldTerm
	for _, part := range splitUnescaped(text) {
		if part == "" {
			continue
		}
		field, value, operator := cutFieldTerm(part)
		if operator == "" {
			return nil, fmt.Errorf("invalid selector: '%s'; can't understand '%s'", text, part)
		}
		value, err := unescaped(value)
		if err != nil {
			return nil, err
		}
		all = append(all, fieldTerm{field: field, value: value, isNot: operator == "!="})
	}
	return all, nil
}

// splitUnescaped splits a text at commas that are not escaped.
func splitUnescaped(text string) []string {
	var parts []string
	begin := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++ // the next character is escaped
		case ',':
			parts = append(parts, text[begin:i])
			begin = i + 1
		}
	}
	return append(parts, text[begin:])
}

// cutFieldTerm splits a term at its first operator. operator is "" if there is none.
func cutFieldTerm(term string) (field, value, operator string) {
	for i := range term {
		for _, operator := range []string{"!=", "==", "="} {
			if value, found := strings.CutPrefix(term[i:], operator); found {
				return term[:i], value, operator
			}
		}
	}
	return "", "", ""
}

// unescaped removes the backslashes that escape characters in a value. The server's error shows an unescaped
// character as a number.
func unescaped(value string) (string, error) {
	var text strings.Builder
	isEscaped := false
	for _, char := range value {
		isSpecial := char == '\\' || char == ',' || char == '='
		switch {
		case isEscaped && !isSpecial:
			return "", fmt.Errorf(`invalid field selector: invalid escape sequence: \%c`, char)
		case isEscaped:
			text.WriteRune(char)
			isEscaped = false
		case char == '\\':
			isEscaped = true
		case isSpecial:
			return "", fmt.Errorf("invalid field selector: unescaped character in value: %d", char)
		default:
			text.WriteRune(char)
		}
	}
	if isEscaped {
		return "", errors.New(`invalid field selector: invalid escape sequence: \`)
	}
	return text.String(), nil
}
