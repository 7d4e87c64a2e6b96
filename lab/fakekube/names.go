package fakekube

import (
	"regexp"
	"strings"
)

// Syntax and length limits of names. The server's messages contain the patterns.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
const (
	namePattern      = `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
	valuePattern     = `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`
	labelPattern     = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	dnsLabelPattern  = `[a-z]([-a-z0-9]*[a-z0-9])?`
	subdomainPattern = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`

	labelLength     = 63
	subdomainLength = 253
)

var (
	nameSyntax      = regexp.MustCompile("^" + namePattern + "$")
	valueSyntax     = regexp.MustCompile("^" + valuePattern + "$")
	labelSyntax     = regexp.MustCompile("^" + labelPattern + "$")
	dnsLabelSyntax  = regexp.MustCompile("^" + dnsLabelPattern + "$")
	subdomainSyntax = regexp.MustCompile("^" + subdomainPattern + "$")
)

// labelKeyProblem returns the first problem of a label's key in the server's words, or "" if the key is valid.
func labelKeyProblem(key string) string {
	problems := labelKeyProblems(key)
	if len(problems) == 0 {
		return ""
	}
	return problems[0]
}

// labelKeyProblems returns all problems of a label's key in the server's words.
func labelKeyProblems(key string) []string {
	const syntax = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an " +
		"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '" +
		namePattern + "')"
	var problems []string
	prefix, name, hasPrefix := strings.Cut(key, "/")
	switch {
	case strings.Contains(name, "/"):
		return []string{"a valid label key " + syntax +
			" with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"}
	case !hasPrefix:
		name = key
	case prefix == "":
		problems = append(problems, "prefix part must be non-empty")
	default:
		if problem := subdomainProblem(prefix); problem != "" {
			problems = append(problems, "prefix part "+problem)
		}
	}
	if name == "" {
		problems = append(problems, "name part must be non-empty")
	}
	if len(name) > labelLength {
		problems = append(problems, "name part must be no more than 63 bytes")
	}
	if !nameSyntax.MatchString(name) {
		problems = append(problems, "name part "+syntax)
	}
	return problems
}

// labelValueProblem says, in the server's words, why a label's value is invalid. It returns "" if it is valid.
func labelValueProblem(value string) string {
	if len(value) > labelLength {
		return "must be no more than 63 bytes"
	}
	if !valueSyntax.MatchString(value) {
		return "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex " +
			"used for validation is '" + valuePattern + "')"
	}
	return ""
}

// subdomainProblem says, in the server's words, why a text is not a DNS subdomain, which names of objects and
// prefixes of label keys must be. It returns "" if it is one.
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

// labelProblem says, in the server's words, why a text is not a DNS label of RFC 1123, which names of namespaces and
// containers must be. It returns "" if it is one.
func labelProblem(name string) string {
	if len(name) > labelLength {
		return "must be no more than 63 characters"
	}
	if !labelSyntax.MatchString(name) {
		return "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start " +
			"and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '" +
			labelPattern + "')"
	}
	return ""
}

// dnsLabelProblem says, in the server's words, why a text is not a DNS label of RFC 1035, which names of custom
// resources and their versions must be. It returns "" if it is one.
func dnsLabelProblem(name string) string {
	if len(name) > labelLength {
		return "must be no more than 63 characters"
	}
	if !dnsLabelSyntax.MatchString(name) {
		return "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic " +
			"character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for " +
			"validation is '" + dnsLabelPattern + "')"
	}
	return ""
}

// segmentProblem says, in the server's words, why a text cannot be a segment of a path. It returns "" if it can.
func segmentProblem(name string) string {
	if name == "." || name == ".." {
		return "may not be '" + name + "'"
	}
	for _, char := range []string{"/", "%"} {
		if strings.Contains(name, char) {
			return "may not contain '" + char + "'"
		}
	}
	return ""
}

// nameProblem says, in the server's words, why an object of this kind cannot have a name. It returns "" if it can.
func (k kind) nameProblem(name string) string {
	switch {
	case k.qualified() == "namespaces" && strings.Contains(name, "."):
		return "must not contain dots"
	case k.qualified() == "namespaces":
		return labelProblem(name)
	case k.group == "rbac.authorization.k8s.io" || k.qualified() == "events":
		return segmentProblem(name)
	}
	return subdomainProblem(name)
}
