// Stage 8 keeps a label of each control-plane node equal to the number of pods in the cluster, and another label of
// every node equal to the number of its own pods. It lists and watches both, and works with what it remembers.
//
// It asks the API server at $SERVER. `kubectl proxy` offers one at http://127.0.0.1:8001, and adds who you are.
// $LABEL and $NODE_LABEL are the keys of the labels.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

func main() {
	c := cluster{
		url:    cmp.Or(os.Getenv("SERVER"), "http://127.0.0.1:8001"),
		client: http.DefaultClient,
	}
	run(context.Background(), c, labels{
		total: cmp.Or(os.Getenv("LABEL"), "example.com/pods"),
		own:   cmp.Or(os.Getenv("NODE_LABEL"), "example.com/pods-here"),
	})
}

// labels are the keys of the labels that we write.
type labels struct {
	total string // of control-plane nodes: how many pods there are
	own   string // of all nodes: how many pods are on this one
}

// controlPlane is the key of a label that each control-plane node has.
const controlPlane = "node-role.kubernetes.io/control-plane"

// pause is the least time between two looks, so that a hundred changes at once are one write.
const pause = time.Second

// run keeps the labels right, from the first whole lists of both kinds on.
func run(ctx context.Context, c cluster, l labels) {
	pods := &cache{path: "/api/v1/pods"}
	nodes := &cache{path: "/api/v1/nodes"}
	go follow(ctx, c, pods)
	go follow(ctx, c, nodes)

	tick := time.NewTicker(pause)
	defer tick.Stop()
	mayBeWrong := false
	var failures backoff
	var restsUntil time.Time // until when nothing is written, after a failure
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if time.Now().Before(restsUntil) {
				continue
			}
			podsChanged, hasPods := pods.takeChange()
			nodesChanged, hasNodes := nodes.takeChange()
			mayBeWrong = mayBeWrong || podsChanged || nodesChanged
			if !mayBeWrong || !hasPods || !hasNodes {
				continue
			}
			err := look(ctx, c, l, pods, nodes)
			mayBeWrong = err != nil // A later tick tries it again.
			if err == nil {
				failures = 0
				continue
			}
			wait := failures.next(err)
			restsUntil = time.Now().Add(wait)
			log.Printf("%v; next try in %s", err, wait)
		}
	}
}

// backoff is how many failures there were since the last success. The more, the longer to wait.
type backoff int

// next returns how long to wait after a failure. If the server says how long, that counts.
func (b *backoff) next(err error) time.Duration {
	wait := min(time.Second<<min(*b, 10), longestWait)
	if asked := refusal(err).retryAfter; asked > 0 {
		wait = asked
	} else {
		*b++
	}
	// Jitter: those who have failed together do not come again together.
	return wait + rand.N(wait/2)
}

// cache is what is known of the objects of a kind. Several goroutines may use it.
type cache struct {
	path string // of the list

	mu         sync.Mutex         // guards the fields below
	objects    map[string]*object // nil until there is a whole list: before, what is missing may only be unknown
	onNode     map[string]int     // an index: how many of the objects are on each node
	hasChanged bool               // since takeChange was called
}

// takeChange reports whether something has changed since the last call, and whether there is a whole list.
func (c *cache) takeChange() (hasChanged, isComplete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	hasChanged = c.hasChanged
	c.hasChanged = false
	return hasChanged, c.objects != nil
}

// all returns the objects in the order of their keys.
func (c *cache) all() (objects []*object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		objects = append(objects, c.objects[key])
	}
	return objects
}

// count returns how many objects there are, and how many of them are on a node.
func (c *cache) count(node string) (all, onNode int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.objects), c.onNode[node]
}

// replace takes a whole list for the truth. What it does not contain is gone, though no watch has said so.
func (c *cache) replace(all []*object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.objects == nil {
		c.objects = map[string]*object{}
		c.onNode = map[string]int{}
	}
	isListed := map[string]bool{}
	for _, o := range all {
		isListed[o.key()] = true
		c.putLocked(o.key(), o)
	}
	for key := range c.objects {
		if !isListed[key] {
			c.putLocked(key, nil)
		}
	}
	log.Printf("%s: %d objects", c.path, len(all))
}

// apply takes a change from a watch.
func (c *cache) apply(eventType string, o *object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch eventType {
	case "ADDED", "MODIFIED":
		c.putLocked(o.key(), o)
	case "DELETED":
		c.putLocked(o.key(), nil)
	} // A BOOKMARK changes nothing but the version.
}

