package behaviours

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"podcount/internal/api/kube"
	"podcount/lab/fakekube"
)

const (
	runLabel   = "podcount.test/run"   // marks all our objects with our namespace
	countLabel = "podcount.test/count" // the label that podcount writes
)

// patience is how long await waits.
const patience = 90 * time.Second

// world is the cluster as one behaviour uses it. The behaviour's pods and nodes form a group: they have the label group
// with the same value, and podcount looks only at them.
type world struct {
	*testing.T
	*cluster
	client *kube.Client // sends the behaviour's own requests

	label   string        // the label that podcount writes
	changed chan struct{} // has an element when await should check again
	created *[]string     // paths of the objects to delete when the test ends
}

func newWorld(t *testing.T, c *cluster) *world {
	w := &world{
		T:       t,
		cluster: c,
		client:  c.client,
		label:   countLabel,
		changed: make(chan struct{}, 1),
		created: new([]string),
	}
	t.Cleanup(w.deleteCreated)
	return w
}

// under returns w for a subtest. What it starts ends with the subtest.
func (w *world) under(t *testing.T) *world {
	sub := *w
	sub.T = t
	return &sub
}

// cannotShow skips a behaviour that a real cluster may be unable to show, for this reason. On the fake, it fails the
// test.
func (w *world) cannotShow(why string) {
	if w.options.Fake != nil {
		w.Fatal("the fake should be able to show this, but: " + why)
	}
	w.Skip(why)
}

// runAlongside lets a behaviour run at the same time as others. It gives podcount a label of its own, because podcount
// removes its label from all nodes outside of its group. Its pods need names that no other behaviour uses; they begin
// with the group.
func (w *world) runAlongside(group string) {
	w.label = countLabel + "-" + group
	w.Parallel()
}

// await waits until isTrue returns true. It checks again when the fake changes or when podcount logs a line, and on a
// real cluster every 200 ms. After patience, it fails the test.
func (w *world) await(what string, isTrue func() bool) {
	w.Helper()
	timeout := time.After(patience)
	for {
		var fakeChanged <-chan struct{}
		var tick <-chan time.Time
		if w.options.Fake != nil {
			fakeChanged = w.options.Fake.NextChange()
		} else {
			tick = time.After(200 * time.Millisecond)
		}
		if isTrue() {
			return
		}
		select {
		case <-fakeChanged:
		case <-w.changed:
		case <-tick:
		case <-w.interrupted.Done():
			w.Fatal("interrupted")
		case <-timeout:
			w.Fatalf("this has not happened within %v: %s", patience, what)
		}
	}
}

// try sends a request and returns the object of the answer. The path may have a query.
func (w *world) try(method, path string, body object) (object, error) {
	path, query, _ := strings.Cut(path, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		w.Fatal(err)
	}
	request := kube.Request{Method: method, API: path, Query: values}
	if body != nil {
		request.Body = body
	}
	resp, err := w.client.Do(w.Context(), request)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var answer object
	err = json.NewDecoder(resp.Body).Decode(&answer)
	return answer, err
}

// send is like try, but an error ends the test.
func (w *world) send(method, path string, body object) object {
	w.Helper()
	answer, err := w.try(method, path, body)
	if err != nil {
		w.Fatal(err)
	}
	return answer
}

// create creates an object and returns its path. The object is deleted when the test ends.
func (w *world) create(collection string, o object) (path string) {
	w.Helper()
	meta := fakekube.MetaOf(o)
	if meta["labels"] == nil {
		meta["labels"] = object{}
	}
	meta["labels"].(object)[runLabel] = w.namespace
	path = collection + "/" + fakekube.TextIn(meta, "name")
	w.deleteAtEnd(path)
	w.await("the creation of "+path, func() bool {
		_, err := w.try("POST", collection, o)
		if err != nil && !isCreationRetried(err) {
			w.Fatal(err)
		}
		return err == nil
	})
	return path
}

// isCreationRetried reports whether another try may succeed: a new namespace has no service account for its pods at
// first, and an object of the same name may still be terminating.
func isCreationRetried(err error) bool {
	return strings.Contains(err.Error(), "error looking up service account") || isStatus(err, 409, "AlreadyExists")
}

// deleteAtEnd deletes the object at path when the test ends, if it exists then.
func (w *world) deleteAtEnd(path string) { *w.created = append(*w.created, path) }

// delete deletes an object without a grace period.
func (w *world) delete(path string) {
	w.Helper()
	w.send("DELETE", path, object{"gracePeriodSeconds": 0})
}

// isStatus reports whether err is a Status with this code and reason.
func isStatus(err error, code int, reason string) bool {
	s := kube.StatusOf(err)
	return s.Code == code && s.Reason == reason
}

// wantStatus fails the test unless err is a Status with this code and reason.
func (w *world) wantStatus(what string, err error, code int, reason string) {
	w.Helper()
	if !isStatus(err, code, reason) {
		w.Errorf("%s: got %v, want a status %d %s", what, err, code, reason)
	}
}
