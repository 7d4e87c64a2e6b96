package fakekube

import (
	"cmp"
	"fmt"
	"strings"
)

// Requests chooses requests. A field that is empty lets all of them pass, so that the zero value is every request.
//
// A field is one text, several with a "|" between them, or the beginning of one with a "*" at its end: the Resource
// "pods|nodes" is either, the Name "web-*" each that begins so.
type Requests struct {
	// Verb is a verb of RBAC, as in Route, or "write": create, update, patch, delete and deletecollection.
	Verb string

	// Resource is the plural name, with the subresource as RBAC writes it: "counts/status" is the status alone, "counts"
	// the object alone. Where it begins with a slash, it is the path of the request, such as "/version".
	Resource string

	Namespace string
	Name      string

	// User is the name of the user, or the bearer token.
	User string

	// Host is the HOST:PORT by which the client calls the server.
	Host string

	// If, where it is not nil, has the last word. It is called with the fake locked, and must not call it. The text form
	// has no words for it.
	If func(Request) bool
}

// writingVerbs is what the verb "write" stands for.
const writingVerbs = "create|update|patch|delete|deletecollection"

// verbs are those of RBAC, "write", and the methods of requests for what is no resource.
const verbs = "list|watch|get|write|head|options|post|put|" + writingVerbs

// matches reports whether a request is one of those that are chosen.
func (r Requests) matches(q Request) bool {
	what := q.fullResource()
	if strings.HasPrefix(r.Resource, "/") {
		what = q.Path
	}
	return matchesField(r.Resource, what) && matchesField(r.Namespace, q.Namespace) && matchesField(r.Name, q.Name) && r.matchesSender(q)
}

// matchesSender is match by the verb, the user, the host and If alone: it does not look at which object the request is
// about.
func (r Requests) matchesSender(q Request) bool {
	wanted := strings.ReplaceAll(r.Verb, "write", writingVerbs)
	isByUser := matchesField(r.User, q.User) || q.Token != "" && matchesField(r.User, q.Token)
	return matchesField(wanted, q.Verb) && isByUser && matchesField(r.Host, q.Host) && (r.If == nil || r.If(q))
}

// matchesField reports whether a field of Requests lets a value pass.
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

// subresources are those of the Kubernetes API. They tell a name after a slash, which is a mistake, from a subresource.
const subresources = "status|scale|token|eviction|binding|log|exec|attach|portforward|proxy|ephemeralcontainers|" +
	"resize|finalize|approval"

// problem says what is wrong with the choice; "" is nothing.
func (r Requests) problem() string {
	for verb := range strings.SplitSeq(r.Verb, "|") {
		if verb != "" && !matchesField(verbs, verb) && !strings.HasSuffix(verb, "*") {
			return fmt.Sprintf("%q is no verb: list, watch, get, create, update, patch, delete, deletecollection and write "+
				"are, and * is any", verb)
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

// String is the choice in the words of Script. For If, it says "if …", which Script does not read.
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
