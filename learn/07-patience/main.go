// Stage 7 keeps a label of each control-plane node equal to the number of pods in the cluster. It lists and watches the
// pods. It waits longer after each failure, and for no answer for ever.
//
// It asks the API server at $SERVER. `kubectl proxy` offers one at http://127.0.0.1:8001, and adds who you are.
// $LABEL is the key of the label.
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
	label := cmp.Or(os.Getenv("LABEL"), "example.com/pods")
	run(context.Background(), c, label)
}

// controlPlane is the key of a label that each control-plane node has.
const controlPlane = "node-role.kubernetes.io/control-plane"

// pause is the least time between two looks, so that a hundred changes at once are one write.
const pause = time.Second

// run keeps the labels right, from the first whole list of the pods on.
func run(ctx context.Context, c cluster, label string) {
	pods := &cache{}
	go follow(ctx, c, pods)

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
			count, hasChanged := pods.count()
			if !hasChanged && !mayBeWrong {
				continue
			}
			err := look(ctx, c, label, count)
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

// cache is what is known of the pods. Several goroutines may use it.
type cache struct {
	mu         sync.Mutex // guards the fields below
	objects    map[string]object
	hasChanged bool // since count was called
}

// count returns how many pods there are, and whether that may differ from the last time.
func (p *cache) count() (count int, hasChanged bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hasChanged = p.hasChanged
	p.hasChanged = false
	return len(p.objects), hasChanged
}

// replace takes a whole list for the truth. What it does not contain is gone, though no watch has said so.
func (p *cache) replace(all []object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := p.objects
	p.objects = map[string]object{}
	for _, o := range all {
		p.objects[o.key()] = o
	}
	added, removed := len(missingIn(before, p.objects)), len(missingIn(p.objects, before))
	log.Printf("%d pods: %d have come, and %d are gone", len(all), added, removed)
	p.hasChanged = true
}

// missingIn returns the keys that are in others, and not in objects.
func missingIn(objects, others map[string]object) (keys []string) {
	for key := range others {
		if _, isThere := objects[key]; !isThere {
			keys = append(keys, key)
		}
	}
	return keys
}

// apply takes a change from a watch.
func (p *cache) apply(eventType string, o object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch eventType {
	case "ADDED", "MODIFIED":
		p.objects[o.key()] = o
	case "DELETED":
		delete(p.objects, o.key())
	case "BOOKMARK":
		return // It changes nothing but the version.
	}
	p.hasChanged = true
}

const podsPath = "/api/v1/pods"

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
func follow(ctx context.Context, c cluster, pods *cache) {
	version := "" // up to which the cache is true; "" if a list must say that
	var failures backoff
	for ctx.Err() == nil {
		began := time.Now()
		var err error
		if version == "" {
			version, err = relist(ctx, c, pods)
		} else {
			version, err = watch(ctx, c, version, pods)
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

// relist asks for all pods, and returns the version of the answer. An answer that is not whole changes nothing.
func relist(ctx context.Context, c cluster, pods *cache) (version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	var all list
	if err := c.get(ctx, podsPath, &all); err != nil {
		return "", err
	}
	if !strings.HasSuffix(all.Kind, "List") || all.Metadata.ResourceVersion == "" {
		return "", fmt.Errorf("GET %s: the answer is no list, but a %q", podsPath, all.Kind)
	}
	pods.replace(all.Items)
	return all.Metadata.ResourceVersion, nil
}

// watch applies the changes after a version until the answer ends. It returns the version up to which it has come, and
// an error unless the server has ended the watch as usual.
func watch(ctx context.Context, c cluster, version string, pods *cache) (reached string, err error) {
	lasts := watchTime + rand.N(watchTime)
	// Without bookmarks, a watch of a quiet kind would keep a version that is too old soon.
	query := "?watch=1&allowWatchBookmarks=true&resourceVersion=" + version
	query += fmt.Sprintf("&timeoutSeconds=%.0f", lasts.Seconds())
	ctx, cancel := context.WithTimeout(ctx, lasts+watchGrace)
	defer cancel()
	began := time.Now()
	response, err := c.open(ctx, "GET", podsPath+query, nil)
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
		var o object
		if err == nil && e.Type == "ERROR" {
			err = statusOf(e.Object)
		} else if err == nil {
			err = json.Unmarshal(e.Object, &o)
		}
		if err != nil {
			return version, fmt.Errorf("the watch has ended at version %s: %w", version, err)
		}
		pods.apply(e.Type, o)
		version = o.Metadata.ResourceVersion
	}
}

// event is a change of an object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type event struct {
	Type   string          // ADDED, MODIFIED, DELETED, BOOKMARK or ERROR
	Object json.RawMessage // a status if the type is ERROR
}

// look writes each label that is wrong, when there are so many pods. A node that cannot be written keeps none of the
// others from being so.
//
// It compares what is with what should be, and does not care how it came about. So it also mends what others have
// changed, and what it has not seen.
func look(ctx context.Context, c cluster, label string, pods int) error {
	nodes, err := listNodes(ctx, c)
	if err != nil {
		return err
	}
	var problems []error
	for _, node := range nodes {
		want := ""
		if _, isControlPlane := node.Metadata.Labels[controlPlane]; isControlPlane {
			want = strconv.Itoa(pods)
		}
		if node.Metadata.Labels[label] == want {
			continue
		}
		if err := c.setLabel(ctx, node, label, want); err != nil {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// listNodes returns all nodes.
func listNodes(ctx context.Context, c cluster) ([]object, error) {
	ctx, cancel := context.WithTimeout(ctx, listDeadline)
	defer cancel()
	var nodes list
	err := c.get(ctx, "/api/v1/nodes", &nodes)
	return nodes.Items, err
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
	Items []object
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
}

// key names an object among those of its kind.
func (o object) key() string {
	return strings.TrimPrefix(o.Metadata.Namespace+"/"+o.Metadata.Name, "/")
}

// setLabel writes a label of a node, or removes it if the value is "". A node that is gone needs none, so that is no
// error.
func (c cluster) setLabel(ctx context.Context, node object, label, value string) error {
	// A merge patch names only what changes, so that it undoes nothing that others write meanwhile. A uid cannot be
	// changed: the server refuses the patch if the node has another one by now, for which it was not meant.
	labels := map[string]any{label: value}
	if value == "" {
		labels[label] = nil // A null removes.
	}
	patch := map[string]any{"metadata": map[string]any{"uid": node.Metadata.UID, "labels": labels}}
	ctx, cancel := context.WithTimeout(ctx, writeDeadline)
	defer cancel()
	err := c.send(ctx, "PATCH", "/api/v1/nodes/"+node.Metadata.Name, patch, nil)
	if isGone(err) {
		return nil
	}
	if err == nil {
		log.Printf("node %s: %s=%q", node.Metadata.Name, label, value)
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
