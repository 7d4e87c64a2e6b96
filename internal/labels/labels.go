// Package labels has the syntax of Kubernetes' labels, of the names beside them, and of selectors; and it tells which
// labels a selector matches. It accepts what the API server accepts, and its errors name what is wrong.
//
// It knows no object: a caller hands in how a label is looked up. It sends nothing, and never looks at a server's answer.
package labels

import (
	"fmt"
	"strings"
)

// CheckKey checks a key's syntax: an optional DNS prefix and "/", then a name of at most 63 characters.
func CheckKey(key string) error {
	prefix, _, found := strings.Cut(key, "/")
	name := key[strings.Index(key, "/")+1:]
	if name == "" || CheckValue(name) != nil || found && CheckDNSName(prefix) != nil {
		return fmt.Errorf("label key %q must be 1 to 63 letters, digits, '-', '_' or '.', begin and end with a letter or digit, and have no prefix or a DNS name's", key)
	}
	return nil
}

func CheckValue(v string) error {
	if v != "" && (len(v) > 63 || !isName(v, lowerCase+"ABCDEFGHIJKLMNOPQRSTUVWXYZ", "-_.")) {
		return fmt.Errorf("label value %q must be at most 63 letters, digits, '-', '_' or '.', and begin and end with a letter or digit", v)
	}
	return nil
}

// CheckDNSName checks a DNS-1123 subdomain, which also holds for a namespace's name (that has no dots and 63 characters).
func CheckDNSName(s string) error {
	for part := range strings.SplitSeq(s, ".") {
		if len(s) > 253 || !isName(part, lowerCase, "-") {
			return fmt.Errorf("%q must be lower-case letters, digits, '-' and '.', and begin and end with a letter or digit, and have at most 253 of them", s)
		}
	}
	return nil
}

const lowerCase = "abcdefghijklmnopqrstuvwxyz0123456789"

// isName reports whether s is made of letters and marks, and begins and ends with a letter.
func isName(s, letters, marks string) bool {
	return s != "" && strings.Trim(s, letters+marks) == "" && strings.Trim(s, marks) == s
}
