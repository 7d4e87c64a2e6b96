package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Steps are the steps of a seed that happen, by their numbers: see Options.Only.
type Steps map[int]bool

// ParseSteps reads numbers and ranges of steps, such as "3,8,20-24". The error quotes the text.
func ParseSteps(text string) (Steps, error) {
	steps := Steps{}
	for part := range strings.SplitSeq(text, ",") {
		first, last, err := parseRange(part)
		if err != nil {
			return nil, fmt.Errorf("steps %q: %w", text, err)
		}
		for number := first; number <= last; number++ {
			steps[int(number)] = true
		}
	}
	return steps, nil
}

// parseRange reads "20-24", or one number, which is a range of its own.
func parseRange(text string) (first, last uint64, err error) {
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err = strconv.ParseUint(from, 10, 31)
	if err != nil {
		return 0, 0, err
	}
	last, err = strconv.ParseUint(to, 10, 31)
	if err != nil {
		return 0, 0, err
	}
	if last < first {
		return 0, 0, fmt.Errorf("%q ends before it begins", text)
	}
	return first, last, nil
}

// String returns the steps in the form that ParseSteps reads.
func (steps Steps) String() string {
	var parts []string
	numbers := slices.Sorted(maps.Keys(steps))
	for len(numbers) > 0 {
		length := 1 // of the range that begins with the first number
		for length < len(numbers) && numbers[length] == numbers[0]+length {
			length++
		}
		part := strconv.Itoa(numbers[0])
		if length > 1 {
			part += "-" + strconv.Itoa(numbers[length-1])
		}
		parts = append(parts, part)
		numbers = numbers[length:]
	}
	return strings.Join(parts, ",")
}

// last returns the largest number, or 0 without any.
func (steps Steps) last() int {
	last := 0
	for number := range steps {
		last = max(last, number)
	}
	return last
}
