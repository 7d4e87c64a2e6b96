// Package labels has the syntax of Kubernetes' labels, of the names beside them, and of selectors; and it tells which
// labels a selector matches. It accepts what the API server accepts, and its errors name what is wrong.
//
// It knows no object: a caller hands in how a label is looked up. It sends nothing, and never looks at a server's
// answer. All of it is safe for concurrent use.
//
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
package labels

import (
	"fmt"
	"strings"
)

// CheckKey returns an error unless key is one that a label may have: an optional DNS name and "/", then a name of 1 to
// 63 characters.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func CheckKey(key string) error {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = key
	}
	isBad := name == "" || checkValue(name) != nil
	if isBad || hasPrefix && CheckDNSName(prefix) != nil {
		return fmt.Errorf("label key %q must be 1 to 63 letters, digits, '-', '_' or '.', "+
			"begin and end with a letter or digit, and have no prefix or a DNS name's", key)
	}
	return nil
}

// checkValue returns an error unless value is one that a label may have. It may be empty, and has at most 63
// characters.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func checkValue(value string) error {
	if value == "" {
		return nil
	}
	if len(value) > 63 || !isName(value, anyCase, "-_.") {
		return fmt.Errorf("label value %q must be at most 63 letters, digits, '-', '_' or '.', "+
			"and begin and end with a letter or digit", value)
	}
	return nil
}

// CheckDNSName returns an error unless name is a DNS subdomain, as the names of most objects and the prefixes of keys
// are: at most 253 characters, in lower case. A namespace's name is one, too, but has no dot and 63 characters at most,
// which this does not check.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
func CheckDNSName(name string) error {
	isGood := len(name) <= 253
	for part := range strings.SplitSeq(name, ".") {
		isGood = isGood && isName(part, lowerCase, "-")
	}
	if !isGood {
		return fmt.Errorf("%q must be lower-case letters, digits, '-' and '.', "+
			"and begin and end with a letter or digit, and have at most 253 of them", name)
	}
	return nil
}

const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789"
	anyCase   = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isName reports whether text is made of letters and marks, and begins and ends with a letter.
func isName(text, letters, marks string) bool {
	hasOthers := strings.Trim(text, letters+marks) != ""
	return text != "" && !hasOthers && strings.Trim(text, marks) == text
}
