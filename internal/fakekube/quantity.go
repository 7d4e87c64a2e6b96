package fakekube

import (
	"errors"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// quantityPattern is the syntax of quantities, as the server's message names it.
const quantityPattern = `^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$`

var quantitySyntax = regexp.MustCompile(quantityPattern)

var (
	errQuantity       = errors.New("quantities must match the regular expression '" + quantityPattern + "'")
	errQuantitySuffix = errors.New("unable to parse quantity's suffix")
)

// The suffixes of quantities in steps of 1000, from that of nano on, and in steps of 1024.
var (
	decimalSuffixes = []string{"n", "u", "m", "", "k", "M", "G", "T", "P", "E"}
	binarySuffixes  = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}
)

// Exponents of ten.
const (
	nanoExponent  = -9 // of the finest quantity
	milliExponent = -3 // of the finest amount of a resource
	maxExponent   = 30 // the greatest that the fake reads
)

// quantity is an amount of something, such as "100m" or "1Gi".
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
type quantity struct {
	amount     *big.Rat
	isBinary   bool // it was said with a suffix such as "Ki"
	isExponent bool // it was said with an exponent, as in "1e3"
}

// parseQuantity reads a quantity. Its errors are in the server's words.
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
	if !q.scale(parts[2]) {
		return quantity{}, errQuantitySuffix
	}
	q.roundUp(nanoExponent)
	return q, nil
}

// roundUp leaves no more digits of the amount than those down to this power of ten.
func (q *quantity) roundUp(exponent int) {
	units := roundedUp(new(big.Rat).Mul(q.amount, power(10, -exponent)))
	q.amount.Mul(new(big.Rat).SetInt(units), power(10, exponent))
}

// scale multiplies the amount by what a suffix stands for. It reports whether there is such a suffix.
func (q *quantity) scale(suffix string) bool {
	for i, known := range decimalSuffixes {
		if suffix == known {
			q.amount.Mul(q.amount, power(10, nanoExponent+3*i))
			return true
		}
	}
	for i, known := range binarySuffixes {
		if suffix == known {
			q.isBinary = true
			q.amount.Mul(q.amount, power(1024, i))
			return true
		}
	}
	exponent, err := strconv.Atoi(strings.TrimLeft(suffix, "eE"))
	if err != nil || exponent < -maxExponent || exponent > maxExponent {
		return false
	}
	q.isExponent = true
	q.amount.Mul(q.amount, power(10, exponent))
	return true
}

// power is a power of a number. The exponent may be negative.
func power(base, exponent int) *big.Rat {
	whole := new(big.Int).Exp(big.NewInt(int64(base)), big.NewInt(int64(max(exponent, -exponent))), nil)
	result := new(big.Rat).SetInt(whole)
	if exponent < 0 {
		result.Inv(result)
	}
	return result
}

// roundedUp is the next whole number, away from zero.
func roundedUp(amount *big.Rat) *big.Int {
	whole, rest := new(big.Int).QuoRem(amount.Num(), amount.Denom(), new(big.Int))
	return whole.Add(whole, big.NewInt(int64(rest.Sign())))
}

// String is the quantity as the server shows it: a whole number, with the greatest suffix that leaves it whole.
func (q quantity) String() string {
	size := new(big.Rat).Abs(q.amount)
	switch {
	case size.Sign() == 0:
		return "0"
	case q.isBinary && q.isWhole() && size.Cmp(big.NewRat(1024, 1)) >= 0:
		number, steps := withoutFactor(q.amount.Num(), 1024, len(binarySuffixes)-1)
		return number.String() + binarySuffixes[steps]
	}
	nanos := roundedUp(new(big.Rat).Mul(q.amount, power(10, -nanoExponent)))
	number, steps := withoutFactor(nanos, 1000, len(decimalSuffixes)-1)
	exponent := nanoExponent + 3*steps
	if q.isExponent && exponent != 0 {
		return number.String() + "e" + strconv.Itoa(exponent)
	}
	return number.String() + decimalSuffixes[steps]
}

// withoutFactor divides a number by a factor as often as that leaves it whole, but not more often than limit.
func withoutFactor(number *big.Int, factor int64, limit int) (left *big.Int, steps int) {
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

// quantitiesIn are the quantities under a field of an object, by name, without what is none.
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
