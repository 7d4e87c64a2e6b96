package fakekube

import (
	"fmt"
	"net/url"
	"strconv"
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
	// versionText is the resourceVersion as it was sent: "0" and "" differ.
	versionText string

	// match is the resourceVersionMatch, "" where there is none.
	match string

	// limit is the largest number of items in a page. 0 and less is no limit.
	limit int64

	// token is the continue token, "" on the first page.
	token string

	// timeout is how long a watch goes on. 0 leaves that to the server; a watch with a negative timeout ends at once.
	timeout time.Duration

	// hasInitialEvents says that the client has set sendInitialEvents, to the value of wantsInitialEvents. A watch
	// that begins at no version or at 0 counts as one that has set it to true.
	hasInitialEvents   bool
	wantsInitialEvents bool

	wantsBookmarks bool
}

// readListOptions reads and checks the parameters of a list or a watch. Where they are invalid, it answers so and
// reports false. The order of the checks is the server's.
func (r *request) readListOptions() bool {
	o := listOptions{
		versionText:        r.query.Get("resourceVersion"),
		match:              r.query.Get("resourceVersionMatch"),
		token:              r.query.Get("continue"),
		hasInitialEvents:   r.query.Has("sendInitialEvents"),
		wantsInitialEvents: isOn(r.query, "sendInitialEvents"),
		wantsBookmarks:     isOn(r.query, "allowWatchBookmarks"),
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
	const longest = 1 << 31 // in seconds, so that the duration does not overflow
	o.timeout = time.Duration(max(-1, min(seconds, longest))) * time.Second

	isWatch := r.info.Verb == "watch"
	beginsAnywhere := o.versionText == "" || o.versionText == "0"
	if isWatch && beginsAnywhere && !o.hasInitialEvents && o.match == "" {
		o.hasInitialEvents = true
		o.wantsInitialEvents = true
		o.match = matchNotOlderThan
	}
	if !r.checkSelectors() {
		return false
	}
	var causes []cause
	if isWatch {
		causes = o.watchCauses()
	} else {
		causes = o.listCauses()
	}
	if len(causes) > 0 {
		r.refuseAs("ListOptions", "meta.k8s.io", "", causes)
		return false
	}
	r.listOptions = o
	return true
}

// integer reads a parameter that is a number. It is 0 where there is none, but not where it is empty.
func integer(query url.Values, name string) (int64, error) {
	if !query.Has(name) {
		return 0, nil
	}
	return strconv.ParseInt(query.Get(name), 10, 64)
}

// checkSelectors reports whether the selectors are well formed. The server looks at the fields that they name later.
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

// listCauses is what is wrong with the parameters of a list.
func (o listOptions) listCauses() []cause {
	var causes []cause
	if o.match != "" {
		if o.versionText == "" {
			causes = append(causes, forbiddenMatch("resourceVersionMatch is forbidden unless resourceVersion is provided"))
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

// watchCauses is what is wrong with the parameters of a watch.
func (o listOptions) watchCauses() []cause {
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

// forbiddenMatch refuses a resourceVersionMatch that does not go with the other parameters.
func forbiddenMatch(why string) cause { return forbiddenField("resourceVersionMatch", why) }

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

// tooLargeVersion is the Status that refuses a version from the future. A server that reads from its cache asks for patience:
// the cache may not have come that far yet.
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

// failTooLargeVersion answers a request for a version from the future.
func (r *request) failTooLargeVersion(wanted uint64, current int) {
	if r.kind.isCached() {
		r.w.Header().Set("Retry-After", "1")
	}
	r.answer(504, r.kind.tooLargeVersion(wanted, current))
}

// isCached reports whether a real server answers for the kind from its watch cache. It does for all kinds but Events,
// for which it asks etcd.
func (k kind) isCached() bool { return k.group != "" || k.resource != "events" }
