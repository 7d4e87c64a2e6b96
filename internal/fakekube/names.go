package fakekube

import (
	"regexp"
	"strings"
)

// The syntax of names, in the regular expressions that the server's messages name, and their greatest lengths.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
const (
	namePattern      = `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
	valuePattern     = `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`
	subdomainPattern = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`

	labelLength     = 63
	subdomainLength = 253
)

var (
	nameSyntax      = regexp.MustCompile("^" + namePattern + "$")
	valueSyntax     = regexp.MustCompile("^" + valuePattern + "$")
	subdomainSyntax = regexp.MustCompile("^" + subdomainPattern + "$")
)

// labelKeyProblem says, in the server's words, what is wrong with a label's key; "" is nothing.
func labelKeyProblem(key string) string {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = key
	}
	if hasPrefix {
		if problem := subdomainProblem(prefix); problem != "" {
			return "prefix part " + problem
		}
	}
	if name == "" {
		return "name part must be non-empty"
	}
	if len(name) > labelLength {
		return "name part must be no more than 63 characters"
	}
	if !nameSyntax.MatchString(name) {
		return "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an " +
			"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '" +
			namePattern + "')"
	}
	return ""
}

// labelValueProblem says, in the server's words, what is wrong with a label's value; "" is nothing.
func labelValueProblem(value string) string {
	if len(value) > labelLength {
		return "must be no more than 63 characters"
	}
	if !valueSyntax.MatchString(value) {
		return "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex " +
			"used for validation is '" + valuePattern + "')"
	}
	return ""
}

// subdomainProblem says, in the server's words, why a text is no DNS subdomain, as objects' names and the prefixes of
// labels' keys are; "" is nothing.
func subdomainProblem(name string) string {
	if len(name) > subdomainLength {
		return "must be no more than 253 characters"
	}
	if !subdomainSyntax.MatchString(name) {
		return "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '" +
			subdomainPattern + "')"
	}
	return ""
}
