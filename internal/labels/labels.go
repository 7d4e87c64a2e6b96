// Package labels parses label selectors and matches labels with them. It also checks field selectors, and the syntax of
// label keys and of DNS names. It accepts what the API server accepts.
//
// The package knows no kind of object: callers pass a function that looks up a label. Everything in it is safe for
// concurrent use.
//
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/
package labels

import (
	"fmt"
	"strings"
)

// CheckKey returns an error unless a label may have this key: a name of 1 to 63 characters, which may follow a prefix: a
// DNS name and "/".
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func CheckKey(key string) error {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = key
	}
	isNameBad := name == "" || checkValue(name) != nil
	isPrefixBad := hasPrefix && CheckDNSName(prefix) != nil
	if isNameBad || isPrefixBad {
		return fmt.Errorf("label key %q must have 1 to 63 letters, digits, '-', '_' or '.', "+
			"and begin and end with a letter or digit; a prefix before a '/' must be a DNS name", key)
	}
	return nil
}

// checkValue returns an error unless a label may have this value, which may be empty, and has at most 63 characters.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func checkValue(value string) error {
	if value == "" {
		return nil
	}
	if len(value) > 63 || !isName(value, anyCase, "-_.") {
		return fmt.Errorf("label value %q must have at most 63 letters, digits, '-', '_' or '.', "+
			"and begin and end with a letter or digit", value)
	}
	return nil
}

// CheckDNSName returns an error unless name is a DNS subdomain name: lower case, at most 253 characters. The names of
// most objects and the prefixes of label keys are such names. The name of a namespace must, in addition, have no dot and
// at most 63 characters; CheckDNSName does not check that.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
func CheckDNSName(name string) error {
	isGood := len(name) <= 253
	for part := range strings.SplitSeq(name, ".") {
		isGood = isGood && isName(part, lowerCase, "-")
	}
	if !isGood {
		return fmt.Errorf("%q must be lower-case letters, digits, '-' or '.', "+
			"begin and end with a letter or digit, and have at most 253 characters", name)
	}
	return nil
}

const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789"
	anyCase   = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isName reports whether text has only letters and marks, and begins and ends with a letter.
func isName(text, letters, marks string) bool {
	hasOthers := strings.Trim(text, letters+marks) != ""
	return text != "" && !hasOthers && strings.Trim(text, marks) == text
}
