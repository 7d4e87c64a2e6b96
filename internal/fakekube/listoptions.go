package fakekube

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The values of the parameter resourceVersionMatch.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
const (
	matchExact        = "Exact"
	matchNotOlderThan = "NotOlderThan"
)

// listOptions are the parameters of a list or a watch.
// https://kubernetes.io/docs/reference/kubernetes-api/common-parameters/common-parameters/
type listOptions struct {
	selects func(Object) bool

	// versionText is the resourceVersion as it was sent: "0" and "" differ.
	versionText string

	// version is the same as a number, 0 where there is none.
	version uint64

	// match is the resourceVersionMatch, "" where there is none.
	match string

	// limit is the largest number of items in a page. 0 and less is no limit.
	limit int64

	// token is the continue token, "" on the first page.
	token string

	// timeout is how long a watch goes on. 0 leaves that to the server.
	timeout time.Duration

	// hasInitialEvents says that the client has set sendInitialEvents, to the value of wantsInitialEvents. A watch
	// that begins at no version or at 0 counts as one that has set it to true.
	hasInitialEvents   bool
	wantsInitialEvents bool

	wantsBookmarks bool
}

// listOptions reads and checks the parameters of a list or a watch. It reports whether they are valid; where they are
// not, that is answered. The order of the checks is the server's.
func (r *request) listOptions() (o listOptions, isValid bool) {
	o = listOptions{
		versionText:        r.q.Get("resourceVersion"),
		match:              r.q.Get("resourceVersionMatch"),
		token:              r.q.Get("continue"),
		hasInitialEvents:   r.q.Has("sendInitialEvents"),
		wantsInitialEvents: isOn(r.q, "sendInitialEvents"),
		wantsBookmarks:     isOn(r.q, "allowWatchBookmarks"),
	}
	seconds, err := integer(r.q.Get("timeoutSeconds"))
	if err == nil {
		o.limit, err = integer(r.q.Get("limit"))
	}
	if err != nil {
		r.fail(400, "BadRequest", err.Error(), nil)
		return o, false
	}
	const longest = 1 << 31
	o.timeout = time.Duration(max(-1, min(seconds, longest))) * time.Second

	isWatch := r.asked.Verb == "watch"
	beginsAnywhere := o.versionText == "" || o.versionText == "0"
	if isWatch && beginsAnywhere && !o.hasInitialEvents && o.match == "" {
		o.hasInitialEvents = true
		o.wantsInitialEvents = true
		o.match = matchNotOlderThan
	}
	if !r.parsesSelectors() {
		return o, false
	}
	causes := o.problemsOfList()
	if isWatch {
		causes = o.problemsOfWatch()
	}
	if len(causes) > 0 {
		r.invalidOptions(causes)
		return o, false
	}
	o.selects = r.selection()
	return o, o.selects != nil
}

// integer reads a parameter that is a number. The empty text is 0.
func integer(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// parsesSelectors reports whether the selectors are well formed. The server looks at the fields that they name later.
func (r *request) parsesSelectors() bool {
	_, err := parseLabelSelector(r.q.Get("labelSelector"))
	if err == nil {
		_, err = parseFieldSelector(r.q.Get("fieldSelector"))
	}
	if err != nil {
		r.fail(400, "BadRequest", err.Error(), nil)
		return false
	}
	return true
}

// optionProblem is what is wrong with one parameter.
type optionProblem struct {
	field  string
	reason string // of the cause in the Status
	words  string
}

func forbiddenOption(field, words string) optionProblem {
	return optionProblem{field, "FieldValueForbidden", "Forbidden: " + words}
}

func unsupportedMatch(match, supported string) optionProblem {
	words := fmt.Sprintf("Unsupported value: %q: supported values: %s", match, supported)
	return optionProblem{"resourceVersionMatch", "FieldValueNotSupported", words}
}

// problemsOfList is what is wrong with the parameters of a list.
func (o listOptions) problemsOfList() (all []optionProblem) {
	if o.match != "" {
		if o.versionText == "" {
			all = append(all, forbiddenOption("resourceVersionMatch",
				"resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.token != "" {
			all = append(all, forbiddenOption("resourceVersionMatch",
				"resourceVersionMatch is forbidden when continue is provided"))
		}
		if o.match != matchExact && o.match != matchNotOlderThan {
			all = append(all, unsupportedMatch(o.match, `"Exact", "NotOlderThan", ""`))
		}
		if o.match == matchExact && o.versionText == "0" {
			all = append(all, forbiddenOption("resourceVersionMatch",
				`resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if o.hasInitialEvents {
		all = append(all, forbiddenOption("sendInitialEvents", "sendInitialEvents is forbidden for list"))
	}
	return all
}

// problemsOfWatch is what is wrong with the parameters of a watch.
func (o listOptions) problemsOfWatch() (all []optionProblem) {
	if o.hasInitialEvents && o.match != matchNotOlderThan {
		all = append(all, forbiddenOption("resourceVersionMatch",
			"sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if o.match == "" {
		return all
	}
	if !o.hasInitialEvents {
		all = append(all, forbiddenOption("resourceVersionMatch",
			"resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	}
	if o.match != matchNotOlderThan {
		all = append(all, unsupportedMatch(o.match, `"NotOlderThan"`))
	}
	if o.token != "" {
		all = append(all, forbiddenOption("resourceVersionMatch",
			"resourceVersionMatch is forbidden when continue is provided"))
	}
	return all
}

// invalidOptions refuses parameters that do not go together.
func (r *request) invalidOptions(problems []optionProblem) {
	var words []string
	var causes []any
	for _, p := range problems {
		words = append(words, p.field+": "+p.words)
		causes = append(causes, Object{"reason": p.reason, "message": p.words, "field": p.field})
	}
	why := words[0]
	if len(words) > 1 {
		why = "[" + strings.Join(words, ", ") + "]"
	}
	r.fail(422, "Invalid", `ListOptions.meta.k8s.io "" is invalid: `+why, Object{
		"group":  "meta.k8s.io",
		"kind":   "ListOptions",
		"causes": causes,
	})
}

// parseVersion reads a resourceVersion that a client has sent. The empty text is 0. The error is in the server's words.
func parseVersion(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	version, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("resourceVersion: Invalid value: %q: %w", text, err)
	}
	return version, nil
}

// tooLarge is the Status that refuses a version from the future. A server that reads from its cache asks for patience:
// the cache may not have come that far yet.
func (k kind) tooLarge(wanted uint64, current int) any {
	details := Object{
		"causes": []any{Object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}},
	}
	if k.isCached() {
		details["retryAfterSeconds"] = 1
	}
	message := fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", wanted, current)
	return Status(504, "Timeout", message, details)
}

// failTooLarge answers a request for a version from the future.
func (r *request) failTooLarge(wanted uint64, current int) {
	if r.kind.isCached() {
		r.w.Header().Set("Retry-After", "1")
	}
	r.answer(504, r.kind.tooLarge(wanted, current))
}

// isCached reports whether a real server answers for the kind from its watch cache. It does for all kinds but Events,
// for which it asks etcd.
func (k kind) isCached() bool { return k.group != "" || k.resource != "events" }
