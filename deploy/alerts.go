package deploy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// AlertRules returns the contents of alerts.yaml: Prometheus rules for every podcount that Prometheus scrapes.
// Manifest prints the same alerts for one podcount, as a PrometheusRule.
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
	values["LEADERLESS"] = minutes(s.maxLeaderless())

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
// Kubernetes cuts NAME-HASH- to 58 characters. The pattern for a name that may be cut is less exact.
func (s Settings) podPattern() string {
	const longestUncut = 58 - len("-1234567890-")
	escape := strings.NewReplacer(".", `\.`) // A name has no other character with a meaning in a pattern.
	if len(s.Name) > longestUncut {
		return escape.Replace(s.Name[:longestUncut]) + ".+"
	}
	return escape.Replace(s.Name) + "-[a-z0-9]+-[a-z0-9]+"
}

// alertWindow returns how far back an alert looks for writes. A small QPS makes writes rare, so the window has room for
// ten writes, and for one write that takes StuckAfter.
func (s Settings) alertWindow() time.Duration {
	tenWrites := time.Duration(min(10/s.QPS, 1e6) * float64(time.Second))
	return max(5*time.Minute, tenWrites, s.StuckAfter)
}

// maxLeaderless returns how long there may be no leader before the alert fires. A handover is faster, even after the
// old leader was killed.
func (s Settings) maxLeaderless() time.Duration {
	return max(2*time.Minute, 2*s.LeaseDuration)
}

// minutes formats a duration for Prometheus, rounded up to whole minutes.
func minutes(d time.Duration) string {
	return roundedUp(d.Minutes()) + "m"
}

func roundedUp(number float64) string {
	return strconv.Itoa(int(math.Ceil(number)))
}