// putLocked sets the object with a key, or removes it if o is nil. The index changes under the same lock, from the old
// object and the new one, so that it is never wrong.
func (c *cache) putLocked(key string, o *object) {
	if old := c.objects[key]; old != nil {
		c.onNode[old.Spec.NodeName]--
		if c.onNode[old.Spec.NodeName] == 0 {
			delete(c.onNode, old.Spec.NodeName)
		}
	}
	if o == nil {
		delete(c.objects, key)
	} else {
		c.objects[key] = o
		c.onNode[o.Spec.NodeName]++
	}
	c.hasChanged = true
}

// Nothing may take for ever, because a connection can die without a sign.
const (
	longestWait   = 30 * time.Second // after a failure, without its jitter
	listDeadline  = 90 * time.Second
	writeDeadline = 22 * time.Second // A webhook may take long.
	watchTime     = time.Minute      // up to double, so that not all clients begin their next watch at once
	watchGrace    = 15 * time.Second // after which a watch that the server does not end is dead
	shortWatch    = time.Second      // A shorter one is a failure, however it ends: beginning anew would be a hot loop.
)

// follow keeps the cache equal to the API server.
func follow(ctx context.Context, c cluster, cached *cache) {
	version := "" // up to which the cache is true; "" if a list must say that
	var failures backoff
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		if version == "" {
			version, err = relist(ctx, c, cached)
		} else {
			version, err = watch(ctx, c, version, cached)
		}
		// 410: nobody knows any more what has changed since. No answer: whoever answers next may be a server that was
		// restored from a backup, where a version means something else.
		var noAnswer *url.Error
		if refusal(err).Code == http.StatusGone || errors.As(err, &noAnswer) {
			version = ""
		}
		hasLasted := version != "" && time.Since(began) > longestWait // so that a watch was no failure, however it ended
		if err == nil || hasLasted {
			failures = 0
		}
		if err != nil && ctx.Err() == nil {
			wait := failures.next(err)
			log.Printf("%v; next try in %s", err, wait)
			c.client.CloseIdleConnections() // They may have died, too.
			sleep(ctx, wait)
		}
	}
}

// sleep waits, but not longer than ctx lasts.
func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// relist asks for all objects of a kind, and returns the version of the answer. An answer that is not whole changes
// nothing.
func relist(ctx context.Context, c cluster, cached *cache) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	var all list
	if err := c.get(ctx, cached.path, &all); err != nil {
		return "", err
	}
	if !strings.HasSuffix(all.Kind, "List") || all.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("GET %s: the answer is no list, but a %q", cached.path, all.Kind)
	}
	cached.replace(all.Items)
	return all.Metadata.ResourceVersion, nil
}

// watch applies the changes after a version until the answer ends. It returns the version up to which it has come, and
// an error unless the server has ended the watch as usual.
func watch(ctx context.Context, c cluster, version string, cached *cache) (reached string, err error) {
	lasts := watchTime + rand.N(watchTime)
	// Without bookmarks, a watch of a quiet kind would keep a version that is too old soon.
	query := "?watch=1&allowWatchBookmarks=true&resourceVersion=" + version
	query += fmt.Sprintf("&timeoutSeconds=%.0f", lasts.Seconds())
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	began := time.Now()
	response, err := c.open(ctx, "GET", cached.path+query, nil)
	if err != nil {
		return version, err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var e event
		err := decoder.Decode(&e)
		if err == io.EOF && time.Since(began) > shortWatch {
			return version, nil
		}
		o := &object{}
		if err == nil && e.Type == "ERROR" {
			err = statusOf(e.Object)
		} else if err == nil {
			err = json.Unmarshal(e.Object, o)
		}
		if err != nil {
			return version, fmt.Errorf("the watch has ended at version %s: %w", version, err)
		}
		cached.apply(e.Type, o)
		version = o.Metadata.ResourceVersion
	}
}

// event is a change of an object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type event struct {
	Type   string          // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage // a status if the type is ERROR
}

