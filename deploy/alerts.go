package deploy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// AlertRules returns the file alerts.yaml: rules for Prometheus about every podcount that it scrapes. From the same
// template, Manifest makes the part alerts: a PrometheusRule about one podcount.
func AlertRules() (string, error) {
	terms := newTerms(Settings{
		Name:          "podcount",
		ruleFile:      true,
		PodCount:      true,
		Count:         true,
		LeaderElect:   true,
		QPS:           20,
		StuckAfter:    131 * time.Second,
		LeaseDuration: 15 * time.Second,
	})
	return terms.renderFile(fileOf("alerts"))
}

// matchers returns the label matchers that limit an alert to the pods of this podcount. A rule file has none.
func (s Settings) matchers() string {
	if s.ruleFile {
		return ""
	}
	return "namespace=" + strconv.Quote(s.Namespace) + ",pod=~" + strconv.Quote(s.podPattern())
}

// podPattern returns a regular expression for the names of the Deployment's pods. Such a name is NAME-HASH-SUFFIX.
// Kubernetes cuts everything before the suffix to 58 characters. If a name is long enough to be cut, the pattern is
// less exact.
func (s Settings) podPattern() string {
	const longestUncut = 58 - len("-1234567890-")
	escape := strings.NewReplacer(".", `\.`) // no other character of a name has a meaning in a pattern
	if len(s.Name) > longestUncut {
		return escape.Replace(s.Name[:longestUncut]) + ".+"
	}
	return escape.Replace(s.Name) + "-[a-z0-9]+-[a-z0-9]+"
}

// window returns how far back an alert looks for work that was done, or that failed. With a small QPS, work is rare:
// the window must have room for ten writes, and for one write that takes as long as StuckAfter.
func (s Settings) window() time.Duration {
	tenWrites := time.Duration(min(10/s.QPS, 1e6) * float64(time.Second))
	return max(5*time.Minute, tenWrites, s.StuckAfter)
}

// leaderless returns how long there may be no leader. A handover takes less time, even if the old leader was killed.
func (s Settings) leaderless() time.Duration {
	return max(2*time.Minute, 2*s.LeaseDuration)
}

// minutes writes a duration for Prometheus, rounded up to minutes.
func minutes(d time.Duration) string {
	return roundedUp(d.Minutes()) + "m"
}

func roundedUp(number float64) string {
	return strconv.Itoa(int(math.Ceil(number)))
}

// addAlertValues adds the values that only the template of the alerts uses.
func (s Settings) addAlertValues(values map[string]string) {
	values["OF"] = ""     // after a metric without matchers of its own
	values["AND_OF"] = "" // after its own matchers
	if matchers := s.matchers(); matchers != "" {
		values["OF"] = "{" + matchers + "}"
		values["AND_OF"] = "," + matchers
	}
	values["STUCK_SECONDS"] = roundedUp(s.StuckAfter.Seconds())
	values["WINDOW"] = minutes(s.window())
	values["TWICE_WINDOW"] = minutes(2 * s.window())
	values["LEADERLESS"] = minutes(s.leaderless())

	// Prometheus replaces these itself.
	values["labels"] = "$labels"
	values["value"] = "$value"
}
