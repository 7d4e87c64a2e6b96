package fakekube

import (
	"cmp"
	"regexp"
	"strconv"
	"strings"
)

// kubeVersion matches an API version such as "v2" or "v1beta1".
var kubeVersion = regexp.MustCompile(`^v([0-9]+)(?:(alpha|beta)([0-9]+))?$`)

// compareVersions sorts the versions of a group by preference: general availability before beta before alpha, higher
// numbers before lower ones, and other names last.
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
		cmp.Compare(stabilityRank(second[2]), stabilityRank(first[2])),
		cmp.Compare(atoiOrZero(second[1]), atoiOrZero(first[1])),
		cmp.Compare(atoiOrZero(second[3]), atoiOrZero(first[3])),
	)
}

func stabilityRank(stage string) int {
	switch stage {
	case "alpha":
		return 0
	case "beta":
		return 1
	}
	return 2
}

func atoiOrZero(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}
