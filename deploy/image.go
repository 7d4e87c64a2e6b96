package deploy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	lowerCase     = "abcdefghijklmnopqrstuvwxyz"
	digits        = "0123456789"
	alphanumerics = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
)

// checkReference checks the syntax of an image reference, which is [HOST[:PORT]/]PATH[:TAG][@DIGEST]. Without this
// check, a mistake would show only when the kubelet starts the pod. The grammar is in
// https://github.com/distribution/reference/blob/main/reference.go
func checkReference(image string) error {
	rest, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest && !isDigest(digest) {
		return errors.New("what follows @ must be a digest, " +
			"such as sha256: followed by 64 hexadecimal digits (0-9, a-f)")
	}
	name := rest
	tagColon := strings.LastIndex(rest, ":")
	hasTag := tagColon > strings.LastIndex(rest, "/") // Another colon precedes a port.
	if hasTag {
		tag := rest[tagColon+1:]
		if !isTag(tag) {
			return fmt.Errorf("%q is not a valid tag: use at most 128 letters, digits, '_', '.' or '-', and do not begin with "+
				"'.' or '-'", tag)
		}
		name = rest[:tagColon]
	}
	path := name
	first, afterFirst, hasSlash := strings.Cut(name, "/")
	if hasSlash && isHostPart(first) {
		if err := checkHost(first); err != nil {
			return err
		}
		path = afterFirst
	}
	return checkPath(path)
}

// isDigest reports whether text is ALGORITHM:SUM, with one of the registered algorithms.
func isDigest(text string) bool {
	algorithm, sum, _ := strings.Cut(text, ":")
	if !consistsOf(sum, digits+"abcdef") {
		return false
	}
	switch algorithm {
	case "sha256":
		return len(sum) == 256/4
	case "sha384":
		return len(sum) == 384/4
	case "sha512":
		return len(sum) == 512/4
	}
	return false
}

func isTag(text string) bool {
	startsWithWord := text != "" && text[0] != '.' && text[0] != '-'
	return startsWithWord && consistsOf(text, alphanumerics+"_.-") && len(text) <= 128
}

// isHostPart reports whether the first part of a name is a host. It is one if it is localhost, or a word with a dot, a
// colon or a capital letter, none of which the first part of a path has.
func isHostPart(first string) bool {
	isLowerCase := first == strings.ToLower(first)
	return strings.ContainsAny(first, ".:") || first == "localhost" || !isLowerCase
}

// checkHost checks a host with or without a port.
func checkHost(text string) error {
	host := text
	colon := strings.LastIndex(text, ":")
	hasPort := colon > strings.LastIndex(text, "]") // Another colon is part of an IPv6 address.
	if hasPort {
		host = text[:colon]
		port, err := strconv.ParseUint(text[colon+1:], 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%q is not a port", text[colon+1:])
		}
	}
	isIPv6 := strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]")
	if isIPv6 {
		if !consistsOf(host[1:len(host)-1], digits+"abcdefABCDEF:") {
			return fmt.Errorf("%q is not an IPv6 address", host)
		}
		return nil
	}
	for label := range strings.SplitSeq(host, ".") {
		if !consistsOf(label, alphanumerics+"-") || strings.Trim(label, "-") != label {
			return fmt.Errorf("%q is not a host name or an IP address", host)
		}
	}
	return nil
}

func checkPath(path string) error {
	if len(path) > 255 {
		return errors.New("the path has more than 255 characters")
	}
	for part := range strings.SplitSeq(path, "/") {
		if !isPathPart(part) {
			return fmt.Errorf("a part of the path is %q: "+
				"it must have lower-case letters and digits, joined by '.', '_', '__' or '-'", part)
		}
	}
	return nil
}

// isPathPart reports whether text is one or more words, joined by separators. A separator is '.', '_', '__', or one or
// more '-'.
func isPathPart(text string) bool {
	const words = lowerCase + digits
	const separators = "._-"
	if !consistsOf(text, words+separators) || strings.Trim(text, separators) != text {
		return false
	}
	for rest := text; rest != ""; {
		rest = strings.TrimLeft(rest, words)
		afterSeparator := strings.TrimLeft(rest, separators)
		separator := strings.TrimSuffix(rest, afterSeparator)
		isDashes := strings.Trim(separator, "-") == ""
		if len(separator) > 1 && separator != "__" && !isDashes {
			return false
		}
		rest = afterSeparator
	}
	return true
}

// consistsOf reports whether text is not empty and contains only these characters.
func consistsOf(text, characters string) bool {
	return text != "" && strings.Trim(text, characters) == ""
}
