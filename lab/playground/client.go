package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"podcount/lab/fakekube"
)

// object is an API object, or a part of one.
type object = fakekube.Object

// client connects one of the cluster's components, such as the scheduler, to the API server. It writes by requests, as
// any client does. It reads directly from the fake, as from a cache that is always current. A request is served on the
// goroutine that sends it.
//
// A component may ignore the error of a write. It means that the object has changed or is gone, and the component's
// next step begins with the current objects.
type client struct {
	server http.Handler
	all    func(resource string) []object // returns the objects of a resource, which must not be changed
}

// These are the media types of requests.
const (
	mediaJSON       = "application/json"
	mediaMergePatch = "application/merge-patch+json"
)

// refusal is the error for an answer that is not a success.
type refusal struct {
	code    int
	message string // of the Status
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.message) }

// send sends a request and returns the object in the answer. The error is a *refusal if the server refuses.
func (c *client) send(method, path, media string, body object) (answer object, err error) {
	data, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequest(method, "https://cluster.internal"+path, bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", media)
	got := &reply{header: http.Header{}}
	if err := serve(c.server, got, request); err != nil {
		return nil, err
	}
	err = json.Unmarshal(got.body.Bytes(), &answer)
	if got.code >= 300 {
		message := fakekube.TextIn(answer, "message")
		return nil, &refusal{got.code, fmt.Sprintf("%s %s: %s", method, path, message)}
	}
	return answer, err
}

// reply is an http.ResponseWriter that keeps the answer.
type reply struct {
	header http.Header
	code   int // 0 before WriteHeader
	body   bytes.Buffer
}

func (r *reply) Header() http.Header { return r.header }

func (r *reply) WriteHeader(code int) {
	if r.code == 0 {
		r.code = code
	}
}

func (r *reply) Write(data []byte) (int, error) {
	r.WriteHeader(http.StatusOK)
	return r.body.Write(data)
}

// serve lets a server answer a request. It returns an error if the server breaks the connection.
func serve(server http.Handler, w http.ResponseWriter, r *http.Request) (err error) {
	defer func() {
		switch problem := recover(); problem {
		case nil:
		case http.ErrAbortHandler:
			err = errors.New("the connection broke")
		default:
			panic(problem)
		}
	}()
	server.ServeHTTP(w, r)
	return nil
}

// groupOf returns the path of a resource's API group and version.
func groupOf(resource string) string {
	switch resource {
	case "leases":
		return "/apis/coordination.k8s.io/v1"
	case "counts":
		return "/apis/demo.mark8s.io/v1"
	case "customresourcedefinitions":
		return "/apis/apiextensions.k8s.io/v1"
	}
	return "/api/v1"
}

// collection returns the path of a resource's objects in a namespace, or of all its objects if namespace is "".
func collection(resource, namespace string) string {
	if namespace == "" {
		return groupOf(resource) + "/" + resource
	}
	return groupOf(resource) + "/namespaces/" + namespace + "/" + resource
}

// pathOf returns the path of an object.
func pathOf(resource string, o object) string {
	key := fakekube.KeyOf(o)
	return collection(resource, key.Namespace) + "/" + key.Name
}

// create creates an object and returns it as stored.
func (c *client) create(resource string, o object) (object, error) {
	namespace := fakekube.KeyOf(o).Namespace
	return c.send(http.MethodPost, collection(resource, namespace), mediaJSON, o)
}

// createAnyway creates an object unless it exists already.
func (c *client) createAnyway(resource string, o object) error {
	_, err := c.create(resource, o)
	var refused *refusal
	if errors.As(err, &refused) && refused.code == http.StatusConflict {
		return nil
	}
	return err
}

// patch changes an object by a merge patch.
func (c *client) patch(resource string, o, patch object) (object, error) {
	return c.send(http.MethodPatch, pathOf(resource, o), mediaMergePatch, patch)
}

// patchStatus changes an object's status by a merge patch, unless the object has been recreated.
func (c *client) patchStatus(resource string, o, status object) error {
	patch := object{"metadata": object{"uid": uidOf(o)}, "status": status}
	_, err := c.send(http.MethodPatch, pathOf(resource, o)+"/status", mediaMergePatch, patch)
	return err
}

// bind assigns a pod to a node.
func (c *client) bind(pod object, node string) error {
	_, err := c.send(http.MethodPost, pathOf("pods", pod)+"/binding", mediaJSON, object{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   object{"name": fakekube.KeyOf(pod).Name, "uid": uidOf(pod)},
		"target":     object{"apiVersion": "v1", "kind": "Node", "name": node},
	})
	return err
}

// remove deletes an object with the grace period of its kind.
func (c *client) remove(resource string, o object) error {
	return c.delete(resource, o, object{})
}

// finish deletes an object at once, without a grace period.
func (c *client) finish(resource string, o object) error {
	return c.delete(resource, o, object{"gracePeriodSeconds": 0})
}

func (c *client) delete(resource string, o, options object) error {
	options["kind"] = "DeleteOptions"
	options["apiVersion"] = "v1"
	options["preconditions"] = object{"uid": uidOf(o)}
	_, err := c.send(http.MethodDelete, pathOf(resource, o), mediaJSON, options)
	return err
}

func uidOf(o object) string { return fakekube.TextIn(fakekube.MetaOf(o), "uid") }

// isDying reports whether an object has been deleted but is still there, because a component must finish with it.
func isDying(o object) bool { return fakekube.MetaOf(o)["deletionTimestamp"] != nil }
