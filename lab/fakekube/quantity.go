package fakekube

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// quantityPattern is the syntax of quantities. The server's message contains it.
const quantityPattern = `^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$`

var quantitySyntax = regexp.MustCompile(quantityPattern)

var (
	errQuantity       = errors.New("quantities must match the regular expression '" + quantityPattern + "'")
	errQuantitySuffix = errors.New("unable to parse quantity's suffix")
)

// Suffixes of quantities: from nano in steps of 1000, and in steps of 1024.
var (
	decimalSuffixes = []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binarySuffixes  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// Powers of ten.
const (
	nanoExponent  = -9 // smallest unit of a quantity
	milliExponent = -3 // smallest unit of a resource amount
	maxExponent   = 30 // largest that the fake accepts
)

// quantity is an amount such as "100m" or "1Gi".
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
type quantity struct {
	amount     *big.Rat
	isBinary   bool // parsed from a suffix such as "Ki"
	isExponent bool // parsed from an exponent, as in "1e3"
}

// parseQuantity parses a quantity. Errors have the server's wording.
func parseQuantity(text string) (quantity, error) {
	parts := quantitySyntax.FindStringSubmatch(text)
	if parts == nil {
		return quantity{}, errQuantity
	}
	amount, isNumber := new(big.Rat).SetString(parts[1])
	if !isNumber {
		return quantity{}, errQuantity
	}
	q := quantity{amount: amount}
	if !q.applySuffix(parts[2]) {
		return quantity{}, errQuantitySuffix
	}
	q.roundUp(nanoExponent)
	return q, nil
}

// roundUp rounds the amount, away from zero, to a multiple of this power of ten.
func (q *quantity) roundUp(exponent int) {
	units := roundedUp(new(big.Rat).Mul(q.amount, powerOf(10, -exponent)))
	q.amount.Mul(new(big.Rat).SetInt(units), powerOf(10, exponent))
}

// applySuffix multiplies the amount by the value of a suffix. It returns false if the suffix is unknown.
func (q *quantity) applySuffix(suffix string) bool {
	for i, known := range decimalSuffixes {
		if suffix == known {
			q.amount.Mul(q.amount, powerOf(10, nanoExponent+3*i))
			return true
		}
	}
	for i, known := range binarySuffixes {
		if suffix == known {
			q.isBinary = true
			q.amount.Mul(q.amount, powerOf(1024, i))
			return true
		}
	}
	exponent, err := strconv.Atoi(strings.TrimLeft(suffix, "eE"))
	if err != nil || exponent < -maxExponent || exponent > maxExponent {
		return false
	}
	q.isExponent = true
	q.amount.Mul(q.amount, powerOf(10, exponent))
	return true
}

// powerOf returns base to the power of exponent, which may be negative.
func powerOf(base, exponent int) *big.Rat {
	whole := new(big.Int).Exp(big.NewInt(int64(base)), big.NewInt(int64(max(exponent, -exponent))), nil)
	result := new(big.Rat).SetInt(whole)
	if exponent < 0 {
		result.Inv(result)
	}
	return result
}

// roundedUp rounds to a whole number, away from zero.
func roundedUp(amount *big.Rat) *big.Int {
	whole, rest := new(big.Int).QuoRem(amount.Num(), amount.Denom(), new(big.Int))
	return whole.Add(whole, big.NewInt(int64(rest.Sign())))
}

// String returns the quantity in the server's form: a whole number with the largest possible suffix.
func (q quantity) String() string {
	size := new(big.Rat).Abs(q.amount)
	switch {
	case size.Sign() == 0:
		return "0"
	case q.isBinary && q.isWhole() && size.Cmp(big.NewRat(1024, 1)) >= 0:
		number, steps := divideOut(q.amount.Num(), 1024, len(binarySuffixes)-1)
		return number.String() + binarySuffixes[steps]
	}
	nanos := roundedUp(new(big.Rat).Mul(q.amount, powerOf(10, -nanoExponent)))
	number, steps := divideOut(nanos, 1000, len(decimalSuffixes)-1)
	exponent := nanoExponent + 3*steps
	if q.isExponent && exponent != 0 {
		return number.String() + "e" + strconv.Itoa(exponent)
	}
	return number.String() + decimalSuffixes[steps]
}

// divideOut divides a number by a factor while the result is whole, at most limit times.
func divideOut(number *big.Int, factor int64, limit int) (left *big.Int, steps int) {
	divisor := big.NewInt(factor)
	for steps < limit {
		whole, rest := new(big.Int).QuoRem(number, divisor, new(big.Int))
		if rest.Sign() != 0 {
			break
		}
		number = whole
		steps++
	}
	return number, steps
}

// isWhole reports whether the quantity is a whole number.
func (q quantity) isWhole() bool { return q.amount.IsInt() }

// quantitiesIn returns the valid quantities in a field, by name.
func quantitiesIn(o Object, field string) map[string]quantity {
	found := map[string]quantity{}
	for name := range objectIn(o, field) {
		q, err := parseQuantity(TextIn(objectIn(o, field), name))
		if err == nil {
			found[name] = q
		}
	}
	return found
}
