package deploy

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// checkResource checks the syntax of NAME=QUANTITY.
func checkResource(item string) error {
	name, quantity, _ := strings.Cut(item, "=")
	amount := amountOf(name, quantity)
	switch name {
	case "cpu":
		if amount == 0 {
			return errors.New("write CPUs, as in 2 or 0.5, or thousandths of a CPU, as in 500m; 1m is the least")
		}
	case "memory":
		// podcount needs 12 MB in an empty cluster. Less than 16Mi is a mistake, such as a unit that is missing.
		if amount < 16<<20 {
			return errors.New("write bytes with Ki, Mi, Gi, k, M or G, as in 128Mi; 16Mi is the least")
		}
	default:
		return errors.New("write cpu=QUANTITY or memory=QUANTITY")
	}
	return nil
}

// units are those of a quantity. Kubernetes has more, which podcount never needs.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
var units = []struct {
	resource, unit string
	size           uint64 // in thousandths of a CPU, or in bytes
}{
	{"cpu", "", 1000},
	{"cpu", "m", 1},
	{"memory", "", 1},
	{"memory", "k", 1e3},
	{"memory", "M", 1e6},
	{"memory", "G", 1e9},
	{"memory", "Ki", 1 << 10},
	{"memory", "Mi", 1 << 20},
	{"memory", "Gi", 1 << 30},
}

// amountOf returns thousandths of a CPU, or bytes of memory. It returns 0 if the quantity is wrong.
func amountOf(resource, quantity string) uint64 {
	for _, u := range units {
		number, hasUnit := strings.CutSuffix(quantity, u.unit)
		if u.resource != resource || !hasUnit {
			continue
		}
		if amount := multiply(number, u.size); amount > 0 {
			return amount
		}
	}
	return 0
}

// multiply returns the product of a decimal number and a size. It returns 0 if that is no whole number, or too large.
func multiply(number string, size uint64) uint64 {
	whole, fraction, _ := strings.Cut(number, ".")
	product, err := strconv.ParseUint(whole+fraction, 10, 64)
	if err != nil || product > math.MaxInt64/size {
		return 0
	}
	product *= size
	for range fraction {
		if product%10 != 0 {
			return 0
		}
		product /= 10
	}
	return product
}

// checkResources returns an error if podcount requests more than its limit.
func (p *Pods) checkResources() error {
	for _, name := range []string{"cpu", "memory"} {
		request, _ := p.Requests.find(name)
		limit, hasLimit := p.Limits.find(name)
		if hasLimit && amountOf(name, request) > amountOf(name, limit) {
			return fmt.Errorf("-manifest-requests %s=%s is more than %[1]s=%[3]s in -manifest-limits: "+
				"lower the request, or raise the limit", name, request, limit)
		}
	}
	return nil
}

// yamlResource formats a resource as YAML. Kubernetes wants a string, so a quantity without a unit needs quotes.
func yamlResource(name, quantity string) string {
	isNumber := consistsOf(quantity, digits+".")
	if isNumber {
		quantity = quote(quantity)
	}
	return name + ": " + quantity
}

// goMemoryLimit returns the value of GOMEMLIMIT, or "" without a limit of memory. It is nine tenths of that limit,
// because Go does not count all memory that the kernel counts.
func (p *Pods) goMemoryLimit() string {
	limit, hasLimit := p.Limits.find("memory")
	if !hasLimit {
		return ""
	}
	const mebibyte = 1 << 20
	bytes := amountOf("memory", limit) / 10 * 9
	return strconv.FormatUint(bytes/mebibyte, 10) + "MiB"
}
