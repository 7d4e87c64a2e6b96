package deploy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// AlertRules returns the file alerts.yaml: Prometheus rules about every podcount that Prometheus scrapes. Manifest uses
// the same template for the part alerts, which is a PrometheusRule about one podcount.
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

// matchers returns the label matchers that limit an alert to the pods of this podcount. It returns "" for a rule file.
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

// alertWindow returns how far back an alert looks for successful or failed writes. With a small QPS, writes are rare:
// the window must be long enough for ten writes, and for one write that takes StuckAfter.
func (s Settings) alertWindow() time.Duration {
	tenWrites := time.Duration(min(10/s.QPS, 1e6) * float64(time.Second))
	return max(5*time.Minute, tenWrites, s.StuckAfter)
}

// maxLeaderless returns how long there may be no leader before the alert fires. A handover is faster, even if the old
// leader was killed.
func (s Settings) maxLeaderless() time.Duration {
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
	values["OF"] = ""     // follows a metric without matchers
	values["AND_OF"] = "" // follows the matchers of a metric
	if matchers := s.matchers(); matchers != "" {
		values["OF"] = "{" + matchers + "}"
		values["AND_OF"] = "," + matchers
	}
	values["STUCK_SECONDS"] = roundedUp(s.StuckAfter.Seconds())
	values["WINDOW"] = minutes(s.alertWindow())
	values["TWICE_WINDOW"] = minutes(2 * s.alertWindow())
	values["LEADERLESS"] = minutes(s.maxLeaderless())

	// Prometheus replaces these itself.
	values["labels"] = "$labels"
	values["value"] = "$value"
}
