package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	"podcount/internal/api/kube"
)

// Sink is where a Recorder sends Events. If the server has refused a request, the error is a *Failure or wraps one. Any
// other error means that the server has not answered.
type Sink interface {
	// Create creates an Event in a namespace. The Event's metadata has its name.
	Create(ctx context.Context, namespace string, event map[string]any) error

	// Patch changes fields of an Event by a merge patch.
	Patch(ctx context.Context, namespace, name string, fields map[string]any) error
}

// Answer is the server's answer to a request, reduced to the cases that the Recorder distinguishes.
type Answer int

const (
	NoAnswer      Answer = iota // The server was not reached, or it is unknown what it did.
	Refused                     // Any other refusal. It counts as final, even a 500 or 503.
	NamespaceGone               // The namespace is being deleted or does not exist. This is not worth a log line.
	NotFound                    // Only from Patch: there is no Event of this name.
	AlreadyExists               // Only from Create: there is an Event of this name.
)

// Failure is the error of a request about an Event.
type Failure struct {
	Err        error // describes the failure
	Answer     Answer
	RetryAfter time.Duration // how long the server asked to wait before the next request, or 0
	LogPause   time.Duration // how long to log no other refusal after this one
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns f.Err.
func (f *Failure) Unwrap() error { return f.Err }

// failureIn returns the Failure that err is or wraps. If there is none, it returns one with NoAnswer, because the
// server has not answered. It has not even been asked if err comes from a wait that was cut short.
func failureIn(err error) *Failure {
	f := &Failure{Err: err}
	errors.As(err, &f)
	return f
}

// NewSink returns a Sink that sends Events to the API server of client.
func NewSink(client *kube.Client) Sink { return apiServer{client} }

// apiServer is the Sink at an API server.
type apiServer struct{ client *kube.Client }

func (s apiServer) Create(ctx context.Context, namespace string, event map[string]any) error {
	err := s.client.Send(ctx, kube.Request{Method: http.MethodPost, Path: eventsPath(namespace), Body: event}, nil)
	return newFailure(err, "AlreadyExists", AlreadyExists)
}

func (s apiServer) Patch(ctx context.Context, namespace, name string, fields map[string]any) error {
	path := eventsPath(namespace) + "/" + name
	err := s.client.Send(ctx, kube.Request{Method: http.MethodPatch, Path: path, Body: fields}, nil)
	return newFailure(err, "NotFound", NotFound)
}

func eventsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }

// newFailure makes a Failure from an error of Client.Send. If the server has not answered, or if err is nil, it returns
// err itself.
//
// Create and Patch each give a special meaning to one reason of a Status: that reason becomes specialAnswer.
func newFailure(err error, specialReason string, specialAnswer Answer) error {
	status := kube.StatusOf(err)
	if status.Code == 0 {
		return err
	}
	return &Failure{
		Err:        err,
		Answer:     answerOf(status, specialReason, specialAnswer),
		RetryAfter: kube.RetryAfter(err),
		LogPause:   kube.PauseBetweenComplaints(err),
	}
}

func answerOf(status kube.Status, specialReason string, specialAnswer Answer) Answer {
	switch {
	case status.Reason == specialReason:
		return specialAnswer
	case status.Code == http.StatusNotFound || status.HasCause("NamespaceTerminating"):
		return NamespaceGone
	}
	return Refused
}
