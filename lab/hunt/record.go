package hunt

import (
	"regexp"
	"strconv"
	"time"
)

// A Record is the output of a playground, line by line.
type Record []Line

// Line is a line of output.
type Line struct {
	At   time.Duration // when it came, since the start of the playground
	Text string
}

// has reports whether a line matches an expression.
func (r Record) has(expression string) bool { return r.count(expression) > 0 }

// count returns how many lines match an expression.
func (r Record) count(expression string) int { return len(r.times(expression)) }

// times returns when the lines came that match an expression.
func (r Record) times(expression string) (at []time.Duration) {
	pattern := regexp.MustCompile(expression)
	for _, line := range r {
		if pattern.MatchString(line.Text) {
			at = append(at, line.At)
		}
	}
	return at
}

// first returns when the first line came that matches an expression, or how long the playground may run at most if
// none has come.
func (r Record) first(expression string) time.Duration {
	for _, at := range r.times(expression) {
		return at
	}
	return time.Hour
}

// after returns the lines from the first one that matches an expression on.
func (r Record) after(expression string) Record {
	pattern := regexp.MustCompile(expression)
	for i, line := range r {
		if pattern.MatchString(line.Text) {
			return r[i:]
		}
	}
	return nil
}

// texts returns what an expression matches, one text for each line that has it.
func (r Record) texts(expression string) (found []string) {
	pattern := regexp.MustCompile(expression)
	for _, line := range r {
		if text := pattern.FindString(line.Text); text != "" {
			found = append(found, text)
		}
	}
	return found
}

// numbers returns the numbers that an expression captures first, one for each line that matches.
func (r Record) numbers(expression string) (found []int) {
	pattern := regexp.MustCompile(expression)
	for _, line := range r {
		if match := pattern.FindStringSubmatch(line.Text); match != nil {
			n, err := strconv.Atoi(match[1])
			if err == nil {
				found = append(found, n)
			}
		}
	}
	return found
}

// status is what the playground tells every five seconds.
type status struct {
	pods  string
	label string // "-" if there is none
	sent  string // podcount's requests, in words
}

// statusPattern matches a line with a status.
var statusPattern = regexp.MustCompile(
	`^playground: \d+ s: (\d+) pods?, and the label says (\S+); in 5 s, podcount sent (.*)$`)

// statuses returns what the playground has told every five seconds.
func (r Record) statuses() (all []status) {
	for _, line := range r {
		if match := statusPattern.FindStringSubmatch(line.Text); match != nil {
			all = append(all, status{match[1], match[2], match[3]})
		}
	}
	return all
}

// endsWrong reports whether the label is wrong in the last two statuses.
func (r Record) endsWrong() bool {
	all := r.statuses()
	if len(all) < 2 {
		return false
	}
	for _, s := range all[len(all)-2:] {
		if s.label == s.pods {
			return false
		}
	}
	return true
}

// sentOf returns how many requests of a kind a status tells of, such as "watch".
func (s status) sentOf(kind string) int {
	found := Record{{Text: s.sent}}.numbers(`(\d+) ` + kind + `(?:s|es)?\b`)
	if len(found) == 0 {
		return 0
	}
	return found[0]
}

// most returns the highest number of requests of a kind that a status tells of.
func (r Record) most(kind string) (most int) {
	for _, s := range r.statuses() {
		most = max(most, s.sentOf(kind))
	}
	return most
}

// sum returns how many requests of a kind all statuses tell of.
func (r Record) sum(kind string) (sum int) {
	for _, s := range r.statuses() {
		sum += s.sentOf(kind)
	}
	return sum
}

// withoutStatuses returns what comes after the first statuses.
func (r Record) withoutStatuses(count int) Record {
	for i, line := range r {
		if statusPattern.MatchString(line.Text) {
			count--
		}
		if count < 0 {
			return r[i:]
		}
	}
	return nil
}
