package deploy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz"
	digits    = "0123456789"
	letters   = lowerCase + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + digits
)

// checkImage checks the syntax of an image's reference. A kubelet checks it, too, but only when the pod starts.
// https://github.com/distribution/reference/blob/main/reference.go has the grammar.
func checkImage(image string) error {
	rest, digest, hasDigest := strings.Cut(image, "@")
	if hasDigest {
		algorithm, sum, _ := strings.Cut(digest, ":")
		length := map[string]int{"sha256": 64, "sha384": 96, "sha512": 128}[algorithm] // those that are registered
		if length == 0 || len(sum) != length || !consistsOf(sum, digits+"abcdef") {
			return errors.New("what follows @ must be sha256: and 64 of 0-9 and a-f, or the like")
		}
	}
	path := rest
	if colon := strings.LastIndex(rest, ":"); colon > strings.LastIndex(rest, "/") {
		tag := rest[colon+1:]
		path = rest[:colon]
		if !consistsOf(tag, letters+"_.-") || strings.Trim(tag[:1], ".-") == "" || len(tag) > 128 {
			return errors.New("what follows : is not a tag")
		}
	}
	// The first part is a host where it cannot be a part of the path.
	first, others, hasOthers := strings.Cut(path, "/")
	if hasOthers && (strings.ContainsAny(first, ".:") || first == "localhost" || first != strings.ToLower(first)) {
		if err := checkHost(first); err != nil {
			return err
		}
		path = others
	}
	if len(path) > 255 {
		return errors.New("the path has more than 255 characters")
	}
	for part := range strings.SplitSeq(path, "/") {
		if !isPathPart(part) {
			return fmt.Errorf("the path has lower-case letters and digits, joined by '.', '_', '__' or '-', and not %q", part)
		}
	}
	return nil
}

func checkHost(text string) error {
	host, port, hasPort := text, "", false
	if colon := strings.LastIndex(text, ":"); colon > strings.LastIndex(text, "]") {
		host, port, hasPort = text[:colon], text[colon+1:], true
	}
	if hasPort {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("%q is not a port", port)
		}
	}
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		if !consistsOf(host[1:len(host)-1], digits+"abcdefABCDEF:") {
			return fmt.Errorf("%q is not an address", host)
		}
		return nil
	}
	for label := range strings.SplitSeq(host, ".") {
		if !consistsOf(label, letters+"-") || strings.Trim(label, "-") != label {
			return fmt.Errorf("%q is not a host", host)
		}
	}
	return nil
}

// isPathPart reports whether a part of an image's path is made of words, with one mark between each two of them: '.',
// '_', '__', or any number of '-'.
func isPathPart(part string) bool {
	const words = lowerCase + digits
	if !consistsOf(part, words+"._-") || strings.Trim(part, "._-") != part {
		return false
	}
	for len(part) > 0 {
		part = strings.TrimLeft(part, words)
		mark := part[:len(part)-len(strings.TrimLeft(part, "._-"))]
		if len(mark) > 1 && mark != "__" && strings.Trim(mark, "-") != "" {
			return false
		}
		part = part[len(mark):]
	}
	return true
}

// consistsOf reports whether text is not empty, and has no other characters than these.
func consistsOf(text, characters string) bool {
	return text != "" && strings.Trim(text, characters) == ""
}
