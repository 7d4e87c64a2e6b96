package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	"podcount/internal/kube"
)

// Sink is a server that keeps Events. The errors of both methods are Errors where the server has answered;
// any other one says that it was not reached, or that nobody knows what it has done.
type Sink interface {
	// Post makes an Event in a namespace. The name is in its metadata.
	Post(ctx context.Context, namespace string, event map[string]any) error
	// Amend changes these fields of the Event of this name, as a merge patch does.
	Amend(ctx context.Context, namespace, name string, fields map[string]any) error
}

// Error is what a server has answered instead of doing what it was asked to do with an Event.
type Error struct {
	Err        error // for people
	Answer     Answer
	RetryAfter time.Duration // the server wants to be left alone for so long; 0: it does not say
	Pause      time.Duration // between two lines about refusals in the log: longer where somebody has to act first
}

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Answer is what an Error says in one word.
type Answer int

const (
	NoAnswer Answer = iota // the server was not reached, or has not said what it did
	Refused                // it would refuse the same again
	Unwanted               // it refuses the same again, as it often does: the namespace is going, or gone
	Gone                   // Amend: there is no Event of this name, or not any more
	Exists                 // Post: there is an Event of this name
)

// errorIn returns the Error that err is or wraps; one with NoAnswer where it is another error, or nil.
func errorIn(err error) *Error {
	e := &Error{Err: err}
	errors.As(err, &e)
	return e
}

// NewSink returns the Sink at the API server that client speaks to.
func NewSink(client *kube.Client) Sink { return server{client} }

// server are the Events of the API server that a Client speaks to. It turns requests and a Status into the words
// of the Recorder, which knows neither.
// https://kubernetes.io/docs/reference/kubernetes-api/cluster-resources/event-v1/
type server struct{ client *kube.Client }

func (c server) Post(ctx context.Context, namespace string, event map[string]any) error {
	err := c.client.Send(ctx, kube.Request{Method: http.MethodPost, Path: eventsPath(namespace), Body: event}, nil)
	return errorOf(err, "AlreadyExists", Exists)
}

func (c server) Amend(ctx context.Context, namespace, name string, fields map[string]any) error {
	path := eventsPath(namespace) + "/" + name
	err := c.client.Send(ctx, kube.Request{Method: http.MethodPatch, Path: path, Body: fields}, nil)
	return errorOf(err, "NotFound", Gone)
}

func eventsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }

// errorOf makes an error of Client.Send one of an Sink. The Status of this reason has an answer of its own:
// the other ones are refusals. What the server has not answered stays as it is.
func errorOf(err error, reason string, answer Answer) error {
	status := kube.StatusOf(err)
	if status.Code == 0 {
		return err
	}
	e := &Error{
		Err:        err,
		Answer:     Refused,
		RetryAfter: kube.RetryAfter(err),
		Pause:      kube.PauseBetweenComplaints(err),
	}
	switch {
	case status.Reason == reason:
		e.Answer = answer
	case status.Code == http.StatusNotFound || status.HasCause("NamespaceTerminating"):
		e.Answer = Unwanted
	}
	return e
}
