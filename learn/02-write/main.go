// Stage 2 counts the pods of a cluster once, and writes the number to a label of each control-plane node.
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

// run counts the pods, and labels the control-plane nodes. A node that cannot be labelled keeps none of the others from
// being so.
func run(ctx context.Context, c cluster, label string) error {
	var pods, nodes list
	if err := c.get(ctx, "/api/v1/pods", &pods); err != nil {
		return err
	}
	if err := c.get(ctx, "/api/v1/nodes?labelSelector="+controlPlane, &nodes); err != nil {
		return err
	}
	var problems []error
	for _, node := range nodes.Items {
		if err := c.setLabel(ctx, node, label, strconv.Itoa(len(pods.Items))); err != nil {
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
		Name string
		UID  string // tells this object from a later one of the same name
	}
}

// setLabel writes a label of a node. A node that is gone needs none, so that is no error.
func (c cluster) setLabel(ctx context.Context, node object, label, value string) error {
	// A merge patch names only what changes, so that it undoes nothing that others write meanwhile. A uid cannot be
	// changed: the server refuses the patch if the node has another one by now, for which it was not meant.
	patch := map[string]any{"metadata": map[string]any{
		"uid":    node.Metadata.UID,
		"labels": map[string]any{label: value},
	}}
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
