package main

// main_test.go holds the fake API server, the playground that `make run` starts it as, and every test. The fake keeps
// one linear history of changes and answers in the shapes of a real kube-apiserver v1.35, some of whose exchanges stand
// in testdata/transcripts. Most tests run the whole program against it in virtual time (testing/synctest).

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"podcount/internal/labels"
	"podcount/internal/yaml"
)

func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "playground":
		os.Exit(playground(os.Args[2:]))
	case os.Getenv("PODCOUNT_TEST_PLUGIN") != "":
		os.Exit(plugin(os.Getenv("PODCOUNT_TEST_PLUGIN")))
	case os.Getenv("PODCOUNT_TEST_MAIN") != "":
		main() // the program itself, for tests of signals and exit codes
		os.Exit(0)
	}
	before := held()
	code := m.Run()
	var left map[string]string
	for range 100 { // what ends by itself may take a moment
		left = held()
		maps.DeleteFunc(left, func(name, _ string) bool { return before[name] != "" })
		if len(left) == 0 {
			os.Exit(code)
		}
		<-time.After(50 * time.Millisecond)
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		fmt.Printf("left behind by a test: %s: %s\n\n", name, left[name])
	}
	os.Exit(1)
}

// held are the goroutines and open files of this process, idle connections among them, but not what Go itself makes once
// and keeps.
func held() map[string]string {
	all, stacks := map[string]string{}, make([]byte, 16<<20)
	for stack := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
		if name, where, _ := strings.Cut(stack, " ["); !strings.Contains(where, "os/signal.loop") {
			all[name] = where
		}
	}
	files, _ := os.ReadDir("/proc/self/fd") // on Linux
	for _, file := range files {
		what, err := os.Readlink("/proc/self/fd/" + file.Name())
		if err == nil && what != "anon_inode:[eventpoll]" && what != "anon_inode:[eventfd]" {
			all["file "+file.Name()+" "+what] = what
		}
	}
	return all
}

// ---------------------------------------------------------------------------------------------------------------------
// The fake API server

// object is an API object, or a part of one, as encoding/json decodes it. One that is stored is never modified, neither
// by the fake nor by whoever gets it: clone it first.
type object = map[string]any

// fakeKind is a kind that the fake serves.
type fakeKind struct {
	group    string // "" is the core group
	version  string
	resource string // in paths, such as "pods"
	kind     string // in objects, such as "Pod"

	isNamespaced bool
}

// fakeKinds are all kinds that there can be, in the order of discovery. Counts are there while they have a CRD.
var fakeKinds = []fakeKind{
	{"", "v1", "pods", "Pod", true},
	{"", "v1", "nodes", "Node", false},
	{"", "v1", "namespaces", "Namespace", false},
	{"", "v1", "events", "Event", true},
	{"", "v1", "serviceaccounts", "ServiceAccount", true},
	{"coordination.k8s.io", "v1", "leases", "Lease", true},
	{"demo.mark8s.io", "v1", "counts", "Count", true},
	{"apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false},
	{"rbac.authorization.k8s.io", "v1", "clusterroles", "ClusterRole", false},
	{"rbac.authorization.k8s.io", "v1", "clusterrolebindings", "ClusterRoleBinding", false},
	{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", false},
	{"admissionregistration.k8s.io", "v1", "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", false},
}

// kindOf is the kind of a resource. It panics where the fake has none.
func kindOf(resource string) fakeKind {
	i := slices.IndexFunc(fakeKinds, func(k fakeKind) bool { return k.resource == resource })
	if i < 0 {
		panic("the fake has no " + resource)
	}
	return fakeKinds[i]
}

// apiVersion is the group and the version, as objects name them: "v1", or "coordination.k8s.io/v1".
func (k fakeKind) apiVersion() string { return strings.TrimPrefix(k.group+"/"+k.version, "/") }

// path is where the API has the group and version.
func (k fakeKind) path() string {
	if k.group == "" {
		return "api/" + k.version
	}
	return "apis/" + k.group + "/" + k.version
}

// qualified is the resource as messages name it: "pods", or "leases.coordination.k8s.io".
func (k fakeKind) qualified() string { return strings.TrimSuffix(k.resource+"."+k.group, ".") }

// change is one entry of the fake's history: an object was made, replaced or removed.
type change struct {
	// Version is the resourceVersion that the change has been given.
	Version int

	// Resource is the plural name of the object's kind, such as "pods".
	Resource string

	// Old is nil where an object was made, New where one was removed.
	Old, New object

	// Lost says that no watch will tell of this change.
	Lost bool
}

// key names the object that was changed.
func (c change) key() objectKey {
	if c.New == nil {
		return keyOf(c.Old)
	}
	return keyOf(c.New)
}

// fakeCRD is the CustomResourceDefinition of Counts, the one custom resource that the fake knows.
type fakeCRD struct {
	// status gives Counts a status subresource: whoever writes to the object does not write its status, and the other
	// way round.
	status bool

	// drops says that the schema has no status: what is sent of it is dropped without a word.
	drops bool
}

// fault is what happens to requests in place of an answer, or on the way of one.
//
// Of answer, drop, stall, after, cut, hang, and status with body, a fault has one. Where it has more, the first in
// this order counts; cut and hang exclude each other. It may have a delay and met besides, and a delay alone is a
// fault, too.
type fault struct {
	// match says which requests meet the fault. It is called with the fake locked, and must not call it. A request
	// meets the first fault that matches it.
	match func(*http.Request) bool

	// times is how many requests meet the fault, 0 counts as 1.
	times int

	// delay passes before anything else happens to the request.
	delay time.Duration

	// status is answered in place of the truth, with header and body. Without a body of its own the answer is empty.
	// Its Content-Type is application/json, unless the header says otherwise.
	status int
	header map[string]string

	// body is that of the status or, where that is 0, of a 200.
	body string

	// drop breaks the connection before anything is done.
	drop bool

	// stall gives no answer until the client goes away.
	stall bool

	// cut breaks the connection after so many bytes of the true answer's body, of a watch at some later moment.
	cut int

	// hang falls silent after so many bytes of the true answer's body, until the client goes away.
	hang int

	// met gets a value from each request that meets the fault, which waits until somebody takes it.
	met chan struct{}

	// after does what the request asks for, and then breaks the connection in place of an answer.
	after bool

	// answer answers in place of the fake, which does nothing.
	answer http.HandlerFunc

	// missed says that the answer to the last request was too short for cut or hang. The fake sets it.
	missed bool
}

// seen is a request that the fake got, and what the router understood of it.
type seen struct {
	Method string
	Path   string
	Query  url.Values
	Body   string
	Accept string

	// User is the request's bearer token, or the name on its client certificate.
	User  string
	HTTP2 bool
	At    time.Time

	// Host is how the client calls the server. It tells one replica of a program from another.
	Host string

	route
}

func (s seen) String() string {
	return s.Method + " " + s.Path + "?" + s.Query.Encode() + " " + s.Body
}

// seenOf describes a request by what its head says; body and user are the caller's to add.
func seenOf(r *http.Request) seen {
	query := r.URL.Query()
	return seen{
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  query,
		Accept: r.Header.Get("Accept"),
		HTTP2:  r.ProtoMajor == 2,
		At:     time.Now(),
		Host:   r.Host,
		route:  routeOf(r.Method, r.URL.Path, query),
	}
}

// route is what a request asks for, in the words of RBAC. All of it but the verb is empty in a request for something
// that is no resource, such as /version or a group's discovery.
type route struct {
	// Verb is list, watch, get, create, update, patch, delete or deletecollection. For what is no resource, it is the
	// method in small letters.
	Verb string

	Group   string // "" is the core group
	Version string

	Resource    string // such as "pods"
	Subresource string // such as "status"; "" for the object itself
	Namespace   string // "" for cluster-scoped resources, and for all namespaces
	Name        string // "" for a collection
}

// String is the verb, the resource and the object, such as "patch counts/status/default/web", or the verb alone.
func (r route) String() string {
	if r.Resource == "" {
		return r.Verb
	}
	words := r.Verb + " " + r.fullResource()
	if r.Name == "" {
		return words
	}
	if r.Namespace != "" {
		words += "/" + r.Namespace
	}
	return words + "/" + r.Name
}

// fullResource is the resource as a rule of RBAC names it, such as "counts/status".
func (r route) fullResource() string {
	if r.Subresource == "" {
		return r.Resource
	}
	return r.Resource + "/" + r.Subresource
}

// routeOf reads a request by the layout of the API's paths,
// https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-uris:
//
//	/api/VERSION/… or /apis/GROUP/VERSION/…
//
// and then, inside a namespace or without one,
//
//	[namespaces/NAMESPACE/]RESOURCE[/NAME[/SUBRESOURCE]]
func routeOf(method, path string, query url.Values) route {
	noResource := route{Verb: strings.ToLower(method)}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	rt := route{}
	switch {
	case segments[0] == "api" && len(segments) > 2:
		rt.Version = segments[1]
		segments = segments[2:]
	case segments[0] == "apis" && len(segments) > 3:
		rt.Group = segments[1]
		rt.Version = segments[2]
		segments = segments[3:]
	default:
		return noResource
	}

	// A namespace is itself an object: /api/v1/namespaces/NAME, which has subresources of its own.
	isInNamespace := segments[0] == "namespaces" && len(segments) > 2 &&
		segments[2] != "status" && segments[2] != "finalize"
	if isInNamespace {
		rt.Namespace = segments[1]
		segments = segments[2:]
	}
	if len(segments) > 3 {
		return noResource
	}
	rt.Resource = segments[0]
	if len(segments) > 1 {
		rt.Name = segments[1]
	}
	if len(segments) > 2 {
		rt.Subresource = segments[2]
	}
	rt.Verb = verbOf(method, rt.Name != "", query)
	return rt
}

// verbOf is the verb of RBAC for a request for one named object, or for a collection. It is "" for a method that the
// API does not have.
func verbOf(method string, isNamed bool, query url.Values) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		if isNamed {
			return "delete"
		}
		return "deletecollection"
	case http.MethodGet, http.MethodHead:
		if isNamed {
			return "get"
		}
		if isWatching(query) {
			return "watch"
		}
		return "list"
	}
	return ""
}

// isWatching reads the parameter watch as the server does: any value turns it on, but "0" and "false".
func isWatching(query url.Values) bool {
	value := query.Get("watch")
	return query.Has("watch") && value != "0" && value != "false"
}

// answer is what the fake answers to a request.
type answer struct {
	Request seen

	// Code is the HTTP status. It is 200 for a watch that runs.
	Code int

	// Body is the answer in JSON, also where it is sent as protobuf. A watch has none.
	Body []byte

	// Items are the objects of a list, or of one of its pages, in full.
	Items []object

	// HasMore says that a list has more pages after this one.
	HasMore bool

	// IsCut says that a fault will cut the answer short on its way, so that it does not arrive whole. The fault of
	// a watch strikes at some later moment: no event of such a watch is sure to arrive. Of an answer that is sent
	// compressed, the bytes are counted as they are before that.
	IsCut bool
}

// fakeServer is an API server in memory, an http.Handler: it keeps one linear history of changes, and answers in the
// shapes of a real kube-apiserver. Whatever is not said here of a method, it may be called at any time, by anybody.
type fakeServer struct {
	// These are options. They may be set until the first request.

	// bookmarks is how often watches get one, a minute at first; 0 is never.
	bookmarks time.Duration

	// only, if set, is the one media type in which lists and watches are answered, as whole objects.
	only string

	// clientCA, if set, is the authority whose client certificates are let in where a token is needed.
	clientCA *x509.CertPool

	// spy, if set, hears what happens.
	spy spy

	mu          sync.Mutex      // guards all below
	tokens      map[string]bool // those that are let in; nil: everybody is
	isForbidden map[string]bool // by verb and resource, as in "patch nodes"
	crd         *fakeCRD        // nil: there are no Counts

	version   int                             // the newest
	objects   map[string]map[objectKey]object // by resource
	history   []change                        // in the order of versions
	forgotten int                             // changes up to this version are compacted away
	lose      int                             // how many coming changes no watch will hear of
	pages     map[string][]object             // what is left of a list, by continue token

	requests []seen
	grew     chan struct{} // closed and replaced with each change and each request
	moved    chan struct{} // closed and replaced with each change

	ended    chan struct{} // closed and replaced when the watches that run have to end
	isBroken bool          // they end with their connections
	behind   *lag          // if any, of the watches that begin now
	frames   []*frame      // that watches will get between their events

	faults   []*fault
	away     map[string]bool // by host: its requests break
	stripped string          // a label that a mutating webhook removes from each node that is written; "": none
}

// spy hears what happens at the fake, as it happens. Its methods are called on the goroutines that serve requests,
// several at a time, and what they do delays the client. They must not change the objects that they get.
//
// An answer that a fault replaces, breaks off before it begins, or loses, is not told: the client gets none of it.
type spy interface {
	// asked is called with each request before anything is done about it, except those of hosts that are cut off.
	// The fake is not locked.
	asked(q seen)

	// told is called before a watch sends an event, ADDED, MODIFIED or DELETED, with the object in full. Bookmarks,
	// errors and frames that a test has interjected are not told. The fake is not locked.
	told(a answer, event string, o object)

	// answered is called before an answer is sent, whether a success or a refusal, except a watch's and the page of
	// text that stands for an unknown path. The fake is not locked.
	answered(a answer)

	// changed is called with each change, in the order of their versions. The fake is locked: the spy must not call
	// it.
	changed(c change)
}

// frame is something that a watch gets as if it had happened: raw, an object, or the newest event's object once more.
type frame struct {
	resource string // whose next watch, or running one, gets it
	event    string // its type, such as "ADDED", "BOOKMARK" or "ERROR"
	object   any    // if nil, the one that this watch was told of last, if any
	raw      string // if set, these bytes stand in place of the whole frame
	end      bool   // the watch ends after it
}

// lag is of an API server whose cache has stopped at a version, until it catches up.
type lag struct {
	match   func(seen) bool // which watches come to that server
	version int
	over    chan struct{}
}

// newFake is a fake with the namespaces default and kube-system, and nothing else. Everybody may do everything there.
func newFake() *fakeServer {
	f := &fakeServer{
		bookmarks:   time.Minute,
		isForbidden: map[string]bool{},
		version:     200,
		objects:     map[string]map[objectKey]object{},
		pages:       map[string][]object{},
		grew:        make(chan struct{}),
		moved:       make(chan struct{}),
		ended:       make(chan struct{}),
		away:        map[string]bool{},
	}
	for _, k := range fakeKinds {
		f.objects[k.resource] = map[objectKey]object{}
	}
	for _, name := range []string{"default", "kube-system"} {
		f.put("namespaces", object{"metadata": object{"name": name}})
	}
	return f
}

// install puts the CRD of Counts in place, or changes it; nil removes it, and all Counts. Either ends their watches.
func (f *fakeServer) install(crd *fakeCRD) {
	for _, o := range f.all("counts") {
		if crd == nil {
			f.remove("counts", keyOf(o))
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.crd = crd
	f.movedLocked()
}

// installed is the CRD of Counts, or nil.
func (f *fakeServer) installed() *fakeCRD {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.crd
}

// serves reports whether the fake has a kind now.
func (f *fakeServer) serves(k fakeKind) bool { return k.resource != "counts" || f.installed() != nil }

// addCount makes a Count in the namespace default, whose spec is this JSON, or gives one this spec. Where status is
// a subresource, that of the Count stays. There must be a CRD.
func (f *fakeServer) addCount(name, spec string) object {
	key := objectKey{"default", name}
	o := object{"metadata": object{"namespace": key.Namespace, "name": key.Name}, "spec": parsed(spec)}
	old := f.get("counts", key)
	if old["status"] != nil && f.installed().status {
		o["status"] = old["status"]
	}
	return f.put("counts", o)
}

// parsed is what a text in JSON means. It panics where it means nothing.
func parsed(text string) (v any) {
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		panic(err)
	}
	return v
}

// count is what a Count in the namespace default says: its status' healthy, count and observedGeneration, as in
// "true 3 1", and "<nil>" for each that is not there.
func (f *fakeServer) count(name string) string {
	status, _ := f.get("counts", objectKey{"default", name})["status"].(object)
	return fmt.Sprint(status["healthy"], " ", status["count"], " ", status["observedGeneration"])
}

// issue answers a TokenRequest, in the one form that the fake's tokens of service accounts have.
func (f *fakeServer) issue(r *fakeRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.objects["serviceaccounts"][r.key] == nil {
		r.notFound()
		return
	}
	token := fmt.Sprintf("%s%s:%s:%x", accountPrefix, r.key.Namespace, r.key.Name, rand.Uint64())
	if f.tokens == nil {
		f.tokens = map[string]bool{"": true} // everybody still may come
	}
	f.tokens[token] = true
	r.answer(201, object{
		"kind":       "TokenRequest",
		"apiVersion": "authentication.k8s.io/v1",
		"metadata":   object{"name": r.key.Name},
		"status": object{
			"token":               token,
			"expirationTimestamp": time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
		},
	})
}

// accountPrefix begins the tokens of service accounts: serviceaccount:NAMESPACE:NAME:RANDOM.
const accountPrefix = "serviceaccount:"

// otherAccount is how refusals name whoever is no service account of the fake: as the recordings do.
const otherAccount = "system:serviceaccount:kube-system:podcount"

// accountOf is the service account that a token is of. It has no name where the token is another one.
func accountOf(token string) objectKey {
	rest, isAccount := strings.CutPrefix(token, accountPrefix)
	if !isAccount {
		return objectKey{}
	}
	namespace, rest, _ := strings.Cut(rest, ":")
	name, _, _ := strings.Cut(rest, ":")
	return objectKey{namespace, name}
}

// may reports whether a user has a right: a service account those of its cluster roles, everybody else all. What a test
// has forbidden, nobody may.
func (f *fakeServer) may(user string, rt route) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.isForbidden[rt.Verb+" "+rt.fullResource()] {
		return false
	}
	if !strings.HasPrefix(user, accountPrefix) {
		return true
	}
	account := accountOf(user)
	for _, binding := range f.objects["clusterrolebindings"] {
		if !binds(binding, account) {
			continue
		}
		ref, _ := binding["roleRef"].(object)
		role := f.objects["clusterroles"][objectKey{Name: str(ref, "name")}]
		rules, _ := role["rules"].([]any)
		for _, rule := range rules {
			if allows(rule.(object), rt) {
				return true
			}
		}
	}
	return false
}

// binds reports whether a service account is among the subjects of a ClusterRoleBinding.
func binds(binding object, account objectKey) bool {
	subjects, _ := binding["subjects"].([]any)
	return slices.ContainsFunc(subjects, func(one any) bool {
		subject := one.(object)
		return str(subject, "kind") == "ServiceAccount" &&
			str(subject, "namespace") == account.Namespace &&
			str(subject, "name") == account.Name
	})
}

// allows reports whether a rule of a ClusterRole covers a request. The fake knows no wildcards and no resourceNames.
func allows(rule object, rt route) bool {
	has := func(field, value string) bool {
		list, _ := rule[field].([]any)
		return slices.Contains(list, any(value))
	}
	return has("apiGroups", rt.Group) && has("resources", rt.fullResource()) && has("verbs", rt.Verb)
}

// forbidden refuses what a user has no right to.
func (r *fakeRequest) forbidden(user string) {
	account := otherAccount
	if strings.HasPrefix(user, accountPrefix) {
		k := accountOf(user)
		account = "system:serviceaccount:" + k.Namespace + ":" + k.Name
	}
	named := r.kind.resource
	if r.key.Name != "" {
		named += fmt.Sprintf(" %q", r.key.Name)
	}
	scope := "at the cluster scope"
	if r.key.Namespace != "" {
		scope = fmt.Sprintf("in the namespace %q", r.key.Namespace)
	}
	message := fmt.Sprintf("%s is forbidden: User %q cannot %s resource %q in API group %q %s",
		named, account, r.asked.Verb, r.asked.fullResource(), r.kind.group, scope)
	r.fail(403, "Forbidden", message, r.details())
}

// quotedText finds what stands in quotes in an expression of CEL.
var quotedText = regexp.MustCompile(`'([^']*)'`)

// quotedIn is the first text in quotes in the first of a policy's conditions or validations, "" where there is none.
func quotedIn(list any) string {
	items, _ := list.([]any)
	if len(items) == 0 {
		return ""
	}
	found := quotedText.FindStringSubmatch(str(items[0].(object), "expression"))
	if found == nil {
		return ""
	}
	return found[1]
}

// refusedLocked answers a write to a node that a ValidatingAdmissionPolicy refuses, and reports whether one does. Of
// CEL, the fake knows two sentences: that the object has a name (as the condition), and that it has no such label (as
// the validation).
func (f *fakeServer) refusedLocked(r *fakeRequest, o object) bool {
	if r.kind.resource != "nodes" {
		return false
	}
	labels, _ := metaOf(o)["labels"].(object)
	for _, binding := range f.objects["validatingadmissionpolicybindings"] {
		name := str(binding["spec"].(object), "policyName")
		spec, _ := f.objects["validatingadmissionpolicies"][objectKey{Name: name}]["spec"].(object)
		_, hasLabel := labels[quotedIn(spec["validations"])]
		if !hasLabel || r.key.Name != quotedIn(spec["matchConditions"]) {
			continue
		}
		validation := spec["validations"].([]any)[0].(object)
		message := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s",
			name, str(metaOf(binding), "name"), str(validation, "message"))
		d := r.details()
		d["causes"] = []any{object{"message": message}}
		r.fail(422, "Invalid", fmt.Sprintf("%s %q is forbidden: %s", r.kind.qualified(), r.key.Name, message), d)
		return true
	}
	return false
}

// metaOf is an object's metadata, nil where it has none. Reading from nil finds nothing.
func metaOf(o object) object {
	m, _ := o["metadata"].(object)
	return m
}

// str is the text under a key, "" where there is no text.
func str(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

// objectKey names an object among those of its resource.
type objectKey struct {
	Namespace string // "" where the resource is cluster-scoped
	Name      string
}

// String is namespace/name, or the name alone.
func (k objectKey) String() string {
	if k.Namespace == "" {
		return k.Name
	}
	return k.Namespace + "/" + k.Name
}

// keyOf is the key under which an object is stored.
func keyOf(o object) objectKey { return objectKey{str(metaOf(o), "namespace"), str(metaOf(o), "name")} }

// clone is a deep copy of an object, as if it went through JSON: its numbers are float64.
func clone(o object) object {
	c, _ := cloned(o).(object)
	return c
}

func cloned(v any) any {
	switch v := v.(type) {
	case nil, string, bool, float64:
		return v
	case int:
		return float64(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = cloned(v[i])
		}
		return list
	case object:
		o := make(object, len(v))
		for key := range v {
			o[key] = cloned(v[key])
		}
		return o
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return parsed(string(data))
}

// put stores an object, as new or in place of the one of its name, and returns it as stored: with a version, a uid and
// a creationTimestamp. It keeps a copy.
func (f *fakeServer) put(resource string, o object) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.putLocked(resource, o)
}

// putJSON is put of an object that is written down.
func (f *fakeServer) putJSON(resource, text string) {
	f.put(resource, parsed(text).(object))
}

func (f *fakeServer) putLocked(resource string, o object) object {
	o = clone(o)
	key := keyOf(o)
	meta := metaOf(o)
	old := f.objects[resource][key]
	if resource == "counts" {
		meta["generation"] = f.generationLocked(old, o)
	}
	f.version++
	meta["resourceVersion"] = strconv.Itoa(f.version)
	if old == nil {
		meta["uid"] = fmt.Sprintf("%08x-0000-4000-8000-%012x", f.version, rand.Uint32())
		meta["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	} else {
		meta["uid"] = metaOf(old)["uid"]
		meta["creationTimestamp"] = metaOf(old)["creationTimestamp"]
	}
	f.objects[resource][key] = o
	f.recordLocked(change{Version: f.version, Resource: resource, Old: old, New: o})
	return o
}

// generationLocked is the generation of a Count that takes the place of old. It goes up with each change of
// anything but the metadata and, where that is a subresource, the status.
func (f *fakeServer) generationLocked(old, o object) float64 {
	if old == nil {
		return 1
	}
	counted := func(o object) object {
		rest := maps.Clone(o)
		delete(rest, "metadata")
		if f.crd.status {
			delete(rest, "status")
		}
		return clone(rest)
	}
	generation := metaOf(old)["generation"].(float64)
	if !reflect.DeepEqual(counted(o), counted(old)) {
		generation++
	}
	return generation
}

// recordLocked adds a change to the history, and tells everybody who waits for one.
func (f *fakeServer) recordLocked(c change) {
	if f.lose > 0 {
		f.lose--
		c.Lost = true
	}
	f.history = append(f.history, c)
	if f.spy != nil {
		f.spy.changed(c)
	}
	f.movedLocked()
}

// movedLocked says that watches may have news.
func (f *fakeServer) movedLocked() {
	close(f.moved)
	f.moved = make(chan struct{})
	f.signalLocked()
}

// signalLocked says that there is a change or a request.
func (f *fakeServer) signalLocked() {
	close(f.grew)
	f.grew = make(chan struct{})
}

// remove deletes an object as the server does, and returns what it was: a pod's deletion shows first as a change of it.
// It returns nil where there is none.
func (f *fakeServer) remove(resource string, k objectKey) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.objects[resource][k]
	if old == nil {
		return nil
	}
	if resource == "pods" {
		dying := clone(old)
		metaOf(dying)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		metaOf(dying)["deletionGracePeriodSeconds"] = 0
		old = f.putLocked(resource, dying)
	}
	f.version++
	delete(f.objects[resource], k)
	f.recordLocked(change{Version: f.version, Resource: resource, Old: old})
	return old
}

// get is an object as it is stored, nil where there is none.
func (f *fakeServer) get(resource string, k objectKey) object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.objects[resource][k]
}

// all are the objects of a resource, in no order.
func (f *fakeServer) all(resource string) []object {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Values(f.objects[resource]))
}

// selected are the objects that a list with these parameters would have, in no order. An empty namespace is all of
// them, an empty selector everything. It panics where the server would refuse a selector.
func (f *fakeServer) selected(resource, namespace, labelSelector, fieldSelector string) []object {
	selects, err := selectionOf(kindOf(resource), namespace, labelSelector, fieldSelector)
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(f.all(resource), func(o object) bool { return !selects(o) })
}

// addNode puts a node that is ready, with labels in the form "KEY=VALUE" or "KEY".
func (f *fakeServer) addNode(name string, labels ...string) object {
	set := object{"kubernetes.io/hostname": name}
	for _, label := range labels {
		key, value, _ := strings.Cut(label, "=")
		set[key] = value
	}
	return f.put("nodes", object{
		"metadata": object{"name": name, "labels": set},
		"spec":     object{},
		"status": object{
			"conditions": []any{object{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			"capacity":   object{"cpu": "2", "memory": "4Gi", "pods": "110"},
		},
	})
}

// addPod puts a pod that runs on a node, or, where that is "", on none yet. It has the label app=web.
func (f *fakeServer) addPod(namespace, name, node string) object {
	meta := object{"namespace": namespace, "name": name, "labels": object{"app": "web"}}
	return f.put("pods", podOn(meta, node))
}

// addPodWith puts a pod with these labels in the namespace default, on no node.
func (f *fakeServer) addPodWith(name string, labels object) {
	f.put("pods", podOn(object{"namespace": "default", "name": name, "labels": labels}, ""))
}

// podOn is a pod, not stored yet, with this metadata, on a node or, where that is "", on none.
func podOn(meta object, node string) object {
	spec := object{
		"containers":    []any{object{"name": "c", "image": "nginx"}},
		"restartPolicy": "Always",
	}
	if node != "" {
		spec["nodeName"] = node
	}
	return object{
		"metadata": meta,
		"spec":     spec,
		"status":   object{"phase": "Running", "qosClass": "BestEffort"},
	}
}

// addPods puts the pods web-0 to web-(n-1) in the namespace default, on no node.
func (f *fakeServer) addPods(n int) {
	for i := range n {
		f.addPod("default", fmt.Sprintf("web-%d", i), "")
	}
}

// setLabel changes a label of a node, which must be there, as another client would; nil removes it.
func (f *fakeServer) setLabel(node, label string, v any) {
	o := clone(f.get("nodes", objectKey{"", node}))
	mergePatch(o, object{"metadata": object{"labels": object{label: v}}})
	f.put("nodes", o)
}

// label is a node's label, "-" where it has none.
func (f *fakeServer) label(node, label string) string {
	labels, _ := metaOf(f.get("nodes", objectKey{"", node}))["labels"].(object)
	if v, ok := labels[label].(string); ok {
		return v
	}
	return "-"
}

// allow lets in whoever has one of these tokens, and nobody else but by a client certificate.
func (f *fakeServer) allow(tokens ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tokens = map[string]bool{}
	for _, token := range tokens {
		f.tokens[token] = true
	}
}

// lets reports whether allow has let this token in.
func (f *fakeServer) lets(token string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.tokens[token]
}

// user is whoever sends a request, by token or client certificate, and whether the fake knows them. Like the real
// server, the fake takes any client certificate in the handshake, and answers 401 to one that it does not know.
func (f *fakeServer) user(r *http.Request) (name string, isKnown bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if f.tokens == nil {
		return token, true
	}
	if f.tokens[token] {
		isOfAccount := strings.HasPrefix(token, accountPrefix)
		if !isOfAccount || f.objects["serviceaccounts"][accountOf(token)] != nil {
			return token, true
		}
	}
	if f.clientCA == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return token, false
	}
	certificate := r.TLS.PeerCertificates[0]
	_, err := certificate.Verify(x509.VerifyOptions{
		Roots:     f.clientCA,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return certificate.Subject.CommonName, err == nil
}

// forbid makes a verb on a resource, such as "patch nodes" or "patch counts/status", be answered 403, or not any more.
func (f *fakeServer) forbid(what string, isForbidden bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isForbidden[what] = isForbidden
}

// compact forgets the history, as etcd does. A watch from an older version, or one that has not told all, gets a 410.
func (f *fakeServer) compact() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.forgotten = f.version
	f.history = nil
}

// loseNext makes watches miss the next n changes. It takes the place of an earlier loseNext.
func (f *fakeServer) loseNext(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose = n
}

// cutOff breaks each request of clients that call the server host (and a port), or lets them through again. Either
// breaks all watches that run.
func (f *fakeServer) cutOff(host string, isAway bool) {
	f.mu.Lock()
	f.away[host] = isAway
	f.mu.Unlock()
	f.endWatches(true)
}

// snapshot keeps all objects as they are; the function that it returns is etcd restored from that. The servers start
// again with it: the watches break, the history is gone, and versions from then on are given a second time.
func (f *fakeServer) snapshot() (restore func()) {
	turnBack := f.checkpoint()
	return func() {
		turnBack()
		f.compact()
		f.endWatches(true)
	}
}

// checkpoint keeps all objects, the version and the history as they are; the function that it returns brings them back.
// Of that, it tells nobody: the watches go on.
func (f *fakeServer) checkpoint() (turnBack func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	version := f.version
	history := slices.Clone(f.history)
	crd := f.crd
	objects := map[string]map[objectKey]object{}
	for resource, all := range f.objects {
		objects[resource] = maps.Clone(all)
	}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.version = version
		f.history = history
		f.crd = crd
		for resource, all := range objects {
			f.objects[resource] = maps.Clone(all)
		}
	}
}

// fallBehind breaks all watches once. From then on, those that match come to an API server that has not heard of
// the last changes, nor hears of one until catchUp or heal is called. Its lists are no older than another server's:
// without a version it asks etcd.
func (f *fakeServer) fallBehind(changes int, match func(seen) bool) (catchUp func()) {
	over := make(chan struct{})
	f.mu.Lock()
	f.behind = &lag{match: match, version: f.version - changes, over: over}
	f.mu.Unlock()
	f.endWatches(true)
	return func() {
		f.mu.Lock()
		f.behind = nil
		f.mu.Unlock()
		close(over)
	}
}

// inject adds a fault. If it has not been met times times when the test ends, or the last answer was too short to
// be cut or to hang, the test fails.
func (f *fakeServer) inject(t testing.TB, ft fault) {
	ft.times = max(ft.times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	t.Cleanup(func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if (ft.times > 0 || ft.missed) && !t.Failed() {
			t.Errorf("a fault was not delivered: %d requests more should have met %+v", ft.times, ft)
		}
	})
}

// keep makes a fault happen to all requests that match, whatever its times, until it is lifted. Then the test fails if
// there were none.
func (f *fakeServer) keep(t testing.TB, ft fault) (lift func()) {
	const always = 1 << 30
	ft.times = always
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if ft.times == always {
			t.Errorf("no request has met %+v", ft)
		}
		ft.times = 0
	}
}

// disturb adds a fault that need not be met.
func (f *fakeServer) disturb(ft fault) {
	ft.times = max(ft.times, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, &ft)
}

// liftFaults takes back the faults that have not been met yet.
func (f *fakeServer) liftFaults() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
}

// heal takes back all that inject, disturb, keep, interject, loseNext and fallBehind have set up and that has not
// happened yet. Watches that had fallen behind catch up.
func (f *fakeServer) heal() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = nil
	f.frames = nil
	f.lose = 0
	f.behind = nil
	f.movedLocked()
}

// faultsSet is how many faults there have been since the last heal or liftFaults, met or not.
func (f *fakeServer) faultsSet() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.faults)
}

// faultsLeft reports whether requests are still to meet a fault.
func (f *fakeServer) faultsLeft() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.faults, func(ft *fault) bool { return ft.times > 0 })
}

// latest is the newest version: that of the last change, unless setVersion was called after it.
func (f *fakeServer) latest() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

// setVersion makes v the newest version, so that the next change is v+1. Where that is back in time, the fake forgets
// the changes after it, but keeps its objects as they are, with their versions: etcd that was restored wrongly.
func (f *fakeServer) setVersion(v int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version = v
	f.history = slices.DeleteFunc(slices.Clone(f.history), func(c change) bool { return c.Version > v })
}

// changes is the history, oldest first, from the last compaction on.
func (f *fakeServer) changes() []change {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.history)
}

// nextChange is closed with the next change. Take it before looking whether something is so, and wait for it after.
func (f *fakeServer) nextChange() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.moved
}

// nextRequestOrChange is closed with the next request or change, whichever is first.
func (f *fakeServer) nextRequestOrChange() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.grew
}

// asked returns the requests so far that match, in the order in which they came. It calls match with the fake locked.
func (f *fakeServer) asked(match func(seen) bool) []seen {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []seen
	for _, q := range f.requests {
		if match(q) {
			found = append(found, q)
		}
	}
	return found
}

// isWrite reports whether a request writes anything but an Event.
func isWrite(q seen) bool {
	return q.Method != http.MethodGet && !strings.Contains(q.Path, "/events")
}

// isList matches lists of a resource, and their pages. A list of one object is not meant: it asks whether the
// resource is there.
func isList(resource string) func(seen) bool {
	return func(q seen) bool {
		return isGetOf(q, resource) && !q.Query.Has("watch") && q.Query.Get("limit") != "1"
	}
}

// isWatch matches watches of a resource.
func isWatch(resource string) func(seen) bool {
	return func(q seen) bool {
		return isGetOf(q, resource) && q.Query.Has("watch")
	}
}

// isGetOf reports whether a request is a GET of a collection.
func isGetOf(q seen, resource string) bool {
	return q.Method == http.MethodGet && strings.HasSuffix(q.Path, "/"+resource)
}

// to makes a fault's match of one for requests that the fake has seen. It sees no body and no user.
func to(match func(seen) bool) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return match(seenOf(r))
	}
}

// ServeHTTP serves the API. A request meets the first fault that matches it, and has an answer after that.
func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // a request that never came whole is none
	}
	asked := seenOf(r)
	asked.Body = string(body)
	asked.User, _ = f.user(r)
	if !f.record(asked) {
		panic(http.ErrAbortHandler)
	}
	if f.spy != nil {
		f.spy.asked(asked)
	}
	ft := f.takeFault(r)
	if ft == nil {
		f.serve(w, r, asked, f.spy)
		return
	}
	f.serveFault(w, r, asked, ft)
}

// record keeps a request. It reports whether the host that it is for can be reached.
func (f *fakeServer) record(asked seen) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, asked)
	f.signalLocked()
	return !f.away[asked.Host]
}

// takeFault is the first fault that is still to be met and that matches, one time of which is used up; nil if there is
// none.
func (f *fakeServer) takeFault(r *http.Request) *fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ft := range f.faults {
		if ft.times > 0 && ft.match(r) {
			ft.times--
			return ft
		}
	}
	return nil
}

// serveFault lets a request meet a fault.
func (f *fakeServer) serveFault(w http.ResponseWriter, r *http.Request, asked seen, ft *fault) {
	if ft.met != nil {
		ft.met <- struct{}{}
	}
	if ft.delay > 0 {
		select {
		case <-time.After(ft.delay):
		case <-r.Context().Done():
		}
		if r.Context().Err() != nil {
			return
		}
	}
	switch {
	case ft.answer != nil:
		ft.answer(w, r)
	case ft.drop:
		panic(http.ErrAbortHandler)
	case ft.stall:
		<-r.Context().Done()
	case ft.after:
		f.serve(httptest.NewRecorder(), r, asked, nil)
		panic(http.ErrAbortHandler)
	case ft.cut > 0 || ft.hang > 0:
		f.setMissed(ft, true) // until the writer gets there
		faulty := &faultyWriter{
			ResponseWriter: w,
			left:           max(ft.cut, ft.hang),
			hang:           ft.hang > 0,
			ctx:            r.Context(),
			reached:        func() { f.setMissed(ft, false) },
		}
		f.serve(faulty, r, asked, f.spy)
	case ft.status > 0 || ft.body != "":
		w.Header().Set("Content-Type", mediaJSON)
		for key, value := range ft.header {
			w.Header().Set(key, value)
		}
		w.WriteHeader(max(ft.status, 200))
		io.WriteString(w, ft.body)
	default: // a delay alone
		f.serve(w, r, asked, f.spy)
	}
}

func (f *fakeServer) setMissed(ft *fault, missed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	ft.missed = missed
}

// faultyWriter lets so many bytes of an answer's body pass. Then it breaks the connection, or falls silent.
type faultyWriter struct {
	http.ResponseWriter
	left    int // bytes that may still pass
	hang    bool
	ctx     context.Context // the request's: the client has gone
	reached func()          // called when the last of the bytes has passed
}

// Unwrap lets http.ResponseController find Flush.
func (w *faultyWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *faultyWriter) Write(p []byte) (int, error) {
	n, _ := w.ResponseWriter.Write(p[:min(len(p), w.left)])
	w.left -= n
	if n == len(p) {
		return n, nil
	}
	w.reached()
	http.NewResponseController(w.ResponseWriter).Flush()
	if w.hang {
		<-w.ctx.Done()
	}
	panic(http.ErrAbortHandler)
}

// fakeRequest is a request that is being served. One goroutine has it.
type fakeRequest struct {
	*http.Request
	asked seen
	spy   spy // nil also where the answer will be lost
	w     http.ResponseWriter

	kind   fakeKind
	key    objectKey
	q      url.Values
	body   []byte
	status bool // it is about the subresource status

	media string // of the answer
	view  string // as what objects are shown: PartialObjectMetadata, or "" in full

	code  int    // of the answer; 0: nothing is left to be sent
	reply []byte // in JSON
	items []object
	more  bool // the list has another page
}

// told is the answer as a spy is told of it.
func (r *fakeRequest) told() answer {
	return answer{
		Request: r.asked,
		Code:    cmp.Or(r.code, 200),
		Body:    r.reply,
		Items:   r.items,
		HasMore: r.more,
		IsCut:   r.isCut(),
	}
}

// isCut reports whether a fault will keep the answer from arriving whole. A watch has no length, so that a fault cuts
// it sooner or later.
func (r *fakeRequest) isCut() bool {
	w, isFaulty := r.w.(*faultyWriter)
	if !isFaulty {
		return false
	}
	isWatch := r.code == 0
	return isWatch || len(r.encoded()) > w.left
}

// encoded is the answer in the media type that was agreed on.
func (r *fakeRequest) encoded() []byte {
	if r.media == mediaProtobuf {
		return protobufOf(r.reply)
	}
	return r.reply
}

// serve answers a request in truth. A spy, if there is one, hears of it.
func (f *fakeServer) serve(w http.ResponseWriter, r *http.Request, asked seen, spy spy) {
	req := &fakeRequest{
		Request: r,
		asked:   asked,
		spy:     spy,
		w:       w,
		q:       asked.Query,
		body:    []byte(asked.Body),
		media:   mediaJSON,
	}
	defer func() {
		if req.code == 0 {
			return
		}
		if spy != nil {
			spy.answered(req.told())
		}
		req.send()
	}()
	user, isKnown := f.user(r)
	if !isKnown {
		req.fail(401, "Unauthorized", "Unauthorized", nil)
		return
	}
	if f.discover(req) {
		return
	}
	if !f.resolve(req) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(404)
		io.WriteString(w, "404 page not found\n")
		return
	}
	if !f.may(user, asked.route) {
		req.forbidden(user)
		return
	}
	if asked.Verb == "create" && asked.Subresource == "token" {
		f.issue(req)
		return
	}
	if !f.negotiate(req) {
		return
	}
	handle := f.handlerOf(asked.route)
	if handle == nil {
		req.fail(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", object{})
		return
	}
	handle(req)
}

// handlerOf is what serves a request, nil where the API has no such method.
func (f *fakeServer) handlerOf(rt route) func(*fakeRequest) {
	if rt.Name == "" {
		switch rt.Verb {
		case "list":
			return f.list
		case "watch":
			return f.watch
		case "create":
			return f.create
		}
		return nil
	}
	switch rt.Verb {
	case "get":
		return f.read
	case "update":
		return f.update
	case "patch":
		return f.patch
	case "delete":
		return f.delete
	}
	return nil
}

// resolve finds the kind that a request is about, and reports whether the fake serves it, with that subresource.
func (f *fakeServer) resolve(r *fakeRequest) bool {
	rt := r.asked.route
	i := slices.IndexFunc(fakeKinds, func(k fakeKind) bool {
		return k.group == rt.Group && k.version == rt.Version && k.resource == rt.Resource
	})
	if i < 0 || !f.serves(fakeKinds[i]) {
		return false
	}
	switch rt.Subresource {
	case "", "status":
	case "token":
		if rt.Resource != "serviceaccounts" {
			return false
		}
	default:
		return false
	}
	r.kind = fakeKinds[i]
	r.key = objectKey{rt.Namespace, rt.Name}
	r.status = rt.Subresource == "status"
	return true
}

// The media types that the fake knows.
const (
	mediaJSON     = "application/json"
	mediaProtobuf = "application/vnd.kubernetes.protobuf"
)

// negotiate picks the first media type of Accept that the fake can answer.
func (f *fakeServer) negotiate(r *fakeRequest) bool {
	isCollection := r.key.Name == ""
	hasProtobuf := isCollection && (r.kind.resource == "pods" || r.kind.resource == "nodes")
	for clause := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
		media, params, _ := strings.Cut(strings.ReplaceAll(clause, " ", ""), ";")
		as := ""
		for _, param := range strings.Split(params, ";") {
			if value, found := strings.CutPrefix(param, "as="); found {
				as = value
			}
		}
		switch media {
		case "", "*/*", mediaJSON:
		case mediaProtobuf:
			if !hasProtobuf {
				continue
			}
		default:
			continue
		}
		if as != "" && !strings.HasPrefix(as, "PartialObjectMetadata") {
			continue
		}
		if f.only != "" && isCollection && media != "" && (media != f.only || as != "") {
			continue
		}
		if media == mediaProtobuf {
			r.media = mediaProtobuf
		}
		if as != "" {
			r.view = "PartialObjectMetadata"
		}
		return true
	}
	r.fail(406, "NotAcceptable", "only the following media types are accepted: application/json", object{})
	return false
}

// show is the object as the request wants to see it. The items of a list are bare: they say neither kind nor version,
// unless they are PartialObjectMetadata.
func (r *fakeRequest) show(o object, isBare bool) any {
	if r.view != "" {
		return struct {
			Kind       string `json:"kind,omitempty"`
			APIVersion string `json:"apiVersion,omitempty"`
			Metadata   any    `json:"metadata"`
		}{"PartialObjectMetadata", "meta.k8s.io/v1", o["metadata"]}
	}
	shown := maps.Clone(o)
	delete(shown, "kind")
	delete(shown, "apiVersion")
	if !isBare {
		shown["kind"] = r.kind.kind
		shown["apiVersion"] = r.kind.apiVersion()
	}
	return shown
}

// answer sets what will be sent once the handler, which may hold the lock, has returned.
func (r *fakeRequest) answer(code int, body any) {
	r.code = code
	r.reply, _ = json.Marshal(body)
}

// gzipFrom is the size from which on the server compresses an answer, for a client that understands that.
const gzipFrom = 128 << 10

// send sends the answer.
func (r *fakeRequest) send() {
	data := r.encoded()
	r.w.Header().Set("Content-Type", r.media)
	if len(data) > gzipFrom && strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		r.w.Header().Set("Content-Encoding", "gzip")
		r.w.WriteHeader(r.code)
		z := gzip.NewWriter(r.w)
		defer z.Close()
		z.Write(data)
		return
	}
	r.w.Header().Set("Content-Length", strconv.Itoa(len(data)))
	r.w.WriteHeader(r.code)
	r.w.Write(data)
}

// fakeStatus is a Status, as which the server answers what it refuses. details may be nil, which leaves them out.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
func fakeStatus(code int, reason, message string, details any) any {
	return struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
		Status     string `json:"status"`
		Message    string `json:"message"`
		Reason     string `json:"reason"`
		Details    any    `json:"details,omitempty"`
		Code       int    `json:"code"`
	}{"Status", "v1", object{}, "Failure", message, reason, details, code}
}

// fail answers with a Status.
func (r *fakeRequest) fail(code int, reason, message string, details any) {
	r.answer(code, fakeStatus(code, reason, message, details))
}

// details name the object in a Status.
func (r *fakeRequest) details() object {
	d := object{"kind": r.kind.resource}
	if r.key.Name != "" {
		d["name"] = r.key.Name
	}
	if r.kind.group != "" {
		d["group"] = r.kind.group
	}
	return d
}

func (r *fakeRequest) notFound() {
	r.fail(404, "NotFound", fmt.Sprintf("%s %q not found", r.kind.qualified(), r.key.Name), r.details())
}

func (r *fakeRequest) conflict() {
	message := fmt.Sprintf("Operation cannot be fulfilled on %s %q: the object has been modified; "+
		"please apply your changes to the latest version and try again", r.kind.qualified(), r.key.Name)
	r.fail(409, "Conflict", message, r.details())
}

// invalid refuses a field of an object. The server names a built-in kind by its kind, a lease by its resource.
func (r *fakeRequest) invalid(field, why string) {
	named := r.kind.kind
	d := object{"name": r.key.Name, "kind": r.kind.kind}
	if r.kind.group != "" {
		named = r.kind.qualified()
		d["kind"] = r.kind.resource
		d["group"] = r.kind.group
	}
	d["causes"] = []any{object{"reason": "FieldValueInvalid", "message": why, "field": field}}
	r.fail(422, "Invalid", fmt.Sprintf("%s %q is invalid: %s: %s", named, r.key.Name, field, why), d)
}

// discover answers what a client asks before it knows the API: whether the server is well, its version, its groups and
// their resources. It reports whether the request was for one of these.
func (f *fakeServer) discover(r *fakeRequest) bool {
	path := strings.Trim(r.asked.Path, "/")
	switch path {
	case "readyz", "livez", "healthz":
		r.w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		io.WriteString(r.w, "ok")
		return true
	case "version":
		r.answer(200, object{"major": "1", "minor": "35", "gitVersion": "v1.35.0-fake"})
		return true
	case "api":
		r.answer(200, object{"kind": "APIVersions", "versions": []any{"v1"}})
		return true
	case "apis":
		r.answer(200, object{"kind": "APIGroupList", "apiVersion": "v1", "groups": f.groups()})
		return true
	}
	resources := f.resources(path)
	if len(resources) == 0 {
		return false
	}
	_, groupVersion, _ := strings.Cut(path, "/")
	r.answer(200, object{
		"kind":         "APIResourceList",
		"apiVersion":   "v1",
		"groupVersion": groupVersion,
		"resources":    resources,
	})
	return true
}

// groups are the API groups but the core group.
func (f *fakeServer) groups() []any {
	groups := []any{}
	isKnown := map[string]bool{"": true}
	for _, k := range fakeKinds {
		if isKnown[k.group] || !f.serves(k) {
			continue
		}
		isKnown[k.group] = true
		version := object{"groupVersion": k.apiVersion(), "version": k.version}
		groups = append(groups, object{"name": k.group, "versions": []any{version}, "preferredVersion": version})
	}
	return groups
}

// shortNames are what kubectl understands beside the resources' names.
var shortNames = map[string]string{"pods": "po", "nodes": "no", "namespaces": "ns", "events": "ev"}

// resources are those that discovery names under a path, such as "api/v1" or "apis/demo.mark8s.io/v1".
func (f *fakeServer) resources(path string) []any {
	resources := []any{}
	for _, k := range fakeKinds {
		if path != k.path() || !f.serves(k) {
			continue
		}
		resource := object{
			"name":         k.resource,
			"singularName": strings.ToLower(k.kind),
			"namespaced":   k.isNamespaced,
			"kind":         k.kind,
			"verbs":        []any{"create", "delete", "get", "list", "patch", "update", "watch"},
		}
		if short := shortNames[k.resource]; short != "" {
			resource["shortNames"] = []any{short}
		}
		resources = append(resources, resource)
		crd := f.installed()
		if k.resource == "counts" && crd != nil && crd.status {
			resources = append(resources, object{
				"name":         "counts/status",
				"singularName": "",
				"namespaced":   true,
				"kind":         k.kind,
				"verbs":        []any{"get", "patch", "update"},
			})
		}
	}
	return resources
}

// selection is what the request selects. It is nil where the request was answered with an error instead.
func (r *fakeRequest) selection() func(object) bool {
	selects, err := selectionOf(r.kind, r.key.Namespace, r.q.Get("labelSelector"), r.q.Get("fieldSelector"))
	if err != nil {
		r.fail(400, "BadRequest", err.Error(), nil)
		return nil
	}
	return selects
}

// selectionOf reports, of objects of a kind, whether they are in the namespace and match both selectors. An empty
// namespace is all of them, an empty selector everything. The errors are in the server's words.
func selectionOf(k fakeKind, namespace, labelSelector, fieldSelector string) (func(object) bool, error) {
	labels, err := parseLabelSelector(labelSelector)
	if err != nil {
		return nil, err
	}
	fields, err := parseFieldSelector(fieldSelector)
	if err != nil {
		return nil, err
	}
	for _, term := range fields {
		if !k.isSelectableBy(term.field) {
			return nil, fmt.Errorf("Unable to find %q that match label selector %q, field selector %q: "+
				"field label not supported: %s",
				k.apiVersion()+", Resource="+k.resource, labelSelector, fieldSelector, term.field)
		}
	}
	return func(o object) bool {
		if namespace != "" && str(metaOf(o), "namespace") != namespace {
			return false
		}
		has, _ := metaOf(o)["labels"].(object)
		for _, r := range labels {
			if !r.matches(has) {
				return false
			}
		}
		for _, term := range fields {
			if !term.matches(o) {
				return false
			}
		}
		return true
	}, nil
}

// labelRequirement is one part of a label selector.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors
type labelRequirement struct {
	key string

	// operator is exists, !exists, in, notin, > or <.
	operator string

	// values has those of in and notin, one of them for = and !=.
	values []string

	// bound is the number of > and <.
	bound int64
}

// matches reports whether an object with these labels fulfils the requirement. An object that lacks the label fulfils
// notin and !exists, and nothing else.
func (r labelRequirement) matches(labels object) bool {
	value, isThere := labels[r.key].(string)
	if !isThere {
		return r.operator == "notin" || r.operator == "!exists"
	}
	switch r.operator {
	case "exists":
		return true
	case "in":
		return slices.Contains(r.values, value)
	case "notin":
		return !slices.Contains(r.values, value)
	case ">", "<":
		number, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return false
		}
		if r.operator == ">" {
			return number > r.bound
		}
		return number < r.bound
	}
	return false
}

// selectorToken finds the next word or sign of a label selector.
var selectorToken = regexp.MustCompile(`==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+`)

// labelParser holds the tokens of a label selector that have not been read yet.
type labelParser struct {
	tokens []string
}

// peek is the next token, "" at the end.
func (p *labelParser) peek() string {
	if len(p.tokens) == 0 {
		return ""
	}
	return p.tokens[0]
}

// next takes the next token; it is "" at the end.
func (p *labelParser) next() string {
	token := p.peek()
	if token != "" {
		p.tokens = p.tokens[1:]
	}
	return token
}

// isWord reports whether a token is a key, a value or an operator of letters.
func isWord(token string) bool {
	return token != "" && !strings.ContainsAny(token, "=!(),<>")
}

// parseLabelSelector reads requirements that are joined by commas.
func parseLabelSelector(text string) ([]labelRequirement, error) {
	p := &labelParser{tokens: selectorToken.FindAllString(text, -1)}
	if p.peek() == "" {
		return nil, nil
	}
	if !isWord(p.peek()) && p.peek() != "!" {
		return nil, fmt.Errorf("found '%s', expected: !, identifier, or 'end of string'", p.peek())
	}
	var all []labelRequirement
	for {
		r, err := p.requirement()
		if err != nil {
			return nil, fmt.Errorf("unable to parse requirement: %w", err)
		}
		all = append(all, r)
		token := p.next()
		if token == "" {
			return all, nil
		}
		if token != "," {
			return nil, fmt.Errorf("found '%s', expected: ',' or 'end of string'", token)
		}
		if !isWord(p.peek()) && p.peek() != "!" {
			return nil, fmt.Errorf("found '%s', expected: identifier after ','", p.peek())
		}
	}
}

// requirement reads KEY, !KEY, or KEY with an operator and its values.
func (p *labelParser) requirement() (labelRequirement, error) {
	isNot := p.peek() == "!"
	if isNot {
		p.next()
	}
	r := labelRequirement{key: p.next()}
	if !isWord(r.key) {
		return r, fmt.Errorf("found '%s', expected: identifier", r.key)
	}
	if problem := labelKeyProblem(r.key); problem != "" {
		return r, fmt.Errorf("<nil>: Invalid value: %q: %s", r.key, problem)
	}
	if isNot {
		r.operator = "!exists"
		return r, nil
	}
	if p.peek() == "" || p.peek() == "," {
		r.operator = "exists"
		return r, nil
	}

	var err error
	operator := p.next()
	switch operator {
	case "=", "==":
		r.operator = "in"
		r.values, err = p.oneValue()
	case "!=":
		r.operator = "notin"
		r.values, err = p.oneValue()
	case "in", "notin":
		r.operator = operator
		r.values, err = p.values()
	case ">", "<":
		r.operator = operator
		r.values, err = p.oneValue()
		if err == nil {
			r.bound, err = strconv.ParseInt(r.values[0], 10, 64)
		}
		if err != nil {
			err = fmt.Errorf("<nil>: Invalid value: %q: for 'Gt', 'Lt' operators, the value must be an integer", r.values)
		}
	default:
		err = fmt.Errorf("found '%s', expected: in, notin, =, ==, !=, gt, lt", operator)
	}
	if err != nil {
		return r, err
	}
	for _, value := range r.values {
		if problem := labelValueProblem(value); problem != "" {
			return r, fmt.Errorf("<nil>: Invalid value: %q: %s", value, problem)
		}
	}
	return r, nil
}

// oneValue reads the value after an operator such as =. It may be left out, which is the empty value.
func (p *labelParser) oneValue() ([]string, error) {
	if p.peek() == "" || p.peek() == "," {
		return []string{""}, nil
	}
	value := p.next()
	if !isWord(value) {
		return nil, fmt.Errorf("found '%s', expected: identifier", value)
	}
	return []string{value}, nil
}

// values reads values in parentheses. Each of them may be left out, which is the empty value.
func (p *labelParser) values() ([]string, error) {
	token := p.next()
	if token != "(" {
		return nil, fmt.Errorf("found '%s' expected: '('", token)
	}
	var all []string
	for {
		value := ""
		if isWord(p.peek()) {
			value = p.next()
		}
		all = append(all, value)
		token := p.next()
		if token == ")" {
			return all, nil
		}
		if token != "," {
			return nil, fmt.Errorf("found '%s', expected: ',' or ')'", token)
		}
	}
}

// The syntax of names, in the regular expressions that the server's messages name, and their greatest lengths.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
// https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
const (
	namePattern      = `([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]`
	valuePattern     = `(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?`
	subdomainPattern = `[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*`

	labelLength     = 63
	subdomainLength = 253
)

var (
	nameSyntax      = regexp.MustCompile("^" + namePattern + "$")
	valueSyntax     = regexp.MustCompile("^" + valuePattern + "$")
	subdomainSyntax = regexp.MustCompile("^" + subdomainPattern + "$")
)

// labelKeyProblem says, in the server's words, what is wrong with a label's key; "" is nothing.
func labelKeyProblem(key string) string {
	prefix, name, hasPrefix := strings.Cut(key, "/")
	if !hasPrefix {
		name = key
	}
	if hasPrefix {
		if problem := subdomainProblem(prefix); problem != "" {
			return "prefix part " + problem
		}
	}
	if name == "" {
		return "name part must be non-empty"
	}
	if len(name) > labelLength {
		return "name part must be no more than 63 characters"
	}
	if !nameSyntax.MatchString(name) {
		return "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an " +
			"alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '" +
			namePattern + "')"
	}
	return ""
}

// labelValueProblem says, in the server's words, what is wrong with a label's value; "" is nothing.
func labelValueProblem(value string) string {
	if len(value) > labelLength {
		return "must be no more than 63 characters"
	}
	if !valueSyntax.MatchString(value) {
		return "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex " +
			"used for validation is '" + valuePattern + "')"
	}
	return ""
}

// subdomainProblem says, in the server's words, why a text is no DNS subdomain, as objects' names and the prefixes of
// labels' keys are; "" is nothing.
func subdomainProblem(name string) string {
	if len(name) > subdomainLength {
		return "must be no more than 253 characters"
	}
	if !subdomainSyntax.MatchString(name) {
		return "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and " +
			"must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '" +
			subdomainPattern + "')"
	}
	return ""
}

// isSelectableBy reports whether a field selector may name the field. Of the fields that the real server knows, the
// fake has those whose values are texts.
// https://kubernetes.io/docs/concepts/overview/working-with-objects/field-selectors/#list-of-supported-fields
func (k fakeKind) isSelectableBy(field string) bool {
	if field == "metadata.name" || field == "metadata.namespace" {
		return true
	}
	switch k.resource {
	case "pods":
		return field == "spec.nodeName" || field == "status.phase"
	case "events":
		return field == "reason" || field == "type" || strings.HasPrefix(field, "involvedObject.")
	}
	return false
}

// fieldTerm is one part of a field selector: FIELD=VALUE, FIELD==VALUE or FIELD!=VALUE.
type fieldTerm struct {
	field string
	value string
	isNot bool
}

// matches reports whether the object has the value at the field, or has it not. A field that is not there is "".
func (t fieldTerm) matches(o object) bool {
	path := strings.Split(t.field, ".")
	last := len(path) - 1
	for _, step := range path[:last] {
		o, _ = o[step].(object)
	}
	isEqual := str(o, path[last]) == t.value
	return isEqual != t.isNot
}

// parseFieldSelector reads terms that are joined by commas. In a value, a backslash makes a comma, an equals sign or
// another backslash a part of it. Terms that are empty count for nothing.
func parseFieldSelector(text string) ([]fieldTerm, error) {
	var all []fieldTerm
	for _, part := range splitUnescaped(text) {
		if part == "" {
			continue
		}
		field, value, operator := cutFieldTerm(part)
		if operator == "" {
			return nil, fmt.Errorf("invalid selector: '%s'; can't understand '%s'", text, part)
		}
		value, err := unescaped(value)
		if err != nil {
			return nil, err
		}
		all = append(all, fieldTerm{field: field, value: value, isNot: operator == "!="})
	}
	return all, nil
}

// splitUnescaped splits a text at the commas that no backslash stands before.
func splitUnescaped(text string) []string {
	var parts []string
	part := ""
	for i := 0; i < len(text); i++ {
		switch {
		case text[i] == ',':
			parts = append(parts, part)
			part = ""
		case text[i] == '\\' && i+1 < len(text):
			part += text[i : i+2]
			i++
		default:
			part += text[i : i+1]
		}
	}
	return append(parts, part)
}

// cutFieldTerm cuts a term at its first operator, which is "" where there is none.
func cutFieldTerm(term string) (field, value, operator string) {
	for i := range term {
		for _, operator := range []string{"!=", "==", "="} {
			if value, found := strings.CutPrefix(term[i:], operator); found {
				return term[:i], value, operator
			}
		}
	}
	return "", "", ""
}

// unescaped reads the value of a field selector.
func unescaped(value string) (string, error) {
	text := ""
	for i := 0; i < len(value); i++ {
		switch {
		case value[i] == '\\':
			i++
			if i == len(value) || !strings.Contains(`\,=`, value[i:i+1]) {
				return "", fmt.Errorf("invalid field selector: invalid escape sequence: %s", value[i-1:min(i+1, len(value))])
			}
			text += value[i : i+1]
		case value[i] == '=' || value[i] == ',':
			return "", fmt.Errorf("invalid field selector: unescaped character in value: %s", value[i:i+1])
		default:
			text += value[i : i+1]
		}
	}
	return text, nil
}

// continueToken is what a continue token says, in JSON and base64.
type continueToken struct {
	V     string `json:"v"`
	RV    int    `json:"rv"` // the version of the list
	Start string `json:"start"`
}

// list answers a list, or one of its pages. Pages after the first are as things were when the list began, unless the
// history has been compacted meanwhile.
func (f *fakeServer) list(r *fakeRequest) {
	match := r.selection()
	if match == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if wanted, _ := strconv.Atoi(r.q.Get("resourceVersion")); wanted > f.version {
		r.w.Header().Set("Retry-After", "1")
		message := fmt.Sprintf("Timeout: Too large resource version: %d, current: %d", wanted, f.version)
		r.fail(504, "Timeout", message, object{
			"causes":            []any{object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}},
			"retryAfterSeconds": 1,
		})
		return
	}
	if token := r.q.Get("continue"); token != "" {
		f.nextPageLocked(r, token)
		return
	}
	var found []object
	for _, o := range f.objects[r.kind.resource] {
		if match(o) {
			found = append(found, o)
		}
	}
	slices.SortFunc(found, func(a, b object) int { return strings.Compare(keyOf(a).String(), keyOf(b).String()) })
	f.pageLocked(r, f.version, found)
}

// nextPageLocked answers with the page that a token of an earlier page stands for.
func (f *fakeServer) nextPageLocked(r *fakeRequest, token string) {
	text, err := base64.RawStdEncoding.DecodeString(token)
	at := continueToken{}
	if err == nil {
		err = json.Unmarshal(text, &at)
	}
	if err != nil {
		r.fail(400, "BadRequest", "invalid continue token: continue key is not valid: "+err.Error(), nil)
		return
	}
	if at.RV < f.forgotten {
		r.fail(410, "Expired", "The provided continue parameter is too old to display a consistent list result. "+
			"You can start a new list without the continue parameter, or use the continue token in this response "+
			"to retrieve the remainder of the results.", nil)
		return
	}
	f.pageLocked(r, at.RV, f.pages[token])
}

// pageLocked answers with the objects of a list at a version, or with as many of them as the request wants in a page.
func (f *fakeServer) pageLocked(r *fakeRequest, version int, found []object) {
	meta := struct {
		ResourceVersion    string `json:"resourceVersion"`
		Continue           string `json:"continue,omitempty"`
		RemainingItemCount int    `json:"remainingItemCount,omitempty"`
	}{ResourceVersion: strconv.Itoa(version)}
	limit, _ := strconv.Atoi(r.q.Get("limit"))
	if limit > 0 && len(found) > limit {
		rest := found[limit:]
		found = found[:limit]
		last := keyOf(found[limit-1]).String()
		text, _ := json.Marshal(continueToken{V: "meta.k8s.io/v1", RV: version, Start: last + "\x00"})
		meta.Continue = base64.RawStdEncoding.EncodeToString(text)
		isSelective := r.q.Get("labelSelector")+r.q.Get("fieldSelector") != ""
		if !isSelective {
			meta.RemainingItemCount = len(rest)
		}
		f.pages[meta.Continue] = rest
	}
	r.items = found
	r.more = meta.Continue != ""

	kind := r.kind.kind + "List"
	apiVersion := r.kind.apiVersion()
	if r.view != "" {
		kind = "PartialObjectMetadataList"
		apiVersion = "meta.k8s.io/v1"
	}
	items := make([]any, len(found))
	for i, o := range found {
		items[i] = r.show(o, true)
	}
	r.answer(200, struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
		Items      []any  `json:"items"`
	}{kind, apiVersion, meta, items})
}

// watcher is a watch that runs. One goroutine has it.
type watcher struct {
	f       *fakeServer
	r       *fakeRequest
	selects func(object) bool

	from   int           // it has told all up to this version
	newest object        // that it has told of, nil: none yet
	ended  chan struct{} // closed when all watches have to end
	crd    *fakeCRD      // as it was when the watch began
	behind *lag          // of the server that the watch may have come to; nil: none
}

// outlook is what a watch finds when it looks at the fake.
type outlook struct {
	news      []change // that it has not told yet, of whatever resource
	now       int      // the version that it has told all of, once it has told the news
	forgotten int
	extra     *frame          // if any, comes after the news
	isGone    bool            // the resource has been removed, or defined again
	moved     <-chan struct{} // closed when looking again is worth while,
	over      <-chan struct{} // as this one is; nil: never
}

// watch streams the history from a version on. From the future it is silent; from what is forgotten it is a 410, in the
// stream, as a real server does it.
func (f *fakeServer) watch(r *fakeRequest) {
	selects := r.selection()
	if selects == nil {
		return
	}
	w := &watcher{f: f, r: r, selects: selects}
	r.w.Header().Set("Content-Type", r.media)
	if r.media == mediaProtobuf {
		r.w.Header().Set("Content-Type", r.media+";stream=watch")
	}
	r.w.WriteHeader(200)
	http.NewResponseController(r.w).Flush()
	w.begin()
	w.run()
}

// begin finds where the watch begins. Without a version, or with 0, it first tells of all that there is.
func (w *watcher) begin() {
	w.from, _ = strconv.Atoi(w.r.q.Get("resourceVersion"))
	if w.from == 0 {
		var all []object
		w.from, all = w.f.present(w.r.kind.resource)
		for _, o := range all {
			if w.selects(o) {
				w.send("ADDED", w.r.show(o, false))
			}
		}
	}
	w.f.mu.Lock()
	defer w.f.mu.Unlock()
	w.ended = w.f.ended
	w.crd = w.f.crd
	w.behind = w.f.behind
}

// present is all of a resource, and the version at which it is so.
func (f *fakeServer) present(resource string) (version int, all []object) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version, slices.Collect(maps.Values(f.objects[resource]))
}

// run tells what happens until the watch ends.
func (w *watcher) run() {
	const never = 10000 * time.Hour
	seconds, _ := strconv.Atoi(w.r.q.Get("timeoutSeconds"))
	end := time.NewTimer(time.Duration(cmp.Or(seconds, 1800)) * time.Second)
	defer end.Stop()
	bookmarks := time.NewTicker(cmp.Or(w.f.bookmarks, never))
	defer bookmarks.Stop()
	for {
		found := w.look()
		if w.from < found.forgotten {
			message := fmt.Sprintf("too old resource version: %d (%d)", w.from, found.forgotten)
			w.send("ERROR", fakeStatus(410, "Expired", message, nil))
			return
		}
		for _, c := range found.news {
			w.tell(c)
		}
		if found.extra != nil {
			w.interject(found.extra)
			if found.extra.end {
				return
			}
		}
		w.from = max(w.from, found.now)
		if found.isGone {
			return
		}
		isUpToDate := w.from == found.now // it is not where the client began in the future
		select {
		case <-found.moved:
		case <-found.over:
		case <-bookmarks.C:
			if isUpToDate {
				w.bookmark()
			}
		case <-end.C:
			if isUpToDate {
				w.bookmark()
			}
			return
		case <-w.ended:
			if w.f.areWatchesBroken() {
				panic(http.ErrAbortHandler)
			}
			return
		case <-w.r.Context().Done():
			return
		}
	}
}

// look finds what there is to tell.
func (w *watcher) look() outlook {
	f := w.f
	resource := w.r.kind.resource
	f.mu.Lock()
	defer f.mu.Unlock()
	byVersion := func(c change, version int) int { return c.Version - version }
	first, _ := slices.BinarySearchFunc(f.history, w.from+1, byVersion)
	found := outlook{
		news:      f.history[first:],
		now:       f.version,
		forgotten: f.forgotten,
		extra:     f.takeFrameLocked(resource),
		isGone:    resource == "counts" && f.crd != w.crd,
		moved:     f.moved,
	}
	if w.behind != nil && w.behind == f.behind && w.behind.match(w.r.asked) {
		found.now = min(found.now, w.behind.version)
		found.over = w.behind.over
		found.news = slices.DeleteFunc(slices.Clone(found.news), func(c change) bool { return c.Version > found.now })
	}
	return found
}

// tell sends the event that a change is to this watch, if it is one.
func (w *watcher) tell(c change) {
	if c.Resource != w.r.kind.resource || c.Lost {
		return
	}
	was := c.Old != nil && w.selects(c.Old)
	is := c.New != nil && w.selects(c.New)
	event := ""
	o := c.New
	switch {
	case was && is:
		event = "MODIFIED"
	case is:
		event = "ADDED"
	case was: // gone, or selected no more: the previous content, under the new version
		event = "DELETED"
		o = clone(c.Old)
		metaOf(o)["resourceVersion"] = strconv.Itoa(c.Version)
	default:
		return
	}
	w.newest = o
	if w.r.spy != nil {
		w.r.spy.told(w.r.told(), event, o)
	}
	w.send(event, w.r.show(o, false))
}

// send sends a frame.
func (w *watcher) send(event string, o any) {
	data, _ := json.Marshal(o)
	if w.r.media == mediaProtobuf {
		data = protobufEvent(event, protobufOf(data))
	} else {
		data = fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", event, data)
	}
	w.sendRaw(data)
}

func (w *watcher) sendRaw(data []byte) {
	w.r.w.Write(data)
	http.NewResponseController(w.r.w).Flush()
}

// bookmark tells a client that has asked for it which version it has heard all of.
func (w *watcher) bookmark() {
	if w.r.q.Get("allowWatchBookmarks") != "true" {
		return
	}
	w.send("BOOKMARK", w.r.show(object{
		"metadata": object{"resourceVersion": strconv.Itoa(w.from)},
		"spec":     object{"containers": nil},
		"status":   object{},
	}, false))
}

// interject sends what a test has put in.
func (w *watcher) interject(fr *frame) {
	switch {
	case fr.raw != "":
		w.sendRaw([]byte(fr.raw))
	case fr.object != nil:
		w.send(fr.event, fr.object)
	case w.newest != nil:
		w.send(fr.event, w.r.show(w.newest, false))
	}
}

// interject gives one watch of the frame's resource, one that runs or the next, that frame.
func (f *fakeServer) interject(fr frame) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.frames = append(f.frames, &fr)
	f.movedLocked()
}

// takeFrameLocked takes the first frame that waits for a watch of the resource; nil is none.
func (f *fakeServer) takeFrameLocked(resource string) *frame {
	i := slices.IndexFunc(f.frames, func(fr *frame) bool { return fr.resource == resource })
	if i < 0 {
		return nil
	}
	fr := f.frames[i]
	f.frames = slices.Delete(f.frames, i, i+1)
	return fr
}

// areWatchesBroken reports how the watches ended that endWatches has ended last.
func (f *fakeServer) areWatchesBroken() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.isBroken
}

// pb is a protobuf message that is being written, field by field.
// https://protobuf.dev/programming-guides/encoding/
type pb []byte

// bytes adds a field of bytes, or of a message.
func (b *pb) bytes(field int, v []byte) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3|2)
	*b = binary.AppendUvarint(*b, uint64(len(v)))
	*b = append(*b, v...)
}

// text adds a field of text.
func (b *pb) text(field int, v string) { b.bytes(field, []byte(v)) }

// int adds a field of a number.
func (b *pb) int(field, v int) {
	*b = binary.AppendUvarint(*b, uint64(field)<<3)
	*b = binary.AppendUvarint(*b, uint64(v))
}

// protobufOf is the answer that is this one in JSON: a pod, a node, their lists or their metadata, or a Status. Of
// these, it writes the fields that clients of such a server read. It panics where the answer is no JSON.
func protobufOf(answer []byte) []byte {
	var o object
	if err := json.Unmarshal(answer, &o); err != nil {
		panic(err)
	}
	var m pb
	items, isList := o["items"].([]any)
	switch {
	case o["kind"] == "Status":
		m = protobufStatus(o)
	case isList:
		var meta pb
		meta.text(1, "")
		meta.text(2, str(metaOf(o), "resourceVersion"))
		meta.text(3, str(metaOf(o), "continue"))
		m.bytes(1, meta)
		for _, item := range items {
			m.bytes(2, protobufObject(item.(object)))
		}
	default:
		m = protobufObject(o)
	}
	var types pb
	types.text(1, str(o, "apiVersion"))
	types.text(2, str(o, "kind"))
	var unknown pb
	unknown.bytes(1, types)
	unknown.bytes(2, m)
	unknown.text(3, "")
	unknown.text(4, "")
	return append([]byte("k8s\x00"), unknown...)
}

// protobufStatus is the message of a Status.
func protobufStatus(o object) pb {
	var meta pb
	for field := range 3 {
		meta.text(field+1, "")
	}
	var m pb
	m.bytes(1, meta)
	m.text(2, str(o, "status"))
	m.text(3, str(o, "message"))
	m.text(4, str(o, "reason"))
	if details, ok := o["details"].(object); ok {
		var d pb
		for i, key := range []string{"name", "group", "kind"} {
			d.text(i+1, str(details, key))
		}
		causes, _ := details["causes"].([]any)
		for _, c := range causes {
			var cause pb
			for i, key := range []string{"reason", "message", "field"} {
				cause.text(i+1, str(c.(object), key))
			}
			d.bytes(4, cause)
		}
		seconds, _ := details["retryAfterSeconds"].(float64)
		d.int(5, int(seconds))
		m.bytes(5, d)
	}
	code, _ := o["code"].(float64)
	m.int(6, int(code))
	return m
}

// protobufObject is the message of a pod, a node, or the metadata of either.
func protobufObject(o object) pb {
	var m pb
	m.bytes(1, protobufMeta(metaOf(o)))
	if spec, ok := o["spec"].(object); ok {
		var podSpec pb
		containers, _ := spec["containers"].([]any)
		for _, c := range containers {
			var container pb
			container.text(1, str(c.(object), "name"))
			container.text(2, str(c.(object), "image"))
			podSpec.bytes(2, container)
		}
		podSpec.text(10, str(spec, "nodeName"))
		m.bytes(2, podSpec)
	}
	if status, ok := o["status"].(object); ok {
		var phase pb
		phase.text(1, str(status, "phase"))
		m.bytes(3, phase)
	}
	return m
}

// protobufMeta is the message of an object's metadata.
func protobufMeta(of object) pb {
	var meta pb
	for i, key := range []string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion"} {
		meta.text(i+1, str(of, key))
	}
	generation, _ := of["generation"].(float64)
	meta.int(7, int(generation))
	var created pb
	at, _ := time.Parse(time.RFC3339, str(of, "creationTimestamp"))
	created.int(1, int(at.Unix()))
	created.int(2, 0)
	meta.bytes(8, created)
	for i, field := range []string{"labels", "annotations"} {
		all, _ := of[field].(object)
		for _, key := range slices.Sorted(maps.Keys(all)) {
			var entry pb
			entry.text(1, key)
			entry.text(2, str(all, key))
			meta.bytes(11+i, entry)
		}
	}
	return meta
}

// protobufEvent is a frame of a watch in protobuf, with an object as protobufOf makes it.
func protobufEvent(event string, o []byte) []byte {
	var frame, raw pb
	raw.bytes(1, o)
	frame.text(1, event)
	frame.bytes(2, raw)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)
}

// endWatches ends the watches that run: cleanly, as a server that goes down does, or by breaking their connections.
func (f *fakeServer) endWatches(isBroken bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.isBroken = isBroken
	close(f.ended)
	f.ended = make(chan struct{})
}

// read answers a GET of one object.
func (f *fakeServer) read(r *fakeRequest) {
	if o := f.get(r.kind.resource, r.key); o != nil {
		r.answer(200, r.show(o, false))
		return
	}
	r.notFound()
}

// create answers a POST. A CRD that is made is that of Counts, whatever its name.
func (f *fakeServer) create(r *fakeRequest) {
	o := r.decoded()
	if o == nil {
		return
	}
	meta := metaOf(o)
	if prefix := str(meta, "generateName"); str(meta, "name") == "" && prefix != "" {
		meta["name"] = prefix + strconv.FormatUint(rand.Uint64N(1<<24), 36)
	}
	r.key.Name = str(meta, "name")
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.kind.isNamespaced {
		meta["namespace"] = r.key.Namespace
		if f.objects["namespaces"][objectKey{"", r.key.Namespace}] == nil {
			r.fail(404, "NotFound", fmt.Sprintf("namespaces %q not found", r.key.Namespace),
				object{"name": r.key.Namespace, "kind": "namespaces"})
			return
		}
	}
	if f.objects[r.kind.resource][r.key] != nil {
		r.fail(409, "AlreadyExists", fmt.Sprintf("%s %q already exists", r.kind.qualified(), r.key.Name), r.details())
		return
	}
	if r.valid(o) {
		r.answer(201, r.show(f.putLocked(r.kind.resource, o), false))
	}
	if r.kind.resource == "customresourcedefinitions" {
		f.crd = crdOf(o)
	}
}

// crdOf reads a CustomResourceDefinition.
func crdOf(o object) *fakeCRD {
	version := o["spec"].(object)["versions"].([]any)[0].(object)
	subresources, _ := version["subresources"].(object)
	schema, _ := version["schema"].(object)["openAPIV3Schema"].(object)
	properties, _ := schema["properties"].(object)
	return &fakeCRD{
		status: subresources["status"] != nil,
		drops:  properties["status"] == nil,
	}
}

// decoded is the object that a request brings. It is nil where the request was answered, as there is none.
func (r *fakeRequest) decoded() object {
	var o object
	err := json.Unmarshal(r.body, &o)
	if err != nil || metaOf(o) == nil {
		kind := r.kind.kind
		message := fmt.Sprintf("%s in version %q cannot be handled as a %s: %v", kind, r.kind.version, kind, err)
		r.fail(400, "BadRequest", message, nil)
		return nil
	}
	return o
}

// valid reports whether an object may be stored; where it may not, it answers why. Of the server's checks, it has
// those of names and labels, of an Event's namespace, and of a Lease's times.
func (r *fakeRequest) valid(o object) bool {
	if about, ok := o["involvedObject"].(object); ok {
		if ns := str(about, "namespace"); ns != r.key.Namespace && (ns != "" || r.key.Namespace != "default") {
			r.invalid("involvedObject.namespace", fmt.Sprintf("Invalid value: %q: does not match event.namespace", ns))
			return false
		}
	}
	if problem := subdomainProblem(r.key.Name); problem != "" {
		r.invalid("metadata.name", fmt.Sprintf("Invalid value: %q: %s", r.key.Name, problem))
		return false
	}
	labels, _ := metaOf(o)["labels"].(object)
	for key := range labels {
		if problem := labelKeyProblem(key); problem != "" {
			r.invalid("metadata.labels", fmt.Sprintf("Invalid value: %q: %s", key, problem))
			return false
		}
		value := str(labels, key)
		if problem := labelValueProblem(value); problem != "" {
			r.invalid("metadata.labels", fmt.Sprintf("Invalid value: %q: %s", value, problem))
			return false
		}
	}
	if r.kind.kind != "Lease" {
		return true
	}
	spec, _ := o["spec"].(object)
	for _, field := range []string{"acquireTime", "renewTime"} {
		const microTime = "2006-01-02T15:04:05.000000Z07:00"
		value := str(spec, field)
		if value == "" {
			continue
		}
		if _, err := time.Parse(microTime, value); err != nil {
			r.fail(400, "BadRequest", "Lease in version \"v1\" cannot be handled as a Lease: "+err.Error(), nil)
			return false
		}
	}
	return true
}

// update answers a PUT. It may make a Lease, but nothing else.
func (f *fakeServer) update(r *fakeRequest) {
	o := r.decoded()
	if o == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.objects[r.kind.resource][r.key]
	version := str(metaOf(o), "resourceVersion")
	switch {
	case !r.valid(o):
	case old == nil && r.kind.kind == "Lease" && version == "":
		r.answer(201, r.show(f.putLocked(r.kind.resource, o), false))
	case old == nil:
		r.notFound()
	case version == "":
		r.invalid("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
	case version != str(metaOf(old), "resourceVersion"):
		r.conflict()
	default:
		f.storeLocked(r, old, o)
	}
}

// storeLocked answers with o in place of old; where nothing has changed, not even the version does.
func (f *fakeServer) storeLocked(r *fakeRequest, old, o object) {
	for _, field := range []string{"uid", "creationTimestamp", "resourceVersion"} {
		metaOf(o)[field] = metaOf(old)[field]
	}
	if reflect.DeepEqual(clone(o), clone(old)) {
		r.answer(200, r.show(old, false))
		return
	}
	r.answer(200, r.show(f.putLocked(r.kind.resource, o), false))
}

// mergePatch changes o as a JSON merge patch says, https://www.rfc-editor.org/rfc/rfc7396.
func mergePatch(o, patch object) {
	for k, v := range patch {
		sub, isObject := v.(object)
		switch {
		case v == nil:
			delete(o, k)
		case isObject:
			at, ok := o[k].(object)
			if !ok {
				at = object{}
			}
			mergePatch(at, sub)
			o[k] = at
		default:
			o[k] = v
		}
	}
}

// patch answers a PATCH. A strategic merge patch is taken for a merge patch.
func (f *fakeServer) patch(r *fakeRequest) {
	media := r.Header.Get("Content-Type")
	if media != "application/merge-patch+json" && media != "application/strategic-merge-patch+json" {
		r.fail(415, "UnsupportedMediaType", "415: Unsupported Media Type", object{})
		return
	}
	var patch object
	if err := json.Unmarshal(r.body, &patch); err != nil {
		r.fail(400, "BadRequest", "error decoding patch: "+err.Error(), nil)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	old := f.objects[r.kind.resource][r.key]
	if old == nil || r.status && !(r.kind.resource == "counts" && f.crd.status) {
		r.notFound()
		return
	}
	meta := metaOf(patch)
	if v := str(meta, "resourceVersion"); v != "" && v != str(metaOf(old), "resourceVersion") {
		r.conflict()
		return
	}
	if uid := str(meta, "uid"); uid != "" && uid != str(metaOf(old), "uid") && !r.status {
		r.invalid("metadata.uid", fmt.Sprintf("Invalid value: %q: field is immutable", uid))
		return
	}
	o := clone(old)
	mergePatch(o, patch)
	if r.kind.resource == "counts" && f.crd.status {
		o = partOf(old, o, r.status)
	}
	if r.kind.resource == "counts" && f.crd.drops {
		delete(o, "status")
	}
	if labels, ok := metaOf(o)["labels"].(object); ok && r.kind.resource == "nodes" {
		delete(labels, f.stripped)
	}
	if r.valid(o) && !f.refusedLocked(r, o) {
		f.storeLocked(r, old, o)
	}
}

// partOf is what becomes of old where o is written: whoever writes to the status changes nothing else, and the
// other way round.
func partOf(old, o object, isStatus bool) object {
	part := maps.Clone(o)
	status := old["status"]
	if isStatus {
		part = clone(old)
		status = o["status"]
	}
	part["status"] = status
	if status == nil {
		delete(part, "status")
	}
	return part
}

// strip has a mutating webhook remove a label from each node that is written; "" is none.
func (f *fakeServer) strip(label string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stripped = label
}

// delete answers a DELETE. Any CRD that is deleted is that of Counts.
func (f *fakeServer) delete(r *fakeRequest) {
	if r.kind.resource == "customresourcedefinitions" {
		f.install(nil)
	}
	if o := f.remove(r.kind.resource, r.key); o != nil {
		r.answer(200, r.show(o, false))
		return
	}
	r.notFound()
}

// serveTLS serves the fake on a port of 127.0.0.1, over TLS and HTTP/2, in real time. It returns the server, which the
// caller closes, and the CA of its certificate, in PEM.
func (f *fakeServer) serveTLS() (srv *httptest.Server, ca []byte) {
	srv = httptest.NewUnstartedServer(f)
	srv.EnableHTTP2 = true
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	srv.StartTLS()
	return srv, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

// serveTLSFor is serveTLS until the test ends. It returns the URL and the CA.
func (f *fakeServer) serveTLSFor(t *testing.T) (url string, ca []byte) {
	srv, ca := f.serveTLS()
	t.Cleanup(func() {
		srv.CloseClientConnections()
		srv.Close()
	})
	return srv.URL, ca
}

// await waits until cond holds, in real time, and fails the test if it does not within 20 s. It looks again with each
// request and each change.
func (f *fakeServer) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		grew := f.nextRequestOrChange()
		if cond() {
			return
		}
		select {
		case <-grew:
		case <-late:
			t.Fatalf("never: %s", what)
		}
	}
}

// kubeconfigFor is a kubeconfig for a server's URL, with its CA in PEM, and as user the lines of YAML below "user:",
// such as "token: secret"; all but the first are indented by 4 spaces.
func kubeconfigFor(server string, ca []byte, user string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Config
clusters:
- name: fake
  cluster:
    server: %s
    certificate-authority-data: %s
users:
- name: me
  user:
    %s
contexts:
- name: fake
  context: {cluster: fake, user: me}
current-context: fake
`, server, base64.StdEncoding.EncodeToString(ca), user)
}

// ---------------------------------------------------------------------------------------------------------------------
// The playground: PROGRAM playground PODCOUNT DIR [FLAGS…]

func playground(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: playground PODCOUNT-BINARY DIRECTORY [PODCOUNT-FLAGS]")
		return 2
	}
	f := newFake()
	f.allow("playground")
	f.addNode("control-plane", controlPlane)
	f.addNode("worker-1")
	f.addNode("worker-2")
	f.install(&fakeCRD{status: true})
	f.addCount("web", `{"name":"web","count":30}`)
	nodes := []string{"control-plane", "worker-1", "worker-2"}
	for i := range 30 {
		f.addPod("default", fmt.Sprintf("web-%d", i), nodes[rand.IntN(len(nodes))])
	}
	srv, ca := f.serveTLS()
	dir, _ := filepath.Abs(args[1])
	file, err := writeOwnKubeconfig(dir, kubeconfigFor(srv.URL, ca, "token: playground"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	defer os.Remove(file)

	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cmd := exec.Command(args[0], append([]string{"-kubeconfig", file}, args[2:]...)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C comes to us alone, and we pass it on
	fmt.Printf("A fake API server with 3 nodes and about 30 pods that come and go runs at %s.\npodcount runs against it: %s\n", srv.URL, strings.Join(cmd.Args, " "))
	if _, err := exec.LookPath("kubectl"); err == nil {
		fmt.Printf("In another terminal, try:\n  export KUBECONFIG=%s\n  kubectl get nodes -L hopegi/pod-count\n  kubectl get pods -A -w\n  kubectl describe node control-plane\n  kubectl get count web -o yaml\n  kubectl run mine --image=nginx\n  kubectl label node worker-1 %s=\n", file, controlPlane)
	} else {
		fmt.Printf("In another terminal, try:\n  curl -sk -H 'Authorization: Bearer playground' %s/api/v1/nodes/control-plane\n", srv.URL)
	}
	host := strings.TrimPrefix(srv.URL, "https://")
	faults := make(chan os.Signal, 1)
	signal.Notify(faults, syscall.SIGUSR1, syscall.SIGUSR2)
	fmt.Printf("  kill -USR1 %[1]d    # the server is gone, for 20 s\n  kill -USR2 %[1]d    # it has forgotten its history\nCtrl-C stops both.\n\n", os.Getpid())
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "playground:", err)
		return 1
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	life := time.NewTicker(1500 * time.Millisecond)
	for next := 30; ; next++ {
		select {
		case <-life.C:
			if pods := f.all("pods"); len(pods) > 25+rand.IntN(10) {
				f.remove("pods", keyOf(pods[rand.IntN(len(pods))]))
			} else {
				f.addPod("default", fmt.Sprintf("web-%d", next), nodes[rand.IntN(len(nodes))])
			}
			continue
		case fault := <-faults:
			fmt.Println("playground: the server is gone")
			f.cutOff(host, true)
			back := func() {
				fmt.Println("playground: the server is back")
				f.cutOff(host, false)
			}
			if fault == syscall.SIGUSR1 {
				time.AfterFunc(20*time.Second, back)
				continue
			}
			f.addPod("default", fmt.Sprintf("web-unseen-%d", next), nodes[0])
			f.compact()
			back()
			continue
		case err := <-exited:
			fmt.Fprintln(os.Stderr, "playground: podcount ended:", err)
			return 1
		case <-signals:
		}
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
			return 0
		case <-time.After(20 * time.Second):
			cmd.Process.Kill()
			return 1
		}
	}
}

// writeOwnKubeconfig writes a playground's kubeconfig to a file that no other playground uses, and returns its name:
// playground.kubeconfig, or playground-2.kubeconfig and so on while the servers of those before still answer.
func writeOwnKubeconfig(dir, text string) (file string, err error) {
	// One at a time, so that two which start together do not choose the same name.
	lock, err := os.OpenFile(filepath.Join(dir, ".playground.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	for n := 1; ; n++ {
		file = filepath.Join(dir, "playground.kubeconfig")
		if n > 1 {
			file = filepath.Join(dir, fmt.Sprintf("playground-%d.kubeconfig", n))
		}
		other, err := os.ReadFile(file)
		if err == nil && serverAnswers(string(other)) {
			continue
		}
		return file, os.WriteFile(file, []byte(text), 0o600)
	}
}

// serverAnswers reports whether anybody listens where a kubeconfig has its server.
func serverAnswers(kubeconfig string) bool {
	_, server, _ := strings.Cut(kubeconfig, "server: https://")
	server, _, _ = strings.Cut(server, "\n")
	conn, err := net.DialTimeout("tcp", server, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

func TestPlaygroundsKeepOutOfEachOthersFiles(t *testing.T) {
	dir := t.TempDir()
	want := func(server *httptest.Server, name string) {
		t.Helper()
		text := kubeconfigFor(server.URL, nil, "token: playground")
		file, err := writeOwnKubeconfig(dir, text)
		if err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(file)
		if err != nil || filepath.Base(file) != name || string(got) != text {
			t.Errorf("the file is %s, want %s; %v\n%s", file, name, err, got)
		}
	}
	var servers []*httptest.Server
	for range 4 {
		server := httptest.NewTLSServer(http.NotFoundHandler())
		server.Config.ErrorLog = log.New(io.Discard, "", 0)
		defer server.Close()
		servers = append(servers, server)
	}
	want(servers[0], "playground.kubeconfig")
	want(servers[1], "playground-2.kubeconfig")
	want(servers[2], "playground-3.kubeconfig")
	servers[1].Close() // killed: its file is still there
	want(servers[3], "playground-2.kubeconfig")
	files, err := filepath.Glob(filepath.Join(dir, "*.kubeconfig"))
	if err != nil || len(files) != 3 {
		t.Errorf("there are %q, %v", files, err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Test harness

// logBuffer keeps what a program logs. Safe for concurrent use.
type logBuffer struct {
	wrote chan struct{} // if any, hears of each line

	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.wrote <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// pipeNet is a network within the process, with one server, on which the fake serves. It works in virtual time, which
// real connections do not. It is the server's net.Listener; clients have dial.
type pipeNet struct {
	conns chan net.Conn
	done  chan struct{}

	isDown atomic.Bool  // connections are refused
	dials  atomic.Int32 // attempts to connect so far
	era    atomic.Int32 // counts goSilent; the connections of earlier eras are half open

	mu   sync.Mutex // guards open
	open []net.Conn // the server's ends
}

// kill breaks all connections and refuses new ones until restore is called.
func (n *pipeNet) kill() {
	n.refuse()
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.open {
		c.Close()
	}
	n.open = nil
}

// refuse lets nobody connect until restore is called. The connections that are there go on.
func (n *pipeNet) refuse() { n.isDown.Store(true) }

// restore ends kill and refuse.
func (n *pipeNet) restore() { n.isDown.Store(false) }

// goSilent makes all connections that are there half open: nothing that either end sends arrives any more, and nobody
// is told. New connections work.
func (n *pipeNet) goSilent() { n.era.Add(1) }

// dialed is how many times a client has tried to connect, whether it could or not.
func (n *pipeNet) dialed() int { return int(n.dials.Load()) }

// halfOpen is the client's end of a connection. Once its network's era is over, the client alone knows of it.
type halfOpen struct {
	net.Conn

	// in buffers what arrives, as a real network does. Without that, two ends that both write would wait for each
	// other for ever.
	in  io.Reader
	net *pipeNet
	era int32
}

// Read passes over what arrives once the era is over.
func (c halfOpen) Read(p []byte) (n int, err error) {
	for {
		n, err = c.in.Read(p)
		if c.era == c.net.era.Load() || err != nil {
			return n, err
		}
	}
}

// Write loses what is sent once the era is over.
func (c halfOpen) Write(p []byte) (int, error) {
	if c.era != c.net.era.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

// Accept waits for the next connection, or for the end of the network.
func (n *pipeNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.done:
		return nil, net.ErrClosed
	}
}

// Close does nothing: the network ends with its test.
func (n *pipeNet) Close() error { return nil }

// Addr is an address that says nothing.
func (n *pipeNet) Addr() net.Addr { return &net.TCPAddr{} }

// dial connects a client to the server, whatever the address. It is for http.Transport.DialContext and the like.
func (n *pipeNet) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	n.dials.Add(1)
	if n.isDown.Load() {
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	ours, theirs := net.Pipe()
	select {
	case n.conns <- theirs:
		n.mu.Lock()
		defer n.mu.Unlock()
		n.open = append(n.open, theirs)
		return halfOpen{Conn: ours, in: bufio.NewReaderSize(ours, 32<<10), net: n, era: n.era.Load()}, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// serveIn serves the fake on a network of its own until the test ends. With a certificate, which is asked for at each
// handshake, it does so over TLS, and so over HTTP/2.
func (f *fakeServer) serveIn(t testing.TB, certificate ...func() *tls.Certificate) *pipeNet {
	return serveHandlerIn(t, f, certificate...)
}

// serveHandlerIn is serveIn of something else than a fake, such as a proxy before one.
func serveHandlerIn(t testing.TB, handler http.Handler, certificate ...func() *tls.Certificate) *pipeNet {
	n := &pipeNet{conns: make(chan net.Conn), done: make(chan struct{})}
	srv := &http.Server{Handler: handler, ErrorLog: log.New(io.Discard, "", 0)}
	if len(certificate) > 0 {
		srv.TLSConfig = &tls.Config{
			ClientAuth: tls.RequestClientCert,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
				return certificate[0](), nil
			},
		}
		go srv.ServeTLS(n, "", "")
	} else {
		go srv.Serve(n)
	}
	t.Cleanup(func() {
		close(n.done)
		srv.Close()
	})
	return n
}

// serveAs is serveIn over TLS, and writes a kubeconfig for that to dir/config. The user is as in kubeconfigFor.
func (f *fakeServer) serveAs(t testing.TB, dir, user string) *pipeNet {
	t.Helper()
	ca := newAuthority(t, "CA")
	cert, key := ca.issue(t, "server", nil)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	config := kubeconfigFor("https://127.0.0.1:1", ca.pem(), user)
	err = os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return f.serveIn(t, func() *tls.Certificate { return &pair })
}

// program is a podcount that runs against a fake.
type program struct {
	t    testing.TB
	net  *pipeNet
	log  *logBuffer
	out  *logBuffer
	done chan struct{} // closed when it has ended
	stop func() error  // asks it to stop and returns how it ended; also called when the test ends
}

// startPodcount runs the whole program against f, on a network of its own, in virtual time.
func startPodcount(t testing.TB, f *fakeServer, args ...string) *program {
	return startPodcountOn(t, f.serveIn(t), append([]string{"-master", "http://127.0.0.1:1", "-v", "6"}, args...)...)
}

// startOverTLS is startPodcount over TLS, and so over HTTP/2.
func startOverTLS(t *testing.T, f *fakeServer, args ...string) *program {
	dir := t.TempDir()
	n := f.serveAs(t, dir, "token: t")
	return startPodcountOn(t, n, append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-v", "6"}, args...)...)
}

// startPodcountOn runs the whole program on a network.
func startPodcountOn(t testing.TB, n *pipeNet, args ...string) *program {
	return startPodcountWith(t, n, wiring{}, args...)
}

// wiring is what stands between a program and the world.
type wiring struct {
	dial  Dialer                      // if set, in place of the network's
	pipes func(w io.Writer) io.Writer // if set, leads to a program's stdout and stderr
}

// startPodcountWith runs the whole program on a network, with a wiring of its own.
func startPodcountWith(t testing.TB, n *pipeNet, wires wiring, args ...string) *program {
	p := &program{t: t, net: n, log: &logBuffer{}, out: &logBuffer{}, done: make(chan struct{})}
	dial := wires.dial
	if dial == nil {
		dial = n.dial
	}
	var stdout, stderr io.Writer = p.out, p.log
	if wires.pipes != nil {
		stdout = wires.pipes(p.out)
		stderr = wires.pipes(p.log)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var err error
	go func() {
		defer close(p.done)
		err = run(ctx, args, func(string) string { return "" }, stdout, stderr, dial)
	}()
	p.stop = func() error {
		cancel()
		<-p.done
		return err
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Log(p.log.String())
		}
	})
	return p
}

// simulate runs a test in virtual time, with a fake of its own.
func simulate(t *testing.T, test func(t *testing.T, f *fakeServer)) {
	synctest.Test(t, func(t *testing.T) { test(t, newFake()) })
}

// pass lets virtual time pass, and then everything come to rest.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func wantLabel(t *testing.T, f *fakeServer, node, label, want string) {
	t.Helper()
	if got := f.label(node, label); got != want {
		t.Errorf("node %s has %s=%s, want %s", node, label, got, want)
	}
}

func wantNumber(t *testing.T, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func wantText(t *testing.T, text, want string) {
	t.Helper()
	if !strings.Contains(text, want) {
		t.Errorf("no %q in:\n%s", want, text)
	}
}

// wantPeace is the oracle: now that faults have stopped, it lets the bound pass, and then the labels must equal the truth,
// which is read from the fake alone; and for five intervals nobody may try to write one, or a status. A program that was
// started with other flags than the defaults has them here, too.
func wantPeace(t *testing.T, f *fakeServer, args ...string) {
	t.Helper()
	o, err := parseFlags(args, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	pass(time.Minute + o.interval + time.Duration(float64(len(f.all("nodes")))/o.qps*float64(time.Second)))
	pods := f.selected("pods", o.namespace, o.podSelector, o.fieldSelector)
	own := map[string]int{} // by node
	for _, pod := range pods {
		spec, _ := pod["spec"].(object)
		own[str(spec, "nodeName")]++
	}
	for _, node := range f.all("nodes") {
		name, total, labels := keyOf(node).Name, "-", map[string]string{}
		for k, v := range metaOf(node)["labels"].(object) {
			labels[k] = v.(string)
		}
		if o.totalNodes.Matches(labelsIn(labels)) {
			total = strconv.Itoa(len(pods))
		}
		wantLabel(t, f, name, o.totalLabel, total)
		if o.nodeLabel != "" {
			wantLabel(t, f, name, o.nodeLabel, strconv.Itoa(own[name]))
		}
	}
	peace := time.Now()
	pass(5 * o.interval)
	for _, s := range f.asked(func(s seen) bool { return isWrite(s) && !strings.Contains(s.Path, "/leases/") && s.At.After(peace) }) {
		t.Errorf("written though all is right: %s", s)
	}
}

const podCountLabel = "hopegi/pod-count"

func noCredential(context.Context, *Credential) (*Credential, error) { return &Credential{}, nil }

func quietLog() *Log { return newLog(io.Discard, &options{}) }

// ---------------------------------------------------------------------------------------------------------------------
// The controller: the main job

func TestTotalGoesToControlPlaneNodesOfEitherRoleAndToNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("new", controlPlane)
		f.addNode("old", oldControlPlane+"=true")
		f.addNode("worker")
		f.addPods(3)
		startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "new", podCountLabel, "3")
		wantLabel(t, f, "old", podCountLabel, "3")
		wantLabel(t, f, "worker", podCountLabel, "-")
	})
}

func TestRightLabelIsNotWrittenAndAWrongOneOnce(t *testing.T) {
	for _, c := range []struct {
		has    string
		writes int
	}{{"4", 1}, {"3", 0}} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane, podCountLabel+"="+c.has)
			f.addNode("worker")
			f.addPods(3)
			startPodcount(t, f)
			pass(time.Minute)
			wantLabel(t, f, "cp", podCountLabel, "3")
			wantNumber(t, "writes with the label at "+c.has, len(f.asked(isWrite)), c.writes)
		})
	}
}

func TestFirstChangeIsWrittenAtOnceThenOneAnIntervalAndTheLastStateAlways(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		startPodcount(t, f)
		pass(35 * time.Second)
		begin := time.Now()
		before := len(f.asked(isWrite))
		f.addPod("default", "first", "")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
		if time.Since(begin) != 0 {
			t.Errorf("it took %v", time.Since(begin))
		}
		for i := range 250 { // 25 s of changes
			f.addPod("default", fmt.Sprintf("more-%d", i), "")
			pass(100 * time.Millisecond)
		}
		pass(10 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "251")
		writes := f.asked(isWrite)[before:]
		wantNumber(t, "writes", len(writes), 4) // at 0, 10, 20 and 30 s
		for i := 1; i < len(writes); i++ {
			if gap := writes[i].At.Sub(writes[i-1].At); gap < 10*time.Second || gap > 11*time.Second {
				t.Errorf("%v between two writes", gap)
			}
		}
		before = len(f.asked(isWrite))
		pass(5 * time.Minute)
		wantNumber(t, "writes in the quiet", len(f.asked(isWrite))-before, 0)
	})
}

func TestChangeBehindAQuietStartIsWrittenAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane, podCountLabel+"=0")
		startPodcount(t, f)
		pass(2 * time.Second) // nothing was written so far, so nothing rests
		f.addPods(1)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
	})
}

func TestTotalThatCameAndWentUnwrittenDoesNotDelayTheNextChange(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		const own = "example.com/pods"
		f.addNode("cp", controlPlane)
		pod := f.addPod("default", "a", "")
		startPodcount(t, f, "-interval", "60s", "-node-label", own)
		pass(200 * time.Second)
		pod = clone(pod)
		pod["spec"].(object)["nodeName"] = "cp"
		f.put("pods", pod)
		pass(5 * time.Second)
		wantLabel(t, f, "cp", own, "1") // and rests until 260 s
		f.addPod("default", "b", "")
		pass(5 * time.Second)
		f.remove("pods", objectKey{"default", "b"})
		pass(52 * time.Second)
		f.addPod("default", "c", "")
		pass(time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
	})
}

func TestNodeThatStopsMatchingLosesTheLabelAndOneThatBeginsGetsIt(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("a", controlPlane)
		f.addNode("b")
		f.addNode("left", podCountLabel+"=7") // from a time before the start
		f.addPods(2)
		startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "a", podCountLabel, "2")
		wantLabel(t, f, "left", podCountLabel, "-")
		pass(10 * time.Second)
		f.setLabel("a", controlPlane, nil)
		f.setLabel("b", controlPlane, "")
		pass(time.Second)
		wantLabel(t, f, "a", podCountLabel, "-")
		wantLabel(t, f, "b", podCountLabel, "2")
	})
}

func TestOwnWriteIsKnownFromItsAnswerBeforeTheWatchTellsIt(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.loseNext(1)
		startPodcount(t, f)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "writes", len(f.asked(isWrite)), 1)
	})
}

func TestAnotherWritersLabelIsPutRight(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		startPodcount(t, f)
		for _, v := range []any{"99", nil} {
			pass(15 * time.Second)
			f.setLabel("cp", podCountLabel, v)
			pass(time.Second)
			wantLabel(t, f, "cp", podCountLabel, "2")
		}
	})
}

func TestRecreatedNodeGetsTheLabel(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		startPodcount(t, f)
		pass(30 * time.Second)
		for range 3 { // also right behind a write to its predecessor
			f.remove("nodes", objectKey{"", "cp"})
			f.addNode("cp", controlPlane)
			synctest.Wait()
			wantLabel(t, f, "cp", podCountLabel, "2")
		}
	})
}

func TestNodeLabelCountsEachNodesOwnPods(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		const own = "example.com/pods"
		f.addNode("cp", controlPlane)
		f.addNode("w1")
		f.addNode("w2")
		f.addPod("a", "x", "w1")
		f.addPod("a", "y", "w1")
		f.addPod("a", "unbound", "")
		startPodcount(t, f, "-node-label", own)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "3")
		wantLabel(t, f, "cp", own, "0")
		wantLabel(t, f, "w1", own, "2")
		wantLabel(t, f, "w2", own, "0")
		wantLabel(t, f, "w1", podCountLabel, "-")
		pass(10 * time.Second)
		bound := clone(f.get("pods", objectKey{"a", "unbound"}))
		bound["spec"].(object)["nodeName"] = "w2"
		f.put("pods", bound)
		f.remove("pods", objectKey{"a", "x"})
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantLabel(t, f, "w1", own, "1")
		wantLabel(t, f, "w2", own, "1")
		accept := f.asked(isList("pods"))[0].Accept
		if strings.Contains(accept, "PartialObjectMetadata") {
			t.Errorf("asked for metadata alone (%s), which has no spec.nodeName", accept)
		}
	})
}

func TestProtobufAndMetadataAloneAreAskedForUnlessMoreIsNeededOrJSONIsWanted(t *testing.T) {
	metadata := ";as=PartialObjectMetadata%s;g=meta.k8s.io;v=v1"
	for args, want := range map[string]struct{ pods, nodes string }{
		"":                                     {protobufType + metadata + ", " + protobufType + ", " + jsonType + metadata + ", " + jsonType, protobufType + metadata + ", " + protobufType + ", " + jsonType + metadata + ", " + jsonType},
		"-wire json":                           {jsonType + metadata + ", " + jsonType, jsonType + metadata + ", " + jsonType},
		"-node-label example.com/n":            {protobufType + ", " + jsonType, protobufType + metadata + ", " + protobufType + ", " + jsonType + metadata + ", " + jsonType},
		"-node-label example.com/n -wire json": {jsonType, jsonType + metadata + ", " + jsonType},
	} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			f.addPods(3)
			startPodcount(t, f, strings.Fields(args)...)
			synctest.Wait()
			for resource, want := range map[string]string{"pods": want.pods, "nodes": want.nodes} {
				for _, s := range f.asked(isList(resource)) {
					wantText(t, "^"+s.Accept+"$", "^"+strings.ReplaceAll(want, "%s", "List")+"$")
				}
				for _, s := range f.asked(isWatch(resource)) {
					wantText(t, "^"+s.Accept+"$", "^"+strings.ReplaceAll(want, "%s", "")+"$")
				}
			}
			wantLabel(t, f, "cp", podCountLabel, "3")
			f.addPods(5)
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "5")
		})
	}
}

func TestServerThatAnswersWholeObjectsOrOnlyJSONIsUnderstood(t *testing.T) {
	for _, only := range []string{protobufType, jsonType} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.only = only // and no metadata alone
			f.addNode("cp", controlPlane)
			f.addPods(3)
			startPodcount(t, f)
			synctest.Wait()
			wantLabel(t, f, "cp", podCountLabel, "3")
			f.addPods(5)
			f.remove("pods", objectKey{"default", "web-0"})
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "4")
		})
	}
}

func TestRefusalInProtobufIsSaidAsOneInJSON(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.forbid("list pods", true)
		p := startPodcount(t, f)
		pass(time.Second)
		wantText(t, p.log.String(), `list pods: 403 Forbidden: pods is forbidden`)
		wantText(t, p.log.String(), `(the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"])`)
		f.forbid("list pods", false)
		f.addPods(2)
		body := protobufOf([]byte(`{"kind":"Status","code":429,"reason":"TooManyRequests","message":"later","details":{"retryAfterSeconds":7}}`))
		f.inject(t, fault{match: to(isWatch("pods")), status: 429, body: string(body), header: map[string]string{"Content-Type": protobufType}})
		pass(5 * time.Second)
		wantText(t, p.log.String(), "watch pods: 429 TooManyRequests: later")
		if n := len(f.asked(isWatch("pods"))); n != 1 {
			t.Errorf("%d watches in 5 s, though the server asked for 7", n)
		}
		pass(15 * time.Second)
		f.addPods(3)
		synctest.Wait()
		wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 2)
	})
}

func TestTotalDoesNotWaitBehindTheNodesOwnLabels(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 300 { // which take 13 s
			f.addNode("n" + strconv.Itoa(i))
		}
		f.addNode("cp", controlPlane)
		f.addPods(3)
		startPodcount(t, f, "-node-label", "example.com/n")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "3")
	})
}

func TestSelectorsAndNamespaceGoToTheServer(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPod("a", "in", "n1")
		f.addPod("a", "elsewhere", "n2")
		f.addPod("b", "other-namespace", "n1")
		f.put("pods", podOn(object{"namespace": "a", "name": "other-label", "labels": object{"app": "db"}}, "n1"))
		startPodcount(t, f, "-namespace", "a", "-pod-selector", "app in (web,api)", "-field-selector", "spec.nodeName=n1")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "1")
		pass(20 * time.Second)
		left := clone(f.get("pods", objectKey{"a", "in"})) // leaves the selector: a DELETED to us
		metaOf(left)["labels"] = object{"app": "gone"}
		f.put("pods", left)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

func TestTotalNodesAreChosenBySelector(t *testing.T) {
	for selector, want := range map[string]string{
		"": "1 1 1", "zone": "1 1 -", "!zone": "- - 1", "zone=a": "1 - -", "zone!=a": "- 1 1", "zone in (a, b)": "1 1 -", "zone notin (a),zone": "- 1 -",
	} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("a", "zone=a")
			f.addNode("b", "zone=b")
			f.addNode("c")
			f.addPods(1)
			startPodcount(t, f, "-total-nodes", selector)
			synctest.Wait()
			if got := f.label("a", podCountLabel) + " " + f.label("b", podCountLabel) + " " + f.label("c", podCountLabel); got != want {
				t.Errorf("%q chose %s, want %s", selector, got, want)
			}
		})
	}
}

func TestNoNodeForTheTotalIsSaidOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("worker")
		f.addPods(1)
		p := startPodcount(t, f)
		pass(5 * time.Minute)
		wantNumber(t, "lines about it", strings.Count(p.log.String(), "no node gets the total"), 1)
		wantText(t, p.log.String(), "-total-nodes ''")
	})
}

func eventsOf(f *fakeServer, reason string) (found []string) {
	for _, e := range f.all("events") {
		if str(e, "reason") == reason {
			about := e["involvedObject"].(object)
			found = append(found, fmt.Sprintf("%s/%s in %s: %s x%v", str(about, "kind"), str(about, "name"), str(metaOf(e), "namespace"), str(e, "message"), e["count"]))
		}
	}
	slices.Sort(found)
	return found
}

func TestEventsOnNewPodsAndOnChangedNodes(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		cp := f.addNode("cp", controlPlane)
		f.put("namespaces", object{"metadata": object{"name": "shop"}})
		f.addPods(41) // these are no news
		startPodcount(t, f)
		pass(20 * time.Second)
		pod := f.addPod("shop", "new", "")
		pass(time.Second)
		if got, want := eventsOf(f, "PodCounted"), []string{"Pod/new in shop: pod count is 42 x1"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		want := []string{"Node/cp in default: pod count changed from 41 to 42 x1", "Node/cp in default: pod count changed from none to 41 x1"}
		if got := eventsOf(f, "PodCountChanged"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		uids := map[string]string{"Pod": str(metaOf(pod), "uid"), "Node": str(metaOf(cp), "uid")}
		for _, e := range f.all("events") {
			about := e["involvedObject"].(object)
			if str(about, "uid") != uids[str(about, "kind")] || str(e, "reportingComponent") != "podcount" || str(e["source"].(object), "component") != "podcount" {
				t.Errorf("event %v", e)
			}
			if !regexp.MustCompile(`^(new|cp)\.[0-9a-f]+$`).MatchString(str(metaOf(e), "name")) {
				t.Errorf("an event named %s", str(metaOf(e), "name"))
			}
		}
	})
}

func TestPodEventsOffLeavesThePodsOut(t *testing.T) {
	for setting, want := range map[string]int{"on": 1, "off": 0} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			startPodcount(t, f, "-pod-events", setting)
			pass(20 * time.Second)
			f.addPods(1)
			pass(20 * time.Second)
			wantNumber(t, "events on pods with "+setting, len(eventsOf(f, "PodCounted")), want)
			wantNumber(t, "events on nodes with "+setting, len(eventsOf(f, "PodCountChanged")), 2)
		})
	}
}

func TestLabelsDoNotSufferWhateverEventsMeetAndEachEventIsPostedOrCountedAsDropped(t *testing.T) {
	isEvent := func(s seen) bool { return strings.Contains(s.Path, "/events") }
	refused := func(code int, reason string, details any, header ...string) fault {
		return statusFault(t, isEvent, 0, code, reason, details, header...)
	}
	for name, ft := range map[string]fault{
		"their namespace is being deleted": refused(403, "Forbidden", object{"causes": []any{object{"reason": "NamespaceTerminating", "field": "metadata.namespace"}}}),
		"their namespace is gone":          refused(404, "NotFound", nil),
		"a quota":                          refused(403, "Forbidden", nil),
		"a limit, with Retry-After":        refused(429, "TooManyRequests", nil, "Retry-After", "1"),
		"a limit, in plain text":           {status: 429, body: "slow down", header: map[string]string{"Content-Type": "text/plain"}},
		"a server that refuses all":        refused(500, "InternalError", nil),
		"a server that breaks":             {drop: true},
		"a server that does not answer":    {stall: true},
		"a webhook that takes 20 s":        {delay: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				f.addNode("other", controlPlane)
				f.addNode("worker")
				p := startPodcount(t, f, "-node-label", ownPodsLabel, "-v", "2")
				synctest.Wait()
				goroutines := runtime.NumGoroutine()
				ft.match = to(isEvent)
				lift := f.keep(t, ft)
				f.addPods(1500)
				synctest.Wait()
				if n := runtime.NumGoroutine() - goroutines; n > 10 {
					t.Errorf("%d goroutines more with 1,500 events to post", n)
				}
				churn(f, 60)
				for path, writes := range map[string]int{"/api/v1/nodes/cp": 7, "/api/v1/nodes/other": 7, "/api/v1/nodes/worker": 7} {
					wantNumber(t, "writes to "+path+" in a minute", len(f.asked(func(s seen) bool { return isWrite(s) && s.Path == path })), writes)
				}
				lift()
				wantPeace(t, f, "-node-label", ownPodsLabel)
				pass(2 * time.Minute)
				p.stop()

				begun := 1500 + 60 // on pods, and on labels:
				for _, s := range f.asked(isWriteOf("nodes")) {
					var patch struct {
						Metadata struct{ Labels map[string]any }
					}
					json.Unmarshal([]byte(s.Body), &patch)
					begun += len(patch.Metadata.Labels)
				}
				posted, dropped := 0, 0
				for _, e := range f.all("events") {
					posted += int(e["count"].(float64))
				}
				fmt.Sscan(regexp.MustCompile(`events_dropped=(\d+)`).FindStringSubmatch(p.log.String())[1], &dropped)
				wantNumber(t, fmt.Sprintf("events posted (%d) or dropped (%d)", posted, dropped), posted+dropped, begun)
				if posted < 400 || dropped < 400 {
					t.Errorf("%d events were posted, %d dropped: those that waited were to be posted, those for whom there was no room dropped", posted, dropped)
				}
			})
		})
	}
}

func TestPodsFoundByARelistAreNews(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		p := startPodcount(t, f)
		pass(time.Second)
		f.loseNext(1)
		f.addPod("default", "unseen", "")
		pass(time.Second)
		wantNumber(t, "events before the relist", len(eventsOf(f, "PodCounted")), 0)
		p.net.refuse()
		f.endWatches(true)
		f.addPod("default", "later", "")
		f.compact()
		p.net.restore()
		pass(2 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "4")
		wantNumber(t, "events after the relist", len(eventsOf(f, "PodCounted")), 2)
	})
}

func TestNothingIsWrittenBeforeBothListsAreComplete(t *testing.T) {
	for _, resource := range []string{"pods", "nodes"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane, podCountLabel+"=500")
			f.addNode("worker", podCountLabel+"=500")
			f.addPods(500)
			f.inject(t, fault{match: to(isList(resource)), times: 3, cut: 300})
			startPodcount(t, f)
			pass(time.Second)
			wantNumber(t, "writes while "+resource+" are not listed", len(f.asked(isWrite)), 0)
			pass(time.Minute)
			wantLabel(t, f, "worker", podCountLabel, "-") // then it works
			wantNumber(t, "writes", len(f.asked(isWrite)), 1)
		})
	}
}

func TestPatchCarriesUIDAndNoVersion(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		node := f.addNode("cp", controlPlane)
		startPodcount(t, f)
		synctest.Wait()
		writes := f.asked(isWrite)
		wantNumber(t, "writes", len(writes), 1)
		if got, want := writes[0].Body, fmt.Sprintf(`{"metadata":{"labels":{"hopegi/pod-count":"0"},"uid":%q}}`, str(metaOf(node), "uid")); got != want {
			t.Errorf("patch %s, want %s", got, want)
		}
		if got := writes[0].Query.Get("fieldManager"); got != "podcount" {
			t.Errorf("fieldManager %q", got)
		}
	})
}

func statusFault(t testing.TB, match func(seen) bool, times, code int, reason string, details any, header ...string) fault {
	t.Helper()
	body, _ := json.Marshal(fakeStatus(code, reason, "as scripted", details))
	h := map[string]string{}
	for i := 0; i+1 < len(header); i += 2 {
		h[header[i]] = header[i+1]
	}
	return fault{match: to(match), times: times, status: code, body: string(body), header: h}
}

func TestRefusedWrites(t *testing.T) {
	uid := object{"causes": []any{object{"reason": "FieldValueInvalid", "field": "metadata.uid", "message": "field is immutable"}}}
	policy := object{"causes": []any{object{"message": "denied request"}}}
	for _, c := range []struct {
		name    string
		fault   func(t testing.TB) fault
		retried bool // soon, by backoff; else the next tick brings it
		log     string
	}{
		{"422 for the uid: the node was recreated", func(t testing.TB) fault { return statusFault(t, isWrite, 1, 422, "Invalid", uid) }, false, ""},
		{"404", func(t testing.TB) fault { return statusFault(t, isWrite, 1, 404, "NotFound", nil) }, false, ""},
		{"422 of a policy", func(t testing.TB) fault { return statusFault(t, isWrite, 1, 422, "Invalid", policy) }, true, "as scripted"},
		{"409", func(t testing.TB) fault { return statusFault(t, isWrite, 1, 409, "Conflict", nil) }, true, "409 Conflict"},
		{"500", func(t testing.TB) fault { return statusFault(t, isWrite, 2, 500, "InternalError", nil) }, true, "500 InternalError"},
		{"403", func(t testing.TB) fault {
			return fault{match: to(isWrite), status: 403, body: `{"code":403,"reason":"Forbidden","message":"User \"x\" cannot patch resource \"nodes\""}`}
		}, true, `the RBAC rule that allows it: apiGroups [\"\"], resources [\"nodes\"], verbs [\"patch\"]`},
		{"a proxy's page", func(t testing.TB) fault {
			return fault{match: to(isWrite), status: 502, body: "<html>\n<h1>Bad Gateway", header: map[string]string{"Content-Type": "text/html"}}
		}, true, "patch nodes/cp: 502 Bad Gateway"},
		{"a proxy's 404", func(t testing.TB) fault {
			return fault{match: to(isWrite), status: 404, body: "<html>", header: map[string]string{"Content-Type": "text/html"}}
		}, true, "patch nodes/cp: 404 Not Found"},
		{"applied, then the connection broke", func(t testing.TB) fault { return fault{match: to(isWrite), after: true} }, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				f.addNode("other", controlPlane)
				f.addPods(2)
				ft := c.fault(t)
				any := ft.match
				ft.match = func(r *http.Request) bool { return any(r) && strings.HasSuffix(r.URL.Path, "/cp") }
				f.inject(t, ft)
				p := startPodcount(t, f)
				synctest.Wait()
				wantLabel(t, f, "other", podCountLabel, "2") // one key's failure holds back no other
				pass(time.Second)
				if c.retried {
					wantLabel(t, f, "cp", podCountLabel, "2")
				} else {
					wantLabel(t, f, "cp", podCountLabel, "-")
					wantNumber(t, "complaints", strings.Count(p.log.String(), "cannot reconcile"), 0)
				}
				pass(10 * time.Second)
				wantLabel(t, f, "cp", podCountLabel, "2")
				wantText(t, p.log.String(), c.log)
			})
		})
	}
}

// survive lets a cluster live for half a minute, with a podcount at work, while fault, beginning after ten seconds, happens
// in a goroutine of its own (which sleeps, as only one may call pass). Once both have ended the oracle is asked: for the
// labels of nodes, and for a Count.
func survive(t *testing.T, f *fakeServer, fault func(p *program), args ...string) *program {
	t.Helper()
	start := func(args ...string) *program { return startPodcount(t, f, args...) }
	return surviveFrom(t, f, start, fault, args...)
}

// surviveFrom is survive of a program that is started otherwise.
func surviveFrom(t *testing.T, f *fakeServer, start func(args ...string) *program, fault func(p *program), args ...string) *program {
	t.Helper()
	args = append([]string{"-node-label", ownPodsLabel}, args...)
	f.install(&fakeCRD{status: true})
	f.addNode("cp", controlPlane)
	f.addNode("other", controlPlane)
	f.addNode("worker")
	f.addPod("default", "there", "worker")
	f.addCount("web", `{"name":"web","count":18}`)
	p := start(args...)
	churn(f, 10)
	ended := make(chan struct{})
	go func() {
		fault(p)
		close(ended)
	}()
	churn(f, 20)
	f.addPods(2) // as many pods as never before
	<-ended
	wantPeaceAndCount(t, f, args...)
	return p
}

// churn lets a cluster live for so many seconds: in each a pod comes, and every other goes.
func churn(f *fakeServer, seconds int) {
	for i := range seconds {
		name := fmt.Sprintf("life-%d", time.Now().Unix())
		f.addPod("default", name, []string{"cp", "other", "worker", ""}[i%4])
		pass(time.Second)
		if i%2 > 0 {
			f.remove("pods", objectKey{"default", name})
		}
	}
}

func wantPeaceAndCount(t *testing.T, f *fakeServer, args ...string) {
	t.Helper()
	wantPeace(t, f, args...)
	have := len(f.all("pods"))
	if got, want := f.count("web"), fmt.Sprint(have == 18, " ", have, " 1"); got != want {
		t.Errorf("the Count says %s, want %s", got, want)
	}
}

func TestLabelsEqualTheTruthWhateverAWriteMeets(t *testing.T) {
	type prey struct { // that which meets the fault
		path  string
		spoil func(f *fakeServer, v any) // by another writer
		again func(f *fakeServer)        // makes it anew
	}
	node := prey{"/api/v1/nodes/cp", func(f *fakeServer, v any) { f.setLabel("cp", podCountLabel, v) }, func(f *fakeServer) {
		f.remove("nodes", objectKey{"", "cp"})
		f.addNode("cp", controlPlane)
	}}
	count := prey{"/apis/demo.mark8s.io/v1/namespaces/default/counts/web/status", func(f *fakeServer, v any) {
		o := clone(f.get("counts", objectKey{"default", "web"}))
		o["status"] = object{"healthy": v == nil, "count": 7}
		f.put("counts", o)
	}, func(f *fakeServer) {
		f.remove("counts", objectKey{"default", "web"})
		f.addCount("web", `{"name":"web","count":18}`)
	}}
	meets := func(ft fault) func(*testing.T, *fakeServer, prey) {
		return func(t *testing.T, f *fakeServer, what prey) {
			scripted := ft
			scripted.match = to(func(s seen) bool { return isWrite(s) && s.Path == what.path })
			f.inject(t, scripted)
		}
	}
	refused := func(times, code int, reason string, details any, header ...string) func(*testing.T, *fakeServer, prey) {
		return meets(statusFault(t, isWrite, times, code, reason, details, header...))
	}
	for name, happens := range map[string]func(*testing.T, *fakeServer, prey){
		"409":                          refused(8, 409, "Conflict", nil),
		"422, as it was recreated":     refused(2, 422, "Invalid", object{"causes": []any{object{"reason": "FieldValueInvalid", "field": "metadata.uid"}}}),
		"422, by a policy":             refused(8, 422, "Invalid", object{"causes": []any{object{"message": "denied"}}}),
		"404":                          refused(2, 404, "NotFound", nil),
		"403, then granted":            refused(7, 403, "Forbidden", nil),
		"429":                          refused(6, 429, "TooManyRequests", nil, "Retry-After", "2"),
		"429, in plain text":           meets(fault{times: 6, status: 429, body: "Too many requests", header: map[string]string{"Content-Type": "text/plain"}}),
		"500":                          refused(8, 500, "InternalError", nil),
		"503":                          refused(6, 503, "ServiceUnavailable", nil, "Retry-After", "2"),
		"a reset":                      meets(fault{times: 8, drop: true}),
		"a reset after it was applied": meets(fault{after: true}),
		"half an answer":               meets(fault{cut: 40}),
		"no answer": func(t *testing.T, f *fakeServer, what prey) {
			if f.faultsSet() == 0 {
				meets(fault{stall: true})(t, f, what)
				sleep(t.Context(), requestTimeout+10*time.Second)
			}
		},
		"a webhook that takes 20 s": meets(fault{delay: 20 * time.Second}),
		"another writer that changes it": func(t *testing.T, f *fakeServer, what prey) {
			for range 5 {
				what.spoil(f, "999")
				sleep(t.Context(), 3*time.Second)
			}
		},
		"another writer that removes it": func(t *testing.T, f *fakeServer, what prey) {
			for range 5 {
				what.spoil(f, nil)
				sleep(t.Context(), 3*time.Second)
			}
		},
		"an object that is recreated again and again": func(t *testing.T, f *fakeServer, what prey) {
			for range 5 {
				what.again(f)
				sleep(t.Context(), 3*time.Second)
			}
		},
		"an object that is recreated while the write is under way": func(t *testing.T, f *fakeServer, what prey) {
			meets(fault{times: 2, delay: 5 * time.Second})(t, f, what)
			for range 5 {
				sleep(t.Context(), 3*time.Second)
				what.again(f)
			}
		},
	} {
		for kind, what := range map[string]prey{"a node": node, "a Count": count} {
			t.Run(kind+" meets "+name, func(t *testing.T) {
				simulate(t, func(t *testing.T, f *fakeServer) {
					start := time.Now()
					survive(t, f, func(*program) {
						happens(t, f, what)
						sleep(t.Context(), 17500*time.Millisecond) // what is changed last is to meet it, too
						happens(t, f, what)
					})
					for _, path := range []string{"/api/v1/nodes/other", "/api/v1/nodes/worker"} { // nobody waits for another
						writes := f.asked(func(s seen) bool { return isWrite(s) && s.Path == path && s.At.Sub(start) < 31*time.Second })
						for i := 1; i < len(writes); i++ {
							if gap := writes[i].At.Sub(writes[i-1].At); gap < 10*time.Second || gap > 11*time.Second {
								t.Errorf("%s was written after %v", path, gap)
							}
						}
						wantNumber(t, "writes to "+path, len(writes), 4)
					}
				})
			})
		}
	}
}

func TestRetryAfterOfAWriteIsHonoured(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isWrite), status: 429, body: "Too many requests, please try again later.", header: map[string]string{"Retry-After": "7", "Content-Type": "text/plain"}})
		startPodcount(t, f)
		pass(6900 * time.Millisecond)
		wantNumber(t, "writes within 6.9 s", len(f.asked(isWrite)), 1)
		pass(1600 * time.Millisecond) // a fifth more, by chance
		wantNumber(t, "writes within 8.5 s", len(f.asked(isWrite)), 2)
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A server that is busy tells all the same, and would be as busy when all came back at that moment.
func TestWritesThatWereRefusedTogetherDoNotComeBackTogether(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 40 {
			f.addNode(fmt.Sprint("n", i))
		}
		f.inject(t, statusFault(t, isWriteOf("nodes"), 40, 429, "TooManyRequests", nil, "Retry-After", "1"))
		startPodcount(t, f, "-total-nodes", "", "-workers", "40", "-burst", "100")
		pass(900 * time.Millisecond)
		wantNumber(t, "writes that were refused", len(f.asked(isWriteOf("nodes"))), 40)
		pass(1200 * time.Millisecond)
		again := f.asked(isWriteOf("nodes"))[40:]
		wantNumber(t, "writes that came back", len(again), 40)
		first, last := again[0].At, again[len(again)-1].At
		if last.Sub(first) < 500*time.Millisecond { // would be chance once in 10^11 times
			t.Errorf("all came back within %v", last.Sub(first))
		}
	})
}

func TestServerThatIsNotThereIsSaidOnceAMinuteOfEachThatAsksForIt(t *testing.T) {
	dialing := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for name, fail := range map[string]Dialer{
		"connection refused": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(os.NewSyscallError("connect", syscall.ECONNREFUSED))
		},
		"no such host": func(context.Context, string, string) (net.Conn, error) {
			return nil, dialing(&net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true})
		},
		"i/o timeout": func(ctx context.Context, _, _ string) (net.Conn, error) { // of the dialer, unless who asks has less patience
			if err := sleep(ctx, 30*time.Second); err != nil {
				return nil, err
			}
			return nil, dialing(os.ErrDeadlineExceeded)
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.install(&fakeCRD{status: true})
				f.addNode("cp", controlPlane)
				f.addPods(2)
				n, up := f.serveIn(t), atomic.Bool{}
				dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
					if up.Load() {
						return n.dial(ctx, network, addr)
					}
					return fail(ctx, network, addr)
				}
				p := startPodcountWith(t, n, wiring{dial: dial}, "-master", "http://127.0.0.1:1", "-leader-elect", "-v", "0")
				asking := []string{"kind=Pod", "kind=Node", "kind=Count", "lease=kube-system/podcount"}
				pass(90 * time.Second)
				for minute := range 60 {
					before := len(p.log.String())
					pass(time.Minute)
					said := p.log.String()[before:]
					for _, who := range asking {
						if lines := strings.Count(said, who); lines != 1 {
							t.Fatalf("%d lines about %s in minute %d:\n%s", lines, who, minute, said)
						}
					}
				}
				wantText(t, p.log.String(), name)
				wantText(t, p.log.String(), "for=1m0s")
				up.Store(true)
				wantPeace(t, f)
				for _, over := range []string{"Pod: watching", "Node: watching", "Count: discovery answers", "lease: answered"} {
					wantText(t, p.log.String(), over+" again after 1h")
				}
				afterwards := p.log.String()[strings.LastIndex(p.log.String(), " again after "):]
				wantNumber(t, "warnings once it is there", strings.Count(afterwards, "level=WARN"), 0)
			})
		})
	}
}

func TestOutageOfTheWritesIsSaidAtTheDefaultVerbosityOnceAMinuteAndWhenItIsOver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp-1", controlPlane)
		f.addNode("cp-2", controlPlane)
		lift := f.keep(t, statusFault(t, isWriteOf("nodes"), 1, 500, "InternalError", nil))
		p := startPodcount(t, f, "-v", "0")
		pass(5*time.Minute + time.Second)
		lines := regexp.MustCompile(`(?m)level=WARN msg="cannot reconcile" controller=pod-count .*$`).FindAllString(p.log.String(), -1)
		wantNumber(t, "lines in five minutes", len(lines), 6)
		wantText(t, lines[5], " for=5m0s failed_tries=")
		wantText(t, lines[5], " failing=2 ")
		wantText(t, lines[5], " key=cp-")
		lift()
		pass(2 * time.Minute)
		ends := regexp.MustCompile(`level=INFO msg="pod-count: writing again after [56]m`)
		wantNumber(t, "lines at the end", len(ends.FindAllString(p.log.String(), -1)), 1)
		wantNumber(t, "labels that are said to be written", strings.Count(p.log.String(), `level=INFO msg="label written"`), 2)
	})
}

// That nothing fails any more does not mean that something works.
func TestWritingAgainIsSaidOfAWriteThatWorkedAlone(t *testing.T) {
	for name, end := range map[string]func(f *fakeServer, p *program){
		"a stop":                    func(_ *fakeServer, p *program) { p.stop() },
		"the node is removed":       func(f *fakeServer, _ *program) { f.remove("nodes", objectKey{"", "cp"}) },
		"somebody else makes it so": func(f *fakeServer, _ *program) { f.setLabel("cp", podCountLabel, "0") },
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				f.keep(t, statusFault(t, isWriteOf("nodes"), 1, 500, "InternalError", nil))
				p := startPodcount(t, f, "-v", "0", "-controllers", "pod-count", "-qps", "0.1", "-burst", "3")
				pass(30 * time.Second)
				end(f, p)
				pass(2 * time.Minute)
				wantText(t, p.log.String(), "cannot reconcile")
				wantNumber(t, "words on a write that worked", strings.Count(p.log.String(), "writing again"), 0)
				ends := 1
				if name == "a stop" {
					ends = 0
				}
				wantNumber(t, "words on the end", strings.Count(p.log.String(), `"pod-count: nothing fails any more after `), ends)
			})
		})
	}
}

func TestOneObjectThatAlwaysFailsHidesNoOutage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for _, name := range []string{"bad", "a", "b", "c"} {
			f.addNode(name)
		}
		isBad := func(s seen) bool { return isWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/bad") }
		f.keep(t, statusFault(t, isBad, 1, 500, "InternalError", nil))
		p := startPodcount(t, f, "-v", "0", "-controllers", "pod-count", "-total-nodes", "")
		pass(5 * time.Minute)
		f.addPod("default", "a", "") // others are written
		pass(25 * time.Minute)
		before := len(p.log.String())
		lift := f.keep(t, statusFault(t, isWriteOf("nodes"), 1, 503, "ServiceUnavailable", nil))
		f.addPod("default", "b", "")
		pass(5 * time.Second)
		begins := regexp.MustCompile(`msg="cannot reconcile" controller=pod-count failing=2 key=[abc] .* 503 `)
		if said := p.log.String()[before:]; !begins.MatchString(said) {
			t.Errorf("its beginning is not said: %s", said)
		}
		pass(5 * time.Minute)
		lift()
		pass(2 * time.Minute)
		said := p.log.String()[before:]
		ends := regexp.MustCompile(`"pod-count: writing again, but for 1, after [56]m`)
		wantNumber(t, "words on its end", len(ends.FindAllString(said, -1)), 1)
		if lines := strings.Count(p.log.String(), "level=WARN"); lines > 37+2 {
			t.Errorf("%d lines in 37 minutes", lines)
		}
	})
}

func TestEventThatIsRefusedIsSaidOnceAndIsNoOutage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		isEvent := func(s seen) bool { return strings.HasSuffix(s.Path, "/events") }
		f.inject(t, statusFault(t, isEvent, 1, 422, "Invalid", nil))
		p := startPodcount(t, f, "-v", "0")
		pass(3 * time.Hour)
		wantNumber(t, "lines on it", strings.Count(p.log.String(), "cannot post an event"), 1)
		wantNumber(t, "lines on Events", strings.Count(p.log.String(), "Events: "), 0)
	})
}

func TestLabelThatStaysIsWrittenBesideOneThatDoesNot(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0", "-node-label", ownPodsLabel)
		pass(time.Minute)
		f.addPod("default", "a", "cp")
		pass(11 * time.Second)
		wantLabel(t, f, "cp", ownPodsLabel, "1")
		pass(time.Hour)
		wantNumber(t, "lines on it", strings.Count(p.log.String(), "labels do not stay"), 1)
		wantNumber(t, "labels written", strings.Count(p.log.String(), "label written"), 2)
		f.remove("nodes", objectKey{"", "cp"})
		pass(11 * time.Minute)
		wantNumber(t, "lines that they stay", strings.Count(p.log.String(), "labels stay again"), 0)
	})
}

func TestNodeMadeAgainDoesNotInheritThatItsLabelsWereDropped(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0")
		pass(time.Minute)
		f.strip("")
		f.remove("nodes", objectKey{"", "cp"})
		f.addNode("cp", controlPlane)
		pass(12 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "lines that they stay", strings.Count(p.log.String(), "labels stay again"), 0)
	})
}

func TestLabelThatTheServerDropsIsTriedEveryTenMinutesHoweverShortOrOddTheInterval(t *testing.T) {
	for _, interval := range []string{"10s", "6m"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			f.strip(podCountLabel)
			startPodcount(t, f, "-interval", interval)
			pass(time.Hour + time.Minute)
			wantNumber(t, "tries in an hour with -interval "+interval, len(f.asked(isWriteOf("nodes"))), 7)
		})
	}
}

func TestOutageOfAWatchIsSaidAndItsEnd(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		n := f.serveIn(t)
		p := startPodcountOn(t, n, "-master", "http://127.0.0.1:1", "-v", "0")
		pass(time.Minute)
		lift := f.keep(t, statusFault(t, isWatch("pods"), 1, 503, "ServiceUnavailable", nil))
		f.endWatches(false)
		pass(10 * time.Second)
		lift()
		pass(30 * time.Second)
		wantNumber(t, "lines at the beginning", strings.Count(p.log.String(), `level=WARN msg="cannot watch" kind=Pod`), 1)
		wantNumber(t, "lines at the end", strings.Count(p.log.String(), `level=INFO msg="Pod: watching again after `), 1)
		wantNumber(t, "lines on nodes", strings.Count(p.log.String(), "kind=Node"), 1) // listed
	})
}

// A mutating webhook that takes our label away costs the server a write each time, and everyone that watches nodes an
// event.
func TestLabelThatTheServerDropsIsSaidOnceAndTriedRarely(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp-1", controlPlane)
		f.addNode("cp-2", controlPlane)
		f.addPods(2)
		f.strip(podCountLabel)
		p := startPodcount(t, f, "-v", "0")
		pass(time.Hour)
		writes := len(f.asked(isWriteOf("nodes")))
		if writes < 8 || writes > 14 {
			t.Errorf("%d writes to two nodes in an hour, want one in ten minutes for each", writes)
		}
		wantNumber(t, "lines on it", strings.Count(p.log.String(), `level=WARN msg="labels do not stay`), 1)
		wantNumber(t, "labels that are said to be written", strings.Count(p.log.String(), "label written"), 0)
		wantNumber(t, "events", len(eventsOf(f, "PodCountChanged")), 0)
		err := startPodcount(t, f, "-once", "-v", "0").finish()
		if err == nil || !strings.Contains(err.Error(), "could not make 2 objects right") {
			t.Errorf("-once ended with %v", err)
		}
		f.strip("")
		pass(11 * time.Minute)
		wantLabel(t, f, "cp-1", podCountLabel, "2")
		wantLabel(t, f, "cp-2", podCountLabel, "2")
		wantNumber(t, "lines on the end of it", strings.Count(p.log.String(), `level=INFO msg="labels stay again"`), 1)
	})
}

func TestStartWithRightsToNodesAloneWaitsSaysTheRuleAndRecovers(t *testing.T) {
	for _, verb := range []string{"list", "watch"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane, podCountLabel+"=7")
			f.addNode("worker", podCountLabel+"=7")
			f.addPods(2)
			f.forbid(verb+" pods", true)
			p := startPodcount(t, f, "-v", "0")
			pass(9 * time.Minute)
			wantText(t, p.log.String(), `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"`+verb+`\"]`)
			wantNumber(t, "warnings in nine minutes", strings.Count(p.log.String(), "level=WARN"), 1)
			if verb == "list" {
				wantNumber(t, "writes while nothing is known of pods", len(f.asked(isWrite)), 0)
			}
			f.addPods(3)
			f.forbid(verb+" pods", false)
			wantPeace(t, f)
		})
	}
}

func TestNothingToCountIsTheNumber0AndNothingToLabelIsPeace(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		p := startPodcount(t, f, "-v", "0") // neither pods nor nodes
		wantPeace(t, f)
		wantNumber(t, "warnings", strings.Count(p.log.String(), "level=WARN"), 1)
		f.addNode("worker")
		f.addPods(2)
		wantPeace(t, f)
		wantNumber(t, "writes", len(f.asked(isWrite)), 0)
		f.addNode("cp", controlPlane)
		wantPeace(t, f)
		for i := range 2 {
			f.remove("pods", objectKey{"default", fmt.Sprint("web-", i)})
		}
		wantPeace(t, f)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "lines of trouble", strings.Count(p.log.String(), "level=WARN"), 1)
	})
}

func TestForbiddenIsSaidOnceInAWhileAndRecovers(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 50 {
			f.addNode(fmt.Sprintf("cp-%d", i), controlPlane)
		}
		f.forbid("patch nodes", true)
		p := startPodcount(t, f)
		pass(9 * time.Minute)
		wantNumber(t, "warnings in nine minutes", strings.Count(p.log.String(), "level=WARN"), 1)
		f.forbid("patch nodes", false)
		pass(time.Minute + 10*time.Second)
		for i := range 50 {
			wantLabel(t, f, fmt.Sprintf("cp-%d", i), podCountLabel, "0")
		}
	})
}

func TestLabelsEqualTheTruthWhateverBecomesOfTheServer(t *testing.T) {
	isNoWatch := func(s seen) bool { return !s.Query.Has("watch") }
	for name, happens := range map[string]func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)){
		"killed for 30 s": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			p.net.kill()
			pause(30 * time.Second)
			p.net.restore()
		},
		"killed for 30 s, and its history is compacted": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			p.net.kill()
			pause(30 * time.Second)
			f.compact()
			p.net.restore()
		},
		"killed for ten minutes": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			p.net.kill()
			pause(10 * time.Minute)
			p.net.restore()
		},
		"in a crash loop, its history gone each time": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			for range 20 {
				p.net.kill()
				pause(5 * time.Second)
				f.compact()
				p.net.restore()
				pause(time.Second)
			}
		},
		"without its etcd": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			f.inject(t, statusFault(t, isNoWatch, 12, 500, "", nil))
			pause(15 * time.Second)
			f.endWatches(true)
			f.inject(t, statusFault(t, func(seen) bool { return true }, 12, 429, "TooManyRequests", nil, "Retry-After", "1")) // "storage is (re)initializing"
			pause(time.Minute)
		},
		"its etcd restored from an older snapshot": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			restore := f.snapshot()
			pause(22 * time.Second)
			p.net.kill()
			restore()
			p.net.restore()
			pause(2 * silence) // of a version that is not there yet, the server says nothing at all
		},
		"its etcd restored from an older snapshot while it was away, whose versions come again soon": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			restore := f.snapshot()
			pause(time.Minute)
			p.net.kill()
			<-time.After(3 * time.Second)
			restore()
			p.net.restore()
			pause(2 * time.Minute) // with the first answer it is known
		},
		"its etcd restored from an older snapshot, whose versions come again before it is back": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			restore := f.snapshot()
			pause(3 * time.Second)
			p.net.kill()
			restore()
			pause(15 * time.Second)
			p.net.restore()
			pause(relistEvery * 11 / 10) // other changes under the versions that were seen: only a list can tell
		},
		"its etcd restored from an older snapshot, as is told to do: with higher versions": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			restore := f.snapshot()
			pause(3 * time.Second)
			p.net.kill()
			restore()
			f.setVersion(f.latest() + 1000000)
			f.compact()
			p.net.restore()
		},
		"one of two behind": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			catchUp := f.fallBehind(0, func(seen) bool { return true })
			pause(30 * time.Second)
			catchUp()
		},
		"one of two behind what was seen of the other": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			catchUp := f.fallBehind(20, func(seen) bool { return true })
			pause(25 * time.Second)
			if f.label("cp", podCountLabel) == strconv.Itoa(len(f.all("pods"))) {
				t.Error("it was not behind")
			}
			catchUp()
		},
		"one of two behind for ten minutes": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			catchUp := f.fallBehind(20, func(seen) bool { return true })
			pause(10 * time.Minute)
			catchUp()
		},
		"one of two behind, and then killed": func(t *testing.T, f *fakeServer, p *program, pause func(time.Duration)) {
			catchUp := f.fallBehind(20, func(seen) bool { return true })
			pause(30 * time.Second)
			p.net.kill()
			catchUp()
			p.net.restore()
		},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				survive(t, f, func(p *program) { happens(t, f, p, func(d time.Duration) { sleep(t.Context(), d) }) })
			})
		})
	}
}

func TestWritesAreLimitedByQPS(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 100 {
			f.addNode(fmt.Sprintf("cp-%d", i), controlPlane)
		}
		startPodcount(t, f, "-qps", "10", "-burst", "20")
		synctest.Wait()
		wantNumber(t, "writes at once", len(f.asked(isWrite)), 20)
		pass(4*time.Second + 50*time.Millisecond)
		wantNumber(t, "writes after 4 s", len(f.asked(isWrite)), 60)
		pass(5 * time.Second)
		wantNumber(t, "writes after 9 s", len(f.asked(isWrite)), 100)
	})
}

// An hour, and what goes with it: each request is accounted for. Drawn by lot are how long a watch lasts, when the hourly
// list is due, and when discovery is asked again.
func TestIdleHourIsExactlyTheExpectedRequests(t *testing.T) {
	for _, args := range [][]string{nil, {"-leader-elect"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.install(&fakeCRD{status: true})
				f.addNode("cp", controlPlane)
				f.addPods(2)
				f.addCount("web", `{"name":"web","count":2}`)
				start := time.Now()
				startPodcount(t, f, args...)
				type change struct {
					at      time.Time
					version int
				}
				var changes []change                                                                           // of what podcount does not look at: so that bookmarks have something to tell
				for pass(500 * time.Millisecond); time.Since(start) < 70*time.Minute; pass(30 * time.Second) { // when no watch ends
					other := f.put("namespaces", object{"metadata": object{"name": "default"}})
					version, _ := strconv.Atoi(str(metaOf(other), "resourceVersion"))
					changes = append(changes, change{time.Now(), version})
				}
				sent := map[string][]seen{}
				for _, s := range f.asked(func(seen) bool { return true }) {
					what := s.Method + " " + s.Path
					sent[what] = append(sent[what], s)
				}
				// take removes the requests of one kind, and fails the test if one is not from to to after the one before.
				take := func(what, query string, from, to time.Duration) (all []seen) {
					all = sent[what]
					delete(sent, what)
					for i, s := range all {
						if got := s.Query.Encode(); got != query {
							t.Errorf("%s with %q, want %q", what, got, query)
						}
						if i > 0 && (s.At.Sub(all[i-1].At) < from || s.At.Sub(all[i-1].At) > to) {
							t.Errorf("%s %v after the one before, want %v to %v", what, s.At.Sub(all[i-1].At), from, to)
						}
					}
					if len(all) == 0 || all[0].At.Sub(start) > time.Second || time.Since(all[len(all)-1].At) > to {
						t.Errorf("%s: %d of them, not from beginning to end", what, len(all))
					}
					return all
				}
				take("GET /apis/demo.mark8s.io/v1", "", discoverEvery*4/5, discoverEvery*6/5)
				leased := 0
				if args != nil {
					wantNumber(t, "looks at the lease", len(take("GET "+leasePath, "", 0, 2*time.Hour)), 1)
					leased = len(take("PUT "+leasePath, "fieldManager=podcount", 2*time.Second, 2*time.Second))
				}
				// versionAt is the newest at a time, but for renewals of the lease: up to 16 behind it. And when one comes in the very
				// moment in which a watch ends, the server says no more, and what counts is the bookmark up to a minute before.
				versionAt := func(at time.Time) (v int) {
					v = changes[0].version - 1
					for _, c := range changes {
						if !c.at.After(at) {
							v = c.version
						}
					}
					return v
				}
				for what, path := range map[string]string{"pods": "/api/v1/pods", "nodes": "/api/v1/nodes", "counts": "/apis/demo.mark8s.io/v1/counts"} {
					all := sent["GET "+path]
					delete(sent, "GET "+path)
					if len(all) < 9 || isWatch(what)(all[0]) {
						t.Fatalf("%d requests for %s, the first %s", len(all), what, all[0])
					}
					listed, lists, ends := all[0].At, 0, all[0].At
					for _, s := range all {
						if isList(what)(s) {
							if got := s.Query.Encode(); got != "" {
								t.Errorf("a list of %s with %s", what, got)
							}
							if since := s.At.Sub(listed); lists > 0 && (since < relistEvery*9/10 || since > relistEvery*11/10) {
								t.Errorf("%s listed again after %v", what, since)
							}
							listed, ends, lists = s.At, s.At, lists+1
							continue
						}
						seconds, _ := strconv.Atoi(s.Query.Get("timeoutSeconds"))
						version, _ := strconv.Atoi(s.Query.Get("resourceVersion"))
						if got, want := s.Query.Encode(), fmt.Sprintf("allowWatchBookmarks=true&resourceVersion=%d&timeoutSeconds=%d&watch=1", version, seconds); got != want || seconds < 300 || seconds >= 600 {
							t.Errorf("a watch of %s with %s", what, got)
						}
						if !s.At.Equal(ends) {
							t.Errorf("a watch of %s at %v, though the one before ended at %v", what, s.At, ends)
						}
						if newest := versionAt(s.At); s.At.Sub(start) > time.Minute && (version < newest-32*min(leased, 1) || version > newest+16*min(leased, 1)) {
							t.Errorf("a watch of %s from version %d, though a bookmark said %d", what, version, newest)
						}
						ends = s.At.Add(time.Duration(seconds) * time.Second)
					}
					wantNumber(t, "lists of "+what, lists, 2)
					if ends.Before(time.Now()) {
						t.Errorf("nobody watches %s", what)
					}
				}
				for what, all := range sent { // the label, the status, and their events: once, at the start
					rest := regexp.MustCompile(`^PATCH /api/v1/nodes/cp$|^PATCH /apis/demo.mark8s.io/v1/namespaces/default/counts/web/status$|^POST /api/v1/namespaces/default/events$`)
					if bound := 1 + 2*strings.Count(what, "POST"); !rest.MatchString(what) || len(all) != bound || all[0].At.Sub(start) > 2*time.Second {
						t.Errorf("%d × %s, at %v", len(all), what, all[0].At)
					}
				}
			})
		})
	}
}

func TestServerThatIsDownIsAskedOnceABackoffStep(t *testing.T) {
	const outage = 10 * time.Minute
	steps := 1 // at most, in so long: one at once, the others with no jitter at all
	for at, step := time.Duration(0), reflectorBackoff; at < outage; step = min(2*step, reflectorLimit) {
		at += step
		steps++
	}
	discoveries := int(outage/(discoverEvery*4/5)) + 1
	for name, c := range map[string]struct {
		up, down time.Duration
		cutOff   bool // it lets connections through and breaks the requests
	}{
		"it refuses connections":           {0, outage, false},
		"it breaks each request":           {0, outage, true},
		"it is up for 2 s, each 20 s":      {2 * time.Second, 18 * time.Second, false},
		"it is up for 200 ms, each 5 s":    {200 * time.Millisecond, 5 * time.Second, false},
		"it breaks, but for 2 s each 20 s": {2 * time.Second, 18 * time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.install(&fakeCRD{status: true})
				f.addNode("cp", controlPlane)
				f.addPods(2)
				p := startPodcount(t, f)
				pass(5 * time.Minute) // of health
				dials, asked := p.net.dialed(), len(f.asked(func(seen) bool { return true }))
				crashes, begin := 0, time.Now()
				for time.Since(begin) < outage {
					if crashes++; c.cutOff {
						f.cutOff("127.0.0.1:1", true)
					} else {
						p.net.kill()
					}
					pass(c.down)
					f.cutOff("127.0.0.1:1", false)
					p.net.restore()
					pass(c.up)
				}
				dials, sent := p.net.dialed()-dials, f.asked(func(seen) bool { return true })[asked:]
				if most := 3*(steps+crashes) + discoveries; dials > most || len(sent) > most {
					t.Errorf("%d dials and %d requests, in %d steps and %d crashes: want %d at most", dials, len(sent), steps, crashes, most)
				}
				for _, resource := range []string{"pods", "nodes", "counts"} {
					tries := slices.DeleteFunc(slices.Clone(sent), func(s seen) bool { return !strings.HasSuffix(s.Path, "/"+resource) })
					if len(tries) > steps+crashes {
						t.Errorf("%d requests for %s, in %d steps and %d crashes", len(tries), resource, steps, crashes)
					}
				}
				pass(reflectorLimit * 2)
				for _, kind := range []string{"Pod", "Node", "Count"} {
					// Three watches that end at once lead to a list. The tries that the outage broke are counted above.
					lists := strings.Count(p.log.String(), "msg=listed kind="+kind+" ")
					watches := strings.Count(p.log.String(), "msg=watching kind="+kind+" ")
					if lists > 1+watches/3 {
						t.Errorf("%d lists and %d watches of kind %s", lists, watches, kind)
					}
				}
				wantPeace(t, f)
			})
		})
	}
}

// fewer is n, or a tenth of it under the race detector, under which everything takes ten times as long.
func fewer(n int) int {
	if info, _ := debug.ReadBuildInfo(); slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		n /= 10
	}
	return n
}

func TestThousandEventsASecondForAMinuteCostAWriteAnInterval(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		nodes := []string{"cp", "w1", "w2", "w3"}
		for _, name := range nodes {
			f.addNode(name)
		}
		f.setLabel("cp", controlPlane, "")
		startPodcount(t, f, "-node-label", ownPodsLabel, "-v", "0")
		synctest.Wait()
		first := f.latest()
		for i := range 60_000 / 40 {
			for j := range fewer(10) { // each comes, changes, and goes, which is two changes
				name := fmt.Sprintf("p-%d-%d", i, j)
				f.addPod("default", name, "")
				f.addPod("default", name, nodes[rand.IntN(4)])
				if i%50 < 40 {
					f.remove("pods", objectKey{"default", name})
				}
			}
			pass(40 * time.Millisecond)
		}
		if n := f.latest() - first; n < fewer(50_000) {
			t.Errorf("there were %d events", n)
		}
		for _, name := range nodes {
			writes := len(f.asked(func(s seen) bool { return isWriteOf("nodes")(s) && strings.HasSuffix(s.Path, "/"+name) }))
			wantNumber(t, "writes to "+name, writes, 7)
		}
		pass(11 * time.Second) // no need of more
		wantLabel(t, f, "cp", podCountLabel, strconv.Itoa(len(f.all("pods"))))
		wantPeace(t, f, "-node-label", ownPodsLabel)
		wantNumber(t, "lists of pods", len(f.asked(isList("pods"))), 1)
	})
}

func TestFiveThousandNodesThatAllChangeAtOnceAreRightWithinTheBound(t *testing.T) {
	nodes, qps := fewer(5000), 1000
	simulate(t, func(t *testing.T, f *fakeServer) {
		args := []string{"-node-label", ownPodsLabel, "-total-nodes", "", "-qps", strconv.Itoa(qps), "-pod-events", "off", "-v", "0"}
		for i := range nodes {
			f.addNode(fmt.Sprintf("n%d", i))
		}
		startPodcount(t, f, args...)
		pass(15 * time.Second)
		before := len(f.asked(isWriteOf("nodes")))
		wantNumber(t, "writes at the start", before, nodes)
		for i := range nodes {
			f.addPod("default", fmt.Sprintf("p%d", i), fmt.Sprintf("n%d", i))
		}
		wantPeace(t, f, args...)
		writes := f.asked(isWriteOf("nodes"))[before:]
		if len(writes) < nodes || len(writes) > 2*nodes {
			t.Errorf("%d writes to %d nodes", len(writes), nodes)
		}
	})
}

func TestStopFinishesTheWriteInHandAndSendsTheEventsThatWait(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isWrite), delay: 3 * time.Second})
		p := startPodcount(t, f)
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "-")
		if err := p.stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "events", len(eventsOf(f, "PodCountChanged")), 1)
	})
}

func TestStopDoesNotWaitForEventsForEver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(func(s seen) bool { return strings.HasSuffix(s.Path, "/events") }), stall: true})
		p := startPodcount(t, f)
		synctest.Wait()
		start := time.Now()
		if err := p.stop(); err != nil {
			t.Errorf("stopped with %v", err)
		}
		if d := time.Since(start); d != eventsTimeout {
			t.Errorf("it took %v", d)
		}
	})
}

func TestStopAtAnyStageIsPromptBeginsNothingMoreAndLeavesAllToTheNext(t *testing.T) {
	lists := func(s seen) bool { return isList("pods")(s) || isList("nodes")(s) }
	for name, c := range map[string]struct {
		faults []fault
		at     time.Duration
		takes  time.Duration
		args   string
	}{
		"with no server":                    {faults: []fault{{match: to(lists), drop: true}}, at: 20 * time.Second},
		"before the first list":             {faults: []fault{{match: to(lists), stall: true}}},
		"in the first list":                 {faults: []fault{{match: to(lists), hang: 40}}},
		"in one of the first lists":         {faults: []fault{{match: to(isList("nodes")), hang: 40}}},
		"in the backoff of a list":          {faults: []fault{statusFault(t, lists, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"at rest":                           {at: 20 * time.Second},
		"in the backoff of a watch":         {faults: []fault{statusFault(t, isWatch("pods"), 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in a write":                        {faults: []fault{{match: to(isWrite), delay: 3 * time.Second}}, takes: 3 * time.Second},
		"in a write that is not answered":   {faults: []fault{{match: to(isWrite), stall: true}}, takes: drainTimeout},
		"in the backoff of a write":         {faults: []fault{statusFault(t, isWrite, 0, 500, "InternalError", nil)}, at: 20 * time.Second},
		"in the wait that a write was told": {faults: []fault{statusFault(t, isWrite, 0, 429, "TooManyRequests", nil, "Retry-After", "30")}, at: 20 * time.Second},
		"between two writes of a node":      {at: 1500 * time.Millisecond},
		"in an event":                       {faults: []fault{{match: to(func(s seen) bool { return strings.Contains(s.Path, "/events") }), stall: true}}, at: time.Second, takes: eventsTimeout},
		"standing by":                       {at: 20 * time.Second, args: "-leader-elect"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				f.addPods(2)
				if c.args != "" {
					startPodcount(t, f, c.args)
					pass(time.Second)
				}
				lift := func() {}
				for _, ft := range c.faults {
					lift = f.keep(t, ft)
				}
				p := startPodcount(t, f, strings.Fields(c.args)...)
				pass(c.at)
				f.addPods(3) // more to write
				synctest.Wait()
				begun := func(s seen) bool { return !strings.Contains(s.Path, "/events") && s.Method+s.Path != "PUT"+leasePath }
				before, stopped := len(f.asked(begun)), time.Now()
				if err := p.stop(); err != nil || time.Since(stopped) > c.takes {
					t.Errorf("stopped with %v after %v", err, time.Since(stopped))
				}
				for _, s := range f.asked(begun)[before:] {
					t.Errorf("begun after the stop: %s", s)
				}
				lift()
				f.addPods(4)
				startPodcount(t, f)
				wantPeace(t, f)
			})
		})
	}
}

func TestNextProcessMakesRightWhatAKilledOneLeftHalfDone(t *testing.T) {
	byA := func(match func(seen) bool) func(*http.Request) bool {
		return func(r *http.Request) bool { return r.Host == "a:1" && to(match)(r) }
	}
	for name, c := range map[string]struct {
		fault  fault // in it the process is killed
		writes int   // that are left to the next
	}{
		"before its patch arrived":                   {fault{match: byA(isWriteOf("nodes")), drop: true}, 1},
		"between its patch and the answer":           {fault{match: byA(isWriteOf("nodes")), after: true}, 0},
		"between its patch and the event":            {fault{match: byA(func(s seen) bool { return strings.HasSuffix(s.Path, "/events") }), drop: true}, 0},
		"between the event's arrival and its answer": {fault{match: byA(func(s seen) bool { return strings.HasSuffix(s.Path, "/events") }), after: true}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				f.addPods(2)
				c.fault.met = make(chan struct{})
				f.inject(t, c.fault)
				a := startPodcount(t, f, "-master", "http://a:1")
				<-c.fault.met
				f.cutOff("a:1", true)
				a.stop()
				startPodcount(t, f, "-master", "http://b:1")
				wantPeace(t, f)
				wantNumber(t, "writes by the next", len(f.asked(func(s seen) bool { return s.Host == "b:1" && isWriteOf("nodes")(s) })), c.writes)
			})
		})
	}
}

// Each hears of its own pods' watch and of the other's write, in whatever order.
func TestTwoWithoutAnElectionAgreeAndDoNotFight(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addCount("web", `{"name":"web","count":18}`)
		startPodcount(t, f, "-master", "http://a:1")
		startPodcount(t, f, "-master", "http://b:1")
		changes, more := 1, 0 // the label is news at the start, as is the status
		wantFew := func(when string) {
			t.Helper()
			for _, host := range []string{"a:1", "b:1"} {
				for _, what := range []string{"nodes", "counts"} {
					if n := len(f.asked(func(s seen) bool { return s.Host == host && isWriteOf(what)(s) })); n > changes+more {
						t.Errorf("%s: %s wrote to %s %d times, of %d changes", when, host, what, n, changes)
					}
				}
			}
		}
		for range 16 { // slowly enough that each change is told
			pass(20 * time.Second)
			f.addPod("default", fmt.Sprint("p", changes), "")
			changes++
		}
		pass(10 * time.Second)
		wantFew("as both see the same")
		catchUp := f.fallBehind(0, func(s seen) bool { return s.Host == "b:1" && strings.HasSuffix(s.Path, "/pods") })
		f.addPod("default", "one", "")
		f.addPod("default", "two", "")
		pass(30 * time.Second)
		catchUp()
		wantPeaceAndCount(t, f)
		changes, more = changes+1, 5 // one an interval
		wantFew("as one does not hear of pods for a while")
	})
}

// stuckPipe is a pipe whose reader reads only while it is open.
type stuckPipe struct {
	to   io.Writer
	open chan struct{} // closed: everything gets through
}

func (p *stuckPipe) Write(b []byte) (int, error) {
	<-p.open
	return p.to.Write(b)
}

// startBlocked starts a replica whose stdout and stderr are pipes that nobody reads, until open is called.
func startBlocked(t *testing.T, f *fakeServer, name string, args ...string) (p *program, open func()) {
	n, reading := f.serveIn(t), make(chan struct{})
	stuck := func(w io.Writer) io.Writer { return &stuckPipe{w, reading} }
	args = append([]string{"-master", "http://" + name + ":1", "-leader-elect", "-interval", "1s"}, args...)
	open = sync.OnceFunc(func() { close(reading) })
	p = startPodcountWith(t, n, wiring{pipes: stuck}, args...)
	t.Cleanup(open) // before the program is waited for
	return p, open
}

func TestLeaderWhoseOutputNobodyReadsWorksOnStopsAndGivesItsLeaseBack(t *testing.T) {
	for _, verbosity := range []string{"0", "2", "6"} {
		t.Run("-v "+verbosity, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				p, open := startBlocked(t, f, "a", "-v", verbosity, "-controllers", "*,pod-printer")
				pass(5 * time.Second)
				for i := range 300 {
					f.addPod("default", fmt.Sprint("p", i), "")
					pass(time.Second)
				}
				wantLabel(t, f, "cp", podCountLabel, "300")
				stopped := time.Now()
				if err := p.stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > eventsTimeout+2*flushTimeout {
					t.Errorf("it took %v to stop", took)
				}
				if str(leaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", leaseNow(f))
				}
				open()
			})
		})
	}
}

func TestLeaderWhoseOutputNobodyReadsEndsWhenItsLeaseIsLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p, open := startBlocked(t, f, "a", "-v", "0")
		pass(10 * time.Second)
		f.putJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`)
		taken := time.Now()
		p.finish()
		if took := time.Since(taken); took > 5*time.Second {
			t.Errorf("it took %v to end", took)
		}
		if err := p.stop(); err == nil || !strings.Contains(err.Error(), "the lease is lost") {
			t.Errorf("it ended with %v", err)
		}
		open()
	})
}

// What was dropped is counted, and said where it is missing.
func TestDroppedLinesAreReportedOnceSomebodyReadsAgain(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p, open := startBlocked(t, f, "a", "-v", "6")
		pass(5 * time.Second) // what is in the first list is not logged one by one
		for i := range 6000 { // with two lines each, of 100 bytes and more
			f.addPod("default", fmt.Sprint("p", i), "")
		}
		pass(time.Minute)
		open()
		pass(time.Second)
		said := regexp.MustCompile(`log lines were dropped, as stderr was not read, or failed" lines=([0-9]+)`).FindAllStringSubmatch(p.log.String(), -1)
		if len(said) != 1 || said[0][1] == "0" {
			t.Fatalf("said: %q", said)
		}
		f.addPod("default", "one-more", "")
		pass(time.Second)
		if after := p.log.String(); !strings.Contains(after, "ADDED Pod default/one-more") {
			t.Error("nothing is logged afterwards")
		}
	})
}

func TestControllerThatHangsKeepsNeitherTheProcessNorTheLease(t *testing.T) {
	for where, goroutine := range map[string]string{"reconcile": "worker of hangs", "tick": "controller hangs"} {
		t.Run(where, func(t *testing.T) {
			hang := make(chan struct{})
			waitIn := func(place string) { // whatever a context says
				if place == where {
					<-hang
				}
			}
			withController(t, Controller{Name: "hangs", Setup: func(m *manager, c *Controller) {
				On(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
				c.Tick = func() []Key {
					waitIn("tick")
					return nil
				}
				c.Reconcile = func(context.Context, Key) (Result, error) {
					waitIn("reconcile")
					return Result{}, nil
				}
			}})
			simulate(t, func(t *testing.T, f *fakeServer) {
				hang = make(chan struct{})
				defer close(hang)
				f.addNode("cp", controlPlane)
				p := startReplica(t, f, "a")
				pass(10 * time.Second)
				wantLabel(t, f, "cp", podCountLabel, "0")
				stopped := time.Now()
				if err := p.stop(); err != nil {
					t.Errorf("it ended with %v", err)
				}
				if took := time.Since(stopped); took > drainTimeout+hangTimeout {
					t.Errorf("it took %v to stop", took)
				}
				wantText(t, p.log.String(), "something hangs: podcount ends without it")
				wantText(t, p.log.String(), goroutine)
				if str(leaseNow(f), "holderIdentity") != "" {
					t.Errorf("the lease was not released: %v", leaseNow(f))
				}
			})
		})
	}
}

func TestSecondSignalExitsAndCopiesOfTheFirstDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		var stops, exits int
		go obeySignals(signals, func() { stops++ }, func(string) { exits++ })
		want := func(when string, wantStops, wantExits int) {
			t.Helper()
			synctest.Wait()
			if stops != wantStops || exits != wantExits {
				t.Errorf("%s: %d stops and %d exits, want %d and %d", when, stops, exits, wantStops, wantExits)
			}
		}
		want("before any signal", 0, 0)
		signals <- syscall.SIGTERM
		want("after the first", 1, 0)
		signals <- syscall.SIGTERM
		pass(signalCopyWindow - 1)
		signals <- syscall.SIGTERM
		want("after its copies", 1, 0)
		pass(1)
		signals <- os.Interrupt
		want("after the second", 1, 1)
	})
}

func TestStopThatTakesTooLongIsAnExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		exits := make(chan string, 2)
		go obeySignals(signals, func() {}, func(why string) { exits <- why })
		signals <- syscall.SIGTERM
		pass(endTimeout - 1)
		wantNumber(t, "exits before its end", len(exits), 0)
		pass(1)
		wantNumber(t, "exits at its end", len(exits), 1)
		wantText(t, <-exits, "something hangs: it has not ended in 26s")
		close(signals)
	})
}

// Nothing but its own limits may end a wait: neither what never ends, nor what ends late.
func TestWhatDoesNotEndIsLeftBehindAndNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, never := &logBuffer{}, make(chan struct{})
		m := &manager{log: newLog(log, &options{})}
		m.running.begin("worker of x", func() { <-never })
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		start := time.Now()
		m.awaitEnd("a controller", never, ctx)
		if took := time.Since(start); took != 5*time.Second+hangTimeout {
			t.Errorf("it was waited for %v", took)
		}
		wantText(t, log.String(), `what="a controller" running="worker of x"`)
		close(never)
		start = time.Now()
		m.awaitEnd("a controller", never, t.Context())
		if took := time.Since(start); took != 0 {
			t.Errorf("what had ended was waited for %v", took)
		}
	})
}

func TestWriteThatFailsAfterAStopIsSaid(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isWrite), delay: 3 * time.Second, status: 500, body: "{}"})
		p := startPodcount(t, f)
		synctest.Wait()
		p.stop()
		wantText(t, p.log.String(), "cannot reconcile")
	})
}

func TestStopDoesNotWaitForTheWriteBudget(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("a", controlPlane)
		f.addNode("b", controlPlane)
		p := startPodcount(t, f, "-qps", "0.01", "-burst", "1")
		synctest.Wait()
		start := time.Now()
		if err := p.stop(); err != nil || time.Since(start) != 0 {
			t.Errorf("stopped with %v after %v", err, time.Since(start))
		}
		wantNumber(t, "writes", len(f.asked(isWrite)), 1)
	})
}

// The fake, like an old server, knows fewer fields than podcount.
func TestFieldThatTheServerDoesNotKnowEndsTheProgramAsWrongUsage(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		p := startPodcount(t, f, "-field-selector", "spec.hostNetwork=true")
		synctest.Wait()
		var usage usageError
		if err := p.stop(); !errors.As(err, &usage) || !strings.Contains(err.Error(), "field label not supported: spec.hostNetwork") {
			t.Errorf("ended with %v", err)
		}
	})
}

func TestSecretsAreNotLogged(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.allow("another")
		dir := t.TempDir()
		p := startPodcountOn(t, f.serveAs(t, dir, "token: sEcReT"), "-kubeconfig", filepath.Join(dir, "config"), "-v", "9")
		pass(time.Minute)
		wantText(t, p.log.String(), "401 Unauthorized")
		if strings.Contains(p.log.String(), "sEcReT") {
			t.Error("the token is in the log")
		}
	})
}

func TestVerbosityShowsTheInside(t *testing.T) {
	for v, want := range map[string][]string{
		"0": {"level=INFO msg=listed kind=Pod objects=3 rv=", `msg="label written" node=cp label=hopegi/pod-count from=none to=3`},
		"2": {"msg=watching kind=Pod rv="},
		"4": {`msg="ADDED Pod default/late" rv=`, `msg="queue: add" controller=pod-count key=cp`},
		"6": {`msg="GET /api/v1/pods?`, `status="200 OK" took=`, `msg="PATCH /api/v1/nodes/cp?fieldManager=podcount"`},
	} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			f.addPods(3)
			p := startPodcount(t, f, "-v", v)
			synctest.Wait()
			f.addPod("default", "late", "")
			synctest.Wait()
			for level, lines := range map[string][]string{"0": {}, "2": {"msg=watching"}, "4": {"queue: add"}, "6": {"GET /api"}} {
				for _, line := range lines {
					if strings.Contains(p.log.String(), line) != (level <= v) {
						t.Errorf("-v %s: %q is there or not as it should not be", v, line)
					}
				}
			}
			for _, line := range want {
				wantText(t, p.log.String(), line)
			}
		})
	}
}

func TestLogsAsJSON(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isWrite), status: 500, body: "{}"})
		p := startPodcount(t, f, "-log-format", "json")
		pass(time.Second)
		wantText(t, p.log.String(), `"msg":"cannot reconcile","controller":"pod-count","key":"cp"`)
		wantText(t, p.log.String(), `"took":"0s"`)
		for line := range strings.Lines(p.log.String()) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The manager

func TestControllersAreChosenAsInKubeControllerManager(t *testing.T) {
	for text, want := range map[string]string{
		"*": "pod-count count", "pod-count": "pod-count", "*,-count": "pod-count", "-count,*": "pod-count", "*,pod-printer": "pod-count count pod-printer",
		"pod-printer": "pod-printer", "pod-count,-pod-count": "pod-count", "*,-pod-count,pod-count": "count",
	} {
		o, err := parseFlags([]string{"-controllers", text}, io.Discard)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var on []string
		for _, c := range controllers {
			if o.isOn(c) {
				on = append(on, c.Name)
			}
		}
		if got := strings.Join(on, " "); got != want {
			t.Errorf("-controllers %s: %q, want %q", text, got, want)
		}
	}
	for text, want := range map[string]string{
		"pods":                    `there is no "pods"; there are pod-count, count, pod-printer`,
		"*,-nothing":              `there is no "-nothing"; there are`,
		"":                        `there is no ""; there are`,
		"*,-pod-count,-count":     "leaves none to run",
		"-pod-count":              "leaves none to run",
		"pod-count, count":        `there is no " count"`,
		"pod-count,,pod-printer":  `there is no ""`,
		"--pod-count,pod-printer": `there is no "--pod-count"`,
	} {
		_, err := parseFlags([]string{"-controllers", text}, io.Discard)
		if usage := (usageError{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("-controllers %q: %v, want %q", text, err, want)
		}
	}
	out := &logBuffer{}
	if err := run(t.Context(), []string{"-controllers", "help"}, os.Getenv, out, out, nil); err != nil {
		t.Error(err)
	}
	wantNumber(t, "lines of help", strings.Count(out.String(), "\n"), len(controllers))
	wantText(t, out.String(), "pod-printer  off  prints the pods")
	wantText(t, out.String(), "pod-count    on   writes the numbers")
}

func TestControllersShareCachesAndStartALittleApart(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addPods(3)
		p := startPodcount(t, f, "-controllers", "*,pod-printer")
		pass(time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, resource := range []string{"pods", "nodes", "counts"} {
			wantNumber(t, "lists of "+resource, len(f.asked(isList(resource))), 1)
			wantNumber(t, "watches of "+resource, len(f.asked(isWatch(resource))), 1)
		}
		begins := regexp.MustCompile(`time=(\S+) .*work begins" controller=(\S+)`).FindAllStringSubmatch(p.log.String(), -1)
		if len(begins) != 3 || begins[0][1] == begins[1][1] || begins[1][1] == begins[2][1] || begins[0][2] != "pod-count" {
			t.Errorf("controllers began as %q", begins)
		}
	})
}

func TestOnlyWhatIsNeededIsAskedFor(t *testing.T) {
	for flags, want := range map[string]string{
		"-controllers=pod-count":   "nodes pods",
		"-controllers=pod-printer": "pods",
		"-controllers=count":       "counts pods",
		"":                         "counts nodes pods",
	} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.install(&fakeCRD{status: true})
			startPodcount(t, f, strings.Fields(flags)...)
			pass(time.Minute)
			var asked []string
			for _, resource := range []string{"counts", "nodes", "pods"} {
				if len(f.asked(isList(resource))) > 0 {
					asked = append(asked, resource)
				}
			}
			if got := strings.Join(asked, " "); got != want {
				t.Errorf("%s asked for %s, want %s", flags, got, want)
			}
			discovered := len(f.asked(func(s seen) bool { return s.Path == "/apis/demo.mark8s.io/v1" })) > 0
			if discovered != strings.Contains(want, "counts") {
				t.Errorf("%s: discovery was asked: %v", flags, discovered)
			}
		})
	}
}

// withController adds a controller for the time of a test.
func withController(t *testing.T, c Controller) {
	before := controllers
	controllers = append(slices.Clip(controllers), c)
	t.Cleanup(func() { controllers = before })
}

func TestControllerThatPanicsTakesNobodyDownAndIsTriedAgain(t *testing.T) {
	var reconciled atomic.Int32
	withController(t, Controller{Name: "broken", Setup: func(m *manager, c *Controller) {
		On(c, m.pods, func(d Delta[*Pod]) []Key {
			if d.Old == nil {
				panic("keys of a new pod")
			}
			return []Key{d.Key()}
		})
		c.Tick = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			var nothing *Pod
			return Result{}, errors.New(nothing.NodeName)
		}
	}})
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		p := startPodcount(t, f)
		pass(20 * time.Second)
		f.addPod("default", "more", "")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if n := reconciled.Load(); n < 10 || n > 40 { // two keys, each with a backoff from 5 ms on
			t.Errorf("tried %d times", n)
		}
		wantNumber(t, "stacks", strings.Count(p.log.String(), "a controller panics"), 1)
		wantText(t, p.log.String(), "level=ERROR msg=\"a controller panics\" controller=broken")
		wantText(t, p.log.String(), "main_test.go")
		wantText(t, p.log.String(), `msg="cannot reconcile" controller=broken`)
		wantPeace(t, f)
	})
}

func TestControllerWhoseRightsAreMissingHoldsUpNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.forbid("list counts", true)
		f.addCount("web", `{"name":"web","count":1}`)
		p := startPodcount(t, f)
		f.addPods(2)
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantText(t, p.log.String(), `the RBAC rule that allows it: apiGroups [\"demo.mark8s.io\"], resources [\"counts\"], verbs [\"list\"]`)
		f.forbid("list counts", false)
		pass(time.Minute)
		wantText(t, f.count("web"), "false 2 1")
		f.inject(t, fault{match: to(isList("counts")), status: 400, body: `{"kind":"Status","reason":"BadRequest","message":"no","code":400}`})
		f.compact()
		f.endWatches(false)
		pass(time.Minute)
		f.addPods(3)
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "3")
		wantText(t, f.count("web"), "false 3 1")
	})
}

func discoveries(f *fakeServer) int {
	return len(f.asked(func(s seen) bool { return s.Path == "/apis/demo.mark8s.io/v1" }))
}

func TestControllerWaitsForItsCRDStandsDownWithItAndComesBack(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		p := startPodcount(t, f)
		pass(10 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantNumber(t, "lines about the wait", strings.Count(p.log.String(), "is its CRD installed?"), 1)
		wantNumber(t, "warnings", strings.Count(p.log.String(), "level=WARN"), 0)
		wantNumber(t, "lists of Counts", len(f.asked(isList("counts"))), 0)
		if n := discoveries(f); n < 50 || n > 76 {
			t.Errorf("%d discoveries in 10 minutes, want one each 8 to 12 s", n)
		}
		for range 2 {
			f.install(&fakeCRD{status: true})
			f.addCount("web", `{"name":"web","count":2}`)
			pass(13 * time.Second)
			wantText(t, f.count("web"), "true 2 1")
			f.install(nil)
			pass(time.Second)
			lists := len(f.asked(isList("counts")))
			pass(time.Minute)
			if n := len(f.asked(isList("counts"))) - lists; n > 6 {
				t.Errorf("%d lists of what is gone", n)
			}
			lists = len(f.asked(isList("counts"))) + len(f.asked(isWatch("counts")))
			pass(time.Minute)
			wantNumber(t, "requests for Counts after the stand-down", len(f.asked(isList("counts")))+len(f.asked(isWatch("counts")))-lists, 0)
		}
		wantNumber(t, "stand-downs", strings.Count(p.log.String(), "the resource is gone"), 2)
		wantNumber(t, "words on the deleted Count", strings.Count(p.log.String(), "a Count is gone"), 2)
		f.addPods(4)
		pass(11 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "4")
	})
}

// A CRD that is new, or whose server has just begun, answers so for a moment.
func TestRetryAfterOfDiscoveryIsHonoured(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		startPodcount(t, f)
		pass(time.Second)
		f.inject(t, statusFault(t, func(s seen) bool { return strings.HasSuffix(s.Path, "/demo.mark8s.io/v1") }, 1, 429, "TooManyRequests", nil, "Retry-After", "60"))
		meetFaults(t, f)
		asked := discoveries(f)
		pass(59 * time.Second)
		wantNumber(t, "questions while the server wants none", discoveries(f)-asked, 0)
		pass(13 * time.Second) // a fifth more, by chance
		if discoveries(f) == asked {
			t.Error("it is not asked again")
		}
	})
}

func TestMomentOfA404OrA429StandsNothingDown(t *testing.T) {
	discovery := func(r *http.Request) bool { return r.URL.Path == "/apis/demo.mark8s.io/v1" }
	any := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/counts") }
	text := map[string]string{"Content-Type": "text/plain; charset=utf-8"}
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addCount("web", `{"name":"web","count":1}`)
		f.inject(t, fault{match: any, times: 2, status: 404, header: text, body: "404 page not found\n"})
		f.inject(t, fault{match: any, times: 2, status: 429, header: map[string]string{"Retry-After": "1"}, body: `{"kind":"Status","reason":"TooManyRequests","message":"storage is (re)initializing","code":429}`})
		p := startPodcount(t, f)
		pass(45 * time.Second)
		wantText(t, f.count("web"), "false 0 1")
		f.inject(t, fault{match: discovery, status: 404, header: text, body: "404 page not found\n"})
		pass(30 * time.Second)
		for _, code := range []int{500, 503, 429, 403} { // no answers
			f.inject(t, fault{match: discovery, status: code, body: "{}"})
		}
		f.inject(t, fault{match: discovery, status: 404, header: text, body: "404 page not found\n"})
		f.inject(t, fault{match: discovery, status: 200, body: `{"kind":"Other"}`})
		f.inject(t, fault{match: discovery, status: 200, body: `garbage`})
		pass(2 * time.Minute)
		f.addPod("default", "a", "")
		pass(time.Second)
		wantText(t, f.count("web"), "true 1 1")
		wantNumber(t, "stand-downs", strings.Count(p.log.String(), "the resource is gone"), 0)
		wantNumber(t, "lists of Counts", len(f.asked(isList("counts"))), 5)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The controller count

// countWrites are the patches of Counts.
func countWrites(f *fakeServer) (bodies []string) {
	for _, s := range f.asked(func(s seen) bool { return s.Method == "PATCH" && strings.Contains(s.Path, "/counts/") }) {
		bodies = append(bodies, strings.TrimPrefix(s.Path, "/apis/demo.mark8s.io/v1/namespaces/default/counts/")+" "+s.Body)
	}
	return bodies
}

// countEvents are the events on Counts, by reason and message, with how often each was posted.
func countEvents(f *fakeServer) string {
	var all []string
	for _, e := range f.all("events") {
		if about := e["involvedObject"].(object); str(about, "kind") == "Count" {
			all = append(all, fmt.Sprintf("%s %s %s (%v)", str(e, "type"), str(e, "reason"), str(e, "message"), e["count"]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

func TestCountSaysWhetherAsManyPodsAreThereAsItWants(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addPodWith("a", object{"app": "nginx"})
		f.addPodWith("b", object{"run": "nginx", "app": "nginx", "app.kubernetes.io/name": "nginx"}) // once
		f.addPodWith("c", object{"app": "other"})
		f.put("pods", podOn(object{"namespace": "kube-system", "name": "d", "labels": object{"app": "nginx"}}, "")) // elsewhere
		count := f.addCount("web", `{"name":"nginx","count":3}`)
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		wantText(t, f.count("web"), "false 2 1")
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 3 pods of nginx, have 2 (1)")
		f.addPodWith("e", object{"app.kubernetes.io/name": "nginx"})
		pass(time.Second) // the first change at once, then one a second
		wantText(t, f.count("web"), "true 3 1")
		wantText(t, countEvents(f), "Normal CountMatched want 3 pods of nginx, have 3 (1); Normal Synced Count synced successfully (1);")

		finished := clone(f.get("pods", objectKey{"default", "e"})) // finished and dying pods count
		finished["status"] = object{"phase": "Succeeded"}
		metaOf(finished)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
		f.put("pods", finished)
		pass(time.Minute)
		wantText(t, f.count("web"), "true 3 1")
		f.remove("pods", objectKey{"default", "e"})
		pass(time.Second)
		wantText(t, f.count("web"), "false 2 1")
		f.addPodWith("a", object{"app": "other"}) // a pod that changes sides
		pass(time.Second)
		wantText(t, f.count("web"), "false 1 1")

		f.addCount("web", `{"name":"nginx","count":1}`)
		pass(time.Second)
		wantText(t, f.count("web"), "true 1 2")
		wantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.addCount("web", `{"name":"nginx","count":1,"note":"another spec, that means the same"}`)
		pass(time.Second)
		wantText(t, f.count("web"), "true 1 3")
		wantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.addCount("web", `{"name":"other","count":1}`)
		pass(time.Second)
		wantText(t, f.count("web"), "false 2 4")
		writes := len(countWrites(f))
		pass(time.Hour)
		wantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
		uid := str(metaOf(count), "uid")
		for i, body := range countWrites(f) {
			if !strings.HasPrefix(body, "web/status {") || !strings.Contains(body, `"uid":"`+uid+`"`) || strings.Contains(body, "resourceVersion") {
				t.Errorf("write %d: %s", i, body)
			}
		}
		f.remove("counts", objectKey{"default", "web"})
		pass(time.Minute)
		wantNumber(t, "words on the deletion", strings.Count(p.log.String(), `msg="a Count is gone" count=default/web`), 1)
		f.addCount("web", `{"name":"other","count":2}`)
		pass(time.Second)
		wantText(t, f.count("web"), "true 2 1")
	})
}

func TestStatusIsWrittenAtOnceThenOnceASecondAndTheLastStateAlways(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addCount("web", `{"name":"nginx","count":50}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		writes := len(countWrites(f))
		for i := range 50 { // in five seconds
			f.addPodWith(fmt.Sprint("p", i), object{"app": "nginx"})
			if synctest.Wait(); i == 0 {
				wantText(t, f.count("web"), "false 1 1")
			}
			pass(100 * time.Millisecond)
		}
		pass(time.Second)
		wantText(t, f.count("web"), "true 50 1")
		wantNumber(t, "writes", len(countWrites(f))-writes, 6)
	})
}

// The watch is late: it has not told yet that the object was made anew, or is gone.
func TestWriteThatFindsAnotherObjectIsNotTriedAgainWithEachPod(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addCount("web", `{"name":"web","count":1}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		catchUp := f.fallBehind(0, func(s seen) bool { return !strings.HasSuffix(s.Path, "/pods") })
		pass(time.Second)
		f.remove("nodes", objectKey{Name: "cp"})
		f.addNode("cp", controlPlane)
		f.remove("counts", objectKey{"default", "web"})
		before := len(f.asked(isWrite))
		for i := range 100 { // ten seconds
			f.addPod("default", fmt.Sprint("p", i), "")
			pass(100 * time.Millisecond)
		}
		if n := len(f.asked(isWrite)) - before; n < 2 || n > 4 {
			t.Errorf("%d writes, of one an interval to the node and to the Count", n)
		}
		catchUp()
		wantPeace(t, f)
	})
}

// No watch will tell it before the list of the hour.
func TestCountWhoseDeletionIsLostIsWrittenToOnceAnInterval(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addCount("web", `{"name":"web","count":1}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Minute)
		f.loseNext(1)
		f.remove("counts", objectKey{"default", "web"})
		f.addPod("default", "a", "")
		before := len(f.asked(isWrite))
		pass(10 * time.Minute)
		if n := len(f.asked(isWrite)) - before; n < 1 || n > 61 {
			t.Errorf("%d writes in ten minutes", n)
		}
		pass(time.Hour)
		before = len(f.asked(isWrite))
		pass(10 * time.Minute)
		wantNumber(t, "writes then", len(f.asked(isWrite))-before, 0)
	})
}

func TestPodsChangeConcernsItsCountsAlone(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		for i := range 300 {
			f.addCount(fmt.Sprintf("c%d", i), fmt.Sprintf(`{"name":"n%d","count":1}`, i/2))
		}
		p := startPodcount(t, f, "-v", "4", "-qps", "1000")
		pass(time.Minute)
		before := strings.Count(p.log.String(), `"queue: get" controller=count`)
		f.addPodWith("a", object{"app": "n7"})
		synctest.Wait()
		wantText(t, f.count("c14"), "true 1 1")
		wantText(t, f.count("c15"), "true 1 1")
		after := strings.Count(p.log.String(), `"queue: get" controller=count`)
		if n := after - before; n < 2 || n > 4 {
			t.Errorf("a pod and two writes made %d keys", n)
		}
		f.put("pods", podOn(object{"namespace": "default", "name": "a", "labels": object{"app": "n7", "x": "y"}}, "n1"))
		synctest.Wait()
		wantNumber(t, "keys after a change that concerns no Count", strings.Count(p.log.String(), `"queue: get" controller=count`)-after, 0)
	})
}

func TestInvalidCountGetsAWarningAndDisturbsNoOther(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addPodWith("a", object{"app": "nginx"})
		p := startPodcount(t, f, "-pod-events", "off")
		pass(time.Second)
		for spec, want := range map[string]string{
			`{"count":3}`:                           "spec.name is missing, and must be the name of an app",
			`{"name":"","count":3}`:                 `spec.name is "", and must be`,
			`{"name":5,"count":3}`:                  "spec.name is 5, and must be",
			`{"name":["x"],"count":3}`:              `spec.name is ["x"], and must be`,
			`{"name":"x"}`:                          "spec.count is missing, and must be a whole number, 0 or more",
			`{"name":"x","count":null}`:             "spec.count is missing",
			`{"name":"x","count":-1}`:               "spec.count is -1, and must be",
			`{"name":"x","count":"3"}`:              `spec.count is "3", and must be`,
			`{"name":"x","count":1.5}`:              "spec.count is 1.5, and must be",
			`{"name":"x","count":1e300}`:            "spec.count is 1e+300, and must be",
			`{"name":"x","count":{"a":1}}`:          `spec.count is {"a":1}, and must be`,
			`"hello"`:                               "spec.name is missing",
			`null`:                                  "spec.name is missing",
			`[1]`:                                   "spec.name is missing",
			`{"name":"x","count":99999999999999e9}`: "spec.count is 9.9999999999999e+22, and must be",
		} {
			f.addCount("bad", spec)
			pass(time.Second)
			if events := countEvents(f); !strings.Contains(events, "Warning InvalidCount "+want) {
				t.Errorf("%s: no %q in %s", spec, want, events)
			}
			f.remove("counts", objectKey{"default", "bad"})
			pass(10 * time.Second)
			for _, e := range f.all("events") {
				f.remove("events", keyOf(e))
			}
		}
		wantNumber(t, "writes", len(countWrites(f)), 0)
		f.putJSON("counts", `{"metadata":{"namespace":"default","name":"odd"},"spec":{"name":"nginx","count":1,"nodeName":5},"status":"hello"}`)
		f.addCount("good", `{"name":"nginx","count":1}`)
		pass(time.Second)
		wantText(t, f.count("good"), "true 1 1")
		wantText(t, f.count("odd"), "true 1 1")
		f.putJSON("counts", `{"metadata":{"namespace":"default","name":"good"},"spec":{"name":"nginx","count":"1"},"status":{"healthy":true,"count":1,"observedGeneration":1}}`)
		pass(time.Second)
		wantText(t, f.count("good"), "false 1 1") // what it says was said of another spec
		f.addCount("good", `{"name":"nginx","count":2}`)
		pass(time.Second)
		wantText(t, f.count("good"), "false 1 3")
		f.endWatches(false)
		f.compact() // what is invalid stands in lists, too
		f.addCount("bad", `"hello"`)
		f.compact()
		pass(time.Minute)
		f.addPodWith("b", object{"app": "nginx"})
		pass(time.Second)
		wantText(t, f.count("good"), "true 2 3")
		wantText(t, f.count("odd"), "false 2 1")
		wantNumber(t, "complaints", strings.Count(p.log.String(), "undecodable"), 0)
	})
}

func TestWithoutAStatusSubresourceTheObjectIsPatchedAndGenerationSaysNothing(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{})
		f.addPodWith("a", object{"app": "nginx"})
		f.addCount("web", `{"name":"nginx","count":2}`)
		startPodcount(t, f, "-pod-events", "off")
		pass(time.Hour)
		uid := str(metaOf(f.get("counts", objectKey{"default", "web"})), "uid")
		write := func(healthy bool, n int) string {
			return fmt.Sprintf(`web {"metadata":{"uid":"%s"},"status":{"healthy":%v,"count":%d}}`, uid, healthy, n)
		}
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1)}) {
			t.Errorf("writes: %q", got)
		}
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of nginx, have 1 (1)")
		f.addPodWith("b", object{"app": "nginx"})
		pass(time.Hour)
		if got := countWrites(f); !slices.Equal(got, []string{write(false, 1), write(true, 2)}) {
			t.Errorf("writes: %q", got)
		}
		wantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.putJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":3},"status":{"healthy":true,"count":2}}`)
		pass(time.Hour)
		wantNumber(t, "writes", len(countWrites(f)), 3)
		wantText(t, countEvents(f), "Synced Count synced successfully (2)")
		f.putJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":5},"status":{"healthy":false,"count":2}}`)
		pass(time.Hour) // not a write, but news
		wantNumber(t, "writes", len(countWrites(f)), 3)
		wantText(t, countEvents(f), "want 5 pods of nginx, have 2 (1)")
		wantText(t, countEvents(f), "Synced Count synced successfully (3)")
		f.install(&fakeCRD{status: true}) // somebody adds the subresource
		pass(time.Minute)
		wantText(t, f.count("web"), "false 2 6")
		if got := countWrites(f); len(got) != 4 || !strings.HasPrefix(got[3], "web/status ") {
			t.Errorf("writes: %q", got)
		}
		f.install(&fakeCRD{}) // and removes it
		pass(time.Minute)
		f.remove("pods", objectKey{"default", "b"})
		pass(time.Minute)
		if got := countWrites(f); len(got) != 5 || got[4] != write(false, 1) {
			t.Errorf("writes: %q", got)
		}
	})
}

func TestSchemaThatDropsTheStatusIsFoundInTheFirstAnswer(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.install(&fakeCRD{status: status, drops: true})
			for i := range 20 {
				f.addCount(fmt.Sprintf("c%d", i), `{"name":"nginx","count":1}`)
			}
			p := startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			writes := len(countWrites(f))
			if writes < 1 || writes > 4 { // -workers, that had begun when the first answer came
				t.Errorf("%d writes", writes)
			}
			f.addCount("c0", `{"name":"nginx","count":2}`)
			synctest.Wait()
			f.addPodWith("a", object{"app": "nginx"})
			pass(time.Hour)
			if more := len(countWrites(f)) - writes; more < 5 || more > 6*4 {
				t.Errorf("%d more writes in an hour, want one or, by the workers, a few in ten minutes", more)
			}
			wantNumber(t, "words on it", strings.Count(p.log.String(), "statuses do not stay"), 1)
			for want, n := range map[string]int{"Synced": 20, "CountMatched": 19} { // events tell, still
				reasons := 0
				for _, e := range f.all("events") {
					if str(e, "reason") == want {
						reasons++
					}
				}
				wantNumber(t, want, reasons, n)
			}
			wantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
			f.install(nil)
			pass(time.Minute)
			f.install(&fakeCRD{status: status}) // mended
			f.addCount("web", `{"name":"nginx","count":1}`)
			pass(time.Minute)
			wantText(t, f.count("web"), "true 1 ")
		})
	}
}

func TestRestartSaysNothingOfCountsAgain(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.install(&fakeCRD{status: status})
			f.addPodWith("a", object{"app": "nginx"})
			f.addCount("good", `{"name":"nginx","count":1}`)
			f.addCount("bad", `{"name":"nginx","count":2}`)
			startPodcount(t, f, "-pod-events", "off").stop()
			startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			before, writes := countEvents(f), len(countWrites(f))
			startPodcount(t, f, "-pod-events", "off")
			pass(time.Minute)
			if after := countEvents(f); after != before || len(countWrites(f)) != writes {
				t.Errorf("events before %s, after %s; %d writes, then %d", before, after, writes, len(countWrites(f)))
			}
		})
	}
}

func TestStatusOfACountThatFailedOrWasChangedByAnotherIsWrittenAgain(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		isStatusWrite := func(r *http.Request) bool { return r.Method == "PATCH" && strings.HasSuffix(r.URL.Path, "/status") }
		f.inject(t, statusFault(t, func(s seen) bool { return strings.HasSuffix(s.Path, "/status") }, 3, 500, "InternalError", nil))
		f.addCount("web", `{"name":"nginx","count":0}`)
		f.addCount("other", `{"name":"other","count":0}`)
		p := startPodcount(t, f)
		pass(time.Minute)
		wantText(t, f.count("web"), "true 0 1")
		wantText(t, f.count("other"), "true 0 1")
		wantText(t, p.log.String(), `msg="cannot reconcile" controller=count key=default/`)
		f.putJSON("counts", `{"metadata":{"namespace":"default","name":"web"},"spec":{"name":"nginx","count":0},"status":{"healthy":false,"count":7}}`)
		pass(10 * time.Second)
		wantText(t, f.count("web"), "true 0 1")
		wantText(t, countEvents(f), "Synced Count synced successfully (1)")
		f.inject(t, fault{match: isStatusWrite, drop: true})  // did not arrive
		f.inject(t, fault{match: isStatusWrite, after: true}) // did, but the answer was lost
		f.addPodWith("a", object{"app": "nginx"})
		pass(time.Minute)
		wantText(t, f.count("web"), "false 1 1")
		writes := len(countWrites(f))
		pass(time.Hour)
		wantNumber(t, "writes of what is right", len(countWrites(f))-writes, 0)
	})
}

// The answer to our write brings what others have written before it.
func TestChangeOfACountThatComesWithTheAnswerToOurWriteIsNotLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addCount("web", `{"name":"web","count":2}`)
		startPodcount(t, f)
		pass(time.Second)
		wantText(t, f.count("web"), "false 0 1")
		f.inject(t, fault{match: to(isWatch("counts")), delay: 5 * time.Second})
		f.endWatches(false)
		pass(time.Second)
		f.addCount("web", `{"name":"web","count":1}`) // no watch tells it yet
		f.addPodWith("a", object{"app": "web"})
		pass(time.Hour)
		wantText(t, f.count("web"), "true 1 2")
		wantText(t, countEvents(f), "Normal Synced Count synced successfully (2)")
	})
}

func TestEventsOfACountArePostedThoughTheAnswerToItsFirstWriteIsLost(t *testing.T) {
	for _, status := range []bool{true, false} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.install(&fakeCRD{status: status})
			f.addCount("web", `{"name":"web","count":2}`)
			f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PATCH" && strings.Contains(r.URL.Path, "/counts/") }, after: true})
			startPodcount(t, f)
			pass(time.Minute)
			wantText(t, f.count("web"), "false 0 ")
			wantText(t, countEvents(f), "Normal Synced Count synced successfully (1); Warning CountMismatch want 2 pods of web, have 0 (1)")
		})
	}
}

func TestFirstWriteThatHangsHoldsUpNoOtherCount(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		for i := range 10 {
			f.addCount(fmt.Sprintf("c%d", i), `{"name":"web","count":0}`)
		}
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PATCH" && strings.Contains(r.URL.Path, "/counts/") }, stall: true})
		p := startPodcount(t, f)
		pass(3 * time.Second)
		right := 0
		for i := range 10 {
			if strings.HasPrefix(f.count(fmt.Sprintf("c%d", i)), "true 0 ") {
				right++
			}
		}
		wantNumber(t, "Counts with a status beside the one that hangs", right, 9)
		stopped := time.Now()
		p.stop()
		if took := time.Since(stopped); took > drainTimeout+eventsTimeout {
			t.Errorf("it stopped after %v", took)
		}
	})
}

func TestPodPrinterPrints(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPod("default", "a", "")
		p := startPodcount(t, f, "-controllers", "pod-printer")
		pass(time.Second)
		f.addPod("default", "b", "")
		synctest.Wait()
		f.put("pods", podOn(object{"namespace": "default", "name": "b", "labels": object{"app": "web", "new": "label"}}, ""))
		synctest.Wait()
		f.remove("pods", objectKey{"default", "a"})
		synctest.Wait()
		// The deletion shows first as a change of the pod: it is looked at once for both, or twice.
		const come, gone = "Sync/Add/Update for Pod default/%s\n", "Pod default/a does not exist anymore\n"
		a, b := fmt.Sprintf(come, "a"), fmt.Sprintf(come, "b")
		if !regexp.MustCompile("^" + a + b + b + "(" + a + ")?(" + gone + "){1,2}$").MatchString(p.out.String()) {
			t.Errorf("printed:\n%s", p.out)
		}
		wantNumber(t, "writes", len(f.asked(isWrite)), 0)
	})
}

// The bytes in the tour are those of the recording, which is what the tour says it is.
func TestTourShowsRealBytes(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	frame := recording(t, "watch-added.pb")
	var shown []byte
	for _, m := range regexp.MustCompile(`(?m)^    00[0-9a-f]0  ((?:[0-9a-f]{2} +)+)`).FindAllStringSubmatch(string(readme), -1) {
		line, err := hex.DecodeString(strings.ReplaceAll(m[1], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		shown = append(shown, line...)
	}
	if len(shown) < 160 || !bytes.HasPrefix(frame, shown) {
		t.Errorf("%d bytes are shown; the recording has % x", len(shown), frame[:160])
	}
	wantText(t, string(readme), fmt.Sprintf("%d bytes more come out of it", len(frame)))
	kind := podKind()
	kind.Keep = []string{"app"}
	events := 0
	err = newDecoder(kind).events(bytes.NewReader(frame), true, func(ev WatchEvent[*Pod]) error {
		events++
		p := ev.Object
		if ev.Type != "ADDED" || p.Key().String() != "default/web-0" || p.UID() != "cc0c67d4-f651-49fc-b1ea-6eb2223f16f7" || p.ResourceVersion() != "432" || labelsOf(&p.Meta)["app"] != "web" {
			t.Errorf("%+v", ev)
		}
		return nil
	})
	if err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

// The text in the README is compiled into podcount, and run.
func TestControllerOfTheReadmeRuns(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(readme), "## Write your own controller")
	_, text, _ = strings.Cut(text, "```go\n")
	text, _, closed := strings.Cut(text, "```")
	if !found || !closed {
		t.Fatal("the README shows no controller")
	}
	if n := strings.Count(text, "\n"); n > 40 {
		t.Errorf("the README's controller has %d lines", n)
	}
	dir := t.TempDir()
	for _, file := range []string{"main.go", "watch.go", "cache.go", "queue.go", "go.mod"} {
		code, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		writeFiles(t, dir, map[string]string{file: string(code)})
	}
	for _, folder := range []string{"deploy", "internal"} {
		if err := os.CopyFS(filepath.Join(dir, folder), os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
	}
	_, metric, found := strings.Cut(string(readme), "In a file of your own, register it there instead:\n\n```go\n")
	metric, _, closed = strings.Cut(metric, "```")
	if !found || !closed {
		t.Fatal("the README shows no metric")
	}
	writeFiles(t, dir, map[string]string{
		"crowded.go": text,
		"metric.go":  "package main\n\nimport \"podcount/internal/metrics\"\n\n" + metric,
	})
	build := exec.Command("go", "build", "-o", "podcount", ".")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	f := newFake()
	server, ca := f.serveTLSFor(t)
	f.allow("me")
	f.addNode("n1")
	f.addNode("n2")
	for i := range 101 {
		f.addPod("default", fmt.Sprintf("web-%d", i), "n1")
	}
	writeFiles(t, dir, map[string]string{"config": kubeconfigFor(server, ca, "token: me")})
	cmd := exec.Command(filepath.Join(dir, "podcount"), "-kubeconfig", filepath.Join(dir, "config"), "-controllers", "crowded", "-log-format", "json")
	var log bytes.Buffer
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	f.await(t, "the event", func() bool { return len(eventsOf(f, "Crowded")) > 0 })
	cmd.Process.Signal(syscall.SIGTERM)
	if err := <-ended; err != nil {
		t.Errorf("%v\n%s", err, log.String())
	}
	if got := eventsOf(f, "Crowded"); len(got) != 1 || !strings.Contains(got[0], "n1") {
		t.Errorf("events: %q", got)
	}
	wantNumber(t, "writes", len(f.asked(isWrite)), 0)
}

// ---------------------------------------------------------------------------------------------------------------------
// Leader election

const leasePath = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/podcount"

var leaseKey = objectKey{"kube-system", "podcount"}

// startReplica starts a podcount that calls the server by a name of its own.
func startReplica(t *testing.T, f *fakeServer, name string, args ...string) *program {
	return startPodcountOn(t, f.serveIn(t), append([]string{"-master", "http://" + name + ":1", "-v", "6", "-leader-elect", "-pod-events", "off", "-interval", "1s"}, args...)...)
}

// leaseNow returns the Lease's spec.
func leaseNow(f *fakeServer) object {
	spec, _ := f.get("leases", leaseKey)["spec"].(object)
	return spec
}

// leaderAt is the replica that has sent the newest write.
func leaderAt(f *fakeServer) string {
	writes := f.asked(func(s seen) bool { return s.Method != "GET" && !strings.Contains(s.Path, "/leases/") })
	if len(writes) == 0 {
		return "nobody"
	}
	return strings.TrimSuffix(writes[len(writes)-1].Host, ":1")
}

// wantOneLeader fails the test if a write was sent by somebody who did not hold the lease then, by the server's own history.
func wantOneLeader(t *testing.T, f *fakeServer) {
	t.Helper()
	type span struct {
		host string
		at   time.Time
	}
	var renewed []span            // each PUT of the lease that the server took, by whom
	holder := map[string]string{} // identity by host
	for _, s := range f.asked(func(seen) bool { return true }) {
		if s.Method == "PUT" && s.Path == leasePath {
			var l lease
			json.Unmarshal([]byte(s.Body), &l)
			if l.Spec.HolderIdentity != "" {
				holder[s.Host] = l.Spec.HolderIdentity
			}
			for _, e := range f.changes() {
				if spec, _ := e.New["spec"].(object); e.Resource == "leases" && str(spec, "renewTime") == l.Spec.RenewTime && str(spec, "holderIdentity") == holder[s.Host] {
					renewed = append(renewed, span{s.Host, s.At})
				}
			}
		}
		if s.Method == "GET" || strings.Contains(s.Path, "/leases/") {
			continue
		}
		if len(renewed) == 0 || renewed[len(renewed)-1].host != s.Host || s.At.Sub(renewed[len(renewed)-1].at) >= 10*time.Second {
			t.Errorf("%s wrote %s at %s; the lease was renewed by %v", s.Host, s.Path, s.At.Format("15:04:05.000"), renewed[max(0, len(renewed)-1):])
		}
	}
}

func TestOneOfThreeReplicasWritesAndTheOthersKeepTheirCachesWarm(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addCount("web", `{"name":"web","count":1}`)
		replicas := map[string]*program{}
		for _, name := range []string{"a", "b", "c"} {
			replicas[name] = startReplica(t, f, name)
		}
		pass(time.Minute)
		first := leaderAt(f)
		for range 30 {
			f.addPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(2 * time.Second)
		}
		wantLabel(t, f, "cp", podCountLabel, "30")
		wantText(t, f.count("web"), "false 30 1")
		if leaderAt(f) != first {
			t.Errorf("%s led, then %s", first, leaderAt(f))
		}
		for name, p := range replicas {
			wantNumber(t, name+"'s lists of pods", len(f.asked(func(s seen) bool { return s.Host == name+":1" && isList("pods")(s) })), 1)
			wantNumber(t, "mentions of the holder by "+name, strings.Count(p.log.String(), "standing by"), map[bool]int{true: 0, false: 1}[name == first])
		}
		stopped := time.Now()
		if err := replicas[first].stop(); err != nil {
			t.Error(err)
		}
		wantText(t, replicas[first].log.String(), "the lease is released")
		if str(leaseNow(f), "holderIdentity") != "" || leaseNow(f)["leaseDurationSeconds"] != 1.0 {
			t.Errorf("after the release: %v", leaseNow(f))
		}
		f.addPod("default", "last", "")
		for f.label("cp", podCountLabel) != "31" {
			pass(100 * time.Millisecond)
			if time.Since(stopped) > 5*time.Second {
				t.Fatal("no other replica has taken over within 5 s")
			}
		}
		second := leaderAt(f)
		won, _ := time.Parse(time.RFC3339, str(leaseNow(f), "acquireTime"))
		writes := f.asked(func(s seen) bool { return s.Host == second+":1" && isWriteOf("nodes")(s) })
		if took := writes[0].At.Sub(won); took > time.Second {
			t.Errorf("the new leader first wrote %v after it was elected", took)
		}
		if second == first || leaseNow(f)["leaseTransitions"] != 1.0 {
			t.Errorf("%s follows %s: %v", second, first, leaseNow(f))
		}
		wantOneLeader(t, f)
	})
}

// As when a machine comes back, or a whole deployment is scaled up.
func TestTwentyReplicasThatStartTogetherDoNotAskTogether(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		start := time.Now()
		for i := range 20 {
			startReplica(t, f, fmt.Sprint("r", i))
		}
		pass(2 * time.Second)
		first := map[string]time.Time{}
		for _, s := range f.asked(func(seen) bool { return true }) {
			if first[s.Host].IsZero() {
				first[s.Host] = s.At
			}
		}
		at := slices.SortedFunc(maps.Values(first), time.Time.Compare)
		wantNumber(t, "replicas that have begun", len(at), 20)
		for i, a := range at {
			if i+10 < len(at) && at[i+10].Sub(a) < 100*time.Millisecond { // would be chance once in 10,000 times
				t.Fatalf("half of them ask within 100 ms: %v", at)
			}
		}
		if at[0].Sub(start) > 500*time.Millisecond || at[19].Sub(start) > time.Second || at[19].Sub(at[0]) < 500*time.Millisecond {
			t.Errorf("they first ask from %v to %v after the start", at[0].Sub(start), at[19].Sub(start))
		}
		wantPeace(t, f, "-interval", "1s")
		wantOneLeader(t, f)
	})
}

func TestLeaseIsWrittenAsClientGoDoes(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		p := startReplica(t, f, "a")
		pass(time.Second)
		made := leaseNow(f)
		host, _ := os.Hostname()
		if id := str(made, "holderIdentity"); !regexp.MustCompile("^" + regexp.QuoteMeta(host) + "_[0-9a-f]{16}$").MatchString(id) {
			t.Errorf("the identity is %s", id)
		}
		if made["leaseDurationSeconds"] != 15.0 || made["leaseTransitions"] != 0.0 || !regexp.MustCompile(`^2000-01-01T00:00:00\.[0-9]{6}Z$`).MatchString(str(made, "acquireTime")) || made["renewTime"] != made["acquireTime"] {
			t.Errorf("the lease was made as %v", made)
		}
		metaOf := object{"metadata": object{"namespace": "kube-system", "name": "podcount", "labels": object{"theirs": "stays"}}, "spec": made}
		f.put("leases", metaOf) // somebody labels it: a conflict, and no reason to do more than look again
		pass(8 * time.Second)
		if now := leaseNow(f); now["acquireTime"] != made["acquireTime"] || now["renewTime"] == made["renewTime"] || now["leaseTransitions"] != 0.0 {
			t.Errorf("renewed, it is %v", now)
		}
		labels, _ := f.get("leases", leaseKey)["metadata"].(object)["labels"].(object)
		if labels["theirs"] != "stays" {
			t.Errorf("its labels are %v", labels)
		}
		var asked []string
		for _, s := range f.asked(func(s seen) bool { return s.Path == leasePath }) {
			asked = append(asked, s.Method)
		}
		if got := strings.Join(asked, " "); got != "GET PUT PUT GET PUT PUT PUT PUT" { // made, conflict, looked, renewed …
			t.Errorf("requests: %s", got)
		}
		f.remove("leases", leaseKey) // and somebody removes it
		pass(10 * time.Second)
		if str(leaseNow(f), "holderIdentity") != str(made, "holderIdentity") {
			t.Errorf("it was not made again: %v", leaseNow(f))
		}
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "POSTs", len(f.asked(func(s seen) bool { return s.Method == "POST" && strings.Contains(s.Path, "leases") })), 0)
	})
}

func TestLeaseOfAnotherIsTakenOnceItHasNotChangedForItsDurationWhateverItsTimesSay(t *testing.T) {
	lease := func(at time.Time) object {
		text := at.UTC().Format("2006-01-02T15:04:05.000000Z07:00")
		return object{"holderIdentity": "other", "leaseDurationSeconds": 20, "acquireTime": text, "renewTime": text, "leaseTransitions": 4}
	}
	for _, skew := range []time.Duration{-time.Hour, 0, time.Hour} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			put := func() {
				f.put("leases", object{"metadata": object{"namespace": "kube-system", "name": "podcount"}, "spec": lease(time.Now().Add(skew))})
			}
			put()
			p := startReplica(t, f, "a")
			for range 30 { // it is alive
				pass(2 * time.Second)
				put()
			}
			o := clone(f.get("leases", leaseKey)) // now it is dead; others may still touch its Lease
			for range 9 {
				pass(2 * time.Second)
				metaOf(o)["annotations"] = object{"touched": time.Now().String()}
				f.put("leases", o)
			}
			if leaderAt(f) != "nobody" || str(leaseNow(f), "holderIdentity") != "other" {
				t.Errorf("skew %v: taken from its holder: %v", skew, leaseNow(f))
			}
			pass(11 * time.Second) // 20 s from when it was seen, which may be 4.4 s late, and 4.4 s until the next look
			wantLabel(t, f, "cp", podCountLabel, "0")
			if now := leaseNow(f); now["leaseTransitions"] != 5.0 || now["acquireTime"] == o["spec"].(object)["acquireTime"] || now["leaseDurationSeconds"] != 15.0 {
				t.Errorf("skew %v: it was taken as %v", skew, now)
			}
			wantNumber(t, "words on its holder", strings.Count(p.log.String(), "standing by"), 1)
		})
	}
}

func TestOddLeasesAreTakenAsByClientGo(t *testing.T) {
	for text, takes := range map[string]time.Duration{ // and how long that may take
		`{}`: time.Second,
		`{"holderIdentity":null,"leaseDurationSeconds":null,"acquireTime":null,"renewTime":null,"leaseTransitions":null}`: time.Second,
		`{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":3}`:                                             time.Second,
		`{"leaseDurationSeconds":3600}`:                          time.Second,
		`{"holderIdentity":"x"}`:                                 5 * time.Second, // at the second look
		`{"holderIdentity":"x","leaseDurationSeconds":-5}`:       5 * time.Second,
		`{"holderIdentity":"x","leaseDurationSeconds":10}`:       16 * time.Second,
		`{"holderIdentity":"x","strategy":"y","future":{"a":1}}`: 5 * time.Second,
	} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			f.putJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":`+text+`}`)
			startReplica(t, f, "a")
			start := time.Now()
			for f.label("cp", podCountLabel) == "-" && time.Since(start) < time.Minute {
				pass(100 * time.Millisecond)
			}
			took := time.Since(start)
			if took > takes+time.Second || took < takes/4 && takes > time.Second {
				t.Errorf("%s was taken after %v, want %v", text, took, takes)
			}
		})
	}
}

func TestLeaderThatCannotRenewStopsWritingAtItsDeadlineAndExits1AndAnotherTakesOver(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		replicas := map[string]*program{"a": startReplica(t, f, "a"), "b": startReplica(t, f, "b")}
		pass(30 * time.Second)
		first := leaderAt(f)
		cut := time.Now()
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Host == first+":1" && r.Method == "PUT" }, stall: true})
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Host == first+":1" && strings.Contains(r.URL.Path, "/leases/") }, times: 1, status: 500, body: "{}"})
		for range 12 {
			f.addPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(time.Second)
		}
		f.cutOff(first+":1", true)
		for leaderAt(f) == first {
			f.addPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(200 * time.Millisecond)
			if time.Since(cut) > 40*time.Second {
				t.Fatal("nobody has taken over")
			}
		}
		err := replicas[first].stop()
		if err == nil || errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "the lease is lost: ") {
			t.Errorf("the old leader ended with %v", err)
		}
		if strings.Contains(replicas[first].log.String(), "the lease is released") {
			t.Error("it released what it had lost")
		}
		wantOneLeader(t, f)
	})
}

func TestKilledLeaderIsFollowedWithin24Seconds(t *testing.T) {
	for range 10 {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			startReplica(t, f, "a")
			startReplica(t, f, "b")
			pass(30*time.Second + rand.N(10*time.Second))
			first := leaderAt(f)
			f.cutOff(first+":1", true)
			killed := time.Now()
			f.addPod("default", "p", "")
			for f.label("cp", podCountLabel) != "1" {
				pass(50 * time.Millisecond)
				if time.Since(killed) > 24*time.Second {
					t.Fatal("nobody has taken over")
				}
			}
			if leaderAt(f) == first {
				t.Error("the dead one has written")
			}
			wantOneLeader(t, f)
		})
	}
}

func TestLeaderWhoseLeaseIsTakenStopsAtOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.putJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"other","leaseDurationSeconds":15}}`)
		pass(5 * time.Second)
		f.addPods(3)
		pass(10 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		if err := p.stop(); err == nil || !strings.Contains(err.Error(), `the lease is lost: it is held by "other"`) {
			t.Errorf("it ended with %v", err)
		}
		if str(leaseNow(f), "holderIdentity") != "other" {
			t.Error("the other's lease was touched")
		}
	})
}

// A write in hand is cut when the lease is lost, and events are not sent, either.
func TestNothingIsSentWithoutTheLease(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p := startReplica(t, f, "a", "-pod-events", "on")
		pass(10 * time.Second)
		met := make(chan struct{}, 1)
		f.inject(t, fault{match: to(isWriteOf("nodes")), stall: true, met: met})
		f.addPods(1)
		<-met // a write hangs
		f.inject(t, fault{match: func(r *http.Request) bool { return r.URL.Path == leasePath }, times: 4, status: 503, body: "{}"})
		hung := time.Now()
		for !strings.Contains(p.log.String(), "podcount stopped") {
			f.addPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(100 * time.Millisecond)
		}
		if took := time.Since(hung); took > 11*time.Second {
			t.Errorf("it ended %v after it could not renew its lease", took)
		}
		wantOneLeader(t, f)
	})
}

func isWriteOf(resource string) func(seen) bool {
	return func(s seen) bool { return isWrite(s) && strings.Contains(s.Path, "/"+resource+"/") }
}

// permitOf is a permit to write that is asked for, and never ends by itself.
type permitOf func() error

func (p permitOf) mayWrite() error { return p() }

func (p permitOf) whileLeading(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(ctx)
}

// The lease may run out while a credential is awaited, or while the process was stopped: a timer may tell that too late.
func TestClientAsksRightBeforeAWriteWhetherItMayBeSent(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("n")
		base, _ := url.Parse("http://127.0.0.1:1")
		may := true
		client := newClient(&options{}, &Config{Server: base, Credential: func(context.Context, *Credential) (*Credential, error) {
			may = false
			return &Credential{}, nil
		}}, f.serveIn(t).dial, quietLog())
		defer client.Close()
		client.permit = permitOf(func() error {
			if !may {
				return errors.New("not any more")
			}
			return nil
		})
		for r, sent := range map[*request]bool{
			{method: "GET", path: "/api/v1/nodes/n"}:                                    true,
			{method: "PATCH", path: "/api/v1/nodes/n", body: object{}}:                  false,
			{method: "POST", path: "/api/v1/namespaces/default/events", body: object{}}: false,
			{method: "PUT", path: leasePath, body: object{}, needsNone: true}:           true,
			{method: "DELETE", path: "/api/v1/nodes/n"}:                                 false,
		} {
			may = true
			before := len(f.asked(func(seen) bool { return true }))
			err := client.Send(t.Context(), *r, nil)
			if got := len(f.asked(func(seen) bool { return true })) > before; got != sent || !sent && (err == nil || !strings.Contains(err.Error(), "not any more")) {
				t.Errorf("%s %s was sent: %v, %v", r.method, r.path, got, err)
			}
		}
	})
}

// lateDial is a network on which a connection takes a while, whatever the context says: as when the process is frozen.
func lateDial(dial Dialer, wait func()) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		wait()
		return dial(context.WithoutCancel(ctx), network, addr)
	}
}

func TestWriteWhosePermitEndsWhileItsConnectionIsMadeIsNotSent(t *testing.T) {
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("n")
			may := true
			isTLS := over == "HTTP/2"
			client := clientOver(t, f, isTLS, func(dial Dialer) Dialer {
				return lateDial(dial, func() { may = false })
			})
			defer client.Close()
			client.permit = permitOf(func() error {
				if !may {
					return errors.New("not any more")
				}
				return nil
			})
			err := client.Send(t.Context(), request{method: "PATCH", path: "/api/v1/nodes/n", body: object{}}, nil)
			if err == nil || !strings.Contains(err.Error(), "not any more") {
				t.Errorf("%s: %v", over, err)
			}
			synctest.Wait()
			wantNumber(t, over+": requests that came", len(f.asked(func(seen) bool { return true })), 0)
			may = true
			client.permit = permitOf(func() error { return nil })
			err = client.Send(t.Context(), request{method: "PATCH", path: "/api/v1/nodes/n", body: object{"metadata": object{"labels": object{"a": "b"}}}}, nil)
			if err != nil || f.label("n", "a") != "b" {
				t.Errorf("%s: with a permit: %v", over, err)
			}
		})
	}
}

// clientOver makes a client of the fake, over HTTP/1.1 or over TLS and HTTP/2, on a network that change has changed.
func clientOver(t *testing.T, f *fakeServer, isTLS bool, change func(Dialer) Dialer) *Client {
	cred := &Credential{}
	base, _ := url.Parse("http://127.0.0.1:1")
	var certificate []func() *tls.Certificate
	if isTLS {
		base.Scheme = "https"
		ca := newAuthority(t, "CA")
		cert, key := ca.issue(t, "server", nil)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		cred.tls = &tls.Config{RootCAs: ca.pool()}
		certificate = append(certificate, func() *tls.Certificate { return &pair })
	}
	credential := func(context.Context, *Credential) (*Credential, error) { return cred, nil }
	return newClient(&options{}, &Config{Server: base, Credential: credential}, change(f.serveIn(t, certificate...).dial), quietLog())
}

// Another replica's patience begins when the server has the lease, which may be long before its answer arrives.
func TestTermIsCountedFromBeforeTheLeaseWasSent(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		renewals := func() []seen { return f.asked(func(s seen) bool { return s.Method == "PUT" && s.Path == leasePath }) }
		slow := f.keep(t, fault{match: func(r *http.Request) bool { return r.Method == "PUT" && r.URL.Path == leasePath }, delay: 4 * time.Second})
		before := len(renewals())
		for start := time.Now(); len(renewals()) == before; pass(100 * time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatal("it does not renew its lease")
			}
		}
		sent := renewals()[before].At
		pass(4500 * time.Millisecond) // it is answered
		slow()
		f.keep(t, fault{match: func(r *http.Request) bool { return r.URL.Path == leasePath }, stall: true})
		for !strings.Contains(p.log.String(), "podcount stopped") {
			f.addPod("default", fmt.Sprintf("p%d", rand.Uint32()), "")
			pass(100 * time.Millisecond)
			if time.Since(sent) > time.Minute {
				t.Fatal("it leads on")
			}
		}
		writes := f.asked(isWriteOf("nodes"))
		if last := writes[len(writes)-1].At.Sub(sent); last >= 10*time.Second || last < 8*time.Second {
			t.Errorf("the last write came %v after the last renewal that the server took was sent", last)
		}
		wantOneLeader(t, f)
	})
}

// leadingAt returns an election whose lease was just won, at a server of its own; lost gets why it ends.
func leadingAt(t *testing.T, f *fakeServer, credential func(context.Context, *Credential) (*Credential, error)) (e *election, lost <-chan error) {
	o, err := parseFlags([]string{"-leader-elect"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	base, _ := url.Parse("http://127.0.0.1:1")
	client := newClient(&options{}, &Config{Server: base, Credential: credential}, f.serveIn(t).dial, quietLog())
	reasons, won := make(chan error, 1), make(chan struct{})
	e = newElection(client, o.election("", "a", quietLog(), func(err error) { reasons <- err }))
	client.permit = e
	stop, end := context.WithCancel(t.Context())
	ended := inBackground(func() { e.run(stop, stop, func() { close(won) }) })
	t.Cleanup(func() {
		end()
		<-ended
		client.Close()
	})
	<-won
	return e, reasons
}

// A renewal that hangs, for a credential or in a dial that obeys no context, must not keep the term open.
func TestTermEndsAtItsDeadlineThoughARenewalHangs(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		start := time.Now()
		e, lost := leadingAt(t, f, func(context.Context, *Credential) (*Credential, error) {
			if time.Since(start) > 0 {
				<-time.After(time.Minute) // whatever the context says
			}
			return &Credential{}, nil
		})
		f.addNode("n")
		f.inject(t, fault{match: to(isWriteOf("nodes")), stall: true})
		written := make(chan error, 1)
		go func() {
			patch := request{method: "PATCH", path: "/api/v1/nodes/n", body: object{}}
			written <- e.client.Send(t.Context(), patch, nil)
		}()
		pass(10*time.Second - 1)
		if err := e.mayWrite(); err != nil || len(written) > 0 {
			t.Errorf("before the deadline: %v, %d writes have ended", err, len(written))
		}
		pass(1)
		if err := e.mayWrite(); err == nil || len(written) == 0 {
			t.Errorf("at the deadline: %v, %d writes have ended", err, len(written))
		}
		if err := <-written; err == nil || !strings.Contains(err.Error(), errCutOff.Error()) {
			t.Errorf("the write in hand ended with %v", err)
		}
		select {
		case err := <-lost:
			wantText(t, err.Error(), "the lease is lost: it could not be renewed for 10s")
		default:
			t.Error("nobody was told")
		}
	})
}

// A process that was frozen may go on with a write before its timers have fired.
func TestMayWriteAsksTheClockAndNotJustTheTimer(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		e, _ := leadingAt(t, f, noCredential)
		e.mu.Lock()
		e.guard.Stop()
		e.deadline = time.Now().Add(time.Second)
		e.mu.Unlock()
		pass(time.Second - 1)
		if err := e.mayWrite(); err != nil {
			t.Errorf("before the deadline: %v", err)
		}
		pass(1)
		if err := e.mayWrite(); err == nil {
			t.Error("at the deadline it may write")
		}
	})
}

func TestTermThatHasEndedIsNotBegunAgainByALateRenewal(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		e, lost := leadingAt(t, f, noCredential)
		e.loseTerm(errHeld)
		e.noteRenewal(time.Now().Add(time.Minute), nil)
		if err := e.mayWrite(); err == nil {
			t.Error("it may write")
		}
		synctest.Wait()
		wantNumber(t, "reasons", len(lost), 1)
	})
}

func TestBodyOfAWriteIsGuardedHoweverOftenItIsSent(t *testing.T) {
	may := true
	permit := permitOf(func() error {
		if !may {
			return errNotLeading
		}
		return nil
	})
	req := httptest.NewRequest("PATCH", "/x", nil)
	guardBody(req, []byte("body"), permit)
	for _, name := range []string{"first", "again"} {
		body := req.Body
		if name == "again" {
			body, _ = req.GetBody()
		}
		may = true
		if text, err := io.ReadAll(body); string(text) != "body" || err != nil || req.ContentLength != 4 {
			t.Errorf("%s: %q of %d bytes, %v", name, text, req.ContentLength, err)
		}
		body, _ = req.GetBody()
		may = false
		if text, err := io.ReadAll(body); len(text) > 0 || err != errNotLeading {
			t.Errorf("%s, without a permit: %q, %v", name, text, err)
		}
	}
}

// A renewal moves the deadline of the writes that are under way: one may take longer than a term.
func TestWriteMayTakeLongerThanATermThatIsRenewed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isWriteOf("nodes")), delay: 25 * time.Second})
		startReplica(t, f, "a")
		pass(28 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "writes", len(f.asked(isWriteOf("nodes"))), 1)
	})
}

func TestTransitionsOfALeaseStayAtTheLargestNumberThatTheAPIHas(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.putJSON("leases", `{"metadata":{"namespace":"kube-system","name":"podcount"},"spec":{"holderIdentity":"","leaseDurationSeconds":1,"leaseTransitions":2147483647}}`)
		startReplica(t, f, "a")
		pass(5 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		if leaseNow(f)["leaseTransitions"] != 2147483647.0 {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLeaderReleasesItsLeaseAfterItsLastWrite(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p := startReplica(t, f, "a", "-pod-events", "on")
		pass(10 * time.Second)
		met := make(chan struct{}, 1)
		f.inject(t, fault{match: to(isWriteOf("nodes")), delay: 8 * time.Second, met: met}) // longer than a renewal
		f.addPods(5)
		<-met
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if f.label("cp", podCountLabel) == "0" {
			t.Error("the write in hand was not finished")
		}
		all := f.asked(func(seen) bool { return true })
		if last := all[len(all)-1]; last.Method != "PUT" || !strings.Contains(last.Body, `"holderIdentity":""`) {
			t.Errorf("the last request was %v", last)
		}
		wantOneLeader(t, f)
	})
}

func TestStandbyStopsAtOnceAndLeavesTheLeaseAlone(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		startReplica(t, f, "a")
		pass(time.Second)
		holder := str(leaseNow(f), "holderIdentity")
		b := startReplica(t, f, "b")
		pass(time.Minute)
		stopped := time.Now()
		if err := b.stop(); err != nil || time.Since(stopped) > 0 {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
		wantNumber(t, "the standby's writes", len(f.asked(func(s seen) bool { return s.Host == "b:1" && s.Method != "GET" })), 0)
		if str(leaseNow(f), "holderIdentity") != holder {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLeaseThatWasAskedForIsReleasedEvenIfTheAnswerWasLost(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		met := make(chan struct{}, 1)
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PUT" }, after: true, met: met})
		p := startReplica(t, f, "a")
		<-met
		synctest.Wait()
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		if leaseNow(f) == nil || str(leaseNow(f), "holderIdentity") != "" {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
	simulate(t, func(t *testing.T, f *fakeServer) { // and one that goes on leads
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PUT" }, after: true})
		startReplica(t, f, "a")
		pass(6 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "0")
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PUT" }, after: true}) // of a renewal
		pass(time.Minute)
		if leaseNow(f)["leaseTransitions"] != 0.0 {
			t.Errorf("the lease is %v", leaseNow(f))
		}
	})
}

func TestLostRaceForTheLeaseIsNoTrouble(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		met := make(chan struct{}, 1)
		f.inject(t, fault{match: func(r *http.Request) bool { return r.Method == "PUT" && r.Host == "a:1" }, delay: 2 * time.Second, met: met})
		a := startReplica(t, f, "a")
		<-met // it has seen that there is no lease, and asks for it
		b := startReplica(t, f, "b")
		pass(3 * time.Second)
		wantText(t, a.log.String(), "standing by")
		wantText(t, b.log.String(), "elected")
		wantNumber(t, "warnings", strings.Count(a.log.String()+b.log.String(), "level=WARN msg=\"cannot"), 0)
		a.stop()
		wantNumber(t, "words on a release", strings.Count(a.log.String(), "released"), 0)
		if str(leaseNow(f), "holderIdentity") == "" {
			t.Error("it released what was another's")
		}
	})
}

func TestReleaseIsTriedAgainWhileThereIsTime(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.cutOff("a:1", true)
		back := time.AfterFunc(3*time.Second, func() { f.cutOff("a:1", false) })
		defer back.Stop()
		stopped := time.Now()
		if err := p.stop(); err != nil || time.Since(stopped) > 4*time.Second {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
		if str(leaseNow(f), "holderIdentity") != "" {
			t.Errorf("the lease is %v", leaseNow(f))
		}
		wantNumber(t, "words on the release", strings.Count(p.log.String(), "released"), 1)
	})
	simulate(t, func(t *testing.T, f *fakeServer) { // and not for ever
		p := startReplica(t, f, "a")
		pass(10 * time.Second)
		f.cutOff("a:1", true)
		stopped := time.Now()
		if err := p.stop(); err != nil || time.Since(stopped) > 6*time.Second {
			t.Errorf("it stopped after %v with %v", time.Since(stopped), err)
		}
	})
}

func TestLeasesRightsThatAreMissingAreSaidAndRecovered(t *testing.T) {
	for verb, rule := range map[string]string{"get": "get", "update": "update"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("cp", controlPlane)
			f.forbid(verb+" leases", true)
			p := startReplica(t, f, "a")
			pass(10 * time.Minute)
			wantNumber(t, "warnings", strings.Count(p.log.String(), "level=WARN msg=\"cannot get the lease\""), 1)
			wantText(t, p.log.String(), `apiGroups [\"coordination.k8s.io\"], resources [\"leases\"], verbs [\"`+rule+`\"]`)
			wantLabel(t, f, "cp", podCountLabel, "-")
			f.forbid(verb+" leases", false)
			pass(10 * time.Second)
			wantLabel(t, f, "cp", podCountLabel, "0")
		})
	}
	// A PUT that makes the Lease needs the right to create it, too.
	err := &StatusError{Status: Status{Code: 403, Reason: "Forbidden", Message: `leases.coordination.k8s.io "podcount" is forbidden: User "x" cannot create resource "leases" in API group`}, call: callOf("PUT", leasePath, nil)}
	wantText(t, err.Error(), `verbs ["create"]`)
}

func TestLeaseIsWhereTheFlagsSay(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		startReplica(t, f, "a", "-leader-elect-resource-name", "team-a.podcount", "-leader-elect-resource-namespace", "default",
			"-leader-elect-lease-duration", "60s", "-leader-elect-renew-deadline", "40s", "-leader-elect-retry-period", "15s")
		pass(46 * time.Second)
		spec, _ := f.get("leases", objectKey{"default", "team-a.podcount"})["spec"].(object)
		if spec["leaseDurationSeconds"] != 60.0 || !strings.HasPrefix(str(spec, "renewTime"), "2000-01-01T00:00:45.") {
			t.Errorf("the lease is %v", spec)
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The reflector

// reflected is a reflector of pods alone, with what its listener heard.
type reflected struct {
	*Reflector[*Pod]
	net   *pipeNet
	log   *logBuffer
	heard []string
}

func reflectOn(t *testing.T, f *fakeServer) *reflected {
	r := &reflected{net: f.serveIn(t), log: &logBuffer{}}
	log := newLog(r.log, &options{verbosity: 6})
	base, _ := url.Parse("http://127.0.0.1:1")
	client := newClient(&options{}, &Config{Server: base, Credential: noCredential}, r.net.dial, log)
	kind := Kind[*Pod]{Name: "Pod", API: "/api/v1", Resource: "pods", Protobuf: true, New: func() *Pod { return new(Pod) }}
	r.Reflector = NewReflector(client, kind, NewStore(func(p *Pod) string { return p.NodeName }), log)
	r.handlers = append(r.handlers, func(d Delta[*Pod]) {
		switch {
		case d.Old == nil:
			r.heard = append(r.heard, "+"+d.New.Key().Name)
		case d.New == nil:
			r.heard = append(r.heard, "-"+d.Old.Key().Name)
		default:
			r.heard = append(r.heard, "~"+d.New.Key().Name)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		client.Close()
		if t.Failed() {
			t.Log(r.log.String())
		}
	})
	synctest.Wait()
	return r
}

// equalTo fails the test unless the store holds what the fake does.
func (r *reflected) equalTo(t *testing.T, f *fakeServer) {
	t.Helper()
	var has, should []string
	for _, p := range r.All() {
		has = append(has, p.Key().String()+" "+p.UID()+" "+p.NodeName)
	}
	for _, o := range f.all("pods") {
		spec := o["spec"].(object)
		should = append(should, keyOf(o).String()+" "+str(metaOf(o), "uid")+" "+str(spec, "nodeName"))
	}
	slices.Sort(has)
	slices.Sort(should)
	if !slices.Equal(has, should) {
		t.Errorf("the store holds %q, the server %q", has, should)
	}
}

// versions are the resourceVersions of the watches so far.
func versions(f *fakeServer) (v []string) {
	for _, s := range f.asked(isWatch("pods")) {
		v = append(v, s.Query.Get("resourceVersion"))
	}
	return v
}

func TestWatchFollowsTheListAndAppliesEvents(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(2)
		r := reflectOn(t, f)
		r.equalTo(t, f)
		f.addPod("default", "new", "")
		synctest.Wait()
		f.addPod("default", "new", "n1") // bound
		f.remove("pods", objectKey{"default", "web-0"})
		synctest.Wait()
		r.equalTo(t, f)
		if want := []string{"+new", "~new", "-web-0"}; !slices.Equal(r.heard, want) {
			t.Errorf("heard %q, want %q", r.heard, want)
		}
		wantNumber(t, "count of n1", r.Count("n1"), 1)
		q := f.asked(isWatch("pods"))[0].Query
		seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
		if q.Get("allowWatchBookmarks") != "true" || seconds < 300 || seconds >= 600 || q.Get("resourceVersion") == "" {
			t.Errorf("watch asked for with %v", q)
		}
		if q := f.asked(isList("pods"))[0].Query; len(q) != 0 {
			t.Errorf("list asked for with %v", q)
		}
	})
}

func TestCleanlyEndedWatchIsResumedAtOnceFromTheLastVersionWithoutARelist(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(1)
		r := reflectOn(t, f)
		pass(10 * time.Second)
		last := str(metaOf(f.addPod("default", "a", "")), "resourceVersion")
		pass(10 * time.Second)
		f.addNode("another-kind-raises-the-version")
		f.endWatches(false)
		synctest.Wait() // no time passes
		if v := versions(f); len(v) != 2 || v[1] != last {
			t.Errorf("watches from %q, want the second from %s", v, last)
		}
		f.remove("pods", objectKey{"default", "a"})
		pass(11 * time.Minute) // past what any watch was asked for
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
		watches := f.asked(isWatch("pods"))
		asked, _ := strconv.Atoi(watches[1].Query.Get("timeoutSeconds"))
		if len(watches) < 3 {
			t.Fatalf("watches from %q", versions(f))
		}
		if gap := watches[2].At.Sub(watches[1].At); gap != time.Duration(asked)*time.Second {
			t.Errorf("resumed after %v; the watch was asked for for %d s", gap, asked)
		}
		r.equalTo(t, f)
	})
}

func TestBookmarkMovesTheResumePointAndNothingElse(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(1)
		r := reflectOn(t, f)
		f.addNode("n") // the pods' watch hears of this version in a bookmark alone
		now := strconv.Itoa(f.latest())
		pass(11 * time.Minute)
		v := versions(f)
		if len(v) < 2 || v[1] != now {
			t.Errorf("watches from %q, want the second from %s", v, now)
		}
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
		wantNumber(t, "changes heard", len(r.heard), 0)
		r.equalTo(t, f)
	})
}

func TestBrokenConnectionIsResumedWithoutARelist(t *testing.T) {
	for _, only := range []string{protobufType, jsonType} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.only = only
			f.inject(t, fault{match: to(isWatch("pods")), cut: 100})
			r := reflectOn(t, f)
			pass(2 * time.Second)
			f.addPod("default", "half-an-object", "") // breaks in the middle of it
			pass(5 * time.Second)
			r.equalTo(t, f)
			wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
			wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 2)
		})
	}
}

func TestExpiredVersionIsAnsweredByARelist(t *testing.T) {
	expired, _ := json.Marshal(fakeStatus(410, "Expired", "too old resource version: 1 (2)", nil))
	gone, _ := json.Marshal(fakeStatus(410, "Gone", "too old resource version", nil))
	for name, ft := range map[string]*fault{
		"in the stream, by the server itself": nil,
		"in the stream, reason Gone":          {body: `{"type":"ERROR","object":` + string(gone) + `}`},
		"as the HTTP status":                  {status: 410, body: string(expired)},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addPods(3)
				if ft != nil {
					scripted := *ft
					scripted.match = to(isWatch("pods"))
					f.inject(t, scripted)
				}
				r := reflectOn(t, f)
				if ft == nil {
					r.net.refuse()
					f.endWatches(true)
				}
				f.remove("pods", objectKey{"default", "web-0"})
				f.addPod("default", "new", "")
				f.compact()
				r.net.restore()
				pass(30 * time.Second)
				r.equalTo(t, f)
				wantNumber(t, "lists", len(f.asked(isList("pods"))), 2)
				if got, want := r.heard, []string{"+new", "-web-0"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
					t.Errorf("heard %q, want %q", got, want)
				}
			})
		})
	}
}

func TestRelistBehindAnOutageDoesNotWaitForTheOutagesBackoff(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r := reflectOn(t, f)
		r.net.refuse()
		f.endWatches(true)
		pass(5 * time.Minute)
		f.addPods(1)
		f.compact() // as a restarted server is
		r.net.restore()
		back := len(f.asked(isWatch("pods")))
		for len(f.asked(isWatch("pods"))) == back {
			pass(time.Second)
		}
		pass(2 * reflectorBackoff)
		r.equalTo(t, f)
	})
}

func TestPersistentlyExpiredVersionIsNotRetriedInAHotLoop(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, statusFault(t, isWatch("pods"), 20, 410, "Expired", nil))
		reflectOn(t, f)
		pass(2 * time.Minute)
		if n := len(f.asked(isList("pods"))); n < 4 || n > 12 {
			t.Errorf("%d lists in two minutes of 410s", n)
		}
		pass(20 * time.Minute)
	})
}

func TestRefusedWatchBacksOffAndKeepsItsVersion(t *testing.T) {
	for name, ft := range map[string]fault{
		"429 with Retry-After, plain text": {status: 429, body: "Too many requests", header: map[string]string{"Retry-After": "1", "Content-Type": "text/plain"}},
		"429 in the stream":                {body: `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"TooManyRequests","code":429}}`},
		"500":                              {status: 500, body: `{}`},
		"a page that is no JSON":           {status: 200, body: "<html>", header: map[string]string{"Content-Type": "text/html"}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				ft.match, ft.times = to(isWatch("pods")), 4
				f.inject(t, ft)
				r := reflectOn(t, f)
				pass(time.Minute)
				wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 5)
				wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
				f.addPods(1)
				synctest.Wait()
				r.equalTo(t, f)
				w := f.asked(isWatch("pods"))
				for i, least := range []time.Duration{800 * time.Millisecond, 1600 * time.Millisecond, 3200 * time.Millisecond, 6400 * time.Millisecond} {
					most := 2 * least
					if ft.header["Retry-After"] != "" {
						most = max(most, 2*time.Second) // what was asked for, and up to a second more
					}
					if gap := w[i+1].At.Sub(w[i].At); gap < least || gap > most {
						t.Errorf("retry %d after %v, want %v to %v", i+1, gap, least, most)
					}
				}
			})
		})
	}
}

// A server that was away is asked for its newest version once a watch is open: it costs a step of the backoff no request
// more, and keeps no watch from going on.
func TestServerThatComesBackIsAskedForItsNewestVersionOnce(t *testing.T) {
	isCheck := func(s seen) bool { return strings.HasSuffix(s.Path, "/pods") && s.Query.Get("limit") == "1" }
	for name, c := range map[string]struct {
		refusal string // of the check
		checks  int
	}{"and answers": {"", 1}, "and refuses": {"403", 1}, "and fails": {"500", 1}} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addPod("default", "a", "")
				r := reflectOn(t, f)
				lift := f.keep(t, statusFault(t, isWatch("pods"), 0, 503, "ServiceUnavailable", nil))
				if code, _ := strconv.Atoi(c.refusal); code != 0 {
					defer f.keep(t, statusFault(t, isCheck, 0, code, "", nil))()
				}
				f.endWatches(true)
				pass(5 * time.Minute)
				wantNumber(t, "checks while watches fail", len(f.asked(isCheck)), 0)
				lift()
				pass(time.Minute + time.Second)
				wantNumber(t, "checks", len(f.asked(isCheck)), c.checks)
				f.addPod("default", "b", "")
				synctest.Wait()
				r.equalTo(t, f)
				wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
			})
		})
	}
}

func TestRefusedConnectionBacksOff(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r := reflectOn(t, f)
		r.net.refuse()
		f.endWatches(true)
		before := r.net.dialed()
		pass(10 * time.Minute)
		if n := r.net.dialed() - before; n < 10 || n > 25 {
			t.Errorf("%d dials in ten minutes", n)
		}
		if n := strings.Count(r.log.String(), "level=WARN"); n > 11 {
			t.Errorf("%d warnings in ten minutes", n)
		}
		f.addPods(1)
		wantNumber(t, "watches, before its end", len(f.asked(isWatch("pods"))), 1)
		r.net.restore()
		pass(time.Minute)
		wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 2)
		r.equalTo(t, f)
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
	})
}

func TestThreeShortWatchesInARowLeadToARelist(t *testing.T) {
	for times, lists := range map[int]int{2: 1, 3: 2} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.inject(t, fault{match: to(isWatch("pods")), times: times, body: "\n"})
			r := reflectOn(t, f)
			pass(time.Minute)
			wantNumber(t, fmt.Sprintf("lists after %d short watches", times), len(f.asked(isList("pods"))), lists)
			f.addPods(1)
			synctest.Wait()
			r.equalTo(t, f)
		})
	}
}

func TestWatchThatBringsTheSameAgainAndAgainIsNoHotLoop(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(1)
		old, _ := json.Marshal(object{"type": "ADDED", "object": f.get("pods", objectKey{"default", "web-0"})})
		f.inject(t, fault{match: to(isWatch("pods")), times: 5, body: string(old)})
		reflectOn(t, f)
		wantNumber(t, "watches at once", len(f.asked(isWatch("pods"))), 1)
		pass(5 * time.Minute)
	})
}

func TestGarbageTwiceInARowLeadsToARelist(t *testing.T) {
	good := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x","namespace":"default","uid":"u","resourceVersion":"999"}}`
	for name, body := range map[string]string{
		"no JSON":                            "}{",
		"half an object":                     `{"type":"ADDED","object":{"metadata":{"name":"x"`,
		"an unknown type":                    `{"type":"MOVED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"999"}}}`,
		"no uid":                             `{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"999"}}}`,
		"half a frame":                       `{"type":"ADDED",`,
		"a frame not closed":                 `{"type":"ADDED","object":{"metadata":{"name":"x","uid":"u","resourceVersion":"999"}}`,
		"no type":                            `{"object":{"metadata":{"name":"x","uid":"u","resourceVersion":"999"}},"Type":"ADDED"}`,
		"an ERROR of nothing":                `{"type":"ERROR","object":{}}`,
		"bookmark of nothing":                `{"type":"BOOKMARK","object":{"metadata":{}}}`,
		"an ERROR":                           `{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"StorageReadError","code":500}}`,
		"half a length":                      "\x00\x00",
		"half a protobuf frame":              string(protobufEvent("ADDED", protobufOf([]byte(good)))[:60]),
		"a frame of 4 GB":                    "\xff\xff\xff\xff",
		"a frame of nothing":                 "\x00\x00\x00\x00",
		"an unknown type in protobuf":        string(protobufEvent("MOVED", protobufOf([]byte(good)))),
		"a protobuf frame without its magic": string(protobufEvent("ADDED", []byte(good))),
		"no uid in protobuf":                 string(protobufEvent("ADDED", protobufOf([]byte(`{"kind":"Pod","metadata":{"name":"x","resourceVersion":"999"}}`)))),
		"an ERROR of nothing in protobuf":    string(protobufEvent("ERROR", protobufOf([]byte(`{"kind":"Status"}`)))),
		"a bookmark of nothing in protobuf":  string(protobufEvent("BOOKMARK", protobufOf([]byte(`{"kind":"Pod","metadata":{}}`)))),
		"an ERROR in protobuf":               string(protobufEvent("ERROR", protobufOf([]byte(`{"kind":"Status","status":"Failure","reason":"StorageReadError","code":500}`)))),
	} {
		t.Run(name, func(t *testing.T) {
			header := map[string]string{}
			if !strings.HasPrefix(strings.TrimLeft(body, "}"), "{") {
				header["Content-Type"] = protobufType + ";stream=watch"
			}
			for times, lists := range map[int]int{1: 1, 2: 2} {
				simulate(t, func(t *testing.T, f *fakeServer) {
					f.inject(t, fault{match: to(isWatch("pods")), times: times, body: body, header: header})
					r := reflectOn(t, f)
					pass(time.Minute)
					wantNumber(t, fmt.Sprintf("lists after garbage %d times", times), len(f.asked(isList("pods"))), lists)
					f.addPods(1)
					synctest.Wait()
					r.equalTo(t, f)
				})
			}
		})
	}
}

func TestSilentWatchIsCutAndResumedAndTwoInARowLeadToARelist(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, fault{match: to(isWatch("pods")), hang: 1})
		r := reflectOn(t, f)
		f.addPods(1)
		pass(silence - time.Second)
		wantNumber(t, "watches before the time", len(f.asked(isWatch("pods"))), 1)
		pass(2 * time.Second)
		wantNumber(t, "watches after it", len(f.asked(isWatch("pods"))), 2)
		r.equalTo(t, f)
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
	})
	simulate(t, func(t *testing.T, f *fakeServer) { // a version from the future is answered with silence
		f.setVersion(5000)
		r := reflectOn(t, f)
		f.setVersion(300) // etcd was restored from an older snapshot
		f.addPods(1)
		f.endWatches(true)
		pass(3*silence + time.Minute)
		r.equalTo(t, f)
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 2)
	})
}

func TestHalfOpenConnectionIsNoticedAndResumedWithoutARelist(t *testing.T) {
	for name, limit := range map[string]time.Duration{"HTTP/2": 50 * time.Second, "HTTP/1.1": 155 * time.Second} {
		for _, after := range []time.Duration{time.Second, 10 * time.Minute, 10*time.Minute + 59*time.Second} { // a bookmark is just gone, or due
			t.Run(fmt.Sprint(name, " after ", after), func(t *testing.T) {
				simulate(t, func(t *testing.T, f *fakeServer) {
					f.addNode("cp", controlPlane)
					var p *program
					if name == "HTTP/2" {
						p = startOverTLS(t, f)
					} else {
						p = startPodcount(t, f)
					}
					pass(after)
					lost := time.Now()
					p.net.goSilent()
					f.addPods(1)
					pass(limit)
					wantLabel(t, f, "cp", podCountLabel, "1")
					for _, resource := range []string{"pods", "nodes"} {
						again := f.asked(func(s seen) bool { return isWatch(resource)(s) && s.At.After(lost) && s.HTTP2 == (name == "HTTP/2") })
						wantNumber(t, "watches of "+resource+" since then", len(again), 1)
						wantNumber(t, "lists of "+resource, len(f.asked(isList(resource))), 1)
					}
					f.setLabel("cp", podCountLabel, "7")
					wantPeace(t, f)
				})
			})
		}
	}
}

// A server that sheds connections (--goaway-chance) lets what runs on them go on.
func TestConnectionThatTakesNoMoreRequestsCostsNoRelist(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		discovery := func(s seen) bool { return s.Path == "/apis/demo.mark8s.io/v1" }
		f.inject(t, fault{match: to(discovery), times: 10, status: 404, header: map[string]string{"Connection": "close"}, body: "404 page not found"})
		p := startOverTLS(t, f)
		liveADay(f, 1)
		meetFaults(t, f)
		liveADay(f, 2)
		wantPeace(t, f)
		if n := p.net.dialed(); n < 10 {
			t.Errorf("%d connections: they were not shed", n)
		}
		for _, resource := range []string{"pods", "nodes"} {
			wantNumber(t, "lists of "+resource, len(f.asked(isList(resource))), 1)
			wantNumber(t, "watches of "+resource, len(f.asked(isWatch(resource))), 1)
		}
	})
}

func TestConnectionsThatAreCutWheneverTheyIdleCauseNoRelists(t *testing.T) {
	for _, every := range []time.Duration{1500 * time.Millisecond, 45 * time.Second} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			r := reflectOn(t, f)
			for start := time.Now(); time.Since(start) < 10*time.Minute; {
				pass(every)
				f.endWatches(true)
			}
			wantNumber(t, fmt.Sprintf("lists with a cut every %v", every), len(f.asked(isList("pods"))), 1)
			f.addPods(1)
			synctest.Wait()
			r.equalTo(t, f)
		})
	}
}

func TestHourlyRelistThatFailsDoesNotStopTheWatch(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r := reflectOn(t, f)
		pass(50 * time.Minute)
		f.inject(t, fault{match: to(isList("pods")), times: 3, status: 503, body: "overloaded"})
		pass(17 * time.Minute)
		f.addPods(3)
		synctest.Wait()
		r.equalTo(t, f)
		if n := len(f.asked(isList("pods"))); n < 2 || n > 4 {
			t.Errorf("%d lists", n)
		}
		pass(time.Hour)
		r.equalTo(t, f)
	})
}

func TestHourlyRelistMendsALostEvent(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(3)
		r := reflectOn(t, f)
		f.loseNext(2) // a pod's deletion is two changes
		f.remove("pods", objectKey{"default", "web-1"})
		pass(50 * time.Minute)
		wantNumber(t, "pods while the loss is not known", r.Len(), 3)
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
		pass(17 * time.Minute)
		r.equalTo(t, f)
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 2)
	})
}

func TestEventsThatTurnBackTimeAreIgnored(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		event := func(typ, name, uid, version, node string) string {
			return fmt.Sprintf(`{"type":%q,"object":{"metadata":{"namespace":"default","name":%q,"uid":%q,"resourceVersion":%q},"spec":{"nodeName":%q}}}`+"\n", typ, name, uid, version, node)
		}
		f.inject(t, fault{match: to(isWatch("pods")), body: event("ADDED", "a", "u1", "1000", "n1") + event("MODIFIED", "a", "u1", "999", "old") +
			event("ADDED", "a", "u1", "1000", "n1") + event("DELETED", "a", "u1", "998", "n1") + event("DELETED", "a", "u1", "1001", "n1") +
			event("ADDED", "a", "u1", "1000", "n1") + event("ADDED", "a", "u2", "1002", "n2") + event("ADDED", "a", "u3", "1003", "n3")})
		r := reflectOn(t, f)
		if want := []string{"+a", "-a", "+a", "-a", "+a"}; !slices.Equal(r.heard, want) {
			t.Errorf("heard %q, want %q", r.heard, want)
		}
		if p := r.Get(Key{"default", "a"}); p == nil || p.UID() != "u3" || r.Count("n3") != 1 || r.Count("n2") != 0 {
			t.Errorf("the store holds %+v", p)
		}
	})
}

func TestListInPagesOnceWholeListsHaveFailed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(pageLimit + 500)
		f.inject(t, fault{match: to(isList("pods")), times: 2, cut: 5000})
		r := reflectOn(t, f)
		pass(time.Minute)
		r.equalTo(t, f)
		lists := f.asked(isList("pods"))
		wantNumber(t, "requests", len(lists), 4)
		for i, want := range []string{"", "", "2000", "2000"} {
			if got := lists[i].Query.Get("limit"); got != want {
				t.Errorf("request %d has limit %q, want %q", i, got, want)
			}
		}
	})
}

func TestExpiredPageStartsTheListAgainOnce(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(pageLimit + 500)
		f.inject(t, fault{match: to(isList("pods")), times: 2, cut: 5000})
		second := func(s seen) bool { return isList("pods")(s) && s.Query.Has("continue") }
		f.inject(t, statusFault(t, second, 1, 410, "Expired", nil))
		r := reflectOn(t, f)
		pass(time.Minute)
		r.equalTo(t, f)
		wantNumber(t, "requests", len(f.asked(isList("pods"))), 6)
	})
}

func TestOutageDoesNotLeadToPages(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, fault{match: to(isList("pods")), times: 4, status: 503, body: "no endpoints available"})
		r := reflectOn(t, f)
		pass(time.Minute)
		r.equalTo(t, f)
		for _, s := range f.asked(isList("pods")) {
			if s.Query.Has("limit") {
				t.Error("asked for a page")
			}
		}
	})
}

func TestFailedListIsThrownAwayWhole(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(500)
		r := reflectOn(t, f)
		for i := range 500 {
			f.loseNext(2)
			f.remove("pods", objectKey{"default", fmt.Sprintf("web-%d", i)})
			f.loseNext(1)
			f.addPod("default", fmt.Sprintf("other-%d", i), "")
		}
		f.inject(t, fault{match: to(isList("pods")), cut: 5000})
		f.compact()
		f.endWatches(true)
		for len(f.asked(isList("pods"))) < 2 {
			pass(10 * time.Millisecond)
		}
		wantNumber(t, "changes heard of half a list", len(r.heard), 0)
		wantNumber(t, "pods", r.Len(), 500)
		pass(time.Minute)
		wantNumber(t, "changes heard of a whole one", len(r.heard), 1000)
		r.equalTo(t, f)
	})
}

func TestSlowListShowsThatItLives(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addPods(1000)
		f.inject(t, fault{match: to(isList("pods")), hang: 5000})
		r := reflectOn(t, f)
		pass(silence + 10*time.Second)
		r.equalTo(t, f)
		wantText(t, r.log.String(), "nothing was heard for 2m30s")
	})
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, fault{match: to(isList("pods")), answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			io.WriteString(w, `{"metadata":{"resourceVersion":"5"},"items":[`)
			for i := range 1000 {
				if i == 500 {
					http.NewResponseController(w).Flush()
					sleep(r.Context(), slowList+time.Millisecond)
				}
				fmt.Fprintf(w, `{"metadata":{"name":"p%d","uid":"u","resourceVersion":"4"}},`, i)
			}
			io.WriteString(w, `{"metadata":{"name":"last","uid":"u","resourceVersion":"4"}}]}`)
		}})
		r := reflectOn(t, f)
		pass(slowList)
		wantNumber(t, "lines at the start", strings.Count(r.log.String(), "still listing"), 0)
		pass(time.Second)
		wantText(t, r.log.String(), `msg="still listing" kind=Pod objects=512 for=2s`)
		wantNumber(t, "lines after two seconds", strings.Count(r.log.String(), "still listing"), 1)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Whatever a list or a watch meets: the labels are those of the truth in the end

const ownPodsLabel = "example.com/pods"

// liveADay is a day in the life of a small cluster: pods come, are bound, go and come back under their name; nodes, too.
func liveADay(f *fakeServer, day int) {
	f.addPod("default", fmt.Sprint("new-", day), "w1")
	f.addPod("default", fmt.Sprint("unbound-", day), "")
	f.addPod("default", fmt.Sprint("unbound-", day-1), "w1") // bound now, if it was there
	f.remove("pods", objectKey{"default", "comes-back"})
	f.addPod("default", "comes-back", fmt.Sprint("w", 1+day%2))
	f.remove("pods", objectKey{"default", fmt.Sprint("new-", day-1)})
	f.put("pods", object{"metadata": object{"namespace": "default", "name": "of-nothing-but-metadata"}})
	f.addNode(fmt.Sprint("w", day), controlPlane)
	f.remove("nodes", objectKey{Name: "cp"})
	f.addNode("cp", controlPlane, podCountLabel+"=7")
	f.setLabel("w1", controlPlane, []any{"", nil}[day%2])
}

// meetFaults lets time pass until every fault that was injected has been met.
func meetFaults(t *testing.T, f *fakeServer) {
	t.Helper()
	for start := time.Now(); f.faultsLeft() && time.Since(start) < 6*time.Hour; {
		pass(time.Second)
	}
}

func TestLabelsEqualTheTruthWhateverAListMeets(t *testing.T) {
	text, html := map[string]string{"Content-Type": "text/plain", "Retry-After": "7"}, map[string]string{"Content-Type": "text/html"}
	tooLarge := object{"causes": []any{object{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}}, "retryAfterSeconds": 1}
	status := func(code int, reason string, details any, header ...string) fault {
		return statusFault(t, isList(""), 0, code, reason, details, header...)
	}
	list := func(item string) fault {
		return fault{body: `{"metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"99"}},` + item}
	}
	for name, ft := range map[string]fault{
		"410":                               status(410, "Expired", nil),
		"500":                               status(500, "InternalError", nil),
		"503":                               status(503, "ServiceUnavailable", nil),
		"504, as the version is too large":  status(504, "Timeout", tooLarge, "Retry-After", "1"),
		"429":                               status(429, "TooManyRequests", nil),
		"429 with Retry-After":              status(429, "TooManyRequests", object{"retryAfterSeconds": 3}, "Retry-After", "3"),
		"429 in plain text":                 {status: 429, body: "Too many requests, please try again later.", header: text},
		"a reset":                           {drop: true},
		"cut in the middle":                 {cut: 300},
		"ended cleanly in the middle":       list(""),
		"no answer":                         {stall: true},
		"stalled in the middle":             {hang: 300},
		"garbage":                           list(`}{`),
		"garbage, as protobuf":              {body: "k8s\x00garbage", header: map[string]string{"Content-Type": protobufType}},
		"a wrong content type":              {status: 200, body: `{"metadata":{"resourceVersion":"100"},"items":[]}`, header: html},
		"a page of some proxy":              {status: 502, body: "<html>", header: html},
		"nothing":                           {body: "\n"},
		"no items":                          {body: `{"metadata":{"resourceVersion":"100"}}`},
		"no version":                        {body: `{"metadata":{},"items":[]}`},
		"an item without uid":               list(`{"metadata":{"name":"b","namespace":"n","resourceVersion":"98"}}]}`),
		"an item without name":              list(`{"metadata":{"namespace":"n","uid":"v","resourceVersion":"98"}}]}`),
		"an item without version":           list(`{"metadata":{"name":"b","namespace":"n","uid":"v"}}]}`),
		"an item that is none":              list(`null]}`),
		"an item without uid, in protobuf":  {body: string(protobufOf([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"name":"b","resourceVersion":"98"}}]}`))), header: map[string]string{"Content-Type": protobufType}},
		"an item without name, in protobuf": {body: string(protobufOf([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"100"},"items":[{"metadata":{"uid":"b","resourceVersion":"98"}}]}`))), header: map[string]string{"Content-Type": protobufType}},
	} {
		for _, resource := range []string{"pods", "nodes"} {
			t.Run(name+"/"+resource, func(t *testing.T) {
				simulate(t, func(t *testing.T, f *fakeServer) {
					f.addNode("cp", controlPlane, podCountLabel+"=7")
					f.addNode("w1", podCountLabel+"=7")
					f.addNode("w2")
					liveADay(f, 1)
					ft.match, ft.times = to(isList(resource)), 4
					f.inject(t, ft)
					p := startPodcount(t, f, "-node-label", ownPodsLabel)
					meetFaults(t, f)
					pass(silence)
					wantPeace(t, f, "-node-label", ownPodsLabel)
					good := f.asked(isList(resource))[ft.times].At
					wantNumber(t, "writes before a whole list was asked for", len(f.asked(func(s seen) bool { return isWrite(s) && s.At.Before(good) })), 0)
					for day := 2; day < 4; day++ { // and once more where it is a relist that meets them
						f.inject(t, ft)
						f.loseNext(1000)
						liveADay(f, day)
						f.loseNext(0)
						f.compact()
						f.endWatches(true)
						meetFaults(t, f)
						pass(silence)
						wantPeace(t, f, "-node-label", ownPodsLabel)
					}
					for line := range strings.Lines(p.log.String()) {
						if strings.Contains(line, "cannot list") {
							wantText(t, line, `err="list `+resource+": ")
						}
					}
				})
			})
		}
	}
}

func TestListWithoutEndIsAnErrorThatNamesTheBound(t *testing.T) {
	const begin, item, end = `{"metadata":{"resourceVersion":"5"},"items":[`, `{"metadata":{"name":"a","uid":"u","resourceVersion":"4"}}`, `]}`
	trickle := func(items int) http.HandlerFunc { // a minute each, which is not silence
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			io.WriteString(w, begin+item)
			for range items - 1 {
				http.NewResponseController(w).Flush()
				if sleep(r.Context(), time.Minute) != nil {
					return
				}
				io.WriteString(w, ","+item)
			}
			io.WriteString(w, end)
		}
	}
	page := 0
	for name, c := range map[string]struct {
		fault fault
		want  string
	}{
		"an object a minute": {fault{answer: trickle(1000)}, listTime.String()},
		"pages of nothing": {fault{delay: 700 * time.Millisecond, times: int(listTime/(700*time.Millisecond)) + 1, answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			page++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":"page-%d"},"items":[]}`, page)
		}}, listTime.String()},
		"pages of nothing at full speed": {fault{times: listLimit/pageLimit + 1, answer: func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", jsonType)
			page++
			fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":"page-%d"},"items":[]}`, page)
		}}, "after 1000 pages"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane, podCountLabel+"=7")
				f.addPods(2)
				c.fault.match = to(isList("pods"))
				f.inject(t, c.fault)
				p := startPodcount(t, f)
				meetFaults(t, f)
				for start := time.Now(); !strings.Contains(p.log.String(), "cannot list") && time.Since(start) <= listTime; {
					pass(time.Second)
				}
				wantText(t, p.log.String(), `err="list pods: `)
				wantText(t, p.log.String(), c.want)
				wantPeace(t, f)
			})
		})
	}
	simulate(t, func(t *testing.T, f *fakeServer) { // of two million objects, the last few
		base, _ := url.Parse("http://127.0.0.1:1")
		client := newClient(&options{}, &Config{Server: base, Credential: noCredential}, f.serveIn(t).dial, quietLog())
		defer client.Close()
		r := NewReflector(client, *podKind(), NewStore[*Pod](), quietLog())
		r.kind.API, r.kind.Resource = "/api/v1", "pods"
		for pods, want := range []string{"<nil>", "<nil>", "<nil>", "list pods: the list has more than 2000000 objects: give -namespace"} {
			listing := r.List()
			listing.n = listLimit - 2
			_, err := r.pages(t.Context(), listing)
			wantText(t, fmt.Sprint(err), want)
			f.addPod("default", fmt.Sprint("p", pods), "")
		}
	})
	simulate(t, func(t *testing.T, f *fakeServer) { // slow is not endless
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(isList("pods")), answer: trickle(9)})
		startPodcount(t, f)
		pass(listTime - time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "lists", len(f.asked(isList("pods"))), 1)
	})
}

func TestLabelsEqualTheTruthWhateverAWatchMeets(t *testing.T) {
	type frame struct {
		event string
		obj   object
	}
	const a, b = "a", "b" // pods on w1 and w2
	pod := func(f *fakeServer, name string) object { return f.get("pods", objectKey{"default", name}) }
	of := func(o object, field, value string) object { // o, changed
		o = clone(o)
		if metaOf(o)[field] = value; field == "nodeName" {
			o["spec"].(object)[field] = value
		}
		return o
	}
	version := func(v string) object { return object{"metadata": object{"resourceVersion": v}} }
	errorFrame := func(code int, reason string) fault {
		body, _ := json.Marshal(object{"type": "ERROR", "object": fakeStatus(code, reason, "as scripted", nil)})
		return fault{body: string(body), times: 4}
	}
	status := func(code int, reason string, header ...string) fault {
		return statusFault(t, isWatch(""), 4, code, reason, nil, header...)
	}
	type row struct {
		args  string
		fault fault                       // meets the first watches, of pods and of nodes
		life  func(f *fakeServer) []frame // what happens then, and what the next watch says of it, if anything
		wait  time.Duration               // beyond the bound

		bookmarks time.Duration // if not one a minute
	}
	for name, c := range map[string]row{
		"ends cleanly":            {fault: fault{body: "\n", times: 5}},
		"reset":                   {fault: fault{drop: true, times: 4}},
		"reset in an object":      {fault: fault{cut: 40}},
		"429":                     {fault: status(429, "TooManyRequests")},
		"429 with Retry-After":    {fault: status(429, "TooManyRequests", "Retry-After", "9")},
		"429 in plain text":       {fault: fault{status: 429, body: "Too many", header: map[string]string{"Content-Type": "text/plain", "Retry-After": "9"}, times: 4}},
		"500":                     {fault: status(500, "InternalError")},
		"503":                     {fault: status(503, "ServiceUnavailable")},
		"504":                     {fault: status(504, "Timeout")},
		"410":                     {fault: status(410, "Expired")},
		"400":                     {fault: status(400, "BadRequest")},
		"403":                     {fault: status(403, "Forbidden")},
		"404":                     {fault: status(404, "NotFound")},
		"a page of some proxy":    {fault: fault{status: 200, body: "<html>", header: map[string]string{"Content-Type": "text/html"}, times: 4}},
		"garbage":                 {fault: fault{body: "}{", times: 4}},
		"half an object":          {fault: fault{body: `{"type":"ADDED","object":{"metadata":{"name":"x"`, times: 4}},
		"no answer":               {fault: fault{stall: true, times: 2}, wait: silence},
		"silence":                 {fault: fault{hang: 1, times: 2}, wait: silence},
		"silence in an object":    {fault: fault{hang: 40}, wait: silence},
		"ERROR Expired":           {fault: errorFrame(410, "Expired")},
		"ERROR Expired, no code":  {fault: errorFrame(0, "Expired")},
		"ERROR Gone":              {fault: errorFrame(410, "Gone")},
		"ERROR TooManyRequests":   {fault: errorFrame(429, "TooManyRequests")},
		"ERROR InternalError":     {fault: errorFrame(500, "InternalError")},
		"ERROR, unknown":          {fault: errorFrame(0, "SomethingNew")},
		"ERROR, of nothing":       {fault: fault{body: `{"type":"ERROR","object":{}}`, times: 4}},
		"a history that is gone":  {life: func(f *fakeServer) []frame { liveADay(f, 2); f.compact(); f.endWatches(true); return nil }},
		"bookmarks for two hours": {life: func(f *fakeServer) []frame { pass(2 * time.Hour); f.endWatches(true); return nil }},
		"never a bookmark":        {bookmarks: 1000 * time.Hour, life: func(f *fakeServer) []frame { pass(2 * time.Hour); return nil }},
		"an outage": {life: func(f *fakeServer) []frame {
			f.cutOff("127.0.0.1:1", true)
			liveADay(f, 1)
			pass(10 * time.Minute)
			f.cutOff("127.0.0.1:1", false)
			return nil
		}},
		"an ADDED twice": {life: func(f *fakeServer) []frame {
			f.loseNext(1)
			x := f.addPod("default", "x", "w1")
			return []frame{{"ADDED", x}, {"ADDED", x}}
		}},
		"an ADDED of what is known": {life: func(f *fakeServer) []frame { return []frame{{"ADDED", pod(f, a)}, {"ADDED", pod(f, b)}} }},
		"a MODIFIED of what is not known": {life: func(f *fakeServer) []frame {
			f.loseNext(1)
			return []frame{{"MODIFIED", f.addPod("default", "x", "w1")}}
		}},
		"a DELETED twice": {life: func(f *fakeServer) []frame {
			f.loseNext(2)
			gone := f.remove("pods", objectKey{"default", a})
			gone = of(gone, "resourceVersion", strconv.Itoa(f.latest()))
			return []frame{{"DELETED", gone}, {"DELETED", gone}}
		}},
		"the same name with a new uid on another node, told by an ADDED alone": {life: func(f *fakeServer) []frame {
			f.loseNext(3)
			f.remove("pods", objectKey{"default", a})
			return []frame{{"ADDED", f.addPod("default", a, "w2")}}
		}},
		"the same name with a new uid on another node, told by a MODIFIED alone": {life: func(f *fakeServer) []frame {
			f.loseNext(3)
			f.remove("pods", objectKey{"default", a})
			return []frame{{"MODIFIED", f.addPod("default", a, "w2")}}
		}},
		"DELETED from a label selector": {args: "-pod-selector app=web", life: func(f *fakeServer) []frame {
			other := clone(pod(f, a))
			metaOf(other)["labels"] = object{"app": "other"}
			f.put("pods", other)
			other = clone(pod(f, b))
			other["spec"].(object)["nodeName"] = "w1" // moved and gone at once: what comes is the old content
			metaOf(other)["labels"] = object{"app": "other"}
			f.put("pods", other)
			pass(time.Second)
			metaOf(other)["labels"] = object{"app": "web"} // and back
			f.put("pods", other)
			return nil
		}},
		"DELETED from a field selector": {args: "-field-selector status.phase=Running", life: func(f *fakeServer) []frame {
			done := clone(pod(f, a))
			done["status"] = object{"phase": "Succeeded"}
			f.put("pods", done)
			return nil
		}},
		"events of an older version": {life: func(f *fakeServer) []frame {
			old := of(of(pod(f, a), "resourceVersion", "150"), "nodeName", "w2")
			return []frame{{"MODIFIED", old}, {"DELETED", old}, {"ADDED", of(of(old, "name", "ghost"), "uid", "g")}}
		}},
		"a bookmark of an older version": {life: func(f *fakeServer) []frame { return []frame{{"BOOKMARK", version("150")}} }},
		"a bookmark from the future":     {life: func(f *fakeServer) []frame { return []frame{{"BOOKMARK", version("99999")}} }, wait: 3 * silence},
		"an event from the future": {wait: 3 * silence, life: func(f *fakeServer) []frame {
			return []frame{{"MODIFIED", of(of(pod(f, a), "resourceVersion", "99999"), "nodeName", "w2")}, {"DELETED", of(pod(f, b), "resourceVersion", "99999999999999999999999")}}
		}},
		"a server that was set back": {wait: 3 * silence, life: func(f *fakeServer) []frame {
			turnBack := f.checkpoint()
			f.setVersion(f.latest() + 5000)
			liveADay(f, 2)
			pass(30 * time.Second)
			turnBack()
			f.endWatches(true)
			return nil
		}},
		"an unknown type": {life: func(f *fakeServer) []frame { return []frame{{"MOVED", pod(f, a)}} }},
		"an event of an object without uid": {life: func(f *fakeServer) []frame {
			return []frame{{"DELETED", of(of(pod(f, a), "resourceVersion", "99999"), "uid", "")}}
		}},
		"an event of an object without name": {life: func(f *fakeServer) []frame {
			return []frame{{"DELETED", of(of(pod(f, a), "resourceVersion", "99999"), "name", "")}}
		}},
		"a DELETED lost": {wait: 66 * time.Minute, life: func(f *fakeServer) []frame {
			f.loseNext(2)
			f.remove("pods", objectKey{"default", a})
			return nil
		}},
		"an ADDED lost": {wait: 66 * time.Minute, life: func(f *fakeServer) []frame {
			f.loseNext(1)
			f.addPod("default", "x", "w1")
			return nil
		}},
		"a frame of 3 MB": {life: func(f *fakeServer) []frame {
			big := func(name string) object {
				return object{"namespace": "default", "name": name, "labels": object{"app": "web"}, "annotations": object{"big": strings.Repeat("x", 3<<20)}}
			}
			f.put("pods", podOn(big("x"), "w1"))
			f.put("pods", podOn(big("y"), "w1"))
			pass(time.Second)
			f.remove("pods", objectKey{"default", "x"})
			return nil
		}},
	} {
		for _, wire := range []string{"protobuf", "json"} {
			t.Run(name+"/"+wire, func(t *testing.T) {
				simulate(t, func(t *testing.T, f *fakeServer) {
					args := append(strings.Fields(c.args), "-node-label", ownPodsLabel, "-wire", wire)
					f.bookmarks = cmp.Or(c.bookmarks, f.bookmarks)
					f.addNode("cp", controlPlane)
					f.addNode("w1")
					f.addNode("w2")
					f.addPod("default", a, "w1")
					f.addPod("default", b, "w2")
					for _, resource := range []string{"pods", "nodes"} {
						if ft := c.fault; ft.times > 0 || ft.cut+ft.hang > 0 {
							ft.match = to(isWatch(resource))
							f.inject(t, ft)
						}
					}
					startPodcount(t, f, args...)
					synctest.Wait()
					life := c.life
					if life == nil {
						life = func(*fakeServer) []frame { liveADay(f, 1); return nil }
					}
					if frames := life(f); frames != nil {
						body, header := "", map[string]string{}
						for _, fr := range frames {
							data, _ := json.Marshal(fr.obj)
							if wire == "json" {
								body += fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", fr.event, data)
							} else {
								body += string(protobufEvent(fr.event, protobufOf(data)))
								header["Content-Type"] = protobufType + ";stream=watch"
							}
						}
						f.inject(t, fault{match: to(isWatch("pods")), body: body, header: header})
						f.endWatches(false)
					}
					meetFaults(t, f)
					pass(c.wait)
					wantPeace(t, f, args...)
					liveADay(f, 9) // all goes on
					wantPeace(t, f, args...)
				})
			})
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The store and the decoders

func makePod(name, uid, version, node string) *Pod {
	key := "ns/" + name
	return &Pod{Meta{text: key + uid + version, key: uint16(len(key)), uid: uint16(len(key + uid))}, node}
}

// add puts a pod into a list.
func add(l *Listing[*Pod], p *Pod) (kept bool) {
	kept, err := l.Add(p, []byte(p.text))
	if err != nil {
		panic(err)
	}
	return kept
}

func TestReplaceIsADiff(t *testing.T) {
	s := NewStore(func(p *Pod) string { return p.NodeName })
	list := func(pods ...*Pod) (got []string) {
		l := s.List()
		for _, p := range pods {
			add(l, p)
		}
		for _, d := range l.Commit() {
			switch {
			case d.Old == nil:
				got = append(got, "added "+d.New.Key().Name+d.New.UID())
			case d.New == nil:
				got = append(got, "removed "+d.Old.Key().Name+d.Old.UID())
			default:
				got = append(got, "updated "+d.New.Key().Name)
			}
		}
		slices.Sort(got)
		return got
	}
	steps := []struct {
		pods []*Pod
		want []string
	}{
		{nil, nil},
		{[]*Pod{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")}, []string{"added a1", "added b2"}},
		{[]*Pod{makePod("a", "1", "10", "x"), makePod("b", "2", "11", "x")}, nil},
		{[]*Pod{makePod("a", "1", "30", "x"), makePod("b", "2", "31", "x")}, nil}, // newer, but nothing that counts
		{[]*Pod{makePod("a", "1", "40", "y"), makePod("c", "3", "41", "y")}, []string{"added c3", "removed b2", "updated a"}},
		{[]*Pod{makePod("a", "9", "50", "y"), makePod("c", "3", "41", "y")}, []string{"added a9", "removed a1"}},
		{[]*Pod{makePod("a", "9", "5", "z")}, []string{"removed c3", "updated a"}}, // versions went back: still the truth
		{nil, []string{"removed a9"}},
		{[]*Pod{makePod("d", "4", "60", "x")}, []string{"added d4"}},
	}
	for i, step := range steps {
		if got := list(step.pods...); !slices.Equal(got, step.want) {
			t.Errorf("list %d: %q, want %q", i, got, step.want)
		}
	}
}

func TestDroppedListChangesNothing(t *testing.T) {
	s := NewStore(func(p *Pod) string { return p.NodeName })
	l := s.List()
	add(l, makePod("a", "1", "10", "x"))
	l.Commit()
	l = s.List() // breaks off behind this:
	add(l, makePod("a", "1", "10", "x"))
	add(l, makePod("b", "2", "11", "x"))
	l = s.List()
	add(l, makePod("a", "1", "10", "x"))
	if ds := l.Commit(); len(ds) != 0 || s.Len() != 1 || s.Count("x") != 1 {
		t.Errorf("%d changes, %d objects", len(ds), s.Len())
	}
}

func TestIndexEqualsARecountAfterAnyHistory(t *testing.T) {
	for seed := range uint64(50) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := NewStore(func(p *Pod) string { return p.NodeName })
		random := func(version int) *Pod {
			return makePod(strconv.Itoa(rnd.IntN(8)), strconv.Itoa(rnd.IntN(3)), strconv.Itoa(version), []string{"", "n1", "n2"}[rnd.IntN(3)])
		}
		for step := range 300 {
			switch rnd.IntN(8) {
			case 0:
				l := s.List()
				for range rnd.IntN(8) {
					add(l, random(step))
				}
				if rnd.IntN(3) > 0 {
					l.Commit()
				}
			case 1:
				s.Apply("WRITTEN", random(step+2))
			case 2:
				s.Apply("DELETED", random(step))
			default:
				s.Apply([]string{"ADDED", "MODIFIED"}[rnd.IntN(2)], random(step-rnd.IntN(5)))
			}
			recount := map[string]int{}
			for _, p := range s.All() {
				if p.NodeName != "" {
					recount[p.NodeName]++
				}
			}
			if !maps.Equal(recount, s.counts) {
				t.Fatalf("seed %d, step %d: index %v, recount %v", seed, step, s.counts, recount)
			}
		}
	}
}

func TestWrittenObjectIsTakenOnlyInPlaceOfAnOlderOneOfItsUID(t *testing.T) {
	s := NewStore[*Pod]()
	s.Apply("ADDED", makePod("a", "1", "10", "x"))
	for _, c := range []struct {
		p    *Pod
		want string
	}{
		{makePod("a", "1", "12", "new"), "new"},
		{makePod("a", "1", "11", "older"), "new"},
		{makePod("a", "2", "99", "other uid"), "new"},
	} {
		if s.Apply("WRITTEN", c.p); s.Get(Key{"ns", "a"}).NodeName != c.want {
			t.Errorf("%s was taken", c.p.NodeName)
		}
	}
	if s.Apply("MODIFIED", makePod("a", "1", "11", "late event")); s.Get(Key{"ns", "a"}).NodeName != "new" {
		t.Error("an event from before our write took it back")
	}
	s.Apply("DELETED", makePod("a", "1", "13", "x"))
	if s.Apply("WRITTEN", makePod("a", "1", "14", "ghost")); s.Len() != 0 {
		t.Error("a write's answer brought back what was deleted")
	}
}

func TestWrittenObjectIsNotLostToAListThatIsUnderWay(t *testing.T) {
	s := NewStore[*Pod]()
	s.Apply("ADDED", makePod("a", "1", "10", "x"))
	l := s.List()
	add(l, makePod("a", "1", "10", "x"))
	s.Apply("WRITTEN", makePod("a", "1", "11", "new"))
	if l.Commit(); s.Get(Key{"ns", "a"}) == nil {
		t.Error("it is gone")
	}
}

func TestEventsOfVersionsThatAreNoDecimalsAreTaken(t *testing.T) {
	s := NewStore[*Pod]()
	s.Apply("ADDED", makePod("a", "u", "odd-2", "n1"))
	if ds := s.Apply("MODIFIED", makePod("a", "u", "odd-1", "n2")); len(ds) != 1 {
		t.Errorf("a change yields %v", ds)
	}
	if ds := s.Apply("DELETED", makePod("a", "u", "odd-3", "n2")); len(ds) != 1 || s.Len() != 0 {
		t.Errorf("a removal yields %v", ds)
	}
}

func TestVersionsCompareAsDecimalsOfAnyLength(t *testing.T) {
	for _, c := range []struct {
		a, b  string
		newer bool
	}{
		{"10", "9", true}, {"9", "10", false}, {"10", "10", false}, {"010", "9", true},
		{"123456789012345678901234567890", "99999999999999999999", true}, {"5", "", true}, {"odd", "7", true}, {"odd", "odd", false},
	} {
		if newerVersion(c.a, c.b) != c.newer {
			t.Errorf("newer(%q, %q) is not %v", c.a, c.b, c.newer)
		}
	}
}

// selectorsOfServers are selectors that a real API server (v1.35) accepts, and such that it answers with a 400. `make e2e`
// asks yours.
type selectorsOfServers struct {
	LabelSelectorsAccepted, LabelSelectorsRefused []string
	FieldSelectorsAccepted, FieldSelectorsRefused []string
}

func readSelectors(t testing.TB) (s selectorsOfServers) {
	t.Helper()
	text, err := os.ReadFile("testdata/selectors.json")
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFieldSelectorsOfPodsAreAcceptedAndRefusedAsTheServerDoes(t *testing.T) {
	selectors := readSelectors(t)
	for _, text := range selectors.FieldSelectorsAccepted {
		if err := labels.CheckFieldSelector(text, "pods", podFields); err != nil {
			t.Errorf("field selector %q: %v", text, err)
		}
	}
	for _, text := range selectors.FieldSelectorsRefused {
		if err := labels.CheckFieldSelector(text, "pods", podFields); err == nil {
			t.Errorf("field selector %q is accepted", text)
		}
	}
}

func TestSelectorThatNoServerTakesIsWrongUsageBeforeAnyIsAsked(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for args, want := range map[string]string{
			"-pod-selector=a in b":                       `-pod-selector: requirement 1 "a in b"`,
			"-pod-selector=a=b,c>d":                      `-pod-selector: requirement 2 "c>d"`,
			"-pod-selector=a=" + strings.Repeat("b", 64): "-pod-selector: ",
			"-field-selector=spec.nonsense=1":            `-field-selector: field label not supported: "spec.nonsense"`,
			"-field-selector=metadata.name":              `-field-selector: "metadata.name" needs an operator`,
			"-field-selector=metadata.name=a=b":          "-field-selector: ",
		} {
			p := startPodcount(t, f, args)
			synctest.Wait()
			if err := p.stop(); !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		}
		wantNumber(t, "requests", len(f.asked(func(seen) bool { return true })), 0)
	})
}

// leave keeps nothing of a list.
func leave(*Pod, []byte) (kept bool, err error) { return false, nil }

func TestBadListsAreErrorsThatNameThePlace(t *testing.T) {
	kind := &Kind[*Pod]{Name: "Pod", New: func() *Pod { return new(Pod) }}
	item := `{"metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"1"}}`
	for text, want := range map[string]string{
		``:                                     "EOF",
		`[]`:                                   "[ instead of an object",
		`{"items":[` + item + `]}`:             "no metadata.resourceVersion",
		`{"metadata":{"resourceVersion":"5"}}`: "no items",
		`{"metadata":{"resourceVersion":"5"},"items":{}}`:                   "items: not a list",
		`{"metadata":{"resourceVersion":"5"},"items":[` + item:              "items: EOF",
		`{"metadata":{"resourceVersion":"5"},"items":[` + item + `,{"met`:   "items: item 1: after n/a: behind byte 119: unexpected EOF",
		`{"metadata":{"resourceVersion":"5"},"items":[` + item + `,7]}`:     "items: item 1: after n/a: behind byte 120: json: cannot unmarshal number",
		`{"metadata":{"resourceVersion":"5"},"items":[` + item + `,{}]}`:    `items: item 1: Pod "" has no metadata.name`,
		`{"metadata":{"resourceVersion":"5"},"items":[{"metadata":[1]}]}`:   "items: item 0: behind byte 61: json: cannot unmarshal array into Go struct field item.metadata",
		`{"kind":"Status","status":"Failure","message":"strange","code":1}`: "not a list",
	} {
		if _, err := newDecoder(kind).list(strings.NewReader(text), false, leave); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	n := 0
	meta, err := newDecoder(kind).list(strings.NewReader(`{"kind":"PodList","items":[`+item+`,`+item+`],"metadata":{"resourceVersion":"5","continue":"c"}}`), false, func(*Pod, []byte) (bool, error) {
		n++
		return false, nil
	})
	if err != nil || n != 2 || meta.ResourceVersion != "5" || meta.Continue != "c" {
		t.Errorf("%d items, %+v, %v", n, meta, err)
	}
	if _, err := newDecoder(kind).list(strings.NewReader(`{"metadata":{"resourceVersion":"5"},"items":null}`), false, leave); err != nil {
		t.Error(err)
	}
}

// decoded is what a list holds, an object a line.
func decoded(t testing.TB, body []byte, isProtobuf bool, kind *Kind[*Pod]) (lines []string, meta ListMeta, err error) {
	meta, err = newDecoder(kind).list(bytes.NewReader(body), isProtobuf, func(p *Pod, text []byte) (bool, error) {
		p.text = string(text)
		lines = append(lines, describe(p))
		return true, nil
	})
	return lines, meta, err
}

func describe(p *Pod) string {
	return fmt.Sprintf("%s %s %s %s %v", p.Key(), p.UID(), p.ResourceVersion(), p.NodeName, labelsOf(&p.Meta))
}

func recording(t testing.TB, name string) []byte {
	body, err := os.ReadFile("testdata/transcripts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(name, ".txt") {
		_, body, _ = bytes.Cut(body, []byte("\n\n"))
	}
	return body
}

func TestRecordedProtobufReadsAsTheRecordedJSON(t *testing.T) {
	got, gotMeta, err := decoded(t, recording(t, "list-metadata.pb"), true, podKind())
	want, wantMeta, wantErr := decoded(t, recording(t, "list-metadata.txt"), false, podKind())
	if err != nil || wantErr != nil || len(got) != 2 || gotMeta.Continue == "" || !slices.Equal(got, want) || gotMeta != wantMeta {
		t.Errorf("%q %v %v, want %q %v %v", got, gotMeta, err, want, wantMeta, wantErr)
	}
	for file, want := range map[string][]string{
		"list-pods.pb": {
			"team-0/web-000000-2 43e5ca79-148c-4942-955e-cbf7a98a3bfd 204429 ip-10-0-0-71.eu-west-1.compute.internal map[app:web-0]",
			"team-0/web-000010-2 7b2e8173-7cc6-4a75-80b6-c772a4f964d1 204459 ip-10-0-0-21.eu-west-1.compute.internal map[app:web-0]"},
		"list-nodes.pb": nil,
	} {
		got, meta, err := decoded(t, recording(t, file), true, podKind())
		if want != nil && !slices.Equal(got, want) || err != nil || len(got) != 2 || meta.ResourceVersion == "" {
			t.Errorf("%s: %q %v %v", file, got, meta, err)
		}
	}
	for file, want := range map[string]string{
		"watch-pods.pb":     `MODIFIED team-0/web-005000-0 893422ad-\S* 218733 ip-10-0-0-133\S* map\[app:web-100\]\nMODIFIED .* 218734 .*\nDELETED team-0/web-005010-0 58cfd317-\S* 218735 .*\n(BOOKMARK 218735\n){2}`,
		"watch-metadata.pb": `MODIFIED default/p2 2bda54ea-2b99-47e1-9896-3abbea112061 218  map\[app:nginx\]\n(.*\n)*`,
		"watch-expired.pb":  `ERROR 410 Expired too old resource version: 1 \(209512\)\n`,
	} {
		var got strings.Builder
		err := newDecoder(podKind()).events(bytes.NewReader(recording(t, file)), true, func(ev WatchEvent[*Pod]) error {
			switch ev.Type {
			case "ERROR":
				fmt.Fprintln(&got, "ERROR", ev.Status.Code, ev.Status.Reason, ev.Status.Message)
			case "BOOKMARK":
				fmt.Fprintln(&got, "BOOKMARK", ev.Object.ResourceVersion())
			default:
				fmt.Fprintln(&got, ev.Type, describe(ev.Object))
			}
			return nil
		})
		if err != nil || !regexp.MustCompile("^"+want+"$").MatchString(got.String()) {
			t.Errorf("%s: %v, %s", file, err, got.String())
		}
	}
	if s := parseStatus(recording(t, "unauthorized.pb"), true); s.Code != 401 || s.Reason != "Unauthorized" || s.Message != "Unauthorized" {
		t.Errorf("%+v", s)
	}
}

// leaves are the fields of a protobuf message, by their path, as far as descend leads.
func leaves(t *testing.T, m []byte, path string, descend []string) (all []string) {
	for len(m) > 0 {
		tag, n := binary.Uvarint(m)
		v, k := binary.Uvarint(m[n:])
		m = m[n+k:]
		at := path + "." + strconv.Itoa(int(tag>>3))
		switch {
		case tag&7 == 0:
			all = append(all, fmt.Sprintf("%s=%d", at, v))
			continue
		case tag&7 != 2 || v > uint64(len(m)):
			t.Fatalf("%s: wire type %d, length %d", at, tag&7, v)
		case slices.Contains(descend, at):
			all = append(append(all, at), leaves(t, m[:v], at, descend)...)
		default:
			all = append(all, fmt.Sprintf("%s=%q", at, m[:v]))
		}
		m = m[v:]
	}
	return all
}

// The recorded metadata list in JSON, made protobuf by the fake, is the recorded protobuf, field by field.
func TestFakeSpeaksProtobufAsARealServer(t *testing.T) {
	descend := []string{".1", ".2", ".2.1", ".2.2", ".2.2.1", ".2.2.1.8", ".2.2.1.11"}
	read := func(body []byte, descend []string) (all []string) {
		if string(body[:4]) != "k8s\x00" {
			t.Fatalf("%q", body[:4])
		}
		for _, leaf := range leaves(t, body[4:], "", descend) {
			if !strings.HasPrefix(leaf, ".2.2.1.17=") && !strings.HasPrefix(leaf, ".2.1.4=") { // managedFields, remainingItemCount
				all = append(all, leaf)
			}
		}
		return all
	}
	got, want := read(protobufOf(recording(t, "list-metadata.txt")), descend), read(recording(t, "list-metadata.pb"), descend)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nrecorded: %q", got, want)
	}
	descend = []string{".1", ".2"}
	got, want = read(protobufOf(recording(t, "unauthorized.txt")), descend), read(recording(t, "unauthorized.pb"), descend)
	if !slices.Equal(got, want) {
		t.Errorf("%q\nrecorded: %q", got, want)
	}
}

// hostile are bodies that no server sends, with what is said of them.
func hostile() map[string]struct{ body, want string } {
	varint := func(v uint64) []byte { return binary.AppendUvarint(nil, v) }
	list := func(items ...[]byte) string { // of these fields
		var unknown pb
		unknown.bytes(1, []byte("\x12\x07PodList"))
		unknown.bytes(2, append(append([]byte{}, 0x0a, 3, 0x12, 1, '5'), bytes.Join(items, nil)...))
		return "k8s\x00" + string(unknown)
	}
	item := func(meta []byte) []byte { // an object with this metadata
		var obj, items pb
		obj.bytes(1, meta)
		items.bytes(2, obj)
		return items
	}
	var good, bad pb
	good.text(1, "a")
	good.text(5, "u")
	good.text(6, "1")
	bad.text(1, "a\xff")
	var label, odd pb
	label.bytes(11, []byte{0x0a, 99})
	odd.int(1, 7)
	type row = struct{ body, want string }
	return map[string]row{
		"nothing":                     {"", `unexpected EOF`},
		"JSON":                        {`{"kind":"PodList"}`, `before byte 0: "{\"ki" in place of "k8s\x00"`},
		"no list":                     {"k8s\x00", "not a list"},
		"half a tag":                  {"k8s\x00\x80", "before byte 5: unexpected EOF"},
		"a number without end":        {"k8s\x00" + strings.Repeat("\xff", 20), "overflows a 64-bit integer"},
		"64 bits of length":           {"k8s\x00\x12" + string(varint(1<<63)), "field 2, before byte 15: a length of -9223372036854775808"},
		"more than 63 bits":           {"k8s\x00\x12" + string(varint(1<<64-1)), "field 2"},
		"a list that never comes":     {"k8s\x00\x12" + string(varint(1<<40)), "field 2, before byte 11: unexpected EOF"},
		"a group":                     {list([]byte{0x13}), "field 202, before byte 23: unknown wire type 3"},
		"an item of 1 TB":             {list(append([]byte{0x12}, varint(1<<40)...)), "field 202, before byte 29: a length of 1099511627776, more than is left"},
		"an item beyond the list":     {list([]byte{0x12, 9}), "field 202, before byte 24: a length of 9, more than is left"},
		"an item of 9 MB":             {list(item(bytes.Repeat([]byte{0x92, 1, 0}, 3<<20))), "item 0: field 202"},
		"an item that is a number":    {list([]byte{0x10, 9}), "item 0: field 202, before byte 24: no message but wire type 0"},
		"metadata beyond the item":    {list([]byte{0x12, 2, 0x0a, 9}), "item 0: field 1, before byte 26: a length of 9, more than is left"},
		"metadata that is a number":   {list([]byte{0x12, 2, 0x08, 9}), "item 0: field 1, before byte 26: no message but wire type 0"},
		"a name that is a number":     {list(item(odd)), "item 0: field 101, before byte 28: no text but wire type 0"},
		"a name that is not UTF-8":    {list(item(bad)), "item 0: field 101, before byte 28: 2 bytes that are not UTF-8"},
		"a label beyond its map":      {list(item(label)), "item 0: field 11101, before byte 30: a length of 99, more than is left"},
		"a name of 1 MB":              {list(item(append([]byte{0x0a}, append(varint(1<<20), bytes.Repeat([]byte("a"), 1<<20)...)...))), "item 0: field 101, before byte 36: a text of 1048576 bytes: too many"},
		"no list but an object":       {string(protobufOf([]byte(`{"kind":"Pod","metadata":{"generateName":"p-","namespace":"default"}}`))), "not a list"},
		"a field beyond all numbers":  {list([]byte{0x12, 5, 0x0a, 3, 0x9a, 0x3f, 9}), "item 0: field 199, before byte 29: a length of 9, more than is left"},
		"no name":                     {list(item(nil)), `item 0: Pod "" has no metadata.name`},
		"the second has no name":      {list(item(good), item(nil)), `item 1: Pod "" has no metadata.name`},
		"cut in an item":              {list(item(good))[:31], "item 0: field 105, before byte 31: unexpected EOF"},
		"a fixed field without bytes": {list([]byte{0x09 | 4<<3}), "a length of 8, more than is left"},
	}
}

func TestHostileProtobufIsAnErrorThatNamesThePlaceAndCostsNoMemory(t *testing.T) {
	for name, h := range hostile() {
		var before, after runtime.MemStats
		body := []byte(h.body)
		runtime.ReadMemStats(&before)
		_, _, err := decoded(t, body, true, podKind())
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), h.want) {
			t.Errorf("%s: %v, want %q", name, err, h.want)
		}
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 256<<10 {
			t.Errorf("%s: %d bytes were allocated for %d", name, grew, len(h.body))
		}
	}
}

// In JSON an object may have three times as much: there, "<" is six bytes.
func TestObjectsOfUpTo8MBOfProtobufAreRead(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("ten seconds under the race detector, of one goroutine")
	}
	pod := func(size int) string {
		return `{"kind":"Pod","metadata":{"name":"big","namespace":"n","uid":"u","resourceVersion":"6","annotations":{"a":"` + strings.Repeat("x", size) + `"}}}`
	}
	list := func(pods ...string) string {
		return `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[` + strings.Join(pods, ",") + `]}`
	}
	for isProtobuf, limit := range map[bool]int{false: 24, true: 8} {
		tooMuch := map[bool]string{false: "more than 25165824 bytes in one piece", true: " bytes in one piece: too many"}[isProtobuf]
		encode := func(s string) []byte {
			if isProtobuf {
				return protobufOf([]byte(s))
			}
			return []byte(s)
		}
		if got, _, err := decoded(t, encode(list(pod(limit<<20-1000), pod(7<<20), pod(1), pod(7<<20))), isProtobuf, podKind()); len(got) != 4 || err != nil {
			t.Errorf("large objects (protobuf: %v): %d, %v", isProtobuf, len(got), err)
		}
		if got, _, err := decoded(t, encode(list(pod(1), pod(limit<<20))), isProtobuf, podKind()); len(got) != 1 || err == nil || !strings.Contains(err.Error(), "item 1: after n/big: ") || !strings.Contains(err.Error(), tooMuch) {
			t.Errorf("too large an object (protobuf: %v): %d, %v", isProtobuf, len(got), err)
		}
		for size, want := range map[int]string{3 << 20: "", limit << 20: tooMuch} {
			frame := []byte(`{"type":"ADDED","object":` + pod(size) + "}\n")
			if isProtobuf {
				frame = protobufEvent("ADDED", protobufOf([]byte(pod(size))))
			}
			n := 0
			err := newDecoder(podKind()).events(bytes.NewReader(bytes.Repeat(frame, 3)), isProtobuf, func(WatchEvent[*Pod]) error { n++; return nil })
			if want == "" && (n != 3 || err != nil) || want != "" && (n != 0 || err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("frames of %d MB (protobuf: %v): %d, %v", size>>20, isProtobuf, n, err)
			}
		}
	}
}

// bomb is so many bytes that compress to next to nothing, behind a beginning.
func bomb(beginning string, size int) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, beginning)
	for chunk := []byte(strings.Repeat("a", 1<<20)); size > 0; size -= len(chunk) {
		z.Write(chunk)
	}
	z.Close()
	return b.Bytes()
}

func TestDecompressionBombsAreNotHeld(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("half a minute under the race detector, of one goroutine")
	}
	list := append(binary.AppendUvarint([]byte{2<<3 | 2}, 1<<40), 0x0a, 3, 0x12, 1, '5') // of 1 TB
	item := binary.AppendUvarint([]byte{0x12}, 50<<20)
	for name, c := range map[string]struct{ mediaType, body, want string }{
		"an item in JSON":     {jsonType, `{"items":[{"metadata":{"name":"`, "more than 25165824 bytes in one piece"},
		"a field in JSON":     {jsonType, `{"kind":"`, "more than 25165824 bytes in one piece"},
		"a name in JSON":      {jsonType, `{"`, "more than 25165824 bytes in one piece"},
		"an item in protobuf": {protobufType, "k8s\x00" + string(list) + string(item), "52428800 bytes in one piece: too many"},
		"a field in protobuf": {protobufType, "k8s\x00" + string(list) + string(append([]byte{0x7a}, item[1:]...)), "unexpected EOF"}, // skipped
	} {
		src, err := gzip.NewReader(bytes.NewReader(bomb(c.body, 50<<20)))
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err = newDecoder(podKind()).list(src, c.mediaType == protobufType, leave)
		runtime.ReadMemStats(&after)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if grew := (after.TotalAlloc - before.TotalAlloc) >> 20; grew > 80 { // a buffer that doubles, up to 32 MB
			t.Errorf("%s: %d MB were allocated", name, grew)
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb(`{"metadata":{"name":"`, 80<<20))
	}))
	defer server.Close()
	base, _ := url.Parse(server.URL)
	client := newClient(&options{}, &Config{Server: base, Credential: noCredential}, nil, quietLog())
	defer client.Close()
	var answer json.RawMessage
	err := client.Send(t.Context(), request{method: http.MethodGet, path: "/api/v1/nodes/n"}, &answer)
	wantText(t, fmt.Sprint(err), "get nodes/n: more than 67108864 bytes in one piece")
}

func TestOneStreamLeavesNothingToTheNext(t *testing.T) {
	d := newDecoder(&Kind[*Pod]{Name: "Pod", Keep: []string{"app", "tier"}, New: func() *Pod { return new(Pod) }})
	full := `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a-long-name","namespace":"space","uid":"u1","resourceVersion":"1","labels":{"app":"x","tier":"","z":"1"}},"spec":{"nodeName":"n1"}},` + bare(1) + `]}`
	empty := `{"kind":"PodList","metadata":{"resourceVersion":"5"},"items":[` + bare(2) + `,{"metadata":{"name":"c","uid":"u3","resourceVersion":"3","labels":null},"spec":{}}]}`
	want := []string{"space/a-long-name u1 1 n1 map[app:x tier:]", "b1 u2 2  map[]", "b2 u2 2  map[]", "c u3 3  map[]"}
	for i := range 16 { // every order of four streams, each in either form
		var got []string
		for j, text := range []string{full, empty, full, empty} {
			isProtobuf := i>>j&1 == 1
			body := []byte(text)
			if isProtobuf {
				body = protobufOf(body)
			}
			if _, err := d.list(bytes.NewReader(body), isProtobuf, func(p *Pod, text []byte) (bool, error) {
				p.text = string(text)
				got = append(got, describe(p))
				return j%2 == 0, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, append(slices.Clone(want), want...)) {
			t.Errorf("%04b: %q", i, got)
		}
	}
}

func bare(n int) string {
	return fmt.Sprintf(`{"metadata":{"name":"b%d","uid":"u2","resourceVersion":"2"}}`, n)
}

// podList is the fake's answer in this form.
func podList(f *fakeServer, accept string) []byte {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "/api/v1/pods", nil)
	r.Header.Set("Accept", accept)
	f.ServeHTTP(w, r)
	return w.Body.Bytes()
}

func TestKeptLabelsDoNotHoldTheOthersPlace(t *testing.T) {
	many := object{"app": "x"}
	for i := range 1000 {
		many["other-"+strconv.Itoa(i)] = "y"
	}
	text, _ := json.Marshal(object{"metadata": object{"name": "p", "uid": "u", "resourceVersion": "1", "labels": many}})
	d := newDecoder(podKind())
	var kept []*Pod
	var before, after runtime.MemStats
	for i := range 101 {
		if i == 1 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		p, err := d.parse(bytes.Replace(text, []byte(`"app":"x"`), fmt.Appendf(nil, `"app":"x%d"`, i), 1))
		if err != nil || len(labelsOf(&p.Meta)) != 1 {
			t.Fatal(p, err)
		}
		kept = append(kept, p)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	if grew := int64(after.HeapAlloc-before.HeapAlloc) / 100; grew > 2000 {
		t.Errorf("%d bytes for each object with one label kept", grew)
	}
}

func TestListOfWhatIsKnownAllocatesNextToNothing(t *testing.T) {
	f := newFake()
	f.addPods(1000)
	body := podList(f, protobufType)
	s := NewStore(func(p *Pod) string { return p.NodeName })
	d := newDecoder(podKind())
	list := func() {
		l := s.List()
		if _, err := d.list(bytes.NewReader(body), true, l.Add); err != nil || l.n != 1000 {
			t.Fatal(l.n, err)
		}
		if ds := l.Commit(); len(ds) > 0 {
			t.Fatalf("%d changes", len(ds))
		}
	}
	if n := testing.AllocsPerRun(10, list); n > 50 {
		t.Errorf("%v allocations for 1,000 pods", n)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The workqueue, the bucket, the recorder

// quietQueue makes the options of a queue that nobody hears of.
func quietQueue[K comparable](backoff, most time.Duration) QueueOptions[K] {
	log := quietLog()
	return QueueOptions[K]{Name: "test", Backoff: backoff, MaxBackoff: most, Log: log.Logger, Metrics: log.Registry}
}

func testQueue(t *testing.T) *Queue[string] {
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue[string](5*time.Millisecond, 30*time.Second))
	t.Cleanup(cancel)
	return q
}

// ready is the next key if there is one right now, else "".
func ready(q *Queue[string]) string {
	synctest.Wait()
	select {
	case k := <-q.out:
		return k
	default:
		return ""
	}
}

func wantReady(t *testing.T, q *Queue[string], want string) {
	t.Helper()
	if got := ready(q); got != want {
		t.Errorf("ready: %q, want %q", got, want)
	}
}

func TestQueueHoldsAKeyOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b", "a")
		q.Add("a")
		for _, want := range []string{"a", "b", ""} {
			wantReady(t, q, want)
		}
	})
}

func TestQueueHandsOutAKeyAgainThatWasAddedWhileAWorkerHadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Add("a")
		q.Add("a")
		wantReady(t, q, "") // not to a second worker
		q.Done("a", Result{}, nil)
		wantReady(t, q, "a")
		q.Done("a", Result{}, nil)
		wantReady(t, q, "")
	})
}

func TestQueueGivesNoKeyToTwoWorkersAndLosesNoChange(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	q := NewQueue(ctx, quietQueue[int](time.Microsecond, time.Millisecond))
	const keys, workers, adders, rounds = 20, 8, 4, 2000
	var hands [keys]atomic.Int32        // who has the key
	var wanted, done [keys]atomic.Int64 // the newest change of a key, and the newest that a worker saw
	var workersDone, addersDone sync.WaitGroup
	seen := make(chan struct{}, 1)
	for range workers {
		workersDone.Go(func() {
			for {
				k, ok := q.Get()
				if !ok {
					return
				}
				if hands[k].Add(1) != 1 {
					t.Errorf("key %d is with two workers", k)
				}
				done[k].Store(wanted[k].Load())
				var err error
				if rand.IntN(10) == 0 {
					err = errors.New("once more")
				}
				hands[k].Add(-1)
				q.Done(k, Result{RequeueAfter: time.Duration(rand.IntN(20)) * time.Microsecond}, err)
				select {
				case seen <- struct{}{}:
				default:
				}
			}
		})
	}
	for range adders {
		addersDone.Go(func() {
			for range rounds {
				k := rand.IntN(keys)
				wanted[k].Add(1)
				if rand.IntN(4) == 0 {
					q.AddAfter(k, time.Duration(rand.IntN(50))*time.Microsecond)
				} else {
					q.Add(k)
				}
			}
		})
	}
	addersDone.Wait()
	late := time.After(20 * time.Second)
	for k := 0; k < keys; {
		if done[k].Load() == wanted[k].Load() {
			k++
			continue
		}
		select {
		case <-seen:
		case <-late:
			t.Fatalf("key %d: change %d was never seen, %d was", k, wanted[k].Load(), done[k].Load())
		}
	}
	cancel()
	workersDone.Wait()
}

func TestQueueAddAfterKeepsTheEarliestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.AddAfter("a", 20*time.Second)
		q.AddAfter("a", 10*time.Second)
		q.AddAfter("a", 30*time.Second)
		q.AddAfter("b", 15*time.Second)
		pass(9 * time.Second)
		wantReady(t, q, "")
		pass(time.Second)
		wantReady(t, q, "a")
		q.Done("a", Result{RequeueAfter: time.Second}, nil)
		pass(time.Second)
		wantReady(t, q, "a")
		q.Done("a", Result{}, nil)
		pass(time.Hour)
		wantReady(t, q, "b")
		wantReady(t, q, "")
	})
}

func TestQueueRetriesAFailedKeyByABackoffOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("bad", "good")
		wantReady(t, q, "bad")
		for n := 1; n <= 20; n++ {
			if got := q.Done("bad", Result{}, errors.New("no")); got != n {
				t.Fatalf("%d failures, want %d", got, n)
			}
			least := min(5*time.Millisecond<<(n-1), 30*time.Second)
			q.Add("bad") // neither a tick nor a change cuts the backoff short
			pass(least - time.Nanosecond)
			if n == 1 {
				wantReady(t, q, "good")
				q.Done("good", Result{}, nil)
			}
			wantReady(t, q, "")
			pass(least + time.Nanosecond)
			wantReady(t, q, "bad")
		}
		q.Done("bad", Result{}, nil)
		pass(time.Hour)
		wantReady(t, q, "") // what was added meanwhile was seen by the retry
		q.Add("bad")
		wantReady(t, q, "bad")
		wantNumber(t, "failures after a success", q.Done("bad", Result{}, errors.New("no")), 1)
	})
}

func TestQueueTriesAFailedKeyNoSoonerThanItIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a")
		wantReady(t, q, "a")
		q.Done("a", Result{RetryAfter: 9 * time.Second}, errors.New("too many requests"))
		pass(9*time.Second - 1)
		wantReady(t, q, "")
		pass(1)
		wantReady(t, q, "a")
	})
}

func TestRetryAfterOfAWrappedStatusIsWhatTheServerAskedForAndAFifthMoreAtMost(t *testing.T) {
	status := &StatusError{Status: Status{Code: 429}}
	status.Details.RetryAfterSeconds = 9
	wait := retryAfter(fmt.Errorf("patch: %w", status))
	if wait < 9*time.Second || wait > 10800*time.Millisecond {
		t.Errorf("the server asked for 9 s, and the wait is %v", wait)
	}
}

func TestQueueForgetsAKeyThatSaysNothingAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := testQueue(t)
		q.Add("a", "b")
		for range 2 {
			q.Done(ready(q), Result{}, errors.New("no"))
		}
		pass(time.Second)
		for range 2 {
			q.Done(ready(q), Result{RequeueAfter: time.Second}, nil)
		}
		wantNumber(t, "keys in memory", len(q.items), 2)
		pass(time.Second)
		for range 2 {
			q.Done(ready(q), Result{}, nil)
		}
		wantNumber(t, "keys in memory in the end", len(q.items), 0)
	})
}

func TestQueueEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		q := NewQueue(ctx, quietQueue[string](time.Millisecond, time.Second))
		q.Add("a", "b")
		k, ok := q.Get()
		if !ok || k != "a" {
			t.Fatalf("got %q, %v", k, ok)
		}
		cancel()
		synctest.Wait()
		if k, ok := q.Get(); ok {
			t.Errorf("got %q after the end", k)
		}
		q.Add("c") // neither blocks
		q.Done("a", Result{}, errors.New("late"))
	})
}

func TestBackoffDoublesUpToItsLimitWithJitter(t *testing.T) {
	for n, least := range map[int]time.Duration{1: 1, 2: 2, 3: 4, 5: 16, 6: 30, 63: 30, 64: 30, 1000: 30} {
		least *= time.Second
		spread := map[time.Duration]bool{}
		for range 100 {
			d := backoff(n, time.Second, 30*time.Second)
			if d < least || d > 2*least {
				t.Errorf("backoff %d is %v", n, d)
			}
			spread[d] = true
		}
		if len(spread) < 50 {
			t.Errorf("backoff %d has no jitter", n)
		}
	}
}

func TestBucketGivesABurstThenARate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBucket(10, 3)
		start := time.Now()
		for range 8 {
			if err := b.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if d := time.Since(start).Round(time.Millisecond); d != 500*time.Millisecond {
			t.Errorf("3 + 5 tokens took %v", d)
		}
		if b.Allow() {
			t.Error("a token too many")
		}
		pass(time.Hour)
		n := 0
		for b.Allow() {
			n++
		}
		wantNumber(t, "tokens after an hour", n, 3)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if b.Wait(ctx) == nil {
			t.Error("did not end with its context")
		}
	})
}

func TestWhatIsRememberedIsBounded(t *testing.T) {
	known, most := map[int]int{}, 0
	for i := range 100 {
		if v, again := remember(known, 10, i, -i), remember(known, 10, i, 7); v != -i || again != -i || known[i] != -i {
			t.Errorf("under %d there is %d, and it gave %d and %d", i, known[i], v, again)
		}
		most = max(most, len(known))
	}
	wantNumber(t, "values kept at most", most, 10)
	synctest.Test(t, func(t *testing.T) {
		r := recorderTo(&keptEvents{}, quietLog())
		for i := range 2*eventObjects + 10 {
			r.post(t.Context(), t.Context(), event{about: somePod(i)})
		}
		wantNumber(t, "objects, and events, that the recorder remembers", r.objects.len()*1000000+r.sent.len(), eventObjects*1000000+eventObjects)
	})
}

// recorderOn runs a recorder against f and returns it with its end.
func recorderOn(t *testing.T, f *fakeServer) (r *Recorder, end func()) {
	n := f.serveIn(t)
	base, _ := url.Parse("http://127.0.0.1:1")
	client := newClient(&options{}, &Config{Server: base, Credential: noCredential}, n.dial, quietLog())
	r = recorderTo(clientEvents{client}, quietLog())
	ctx, cancel := context.WithCancel(t.Context())
	stop, stopNow := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx, stop)
		close(done)
	}()
	end = sync.OnceFunc(func() {
		stopNow()
		<-done
		cancel()
		client.Close()
	})
	t.Cleanup(end)
	return r, end
}

func TestStatusOfAnEventIsToldToTheRecorderInItsOwnWords(t *testing.T) {
	status := func(code int, reason, cause string) *StatusError {
		s := &StatusError{Status: Status{Code: code, Reason: reason}}
		s.Details.Causes = []struct{ Reason, Field string }{{Reason: cause}}
		return s
	}
	for name, c := range map[string]struct {
		err         error
		post, amend EventAnswer
		pause       time.Duration
	}{
		"done":                      {nil, NoAnswer, NoAnswer, 0},
		"not reached":               {io.ErrUnexpectedEOF, NoAnswer, NoAnswer, 0},
		"there already":             {status(409, "AlreadyExists", ""), EventExists, EventRefused, time.Minute},
		"gone, or its namespace is": {status(404, "NotFound", ""), EventUnwanted, EventGone, 10 * time.Minute},
		"a 404 of some proxy":       {status(404, "", ""), EventUnwanted, EventUnwanted, 10 * time.Minute},
		"the namespace is terminating": {
			status(403, "Forbidden", "NamespaceTerminating"), EventUnwanted, EventUnwanted, 10 * time.Minute,
		},
		"a missing right": {status(403, "Forbidden", ""), EventRefused, EventRefused, 10 * time.Minute},
		"a broken server": {status(500, "", ""), EventRefused, EventRefused, time.Minute},
	} {
		if c.err != nil {
			c.err = fmt.Errorf("events: %w", c.err)
		}
		for _, way := range []struct {
			got  error
			want EventAnswer
		}{
			{eventErrorOf(c.err, "AlreadyExists", EventExists), c.post},
			{eventErrorOf(c.err, "NotFound", EventGone), c.amend},
		} {
			got := eventErrorIn(way.got)
			if got.Answer != way.want || got.Pause != c.pause || !errors.Is(way.got, c.err) {
				t.Errorf("%s: %+v, want the answer %d and the pause %v", name, got, way.want, c.pause)
			}
		}
	}
	patience := status(429, "TooManyRequests", "")
	patience.Details.RetryAfterSeconds = 9
	wait := eventErrorIn(eventErrorOf(patience, "", EventExists)).RetryAfter
	if wait < 9*time.Second || wait > 10800*time.Millisecond {
		t.Errorf("the server asked for 9 s, and the wait is %v", wait)
	}
}

func somePod(n int) ObjectReference {
	return ObjectReference{"v1", "Pod", "default", fmt.Sprintf("web-%d", n), fmt.Sprintf("uid-%d", n)}
}

func TestSameEventAgainRaisesTheCount(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r, _ := recorderOn(t, f)
		for range 3 {
			r.Event(somePod(1), "Normal", "Again", "the same")
			pass(time.Minute)
		}
		r.Event(somePod(1), "Normal", "Again", "another")
		pass(time.Second)
		want := []string{"Pod/web-1 in default: another x1", "Pod/web-1 in default: the same x3"}
		if got := eventsOf(f, "Again"); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for _, e := range f.all("events") {
			first, _ := time.Parse(time.RFC3339, str(e, "firstTimestamp"))
			last, _ := time.Parse(time.RFC3339, str(e, "lastTimestamp"))
			if gap := last.Sub(first); str(e, "message") == "the same" && gap != 2*time.Minute {
				t.Errorf("%v between the first and the last", gap)
			}
		}
		for _, e := range f.all("events") { // they live an hour
			f.remove("events", keyOf(e))
		}
		r.Event(somePod(1), "Normal", "Again", "the same")
		pass(time.Second)
		if got, want := eventsOf(f, "Again"), []string{"Pod/web-1 in default: the same x1"}; !slices.Equal(got, want) {
			t.Errorf("after a 404: %q, want %q", got, want)
		}
	})
}

func TestEventsAreLimitedPerObjectAndOverAll(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r, _ := recorderOn(t, f)
		for i := range 40 {
			r.Event(somePod(1), "Normal", "Many", strconv.Itoa(i))
		}
		synctest.Wait()
		wantNumber(t, "events about one object", len(f.all("events")), eventBurst)
		wantNumber(t, "dropped", int(r.dropped.Load()), 40-eventBurst)
		pass(301 * time.Second)
		r.Event(somePod(1), "Normal", "Many", "one more after 300 s")
		r.Event(somePod(1), "Normal", "Many", "but not two")
		synctest.Wait()
		wantNumber(t, "events about one object", len(f.all("events")), eventBurst+1)
		for i := range 100 {
			r.Event(somePod(100+i), "Normal", "Wide", "x")
		}
		synctest.Wait()
		wantNumber(t, "events at once", len(eventsOf(f, "Wide")), 49) // 50, one of which was used just now
		pass(2*time.Second + time.Millisecond)
		wantNumber(t, "events two seconds later", len(eventsOf(f, "Wide")), 69)
	})
}

func TestFullEventQueueDropsAndCountsAndNobodyWaits(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, fault{match: to(func(s seen) bool { return s.Method == "POST" }), stall: true, times: 1})
		r, _ := recorderOn(t, f)
		r.Event(somePod(0), "Normal", "Stuck", "x")
		synctest.Wait()
		start := time.Now()
		for i := range eventQueue + 300 {
			r.Event(somePod(1+i), "Normal", "Many", "x")
		}
		if time.Since(start) != 0 {
			t.Errorf("it took %v", time.Since(start))
		}
		wantNumber(t, "dropped", int(r.dropped.Load()), 300)
		pass(10 * time.Minute)
	})
}

func TestEventThatWasRefusedIsDroppedAndOneThatDidNotArriveIsSentAgain(t *testing.T) {
	posts := func(s seen) bool { return s.Method == "POST" }
	for name, c := range map[string]struct {
		fault fault
		tries int
		sent  int
	}{
		"the namespace is being deleted": {fault{status: 403, body: `{"code":403,"reason":"Forbidden","message":"because it is being terminated"}`}, 1, 0},
		"too many":                       {fault{status: 429, header: map[string]string{"Retry-After": "1"}, body: "slow down"}, 2, 1},
		"too many, for an hour":          {fault{status: 429, header: map[string]string{"Retry-After": "3600"}, body: "slow down"}, 1, 0},
		"broken before it arrived":       {fault{drop: true}, 2, 1},
		"broken behind it":               {fault{after: true}, 2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				c.fault.match = to(posts)
				f.inject(t, c.fault)
				r, _ := recorderOn(t, f)
				r.Event(somePod(1), "Normal", "Once", "x")
				pass(time.Minute)
				wantNumber(t, "tries", len(f.asked(posts)), c.tries)
				wantNumber(t, "events", len(eventsOf(f, "Once")), c.sent)
				wantNumber(t, "dropped", int(r.dropped.Load()), 1-c.sent)
			})
		})
	}
}

func TestEventsKeepNamesOfTheirOwnWhenTheClockIsSetBack(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r, end := recorderOn(t, f)
		r.stamp = time.Now().Add(time.Hour).UnixNano() // of the last event, an hour before that was an hour ago
		for i := range 20 {
			r.Event(somePod(1), "Normal", "Back", strconv.Itoa(i))
		}
		end()
		wantNumber(t, "events", len(eventsOf(f, "Back")), 20)
	})
}

// A time that went through UTC, a text or a number, has lost its monotonic reading: whoever compares it goes wrong when the
// clock is set. So this is all that may be done with one: where it is told to others, and where they have told theirs.
func TestNoWaitAndNoDeadlineDependsOnTheWallClock(t *testing.T) {
	wall := regexp.MustCompile(`\.(UTC|Local|In|Truncate|AddDate|UnmarshalText)\(|\.Round\(0\)|time\.(Unix\w*|Date|Parse)\(|\.Unix\w*\(|NotAfter|ExpirationTimestamp`)
	may := []string{
		`now.UTC().Format(microTime)`,                   // what a Lease says; nobody compares it
		`time.Now().UTC().Format(time.RFC3339)}`,        // what an Event says
		`r.stamp = max(time.Now().UnixNano(), r.stamp`,  // its name: never the same again, whatever the clock
		`pair.Leaf.NotAfter`,                            // a certificate's end, which is only told
		`ExpirationTimestamp                         *`, // a credential's: one that is taken for good too long
		`expires := `,                   // is refused, and that renews it, too
		`"process_start_time_seconds")`, // what a metric says
	}
	files, _ := filepath.Glob("*.go")
	below, _ := filepath.Glob("internal/*/*.go")
	for _, file := range slices.Concat(files, below) {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for i, line := range strings.Split(string(text), "\n") {
			if wall.MatchString(line) && !slices.ContainsFunc(may, func(known string) bool { return strings.Contains(line, known) }) {
				t.Errorf("%s:%d: does this compare times of the wall clock? %s", file, i+1, strings.TrimSpace(line))
			}
		}
	}
}

func TestEventNamesFit(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		r, end := recorderOn(t, f)
		long := strings.Repeat("a", 235) + "-." + strings.Repeat("b", 16)
		for range 3 { // in one instant
			r.Event(ObjectReference{"v1", "Pod", "default", long, "u"}, "Normal", "Long", strconv.FormatUint(rand.Uint64(), 10))
		}
		end()
		wantNumber(t, "events", len(f.all("events")), 3)
		for _, e := range f.all("events") {
			if name := str(metaOf(e), "name"); len(name) > 253 || labels.CheckDNSName(name) != nil {
				t.Errorf("an event named %s", name)
			}
		}
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// The way in: kubeconfigs, credentials, TLS

// kubeconfigTable reads testdata/kubeconfigs/README.md: what each of the files there, or several together, must give.
func kubeconfigTable(t *testing.T) (table [][2]string) {
	single := 0
	text, err := os.ReadFile("testdata/kubeconfigs/README.md")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && (strings.Contains(cells[0], ".yaml") || strings.Contains(cells[0], ".json")) {
			table = append(table, [2]string{strings.TrimPrefix(cells[0], "| "), strings.Trim(cells[1], "`")})
			if !strings.Contains(cells[0], " + ") {
				single++
			}
		}
	}
	files, _ := filepath.Glob("testdata/kubeconfigs/*.*")
	wantNumber(t, "kubeconfigs in the table, with itself and kubectl's views", single+2, len(files))
	return table
}

// kubectlView is what kubectl understands of a kubeconfig: `kubectl config view --raw -o json`.
type kubectlView struct {
	Clusters []struct {
		Name    string
		Cluster object
	}
	Users []struct {
		Name string
		User object
	}
	Contexts []struct {
		Name    string
		Context struct{ Cluster, User string }
	}
	CurrentContext string `json:"current-context"`
}

// understood is a in the terms of kubectl's view, and file and data of what a holds.
func understood(a *access) object {
	o := object{"server": a.server, "tls-server-name": a.serverName, "insecure-skip-tls-verify": a.insecure, "proxy-url": a.proxy, "token": string(a.token.data), "tokenFile": a.token.file}
	for _, p := range []part{a.ca, a.cert, a.key} {
		o[p.field] = p.file
		if len(p.data) > 0 {
			o[p.field] = base64.StdEncoding.EncodeToString(p.data)
		}
	}
	if e := a.exec; e != nil {
		o["exec"] = fmt.Sprintf("%s %s %q %q %s", e.apiVersion, e.command, e.args, e.env, e.hint)
		if e.cluster != nil {
			text, _ := json.Marshal(e.cluster.Config)
			o["told"] = fmt.Sprintf("%t %s", e.cluster.DisableCompression, text)
		}
	}
	return o
}

// understood is the same for one context of kubectl's view of the file in dir.
func (v kubectlView) understood(dir, cluster, user string) object {
	o := object{}
	for _, c := range v.Clusters {
		if c.Name == cluster {
			maps.Copy(o, c.Cluster)
		}
	}
	for _, u := range v.Users {
		if u.Name == user {
			maps.Copy(o, u.User)
		}
	}
	for _, field := range []string{"certificate-authority", "client-certificate", "client-key", "tokenFile"} {
		if _, ok := o[field+"-data"]; ok {
			delete(o, field)
		} else if file := str(o, field); file != "" && !filepath.IsAbs(file) {
			o[field], _ = filepath.Abs(filepath.Join(dir, file))
		}
	}
	if e, _ := o["exec"].(object); e != nil {
		args, env := []string(nil), []string(nil)
		list, _ := e["args"].([]any)
		for _, arg := range list {
			args = append(args, arg.(string))
		}
		list, _ = e["env"].([]any)
		for _, v := range list {
			env = append(env, str(v.(object), "name")+"="+str(v.(object), "value"))
		}
		command := str(e, "command")
		if strings.Contains(command, "/") && !filepath.IsAbs(command) {
			command, _ = filepath.Abs(filepath.Join(dir, command))
		}
		o["exec"] = fmt.Sprintf("%s %s %q %q %s", e["apiVersion"], command, args, env, strings.Join(strings.Fields(str(e, "installHint")), " "))
		if e["provideClusterInfo"] == true {
			var config any
			extensions, _ := o["extensions"].([]any)
			for _, entry := range extensions {
				if entry := entry.(object); entry["name"] == "client.authentication.k8s.io/exec" {
					config = entry["extension"]
				}
			}
			text, _ := json.Marshal(config)
			o["told"] = fmt.Sprintf("%t %s", o["disable-compression"] == true, text)
		}
		if o["token"] != nil || o["tokenFile"] != nil || o["client-certificate"] != nil || o["client-certificate-data"] != nil {
			delete(o, "exec") // they come first
			delete(o, "told")
		}
	}
	delete(o, "extensions")
	delete(o, "disable-compression")                    // is for the program alone
	if strings.HasPrefix(str(o, "server"), "http://") { // no credential is sent there, and nothing verified
		fields := []string{"certificate-authority", "client-certificate", "client-key", "token", "tokenFile", "exec", "told"}
		maps.DeleteFunc(o, func(field string, _ any) bool { return slices.Contains(fields, strings.TrimSuffix(field, "-data")) })
	}
	return o
}

// wrong is the error for a context of which the view has no cluster or no user, or one with a password.
func (v kubectlView) wrong(cluster, user string) string {
	for _, u := range v.Users {
		if u.Name == user {
			if user = ""; u.User["password"] != nil {
				return "password is not supported"
			}
		}
	}
	for _, c := range v.Clusters {
		if c.Name == cluster && user == "" {
			return ""
		} else if c.Name == cluster {
			return fmt.Sprintf("there is no user %q", user)
		}
	}
	return fmt.Sprintf("there is no cluster %q", cluster)
}

// What kubectl understood of the same files is in kubectl.json. With PODCOUNT_KUBECTL=compare the kubectl of this
// machine is asked instead (testdata/kubeconfigs/compare), and with record its answers are kept.
func TestKubeconfigsOfManyToolsAreReadAsKubectlReadsThemOrRefused(t *testing.T) {
	const recorded = "testdata/kubeconfigs/kubectl.json"
	views := map[string]json.RawMessage{}
	if text, err := os.ReadFile(recorded); err == nil {
		json.Unmarshal(text, &views)
	}
	mode := os.Getenv("PODCOUNT_KUBECTL")
	if mode == "record" {
		clear(views)
	}
	contexts := 0
	for _, row := range kubeconfigTable(t) {
		file, want := row[0], row[1]
		var paths []string
		for _, name := range strings.Split(file, " + ") {
			paths = append(paths, filepath.Join("testdata/kubeconfigs", name))
		}
		if want != "as kubectl" {
			a := &access{log: quietLog().Logger}
			err := a.readKubeconfigs(t.Context(), paths, "")
			if err == nil {
				_, err = a.config(t.Context())
			}
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", file, err, want)
			}
			continue
		}
		if mode != "" {
			cmd := exec.Command("kubectl", "config", "view", "--raw", "-o", "json")
			cmd.Env = append(os.Environ(), "KUBECONFIG="+strings.Join(paths, string(filepath.ListSeparator)))
			out, err := cmd.Output()
			if err != nil {
				t.Errorf("kubectl refuses %s: %v", file, err)
				continue
			}
			views[file] = out
		}
		var view kubectlView
		if err := json.Unmarshal(views[file], &view); err != nil {
			t.Errorf("kubectl's view of %s: %v", file, err)
		}
		current := &access{log: quietLog().Logger}
		if err := current.readKubeconfigs(t.Context(), slices.Clone(paths), ""); err == nil && !strings.HasSuffix(current.source, ", context "+cmp.Or(view.CurrentContext, `""`)) {
			t.Errorf("%s: the current context is %s, want %s", file, current.source, view.CurrentContext)
		}
		for _, c := range view.Contexts {
			a := &access{log: quietLog().Logger}
			err := a.readKubeconfigs(t.Context(), slices.Clone(paths), c.Name)
			if want := view.wrong(c.Context.Cluster, c.Context.User); want != "" && err != nil && strings.Contains(err.Error(), want) {
				continue
			} else if err != nil || want != "" {
				t.Errorf("%s, context %s: %v", file, c.Name, err)
				continue
			}
			got, want := understood(a), view.understood("testdata/kubeconfigs", c.Context.Cluster, c.Context.User)
			for _, o := range []object{got, want} {
				maps.DeleteFunc(o, func(_ string, v any) bool { return v == "" || v == false || v == nil })
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s, context %s:\n podcount %v\n kubectl  %v", file, c.Name, got, want)
			}
			contexts++
		}
	}
	if mode == "record" {
		text, _ := json.MarshalIndent(views, "", " ")
		os.WriteFile(recorded, append(text, '\n'), 0o644)
	}
	if t.Logf("%d contexts are understood as by kubectl", contexts); contexts < 30 {
		t.Error("these are too few")
	}
}

// load runs LoadConfig on files in a directory of their own.
func load(t *testing.T, files map[string]string, kubeconfig, contextName, master string, env map[string]string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
	}
	in := func(name string) string {
		if name == "" || filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	getenv := func(name string) string {
		switch name {
		case "HOME":
			return dir
		case "KUBECONFIG":
			var list []string
			for _, file := range filepath.SplitList(env[name]) {
				list = append(list, in(file))
			}
			return strings.Join(list, string(filepath.ListSeparator))
		}
		return env[name]
	}
	return LoadConfig(t.Context(), LoadOptions{Kubeconfig: in(kubeconfig), Context: contextName, Master: master, ServiceAccount: in("account"), Getenv: getenv})
}

func TestKubeconfigErrorsQuoteNoSecret(t *testing.T) {
	for _, user := range []string{
		"client-key-data: abc\n      s3cret", "token: s3cret: x", "token: *s3cret", `token: "abc"s3cret`, "token: %s3cret", "token: 's3cret", "token: |2\n  s3cret",
		"token: {s3cret", "token: [s3cret}", "\ttoken: s3cret", "token: !!int s3cret", `token: "\s3cret"`, "client-key-data: s3cret!", "token: a\n    s3cret", "{token: s3cret: }",
	} {
		_, err := load(t, map[string]string{"config": kubeconfigFor("https://h", nil, user)}, "config", "", "", nil)
		if err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", user, err)
		}
	}
}

func TestClusterIsFoundInTheOrderOfKubectl(t *testing.T) {
	_, ca := newFake().serveTLSFor(t)
	config := func(server string) string { return kubeconfigFor(server, ca, "token: t-"+server[8:]) }
	files := map[string]string{
		"flag": config("https://flag"), "env": config("https://env"), ".kube/config": config("https://home"),
		"account/token": "account-token\n", "account/ca.crt": string(ca),
	}
	pod := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "6443"}
	podAndEnv := map[string]string{"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBECONFIG": "env"}
	for _, c := range []struct {
		kubeconfig, master string
		env                map[string]string
		server, token      string
	}{
		{"flag", "", podAndEnv, "https://flag", "t-flag"},
		{"", "", podAndEnv, "https://env", "t-env"},
		{"", "", pod, "https://[fd00::1]:6443", "account-token"},
		{"", "", nil, "https://home", "t-home"},
		{"flag", "https://over:1/k8s/c-1", nil, "https://over:1/k8s/c-1", "t-flag"},
		{"", "", map[string]string{"KUBECONFIG": "missing" + string(filepath.ListSeparator) + "env" + string(filepath.ListSeparator) + "flag"}, "https://env", "t-env"},
	} {
		cfg, err := load(t, files, c.kubeconfig, "", c.master, c.env)
		if err != nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		if cred, _ := cfg.Credential(t.Context(), nil); cfg.Server.String() != c.server || cred.token != c.token || cred.tls.RootCAs == nil || cred.tls.InsecureSkipVerify {
			t.Errorf("%+v: found %s, token %s", c, cfg.Server, cred.token)
		}
	}
	if cfg, err := load(t, nil, "", "", "127.0.0.1:8001", nil); err != nil || cfg.Server.String() != "https://127.0.0.1:8001" {
		t.Errorf("-master alone: %v, %v", cfg, err)
	}
}

func TestWhatCannotBeUsedIsRefusedWithFileAndReason(t *testing.T) {
	good := kubeconfigFor("https://h", nil, "token: s3cret")
	for want, file := range map[string]string{
		`there is no context "other"`:                  strings.Replace(good, "current-context: fake", "current-context: other", 1),
		"no current-context":                           strings.Replace(good, "current-context: fake", "", 1),
		`there is no cluster "none"`:                   strings.Replace(good, "{cluster: fake", "{cluster: none", 1),
		`there is no user "none"`:                      strings.Replace(good, "user: me}", "user: none}", 1),
		"as-groups is not supported":                   strings.Replace(good, "token: s3cret", "as-groups: [a]", 1),
		"password is not supported":                    strings.Replace(good, "token: s3cret", "password: s3cret", 1),
		"exec: the apiVersion":                         strings.Replace(good, "token: s3cret", "exec: {command: aws, apiVersion: client.authentication.k8s.io/v1alpha1}", 1),
		"the token of":                                 strings.Replace(good, "token: s3cret", "token: \"s3cret\\nmore\"", 1),
		"apiVersion is \"v2\"":                         strings.Replace(good, "apiVersion: v1", "apiVersion: v2", 1),
		"there is no command in it":                    strings.Replace(good, "token: s3cret", "exec: {}", 1),
		"client-key is missing":                        strings.Replace(good, "token: s3cret", "client-certificate: c.crt", 1),
		"the cluster has no server":                    strings.Replace(good, "server: https://h", "server:", 1),
		"exec: there is no command":                    strings.Replace(good, "token: s3cret", "exec: {apiVersion: client.authentication.k8s.io/v1}", 1),
		"must be https://HOST":                         strings.Replace(good, "https://h", "ftp://h", 1),
		"no certificate in":                            strings.Replace(good, "certificate-authority-data: ", "certificate-authority-data: aGVsbG8=", 1),
		"client-certificate-data and client-key-data:": strings.Replace(good, "token: s3cret", "client-certificate-data: aGVsbG8=\n    client-key-data: aGVsbG8=", 1),
		"tokenFile: ":                                  strings.Replace(good, "token: s3cret", "tokenFile: empty", 1),
		"no such file":                                 strings.Replace(good, "token: s3cret", "tokenFile: none", 1),
		"config:3: ":                                   "a: 1\nb: 2\n  c: 3\n",
		"is not base64":                                strings.Replace(good, "certificate-authority-data: ", "certificate-authority-data: '%%%'", 1),
		"users[0].user.token must be a text":           strings.Replace(good, "token: s3cret", "token: 12345", 1),
	} {
		_, err := load(t, map[string]string{"config": file, "empty": " \n"}, "config", "", "", nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "config") || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	both := map[string]string{"config": good}
	inPod := map[string]string{"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
	list := map[string]string{"KUBECONFIG": "/nope/a" + string(filepath.ListSeparator) + "/nope/b"}
	for want, f := range map[string]func() (*Config, error){
		"-context x: there is no kubeconfig": func() (*Config, error) { return load(t, map[string]string{"account/token": "t"}, "", "x", "", inPod) },
		"-context y: there is no kubeconfig": func() (*Config, error) { return load(t, nil, "", "y", "https://h", nil) },
		"-master, ":                          func() (*Config, error) { return load(t, both, "config", "", "ftp://h", nil) },
		"/nope/a: no such file":              func() (*Config, error) { return load(t, nil, "", "", "", list) },
		"account/token: no such file":        func() (*Config, error) { return load(t, nil, "", "", "", inPod) },
		`that of another user "me"`: func() (*Config, error) {
			return load(t, map[string]string{"config": strings.Replace(good, "users:\n", "users:\n- name: me\n", 1)}, "config", "", "", nil)
		},
	} {
		if _, err := f(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := load(t, nil, "", "", "", nil); err == nil || !strings.Contains(err.Error(), "give -kubeconfig or -master") {
		t.Errorf("nothing to find: %v", err)
	}
}

func TestNoCredentialIsSentOrReadOrMadeForAnAddressOfPlainHTTP(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "program")
	writeFiles(t, dir, map[string]string{
		"program":       "#!/bin/sh\ntouch " + dir + "/has-run\n",
		"account/token": "s3cret",
	})
	os.Chmod(program, 0o700)
	for user, text := range map[string]string{
		"a token":              "token: s3cret",
		"a token's file":       "tokenFile: is-not-there",
		"a client certificate": "client-certificate: is-not-there\n    client-key: is-not-there",
		"a program":            "exec: {apiVersion: client.authentication.k8s.io/v1, command: " + program + "}",
		"the pod's account":    "",
	} {
		for _, address := range []string{"http://127.0.0.1:1", "http://localhost:8001", "http://192.0.2.10:8080", "HTTP://example.com"} {
			for _, where := range []string{"server", "-master"} {
				file, server, master := filepath.Join(dir, "config"), address, ""
				if where == "-master" {
					server, master = "https://h", address
				}
				config := strings.Replace(kubeconfigFor(server, nil, text), "certificate-authority-data: ", "certificate-authority: is-not-there", 1)
				writeFiles(t, dir, map[string]string{"config": config})
				env := map[string]string{}
				if text == "" && where == "server" {
					continue // a pod's server is always https://
				} else if text == "" {
					file, env["KUBERNETES_SERVICE_HOST"] = "", "10.0.0.1"
				}
				out := &logBuffer{}
				getenv := func(name string) string { return env[name] }
				cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: file, Master: master, ServiceAccount: filepath.Join(dir, "account"), Getenv: getenv, Log: newLog(out, &options{}).Logger})
				if err != nil {
					t.Errorf("%s, %s as %s: %v", user, address, where, err)
					continue
				}
				for range 2 {
					cred, err := cfg.Credential(t.Context(), nil)
					if err != nil || cred.token != "" || cred.tls.GetClientCertificate != nil {
						t.Errorf("%s is sent to %s as %s, or %v", user, address, where, err)
					} else if cred.tried != "nothing, as no credential is sent to an http:// address" {
						t.Errorf("after a 401, tried is %q", cred.tried)
					}
				}
				wantText(t, out.String(), `msg="no credential is sent, as the server's address begins with http://" server=`+cfg.Server.Host)
				wantNumber(t, "lines", strings.Count(out.String(), "\n"), 1)
			}
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "has-run")); err == nil {
		t.Error("the program has run")
	}
}

func TestKubectlProxyServesBesideTheKubeconfigOfAnotherCluster(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.allow("of this cluster")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"config": kubeconfigFor("https://another", nil, "token: of-another")})
		n := serveHandlerIn(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// As kubectl proxy does: what a client says of itself comes first.
			if r.Header.Get("Authorization") == "" {
				r.Header.Set("Authorization", "Bearer of this cluster")
			}
			f.ServeHTTP(w, r)
		}))
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-master", "http://127.0.0.1:8001", "-once")
		if err := p.finish(); err != nil {
			t.Error(err)
		}
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A folder of the working directory may be anybody's, and a kubeconfig names programs to run.
func TestWithoutHomeNoKubeconfigIsLookedForInTheWorkingDirectory(t *testing.T) {
	config := kubeconfigFor("https://h", nil, "exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true}")
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"$HOME/.kube/config": config, ".kube/config": config})
	t.Chdir(dir)
	nothing := func(string) string { return "" }
	for contextName, want := range map[string]string{
		"":     "no cluster found: give -kubeconfig or -master, or set KUBECONFIG (KUBERNETES_SERVICE_HOST is not set, so this is no pod; HOME is not set, so there is no ~/.kube/config)",
		"fake": "-context fake: there is no kubeconfig that could have it: give -kubeconfig, or set KUBECONFIG (HOME is not set, so there is no ~/.kube/config)",
	} {
		if cfg, err := LoadConfig(t.Context(), LoadOptions{Context: contextName, ServiceAccount: dir, Getenv: nothing}); err == nil || err.Error() != want {
			t.Errorf("found %+v, %v; want %s", cfg, err, want)
		}
	}
	if cfg, err := LoadConfig(t.Context(), LoadOptions{Master: "https://h", ServiceAccount: dir, Getenv: nothing}); err != nil || cfg.Source != "-master" {
		t.Errorf("-master alone: %+v, %v", cfg, err)
	}
}

func TestMainJobOverTLSAndHTTP2WithATokenAndWithAClientCertificate(t *testing.T) {
	ca1 := newAuthority(t, "clients")
	cert, key := ca1.issue(t, "me", nil)
	f := newFake()
	f.allow("good")
	f.clientCA = ca1.pool()
	f.addNode("cp", controlPlane)
	f.addPods(3000) // enough for gzip
	srv, ca := f.serveTLS()
	defer srv.Close()
	for name, user := range map[string]string{
		"token":              "token: good",
		"client certificate": "client-certificate-data: " + base64.StdEncoding.EncodeToString(cert) + "\n    client-key-data: " + base64.StdEncoding.EncodeToString(key),
	} {
		f.setLabel("cp", podCountLabel, nil)
		file := filepath.Join(t.TempDir(), "config")
		os.WriteFile(file, []byte(kubeconfigFor(srv.URL, ca, user)), 0o600)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		log := &logBuffer{}
		go func() {
			ended <- run(ctx, []string{"-kubeconfig", file}, func(string) string { return "" }, io.Discard, log, nil)
		}()
		f.await(t, "the right label, by "+name, func() bool { return f.label("cp", podCountLabel) == "3000" })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("%s: %v\n%s", name, err, log)
		}
	}
	for _, s := range f.asked(func(s seen) bool { return !s.HTTP2 }) {
		t.Errorf("not over HTTP/2: %s", s)
	}
}

// authority is a CA. Its certificates hold from 1990, as virtual time begins in 2000, to 2100.
type authority struct {
	cert *x509.Certificate // nil: it signs its own, which is made first
	key  *ecdsa.PrivateKey
}

// newAuthority makes a CA of this name.
func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	ca := &authority{}
	certPEM, keyPEM := ca.issue(t, name, func(c *x509.Certificate) {
		c.IsCA = true
		c.KeyUsage = x509.KeyUsageCertSign
	})
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	ca.cert = pair.Leaf
	ca.key = pair.PrivateKey.(*ecdsa.PrivateKey)
	return ca
}

// issue makes a certificate of this name, and its key, both in PEM. It is for servers at 127.0.0.1 and for clients,
// unless change, which may be nil, makes it something else.
func (ca *authority) issue(t testing.TB, name string, change func(*x509.Certificate)) (certPEM, keyPEM []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber:          big.NewInt(rand.Int64()),
		Subject:               pkix.Name{CommonName: name},
		NotBefore:             time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC),
		NotAfter:              time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	if change != nil {
		change(c)
	}
	parent := ca.cert
	signer := ca.key
	if parent == nil {
		parent = c
		signer = key
	}
	der, err := x509.CreateCertificate(crand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certPEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM = pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	return certPEM, keyPEM
}

// pem is the CA's certificate in PEM.
func (ca *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// pool has the CA's certificate alone.
func (ca *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

func TestServerThatIsNotVerifiedIsNotSpokenTo(t *testing.T) {
	f := newFake()
	server, _ := f.serveTLSFor(t)
	cfg, err := load(t, map[string]string{"config": kubeconfigFor(server, nil, "token: t")}, "config", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(&options{}, cfg, nil, quietLog())
	defer client.Close()
	if err := client.Send(t.Context(), request{method: "GET", path: "/api/v1/nodes"}, nil); err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
		t.Errorf("answered %v", err)
	}
	wantNumber(t, "requests that arrived", len(f.asked(func(seen) bool { return true })), 0)
}

func TestRedirectIsNotFollowed(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.inject(t, fault{match: to(isList("pods")), status: 307, header: map[string]string{"Location": "http://127.0.0.1:1/elsewhere"}, body: "moved"})
		p := startPodcount(t, f)
		synctest.Wait()
		wantText(t, p.log.String(), "list pods: 307 Temporary Redirect")
		wantNumber(t, "requests elsewhere", len(f.asked(func(s seen) bool { return s.Path == "/elsewhere" })), 0)
	})
}

// writeFiles writes files into dir.
func writeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTokenFileIsReadAgainEveryMinuteAndAfterA401AndAGapIsSaidOnce(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) { writeFiles(t, dir, map[string]string{"token": text}) }
	write("one\n")
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.allow("one", "two", "three")
		n := f.serveAs(t, dir, "tokenFile: token\n    token: the-file-wins")
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		users := func(want string) { // of the writes so far
			t.Helper()
			var got []string
			for _, s := range f.asked(isWrite) {
				got = append(got, s.User)
			}
			if users := strings.Join(got, " "); users != want {
				t.Errorf("written by %s, want %s", users, want)
			}
		}
		addPod := func() {
			f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
			pass(2 * time.Second)
		}
		users("one")
		write("two")
		addPod()
		users("one one")
		pass(time.Minute)
		addPod()
		users("one one two")
		write("three\n")
		f.allow("three")
		addPod()
		users("one one two two three") // refused, and sent again at once
		for _, gap := range []func(){
			func() { write(" \n") },
			func() { write("half of one\n") },
			func() { os.Remove(filepath.Join(dir, "token")) },
		} {
			gap()
			pass(10 * time.Minute)
			addPod()
			pass(10 * time.Minute)
		}
		users("one one two two three three three three")
		wantNumber(t, "words on the gap", strings.Count(p.log.String(), "going on with what there was"), 1)
		write("four")
		f.allow("four")
		addPod()
		if writes := f.asked(isWrite); writes[len(writes)-1].User != "four" {
			t.Errorf("written by %s, want four", writes[len(writes)-1].User)
		}
		wantNumber(t, "words on its end", strings.Count(p.log.String(), "the credential can be read again"), 1)
	})
}

func TestWrongTokenIsTriedOnceAndNamedByItsPlace(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.allow("another")
		dir := t.TempDir()
		writeFiles(t, dir, map[string]string{"token": "s3cret"})
		p := startPodcountOn(t, f.serveAs(t, dir, "tokenFile: token"), "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantNumber(t, "tries", len(f.asked(func(seen) bool { return true })), 3) // of each list, and of discovery, one
		wantText(t, p.log.String(), "list pods: 401 Unauthorized: Unauthorized (what was not accepted: the token of "+dir+"/token)")
		if strings.Contains(p.log.String(), "s3cret") {
			t.Error("the token is in the log")
		}
		f.allow("s3cret")
		f.addNode("cp", controlPlane)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "0")
	})
}

// A kubelet keeps a volume's files behind a link ..data, which it replaces.
func TestCertificatesThatChangeAreUsedByTheNextRequestWhileWatchesGoOn(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		old, recent, clients := newAuthority(t, "old CA"), newAuthority(t, "recent CA"), newAuthority(t, "clients")
		var server atomic.Pointer[tls.Certificate]
		serveWith := func(ca *authority) {
			certPEM, keyPEM := ca.issue(t, "server", nil)
			pair, err := tls.X509KeyPair(certPEM, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			server.Store(&pair)
		}
		dir := t.TempDir()
		swap := func(version, user string, cas ...*authority) {
			cert, key := clients.issue(t, user, nil)
			bundle := ""
			for _, ca := range cas {
				bundle += string(ca.pem())
			}
			writeFiles(t, dir, map[string]string{version + "/ca.crt": bundle, version + "/tls.crt": string(cert), version + "/tls.key": string(key)})
			os.Symlink(version, filepath.Join(dir, "..tmp"))
			if err := os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")); err != nil {
				t.Fatal(err)
			}
		}
		swap("v1", "one", old)
		for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
			os.Symlink("..data/"+name, filepath.Join(dir, name))
		}
		config := strings.Replace(kubeconfigFor("https://127.0.0.1:1", nil, "client-certificate: tls.crt\n    client-key: tls.key"), "certificate-authority-data: ", "certificate-authority: ca.crt", 1)
		writeFiles(t, dir, map[string]string{"config": config})
		f.allow()
		f.clientCA = clients.pool()
		f.addNode("cp", controlPlane)
		serveWith(old)
		n := f.serveIn(t, server.Load)
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-interval", "1s", "-pod-events", "off")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		connections := n.dialed()

		swap("v2", "two", old, recent)
		pass(2 * time.Second)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "connections, one of them new", n.dialed(), connections+1)
		last := func(match func(seen) bool) string {
			found := f.asked(match)
			return found[len(found)-1].User
		}
		if last(isWrite) != "two" || last(isWatch("pods")) != "one" {
			t.Errorf("written by %s, watched by %s", last(isWrite), last(isWatch("pods")))
		}
		wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 1)

		// The key of another certificate, a CA that is none, and nothing at all: the old ones stay.
		good, _ := os.ReadFile(dir + "/v2/tls.key")
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key"})
		pass(2 * time.Second)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(2 * time.Second)
		writeFiles(t, dir, map[string]string{"v2/tls.key": string(good)})
		pass(2 * time.Second)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(2 * time.Second)
		wantNumber(t, "words on the end of what did not fit", strings.Count(p.log.String(), "can be read again"), 1)
		writeFiles(t, dir, map[string]string{"v2/tls.key": "no key", "v2/ca.crt": "no CA"})
		os.Remove(filepath.Join(dir, "v2/tls.crt"))
		pass(2 * time.Second)
		for range 3 {
			f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
			pass(time.Minute) // all in all less than 5, when watches may begin to end
		}
		wantLabel(t, f, "cp", podCountLabel, "6")
		wantNumber(t, "words on what is missing, and does not fit, once each time", strings.Count(p.log.String(), "going on with what there was"), 2)

		serveWith(recent)
		swap("v3", "three", recent)
		pass(2 * time.Second) // a discovery may just have read the files
		f.endWatches(true)
		pass(2 * time.Second)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(2 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "7")
		if last(isWrite) != "three" || last(isWatch("pods")) != "three" {
			t.Errorf("written by %s, watched by %s", last(isWrite), last(isWatch("pods")))
		}
		wantNumber(t, "lists of pods", len(f.asked(isList("pods"))), 1)
		wantPeace(t, f, "-interval", "1s")
	})
}

// plugin is an exec program, for tests: it notes in dir that it ran, and how, and prints what dir/answer says.
func plugin(dir string) int {
	stdin, _ := io.ReadAll(os.Stdin)
	run := fmt.Sprintf("%q stdin=%q REGION=%s %s\n", os.Args[1:], stdin, os.Getenv("REGION"), os.Getenv("KUBERNETES_EXEC_INFO"))
	runs, _ := os.OpenFile(filepath.Join(dir, "runs"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	runs.WriteString(run)
	runs.Close()
	answer, _ := os.ReadFile(filepath.Join(dir, "answer"))
	if trouble, ok := strings.CutPrefix(string(answer), "exit "); ok {
		fmt.Fprintln(os.Stderr, trouble)
		return 1
	} else if string(answer) == "hang" {
		signal.Ignore(os.Interrupt)
		<-time.After(time.Hour)
	}
	os.Stdout.Write(answer)
	return 0
}

// execConfig is the kubeconfig's user for plugin in dir, with more fields.
func execConfig(t *testing.T, dir, version, more string) string {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("exec: {apiVersion: client.authentication.k8s.io/%s, command: %s, args: [get, \"a token\"], env: [{name: PODCOUNT_TEST_PLUGIN, value: %s}, {name: REGION, value: eu}]%s}", version, self, dir, more)
}

func credentialText(version string, status object) string {
	text, _ := json.Marshal(object{"kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/" + version, "status": status})
	return string(text)
}

func TestExecCredentialIsKeptUntilItExpiresOrIsRefused(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("starts dozens of processes, each half a second under the race detector, and one after the other")
	}
	dir := t.TempDir()
	runs := func() []string {
		text, _ := os.ReadFile(filepath.Join(dir, "runs"))
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
	answer := func(token string, expires time.Time) {
		status := object{"token": token}
		if !expires.IsZero() {
			status["expirationTimestamp"] = expires.UTC().Format(time.RFC3339)
		}
		writeFiles(t, dir, map[string]string{"answer": credentialText("v1beta1", status)})
	}
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.allow("one", "two")
		f.addNode("cp", controlPlane)
		answer("one", time.Now().Add(10*time.Minute))
		n := f.serveAs(t, dir, execConfig(t, dir, "v1beta1", ", interactiveMode: IfAvailable, provideClusterInfo: false"))
		config, _ := os.ReadFile(filepath.Join(dir, "config"))
		more := "    tls-server-name: 127.0.0.1\n    extensions: [{name: client.authentication.k8s.io/exec, extension: {audience: us}}, {name: else, extension: 1}]\n"
		writeFiles(t, dir, map[string]string{"config": strings.Replace(string(config), "    certificate-authority-data: ", more+"    certificate-authority-data: ", 1)})
		p := startPodcountOn(t, n, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		wantNumber(t, "runs, for all requests at the start", len(runs()), 1)
		want := `["get" "a token"] stdin="" REGION=eu {"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{"interactive":false}}`
		if runs()[0] != want {
			t.Errorf("it ran as\n%s, want\n%s", runs()[0], want)
		}

		answer("two", time.Time{})
		pass(11 * time.Minute)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		wantNumber(t, "runs once it has expired", len(runs()), 2)
		pass(24 * time.Hour)
		wantNumber(t, "runs of what does not expire", len(runs()), 2)

		answer("three", time.Time{})
		f.allow("three")
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantNumber(t, "runs once it was refused", len(runs()), 3)

		// A program that fails, and a server that refuses what it gives, cost a run each 5 s at most.
		writeFiles(t, dir, map[string]string{"answer": "exit the server of tokens is down"})
		f.allow("four")
		f.endWatches(false)
		pass(time.Minute)
		if n := len(runs()) - 3; n < 3 || n > 13 {
			t.Errorf("%d runs in a minute of failure", n)
		}
		wantText(t, p.log.String(), `exit status 1, saying \"the server of tokens is down\"`)
		answer("wrong", time.Time{})
		pass(2 * time.Minute)
		before := len(runs())
		pass(time.Minute)
		if n := len(runs()) - before; n > 13 {
			t.Errorf("%d runs in a minute of refusals", n)
		}
		answer("four", time.Time{})
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(2 * time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, token := range []string{"\"one\"", "\"two\"", "=four", "\"four\"", "wrong"} {
			if strings.Contains(p.log.String(), token) {
				t.Errorf("%s is in the log", token)
			}
		}
	})
}

func TestLabelsEqualTheTruthWhateverBecomesOfCredentials(t *testing.T) {
	token := "tokenFile: token"
	for name, c := range map[string]struct {
		from    string // in the kubeconfig; "" is an exec program
		happens func(f *fakeServer, write func(token string), pause func(seconds int))
	}{
		"a token is renewed in time": {token, func(f *fakeServer, write func(string), pause func(int)) {
			f.allow("one", "two")
			write("two")
			pause(61)
			f.allow("two")
			f.endWatches(true)
		}},
		"a token is refused before there is another": {token, func(f *fakeServer, write func(string), pause func(int)) {
			f.allow("two")
			f.endWatches(true)
			pause(45)
			write("two")
		}},
		"a token's file is empty, then gone": {token, func(f *fakeServer, write func(string), pause func(int)) {
			write("")
			pause(61)
			f.allow("two")
			f.endWatches(true)
			write("-")
			pause(30)
			write("two")
		}},
		"a token's file has a wrong one first": {token, func(f *fakeServer, write func(string), pause func(int)) {
			f.allow("two")
			write("stranger")
			f.endWatches(true)
			pause(30)
			write("two")
		}},
		"nobody is known to the server for a while": {token, func(f *fakeServer, write func(string), pause func(int)) {
			f.allow()
			f.endWatches(true)
			pause(45)
			f.allow("one")
		}},
		"a program's token is refused": {"", func(f *fakeServer, write func(string), pause func(int)) {
			write("two")
			f.allow("two")
		}},
		"a program fails just when it is needed": {"", func(f *fakeServer, write func(string), pause func(int)) {
			write("exit 1")
			f.allow("two")
			f.endWatches(true)
			pause(30)
			write("two")
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write := func(token string) {
				switch {
				case token == "-":
					os.Remove(filepath.Join(dir, "token"))
				case strings.HasPrefix(token, "exit"):
					writeFiles(t, dir, map[string]string{"answer": token})
				default:
					writeFiles(t, dir, map[string]string{"token": token, "answer": credentialText("v1", object{"token": token})})
				}
			}
			from := c.from
			if from == "" {
				from = execConfig(t, dir, "v1", ", interactiveMode: Never")
			}
			simulate(t, func(t *testing.T, f *fakeServer) {
				write("one")
				f.allow("one")
				n := f.serveAs(t, dir, from)
				start := func(args ...string) *program {
					return startPodcountOn(t, n, append(args, "-kubeconfig", filepath.Join(dir, "config"), "-v", "6")...)
				}
				surviveFrom(t, f, start, func(*program) {
					c.happens(f, write, func(seconds int) { sleep(t.Context(), time.Duration(seconds)*time.Second) })
				})
				if f.lets("two") && len(f.asked(func(s seen) bool { return s.User == "two" })) == 0 {
					t.Error("the new token was not used")
				}
			})
		})
	}
}

func TestExecProgramMayGiveAClientCertificate(t *testing.T) {
	dir := t.TempDir()
	simulate(t, func(t *testing.T, f *fakeServer) {
		servers, clients := newAuthority(t, "servers"), newAuthority(t, "clients")
		certPEM, keyPEM := servers.issue(t, "server", nil)
		server, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		answer := func(name string, expires time.Time) {
			cert, key := clients.issue(t, name, nil)
			writeFiles(t, dir, map[string]string{"answer": credentialText("v1", object{"clientCertificateData": string(cert), "clientKeyData": string(key), "expirationTimestamp": expires})})
		}
		f.allow()
		f.clientCA = clients.pool()
		f.addNode("cp", controlPlane)
		answer("one", time.Now().Add(time.Minute))
		writeFiles(t, dir, map[string]string{"config": kubeconfigFor("https://127.0.0.1:1", servers.pem(), execConfig(t, dir, "v1", ", interactiveMode: Never"))})
		startPodcountOn(t, f.serveIn(t, func() *tls.Certificate { return &server }), "-kubeconfig", filepath.Join(dir, "config"))
		synctest.Wait()
		wantLabel(t, f, "cp", podCountLabel, "0")
		answer("two", time.Now().Add(time.Hour))
		pass(time.Minute)
		f.addPod("default", fmt.Sprint("p", len(f.all("pods"))), "cp")
		pass(20 * time.Second)
		wantLabel(t, f, "cp", podCountLabel, "1")
		writes := f.asked(isWrite)
		if len(writes) != 2 || writes[0].User != "one" || writes[1].User != "two" {
			t.Errorf("written by %v", writes)
		}
		wantNumber(t, "watches", len(f.asked(isWatch("pods"))), 1)
	})
}

func TestExecAnswersThatAreNoCredentialAreErrors(t *testing.T) {
	if fewer(1) == 0 {
		t.Skip("starts dozens of processes, each half a second under the race detector, and one after the other")
	}
	dir := t.TempDir()
	self, _ := os.Executable()
	for answer, want := range map[string]string{
		"":                "what it printed (0 bytes) is no ExecCredential",
		"s3cret":          "invalid character",
		"exit  why\n not": `exit status 1, saying "why not"`,
		"hang":            "it took longer than 200ms",
		credentialText("v1beta1", object{"token": "s3cret"}):                                       `printed a "ExecCredential" of "client.authentication.k8s.io/v1beta1", not an ExecCredential of client.authentication.k8s.io/v1`,
		`{"kind":"Pod","status":{"token":"s3cret"}}`:                                               `printed a "Pod"`,
		credentialText("v1", object{}):                                                             "gave no token",
		credentialText("v1", object{"clientCertificateData": "s3cret"}):                            "gave no token, and no clientCertificateData with clientKeyData",
		credentialText("v1", object{"token": 1}):                                                   "cannot unmarshal number",
		credentialText("v1", object{"token": "x", "clientKeyData": "y"}):                           "gave no token, and no clientCertificateData with clientKeyData",
		credentialText("v1", object{"clientCertificateData": "s3cret", "clientKeyData": "s3cret"}): "gave: tls: failed to find any PEM data",
		strings.Repeat("s3cret ", 1<<18):                                                           "it printed more than 1 MB",
	} {
		writeFiles(t, dir, map[string]string{"answer": answer})
		e := &execPlugin{apiVersion: "client.authentication.k8s.io/v1", command: self, env: []string{"PODCOUNT_TEST_PLUGIN=" + dir}, limit: time.Minute}
		if answer == "hang" {
			e.limit = 200 * time.Millisecond
		}
		if _, err := e.run(t.Context()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.100q: %v, want %s", answer, err, want)
		}
	}
}

// A program may leave an agent behind, which has its stdout and stderr.
func TestExecProgramWhoseChildKeepsItsOutputOpenIsNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"answer": credentialText("v1", object{"token": "good"}), "agent": "#!/bin/sh\nsleep 600 &\necho $! >" + dir + "/pid\ncat " + dir + "/answer\n"})
	os.Chmod(dir+"/agent", 0o700)
	e := &execPlugin{apiVersion: "client.authentication.k8s.io/v1", command: dir + "/agent", limit: time.Minute}
	got, err := e.run(t.Context())
	if pid, _ := os.ReadFile(dir + "/pid"); len(pid) > 0 {
		exec.Command("kill", strings.TrimSpace(string(pid))).Run()
	}
	if err != nil || got.Token != "good" {
		t.Errorf("%+v, %v", got, err)
	}
}

// slowProgram is an exec program that takes as long as a test wants: it has run once started has been read, and gives a
// token when something is written to carryOn.
func slowProgram(t *testing.T) (cfg *Config, started, carryOn, runs string) {
	t.Helper()
	dir := t.TempDir()
	started, carryOn, runs = dir+"/started", dir+"/carry-on", dir+"/runs"
	for _, pipe := range []string{started, carryOn} {
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeFiles(t, dir, map[string]string{
		"config":  kubeconfigFor("https://h", nil, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./program}"),
		"program": fmt.Sprintf("#!/bin/sh\necho run >>%s\necho $$ >%s\nexec cat %s\n", runs, started, carryOn),
	})
	os.Chmod(dir+"/program", 0o700)
	cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/config", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cfg.Close)
	return cfg, started, carryOn, runs
}

func TestExecProgramIsWaitedForAsLongAsEachCallerCanAndServesTheNext(t *testing.T) {
	cfg, started, carryOn, runs := slowProgram(t)
	patient := startTask(func() (*Credential, error) { return cfg.Credential(t.Context(), nil) })
	os.ReadFile(started)
	for range 2 {
		gone, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, errRelist)
		defer cancel()
		hurried := startTask(func() (*Credential, error) { return cfg.Credential(gone, nil) })
		within, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := hurried.wait(within); err != nil {
			t.Fatal("a caller waits longer than it can")
		}
		if err := hurried.err; !errors.Is(err, errRelist) || !strings.Contains(err.Error(), "waiting for a credential") {
			t.Errorf("a caller that could not wait got %v", err)
		}
	}
	os.WriteFile(carryOn, []byte(credentialText("v1", object{"token": "good"})), 0)
	if patient.wait(t.Context()); patient.err != nil || patient.value.token != "good" {
		t.Errorf("a caller that could wait got %+v, %v", patient.value, patient.err)
	}
	if got, err := cfg.Credential(t.Context(), nil); err != nil || got.token != "good" {
		t.Errorf("the next one got %+v, %v", got, err)
	}
	text, _ := os.ReadFile(runs)
	wantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

// A server that refuses for a moment, and a program that fails at that moment, are no reason to throw away what is good.
func TestExecCredentialThatIsGoodSurvivesARunThatFails(t *testing.T) {
	dir, log := t.TempDir(), &logBuffer{}
	writeFiles(t, dir, map[string]string{
		"config":  kubeconfigFor("https://h", nil, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./program}"),
		"program": "#!/bin/sh\nhead -c 2000000 /dev/zero >&2\nexec cat " + dir + "/answer\n", // who cares what it says there
	})
	os.Chmod(dir+"/program", 0o700)
	synctest.Test(t, func(t *testing.T) {
		expires := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		status := object{"token": "good", "expirationTimestamp": expires}
		writeFiles(t, dir, map[string]string{"answer": credentialText("v1", status)})
		cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/config", Getenv: func(string) string { return "" }, Log: newLog(log, &options{}).Logger})
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		good, err := cfg.Credential(t.Context(), nil)
		if err != nil || good.token != "good" {
			t.Fatal(good, err)
		}
		os.Remove(dir + "/answer")
		pass(time.Minute)
		for _, refused := range []*Credential{good, nil, good} {
			if got, err := cfg.Credential(t.Context(), refused); got != good || err != nil {
				t.Errorf("while it is good: %v, %v", got, err)
			}
		}
		wantNumber(t, "words on the program", strings.Count(log.String(), "going on with what there was"), 1)
		pass(time.Hour)
		if got, err := cfg.Credential(t.Context(), nil); err == nil {
			t.Errorf("after its end there is %v", got)
		}
	})
}

func TestTaskThatIsDoneIsNotMissedBecauseTheTimeIsOver(t *testing.T) {
	done := startTask(func() (int, error) { return 1, nil })
	<-done.done
	over, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if err := done.wait(over); err != nil {
			t.Fatal(err)
		}
	}
}

func TestExecProgramThatItsOnlyCallerDidNotWaitForServesTheNext(t *testing.T) {
	cfg, started, carryOn, runs := slowProgram(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := cfg.Credential(gone, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("the one that had gone got %v", err)
	}
	os.ReadFile(started)
	os.WriteFile(carryOn, []byte(credentialText("v1", object{"token": "good"})), 0)
	if got, err := cfg.Credential(t.Context(), nil); err != nil || got.token != "good" {
		t.Errorf("the next one got %+v, %v", got, err)
	}
	text, _ := os.ReadFile(runs)
	wantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

func TestCloseEndsTheExecProgramAndNoOtherIsStarted(t *testing.T) {
	cfg, started, _, runs := slowProgram(t)
	waiting := startTask(func() (*Credential, error) { return cfg.Credential(t.Context(), nil) })
	text, _ := os.ReadFile(started)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	cfg.Close()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("the program, %d, is still there: %v", pid, err)
	}
	if waiting.wait(t.Context()); waiting.err == nil || !strings.Contains(waiting.err.Error(), "podcount ends") {
		t.Errorf("the one that waited got %v", waiting.err)
	}
	if _, err := cfg.Credential(t.Context(), nil); err == nil {
		t.Error("there is a credential after the end")
	}
	text, _ = os.ReadFile(runs)
	wantNumber(t, "runs", strings.Count(string(text), "\n"), 1)
}

// A renewal that runs already may have read the token's file before the server refused what was in it, or not at all.
func TestRefusedCredentialIsReadAgainThoughAnotherRenewalRuns(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		writeFiles(t, dir, map[string]string{"token": "one", "config": kubeconfigFor("https://h", nil, "tokenFile: token")})
		cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/config", Getenv: func(string) string { return "" }})
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		a := cfg.access
		refused := a.now
		finish := make(chan struct{})
		a.renewal = &renewal{task: startTask(func() (*Credential, error) {
			<-finish
			return a.renew(false)
		})}
		writeFiles(t, dir, map[string]string{"token": "two"})
		var callers []*task[*Credential]
		for range 3 {
			callers = append(callers, startTask(func() (*Credential, error) { return cfg.Credential(t.Context(), refused) }))
		}
		synctest.Wait()
		close(finish)
		for _, c := range callers {
			if c.wait(t.Context()); c.err != nil || c.value.token != "two" {
				t.Errorf("a caller got %+v, %v", c.value, c.err)
			}
		}
	})
}

func TestExecProgramIsNotRunMoreOftenThanEveryFiveSecondsWhoeverAsks(t *testing.T) {
	dir := t.TempDir()
	self, _ := os.Executable()
	writeFiles(t, dir, map[string]string{"answer": "exit out of order"})
	synctest.Test(t, func(t *testing.T) {
		e := &execPlugin{apiVersion: "client.authentication.k8s.io/v1", command: self, env: []string{"PODCOUNT_TEST_PLUGIN=" + dir}, limit: time.Minute}
		for range 3 {
			for range 10 {
				if _, err := e.newest(t.Context(), true); err == nil || !strings.Contains(err.Error(), "out of order") {
					t.Errorf("answered %v", err)
				}
			}
			pass(execPause)
		}
	})
	runs, _ := os.ReadFile(dir + "/runs")
	wantNumber(t, "runs for 30 callers in 15 s", strings.Count(string(runs), "\n"), 3)
}

func TestFileOfACredentialThatIsNoRegularOneIsRefusedAndNotWaitedFor(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for field, user := range map[string]string{
		"tokenFile":          "tokenFile: FILE",
		"client-certificate": "client-certificate: FILE\n    client-key: FILE",
	} {
		for _, file := range []string{dir + "/pipe", "/dev/zero", dir} {
			writeFiles(t, dir, map[string]string{"config": kubeconfigFor("https://h", nil, strings.ReplaceAll(user, "FILE", file))})
			want := dir + "/config, context fake: " + field + ": " + file + " is no regular file"
			_, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/config", Getenv: func(string) string { return "" }})
			if err == nil || err.Error() != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
}

func TestFileWithoutAnEndIsNotReadToIt(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"big": "", "config": kubeconfigFor("https://h", nil, "tokenFile: big")})
	os.Truncate(dir+"/big", fileSize+1)
	for file, want := range map[string]string{
		dir + "/config": dir + "/config, context fake: tokenFile: " + dir + "/big has more than 16 MB",
		"/dev/zero":     "/dev/zero has more than 16 MB",
	} {
		_, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: file, Getenv: func(string) string { return "" }})
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestKubeconfigMayComeThroughAPipe(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	go os.WriteFile(dir+"/pipe", []byte(kubeconfigFor("https://h", nil, "token: good")), 0)
	cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/pipe", Getenv: func(string) string { return "" }})
	if err != nil {
		t.Fatal(err)
	}
	if cred, err := cfg.Credential(t.Context(), nil); err != nil || cred.token != "good" {
		t.Errorf("%+v, %v", cred, err)
	}
}

func TestStopEndsAStartThatWaitsForAFile(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(dir+"/pipe", 0o600); err != nil {
		t.Fatal(err)
	}
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		cmd, lines := process(t, nil, "-kubeconfig", dir+"/pipe")
		pipe, err := os.OpenFile(dir+"/pipe", os.O_WRONLY, 0) // waits until podcount has opened it to read
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		cmd.Process.Signal(sig)
		for line := range lines {
			t.Errorf("it says %s", line)
		}
		cmd.Wait()
		pipe.Close()
		if code := cmd.ProcessState.ExitCode(); code != 0 || time.Since(start) > 3*time.Second {
			t.Errorf("%v: exit code %d after %v", sig, code, time.Since(start))
		}
	}
}

// A file system that hangs does so in the kernel, which no test can do in virtual time: there, a reading without an end.
func TestFileThatHangsIsWaitedForFiveSecondsAtTheStartAndNotAtAllOnceItIsKnown(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		out := &logBuffer{}
		writeFiles(t, dir, map[string]string{"token": "one"})
		hang := func() *task[[]byte] { return &task[[]byte]{done: make(chan struct{})} }
		a := &access{source: "here", server: "https://h", log: newLog(out, &options{}).Logger}
		a.token = part{field: "tokenFile", file: dir + "/token", age: tokenAge, reading: hang()}
		start := time.Now()
		want := "here: tokenFile: " + dir + "/token: it could not be read in time (5s)"
		if _, err := a.config(t.Context()); err == nil || err.Error() != want || time.Since(start) != fileTime {
			t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
		}

		a = &access{source: "here", server: "https://h", log: newLog(out, &options{}).Logger}
		a.token = part{field: "tokenFile", file: dir + "/token", age: tokenAge}
		cfg, err := a.config(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer cfg.Close()
		first, _ := cfg.Credential(t.Context(), nil)
		hanging := hang()
		a.token.reading = hanging
		for i, wait := range []time.Duration{fileWait, 0, 0} {
			start = time.Now()
			cred, err := cfg.Credential(t.Context(), first)
			if err != nil || cred != first || time.Since(start) != wait || a.token.reading != hanging {
				t.Errorf("request %d: %+v, %v, after %v, want %v", i, cred, err, time.Since(start), wait)
			}
		}
		hanging.value = []byte("two\n")
		close(hanging.done)
		if cred, err := cfg.Credential(t.Context(), nil); err != nil || cred.token != "two" {
			t.Errorf("once it does not hang, %+v, %v", cred, err)
		}
		wantNumber(t, "words on what hangs", strings.Count(out.String(), "going on with what there was"), 1)
		wantText(t, out.String(), "it could not be read in time (1s)")
		wantNumber(t, "words on its end", strings.Count(out.String(), "the credential can be read again"), 1)
	})
}

// Linux lets an open() wait for whoever holds a lease of the file, as the hanging server of a network's file system would.
func TestOpenThatHangsHoldsNobodyUp(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs leases of files, as Linux has them")
	}
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"token": "one", "config": kubeconfigFor("https://h", nil, "tokenFile: token")})
	nothing := func(string) string { return "" }
	cfg, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: dir + "/config", Getenv: nothing})
	if err != nil {
		t.Fatal(err)
	}
	defer cfg.Close()
	first, _ := cfg.Credential(t.Context(), nil)
	holder, err := os.OpenFile(dir+"/token", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	const setLease, writeLease = 1024, 1
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, holder.Fd(), setLease, writeLease); errno != 0 {
		holder.Close()
		t.Skip("no leases on this file system: ", errno)
	}
	start := time.Now()
	cred, err := cfg.Credential(t.Context(), first)
	if took := time.Since(start); err != nil || cred != first || took < fileWait || took > fileWait+5*time.Second {
		t.Errorf("while it hangs, %+v, %v, after %v", cred, err, took)
	}
	hurried, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start = time.Now()
	if _, err := LoadConfig(hurried, LoadOptions{Kubeconfig: dir + "/config", Getenv: nothing}); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 3*time.Second {
		t.Errorf("a start that is stopped: %v after %v", err, time.Since(start))
	}
	holder.WriteString("two")
	holder.Close()
	<-cfg.access.token.reading.done
	if cred, err := cfg.Credential(t.Context(), nil); err != nil || cred.token != "two" {
		t.Errorf("once it does not hang, %+v, %v", cred, err)
	}
}

func TestExecProgramBesideTheKubeconfigIsNotLookedForInThePath(t *testing.T) {
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"here/plugin": "#!/bin/sh\n", "path/plugin": "#!/bin/sh\n", "here/config": kubeconfigFor("https://h", nil, "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./plugin}")})
	os.Chmod(dir+"/here/plugin", 0o700)
	os.Chmod(dir+"/path/plugin", 0o700)
	t.Setenv("PATH", dir+"/path")
	t.Chdir(dir + "/here")
	a := &access{log: quietLog().Logger}
	if err := a.readKubeconfigs(t.Context(), []string{"config"}, ""); err != nil || !strings.HasSuffix(a.exec.command, "/here/plugin") || !filepath.IsAbs(a.exec.command) {
		t.Errorf("%v, %+v", err, a.exec)
	}
}

func TestMasterIsEnoughWhereTheKubeconfigHasNothing(t *testing.T) {
	for _, config := range []string{"", "apiVersion: v1\nkind: Config\nclusters: []\n"} {
		cfg, err := load(t, map[string]string{".kube/config": config}, "", "", "http://127.0.0.1:8001", nil)
		if err != nil || cfg.Server.String() != "http://127.0.0.1:8001" {
			t.Errorf("%q: %v", config, err)
		}
	}
}

func TestTLSErrorsNameWhatWasTriedAndWhatToDo(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	for name, c := range map[string]struct {
		trusted *authority
		change  func(*x509.Certificate)
		cluster string // more of its fields
		want    string
	}{
		"wrong CA":    {other, nil, "", `certificate signed by unknown authority (give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=the CA")`},
		"wrong name":  {ca, nil, "    tls-server-name: api.example.com\n", "certificate is not valid for any names, but wanted to match api.example.com (give one of these names as tls-server-name"},
		"wrong host":  {ca, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"a.example.com"} }, "", "(give one of these names as tls-server-name"},
		"its expired": {ca, func(c *x509.Certificate) { c.NotAfter = time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC) }, "", "is after 1999-01-01T00:00:00Z (renew the server's certificate, or set the clock of this machine)"},
		"no server's": {ca, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }, "", "incompatible key usage (give the server a certificate for servers"},
		"old TLS":     {ca, nil, "", "tls: protocol version not supported (podcount speaks TLS 1.2 and 1.3; "},
		"its clients": {ca, nil, "", "; if a client certificate is wanted, give one that is known there, and valid)"},
		"no TLS":      {ca, nil, "", "(it does not speak TLS: is its address that of an API server, and should it begin with http://?)"},
		"right name":  {ca, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"api.example.com"} }, "    tls-server-name: api.example.com\n", ""},
		"unverified":  {nil, nil, "    insecure-skip-tls-verify: true\n", ""},
	} {
		f := newFake()
		certPEM, keyPEM := ca.issue(t, "server", c.change)
		pair, err := tls.X509KeyPair(certPEM, keyPEM)
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(f)
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
		switch name {
		case "old TLS":
			srv.TLS.MaxVersion = tls.VersionTLS11
		case "its clients":
			srv.TLS.ClientAuth = tls.RequireAndVerifyClientCert
		}
		if name == "no TLS" {
			srv.Start()
		} else {
			srv.StartTLS()
		}
		defer srv.Close()
		url := "https://" + srv.Listener.Addr().String()
		config := kubeconfigFor(url, nil, "token: s3cret")
		if c.trusted != nil {
			config = kubeconfigFor(url, c.trusted.pem(), "token: s3cret")
		}
		cfg, err := load(t, map[string]string{"config": strings.Replace(config, "    certificate-authority-data", c.cluster+"    certificate-authority-data", 1)}, "config", "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := newClient(&options{}, cfg, nil, quietLog())
		defer client.Close()
		err = client.Send(t.Context(), request{method: "GET", path: "/api/v1/nodes"}, nil)
		switch {
		case c.want == "" && err == nil:
		case c.want == "" || err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "list nodes: "+url+", from /") || strings.Contains(err.Error(), "s3cret"):
			t.Errorf("%s: %v, want %q", name, err, c.want)
		case len(f.asked(func(seen) bool { return true })) > 0:
			t.Errorf("%s: requests arrived", name)
		}
	}
}

// What a person sees on stderr who has this wrong: what was tried, and the next step.
func TestWhatIsWrongWithTheWayInIsSaidWithWhatWasTriedAndTheNextStep(t *testing.T) {
	ca, other := newAuthority(t, "the CA"), newAuthority(t, "another CA")
	refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
	dialing := func(to string, err error) Dialer {
		return func(context.Context, string, string) (net.Conn, error) {
			failed := &net.OpError{Op: "dial", Net: "tcp", Err: err}
			if ip, err := netip.ParseAddrPort(to); err == nil {
				failed.Addr = net.TCPAddrFromAddrPort(ip)
			}
			return nil, failed
		}
	}
	inSilence := func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		config [2]string // of the kubeconfig, this in place of that
		args   string    // more of them
		dial   Dialer
		issuer *authority // of the server's certificate, if not ca
		set    func(f *fakeServer)
		want   []string
	}{
		"no server": {dial: dialing("127.0.0.1:1", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: dial tcp 127.0.0.1:1: connect: connection refused (is the API server running, and is this its address?)"}},
		"no server, by -master": {args: "-master https://10.0.0.1", dial: dialing("10.0.0.1:443", refused),
			want: []string{": https://10.0.0.1, from -master, CONFIG, context fake: dial tcp 10.0.0.1:443: connect: connection refused (is the API server running, and is this its address?)"}},
		"no such host": {config: [2]string{"https://127.0.0.1:1", "https://nowhere"}, dial: dialing("", &net.DNSError{Err: "no such host", Name: "nowhere", IsNotFound: true}),
			want: []string{": https://nowhere, from CONFIG, context fake: dial tcp: lookup nowhere: no such host (is the API server running, and is this its address?)"}},
		"no answer": {args: "-leader-elect", dial: inSilence,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: context deadline exceeded (is the API server running, and is this its address?)"}},
		"wrong CA": {issuer: other,
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=another CA")`}},
		"self-signed certificate": {issuer: &authority{},
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: tls: failed to verify certificate: x509: certificate signed by unknown authority",
				`(give the CA of this cluster as certificate-authority; the server's certificate was issued by "CN=server")`}},
		"expired token": {set: func(f *fakeServer) { f.allow("fresh") },
			want: []string{": 401 Unauthorized: Unauthorized (what was not accepted: the token of CONFIG, context fake): give one that has not expired, and is of this cluster"}},
		"missing right": {set: func(f *fakeServer) { f.forbid("list nodes", true) },
			want: []string{`list nodes: 403 Forbidden: nodes is forbidden: User "system:serviceaccount:kube-system:podcount" cannot list resource "nodes" in API group "" at the cluster scope`,
				`(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["list"])`}},
		"missing right to write": {set: func(f *fakeServer) { f.forbid("patch nodes", true) },
			want: []string{"patch nodes/cp: 403 Forbidden: ", `(the RBAC rule that allows it: apiGroups [""], resources ["nodes"], verbs ["patch"])`}},
		"wrong context": {args: "-context other", want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"wrong current-context": {config: [2]string{"current-context: fake", "current-context: other"},
			want: []string{`podcount: CONFIG: there is no context "other" (there is: context "fake")`}},
		"unreachable proxy": {config: [2]string{"    server:", "    proxy-url: http://10.0.0.9:3128\n    server:"}, dial: dialing("10.0.0.9:3128", refused),
			want: []string{": https://127.0.0.1:1, from CONFIG, context fake: proxyconnect tcp: dial tcp 10.0.0.9:3128: connect: connection refused " +
				"(this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running, and is its address right?)"}},
		"unreachable SOCKS proxy": {config: [2]string{"    server:", "    proxy-url: socks5://10.0.0.9:1080\n    server:"}, dial: dialing("10.0.0.9:1080", refused),
			want: []string{"proxyconnect tcp: dial tcp 10.0.0.9:1080: connect: connection refused (this is the proxy of"}},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.addNode("cp", controlPlane)
				if c.set != nil {
					c.set(f)
				}
				cert, key := cmp.Or(c.issuer, ca).issue(t, "server", nil)
				pair, err := tls.X509KeyPair(cert, key)
				if err != nil {
					t.Fatal(err)
				}
				dir := t.TempDir()
				config := filepath.Join(dir, "config")
				writeFiles(t, dir, map[string]string{"config": strings.Replace(kubeconfigFor("https://127.0.0.1:1", ca.pem(), "token: s3cret"), c.config[0], c.config[1], 1)})
				n := f.serveIn(t, func() *tls.Certificate { return &pair })
				p := startPodcountWith(t, n, wiring{dial: c.dial}, append([]string{"-kubeconfig", config, "-log-format", "json"}, strings.Fields(c.args)...)...)
				pass(10 * time.Second)
				said := ""
				for line := range strings.Lines(p.log.String()) {
					var fields object
					if err := json.Unmarshal([]byte(line), &fields); err != nil {
						t.Errorf("%s: %v", line, err)
					}
					said += str(fields, "err") + "\n"
				}
				if err := p.stop(); err != nil {
					said += "podcount: " + err.Error() + "\n"
				}
				for _, want := range c.want {
					wantText(t, said, strings.ReplaceAll(want, "CONFIG", config))
				}
				if strings.Contains(p.log.String(), "s3cret") {
					t.Error("the token is in the log")
				}
			})
		})
	}
}

func TestUnreachableProxyOfTheEnvironmentIsNamed(t *testing.T) {
	cmd, lines := process(t, []string{"HTTPS_PROXY=http://127.0.0.1:1"}, "-master", "https://0.0.0.0:1")
	for line := range lines {
		if strings.Contains(line, "cannot") {
			wantText(t, line, "https://0.0.0.0:1, from -master: proxyconnect tcp: dial tcp 127.0.0.1:1: connect: connection refused (this is the proxy of the kubeconfig's proxy-url, or else of HTTPS_PROXY: is it running")
			break
		}
	}
	cmd.Process.Kill()
	cmd.Wait()
}

func TestUnverifiedServerAndOpenFilesAndExpiredCertificatesAreWarnedOf(t *testing.T) {
	ca := newAuthority(t, "CA")
	cert, key := ca.issue(t, "me", func(c *x509.Certificate) { c.NotAfter = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC) })
	dir := t.TempDir()
	file := filepath.Join(dir, "config")
	mode := os.FileMode(0o644)
	warnings := func(user, open, cluster string) string {
		t.Helper()
		writeFiles(t, dir, map[string]string{"config": strings.Replace(kubeconfigFor("https://h", nil, user), "    certificate-authority-data: ", cluster, 1), "token": "t", "tls.crt": string(cert), "tls.key": string(key)})
		os.Chmod(filepath.Join(dir, open), mode)
		log := &logBuffer{}
		if _, err := LoadConfig(t.Context(), LoadOptions{Kubeconfig: file, Getenv: func(string) string { return "" }, Log: newLog(log, &options{}).Logger}); err != nil {
			t.Error(err)
		}
		for _, name := range []string{"config", "token", "tls.crt", "tls.key"} {
			os.Remove(filepath.Join(dir, name))
		}
		return log.String()
	}
	for _, open := range []struct{ user, file string }{{"token: t", "config"}, {"tokenFile: token", "token"}, {"client-certificate: tls.crt\n    client-key: tls.key", "tls.key"}} {
		wantText(t, warnings(open.user, open.file, ""), `everyone on this machine can read a file that holds a secret: chmod go-rwx it" file=`+dir+"/"+open.file)
	}
	wantText(t, warnings("client-certificate: tls.crt\n    client-key: tls.key", "none", ""), "the client certificate has expired")
	wantText(t, warnings("token: t", "none", "    insecure-skip-tls-verify: true"), "the server's certificate is not verified (insecure-skip-tls-verify)")
	wantText(t, warnings("tokenfile: token", "none", ""), "no credential was found (token, tokenFile, client-certificate or exec)")
	mode = 0o640
	if log := warnings("token: t", "config", ""); strings.Contains(log, "everyone") {
		t.Errorf("a group's file: %s", log)
	}
	mode = 0o644
	for _, quiet := range []struct{ user, file string }{{"tokenFile: token", "config"}, {"token: t", "none"}, {"client-certificate: tls.crt\n    client-key: tls.key", "tls.crt"}} {
		if log := warnings(quiet.user, quiet.file, ""); strings.Contains(log, "everyone") {
			t.Errorf("%+v: %s", quiet, log)
		}
	}
}

func TestTokenServesUntilItsFileIsThere(t *testing.T) {
	config := kubeconfigFor("https://h", nil, "token: first\n    tokenFile: later")
	cfg, err := load(t, map[string]string{"config": config}, "config", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	cred, err := cfg.Credential(t.Context(), nil)
	if err != nil || cred.token != "first" || !strings.HasSuffix(cred.tried, "/config, context fake") {
		t.Errorf("%+v, %v", cred, err)
	}
}

func TestKeyThatDoesNotFitItsCertificateIsRefused(t *testing.T) {
	ca := newAuthority(t, "CA")
	cert, _ := ca.issue(t, "me", nil)
	_, key := ca.issue(t, "somebody else", nil)
	config := kubeconfigFor("https://h", nil, "client-certificate: tls.crt\n    client-key: tls.key")
	_, err := load(t, map[string]string{"config": config, "tls.crt": string(cert), "tls.key": string(key)}, "config", "", "", nil)
	if err == nil || !strings.Contains(err.Error(), "tls.key: tls: private key does not match public key") || !strings.Contains(err.Error(), "client-certificate /") {
		t.Errorf("%v", err)
	}
}

// A proxy of the kubeconfig is asked for a tunnel; the server behind it is verified as ever.
func TestProxyURLLeadsThroughThatProxy(t *testing.T) {
	f := newFake()
	server, ca := f.serveTLSFor(t)
	var tunnels atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tunnels.Add(1)
		if r.Method != http.MethodConnect || r.Header.Get("Authorization") != "" {
			t.Errorf("the proxy was asked %s with %v", r.Method, r.Header)
		}
		there, err := net.Dial("tcp", r.Host)
		if err != nil {
			t.Error(err)
			return
		}
		w.WriteHeader(200)
		here, rest, _ := http.NewResponseController(w).Hijack()
		go io.Copy(there, rest)
		go io.Copy(here, there)
	}))
	t.Cleanup(func() {
		proxy.CloseClientConnections()
		proxy.Close()
	})
	config := strings.Replace(kubeconfigFor(server, ca, "token: t"), "    server:", "    proxy-url: "+proxy.URL+"\n    server:", 1)
	cfg, err := load(t, map[string]string{"config": config}, "config", "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := newClient(&options{}, cfg, nil, quietLog())
	defer client.Close()
	if err := client.Send(t.Context(), request{method: "GET", path: "/api/v1/nodes"}, nil); err != nil || tunnels.Load() != 1 {
		t.Errorf("answered %v through %d tunnels", err, tunnels.Load())
	}
}

func TestProxyThatRefusesIsNamedWithoutItsPassword(t *testing.T) {
	for code, want := range map[int]string{
		http.StatusForbidden:         "403 Forbidden (allow the way to the API server there",
		http.StatusProxyAuthRequired: "407 Proxy Authentication Required (give its user and password",
	} {
		proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }))
		defer proxy.Close()
		config := strings.Replace(kubeconfigFor("https://10.1.2.3:6443", nil, "token: t"), "    server:",
			"    proxy-url: "+strings.Replace(proxy.URL, "//", "//me:s3cret@", 1)+"\n    server:", 1)
		cfg, err := load(t, map[string]string{"config": config}, "config", "", "", nil)
		if err != nil {
			t.Fatal(err)
		}
		client := newClient(&options{}, cfg, nil, quietLog())
		err = client.Send(t.Context(), request{method: "GET", path: "/api/v1/nodes"}, nil)
		said := fmt.Sprint(err)
		host := strings.TrimPrefix(proxy.URL, "http://")
		wantText(t, said, "list nodes: https://10.1.2.3:6443, from ")
		wantText(t, said, "the proxy http://me:xxxxx@"+host+" refuses the connection: "+want)
		if strings.Contains(said, "s3cret") || strings.Contains(said, "RBAC") {
			t.Error(said)
		}
	}
}

func TestProxyOfTheEnvironmentIsUsedButForWhatItExcepts(t *testing.T) {
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked <- r.Method + " " + r.Host
		w.WriteHeader(http.StatusForbidden)
	}))
	defer proxy.Close()
	for except, want := range map[string]string{"": "CONNECT 0.0.0.0:1", "0.0.0.0": ""} { // not 127.0.0.1, which never goes to a proxy
		cmd, lines := process(t, []string{"HTTPS_PROXY=" + proxy.URL, "NO_PROXY=" + except}, "-master", "https://0.0.0.0:1")
		for line := range lines {
			if strings.Contains(line, "cannot ") {
				break
			}
		}
		cmd.Process.Kill()
		cmd.Wait()
		got := ""
		select {
		case got = <-asked:
		default:
		}
		if got != want {
			t.Errorf("NO_PROXY=%s: the proxy was asked %q, want %q", except, got, want)
		}
		for len(asked) > 0 {
			<-asked
		}
	}
}

func TestServersNameOfTheKubeconfigDoesNotHoldForAnotherMaster(t *testing.T) {
	config := strings.Replace(kubeconfigFor("https://h", nil, "token: t"), "    server:", "    tls-server-name: api\n    server:", 1)
	for master, want := range map[string]string{"": "api", "https://other": ""} {
		cfg, err := load(t, map[string]string{"config": config}, "config", "", master, nil)
		if err != nil {
			t.Fatal(err)
		}
		if cred, _ := cfg.Credential(t.Context(), nil); cred.tls.ServerName != want {
			t.Errorf("-master %q: verified as %q, want %q", master, cred.tls.ServerName, want)
		}
	}
}

func TestStatusNamesVerbObjectAndRule(t *testing.T) {
	for _, c := range []struct{ method, path, query, want, rule string }{
		{"GET", "/api/v1/pods", "", "list pods", `[""], resources ["pods"], verbs ["list"]`},
		{"GET", "/api/v1/namespaces/a/pods", "watch=1", "watch pods", `[""], resources ["pods"], verbs ["watch"]`},
		{"PATCH", "/api/v1/nodes/cp-1", "", "patch nodes/cp-1", `[""], resources ["nodes"], verbs ["patch"]`},
		{"POST", "/api/v1/namespaces/a/events", "", "create events", `[""], resources ["events"], verbs ["create"]`},
		{"PATCH", "/apis/demo.mark8s.io/v1/namespaces/a/counts/x/status", "", "patch counts/status/a/x", `["demo.mark8s.io"], resources ["counts/status"], verbs ["patch"]`},
		{"PUT", "/apis/coordination.k8s.io/v1/namespaces/a/leases/l", "", "update leases/a/l", `["coordination.k8s.io"], resources ["leases"], verbs ["update"]`},
	} {
		q, _ := url.ParseQuery(c.query)
		what := callOf(c.method, c.path, q)
		resp := &http.Response{StatusCode: 403, Body: io.NopCloser(strings.NewReader(`{"code":403,"reason":"Forbidden","message":"x cannot ` + what.verb + ` it"}`))}
		if text := statusOf(resp, what).Error(); what.String() != c.want || !strings.Contains(text, c.rule) || !strings.HasPrefix(text, "403 Forbidden: x cannot") {
			t.Errorf("%s %s: %s: %s", c.method, c.path, what, text)
		}
	}
}

func TestAnonymousIsToldToBringACredentialAndNotToBeGivenRights(t *testing.T) {
	s := &StatusError{Status: Status{Code: 403, Reason: "Forbidden", Message: `pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" at the cluster scope`}, call: call{"list", "", "pods", ""}}
	if text := s.Error(); strings.Contains(text, "RBAC") || !strings.Contains(text, "(no credential was sent: give the kubeconfig's user a token") {
		t.Error(text)
	}
}

func TestRefusalThatIsNoQuestionOfRightsNamesNoRule(t *testing.T) {
	for _, message := range []string{"unable to create new content in namespace x because it is being terminated", `admission webhook "w" denied the request: patch`} {
		s := &StatusError{Status: Status{Code: 403, Reason: "Forbidden", Message: message}, call: call{verb: "patch", resource: "nodes"}}
		if got, want := s.Error(), "403 Forbidden: "+message; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The command line, and the program as a process

func TestWrongUsageIsOneLineAndExitCode2(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"-nonsense"}, "flag provided but not defined: -nonsense"},
		{[]string{"stray"}, `unexpected argument "stray"`},
		{[]string{"-interval", "0s"}, "-interval"},
		{[]string{"-interval", "soon"}, `invalid value "soon" for flag -interval`},
		{[]string{"-workers", "0"}, "-workers"},
		{[]string{"-qps", "NaN"}, "-qps"},
		{[]string{"-total-label", "kubernetes.io/pods"}, "labels under kubernetes.io and k8s.io are reserved for Kubernetes itself"},
		{[]string{"-total-label", "x.node.kubernetes.io/pods"}, "reserved"},
		{[]string{"-node-label", "k8s.io/pods"}, "labels under kubernetes.io and k8s.io are reserved"},
		{[]string{"-node-label", "hopegi/pod-count"}, "different keys"},
		{[]string{"-total-label", "not valid"}, `-total-label: label key "not valid"`},
		{[]string{"-total-label", ""}, "-total-label: label key"},
		{[]string{"-total-nodes", "a in b"}, `-total-nodes: requirement 1 "a in b": in needs values`},
		{[]string{"-total-nodes", "!hopegi/pod-count"}, "hopegi/pod-count is the -total-label"},
		{[]string{"-node-label", "a.b/c", "-total-nodes", "a.b/c=0"}, "a.b/c is the -node-label"},
		{[]string{"-namespace", "No_Such"}, "-namespace"},
		{[]string{"-pod-events", "yes"}, "use on or off"},
		{[]string{"-log-format", "xml"}, "use auto, text or json"},
		{[]string{"-interval", "1"}, `invalid value "1" for flag -interval: it has no unit: write 1s for seconds, 1m for minutes`},
		{[]string{"-once-timeout", "0s"}, "-once-timeout 0s must be more than 0"},
		{[]string{"-controllers", "pods"}, `-controllers: there is no "pods"; there are pod-count, count, pod-printer`},
		{[]string{"-leader-elect-lease-duration", "10s"}, "-leader-elect-lease-duration 10s must be more than -leader-elect-renew-deadline 10s"},
		{[]string{"-leader-elect-lease-duration", "15500ms"}, "-leader-elect-lease-duration 15.5s must be whole seconds"},
		{[]string{"-leader-elect-lease-duration", "2147483648s"}, "-leader-elect-lease-duration 596523h14m8s is more than a Lease can say"},
		{[]string{"-leader-elect-retry-period", "2540400h"}, "-leader-elect-retry-period"},
		{[]string{"-leader-elect-lease-duration", "400000h", "-leader-elect-renew-deadline", "300000h", "-leader-elect-retry-period", "250000h"},
			"300000h0m0s, that more than 1.2 × -leader-elect-retry-period"},
		{[]string{"-leader-elect-renew-deadline", "2400ms"}, "that more than 1.2 × -leader-elect-retry-period 2s"},
		{[]string{"-leader-elect-retry-period", "0s"}, "and that more than 0"},
		{[]string{"-leader-elect-resource-name", "Pod Count"}, `-leader-elect-resource-name: "Pod Count" must be lower-case`},
		{[]string{"-leader-elect-resource-namespace", "a.b"}, `-leader-elect-resource-namespace "a.b" is no namespace's name`},
		{[]string{"-kubeconfig", "/does/not/exist"}, "/does/not/exist: no such file"},
		{[]string{"-master", "ftp://x"}, "-master: the server's address (ftp://x) must be"},
	} {
		err := run(t.Context(), c.args, func(string) string { return "" }, io.Discard, io.Discard, nil)
		var usage usageError
		if !errors.As(err, &usage) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", c.args, err, c.want)
		}
	}
}

func TestHelpNamesEveryFlagAndVersionPrintsIt(t *testing.T) {
	out := &logBuffer{}
	if err := run(t.Context(), []string{"-h"}, func(string) string { return "" }, out, io.Discard, nil); err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(out.String()) {
		if n := utf8.RuneCountInString(line); n > 101 {
			t.Errorf("%d columns: %s", n-1, line)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if page := "```text\n" + out.String() + "```\n"; !strings.Contains(string(readme), page) {
		t.Errorf("README.md should show this as the help:\n%s", out)
	}
	_, fs, _ := newFlags()
	flags := 0
	defaults := map[string]string{"leader-elect-resource-name": "podcount", "image": "podcount:latest", "manifest-namespace": "kube-system",
		"controllers": "*", "wire": "protobuf", "log-format": "auto", "once-timeout": "10m", "total-label": podCountLabel, "pod-events": "on", "interval": "10s", "workers": "4",
		"qps": "20 and 40", "v": "0", "leader-elect-lease-duration": "15s", "leader-elect-renew-deadline": "10s", "leader-elect-retry-period": "2s"}
	fs.VisitAll(func(f *flag.Flag) {
		flags++
		name := f.Name
		about, there := "", false
		if at := regexp.MustCompile(`(?m)^  (-qps N, )?-` + name + `[ ,]`).FindStringIndex(out.String()); at != nil {
			about, _, _ = strings.Cut(out.String()[at[1]:], "\n  -") // the next flag
			there = true
		}
		want, has := defaults[name]
		if !there || has && !strings.Contains(about, "(default "+want+")") {
			t.Errorf("-%s: not in the help, or with another default than %q: %s", name, want, about)
		}
		want, _, _ = strings.Cut(want, " and ")          // -burst shares the line of -qps
		is := strings.ReplaceAll(f.DefValue, "m0s", "m") // as a duration of 10m is printed as 10m0s
		if has && is != want {
			t.Errorf("-%s is %q by default, and the help says %q", name, is, want)
		}
	})
	if is := fs.Lookup("burst").DefValue; is != "40" {
		t.Errorf("-burst is %q by default", is)
	}
	if flags < 30 {
		t.Errorf("there are %d flags", flags)
	}
	out = &logBuffer{}
	if err := run(t.Context(), []string{"-version"}, func(string) string { return "" }, out, io.Discard, nil); err != nil || !strings.HasPrefix(out.String(), "podcount "+version+" go1.") {
		t.Errorf("%q, %v", out, err)
	}
}

// process starts this test binary as podcount and returns its lines of stderr.
func process(t *testing.T, env []string, args ...string) (*exec.Cmd, <-chan string) {
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append([]string{"PODCOUNT_TEST_MAIN=1"}, env...)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	lines := make(chan string, 1000)
	go func() {
		for s := bufio.NewScanner(stderr); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
	}()
	return cmd, lines
}

func TestExitCodes(t *testing.T) {
	cmd, lines := process(t, nil, "-nonsense")
	var all []string
	for line := range lines {
		all = append(all, line)
	}
	cmd.Wait()
	if len(all) != 1 || cmd.ProcessState.ExitCode() != 2 {
		t.Errorf("wrong usage: exit code %d, stderr %q", cmd.ProcessState.ExitCode(), all)
	}

	f := newFake()
	f.addNode("cp", controlPlane)
	server, ca := f.serveTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(kubeconfigFor(server, ca, "token: t")), 0o600)
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		f.setLabel("cp", podCountLabel, nil)
		cmd, lines := process(t, nil, "-kubeconfig", file)
		f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == "0" })
		cmd.Process.Signal(sig)
		last := ""
		for line := range lines {
			last = line
		}
		if cmd.Wait(); cmd.ProcessState.ExitCode() != 0 || !strings.Contains(last, "podcount stopped") {
			t.Errorf("%v: exit code %d, last line %q", sig, cmd.ProcessState.ExitCode(), last)
		}
	}

	f.setLabel("cp", podCountLabel, nil)
	met := make(chan struct{}, 1)
	f.inject(t, fault{match: to(isWrite), stall: true, met: met})
	cmd, lines = process(t, nil, "-kubeconfig", file)
	<-met // a write hangs
	start := time.Now()
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(os.Interrupt) })
	defer again.Stop()
	for range lines {
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != 1 || time.Since(start) > 5*time.Second {
		t.Errorf("second signal: exit code %d after %v", cmd.ProcessState.ExitCode(), time.Since(start))
	}
}

// fullPipe returns the writing end of a pipe that is full, and that nobody reads.
func fullPipe(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		reader.Close()
		writer.Close()
	})
	writer.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil {
		_, err = writer.Write(make([]byte, 4096))
	}
	return writer
}

// startOn starts this test binary as podcount, on the outputs given.
func startOn(t *testing.T, stdout, stderr *os.File, args ...string) (cmd *exec.Cmd, ended <-chan struct{}) {
	t.Helper()
	cmd = exec.Command(os.Args[0], args...)
	cmd.Env = []string{"PODCOUNT_TEST_MAIN=1"}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	return cmd, inBackground(func() { cmd.Wait() })
}

// wantExit waits for the process to end; machines are slow.
func wantExit(t *testing.T, what string, cmd *exec.Cmd, ended <-chan struct{}, code int) {
	t.Helper()
	select {
	case <-ended:
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Errorf("%s: exit code %d, want %d", what, got, code)
		}
	case <-time.After(15 * time.Second):
		t.Errorf("%s: it has not ended", what)
	}
}

// A stuck log collector must keep no process: neither at a wrong flag, nor at a stop, nor at a second signal.
func TestProcessWhoseStderrIsFullEndsWithItsCode(t *testing.T) {
	full := fullPipe(t)
	cmd, ended := startOn(t, nil, full, "-nonsense")
	wantExit(t, "wrong usage", cmd, ended, 2)

	f := newFake()
	f.addNode("cp", controlPlane)
	server, ca := f.serveTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	writeFiles(t, filepath.Dir(file), map[string]string{"config": kubeconfigFor(server, ca, "token: t")})
	for _, verbosity := range []string{"0", "6"} {
		f.setLabel("cp", podCountLabel, nil)
		cmd, ended = startOn(t, full, full, "-kubeconfig", file, "-v", verbosity, "-leader-elect")
		f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == "0" })
		cmd.Process.Signal(syscall.SIGTERM)
		wantExit(t, "SIGTERM at -v "+verbosity, cmd, ended, 0)
	}

	f.setLabel("cp", podCountLabel, nil)
	met := make(chan struct{}, 1)
	f.inject(t, fault{match: to(isWrite), stall: true, met: met})
	cmd, ended = startOn(t, full, full, "-kubeconfig", file)
	<-met // a write hangs
	cmd.Process.Signal(syscall.SIGTERM)
	again := time.AfterFunc(signalCopyWindow+100*time.Millisecond, func() { cmd.Process.Signal(syscall.SIGTERM) })
	defer again.Stop()
	wantExit(t, "a second signal", cmd, ended, 1)
}

// As in `podcount 2>&1 | head -1`.
func TestReaderOfTheOutputThatGoesAwayEndsNothing(t *testing.T) {
	f := newFake()
	f.addNode("cp", controlPlane)
	server, ca := f.serveTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	writeFiles(t, filepath.Dir(file), map[string]string{"config": kubeconfigFor(server, ca, "token: t")})
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd, ended := startOn(t, writer, writer, "-kubeconfig", file, "-v", "6", "-interval", "10ms", "-controllers", "*,pod-printer")
	writer.Close()
	reader.Read(make([]byte, 10))
	reader.Close()
	for n := range 3 {
		f.addPod("default", fmt.Sprint("p", n), "")
		f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == fmt.Sprint(n+1) })
	}
	cmd.Process.Signal(syscall.SIGTERM)
	wantExit(t, "SIGTERM", cmd, ended, 0)
}

// ---------------------------------------------------------------------------------------------------------------------
// Once, dry and pruned

// finish waits until a program has ended by itself, and returns how.
func (p *program) finish() error {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(time.Hour):
		p.t.Error("it goes on")
	}
	return p.stop()
}

func writesAt(f *fakeServer) []seen { return f.asked(isWrite) }

func TestOnceWritesWhatIsWrongAndExits(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addNode("n1")
		f.addNode("left", podCountLabel+"=7")
		f.addPod("default", "p1", "n1")
		f.addPodWith("p2", object{"app": "nginx"})
		f.addCount("nginx", `{"name":"nginx","count":1}`)
		start := time.Now()
		if err := startPodcount(t, f, "-once", "-node-label", "x.y/pods").finish(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
		wantLabel(t, f, "n1", "x.y/pods", "1")
		wantLabel(t, f, "left", podCountLabel, "-")
		wantText(t, f.count("nginx"), "true 1 1")
		wantNumber(t, "events of changed labels", len(eventsOf(f, "PodCountChanged")), 5)
		before := len(writesAt(f))
		if err := startPodcount(t, f, "-once", "-node-label", "x.y/pods").finish(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "writes of a second run", len(writesAt(f))-before, 0)
	})
}

// A cluster is never quiet: what changes meanwhile is for the next run.
// What -once prints is its product: a reader that is slow gets all of it, and one that does not read is not taken for one.
func TestOnceWaitsForASlowReaderAndFailsWhereNobodyReads(t *testing.T) {
	for name, c := range map[string]struct {
		args  []string
		reads bool
		want  string // of the error
	}{
		"a slow reader":                  {[]string{"-dry-run"}, true, ""},
		"nobody reads a dry run":         {[]string{"-dry-run"}, false, "lines of its output were lost, as nobody read them"},
		"nobody reads the log of writes": {nil, false, ""},
		"nobody reads what is printed":   {[]string{"-controllers", "pod-printer"}, false, "lines of its output were lost"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				for i := range 500 {
					f.addNode(fmt.Sprint("n", i))
				}
				f.addPods(3)
				n, reading := f.serveIn(t), make(chan struct{}, 1)
				slow := func(w io.Writer) io.Writer {
					return writerFunc(func(line []byte) (int, error) {
						if !c.reads {
							<-reading
						}
						<-time.After(10 * time.Millisecond)
						return w.Write(line)
					})
				}
				args := []string{"-master", "http://127.0.0.1:1", "-once", "-total-nodes", "", "-qps", "1000", "-burst", "1000"}
				p := startPodcountWith(t, n, wiring{pipes: slow}, append(args, c.args...)...)
				err := p.finish()
				close(reading)
				pass(time.Minute) // for what still waits
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("it ended with %v, want %q", err, c.want)
				}
				if c.reads {
					wantNumber(t, "lines", strings.Count(p.log.String(), "would write node "), 500)
				}
			})
		})
	}
}

func TestOnceEndsWhileEverythingChanges(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		p := startPodcount(t, f, "-once", "-controllers", "*,pod-printer")
		go churn(f, 60)
		start := time.Now()
		if err := p.finish(); err != nil || time.Since(start) > 20*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		<-time.After(time.Minute)
	})
}

func TestOnceFailsWhenSomethingCannotBeWrittenAndWritesTheRest(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("a", controlPlane)
		f.addNode("b", controlPlane)
		f.keep(t, statusFault(t, func(s seen) bool { return s.Method == "PATCH" && strings.HasSuffix(s.Path, "/nodes/a") }, 1, 500, "InternalError", nil))
		err := startPodcount(t, f, "-once").finish()
		if err == nil || err.Error() != "-once: pod-count could not make 1 object right (a): the log says why" || errors.As(err, new(usageError)) {
			t.Error(err)
		}
		wantLabel(t, f, "b", podCountLabel, "0")
		wantNumber(t, "tries", len(f.asked(func(s seen) bool { return strings.HasSuffix(s.Path, "/nodes/a") })), onceTries)
	})
}

func TestOnceGivesUpWhenTheServerIsAway(t *testing.T) {
	for kind, path := range map[string]string{"Pod": "/api/v1/pods", "Node": "/api/v1/nodes", "Count": "/apis/demo.mark8s.io/v1"} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.install(&fakeCRD{status: true})
			f.addNode("cp", controlPlane)
			f.keep(t, statusFault(t, func(s seen) bool { return s.Path == path }, 1, 503, "ServiceUnavailable", nil))
			start := time.Now()
			err := startPodcount(t, f, "-once").finish()
			if err == nil || err.Error() != "-once: after 2m0s there is no complete list of "+kind || time.Since(start) > onceListTime+time.Second {
				t.Errorf("%s, after %v: %v", kind, time.Since(start), err)
			}
			if kind != "Count" {
				wantNumber(t, "writes of labels", len(writesAt(f)), 0)
			}
		})
	}
}

func TestDryRunSaysWhatItWouldWriteAndWritesNothing(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addPods(2)
		f.addCount("nginx", `{"name":"nginx","count":1}`)
		p := startPodcount(t, f, "-dry-run", "-leader-elect", "-v", "2")
		pass(5 * time.Minute)
		says := func(line string, times int) {
			t.Helper()
			wantNumber(t, line, strings.Count(p.log.String(), line), times)
		}
		says(`msg="would write node cp: hopegi/pod-count none → 2"`, 1) // once, though it stays wrong
		says(`msg="would write count default/nginx: status none → 0 unhealthy"`, 1)
		f.addPod("default", "one-more", "")
		pass(time.Minute)
		says(`msg="would write node cp: hopegi/pod-count none → 3"`, 1)
		says(`msg="would post an Event on pod default/one-more: PodCounted: pod count is 3"`, 1)
		if err := p.stop(); err != nil {
			t.Error(err)
		}
		says("1 node: 1 would be written, 0 right, 0 failed, in 360.", 1)
		says("1 count: 1 would be written, 0 right, 0 failed, in 360.", 1)
		wantNumber(t, "requests that are not GET", len(f.asked(func(s seen) bool { return s.Method != "GET" })), 0)
		p = startPodcount(t, f, "-dry-run", "-once", "-v", "0")
		if err := p.finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.log.String(), "1 node: 1 would be written, 0 right, 0 failed, in 0.")
		wantNumber(t, "requests that are not GET", len(f.asked(func(s seen) bool { return s.Method != "GET" })), 0)
	})
}

// Nothing is sent, so there is no reason to spread it over time.
func TestDryRunIsNotPacedByQPS(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 500 {
			f.addNode(fmt.Sprint("n", i))
		}
		f.addPods(3)
		p := startPodcount(t, f, "-dry-run", "-once", "-total-nodes", "", "-qps", "1", "-burst", "1")
		start := time.Now()
		if err := p.finish(); err != nil || time.Since(start) > time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		wantNumber(t, "nodes that are said", strings.Count(p.log.String(), "would write node "), 500)
		wantText(t, p.log.String(), "500 nodes: 500 would be written, 0 right, 0 failed, in 0.")
	})
}

func TestOnceFailsWhereTheSchemaDropsTheStatus(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true, drops: true})
		f.addCount("nginx", `{"name":"nginx","count":1}`)
		p := startPodcount(t, f, "-once")
		err := p.finish()
		if err == nil || !strings.Contains(err.Error(), "count could not make 1 object right (default/nginx)") {
			t.Error(err)
		}
		wantText(t, p.log.String(), "1 count: 0 written, 0 right, 1 failed, in ")
	})
}

// The total comes first. But where the nodes that show it can use up -qps, the others have to have a share.
func TestUrgentLabelsLeaveTheOthersAShare(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 60 {
			f.addNode(fmt.Sprint("t", i), "show=1")
		}
		f.addNode("plain")
		startPodcount(t, f, "-total-nodes", "show", "-node-label", ownPodsLabel, "-qps", "5", "-burst", "5", "-pod-events", "off")
		pass(time.Minute)
		for second := range 120 {
			f.addPod("default", fmt.Sprint("p", second), "t1")
			if second == 60 { // all the writes that -qps allows are the total's by now
				f.addPod("default", "mine", "plain")
			}
			pass(time.Second)
		}
		wantLabel(t, f, "plain", ownPodsLabel, "1")
	})
}

// Each object is written once at most: what changes meanwhile is for the next run.
func TestOnceOfAManyNodesEndsWhilePodsComeAllTheTime(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		for i := range 400 {
			f.addNode(fmt.Sprint("n", i))
		}
		p := startPodcount(t, f, "-once", "-total-nodes", "", "-controllers", "pod-count")
		for i := range 60 {
			f.addPod("default", fmt.Sprint("p", i), "")
			pass(time.Second)
		}
		if err := p.finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.log.String(), "400 nodes: 400 written, 0 right, 0 failed, in ")
		wantNumber(t, "writes", len(writesAt(f)), 400)
	})
}

func TestNumbersOfASummaryAddUpWhateverChangesMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		change func(f *fakeServer, p *program)
		want   string
		err    string
	}{
		"nodes that were written are removed": {func(f *fakeServer, _ *program) {
			for i := range 10 {
				if f.label(fmt.Sprint("n", i), podCountLabel) == "2" {
					f.remove("nodes", objectKey{"", fmt.Sprint("n", i)})
				}
			}
		}, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"nodes are added": {func(f *fakeServer, _ *program) { f.addNode("new") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a pod is added":  {func(f *fakeServer, _ *program) { f.addPod("default", "new", "") }, "10 nodes: 10 written, 0 right, 0 failed, in ", ""},
		"a stop": {func(_ *fakeServer, p *program) { p.stop() }, "10 nodes: 6 written, 0 right, 0 failed, 4 not done, in ",
			"-once: stopped before all was done"},
	} {
		t.Run(name, func(t *testing.T) {
			simulate(t, func(t *testing.T, f *fakeServer) {
				for i := range 10 {
					f.addNode(fmt.Sprint("n", i))
				}
				f.addPods(2)
				p := startPodcount(t, f, "-once", "-total-nodes", "", "-qps", "1", "-burst", "1", "-workers", "1")
				pass(5500 * time.Millisecond)
				c.change(f, p)
				err := p.finish()
				if c.err == "" && err != nil || c.err != "" && (err == nil || err.Error() != c.err) {
					t.Errorf("it ended with %v, want %q", err, c.err)
				}
				wantText(t, p.log.String(), c.want)
			})
		})
	}
}

func TestOnceNamesWhatIsLeftOfEachController(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addNode("cp", controlPlane)
		f.addCount("nginx", `{"name":"nginx","count":1}`)
		f.keep(t, statusFault(t, isWrite, 1, 500, "InternalError", nil))
		err := startPodcount(t, f, "-once").finish()
		want := "-once: pod-count could not make 1 object right (cp); count could not make 1 object right (default/nginx): the log says why"
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		err = startPodcount(t, f, "-prune").finish()
		if err != nil { // no label is there
			t.Error(err)
		}
	})
}

func TestOnceTriesAgainWhatAControllerPanickedAbout(t *testing.T) {
	var asked atomic.Bool
	var reconciled atomic.Int32
	withController(t, Controller{Name: "flaky", Setup: func(m *manager, c *Controller) {
		On(c, m.nodes, func(d Delta[*Node]) []Key {
			if !asked.Swap(true) {
				panic("once")
			}
			return []Key{d.Key()}
		})
		c.Reconcile = func(context.Context, Key) (Result, error) {
			reconciled.Add(1)
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("n1")
		f.addNode("n2")
		if err := startPodcount(t, f, "-once", "-controllers", "flaky").finish(); err != nil {
			t.Error(err)
		}
		wantNumber(t, "nodes that were reconciled", int(reconciled.Load()), 2)
	})
}

func TestControllerWhoseNumbersOrTicksPanicEndsNothingElse(t *testing.T) {
	withController(t, Controller{Name: "odd", Setup: func(m *manager, c *Controller) {
		On(c, m.nodes, func(Delta[*Node]) []Key { return nil })
		c.Count = func() (string, int, int) { panic("numbers") }
		c.Tick = func() []Key { panic("tick") }
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(2)
		if err := startPodcount(t, f, "-once", "-controllers", "pod-count,odd").finish(); err == nil ||
			!strings.Contains(err.Error(), "-once: odd cannot say what is to be done: panic: tick") {
			t.Errorf("-once ended with %v", err)
		}
		wantLabel(t, f, "cp", podCountLabel, "2")
		f.addPods(3)
		p := startPodcount(t, f, "-controllers", "pod-count,odd")
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		if err := p.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestDryRunSaysAgainWhatHasBeenRightMeanwhile(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(3)
		p := startPodcount(t, f, "-dry-run", "-interval", "1s")
		pass(5 * time.Second)
		for _, label := range []string{"3", "77"} {
			f.setLabel("cp", podCountLabel, label)
			pass(5 * time.Second)
		}
		wantNumber(t, "none → 3", strings.Count(p.log.String(), `"would write node cp: hopegi/pod-count none → 3"`), 1)
		wantNumber(t, "77 → 3", strings.Count(p.log.String(), `"would write node cp: hopegi/pod-count 77 → 3"`), 1)
	})
}

func TestOnceEndsWithASummary(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.install(&fakeCRD{status: true})
		f.addPods(2)
		for i := range 47 {
			f.addNode(fmt.Sprint("n", i), podCountLabel+"=2")
		}
		f.addNode("refused")
		f.addNode("cp-1")
		f.addNode("cp-2")
		f.addCount("nginx", `{"name":"nginx","count":1}`)
		isRefused := func(s seen) bool { return s.Method == "PATCH" && strings.HasSuffix(s.Path, "/nodes/refused") }
		f.keep(t, statusFault(t, isRefused, 1, 500, "InternalError", nil))
		p := startPodcount(t, f, "-once", "-total-nodes", "")
		if err := p.finish(); err == nil {
			t.Error("it ended well")
		}
		wantText(t, p.log.String(), "50 nodes: 2 written, 47 right, 1 failed, in ")
		wantText(t, p.log.String(), "1 count: 1 written, 0 right, 0 failed, in ")
		p = startPodcount(t, f, "-prune")
		if err := p.finish(); err != nil {
			t.Error(err)
		}
		wantText(t, p.log.String(), "50 nodes: 49 written, 1 right, 0 failed, in ")
	})
}

// A server may ask for an hour's patience with each answer, and -once would wait ten times.
func TestOnceEndsWithinItsTimeoutAndNamesWhatIsLeft(t *testing.T) {
	for timeout, args := range map[time.Duration][]string{10 * time.Minute: nil, 30 * time.Second: {"-once-timeout", "30s"}} {
		simulate(t, func(t *testing.T, f *fakeServer) {
			f.addNode("a", controlPlane)
			f.addNode("b", controlPlane)
			busy := statusFault(t, func(s seen) bool { return s.Method == "PATCH" && strings.HasSuffix(s.Path, "/nodes/a") }, 1,
				429, "TooManyRequests", nil, "Retry-After", "3600")
			f.keep(t, busy)
			start := time.Now()
			p := startPodcount(t, f, append(args, "-once")...)
			err := p.finish()
			want := fmt.Sprintf("-once: pod-count could not make 1 object right (a) after %v: the log says why", timeout)
			if err == nil || err.Error() != want || time.Since(start).Round(5*time.Second) != timeout {
				t.Errorf("after %v: %v, want %s", time.Since(start), err, want)
			}
			wantText(t, p.log.String(), "2 nodes: 1 written, 0 right, 1 failed, in ")
			wantLabel(t, f, "b", podCountLabel, "0")
		})
	}
}

func TestPruneRemovesItsLabelsFromAllNodesAndNothingElse(t *testing.T) {
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane, podCountLabel+"=3", "x.y/pods=3", "z/other=1")
		f.addNode("n1", podCountLabel+"=3", "x.y/pods=1")
		f.addNode("n2")
		f.addPods(3)
		if err := startPodcount(t, f, "-prune", "-dry-run", "-node-label", "x.y/pods").finish(); err != nil {
			t.Error(err)
		}
		wantLabel(t, f, "cp", podCountLabel, "3")
		for _, selectors := range [][]string{{"-total-nodes", "none"}, {"-node-label", "x.y/pods", "-namespace", "a", "-pod-selector", "b=c", "-field-selector", "spec.nodeName=d"}} {
			if err := startPodcount(t, f, append(selectors, "-prune")...).finish(); err != nil {
				t.Error(err)
			}
			wantLabel(t, f, "cp", podCountLabel, "-")
			wantLabel(t, f, "n1", podCountLabel, "-")
			if selectors[0] == "-total-nodes" {
				wantLabel(t, f, "n1", "x.y/pods", "1")
			}
		}
		wantLabel(t, f, "cp", "x.y/pods", "-")
		wantLabel(t, f, "n1", "x.y/pods", "-")
		wantLabel(t, f, "cp", "z/other", "1")
		wantLabel(t, f, "cp", controlPlane, "")
		wantNumber(t, "writes", len(writesAt(f)), 4)
		wantNumber(t, "events", len(f.all("events")), 0)
		wantNumber(t, "lists of pods", len(f.asked(func(s seen) bool { return strings.Contains(s.Path, "pods") })), 0)
	})
}

// ---------------------------------------------------------------------------------------------------------------------
// Health, metrics and state

// startListening runs the whole program in real time, with -listen, and returns how to ask it.
func startListening(t *testing.T, f *fakeServer, args ...string) (get func(path string) (code int, text string)) {
	t.Helper()
	return asking(t, startListeningAt(t, f, args...))
}

// startListeningAt runs the whole program in real time, with -listen, and returns the address of that.
func startListeningAt(t *testing.T, f *fakeServer, args ...string) (address string) {
	t.Helper()
	server, ca := f.serveTLSFor(t)
	f.allow("secret-token")
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"config": kubeconfigFor(server, ca, "token: secret-token")})
	ctx, cancel := context.WithCancel(t.Context())
	log, ended := &logBuffer{}, make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"-kubeconfig", filepath.Join(dir, "config"), "-listen", "127.0.0.1:0"}, args...), func(string) string { return "" }, io.Discard, log, nil)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	f.await(t, "a request", func() bool { return len(f.asked(func(seen) bool { return true })) > 0 })
	_, address, _ = strings.Cut(log.String(), "msg=listening on=")
	address, _, _ = strings.Cut(address, "\n")
	return address
}

// asking returns how to ask the server of that address for a page.
func asking(t *testing.T, address string) (get func(path string) (code int, text string)) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + address + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Error(err)
		}
		return resp.StatusCode, string(text)
	}
}

func TestReadySaysWhichCacheIsNotAndLiveDoesNotCare(t *testing.T) {
	f := newFake()
	f.addNode("cp", controlPlane)
	release, met := make(chan struct{}), make(chan struct{}, 1)
	f.inject(t, fault{match: to(func(s seen) bool { return s.Path == "/api/v1/pods" && s.Query.Get("watch") == "" }), met: met, answer: func(w http.ResponseWriter, _ *http.Request) {
		<-release
		http.Error(w, "not now", http.StatusServiceUnavailable)
	}})
	get := startListening(t, f, "-leader-elect")
	<-met
	f.await(t, "the nodes' watch", func() bool {
		return len(f.asked(func(s seen) bool { return s.Path == "/api/v1/nodes" && s.Query.Get("watch") != "" })) > 0
	})
	want := func(path string, code int, text string) {
		t.Helper()
		if c, got := get(path); c != code || got != text {
			t.Errorf("%s: %d %q, want %d %q", path, c, got, code, text)
		}
	}
	want("/readyz", 503, "there is no complete list yet of: Pod\n")
	want("/livez", 200, "ok\n")
	want("/healthz", 200, "ok\n")
	close(release)
	f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == "0" })
	want("/readyz", 200, "ok\n")
	f.cutOff("", true) // the server is away: we are as ready as before, and alive
	want("/readyz", 200, "ok\n")
	want("/livez", 200, "ok\n")
	want("/nothing", 404, "404 page not found\n")
}

func TestRootOfListenNamesEachPathThatAnswers(t *testing.T) {
	f := newFake()
	get := startListening(t, f)
	f.await(t, "both watches", func() bool {
		return len(f.asked(func(s seen) bool { return s.Query.Get("watch") != "" })) >= 2
	})
	code, text := get("/")
	wantNumber(t, "the code", code, 200)
	paths := regexp.MustCompile(`(?m)(?:^| )(/[a-z/]+)`).FindAllStringSubmatch(text, -1)
	wantNumber(t, "paths", len(paths), 5)
	for _, path := range paths {
		if code, _ := get(path[1]); code != 200 {
			t.Errorf("%s answers %d", path[1], code)
		}
	}
}

func TestLiveTellsAWorkerThatHangs(t *testing.T) {
	var m *manager
	hang := make(chan struct{})
	withController(t, Controller{Name: "hangs", Setup: func(of *manager, c *Controller) {
		m = of
		On(c, m.nodes, func(d Delta[*Node]) []Key { return []Key{d.Key()} })
		c.Reconcile = func(context.Context, Key) (Result, error) {
			<-hang
			return Result{}, nil
		}
	}})
	simulate(t, func(t *testing.T, f *fakeServer) {
		hang = make(chan struct{})
		f.addNode("cp", controlPlane)
		startPodcount(t, f, "-qps", "0.1", "-workers", "2")
		live := func() (code int, text string) {
			answer := httptest.NewRecorder()
			m.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/livez", nil))
			return answer.Code, answer.Body.String()
		}
		limit := 2*requestTimeout + 20*time.Second // two workers may have to wait for a token of -qps each
		pass(limit - time.Second)
		if code, text := live(); code != 200 {
			t.Errorf("before the limit: %d %s", code, text)
		}
		pass(2 * time.Second)
		if code, text := live(); code != 503 || text != "does not move: hangs: a worker has had cp for 2m31s\n" {
			t.Errorf("after the limit: %d %q", code, text)
		}
		close(hang)
		pass(time.Second)
		if code, text := live(); code != 200 || text != "ok\n" {
			t.Errorf("when it is over: %d %q", code, text)
		}
	})
}

// The text is what Prometheus reads: a family's lines together, labels in quotes, buckets that grow up to the count.
func TestMetricsSayWhatWasDoneAndNothingSecret(t *testing.T) {
	f := newFake()
	f.install(&fakeCRD{status: true})
	f.addNode("cp", controlPlane)
	f.addPods(3)
	f.addCount("nginx", `{"name":"nginx","count":1}`)
	get := startListening(t, f, "-leader-elect", "-interval", "10ms")
	f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == "3" })
	f.addPod("default", "one-more", "")
	f.await(t, "the label", func() bool { return f.label("cp", podCountLabel) == "4" })
	f.await(t, "the status", func() bool { return strings.HasPrefix(f.count("nginx"), "false") })
	f.await(t, "the events", func() bool {
		return len(eventsOf(f, "PodCountChanged")) == 2 && len(eventsOf(f, "PodCounted")) == 1 && len(eventsOf(f, "Synced")) == 1
	})
	code, text := get("/metrics")
	if code != 200 || strings.Contains(text, "secret-token") {
		t.Errorf("%d, or a secret in %s", code, text)
	}
	for _, want := range []string{
		`podcount_lines_dropped_total{stream="stderr"} 0` + "\n", `podcount_lines_dropped_total{stream="stdout"} 0` + "\n",
		"podcount_pods 4\n", `podcount_cache_objects{kind="Node"} 1` + "\n", `podcount_watch_events_total{kind="Pod",type="ADDED"} 1` + "\n",
		`podcount_relists_total{kind="Pod",reason="start"} 1` + "\n", `podcount_label_patches_total{result="written"} 2` + "\n",
		`podcount_status_patches_total{result="written"} 1` + "\n", `podcount_build_info{version="dev",goversion="go`, `leader_election_master_status{name="podcount"} 1` + "\n",
		`workqueue_depth{name="pod-count"} 0` + "\n", `workqueue_work_duration_seconds_bucket{name="pod-count",le="+Inf"} `, "go_goroutines ",
		`rest_client_requests_total{code="200",method="PATCH",host="127.0.0.1:`, `rest_client_request_duration_seconds_count{verb="GET",host="127.0.0.1:`,
		`podcount_events_total{result="posted"} `, "# TYPE workqueue_queue_duration_seconds histogram\n", "# TYPE workqueue_adds_total counter\n",
		"process_start_time_seconds ",
	} {
		wantText(t, text, want)
	}
	wantPrometheus(t, text)
	for _, absent := range []string{"podcount_pods 0", "process_cpu_seconds_total 0\n"} {
		if runtime.GOOS == "linux" && strings.Contains(text, absent) {
			t.Errorf("it says %s", absent)
		}
	}

	var state struct {
		Version string
		Lease   struct {
			Identity string
			IsOurs   bool
		}
		Caches map[string]struct {
			Objects           int
			Ready             bool
			ResourceVersion   string
			SecondsSinceHeard float64
		}
		Controllers map[string]struct{ Ready, Keys int }
	}
	_, text = get("/debug/state")
	if err := json.Unmarshal([]byte(text), &state); err != nil {
		t.Fatal(err)
	}
	pods := state.Caches["Pod"]
	if state.Version != version || !state.Lease.IsOurs || state.Lease.Identity == "" || pods.Objects != 4 || !pods.Ready || pods.ResourceVersion == "" || len(state.Controllers) != 2 {
		t.Errorf("the state is %s", text)
	}
}

// wantPrometheus holds a page of metrics against the text format.
func wantPrometheus(t *testing.T, text string) {
	t.Helper()
	sample := regexp.MustCompile(`^([a-z_]+)(?:\{((?:[a-z]+="[^"\\\n]*")(?:,[a-z]+="[^"\\\n]*")*)\})? (\S+)$`)
	kinds, family, last, below := map[string]string{}, "", "", 0.0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		if help, ok := strings.CutPrefix(line, "# HELP "); ok {
			name, meaning, _ := strings.Cut(help, " ")
			if kinds[name] != "" || meaning == "" {
				t.Errorf("%s is there twice, or says nothing", name)
			}
			family, last = name, ""
			continue
		} else if kind, ok := strings.CutPrefix(line, "# TYPE "+family+" "); ok {
			kinds[family] = kind
			if strings.HasSuffix(family, "_total") != (kind == "counter") {
				t.Errorf("%s is a %s", family, kind)
			}
			continue
		}
		m := sample.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("%q is no sample", line)
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		name := m[1]
		if kinds[family] == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				name = strings.TrimSuffix(name, part)
			}
			switch of, _, _ := strings.Cut(m[2], "le="); {
			case strings.HasSuffix(m[1], "_bucket") && value < below && of == last:
				t.Errorf("a bucket is smaller than the one before: %s", line)
			case strings.HasSuffix(m[1], "_bucket"):
				last, below = of, value
			case strings.HasSuffix(m[1], "_count") && value != below:
				t.Errorf("the last bucket has %v: %s", below, line)
			}
		}
		if err != nil || name != family || kinds[name] == "" || value < 0 {
			t.Errorf("%q in the family %q of type %q", line, family, kinds[name])
		}
	}
}

// Whoever graphs a number must not see a 0 where nobody has counted, or what has been removed.
func TestGaugesOfWhatIsNotThereAreAbsent(t *testing.T) {
	var m *manager
	withController(t, Controller{Name: "looks", Setup: func(of *manager, c *Controller) {
		m = of
		c.Reconcile = func(context.Context, Key) (Result, error) { return Result{}, nil }
	}})
	simulate(t, func(t *testing.T, f *fakeServer) {
		metrics := func() string {
			answer := httptest.NewRecorder()
			m.handler().ServeHTTP(answer, httptest.NewRequest("GET", "/metrics", nil))
			return answer.Body.String()
		}
		wantGauges := func(when string, present bool, names ...string) {
			t.Helper()
			text := metrics()
			for _, name := range names {
				if strings.Contains(text, "\n"+name+" ") != present {
					t.Errorf("%s: is there a %s? want %v", when, name, present)
				}
			}
		}
		ofCounts := []string{
			`podcount_cache_objects{kind="Count"}`, `podcount_watch_age_seconds{kind="Count"}`,
		}
		ofQueue := func(name string) []string {
			return []string{
				`workqueue_depth{name="` + name + `"}`,
				`workqueue_unfinished_work_seconds{name="` + name + `"}`,
				`workqueue_longest_running_processor_seconds{name="` + name + `"}`,
			}
		}
		f.addNode("cp", controlPlane)
		f.inject(t, fault{match: to(func(s seen) bool { return s.Path == "/api/v1/pods" }), status: 503, body: "{}", times: 1})
		startPodcount(t, f, "-controllers", "*,looks")
		synctest.Wait()
		wantGauges("before the lists", false, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("before the lists", false, ofQueue("pod-count")...)
		wantGauges("before the lists", true, `podcount_watch_age_seconds{kind="Pod"}`)
		pass(time.Minute)
		wantGauges("at work", true, "podcount_pods", `podcount_cache_objects{kind="Pod"}`)
		wantGauges("at work", true, ofQueue("pod-count")...)
		wantGauges("without a CRD", false, ofCounts...)
		wantGauges("without a CRD", false, ofQueue("count")...)
		f.install(&fakeCRD{status: true})
		pass(time.Minute)
		wantGauges("with the CRD", true, ofCounts...)
		wantGauges("with the CRD", true, ofQueue("count")...)
		f.install(nil)
		pass(time.Minute)
		wantGauges("when the CRD is gone", false, ofCounts...)
	})
}

func TestTakenPortIsNamed(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	err = run(t.Context(), []string{"-master", "http://127.0.0.1:1", "-listen", taken.Addr().String()}, func(string) string { return "" }, io.Discard, io.Discard, nil)
	if err == nil || errors.As(err, new(usageError)) || !strings.Contains(err.Error(), "-listen "+taken.Addr().String()+": ") {
		t.Error(err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The manifest

func manifest(t *testing.T, args ...string) string {
	t.Helper()
	out := &logBuffer{}
	if err := run(t.Context(), args, func(string) string { return "" }, out, io.Discard, nil); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestManifestIsWhatDeployHas(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile("deploy/" + name + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for args, want := range map[string]string{
		"-manifest":                             read("podcount") + "---\n" + read("policy"),
		"-manifest=podcount":                    read("podcount"),
		"-manifest=count-crd":                   read("count-crd"),
		"-manifest=network-policy,count-sample": read("network-policy") + "---\n" + read("count-sample"),
	} {
		if got := manifest(t, args); got != want {
			t.Errorf("%s:\n%s", args, got)
		}
	}
}

func TestManifestThatCannotWorkIsWrongUsageAndPrintsNothing(t *testing.T) {
	for args, want := range map[string]string{
		"-manifest=all":                              `there is no "all"; there are podcount, policy, network-policy, count-crd, count-sample, alerts`,
		"-manifest=podcount,all":                     `there is no "all"`,
		"-manifest -once -listen :8080":              "-manifest -once prints a CronJob, which ends before",
		"-manifest -once -leader-elect":              "leave out -leader-elect",
		"-manifest -once -prune":                     "-manifest prints a Deployment",
		"-manifest=alerts -listen ":                  "-manifest=alerts: without -listen",
		"-manifest=alerts -once":                     "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest=podcount,alerts -once":            "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest=alerts -once -listen :8080":       "-manifest=alerts has nothing to say about a CronJob: leave out -once",
		"-manifest -prune":                           "-manifest prints a Deployment",
		"-manifest -kubeconfig x":                    "-manifest prints a Deployment",
		"-manifest -context x":                       "-manifest prints a Deployment",
		"-manifest -listen 127.0.0.1:8080":           "-manifest: -listen 127.0.0.1:8080 must be :PORT",
		"-manifest -listen :http":                    "-manifest: -listen :http must be :PORT",
		"-manifest -listen :0":                       "-manifest: -listen :0 must be :PORT",
		"-manifest -listen :65536":                   "-listen: address 65536: invalid port",
		"-manifest -leader-elect-resource-name view": "begin with podcount, as in podcount-view",
		"-manifest -leader-elect-resource-name podcount" + strings.Repeat("a", 56): "-leader-elect-resource-name podcountaaa",
		"-manifest -manifest-namespace ":                                           `-manifest-namespace ""`,
		"-manifest -manifest-namespace a.b":                                        `-manifest-namespace "a.b"`,
		"-manifest -image Podcount":                                                `-image "Podcount"`,
		"-manifest -image podcount:\n":                                             `-image "podcount:\n"`,
		"-manifest -image ":                                                        `-image ""`,
		"-manifest -pod-selector a>b":                                              `-pod-selector: requirement 1 "a>b"`,
		"-manifest -field-selector spec.nonsense=1":                                `-field-selector: field label not supported: "spec.nonsense"`,
	} {
		out := &logBuffer{}
		err := run(t.Context(), strings.Split(args, " "), func(string) string { return "" }, out, io.Discard, nil)
		if !errors.As(err, new(usageError)) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if out.String() != "" {
			t.Errorf("%q: printed %s", args, out)
		}
	}
}

func TestNamespacesThatLookLikeNumbersStayNames(t *testing.T) {
	text := manifest(t, "-manifest", "-manifest-namespace", "123", "-namespace", "null", "-leader-elect-resource-namespace", "true", "-listen", ":08080")
	namespaces := map[string]bool{}
	for doc := range strings.SplitSeq(text, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		if ns, has := metaOf(tree.(object))["namespace"]; has {
			name, isText := ns.(string)
			if !isText {
				t.Errorf("a namespace is read as %v", ns)
			}
			namespaces[name] = true
		}
	}
	if got := slices.Sorted(maps.Keys(namespaces)); !slices.Equal(got, []string{"123", "default", "null", "true"}) {
		t.Errorf("the namespaces are %q", got)
	}
	wantText(t, text, "containerPort: 8080}")
	wantText(t, text, `- "-listen=:8080"`)
}

func TestManifestFollowsTheFlagsThroughout(t *testing.T) {
	got := manifest(t, "-manifest", "-image", "r.example/podcount:v2", "-manifest-namespace", "ops", "-leader-elect-resource-name", "podcount-a", "-namespace", "a",
		"-total-label", "x.y/all", "-node-label", "x.y/own", "-total-nodes", "k in (a,b)", "-listen", ":9090", "-controllers", "pod-count")
	for _, want := range []string{
		"image: r.example/podcount:v2\n", "kind: ServiceAccount\nmetadata: {name: podcount-a, namespace: ops}", "subjects: [{kind: ServiceAccount, name: podcount-a, namespace: ops}]",
		"kind: RoleBinding\nmetadata: {name: podcount-a-pods, namespace: a}", "kind: Lease\nmetadata: {name: podcount-a, namespace: ops}", "resourceNames: [podcount-a]",
		`request.userInfo.username == "system:serviceaccount:ops:podcount-a"`, `'["x.y/all","x.y/own"]'`, "containerPort: 9090", `prometheus.io/port: "9090"`,
		`- "-total-nodes=k in (a,b)"`, `- "-node-label=x.y/own"`, `- "-listen=:9090"`, `- "-leader-elect=true"`, `- "-pod-events=off"`, "serviceAccountName: podcount-a\n", "policyName: podcount-a\n",
	} {
		wantText(t, got, want)
	}
	for _, absent := range []string{"kube-system", "name: podcount,", "name: podcount\n", "[podcount]", `:podcount"`, "hopegi", "counts", "8080", "-image", "manifest-namespace", "-manifest"} {
		_, docs, _ := strings.Cut(got, "apiVersion") // behind the comment
		if strings.Contains(docs, absent) && absent != "-manifest" || strings.Contains(docs, `"`+absent) {
			t.Errorf("%q is left in\n%s", absent, docs)
		}
	}

	// What is given stays as it is, whatever it is called.
	got = manifest(t, "-manifest=", "-manifest-namespace", "ops", "-field-selector", "metadata.namespace!=kube-system", "-namespace", "kube-system", "-qps", "8080",
		"-listen", ":9090", "-leader-elect-resource-namespace", "kube-system", "-total-label", "kube-system.example/podcount")
	for _, want := range []string{`- "-field-selector=metadata.namespace!=kube-system"`, `- "-namespace=kube-system"`, "name: podcount-pods, namespace: kube-system}", `- "-qps=8080"`,
		`- "-total-label=kube-system.example/podcount"`, `'["kube-system.example/podcount"]'`, `- "-leader-elect-resource-namespace=kube-system"`, "kind: Lease\nmetadata: {name: podcount, namespace: kube-system}"} {
		wantText(t, got, want)
	}

	got = manifest(t, "-manifest=podcount", "-leader-elect=false", "-listen", "", "-leader-elect-resource-namespace", "leases")
	for _, absent := range []string{"Probe", "containerPort", "prometheus.io", "replicas: 2", "kind: Lease", "[leases]"} {
		if _, docs, _ := strings.Cut(got, "apiVersion"); strings.Contains(docs, absent) {
			t.Errorf("%q is left in\n%s", absent, docs)
		}
	}
	wantText(t, got, "replicas: 1")
	got = manifest(t, "-manifest=podcount", "-leader-elect-resource-namespace", "leases")
	wantText(t, got, "kind: Role\nmetadata: {name: podcount-lease, namespace: leases}")
	wantText(t, got, "kind: RoleBinding\nmetadata: {name: podcount-lease, namespace: leases}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: podcount-lease}\nsubjects: [{kind: ServiceAccount, name: podcount, namespace: kube-system}]")
	wantText(t, got, "kind: Lease\nmetadata: {name: podcount, namespace: leases}")
}

// right is one that RBAC grants, or that a request needs.
type right struct {
	verb, group, resource string
	namespace             string // "": of the cluster, or every namespace
	name                  string // the one object; "": any
}

func (r right) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s.%s in %q %s", r.verb, r.resource, r.group, r.namespace, r.name))
}

// covers reports whether who has r may do what needs another right.
func (r right) covers(needed right) bool {
	return r.verb == needed.verb && r.group == needed.group && r.resource == needed.resource &&
		(r.namespace == "" || r.namespace == needed.namespace) && (r.name == "" || r.name == needed.name)
}

// rightsNeeded are the rights that a request needs.
func rightsNeeded(s seen) []right {
	c := callOf(s.Method, s.Path, s.Query)
	if strings.HasPrefix(s.Path, "/apis/") && strings.Count(s.Path, "/") == 3 { // discovery, which is everybody's
		return nil
	}
	r := right{verb: c.verb, group: c.group, resource: c.resource, name: path.Base(c.object)}
	if c.object == "" {
		r.name = ""
	}
	if _, rest, ok := strings.Cut(s.Path, "/namespaces/"); ok {
		r.namespace, _, _ = strings.Cut(rest, "/")
	}
	if s.Method == "PUT" && !strings.Contains(s.Body, `"resourceVersion"`) { // this makes the object
		create := r
		create.verb = "create"
		return []right{r, create}
	}
	return []right{r}
}

// rightsOf are the rights that a manifest grants, by its roles and bindings.
func rightsOf(t *testing.T, manifest string) (rights []right) {
	roles := map[string][]any{} // the rules, by kind, namespace and name
	var bindings []object
	for doc := range strings.SplitSeq(manifest, "\n---\n") {
		tree, err := yaml.Parse(doc)
		if err != nil {
			t.Fatal(err)
		}
		o := tree.(object)
		switch kind := str(o, "kind"); kind {
		case "ClusterRole", "Role":
			roles[kind+" "+str(metaOf(o), "namespace")+" "+str(metaOf(o), "name")] = o["rules"].([]any)
		case "ClusterRoleBinding", "RoleBinding":
			bindings = append(bindings, o)
		}
	}
	bound := map[string]bool{}
	for _, b := range bindings {
		namespace := str(metaOf(b), "namespace")
		ref := b["roleRef"].(object)
		role := str(ref, "kind") + "  " + str(ref, "name")
		if str(ref, "kind") == "Role" {
			role = "Role " + namespace + " " + str(ref, "name")
		}
		bound[role] = true
		for _, rule := range roles[role] {
			names, _ := rule.(object)["resourceNames"].([]any)
			if names == nil {
				names = []any{""}
			}
			for _, group := range rule.(object)["apiGroups"].([]any) {
				for _, resource := range rule.(object)["resources"].([]any) {
					for _, verb := range rule.(object)["verbs"].([]any) {
						for _, name := range names {
							rights = append(rights, right{verb.(string), group.(string), resource.(string), namespace, name.(string)})
						}
					}
				}
			}
		}
	}
	for role := range roles {
		if !bound[role] {
			t.Errorf("nobody has the role %s", role)
		}
	}
	return rights
}

// argsOf are the arguments that the Deployment or CronJob of a manifest gives to podcount.
func argsOf(t *testing.T, manifest string) (args []string) {
	_, rest, _ := strings.Cut(manifest, " args:\n")
	for line := range strings.Lines(rest) {
		quoted, isArg := strings.CutPrefix(strings.TrimSpace(line), "- ")
		if !isArg {
			break
		}
		var arg string
		if err := json.Unmarshal([]byte(quoted), &arg); err != nil {
			t.Fatal(err)
		}
		args = append(args, arg)
	}
	return args
}

// The limits of deploy/alerts.yaml are those of the default flags. That it looks back a day, to know a podcount, is none.
func TestAlertsOfTheManifestAreForItsFlags(t *testing.T) {
	everybodys, err := os.ReadFile("deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	limits := regexp.MustCompile(`alert: \w+|for: \w+|[<>=]+ \d+|\[\d+[mh]\]`)
	got := limits.FindAllString(manifest(t, "-manifest=alerts"), -1)
	want := limits.FindAllString(string(everybodys), -1)
	if !slices.Equal(got, want) {
		t.Errorf("by the default flags the limits are %q, in deploy/alerts.yaml %q", got, want)
	}

	text := manifest(t, "-manifest=alerts", "-qps", "0.1", "-workers", "2", "-manifest-namespace", "ops",
		"-leader-elect-resource-name", "podcount-a", "-leader-elect=false")
	wantText(t, text, "metadata:\n  name: podcount-a\n  namespace: ops\n")
	wantText(t, text, `processor_seconds{namespace="ops",pod=~"podcount-a-[a-z0-9]+-[a-z0-9]+"}[10m]) > 150`)
	if strings.Contains(text, "leader_election") {
		t.Errorf("without an election there is an alert about it:\n%s", text)
	}
}

func TestManifestOfOnceIsACronJobThatDoesItsWorkAndEnds(t *testing.T) {
	text := manifest(t, "-manifest", "-once", "-leader-elect-resource-name", "podcount-a", "-manifest-namespace", "ops", "-image", "r.example/p:v1")
	for _, absent := range []string{"Deployment", "PodDisruptionBudget", "Lease", "leases", "Probe", "containerPort", "prometheus.io", "replica", "affinity"} {
		if strings.Contains(text, absent) {
			t.Errorf("%q is in\n%s", absent, text)
		}
	}
	wantText(t, text, "kind: CronJob\nmetadata:\n  name: podcount-a\n  namespace: ops\n")
	wantText(t, text, "image: r.example/p:v1\n")
	wantText(t, text, "kind: ValidatingAdmissionPolicy\n")
	args := argsOf(t, text)
	if want := []string{"-leader-elect-resource-name=podcount-a", "-once=true", "-pod-events=off"}; !slices.Equal(args, want) {
		t.Errorf("its arguments are %q, want %q", args, want)
	}
	simulate(t, func(t *testing.T, f *fakeServer) {
		f.addNode("cp", controlPlane)
		f.addPods(3)
		p := startPodcount(t, f, args...)
		pass(time.Minute)
		wantLabel(t, f, "cp", podCountLabel, "3")
		select {
		case <-p.done:
		default:
			t.Error("it goes on")
		}
	})
}

// What podcount does with the arguments of its own manifest, it may do by the rights in it, and it has no right that it does
// not use: whatever the flags are.
func TestRightsOfTheManifestAreThoseThatAreUsed(t *testing.T) {
	for _, flags := range []string{
		"",
		"-pod-events on",
		"-node-label x.y/own",
		"-namespace default",
		"-namespace a",
		"-namespace a -pod-events on",
		"-namespace default -pod-events on",
		"-leader-elect=false",
		"-leader-elect-resource-namespace leases -leader-elect-resource-name podcount-b",
		"-dry-run",
		"-dry-run -namespace a",
		"-controllers pod-count",
		"-controllers pod-count -pod-events on",
		"-controllers pod-count -namespace a",
		"-controllers pod-count -namespace a -pod-events on",
		"-controllers pod-count -namespace default -pod-events on",
		"-controllers pod-count -namespace default",
		"-controllers pod-count -leader-elect=false",
		"-controllers pod-count -dry-run",
		"-controllers count",
		"-controllers count -namespace a",
		"-controllers count -dry-run",
		"-controllers pod-printer",
		"-controllers pod-printer -namespace a -leader-elect=false",
		"-once",
		"-once -dry-run",
		"-controllers *,pod-printer",
	} {
		t.Run(flags, func(t *testing.T) {
			text := manifest(t, append([]string{"-manifest=podcount"}, strings.Fields(flags)...)...)
			granted := rightsOf(t, text)
			simulate(t, func(t *testing.T, f *fakeServer) {
				f.install(&fakeCRD{status: true})
				f.addNode("cp", controlPlane)
				f.put("namespaces", object{"metadata": object{"name": "a"}})
				for _, ns := range []string{"default", "a"} {
					f.putJSON("counts", fmt.Sprintf(`{"metadata":{"namespace":%q,"name":"web"},"spec":{"name":"web","count":1}}`, ns))
				}
				args := append(argsOf(t, text), "-listen=", "-pod-selector=app")
				startPodcount(t, f, args...)
				pass(time.Minute)
				// A pod that comes, goes out of sight, and comes back makes each event happen twice.
				for range 2 {
					for _, app := range []string{"web", ""} {
						for _, ns := range []string{"default", "a"} {
							labels := object{"app": app}
							if app == "" {
								labels = nil
							}
							f.put("pods", podOn(object{"namespace": ns, "name": "p", "labels": labels}, "cp"))
							pass(time.Minute)
						}
					}
				}
				for _, lease := range f.all("leases") { // somebody removes it
					f.remove("leases", keyOf(lease))
				}
				pass(time.Minute)

				var used []right
				for _, s := range f.asked(func(seen) bool { return true }) {
					for _, needed := range rightsNeeded(s) {
						used = append(used, needed)
						if !slices.ContainsFunc(granted, func(g right) bool { return g.covers(needed) }) {
							t.Errorf("the manifest does not allow: %s", needed)
						}
					}
				}
				for _, g := range granted {
					if !slices.ContainsFunc(used, g.covers) {
						t.Errorf("the manifest allows what is not used: %s", g)
					}
				}
			})
		})
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// The fake itself, held against recordings and against kubectl

func TestFakeAnswersAsTheRealServerDid(t *testing.T) {
	setUp := func() *fakeServer {
		f := newFake()
		f.addNode("cp-1", controlPlane)
		for _, name := range []string{"p1", "p2", "p3"} {
			f.put("pods", podOn(object{"namespace": "default", "name": name, "labels": object{"app": "nginx"}}, "cp-1"))
		}
		return f
	}
	event := `{"apiVersion":"v1","kind":"Event","metadata":{"name":"p1.17b1","namespace":"default"},"involvedObject":{"kind":"Pod","name":"p1","namespace":"default","uid":"u"},"count":1}`
	lease := `{"metadata":{"name":"podcount","namespace":"kube-system"},"spec":{"holderIdentity":"a"}}`
	before := map[string]func(*fakeServer){ // what had happened before the recording
		"list-expired-continue": func(f *fakeServer) { f.setVersion(f.latest() + 1000); f.compact() },
		"watch-expired":         func(f *fakeServer) { f.setVersion(f.latest() + 1000); f.compact() },
		"node-patch-refused-by-policy": func(f *fakeServer) {
			f.putJSON("validatingadmissionpolicies", `{"metadata":{"name":"no-pod-count"},"spec":{"matchConditions":[{"expression":"object.metadata.name == 'cp-1'"}],"validations":[{"expression":"!('hopegi/pod-count' in object.metadata.labels)","message":"thirteen is not allowed here"}]}}`)
			f.putJSON("validatingadmissionpolicybindings", `{"metadata":{"name":"no-pod-count"},"spec":{"policyName":"no-pod-count"}}`)
		},
		"discovery-group":             func(f *fakeServer) { f.install(&fakeCRD{}) },
		"discovery-group-status":      func(f *fakeServer) { f.install(&fakeCRD{status: true}) },
		"unauthorized":                func(f *fakeServer) { f.allow("x") },
		"forbidden-list":              func(f *fakeServer) { f.forbid("list pods", true) },
		"forbidden-patch":             func(f *fakeServer) { f.forbid("patch nodes", true) },
		"event-count-patch":           func(f *fakeServer) { f.putJSON("events", event) },
		"event-duplicate-name":        func(f *fakeServer) { f.putJSON("events", event) },
		"lease-create-exists":         func(f *fakeServer) { f.putJSON("leases", lease) },
		"lease-update-conflict":       func(f *fakeServer) { f.putJSON("leases", lease) },
		"lease-update":                func(f *fakeServer) { f.setVersion(211); f.putJSON("leases", lease) },
		"lease-put-exists-without-rv": func(f *fakeServer) { f.putJSON("leases", strings.ReplaceAll(lease, "podcount", "podcount-put")) },
	}
	for name, crd := range map[string]fakeCRD{"no-subresource": {}, "prune": {drops: true}, "subresource": {status: true}} {
		for _, to := range []string{"-patch", "-patch-status"} {
			before["count-"+name+to] = func(f *fakeServer) {
				f.install(&crd)
				f.addCount("test-count", `{"name":"nginx","count":3}`)
			}
		}
	}
	files, _ := filepath.Glob("testdata/transcripts/*.txt")
	if len(files) < 39 {
		t.Fatalf("only %d recordings", len(files))
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".txt")
		text, _ := os.ReadFile(file)
		var method, target, contentType, accept, body string
		head, want, _ := strings.Cut(string(text), "\n\n")
		lines := strings.Split(head, "\n")
		var code int
		mediaType := ""
		for i, line := range lines {
			sent, isSent := strings.CutPrefix(line, "> ")
			key, value, _ := strings.Cut(line, ": ")
			switch {
			case i == 0:
				method, target, _ = strings.Cut(sent, " ")
			case strings.HasPrefix(sent, "Content-Type: ") && isSent:
				contentType = sent[len("Content-Type: "):]
			case strings.HasPrefix(sent, "Accept: ") && isSent:
				accept = sent[len("Accept: "):]
			case isSent:
				body = sent
			case strings.HasPrefix(line, "HTTP/2 "):
				code, _ = strconv.Atoi(strings.TrimSpace(line[7:]))
			case key == "content-type":
				mediaType = value
			}
		}
		f := setUp()
		if change := before[name]; change != nil {
			change(f)
		}
		if name == "list-page-2" { // a token of this fake
			first := httptest.NewRecorder()
			f.ServeHTTP(first, httptest.NewRequest("GET", "/api/v1/pods?limit=2", nil))
			target = "/api/v1/pods?limit=2&continue=" + regexp.MustCompile(`"continue":"([^"]*)"`).FindStringSubmatch(first.Body.String())[1]
		}
		if name == "watch-from-list" { // the events of the recording
			target = strings.Replace(target, "resourceVersion=202", "resourceVersion="+strconv.Itoa(f.latest()), 1)
			target = strings.Replace(target, "timeoutSeconds=3", "timeoutSeconds=1", 1)
			f.addPod("default", "p4", "cp-1")
			f.remove("pods", objectKey{"default", "p4"})
		}
		req := httptest.NewRequest(method, target, strings.NewReader(body))
		req.Header.Set("Content-Type", contentType)
		req.Header.Set("Accept", accept)
		got := httptest.NewRecorder()
		f.ServeHTTP(got, req)
		if got.Code != code || got.Header().Get("Content-Type") != mediaType {
			t.Errorf("%s: %d %s, recorded: %d %s", name, got.Code, got.Header().Get("Content-Type"), code, mediaType)
		}
		gotLines, wantLines := strings.Split(strings.TrimSpace(got.Body.String()), "\n"), strings.Split(strings.TrimSpace(want), "\n")
		if len(gotLines) != len(wantLines) {
			t.Errorf("%s: %d lines, recorded: %d", name, len(gotLines), len(wantLines))
			continue
		}
		if strings.HasPrefix(name, "count-") { // what it kept, and what that did to the generation
			kept := regexp.MustCompile(`"generation":\d+|"(healthy|count)":\w+`)
			g, w := kept.FindAllString(got.Body.String(), -1), kept.FindAllString(want, -1)
			if slices.Sort(g); !slices.Equal(g, slices.Sorted(slices.Values(w))) {
				t.Errorf("%s: %q, recorded: %q", name, g, w)
			}
		}
		for i := range gotLines {
			var g, w any
			if json.Unmarshal([]byte(gotLines[i]), &g) != nil || json.Unmarshal([]byte(wantLines[i]), &w) != nil {
				if gotLines[i] != wantLines[i] {
					t.Errorf("%s: %q, recorded: %q", name, gotLines[i], wantLines[i])
				}
				continue
			}
			sameShape(t, name, g, w)
		}
	}
}

// sameShape compares what the fake answered with what was recorded: what a client decides by must be the same, and what
// the fake has at all must be of the same type. A real object has more fields.
func sameShape(t *testing.T, at string, got, want any) {
	t.Helper()
	exact := regexp.MustCompile(`\.(kind|apiVersion|type|status|reason|code|field|retryAfterSeconds|name|namespace|group|count|holderIdentity)$`)
	switch g := got.(type) {
	case object:
		w, ok := want.(object)
		if !ok {
			t.Errorf("%s is an object, recorded: %v", at, want)
			return
		}
		if status := w["kind"] == "Status" || w["metadata"] != nil; status {
			for k := range w { // no field that decides anything is missing
				if !slices.Contains([]string{"spec", "status", "eventTime", "reportingComponent", "reportingInstance", "firstTimestamp", "lastTimestamp", "source", "message", "reason", "type"}, k) {
					if _, ok := g[k]; !ok {
						t.Errorf("%s.%s is missing", at, k)
					}
				}
			}
		}
		for k := range g {
			if wv, ok := w[k]; ok {
				sameShape(t, at+"."+k, g[k], wv)
			}
		}
	case []any:
		w, ok := want.([]any)
		if !ok {
			t.Errorf("%s is a list, recorded: %v", at, want)
			return
		}
		if strings.HasSuffix(at, ".items") && len(g) != len(w) {
			t.Errorf("%s: %d items, recorded: %d", at, len(g), len(w))
		}
		for i := range min(len(g), len(w)) {
			sameShape(t, at, g[i], w[i])
		}
	default:
		if fmt.Sprintf("%T", got) != fmt.Sprintf("%T", want) || exact.MatchString(at) && got != want {
			t.Errorf("%s is %v, recorded: %v", at, got, want)
		}
	}
}

func TestFakeReadsWhatARequestAsksForFromItsPath(t *testing.T) {
	for request, want := range map[string]route{
		"GET /api/v1/pods":                           {Verb: "list", Version: "v1", Resource: "pods"},
		"HEAD /api/v1/pods":                          {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=1":                   {Verb: "watch", Version: "v1", Resource: "pods"},
		"GET /api/v1/pods?watch=false":               {Verb: "list", Version: "v1", Resource: "pods"},
		"GET /api/v1/namespaces/a/pods/b?watch=true": {Verb: "get", Version: "v1", Resource: "pods", Namespace: "a", Name: "b"},
		"POST /api/v1/namespaces/a/pods":             {Verb: "create", Version: "v1", Resource: "pods", Namespace: "a"},
		"DELETE /api/v1/namespaces/a/pods":           {Verb: "deletecollection", Version: "v1", Resource: "pods", Namespace: "a"},
		"DELETE /api/v1/nodes/n":                     {Verb: "delete", Version: "v1", Resource: "nodes", Name: "n"},
		"PATCH /api/v1/namespaces/a":                 {Verb: "patch", Version: "v1", Resource: "namespaces", Name: "a"},
		"PUT /api/v1/namespaces/a/status":            {Verb: "update", Version: "v1", Resource: "namespaces", Name: "a", Subresource: "status"},
		"PATCH /apis/g.h/v2/namespaces/a/things/b/status": {
			Verb: "patch", Group: "g.h", Version: "v2", Resource: "things", Namespace: "a", Name: "b", Subresource: "status",
		},
		"GET /api/v1":                  {Verb: "get"},
		"GET /apis/g.h/v2":             {Verb: "get"},
		"GET /":                        {Verb: "get"},
		"POST /version":                {Verb: "post"},
		"GET /api/v1/pods/a/b/c":       {Verb: "get"},
		"OPTIONS /api/v1/pods":         {Version: "v1", Resource: "pods"},
		"GET /api/v1/watch?watch=0&a=": {Verb: "list", Version: "v1", Resource: "watch"},
	} {
		method, target, _ := strings.Cut(request, " ")
		got := seenOf(httptest.NewRequest(method, target, nil)).route
		if got != want {
			t.Errorf("%s is %+v, want %+v", request, got, want)
		}
	}
}

func TestFakeSelectsAsTheServerDoes(t *testing.T) {
	f := newFake()
	for name, labels := range map[string]object{
		"none":  {},
		"empty": {"app": ""},
		"web":   {"app": "web", "x.y/tier": "7"},
		"in":    {"app": "in", "in": "notin"},
	} {
		f.put("pods", podOn(object{"namespace": "default", "name": name, "labels": labels}, "node-"+name))
	}
	type selectors struct{ label, field string }
	for given, want := range map[selectors]string{
		{}:                                   "empty in none web",
		{label: " \t "}:                      "empty in none web",
		{label: "app"}:                       "empty in web",
		{label: "!app"}:                      "none",
		{label: "! app"}:                     "none",
		{label: "app="}:                      "empty",
		{label: "app=,!x"}:                   "empty",
		{label: "app==web"}:                  "web",
		{label: "app != web"}:                "empty in none",
		{label: "app in (web,in)"}:           "in web",
		{label: "app in(in)"}:                "in",
		{label: "app in ()"}:                 "empty",
		{label: "app in (,web)"}:             "empty web",
		{label: "app notin (web, in)"}:       "empty none",
		{label: "in in (in,notin)"}:          "in",
		{label: "in"}:                        "in",
		{label: "x.y/tier>6"}:                "web",
		{label: "x.y/tier > 7"}:              "",
		{label: "x.y/tier<8,app"}:            "web",
		{label: "app>1"}:                     "",
		{field: "metadata.name=web"}:         "web",
		{field: "metadata.name==web,"}:       "web",
		{field: "metadata.name!=web"}:        "empty in none",
		{field: "spec.nodeName=node-in"}:     "in",
		{field: `metadata.name!=a\,b\=c\\d`}: "empty in none web",
		{label: "app", field: "metadata.name!=web,metadata.namespace=default"}: "empty in",
		{field: "metadata.namespace=other"}:                                    "",
	} {
		var names []string
		for _, o := range f.selected("pods", "", given.label, given.field) {
			names = append(names, keyOf(o).Name)
		}
		slices.Sort(names)
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%+v selects %q, want %q", given, got, want)
		}
	}
}

func TestFakeRefusesSelectorsAsTheServerDoes(t *testing.T) {
	f := newFake()
	for query, want := range map[string]string{
		"labelSelector=,":                                "found ',', expected: !, identifier, or 'end of string'",
		"labelSelector=a,":                               "found '', expected: identifier after ','",
		"labelSelector=a%20b":                            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
		"labelSelector=!a%3Db":                           "found '=', expected: ',' or 'end of string'",
		"labelSelector=a%3D%3D%3Db":                      "unable to parse requirement: found '=', expected: identifier",
		"labelSelector=a%20in%20b":                       "unable to parse requirement: found 'b' expected: '('",
		"labelSelector=a%20in%20(b":                      "unable to parse requirement: found '', expected: ',' or ')'",
		"labelSelector=a%3E-1":                           "unable to parse requirement: <nil>: Invalid value: \"-1\": a valid label must be",
		"labelSelector=a%3Eb":                            "the value must be an integer",
		"labelSelector=-a":                               "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of",
		"labelSelector=A.b/c":                            "prefix part a lowercase RFC 1123 subdomain",
		"labelSelector=a/b/c":                            "name part must consist of",
		"labelSelector=a/":                               "name part must be non-empty",
		"labelSelector=" + strings.Repeat("a", 64):       "name part must be no more than 63 characters",
		"labelSelector=a%3D" + strings.Repeat("a", 64):   "must be no more than 63 characters",
		"labelSelector=a%3Db_":                           "a valid label must be an empty string",
		"fieldSelector=metadata.name":                    "invalid selector: 'metadata.name'; can't understand 'metadata.name'",
		"fieldSelector=metadata.name%3Da%3Db":            "unescaped character in value: =",
		"fieldSelector=metadata.name%3Da%5Cb":            "invalid escape sequence: \\b",
		"fieldSelector=spec.color%3Dred":                 "field label not supported: spec.color",
		"fieldSelector=metadata.name%3Da,involvedObject": "can't understand 'involvedObject'",
	} {
		w := httptest.NewRecorder()
		f.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/pods?"+query, nil))
		status, _ := parsed(w.Body.String()).(object)
		if w.Code != 400 || str(status, "reason") != "BadRequest" || !strings.Contains(str(status, "message"), want) {
			t.Errorf("%s: %d %s, want 400 BadRequest and %q", query, w.Code, w.Body, want)
		}
	}
}

// notes is a spy that writes down what it hears.
type notes struct{ lines []string }

func (n *notes) asked(q seen) { n.lines = append(n.lines, "asked "+q.route.String()) }

func (n *notes) told(a answer, event string, o object) {
	n.lines = append(n.lines, fmt.Sprintf("told %s %s %s, cut: %v", a.Request.route, event, keyOf(o), a.IsCut))
}

func (n *notes) answered(a answer) {
	n.lines = append(n.lines, fmt.Sprintf("answered %s %d, %d items, more: %v, cut: %v", a.Request.route, a.Code, len(a.Items), a.HasMore, a.IsCut))
}

func (n *notes) changed(c change) {
	n.lines = append(n.lines, fmt.Sprintf("changed %s %s, lost: %v", c.Resource, c.key(), c.Lost))
}

func TestSpyHearsWhatTheFakeHearsAndSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		n := &notes{}
		f.spy = n
		f.addPods(2)
		f.loseNext(1)
		f.addNode("n")
		client := &http.Client{Transport: &http.Transport{DialContext: f.serveIn(t).dial}}
		ask := func(method, path, body string) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, method, "http://fake"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Content-Type", "application/merge-patch+json")
			answer, err := client.Do(r)
			if err != nil {
				return // a fault
			}
			io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
		ask("GET", "/api/v1/pods?limit=1", "")
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"b"}}}`)
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"-"}}}`)
		f.inject(t, fault{match: to(isList("nodes")), cut: 10})
		ask("GET", "/api/v1/nodes", "")
		f.inject(t, fault{match: to(isWrite), after: true})
		ask("PATCH", "/api/v1/nodes/n", `{"metadata":{"labels":{"a":"c"}}}`)
		f.inject(t, fault{match: to(isList("nodes")), status: 500})
		ask("GET", "/api/v1/nodes", "")
		ask("GET", "/api/v1/nodes?watch=1&resourceVersion=205&timeoutSeconds=1", "")
		ask("GET", "/nothing", "")
		client.CloseIdleConnections()
		want := `
changed pods default/web-0, lost: false
changed pods default/web-1, lost: false
changed nodes n, lost: true
asked list pods
answered list pods 200, 1 items, more: true, cut: false
asked patch nodes/n
changed nodes n, lost: false
answered patch nodes/n 200, 0 items, more: false, cut: false
asked patch nodes/n
answered patch nodes/n 422, 0 items, more: false, cut: false
asked list nodes
answered list nodes 200, 1 items, more: false, cut: true
asked patch nodes/n
changed nodes n, lost: false
asked list nodes
asked watch nodes
told watch nodes MODIFIED n, cut: false
told watch nodes MODIFIED n, cut: false
asked get`
		synctest.Wait()
		got := "\n" + strings.TrimSpace(strings.Join(n.lines, "\n"))
		if got != want {
			t.Errorf("the spy heard:%s\nwant:%s", got, want)
		}
	})
}

func TestKubectlWorksAgainstTheFake(t *testing.T) {
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		t.Skip("kubectl is not installed")
	}
	f := newFake()
	f.allow("t")
	f.addNode("cp", controlPlane, podCountLabel+"=7")
	f.addPod("kube-system", "dns", "cp")
	server, ca := f.serveTLSFor(t)
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(kubeconfigFor(server, ca, "token: t")), 0o600)
	run := func(args ...string) string {
		t.Helper()
		cmd := exec.Command(kubectl, append([]string{"--kubeconfig", file, "--cache-dir", filepath.Join(t.TempDir(), "cache"), "--request-timeout", "20s"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("kubectl %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	f.putJSON("events", fmt.Sprintf(`{"metadata":{"name":"cp.1","namespace":"default"},"involvedObject":{"kind":"Node","name":"cp","uid":%q},"reason":"PodCountChanged","message":"pod count changed from 6 to 7","type":"Normal","count":1,"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z","source":{"component":"podcount"}}`, str(metaOf(f.get("nodes", objectKey{"", "cp"})), "uid")))
	wantText(t, run("get", "pods", "-A"), "dns")
	wantText(t, run("get", "nodes", "--show-labels"), "hopegi/pod-count=7")
	wantText(t, run("get", "events"), "cp.1")
	wantText(t, run("describe", "node", "cp"), "pod count changed from 6 to 7")
	run("run", "mine", "--image=nginx")
	if f.get("pods", objectKey{"default", "mine"}) == nil {
		t.Error("kubectl run made no pod")
	}
	wantText(t, run("describe", "pod", "mine"), "nginx")
	run("label", "node", "cp", "zone=a")
	wantLabel(t, f, "cp", "zone", "a")
	run("delete", "pod", "mine")
	if f.get("pods", objectKey{"default", "mine"}) != nil {
		t.Error("kubectl delete left the pod")
	}

	before := len(f.asked(isWatch("pods")))
	watch := exec.Command(kubectl, "--kubeconfig", file, "--cache-dir", filepath.Join(t.TempDir(), "cache"), "get", "pods", "-w", "-o", "name")
	stdout, _ := watch.StdoutPipe()
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	shown := make(chan bool, 1)
	go func() {
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && lines.Text() != "pod/watched" {
		}
		shown <- lines.Text() == "pod/watched"
	}()
	f.await(t, "kubectl's watch", func() bool { return len(f.asked(isWatch("pods"))) > before })
	f.addPod("default", "watched", "")
	select {
	case ok := <-shown:
		if !ok {
			t.Error("kubectl get -w ended without showing the new pod")
		}
	case <-time.After(20 * time.Second):
		t.Error("kubectl get -w did not show the new pod")
	}
	watch.Process.Kill()
	watch.Wait()
}

// ---------------------------------------------------------------------------------------------------------------------
// Simulated time: a seed chooses a cluster's life and its faults
//
// A simulation runs a whole program, one process or several, against the fake, in virtual time. Each seed is two hours
// of pods, nodes and Counts that come, move and go, while anything that can fail does; a day, where the seed is a
// multiple of 50. Every request is held against the rules as it comes, and what each process says of its watches
// against the fake's history. In between, and in the end, all faults stop: then everything must be right within the
// bound, and quiet. The same seed brings the same life and the same faults; what the program does with them is up to
// its own dice and the scheduler's.

// ---- Running a seed

// simProgram is the program under simulation, from its flags to its end, which comes when ctx ends. It reaches the
// server through dial alone. Besides flags for the job, it understands -master, -v and -log-format json.
type simProgram func(
	ctx context.Context,
	args []string,
	getenv func(string) string,
	stdout, stderr io.Writer,
	dial func(ctx context.Context, network, addr string) (net.Conn, error),
) error

// simOptions say what is simulated, and what the program promises. Of the program the simulation knows nothing but
// this, its flags, and the few lines of its log that heard.go reads.
type simOptions struct {
	program simProgram

	// seed chooses the flags, the cluster's life and its faults.
	seed uint64

	// wholeStory shows all that happened when a seed fails, not just the end.
	wholeStory bool

	// totalLabel is the node label that shows how many pods there are.
	totalLabel string

	// controlPlaneLabel marks the nodes that show the total, unless flags say otherwise.
	controlPlaneLabel string

	// The lease by which processes elect a leader, unless flags say otherwise.
	leaseNamespace, leaseName string

	// leaseLost is part of the error with which a process ends that has lost its lease. It may end with no other.
	leaseLost string

	// longestBackoff is the longest time between two tries at the same thing, with jitter.
	longestBackoff time.Duration

	// longestDiscovery is the longest time between two questions for a resource that may not be installed, with
	// jitter. It takes two to know that one is gone.
	longestDiscovery time.Duration

	// silence is how long a connection may be silent before it is taken for dead.
	silence time.Duration

	// longestUnlisted is the longest time between two lists of a resource that is being watched, also where the first
	// try at the second one fails. A change that no watch tells of stays unknown for so long.
	longestUnlisted time.Duration

	// statusRest is the least time between two writes to the status of one Count, where the interval is not less.
	statusRest time.Duration
}

// simResult is what became of a seed.
type simResult struct {
	stats simStats

	// script is the life and the faults that the seed brought, a line each, and when.
	script []string

	// broken are the rules that were broken; story is what led there.
	broken []string
	story  string
}

// simStats is what was seen.
type simStats struct {
	seeds     int
	changes   int // of the cluster's life, and faults
	faults    int
	requests  int
	writes    int
	watches   int // that processes said they had begun
	events    int // that processes said they had heard, bookmarks too
	calms     int // times that all faults stopped
	simulated time.Duration
	slowest   time.Duration // the last write after all faults had stopped
}

func (s *simStats) add(o simStats) {
	s.seeds += o.seeds
	s.changes += o.changes
	s.faults += o.faults
	s.requests += o.requests
	s.writes += o.writes
	s.watches += o.watches
	s.events += o.events
	s.calms += o.calms
	s.simulated += o.simulated
	s.slowest = max(s.slowest, o.slowest)
}

func (s simStats) String() string {
	return fmt.Sprintf("%d seeds, %.0f simulated hours: %d changes, %d of them faults; %d requests, %d writes, "+
		"%d watches with %d events held against the rules; "+
		"%d times all faults stopped, the last write was %v later at most",
		s.seeds, s.simulated.Hours(), s.changes, s.faults, s.requests, s.writes,
		s.watches, s.events, s.calms, s.slowest.Round(time.Millisecond))
}

// sim is the simulation of one seed. It is the fake's spy.
type sim struct {
	simOptions
	simFlags
	t       *testing.T
	fake    *fakeServer
	net     *pipeNet
	dice    *rand.Rand // the seed's: its loop alone draws from them
	faults  []simStep  // that this seed has
	backup  func()     // restores the backup; nil: none has been made
	began   time.Time
	script  []string // what the seed has brought, and when
	running sync.WaitGroup

	mu     sync.Mutex // guards all below, and all processes; taken after the fake's
	story  []string
	wrong  []string // rules that were broken
	over   bool     // no process starts any more
	stats  simStats
	heard  hearingTotals
	slots  []*proc          // the processes that run, or the last ones of those that will be followed by another
	byHost map[string]*proc // every one that ever was

	history map[string][]change // by resource, without what a restored backup has undone
	newest  int                 // version

	leaseRenewed  time.Time         // by whichever process
	leaseTampered time.Time         // by somebody else: for a moment the lease says nothing
	leaderHost    string            // which got the lease last
	leaderAsked   time.Time         // when it asked for that
	hostOf        map[string]string // by lease holder

	patience    time.Duration // beyond the usual bound, for what has happened since the last calm
	killsWriter bool          // the next process that gets the answer to a node's patch is killed
	wroteAt     time.Time
}

// simFlags are the flags that a seed chooses, and what they mean.
type simFlags struct {
	args           []string
	interval       time.Duration
	selects        func(pod object) bool
	namespace      string // whose pods are counted; "": all of them
	labelsEachNode bool   // with the number of its own pods
	runsCounts     bool   // the controller count runs
	leaseDuration  time.Duration
	renewDeadline  time.Duration // 0, as the duration, without an election
}

// elects reports whether processes elect a leader.
func (o simFlags) elects() bool { return o.leaseDuration > 0 }

// ownPodsNodeLabel is what the simulation gives as -node-label.
const ownPodsNodeLabel = "hopegi/here"

// drawFlags chooses the flags of all processes.
func drawFlags(dice *rand.Rand) simFlags {
	o := simFlags{selects: func(object) bool { return true }}
	o.interval = pick(dice, time.Second, 10*time.Second, 10*time.Second, 30*time.Second)
	o.args = []string{"-interval", o.interval.String()}
	o.args = append(o.args, "-wire", pick(dice, "protobuf", "protobuf", "json"))
	o.args = append(o.args, "-pod-events", pick(dice, "on", "off", "off", "off"))
	o.labelsEachNode = dice.IntN(2) == 0
	if o.labelsEachNode {
		o.args = append(o.args, "-node-label", ownPodsNodeLabel)
	}
	switch dice.IntN(6) {
	case 0:
		o.args = append(o.args, "-pod-selector", "app in (web,none)")
		o.selects = func(pod object) bool {
			app := labelOf(pod, "app")
			return app == "web" || app == "none"
		}
	case 1:
		o.args = append(o.args, "-field-selector", "spec.nodeName!=")
		o.selects = func(pod object) bool { return nodeOf(pod) != "" }
	case 2:
		o.args = append(o.args, "-namespace", "default")
		o.namespace = "default"
	}
	o.runsCounts = dice.IntN(2) > 0
	if !o.runsCounts {
		o.args = append(o.args, "-controllers", "pod-count")
	}
	return o
}

// drawElection chooses whether processes elect a leader, and how fast.
func (o *simFlags) drawElection(dice *rand.Rand) {
	if dice.IntN(2) > 0 {
		return
	}
	type times struct{ duration, deadline, retry time.Duration }
	short := times{15 * time.Second, 10 * time.Second, 2 * time.Second}
	middle := times{60 * time.Second, 40 * time.Second, 10 * time.Second}
	long := times{120 * time.Second, 80 * time.Second, 20 * time.Second}
	chosen := pick(dice, short, middle, long, long, long)
	o.leaseDuration = chosen.duration
	o.renewDeadline = chosen.deadline
	o.args = append(o.args, "-leader-elect",
		"-leader-elect-lease-duration", chosen.duration.String(),
		"-leader-elect-renew-deadline", chosen.deadline.String(),
		"-leader-elect-retry-period", chosen.retry.String())
}

func labelOf(o object, key string) string {
	labels, _ := metaOf(o)["labels"].(object)
	return str(labels, key)
}

func nodeOf(pod object) string {
	spec, _ := pod["spec"].(object)
	return str(spec, "nodeName")
}

// pick draws one of several.
func pick[T any](dice *rand.Rand, of ...T) T { return of[dice.IntN(len(of))] }

// runSeed simulates one seed, in virtual time, and makes the test fail if a rule was broken.
func runSeed(t *testing.T, o simOptions) simResult {
	result := simulateSeed(t, o)
	if len(result.broken) > 0 {
		first := strings.Join(result.broken[:min(len(result.broken), 5)], "\n")
		t.Errorf("seed %d: %s\n%s\nseed %d: %s\nmake sim SEEDS=%d-%d runs the same life and faults",
			o.seed, result.broken[0], result.story, o.seed, first, o.seed, o.seed)
	}
	return result
}

// simulateSeed is runSeed for a test that expects broken rules.
func simulateSeed(t *testing.T, o simOptions) (result simResult) {
	synctest.Test(t, func(t *testing.T) {
		s := newSim(t, o)
		s.run()
		result = s.end()
	})
	return result
}

// newSim draws what a seed starts with.
func newSim(t *testing.T, o simOptions) *sim {
	dice := rand.New(rand.NewPCG(o.seed, 0))
	s := &sim{
		simOptions: o,
		t:          t,
		fake:       newFake(),
		dice:       dice,
		began:      time.Now(),
		byHost:     map[string]*proc{},
		history:    map[string][]change{},
		hostOf:     map[string]string{},
	}
	s.fake.spy = s
	s.net = s.fake.serveIn(t)
	s.fake.bookmarks = pick(dice, time.Minute, time.Minute, time.Minute, 0)
	s.simFlags = drawFlags(dice)
	s.slots = make([]*proc, pick(dice, 1, 1, 1, 1, 2, 3))
	s.drawElection(dice)
	for _, fault := range simFaults() {
		if dice.IntN(3) == 0 {
			s.faults = append(s.faults, fault)
		}
	}
	return s
}

// run is the life of the cluster.
func (s *sim) run() {
	faulty := pick(s.dice, 0.1, 0.3, 0.6)
	s.fake.install(&fakeCRD{status: s.dice.IntN(4) > 0})
	s.fake.addNode("n0", s.controlPlaneLabel)
	for range 30 {
		s.step(lifeSteps)
	}
	for i := range s.slots {
		s.launch(i)
	}
	total := 2 * time.Hour
	gap := 3 * time.Minute // between two steps, at most
	if s.seed%50 == 0 {
		total = 24 * time.Hour
		gap = 10 * time.Minute
	}
	for time.Since(s.began) < total && !s.hasBroken() {
		s.live(s.some(span{2 * gap, 20 * gap}), gap, faulty)
		if s.hasBroken() {
			return
		}
		s.flurry()
		s.calm()
	}
}

// live takes one step after the other, for so long. faulty is how many of them are faults, from 0 to 1.
func (s *sim) live(d, gap time.Duration, faulty float64) {
	calm := time.Now().Add(d)
	for time.Now().Before(calm) && !s.hasBroken() {
		isFault := s.dice.Float64() < faulty && len(s.faults) > 0
		s.count(isFault)
		if isFault {
			s.step(s.faults)
		} else {
			s.step(lifeSteps)
		}
		<-time.After(s.some(span{50 * time.Millisecond, gap}))
	}
}

func (s *sim) count(isFault bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.changes++
	if isFault {
		s.stats.faults++
	}
}

// end stops all processes, and returns what has been.
func (s *sim) end() simResult {
	s.mu.Lock()
	s.over = true
	for _, p := range s.byHost {
		p.stop()
	}
	s.mu.Unlock()
	s.running.Wait()

	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.simulated = time.Since(s.began)
	s.stats.seeds = 1
	if len(s.wrong) == 0 {
		s.checkTotalsLocked()
	}
	return simResult{stats: s.stats, script: s.script, broken: s.wrong, story: s.tellLocked()}
}

// ---- Many seeds

// simSeeds are seeds to run, from first to last, both included.
type simSeeds struct {
	first, last uint64

	// limit is the time after which no more are begun; 0: none.
	limit time.Duration

	// areChosen says that somebody asked for these: all of them are run even if one fails, and from time to time it
	// is said how far they are.
	areChosen bool
}

// parseSimSeeds reads "N", the seeds up to N, or "FROM-TO".
func parseSimSeeds(text string) (simSeeds, error) {
	seeds := simSeeds{first: 1, areChosen: true}
	var err error
	from, to, isRange := strings.Cut(text, "-")
	if isRange {
		seeds.first, err = strconv.ParseUint(from, 10, 63)
		if err != nil {
			return simSeeds{}, fmt.Errorf("seeds %q: %w", text, err)
		}
	} else {
		to = from
	}
	seeds.last, err = strconv.ParseUint(to, 10, 63)
	if err != nil {
		return simSeeds{}, fmt.Errorf("seeds %q: %w", text, err)
	}
	return seeds, nil
}

// seedQueue hands out seeds to those that run them, and adds up what they have seen.
type seedQueue struct {
	simSeeds
	end time.Time

	mu   sync.Mutex // guards all below
	next uint64
	sum  simStats
	said time.Time // how far they are
}

// take returns the next seed; false: there are no more, or there is no more time.
func (q *seedQueue) take() (seed uint64, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.areChosen && time.Since(q.said) > 30*time.Second {
		q.said = time.Now()
		fmt.Println(q.sum)
	}
	if q.next > q.last || q.limit > 0 && !time.Now().Before(q.end) {
		return 0, false
	}
	q.next++
	return q.next - 1, true
}

func (q *seedQueue) done(stats simStats) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sum.add(stats)
}

// runSeeds simulates many seeds, as many at a time as there are processors, and prints what was seen.
func runSeeds(t *testing.T, o simOptions, seeds simSeeds) {
	queue := &seedQueue{simSeeds: seeds, end: time.Now().Add(seeds.limit), next: seeds.first, said: time.Now()}
	t.Run("seeds", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				queue.work(t, o)
			})
		}
	})
	fmt.Println(queue.sum)
	if queue.sum.seeds == 0 {
		t.Error("no seed has run")
	}
}

// work runs seeds until there are no more, or one has failed that nobody chose.
func (q *seedQueue) work(t *testing.T, o simOptions) {
	for q.areChosen || !t.Failed() {
		seed, ok := q.take()
		if !ok {
			return
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			o := o
			o.seed = seed
			q.done(runSeed(t, o).stats)
		})
	}
}

// ---- Life

// simStep is something that happens in a simulated cluster, good or bad.
type simStep struct {
	name string

	// weight is how often the step is drawn, in proportion to the others.
	weight int

	// do makes it happen, and returns in words what it was, for the story; "": nothing.
	do func(*sim) string
}

// step draws one of the steps, and does it.
func (s *sim) step(of []simStep) {
	sum := 0
	for _, step := range of {
		sum += step.weight
	}
	n := s.dice.IntN(sum)
	i := slices.IndexFunc(of, func(step simStep) bool {
		n -= step.weight
		return n < 0
	})
	what := of[i].do(s)
	if what == "" {
		return
	}
	s.say("%s", what)
	s.script = append(s.script, fmt.Sprint(time.Since(s.began), " ", what))
}

// span is what a duration is drawn from.
type span struct{ shortest, longest time.Duration }

// some draws a duration, short ones as often as long ones.
func (s *sim) some(of span) time.Duration {
	ratio := float64(of.longest) / float64(of.shortest)
	d := float64(of.shortest) * math.Pow(ratio, s.dice.Float64())
	return time.Duration(d).Truncate(time.Millisecond)
}

// isHeads draws one of two.
func (s *sim) isHeads() bool { return s.dice.IntN(2) == 0 }

// simKey names an object.
type simKey = objectKey

// The names that objects may have are few, so that they come back often.
func (s *sim) aNode() string { return fmt.Sprint("n", s.dice.IntN(6)) }

func (s *sim) aCount() simKey {
	return simKey{Namespace: "default", Name: fmt.Sprint("c", s.dice.IntN(3))}
}

func (s *sim) aPod() simKey {
	namespace := pick(s.dice, "default", "default", "kube-system")
	return simKey{Namespace: namespace, Name: fmt.Sprint("p", s.dice.IntN(30))}
}

// lifeSteps are what happens in a healthy cluster.
var lifeSteps = []simStep{
	{name: "pod comes or goes", weight: 8, do: (*sim).podComesOrGoes},
	{name: "pod is replaced", weight: 3, do: (*sim).podIsReplaced},
	{name: "pod changes", weight: 3, do: (*sim).podChanges},
	{name: "wave of pods", weight: 1, do: (*sim).waveOfPods},
	{name: "node comes or goes", weight: 2, do: (*sim).nodeComesOrGoes},
	{name: "label is overwritten", weight: 2, do: (*sim).labelIsOverwritten},
	{name: "Count comes, changes or goes", weight: 2, do: (*sim).countComesChangesOrGoes},
	{name: "status is overwritten", weight: 1, do: (*sim).statusIsOverwritten},
}

// podComesOrGoes makes a pod, or removes the one that has its name: a deployment is scaled.
func (s *sim) podComesOrGoes() string {
	key := s.aPod()
	if s.fake.get("pods", key) == nil {
		return s.addPod(key)
	}
	s.fake.remove("pods", key)
	return "- pod " + key.String()
}

// podIsReplaced makes a pod, at once where one of the same name has just been, with another uid and maybe on another
// node: a StatefulSet's pod is evicted.
func (s *sim) podIsReplaced() string {
	key := s.aPod()
	s.fake.remove("pods", key)
	return "-" + s.addPod(key)
}

// addPod makes a pod, with a label by which Counts count, on a node or not yet.
func (s *sim) addPod(key simKey) string {
	label := pick(s.dice, "app", "app", "run")
	labels := object{label: pick(s.dice, "web", "db")}
	node := pick(s.dice, "", s.aNode(), s.aNode())
	s.fake.put("pods", podOn(object{"namespace": key.Namespace, "name": key.Name, "labels": labels}, node))
	return fmt.Sprintf("+ pod %s on %q %v", key, node, labels)
}

// podChanges gives a pod another label, and, where it has none, maybe a node: the scheduler binds it, or somebody
// takes it out of a service.
func (s *sim) podChanges() string {
	key := s.aPod()
	pod := s.fake.get("pods", key)
	if pod == nil {
		return ""
	}
	pod = clone(pod)
	if nodeOf(pod) == "" && s.isHeads() {
		pod["spec"].(object)["nodeName"] = s.aNode()
	}
	labels := object{"app": pick(s.dice, "web", "db", "none")}
	metaOf(pod)["labels"] = labels
	s.fake.put("pods", pod)
	return fmt.Sprint("~ pod ", key, " ", labels)
}

// waveOfPods makes and removes many pods at once: a job begins or ends, or a node is drained.
func (s *sim) waveOfPods() string {
	n := 10 + s.dice.IntN(90)
	for range n {
		s.podComesOrGoes()
	}
	return fmt.Sprint("a wave of ", n, " pods")
}

// nodeComesOrGoes removes a node, makes one, or makes one in place of another, as a worker or for the control plane:
// an autoscaler is at work, or a machine is installed again.
func (s *sim) nodeComesOrGoes() string {
	name := s.aNode()
	removed := s.fake.remove("nodes", simKey{Name: name})
	if removed != nil && s.isHeads() {
		return "- node " + name
	}
	s.fake.addNode(name, pick(s.dice, "role=worker", s.controlPlaneLabel))
	return "+ node " + name
}

// labelIsOverwritten changes or removes a label of a node that the program writes, or the one by which it chooses its
// nodes: another writer does not know that they are taken.
func (s *sim) labelIsOverwritten() string {
	name := s.aNode()
	if s.fake.get("nodes", simKey{Name: name}) == nil {
		return ""
	}
	label := pick(s.dice, s.controlPlaneLabel, s.totalLabel, ownPodsNodeLabel)
	value := pick[any](s.dice, nil, "", "7")
	s.fake.setLabel(name, label, value)
	return fmt.Sprint("~ node ", name, " ", label, "=", value)
}

// countComesChangesOrGoes is what people do with Counts, among them some that are invalid.
func (s *sim) countComesChangesOrGoes() string {
	key := s.aCount()
	if s.fake.installed() == nil || s.dice.IntN(4) == 0 {
		s.fake.remove("counts", key)
		return "- count " + key.Name
	}
	spec := pick(s.dice,
		`{"name":"web","count":3}`,
		`{"name":"db","count":2}`,
		`{"name":"web","count":5}`,
		`{"name":"none","count":0}`,
		`{"name":7,"count":"many"}`)
	s.fake.addCount(key.Name, spec)
	return "+ count " + key.Name + " " + spec
}

// statusIsOverwritten gives a Count a status that may be wrong: another writer again.
func (s *sim) statusIsOverwritten() string {
	key := s.aCount()
	count := s.fake.get("counts", key)
	if count == nil {
		return ""
	}
	count = clone(count)
	count["status"] = object{"healthy": true, "count": s.dice.IntN(9)}
	s.fake.put("counts", count)
	return "~ status of count " + key.Name
}

// ---- Faults

// simFaults are all that can fail. A seed has some of them.
func simFaults() []simStep {
	return append(requestFaults(), []simStep{
		{name: "server killed", weight: 6, do: serverKilled{lasts: span{100 * time.Millisecond, time.Minute}}.strike},
		{name: "watches end", weight: 4, do: (*sim).watchesEnd},
		{name: "history compacted", weight: 3, do: (*sim).historyCompacted},
		{name: "backup restored", weight: 1, do: backupRestored{outage: span{time.Second, 20 * time.Second}}.strike},
		{name: "events lost", weight: 1, do: eventsLost{most: 4}.strike},
		{name: "server lags", weight: 3, do: serverLags{lasts: span{time.Second, 10 * time.Minute}}.strike},
		{name: "connections fall silent", weight: 3, do: (*sim).connectionsFallSilent},
		{name: "network away", weight: 3, do: networkAway{lasts: span{time.Second, 2 * time.Minute}}.strike},
		{name: "process stopped", weight: 4, do: processStopped{pause: span{time.Second, 20 * time.Second}}.strike},
		{name: "writer killed", weight: 2, do: (*sim).nextWriterKilled},
		{name: "lease taken over", weight: 2, do: leaseTakenOver{
			lasts: span{5 * time.Second, 5 * time.Minute},
			skew:  time.Hour,
		}.strike},
		{name: "lease deleted", weight: 1, do: (*sim).leaseDeleted},
		{name: "CRD comes, changes or goes", weight: 2, do: (*sim).crdComesChangesOrGoes},
		{name: "odd frame", weight: 4, do: (*sim).oddFrame},
	}...)
}

// serverKilled breaks all connections and refuses new ones for a while. Then, maybe, the server has forgotten the
// history: an API server crashes, or is upgraded.
type serverKilled struct {
	lasts span
}

func (f serverKilled) strike(s *sim) string {
	d := s.some(f.lasts)
	isCompacted := s.isHeads()
	s.killServer()
	s.later(d, func() {
		if isCompacted {
			s.fake.compact()
		}
		s.restoreServer()
	})
	return fmt.Sprintf("THE SERVER IS KILLED, for %v, then compacted: %v", d, isCompacted)
}

// killServer breaks all connections and refuses new ones until restoreServer is called.
func (s *sim) killServer() {
	s.net.kill()
	s.each(func(p *proc) { s.disturb(p, func(*link) {}) })
}

func (s *sim) restoreServer() { s.net.restore() }

// watchesEnd ends all watches, cleanly or by breaking them: a load balancer is restarted, or a server is asked to stop.
func (s *sim) watchesEnd() string {
	isBroken := s.isHeads()
	s.fake.endWatches(isBroken)
	return fmt.Sprint("WATCHES END, broken: ", isBroken)
}

// historyCompacted makes the server forget all changes until now: etcd is compacted, as it is every five minutes.
func (s *sim) historyCompacted() string {
	s.fake.compact()
	return "COMPACTED"
}

// backupRestored makes a backup of the cluster, or takes it back to the one that was made: etcd is restored after a
// disaster. The server's versions go back, and then stand for other changes than before.
type backupRestored struct {
	outage span // the server is away meanwhile
}

func (f backupRestored) strike(s *sim) string {
	if s.backup == nil || s.isHeads() {
		s.backup = s.fake.snapshot()
		return "a backup is made"
	}
	s.killServer()
	<-time.After(s.some(f.outage))
	s.backup()
	s.restoreServer()
	s.forgetSince(s.fake.latest())
	return "THE BACKUP IS RESTORED"
}

// forgetSince takes back what is known of the versions after this one, as they stand for something else from now on.
func (s *sim) forgetSince(version int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.byHost {
		for _, h := range p.hearings {
			h.forget()
		}
		p.isBlind["nodes"] = true
		p.isBlind["counts"] = true
	}
	for resource, all := range s.history {
		s.history[resource] = slices.DeleteFunc(all, func(c change) bool { return c.Version > version })
	}
	s.newest = version
	s.leaseTampered = time.Now()
	s.patience = s.longestUnlisted
}

// eventsLost lets some changes happen of which no watch tells: servers have had such bugs
// (https://github.com/kubernetes/kubernetes/issues/123072).
type eventsLost struct {
	most int // changes at once
}

func (f eventsLost) strike(s *sim) string {
	n := 1 + s.dice.IntN(f.most)
	s.fake.loseNext(n)
	s.needs(s.longestUnlisted)
	return fmt.Sprint("WATCHES LOSE the next ", n, " changes")
}

// serverLags makes the watches of one process come to a server that hears of no change for a while: of several API
// servers, one's watch cache has fallen behind etcd.
type serverLags struct {
	lasts span
}

func (f serverLags) strike(s *sim) string {
	p := s.one()
	d := s.some(f.lasts)
	catchUp := s.fake.fallBehind(0, func(q seen) bool { return q.Host == p.host })
	s.later(d, catchUp)
	return fmt.Sprintf("THE SERVER OF r%d LAGS for %v", p.slot, d)
}

// connectionsFallSilent swallows all that the connections of one process have to carry: a firewall has forgotten them.
func (s *sim) connectionsFallSilent() string {
	p := s.one()
	s.disturb(p, (*link).hush)
	s.needsSilence()
	return fmt.Sprint("CONNECTIONS FALL SILENT, of r", p.slot)
}

// networkAway takes the network of one process away, so that it notices at once or does not: a cable is pulled here,
// or somewhere on the way.
type networkAway struct {
	lasts span
}

func (f networkAway) strike(s *sim) string {
	p := s.one()
	d := s.some(f.lasts)
	isLost := s.isHeads()
	if isLost {
		s.disturb(p, func(l *link) {
			l.setLost()
			l.hush()
		})
		s.needsSilence()
	} else {
		s.disturb(p, func(l *link) {
			l.setAway(true)
			l.cut()
		})
	}
	s.later(d, func() { p.link.setAway(false) })
	return fmt.Sprintf("NETWORK OF r%d AWAY for %v, without a word: %v", p.slot, d, isLost)
}

// processStopped stops or kills a process, and later starts another one: a rollout, or a node that fails.
type processStopped struct {
	pause span // until the next one starts
}

func (f processStopped) strike(s *sim) string {
	p := s.one()
	kill := s.isHeads()
	d := s.some(f.pause)
	if kill {
		s.killProcess(p.slot, d)
	} else {
		s.stopProcess(p.slot, d)
	}
	return fmt.Sprintf("r%d IS STOPPED, killed: %v, another in %v", p.slot, kill, d)
}

// nextWriterKilled kills the next process that has written to a node, before it can tell of that: it runs out of
// memory at the worst moment.
func (s *sim) nextWriterKilled() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.killsWriter = true
	return "WHO WRITES NEXT IS KILLED"
}

// leaseTakenOver has somebody else take the lease without asking, and renew it for a while by a clock that is wrong:
// another program was given the same lease's name.
type leaseTakenOver struct {
	lasts span
	skew  time.Duration // of its clock, either way
}

func (f leaseTakenOver) strike(s *sim) string {
	if !s.elects() {
		return ""
	}
	d := s.some(f.lasts)
	skew := pick(s.dice, -f.skew, f.skew)
	s.mu.Lock()
	s.leaseTampered = time.Now()
	s.mu.Unlock()
	s.takeLease(skew)
	s.running.Go(func() {
		end := time.Now().Add(d)
		for time.Now().Before(end) && s.pause(s.leaseDuration/3) && str(s.lease(), "holderIdentity") == otherHolder {
			s.takeLease(skew)
		}
	})
	s.needs(d)
	return fmt.Sprintf("SOMEBODY ELSE LEADS for %v, by a clock that is off by %v", d, skew)
}

// otherHolder holds the lease when no process of ours does.
const otherHolder = "another"

// takeLease writes the lease as somebody else, by a clock that is off.
func (s *sim) takeLease(skew time.Duration) {
	now := time.Now().Add(skew).UTC().Format("2006-01-02T15:04:05.000000Z07:00")
	s.fake.put("leases", object{
		"metadata": object{"namespace": s.leaseNamespace, "name": s.leaseName},
		"spec": object{
			"holderIdentity":       otherHolder,
			"leaseDurationSeconds": s.leaseDuration.Seconds(),
			"acquireTime":          now,
			"renewTime":            now,
			"leaseTransitions":     1,
		},
	})
}

// lease is the lease's spec, empty where there is none.
func (s *sim) lease() object {
	lease := s.fake.get("leases", simKey{Namespace: s.leaseNamespace, Name: s.leaseName})
	spec, _ := lease["spec"].(object)
	return spec
}

// leaseDeleted deletes the lease: somebody tidies up.
func (s *sim) leaseDeleted() string {
	s.fake.remove("leases", simKey{Namespace: s.leaseNamespace, Name: s.leaseName})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leaseTampered = time.Now()
	return "THE LEASE IS DELETED"
}

// crdComesChangesOrGoes removes the CRD of Counts, and with it all of them, or installs it, or changes whether it has
// the subresource status: a chart is removed, installed or upgraded while the program runs.
func (s *sim) crdComesChangesOrGoes() string {
	if s.fake.installed() != nil && s.isHeads() {
		s.fake.install(nil)
		return "THE CRD IS GONE"
	}
	hasStatus := s.dice.IntN(4) > 0
	s.fake.install(&fakeCRD{status: hasStatus})
	return fmt.Sprint("THE CRD IS THERE, with a subresource: ", hasStatus)
}

// oddFrame gives a watch something that is no change: an error as the server sends it when a version is too old or
// when it is overloaded, an event once more, an event of an unknown type, or what a proxy in between has made of it.
func (s *sim) oddFrame() string {
	failure := func(code int, reason string) frame {
		return frame{event: "ERROR", object: fakeStatus(code, reason, "simulated", nil), end: true}
	}
	fr := pick(s.dice,
		failure(410, "Expired"),
		failure(410, "Gone"),
		failure(429, "TooManyRequests"),
		failure(500, "InternalError"),
		failure(499, "Odd"),
		frame{event: "SYNC"},
		frame{event: "ADDED"},
		frame{event: "MODIFIED"},
		frame{event: "BOOKMARK"},
		frame{raw: "\x00\x00", end: true},
		frame{raw: `{"type":"ADDED","object":{"metadata":{`, end: true},
		frame{raw: "<html>", end: true})
	fr.resource = pick(s.dice, "pods", "nodes", "counts")
	s.fake.interject(fr)
	return fmt.Sprintf("A FRAME on a watch of %s: %s %v %q", fr.resource, fr.event, fr.object, fr.raw)
}

// needs says that the usual bound must be longer, as something goes on for so long.
func (s *sim) needs(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.patience = max(s.patience, d)
}

// needsSilence is needs, for what is noticed by the silence of a connection.
func (s *sim) needsSilence() { s.needs(s.silence + 5*time.Second) }

// later does something after a while, unless the test has ended by then.
func (s *sim) later(d time.Duration, do func()) {
	s.running.Go(func() {
		if s.pause(d) {
			do()
		}
	})
}

// pause waits. It returns false if the test has ended meanwhile.
func (s *sim) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
	case <-s.t.Context().Done():
	}
	return s.t.Context().Err() == nil
}

// ---- Faults of requests

// requestSort is a sort of requests that may meet a fault.
type requestSort struct {
	name  string
	match func(seen) bool
}

func isPatchOf(resource string) func(seen) bool {
	return func(q seen) bool { return q.Verb == "patch" && q.Resource == resource }
}

func sortsOfReads() []requestSort {
	return []requestSort{
		{"discovery", func(q seen) bool { return q.Resource == "" && strings.HasSuffix(q.Path, "/v1") }},
		{"lists of counts", isList("counts")},
		{"lists of nodes", isList("nodes")},
		{"lists of pods", isList("pods")},
		{"watches of counts", isWatch("counts")},
		{"watches of nodes", isWatch("nodes")},
		{"watches of pods", isWatch("pods")},
	}
}

func sortsOfWrites() []requestSort {
	return []requestSort{
		{"events", func(q seen) bool { return q.Resource == "events" && q.Name == "" }},
		{"leases", func(q seen) bool { return q.Resource == "leases" }},
		{"patches of counts", isPatchOf("counts")},
		{"patches of nodes", isPatchOf("nodes")},
	}
}

// refusal is an answer with this Status in place of what was asked for. header is names and values by turns.
func refusal(code int, reason string, details any, header ...string) fault {
	body, _ := json.Marshal(fakeStatus(code, reason, "simulated", details))
	ft := fault{status: code, body: string(body), header: map[string]string{}}
	for pair := range slices.Chunk(header, 2) {
		ft.header[pair[0]] = pair[1]
	}
	return ft
}

// cause is the details of a Status that has one cause.
func cause(reason string) object {
	return object{"causes": []any{object{"reason": reason}}}
}

// commonOutcomes are what a request of any sort may meet.
func commonOutcomes() []fault {
	plainText := map[string]string{"Content-Type": "text/plain", "Retry-After": "40"}
	html := map[string]string{"Content-Type": "text/html"}
	return []fault{
		refusal(401, "Unauthorized", nil), // a token has expired
		refusal(403, "Forbidden", nil),    // a role was removed
		refusal(404, "NotFound", nil),     // an aggregated API is not there yet

		// The server's priority and fairness has no room, and its older limit, which answers in plain text.
		refusal(429, "TooManyRequests", object{"retryAfterSeconds": 7}, "Retry-After", "7"),
		refusal(429, "TooManyRequests", nil),
		{status: 429, body: "Too many requests, please try again later.", header: plainText},

		refusal(500, "InternalError", nil),                            // etcd has no leader
		refusal(503, "ServiceUnavailable", nil, "Retry-After", "5"),   // the server starts
		{status: 502, body: "<html>Bad Gateway</html>", header: html}, // a proxy finds no server
		{drop: true},              // a server crashes
		{stall: true},             // a proxy forgets
		{delay: 20 * time.Second}, // an overloaded server
	}
}

// readOutcomes are what a list, a watch or discovery may meet.
func readOutcomes() []fault {
	html := map[string]string{"Content-Type": "text/html"}
	return append(commonOutcomes(),
		refusal(410, "Expired", nil),                              // the version was compacted away
		refusal(504, "Timeout", cause("ResourceVersionTooLarge")), // this server has not come so far
		fault{body: `{"kind":`},                                   // half an answer that says it is whole
		fault{status: 200, body: "<html>", header: html},          // a login page in between
		fault{cut: 1}, // a connection breaks,
		fault{cut: 700},
		fault{hang: 1}, // or falls silent, in the middle of an answer
		fault{hang: 700},
	)
}

// writeOutcomes are what a write may meet.
func writeOutcomes() []fault {
	return append(commonOutcomes(),
		refusal(409, "Conflict", nil),                            // another writer was faster
		refusal(422, "Invalid", cause("")),                       // an admission policy says no
		refusal(403, "Forbidden", cause("NamespaceTerminating")), // no event can be made there any more
		fault{after: true},                                       // it is done, and the answer is lost,
		fault{after: true},                                       // which is what goes wrong most easily
		fault{cut: 1},
	)
}

// requestFaults are one fault for each sort of requests and each thing that it may meet.
func requestFaults() (steps []simStep) {
	for _, requests := range sortsOfReads() {
		for _, outcome := range readOutcomes() {
			steps = append(steps, requestFault{requests, outcome}.step())
		}
	}
	for _, requests := range sortsOfWrites() {
		for _, outcome := range writeOutcomes() {
			steps = append(steps, requestFault{requests, outcome}.step())
		}
	}
	return steps
}

// requestFault makes the next few requests of a sort meet something else than the server's answer.
type requestFault struct {
	requests requestSort
	outcome  fault
}

func (f requestFault) step() simStep {
	return simStep{name: f.requests.name + " meet " + f.text(), weight: 1, do: f.strike}
}

// text is what is met, in words.
func (f requestFault) text() string {
	ft := f.outcome
	switch {
	case ft.drop:
		return "a broken connection"
	case ft.stall:
		return "silence"
	case ft.after:
		return "a lost answer"
	case ft.cut > 0:
		return fmt.Sprint("an end after ", ft.cut, " bytes")
	case ft.hang > 0:
		return fmt.Sprint("silence after ", ft.hang, " bytes")
	case ft.delay > 0:
		return ft.delay.String()
	}
	return fmt.Sprint(ft.status, " ", ft.header["Retry-After"], " ", ft.body)
}

func (f requestFault) strike(s *sim) string {
	ft := f.outcome
	ft.times = pick(s.dice, 1, 1, 2, 3, 8)
	ft.match = func(r *http.Request) bool {
		q := seenOf(r)
		if !f.requests.match(q) {
			return false
		}
		s.met(q, f)
		return true
	}
	s.needs(ft.delay)
	if ft.stall || ft.hang > 0 {
		s.needsSilence()
	}
	s.fake.disturb(ft)
	return fmt.Sprintf("THE NEXT %d %s meet %s", ft.times, f.requests.name, f.text())
}

// met notes that a request meets a fault. The fake is locked.
func (s *sim) met(q seen, f requestFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.sayLocked("%s %s meets %s", p.host, q.route, f.text())
	seconds, _ := strconv.Atoi(f.outcome.header["Retry-After"])
	p.mustWait[q.Method+q.Path] = time.Now().Add(time.Duration(seconds) * time.Second)
	if q.Verb == "watch" && f.refuses() {
		s.heard.watchesRefused++
	}
}

// refuses reports whether what is met looks like a failure from its beginning on.
func (f requestFault) refuses() bool {
	ft := f.outcome
	return ft.drop || ft.stall || ft.after || ft.status >= 300
}

// ---- The network

// link is the way of one process to the server, on which faults may strike that process alone.
type link struct {
	net *pipeNet

	mu       sync.Mutex // guards all below
	isAway   bool       // connections are refused
	isLost   bool       // connections are never made, nor refused
	isDead   bool       // it is away for ever
	wires    map[*wire]bool
	closedAt time.Time // when a wire was closed; the server may still write to it in the same moment
}

// wire is one connection. Once it is silent, what is sent either way is swallowed.
type wire struct {
	net.Conn
	link   *link
	silent chan struct{} // closed: it is
	closed chan struct{}

	hushOnce  sync.Once
	closeOnce sync.Once
}

// lostDialTimeout is how long the kernel tries to reach a host that does not answer.
const lostDialTimeout = 30 * time.Second

// dial connects to the server. It is what a process gets as its network.
func (l *link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	l.mu.Lock()
	isAway := l.isAway
	isLost := l.isLost
	l.mu.Unlock()
	if isLost {
		ctx, cancel := context.WithTimeout(ctx, lostDialTimeout)
		defer cancel()
		<-ctx.Done()
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
	}
	if isAway {
		refused := os.NewSyscallError("connect", syscall.ECONNREFUSED)
		return nil, &net.OpError{Op: "dial", Net: network, Err: refused}
	}
	conn, err := l.net.dial(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	w := &wire{Conn: conn, link: l, silent: make(chan struct{}), closed: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wires[w] = true
	return w, nil
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	if w.isSilent() {
		<-w.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (w *wire) Write(p []byte) (int, error) {
	if w.isSilent() {
		return len(p), nil
	}
	return w.Conn.Write(p)
}

func (w *wire) Close() error {
	w.closeOnce.Do(func() { close(w.closed) })
	w.link.mu.Lock()
	delete(w.link.wires, w)
	w.link.closedAt = time.Now()
	w.link.mu.Unlock()
	return w.Conn.Close()
}

func (w *wire) isSilent() bool {
	select {
	case <-w.silent:
		return true
	default:
		return false
	}
}

// cut breaks all connections: both ends notice.
func (l *link) cut() {
	for _, w := range l.all() {
		w.Conn.Close()
	}
}

// hush makes all connections silent: neither end notices.
func (l *link) hush() {
	for _, w := range l.all() {
		w.hushOnce.Do(func() { close(w.silent) })
	}
}

// setAway refuses new connections, or lets them through again.
func (l *link) setAway(yes bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isAway = yes || l.isDead
	l.isLost = false
}

// setLost leaves new connections without an answer.
func (l *link) setLost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isAway = true
	l.isLost = !l.isDead
}

// die lets nothing through any more.
func (l *link) die() {
	l.mu.Lock()
	l.isAway = true
	l.isDead = true
	l.mu.Unlock()
	l.cut()
}

// mayLose reports whether an answer that the server sends now may not arrive: a connection is silent, or was until
// this moment.
func (l *link) mayLose() bool {
	l.mu.Lock()
	closedNow := l.closedAt.Equal(time.Now())
	l.mu.Unlock()
	return closedNow || slices.ContainsFunc(l.all(), (*wire).isSilent)
}

// all are the connections that there are.
func (l *link) all() []*wire {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.wires))
}

// ---- The processes

// proc is one process of the program, from its start to its end. The simulation's lock guards it.
type proc struct {
	slot  int
	host  string // as it calls the server
	link  *link
	began time.Time
	stop  context.CancelFunc

	isEnding bool // for whatever reason: another one follows
	isDead   bool // it was killed: nothing of it matters any more

	hearings map[string]*hearing   // by resource
	knows    map[string]*knowledge // by resource and key
	unsure   map[string]int        // versions that it may have heard of, by resource and key
	isBlind  map[string]bool       // resources of which it may know better, or worse, than what it is told

	hasList   map[string]bool      // resources of which it got a complete list
	wrote     map[string]time.Time // when it last had an answer to a write, by resource, key and uid
	mustWait  map[string]time.Time // until when, by method and path: the server has said so
	busy      map[string]int       // requests by verb and path within busySince
	busySince int64                // a second, in Unix time
	leaseSent time.Time            // when it last asked for the lease
}

// knowledge is an object that a process has been told of.
type knowledge struct {
	object object
	at     time.Time
}

// restartPause is the time after which a process that has ended by itself is started again, as a kubelet would.
const restartPause = 2 * time.Second

// launch starts a process in a slot, unless the simulation is over.
func (s *sim) launch(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
		return
	}
	ctx, stop := context.WithCancel(s.t.Context())
	p := &proc{
		slot:     slot,
		host:     fmt.Sprintf("r%d-%d:1", slot, len(s.byHost)),
		link:     &link{net: s.net, wires: map[*wire]bool{}},
		began:    time.Now(),
		stop:     stop,
		hearings: map[string]*hearing{},
		knows:    map[string]*knowledge{},
		unsure:   map[string]int{},
		isBlind:  map[string]bool{},
		hasList:  map[string]bool{},
		wrote:    map[string]time.Time{},
		mustWait: map[string]time.Time{},
		busy:     map[string]int{},
	}
	for _, resource := range s.resources() {
		p.hearings[resource] = &hearing{unsaid: map[int]int{}}
	}
	s.slots[slot] = p
	s.byHost[p.host] = p
	s.sayLocked("%s starts", p.host)
	s.running.Go(func() { s.runProcess(ctx, p) })
}

// resources are those that the controllers read.
func (s *sim) resources() []string {
	if s.runsCounts {
		return []string{"pods", "nodes", "counts"}
	}
	return []string{"pods", "nodes"}
}

// runProcess runs a process to its end.
func (s *sim) runProcess(ctx context.Context, p *proc) {
	// -v 4: each event of a watch is logged.
	args := append([]string{"-master", "http://" + p.host, "-v", "4", "-log-format", "json"}, s.args...)
	noEnv := func(string) string { return "" }
	err := s.program(ctx, args, noEnv, io.Discard, &processLog{sim: s, p: p}, p.link.dial)
	p.link.cut()

	s.mu.Lock()
	defer s.mu.Unlock()
	if p.isDead {
		return
	}
	s.sayLocked("%s ends: %v", p.host, err)
	lostLease := err != nil && s.elects() && strings.Contains(err.Error(), s.leaseLost)
	if err != nil && !lostLease {
		s.breakLocked(p, "ended with %v", err)
	}
	if p.isEnding {
		return
	}
	p.isEnding = true
	s.launchLater(p.slot, restartPause)
}

// launchLater starts a process in a slot after a while.
func (s *sim) launchLater(slot int, after time.Duration) {
	s.running.Go(func() {
		<-time.After(after)
		s.launch(slot)
	})
}

// stopProcess asks the process in a slot to stop. Another one follows.
func (s *sim) stopProcess(slot int, after time.Duration) {
	p, isNew := s.endProcess(slot, false)
	if !isNew {
		return
	}
	p.stop()
	s.launchLater(slot, after)
}

// killProcess kills the process in a slot: nothing of it reaches the server from now on. Another one follows.
func (s *sim) killProcess(slot int, after time.Duration) {
	p, isNew := s.endProcess(slot, true)
	if !isNew {
		return
	}
	s.disturb(p, (*link).die)
	p.stop()
	s.launchLater(slot, after)
}

// endProcess notes that the process in a slot ends. isNew says that it was not ending before.
func (s *sim) endProcess(slot int, kill bool) (p *proc, isNew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p = s.slots[slot]
	isNew = !p.isEnding
	p.isEnding = true
	p.isDead = p.isDead || kill
	return p, isNew
}

// disturb does something to the way of a process: what it was told in this very moment may not have arrived.
func (s *sim) disturb(p *proc, do func(*link)) {
	do(p.link)
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(p.knows, func(_ string, known *knowledge) bool { return known.at.Equal(now) })
	maps.DeleteFunc(p.wrote, func(_ string, at time.Time) bool { return at.Equal(now) })
}

// each does something to the newest process of each slot.
func (s *sim) each(do func(*proc)) {
	s.mu.Lock()
	all := slices.Clone(s.slots)
	s.mu.Unlock()
	for _, p := range all {
		do(p)
	}
}

// one draws a process.
func (s *sim) one() *proc {
	i := s.dice.IntN(len(s.slots))
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.slots[i]
}

// ---- The rules, which each request is held against

// What one process may ask within a second. Events have a bucket of their own, and a watch may end at once.
const (
	mostCalls  = 15 // of one verb, for one path
	mostEvents = 60 // and watches
	hotLoop    = 1000
)

// asked holds a request against the rules.
func (s *sim) asked(q seen) {
	lease := s.lease()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[q.Host]
	if p == nil || p.isDead {
		return
	}
	s.stats.requests++
	s.checkPaceLocked(p, q)
	switch {
	case q.Resource == "leases":
		s.noteLeaseAskedLocked(p, q)
	case q.Verb == "watch":
		s.noteWatchAskedLocked(p, q)
		s.sayLocked("%s %s %s", p.host, q.route, q.Query.Get("resourceVersion"))
	case q.Verb == "list":
		s.sayLocked("%s %s %s", p.host, q.route, q.Query.Get("resourceVersion"))
	case q.Method == http.MethodGet: // nothing else to check
	case q.Resource == "events":
		s.checkLeadsLocked(p, q, lease)
	default:
		s.checkLeadsLocked(p, q, lease)
		s.checkWriteLocked(p, q)
	}
}

// checkPaceLocked: no request comes again and again, and none before the time that the server has named.
func (s *sim) checkPaceLocked(p *proc, q seen) {
	now := time.Now()
	if p.busySince != now.Unix() {
		p.busySince = now.Unix()
		clear(p.busy)
	}
	call := q.Verb + " " + q.Path
	p.busy[call]++
	most := mostCalls
	if q.Resource == "events" || q.Verb == "watch" {
		most = mostEvents
	}
	if p.busy[call] > most {
		s.breakLocked(p, "asks again and again: %s", q)
	}
	if p.busy[call] > hotLoop { // time stands still meanwhile, so that the test would never end
		end := s.story[max(0, len(s.story)-100):]
		fmt.Fprintln(os.Stderr, "a hot loop in "+s.t.Name()+"; "+strings.Join(end, "\n"))
		os.Exit(1)
	}
	until := p.mustWait[q.Method+q.Path]
	if now.Before(until) && q.Resource != "events" && q.Resource != "leases" {
		s.breakLocked(p, "does not wait until %v (Retry-After): %s", until.Sub(s.began), q)
	}
}

// noteLeaseAskedLocked notes by which name a process asks for the lease, and when.
func (s *sim) noteLeaseAskedLocked(p *proc, q seen) {
	holder := holderIn([]byte(q.Body))
	if holder == "" {
		return
	}
	s.hostOf[holder] = q.Host
	p.leaseSent = time.Now()
}

// holderIn is the holder of a lease in JSON.
func holderIn(lease []byte) string {
	var l struct {
		Spec struct{ HolderIdentity string }
	}
	json.Unmarshal(lease, &l)
	return l.Spec.HolderIdentity
}

// checkLeadsLocked: with an election, the leader alone writes, and only until the deadline for renewing its lease.
func (s *sim) checkLeadsLocked(p *proc, q seen, lease object) {
	if !s.elects() || time.Since(s.leaseTampered) <= s.renewDeadline {
		return
	}
	holder := s.hostOf[str(lease, "holderIdentity")]
	leads := holder == q.Host && s.leaderHost == q.Host && time.Since(s.leaderAsked) < s.renewDeadline
	if !leads {
		since := s.leaderAsked.Sub(s.began)
		s.breakLocked(p, "does not lead, as %s does (%s since %v): %s", holder, s.leaderHost, since, q)
	}
}

// sentPatch is what the simulation reads of a write.
type sentPatch struct {
	Metadata struct {
		UID, ResourceVersion string
		Labels               object
	}
	Status object
}

// checkWriteLocked: a write comes after complete lists, is a patch with a uid and without a version, comes some time
// after the one before, and changes something.
func (s *sim) checkWriteLocked(p *proc, q seen) {
	now := time.Now()
	s.stats.writes++
	s.wroteAt = now
	s.sayLocked("%s writes %s %s", p.host, q.Path, q.Body)
	if !p.hasList["pods"] || !p.hasList[q.Resource] {
		s.breakLocked(p, "writes before its caches are complete")
	}

	var patch sentPatch
	json.Unmarshal([]byte(q.Body), &patch)
	uid := patch.Metadata.UID
	if uid == "" || patch.Metadata.ResourceVersion != "" || q.Verb != "patch" {
		s.breakLocked(p, "writes without a uid, or with a version: %s", q)
	}

	rest := s.interval
	if q.Resource == "counts" {
		rest = min(rest, s.statusRest)
	}
	key := q.Resource + "/" + objectOf(q)
	past := now.Sub(p.wrote[key+" "+uid])
	if past < rest {
		s.breakLocked(p, "writes to %s again after %v", objectOf(q), past)
	}

	known := p.knows[key]
	if known == nil || str(metaOf(known.object), "uid") != uid || p.isBlind[q.Resource] {
		return
	}
	if !patch.changes(known.object, q.Resource) && known.at.Before(now) {
		since := known.at.Sub(s.began)
		s.breakLocked(p, "writes to %s what it knows, since %v, to be there", objectOf(q), since)
	}
}

// objectOf names the object that a request is about.
func objectOf(q seen) string {
	return simKey{Namespace: q.Namespace, Name: q.Name}.String()
}

// changes reports whether an object is another one with the patch: a node by its labels, a Count by its status.
func (patch sentPatch) changes(o object, resource string) bool {
	has, _ := o["status"].(object)
	want := patch.Status
	if resource == "nodes" {
		has, _ = metaOf(o)["labels"].(object)
		want = patch.Metadata.Labels
	}
	for k, v := range want {
		if has[k] != v {
			return true
		}
	}
	return false
}

// changed notes a change. A lease is not taken from a process that has renewed it. The fake is locked.
func (s *sim) changed(c change) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = c.Version
	s.history[c.Resource] = append(s.history[c.Resource], c)
	if c.Resource != "leases" {
		return
	}
	was, _ := c.Old["spec"].(object)
	is, _ := c.New["spec"].(object)
	holder := str(was, "holderIdentity")
	next := str(is, "holderIdentity")
	seconds, _ := was["leaseDurationSeconds"].(float64)
	past := time.Since(s.leaseRenewed)
	isHeld := holder != "" && holder != next && past.Seconds() < seconds
	p := s.byHost[s.hostOf[next]]
	if p != nil && isHeld && time.Since(s.leaseTampered) > s.leaseDuration {
		s.breakLocked(p, "takes a lease that %s has renewed %v ago", holder, past)
	}
	s.leaseRenewed = time.Now()
}

// ---- What each process knows, for these rules

// told notes what a process is told on a watch.
func (s *sim) told(a answer, event string, o object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.byHost[a.Request.Host]
	if p == nil || p.isDead {
		return
	}
	s.noteToldLocked(p, a.Request.Resource, versionOf(o))
	p.learns(a, o, event == "DELETED")
}

// answered notes what a process is told otherwise.
func (s *sim) answered(a answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := a.Request
	p := s.byHost[q.Host]
	if p == nil {
		return
	}
	if q.Verb == "patch" && !p.mayMiss(a) {
		p.noteWritten(a)
	}
	if a.Code/100 != 2 {
		if q.Verb == "watch" && !p.isDead {
			s.heard.watchesRefused++
		}
		return
	}
	switch {
	case q.Verb == "update" && q.Resource == "leases":
		if holderIn(a.Body) != "" {
			s.leaderHost = q.Host
			s.leaderAsked = p.leaseSent
		}
	case q.Verb == "list" && !a.HasMore && q.Query.Get("limit") != "1":
		p.learnsList(a)
	case q.Verb == "patch":
		var o object
		json.Unmarshal(a.Body, &o)
		p.learns(a, o, false)
		if s.killsWriter && q.Resource == "nodes" { // before it can say so in an event, or soon after
			s.killsWriter = false
			s.running.Go(func() { s.killProcess(p.slot, 3*time.Second) })
		}
	}
}

// noteWritten notes that a process has an answer to a write after which it has to rest.
func (p *proc) noteWritten(a answer) {
	switch a.Code {
	case http.StatusOK, http.StatusNotFound, http.StatusUnprocessableEntity:
	default:
		return
	}
	var patch sentPatch
	json.Unmarshal([]byte(a.Request.Body), &patch)
	key := a.Request.Resource + "/" + objectOf(a.Request)
	p.wrote[key+" "+patch.Metadata.UID] = time.Now()
}

// learnsList notes what a process is told by a list, or by its last page.
func (p *proc) learnsList(a answer) {
	resource := a.Request.Resource
	p.hasList[resource] = p.hasList[resource] || !a.IsCut
	p.isBlind[resource] = p.isBlind[resource] && p.mayMiss(a)
	listed := map[string]bool{}
	for _, o := range a.Items {
		listed[resource+"/"+keyOf(o).String()] = true
		p.learns(a, o, false)
	}
	maps.DeleteFunc(p.knows, func(k string, _ *knowledge) bool {
		return strings.HasPrefix(k, resource+"/") && !listed[k]
	})
}

// learns notes what a process is told of an object. Where it may miss that, nobody can say which of both it knows.
func (p *proc) learns(a answer, o object, isGone bool) {
	k := a.Request.Resource + "/" + keyOf(o).String()
	version := versionOf(o)
	was := p.knows[k]
	isList := a.Items != nil
	if was != nil && !isList && !isGone && versionOf(was.object) > version {
		return // it has heard more already, in another way
	}
	delete(p.knows, k)
	if p.mayMiss(a) {
		p.unsure[k] = version
		return
	}
	if !isGone && p.unsure[k] <= version {
		p.knows[k] = &knowledge{object: o, at: time.Now()}
	}
}

// mayMiss reports whether an answer may not arrive.
func (p *proc) mayMiss(a answer) bool { return a.IsCut || p.link.mayLose() }

// versionOf is an object's resourceVersion. The fake's are numbers from 1 on.
func versionOf(o object) int {
	version, _ := strconv.Atoi(str(metaOf(o), "resourceVersion"))
	return version
}

// ---- What processes say they have heard, held against the fake's history
//
// A process logs at -v 4 that it has listed, that it watches, and each event of its watches. Of each event the
// simulation checks what etcd's robustness tests demand of a watch
// (https://github.com/etcd-io/etcd/tree/main/tests/robustness): events come in the order of their versions (ordered),
// each once (unique) and whole (atomic), none is left out between two that came (reliable), also where one watch
// follows another (resumable), nor before a bookmark (bookmarkable).
//
// None of that is worth anything if the log has other words some day, and the simulation goes on without hearing. So a
// line that cannot be read, or lacks what its message needs, breaks a rule. A process may only say that it watches what
// it has asked for. At each calm it must have said that it watches each resource, and that it has heard of all that
// the fake has told it. And in the end the numbers must fit.

// logLine is what the simulation reads of a line of the log.
type logLine struct {
	Level    string
	Msg      string
	Kind     string
	Resource string
	RV       *string
	Stale    *bool // of an event: it is no newer than what was heard before, and is passed over
}

// eventTypes are the first word of the message that an event of a watch is logged with. Its kind and key follow.
var eventTypes = []string{"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}

// resourceOfKind are the resources that are watched.
var resourceOfKind = map[string]string{"Pod": "pods", "Node": "nodes", "Count": "counts"}

// processLog is where a process writes its log.
type processLog struct {
	sim *sim
	p   *proc
}

func (l *processLog) Write(text []byte) (int, error) {
	l.sim.mu.Lock()
	defer l.sim.mu.Unlock()
	for line := range bytes.Lines(text) {
		l.sim.hearLocked(l.p, bytes.TrimSuffix(line, []byte("\n")))
	}
	return len(text), nil
}

// hearLocked reads a line of a process's log.
func (s *sim) hearLocked(p *proc, text []byte) {
	var line logLine
	err := json.Unmarshal(text, &line)
	if err == nil && (line.Level == "" || strings.TrimSpace(line.Msg) == "") {
		err = errors.New("it has no level, or no msg")
	}
	if err != nil {
		s.breakLocked(p, "logs a line that cannot be read: %v: %s", err, text)
		return
	}
	if line.Level != "DEBUG" {
		s.sayLocked("%s %s %s", p.host, line.Level, shortLine(text))
	}
	if line.Level == "ERROR" || strings.Contains(line.Msg, "panic") {
		s.breakLocked(p, "says that it has a bug: %s", line.Msg)
	}
	if p.isDead {
		return
	}
	words := strings.Fields(line.Msg)
	switch {
	case line.Msg == "discovered":
		s.hearDiscoveredLocked(p, text, line.Resource)
	case line.Msg == "listed":
		s.hearOfLocked(p, text, line.Kind, line.RV, s.hearListedLocked)
	case line.Msg == "watching":
		s.hearOfLocked(p, text, line.Kind, line.RV, s.hearWatchingLocked)
	case slices.Contains(eventTypes, words[0]):
		s.hearEventLocked(p, text, line, words)
	case line.Stale != nil:
		s.breakLocked(p, "logs an event of an unknown type: %s", text)
	}
}

// hearOfLocked finds the resource and the version that a line speaks of, and hands them on.
func (s *sim) hearOfLocked(p *proc, text []byte, kind string, rv *string, hear func(*proc, heardOf)) {
	h := p.hearings[resourceOfKind[kind]]
	if h == nil {
		s.breakLocked(p, "logs a line that should name a kind that it watches: %s", text)
		return
	}
	if rv == nil {
		s.breakLocked(p, "logs a line that lacks rv: %s", text)
		return
	}
	version, err := strconv.Atoi(*rv)
	if err != nil {
		s.breakLocked(p, "logs a line whose rv is no version: %s", text)
		return
	}
	hear(p, heardOf{hearing: h, resource: resourceOfKind[kind], version: version, text: text})
}

// hearDiscoveredLocked: a resource has come, or is another now, so what was asked of requests for it before is void.
func (s *sim) hearDiscoveredLocked(p *proc, text []byte, resource string) {
	h := p.hearings[resource]
	if h == nil {
		s.breakLocked(p, "logs a line that should name a resource that it watches: %s", text)
		return
	}
	h.isDiscovered = true
	maps.DeleteFunc(p.mustWait, func(call string, _ time.Time) bool { return strings.Contains(call, "/"+resource) })
}

// heardOf is what a process has said of a resource.
type heardOf struct {
	*hearing
	resource string
	version  int
	text     []byte // of the log's line
}

// hearing is how far a process says that it has heard of a resource, and how far it must have.
type hearing struct {
	upTo    int         // the version, by its own word; 0: it has not listed yet, or its version means nothing any more
	watches bool        // it has said so since it listed
	told    int         // the newest version of an event that the fake has told it
	unsaid  map[int]int // watches that it has asked for and not said it had begun, by the version that they begin at

	isDiscovered bool // it has said so, ever
}

// forget is called when versions go back.
func (h *hearing) forget() {
	h.upTo = 0
	h.told = 0
}

// hearingTotals are numbers of a whole seed.
type hearingTotals struct {
	watchesAsked   int // by the processes, of the fake
	watchesRefused int // by the fake, or by a fault in its place
	watchesSaid    int // by the processes
	eventsTold     int // by the fake
	eventsSaid     int // without bookmarks, and without what was passed over
}

// noteWatchAskedLocked notes that a process asks for a watch: it will have to say so.
func (s *sim) noteWatchAskedLocked(p *proc, q seen) {
	s.heard.watchesAsked++
	h := p.hearings[q.Resource]
	if h == nil {
		s.breakLocked(p, "watches what none of its controllers reads: %s", q)
		return
	}
	version, _ := strconv.Atoi(q.Query.Get("resourceVersion"))
	h.unsaid[version]++
}

// noteToldLocked notes that the fake tells a process of an event: it will have to say that it has heard of it.
func (s *sim) noteToldLocked(p *proc, resource string, version int) {
	s.heard.eventsTold++
	h := p.hearings[resource]
	if h != nil && version <= s.newest {
		h.told = max(h.told, version)
	}
}

func (s *sim) hearListedLocked(p *proc, of heardOf) {
	of.watches = false
	of.upTo = of.version
	if of.version > s.newest { // the list is of a time that a restored backup has undone
		of.upTo = 0
	}
}

func (s *sim) hearWatchingLocked(p *proc, of heardOf) {
	s.stats.watches++
	s.heard.watchesSaid++
	if of.unsaid[of.version] == 0 {
		s.breakLocked(p, "says that it watches what it has not asked for: %s", shortLine(of.text))
	}
	of.unsaid[of.version]--
	of.watches = true
	if of.upTo != 0 && of.upTo != of.version {
		s.breakLocked(p, "watches %s from %d, and had heard up to %d (resumable)", of.resource, of.version, of.upTo)
	}
}

// hearEventLocked reads an event: words are its type, its kind and, unless it is a bookmark, its key.
func (s *sim) hearEventLocked(p *proc, text []byte, line logLine, words []string) {
	isBookmark := words[0] == "BOOKMARK"
	if len(words) != 3 && !(isBookmark && len(words) == 2) {
		s.breakLocked(p, "logs an event without a kind or a key: %s", text)
		return
	}
	if line.Stale == nil {
		s.breakLocked(p, "logs an event that lacks stale: %s", text)
		return
	}
	s.hearOfLocked(p, text, words[1], line.RV, func(p *proc, of heardOf) {
		s.stats.events++
		if *line.Stale {
			s.checkPassedOverLocked(p, of)
			return
		}
		want := ""
		if !isBookmark {
			s.heard.eventsSaid++
			want = fmt.Sprintf("%d %s %s, ", of.version, words[0], words[2])
		}
		s.checkTakenLocked(p, of, want)
	})
}

// checkPassedOverLocked: what is passed over is not news.
func (s *sim) checkPassedOverLocked(p *proc, of heardOf) {
	if of.upTo != 0 && of.version > of.upTo {
		s.breakLocked(p, "passes over %s, having heard up to %d", shortLine(of.text), of.upTo)
	}
}

// checkTakenLocked: what is taken is newer than all before, and no more and no less than there was since then. want
// is that event in the words of happenedLocked; "": a bookmark, before which there was nothing.
func (s *sim) checkTakenLocked(p *proc, of heardOf, want string) {
	if of.upTo == 0 {
		return
	}
	if of.version <= of.upTo {
		s.breakLocked(p, "takes %s, having heard up to %d (ordered, unique)", shortLine(of.text), of.upTo)
		return
	}
	happened := s.happenedLocked(of.resource, of.upTo, of.version)
	if happened != want {
		s.breakLocked(p, "takes %s, having heard up to %d; what there was: %q (atomic, reliable, bookmarkable)",
			shortLine(of.text), of.upTo, happened)
	}
	of.upTo = of.version
}

// happenedLocked is what a watch has to tell of the versions after from, up to to.
func (s *sim) happenedLocked(resource string, from, to int) string {
	events := ""
	all := s.history[resource]
	i := sort.Search(len(all), func(i int) bool { return all[i].Version > from })
	for ; i < len(all) && all[i].Version <= to; i++ {
		event := s.eventOf(all[i])
		if event != "" && !all[i].Lost {
			events += fmt.Sprintf("%d %s, ", all[i].Version, event)
		}
	}
	return events
}

// eventOf is what a watch has to tell of a change: an event's type, and the object's key. "": nothing.
func (s *sim) eventOf(c change) string {
	was := c.Old != nil && s.shows(c.Resource, c.Old)
	is := c.New != nil && s.shows(c.Resource, c.New)
	switch {
	case was && is:
		return "MODIFIED " + keyOf(c.New).String()
	case is:
		return "ADDED " + keyOf(c.New).String()
	case was:
		return "DELETED " + keyOf(c.Old).String()
	}
	return ""
}

// shows reports whether the program's lists and watches have an object.
func (s *sim) shows(resource string, o object) bool {
	isInside := s.namespace == "" || str(metaOf(o), "namespace") == s.namespace
	switch resource {
	case "nodes":
		return true
	case "counts":
		return isInside
	}
	return isInside && s.selects(o)
}

// settled is how long a process needs, at most, until it watches everything, where nothing fails.
const settled = time.Minute

// checkHeardLocked is asked when all is quiet: each process has said that it watches everything, and that it has heard
// of all that it was told.
func (s *sim) checkHeardLocked() {
	for _, p := range s.slots {
		if p.isEnding || time.Since(p.began) < settled {
			continue
		}
		for _, resource := range s.resources() {
			h := p.hearings[resource]
			switch {
			case resource == "counts" && !h.isDiscovered:
				s.breakLocked(p, "has not said, when all was quiet, that it has discovered %s", resource)
			case h.upTo == 0:
				s.breakLocked(p, "has not said, when all was quiet, that it has listed %s", resource)
			case !h.watches:
				s.breakLocked(p, "has not said, when all was quiet, that it watches %s", resource)
			case h.upTo < h.told:
				s.breakLocked(p, "has said, when all was quiet, that it has heard of %s up to %d, and was told of %d",
					resource, h.upTo, h.told)
			}
		}
	}
}

// checkTotalsLocked is asked in the end: the simulation has not been deaf. Processes have said no more than the fake
// has done; and no less than half of it, as faults keep some from arriving, but not most.
func (s *sim) checkTotalsLocked() {
	h := s.heard
	served := h.watchesAsked - h.watchesRefused
	if !fits(h.watchesSaid, served) {
		s.failLocked("the fake has served %d watches, and processes have said that they began %d",
			served, h.watchesSaid)
	}
	if !fits(h.eventsSaid, h.eventsTold) {
		s.failLocked("the fake has told %d events, and processes have said that they heard of %d",
			h.eventsTold, h.eventsSaid)
	}
}

// fits reports whether what was said, in numbers, may be all of what was done that has arrived.
func fits(said, done int) bool { return done > 0 && said <= done && 2*said >= done }

// shortLine is a line of the log for the story: its message and its attributes.
func shortLine(text []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	decoder.Token() // the object's beginning
	var message string
	var attrs []string
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			break
		}
		var value any
		err = decoder.Decode(&value)
		if err != nil {
			break
		}
		switch name {
		case "time", "level":
		case "msg":
			message = fmt.Sprint(value)
		default:
			attrs = append(attrs, fmt.Sprint(name, "=", quoteIfNeeded(fmt.Sprint(value))))
		}
	}
	return strings.Join(append([]string{message}, attrs...), " ")
}

// quoteIfNeeded quotes what would be taken for more than one word.
func quoteIfNeeded(value string) string {
	if value == "" || strings.ContainsAny(value, " \"\n") {
		return strconv.Quote(value)
	}
	return value
}

// ---- The oracle

// flurry is the last act before a calm: while writes are under way, what they are about changes again.
func (s *sim) flurry() {
	isWrite := func(r *http.Request) bool {
		q := seenOf(r)
		return q.Verb == "patch" && q.Resource != "events"
	}
	times := 1 + s.dice.IntN(8)
	delay := s.some(span{100 * time.Millisecond, 3 * time.Second})
	s.fake.liftFaults()
	s.fake.disturb(fault{match: isWrite, times: times, delay: delay})
	for range 1 + s.dice.IntN(20) {
		s.step(lifeSteps)
		<-time.After(s.some(span{time.Millisecond, time.Second}))
	}
}

// calm ends all faults, and asks the oracle.
func (s *sim) calm() {
	s.stopFaults()
	start := time.Now()
	bound := s.takeBound()
	s.say("all faults stop; within %v all must be right", bound)
	settle(bound)
	s.checkRight("within the bound")
	writes := s.countCalm(start)
	settle(5 * s.interval)
	s.checkRight("five intervals later")

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stats.writes != writes {
		s.failLocked("there is no peace: writes go on when all is right")
	}
	s.checkHeardLocked()
	if len(s.wrong) == 0 {
		s.sayLocked("all is right")
	}
}

// settle lets time pass, and then everything come to rest.
func settle(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (s *sim) stopFaults() {
	s.fake.heal()
	s.restoreServer()
	s.each(func(p *proc) { p.link.setAway(false) })
	if s.fake.installed() == nil {
		s.fake.install(&fakeCRD{status: true})
	}
}

// takeBound is the time within which all must be right once faults have stopped.
func (s *sim) takeBound() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	const forWrites = 10 * time.Second // all labels and statuses, at the default -qps
	bound := s.longestBackoff + s.interval + forWrites + 2*s.longestDiscovery + s.patience
	if s.elects() {
		bound += s.leaseDuration + s.renewDeadline
	}
	s.patience = 0
	s.killsWriter = false
	return bound
}

// countCalm adds a calm to the numbers, and returns the writes until now.
func (s *sim) countCalm(start time.Time) (writes int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.calms++
	s.stats.slowest = max(s.stats.slowest, s.wroteAt.Sub(start))
	return s.stats.writes
}

// checkRight: everything is as it should be.
func (s *sim) checkRight(when string) {
	truth, has := s.truth()
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, want := range truth {
		if has[k] != want {
			s.failLocked("%s, %s is %q and should be %q", when, k, has[k], want)
		}
	}
	for k, got := range has {
		_, should := truth[k]
		if !should {
			s.failLocked("%s, %s is %q and should not be", when, k, got)
		}
	}
}

// truth is how everything should be, and has is how it is, by the fake's own state.
func (s *sim) truth() (truth, has map[string]string) {
	truth = map[string]string{}
	has = map[string]string{}
	pods := slices.DeleteFunc(s.fake.all("pods"), func(pod object) bool { return !s.shows("pods", pod) })
	s.truthOfNodes(pods, truth, has)
	if s.runsCounts {
		s.truthOfCounts(pods, truth, has)
	}
	return truth, has
}

// truthOfNodes adds what the nodes' labels should be, and are.
func (s *sim) truthOfNodes(pods []object, truth, has map[string]string) {
	perNode := map[string]int{}
	for _, pod := range pods {
		perNode[nodeOf(pod)]++
	}
	for _, node := range s.fake.all("nodes") {
		name := str(metaOf(node), "name")
		labels, _ := metaOf(node)["labels"].(object)
		_, showsTotal := labels[s.controlPlaneLabel]
		if showsTotal {
			truth[name+" total"] = strconv.Itoa(len(pods))
		}
		total, hasTotal := labels[s.totalLabel]
		if hasTotal {
			has[name+" total"] = fmt.Sprint(total)
		}
		if !s.labelsEachNode {
			continue
		}
		truth[name+" own"] = strconv.Itoa(perNode[name])
		own, hasOwn := labels[ownPodsNodeLabel]
		if hasOwn {
			has[name+" own"] = fmt.Sprint(own)
		}
	}
}

// truthOfCounts adds what the status of each Count should be, and is.
func (s *sim) truthOfCounts(pods []object, truth, has map[string]string) {
	perName := map[string]int{} // by namespace, and name in a pod's labels
	for _, pod := range pods {
		namespace := str(metaOf(pod), "namespace")
		app := labelOf(pod, "app")
		run := labelOf(pod, "run")
		perName[namespace+"/"+app]++
		if run != app {
			perName[namespace+"/"+run]++
		}
	}
	for _, count := range s.fake.all("counts") {
		if !s.shows("counts", count) {
			continue
		}
		key := keyOf(count)
		spec := count["spec"].(object)
		status, _ := count["status"].(object)
		want, isValid := spec["count"].(float64)
		if !isValid { // it must not be called healthy
			truth[key.String()] = "false"
			has[key.String()] = fmt.Sprint(status["healthy"] == true)
			continue
		}
		there := perName[key.Namespace+"/"+str(spec, "name")]
		truth[key.String()] = fmt.Sprint(there == int(want), " ", there)
		has[key.String()] = fmt.Sprint(status["healthy"], " ", status["count"])
		if s.fake.installed().status {
			truth[key.String()] += fmt.Sprint(" ", metaOf(count)["generation"])
			has[key.String()] += fmt.Sprint(" ", status["observedGeneration"])
		}
	}
}

// ---- The story, which a seed that fails prints

const brokenRule = "BREAKS A RULE"

func (s *sim) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sayLocked(format, args...)
}

func (s *sim) sayLocked(format string, args ...any) {
	at := time.Since(s.began).Truncate(time.Millisecond)
	s.story = append(s.story, at.String()+" "+fmt.Sprintf(format, args...))
}

// breakLocked notes that a process broke a rule.
func (s *sim) breakLocked(p *proc, format string, args ...any) {
	what := fmt.Sprintf(format, args...)
	s.sayLocked("%s %s: %s", p.host, brokenRule, what)
	s.wrong = append(s.wrong, p.host+" "+what)
}

// failLocked notes that something is wrong with all processes taken together.
func (s *sim) failLocked(format string, args ...any) {
	s.wrong = append(s.wrong, fmt.Sprintf(format, args...))
}

// hasBroken reports whether a rule was broken.
func (s *sim) hasBroken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.wrong) > 0
}

// tellLocked is the story, or what came before and after the first broken rule.
func (s *sim) tellLocked() string {
	story := s.story
	if !s.wholeStory {
		end := slices.IndexFunc(story, func(line string) bool { return strings.Contains(line, brokenRule) })
		if end < 0 {
			end = len(story)
		}
		story = story[max(0, end-150):min(end+10, len(story))]
	}
	return fmt.Sprintf("podcount %s\n(%d of %d lines; STORY=all shows all)\n%s",
		strings.Join(s.args, " "), len(story), len(s.story), strings.Join(story, "\n"))
}

// ---- The simulation of podcount

// podcountSimulated is what the simulation has to know of podcount.
func podcountSimulated(seed uint64) simOptions {
	return simOptions{
		program: func(
			ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
			dial func(ctx context.Context, network, addr string) (net.Conn, error),
		) error {
			return run(ctx, args, getenv, stdout, stderr, dial)
		},
		seed:              seed,
		wholeStory:        os.Getenv("STORY") == "all",
		totalLabel:        podCountLabel,
		controlPlaneLabel: controlPlane,
		leaseNamespace:    leaseKey.Namespace,
		leaseName:         leaseKey.Name,
		leaseLost:         "the lease is lost",
		longestBackoff:    time.Minute,
		longestDiscovery:  discoverEvery * 6 / 5,
		silence:           silence,
		longestUnlisted:   75 * time.Minute,
		statusRest:        time.Second,
	}
}

// Without SEEDS this runs as many seeds as fit in 20 s, five with the race detector; with SEEDS=N those up to N, with
// SEEDS=A-B those from A to B.
func TestSimulation(t *testing.T) {
	seeds := simSeeds{first: 1, last: math.MaxInt64, limit: 20 * time.Second}
	if fewer(1) == 0 {
		seeds.last = 5
		seeds.limit = time.Hour
	}
	if text := os.Getenv("SEEDS"); text != "" {
		var err error
		seeds, err = parseSimSeeds(text)
		if err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(800)) // speed
	}
	runSeeds(t, podcountSimulated(0), seeds)
}

// rewriter writes text with words replaced.
type rewriter struct {
	to    io.Writer
	words *strings.Replacer
}

func (w *rewriter) Write(text []byte) (int, error) {
	_, err := io.WriteString(w.to, w.words.Replace(string(text)))
	return len(text), err
}

// The simulation reads of the log what each process has heard. If the log has other words some day, it must not go on
// as if nothing had been said.
func TestSimulationFailsIfItDoesNotUnderstandTheLog(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"no JSON", `{"time"`, `time`, "logs a line that cannot be read"},
		{"no list", `"msg":"listed"`, `"msg":"it lists"`, "that it has listed pods"},
		{"no watch", `"msg":"watching"`, `"msg":"it watches"`, "that it watches pods"},
		{"no discovery", `"msg":"discovered"`, `"msg":"found"`, "that it has discovered counts"},
		{"other version", `watching","kind":"Pod","rv":"`, `watching","kind":"Pod","rv":"1`, "it has not asked for"},
		{"no version", `"rv":`, `"version":`, "logs a line that lacks rv"},
		{"version that is none", `"rv":"`, `"rv":"v`, "logs a line whose rv is no version"},
		{"other kind", `"kind":"Pod"`, `"kind":"pods"`, "should name a kind that it watches"},
		{"no stale", `"stale":`, `"old":`, "logs an event that lacks stale"},
		{"other type", `"msg":"MODIFIED `, `"msg":"CHANGED `, "logs an event of an unknown type"},
		{"no key", `"msg":"MODIFIED Node `, `"msg":"MODIFIED Node", "key":"`, "logs an event without a kind or a key"},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := podcountSimulated(3)
			podcount := o.program
			o.program = func(
				ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer,
				dial func(ctx context.Context, network, addr string) (net.Conn, error),
			) error {
				log := &rewriter{to: stderr, words: strings.NewReplacer(c.from, c.to)}
				return podcount(ctx, args, getenv, stdout, log, dial)
			}
			result := simulateSeed(t, o)
			wantText(t, strings.Join(result.broken, "\n"), c.want)
		})
	}
}

func TestSimulationFailsIfItHearsFewerEventsThanWereTold(t *testing.T) {
	all := hearingTotals{watchesAsked: 9, watchesRefused: 1, watchesSaid: 8, eventsTold: 9, eventsSaid: 9}
	for _, c := range []struct {
		name   string
		change func(*hearingTotals)
		want   string
	}{
		{"all", func(h *hearingTotals) {}, ""},
		{"half of the watches", func(h *hearingTotals) { h.watchesSaid = 4 }, ""},
		{"too few watches", func(h *hearingTotals) { h.watchesSaid = 3 }, "served 8 watches"},
		{"too many watches", func(h *hearingTotals) { h.watchesSaid = 9 }, "served 8 watches"},
		{"half of the events", func(h *hearingTotals) { h.eventsSaid = 5 }, ""},
		{"too few events", func(h *hearingTotals) { h.eventsSaid = 4 }, "told 9 events"},
		{"too many events", func(h *hearingTotals) { h.eventsSaid = 10 }, "told 9 events"},
		{"no events at all", func(h *hearingTotals) { h.eventsTold, h.eventsSaid = 0, 0 }, "told 0 events"},
	} {
		totals := all
		c.change(&totals)
		s := &sim{heard: totals}
		s.checkTotalsLocked()
		broken := strings.Join(s.wrong, "\n")
		if (broken == "") != (c.want == "") || !strings.Contains(broken, c.want) {
			t.Errorf("%s: %q, want %q", c.name, broken, c.want)
		}
	}
}

func TestSameSeedBringsTheSameLifeAndFaults(t *testing.T) {
	var scripts [3]string
	for i, seed := range []uint64{13, 13, 15} {
		scripts[i] = strings.Join(runSeed(t, podcountSimulated(seed)).script, "\n")
	}
	if scripts[0] != scripts[1] || scripts[0] == scripts[2] || len(scripts[0]) < 1000 {
		t.Errorf("seed 13 was\n%s\n\nand then\n%s", scripts[0], scripts[1])
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Behaviours: what holds on the fake holds on a real cluster

// world is a server under the behaviours: the fake, or a real cluster, of which we touch what we have made alone.
type world struct {
	*testing.T
	fake        *fakeServer // nil: a real cluster
	cfg         *Config
	client      *Client // of somebody who may do everything
	kubeconfig  []string
	ca          []byte
	ns          string // our namespace, and the beginning of all our names
	changed     chan struct{}
	made        *[]string // paths of what has to go in the end
	interrupted <-chan struct{}
	mayLack     string        // why the cluster may not be able to show this one
	patience    time.Duration // of await; 0: 90 s
	label       string        // the one that is written

	pipe func(w io.Writer) (through io.Writer) // if set, stands between a podcount and its stderr
}

const (
	ourRun   = "podcount.test/run"   // the label of all that is ours
	ourCount = "podcount.test/count" // the label that is written
)

// behaviours is what podcount relies on, and what it does. A behaviour that a cluster cannot show fails, unless mayLack
// says why that may be.
var behaviours = []struct {
	name, mayLack string
	show          func(w *world)
}{
	{"a list, and a watch from its version, bring everything", "", func(w *world) {
		a := w.addPod("a", "row", "watch")
		r := w.reflect("row=watch", "")
		w.await("the list", func() bool { return r.has() == "a" })
		w.addPod("b", "row", "watch")
		w.addPod("elsewhere", "row", "other")
		w.await("what was added", func() bool { return r.has() == "a b" })
		w.delete(a)
		w.await("what was removed", func() bool { return r.has() == "b" })
		wantNumber(w.T, "lists", strings.Count(r.log.String(), "msg=listed"), 1)
	}},
	{"a watch whose connection breaks is resumed without a list", "", func(w *world) {
		w.addPod("a", "row", "resume")
		r := w.reflect("row=resume", "")
		w.await("the watch", func() bool { return strings.Contains(r.log.String(), "msg=watching") })
		r.cut()
		w.addPod("b", "row", "resume")
		w.await("what was added meanwhile", func() bool { return r.has() == "a b" })
		wantNumber(w.T, "lists", strings.Count(r.log.String(), "msg=listed"), 1)
	}},
	{"an object that leaves the selector is removed, and one that enters is added", "", func(w *world) {
		a, b := w.addPod("a", "row", "leave"), w.addPod("b", "row", "enter")
		r := w.reflect("row=leave", "")
		w.await("the list", func() bool { return r.has() == "a" })
		w.send("PATCH", a, object{"metadata": object{"labels": object{"row": "left"}}})
		w.send("PATCH", b, object{"metadata": object{"labels": object{"row": "leave"}}})
		w.await("both", func() bool { return r.has() == "b" })
	}},
	{"fields select, too", "", func(w *world) {
		w.addPod("a", "row", "fields")
		w.addPod("b", "row", "fields")
		r := w.reflect("row=fields", "metadata.name!=a")
		w.await("the list", func() bool { return r.has() == "b" })
	}},
	{"a version that is too old (410) leads to a list", "a server that has just been made still knows all that ever was", func(w *world) {
		w.addPod("a", "row", "gone")
		body, err := w.client.stream(w.Context(), request{method: "GET", path: w.pods(), query: url.Values{"watch": {"1"}, "resourceVersion": {"1"}, "timeoutSeconds": {"1"}}})
		if err == nil {
			all, _ := io.ReadAll(body)
			body.Close()
			if !strings.Contains(string(all), `"code":410`) {
				w.lack()
			}
		}
		r := w.reflectFrom("1", "row=gone", "")
		w.await("the list", func() bool { return r.has() == "a" })
		wantText(w.T, r.log.String(), "listing anew")
		wantText(w.T, r.log.String(), "410 Expired")
	}},
	{"a list in pages is the list", "", func(w *world) {
		var want []string
		for _, name := range []string{"a", "b", "c"} {
			w.addPod(name, "row", "pages")
			want = append(want, name)
		}
		got, next := []string{}, ""
		for pages := 0; pages == 0 || next != ""; pages++ {
			page, err := w.try("GET", w.pods()+"?labelSelector=row%3Dpages&limit=2&continue="+url.QueryEscape(next), nil)
			if err != nil {
				w.Fatal(err)
			}
			for _, item := range page["items"].([]any) {
				got = append(got, str(metaOf(item.(object)), "name"))
			}
			next = str(metaOf(page), "continue")
		}
		if !slices.Equal(got, want) {
			w.Errorf("%q, want %q", got, want)
		}
	}},
	{"metadata alone is answered where it is asked for", "", func(w *world) {
		w.addPod("a", "row", "metadata")
		for accept, want := range map[string]string{accept(true, "PartialObjectMetadataList", jsonType): "PartialObjectMetadataList", "": "PodList"} {
			resp, err := w.client.do(w.Context(), request{method: "GET", path: w.pods(), query: url.Values{"labelSelector": {"row=metadata"}}, accept: accept})
			if err != nil {
				w.Fatal(err)
			}
			var list object
			json.NewDecoder(resp.Body).Decode(&list)
			resp.Body.Close()
			_, hasSpec := list["items"].([]any)[0].(object)["spec"]
			if str(list, "kind") != want || hasSpec != (want == "PodList") {
				w.Errorf("asked for %q, answered a %s (spec: %v)", accept, str(list, "kind"), hasSpec)
			}
		}
	}},
	{"a list is the same in protobuf and in JSON, whole and as metadata alone", "", func(w *world) {
		w.addPod("a", "row", "wire")
		w.addPod("b", "row", "wire")
		seen := map[string]bool{}
		for _, metadataOnly := range []bool{true, false} {
			for _, media := range []string{protobufType, jsonType} {
				as := map[bool]string{true: "PartialObjectMetadataList"}[metadataOnly]
				body, err := w.client.stream(w.Context(), request{method: "GET", path: w.pods(), query: url.Values{"labelSelector": {"row=wire"}}, accept: accept(as != "", as, media)})
				if err != nil {
					w.Fatal(err)
				}
				var all []string
				_, err = newDecoder(&Kind[*Pod]{Name: "Pod", MetadataOnly: metadataOnly, Keep: []string{"row"}, New: func() *Pod { return new(Pod) }}).list(body, body.isProtobuf, func(p *Pod, text []byte) (bool, error) {
					p.text = string(text)
					all = append(all, describe(&Pod{p.Meta, ""}))
					return true, nil
				})
				body.Close()
				if err != nil || len(all) != 2 || body.isProtobuf != (media == protobufType) {
					w.Errorf("asked for %s %s: %q, %v, protobuf: %v", media, as, all, err, body.isProtobuf)
				}
				seen[strings.Join(all, "; ")] = true
			}
		}
		if len(seen) != 1 {
			w.Errorf("different forms, different lists: %q", slices.Sorted(maps.Keys(seen)))
		}
	}},
	{"a label follows the pods, and is put right when somebody else changes it", "", func(w *world) {
		node := w.addNode("label", "row", "label")
		w.addPod("a", "row", "label")
		w.podcount(w.kubeconfig, "label")
		w.awaitLabel(node, "1")
		b := w.addPod("b", "row", "label")
		w.awaitLabel(node, "2")
		w.delete(b)
		w.awaitLabel(node, "1")
		w.send("PATCH", node, object{"metadata": object{"labels": object{ourCount: "100"}}})
		w.awaitLabel(node, "1")
	}},
	{"a node that stops matching loses the label", "", func(w *world) {
		node := w.addNode("unlabel", "row", "unlabel")
		w.podcount(w.kubeconfig, "unlabel")
		w.awaitLabel(node, "0")
		w.send("PATCH", node, object{"metadata": object{"labels": object{"row": "other"}}})
		w.awaitLabel(node, "")
	}},
	{"a node made anew gets the label", "a cloud's controller may remove a node that is no machine of its", func(w *world) {
		node := w.addNode("anew", "row", "anew")
		w.podcount(w.kubeconfig, "anew")
		w.awaitLabel(node, "0")
		w.delete(node)
		w.addNode("anew", "row", "anew")
		w.awaitLabel(node, "0")
	}},
	{"a write with the uid of another object is refused (422), and named by its field", "", func(w *world) {
		node := w.addNode("uid", "row", "uid")
		_, err := w.try("PATCH", node, object{"metadata": object{"uid": "11111111-0000-4000-8000-000000000000", "labels": object{ourCount: "1"}}})
		if !isStatus(err, 422, "Invalid") || !statusIn(err).hasCause("metadata.uid") {
			w.Errorf("answered %v", err)
		}
	}},
	{"a write that a policy refuses (422) is said with its words, and succeeds once it may", "ValidatingAdmissionPolicy needs Kubernetes 1.30", func(w *world) {
		node, group := w.addNode("policy", "row", "policy"), "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
		if _, err := w.try("GET", group+"ies?limit=1", nil); statusIn(err).Code == 404 {
			w.lack()
		}
		policy := w.create(group+"ies", object{"metadata": object{"name": w.ns}, "spec": object{
			"failurePolicy":    "Fail",
			"matchConstraints": object{"resourceRules": []any{object{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE", "UPDATE"}, "resources": []any{"nodes"}}}},
			"matchConditions":  []any{object{"name": "ours", "expression": "object.metadata.name == '" + path.Base(node) + "'"}},
			"validations":      []any{object{"expression": "!('" + ourCount + "' in object.metadata.labels)", "message": "no counts today"}},
		}})
		binding := w.create(group+"ybindings", object{"metadata": object{"name": w.ns}, "spec": object{"policyName": w.ns, "validationActions": []any{"Deny"}}})
		w.await("the policy is in force", func() bool {
			_, err := w.try("PATCH", node, object{"metadata": object{"labels": object{ourCount: "13"}}})
			return err != nil
		})
		log := w.podcount(w.kubeconfig, "policy")
		w.await("it is said", func() bool {
			return strings.Contains(log.String(), "422 Invalid") && strings.Contains(log.String(), "no counts today")
		})
		w.delete(binding)
		w.delete(policy)
		w.awaitLabel(node, "0")
	}},
	{"events are posted on new pods and on nodes, and the same one again is counted", "", func(w *world) {
		node := w.addNode("events", "row", "events")
		w.addPod("a", "row", "events")
		w.podcount(w.kubeconfig, "events", "-pod-events", "on")
		w.awaitLabel(node, "1")
		for range 2 {
			b := w.addPod("b", "row", "events")
			w.awaitLabel(node, "2")
			w.delete(b)
			w.awaitLabel(node, "1")
		}
		w.await("the events", func() bool {
			return w.count(w.ns, "b", "PodCounted", "pod count is 2") == 2 && w.count("default", path.Base(node), "PodCountChanged", "pod count changed from 1 to 2") == 2
		})
	}},
	{"a wrong token is a 401 that names where it is from; the right one, in its place, is used without a restart", "", func(w *world) {
		node, user, dir := w.addNode("token", "row", "token"), w.account("token", true), w.TempDir()
		writeFiles(w.T, dir, map[string]string{"token": "wrong"})
		log := w.podcount(w.as("tokenFile: "+dir+"/token"), "token")
		w.await("it is said", func() bool {
			return strings.Contains(log.String(), "401 Unauthorized") && strings.Contains(log.String(), "the token of "+dir+"/token")
		})
		writeFiles(w.T, dir, map[string]string{"token": user})
		w.awaitLabel(node, "0")
	}},
	{"a missing right is a 403 that names the rule; README's rights are enough", "", func(w *world) {
		node, user := w.addNode("rights", "row", "rights"), w.account("rights", false)
		log := w.podcount(w.as("token: "+user), "rights", "-pod-events", "on")
		w.await("it is said", func() bool {
			return strings.Contains(log.String(), `the RBAC rule that allows it: apiGroups [\"\"], resources [\"pods\"], verbs [\"list\"]`)
		})
		w.grant("rights")
		w.awaitLabel(node, "0")
		w.addPod("a", "row", "rights")
		w.awaitLabel(node, "1")
		w.await("the event", func() bool {
			return w.count("default", path.Base(node), "PodCountChanged", "pod count changed from 0 to 1") == 1
		})
	}},
	{"an exec program's token is used", "", func(w *world) {
		node, user, dir := w.addNode("exec", "row", "exec"), w.account("exec", true), w.TempDir()
		writeFiles(w.T, dir, map[string]string{"answer": credentialText("v1", object{"token": user})})
		w.podcount(w.as(execConfig(w.T, dir, "v1", ", interactiveMode: Never")), "exec")
		w.awaitLabel(node, "0")
	}},
	{"-master takes the place of the kubeconfig's server", "", func(w *world) {
		node, server := w.addNode("master", "row", "master"), w.cfg.Server.String()
		elsewhere := w.as("token: " + w.account("master", true))
		text, _ := os.ReadFile(elsewhere[1])
		writeFiles(w.T, filepath.Dir(elsewhere[1]), map[string]string{"config": strings.Replace(string(text), server, "https://192.0.2.1", 1)})
		w.podcount(append(elsewhere, "-master", server), "master")
		w.awaitLabel(node, "0")
	}},
	{"a server of another CA, or of another name, is not spoken to, and the error says what to do", "the kubeconfig may have no certificate-authority of its own", func(w *world) {
		if len(w.ca) == 0 {
			w.lack()
		}
		other := newAuthority(w.T, "another CA").pem()
		for want, change := range map[string]func(string) string{
			"give the CA of this cluster as certificate-authority": func(config string) string {
				return strings.Replace(config, base64.StdEncoding.EncodeToString(w.ca), base64.StdEncoding.EncodeToString(other), 1)
			},
			"give one of these names as tls-server-name": func(config string) string {
				return strings.Replace(config, "    server:", "    tls-server-name: podcount.test\n    server:", 1)
			},
		} {
			args := w.as("token: none")
			text, _ := os.ReadFile(args[1])
			writeFiles(w.T, filepath.Dir(args[1]), map[string]string{"config": change(string(text))})
			log := w.podcount(args, "none")
			w.await(want, func() bool { return strings.Contains(log.String(), want) })
		}
	}},
	{"what is not there is a 404", "", func(w *world) {
		_, err := w.try("GET", w.pods()+"/none", nil)
		if !isStatus(err, 404, "NotFound") {
			w.Errorf("a missing pod: %v", err)
		}
		for _, path := range []string{"/apis/podcount.test/v1/nothings", "/apis/podcount.test/v1"} {
			if _, err := w.try("GET", path, nil); statusIn(err).Code != 404 || statusIn(err).Reason != "" {
				w.Errorf("%s: %v", path, err)
			}
		}
	}},
	{"what is there already, or has changed meanwhile, is a 409", "", func(w *world) {
		w.addPod("a", "row", "conflict")
		if _, err := w.try("POST", w.pods(), w.pod("a", "row", "conflict")); !isStatus(err, 409, "AlreadyExists") {
			w.Errorf("made twice: %v", err)
		}
		if _, err := w.try("PATCH", w.pods()+"/a", object{"metadata": object{"resourceVersion": "1", "labels": object{"x": "y"}}}); !isStatus(err, 409, "Conflict") {
			w.Errorf("patched at an old version: %v", err)
		}
	}},
	{"a lease is made by PUT, without a version, and then is not changed without its version", "", func(w *world) {
		path := "/apis/coordination.k8s.io/v1/namespaces/" + w.ns + "/leases/ours"
		lease := func(version, at string) object {
			o := object{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": object{"name": "ours", "namespace": w.ns}, "spec": object{"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": at}}
			if version != "" {
				metaOf(o)["resourceVersion"] = version
			}
			return o
		}
		if _, err := w.try("GET", path, nil); !isStatus(err, 404, "NotFound") {
			w.Errorf("before it is made: %v", err)
		}
		if _, err := w.try("PUT", path, lease("", "2026-01-02T03:04:05.123Z")); !isStatus(err, 400, "BadRequest") {
			w.Errorf("with three digits of a second: %v", err)
		}
		made := w.send("PUT", path, lease("", "2026-01-02T03:04:05.000000Z"))
		*w.made = append(*w.made, path)
		version := str(metaOf(made), "resourceVersion")
		if _, err := w.try("PUT", path, lease("", "2026-01-02T03:04:06.000000Z")); !isStatus(err, 422, "Invalid") {
			w.Errorf("without a version: %v", err)
		}
		w.send("PUT", path, lease(version, "2026-01-02T03:04:06.000000Z"))
		if _, err := w.try("PUT", path, lease(version, "2026-01-02T03:04:07.000000Z")); !isStatus(err, 409, "Conflict") {
			w.Errorf("with an old version: %v", err)
		}
	}},
	{"discovery names what there is", "", func(w *world) {
		for path, want := range map[string]string{"/api/v1": "nodes", "/apis/coordination.k8s.io/v1": "leases"} {
			list, err := w.try("GET", path, nil)
			if err != nil {
				w.Fatal(err)
			}
			resources, _ := list["resources"].([]any)
			if !slices.ContainsFunc(resources, func(r any) bool { return str(r.(object), "name") == want }) || list["kind"] != "APIResourceList" {
				w.Errorf("%s has no %s", path, want)
			}
		}
	}},
	{"Counts follow their pods, with the CRD of deploy/ and the rights that README gives", "the cluster may have Counts of its own", func(w *world) {
		const crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		if _, err := w.try("GET", crds+"/counts.demo.mark8s.io", nil); err == nil {
			w.lack()
		}
		text, _ := os.ReadFile("deploy/count-crd.yaml")
		crd, err := yaml.Parse(string(text))
		if err != nil {
			w.Fatal(err)
		}
		w.send("POST", crds, crd.(object))
		*w.made = append(*w.made, crds+"/counts.demo.mark8s.io")
		counts := "/apis/demo.mark8s.io/v1/namespaces/" + w.ns + "/counts"
		sample := object{"apiVersion": "demo.mark8s.io/v1", "kind": "Count", "metadata": object{"name": "ours"}, "spec": object{"name": "web", "count": 1}}
		w.await("the new resource", func() bool {
			_, err := w.try("POST", counts, sample)
			return err == nil || isStatus(err, 409, "AlreadyExists")
		})
		says := func(healthy bool, n float64) func() bool {
			return func() bool {
				o, _ := w.try("GET", counts+"/ours", nil)
				status, _ := o["status"].(object)
				return status["healthy"] == healthy && status["count"] == n && status["observedGeneration"] == metaOf(o)["generation"]
			}
		}
		log := w.podcount(w.as("token: "+w.account("counts", true)), "counts", "-controllers", "count")
		w.await("the status", says(false, 0))
		pod := w.create(w.pods(), w.pod("a", "row", "counts", "app", "web"))
		w.await("the status with a pod", says(true, 1))
		w.send("PATCH", counts+"/ours", object{"spec": object{"count": 2}})
		w.await("the status for another spec", says(false, 1))
		w.delete(pod)
		w.await("the status without a pod", says(false, 0))
		for reason, message := range map[string]string{"CountMismatch": "want 1 pods of web, have 0", "CountMatched": "want 1 pods of web, have 1", "Synced": "Count synced successfully"} {
			w.await("the event "+reason, func() bool { return w.count(w.ns, "ours", reason, message) > 0 })
		}
		if strings.Contains(log.String(), "level=WARN") {
			w.Errorf("warnings:\n%s", log)
		}
	}},
	{"of two replicas one leads, and the other takes its place when it stops", "", func(w *world) {
		node := w.addNode("leader", "row", "leader")
		*w.made = append(*w.made, "/apis/coordination.k8s.io/v1/namespaces/"+w.ns+"/leases/ours")
		replica := func(t *testing.T) *logBuffer {
			its := *w
			its.T = t
			return its.podcount(w.kubeconfig, "leader", "-leader-elect", "-leader-elect-resource-namespace", w.ns, "-leader-elect-resource-name", "ours",
				"-leader-elect-lease-duration", "6s", "-leader-elect-renew-deadline", "4s", "-leader-elect-retry-period", "200ms")
		}
		var second *logBuffer
		w.Run("first", func(t *testing.T) {
			replica(t)
			w.awaitLabel(node, "0")
			second = replica(w.T)
			w.await("the second, standing by", func() bool { return strings.Contains(second.String(), "standing by") })
			if strings.Contains(second.String(), "elected") {
				t.Error("both lead")
			}
		})
		w.addPod("a", "row", "leader")
		w.awaitLabel(node, "1")
		wantText(w.T, second.String(), "elected")
	}},
	{"a leader whose stderr nobody reads works on, and gives its lease back when it stops", "", func(w *world) {
		node := w.addNode("unread", "row", "unread")
		path := "/apis/coordination.k8s.io/v1/namespaces/" + w.ns + "/leases/unread"
		*w.made = append(*w.made, path)
		w.Run("leads", func(t *testing.T) {
			reading := make(chan struct{})
			t.Cleanup(func() { close(reading) }) // after it has ended
			its := *w
			its.T = t
			its.pipe = func(to io.Writer) io.Writer { return &stuckPipe{to, reading} }
			its.podcount(w.kubeconfig, "unread", "-v", "6", "-leader-elect",
				"-leader-elect-resource-namespace", w.ns, "-leader-elect-resource-name", "unread")
			w.awaitLabel(node, "0")
			w.addPod("unread-a", "row", "unread")
			w.awaitLabel(node, "1")
		})
		spec, _ := w.send("GET", path, nil)["spec"].(object)
		if str(spec, "renewTime") == "" || str(spec, "holderIdentity") != "" {
			w.Errorf("the lease is %v", spec)
		}
	}},
	{"what others do to our label is undone, and those who write to the node all the time hold nothing up", "", func(w *world) {
		w.apart("fight")
		node := w.addNode("fight", "row", "fight")
		b := w.between("fight", nil)
		w.podcount(b.way, "fight")
		w.awaitLabel(node, "0")
		var others sync.WaitGroup
		for other := range 8 {
			others.Go(func() {
				for i := range 30 {
					meta := object{"annotations": object{fmt.Sprintf("podcount.test/%d", other): strconv.Itoa(i)}}
					if other == 0 {
						meta = object{"labels": object{w.label: []any{nil, "13"}[i%2]}}
					}
					w.try("PATCH", node, object{"metadata": meta})
				}
			})
		}
		w.addPod("fight-a", "row", "fight")
		w.addPod("fight-b", "row", "fight")
		others.Wait()
		w.awaitLabel(node, "2")
		w.still(b, node)
	}},
	{"two podcounts without an election agree, and do not fight", "", func(w *world) {
		w.apart("two")
		node, one, two := w.addNode("two", "row", "two"), w.between("one", nil), w.between("two", nil)
		w.podcount(one.way, "two")
		w.podcount(two.way, "two")
		for n := range 3 {
			w.awaitLabel(node, strconv.Itoa(n))
			w.still(one, node)
			w.still(two, node)
			w.addPod(fmt.Sprint("two-", n), "row", "two")
		}
		w.awaitLabel(node, "3")
	}},
	{"a write whose answer is lost has its effect, once", "", func(w *world) {
		w.apart("lost")
		node, lose := w.addNode("lost", "row", "lost"), new(atomic.Bool)
		b := w.between("lost", func(r *http.Response) error {
			if r.Request.Method == "PATCH" && r.StatusCode == 200 && lose.CompareAndSwap(true, false) {
				return errors.New("the connection breaks")
			}
			return nil
		})
		w.podcount(b.way, "lost", "-pod-events", "on")
		w.awaitLabel(node, "0")
		lose.Store(true)
		w.addPod("lost-a", "row", "lost")
		w.await("a lost answer", func() bool { return !lose.Load() })
		w.awaitLabel(node, "1")
		w.still(b, node)
		w.addPod("lost-b", "row", "lost")
		w.awaitLabel(node, "2")
	}},
	{"a write to a node that is gone (404) or made anew (422) before the watch has said so does no harm", "a cloud's controller may remove a node that is no machine of its", func(w *world) {
		w.apart("late")
		node, held, release := w.addNode("late", "row", "late"), new(atomic.Bool), make(chan struct{})
		var gone, anew atomic.Int32
		b := w.between("late", func(r *http.Response) error {
			switch {
			case r.Request.Method == "PATCH" && r.StatusCode == 404:
				gone.Add(1)
			case r.Request.Method == "PATCH" && r.StatusCode == 422:
				anew.Add(1)
			case strings.HasSuffix(r.Request.URL.Path, "/nodes") && r.Request.URL.Query().Has("watch"):
				r.Body = &heldBody{r.Body, held, release}
			}
			return nil
		})
		open := sync.OnceFunc(func() { close(release) })
		w.Cleanup(open)
		log := w.podcount(b.way, "late")
		w.awaitLabel(node, "0")
		held.Store(true)
		w.delete(node)
		w.addPod("late-a", "row", "late")
		w.await("a 404", func() bool { return gone.Load() > 0 })
		w.addNode("late", "row", "late")
		w.addPod("late-b", "row", "late")
		w.await("a 422", func() bool { return anew.Load() > 0 })
		open()
		w.awaitLabel(node, "2")
		w.still(b, node)
		if strings.Contains(log.String(), "level=WARN") {
			w.Errorf("warnings:\n%s", log)
		}
	}},
	{"a webhook that takes 20 s for one node holds no other up, and the write goes through", "the cluster may not reach a webhook on this machine", func(w *world) {
		w.slow("webhook")
		node, other := w.addNode("webhook", "row", "webhook"), w.addNode("quick", "row", "webhook")
		w.send("PATCH", node, object{"metadata": object{"labels": object{"podcount.test/slow": "yes"}}})
		asked := make(chan string, 1000)
		hook := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			var review struct {
				Request struct {
					UID     string
					Options struct{ FieldManager string }
				}
			}
			json.NewDecoder(r.Body).Decode(&review)
			asked <- review.Request.Options.FieldManager
			if review.Request.Options.FieldManager == "podcount" {
				sleep(r.Context(), 20*time.Second)
			}
			rw.Header().Set("Content-Type", jsonType)
			json.NewEncoder(rw).Encode(object{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": object{"uid": review.Request.UID, "allowed": true}})
		}))
		ca := newAuthority(w.T, "a webhook's CA")
		cert, key := ca.issue(w.T, "webhook", nil)
		pair, _ := tls.X509KeyPair(cert, key)
		hook.TLS, hook.Config.ErrorLog = &tls.Config{Certificates: []tls.Certificate{pair}}, log.New(io.Discard, "", 0)
		hook.StartTLS()
		w.Cleanup(hook.Close)
		w.create("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", object{"metadata": object{"name": w.ns}, "webhooks": []any{object{
			"name": "slow.podcount.test", "clientConfig": object{"url": hook.URL, "caBundle": ca.pem()}, "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"rules":          []any{object{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"UPDATE"}, "resources": []any{"nodes"}}},
			"objectSelector": object{"matchLabels": object{ourRun: w.ns, "podcount.test/slow": "yes"}}, "timeoutSeconds": 30, "failurePolicy": "Fail"}}})
		w.await("the webhook is in force", func() bool {
			_, err := w.try("PATCH", node, object{"metadata": object{"annotations": object{"podcount.test/at": time.Now().String()}}})
			if err != nil {
				w.Logf("%v", err)
				w.lack()
			}
			return len(asked) > 0
		})
		for len(asked) > 0 {
			<-asked
		}
		start := time.Now()
		w.podcount(w.kubeconfig, "webhook")
		w.awaitLabel(other, "0")
		w.addPod("webhook-a", "row", "webhook")
		w.awaitLabel(other, "1")
		if took := time.Since(start); took > 10*time.Second {
			w.Errorf("another node waited for %v", took)
		}
		w.awaitLabel(node, "1")
		// The first with the number of then, the second with that of now.
		wantNumber(w.T, "writes within 40 s", len(asked), 2)
	}},
	{"a token that is made invalid while a watch goes on is replaced by the one in the file, and the watch goes on", "", func(w *world) {
		w.apart("rotate")
		old, dir := w.account("old", true), w.TempDir()
		node, way := w.addNode("rotate", "row", "rotate"), w.as("tokenFile: "+dir+"/token")
		writeFiles(w.T, dir, map[string]string{"token": old})
		log := w.podcount(way, "rotate", "-v", "6", "-controllers", "pod-count")
		w.awaitLabel(node, "0")
		writeFiles(w.T, dir, map[string]string{"token": w.account("new", true)})
		w.delete("/api/v1/namespaces/" + w.ns + "/serviceaccounts/old")
		its := newClient(&options{}, &Config{Server: w.cfg.Server, Credential: func(ctx context.Context, refused *Credential) (*Credential, error) {
			cred, err := w.cfg.Credential(ctx, nil)
			return &Credential{token: old, tls: &tls.Config{RootCAs: cred.tls.RootCAs, ServerName: cred.tls.ServerName, InsecureSkipVerify: cred.tls.InsecureSkipVerify}}, err
		}}, nil, quietLog())
		defer its.Close()
		for refused := false; !refused; { // the server may remember for 10 s that it was good
			err := its.Send(w.Context(), request{method: "GET", path: "/api/v1/nodes", query: url.Values{"limit": {"1"}}}, nil)
			if refused = statusIn(err).Code == 401; !refused {
				w.pause(500 * time.Millisecond)
			}
		}
		start := time.Now()
		w.addPod("rotate-a", "row", "rotate")
		w.awaitLabel(node, "1")
		if took := time.Since(start); took > 20*time.Second { // not a minute, as for a look at the file without a 401
			w.Errorf("after %v", took)
		}
		wantText(w.T, log.String(), "status=\"401 Unauthorized\"")
		wantNumber(w.T, "lists", strings.Count(log.String(), "msg=listed"), 2)
		// A busy server ends watches itself, cleanly, whenever it likes. No other reason counts here.
		endedByServer := len(regexp.MustCompile(`msg="watch ended".* err=EOF`).FindAllString(log.String(), -1))
		wantNumber(w.T, "watches but those that the server ended", strings.Count(log.String(), "msg=watching")-endedByServer, 2)
	}},
	{"a half-open connection is noticed and the watch resumed without a list within 50 s on HTTP/2", "", func(w *world) {
		w.slow("http2")
		w.survivesSilence("http2", 50*time.Second)
	}},
	{"a half-open connection is noticed and the watch resumed without a list within 155 s on HTTP/1.1", "", func(w *world) {
		w.slow("http1")
		its, way := *w, w.between("http1", nil).way
		cfg, err := LoadConfig(w.Context(), LoadOptions{Kubeconfig: way[1], Master: way[3], Getenv: os.Getenv})
		if err != nil {
			w.Fatal(err)
		}
		its.cfg = cfg
		its.survivesSilence("http1", 155*time.Second)
	}},
	{"-dry-run says what -once would write, -once writes it and exits, and -prune removes it", "", func(w *world) {
		w.apart("once")
		node := w.addNode("once", "row", "once")
		w.addPod("once-a", "row", "once")
		finish := func(args ...string) string {
			log := &logBuffer{}
			if err := run(w.Context(), slices.Concat(w.kubeconfig, []string{"-namespace", w.ns, "-pod-selector", "row=once", "-total-nodes", ourRun + "=" + w.ns + ",row=once",
				"-total-label", w.label}, args), os.Getenv, io.Discard, log, nil); err != nil {
				w.Fatalf("%v\n%s", err, log)
			}
			return log.String()
		}
		wantText(w.T, finish("-once", "-dry-run"), `msg="would write node `+w.ns+`-once: `+w.label+` none → 1"`)
		w.awaitLabel(node, "")
		finish("-once")
		w.awaitLabel(node, "1")
		wantText(w.T, finish("-prune", "-dry-run"), `msg="would write node `+w.ns+`-once: `+w.label+` 1 → none"`)
		w.awaitLabel(node, "1")
		finish("-prune")
		w.awaitLabel(node, "")
	}},
	{"the policy of the manifest lets its account change nothing of a node but its own labels", "", func(w *world) {
		if w.fake != nil {
			w.Skip("the fake does not know CEL")
		}
		w.apart("policy")
		node, name := "/api/v1/nodes/"+w.ns+"-policy", w.ns+"-guarded"
		*w.made = append(*w.made, node)
		w.send("POST", "/api/v1/nodes?fieldManager=kubelet", object{
			"metadata": object{"name": path.Base(node), "labels": object{"row": "policy", ourRun: w.ns}},
			"spec":     object{"unschedulable": true, "taints": []any{object{"key": "podcount.test/none", "effect": "NoSchedule"}}}})
		token := w.account(name, true)
		for doc := range strings.SplitSeq(manifest(w.T, "-manifest=policy", "-manifest-namespace", w.ns, "-leader-elect-resource-name", name, "-total-label", w.label), "\n---\n") {
			tree, err := yaml.Parse(doc)
			if err != nil {
				w.Fatal(err)
			}
			kind := str(tree.(object), "kind")
			w.create("/apis/admissionregistration.k8s.io/v1/"+strings.Replace(strings.ToLower(kind)+"s", "policys", "policies", 1), tree.(object))
		}
		cfg, err := LoadConfig(w.Context(), LoadOptions{Kubeconfig: w.as("token: " + token)[1], Getenv: os.Getenv})
		if err != nil {
			w.Fatal(err)
		}
		its := *w
		its.client = newClient(&options{}, cfg, nil, quietLog())
		w.Cleanup(its.client.Close)
		refused := func(change object, why string) func() bool {
			return func() bool {
				_, err := its.try("PATCH", node, change)
				return err != nil && strings.Contains(err.Error(), why)
			}
		}
		labels := func(o object) object { return object{"metadata": object{"labels": o}} }
		// The policies hold whatever rights the account has.
		w.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", object{"metadata": object{"name": name},
			"roleRef":  object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
			"subjects": []any{object{"kind": "ServiceAccount", "name": name, "namespace": w.ns}}})
		events := "/api/v1/namespaces/" + w.ns + "/events"
		event := func(name, source, reporting string) object {
			return object{"metadata": object{"name": name},
				"involvedObject": object{"kind": "Pod", "namespace": w.ns, "name": "a"},
				"reason":         "Test", "source": object{"component": source}, "reportingComponent": reporting}
		}
		tries := 0
		w.await("the policies are in force", func() bool {
			tries++ // what changes nothing is no business of a policy's
			try := strconv.Itoa(tries)
			_, createErr := its.try("POST", events, event("try-"+try, "kubelet", "kubelet"))
			_, statusErr := its.try("PATCH", node+"/status", object{"status": object{"phase": try}})
			return refused(labels(object{"try": try}), "podcount may")() && createErr != nil && statusErr != nil
		})
		for what, change := range map[string]object{
			"may not change the spec":                       {"spec": object{"taints": []any{}}},
			"may change no labels of a node but " + w.label: labels(object{"row": "other", w.label: "1"}),
			"may not change annotations":                    {"metadata": object{"annotations": object{"a": "b"}}},
			"may not change annotations, finalizers":        {"metadata": object{"generateName": "a"}},
			"podcount may not take from others": {"metadata": object{
				"managedFields": []any{object{}}, "labels": object{w.label: "1"}}},
		} {
			if !refused(change, what)() {
				w.Errorf("not refused: %v", change)
			}
		}
		for _, change := range []object{labels(object{"another": "x"}), labels(object{"row": nil}), {"spec": object{"unschedulable": nil}}, {"metadata": object{"finalizers": []any{"a.b/c"}}}} {
			if !refused(change, "podcount may")() {
				w.Errorf("not refused: %v", change)
			}
		}
		own := func(change object) { its.send("PATCH", node+"?fieldManager=podcount", change) }
		own(labels(object{w.label: "1"}))
		own(labels(object{w.label: nil}))
		own(labels(object{w.label: "2", "row": "policy"}))
		byOthers := node + "?fieldManager=kubectl-edit"
		w.send("PATCH", byOthers, object{"spec": object{"unschedulable": nil}, "metadata": object{"labels": object{"another": "x"}}})

		// Nobody becomes the manager of more than before, by whatever name.
		entry := func(manager, operation string, fields object) object {
			return object{"manager": manager, "operation": operation, "apiVersion": "v1",
				"fieldsType": "FieldsV1", "fieldsV1": fields}
		}
		taints := object{"f:spec": object{"f:taints": object{}}}
		now := metaOf(w.send("GET", node, nil))["managedFields"].([]any)
		for what, more := range map[string]object{
			"an apply by podcount":  entry("podcount", "Apply", taints),
			"an update by podcount": entry("podcount", "Update", taints),
			"another manager":       entry("another", "Update", taints),
			"a merged entry":        entry("ancient-changes", "Update", taints),
		} {
			if !refused(object{"metadata": object{"managedFields": append(slices.Clone(now), more)}}, "podcount may")() {
				w.Errorf("not refused: %s as the manager of taints", what)
			}
		}
		_, err = its.try("PATCH", node+"?fieldManager=another", labels(object{w.label: "7"}))
		if !isStatus(err, 422, "Invalid") {
			w.Errorf("a write as another manager: %v", err)
		}
		// Who else has set podcount's label is its manager no more once podcount has.
		w.send("PATCH", node+"?fieldManager=kubectl-label", labels(object{w.label: "8", "third": "x"}))
		own(labels(object{w.label: "3"}))
		// Of ten other managers, the server merges the oldest when podcount joins them.
		own(labels(object{w.label: nil}))
		for i := range 10 {
			annotations := object{fmt.Sprint("a", i): "x"}
			w.send("PATCH", fmt.Sprint(node, "?fieldManager=manager-", i), object{"metadata": object{"annotations": annotations}})
		}
		own(labels(object{w.label: "4"}))
		if text := fmt.Sprint(metaOf(w.send("GET", node, nil))["managedFields"]); !strings.Contains(text, "ancient-changes") {
			w.Errorf("nothing was merged: %s", text)
		}
		w.awaitLabel(node, "4")

		// Nothing else is done to nodes, and nothing to the Events of others.
		its.send("POST", events, event("ours", "podcount", "podcount"))
		its.send("PATCH", events+"/ours", object{"count": 2})
		w.send("POST", events, event("theirs", "kubelet", "kubelet"))
		for _, c := range []struct {
			method, path string
			body         object
		}{
			{"DELETE", node, nil},
			{"POST", "/api/v1/nodes", object{"metadata": object{"name": w.ns + "-made"}}},
			{"PATCH", node + "/status", object{"status": object{"phase": "none"}}},
			{"GET", node + "/proxy/", nil},
			{"POST", events, event("false", "podcount", "kubelet")},
			{"PATCH", events + "/theirs", object{"count": 2}},
			{"PATCH", events + "/theirs", event("theirs", "podcount", "podcount")},
			{"PATCH", events + "/ours", event("ours", "kubelet", "kubelet")},
			{"DELETE", events + "/theirs", nil},
		} {
			_, err := its.try(c.method, c.path, c.body)
			if !isStatus(err, 422, "Invalid") || !strings.Contains(err.Error(), "podcount may") {
				w.Errorf("%s %s %v: %v", c.method, c.path, c.body, err)
			}
		}
	}},
	{"podcount refuses the selectors that the server refuses, and no others", "", func(w *world) {
		if w.fake != nil {
			w.Skip("the fake reads selectors by podcount's own functions")
		}
		selectors := readSelectors(w.T)
		ask := func(kind, selector string, isAccepted bool) {
			_, err := w.try("GET", w.pods()+"?limit=1&"+kind+"="+url.QueryEscape(selector), nil)
			if isAccepted && err != nil || !isAccepted && !isStatus(err, 400, "BadRequest") {
				w.Errorf("%s %q: %v", kind, selector, err)
			}
		}
		for _, selector := range selectors.LabelSelectorsAccepted {
			ask("labelSelector", selector, true)
		}
		for _, selector := range selectors.LabelSelectorsRefused {
			ask("labelSelector", selector, false)
		}
		for _, selector := range selectors.FieldSelectorsAccepted {
			ask("fieldSelector", selector, true)
		}
		for _, selector := range selectors.FieldSelectorsRefused {
			ask("fieldSelector", selector, false)
		}
	}},
	{"a selector that the server does not know ends the program as wrong usage", "", func(w *world) {
		err := run(w.Context(), append(w.kubeconfig, "-namespace", w.ns, "-field-selector", "spec.nothing=1", "-total-nodes", "none=none"), os.Getenv, io.Discard, io.Discard, nil)
		if usage := (usageError{}); !errors.As(err, &usage) || !strings.Contains(err.Error(), "spec.nothing") {
			w.Errorf("it ended with %v", err)
		}
	}},
}

func TestBehavioursOnTheFake(t *testing.T) {
	f := newFake()
	server, ca := f.serveTLSFor(t)
	f.allow("admin")
	f.compact()
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(kubeconfigFor(server, ca, "token: admin")), 0o600)
	showBehaviours(&world{T: t, fake: f, kubeconfig: []string{"-kubeconfig", file}})
}

// `make e2e KUBECONFIG=FILE` runs this. It needs a user who may do everything. It works in a namespace of its own, on
// nodes of its own, for which there is no machine, and removes in the end what it has made, also after a failure or a
// Ctrl-C.
func TestBehavioursOnARealCluster(t *testing.T) {
	if os.Getenv("PODCOUNT_E2E") == "" {
		t.Skip("needs a cluster: make e2e KUBECONFIG=FILE")
	}
	w := &world{T: t}
	if file := os.Getenv("KUBECONFIG"); file != "" {
		w.kubeconfig = []string{"-kubeconfig", file}
	}
	if name := os.Getenv("CONTEXT"); name != "" {
		w.kubeconfig = append(w.kubeconfig, "-context", name)
	}
	showBehaviours(w)
}

func showBehaviours(w *world) {
	o, err := parseFlags(w.kubeconfig, io.Discard)
	if err != nil {
		w.Fatal(err)
	}
	if w.cfg, err = LoadConfig(w.Context(), LoadOptions{Kubeconfig: o.kubeconfig, Context: o.context, Getenv: os.Getenv}); err != nil {
		w.Fatal(err)
	}
	a := &access{log: quietLog().Logger}
	if a.readKubeconfigs(w.Context(), []string{o.kubeconfig}, o.context) == nil {
		a.ca.startReading(true)
		a.ca.endReading(w.Context())
		w.ca = a.ca.data
	}
	w.client = newClient(&options{}, w.cfg, nil, quietLog())
	w.ns, w.made = fmt.Sprintf("podcount-e2e-%05x", rand.IntN(1<<20)), new([]string)
	ctx, stop := context.WithCancel(context.Background())
	if w.fake == nil {
		ctx, stop = signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	}
	// Some of the behaviours are shown at the same time, when this function has ended.
	w.Cleanup(stop)
	w.interrupted = ctx.Done()
	w.Cleanup(w.client.Close)
	w.Cleanup(w.clean)
	w.Cleanup(w.cleanEvents)
	w.Logf("%s, in the namespace %s", w.cfg.Server, w.ns)
	w.create("/api/v1/namespaces", object{"metadata": object{"name": w.ns}})
	for _, b := range behaviours {
		if ctx.Err() != nil {
			w.Fatal("interrupted")
		}
		w.Run(b.name, func(t *testing.T) {
			mine := *w
			mine.T, mine.mayLack, mine.made, mine.changed, mine.label = t, b.mayLack, new([]string), make(chan struct{}, 1), ourCount
			t.Cleanup(mine.clean)
			b.show(&mine)
		})
	}
}

// clean removes what was made.
func (w *world) clean() {
	for _, path := range slices.Backward(*w.made) {
		now := object{"gracePeriodSeconds": 0}
		err := w.client.Send(context.Background(), request{method: "DELETE", path: path, body: now}, nil)
		if err != nil && statusIn(err).Code != 404 {
			w.Errorf("not removed: %v", err)
		}
	}
}

// cleanEvents removes the Events of our namespace, and those on what was made elsewhere. It is for the end, as the
// behaviours that are shown at the same time still look at theirs.
func (w *world) cleanEvents() {
	for _, namespace := range []string{"default", w.ns} {
		events := "/api/v1/namespaces/" + namespace + "/events"
		list := struct{ Items []object }{}
		w.client.Send(context.Background(), request{method: "GET", path: events}, &list)
		for _, e := range list.Items {
			about, _ := e["involvedObject"].(object)
			if namespace == w.ns || strings.HasPrefix(str(about, "name"), w.ns) {
				w.client.Send(context.Background(), request{method: "DELETE", path: events + "/" + str(metaOf(e), "name")}, nil)
			}
		}
	}
}

// lack ends a behaviour that this cluster cannot show.
func (w *world) lack() {
	if w.mayLack == "" || w.fake != nil {
		w.Fatal("this cannot be shown here, and the table names no reason")
	}
	w.Skip(w.mayLack)
}

// slow makes a behaviour that takes long be shown on a real cluster alone, with the others of its sort at the same time.
func (w *world) slow(row string) {
	if w.fake != nil {
		w.Skip("takes too long here")
	}
	w.patience = 4 * time.Minute
	w.apart(row)
}

// apart makes a behaviour be shown at the same time as others, with a label of its own, as every podcount takes its label
// off the nodes that do not match. The names of pods have to differ, too.
func (w *world) apart(row string) {
	w.label = ourCount + "-" + row
	w.Parallel()
}

// await waits until cond holds. It looks when the fake changes or something is logged, and on a real cluster every 200 ms.
func (w *world) await(what string, cond func() bool) {
	w.Helper()
	late := time.After(cmp.Or(w.patience, 90*time.Second))
	for {
		moved, tick := make(<-chan struct{}), make(<-chan time.Time)
		if w.fake == nil {
			tick = time.After(200 * time.Millisecond)
		} else {
			moved = w.fake.nextChange()
		}
		if cond() {
			return
		}
		select {
		case <-moved:
		case <-w.changed:
		case <-tick:
		case <-w.interrupted:
			w.Fatal("interrupted")
		case <-late:
			w.Fatalf("never: %s", what)
		}
	}
}

// wake makes await look again.
func (w *world) wake() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// isStatus reports whether err is a Status with this code and reason.
func isStatus(err error, code int, reason string) bool {
	s := statusIn(err)
	return s.Code == code && s.Reason == reason
}

// try makes a request; the path may have a query.
func (w *world) try(method, path string, body object) (object, error) {
	path, query, _ := strings.Cut(path, "?")
	q, err := url.ParseQuery(query)
	if err != nil {
		w.Fatal(err)
	}
	var sent any
	if body != nil {
		sent = body
	}
	resp, err := w.client.do(w.Context(), request{method: method, path: path, query: q, body: sent})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer object
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
}

func (w *world) send(method, path string, body object) object {
	w.Helper()
	answer, err := w.try(method, path, body)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

// create makes an object, which is removed in the end, and returns its path. A new namespace has no service account
// yet, which a pod needs on most clusters.
func (w *world) create(collection string, o object) (path string) {
	w.Helper()
	if metaOf(o)["labels"] == nil {
		metaOf(o)["labels"] = object{}
	}
	metaOf(o)["labels"].(object)[ourRun] = w.ns
	path = collection + "/" + str(metaOf(o), "name")
	*w.made = append(*w.made, path)
	w.await("made: "+path, func() bool {
		_, err := w.try("POST", collection, o)
		if err != nil && !strings.Contains(err.Error(), "error looking up service account") && !isStatus(err, 409, "AlreadyExists") {
			w.Fatal(err)
		}
		return err == nil
	})
	return path
}

func (w *world) delete(path string) {
	w.Helper()
	w.send("DELETE", path, object{"gracePeriodSeconds": 0})
}

func (w *world) pods() string { return "/api/v1/namespaces/" + w.ns + "/pods" }

// pod is one that no scheduler and no kubelet will ever take.
func (w *world) pod(name string, label ...string) object {
	labels := object{}
	for pair := range slices.Chunk(label, 2) {
		labels[pair[0]] = pair[1]
	}
	return object{"metadata": object{"name": name, "labels": labels},
		"spec": object{"schedulerName": "podcount.test-none", "containers": []any{object{"name": "c", "image": "podcount.test/none"}}}}
}

func (w *world) addPod(name string, label ...string) (path string) {
	w.Helper()
	return w.create(w.pods(), w.pod(name, label...))
}

func (w *world) addNode(name string, label ...string) (path string) {
	w.Helper()
	return w.create("/api/v1/nodes", object{"metadata": object{"name": w.ns + "-" + name, "labels": object{label[0]: label[1]}},
		"spec": object{"unschedulable": true, "taints": []any{object{"key": "podcount.test/none", "effect": "NoSchedule"}}}})
}

func (w *world) awaitLabel(node, want string) {
	w.Helper()
	w.await(fmt.Sprintf("%s has %s=%q", node, w.label, want), func() bool {
		o, err := w.try("GET", node, nil)
		labels, _ := metaOf(o)["labels"].(object)
		return err == nil && str(labels, w.label) == want
	})
}

func (w *world) events(namespace string) (events []object) {
	list, _ := w.try("GET", "/api/v1/namespaces/"+namespace+"/events", nil)
	items, _ := list["items"].([]any)
	for _, e := range items {
		events = append(events, e.(object))
	}
	return events
}

// count is how often an event was told of an object.
func (w *world) count(namespace, name, reason, message string) (n int) {
	for _, e := range w.events(namespace) {
		if about, _ := e["involvedObject"].(object); str(about, "name") == name && str(e, "reason") == reason && str(e, "message") == message {
			n += int(e["count"].(float64))
		}
	}
	return n
}

// account makes a service account and returns its token; with rights, those that the manifest gives.
func (w *world) account(name string, rights bool) (token string) {
	w.Helper()
	path := w.create("/api/v1/namespaces/"+w.ns+"/serviceaccounts", object{"metadata": object{"name": name}})
	if rights {
		w.grant(name)
	}
	answer := w.send("POST", path+"/token", object{"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": object{}})
	return str(answer["status"].(object), "token")
}

// grant gives a service account the rights that the manifest says podcount needs.
func (w *world) grant(name string) {
	w.Helper()
	text, err := os.ReadFile("deploy/podcount.yaml")
	if err != nil {
		w.Fatal(err)
	}
	var rules []any
	for doc := range strings.SplitSeq(string(text), "\n---\n") {
		if _, role, found := strings.Cut(doc, "kind: ClusterRole\n"); found {
			tree, err := yaml.Parse(role)
			if err != nil {
				w.Fatal(err)
			}
			rules = append(rules, tree.(object)["rules"].([]any)...)
		}
	}
	const group = "/apis/rbac.authorization.k8s.io/v1/"
	w.create(group+"clusterroles", object{"metadata": object{"name": w.ns + "-" + name}, "rules": rules})
	w.create(group+"clusterrolebindings", object{"metadata": object{"name": w.ns + "-" + name}, "roleRef": object{"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": w.ns + "-" + name},
		"subjects": []any{object{"kind": "ServiceAccount", "name": name, "namespace": w.ns}}})
}

// as returns the flags for another user of the cluster.
func (w *world) as(user string) []string {
	config := kubeconfigFor(w.cfg.Server.String(), w.ca, user)
	cred, err := w.cfg.Credential(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	if name := cred.tls.ServerName; name != "" {
		config = strings.Replace(config, "    server:", "    tls-server-name: "+name+"\n    server:", 1)
	}
	dir := w.TempDir()
	writeFiles(w.T, dir, map[string]string{"config": config})
	return []string{"-kubeconfig", dir + "/config"}
}

func (w *world) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-w.interrupted:
		w.Fatal("interrupted")
	}
}

// between is a proxy by plain HTTP/1.1, for the test to stand between podcount and the server. As kubectl proxy does, it
// brings the credential, as podcount sends none over plain HTTP.
type between struct {
	way     []string     // the flags for podcount
	patches atomic.Int32 // that came through
}

// between makes a proxy, for a service account with the rights that the manifest gives. answered, if set, sees each answer, and
// may change it; its error breaks the connection.
func (w *world) between(account string, answered func(*http.Response) error) *between {
	w.Helper()
	cred, err := w.cfg.Credential(w.Context(), nil)
	if err != nil {
		w.Fatal(err)
	}
	b, theirs := &between{}, cred.tls.Clone()
	theirs.GetClientCertificate = nil // the token decides
	transport := &http.Transport{TLSClientConfig: theirs, ForceAttemptHTTP2: true}
	token := w.account(account, true)
	server := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(w.cfg.Server)
			r.Out.Header.Set("Authorization", "Bearer "+token)
		},
		Transport:     transport,
		FlushInterval: -1,
		ModifyResponse: func(r *http.Response) error {
			if r.Request.Method == "PATCH" {
				b.patches.Add(1)
			}
			defer w.wake()
			if answered == nil {
				return nil
			}
			return answered(r)
		},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		ErrorLog:     log.New(io.Discard, "", 0),
	})
	w.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		transport.CloseIdleConnections()
	})
	b.way = append(w.as("token: "+token), "-master", server.URL)
	return b
}

// heldBody brings nothing from the moment it is held until it is released.
type heldBody struct {
	io.ReadCloser
	held    *atomic.Bool
	release <-chan struct{}
}

func (b *heldBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.held.Load() {
		<-b.release
	}
	return n, err
}

// still waits for five intervals in which the object stays as it is and podcount writes nothing at all.
func (w *world) still(b *between, path string) {
	w.Helper()
	var before, now string
	for tries := 0; tries == 0 || now != before; tries++ {
		if tries == 20 {
			w.Fatalf("%s is written to for ever", path)
		}
		if tries > 0 {
			w.pause(500 * time.Millisecond)
		}
		before, now = now, fmt.Sprint(b.patches.Load(), " ", str(metaOf(w.send("GET", path, nil)), "resourceVersion"))
	}
}

// podcount runs the whole program on the pods and nodes whose label row has this value.
func (w *world) podcount(way []string, row string, args ...string) *logBuffer {
	log := &logBuffer{wrote: w.changed}
	ctx, cancel := context.WithCancel(w.Context())
	var stderr io.Writer = log
	if w.pipe != nil {
		stderr = w.pipe(log)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, slices.Concat(way, []string{"-namespace", w.ns, "-pod-selector", "row=" + row, "-total-nodes", ourRun + "=" + w.ns + ",row=" + row,
			"-total-label", w.label, "-interval", "100ms", "-pod-events", "off"}, args), os.Getenv, io.Discard, stderr, nil)
	}()
	w.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("podcount ended with %v", err)
		}
		if w.Failed() {
			w.Log(log.String())
		}
	})
	return log
}

// observed is a reflector of pods alone, in real time.
type observed struct {
	store *Store[*Pod]
	log   *logBuffer

	mu    sync.Mutex // guards conns
	conns []*muteConn
}

func (w *world) reflect(labels, fields string) *observed { return w.reflectFrom("", labels, fields) }

// reflectFrom starts with a watch from version, if there is one.
func (w *world) reflectFrom(version, labels, fields string) *observed {
	o := &observed{log: &logBuffer{wrote: w.changed}, store: NewStore[*Pod]()}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		o.mu.Lock()
		defer o.mu.Unlock()
		if err == nil {
			c = &muteConn{Conn: c, closed: make(chan struct{})}
			o.conns = append(o.conns, c.(*muteConn))
		}
		return c, err
	}
	log := newLog(o.log, &options{verbosity: 4})
	client := newClient(&options{}, w.cfg, dial, log)
	kind := Kind[*Pod]{Name: "Pod", API: "/api/v1", Resource: "pods", Namespace: w.ns, Protobuf: true, Selector: labels, Fields: fields, New: func() *Pod { return new(Pod) }}
	r := NewReflector(client, kind, o.store, log)
	r.handlers = append(r.handlers, func(Delta[*Pod]) { w.wake() })
	if r.version = version; version != "" {
		r.relistAt = time.Now().Add(time.Hour)
	}
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(done)
	}()
	w.Cleanup(func() {
		cancel()
		<-done
		client.Close()
		if w.Failed() {
			w.Log(o.log.String())
		}
	})
	return o
}

func (o *observed) has() string {
	var names []string
	for _, p := range o.store.All() {
		names = append(names, p.Key().Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// cut breaks all connections.
func (o *observed) cut() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.conns {
		c.Close()
	}
}

// mute makes all connections half-open: what is sent on them goes nowhere, nothing comes, and they do not end.
func (o *observed) mute() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.conns {
		c.mute.Store(true)
	}
}

type muteConn struct {
	net.Conn
	mute   atomic.Bool
	once   sync.Once
	closed chan struct{}
}

func (c *muteConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.mute.Load() {
		<-c.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (c *muteConn) Write(p []byte) (int, error) {
	if c.mute.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

func (c *muteConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// survivesSilence shows what follows when a watch's connection goes silent: another, within so long, and no list.
func (w *world) survivesSilence(row string, within time.Duration) {
	w.Helper()
	w.addPod(row+"-a", "row", row)
	r := w.reflect("row="+row, "")
	w.await("the watch", func() bool { return strings.Contains(r.log.String(), "msg=watching") })
	w.addPod(row+"-b", "row", row)
	w.await("what was added", func() bool { return len(r.store.All()) == 2 })
	r.mute()
	start := time.Now()
	w.addPod(row+"-c", "row", row)
	w.await("what was added in the silence", func() bool { return len(r.store.All()) == 3 })
	w.Logf("after %v", time.Since(start).Round(time.Second/10))
	if took := time.Since(start); took > within {
		w.Errorf("after %v, want %v", took, within)
	}
	wantNumber(w.T, "lists", strings.Count(r.log.String(), "msg=listed"), 1)
}

// ---------------------------------------------------------------------------------------------------------------------
// Random input (make fuzz)

// addRecordings adds the bodies of the recorded answers.
func addRecordings(f *testing.F, pattern string) {
	files, _ := filepath.Glob("testdata/transcripts/" + pattern)
	for _, file := range files {
		text, _ := os.ReadFile(file)
		_, body, _ := bytes.Cut(text, []byte("\n\n"))
		f.Add(body)
	}
}

func podKind() *Kind[*Pod] {
	return &Kind[*Pod]{Name: "Pod", API: "/api/v1", Resource: "pods", Keep: []string{"app"}, New: func() *Pod { return new(Pod) }}
}

// A list is an error, or what encoding/json makes of it.
func FuzzDecodeList(f *testing.F) {
	addRecordings(f, "list-*.txt")
	f.Add([]byte(`{"metadata":{"resourceVersion":"5"},"items":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var got []*Pod
		meta, err := newDecoder(podKind()).list(bytes.NewReader(data), false, func(p *Pod, text []byte) (bool, error) {
			p.text = string(text)
			got = append(got, p)
			return true, nil
		})
		if err != nil || bytes.Count(data, []byte(`"items"`)) != 1 || bytes.Count(data, []byte(`"metadata"`)) != 1+len(got) || bytes.ContainsRune(data, '\\') {
			return // a field that is there twice counts twice for us, once for encoding/json
		}
		if hasNamesInOtherCases(data) {
			return // which encoding/json takes for the same, and we do not
		}
		var fields map[string]json.RawMessage
		var want []struct {
			Metadata struct {
				Namespace, Name, UID, ResourceVersion string
				Labels                                map[string]string
			}
			Spec struct{ NodeName string }
		}
		var wantMeta ListMeta
		if json.NewDecoder(bytes.NewReader(data)).Decode(&fields) != nil || json.Unmarshal(fields["items"], &want) != nil || json.Unmarshal(fields["metadata"], &wantMeta) != nil {
			t.Fatalf("%q: accepted, but it is no such JSON", data)
		}
		if len(got) != len(want) || meta != wantMeta {
			t.Fatalf("%q: %d objects, %+v; want %d, %+v", data, len(got), meta, len(want), wantMeta)
		}
		for i, p := range got {
			w := want[i]
			if m := w.Metadata; p.Key() != (Key{m.Namespace, m.Name}) || p.UID() != m.UID || p.ResourceVersion() != m.ResourceVersion || p.NodeName != w.Spec.NodeName || labelsOf(&p.Meta)["app"] != m.Labels["app"] || p.UID() == "" {
				t.Fatalf("%q: item %d is %+v, want %+v", data, i, p, w)
			}
		}
	})
}

// Protobuf gives the same however its bytes arrive: the same objects or an error, and never a panic.
func FuzzDecodeProtobuf(f *testing.F) {
	files, _ := filepath.Glob("testdata/transcripts/*.pb")
	for _, file := range files {
		f.Add(recording(f, filepath.Base(file)))
	}
	for _, h := range hostile() {
		f.Add([]byte(h.body[:min(len(h.body), 1000)]))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		read := func(r io.Reader) (got []string, meta ListMeta, err error) {
			meta, err = newDecoder(podKind()).list(r, true, func(p *Pod, text []byte) (bool, error) {
				p.text = string(text)
				got = append(got, describe(p))
				return true, nil
			})
			return got, meta, err
		}
		got, meta, err := read(bytes.NewReader(data))
		again, meta2, err2 := read(iotest.OneByteReader(bytes.NewReader(data)))
		if !slices.Equal(got, again) || meta != meta2 || fmt.Sprint(err) != fmt.Sprint(err2) {
			t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, got, err, again, err2)
		}
		sameEvents(t, data, true)
		parseStatus(data, true)
	})
}

// An object in protobuf is what encoding/json makes of it in JSON.
func FuzzProtobufIsJSON(f *testing.F) {
	f.Add("web-0", "default", "0ec2e3b2-7f91-43e4-b6d9-308f8d87f73d", "217", "app", "nginx", "node-1", []byte("\x1a\x00"))
	f.Add("node-1", "", "u", "9", "node-role.kubernetes.io/control-plane", "", "", []byte{})
	f.Fuzz(func(t *testing.T, name, namespace, uid, version, label, value, node string, more []byte) {
		meta := object{"name": name, "namespace": namespace, "uid": uid, "resourceVersion": version, "labels": object{label: value, "app": "x"}}
		list := object{"kind": "PodList", "metadata": object{"resourceVersion": "5"}, "items": []any{object{"metadata": meta, "spec": object{"nodeName": node}}}}
		text, _ := json.Marshal(list)
		for _, s := range []string{name, namespace, uid, version, label, value, node} {
			if !utf8.ValidString(s) || len(s) > 1000 {
				return // JSON cannot say it
			}
		}
		kind := &Kind[*Pod]{Name: "Pod", Keep: []string{"app", label}, New: func() *Pod { return new(Pod) }}
		want, wantMeta, wantErr := decoded(t, text, false, kind)
		got, gotMeta, err := decoded(t, protobufOf(text), true, kind)
		if !slices.Equal(got, want) || (err == nil) != (wantErr == nil) || err == nil && gotMeta != wantMeta {
			t.Fatalf("%s: %q, %v; in JSON %q, %v", text, got, err, want, wantErr)
		}
		var obj pb // fields that nobody knows change nothing
		obj.bytes(99, more)
		obj = append(obj, protobufObject(list["items"].([]any)[0].(object))...)
		obj.bytes(60, more)
		obj.int(61, len(more))
		var items, unknown pb
		items.bytes(1, []byte{0x12, 1, '5'})
		items.bytes(2, obj)
		unknown.bytes(1, []byte("\x12\x07PodList"))
		unknown.bytes(2, items)
		if again, _, err := decoded(t, append([]byte("k8s\x00"), unknown...), true, kind); !slices.Equal(got, again) {
			t.Fatalf("%q: %q, %v, want %q", unknown, again, err, got)
		}
	})
}

// A watch gives the same events however its bytes arrive, and each is whole.
func FuzzDecodeEvents(f *testing.F) {
	addRecordings(f, "watch-*.txt")
	f.Fuzz(func(t *testing.T, data []byte) { sameEvents(t, data, false) })
}

func sameEvents(t *testing.T, data []byte, isProtobuf bool) {
	read := func(r io.Reader) (events []string, err error) {
		err = newDecoder(podKind()).events(r, isProtobuf, func(ev WatchEvent[*Pod]) error {
			switch {
			case ev.Type == "ERROR" && ev.Status != nil:
				events = append(events, fmt.Sprintf("ERROR %d %s %s", ev.Status.Code, ev.Status.Reason, ev.Status.Message))
			case ev.Type == "BOOKMARK" && ev.Object.ResourceVersion() != "" || ev.Object.Key().Name != "" && ev.Object.UID() != "" && slices.Contains([]string{"ADDED", "MODIFIED", "DELETED"}, ev.Type):
				events = append(events, ev.Type+" "+describe(ev.Object))
			default:
				t.Fatalf("%q: an event %+v", data, ev)
			}
			return nil
		})
		return events, err
	}
	whole, err := read(bytes.NewReader(data))
	bytewise, err2 := read(iotest.OneByteReader(bytes.NewReader(data)))
	if !slices.Equal(whole, bytewise) || (err == nil) != (err2 == nil) {
		t.Fatalf("%q: %q, %v; byte by byte %q, %v", data, whole, err, bytewise, err2)
	}
	if garbage := (garbageError{}); err != nil && !errors.As(err, &garbage) {
		t.Fatalf("%q: %v is no garbage", data, err)
	}
}

// ---------------------------------------------------------------------------------------------------------------------
// Benchmarks

// crowd is an API server with as many pods and nodes as one likes: they are made as they are sent, and not stored. Its
// watches are silent, and its nodes know only what was patched last.
type crowd struct {
	pods, nodes int
	labels      object      // of each pod, in place of crowdPod's
	patched     chan string // the number on the first node, when it is written
}

// pod is a pod of this crowd, with places for numbers as in crowdPod.
func (c *crowd) pod() object {
	if c.labels == nil {
		return crowdPod
	}
	pod, meta := maps.Clone(crowdPod), maps.Clone(metaOf(crowdPod))
	meta["labels"] = c.labels
	pod["metadata"] = meta
	return pod
}

// An object of the crowd, with its number in place of ######, and in place of @@@@@ that of a node.
var crowdPod = object{
	"kind": "Pod", "apiVersion": "v1",
	"metadata": object{"name": "web-5d4f8c7b9-######", "namespace": "team-7", "uid": "5a2b7c1e-93d4-4f6a-8b1c-000000######", "resourceVersion": "1######",
		"creationTimestamp": "2026-01-02T03:04:05Z", "labels": object{"app": "web", "pod-template-hash": "5d4f8c7b9"},
		"annotations": object{"example.com/filler": strings.Repeat("what nobody reads ", 60)}},
	"spec":   object{"nodeName": "node-@@@@@", "containers": []any{object{"name": "web", "image": "registry.example.com/team-7/web:v1.2.3"}}},
	"status": object{"phase": "Running"},
}

var crowdNode = object{
	"kind": "Node", "apiVersion": "v1",
	"metadata": object{"name": "node-@@@@@", "uid": "7f1d0a52-0c3e-4e0b-9a55-000000######", "resourceVersion": "1######",
		"labels": object{"kubernetes.io/hostname": "node-@@@@@", "kubernetes.io/os": "linux"}},
}

// item is the bytes of object i.
func (c *crowd) item(template []byte, i int) []byte {
	b := bytes.ReplaceAll(template, []byte("######"), fmt.Appendf(nil, "%06d", i))
	return bytes.ReplaceAll(b, []byte("@@@@@"), fmt.Appendf(nil, "%05d", i%c.nodes))
}

// list writes n objects like o. Without whole, they are their metadata alone.
func (c *crowd) list(w io.Writer, o object, n int, isProtobuf, whole bool) {
	if !whole {
		o = object{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o["metadata"]}
	}
	out := bufio.NewWriterSize(w, 64<<10)
	defer out.Flush()
	if !isProtobuf {
		template, _ := json.Marshal(o)
		fmt.Fprintf(out, `{"kind":"%vList","apiVersion":"%v","metadata":{"resourceVersion":"2000000"},"items":[`, o["kind"], o["apiVersion"])
		for i := range n {
			if i > 0 {
				out.WriteByte(',')
			}
			out.Write(c.item(template, i))
		}
		out.WriteString("]}")
		return
	}
	var meta, types, template pb
	meta.bytes(1, []byte("\x12\x072000000"))
	types.text(1, str(o, "apiVersion"))
	types.text(2, str(o, "kind")+"List")
	template.bytes(2, protobufObject(o))
	out.WriteString("k8s\x00")
	var head pb
	head.bytes(1, types)
	head = binary.AppendUvarint(append(head, 2<<3|2), uint64(len(meta)+n*len(template)))
	out.Write(append(head, meta...))
	for i := range n {
		out.Write(c.item(template, i))
	}
}

func (c *crowd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	accept := r.Header.Get("Accept")
	isProtobuf := strings.Contains(accept, protobufType)
	w.Header().Set("Content-Type", map[bool]string{true: protobufType, false: jsonType}[isProtobuf])
	switch {
	case r.URL.Query().Has("watch"):
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case r.URL.Path == "/api/v1/pods":
		c.list(w, c.pod(), c.pods, isProtobuf, !strings.Contains(accept, "PartialObjectMetadata"))
	case r.URL.Path == "/api/v1/nodes":
		c.list(w, crowdNode, c.nodes, isProtobuf, false)
	case r.Method == http.MethodPatch:
		var patch object
		json.NewDecoder(r.Body).Decode(&patch)
		name := path.Base(r.URL.Path)
		labels := metaOf(patch)["labels"].(object)
		json.NewEncoder(w).Encode(object{"metadata": object{"name": name, "uid": metaOf(patch)["uid"], "resourceVersion": "2000001", "labels": labels}})
		if name == "node-00000" {
			c.patched <- str(labels, podCountLabel)
		}
	default:
		w.WriteHeader(http.StatusCreated)
	}
}

// serve returns the arguments that lead podcount to the crowd, over TLS and HTTP/2.
func (c *crowd) serve(t testing.TB) (args []string) {
	c.patched = make(chan string, 1000)
	srv := httptest.NewUnstartedServer(c)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "config")
	os.WriteFile(file, []byte(kubeconfigFor(srv.URL, ca, "token: t")), 0o600)
	return []string{"-kubeconfig", file, "-pod-events", "off", "-total-nodes", "kubernetes.io/hostname=node-00000"}
}

// The limits of Kubernetes itself: https://kubernetes.io/docs/setup/best-practices/cluster-large/
func TestAtTheLimitsOfKubernetesMemoryStaysUnder60MB(t *testing.T) {
	if runtime.GOOS != "linux" || fewer(1) == 0 {
		t.Skip("memory is read from /proc, and is another with the race detector")
	}
	program := filepath.Join(t.TempDir(), "podcount")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, more := range [][]string{{}, {"-wire", "json"}, {"-node-label", "example.com/n"}} {
		c := &crowd{pods: 150000, nodes: 5000}
		cmd := exec.Command(program, append(c.serve(t), more...)...)
		start := time.Now()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		select {
		case total := <-c.patched:
			if total != "150000" {
				t.Errorf("%q: the label is %s", more, total)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q: no label", more)
		}
		took := time.Since(start).Round(10 * time.Millisecond)
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
		peak := regexp.MustCompile(`VmHWM:\s*(\d+) kB`).FindSubmatch(status)
		if kB, err := strconv.Atoi(string(peak[1])); err != nil || kB > 60<<10 {
			t.Errorf("%q: %d kB, %v", more, kB, err)
		} else {
			t.Logf("%q: %d kB, the label after %v", more, kB, took)
		}
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%q: %v", more, err)
		}
	}
}

// body is a list of the crowd.
func (c *crowd) body(isProtobuf, whole bool) []byte {
	var b bytes.Buffer
	c.list(&b, c.pod(), c.pods, isProtobuf, whole)
	return b.Bytes()
}

// The forms of a list.
var forms = []struct {
	name              string
	isProtobuf, whole bool
}{{"metadata", true, false}, {"protobuf", true, true}, {"metadata-json", false, false}, {"json", false, true}}

func BenchmarkList100000(b *testing.B) {
	for _, form := range forms {
		b.Run(form.name, func(b *testing.B) {
			data := (&crowd{pods: 100000, nodes: 1000}).body(form.isProtobuf, form.whole)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				s := NewStore(func(p *Pod) string { return p.NodeName })
				l := s.List()
				kind := &Kind[*Pod]{Name: "Pod", MetadataOnly: !form.whole, New: func() *Pod { return new(Pod) }}
				if _, err := newDecoder(kind).list(bytes.NewReader(data), form.isProtobuf, l.Add); err != nil {
					b.Fatal(err)
				}
				l.Commit()
			}
		})
	}
}

func BenchmarkRelist100000Unchanged(b *testing.B) {
	for _, form := range forms[:3] {
		b.Run(form.name, func(b *testing.B) {
			data := (&crowd{pods: 100000, nodes: 1000}).body(form.isProtobuf, form.whole)
			s := NewStore(func(p *Pod) string { return p.NodeName })
			d := newDecoder(&Kind[*Pod]{Name: "Pod", MetadataOnly: !form.whole, New: func() *Pod { return new(Pod) }})
			relist := func() {
				l := s.List()
				if _, err := d.list(bytes.NewReader(data), form.isProtobuf, l.Add); err != nil || len(l.Commit()) > 0 {
					b.Fatal("changes, or ", err)
				}
			}
			relist()
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				relist()
			}
		})
	}
}

// One event, from its bytes to the keys in the queue: a pod that moves from one node to another.
func BenchmarkEvent(b *testing.B) {
	for _, size := range []struct{ pods, nodes int }{{1000, 33}, {150000, 5000}} {
		for _, form := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", form, size.pods), func(b *testing.B) {
				big := &crowd{pods: size.pods, nodes: size.nodes}
				m := newManager(&options{nodeLabel: "example.com/n", podEvents: "off", wire: "protobuf"}, nil, quietLog())
				c := &podCount{manager: m, Controller: &Controller{}}
				c.queue = NewQueue(b.Context(), quietQueue[Key](time.Millisecond, time.Second))
				go func() {
					for {
						key, ok := c.queue.Get()
						if !ok {
							return
						}
						c.queue.Done(key, Result{}, nil)
					}
				}()
				d := newDecoder(&Kind[*Pod]{Name: "Pod", New: func() *Pod { return new(Pod) }})
				l := c.pods.List()
				if _, err := d.list(bytes.NewReader(big.body(true, true)), true, l.Add); err != nil {
					b.Fatal(err)
				}
				l.Commit()
				frames, isProtobuf := []byte(nil), form == "protobuf"
				template, _ := json.Marshal(crowdPod)
				const n = 5000
				for i := range n {
					at := i * 7919 % size.pods
					moved := bytes.ReplaceAll(big.item(template, at), fmt.Appendf(nil, "node-%05d", at%size.nodes), fmt.Appendf(nil, "node-%05d", (at+1+i)%size.nodes))
					moved = bytes.ReplaceAll(moved, fmt.Appendf(nil, `"1%06d"`, at), fmt.Appendf(nil, `"%07d"`, 3000000+i))
					if isProtobuf {
						frames = append(frames, protobufEvent("MODIFIED", protobufOf(moved))...)
					} else {
						frames = fmt.Appendf(frames, `{"type":"MODIFIED","object":%s}`+"\n", moved)
					}
				}
				b.ReportAllocs()
				defer func() { b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s") }()
				for i := 0; b.Loop(); i++ {
					if i%n > 0 {
						continue // one pass is n events
					}
					err := d.events(bytes.NewReader(frames), isProtobuf, func(ev WatchEvent[*Pod]) error {
						for _, delta := range c.pods.Apply(ev.Type, ev.Object) {
							c.queue.Add(c.podChanged(delta)...)
						}
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkIndexOf150000Pods(b *testing.B) {
	s := NewStore(func(p *Pod) string { return p.NodeName })
	for i := range 150000 {
		s.Apply("ADDED", makePod(strconv.Itoa(i), "u", "1", "n"+strconv.Itoa(i%5000)))
	}
	b.ReportAllocs()
	for b.Loop() {
		if s.Count("n4711") != 30 {
			b.Fatal(s.Count("n4711"))
		}
	}
}

// A million keys: what each costs.
func BenchmarkMillionKeys(b *testing.B) {
	const n = 1000000
	perKey := func(b *testing.B, fill func() any) {
		for b.Loop() {
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			held := fill()
			runtime.GC()
			runtime.ReadMemStats(&after)
			runtime.KeepAlive(held)
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "B/key")
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
		b.ReportAllocs()
	}
	b.Run("queue", func(b *testing.B) {
		perKey(b, func() any {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
			for i := range n {
				q.Add(i)
			}
			return q
		})
	})
	b.Run("store", func(b *testing.B) {
		perKey(b, func() any {
			s := NewStore(func(p *Pod) string { return p.NodeName })
			for i := range n {
				s.Apply("ADDED", makePod(fmt.Sprintf("web-5d4f8c7b9-%06d", i), "5a2b7c1e-93d4-4f6a-8b1c-000000000000", "1234567", "node"))
			}
			return s
		})
	})
}

func BenchmarkStartToLabel(b *testing.B) {
	for _, pods := range []int{10000, 100000} {
		for _, wire := range []string{"protobuf", "json"} {
			b.Run(fmt.Sprintf("%s/%d-pods", wire, pods), func(b *testing.B) {
				c := &crowd{pods: pods, nodes: 1000}
				args := append(c.serve(b), "-wire", wire)
				b.ReportAllocs()
				for b.Loop() {
					ctx, cancel := context.WithCancel(b.Context())
					done := make(chan error)
					go func() { done <- run(ctx, args, func(string) string { return "" }, io.Discard, io.Discard, nil) }()
					if total := <-c.patched; total != strconv.Itoa(pods) {
						b.Fatal(total)
					}
					cancel()
					<-done
				}
			})
		}
	}
}

func BenchmarkQueue(b *testing.B) {
	for _, workers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("%d-workers", workers), func(b *testing.B) {
			q := NewQueue(b.Context(), quietQueue[int](time.Millisecond, time.Second))
			var handled sync.WaitGroup
			for range workers {
				go func() {
					for {
						k, ok := q.Get()
						if !ok {
							return
						}
						q.Done(k, Result{}, nil)
						handled.Done()
					}
				}()
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				handled.Add(1)
				q.Add(i)
				i++
			}
			handled.Wait()
		})
	}
}
