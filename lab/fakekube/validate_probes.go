package fakekube

import (
	"fmt"
	"regexp"
	"strings"
)

// validateProbes validates the probes of a container.
// https://kubernetes.io/docs/concepts/configuration/liveness-readiness-startup-probes/
func validateProbes(container Object, path string) []cause {
	var causes []cause
	for _, field := range []string{"livenessProbe", "readinessProbe", "startupProbe"} {
		probe := objectIn(container, field)
		if probe == nil {
			continue
		}
		at := path + field
		causes = append(causes, validateProbeHandler(probe, at)...)
		times := []string{
			"initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold",
		}
		for _, field := range times {
			if number, _ := probe[field].(float64); number < 0 {
				causes = append(causes, invalidValue(at+"."+field, number, "must be greater than or equal to 0"))
			}
		}
		successes, isSet := probe["successThreshold"].(float64)
		if isSet && successes != 1 && field != "readinessProbe" {
			causes = append(causes, invalidValue(at+".successThreshold", successes, "must be 1"))
		}
	}
	return causes
}

// validateProbeHandler validates that a probe has exactly one handler.
func validateProbeHandler(probe Object, path string) []cause {
	var causes []cause
	handlers := 0
	for _, name := range []string{"exec", "httpGet", "tcpSocket", "grpc"} {
		handler := objectIn(probe, name)
		if handler == nil {
			continue
		}
		handlers++
		at := path + "." + name
		switch {
		case handlers > 1:
			causes = append(causes, forbiddenField(at, "may not specify more than 1 handler type"))
		case name == "exec" && len(textsIn(handler["command"])) == 0:
			causes = append(causes, required(at+".command", ""))
		case name == "httpGet":
			causes = append(causes, validateProbePort(handler["port"], at+".port")...)
			causes = append(causes, validateOneOf(handler, at+".", "scheme", "HTTP", "HTTPS")...)
		case name == "tcpSocket":
			causes = append(causes, validateProbePort(handler["port"], at+".port")...)
		}
	}
	if handlers == 0 {
		causes = append(causes, required(path, "must specify a handler type"))
	}
	return causes
}

// validateProbePort validates the port of a probe, which is a number or a name.
func validateProbePort(port any, path string) []cause {
	var causes []cause
	name, isName := port.(string)
	if isName {
		for _, problem := range portNameProblems(name) {
			causes = append(causes, invalidValue(path, name, problem))
		}
		return causes
	}
	number, _ := port.(float64)
	if number < 1 || number > maxPort {
		causes = append(causes, invalidValue(path, number, "must be between 1 and 65535, inclusive"))
	}
	return causes
}

// portNameLength is how many characters the name of a port may have.
const portNameLength = 15

var portNameSyntax = regexp.MustCompile(`^[-a-z0-9]+$`)

// portNameProblems returns all problems of a port's name in the server's words.
// https://www.rfc-editor.org/rfc/rfc6335#section-5.1
func portNameProblems(name string) []string {
	var problems []string
	if len(name) > portNameLength {
		problems = append(problems, fmt.Sprintf("must be no more than %d characters", portNameLength))
	}
	if !portNameSyntax.MatchString(name) {
		problems = append(problems, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
	}
	if !strings.ContainsAny(name, "abcdefghijklmnopqrstuvwxyz") {
		problems = append(problems, "must contain at least one letter (a-z)")
	}
	if strings.Contains(name, "--") {
		problems = append(problems, "must not contain consecutive hyphens")
	}
	if strings.HasPrefix(name, "-") || strings.HasSuffix(name, "-") {
		problems = append(problems, "must not begin or end with a hyphen")
	}
	return problems
}
