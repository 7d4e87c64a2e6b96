package fakekube

import (
	"encoding/base64"
	"encoding/hex"
	"net"
	"net/mail"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Syntax of the formats for which the standard library has no parser.
var (
	uuidSyntax  = regexp.MustCompile(`(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)
	uuid3Syntax = regexp.MustCompile(`(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$`)
	uuid4Syntax = regexp.MustCompile(`(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$`)
	uuid5Syntax = regexp.MustCompile(`(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$`)

	hexColorSyntax = regexp.MustCompile(`^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$`)
	rgbColorSyntax = regexp.MustCompile(`^rgb\(\s*` + colorByte +
		`\s*,\s*` + colorByte + `\s*,\s*` + colorByte + `\s*\)$`)
	ssnSyntax = regexp.MustCompile(`^\d{3}[- ]?\d{2}[- ]?\d{4}$`)

	// The server takes a name with dots, or one without in which a dash is the second character or nowhere.
	hostnameSyntax = regexp.MustCompile(`^([a-zA-Z0-9\p{S}\p{L}](-?[a-zA-Z0-9\p{S}\p{L}]{0,62})?|` +
		`([a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9-\p{S}\p{L}]{0,61}[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,63})$`)

	// Wherever in a text it stands: a number with a unit that is one of the short ones, or begins like a long one.
	wordyDurationSyntax = regexp.MustCompile(`(?i)\d\s*(ns|us|µs|ms|s|m|h|hr|d|w|wk|` +
		`(nano|micro|milli|sec|min|hour|day|week)[a-zµ]*)([^a-zµ]|$)`)
)

// colorByte matches a number up to 255.
const colorByte = `(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])`

// formats holds the checks for the formats that a schema may name. The names have no dashes, as the server compares
// them. A text of an unknown format may be anything.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/#validation
var formats = map[string]func(text string) bool{
	"bsonobjectid": isObjectID,
	"byte":         isBase64,
	"cidr":         isCIDR,
	"date":         isDate,
	"datetime":     isDateTime,
	"duration":     isDuration,
	"email":        isEmail,
	"hexcolor":     hexColorSyntax.MatchString,
	"hostname":     isHostname,
	"ipv4":         isIPv4,
	"ipv6":         isIPv6,
	"k8slongname":  func(text string) bool { return subdomainProblem(text) == "" },
	"k8sshortname": func(text string) bool { return labelProblem(text) == "" },
	"mac":          isMAC,
	"password":     isAnyText,
	"rgbcolor":     rgbColorSyntax.MatchString,
	"ssn":          ssnSyntax.MatchString,
	"uri":          isURI,
	"uuid":         uuidSyntax.MatchString,
	"uuid3":        uuid3Syntax.MatchString,
	"uuid4":        uuid4Syntax.MatchString,
	"uuid5":        uuid5Syntax.MatchString,

	// The server computes the check digits of these. The fake does not.
	"creditcard": isAnyText,
	"isbn":       isAnyText,
	"isbn10":     isAnyText,
	"isbn13":     isAnyText,
}

// formatNamed returns the check of a format, or nil if the server does not know it either.
func formatNamed(name string) func(text string) bool {
	return formats[strings.ReplaceAll(name, "-", "")]
}

func isAnyText(string) bool { return true }

func isObjectID(text string) bool {
	id, err := hex.DecodeString(text)
	return err == nil && len(id) == 12
}

func isBase64(text string) bool {
	_, err := base64.StdEncoding.DecodeString(text)
	return err == nil && text != ""
}

func isCIDR(text string) bool {
	_, _, err := net.ParseCIDR(text)
	return err == nil
}

func isDate(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// isDateTime reports whether a text is a time of RFC 3339. Its letters may be in lower case.
func isDateTime(text string) bool {
	_, err := time.Parse(time.RFC3339, strings.ToUpper(text))
	return err == nil
}

// isDuration reports whether a text is a Go duration, or contains a number with a unit, such as "2 days".
func isDuration(text string) bool {
	_, err := time.ParseDuration(text)
	return err == nil || wordyDurationSyntax.MatchString(text)
}

func isEmail(text string) bool {
	_, err := mail.ParseAddress(text)
	return err == nil
}

func isHostname(text string) bool {
	return len(text) <= 255 && hostnameSyntax.MatchString(text)
}

// isIPv4 reports whether a text is an IP address with dots. Some IPv6 addresses have them too.
func isIPv4(text string) bool { return net.ParseIP(text) != nil && strings.Contains(text, ".") }

func isIPv6(text string) bool { return net.ParseIP(text) != nil && strings.Contains(text, ":") }

func isMAC(text string) bool {
	_, err := net.ParseMAC(text)
	return err == nil
}

// isURI reports whether a text is a URI or an absolute path.
func isURI(text string) bool {
	_, err := url.ParseRequestURI(text)
	return err == nil
}
