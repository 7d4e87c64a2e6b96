package deploy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// addAlertValues adds the values that only the template of the alerts uses.
func (s Settings) addAlertValues(values map[string]string) {
	values["MATCHERS"] = ""      // for a metric without other matchers
	values["MORE_MATCHERS"] = "" // after the other matchers of a metric
	if matchers := s.matchers(); matchers != "" {
		values["MATCHERS"] = "{" + matchers + "}"
		values["MORE_MATCHERS"] = "," + matchers
	}
	values["STUCK_SECONDS"] = roundedUp(s.StuckAfter.Seconds())
	values["WINDOW"] = minutes(s.alertWindow())
	values["TWICE_WINDOW"] = minutes(2 * s.alertWindow())
	// A handover takes less, even after the old leader was killed.
	values["LEADERLESS"] = minutes(max(2*time.Minute, 2*s.LeaseDuration))

	// Prometheus itself replaces these two.
	values["labels"] = "$labels"
	values["value"] = "$value"
}

// matchers returns the label matchers that limit an alert to the pods of this podcount. It returns "" for a rule file.
func (s Settings) matchers() string {
	if s.ruleFile {
		return ""
	}
	return "namespace=" + strconv.Quote(s.Namespace) + ",pod=~" + strconv.Quote(s.podPattern())
}

// podPattern returns a regular expression for the names of the Deployment's pods, which are NAME-HASH-SUFFIX.
func (s Settings) podPattern() string {
	name := strings.ReplaceAll(s.Name, ".", `\.`) // It has no other character with a meaning in a pattern.
	return name + "-[a-z0-9]+-[a-z0-9]+"
}

// alertWindow returns how far back an alert looks for writes. A small QPS makes writes rare, so the window has room for
// ten writes, and for one write that takes StuckAfter.
func (s Settings) alertWindow() time.Duration {
	tenWrites := time.Duration(min(10/s.QPS, 1e6) * float64(time.Second))
	return max(5*time.Minute, tenWrites, s.StuckAfter)
}

// minutes formats a duration for Prometheus, rounded up to whole minutes.
func minutes(d time.Duration) string {
	return roundedUp(d.Minutes()) + "m"
}

func roundedUp(number float64) string {
	return strconv.Itoa(int(math.Ceil(number)))
}
