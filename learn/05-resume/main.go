// Stage 5 keeps a label of each control-plane node equal to the number of pods in the cluster. It lists the pods once,
// and then watches them. Every watch ends, and the next one resumes where it stood.
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
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	c := cluster{
		url:    cmp.Or(os.Getenv("SERVER"), "http://127.0.0.1:8001"),
		client: http.DefaultClient,
	}
	label := cmp.Or(os.Getenv("LABEL"), "example.com/pods")
	if err := run(context.Background(), c, label); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// controlPlane is the key of a label that each control-plane node has.
const controlPlane = "node-role.kubernetes.io/control-plane"

// pause is the least time between two looks, so that a hundred changes at once are one write.
const pause = time.Second

// run lists the pods, and keeps the labels right from then on. It fails if it cannot list them.
func run(ctx context.Context, c cluster, label string) error {
	var all list
	if err := c.get(ctx, podsPath, &all); err != nil {
		return err
	}
	pods := map[string]object{}
	for _, pod := range all.Items {
		pods[pod.key()] = pod
	}
	log.Printf("%d pods at version %s", len(pods), all.Metadata.ResourceVersion)
	events := make(chan event)
	go watchForEver(ctx, c, all.Metadata.ResourceVersion, events)

	tick := time.NewTicker(pause)
	defer tick.Stop()
	mayBeWrong := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-events:
			e.applyTo(pods)
			mayBeWrong = mayBeWrong || e.Type != "BOOKMARK"
		case <-tick.C:
			if !mayBeWrong {
				continue
			}
			err := look(ctx, c, label, len(pods))
			tick.Reset(pause)       // The events that have come meanwhile are next.
			mayBeWrong = err != nil // The next tick tries it again.
			if err != nil {
				log.Println(err)
			}
		}
	}
}

const podsPath = "/api/v1/pods"

// event is a change of an object.
// https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes
type event struct {
	Type   string // ADDED, MODIFIED, DELETED, or BOOKMARK, which changes nothing but the version
	Object object
}

func (e event) applyTo(pods map[string]object) {
	switch e.Type {
	case "ADDED", "MODIFIED":
		pods[e.Object.key()] = e.Object
	case "DELETED":
		delete(pods, e.Object.key())
	}
}

// watchForEver sends the changes after a version. When a watch ends, the next one resumes after the last event.
func watchForEver(ctx context.Context, c cluster, version string, events chan<- event) {
	for ctx.Err() == nil {
		err := watch(ctx, c, &version, events)
		log.Printf("the watch has ended at version %s: %v", version, err)
	}
}

// watch sends the changes after a version until the answer ends, and returns how it has ended. It keeps the version at
// that of the last event.
func watch(ctx context.Context, c cluster, version *string, events chan<- event) error {
	// Without bookmarks, a watch of a quiet kind would keep a version that is too old soon.
	query := "?watch=1&allowWatchBookmarks=true&resourceVersion=" + *version
	response, err := c.open(ctx, "GET", podsPath+query, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	decoder := json.NewDecoder(response.Body)
	for {
		var e event
		if err := decoder.Decode(&e); err != nil {
			return err
		}
		select {
		case events <- e:
		case <-ctx.Done():
			return ctx.Err()
		}
		*version = e.Object.Metadata.ResourceVersion
	}
}

// look writes each label that is wrong, when there are so many pods. A node that cannot be written keeps none of the
// others from being so.
//
// It compares what is with what should be, and does not care how it came about. So it also mends what others have
// changed, and what it has not seen.
func look(ctx context.Context, c cluster, label string, pods int) error {
	var nodes list
	if err := c.get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return err
	}
	var problems []error
	for _, node := range nodes.Items {
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

// cluster is an API server, and the way to it.
type cluster struct {
	url    string
	client *http.Client
}

// list is what the API server answers to a list. It has many more fields, which encoding/json skips.
// https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/#PodList
type list struct {
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
}

// cause is one of the reasons for a refusal: what is wrong with a field.
type cause struct{ Field string }

func (s *status) Error() string { return fmt.Sprintf("%d: %s", s.Code, s.Message) }

// readStatus reads why a request was refused. A proxy may have done that, in any words and at any length.
func readStatus(response *http.Response) *status {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	s := &status{}
	if json.Unmarshal(text, s) != nil || s.Message == "" {
		s.Message = response.Status
	}
	s.Code = response.StatusCode
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
