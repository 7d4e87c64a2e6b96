package events

import (
	"context"
	"errors"
	"net/http"
	"time"

	"podcount/internal/kube"
)

// Sink is where a Recorder sends Events. If the server has refused a request, the error is, or wraps, a *Failure. Any
// other error counts as NoAnswer.
type Sink interface {
	// Post creates an Event in a namespace. The Event's metadata has its name.
	Post(ctx context.Context, namespace string, event map[string]any) error

	// Amend changes fields of an Event as a merge patch does.
	Amend(ctx context.Context, namespace, name string, fields map[string]any) error
}

// Answer is what the Recorder needs to know about a server's answer.
type Answer int

const (
	NoAnswer      Answer = iota // The server was not reached, or it is unknown what it did.
	Refused                     // The server would refuse the same request again.
	NamespaceGone               // The namespace is being deleted, or is gone. That is normal.
	NotFound                    // Amend: there is no Event of this name.
	AlreadyExists               // Post: there is an Event of this name.
)

// Failure is an error of a request about an Event, with what the Recorder needs to know about it.
type Failure struct {
	Err        error // for people
	Answer     Answer
	RetryAfter time.Duration // how long the server asked to wait before the next request, 0 if it did not ask
	Pause      time.Duration // how long to log no other refusal after this one
}

// Error returns the text of f.Err.
func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns f.Err.
func (f *Failure) Unwrap() error { return f.Err }

// failureIn returns the Failure that err is or wraps. If there is none, it returns one with NoAnswer.
func failureIn(err error) *Failure {
	f := &Failure{Err: err}
	errors.As(err, &f)
	return f
}

// NewSink returns a Sink that sends Events to the API server of client.
func NewSink(client *kube.Client) Sink { return apiServer{client} }

// apiServer is the Sink at an API server.
type apiServer struct{ client *kube.Client }

func (s apiServer) Post(ctx context.Context, namespace string, event map[string]any) error {
	err := s.client.Send(ctx, kube.Request{Method: http.MethodPost, Path: eventsPath(namespace), Body: event}, nil)
	return failureOf(err, "AlreadyExists", AlreadyExists)
}

func (s apiServer) Amend(ctx context.Context, namespace, name string, fields map[string]any) error {
	path := eventsPath(namespace) + "/" + name
	err := s.client.Send(ctx, kube.Request{Method: http.MethodPatch, Path: path, Body: fields}, nil)
	return failureOf(err, "NotFound", NotFound)
}

func eventsPath(namespace string) string { return "/api/v1/namespaces/" + namespace + "/events" }

// failureOf makes a Failure of an error of Client.Send. It returns err itself if the server has not answered. A Status
// with ownReason, which has a meaning of its own for the method that calls, becomes ownAnswer.
func failureOf(err error, ownReason string, ownAnswer Answer) error {
	status := kube.StatusOf(err)
	if status.Code == 0 {
		return err
	}
	return &Failure{
		Err:        err,
		Answer:     answerOf(status, ownReason, ownAnswer),
		RetryAfter: kube.RetryAfter(err),
		Pause:      kube.PauseBetweenComplaints(err),
	}
}

func answerOf(status kube.Status, ownReason string, ownAnswer Answer) Answer {
	switch {
	case status.Reason == ownReason:
		return ownAnswer
	case status.Code == http.StatusNotFound || status.HasCause("NamespaceTerminating"):
		return NamespaceGone
	}
	return Refused
}
