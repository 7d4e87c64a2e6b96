package objectmeta

import (
	"fmt"
	"regexp"
	"strings"
)

// The regular expressions of the API server.
// https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation
var (
	labelValue = regexp.MustCompile(`^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$`)
	dnsName    = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
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
	if len(value) > labelLimit || !labelValue.MatchString(value) {
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
	if len(name) > NameLimit || !dnsName.MatchString(name) {
		return fmt.Errorf("%q must be lower-case letters, digits, '-' or '.', have at most 253 characters, "+
			"and begin and end with a letter or digit, as must each part between dots", name)
	}
	return nil
}
