package objectmeta

import (
	"fmt"
	"strings"
)

// CheckLabelKey returns an error unless key is a valid label key: a name of 1 to 63 characters, optionally after a DNS
// name and a slash.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func CheckLabelKey(key string) error {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = key
	}
	isNameValid := name != "" && CheckLabelValue(name) == nil
	isPrefixValid := !hasPrefix || CheckDNSName(prefix) == nil
	if !isNameValid || !isPrefixValid {
		return fmt.Errorf("label key %q must have 1 to 63 letters, digits, '-', '_' or '.', "+
			"and begin and end with a letter or digit; a prefix before a '/' must be a DNS name", key)
	}
	return nil
}

// CheckLabelValue returns an error unless a label may have this value. A value has at most 63 characters, and may be
// empty.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
func CheckLabelValue(value string) error {
	if value == "" {
		return nil
	}
	if len(value) > labelLimit || !isName(value, anyCase, "-_.") {
		return fmt.Errorf("label value %q must have at most 63 letters, digits, '-', '_' or '.', "+
			"and begin and end with a letter or digit", value)
	}
	return nil
}

// CheckDNSName returns an error unless name is a DNS subdomain name: in lower case, with at most 253 characters. The
// names of most objects and the prefixes of label keys are DNS subdomain names. CheckDNSName is not enough for the name
// of a namespace, which must also have no dot and at most 63 characters.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
func CheckDNSName(name string) error {
	isValid := len(name) <= NameLimit
	for part := range strings.SplitSeq(name, ".") {
		isValid = isValid && isName(part, lowerCase, "-")
	}
	if !isValid {
		return fmt.Errorf("%q must be lower-case letters, digits, '-' or '.', have at most 253 characters, "+
			"and begin and end with a letter or digit, as must each part between dots", name)
	}
	return nil
}

const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789" // and digits
	anyCase   = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// isName reports whether text has only the given characters, and begins and ends with one of alphanumerics.
func isName(text, alphanumerics, punctuation string) bool {
	hasOthers := strings.Trim(text, alphanumerics+punctuation) != ""
	return text != "" && !hasOthers && strings.Trim(text, punctuation) == text
}