// look writes each label that is wrong. A node that cannot be written keeps none of the others from being so.
//
// It compares what is with what should be, and does not care how it came about. So it also mends what others have
// changed, and what it has not seen.
func look(ctx context.Context, c cluster, l labels, pods, nodes *cache) error {
	var problems []error
	for _, node := range nodes.all() {
		wrong := wrongLabels(node, l, pods)
		if len(wrong) == 0 {
			continue
		}
		if err := c.setLabels(ctx, node, wrong); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// wrongLabels returns the labels of a node that should have other values, with these values. nil means that it should
// not have the label, as null does in a merge patch.
func wrongLabels(node *object, l labels, pods *cache) map[string]any {
	all, own := pods.count(node.Metadata.Name)
	want := map[string]any{l.own: strconv.Itoa(own), l.total: nil}
	if _, isControlPlane := node.Metadata.Labels[controlPlane]; isControlPlane {
		want[l.total] = strconv.Itoa(all)
	}
	maps.DeleteFunc(want, func(key string, value any) bool {
		have, isThere := node.Metadata.Labels[key]
		return isThere && value == have || !isThere && value == nil
	})
	return want
}

// cluster is an API server, and the way to it.
type cluster struct {
	url    string
	client *http.Client
}

// list is what the API server answers to a list. It has many more fields, which encoding/json skips.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodList
type list struct {
	Kind     string // such as "PodList"
	Metadata struct {
		ResourceVersion string // at which moment the list was true; a watch goes on from there
	}
	Items []*object
}

// object is a pod or a node.
type object struct {
	Metadata struct {
		Namespace       string // "" for a node
		Name            string
		UID             string // tells this object from a later one of the same name
		Labels          map[string]string
		ResourceVersion string // of the last change of this object
	}
	Spec struct {
		NodeName string // where a pod runs; "" if it has no place yet, and for a node
	}
}

// key names an object among those of its kind.
func (o object) key() string {
	return strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
}

// setLabels writes labels of a node, and removes those that are nil. A node that is gone needs none, so that is no
// error.
func (c cluster) setLabels(ctx context.Context, node *object, values map[string]any) error {
	// A merge patch names only what changes, so that it undoes nothing that others write meanwhile. A uid cannot be
	// changed: the server refuses the patch if the node has another one by now, for which it was not meant.
	patch := map[string]any{"metadata": map[string]any{"uid": node.Metadata.UID, "labels": values}}
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	err := c.send(ctx, "PATCH", "/api/v1/nodes/"+node.Metadata.Name, patch, nil)
	if isGone(err) {
		return nil
	}
	if err == nil {
		log.Printf("node %s: %v", node.Metadata.Name, values)
	}
	return err
}

// get asks for a path, and decodes the answer.
func (c cluster) get(ctx context.Context, path string, answer any) error {
	return c.send(ctx, "GET", path, nil, answer)
}

// send sends a request, and decodes the answer, unless answer is nil.
func (c cluster) send(ctx context.Context, method, path string, body, answer any) error {
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if answer == nil {
		answer = &struct{}{} // The connection can be used again when all has been read.
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
}

// open sends a request whose body is JSON, or none if body is nil. It returns the beginning of the answer, whose Body
// the caller must close. The error is a *status if the server has refused the request.
func (c cluster) open(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return nil, err
	}
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		defer response.Body.Close()
		return nil, fmt.Errorf("%s %s: %w", method, path, readStatus(response))
	}
	return response, nil
}

// status is how the API server says why it has refused a request.
// https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/
type status struct {
	Code    int
	Message string
	Details struct{ Causes []cause }

	retryAfter time.Duration // how long the server asks to wait
}

// cause is one of the reasons for a refusal: what is wrong with a field.
type cause struct{ Field string }

func (s *status) Error() string { return fmt.Sprintf("%d: %s", s.Code, s.Message) }

// readStatus reads why a request was refused. A proxy may have done that, in any words and at any length.
func readStatus(response *http.Response) *status {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	s := statusOf(text)
	if s.Message == "" {
		s.Message = response.Status
	}
	s.Code = response.StatusCode
	seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
	s.retryAfter = time.Duration(min(seconds, 300)) * time.Second
	return s
}

// statusOf decodes a status. What is none has no message.
func statusOf(text []byte) *status {
	s := &status{}
	_ = json.Unmarshal(text, s)
	return s
}

// refusal returns why the server has refused a request. It is empty if the error means something else.
func refusal(err error) *status {
	s := &status{}
	errors.As(err, &s)
	return s
}

// isGone reports whether a node was not written because there is none of that name, or another one.
func isGone(err error) bool {
	s := refusal(err)
	return s.Code == http.StatusNotFound || slices.Contains(s.Details.Causes, cause{"metadata.uid"})
}
