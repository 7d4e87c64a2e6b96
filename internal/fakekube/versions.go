package fakekube

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// kubeVersion finds the numbers of an API version such as "v2" or "v1beta1".
var kubeVersion = regexp.MustCompile(`^v([0-9]+)(?:(alpha|beta)([0-9]+))?$`)

// compareVersions orders the versions of a group, preferred ones first: general availability before beta before alpha,
// higher numbers before lower ones, and what has another form after all of these.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#version-priority
func compareVersions(a, b string) int {
	first := kubeVersion.FindStringSubmatch(a)
	second := kubeVersion.FindStringSubmatch(b)
	if first == nil && second == nil {
		return strings.Compare(a, b)
	}
	if first == nil {
		return 1
	}
	if second == nil {
		return -1
	}
	return cmp.Or(
		cmp.Compare(stability(second[2]), stability(first[2])),
		cmp.Compare(number(second[1]), number(first[1])),
		cmp.Compare(number(second[3]), number(first[3])),
	)
}

func stability(stage string) int {
	switch stage {
	case "alpha":
		return 0
	case "beta":
		return 1
	}
	return 2
}

func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
