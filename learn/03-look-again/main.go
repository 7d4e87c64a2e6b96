// Stage 3 keeps a label of each control-plane node equal to the number of pods in the cluster. It looks every few
// seconds, and writes only what is wrong.
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

// interval is the time between two looks.
const interval = 4 * time.Second

// run looks again and again. What goes wrong is only logged, because the next look tries it again.
func run(ctx context.Context, c cluster, label string) {
	for {
		if err := look(ctx, c, label); err != nil {
			log.Println(err)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// look counts the pods, and writes each label that is wrong. A node that cannot be written keeps none of the others
// from being so.
//
// It compares what is with what should be, and does not care how it came about. So it also mends what others have
// changed, and what it has not seen.
func look(ctx context.Context, c cluster, label string) error {
	var pods, nodes list
	if err := c.get(ctx, "/api/v1/pods", &pods); err != nil {
		return err
	}
	if err := c.get(ctx, "/api/v1/nodes", &nodes); err != nil {
		return err
	}
	var problems []error
	for _, node := range nodes.Items {
		want := ""
		if _, isControlPlane := node.Metadata.Labels[controlPlane]; isControlPlane {
			want = strconv.Itoa(len(pods.Items))
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
	Items []object
}

// object is a pod or a node.
type object struct {
	Metadata struct {
		Name   string
		UID    string // tells this object from a later one of the same name
		Labels map[string]string
	}
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

// send sends a request whose body is JSON, or none if body is nil. It decodes the answer, unless answer is nil. The
// error is a *status if the server has refused the request.
func (c cluster) send(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, content)
	if err != nil {
		return err
	}
	if method == "PATCH" {
		request.Header.Set("Content-Type", "application/merge-patch+json")
	}
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		return fmt.Errorf("%s %s: %w", method, path, readStatus(response))
	}
	if answer == nil {
		answer = &struct{}{} // The connection can be used again when all has been read.
	}
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	return nil
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
