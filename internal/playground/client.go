package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"podcount/internal/fakekube"
)

// object is an API object, or a part of one.
type object = fakekube.Object

// client is one of the cluster's own components, such as the scheduler, at the API server: it writes as any client
// does, by requests. It reads what is there from the fake itself, as from a cache that is always current. A request is
// served on the goroutine that makes it. A component may pass over the error of a write: the object has changed or gone
// meanwhile, and the component's next step begins from what is there then.
type client struct {
	server http.Handler
	all    func(resource string) []object // the objects of a resource, which must not be changed
}

// The media types of patches.
const (
	mediaJSON       = "application/json"
	mediaMergePatch = "application/merge-patch+json"
)

// refusal is an answer that is no success.
type refusal struct {
	code    int
	message string // of the Status
}

func (r *refusal) Error() string { return fmt.Sprintf("%d: %s", r.code, r.message) }

// send sends a request, and returns the object that the server answers. Its error is a *refusal where the server
// refuses.
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
	code   int // 0 until it is known
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

// serve has a server answer a request. Its error is that of a connection that breaks.
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

// groupOf is where the API has a resource.
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

// collection is the path of a resource's objects in a namespace, or of all where that is "".
func collection(resource, namespace string) string {
	if namespace == "" {
		return groupOf(resource) + "/" + resource
	}
	return groupOf(resource) + "/namespaces/" + namespace + "/" + resource
}

// pathOf is the path of an object.
func pathOf(resource string, o object) string {
	key := fakekube.KeyOf(o)
	return collection(resource, key.Namespace) + "/" + key.Name
}

// create makes an object, and returns it as stored.
func (c *client) create(resource string, o object) (object, error) {
	namespace := fakekube.KeyOf(o).Namespace
	return c.send(http.MethodPost, collection(resource, namespace), mediaJSON, o)
}

// patch changes an object by a merge patch.
func (c *client) patch(resource string, o, patch object) (object, error) {
	return c.send(http.MethodPatch, pathOf(resource, o), mediaMergePatch, patch)
}

// patchStatus changes an object's status by a merge patch, if the object is still that of its uid.
func (c *client) patchStatus(resource string, o, status object) error {
	patch := object{"metadata": object{"uid": uidOf(o)}, "status": status}
	_, err := c.send(http.MethodPatch, pathOf(resource, o)+"/status", mediaMergePatch, patch)
	return err
}

// bind gives a pod its node.
func (c *client) bind(pod object, node string) error {
	_, err := c.send(http.MethodPost, pathOf("pods", pod)+"/binding", mediaJSON, object{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   object{"name": fakekube.KeyOf(pod).Name, "uid": uidOf(pod)},
		"target":     object{"apiVersion": "v1", "kind": "Node", "name": node},
	})
	return err
}

// remove deletes an object, as gracefully as its kind wants.
func (c *client) remove(resource string, o object) error {
	return c.delete(resource, o, object{})
}

// finish deletes what has ended, at once.
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

// isDying reports whether an object has been deleted, and waits for whoever must finish with it.
func isDying(o object) bool { return fakekube.MetaOf(o)["deletionTimestamp"] != nil }
