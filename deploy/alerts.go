package deploy

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// AlertRules returns the file alerts.yaml: rules for Prometheus itself, about every podcount that it scrapes.
// Manifest prints the part alerts, a PrometheusRule about the one podcount of its Settings, from the same template.
func AlertRules() (string, error) {
	return Settings{
		Name:          "podcount",
		ruleFile:      true,
		PodCount:      true,
		Count:         true,
		LeaderElect:   true,
		QPS:           20,
		StuckAfter:    131 * time.Second,
		LeaseDuration: 15 * time.Second,
	}.terms().renderFile("templates/alerts.yaml")
}

// matchers limit an alert to the pods of this podcount. Those of the rule file hold for every podcount.
func (s Settings) matchers() string {
	if s.ruleFile {
		return ""
	}
	return "namespace=" + strconv.Quote(s.Namespace) + ",pod=~" + strconv.Quote(s.podPattern())
}

// podPattern is a regular expression of the names of the Deployment's pods: its own name, that of a ReplicaSet and
// that of a pod. Kubernetes cuts what comes before the last part to 58 characters. Where that may happen, the pattern
// is less exact.
func (s Settings) podPattern() string {
	const longestWhole = 58 - len("-1234567890-")
	quoted := strings.NewReplacer(".", `\.`) // a name has no other character that means something in a pattern
	if len(s.Name) > longestWhole {
		return quoted.Replace(s.Name[:longestWhole]) + ".+"
	}
	return quoted.Replace(s.Name) + "-[a-z0-9]+-[a-z0-9]+"
}

// window is how far back an alert looks for work that is done, or that fails. At a small QPS that is rare: there must
// be room for ten writes, and for one that takes as long as StuckAfter allows.
func (s Settings) window() time.Duration {
	tenWrites := time.Duration(min(10/s.QPS, 1e6) * float64(time.Second))
	return max(5*time.Minute, tenWrites, s.StuckAfter)
}

// leaderless is how long nobody may lead: a handover takes less, even if the old leader was killed.
func (s Settings) leaderless() time.Duration {
	return max(2*time.Minute, 2*s.LeaseDuration)
}

// minutes writes a duration for Prometheus, rounded up.
func minutes(d time.Duration) string {
	return strconv.Itoa(int(math.Ceil(d.Minutes()))) + "m"
}

// addAlertValues adds what only the template of the alerts asks for.
func (s Settings) addAlertValues(values map[string]string) {
	matchers := s.matchers()
	if matchers != "" {
		values["OF"] = "{" + matchers + "}"
		values["AND_OF"] = "," + matchers
	} else {
		values["OF"] = ""
		values["AND_OF"] = ""
	}
	values["STUCK_SECONDS"] = strconv.Itoa(int(math.Ceil(s.StuckAfter.Seconds())))
	values["WINDOW"] = minutes(s.window())
	values["TWICE_WINDOW"] = minutes(2 * s.window())
	values["LEADERLESS"] = minutes(s.leaderless())
	values["labels"] = "$labels" // Prometheus' own
	values["value"] = "$value"   // Prometheus' own
}
