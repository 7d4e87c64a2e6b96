package fakekube

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

// Values of the parameter resourceVersionMatch.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#semantics-for-get-and-list
const (
	matchExact        = "Exact"
	matchNotOlderThan = "NotOlderThan"
)

// listOptions holds the parameters of a list or a watch.
// https://kubernetes.io/docs/reference/kubernetes-api/common-parameters/common-parameters/
type listOptions struct {
	// versionText is the resourceVersion as sent. "0" and "" have different meanings.
	versionText string

	// match is the resourceVersionMatch, or "".
	match string

	// limit is the maximum number of items in a page. 0 or less means no limit.
	limit int64

	// token is the continue token. It is "" for the first page.
	token string

	// timeout is the requested duration of a watch. 0 leaves it to the server, and a negative timeout ends the watch
	// at once.
	timeout time.Duration

	// hasInitialEvents means that sendInitialEvents was set, to the value of wantsInitialEvents. A watch without a
	// version, or from version 0, is treated as if it had set it to true.
	hasInitialEvents   bool
	wantsInitialEvents bool

	wantsBookmarks bool
}

// readListOptions parses and validates the parameters of a list or a watch, in the server's order. If they are
// invalid, it answers so and returns false.
func (r *request) readListOptions() bool {
	o := parseListOptions(r.query)
	isWatch := r.info.Verb == "watch"
	if isWatch {
		o.setWatchDefaults()
	}
	seconds, err := integer(r.query, "timeoutSeconds")
	if err != nil {
		r.badRequest(err.Error())
		return false
	}
	o.limit, err = integer(r.query, "limit")
	if err != nil {
		r.badRequest(err.Error())
		return false
	}
	const longest = 1 << 31 // in seconds; prevents an overflow of the duration
	o.timeout = time.Duration(max(-1, min(seconds, longest))) * time.Second
	if !r.checkSelectors() {
		return false
	}
	var causes []cause
	if isWatch {
		causes = o.validateForWatch()
	} else {
		causes = o.validateForList()
	}
	if len(causes) > 0 {
		r.refuseAs("ListOptions", "meta.k8s.io", "", causes)
		return false
	}
	r.listOptions = o
	return true
}

// parseListOptions parses all parameters that cannot be invalid by themselves.
func parseListOptions(query url.Values) listOptions {
	return listOptions{
		versionText:        query.Get("resourceVersion"),
		match:              query.Get("resourceVersionMatch"),
		token:              query.Get("continue"),
		hasInitialEvents:   query.Has("sendInitialEvents"),
		wantsInitialEvents: isOn(query, "sendInitialEvents"),
		wantsBookmarks:     isOn(query, "allowWatchBookmarks"),
	}
}

// setWatchDefaults requests initial events for a watch that does not say where to begin.
func (o *listOptions) setWatchDefaults() {
	beginsAnywhere := o.versionText == "" || o.versionText == "0"
	if beginsAnywhere && !o.hasInitialEvents && o.match == "" {
		o.hasInitialEvents = true
		o.wantsInitialEvents = true
		o.match = matchNotOlderThan
	}
}

// integer parses a numeric parameter. A missing one is 0; an empty one is an error.
func integer(query url.Values, name string) (int64, error) {
	if !query.Has(name) {
		return 0, nil
	}
	return strconv.ParseInt(query.Get(name), 10, 64)
}

// checkSelectors reports whether the selectors are well formed. If not, it answers 400. The server checks later
// whether the selected fields exist.
func (r *request) checkSelectors() bool {
	_, err := parseLabelSelector(r.query.Get("labelSelector"))
	if err == nil {
		_, err = parseFieldSelector(r.query.Get("fieldSelector"))
	}
	if err != nil {
		r.badRequest(err.Error())
		return false
	}
	return true
}

// validateForList validates the parameters of a list.
func (o listOptions) validateForList() []cause {
	var causes []cause
	if o.match != "" {
		if o.versionText == "" {
			causes = append(causes,
				forbiddenMatch("resourceVersionMatch is forbidden unless resourceVersion is provided"))
		}
		if o.token != "" {
			causes = append(causes, forbiddenMatch("resourceVersionMatch is forbidden when continue is provided"))
		}
		if o.match != matchExact && o.match != matchNotOlderThan {
			causes = append(causes, notSupported("resourceVersionMatch", o.match, matchExact, matchNotOlderThan, ""))
		}
		if o.match == matchExact && o.versionText == "0" {
			causes = append(causes, forbiddenMatch(`resourceVersionMatch "exact" is forbidden for resourceVersion "0"`))
		}
	}
	if o.hasInitialEvents {
		causes = append(causes, forbiddenField("sendInitialEvents", "sendInitialEvents is forbidden for list"))
	}
	return causes
}

// validateForWatch validates the parameters of a watch.
func (o listOptions) validateForWatch() []cause {
	var causes []cause
	if o.hasInitialEvents && o.match != matchNotOlderThan {
		causes = append(causes,
			forbiddenMatch("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
	}
	if o.match == "" {
		return causes
	}
	if !o.hasInitialEvents {
		causes = append(causes,
			forbiddenMatch("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"))
	}
	if o.match != matchNotOlderThan {
		causes = append(causes, notSupported("resourceVersionMatch", o.match, matchNotOlderThan))
	}
	if o.token != "" {
		causes = append(causes, forbiddenMatch("resourceVersionMatch is forbidden when continue is provided"))
	}
	return causes
}

// forbiddenMatch refuses a resourceVersionMatch that contradicts other parameters.
func forbiddenMatch(reason string) cause { return forbiddenField("resourceVersionMatch", reason) }

// parseVersion parses a resourceVersion from a client. An empty string means 0. The error is worded as the server's.
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

// tooLargeVersion returns the Status for a version in the future. If the real server would read from its cache, which
// may lag behind, the Status asks the client to retry.
func (k kind) tooLargeVersion(wanted uint64, current int) any {
	details := Object{
		"causes": []any{Object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}},
	}
	if k.isCached() {
		details["retryAfterSeconds"] = 1
	}
	message := fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", wanted, current)
	return Status(504, "Timeout", message, details)
}

// failTooLargeVersion answers 504 to a request for a version in the future.
func (r *request) failTooLargeVersion(wanted uint64, current int) {
	if r.kind.isCached() {
		r.w.Header().Set("Retry-After", "1")
	}
	r.answer(504, r.kind.tooLargeVersion(wanted, current))
}

// isCached reports whether a real server answers from its watch cache. It does so for all kinds except Events, which
// it reads from etcd.
func (k kind) isCached() bool { return k.place() != "events" }
