package fakekube

import (
	"cmp"
	"fmt"
	"strings"
)

// Requests selects requests. An empty field matches anything, so the zero value selects every request.
//
// A field holds alternatives separated by "|", and an alternative that ends in "*" is a prefix: the Resource
// "pods|nodes" matches both, and the Name "web-*" matches every name with that prefix.
type Requests struct {
	// Verb is a verb as in Route, "write", or "relist". "write" means create, update, patch, delete and
	// deletecollection. "relist" is any form in which a client asks for all objects: a list, whole or any of its pages,
	// of any version; and a watch that begins with all objects, because it says sendInitialEvents=true or names no
	// version. A list with limit=1 that continues none is no relist: it asks for the version.
	Verb string

	// Resource is the plural name, with the subresource as in RBAC: "pods/status" is only the status, and "pods"
	// is only the object. The group may stand behind the plural: "widgets.example.com/status". If it begins with a
	// slash, it is the path of the request, such as "/version".
	Resource string

	Namespace string
	Name      string

	// User is the name of the user or the bearer token.
	User string

	// Host is the host by which the client calls the server, as in its URL: with the port only if the URL has one.
	Host string

	// If, if set, must also return true. It is called with the fake locked and must not call it. It has no text form.
	If func(Request) bool
}

// writingVerbs are the verbs that "write" stands for.
const writingVerbs = "create|update|patch|delete|deletecollection"

// verbs are those of RBAC, "write", "relist", and the HTTP methods of requests outside of the resources.
const verbs = "list|watch|relist|get|write|head|options|post|put|" + writingVerbs

// matches reports whether a request is selected.
func (r Requests) matches(q Request) bool {
	hasName := matchesField(r.Namespace, q.Namespace) && matchesField(r.Name, q.Name)
	return r.matchesResource(q) && hasName && r.matchesSender(q)
}

// matchesResource matches only the resource, which may be named with its group.
func (r Requests) matchesResource(q Request) bool {
	if strings.HasPrefix(r.Resource, "/") {
		return matchesField(r.Resource, q.Path)
	}
	qualified := q.Route
	qualified.Resource += "." + q.Group
	return matchesField(r.Resource, q.fullResource()) || matchesField(r.Resource, qualified.fullResource())
}

// matchesSender matches only the verb, the user, the host and If, not the object of the request.
func (r Requests) matchesSender(q Request) bool {
	isByUser := matchesField(r.User, q.User) || q.Token != "" && matchesField(r.User, q.Token)
	return r.matchesVerb(q) && isByUser && matchesField(r.Host, q.Host) && (r.If == nil || r.If(q))
}

func (r Requests) matchesVerb(q Request) bool {
	wanted := strings.ReplaceAll(r.Verb, "write", writingVerbs)
	return matchesField(wanted, q.Verb) || q.isRelist() && matchesField(wanted, "relist")
}

// isRelist reports whether the client asks for all objects.
func (q Request) isRelist() bool {
	switch q.Verb {
	case "list":
		return q.Query.Get("limit") != "1" || q.Query.Get("continue") != ""
	case "watch":
		options := parseListOptions(q.Query)
		options.setWatchDefaults()
		return options.wantsInitialEvents && q.Name == ""
	}
	return false
}

// matchesField reports whether a field of Requests matches a value.
func matchesField(field, value string) bool {
	if field == "" {
		return true
	}
	for one := range strings.SplitSeq(field, "|") {
		beginning, isOpen := strings.CutSuffix(one, "*")
		if one == value || isOpen && strings.HasPrefix(value, beginning) {
			return true
		}
	}
	return false
}

// subresources are those of the Kubernetes API. Anything else after a slash is probably a misplaced name.
const subresources = "status|scale|token|eviction|binding|log|exec|attach|portforward|proxy|ephemeralcontainers|" +
	"resize|finalize|approval"

// problem says why the selection is invalid. It returns "" if it is valid.
func (r Requests) problem() string {
	for verb := range strings.SplitSeq(r.Verb, "|") {
		if verb != "" && !matchesField(verbs, verb) && !strings.HasSuffix(verb, "*") {
			return fmt.Sprintf("%q is no verb: list, watch, relist, get, create, update, patch, "+
				"delete, deletecollection and write are, and * is any", verb)
		}
	}
	if strings.HasPrefix(r.Resource, "/") {
		if r.Name != "" || r.Namespace != "" {
			return "a path has neither name nor namespace"
		}
		return ""
	}
	for resource := range strings.SplitSeq(r.Resource, "|") {
		plural, sub, hasSub := strings.Cut(resource, "/")
		if hasSub && !matchesField(subresources, sub) && !strings.HasSuffix(sub, "*") {
			return fmt.Sprintf("%q is no subresource: a name stands after a blank, as in %q", sub, plural+" "+sub)
		}
	}
	return ""
}

// String returns the selection in the text form of Script. It shows If as "if …", which Script cannot parse.
func (r Requests) String() string {
	words := []string{word(cmp.Or(r.Verb, "*"))}
	if r.Resource != "" || r.Name != "" {
		words = append(words, word(cmp.Or(r.Resource, "*")))
	}
	if r.Name != "" {
		words = append(words, word(r.Name))
	}
	for _, clause := range []struct{ preposition, value string }{{"in", r.Namespace}, {"by", r.User}, {"at", r.Host}} {
		if clause.value != "" {
			words = append(words, clause.preposition, word(clause.value))
		}
	}
	if r.If != nil {
		words = append(words, "if …")
	}
	return strings.Join(words, " ")
}
